//! Post-processors: what is answered instead of all samples (`mean_3600(NAME)`).

use crate::Refused;

/// Seconds of a bin where none are given.
const SECS: u64 = 900;
/// Points where none are given.
const POINTS: u64 = 1_000;
/// Most seconds of a bin, most points, largest step: about a century.
const NUMBER_MAX: u64 = 1 << 32;

/// Most bins of a signal.
const BINS_MAX: u64 = 10_000_000;

/// A number that the samples of a bin are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the statistic of its name")]
pub enum Stat {
    Mean,
    Min,
    Max,
    Count,
    Std,
    Variance,
    /// Variance divided by n instead of n - 1.
    PopVariance,
    /// The square root of the mean of the squares.
    Rms,
    Median,
    Kurtosis,
    Skewness,
    /// Standard deviation divided by the mean.
    Jitter,
    /// The value at the bin's middle, by straight lines between samples.
    Linear,
    /// The same by local regression (Cleveland's LOESS) and a spline.
    Loess,
    /// The mean, and the standard deviation as field `stdz`.
    ErrorBar,
    /// Mean, standard deviation, smallest, largest, count: an array.
    Stats,
}

/// What is answered instead of all samples. Bins begin at multiples of their length since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    /// All samples.
    Raw,
    /// One number of each bin.
    Stat {
        /// Which.
        stat: Stat,
        /// Seconds of a bin.
        secs: u64,
        /// Whether a bin without samples repeats the one before.
        fill: bool,
    },
    /// One sample of each bin.
    Pick {
        /// The last instead of the first.
        last: bool,
        /// Seconds of a bin.
        secs: u64,
        /// Whether a bin without samples repeats the one before; stamps are the bins' middles then.
        fill: bool,
    },
    /// Each of so many samples.
    Nth(u64),
    /// How many samples there are.
    NCount,
    /// Samples by their distance from the bin's mean.
    Flyers {
        /// Seconds of a bin.
        secs: u64,
        /// Standard deviations from which on a sample is far.
        sigmas: f64,
        /// Whether those are answered, or the others.
        far: bool,
    },
    /// Samples that differ by more than this from the one before that was answered, or in severity.
    DeadBand(f64),
    /// First, smallest, largest and last of each bin.
    Plot {
        /// Seconds of a bin.
        secs: u64,
    },
    /// All samples where they are few, else [`Stat::Stats`] of so many bins.
    Optimized {
        /// How many are few.
        points: u64,
        /// Whether a bin has its last value, too.
        last: bool,
        /// Whether a bin without samples repeats the one before.
        fill: bool,
    },
}

const STATS: [(&str, Stat); 16] = [
    ("mean", Stat::Mean),
    ("min", Stat::Min),
    ("max", Stat::Max),
    ("count", Stat::Count),
    ("std", Stat::Std),
    ("variance", Stat::Variance),
    ("popvariance", Stat::PopVariance),
    ("rms", Stat::Rms),
    ("median", Stat::Median),
    ("kurtosis", Stat::Kurtosis),
    ("skewness", Stat::Skewness),
    ("jitter", Stat::Jitter),
    ("linear", Stat::Linear),
    ("loess", Stat::Loess),
    ("errorbar", Stat::ErrorBar),
    ("stats", Stat::Stats),
];

/// Other names, for who asks for one that is not there.
const OTHERS: &str = "firstSample, lastSample, firstFill, lastFill, nth, ncount, flyers, ignoreflyers, deadBand, \
                      caplotbinning, optimized, optimLastSample";

impl Operator {
    /// Reads a word such as `mean_3600`.
    ///
    /// # Errors
    /// What it is not: nothing is guessed from a beginning.
    pub(crate) fn read(word: &str) -> Result<Self, Refused> {
        let mut parts = word.split('_');
        let name = parts.next().unwrap_or_default();
        let mut given = Given { word, parts: parts.collect::<Vec<_>>().into_iter() };
        let (stem, fill) = name.strip_suffix("Sample").map_or((name, true), |stem| (stem, false));
        let stat = STATS.iter().find(|(known, _)| *known == stem).map(|(_, stat)| *stat);
        let operator = match (name, stat) {
            (_, Some(stat)) => Self::Stat { stat, secs: given.whole(SECS)?, fill },
            ("raw", _) => Self::Raw,
            ("firstSample", _) => Self::Pick { last: false, secs: given.whole(SECS)?, fill: false },
            ("lastSample", _) => Self::Pick { last: true, secs: given.whole(SECS)?, fill: false },
            ("firstFill", _) => Self::Pick { last: false, secs: given.whole(SECS)?, fill: true },
            ("lastFill", _) => Self::Pick { last: true, secs: given.whole(SECS)?, fill: true },
            ("nth", _) => Self::Nth(given.whole(0)?),
            ("ncount", _) => Self::NCount,
            ("flyers", _) => Self::Flyers { secs: given.whole(SECS)?, sigmas: given.real(3.0)?, far: true },
            ("ignoreflyers", _) => Self::Flyers { secs: given.whole(SECS)?, sigmas: given.real(3.0)?, far: false },
            ("deadBand", _) => Self::DeadBand(given.real(1.0)?),
            ("caplotbinning", _) => Self::Plot { secs: given.whole(SECS)? },
            ("optimized" | "optimizedSample", _) => Self::Optimized { points: given.whole(POINTS)?, last: false, fill },
            ("optimLastSample", _) => Self::Optimized { points: given.whole(POINTS)?, last: true, fill: true },
            _ => {
                let stats: Vec<&str> = STATS.iter().map(|(name, _)| *name).collect();
                let known = format!("{}, {OTHERS}", stats.join(", "));
                return Err(Refused::bad(format!("{name:?} is no post-processor; expected one of {known}")));
            }
        };
        match given.parts.next() {
            None => Ok(operator),
            Some(more) => Err(Refused::bad(format!("{word:?}: {more:?} is one argument too many"))),
        }
    }

    /// Whether it makes numbers of numbers: not for texts and arrays.
    pub(crate) const fn needs_numbers(self) -> bool {
        matches!(self, Self::Stat { .. } | Self::Flyers { .. } | Self::DeadBand(_) | Self::Plot { .. })
    }

    /// Whether a span is divided into so many bins at most that they can be answered.
    pub(crate) fn bounded(self, text: &str, from: i64, to: i64) -> Result<(), Refused> {
        let secs = match self {
            Self::Optimized { points, .. } => Some(crate::flow::optimal_secs(from, to, points)),
            other => other.secs(),
        };
        let bins = secs.map_or(0, |secs| to.abs_diff(from) / 1_000_000_000 / secs);
        if bins > BINS_MAX {
            return Err(Refused::bad(format!("{text:?} asks for {bins} bins; expected at most {BINS_MAX}")));
        }
        Ok(())
    }

    /// Seconds of a bin, where there are bins.
    const fn secs(self) -> Option<u64> {
        match self {
            Self::Stat { secs, .. } | Self::Pick { secs, .. } | Self::Plot { secs } | Self::Flyers { secs, .. } => {
                Some(secs)
            }
            _ => None,
        }
    }
}

/// Splits `mean_3600(NAME)` or `flyers(NAME,600,2)` into the post-processor's word and the name; `None` where there is none.
pub(crate) fn split(text: &str) -> Option<(String, &str)> {
    let (word, inside) = text.strip_suffix(')')?.split_once('(')?;
    let mut parts = inside.split(',').map(str::trim);
    let name = parts.next()?;
    let mut word = word.trim().to_owned();
    for part in parts {
        word.push('_');
        word.push_str(part);
    }
    Some((word, name))
}

/// The arguments that are left.
struct Given<'a> {
    word: &'a str,
    parts: std::vec::IntoIter<&'a str>,
}

impl Given<'_> {
    /// The next one, a positive whole number; `other` where there is none, unless that is 0.
    fn whole(&mut self, other: u64) -> Result<u64, Refused> {
        let part = self.parts.next();
        let number = part.map_or(Some(other), |part| part.parse().ok());
        number.filter(|number| (1..=NUMBER_MAX).contains(number)).ok_or_else(|| {
            let found = part.map_or_else(|| "has no number".into(), |part| format!("has {part:?}"));
            Refused::bad(format!("{:?} {found}; expected a whole number from 1 to {NUMBER_MAX}", self.word))
        })
    }

    /// The next one, a number that is not negative.
    fn real(&mut self, other: f64) -> Result<f64, Refused> {
        let Some(part) = self.parts.next() else { return Ok(other) };
        let number = part.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| {
            Refused::bad(format!("{:?} has {part:?}; expected a number that is not negative", self.word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn post_processors_are_read_whole() {
        let stat = |stat, secs, fill| Operator::Stat { stat, secs, fill };
        for (word, expected) in [
            ("mean", stat(Stat::Mean, 900, true)),
            ("meanSample_60", stat(Stat::Mean, 60, false)),
            ("popvariance_5", stat(Stat::PopVariance, 5, true)),
            ("firstSample_60", Operator::Pick { last: false, secs: 60, fill: false }),
            ("lastFill", Operator::Pick { last: true, secs: 900, fill: true }),
            ("nth_7", Operator::Nth(7)),
            ("ncount", Operator::NCount),
            ("flyers_600_2.5", Operator::Flyers { secs: 600, sigmas: 2.5, far: true }),
            ("ignoreflyers", Operator::Flyers { secs: 900, sigmas: 3.0, far: false }),
            ("deadBand_0.5", Operator::DeadBand(0.5)),
            ("caplotbinning_10", Operator::Plot { secs: 10 }),
            ("optimized_2000", Operator::Optimized { points: 2000, last: false, fill: true }),
            ("optimLastSample", Operator::Optimized { points: 1000, last: true, fill: true }),
        ] {
            assert_eq!(Operator::read(word), Ok(expected), "{word}");
        }
    }

    #[test]
    fn what_is_no_post_processor_is_told_and_not_guessed() {
        for (word, said) in [
            ("meanie", "is no post-processor; expected one of mean, "),
            ("", "is no post-processor"),
            ("firstsample", "is no post-processor"),
            ("mean_x", "expected a whole number"),
            ("mean_0", "expected a whole number"),
            ("mean_60_60", "one argument too many"),
            ("nth", "has no number"),
            ("deadBand_-1", "not negative"),
            ("flyers_60_NaN", "not negative"),
        ] {
            let why = Operator::read(word).unwrap_err().why;
            assert!(why.contains(said), "{word}: {why}");
        }
    }

    #[test]
    fn a_name_is_taken_out_of_its_post_processor() {
        assert_eq!(split("mean_60(A:b)"), Some(("mean_60".into(), "A:b")));
        assert_eq!(split("flyers(A:b, 600,2)"), Some(("flyers_600_2".into(), "A:b")));
        assert_eq!((split("A:b"), split("A)"), split("A(")), (None, None, None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (Operator::read(&text), split(&text));
        }
    }
}

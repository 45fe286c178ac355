//! Post-processors, which replace the samples in an answer (`mean_3600(NAME)`).

use crate::Refused;

/// Default width of a bin, in seconds.
const SECS: u64 = 900;
/// Default number of points.
const POINTS: u64 = 1_000;
/// Maximum width of a bin in seconds, number of points, and step. About a century in seconds.
const NUMBER_MAX: u64 = 1 << 32;

/// Maximum number of bins per signal.
const BINS_MAX: u64 = 10_000_000;

/// A statistic of the samples of a bin.
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
    /// Value at the middle of the bin, by linear interpolation between samples.
    Linear,
    /// The same by local regression (Cleveland's LOESS) and a spline.
    Loess,
    /// Mean, with the standard deviation as field `stdz`.
    ErrorBar,
    /// Array of mean, standard deviation, minimum, maximum, count.
    Stats,
}

/// A post-processor. Bins begin at multiples of their width since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    /// All samples.
    Raw,
    /// One statistic per bin.
    Stat {
        /// The statistic.
        stat: Stat,
        /// Width of a bin, in seconds.
        secs: u64,
        /// An empty bin repeats the previous one.
        fill: bool,
    },
    /// One sample per bin.
    Pick {
        /// Use the last sample instead of the first.
        last: bool,
        /// Width of a bin, in seconds.
        secs: u64,
        /// An empty bin repeats the previous one. The timestamps are then the middles of the bins.
        fill: bool,
    },
    /// Every nth sample.
    Nth(u64),
    /// Number of samples.
    NCount,
    /// Samples selected by their distance from the bin's mean.
    Flyers {
        /// Width of a bin, in seconds.
        secs: u64,
        /// Distance above which a sample is far, in standard deviations.
        sigmas: f64,
        /// Select the far samples instead of the others.
        far: bool,
    },
    /// Samples that differ from the last emitted one by at least this value, or in severity.
    DeadBand(f64),
    /// First, minimum, maximum and last value of each bin.
    Plot {
        /// Width of a bin, in seconds.
        secs: u64,
    },
    /// All samples if they are at most `points`, otherwise [`Stat::Stats`] of `points` bins.
    Optimized {
        /// Number of points.
        points: u64,
        /// A bin also has its last value.
        last: bool,
        /// An empty bin repeats the previous one.
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

/// Names of the other post-processors, for the error message.
const OTHERS: &str = "firstSample, lastSample, firstFill, lastFill, nth, ncount, flyers, ignoreflyers, deadBand, \
                      caplotbinning, optimized, optimLastSample";

impl Operator {
    /// Parses a word such as `mean_3600`.
    ///
    /// # Errors
    /// The word is not a post-processor. Abbreviations are not accepted.
    pub(crate) fn read(word: &str) -> Result<Self, Refused> {
        let mut parts = word.split('_');
        let name = parts.next().unwrap_or_default();
        let mut given = Arguments { word, parts: parts.collect::<Vec<_>>().into_iter() };
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

    /// The operator needs numbers, and does not apply to texts and arrays.
    pub(crate) const fn needs_numbers(self) -> bool {
        matches!(self, Self::Stat { .. } | Self::Flyers { .. } | Self::DeadBand(_) | Self::Plot { .. })
    }

    /// Checks that a span does not have too many bins.
    pub(crate) fn bounded(self, text: &str, from: i64, to: i64) -> Result<(), Refused> {
        let secs = match self {
            Self::Optimized { points, .. } => Some(crate::flow::optimal_secs(from, to, points)),
            other => other.secs(),
        };
        let bins = secs.map_or(0, |secs| to.abs_diff(from) / 1_000_000_000 / secs);
        if bins > BINS_MAX {
            return Err(Refused::bad(format!("{text:?} requests {bins} bins; expected at most {BINS_MAX}")));
        }
        Ok(())
    }

    /// Width of a bin in seconds, if the operator uses bins.
    const fn secs(self) -> Option<u64> {
        match self {
            Self::Stat { secs, .. } | Self::Pick { secs, .. } | Self::Plot { secs } | Self::Flyers { secs, .. } => {
                Some(secs)
            }
            _ => None,
        }
    }
}

/// Splits `mean_3600(NAME)` or `flyers(NAME,600,2)` into the post-processor's word and the name. `None` if there is no post-processor.
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

/// Remaining arguments.
struct Arguments<'a> {
    word: &'a str,
    parts: std::vec::IntoIter<&'a str>,
}

impl Arguments<'_> {
    /// Next argument, a positive integer. `other` is the default; a default of 0 makes the argument mandatory.
    fn whole(&mut self, other: u64) -> Result<u64, Refused> {
        let part = self.parts.next();
        let number = part.map_or(Some(other), |part| part.parse().ok());
        number.filter(|number| (1..=NUMBER_MAX).contains(number)).ok_or_else(|| {
            let found = part.map_or_else(|| "has no number".into(), |part| format!("has {part:?}"));
            Refused::bad(format!("{:?} {found}; expected a whole number from 1 to {NUMBER_MAX}", self.word))
        })
    }

    /// Next argument, a non-negative number.
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
    fn post_processors_are_parsed_with_their_arguments() {
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
    fn an_unknown_post_processor_is_refused_with_the_expected_form() {
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
    fn the_name_of_a_signal_is_extracted_from_its_post_processor() {
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

//! A request to an oscilloscope: as its user writes it, as lines of text for transport, and as words for the loop.

use super::machine::{Condition, Mode, Timing};
use ring::{CAPTURES_MAX, CHANNELS_MAX, SETUP_WORDS};
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// A requested setup, with the names of variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The variables to sample, at most [`CHANNELS_MAX`].
    pub channels: Vec<String>,
    /// Start and length of captures.
    pub timing: Timing,
    /// Trigger condition.
    pub condition: Condition,
    /// The variable of the condition, if it needs one. It need not be among the channels.
    pub on: Option<String>,
    /// Number of newest captures that are kept.
    pub keep: usize,
    /// Whether sampling continues after the client has disconnected.
    pub detached: bool,
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A line is not part of a request.
    #[error("{found:?} is no line of a request; expected {expected}")]
    Line {
        /// The line.
        found: String,
        /// Description of a correct line.
        expected: &'static str,
    },
    /// No variable has this name.
    #[error("{name:?} is not exported here; expected one of {known}")]
    NoVariable {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The number of variables is out of range.
    #[error("{found} variables; expected 1 to {}", CHANNELS_MAX)]
    Channels {
        /// Number requested.
        found: usize,
    },
    /// The number of captures to keep is out of range.
    #[error("{found} captures to keep; expected {least} to {}", CAPTURES_MAX)]
    Keep {
        /// Number requested.
        found: usize,
        /// The minimum.
        least: usize,
    },
    /// The capture is too long, or has no row after its trigger.
    #[error(
        "{pre} rows before the trigger of {length}; expected at least 1 row more in all than before it, and {most} at most"
    )]
    Length {
        /// Number of rows before the trigger.
        pre: u64,
        /// Total number of rows.
        length: u64,
        /// Maximum number of rows of a capture with this number of variables and captures.
        most: u64,
    },
    /// A limit of the condition is not finite, or its window is empty.
    #[error("{0}; expected numbers, the lower one first, and a hysteresis of 0 or more")]
    Limits(String),
    /// The condition needs a variable, but none is given.
    #[error("the trigger has no variable; expected one")]
    NoTriggerVariable,
}

impl Condition {
    /// The condition as words: its code and two parameters.
    fn words(self) -> (u64, u64, u64) {
        match self {
            Self::Never => (0, 0, 0),
            Self::Rising { level, hysteresis } => (1, level.to_bits(), hysteresis.to_bits()),
            Self::Falling { level, hysteresis } => (2, level.to_bits(), hysteresis.to_bits()),
            Self::Crossing { level, hysteresis } => (3, level.to_bits(), hysteresis.to_bits()),
            Self::Above { level } => (4, level.to_bits(), 0),
            Self::Below { level } => (5, level.to_bits(), 0),
            Self::Enters { low, high } => (6, low.to_bits(), high.to_bits()),
            Self::Leaves { low, high } => (7, low.to_bits(), high.to_bits()),
            Self::Changes => (8, 0, 0),
            Self::Miss => (9, 0, 0),
            Self::Overrun => (10, 0, 0),
            Self::Pulse { number } => (11, number, 0),
            Self::EachPulse { period, phase } => (12, period, phase),
        }
    }

    fn of(kind: u64, one: u64, two: u64) -> Option<Self> {
        let (level, hysteresis) = (f64::from_bits(one), f64::from_bits(two));
        let (low, high) = (level, hysteresis);
        Some(match kind {
            0 => Self::Never,
            1 => Self::Rising { level, hysteresis },
            2 => Self::Falling { level, hysteresis },
            3 => Self::Crossing { level, hysteresis },
            4 => Self::Above { level },
            5 => Self::Below { level },
            6 => Self::Enters { low, high },
            7 => Self::Leaves { low, high },
            8 => Self::Changes,
            9 => Self::Miss,
            10 => Self::Overrun,
            11 => Self::Pulse { number: one },
            12 => Self::EachPulse { period: one, phase: two },
            _ => return None,
        })
    }

    /// Whether the condition needs a variable.
    #[must_use]
    pub const fn looks_at_variable(&self) -> bool {
        !matches!(self, Self::Never | Self::Miss | Self::Overrun | Self::Pulse { .. } | Self::EachPulse { .. })
    }

    /// Whether its limits are valid.
    fn is_sound(&self) -> bool {
        match *self {
            Self::Rising { level, hysteresis }
            | Self::Falling { level, hysteresis }
            | Self::Crossing { level, hysteresis } => level.is_finite() && hysteresis.is_finite() && hysteresis >= 0.0,
            Self::Above { level } | Self::Below { level } => level.is_finite(),
            Self::Enters { low, high } | Self::Leaves { low, high } => {
                low.is_finite() && high.is_finite() && low <= high
            }
            Self::EachPulse { period, phase } => phase < period,
            _ => true,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Rising { level, hysteresis } => write!(f, "rising {level} {hysteresis}"),
            Self::Falling { level, hysteresis } => write!(f, "falling {level} {hysteresis}"),
            Self::Crossing { level, hysteresis } => write!(f, "crossing {level} {hysteresis}"),
            Self::Above { level } => write!(f, "above {level}"),
            Self::Below { level } => write!(f, "below {level}"),
            Self::Enters { low, high } => write!(f, "enters {low} {high}"),
            Self::Leaves { low, high } => write!(f, "leaves {low} {high}"),
            Self::Changes => f.write_str("changes"),
            Self::Miss => f.write_str("miss"),
            Self::Overrun => f.write_str("overrun"),
            Self::Pulse { number } => write!(f, "pulse {number}"),
            Self::EachPulse { period, phase } => write!(f, "each-pulse {period} {phase}"),
        }
    }
}

impl FromStr for Condition {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        const EXPECTED: &str = "never, rising, falling or crossing LEVEL HYSTERESIS, above or below LEVEL, enters or leaves \
                                LOW HIGH, changes, miss, overrun, pulse NUMBER, or each-pulse PERIOD PHASE";
        let refused = || RequestError::Line { found: text.to_owned(), expected: EXPECTED };
        let words: Vec<&str> = text.split_whitespace().collect();
        let real = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok()).ok_or_else(refused);
        let whole = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).ok_or_else(refused);
        let first = words.first().copied().unwrap_or_default();
        let (condition, length) = match first {
            "never" => (Self::Never, 1),
            "rising" => (Self::Rising { level: real(1)?, hysteresis: real(2)? }, 3),
            "falling" => (Self::Falling { level: real(1)?, hysteresis: real(2)? }, 3),
            "crossing" => (Self::Crossing { level: real(1)?, hysteresis: real(2)? }, 3),
            "above" => (Self::Above { level: real(1)? }, 2),
            "below" => (Self::Below { level: real(1)? }, 2),
            "enters" => (Self::Enters { low: real(1)?, high: real(2)? }, 3),
            "leaves" => (Self::Leaves { low: real(1)?, high: real(2)? }, 3),
            "changes" => (Self::Changes, 1),
            "miss" => (Self::Miss, 1),
            "overrun" => (Self::Overrun, 1),
            "pulse" => (Self::Pulse { number: whole(1)? }, 2),
            "each-pulse" => (Self::EachPulse { period: whole(1)?, phase: whole(2)? }, 3),
            _ => return Err(refused()),
        };
        if words.len() == length { Ok(condition) } else { Err(refused()) }
    }
}

impl fmt::Display for Request {
    /// The form for transport: one line for each part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timing { mode, pre, length, every, holdoff, patience, captures } = self.timing;
        let mode = match mode {
            Mode::Roll => "roll",
            Mode::Auto => "auto",
            Mode::Normal => "normal",
        };
        writeln!(f, "mode {mode}\npre {pre}\nlength {length}\nevery {every}\nholdoff {holdoff}\npatience {patience}")?;
        writeln!(f, "captures {captures}\nkeep {}\ndetached {}\ntrigger {}", self.keep, self.detached, self.condition)?;
        self.on.iter().try_for_each(|name| writeln!(f, "on {name}"))?;
        self.channels.iter().try_for_each(|name| writeln!(f, "channel {name}"))
    }
}

impl FromStr for Request {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let timing = Timing { every: 1, ..Timing::default() };
        let (channels, condition, on) = (Vec::new(), Condition::Never, None);
        let mut request = Self { channels, timing, condition, on, keep: 1, detached: false };
        text.lines().try_for_each(|line| request.line(line)).map(|()| request)
    }
}

impl Request {
    fn line(&mut self, line: &str) -> Result<(), RequestError> {
        let refused = |expected| RequestError::Line { found: line.to_owned(), expected };
        let (key, value) = line.split_once(' ').ok_or_else(|| refused("a word, a blank, and a value"))?;
        let whole = || value.parse::<u64>().map_err(|_| refused("a whole number"));
        match key {
            "mode" => {
                self.timing.mode = match value {
                    "roll" => Mode::Roll,
                    "auto" => Mode::Auto,
                    "normal" => Mode::Normal,
                    _ => return Err(refused("roll, auto or normal")),
                }
            }
            "pre" => self.timing.pre = whole()?,
            "length" => self.timing.length = whole()?,
            "every" => self.timing.every = whole()?.max(1),
            "holdoff" => self.timing.holdoff = whole()?,
            "patience" => self.timing.patience = whole()?,
            "captures" => self.timing.captures = whole()?,
            "keep" => self.keep = usize::try_from(whole()?).unwrap_or(usize::MAX),
            "detached" => self.detached = value.parse().map_err(|_| refused("true or false"))?,
            "trigger" => self.condition = value.parse()?,
            "on" => self.on = Some(value.to_owned()),
            "channel" => self.channels.push(value.to_owned()),
            _ => return Err(refused("a part of a request")),
        }
        Ok(())
    }

    /// Resolves the names of variables and checks the request. `most` returns the maximum number of rows of a capture for a
    /// number of variables and captures.
    pub(super) fn settle(
        &self,
        id: u64,
        variables: &ring::Variables<'_>,
        most: impl FnOnce(usize, usize) -> Option<u64>,
    ) -> Result<Setup, RequestError> {
        let find = |name: &String| {
            let names = || (0..variables.len()).filter_map(|index| variables.name(index));
            variables.find(name).ok_or_else(|| RequestError::NoVariable {
                name: name.clone(),
                known: names().map(|name| name.as_str().to_owned()).collect::<Vec<_>>().join(", "),
            })
        };
        let found = self.channels.len();
        if !(1..=CHANNELS_MAX).contains(&found) {
            return Err(RequestError::Channels { found });
        }
        // With repeated captures, the last one must be kept while the next one is written.
        let least = if self.timing.mode == Mode::Roll || self.timing.captures == 1 { 1 } else { 2 };
        if !(least..=CAPTURES_MAX).contains(&self.keep) {
            return Err(RequestError::Keep { found: self.keep, least });
        }
        let Timing { pre, length, .. } = self.timing;
        let most = most(found, self.keep).unwrap_or(0);
        if pre >= length || length > most {
            return Err(RequestError::Length { pre, length, most });
        }
        if !self.condition.is_sound() {
            return Err(RequestError::Limits(self.condition.to_string()));
        }
        let on = match &self.on {
            Some(name) => Some(find(name)?),
            None if self.condition.looks_at_variable() => return Err(RequestError::NoTriggerVariable),
            None => None,
        };
        let mut channels = [0; CHANNELS_MAX];
        for (index, name) in channels.iter_mut().zip(&self.channels) {
            *index = find(name)?;
        }
        let count = found;
        let (timing, condition, keep) = (self.timing, self.condition, self.keep);
        Ok(Setup { id, channels, count, timing, condition, on, keep, commanded: 0, detached: self.detached })
    }
}

/// A setup in the form that the loop applies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Setup {
    /// Number of the setup.
    pub(super) id: u64,
    /// Indices of the sampled variables; the first `count` are valid.
    pub(super) channels: [usize; CHANNELS_MAX],
    /// Number of variables.
    pub(super) count: usize,
    /// Start and length of captures.
    pub(super) timing: Timing,
    /// Trigger condition.
    pub(super) condition: Condition,
    /// The variable of the condition.
    pub(super) on: Option<usize>,
    /// Number of captures that are kept.
    pub(super) keep: usize,
    /// The newest command when the setup was requested. Later commands apply to this setup.
    pub(super) commanded: u64,
    /// Whether sampling continues after the client has disconnected.
    pub(super) detached: bool,
}

impl Setup {
    pub(super) fn words(&self) -> [u64; SETUP_WORDS] {
        let Timing { mode, pre, length, every, holdoff, patience, captures } = self.timing;
        let (kind, one, two) = self.condition.words();
        let mut words = [0; SETUP_WORDS];
        let on = self.on.map_or(0, |on| on as u64 + 1);
        let head = [
            self.id,
            mode as u64,
            self.count as u64,
            self.keep as u64,
            pre,
            length,
            every,
            holdoff,
            patience,
            captures,
            kind,
            one,
            two,
            on,
            self.commanded,
            self.detached.into(),
        ];
        words.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        words[CHANNELS_AT..].iter_mut().zip(self.channels).for_each(|(to, from)| *to = from as u64);
        words
    }

    /// Decodes a setup from memory; `None` if it is invalid.
    pub(super) fn of(words: &[u64; SETUP_WORDS]) -> Option<Self> {
        let [id, mode, count, keep, pre, length, every, holdoff, patience, captures, kind, one, two, on, rest @ ..] =
            *words;
        let (commanded, detached) = (rest[0], rest[1] != 0);
        let mode = *[Mode::Roll, Mode::Auto, Mode::Normal].get(usize::try_from(mode).ok()?)?;
        let timing = Timing { mode, pre, length, every, holdoff, patience, captures };
        let mut channels = [0; CHANNELS_MAX];
        for (to, from) in channels.iter_mut().zip(&words[CHANNELS_AT..]) {
            *to = usize::try_from(*from).ok()?;
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= CHANNELS_MAX)?;
        let on = on.checked_sub(1).and_then(|on| usize::try_from(on).ok());
        let keep = usize::try_from(keep).ok()?;
        Some(Self {
            id,
            channels,
            count,
            timing,
            condition: Condition::of(kind, one, two)?,
            on,
            keep,
            commanded,
            detached,
        })
    }
}

/// Index of the first variable's word.
const CHANNELS_AT: usize = 16;

impl RequestError {
    /// The answer for the client, on one line.
    pub(super) fn line(&self) -> String {
        let mut line = String::from("no ");
        // Writing to a String does not fail.
        let _ = write!(line, "{self}");
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ring::{AtomicU64, Number, VariableSpec, Variables};

    fn request() -> Request {
        let timing =
            Timing { mode: Mode::Normal, pre: 30, length: 100, every: 2, holdoff: 7, patience: 9, captures: 3 };
        let condition = Condition::Rising { level: 1.5, hysteresis: 0.125 };
        let (channels, on) = (vec!["cavity voltage".into(), "b".into()], Some("b".into()));
        Request { channels, timing, condition, on, keep: 4, detached: true }
    }

    fn settled(request: &Request) -> Result<Setup, RequestError> {
        let words: Vec<AtomicU64> = (0..Variables::words_for(2)).map(|_| AtomicU64::new(0)).collect();
        let variables = Variables::format(&words).unwrap();
        for name in ["b", "cavity voltage"] {
            variables.add(&VariableSpec { name, unit: "", first: Number::Float(0.0), safe: None }).unwrap();
        }
        request.settle(9, &variables, |_, _| Some(1000))
    }

    #[test]
    fn a_request_survives_a_round_trip_as_text_and_as_words() {
        let request = request();
        assert_eq!(request.to_string().parse(), Ok(request.clone()));
        let setup = settled(&request).unwrap();
        assert_eq!((setup.channels[..2].to_vec(), setup.on, setup.id), (vec![1, 0], Some(0), 9));
        assert_eq!(Setup::of(&setup.words()), Some(setup));
        for text in [
            "never",
            "falling 1 0",
            "crossing 1 2",
            "above 1e-3",
            "below -2",
            "enters 1 2",
            "leaves -1 1",
            "changes",
            "miss",
            "overrun",
            "pulse 7",
            "each-pulse 10 3",
        ] {
            let condition: Condition = text.parse().unwrap();
            let (kind, one, two) = condition.words();
            assert_eq!(Condition::of(kind, one, two), Some(condition), "{text}");
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
    }

    #[test]
    fn an_impossible_request_is_refused_with_the_allowed_values() {
        let refused = |change: fn(&mut Request)| {
            let mut request = request();
            change(&mut request);
            settled(&request).unwrap_err().to_string()
        };
        assert!(refused(|r| r.channels[0] = "x".into()).ends_with("expected one of b, cavity voltage"));
        assert!(refused(|r| r.channels.clear()).starts_with("0 variables"));
        assert!(refused(|r| r.keep = 1).ends_with("expected 2 to 64"));
        assert!(refused(|r| r.timing.length = 1001).contains("1000 at most"));
        assert!(refused(|r| r.timing.pre = 100).contains("100 rows before the trigger of 100"));
        assert!(refused(|r| r.on = None).contains("no variable"));
        assert!(refused(|r| r.condition = Condition::Enters { low: 2.0, high: 1.0 }).contains("lower one first"));
        assert!(refused(|r| r.condition = Condition::Above { level: f64::NAN }).contains("numbers"));
    }

    proptest! {
        #[test]
        fn any_text_and_any_words_are_accepted_or_refused_without_a_panic(
            text in "(mode|pre|trigger|keep|on|x)? ?[a-z0-9 .\n-]{0,40}",
            words in proptest::array::uniform32(any::<u64>()),
        ) {
            let _ = text.parse::<Request>();
            let mut all = [0; SETUP_WORDS];
            all[..32].copy_from_slice(&words);
            let _ = Setup::of(&all);
        }
    }
}

//! Linux scheduling classes, with the names that users write (`sched(7)`).

use crate::unit::{DurNs, ParseUnitError};
use core::fmt;
use core::str::FromStr;

/// A static real-time priority, 1 (lowest) to 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Priority(pub u8);

/// Reservation of a `SCHED_DEADLINE` thread: `runtime` in every `period`, done by `deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {
    /// Processor time per period.
    pub runtime: DurNs,
    /// Relative deadline; at least `runtime`.
    pub deadline: DurNs,
    /// Period; at least `deadline`.
    pub period: DurNs,
}

/// Scheduling class and parameters of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Time sharing (`SCHED_OTHER`) with a nice value, -20 to 19.
    Other {
        /// The nice value.
        nice: i8,
    },
    /// Time sharing for batch work.
    Batch {
        /// The nice value.
        nice: i8,
    },
    /// Runs only when no other thread needs the CPU.
    Idle,
    /// First in, first out at a fixed priority.
    Fifo(Priority),
    /// As FIFO, but threads of equal priority share by time slice.
    Rr(Priority),
    /// A reservation (earliest deadline first).
    Deadline(Deadline),
}

/// Urgency of a class: DEADLINE above all fixed priorities, these above time sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RtLevel {
    /// Not real time.
    None,
    /// FIFO or RR.
    Fixed(Priority),
    /// DEADLINE.
    Deadline,
}

/// Error of a text that is not a scheduling class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsePolicyError {
    /// Not one of the classes.
    Class,
    /// A priority outside 1 to 99.
    Priority,
    /// A nice value outside -20 to 19.
    Nice,
    /// `deadline:` without its three times.
    Times,
    /// One of the times is invalid.
    Time(ParseUnitError),
    /// The times do not satisfy `1024 ns <= runtime <= deadline <= period`.
    Order,
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class => f.write_str(
                "expected fifo:PRIORITY, rr:PRIORITY, deadline:RUNTIME/DEADLINE/PERIOD, other, batch or idle",
            ),
            Self::Priority => f.write_str("expected a priority from 1 to 99, such as fifo:80"),
            Self::Nice => f.write_str("expected a nice value from -20 to 19, such as other:5"),
            Self::Times => f.write_str("expected deadline:RUNTIME/DEADLINE/PERIOD, such as deadline:200us/1ms/1ms"),
            Self::Time(error) => error.fmt(f),
            Self::Order => f.write_str("expected 1024ns <= runtime <= deadline <= period"),
        }
    }
}

impl core::error::Error for ParsePolicyError {}

impl Policy {
    /// Plain time sharing.
    pub const OTHER: Self = Self::Other { nice: 0 };

    /// Urgency of the class.
    #[must_use]
    pub fn level(self) -> RtLevel {
        match self {
            Self::Other { .. } | Self::Batch { .. } | Self::Idle => RtLevel::None,
            Self::Fifo(priority) | Self::Rr(priority) => RtLevel::Fixed(priority),
            Self::Deadline(_) => RtLevel::Deadline,
        }
    }

    /// The class can starve time-sharing work.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        self.level() != RtLevel::None
    }
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let (class, argument) = match text.trim().split_once(':') {
            Some((class, argument)) => (class, Some(argument.trim())),
            None => (text.trim(), None),
        };
        let priority = || match argument.and_then(|text| text.parse().ok()) {
            Some(priority @ 1..=99) => Ok(Priority(priority)),
            _ => Err(ParsePolicyError::Priority),
        };
        let nice = || match argument {
            None => Ok(0),
            Some(text) => match text.parse() {
                Ok(nice @ -20..=19) => Ok(nice),
                _ => Err(ParsePolicyError::Nice),
            },
        };
        match class {
            "other" => Ok(Self::Other { nice: nice()? }),
            "batch" => Ok(Self::Batch { nice: nice()? }),
            "idle" if argument.is_none() => Ok(Self::Idle),
            "fifo" => priority().map(Self::Fifo),
            "rr" => priority().map(Self::Rr),
            "deadline" => {
                let mut times = argument.ok_or(ParsePolicyError::Times)?.split('/');
                let mut time = || -> Result<DurNs, ParsePolicyError> {
                    times.next().ok_or(ParsePolicyError::Times)?.parse().map_err(ParsePolicyError::Time)
                };
                let reservation = Deadline { runtime: time()?, deadline: time()?, period: time()? };
                if times.next().is_some() {
                    return Err(ParsePolicyError::Times);
                }
                let Deadline { runtime, deadline, period } = reservation;
                if DurNs(1024) <= runtime && runtime <= deadline && deadline <= period {
                    Ok(Self::Deadline(reservation))
                } else {
                    Err(ParsePolicyError::Order)
                }
            }
            _ => Err(ParsePolicyError::Class),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { nice: 0 } => f.write_str("other"),
            Self::Other { nice } => write!(f, "other:{nice}"),
            Self::Batch { nice: 0 } => f.write_str("batch"),
            Self::Batch { nice } => write!(f, "batch:{nice}"),
            Self::Idle => f.write_str("idle"),
            Self::Fifo(priority) => write!(f, "fifo:{}", priority.0),
            Self::Rr(priority) => write!(f, "rr:{}", priority.0),
            Self::Deadline(d) => write!(f, "deadline:{}/{}/{}", d.runtime, d.deadline, d.period),
        }
    }
}

#[cfg(feature = "serde")]
mod as_text {
    use super::Policy;

    impl serde::Serialize for Policy {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> serde::Deserialize<'de> for Policy {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl serde::de::Visitor<'_> for Visitor {
                type Value = Policy;
                fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str("a scheduling class such as \"fifo:80\"")
                }
                fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Policy, E> {
                    text.parse().map_err(E::custom)
                }
            }
            deserializer.deserialize_str(Visitor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_class_survives_a_round_trip() {
        for text in ["other", "other:-5", "batch", "idle", "fifo:80", "rr:1", "deadline:200us/1ms/1ms"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn impossible_classes_are_refused_with_their_reason() {
        for (text, expected) in [
            ("fifo", ParsePolicyError::Priority),
            ("fifo:0", ParsePolicyError::Priority),
            ("fifo:100", ParsePolicyError::Priority),
            ("other:20", ParsePolicyError::Nice),
            ("idle:1", ParsePolicyError::Class),
            ("realtime", ParsePolicyError::Class),
            ("deadline", ParsePolicyError::Times),
            ("deadline:1ms/1ms", ParsePolicyError::Times),
            ("deadline:2ms/1ms/3ms", ParsePolicyError::Order),
        ] {
            assert_eq!(text.parse::<Policy>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_reservation_outranks_every_priority() {
        assert!("deadline:1ms/2ms/2ms".parse::<Policy>().unwrap().level() > RtLevel::Fixed(Priority(99)));
        assert!(RtLevel::Fixed(Priority(1)) > Policy::OTHER.level());
    }
}

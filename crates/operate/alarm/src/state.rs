//! Persistent state of an alarm. Its JSON is that of Phoebus with additional keys.

use crate::Severity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time: nanoseconds since 1970. `{"seconds":…,"nano":…}` in JSON, because many JSON readers cannot represent 64-bit integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

#[derive(Serialize, Deserialize)]
struct Parts {
    seconds: i64,
    nano: u32,
}

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Parts { seconds: self.0.div_euclid(1_000_000_000), nano: self.0.rem_euclid(1_000_000_000) as u32 }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { seconds, nano } = Parts::deserialize(from)?;
        Ok(Self(seconds.saturating_mul(1_000_000_000).saturating_add(nano.into())))
    }
}

/// State of a channel at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Severity.
    pub severity: Severity,
    /// Message: the record's alarm status.
    pub message: String,
    /// The value.
    pub value: String,
    /// Time stamp of the value.
    pub time: Wall,
}

impl Moment {
    /// The normal state.
    #[must_use]
    pub fn clear(value: &str, time: Wall) -> Self {
        Self { severity: Severity::Ok, message: Severity::Ok.name().to_owned(), value: value.to_owned(), time }
    }
}

/// Author and reason of hiding an alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The user.
    pub by: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Time at which it ends automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
}

/// Shelving of an alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shelf {
    /// End time.
    pub until: Wall,
    /// Whether it also ends as soon as the alarm has returned to normal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    /// The user.
    pub by: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// State of an alarm. The first six keys are those of Phoebus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The alarm, latched or acknowledged.
    #[serde(flatten)]
    pub alarm: Moment,
    /// Present severity of the channel.
    pub current_severity: Severity,
    /// Present message of the channel.
    pub current_message: String,
    /// Shelved by an operator for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shelved: Option<Shelf>,
    /// Suppressed by design: its filter is false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suppressed: bool,
    /// Out of service for maintenance, until put back into service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_service: Option<Mark>,
    /// Disabled: not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Mark>,
}

impl State {
    /// Reason why the alarm is hidden; `None` if it is not.
    #[must_use]
    pub fn hidden(&self) -> Option<&'static str> {
        match self {
            Self { disabled: Some(_), .. } => Some("disabled"),
            Self { out_of_service: Some(_), .. } => Some("out of service"),
            Self { shelved: Some(_), .. } => Some("shelved"),
            Self { suppressed: true, .. } => Some("suppressed"),
            _ => None,
        }
    }

    /// Whether there is nothing to display: neither an alarm nor hidden.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.alarm.severity == Severity::Ok && self.current_severity == Severity::Ok && self.hidden().is_none()
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

//! What is known of an alarm and outlives the process: the form of its JSON is Phoebus', with more keys.

use crate::Severity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant: nanoseconds since 1970; `{"seconds":…,"nano":…}` in JSON, whose readers often hold no whole 64 bits.
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

/// What a channel was at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// How bad.
    pub severity: Severity,
    /// Why: the record's alarm status.
    pub message: String,
    /// The value.
    pub value: String,
    /// When, by the stamp of the value.
    pub time: Wall,
}

impl Moment {
    /// All is well.
    #[must_use]
    pub fn clear(value: &str, time: Wall) -> Self {
        Self { severity: Severity::Ok, message: Severity::Ok.name().to_owned(), value: value.to_owned(), time }
    }
}

/// Who has put an alarm aside, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The user.
    pub by: String,
    /// Why, in his words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
}

/// An alarm on the shelf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shelf {
    /// Until when it is there.
    pub until: Wall,
    /// Whether it also comes back as soon as all is well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    /// The user.
    pub by: String,
    /// Why, in his words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The state of an alarm. The first six keys are those of Phoebus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The alarm: latched, or acknowledged.
    #[serde(flatten)]
    pub alarm: Moment,
    /// What the channel is at this time.
    pub current_severity: Severity,
    /// Why.
    pub current_message: String,
    /// On the shelf: an operator has put it there for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shelved: Option<Shelf>,
    /// Suppressed by design: its filter says that it means nothing now.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suppressed: bool,
    /// Out of service: put away for maintenance until somebody puts it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_service: Option<Mark>,
    /// Disabled: not evaluated at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Mark>,
}

impl State {
    /// Why it is not shown among the alarms although it may be one.
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

    /// Whether there is nothing to show: no alarm, nothing put aside.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.alarm.severity == Severity::Ok && self.current_severity == Severity::Ok && self.hidden().is_none()
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

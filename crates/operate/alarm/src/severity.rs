//! Severity of an alarm, including its acknowledgement.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Severity of an alarm, including its acknowledgement. In the order in which an area displays the most severe of its alarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// Normal.
    #[default]
    Ok,
    /// Minor alarm, acknowledged.
    MinorAck,
    /// Major alarm, acknowledged.
    MajorAck,
    /// Invalid value, acknowledged.
    InvalidAck,
    /// Undefined, acknowledged.
    UndefinedAck,
    /// Minor alarm.
    Minor,
    /// Major alarm.
    Major,
    /// Invalid value.
    Invalid,
    /// Undefined: the channel is not connected.
    Undefined,
}

impl Severity {
    /// All severities in order.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::MinorAck,
        Self::MajorAck,
        Self::InvalidAck,
        Self::UndefinedAck,
        Self::Minor,
        Self::Major,
        Self::Invalid,
        Self::Undefined,
    ];

    /// Converts an EPICS severity.
    #[must_use]
    pub const fn of(severity: base::Severity) -> Self {
        match severity {
            base::Severity::None => Self::Ok,
            base::Severity::Minor => Self::Minor,
            base::Severity::Major => Self::Major,
            base::Severity::Invalid => Self::Invalid,
        }
    }

    /// Whether it is an unacknowledged alarm.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Minor | Self::Major | Self::Invalid | Self::Undefined)
    }

    /// Severity level regardless of acknowledgement: 0 normal to 4 undefined.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Minor | Self::MinorAck => 1,
            Self::Major | Self::MajorAck => 2,
            Self::Invalid | Self::InvalidAck => 3,
            Self::Undefined | Self::UndefinedAck => 4,
        }
    }

    /// Order for updates of an alarm: an acknowledgement covers all severities up to its level.
    #[must_use]
    pub const fn update_rank(self) -> u8 {
        let level = self.level() * 2;
        if self.is_active() { level - 1 } else { level }
    }

    /// The acknowledged form.
    #[must_use]
    pub const fn acknowledged(self) -> Self {
        match self.level() {
            0 => Self::Ok,
            1 => Self::MinorAck,
            2 => Self::MajorAck,
            3 => Self::InvalidAck,
            _ => Self::UndefinedAck,
        }
    }

    /// The unacknowledged form.
    #[must_use]
    pub const fn active(self) -> Self {
        match self.level() {
            0 => Self::Ok,
            1 => Self::Minor,
            2 => Self::Major,
            3 => Self::Invalid,
            _ => Self::Undefined,
        }
    }

    /// Name, as in Phoebus.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::MinorAck => "MINOR_ACK",
            Self::MajorAck => "MAJOR_ACK",
            Self::InvalidAck => "INVALID_ACK",
            Self::UndefinedAck => "UNDEFINED_ACK",
            Self::Minor => "MINOR",
            Self::Major => "MAJOR",
            Self::Invalid => "INVALID",
            Self::Undefined => "UNDEFINED",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

//! How bad an alarm is, and whether somebody has acknowledged it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How bad an alarm is, and whether it is acknowledged; in the order in which an area shows the worst of its alarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// All is well.
    #[default]
    Ok,
    /// A minor alarm that somebody has seen.
    MinorAck,
    /// A major alarm that somebody has seen.
    MajorAck,
    /// A value that cannot be trusted, which somebody has seen.
    InvalidAck,
    /// Nobody knows, which somebody has seen.
    UndefinedAck,
    /// A minor alarm.
    Minor,
    /// A major alarm.
    Major,
    /// The value cannot be trusted.
    Invalid,
    /// Nobody knows: the channel is not connected.
    Undefined,
}

impl Severity {
    /// All, in their order.
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

    /// What EPICS' severity means here.
    #[must_use]
    pub const fn of(severity: base::Severity) -> Self {
        match severity {
            base::Severity::None => Self::Ok,
            base::Severity::Minor => Self::Minor,
            base::Severity::Major => Self::Major,
            base::Severity::Invalid => Self::Invalid,
        }
    }

    /// An alarm that nobody has acknowledged.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Minor | Self::Major | Self::Invalid | Self::Undefined)
    }

    /// How bad it is, acknowledged or not: 0 for none, 4 for unknown.
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

    /// The order inside one alarm: an acknowledgement covers everything up to its level.
    #[must_use]
    pub const fn update_rank(self) -> u8 {
        let level = self.level() * 2;
        if self.is_active() { level - 1 } else { level }
    }

    /// The same, acknowledged.
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

    /// The same, not acknowledged.
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

    /// The word that Phoebus has for it.
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

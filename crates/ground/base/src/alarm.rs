//! Alarm severity and status, with the numbers and names of EPICS.

use core::fmt;

/// Severity of an alarm (menu `menuAlarmSevr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// No alarm.
    #[default]
    None = 0,
    /// Minor alarm.
    Minor = 1,
    /// Major alarm.
    Major = 2,
    /// The value itself cannot be trusted.
    Invalid = 3,
}

impl Severity {
    /// From its number in the menu; larger numbers are invalid.
    #[must_use]
    pub const fn from_index(index: u16) -> Self {
        match index {
            0 => Self::None,
            1 => Self::Minor,
            2 => Self::Major,
            _ => Self::Invalid,
        }
    }

    /// The word that EPICS clients print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NO_ALARM",
            Self::Minor => "MINOR",
            Self::Major => "MAJOR",
            Self::Invalid => "INVALID",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! statuses {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// Cause of a record's alarm (menu `menuAlarmStat`).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are EPICS' own and documented there")]
        pub enum Status {
            #[default]
            $($variant = $number,)*
        }

        impl Status {
            /// All statuses in the order of the menu.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word that EPICS clients print.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

statuses! {
    None = 0, "NO_ALARM";
    Read = 1, "READ";
    Write = 2, "WRITE";
    Hihi = 3, "HIHI";
    High = 4, "HIGH";
    Lolo = 5, "LOLO";
    Low = 6, "LOW";
    State = 7, "STATE";
    Cos = 8, "COS";
    Comm = 9, "COMM";
    Timeout = 10, "TIMEOUT";
    HwLimit = 11, "HWLIMIT";
    Calc = 12, "CALC";
    Scan = 13, "SCAN";
    Link = 14, "LINK";
    Soft = 15, "SOFT";
    BadSub = 16, "BAD_SUB";
    Udf = 17, "UDF";
    Disable = 18, "DISABLE";
    Simm = 19, "SIMM";
    ReadAccess = 20, "READ_ACCESS";
    WriteAccess = 21, "WRITE_ACCESS";
}

impl Status {
    /// From its number in the menu; `None` if the menu does not have the number.
    #[must_use]
    pub fn from_index(index: u16) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value's alarm: status and severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Alarm {
    /// Cause.
    pub status: Status,
    /// Severity.
    pub severity: Severity,
}

impl Alarm {
    /// No alarm.
    pub const NONE: Self = Self { status: Status::None, severity: Severity::None };
}

/// Alarm message and user tag of a record. PVAccess sends them, Channel Access does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The user tag of the time stamp (UTAG).
    pub user_tag: u64,
    /// The message of the alarm (AMSG), or empty.
    pub message: &'static str,
}

impl Annotation {
    /// No tag and no message.
    pub const NONE: Self = Self { user_tag: 0, message: "" };
}

/// The events that a subscription requests or an update reports (DBE_VALUE and its siblings), as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventMask(pub u8);

impl EventMask {
    /// No event.
    pub const NONE: Self = Self(0);
    /// The value moved by more than the monitor deadband.
    pub const VALUE: Self = Self(1);
    /// The value moved by more than the archive deadband.
    pub const LOG: Self = Self(2);
    /// Alarm status or severity changed.
    pub const ALARM: Self = Self(4);
    /// A property (limits, units, labels) changed.
    pub const PROPERTY: Self = Self(8);

    /// Whether the two sets share an event.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no event is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for EventMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitAnd for EventMask {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl core::ops::BitOrAssign for EventMask {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_severity_have_the_numbers_of_the_menus() {
        assert_eq!(Status::from_index(17), Some(Status::Udf));
        assert_eq!(Status::from_index(22), None);
        for (index, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, index);
        }
        assert_eq!(Severity::from_index(3), Severity::Invalid);
    }

    #[test]
    fn event_masks_intersect_if_they_share_an_event() {
        let wanted = EventMask::VALUE | EventMask::ALARM;
        assert!(wanted.meets(EventMask::ALARM) && !wanted.meets(EventMask::LOG | EventMask::PROPERTY));
    }
}

//! Colours of the output, and the functions of [`sys::out`].

use std::fmt;
pub(crate) use sys::out::*;

/// The meaning of a text, displayed as a colour. The text must be clear without the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Bad,
    /// Neither good nor bad, but needs attention.
    Doubtful,
    Head,
    /// Secondary information.
    Faint,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Doubtful => "33",
            Self::Head => "1",
            Self::Faint => "2",
        }
    }
}

/// Text in a colour, if standard output supports colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painted<T>(pub(crate) Colour, pub(crate) T);

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(colour, text) = self;
        match colours() {
            true => write!(f, "\x1b[{}m{text}\x1b[0m", colour.code()),
            false => text.fmt(f),
        }
    }
}

/// A number of bytes with a binary unit.
pub(crate) fn bytes(count: u64) -> String {
    let (scale, unit) = match count {
        0..1024 => return format!("{count} B"),
        1024..1_048_576 => (1 << 10, "KiB"),
        1_048_576..1_073_741_824 => (1 << 20, "MiB"),
        _ => (1u64 << 30, "GiB"),
    };
    format!("{:.1} {unit}", count as f64 / scale as f64)
}

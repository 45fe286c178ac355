//! How a request ended.

use base::{DurNs, nearest};
use core::fmt;
use core::str::FromStr;

/// The outcome of a request. The set is closed: a receiver treats a word that is not here as a broken peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Code {
    /// Done; the complement is the value, or empty.
    Ok,
    /// Nobody serves the object.
    NoObject,
    /// The object does not know the verb, or this attribute of it.
    NoVerb,
    /// The access rules forbid it.
    Denied,
    /// Somebody else holds a lock on the object.
    Locked,
    /// The object is at something that must end first.
    Busy,
    /// The complement is no value that the object can take, or outside of its limits.
    Range,
    /// The equipment failed or refused.
    Device,
    /// The deadline passed before anything was done: nothing was executed.
    Expired,
    /// A queue on the way was full, or too many requests were outstanding: nothing was executed.
    Overload,
    /// The request is no message that can be understood: nothing was executed.
    Malformed,
    /// The deadline passed and the hop that is named has not answered: it may have happened, or may still.
    Timeout,
    /// Who was executing it died or was lost: it may have happened. Ask with `get`.
    Unknown,
    /// A fault in the software that answered.
    Internal,
}

impl Code {
    /// All codes, in the order of the documentation.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::NoObject,
        Self::NoVerb,
        Self::Denied,
        Self::Locked,
        Self::Busy,
        Self::Range,
        Self::Device,
        Self::Expired,
        Self::Overload,
        Self::Malformed,
        Self::Timeout,
        Self::Unknown,
        Self::Internal,
    ];

    /// The word that is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::NoObject => "NO_OBJECT",
            Self::NoVerb => "NO_VERB",
            Self::Denied => "DENIED",
            Self::Locked => "LOCKED",
            Self::Busy => "BUSY",
            Self::Range => "RANGE",
            Self::Device => "DEVICE",
            Self::Expired => "EXPIRED",
            Self::Overload => "OVERLOAD",
            Self::Malformed => "MALFORMED",
            Self::Timeout => "TIMEOUT",
            Self::Unknown => "UNKNOWN",
            Self::Internal => "INTERNAL",
        }
    }

    /// Whether the equipment may have been changed although the request did not succeed.
    #[must_use]
    pub const fn may_have_happened(self) -> bool {
        matches!(self, Self::Device | Self::Timeout | Self::Unknown | Self::Internal)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is no code; what was probably meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeError {
    /// What was probably meant.
    pub nearest: Option<Code>,
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(word: &str) -> Result<Self, CodeError> {
        Self::ALL.into_iter().find(|code| code.word() == word).ok_or_else(|| {
            let meant = nearest(word, Self::ALL.iter().map(|code| code.word()));
            CodeError { nearest: meant.and_then(|meant| Self::ALL.into_iter().find(|code| code.word() == meant)) }
        })
    }
}

/// A place on a request's way, for replies that somebody gave in another's stead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop<'a> {
    /// The message server of this host.
    Server,
    /// An equipment manager, by its name.
    Manager(&'a str),
    /// Another host, by its name.
    Host(&'a str),
}

impl fmt::Display for Hop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("message server"),
            Self::Manager(name) => write!(f, "manager {name}"),
            Self::Host(name) => write!(f, "host {name}"),
        }
    }
}

/// Complements of the replies that are given in another's stead; each starts with the hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    /// With [`Code::Timeout`].
    NoAnswer {
        /// Who did not answer.
        hop: Hop<'a>,
        /// How long it had the request.
        after: DurNs,
    },
    /// With [`Code::Unknown`].
    Died {
        /// Who died or was lost.
        hop: Hop<'a>,
        /// How long it had the request.
        after: DurNs,
    },
    /// With [`Code::Expired`].
    TooLate {
        /// Who noticed.
        hop: Hop<'a>,
        /// How late it was.
        by: DurNs,
    },
}

impl Failure<'_> {
    /// The code that belongs to it.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::NoAnswer { .. } => Code::Timeout,
            Self::Died { .. } => Code::Unknown,
            Self::TooLate { .. } => Code::Expired,
        }
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer { hop, after } => write!(f, "{hop}: no answer within {}", short(*after)),
            Self::Died { hop, after } => {
                write!(f, "{hop}: lost {} after it got the request; ask with get", short(*after))
            }
            Self::TooLate { hop, by } => {
                write!(f, "{hop}: the deadline passed {} earlier, nothing was done", short(*by))
            }
        }
    }
}

/// A time with no more digits than anybody reads: 4.996s, 458ms, 1.25ms, 312us.
const fn short(time: DurNs) -> DurNs {
    let step = if time.0 >= 10_000_000 { 1_000_000 } else { 1_000 };
    if time.0 < step { time } else { DurNs(time.0 / step * step) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn each_code_reads_back_and_a_strange_one_is_refused() {
        for code in Code::ALL {
            assert_eq!(code.word().parse(), Ok(code));
        }
        assert_eq!("TIMOUT".parse::<Code>(), Err(CodeError { nearest: Some(Code::Timeout) }));
        assert_eq!("ok".parse::<Code>(), Err(CodeError { nearest: Some(Code::Ok) }));
    }

    #[test]
    fn a_reply_in_anothers_stead_names_the_hop_and_the_time() {
        let silent = Failure::NoAnswer { hop: Hop::Manager("magnets"), after: DurNs::from_ms(250) };
        assert_eq!(
            (silent.code(), silent.to_string().as_str()),
            (Code::Timeout, "manager magnets: no answer within 250ms")
        );
        for (ns, shown) in [(4_996_797_855, "4.996s"), (458_419_123, "458ms"), (1_250_900, "1.25ms"), (123, "123ns")] {
            let late = Failure::TooLate { hop: Hop::Server, by: DurNs(ns) };
            assert!(late.to_string().contains(&std::format!("passed {shown} earlier")), "{late}");
        }
    }
}

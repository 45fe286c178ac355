//! Result codes of requests.

use base::{DurNs, nearest};
use core::fmt;
use core::str::FromStr;

/// Result of a request. The set is closed: a receiver treats an unknown word as a fault of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Code {
    /// Success. The complement is the value, or empty.
    Ok,
    /// No manager serves the object.
    NoObject,
    /// The object does not support the verb, or does not have this attribute.
    NoVerb,
    /// The access rules forbid it.
    Denied,
    /// Another client holds a lock on the object.
    Locked,
    /// The object must first finish another operation.
    Busy,
    /// The complement is not a valid value of the object, or is outside its limits.
    Range,
    /// The equipment failed or refused.
    Device,
    /// The deadline passed before the execution. Nothing was executed.
    Expired,
    /// A queue on the way was full, or too many requests were outstanding. Nothing was executed.
    Overload,
    /// The request could not be parsed. Nothing was executed.
    Malformed,
    /// The deadline passed and the named hop has not answered. The request may have been executed, or may still be.
    Timeout,
    /// The executing process died or was disconnected. The request may have been executed. Check with `get`.
    Unknown,
    /// A software fault in the process that answered.
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

    /// The code's word in replies.
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

/// A word that is not a code, with the most similar one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeError {
    /// The most similar code.
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

/// A hop on the path of a request. Used in replies that another hop gives on its behalf.
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

/// Complements of replies given on behalf of another hop. Each starts with the hop's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    /// With [`Code::Timeout`].
    NoAnswer {
        /// The hop that did not answer.
        hop: Hop<'a>,
        /// Time since it received the request.
        after: DurNs,
    },
    /// With [`Code::Unknown`].
    Died {
        /// The hop that died or was disconnected.
        hop: Hop<'a>,
        /// Time since it received the request.
        after: DurNs,
    },
    /// With [`Code::Expired`].
    TooLate {
        /// The hop that detected it.
        hop: Hop<'a>,
        /// Delay after the deadline.
        by: DurNs,
    },
}

impl Failure<'_> {
    /// The code of the reply.
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

/// A time rounded down to milliseconds from 10 ms on, else to microseconds: 4.996s, 458ms, 1.25ms, 312us.
const fn short(time: DurNs) -> DurNs {
    let step = if time.0 >= 10_000_000 { 1_000_000 } else { 1_000 };
    if time.0 < step { time } else { DurNs(time.0 / step * step) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn each_code_survives_a_round_trip_and_an_unknown_one_is_refused() {
        for code in Code::ALL {
            assert_eq!(code.word().parse(), Ok(code));
        }
        assert_eq!("TIMOUT".parse::<Code>(), Err(CodeError { nearest: Some(Code::Timeout) }));
        assert_eq!("ok".parse::<Code>(), Err(CodeError { nearest: Some(Code::Ok) }));
    }

    #[test]
    fn a_reply_on_behalf_of_another_hop_names_that_hop_and_the_time() {
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

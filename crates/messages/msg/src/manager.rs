//! What passes between the message server and an equipment manager.

use crate::code::Code;
use crate::header::{Band, Flags, Subject};
use crate::text::Request;
use base::MonoNs;

/// Which request an [`Answer`] is for. Each must be used exactly once; the message server counts a second answer and
/// drops it, and answers `TIMEOUT` for one that never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The request's id on this connection.
    pub id: u64,
    /// The band on which the answer goes back.
    pub band: Band,
}

/// A request as a manager gets it. Its deadline has not passed when it is handed over: those that came too late were
/// answered `EXPIRED` before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// For the answer.
    pub ticket: Ticket,
    /// Who asks, filled in by the message server from what the kernel says.
    pub subject: Subject,
    /// Until when it is worth executing. The message server gives requests without one its default, and answers
    /// `TIMEOUT` in the manager's stead when it passes.
    pub deadline: MonoNs,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// With [`Flags::DRY_RUN`]: check everything, change nothing.
    pub flags: Flags,
    /// What is asked.
    pub request: Request<'a>,
    /// Its body, mostly MessagePack, or empty.
    pub body: &'a [u8],
    /// Most bytes that the body of its answer may have.
    pub answer_bytes_max: u64,
}

impl Asked<'_> {
    /// How urgent it is.
    #[must_use]
    pub const fn band(&self) -> Band {
        self.ticket.band
    }
}

/// What a manager answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// How it ended.
    pub code: Code,
    /// The value that was asked for or reached, or for a failure what was found, expected, and what to do. Plain
    /// text: it is escaped on its way.
    pub complement: &'a str,
    /// A body, mostly MessagePack, or empty.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// It worked; `value` may be empty.
    #[must_use]
    pub const fn ok(value: &'a str) -> Self {
        Self { code: Code::Ok, complement: value, body: &[] }
    }

    /// It did not.
    #[must_use]
    pub const fn failed(code: Code, why: &'a str) -> Self {
        Self { code, complement: why, body: &[] }
    }
}

//! Types exchanged between the message server and an equipment manager.

use crate::code::Code;
use crate::header::{Band, Flags, Subject};
use crate::text::Request;
use base::MonoNs;

/// Identifies the request that an [`Answer`] belongs to. Each must be answered exactly once. The message server counts
/// and drops a second answer, and answers `TIMEOUT` if none arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The request's id on this connection.
    pub id: u64,
    /// The band on which the answer goes back.
    pub band: Band,
}

/// A request as a manager receives it. Its deadline had not passed when it was taken from the queue: late requests are
/// answered `EXPIRED` before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerRequest<'a> {
    /// Needed for the answer.
    pub ticket: Ticket,
    /// The sender, set by the message server from what the kernel reports.
    pub subject: Subject,
    /// Deadline for the execution. The message server sets a default for requests without one, and answers `TIMEOUT`
    /// for the manager when it passes.
    pub deadline: MonoNs,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// With [`Flags::DRY_RUN`], check everything and change nothing.
    pub flags: Flags,
    /// The request.
    pub request: Request<'a>,
    /// Body, usually MessagePack, or empty.
    pub body: &'a [u8],
    /// Maximum bytes of the answer's body.
    pub answer_bytes_max: u64,
}

impl ManagerRequest<'_> {
    /// Its urgency.
    #[must_use]
    pub const fn band(&self) -> Band {
        self.ticket.band
    }
}

/// A manager's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The result.
    pub code: Code,
    /// The value read or reached; for a failure, what was found, what was expected, and what to do. Plain text: it is
    /// escaped for transmission.
    pub complement: &'a str,
    /// Body, usually MessagePack, or empty.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Success; `value` may be empty.
    #[must_use]
    pub const fn ok(value: &'a str) -> Self {
        Self { code: Code::Ok, complement: value, body: &[] }
    }

    /// Failure with a reason.
    #[must_use]
    pub const fn failed(code: Code, why: &'a str) -> Self {
        Self { code, complement: why, body: &[] }
    }
}

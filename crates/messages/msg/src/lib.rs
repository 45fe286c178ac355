//! Messages: readable commands to equipment, modelled on MADOCA II, each with a band, a deadline and exactly one reply.
//!
//! A user types `put/sr_mag_ps_b/123.45A` and reads `OK/123.45A`. A [`Request`] is *verb*/*object*/*complement*, a
//! [`Reply`] is *code*/*complement*. The *subject* (the sender) is in the [`Header`]; the message server sets it from
//! what the kernel reports about its peer. A [`Frame`] consists of a header, a text line and an optional body. An
//! equipment manager receives an [`ManagerRequest`] and returns an [`Answer`].
//!
//! Out of scope: files, sockets, clocks, threads, shared memory; the current time is an argument. Untrusted bytes cause
//! neither panics nor allocations: decoded values borrow from them.
//!
//! ```
//! use msg::{Code, Reply, Request, Verb};
//! let request = Request::parse("put/sr_mag_ps_b/123.45A")?;
//! assert_eq!((request.verb, request.object.text()), (Verb::Put, "sr_mag_ps_b"));
//! assert_eq!(request.complement.text(), "123.45A");
//! let reply = Reply::parse("RANGE/at most 120A")?;
//! assert_eq!(reply.code, Code::Range);
//! let wrong = Request::parse("puts/sr_mag_ps_b/1A").unwrap_err();
//! assert_eq!(wrong.to_string(), "\"puts\" is no verb; did you mean \"put\"?");
//! # Ok::<(), msg::TextError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod checksum;
mod code;
mod deadline;
mod frame;
mod header;
mod lane;
mod manager;
mod object;
mod options;
mod quantity;
mod share;
mod tables;
mod text;
mod text_buffer;
mod wheel;
pub mod zmtp;

pub use base::{Verb, VerbError};
pub use batch::{BATCH_LINES_MAX, BatchError, Lines, write_lines};
pub use checksum::checksum;
pub use code::{Code, Failure, Hop};
pub use deadline::DeadlineRule;
pub use frame::{BODY_BYTES_MAX, Frame, FrameError, TEXT_BYTES_MAX};
pub use header::{BANDS, Band, Flags, HEADER_BYTES, HEADER_WORDS, Header, HeaderError, Kind, Pooled, Subject};
pub use lane::{Completion, Counters, Lane, Limits, Step};
pub use manager::{Answer, ManagerRequest, Ticket};
pub use object::{OBJECT_BYTES_MAX, Object, ObjectError, Pattern};
pub use options::{Options, OptionsError};
pub use quantity::quantity;
pub use share::{Excess, Share};
pub use tables::{Access, Conn, HOST_BYTES_MAX, Hosts, Lock, Route, Rule, RuleError, Tables, is_host};
pub use text::{Complement, Escaped, Reply, Request, TextError};
pub use text_buffer::TextBuffer;

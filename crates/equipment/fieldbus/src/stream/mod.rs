//! Line protocols described by protocol files, compatible with StreamDevice.
//!
//! | to | call |
//! |---|---|
//! | read a protocol file | [`File::parse`] |
//! | take one protocol and substitute its arguments | [`File::protocol`] |
//! | run it as an [`Exchange`](crate::Exchange) | [`Session`] |
//! | match an unsolicited line | [`Protocol::unasked`] |
//!
//! Supported:
//! - the commands `out in wait connect disconnect`
//! - user variables, references to other protocols, the arguments `$1` to `$9`
//! - the system variables `Terminator InTerminator OutTerminator ReplyTimeout ReadTimeout WriteTimeout PollPeriod LockTimeout
//!   MaxInput Separator ExtraInput`
//! - the handlers `@mismatch @replytimeout @readtimeout @init`
//! - the conversions `f e g m d i u x o s c b B r R D T(time) [set] {enum} <checksum> /regex/ #/regex/text/` with the flags
//!   `* # + - 0 blank ? ! =`, width and precision. They apply to the value, or to a field named by `%(FIELD)…` or
//!   `%(RECORD.FIELD)…`; the caller reads and writes such fields.
//!
//! The commands `event` and `exec` are refused with a reason.

mod convert;
mod file;
mod format;
mod given;
mod protocol;
mod read;
mod regex;
mod session;
mod syntax;
mod time;
mod words;
mod written;

pub use convert::{Conversion, Format, Kind, Value};
pub use file::{Error, File};
pub use given::{Field, RunInputs, RunOutputs, State, Takes};
pub use protocol::Protocol;
pub use session::{Session, Trouble};
pub use time::{TimeFormat, Zone};

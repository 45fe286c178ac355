//! Line protocols described by protocol files, in the manner of StreamDevice.
//!
//! | to | call |
//! |---|---|
//! | read a protocol file | [`File::parse`] |
//! | take one protocol with its arguments | [`File::protocol`] |
//! | run it as an [`Exchange`](crate::Exchange) | [`Session`] |
//! | match a line that nobody asked for | [`Protocol::unasked`] |
//!
//! Known: commands `out in wait connect disconnect`, variables of one's own, references to other protocols, arguments
//! `$1` to `$9`, system variables `Terminator InTerminator OutTerminator ReplyTimeout ReadTimeout WriteTimeout
//! PollPeriod LockTimeout MaxInput Separator ExtraInput`, handlers `@mismatch @replytimeout @readtimeout @init`,
//! conversions `f e g m d i u x o s c b B r R D T(time) [set] {enum} <checksum> /regex/ #/regex/text/` with flags `* # + - 0 blank ? ! =`, width and
//! precision, of the value or of a field that `%(FIELD)…` or `%(RECORD.FIELD)…` names: whoever runs the protocol reads and
//! writes those. Refused, with the reason: `event exec`.

mod convert;
mod file;
mod format;
mod given;
mod protocol;
mod read;
mod regex;
mod session;
mod time;
mod words;
mod written;

pub use convert::{Conversion, Format, Kind, Value};
pub use file::{Error, File};
pub use given::{Field, Given, State, Taken, Takes};
pub use protocol::Protocol;
pub use session::{Session, Trouble};
pub use time::{TimeFormat, Zone};

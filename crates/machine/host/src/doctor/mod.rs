//! Is this machine fit for real time? Facts in, findings and a verdict per use out.
//!
//! Each check is a unit struct in a file of [`checks`], named in the table [`CHECKS`] with its own
//! documentation; adding one touches nothing else. What could not be read is *unknown*, never fine.
//! Nothing here reads or changes the machine: `keep::machine` gathers, this decides.

mod capture;
mod check;
pub mod checks;
mod document;
mod facts;
mod finding;
pub mod gzip;
mod pattern;
mod probe;
mod report;
mod scrub;

pub use capture::CaptureError;
pub use check::{About, Check, reads, reads_then};
pub use checks::CHECKS;
pub use document::table;
pub use facts::{Facts, Files, Found, Read, Unknown, named};
pub use finding::{Effect, Finding, How, Remedy, Severity, Use};
pub use pattern::matches_component;
pub use probe::{ClockCost, Errno, NotTried, Permissions, Probe, Probes, Timex, Trial};
pub use report::{Entry, Report, UseReport, Verdict, examine};

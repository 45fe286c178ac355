//! Decides from facts whether a machine is fit for real time. The result is a list of findings and a verdict per use.
//!
//! Each check is a unit struct in a file of [`checks`], registered with its documentation in the table [`CHECKS`].
//! Adding a check changes nothing else. A fact that cannot be read is *unknown*, never fine. This module does not read
//! or change the machine: `keep::machine` gathers the facts.

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
pub use facts::{Facts, FileContent, FileMatch, Files, Unknown, named};
pub use finding::{Effect, Finding, Remedy, RemedyKind, Severity, Use};
pub use pattern::matches_component;
pub use probe::{ClockCost, Errno, Permissions, Probe, Probes, SkipReason, Timex, Trial};
pub use report::{Entry, Report, UseReport, Verdict, examine};

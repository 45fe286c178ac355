//! The format of measurement results, and its output as text, JSON, HTML page and Markdown; comparison of two runs.
//!
//! This crate measures nothing and reads no file: input is values or text, output is text.
//!
//! ```
//! use report::{Figure, Report, Row, Table, Target};
//! let row = Row::figure("reading the machine", "us", 1715.0).target(Target::at_most(2000.0));
//! let report = Report { bench: "shield".into(), tables: vec![Table::new("costs").row(row)], ..Report::default() };
//! let json = report::json(&report);
//! assert_eq!(report::read(&json).unwrap(), [report.clone()]);
//! assert!(report::text(&report).contains("reading the machine [us]"));
//! ```
#![forbid(unsafe_code)]

mod chart;
mod compare;
mod coverage;
mod experiments;
mod flame;
mod format;
mod latency;
mod markdown;
mod page;
mod read;
mod spikes;
mod stats;
mod text;
mod vxworks;

pub use compare::{Change, Changes, Comparison, compare};
pub use coverage::{BadCoverage, coverage};
pub use flame::{flame, flame_page};
pub use format::{
    Bound, Culprit, Experiment, Figure, Good, Machine, Published, Report, Row, Spike, Table, Target, TargetSubject,
    Verdict,
};
pub use latency::{Latency, Percentile};
pub use markdown::markdown;
pub use page::page;
pub use read::{ReadError, read};
pub use text::{heads, line, micros, short, text};
pub use vxworks::vxworks;

/// A report as indented JSON.
#[must_use]
pub fn json(report: &Report) -> String {
    // Cannot fail: a report contains only texts and numbers.
    serde_json::to_string_pretty(report).unwrap_or_default()
}

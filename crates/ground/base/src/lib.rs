//! Basic types of all crates: CPUs, units, scheduling classes, histograms.
//!
//! This crate uses no operating system: no clock, file, socket or thread. All types are plain values. Only values and
//! texts of variable length allocate.
//!
//! ```
//! use base::{CpuSet, DurNs};
//! let shield: CpuSet = "2-3,6".parse().unwrap();
//! assert_eq!(shield.count(), 3);
//! assert_eq!("250us".parse::<DurNs>().unwrap(), DurNs(250_000));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod alarm;
mod cluster;
mod console_filter;
mod cpuset;
pub mod csv;
mod directive;
mod hash;
mod hist;
pub mod json;
mod meta;
pub mod raw;
mod sched;
mod schedule;
mod stamp;
pub mod text;
mod unit;
mod value;
pub mod verb;
mod visible;
mod words;
mod worth;

pub use alarm::{Alarm, Annotation, EventMask, Severity, Status};
pub use cluster::{Cluster, ParseClusterError};
pub use console_filter::ConsoleFilter;
pub use cpuset::{CPUS_MAX, CpuId, CpuSet, CpuSetIter, ParseCpuSetError};
pub use directive::{Directive, WIDTH_MAX};
pub use hash::{NumberHash, NumberHasher};
pub use hist::{Histogram, Outside, Quantile};
pub use meta::{AlarmLimits, Meta, Range};
pub use sched::{Deadline, ParsePolicyError, Policy, Priority, RtLevel};
pub use schedule::{Schedule, Skipped};
pub use stamp::{EPICS_EPOCH_UNIX_SECS, Stamp, Utc, days_from_civil};
pub use unit::{DurNs, Hz, MonoNs, ParseUnitError, Size};
pub use value::{Array, Characters, FieldType, Scalar, Str40, Str40Writer, Value};
pub use verb::{Verb, VerbError};
pub use visible::{OneLine, Visible, colour};
pub use words::{glob, nearest};
pub use worth::{Fall, Lateness, ParseFallError, ResultDeadline, Tally, Worth};

//! The words that every other crate speaks: CPUs, units, scheduling classes, histograms.
//!
//! This crate knows no operating system: no clock, file, socket or thread, no allocation outside
//! `Display`-style formatting done by callers. Everything here is a plain value.
//!
//! ```
//! use base::{CpuSet, DurNs};
//! let shield: CpuSet = "2-3,6".parse().unwrap();
//! assert_eq!(shield.count(), 3);
//! assert_eq!("250us".parse::<DurNs>().unwrap(), DurNs(250_000));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod cpuset;
mod hist;
mod sched;
mod unit;

pub use cpuset::{CPUS_MAX, CpuId, CpuSet, CpuSetIter, ParseCpuSetError};
pub use hist::{Histogram, Quantile};
pub use sched::{Deadline, ParsePolicyError, Policy, Priority, RtLevel};
pub use unit::{DurNs, Hz, MonoNs, ParseUnitError, Size};

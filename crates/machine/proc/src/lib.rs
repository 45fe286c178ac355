//! Texts of `/proc` and `/sys`, and of the tools that keep the clock, and what they mean. One file per format.
//!
//! Pure: who reads the files hands in their text. No text panics a parser, and none allocates more than a small multiple
//! of what it was given.
#![forbid(unsafe_code)]

pub mod boot_line;
pub mod cgroup;
pub mod chrony;
pub mod cpuinfo;
pub mod interrupts;
pub mod kconfig;
pub mod limits;
pub mod mountinfo;
pub mod ptp;
pub mod stat;
pub mod status;
pub mod task_stat;
pub mod timer_list;
pub mod version;

//! Texts of `/proc` and `/sys` and what they mean. One file per format.
//!
//! No text panics a parser, and none allocates more than a small multiple of what it was given.

pub mod boot_line;
pub mod cgroup;
pub mod chrony;
pub mod gzip;
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

//! Texts of `/proc` and `/sys` and what they mean. One file per format.
//!
//! No text panics a parser, and none allocates more than a small multiple of what it was given.

pub mod boot_line;
pub mod gzip;
pub mod kconfig;
pub mod limits;
pub mod version;

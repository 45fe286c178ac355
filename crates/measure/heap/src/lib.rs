//! The library that `tahti profile --memory` loads into a program, as bytes, and the form of what it writes.
//!
//! The library itself is `preload/heap.rs`, which the build script builds: it has no standard library, as it stands in for `malloc`.
#![forbid(unsafe_code)]

/// The form of the file that the library writes.
pub mod layout;

/// The library's file.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtahti_heap.so"));

/// The variable that names the folder into which each process writes a file: `PID-N.heap`.
pub const FOLDER: &str = "TAHTI_HEAP";

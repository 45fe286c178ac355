//! The library that `tahti profile --memory` loads into a program, as bytes, and the layout of its output file.
//!
//! The source of the library is `preload/heap.rs`, built by the build script. It does not use the standard library, because it replaces
//! `malloc`.
#![forbid(unsafe_code)]

/// Layout of the output file.
pub mod layout;

/// The library's file.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtahti_heap.so"));

/// Environment variable with the folder of the output files. Each process writes `PID-N.heap`.
pub const FOLDER: &str = "TAHTI_HEAP";

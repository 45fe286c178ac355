//! Conversion of samples of threads (bytes from `perf_event_open(2)` rings) into profiles by function.
//!
//! Kernel code is named by `/proc/kallsyms`, user code by the symbols of its object. Programs usually have no frame pointers, so
//! user stacks are unwound from a copy of the stack with the tables that compilers generate for exceptions (`.eh_frame`). Samples
//! that could not be unwound are counted. Files are accessed only through [`Files`].
#![forbid(unsafe_code)]

mod found;
mod heap_file;
mod object;
mod record;
mod sampled;
mod space;
mod stack;

pub use found::{Covered, Frame, ProfileData, Row, Stack, Thread};
pub use heap_file::{HEAP_BYTES, Heap, HeapError, HeapReader, Site};
pub use object::{Linked, Source, demangled, linked};
pub use record::{Record, Records, Sample, Timed, User};
pub use sampled::{Files, Profile};
pub use stack::Cut;

/// Number of registers per sample if the stack is copied, in the order of `asm/perf_regs.h`.
pub const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 4 } else { 3 };

//! The kernel's samples of threads in (bytes of `perf_event_open(2)`'s rings), functions that took the time out.
//!
//! Kernel code is named by `/proc/kallsyms`, user code by the symbols of its object; user stacks are unwound from a copy of the
//! stack by the tables that every compiler writes for exceptions (`.eh_frame`), as programs have no frame pointers. What could not be
//! unwound is counted, never left out. Files come through [`Files`]: this crate reads none by itself.
#![forbid(unsafe_code)]

mod found;
mod heap_file;
mod object;
mod record;
mod sampled;
mod space;
mod stack;

pub use found::{Covered, Found, Frame, Row, Stack, Thread};
pub use heap_file::{HEAP_BYTES, Heap, HeapError, HeapReader, Site};
pub use object::{Linked, Source, linked};
pub use record::{Record, Records, Sample, Timed, User};
pub use sampled::{Files, Profile};
pub use stack::Cut;

/// How many registers each sample must carry, in the order of `asm/perf_regs.h`, where the stack is copied.
pub const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 4 } else { 3 };

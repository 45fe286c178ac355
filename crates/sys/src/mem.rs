//! This process's own memory.

use crate::error::{Doing, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Keeps every page that this process has touched, and will touch, in memory; pages never touched cost
/// nothing (`MCL_ONFAULT`).
///
/// # Errors
/// The kernel's: `EPERM`, `ENOMEM` (`RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`).
pub fn lock_touched() -> Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .doing(|| "lock the memory of this process".to_owned())
}

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts the calls of each thread: `#[global_allocator]` of tests that prove
/// that a thread does not allocate.
#[derive(Debug)]
pub struct CountingAllocator;

impl CountingAllocator {
    /// Calls of the allocator (to get, resize or give back) by this thread so far.
    #[must_use]
    pub fn calls() -> u64 {
        CALLS.get()
    }

    fn count() {
        // A thread that is being taken down has no counter any more.
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    }
}

// SAFETY: everything is handed to `System`, which keeps the contract; counting touches a plain integer.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::count();
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Gives memory that the allocator holds but nobody uses back to the kernel.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time; it locks the allocator itself.
    let _ = unsafe { libc::malloc_trim(0) };
}

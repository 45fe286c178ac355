//! The system's allocator, with a count for each thread: the proof that a real-time loop does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static GIVEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts each thread's calls, and forwards them to the system's allocator. A binary installs it with
/// `#[global_allocator]`; without it [`thread_counts`] returns `None`.
#[derive(Debug)]
pub struct Counting;

/// Allocator calls of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocCounts {
    /// Calls that allocated or resized memory.
    pub taken: u64,
    /// Calls that freed memory.
    pub given: u64,
}

impl Counting {
    /// Allocator calls (allocate, resize or free) of this thread so far; 0 if the binary does not count.
    #[must_use]
    pub fn calls() -> u64 {
        TAKEN.get() + GIVEN.get()
    }
}

/// The calling thread's calls so far; `None` if the binary does not count them.
///
/// Real-time: two loads, once any thread has called [`is_counting`].
#[must_use]
pub fn thread_counts() -> Option<AllocCounts> {
    is_counting().then(|| AllocCounts { taken: TAKEN.get(), given: GIVEN.get() })
}

/// Whether the binary counts. The first call allocates to test it.
#[must_use]
pub fn is_counting() -> bool {
    static COUNTING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *COUNTING.get_or_init(|| {
        let before = TAKEN.get();
        drop(std::hint::black_box(Box::new(0u64)));
        TAKEN.get() > before
    })
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain thread-local cells that
// neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.set(GIVEN.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

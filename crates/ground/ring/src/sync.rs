//! The atomics of `core`, or those of loom, which explores all orders in which threads can see each other's writes.

#[cfg(not(loom))]
pub use core::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};

/// Adds to a word that only the caller writes. This needs a load and a store, but no locked instruction.
pub(crate) fn add_own(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

//! Shared memory of a connection on one band: one queue in each direction.

use ring::{AtomicU64, LayoutError, Stream, Words};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use sys::shm::SharedWords;

/// Words of each queue (256 KiB): 14 messages of maximum length, or thousands of short ones.
pub(crate) const ROOM_WORDS: usize = 1 << 15;
const HALF_WORDS: usize = Stream::words_for(ROOM_WORDS);
/// Bytes of both queues.
pub(crate) const BYTES: usize = 2 * HALF_WORDS * 8;

/// Memory of one of the two queues.
pub(crate) struct Half {
    memory: Arc<SharedWords>,
    range: Range<usize>,
}

impl AsRef<Words> for Half {
    fn as_ref(&self) -> &Words {
        &self.memory.words()[self.range.clone()]
    }
}

/// Memory of a queue between two threads of a process.
pub(crate) type Inside = Arc<[AtomicU64]>;

/// Allocates memory for a queue within a process.
pub(crate) fn inside(room: usize) -> Inside {
    (0..Stream::words_for(room)).map(|_| AtomicU64::new(0)).collect()
}

/// Creates the memory of a connection.
fn create() -> sys::Result<Arc<SharedWords>> {
    SharedWords::create("tahti-messages", 2 * HALF_WORDS).map(Arc::new)
}

/// Whether the kernel prevents clients from punching holes into their queues, which would give a band page faults.
pub(crate) fn keeps_its_pages() -> sys::Result<bool> {
    Ok(SharedWords::create("tahti-messages", 8)?.keeps_its_pages())
}

/// Maximum number of memories kept for reuse: 64 MiB if each was fully used.
const KEPT_MAX: usize = 128;

/// Memory of closed connections, kept for the same user. Unmapping it would interrupt every CPU on which the process
/// runs, including those of the bands.
///
/// If the list is full, the oldest is unmapped and counted.
#[derive(Default)]
pub(crate) struct Spares {
    kept: VecDeque<Spare>,
    unmapped: u64,
}

struct Spare {
    /// The user; `None`: never reused, because the client broke the rules.
    user: Option<u32>,
    memory: Arc<SharedWords>,
}

impl Spares {
    /// Memory for a connection of a user: kept from a previous connection of the same user, or new. A previous client
    /// may have kept it mapped, so it is never passed to another user.
    pub(crate) fn take(&mut self, user: u32) -> sys::Result<Arc<SharedWords>> {
        let found = self.kept.iter().position(|spare| spare.user == Some(user));
        match found.and_then(|at| self.kept.remove(at)) {
            Some(spare) => Ok(spare.memory),
            None => create(),
        }
    }

    /// Keeps the memory of a closed connection.
    pub(crate) fn keep(&mut self, user: Option<u32>, memory: Arc<SharedWords>) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
            self.unmapped += 1;
        }
        self.kept.push_back(Spare { user, memory });
    }

    /// Number of memories unmapped.
    pub(crate) fn unmapped(&self) -> u64 {
        self.unmapped
    }
}

fn halves(memory: &Arc<SharedWords>) -> [Half; 2] {
    let end = memory.words().len();
    [0..end / 2, end / 2..end].map(|range| Half { memory: memory.clone(), range })
}

/// Formats both queues as empty: the one to the server, and the one from it.
pub(crate) fn format(memory: &Arc<SharedWords>) -> Result<[Stream<Half>; 2], LayoutError> {
    let [up, down] = halves(memory);
    Ok([Stream::format(up)?, Stream::format(down)?])
}

/// Like [`format()`], for queues that the server has formatted.
pub(crate) fn attach(memory: &Arc<SharedWords>) -> Result<[Stream<Half>; 2], LayoutError> {
    let [up, down] = halves(memory);
    Ok([Stream::attach(up)?, Stream::attach(down)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_for_its_user_only_and_never_after_a_violation() {
        let mut spares = Spares::default();
        let [first, second] = [spares.take(1000).unwrap(), spares.take(1000).unwrap()];
        let at = |memory: &Arc<SharedWords>| memory.words().as_ptr();
        let first_at = at(&first);
        spares.keep(Some(1000), first);
        spares.keep(None, second);
        let other = spares.take(1001).unwrap();
        assert_ne!(at(&other), first_at);
        let again = spares.take(1000).unwrap();
        assert_eq!(at(&again), first_at);
        assert_ne!(
            at(&spares.take(1000).unwrap()),
            at(&spares.kept[0].memory),
            "memory of the cheater is never reused"
        );
        for _ in 0..KEPT_MAX {
            spares.keep(Some(1), again.clone());
        }
        assert_eq!((spares.kept.len(), spares.unmapped()), (KEPT_MAX, 1));
    }

    #[test]
    fn reused_memory_is_empty_for_its_next_owner() {
        let memory = create().unwrap();
        let [up, _] = format(&memory).unwrap();
        assert!(up.writer().push_or_refuse(&[&[1, 2, 3]]));
        let [again, _] = format(&memory).unwrap();
        assert!(again.reader().is_empty());
    }
}

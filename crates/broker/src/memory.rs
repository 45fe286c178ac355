//! The shared memory of a connection on one band: a queue to the server and one from it.

use ring::{AtomicU64, LayoutError, Stream, Words};
use std::ops::Range;
use std::sync::Arc;
use sys::shm::SharedWords;

/// Room of each queue in words, 256 KiB: fourteen messages of the greatest length, thousands of short ones.
pub(crate) const ROOM_WORDS: usize = 1 << 15;
const HALF_WORDS: usize = Stream::words_for(ROOM_WORDS);

/// One of the two queues' memory.
pub(crate) struct Half {
    memory: Arc<SharedWords>,
    range: Range<usize>,
}

impl AsRef<Words> for Half {
    fn as_ref(&self) -> &Words {
        &self.memory.words()[self.range.clone()]
    }
}

/// A queue within a process, between two of its threads.
pub(crate) type Inside = Arc<[AtomicU64]>;

/// Memory for a queue within a process.
pub(crate) fn inside(room: usize) -> Inside {
    (0..Stream::words_for(room)).map(|_| AtomicU64::new(0)).collect()
}

/// Makes the memory of a connection.
pub(crate) fn create() -> sys::Result<Arc<SharedWords>> {
    SharedWords::create("tahti-messages", 2 * HALF_WORDS).map(Arc::new)
}

fn halves(memory: &Arc<SharedWords>) -> [Half; 2] {
    let end = memory.words().len();
    [0..end / 2, end / 2..end].map(|range| Half { memory: memory.clone(), range })
}

/// The queue to the server and the one from it, empty.
pub(crate) fn format(memory: &Arc<SharedWords>) -> Result<[Stream<Half>; 2], LayoutError> {
    let [up, down] = halves(memory);
    Ok([Stream::format(up)?, Stream::format(down)?])
}

/// As [`format()`], as the server made them.
pub(crate) fn attach(memory: &Arc<SharedWords>) -> Result<[Stream<Half>; 2], LayoutError> {
    let [up, down] = halves(memory);
    Ok([Stream::attach(up)?, Stream::attach(down)?])
}

//! A bounded queue from one thread or process to one other.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{Ordering, add_own};

/// The producer's line: next sequence to write, items refused.
const HEAD: usize = HEADER;
const REFUSED: usize = HEADER + 1;
/// The consumer's line: next sequence to read, times that the producer's count made no sense.
const TAIL: usize = HEADER + 8;
const RESYNCS: usize = HEADER + 9;
const SLOTS: usize = HEADER + 16;

/// A queue of items of `N` words in shared memory: one producer, one consumer.
///
/// Overflow rule: the producer refuses the newest item and counts it.
pub struct Queue<'a, const N: usize> {
    words: &'a Words,
    slots: usize,
}

/// The end that writes. One per queue: a second one garbles items, nothing worse.
pub struct Producer<'a, const N: usize> {
    queue: Queue<'a, N>,
    head: u64,
    /// The consumer's position as last seen; re-read only when the queue looks full.
    tail: u64,
}

/// The end that reads. One per queue.
pub struct Consumer<'a, const N: usize> {
    queue: Queue<'a, N>,
    tail: u64,
}

impl<'a, const N: usize> Queue<'a, N> {
    /// Words that a queue of `slots` items needs.
    #[must_use]
    pub const fn words_for(slots: usize) -> usize {
        SLOTS + slots * N
    }

    /// Makes an empty queue that fills `words`, with the largest power of two of slots that fits.
    ///
    /// # Errors
    /// `Short` if not even one item fits.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        let room = words.len().saturating_sub(SLOTS);
        let short = LayoutError::Short { found: words.len(), expected: Self::words_for(1) };
        let slots = header::slots_in(room, N).ok_or(short)?;
        for word in [HEAD, REFUSED, TAIL, RESYNCS] {
            words[word].store(0, Ordering::Relaxed);
        }
        header::write(words, Kind::Queue, slots as u32, N as u32);
        Ok(Self { words, slots })
    }

    /// Finds the queue that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a queue of items of `N` words.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let slots = header::check_slots(words, Kind::Queue, N, SLOTS, N)?;
        Ok(Self { words, slots })
    }

    /// Becomes the end that writes, going on where an earlier producer stopped.
    #[must_use]
    pub fn producer(self) -> Producer<'a, N> {
        let head = self.words[HEAD].load(Ordering::Relaxed);
        let tail = self.words[TAIL].load(Ordering::Acquire);
        Producer { queue: self, head, tail }
    }

    /// Becomes the end that reads, going on where an earlier consumer stopped.
    #[must_use]
    pub fn consumer(self) -> Consumer<'a, N> {
        let tail = self.words[TAIL].load(Ordering::Relaxed);
        Consumer { queue: self, tail }
    }

    /// How many items it holds at most.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.slots
    }

    /// Items that found the queue full and were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.words[REFUSED].load(Ordering::Relaxed)
    }

    /// Times that the consumer found an impossible position and started again at the producer's.
    #[must_use]
    pub fn resyncs(&self) -> u64 {
        self.words[RESYNCS].load(Ordering::Relaxed)
    }

    fn slot(&self, sequence: u64) -> &'a Words {
        let first = SLOTS + (sequence as usize & (self.slots - 1)) * N;
        &self.words[first..first + N]
    }
}

impl<const N: usize> Producer<'_, N> {
    /// Appends an item; full: refuses it, counts that, and says `false`.
    pub fn push_or_refuse(&mut self, item: [u64; N]) -> bool {
        let slots = self.queue.slots as u64;
        if self.head.wrapping_sub(self.tail) >= slots {
            self.tail = self.queue.words[TAIL].load(Ordering::Acquire);
            if self.head.wrapping_sub(self.tail) >= slots {
                add_own(&self.queue.words[REFUSED], 1);
                return false;
            }
        }
        for (word, value) in self.queue.slot(self.head).iter().zip(item) {
            word.store(value, Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        self.queue.words[HEAD].store(self.head, Ordering::Release);
        true
    }

    /// The queue itself, for its counters.
    #[must_use]
    pub fn queue(&self) -> &Queue<'_, N> {
        &self.queue
    }
}

impl<const N: usize> Consumer<'_, N> {
    /// The oldest item, if there is one.
    pub fn pop(&mut self) -> Option<[u64; N]> {
        let head = self.queue.words[HEAD].load(Ordering::Acquire);
        match head.wrapping_sub(self.tail) {
            0 => return None,
            filled if filled > self.queue.slots as u64 => {
                // No producer leaves this behind: it was made anew, or its memory is damaged.
                add_own(&self.queue.words[RESYNCS], 1);
                self.tail = head;
                self.queue.words[TAIL].store(head, Ordering::Release);
                return None;
            }
            _ => {}
        }
        let slot = self.queue.slot(self.tail);
        let item = core::array::from_fn(|index| slot[index].load(Ordering::Relaxed));
        self.tail = self.tail.wrapping_add(1);
        self.queue.words[TAIL].store(self.tail, Ordering::Release);
        Some(item)
    }

    /// The queue itself, for its counters.
    #[must_use]
    pub fn queue(&self) -> &Queue<'_, N> {
        &self.queue
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::AtomicU64;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_full_queue_refuses_and_counts() {
        let words = words(Queue::<1>::words_for(4) + 3);
        let mut producer = Queue::<1>::format(&words).unwrap().producer();
        assert_eq!(producer.queue().bound(), 4, "the largest power of two that fits");
        assert_eq!((0..6).filter(|&item| producer.push_or_refuse([item])).count(), 4);
        let mut consumer = Queue::<1>::attach(&words).unwrap().consumer();
        assert_eq!((consumer.queue().refused(), consumer.pop()), (2, Some([0])));
        assert!(producer.push_or_refuse([9]));
    }

    #[test]
    fn what_is_no_such_queue_is_refused() {
        let words = words(Queue::<2>::words_for(4));
        assert!(matches!(Queue::<2>::attach(&words), Err(LayoutError::Magic { found: 0 })));
        Queue::<2>::format(&words).unwrap();
        assert!(matches!(Queue::<3>::attach(&words), Err(LayoutError::Shape { found: (4, 2), .. })));
        assert!(matches!(crate::Latest::<2>::attach(&words), Err(LayoutError::Kind { .. })));
        assert!(matches!(Queue::<2>::attach(&words[..20]), Err(LayoutError::Short { .. })));
        assert!(matches!(Queue::<2>::format(&words[..25]), Err(LayoutError::Short { found: 25, expected: 26 })));
    }

    #[test]
    fn an_impossible_position_is_noticed_and_left_behind() {
        let words = words(Queue::<1>::words_for(4));
        let mut consumer = Queue::<1>::format(&words).unwrap().consumer();
        words[HEAD].store(u64::MAX / 2, Ordering::Relaxed);
        assert_eq!((consumer.pop(), consumer.queue().resyncs()), (None, 1));
    }

    proptest! {
        #[test]
        fn a_queue_behaves_like_a_bounded_list(steps in proptest::collection::vec(proptest::option::of(0u64..100), 0..200)) {
            let words = words(Queue::<1>::words_for(8));
            let mut producer = Queue::<1>::format(&words).unwrap().producer();
            let mut consumer = Queue::<1>::attach(&words).unwrap().consumer();
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Some(item) => {
                        let fits = model.len() < 8;
                        if fits { model.push_back([item]); }
                        prop_assert_eq!(producer.push_or_refuse([item]), fits);
                    }
                    None => prop_assert_eq!(consumer.pop(), model.pop_front()),
                }
            }
        }
    }
}

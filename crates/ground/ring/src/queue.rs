//! A bounded queue between two threads or processes.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{Ordering, add_own};

/// Words written by the producer: next sequence to write, number of items refused.
const HEAD: usize = HEADER;
const REFUSED: usize = HEADER + 1;
/// Words written by the consumer: next sequence to read, number of invalid producer positions found.
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

/// The producer's end. There must be one per queue; a second one corrupts items, but nothing else.
pub struct Producer<'a, const N: usize> {
    queue: Queue<'a, N>,
    head: u64,
    /// The consumer's position as last read. It is read again only when the queue seems full.
    tail: u64,
}

/// The consumer's end. There must be one per queue.
pub struct Consumer<'a, const N: usize> {
    queue: Queue<'a, N>,
    tail: u64,
}

impl<'a, const N: usize> Queue<'a, N> {
    /// Size of a queue of `slots` items, in words.
    #[must_use]
    pub const fn words_for(slots: usize) -> usize {
        SLOTS + slots * N
    }

    /// Formats `words` as an empty queue, with the largest power of two of slots that fits.
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

    /// Attaches to the queue in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a queue of items of `N` words.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let slots = header::check_slots(words, Kind::Queue, N, SLOTS, N)?;
        Ok(Self { words, slots })
    }

    /// Converts this view into the producer's end. It continues where a previous producer stopped.
    #[must_use]
    pub fn producer(self) -> Producer<'a, N> {
        let head = self.words[HEAD].load(Ordering::Relaxed);
        let tail = self.words[TAIL].load(Ordering::Acquire);
        Producer { queue: self, head, tail }
    }

    /// Converts this view into the consumer's end. It continues where a previous consumer stopped.
    #[must_use]
    pub fn consumer(self) -> Consumer<'a, N> {
        let tail = self.words[TAIL].load(Ordering::Relaxed);
        Consumer { queue: self, tail }
    }

    /// Maximum number of items in the queue.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.slots
    }

    /// Number of items that were refused because the queue was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.words[REFUSED].load(Ordering::Relaxed)
    }

    /// Number of times that the consumer found an invalid position and continued at the producer's.
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
    /// Appends an item. If the queue is full, refuses the item, counts that, and returns `false`.
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
    /// Removes and returns the oldest item.
    pub fn pop(&mut self) -> Option<[u64; N]> {
        let head = self.queue.words[HEAD].load(Ordering::Acquire);
        match head.wrapping_sub(self.tail) {
            0 => return None,
            filled if filled > self.queue.slots as u64 => {
                // A producer never writes such a position: the queue was formatted again, or its memory is damaged.
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
    fn memory_that_is_not_a_queue_of_this_shape_is_refused() {
        let words = words(Queue::<2>::words_for(4));
        assert!(matches!(Queue::<2>::attach(&words), Err(LayoutError::Magic { found: 0 })));
        Queue::<2>::format(&words).unwrap();
        assert!(matches!(Queue::<3>::attach(&words), Err(LayoutError::Shape { found: (4, 2), .. })));
        assert!(matches!(crate::Latest::<2>::attach(&words), Err(LayoutError::Kind { .. })));
        assert!(matches!(Queue::<2>::attach(&words[..20]), Err(LayoutError::Short { .. })));
        assert!(matches!(Queue::<2>::format(&words[..25]), Err(LayoutError::Short { found: 25, expected: 26 })));
    }

    #[test]
    fn an_impossible_position_is_detected_and_skipped() {
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

//! A bounded queue of messages of variable length between two threads or processes, with a word on which the consumer
//! sleeps.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{AtomicU64, Ordering, add_own, fence};

/// Words written by the producer: total words written, messages refused.
const HEAD: usize = HEADER;
const REFUSED: usize = HEADER + 1;
/// Words written by the consumer: total words read, whether it is asleep, the word it sleeps on.
const TAIL: usize = HEADER + 8;
const ASLEEP: usize = HEADER + 9;
const BELL: usize = HEADER + 10;
const DATA: usize = HEADER + 16;

/// A queue of messages of one or more words: one producer, one consumer. The words may be owned or borrowed.
///
/// Overflow rule: the producer refuses the newest message and counts it.
#[derive(Clone, Copy)]
pub struct Stream<W> {
    words: W,
    room: usize,
}

/// The producer's end. There must be one per stream.
pub struct StreamWriter<W> {
    stream: Stream<W>,
    head: u64,
    /// The consumer's position as last read. It is read again only when the stream seems full.
    tail: u64,
}

/// The consumer's end. There must be one per stream.
pub struct StreamReader<W> {
    stream: Stream<W>,
    /// The producer's position as last read. It is read again only when the stream seems empty.
    head: u64,
    tail: u64,
}

/// A stream holds data that no producer writes: the memory is damaged, or the other end is hostile. A caller that gets this
/// error must stop using the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl core::fmt::Display for Damaged {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a queue in shared memory holds what its producer never writes")
    }
}

impl core::error::Error for Damaged {}

impl Stream<&Words> {
    /// Size of a stream with `room` words for messages. A message takes one word more than its length.
    #[must_use]
    pub const fn words_for(room: usize) -> usize {
        DATA + room
    }
}

impl<W: AsRef<Words>> Stream<W> {
    /// Formats `words` as an empty stream, with the largest power of two of words that fits.
    ///
    /// # Errors
    /// `Short` if not even one word fits.
    pub fn format(words: W) -> Result<Self, LayoutError> {
        let block = words.as_ref();
        let short = LayoutError::Short { found: block.len(), expected: DATA + 1 };
        let room = header::slots_in(block.len().saturating_sub(DATA), 1).ok_or(short)?;
        for word in [HEAD, REFUSED, TAIL, ASLEEP, BELL] {
            block[word].store(0, Ordering::Relaxed);
        }
        header::write(block, Kind::Stream, room as u32, 1);
        Ok(Self { words, room })
    }

    /// Attaches to the stream in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a stream.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let room = header::check_slots(words.as_ref(), Kind::Stream, 1, DATA, 1)?;
        Ok(Self { words, room })
    }

    /// Converts this view into the producer's end. It continues where a previous producer stopped.
    #[must_use]
    pub fn writer(self) -> StreamWriter<W> {
        let head = self.at(HEAD).load(Ordering::Relaxed);
        let tail = self.at(TAIL).load(Ordering::Acquire);
        StreamWriter { stream: self, head, tail }
    }

    /// Converts this view into the consumer's end. It continues where a previous consumer stopped.
    #[must_use]
    pub fn reader(self) -> StreamReader<W> {
        let tail = self.at(TAIL).load(Ordering::Relaxed);
        StreamReader { stream: self, head: tail, tail }
    }

    fn at(&self, index: usize) -> &AtomicU64 {
        &self.words.as_ref()[index]
    }

    /// Maximum number of words in the stream, including one for each message.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Number of messages that were refused because there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.at(REFUSED).load(Ordering::Relaxed)
    }

    /// The word on which the consumer sleeps. A thread that wakes it increments this word first.
    #[must_use]
    pub fn bell(&self) -> &AtomicU64 {
        self.at(BELL)
    }

    /// Whether the consumer has announced that it is about to sleep. The producer calls this after it has written data that
    /// the consumer must not miss; a fence orders the two.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        fence(Ordering::SeqCst);
        self.at(ASLEEP).load(Ordering::Relaxed) != 0
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        self.at(DATA + (position as usize & (self.room - 1)))
    }

    /// The words from `position` on, in two parts if they wrap around.
    fn span(&self, position: u64, length: usize) -> (&Words, &Words) {
        let first = position as usize & (self.room - 1);
        let before_end = length.min(self.room - first);
        let data = &self.words.as_ref()[DATA..DATA + self.room];
        (&data[first..first + before_end], &data[..length - before_end])
    }
}

impl<W: AsRef<Words>> StreamWriter<W> {
    /// Appends a message that consists of several parts. If there is no room, refuses the message, counts that, and returns
    /// `false`. Empty messages and messages that can never fit are refused as well.
    pub fn push_or_refuse(&mut self, parts: &[&[u64]]) -> bool {
        self.push_leaving_or_refuse(parts, 0)
    }

    /// As [`push_or_refuse`](Self::push_or_refuse), but `spare` words must remain free after the message.
    pub fn push_leaving_or_refuse(&mut self, parts: &[&[u64]], spare: usize) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.stream.room as u64;
        let needed = (length + 1 + spare) as u64;
        let fits = |head: u64, tail: u64| {
            let filled = head.wrapping_sub(tail);
            // More words than there is room for mean that the consumer's position is invalid.
            filled <= room && needed <= room - filled
        };
        if !fits(self.head, self.tail) {
            self.tail = self.stream.at(TAIL).load(Ordering::Acquire);
        }
        if length == 0 || !fits(self.head, self.tail) {
            add_own(self.stream.at(REFUSED), 1);
            return false;
        }
        self.stream.word(self.head).store(length as u64, Ordering::Relaxed);
        let mut at = self.head.wrapping_add(1);
        for part in parts {
            let (first, second) = self.stream.span(at, part.len());
            let (before_end, rest) = part.split_at(first.len());
            // Two loops, because a single loop over both parts would check at each word which part it is in.
            for (words, values) in [(first, before_end), (second, rest)] {
                words.iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
            }
            at = at.wrapping_add(part.len() as u64);
        }
        self.head = at;
        self.stream.at(HEAD).store(at, Ordering::Release);
        true
    }

    /// Number of free words. The result is exact if it is below `enough`; otherwise it is a lower bound. A message takes one
    /// word more than its length.
    ///
    /// # Errors
    /// [`Damaged`] if the consumer's position is invalid.
    pub fn free(&self, enough: usize) -> Result<usize, Damaged> {
        let free = |tail| (self.stream.room as u64).checked_sub(self.head.wrapping_sub(tail)).ok_or(Damaged);
        match free(self.tail) {
            Ok(free) if free >= enough as u64 => Ok(free as usize),
            _ => free(self.stream.at(TAIL).load(Ordering::Acquire)).map(|free| free as usize),
        }
    }

    /// The stream itself, for its counters and its bell.
    #[must_use]
    pub fn stream(&self) -> &Stream<W> {
        &self.stream
    }
}

impl<W: AsRef<Words>> StreamReader<W> {
    /// Moves the oldest message to the start of `out` and returns its length in words, or `None` if the stream is empty.
    ///
    /// # Errors
    /// [`Damaged`] if the data cannot be a message, or the message is longer than `out`.
    pub fn pop(&mut self, out: &mut [u64]) -> Result<Option<usize>, Damaged> {
        if self.head == self.tail {
            self.head = self.stream.at(HEAD).load(Ordering::Acquire);
        }
        let filled = self.head.wrapping_sub(self.tail);
        if filled == 0 {
            return Ok(None);
        }
        if filled > self.stream.room as u64 {
            return Err(Damaged);
        }
        let length = self.stream.word(self.tail).load(Ordering::Relaxed);
        if length == 0 || length >= filled || length > out.len() as u64 {
            return Err(Damaged);
        }
        let length = length as usize;
        let (first, second) = self.stream.span(self.tail.wrapping_add(1), length);
        let (before_end, rest) = out.split_at_mut(first.len());
        for (values, words) in [(before_end, first), (rest, second)] {
            values.iter_mut().zip(words).for_each(|(value, word)| *value = word.load(Ordering::Relaxed));
        }
        self.tail = self.tail.wrapping_add(1 + length as u64);
        self.stream.at(TAIL).store(self.tail, Ordering::Release);
        Ok(Some(length))
    }

    /// Whether the stream holds no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stream.at(HEAD).load(Ordering::Acquire) == self.tail
    }

    /// Announces that the consumer is about to sleep on the bell. The consumer must read the bell before this call. After
    /// it, and before it sleeps, it must check once more for data that it must not miss.
    pub fn fall_asleep(&self) {
        self.stream.at(ASLEEP).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the consumer is awake.
    pub fn wake_up(&self) {
        self.stream.at(ASLEEP).store(0, Ordering::Relaxed);
    }

    /// The stream itself, for its counters and its bell.
    #[must_use]
    pub fn stream(&self) -> &Stream<W> {
        &self.stream
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn damage_to_a_stream_is_detected_before_its_content_is_used() {
        let words = words(Stream::words_for(16));
        let stream = Stream::format(&words[..]).unwrap();
        assert!(stream.writer().push_or_refuse(&[&[1, 2, 3]]));
        for (at, hostile) in [(HEAD, 1000), (HEAD, 3), (DATA, 0), (DATA, u64::MAX), (DATA, 4), (DATA, 9)] {
            let old = words[at].swap(hostile, Ordering::Relaxed);
            assert_eq!(stream.reader().pop(&mut [0; 8]), Err(Damaged), "{hostile} at {at}");
            words[at].store(old, Ordering::Relaxed);
        }
        words[TAIL].store(77, Ordering::Relaxed);
        assert_eq!(stream.writer().free(16), Err(Damaged));
        assert!(!stream.writer().push_or_refuse(&[&[1]]), "a consumer ahead of its producer receives no data");
    }

    #[test]
    fn room_can_be_reserved_for_messages_that_must_fit() {
        let words = words(Stream::words_for(8));
        let mut writer = Stream::format(&words[..]).unwrap().writer();
        assert!(writer.push_leaving_or_refuse(&[&[1, 2]], 3));
        assert!(!writer.push_leaving_or_refuse(&[&[1, 2]], 3));
        assert!(writer.push_or_refuse(&[&[1], &[2]]));
        assert_eq!(writer.stream().refused(), 1);
        assert_eq!(writer.free(8), Ok(2));
        let mut reader = Stream::attach(&words[..]).unwrap().reader();
        reader.pop(&mut [0; 8]).unwrap();
        assert_eq!((writer.free(2), writer.free(3)), (Ok(2), Ok(5)), "known space is not read again");
    }

    proptest! {
        #[test]
        fn a_stream_behaves_like_a_bounded_list(
            steps in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u64>(), 0..7)), 0..200)
        ) {
            let words = words(Stream::words_for(16));
            let stream = Stream::format(&words[..]).unwrap();
            let (mut writer, mut reader) = (stream.writer(), stream.reader());
            let mut model: VecDeque<Vec<u64>> = VecDeque::new();
            for step in steps {
                match step {
                    Some(message) => {
                        let used: usize = model.iter().map(|message| message.len() + 1).sum();
                        let fits = !message.is_empty() && used + message.len() < 16;
                        let (first, second) = message.split_at(message.len() / 2);
                        prop_assert_eq!(writer.push_or_refuse(&[first, second]), fits);
                        if fits { model.push_back(message); }
                    }
                    None => {
                        let mut out = [0; 16];
                        let length = reader.pop(&mut out).unwrap();
                        prop_assert_eq!(length.map(|length| out[..length].to_vec()), model.pop_front());
                    }
                }
            }
        }

        #[test]
        fn scribbled_memory_never_panics(seeds in proptest::collection::vec((0usize..48, any::<u64>()), 0..40)) {
            let words = words(Stream::words_for(16));
            let stream = Stream::format(&words[..]).unwrap();
            let (mut writer, mut reader) = (stream.writer(), stream.reader());
            for (at, value) in seeds {
                words[at % words.len()].store(value, Ordering::Relaxed);
                let _ = writer.push_or_refuse(&[&[value, 1]]);
                let _ = reader.pop(&mut [0; 8]);
            }
        }
    }
}

//! Queued bytes, addressed by their position in the whole stream.

/// Memory in bytes that each circuit may keep when everything is sent.
const KEPT_BYTES: usize = 4096;
/// Maximum memory in bytes that it may keep after a large burst. A client that does not read occupies as much anyway.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A queue of bytes. Positions count from the start of the stream, so that an unsent message can be found and replaced.
#[derive(Debug, Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are already sent.
    start: usize,
    /// Position of `bytes[0]` in the stream.
    base: u64,
}

impl Out {
    /// The unsent bytes.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The number of unsent bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The position of the next message in the stream.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// The buffer, for appending a message.
    pub(crate) fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The `len` bytes from `position` on, if all are unsent.
    pub(crate) fn waiting(&mut self, position: u64, len: usize) -> Option<&mut [u8]> {
        let from = self.place(position)?;
        self.bytes.get_mut(from..from + len)
    }

    /// Returns whether the byte at `position` is unsent.
    pub(crate) fn is_waiting(&self, position: u64) -> bool {
        self.place(position).is_some_and(|place| place < self.bytes.len())
    }

    fn place(&self, position: u64) -> Option<usize> {
        let place = usize::try_from(position.checked_sub(self.base)?).ok()?;
        (place >= self.start).then_some(place)
    }

    /// Uses the server's `spare` memory for a message of `len` bytes if a circuit may not keep that much and nothing is queued.
    pub(crate) fn make_room(&mut self, len: usize, spare: &mut Vec<u8>) {
        if len > KEPT_BYTES_MAX && self.bytes.is_empty() && self.bytes.capacity() < spare.capacity() {
            std::mem::swap(&mut self.bytes, spare);
        }
    }

    /// Removes the first `len` unsent bytes. If a circuit has more memory than it may keep, and more than the server's `spare`,
    /// the two are swapped. New memory for each large array would cost more than filling it.
    pub(crate) fn sent(&mut self, len: usize, spare: &mut Vec<u8>) {
        self.start = (self.start + len).min(self.bytes.len());
        if self.start == self.bytes.len() {
            // The next burst is probably as large and can reuse this memory.
            let kept = (4 * self.bytes.len()).clamp(KEPT_BYTES, KEPT_BYTES_MAX);
            self.base += self.bytes.len() as u64;
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX && self.bytes.capacity() > spare.capacity() {
                std::mem::swap(&mut self.bytes, spare);
            }
            if self.bytes.capacity() > kept {
                self.bytes.shrink_to(kept);
            }
        } else if self.start >= 64 << 10 && self.len() <= (self.start / 8).max(64 << 10) && self.len() <= self.start {
            self.base += self.start as u64;
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_bursts_is_kept_while_they_continue_and_is_bounded() {
        let (mut out, mut spare) = (Out::default(), Vec::new());
        let mut burst = |len: usize| {
            out.vec().extend(std::iter::repeat_n(0, len));
            out.sent(len, &mut spare);
            out.vec().capacity()
        };
        let held = burst(12_000);
        assert!(held >= 12_000);
        assert_eq!(burst(12_000), held);
        assert!((KEPT_BYTES..12_000).contains(&burst(100)));
        assert!(burst(1 << 20) < 1 << 20);
        assert!(spare.capacity() >= 1 << 20, "the server has it now");
    }

    #[test]
    fn a_large_message_uses_the_spare_memory_of_the_server_and_returns_it() {
        let (mut out, mut spare) = (Out::default(), Vec::with_capacity(1 << 20));
        let memory = spare.as_ptr();
        out.make_room(1000, &mut spare);
        assert_eq!(out.vec().capacity(), 0, "short messages need no block");
        for _ in 0..2 {
            out.make_room(1 << 20, &mut spare);
            out.vec().extend(std::iter::repeat_n(7, 1 << 20));
            out.sent(1 << 19, &mut spare);
            assert_eq!((out.unsent().len(), out.end()), (1 << 19, out.base + (1 << 20)));
            out.sent(1 << 19, &mut spare);
            assert_eq!(spare.as_ptr(), memory);
        }
        out.vec().push(1);
        out.make_room(1 << 20, &mut spare);
        assert_eq!(out.unsent(), [1], "waiting bytes are kept");
    }

    #[test]
    fn sent_bytes_of_a_long_stream_are_freed_and_the_buffer_stays_bounded() {
        let (mut out, mut spare) = (Out::default(), Vec::new());
        for _ in 0..1000 {
            out.vec().extend(std::iter::repeat_n(0, 32 << 10));
            let waiting = out.len();
            out.sent(waiting.saturating_sub(100).min(32 << 10), &mut spare);
            assert!(out.bytes.len() <= 256 << 10, "{}", out.bytes.len());
        }
        assert_eq!(out.end(), 1000 * (32 << 10));
    }
}

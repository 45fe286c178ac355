//! Bytes on their way out, addressed by their place in the whole stream.

/// Memory that each circuit may keep when all is sent.
const KEPT_BYTES: usize = 4096;
/// Memory that one may keep whose last burst was large: what a client that does not read holds anyway.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A queue of bytes. Positions count from the start of the stream, so that a message that still waits can be
/// found again and replaced.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
    /// Bytes at the front that are sent already.
    start: usize,
    /// Position in the stream of `bytes[0]`.
    base: u64,
}

impl Out {
    /// What waits.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Where the next message will stand in the stream.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// For appending a message.
    pub(super) fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The `len` bytes from `position` on, if none of them is sent yet.
    pub(super) fn waiting(&mut self, position: u64, len: usize) -> Option<&mut [u8]> {
        let from = self.place(position)?;
        self.bytes.get_mut(from..from + len)
    }

    /// Whether the byte at `position` is still to be sent.
    pub(super) fn is_waiting(&self, position: u64) -> bool {
        self.place(position).is_some_and(|place| place < self.bytes.len())
    }

    fn place(&self, position: u64) -> Option<usize> {
        let place = usize::try_from(position.checked_sub(self.base)?).ok()?;
        (place >= self.start).then_some(place)
    }

    /// The first `len` waiting bytes are sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
        if self.start == self.bytes.len() {
            // The next burst is likely to be as large: it finds its memory here.
            let kept = (4 * self.bytes.len()).clamp(KEPT_BYTES, KEPT_BYTES_MAX);
            self.base += self.bytes.len() as u64;
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > kept {
                self.bytes.shrink_to(kept);
            }
        } else if self.start >= 64 << 10 && self.start * 2 >= self.bytes.len() {
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
    fn memory_for_bursts_stays_while_they_come_and_is_bounded() {
        let mut out = Out::default();
        let mut burst = |len: usize| {
            out.vec().extend(std::iter::repeat_n(0, len));
            out.sent(len);
            out.vec().capacity()
        };
        let held = burst(12_000);
        assert!(held >= 12_000);
        assert_eq!(burst(12_000), held);
        assert!((KEPT_BYTES..12_000).contains(&burst(100)));
        assert!((KEPT_BYTES_MAX..1 << 20).contains(&burst(1 << 20)));
    }
}

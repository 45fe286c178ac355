//! Bytes on their way out, addressed by their place in the whole stream.

/// Memory that an idle circuit may keep.
const KEPT_BYTES: usize = 4096;

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
            self.base += self.bytes.len() as u64;
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes.shrink_to(KEPT_BYTES);
            }
        } else if self.start >= 64 << 10 && self.start * 2 >= self.bytes.len() {
            self.base += self.start as u64;
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

//! Iterates over the blocks of a file and skips damage.

use crate::error::StoreError;
use crate::files::Files;
use segment::block::{HEADER, Header, MAGIC, NoBlock};

/// Bytes searched at a time for the next block.
const WINDOW: usize = 64 << 10;

/// An item of a file.
#[derive(Debug)]
pub(crate) enum ScanItem {
    /// A block; its payload is in [`Scan::payload`].
    Block { offset: u64, header: Header },
    /// Bytes that are not a valid block, followed by a valid block.
    Damage { offset: u64, len: u64, why: NoBlock },
    /// Bytes that are not a valid block, up to the end of the file, as after a crash or while a writer is active.
    Tail { offset: u64, len: u64, why: NoBlock },
}

/// Reader of a file's blocks. Memory is bounded by the longest block.
pub(crate) struct Scan<'a, F: Files> {
    files: &'a F,
    file: &'a F::File,
    name: &'a str,
    offset: u64,
    end: u64,
    /// Number of the segment and of the next block, once known.
    expected: Option<(u64, u32)>,
    /// Blocks before the next one are known to be missing.
    is_after_damage: bool,
    /// Payload of the last block.
    pub(crate) payload: Vec<u8>,
}

impl<'a, F: Files> Scan<'a, F> {
    /// Starts at an offset at which a block of the segment begins.
    pub(crate) fn between(
        files: &'a F,
        file: &'a F::File,
        name: &'a str,
        offset: u64,
        expected: Option<(u64, u32)>,
    ) -> Result<Self, StoreError> {
        let end = files.len(file).map_err(StoreError::io(name, "ask for its length"))?;
        Ok(Self { files, file, name, offset, end, expected, is_after_damage: false, payload: Vec::new() })
    }

    /// Accepts only blocks of this segment.
    pub(crate) const fn of(mut self, segment: u64) -> Self {
        self.expected = Some((segment, 0));
        // The number of the first block is unknown.
        self.is_after_damage = true;
        self
    }

    /// Stops at this offset.
    pub(crate) fn until(mut self, end: u64) -> Self {
        self.end = self.end.min(end);
        self
    }

    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ScanItem>, StoreError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let offset = self.offset;
        match self.block_at(offset)? {
            Ok(header) => {
                let is_jump = self.expected.is_some_and(|(_, number)| header.number > number);
                if is_jump && !self.is_after_damage {
                    self.is_after_damage = true;
                    return Ok(Some(ScanItem::Damage { offset, len: 0, why: NoBlock::Missing }));
                }
                self.is_after_damage = false;
                self.offset += header.whole();
                self.expected = Some((header.segment, header.number.wrapping_add(1)));
                Ok(Some(ScanItem::Block { offset, header }))
            }
            Err(why) => {
                let next = self.find(offset + 1)?;
                self.is_after_damage = true;
                self.offset = next.unwrap_or(self.end);
                let len = self.offset - offset;
                Ok(Some(match next {
                    Some(_) => ScanItem::Damage { offset, len, why },
                    None => ScanItem::Tail { offset, len, why },
                }))
            }
        }
    }

    /// Reads the block at an offset. It must be complete and of this segment.
    fn block_at(&mut self, offset: u64) -> Result<Result<Header, NoBlock>, StoreError> {
        let mut bytes = [0; HEADER];
        let len = self.read(offset, &mut bytes)?;
        if len < HEADER {
            let empty = bytes[..len].iter().all(|byte| *byte == 0);
            return Ok(Err(if empty { NoBlock::Empty } else { NoBlock::Short }));
        }
        let header = match Header::read(&bytes) {
            Ok(header) => header,
            Err(why) => return Ok(Err(why)),
        };
        if self.expected.is_some_and(|(segment, number)| header.segment != segment || header.number < number) {
            return Ok(Err(NoBlock::Foreign));
        }
        if offset + header.whole() > self.end {
            return Ok(Err(NoBlock::Short));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(header.len as usize, 0);
        let read = self.read(offset + HEADER as u64, &mut payload);
        self.payload = payload;
        read?;
        Ok(header.check(&self.payload).map(|()| header))
    }

    /// Offset of the next complete block at or after `offset`.
    fn find(&mut self, mut offset: u64) -> Result<Option<u64>, StoreError> {
        let mut window = vec![0; WINDOW];
        while offset < self.end {
            let len = self.read(offset, &mut window)?;
            for at in 0..len.saturating_sub(MAGIC.len() - 1) {
                let place = offset + at as u64;
                if window[at..].starts_with(&MAGIC) && self.block_at(place)?.is_ok() {
                    return Ok(Some(place));
                }
            }
            if len < WINDOW {
                return Ok(None);
            }
            // Overlap the windows: the magic bytes may be split at the end of this one.
            offset += (WINDOW - MAGIC.len() + 1) as u64;
        }
        Ok(None)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, StoreError> {
        let room = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        self.files.read_at(self.file, offset, &mut buffer[..room]).map_err(StoreError::io(self.name, "read"))
    }
}

//! A checksum over all of a file, as Parquet has none that is used: eight digits in the file's end, which count as zeros.

use crate::ColumnsError;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use std::io::{self, Write};

/// The key under which the digits stand.
pub(crate) const SUM: &str = "tahti.crc32c";
/// What is in front of them.
const BEFORE: &[u8] = b"tahti-crc32c:";
const ZEROS: &[u8; 8] = b"00000000";
/// Bytes that are summed at a time.
const PIECE: usize = 1 << 20;

/// What a writer puts in the digits' place.
pub(crate) fn placeholder() -> String {
    [BEFORE, ZEROS].iter().flat_map(|part| part.iter().copied().map(char::from)).collect()
}

/// Passes bytes on and sums them; the file's end is held back until its digits are known.
pub(crate) struct Summed<W> {
    out: W,
    sum: u32,
    held: Option<Vec<u8>>,
}

impl<W: Write> Summed<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, sum: 0, held: None }
    }

    /// From here on it is the file's end.
    pub(crate) fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Writes what is held, with the digits.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let mut end = self.held.take().unwrap_or_default();
        let sum = crc32c::crc32c_append(self.sum, &end);
        if let Some(at) = place(&end) {
            end[at..at + ZEROS.len()].copy_from_slice(format!("{sum:08x}").as_bytes());
        }
        self.out.write_all(&end)?;
        self.out.flush()
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let len = self.out.write(bytes)?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Where the digits are: the last that look so, as names of signals come before them.
fn place(end: &[u8]) -> Option<usize> {
    let at = end.windows(BEFORE.len()).rposition(|some| some == BEFORE)? + BEFORE.len();
    (at + ZEROS.len() <= end.len()).then_some(at)
}

/// Reads all of a file and looks whether it is as it was written; whether it has digits at all.
///
/// # Errors
/// Where it is another than it was.
pub(crate) fn check<R: ChunkReader>(file: &R) -> Result<bool, ColumnsError> {
    let len = file.len();
    let Some(tail) = len.checked_sub(8) else { return Ok(false) };
    let end = file.get_bytes(tail, 4)?;
    let end = end.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes))) + 8;
    let Some(body) = len.checked_sub(end) else { return Ok(false) };
    let mut end = file.get_bytes(body, end as usize)?.to_vec();
    let Some(place) = place(&end) else { return Ok(false) };
    let digits = end[place..place + ZEROS.len()].to_vec();
    end[place..place + ZEROS.len()].copy_from_slice(ZEROS);
    let (mut sum, mut at) = (0, 0);
    while at < body {
        let piece = file.get_bytes(at, (body - at).min(PIECE as u64) as usize)?;
        sum = crc32c::crc32c_append(sum, &piece);
        at += piece.len() as u64;
    }
    if digits == format!("{:08x}", crc32c::crc32c_append(sum, &end)).as_bytes() {
        return Ok(true);
    }
    Err(ParquetError::General("damaged: its checksum is another".into()).into())
}

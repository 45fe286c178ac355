//! Checksum over the whole file, for files of tahti.

use crate::ColumnsError;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use segment::parquet::{SUM_LEN, end_of, has_sum, is_as_written, sum};

/// Bytes per step.
const PIECE: u64 = 1 << 20;

/// Reads the whole file and verifies its checksum. Returns false if it has none.
///
/// # Errors
/// The file cannot be read, or the checksum does not match.
pub(crate) fn check<R: ChunkReader>(file: &R) -> Result<bool, ColumnsError> {
    let len = file.len();
    let Some(last) = len.checked_sub(SUM_LEN) else { return Ok(false) };
    let last = file.get_bytes(last, SUM_LEN as usize)?;
    let body = last.first_chunk().and_then(|last| end_of(len, last));
    let Some(body) = body else { return Ok(false) };
    let end = file.get_bytes(body, usize::try_from(len - body).unwrap_or(usize::MAX))?;
    if !has_sum(&end) {
        return Ok(false);
    }
    let (mut so_far, mut at) = (0, 0);
    while at < body {
        let piece = file.get_bytes(at, (body - at).min(PIECE) as usize)?;
        so_far = sum(so_far, &piece);
        at += piece.len() as u64;
    }
    if is_as_written(&end, so_far) {
        return Ok(true);
    }
    Err(ParquetError::General("damaged: its checksum is another".into()).into())
}

//! A checksum over all of a file: eight digits in its end, which count as zeros.

/// What is in front of the digits.
const BEFORE: &[u8] = b"tahti-crc32c:";
const ZEROS: &[u8; 8] = b"00000000";

/// Bytes at a file's very end: the length of what it says of itself, and [`MAGIC`](super::MAGIC).
pub const SUM_LEN: u64 = 8;

/// What a writer puts in the digits' place.
pub(super) fn placeholder() -> String {
    [BEFORE, ZEROS].iter().flat_map(|part| part.iter().copied().map(char::from)).collect()
}

/// Writes the digits into a file's end; `sum` is that of all before it.
pub(super) fn put(end: &mut [u8], sum: u32) {
    let sum = crc32c::crc32c_append(sum, end);
    if let Some(at) = place(end) {
        end[at..at + ZEROS.len()].copy_from_slice(format!("{sum:08x}").as_bytes());
    }
}

/// The checksum of bytes behind those whose checksum this is; 0 before the first.
#[must_use]
pub fn sum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Whether a file's end has the digits of all before it, whose sum this is, and of itself.
#[must_use]
pub fn is_as_written(end: &[u8], sum: u32) -> bool {
    let Some(at) = place(end) else { return false };
    let mut zeroed = end.to_vec();
    zeroed[at..at + ZEROS.len()].copy_from_slice(ZEROS);
    end[at..at + ZEROS.len()] == *format!("{:08x}", crc32c::crc32c_append(sum, &zeroed)).as_bytes()
}

/// Whether a file's end has the digits of a checksum.
#[must_use]
pub fn has_sum(end: &[u8]) -> bool {
    place(end).is_some()
}

/// Where the digits are: the last that look so, as names of signals come before them.
fn place(end: &[u8]) -> Option<usize> {
    let at = end.windows(BEFORE.len()).rposition(|some| some == BEFORE)? + BEFORE.len();
    (at + ZEROS.len() <= end.len()).then_some(at)
}

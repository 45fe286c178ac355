//! Checksum over a whole file: eight hexadecimal digits in its footer, which count as zeros.

/// Prefix of the digits.
const BEFORE: &[u8] = b"tahti-crc32c:";
const ZEROS: &[u8; 8] = b"00000000";

/// Size of the last part of a file: length of the footer and [`MAGIC`](super::MAGIC).
pub const SUM_LEN: u64 = 8;

/// Placeholder for the digits.
pub(super) fn placeholder() -> String {
    [BEFORE, ZEROS].iter().flat_map(|part| part.iter().copied().map(char::from)).collect()
}

/// Writes the digits into the footer. `sum` is the checksum of the preceding bytes.
pub(super) fn put(end: &mut [u8], sum: u32) {
    let sum = crc32c::crc32c_append(sum, end);
    if let Some(at) = place(end) {
        end[at..at + ZEROS.len()].copy_from_slice(format!("{sum:08x}").as_bytes());
    }
}

/// Extends a checksum by more bytes; starts with 0.
#[must_use]
pub fn sum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Whether the digits in the footer match `sum`, the checksum of the preceding bytes, extended by the footer.
#[must_use]
pub fn is_as_written(end: &[u8], sum: u32) -> bool {
    let Some(at) = place(end) else { return false };
    let mut zeroed = end.to_vec();
    zeroed[at..at + ZEROS.len()].copy_from_slice(ZEROS);
    end[at..at + ZEROS.len()] == *format!("{:08x}", crc32c::crc32c_append(sum, &zeroed)).as_bytes()
}

/// Whether the footer contains a checksum.
#[must_use]
pub fn has_sum(end: &[u8]) -> bool {
    place(end).is_some()
}

/// Position of the digits: the last match, because signal names, which precede it, may contain the prefix.
fn place(end: &[u8]) -> Option<usize> {
    let at = end.windows(BEFORE.len()).rposition(|some| some == BEFORE)? + BEFORE.len();
    (at + ZEROS.len() <= end.len()).then_some(at)
}

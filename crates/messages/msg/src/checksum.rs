//! CRC-32C (Castagnoli), as in iSCSI, ext4 and SCTP.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Checksum of a body that follows its frame.
#[must_use]
pub fn checksum(body: &[u8]) -> u32 {
    crc32c([body])
}

/// Checksum of the concatenation of `pieces`.
pub(crate) fn crc32c<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let bytes = pieces.into_iter().flatten();
    !bytes.fold(!0u32, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standards() {
        // RFC 3720, B.4.
        assert_eq!(crc32c([&b"123456789"[..]]), 0xe306_9283);
        assert_eq!(crc32c([&[0u8; 20][..], &[0u8; 12][..]]), 0x8a91_36aa);
        assert_eq!(crc32c([]), 0);
    }
}

//! Unpacks `/proc/config.gz`, a gzip member, up to a size limit.

/// The reason why a file cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotUnpacked {
    /// The first bytes are not those of gzip.
    #[error("no gzip file")]
    Foreign,
    /// The header is cut off.
    #[error("a gzip file that ends too early")]
    Short,
    /// The content is damaged, or larger than the limit.
    #[error("a gzip file that is damaged or too large unpacked")]
    Content,
}

/// Returns the content of a gzip file, at most `limit` bytes.
///
/// # Errors
/// The file is not gzip, is damaged, or its content is larger than `limit`. The checksum at its end is not verified,
/// because the kernel generates the file on each read.
pub fn unpack(bytes: &[u8], limit: usize) -> Result<Vec<u8>, NotUnpacked> {
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const EXTRA: u8 = 4;
    const HEADER_SUM: u8 = 2;
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = bytes else { return Err(NotUnpacked::Foreign) };
    let mut rest = rest;
    let mut skip = |count: Option<usize>| {
        rest = count.and_then(|count| rest.get(count..)).ok_or(NotUnpacked::Short)?;
        Ok::<_, NotUnpacked>(rest)
    };
    let mut body = skip(Some(0))?;
    if flags & EXTRA != 0 {
        let length = body.first_chunk::<2>().map(|two| 2 + usize::from(u16::from_le_bytes(*two)));
        body = skip(length)?;
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            body = skip(body.iter().position(|&byte| byte == 0).map(|end| end + 1))?;
        }
    }
    if flags & HEADER_SUM != 0 {
        body = skip(Some(2))?;
    }
    miniz_oxide::inflate::decompress_to_vec_with_limit(body, limit).map_err(|_| NotUnpacked::Content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `printf 'CONFIG_HZ=250\n' | gzip -n`.
    const SMALL: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x73, 0xf6, 0xf7, 0x73, 0xf3, 0x74, 0x8f, 0xf7, 0x88, 0xb2, 0x35, 0x32,
        0x35, 0xe0, 0x02, 0x00,
    ];

    #[test]
    fn a_packed_configuration_is_read() {
        assert_eq!(unpack(SMALL, 100).as_deref(), Ok(&b"CONFIG_HZ=250\n"[..]));
        assert!(unpack(SMALL, 5).is_err());
        assert!(unpack(&SMALL[..14], 100).is_err());
        assert_eq!(unpack(b"CONFIG_HZ=250\n", 100), Err(NotUnpacked::Foreign));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(flags: u8, tail in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
            bytes.extend(tail);
            let _ = unpack(&bytes, 1 << 16);
        }
    }
}

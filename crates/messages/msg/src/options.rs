//! Options of a request from a ZeroMQ client: a MessagePack map.

use crate::header::{Band, Flags};
use alloc::string::String;
use base::DurNs;
use core::fmt;

/// Parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `within_ns`: time limit for the execution; `None`: not specified.
    pub within: Option<DurNs>,
    /// `band`.
    pub band: Band,
    /// `pulse`.
    pub pulse: u64,
    /// `answer_bytes`: maximum bytes of the answer's body, if above 16 KiB.
    pub answer: u64,
    /// `idempotent` and `dry_run`.
    pub flags: Flags,
}

impl Default for Options {
    fn default() -> Self {
        Self { within: None, band: Band::DEFAULT, pulse: 0, answer: 0, flags: Flags::NONE }
    }
}

/// Bytes that are not valid options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// Not a MessagePack map of the expected form.
    Form,
    /// An unknown option, or an invalid value.
    Option {
        /// Its key.
        key: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EXPECTED: &str =
            "within_ns (above 0), band (0 to 7), pulse, answer_bytes, idempotent, dry_run (true or false)";
        match self {
            Self::Form => f.write_str("the options are no MessagePack map of texts to numbers, true and false"),
            Self::Option { key } => write!(f, "option {key:?} with this value, expected {EXPECTED}"),
        }
    }
}

impl core::error::Error for OptionsError {}

/// A number or a Boolean.
enum Value {
    Number(u64),
    Truth(bool),
}

/// Parses options.
///
/// # Errors
/// The bytes are not valid options.
pub(crate) fn read(bytes: &[u8]) -> Result<Options, OptionsError> {
    let no_map = || OptionsError::Form;
    let (&head, mut rest) = bytes.split_first().ok_or_else(no_map)?;
    if head & 0xf0 != 0x80 {
        return Err(no_map());
    }
    let mut options = Options::default();
    for _ in 0..head & 0xf {
        let (key, value) = (text(&mut rest).ok_or_else(no_map)?, value(&mut rest).ok_or_else(no_map)?);
        match (key, value) {
            ("within_ns", Value::Number(within @ 1..=0x7fff_ffff_ffff_ffff)) => {
                options.within = Some(DurNs(within as i64))
            }
            ("band", Value::Number(band @ 0..=7)) => options.band = Band::new(band as u8).unwrap_or_default(),
            ("pulse", Value::Number(pulse)) => options.pulse = pulse,
            ("answer_bytes", Value::Number(bytes)) => options.answer = bytes,
            ("idempotent", Value::Truth(true)) => options.flags = options.flags.with(Flags::IDEMPOTENT),
            ("dry_run", Value::Truth(true)) => options.flags = options.flags.with(Flags::DRY_RUN),
            ("idempotent" | "dry_run", Value::Truth(false)) => {}
            _ => return Err(OptionsError::Option { key: key.into() }),
        }
    }
    if rest.is_empty() { Ok(options) } else { Err(no_map()) }
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, behind) = match rest {
        [head @ 0xa0..=0xbf, behind @ ..] => (usize::from(head & 31), behind),
        [0xd9, length, behind @ ..] => (usize::from(*length), behind),
        _ => return None,
    };
    let (found, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    core::str::from_utf8(found).ok()
}

fn value(rest: &mut &[u8]) -> Option<Value> {
    let (&head, behind) = rest.split_first()?;
    // Non-negative numbers in the unsigned and signed encodings. Some encoders always use the signed one.
    let size = match head {
        0xc2 | 0xc3 | 0..=0x7f => 0,
        0xcc | 0xd0 => 1,
        0xcd | 0xd1 => 2,
        0xce | 0xd2 => 4,
        0xcf | 0xd3 => 8,
        _ => return None,
    };
    let (digits, behind) = behind.split_at_checked(size)?;
    *rest = behind;
    if head & 0xf0 == 0xd0 && digits[0] & 0x80 != 0 {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit));
    Some(match head {
        0xc2 | 0xc3 => Value::Truth(head == 0xc3),
        0..=0x7f => Value::Number(head.into()),
        _ => Value::Number(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_read_and_malformed_ones_are_refused() {
        let bytes =
            b"\x85\xa4band\x07\xa5pulse\xcd\x01\x00\xa9within_ns\xce\x3b\x9a\xca\x00\xa7dry_run\xc3\xaaidempotent\xc2";
        let found = read(bytes).unwrap();
        assert_eq!((found.band.number(), found.pulse, found.within), (7, 256, Some(DurNs::from_secs(1))));
        assert!(found.flags.has(Flags::DRY_RUN) && !found.flags.has(Flags::IDEMPOTENT));
        for wrong in
            [&b"\x81\xa4band\x08"[..], b"\x81\xa9within_ns\x00", b"\x81\xa9within_ns\xd0\xff", b"\x81\xa4bend\x01"]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), head in 0x80u8..0x90) {
            let _ = read(&bytes);
            let _ = read(&[&[head, 0xa4][..], b"band", &bytes].concat());
        }
    }
}

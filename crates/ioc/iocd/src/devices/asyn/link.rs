//! Addresses of asyn's DTYPs.

use base::DurNs;
use db::AttachError;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AsynLink {
    pub(super) port: String,
    /// Address on the port.
    pub(super) address: i32,
    /// Mask of `asynMask`; for asynInt32 the number of bits.
    pub(super) mask: Option<i64>,
    pub(super) timeout: DurNs,
    /// The parameter of the driver (drvInfo); may be empty.
    pub(super) info: String,
}

const EXPECTED: &str = "asyn(PORT,ADDRESS,TIMEOUT)PARAMETER or asynMask(PORT,ADDRESS,MASK,TIMEOUT)PARAMETER";
/// Limits of a time limit.
const TIMEOUT: (DurNs, DurNs) = (DurNs::from_ms(1), DurNs::from_secs(3_600));

impl AsynLink {
    /// Parses the text after a link's `@`. Blanks and commas separate the arguments. Numbers are decimal, hexadecimal with
    /// `0x`, or octal with a leading 0.
    pub(super) fn parse(text: &str) -> Result<Self, AttachError> {
        let unreadable = |why: &str| AttachError::Unreadable { found: format!("\"{text}\""), why: why.to_owned() };
        let expected = || AttachError::Unexpected { found: format!("\"{text}\""), expected: EXPECTED.to_owned() };
        let (word, rest) = text.trim().split_once('(').ok_or_else(expected)?;
        let masked = match word.trim() {
            "asyn" => false,
            "asynMask" => true,
            _ => return Err(expected()),
        };
        let (inside, info) = rest.split_once(')').ok_or_else(|| unreadable("no ) to the ("))?;
        let mut words = inside.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let port = words.next().ok_or_else(expected)?.to_owned();
        let number = |word: Option<&str>| word.map(|word| whole(word).ok_or_else(|| unreadable("expected a number")));
        let address = number(words.next()).transpose()?.unwrap_or(0);
        let address = i32::try_from(address).map_err(|_| unreadable("the address is too large"))?;
        let mask = if masked { number(words.next()).transpose()? } else { None };
        if masked && mask.is_none() {
            return Err(expected());
        }
        let seconds = words.next().map(|word| word.parse::<f64>().map_err(|error| unreadable(&error.to_string())));
        let seconds = seconds.transpose()?.filter(|seconds| seconds.is_finite() && *seconds > 0.0).unwrap_or(1.0);
        if words.next().is_some() {
            return Err(expected());
        }
        let timeout = DurNs((seconds.min(1e6) * 1e9) as i64).clamp(TIMEOUT.0, TIMEOUT.1);
        Ok(Self { port, address, mask, timeout, info: info.trim().to_owned() })
    }
}

/// A whole number as C's `strtol` with base 0 reads it.
pub(crate) fn whole(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    number.ok().filter(|number| *number >= 0).map(|number| if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forms of asyn's documentation, "Device Support Addressing", and of public databases.
    #[test]
    fn links_have_asyns_forms() {
        let parsed = |text: &str| {
            let link = AsynLink::parse(text).unwrap();
            (link.port, link.address, link.mask, link.timeout.0 / 1_000_000, link.info)
        };
        let link = |port: &str, address, mask, ms, info: &str| (port.to_owned(), address, mask, ms, info.to_owned());
        assert_eq!(parsed("asyn(P)"), link("P", 0, None, 1_000, ""));
        assert_eq!(parsed("asyn(P,1,0.5)UINT16"), link("P", 1, None, 500, "UINT16"));
        assert_eq!(parsed("asyn( P , 010 , 2) A B"), link("P", 8, None, 2_000, "A B"));
        assert_eq!(parsed("asynMask(P 3 0xff00)"), link("P", 3, Some(0xff00), 1_000, ""));
        assert_eq!(parsed("asynMask(P,0,-12,1.0)MODBUS_DATA"), link("P", 0, Some(-12), 1_000, "MODBUS_DATA"));
        for bad in ["", "P 0", "asyn", "asyn(", "asyn()", "asyn(P", "asyn(P,x)", "asynMask(P,0)", "asyn(P,0,1,2)"] {
            assert!(AsynLink::parse(bad).is_err(), "{bad}");
        }
    }
}

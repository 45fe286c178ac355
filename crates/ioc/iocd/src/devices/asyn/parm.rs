//! Settings of `asyn .. stringParm` (synApps' ip module): `TERM=0d0a,IX=0,FMT=%lf,TO=1000,N=100`.

use super::link::whole;
use base::{DurNs, Scalar, Str40, Value};
use db::AttachError;

/// Settings of one record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parm {
    /// TERM: terminator, hexadecimal. Other texts are no terminator: a reading then ends with its time limit.
    pub(super) terminator: Vec<u8>,
    /// IX: first byte that is used.
    pub(super) start: usize,
    /// FMT: text before a number that is read.
    before: Vec<u8>,
    /// TO: time limit.
    pub(super) limit: DurNs,
    /// N: maximum number of bytes.
    pub(super) max: usize,
}

impl Parm {
    pub(super) fn parse(text: &str, output: bool) -> Result<Self, AttachError> {
        let limit = DurNs::from_ms(if output { 3_000 } else { 1_000 });
        let mut parm = Self { terminator: b"\r\n".to_vec(), start: 0, before: Vec::new(), limit, max: 100 };
        let mut rest = text;
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=').ok_or_else(|| AttachError::Unexpected {
                found: format!("\"{rest}\""),
                expected: "TERM=, IX=, FMT=, TO= or N=".to_owned(),
            })?;
            // A comma may be part of a text that is no terminator.
            let end = [",IX=", ",FMT=", ",TO=", ",N=", ",TERM="].iter().filter_map(|next| value.find(next)).min();
            let (value, next) = end.map_or((value, ""), |end| (&value[..end], &value[end + 1..]));
            let number = |low: i64, high: i64| {
                let wrong = || AttachError::Unexpected {
                    found: format!("{key}={value}"),
                    expected: format!("{key}={low} to {high}"),
                };
                whole(value).filter(|number| (low..=high).contains(number)).ok_or_else(wrong)
            };
            match key.trim() {
                "TERM" => parm.terminator = terminator(value),
                "IX" => parm.start = number(0, 99)? as usize,
                "FMT" => {
                    let (before, conversion) = value.split_once('%').unwrap_or((value, ""));
                    if output || !matches!(conversion, "lf" | "f" | "le" | "lg" | "d" | "ld" | "s" | "hd" | "i" | "") {
                        let expected = "FMT=%lf, %d or %s of an input, with a text before it".to_owned();
                        return Err(AttachError::Unexpected { found: format!("FMT={value}"), expected });
                    }
                    parm.before = before.as_bytes().to_vec();
                }
                "TO" => parm.limit = DurNs::from_ms(number(1, 3_600_000)?),
                "N" => parm.max = number(1, 100)? as usize,
                other => {
                    let expected = "TERM=, IX=, FMT=, TO= or N=".to_owned();
                    return Err(AttachError::Unexpected { found: format!("\"{other}=\""), expected });
                }
            }
            rest = next;
        }
        Ok(parm)
    }

    /// The value in an answer; `None` if it has none.
    pub(super) fn value(&self, bytes: &[u8], record_type: &str) -> Option<Value> {
        let used = bytes.get(self.start..)?;
        if record_type == "stringin" {
            return Some(Value::Scalar(Scalar::String(Str40::new(used))));
        }
        let number = used.strip_prefix(self.before.as_slice())?.trim_ascii_start();
        let text = std::str::from_utf8(&number[..number_len(number)]).ok()?;
        let number: f64 = text.parse().ok()?;
        Some(if record_type == "longin" { Value::from(number as i32) } else { Value::from(number) })
    }
}

/// The bytes of pairs of hexadecimal digits, up to the first other character.
fn terminator(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2).map_while(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    pairs.map(|byte| byte as u8).take(9).collect()
}

/// Length of the number at the beginning of a text.
fn number_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    let digits = |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    len += usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    len += digits(len);
    if bytes.get(len) == Some(&b'.') {
        len += 1;
        len += digits(len);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        len += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters of the ip module's documentation, "devXxStrParm", and links of public databases.
    #[test]
    fn settings_and_answers_of_string_parameters() {
        let parm = |text: &str| Parm::parse(text, false).unwrap();
        let default = parm("");
        assert_eq!(
            (default.terminator.as_slice(), default.limit, default.max),
            (&b"\r\n"[..], DurNs::from_ms(1_000), 100)
        );
        assert_eq!(parm("TERM=0d,IX=2").terminator, b"\r");
        assert_eq!(parm("TERM=ok>").terminator, b"");
        let number = parm("TERM=,IX=3,FMT=%lf,N=10");
        assert_eq!((number.terminator.as_slice(), number.start, number.max), (&b""[..], 3, 10));
        assert_eq!(number.value(b"abc -1.5e2V", "ai"), Some(Value::from(-150.0)));
        assert_eq!(number.value(b"abc", "ai"), None);
        assert_eq!(parm("FMT=%d").value(b"17.9", "longin"), Some(Value::from(17i32)));
        assert_eq!(parm("FMT=V=%lf").value(b"V=2", "ai"), Some(Value::from(2.0)));
        assert_eq!(parm("FMT=V=%lf").value(b"I=2", "ai"), None);
        let text = Value::Scalar(Scalar::String("bc".into()));
        assert_eq!(parm("IX=1").value(b"abc", "stringin"), Some(text));
        assert_eq!(Parm::parse("TO=100", true).unwrap().limit, DurNs::from_ms(100));
        for bad in ["X=1", "TERM", "IX=a", "FMT=%5c", "TO=0"] {
            assert!(Parm::parse(bad, false).is_err(), "{bad}");
        }
    }
}

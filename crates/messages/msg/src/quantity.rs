//! Numbers with units, as used in complements.

/// Splits a number from its unit: `123.45A`, `-1e-3 mm`, `12`. `None` if the text does not begin with a number.
///
/// Real-time: does not allocate; bounded by the length of the text.
#[must_use]
pub fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(end);
    end += whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    // An exponent needs digits: `5eV` is five electronvolts.
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if bytes.len() > end + 1 + sign && digits(end + 1 + sign) > 0 {
            end += 1 + sign + digits(end + 1 + sign);
        }
    }
    let value: f64 = text[..end].parse().ok()?;
    value.is_finite().then(|| (value, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_split_from_its_unit() {
        for (text, expected) in [
            ("123.45A", Some((123.45, "A"))),
            (" -1e-3 mm", Some((-1e-3, "mm"))),
            ("5eV", Some((5.0, "eV"))),
            ("+.5", Some((0.5, ""))),
            ("12e", Some((12.0, "e"))),
            ("on", None),
            (".", None),
            ("-A", None),
            ("1e999", None),
        ] {
            assert_eq!(quantity(text), expected, "{text}");
        }
    }
}

//! Messages of `out` and `in`: bytes, wild cards and conversions.

use super::convert::{Conversion, Format, Value};
use super::given::{RunInputs, RunOutputs};
use super::syntax::Syntax;
use std::borrow::Cow;

/// Maximum number of items in one `in` or `out`.
pub(super) const MESSAGE_ITEMS_MAX: usize = 1_024;
/// Maximum number of values that one `in` accepts.
const VALUES_MAX: usize = 100_000;

/// An item of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MessageItem {
    /// A byte that is written or expected.
    Byte(u8),
    /// `?`: matches any byte. Writes nothing.
    Any,
    /// `\_`: matches any amount of white space. Writes one blank.
    Blank,
    /// A conversion.
    Format(Format),
}

/// A character of a message, with variables substituted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coded {
    /// A character in quotes. A `%` begins a conversion.
    Plain(u8),
    /// A byte without special meaning.
    Literal(u8),
    /// `?`
    Any,
    /// `\_`
    Blank,
}

impl Coded {
    /// The character, if it was written in quotes.
    pub(super) const fn plain(self) -> Option<u8> {
        if let Self::Plain(byte) = self { Some(byte) } else { None }
    }

    /// The byte value; `None` for a wild card.
    pub(super) const fn byte(self) -> Option<u8> {
        match self {
            Self::Plain(byte) | Self::Literal(byte) => Some(byte),
            Self::Any | Self::Blank => None,
        }
    }
}

/// A whole number in the syntax of C's `strtol`: decimal, `0x…`, or octal with a leading 0.
pub(super) fn whole(word: &str) -> Option<i64> {
    let (negative, digits) = match word.as_bytes() {
        [b'-', ..] => (true, &word[1..]),
        [b'+', ..] => (false, &word[1..]),
        _ => (false, word),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a second sign.
    let digits = Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_alphanumeric()))?;
    let value = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// A byte outside quotes: a number or an ASCII name.
pub(super) fn byte(word: &str) -> Result<Coded, Syntax> {
    const NAMES: [&str; 33] = [
        "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI", "DLE",
        "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US", "SP",
    ];
    let upper = word.to_ascii_uppercase();
    if let Some(at) = NAMES.iter().position(|name| *name == upper) {
        return Ok(Coded::Literal(at as u8));
    }
    match upper.as_str() {
        "TAB" => return Ok(Coded::Literal(9)),
        "NL" => return Ok(Coded::Literal(10)),
        "NP" => return Ok(Coded::Literal(12)),
        "DEL" => return Ok(Coded::Literal(127)),
        "?" | "SKIP" => return Ok(Coded::Any),
        _ => {}
    }
    whole(word)
        .filter(|value| (-128..=255).contains(value))
        .map(|value| Coded::Literal(value as u8))
        .ok_or_else(|| Syntax::Byte(word.to_owned()))
}

/// Parses the items of a message.
pub(super) fn items(coded: &[Coded]) -> Result<Vec<MessageItem>, Syntax> {
    let mut items = Vec::new();
    let mut rest = coded;
    while let Some((first, behind)) = rest.split_first() {
        if items.len() >= MESSAGE_ITEMS_MAX {
            return Err(Syntax::Items);
        }
        let (item, len) = match (first, behind.first()) {
            (Coded::Plain(b'%'), Some(Coded::Plain(b'%'))) => (MessageItem::Byte(b'%'), 1),
            (Coded::Plain(b'%'), _) => {
                let (format, len) = Format::parse(behind)?;
                (MessageItem::Format(format), len)
            }
            (Coded::Plain(byte) | Coded::Literal(byte), _) => (MessageItem::Byte(*byte), 0),
            (Coded::Any, _) => (MessageItem::Any, 0),
            (Coded::Blank, _) => (MessageItem::Blank, 0),
        };
        items.push(item);
        rest = &behind[len..];
    }
    Ok(items)
}

/// Decodes an escape. Returns the character and the number of bytes after the backslash.
pub(super) fn escape(bytes: &[u8]) -> Result<(Coded, usize), Syntax> {
    let Some(first) = bytes.first() else { return Ok((Coded::Literal(b'\\'), 0)) };
    let digits = |radix: u32, from: usize, most: usize| {
        let digits = bytes[from..].iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix));
        let (value, len) = digits.fold((0u32, 0usize), |(value, len), digit| (value * radix + digit, len + 1));
        match u8::try_from(value) {
            Ok(byte) if len > 0 => Ok((Coded::Literal(byte), from + len)),
            _ => Err(Syntax::Escape(String::from_utf8_lossy(&bytes[..from + len]).into_owned())),
        }
    };
    let byte = match first {
        b'a' => 7,
        b'b' => 8,
        b't' => 9,
        b'n' => 10,
        b'r' => 13,
        b'e' => 27,
        b'_' => return Ok((Coded::Blank, 1)),
        b'?' => return Ok((Coded::Any, 1)),
        b'x' => return digits(16, 1, 2),
        b'0' => return digits(8, 0, 4),
        b'1'..=b'9' => return digits(10, 0, 3),
        other => *other,
    };
    Ok((Coded::Literal(byte), 1))
}

/// Converts characters to bytes, as a terminator needs. Wild cards are an error.
pub(super) fn literal(coded: &[Coded]) -> Result<Vec<u8>, Syntax> {
    coded.iter().map(|coded| coded.byte().ok_or(Syntax::WildTerminator)).collect()
}

/// The separator between array elements. A leading blank matches any white space.
pub(super) fn separator(coded: Vec<Coded>) -> Vec<MessageItem> {
    let item = |(at, coded): (usize, Coded)| match coded {
        Coded::Plain(b' ') | Coded::Literal(b' ') if at == 0 => MessageItem::Blank,
        Coded::Plain(byte) | Coded::Literal(byte) => MessageItem::Byte(byte),
        Coded::Any => MessageItem::Any,
        Coded::Blank => MessageItem::Blank,
    };
    coded.into_iter().enumerate().map(item).collect()
}

/// The byte that is written for an item without a value.
const fn plain(item: &MessageItem) -> Option<u8> {
    match item {
        MessageItem::Byte(byte) => Some(*byte),
        MessageItem::Blank => Some(b' '),
        MessageItem::Any | MessageItem::Format(_) => None,
    }
}

fn written(separator: &[MessageItem]) -> Vec<u8> {
    separator.iter().filter_map(plain).collect()
}

/// Writes a message. Returns `None` if a value does not fit its conversion.
pub(super) fn print(items: &[MessageItem], separator: &[MessageItem], given: &RunInputs) -> Option<Vec<u8>> {
    let separator = written(separator);
    let mut out = Vec::new();
    for item in items {
        match item {
            MessageItem::Format(format) if format.has_value() => given.print(format, &separator, &mut out)?,
            MessageItem::Format(format) => format.print_own(&mut out),
            other => out.extend(plain(other)),
        }
    }
    Some(out)
}

/// The settings for reading the `in` commands of a protocol.
pub(super) struct Reading<'a> {
    /// The separator between array elements.
    pub(super) separator: &'a [MessageItem],
    pub(super) ignore_extra: bool,
    pub(super) given: &'a RunInputs,
}

impl Reading<'_> {
    /// Matches a line and stores its values. Returns whether the whole line matches. Arrays take as many elements as present.
    pub(super) fn scan(&self, items: &[MessageItem], original: &[u8], taken: &mut RunOutputs) -> bool {
        let mut line = Cow::Borrowed(original);
        let mut at = 0;
        for item in items {
            let MessageItem::Format(format) = item else {
                let Some(len) = scan_plain(item, &line, at) else { return false };
                at += len;
                continue;
            };
            match &format.conversion {
                Conversion::Substitute(substitution) => {
                    substitution.replace(&format.directive, line.to_mut(), at);
                    continue;
                }
                Conversion::Sum(sum) => {
                    // The checksum covers the received bytes, not the result of substitutions. The unread rest is the same in both.
                    let place = (at + original.len()).saturating_sub(line.len());
                    let Some(len) = format.check(sum, original, place) else { return false };
                    at += len;
                    continue;
                }
                _ => {}
            }
            let mut values = Vec::new();
            let Some(len) = self.scan_format(format, &line, at, &mut values) else { return false };
            at += len;
            while values.len() < self.given.takes(format).min(VALUES_MAX)
                && !values.is_empty()
                && let Some(len) = scan_all(self.separator, &line, at)
                && let Some(more) = self.scan_format(format, &line, at + len, &mut values)
                && len + more > 0
            {
                at += len + more;
            }
            match format.field() {
                _ if values.is_empty() => {}
                Some(name) => taken.fields.push((name.to_owned(), values)),
                None => taken.values.append(&mut values),
            }
        }
        self.ignore_extra || at == line.len()
    }

    fn scan_format(&self, format: &Format, line: &[u8], at: usize, values: &mut Vec<Value>) -> Option<usize> {
        if format.compares() {
            let mut expected = Vec::new();
            self.given.print(format, &written(self.separator), &mut expected)?;
            return line.get(at..)?.starts_with(&expected).then_some(expected.len());
        }
        let (len, value) = format.scan(line, at, self.given.zone)?;
        values.extend(value.filter(|_| format.has_value()));
        Some(len)
    }
}

fn scan_all(items: &[MessageItem], line: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    for item in items {
        at += scan_plain(item, line, at)?;
    }
    Some(at - from)
}

fn scan_plain(item: &MessageItem, line: &[u8], at: usize) -> Option<usize> {
    let rest = line.get(at..)?;
    match item {
        MessageItem::Byte(byte) => (rest.first() == Some(byte)).then_some(1),
        // As in StreamDevice, `?` also matches the end of the line.
        MessageItem::Any => Some(rest.len().min(1)),
        MessageItem::Blank => Some(rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()),
        MessageItem::Format(_) => None,
    }
}

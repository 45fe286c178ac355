//! What `out` writes and `in` expects: bytes, wild cards, conversions.

use super::convert::{Format, Value};
use super::given::{Given, Taken};

/// Most pieces of one `in` or `out`.
const PIECES_MAX: usize = 1_024;
/// Most values that one `in` takes.
const VALUES_MAX: usize = 100_000;

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// A byte that is written or expected.
    Byte(u8),
    /// `?`: any byte; nothing is written.
    Any,
    /// `\_`: white space, as much as there is; one blank is written.
    Blank,
    /// A conversion.
    Format(Format),
}

/// A byte outside of quotes: a number, or its name in ASCII.
pub(super) fn byte(word: &str) -> Result<Piece, String> {
    const NAMES: [&str; 33] = [
        "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI", "DLE",
        "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US", "SP",
    ];
    let upper = word.to_ascii_uppercase();
    if let Some(at) = NAMES.iter().position(|name| *name == upper) {
        return Ok(Piece::Byte(at as u8));
    }
    match upper.as_str() {
        "TAB" => return Ok(Piece::Byte(9)),
        "NL" => return Ok(Piece::Byte(10)),
        "NP" => return Ok(Piece::Byte(12)),
        "DEL" => return Ok(Piece::Byte(127)),
        "?" | "SKIP" => return Ok(Piece::Any),
        _ => {}
    }
    let number = match upper.strip_prefix("0X") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => word.parse::<i16>().ok().filter(|value| (-128..=255).contains(value)).map(|value| value as u8),
    };
    number
        .map(Piece::Byte)
        .ok_or_else(|| format!("\"{word}\"; expected a quoted text, a number from -128 to 255, or a name such as CR"))
}

/// Appends the pieces of a quoted text.
pub(super) fn text(
    text: &str,
    lookup: &dyn Fn(&str) -> Result<String, String>,
    pieces: &mut Vec<Piece>,
) -> Result<(), String> {
    let text = substitute(text, lookup)?;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if pieces.len() >= PIECES_MAX {
            return Err(format!("more than {PIECES_MAX} pieces in one message"));
        }
        match bytes[at] {
            b'%' if bytes.get(at + 1) == Some(&b'%') => {
                pieces.push(Piece::Byte(b'%'));
                at += 2;
            }
            b'%' => {
                let (format, len) = Format::parse(&bytes[at + 1..])?;
                pieces.push(Piece::Format(format));
                at += 1 + len;
            }
            b'\\' => {
                let (piece, len) = escape(&bytes[at + 1..]);
                pieces.push(piece);
                at += 1 + len;
            }
            byte => {
                pieces.push(Piece::Byte(byte));
                at += 1;
            }
        }
    }
    Ok(())
}

/// `\$1`, `\${name}` in a quoted text.
fn substitute(text: &str, lookup: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\$") {
        // A backslash before it makes it plain.
        let escapes = rest[..at].len() - rest[..at].trim_end_matches('\\').len();
        if escapes % 2 == 1 {
            out.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        let (name, len) = match rest.strip_prefix('{') {
            Some(inner) => {
                let end = inner.find('}').ok_or("\"\\${\" that is not closed")?;
                (&inner[..end], end + 2)
            }
            None => {
                let digit = rest.chars().next().is_some_and(|first| first.is_ascii_digit());
                let name = |next: char| next.is_ascii_alphanumeric() || next == '_';
                let end = if digit { 1 } else { rest.len() - rest.trim_start_matches(name).len() };
                (&rest[..end], end)
            }
        };
        out.push_str(&lookup(name)?);
        rest = &rest[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The piece that an escape means, and how many bytes it has behind its backslash.
pub(super) fn escape(bytes: &[u8]) -> (Piece, usize) {
    let Some(first) = bytes.first() else { return (Piece::Byte(b'\\'), 0) };
    let digits = |radix: u32, from: usize, most: usize| {
        let digits = bytes[from..].iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix));
        digits.fold((0u32, 0usize), |(value, len), digit| (value * radix + digit, len + 1))
    };
    let byte = match first {
        b'a' => 7,
        b'b' => 8,
        b't' => 9,
        b'n' => 10,
        b'r' => 13,
        b'e' => 27,
        b'_' => return (Piece::Blank, 1),
        b'?' => return (Piece::Any, 1),
        b'x' => {
            let (value, len) = digits(16, 1, 2);
            return (Piece::Byte(value as u8), 1 + len);
        }
        b'0' => {
            let (value, len) = digits(8, 0, 4);
            return (Piece::Byte(value as u8), len);
        }
        b'1'..=b'9' => {
            let (value, len) = digits(10, 0, 3);
            return (Piece::Byte(value as u8), len);
        }
        other => *other,
    };
    (Piece::Byte(byte), 1)
}

/// Pieces that are bytes alone, as a terminator is.
pub(super) fn literal(pieces: &[Piece]) -> Result<Vec<u8>, String> {
    let byte = |piece: &Piece| match piece {
        Piece::Byte(byte) => Ok(*byte),
        _ => Err("a terminator holds wild cards or conversions; expected bytes".to_owned()),
    };
    pieces.iter().map(byte).collect()
}

/// What is written for a piece that needs no value.
const fn plain(piece: &Piece) -> Option<u8> {
    match piece {
        Piece::Byte(byte) => Some(*byte),
        Piece::Blank => Some(b' '),
        Piece::Any | Piece::Format(_) => None,
    }
}

fn written(separator: &[Piece]) -> Vec<u8> {
    separator.iter().filter_map(plain).collect()
}

/// Writes a message; `None` where a value does not fit its conversion.
pub(super) fn print(pieces: &[Piece], separator: &[Piece], given: &Given) -> Option<Vec<u8>> {
    let separator = written(separator);
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Format(format) if format.has_value() => given.print(format, &separator, &mut out)?,
            Piece::Format(format) => format.print_own(&mut out)?,
            other => out.extend(plain(other)),
        }
    }
    Some(out)
}

/// How a protocol's `in` are read.
pub(super) struct Reading<'a> {
    /// What stands between the elements of arrays.
    pub(super) separator: &'a [Piece],
    pub(super) ignore_extra: bool,
    pub(super) given: &'a Given,
}

impl Reading<'_> {
    /// Matches a line and takes its values; whether all of it fits. Arrays take as many as there are.
    pub(super) fn scan(&self, pieces: &[Piece], line: &[u8], taken: &mut Taken) -> bool {
        let mut at = 0;
        for piece in pieces {
            let Piece::Format(format) = piece else {
                let Some(len) = scan_plain(piece, line, at) else { return false };
                at += len;
                continue;
            };
            let mut values = Vec::new();
            let Some(len) = self.scan_format(format, line, at, &mut values) else { return false };
            at += len;
            while values.len() < self.given.takes(format).min(VALUES_MAX)
                && !values.is_empty()
                && let Some(len) = scan_all(self.separator, line, at)
                && let Some(more) = self.scan_format(format, line, at + len, &mut values)
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
        let (len, value) = format.scan(line, at)?;
        values.extend(value.filter(|_| format.has_value()));
        Some(len)
    }
}

fn scan_all(pieces: &[Piece], line: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    for piece in pieces {
        at += scan_plain(piece, line, at)?;
    }
    Some(at - from)
}

fn scan_plain(piece: &Piece, line: &[u8], at: usize) -> Option<usize> {
    let rest = line.get(at..)?;
    match piece {
        Piece::Byte(byte) => (rest.first() == Some(byte)).then_some(1),
        // As StreamDevice: where the line ends, there is nothing to pass over.
        Piece::Any => Some(rest.len().min(1)),
        Piece::Blank => Some(rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()),
        Piece::Format(_) => None,
    }
}

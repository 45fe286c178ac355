//! Output format of values: with their types (`dbgf`, `dbtgf`), and in the syntax of files.

use base::text::general;
use base::{Array, FieldType, Scalar, Value};
use db::{Channel, Db};
use std::fmt::Write as _;

/// `dbgf`: a field's value with its type.
pub(super) fn field(db: &mut Db, name: &str) -> String {
    let Ok(channel) = db.find(name) else {
        return format!("PV '{name}' not found\n");
    };
    if is_empty_text(db, name, &channel) {
        let kind = if channel.long_string { "CHAR" } else { "STRING" };
        let mut tabs = Tabs::new(10);
        tabs.put(&format!("DBF_{kind}[0]: (empty)"));
        return tabs.finish();
    }
    let info = db.info(&channel);
    let textual = matches!(
        info.kind,
        FieldType::Enum | FieldType::Menu | FieldType::Device | FieldType::Link | FieldType::String
    );
    if textual && !info.array {
        let mut tabs = Tabs::new(10);
        let text = match db.get(&channel, 1) {
            Value::Scalar(Scalar::String(text)) => text,
            _ => db.get_text(&channel),
        };
        tabs.put("DBF_STRING: ");
        tabs.put(&format!("\"{}\"", text.bytes().escape_ascii()));
        return tabs.finish();
    }
    native(db, &channel)
}

/// Whether a long text was never written. C prints its number of bytes, which is 0.
fn is_empty_text(db: &mut Db, name: &str, channel: &Channel) -> bool {
    if !matches!(db.type_name(channel.record), "lsi" | "lso" | "printf") {
        return false;
    }
    let (record, field) = name.split_once('.').unwrap_or((name, "VAL"));
    let len = match field.trim_end_matches('$') {
        "VAL" => "LEN",
        "OVAL" => "OLEN",
        _ => return false,
    };
    let len = db.find(&format!("{}.{len}", record.trim_end_matches('$')));
    len.is_ok_and(|len| db.get(&len, 1).get(0).and_then(Scalar::to_f64) == Some(0.0))
}

/// A field's elements in their stored type.
pub(super) fn native(db: &mut Db, channel: &Channel) -> String {
    printed(&db.get(channel, usize::MAX))
}

pub(super) fn printed(value: &Value) -> String {
    let mut tabs = Tabs::new(10);
    let kind = dbf(value.kind());
    match value {
        Value::Array(array) if array.is_empty() => tabs.put(&format!("DBF_{kind}[0]: (empty)")),
        Value::Array(Array::I8(bytes)) if bytes.len() > 1 => {
            tabs.put(&format!("DBF_CHAR[{}]: ", bytes.len()));
            let text: Vec<u8> = bytes.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
            tabs.put(&format!("\"{}\"", text.escape_ascii()));
        }
        Value::Array(array) if array.len() > 1 => {
            tabs.put(&format!("DBF_{kind}[{}]: ", array.len()));
            (0..array.len()).filter_map(|index| array.get(index)).for_each(|scalar| tabs.put(&element(scalar)));
        }
        value => {
            tabs.put(&format!("DBF_{kind}: "));
            tabs.put(&value.get(0).map_or_else(String::new, element));
        }
    }
    tabs.finish()
}

pub(super) const fn dbf(kind: FieldType) -> &'static str {
    match kind {
        FieldType::I8 => "CHAR",
        FieldType::U8 => "UCHAR",
        FieldType::I16 => "SHORT",
        FieldType::U16 => "USHORT",
        FieldType::I32 => "LONG",
        FieldType::U32 => "ULONG",
        FieldType::I64 => "INT64",
        FieldType::U64 => "UINT64",
        FieldType::F32 => "FLOAT",
        FieldType::F64 => "DOUBLE",
        FieldType::Enum | FieldType::Menu | FieldType::Device => "ENUM",
        _ => "STRING",
    }
}

fn element(scalar: Scalar) -> String {
    match scalar {
        Scalar::String(text) => format!("\"{}\"", text.bytes().escape_ascii()),
        Scalar::F64(value) => general(value, 12),
        Scalar::F32(value) => general(value.into(), 6),
        Scalar::I8(value) if matches!(value, 0x20..=0x7e) => {
            format!("{value} = {value:#x} = '{}'", value as u8 as char)
        }
        Scalar::I8(value) => format!("{value} = {value:#x}"),
        Scalar::U8(value) => format!("{value} = {value:#x}"),
        Scalar::I16(value) => format!("{value} = {value:#x}"),
        Scalar::U16(value) => format!("{value} = {value:#x}"),
        Scalar::Enum(value) => value.to_string(),
        Scalar::I32(value) => format!("{value} = {value:#x}"),
        Scalar::U32(value) => format!("{value} = {value:#x}"),
        Scalar::I64(value) => {
            format!("{value} = {}{:#x}", if value < 0 { "-" } else { "" }, value.unsigned_abs())
        }
        Scalar::U64(value) => format!("{value} = {value:#x}"),
    }
}

/// A field's value in the syntax of a `.db` file; `None` for arrays.
pub(super) fn held(db: &mut Db, channel: &Channel, kind: Option<FieldType>, hex: bool) -> Option<String> {
    Some(match (kind, db.get(channel, 1)) {
        (Some(FieldType::Link), _) => base::raw::decode(&db.get_long_text(channel)).into_owned(),
        (Some(FieldType::Menu | FieldType::Device), _) => db.get_text(channel).to_string(),
        // A text of this length may be truncated, so the whole field is read.
        (_, Value::Scalar(Scalar::String(text))) if text.bytes().len() == 39 => {
            base::raw::decode(&db.get_long_text(channel)).into_owned()
        }
        (_, Value::Scalar(Scalar::U32(value))) if hex => format!("{value:#x}"),
        (_, Value::Scalar(scalar)) => plain(scalar),
        (_, Value::Array(_)) => return None,
    })
}

/// `dbtgf`: a field with its properties, then in each type.
pub(super) fn in_each_type(db: &mut Db, name: &str, types: &[(&str, FieldType)]) -> String {
    let Ok(channel) = db.find(name) else { return format!("PV '{name}' not found\n") };
    let alarm = db.alarm(channel.record);
    let meta = db.meta(&channel);
    let mut out = format!("status = {}, severity = {}\n", alarm.status as u16, alarm.severity as u16);
    let _ = writeln!(out, "units = \"{}\"\nprecision = {}", meta.units, meta.precision);
    let _ = writeln!(out, "time = {}", db.stamp(channel.record).0);
    for (word, kind) in types {
        match db.get_as(&channel, *kind) {
            Some(array) => out.push_str(&printed(&Value::Array(array))),
            None => {
                let mut tabs = Tabs::new(10);
                tabs.put(&format!("DBF_{word}: "));
                tabs.put("failed.");
                out.push_str(&tabs.finish());
            }
        }
    }
    out
}

/// A value in the syntax of a `.db` file.
fn plain(scalar: Scalar) -> String {
    match scalar {
        Scalar::F64(value) => real(value, 14, 1e-15),
        Scalar::F32(value) => real(value.into(), 6, 1e-6),
        Scalar::String(text) => base::raw::decode(text.bytes()).into_owned(),
        other => base::text::scalar(other, 0).to_string(),
    }
}

/// Formats a number like dbStatic of C: as a whole number if it is close to one, otherwise with `digits` digits, without
/// trailing zeros. A final 8 or 9 after 9s is rounded up.
fn real(value: f64, digits: usize, near: f64) -> String {
    let size = value.abs();
    if size < f64::from(i32::MAX) && (value - value.trunc()).abs() < size * near || value == 0.0 {
        return format!("{}", value.trunc() as i64);
    }
    if !value.is_finite() {
        return general(value, 15);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let power = size.log10() as i32;
    let (mantissa, exponent) = if (-2..=6).contains(&power) {
        (format!("{size:.*}", (digits as i32 - power).max(0) as usize), None)
    } else {
        let text = base::text::exponent(size, digits);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        (mantissa.to_owned(), Some(exponent.to_owned()))
    };
    let mantissa = shortened(&mantissa, digits);
    match exponent {
        None => format!("{sign}{mantissa}"),
        Some(exponent) if mantissa.contains('.') => format!("{sign}{mantissa}e{exponent}"),
        Some(exponent) => format!("{sign}{mantissa}.0e{exponent}"),
    }
}

/// Removes trailing zeros. If all digits are used, the last one is uncertain: an 8 or 9 after 9s is rounded up.
fn shortened(text: &str, digits: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if !bytes.contains(&b'.') {
        return text.to_owned();
    }
    let (mut end, mut rounds) = (bytes.len() - 1, false);
    while end > 0 {
        match (bytes[end], bytes[end - 1]) {
            (b'.', _) => {
                end -= 1;
                break;
            }
            (b'0', _) => end -= 1,
            (last, _) if !rounds && (end < digits || last < b'8') => break,
            (_, b'.') => {
                end -= if rounds { 2 } else { 0 };
                break;
            }
            (_, b'9') => {
                rounds = true;
                end -= 1;
            }
            _ => break,
        }
    }
    bytes.truncate(end + 1);
    let mut carries = rounds;
    for byte in bytes.iter_mut().rev().filter(|byte| **byte != b'.') {
        if !carries {
            break;
        }
        carries = *byte == b'9';
        *byte = if carries { b'0' } else { *byte + 1 };
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if carries { format!("1{text}") } else { text }
}

/// Lines of at most 80 columns, with entries at tab stops.
pub(super) struct Tabs {
    out: String,
    line: String,
    width: usize,
}

impl Tabs {
    pub(super) const fn new(width: usize) -> Self {
        Self { out: String::new(), line: String::new(), width }
    }

    pub(super) fn put(&mut self, text: &str) {
        if self.line.len() + text.len() > 80 {
            self.flush();
        }
        self.line.push_str(text);
        // As in EPICS, a text that ends at a tab stop is padded to the next one.
        let next = (self.line.len() / self.width + 1) * self.width;
        while self.line.len() < next.min(80) {
            self.line.push(' ');
        }
    }

    fn flush(&mut self) {
        if self.line.is_empty() {
            return;
        }
        self.out.push_str(&self.line);
        self.out.push('\n');
        self.line.clear();
    }

    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_to_tab_stops() {
        let mut tabs = Tabs::new(10);
        tabs.put("DBF_DOUBLE: ");
        tabs.put("1.5");
        assert_eq!(tabs.finish(), "DBF_DOUBLE:         1.5       \n");
    }
}

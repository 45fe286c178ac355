//! Footer of a file: columns, row groups, and descriptions of the signals.

use super::thrift::{STRUCT, Thrift};
use super::{Column, Logical, MAGIC, sum};
use crate::rows::Signal;
use std::fmt::Write as _;

/// Appends a row of a signal as JSON.
pub(super) fn about(out: &mut String, name: &str, row: &Signal) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{{\"signal\":{},\"since_ns\":{},\"type\":\"{}\",\"units\":{},\"precision\":{},\"labels\":[{}]}}",
        quoted(name),
        row.since,
        row.kind,
        quoted(&row.about.units),
        row.about.precision.map_or_else(|| "null".into(), |digits| digits.to_string()),
        row.about.labels.iter().map(|label| quoted(label)).collect::<Vec<_>>().join(",")
    );
}

/// Writes the footer of a file with `rows` rows in these groups. `abouts` describes the signals as JSON; `sum` is the checksum of
/// the preceding bytes.
pub(super) fn end(groups: &[Vec<u8>], rows: u64, abouts: &str, sum: u32) -> Vec<u8> {
    let mut file = Thrift::default();
    file.i32(1, 2);
    let leaves = Column::ALL.iter().map(|column| if column.is_list() { 3 } else { 1 }).sum::<usize>();
    file.list(2, STRUCT, 1 + leaves);
    file.item();
    file.bytes(4, b"tahti");
    file.i32(5, Column::ALL.len() as i32);
    file.end();
    Column::ALL.iter().for_each(|column| schema(&mut file, *column));
    file.i64(3, rows as i64);
    file.list(4, STRUCT, groups.len());
    groups.iter().for_each(|group| file.out.extend_from_slice(group));
    file.list(5, STRUCT, 2);
    for (key, value) in [("tahti.signals", abouts), ("tahti.crc32c", &sum::placeholder())] {
        file.item();
        file.bytes(1, key.as_bytes());
        file.bytes(2, value.as_bytes());
        file.end();
    }
    file.bytes(6, concat!("tahti ", env!("CARGO_PKG_VERSION")).as_bytes());
    file.list(7, STRUCT, Column::ALL.len());
    for _ in Column::ALL {
        file.item();
        file.begin(1);
        file.end();
        file.end();
    }
    file.end();
    let mut end = file.out;
    end.extend_from_slice(&(end.len() as u32).to_le_bytes());
    end.extend_from_slice(&MAGIC);
    sum::put(&mut end, sum);
    end
}

/// A column in the file's schema.
fn schema(file: &mut Thrift, column: Column) {
    let optional = i32::from(column != Column::Time);
    if column.is_list() {
        file.item();
        file.i32(3, 1);
        file.bytes(4, column.name().as_bytes());
        file.i32(5, 1);
        file.i32(6, 3);
        file.begin(10);
        file.begin(3);
        file.end();
        file.end();
        file.end();
        file.item();
        file.i32(3, 2);
        file.bytes(4, b"list");
        file.i32(5, 1);
        file.end();
        leaf(file, column, "element", 0);
    } else {
        leaf(file, column, column.name(), optional);
    }
}

fn leaf(file: &mut Thrift, column: Column, name: &str, repetition: i32) {
    let (physical, logical) = column.types();
    file.item();
    file.i32(1, physical as i32);
    file.i32(3, repetition);
    file.bytes(4, name.as_bytes());
    match logical {
        Logical::None => {}
        Logical::Text => {
            file.i32(6, 0);
            file.begin(10);
            file.begin(1);
            file.end();
            file.end();
        }
        Logical::Time => {
            file.begin(10);
            file.begin(8);
            file.bool(1, true);
            file.begin(2);
            file.begin(3);
            file.end();
            file.end();
            file.end();
            file.end();
        }
        Logical::Unsigned(bits) => {
            file.i32(6, 11 + i32::from(bits.trailing_zeros() as u8) - 3);
            file.begin(10);
            file.begin(10);
            file.i8(1, bits);
            file.bool(2, false);
            file.end();
            file.end();
        }
    }
    file.end();
}

/// Quotes a text for JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

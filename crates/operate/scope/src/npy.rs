//! NumPy's file format, version 1.0, for a structured array of one dimension: `pulse`, `time_ns`, `marks` as `<u8`, then `<f8` for
//! each variable.

use crate::capture::Capture;
use crate::file::{FIXED, FileError, channel, head, wrong};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

pub(crate) fn write(capture: &Capture) -> Vec<u8> {
    let fixed = FIXED.iter().map(|name| ((*name).to_owned(), "<u8"));
    let all = fixed.chain(capture.channels.iter().map(|channel| (head(channel), "<f8")));
    let fields: Vec<String> = all.map(|(name, kind)| format!("({}, '{kind}')", literal(&name))).collect();
    let rows = capture.len();
    let mut header = format!("{{'descr': [{}], 'fortran_order': False, 'shape': ({rows},), }}", fields.join(", "));
    // The header and the bytes before it occupy a multiple of 64 bytes. The last byte is a newline.
    let behind = MAGIC.len() + 2 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', behind.next_multiple_of(64) - behind));
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap_or(u16::MAX);
    let mut bytes = [MAGIC, &length.to_le_bytes(), header.as_bytes()].concat();
    for row in 0..rows {
        for column in [&capture.pulses, &capture.times, &capture.marks] {
            bytes.extend(column[row].to_le_bytes());
        }
        capture.channels.iter().for_each(|channel| bytes.extend(channel.values[row].to_le_bytes()));
    }
    bytes
}

/// A text as a Python literal, in ASCII.
fn literal(text: &str) -> String {
    let mut out = String::from("'");
    for letter in text.chars() {
        match letter {
            '\'' | '\\' => out.extend(['\\', letter]),
            ' '..='~' => out.push(letter),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    out.push('\'');
    out
}

pub(crate) fn read(bytes: &[u8]) -> Result<Capture, FileError> {
    const EXPECTED: &str = "a structured array as `tahti scope --export FILE.npy` writes it";
    let refused = |place: &str, found: &str| wrong(place, found, EXPECTED);
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| refused("byte 0", "another format"))?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(|| refused("byte 8", "the end"))?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (header, data) = rest.split_at_checked(length).ok_or_else(|| refused("byte 10", "a header that is cut"))?;
    let header = std::str::from_utf8(header).map_err(|_| refused("byte 10", "no text"))?;
    let fields = fields(header).ok_or_else(|| refused("byte 10", header.trim_end()))?;
    let names = fields.iter().map(|(name, _)| name.as_str());
    if fields.len() <= FIXED.len() || names.zip(FIXED).any(|(name, fixed)| name != fixed) {
        return Err(refused("byte 10", header.trim_end()));
    }
    if fields.iter().enumerate().any(|(at, (_, kind))| kind != if at < FIXED.len() { "<u8" } else { "<f8" }) {
        return Err(refused("byte 10", header.trim_end()));
    }
    let row = fields.len() * 8;
    if data.len() % row != 0 {
        return Err(wrong(format!("byte {}", 10 + length), format!("{} bytes", data.len()), "whole rows"));
    }
    let mut capture = Capture {
        channels: fields[FIXED.len()..].iter().map(|(name, _)| channel(name)).collect(),
        ..Capture::default()
    };
    for row in data.chunks_exact(row) {
        let (words, _) = row.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        for column in [&mut capture.pulses, &mut capture.times, &mut capture.marks] {
            column.extend(words.next());
        }
        for (channel, word) in capture.channels.iter_mut().zip(words) {
            channel.values.push(f64::from_bits(word));
        }
    }
    Ok(capture)
}

/// Names and types in a header; `None` if it does not have the form that [`write()`] makes.
fn fields(header: &str) -> Option<Vec<(String, String)>> {
    let mut rest = header.strip_prefix("{'descr': [")?;
    let mut fields = Vec::new();
    loop {
        rest = rest.strip_prefix('(')?;
        let (name, behind) = text(rest)?;
        let (kind, behind) = text(behind.strip_prefix(", ")?)?;
        fields.push((name, kind));
        rest = behind.strip_prefix(')')?;
        match rest.strip_prefix(", ") {
            Some(next) => rest = next,
            None => return rest.starts_with("], 'fortran_order': False").then_some(fields),
        }
    }
}

/// Parses a text as [`literal`] writes it. Returns it and the rest.
fn text(from: &str) -> Option<(String, &str)> {
    let mut letters = from.strip_prefix('\'')?.chars();
    let mut out = String::new();
    loop {
        match letters.next()? {
            '\'' => return Some((out, letters.as_str())),
            '\\' => match letters.next()? {
                'U' => {
                    let (code, rest) = letters.as_str().split_at_checked(8)?;
                    out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                    letters = rest.chars();
                }
                letter => out.push(letter),
            },
            letter => out.push(letter),
        }
    }
}

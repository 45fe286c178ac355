//! `gft`, `pft`, `tpn`, `dbtpn`: fields in all Channel Access types, in the format of C.

use super::commands::{Command, CommandResult, command, needed, said};
use super::{Shell, look};
use crate::execute::read_rest;
use base::text::{leading_int, parse_double};
use base::{Alarm, Meta, Scalar, Stamp, Str40, Value};
use ca::encode::{Reading, encode};
use ca::{Basic, Class, Dbr, decode};
use db::{Channel, Db, Now};
use std::fmt::Write as _;

/// Maximum number of elements printed.
const ELEMENTS_MAX: u32 = 10;

pub(super) const COMMANDS: &[Command] = &[
    command!("gft", "field", "reads a field in each type of Channel Access", |shell, args| {
        let name = needed(args, "gft \"pv_name\"")?.to_owned();
        let text = shell.with_record(&name.clone(), move |db, _| get(db, &name))?;
        said(shell, &text)
    }),
    command!("pft", "field value", "writes a field in the types of Channel Access and reads it back", |shell, args| {
        let [name, text, ..] = args else { return Err("usage: pft \"pv_name\", \"value\"".into()) };
        let (name, text) = (name.clone(), text.clone());
        let text = shell.with_record(&name.clone(), move |db, now| put(db, &name, &text, now))?;
        said(shell, &text)
    }),
    command!(
        "tpn",
        "field value",
        "writes a field and reports when all processing that it started has ended",
        |shell, args| {
            notify(shell, args, "tpn", |name, ok| match ok {
                true => format!("tpnCallback '{name}': Success\n"),
                false => format!("tpnCallback '{name}': Notify status 2\n"),
            })
        }
    ),
    command!("dbtpn", "field value", "as tpn", |shell, args| {
        notify(shell, args, "dbtpn", |name, ok| match ok {
            true => format!("dbtpnCallback: success record={name}\n"),
            false => format!("{name} dbtpnCallback processNotify.status 2\n"),
        })
    }),
];

/// Writes a field. A separate thread prints the result, which may arrive much later.
fn notify(shell: &mut Shell, args: &[String], word: &'static str, text: fn(&str, bool) -> String) -> CommandResult {
    let [name, value, ..] = args else { return Err(format!("usage: {word} name value").into()) };
    let (sender, ended) = std::sync::mpsc::sync_channel(1);
    let (of, value) = (name.clone(), Value::from(value.as_str()));
    let told = Box::new(move |ok| {
        // The thread below receives it.
        let _ = sender.try_send(ok);
    });
    let record = shell.with_engine(move |engine| engine.write(&of, value, told))?;
    let Some(record) = record else {
        return said(shell, if word == "tpn" { "Channel couldn't be created" } else { "dbtpn: No such channel" });
    };
    std::thread::Builder::new().name(word.into()).spawn(move || {
        if let Ok(ok) = ended.recv() {
            print!("{}", text(&record, ok));
        }
    })?;
    Ok(None)
}

/// Common first part of the output: record, type, element size, number of elements.
fn head(db: &Db, channel: &Channel) -> (String, Basic, u32) {
    let info = db.info(channel);
    let (native, count) = (Basic::native_of(info.kind), info.elements_max);
    let (record, size) = (db.name_of(channel.record), look::field_size(db, channel));
    let number = Dbr::plain(native).wire();
    let text = format!(
        "   Record Name: {record}\n   Export Type: {number}\n    Field Size: {size}\n   No Elements: {count}\n"
    );
    (text, native, count)
}

fn reading(db: &mut Db, channel: &Channel) -> Reading {
    let mut reading = Reading { value: db.get(channel, ELEMENTS_MAX as usize), ..Reading::default() };
    read_rest(db, channel, ca::encode::Needs::All, &mut reading);
    reading
}

fn get(db: &mut Db, name: &str) -> String {
    let found = db.find(name).ok().filter(|channel| db.has_value(channel));
    let Some(channel) = found else { return "Channel couldn't be created\n".into() };
    let (mut out, native, count) = head(db, &channel);
    let reading = reading(db, &channel);
    let texts = |dbr: &Dbr| dbr.parts().is_some_and(|(_, basic)| basic == Basic::String);
    for dbr in (0..).map_while(Dbr::from_wire).filter(|dbr| native != Basic::String || texts(dbr)) {
        match sent(dbr, count.min(ELEMENTS_MAX), &reading) {
            Some(sent) => dump(dbr, &sent, &mut out),
            None => drop(writeln!(out, "\t{} Failed", dbr.name())),
        }
    }
    out
}

/// A reading as a client would receive it.
fn sent(dbr: Dbr, count: u32, reading: &Reading) -> Option<Reading> {
    let mut bytes = Vec::new();
    encode(dbr, count, reading, &mut bytes).ok()?;
    let mut sent = decode::reading(dbr, count, &bytes).ok()?;
    if dbr == Dbr::CLASS_NAME {
        sent.record_type = reading.record_type;
    }
    Some(sent)
}

fn put(db: &mut Db, name: &str, text: &str, now: Now) -> String {
    let found = db.find(name).ok().filter(|channel| db.has_value(channel));
    let Some(channel) = found else { return "Channel couldn't be created\n".into() };
    let (mut out, native, _) = head(db, &channel);
    let mut try_out = |value: Scalar, dbr: Basic, word: &str| {
        if db.put(&channel, &Value::Scalar(value), now).is_err() {
            let _ = write!(out, "\n\t {word}failed ");
        }
        let reading = reading(db, &channel);
        match sent(Dbr::plain(dbr), 1, &reading) {
            Some(sent) => dump(Dbr::plain(dbr), &sent, &mut out),
            None if word.is_empty() => out.push_str("\n\tfailed"),
            None => drop(write!(out, "\n\t {word}GET failed")),
        }
    };
    try_out(Scalar::String(Str40::from(text)), Basic::String, "");
    if matches!(native, Basic::String | Basic::Enum) {
        return out;
    }
    let whole = leading_int(text);
    if let Some(value) = whole {
        try_out(Scalar::I16(value as i16), Basic::Short, "SHORT ");
        try_out(Scalar::I32(value as i32), Basic::Long, "LONG ");
    }
    let text = text.trim();
    let real = parse_double(text.as_bytes()).filter(|(_, len)| *len == text.len()).map(|(value, _)| value);
    if let Some(value) = real.filter(|value| !value.is_finite() || value.abs() <= f64::from(f32::MAX)) {
        try_out(Scalar::F32(value as f32), Basic::Float, "FLOAT ");
        try_out(Scalar::F64((value as f32).into()), Basic::Double, "DOUBLE ");
    }
    if let Some(value) = whole {
        try_out(Scalar::U8(value as u8), Basic::Char, "CHAR ");
        try_out(Scalar::Enum(value as u16), Basic::Enum, "ENUM ");
    }
    out.push('\n');
    out
}

/// Prints a client's reading like `ca_dump_dbr` of C.
fn dump(dbr: Dbr, sent: &Reading, out: &mut String) {
    let _ = write!(out, "{}\t", dbr.name());
    let Alarm { status, severity } = sent.alarm;
    let alarm = format!("{:2} {:2}", status as u16, severity as u16);
    let first = || sent.value.get(0).map_or_else(String::new, |value| element(dbr, value));
    let _ = match (dbr.parts(), dbr.basic()) {
        (None, _) if dbr == Dbr::CLASS_NAME => write!(out, "{}", sent.record_type),
        (None, _) => write!(out, "{alarm} {:2} {:2} {}", u16::from(sent.ackt), sent.acks as u16, first()),
        (Some((Class::Plain, _)), _) => {
            elements(dbr, &sent.value, "", out);
            Ok(())
        }
        (Some((class, Basic::String)), _) => {
            let stamp = if class == Class::Time { stamp(sent.stamp) } else { String::new() };
            write!(out, "{alarm}{stamp}\tValue: {}", first())
        }
        (Some((Class::Gr | Class::Ctrl, Basic::Enum)), _) => {
            let _ = write!(out, "{alarm}\tValue: {}", first().trim_end());
            let labels = &sent.meta.labels;
            let count = if labels.is_empty() { String::new() } else { format!("\n\t{:3}", labels.len()) };
            labels.iter().fold(out.write_str(&count), |_, label| write!(out, "\n\t{label}"))
        }
        (Some((class, basic)), _) => {
            out.push_str(&alarm);
            match class {
                Class::Time => out.push_str(&stamp(sent.stamp)),
                Class::Gr | Class::Ctrl => properties(class, basic, &sent.meta, out),
                Class::Plain | Class::Sts => {}
            }
            elements(dbr, &sent.value, "\tValue: ", out);
            Ok(())
        }
    };
    out.push('\n');
}

fn stamp(stamp: Stamp) -> String {
    let text = match stamp {
        Stamp::EPOCH => "<undefined>".to_owned(),
        stamp => db::stamp_text(stamp, "%Y/%m/%d %H:%M:%S.%06f", sys::clock::local_text),
    };
    format!("\tTimeStamp: {text}")
}

/// Units, precision and limits. All numeric types fit a double.
fn properties(class: Class, basic: Basic, meta: &Meta, out: &mut String) {
    let real = matches!(basic, Basic::Float | Basic::Double);
    let limit = |value: f64| match real {
        true => fixed(value as f32, 8, 3),
        false => format!("{value:8}"),
    };
    let _ = write!(out, " {}", meta.units);
    if real {
        let _ = write!(out, " {:3}", meta.precision);
    }
    let (shown, alarm) = (&meta.display, &meta.alarm);
    let limits = [shown.high, shown.low, alarm.hihi, alarm.high, alarm.low, alarm.lolo].map(limit);
    let _ = write!(out, "\n\t{}", limits.join(" "));
    if class == Class::Ctrl {
        let _ = write!(out, " {} {}", limit(meta.control.high), limit(meta.control.low));
    }
}

/// Elements with the prefix `before`, up to ten per line. Texts: five per line, up to the first empty one.
fn elements(dbr: Dbr, value: &Value, before: &str, out: &mut String) {
    let count = value.len();
    if count == 1 {
        out.push_str(before);
    }
    let in_line = if dbr.basic() == Basic::String { 5 } else { 10 };
    for (at, scalar) in (0..count).filter_map(|at| value.get(at)).enumerate() {
        if matches!(scalar, Scalar::String(text) if text.bytes().is_empty()) {
            break;
        }
        if count != 1 && at % in_line == 0 {
            out.push('\n');
        }
        let _ = write!(out, "{} ", element(dbr, scalar));
    }
}

fn element(dbr: Dbr, scalar: Scalar) -> String {
    match (scalar, dbr.parts()) {
        (Scalar::F32(value), _) => fixed(value, 6, 4),
        (Scalar::F64(value), Some((Class::Ctrl, _))) => fixed(value as f32, 6, 6),
        (Scalar::F64(value), _) => fixed(value as f32, 6, 4),
        // C prints it as unsigned.
        (Scalar::I16(value), Some((Class::Sts, _))) => (i32::from(value) as u32).to_string(),
        (Scalar::U8(value), Some((Class::Ctrl, _))) => format!("{value:4}"),
        (Scalar::String(text), _) => text.to_string(),
        (other, _) => base::text::scalar(other, 0).to_string(),
    }
}

/// `printf("%*.*f")`.
fn fixed(value: f32, width: usize, digits: usize) -> String {
    let text = if value.is_finite() { format!("{value:.digits$}") } else { base::text::general(value.into(), 6) };
    format!("{text:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_digits_are_read_as_an_integer() {
        for (text, expected) in [("5.25", Some(5)), (" -7x", Some(-7)), ("x", None), ("", None), ("+", None)] {
            assert_eq!(leading_int(text), expected, "{text}");
        }
    }
}

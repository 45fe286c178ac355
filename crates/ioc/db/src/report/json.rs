//! Reports on JSON links: values, arguments and alarms, in the line format of C.

use crate::model::id::RecId;
use crate::model::json_link::{Calc, JsonLink};
use crate::model::link::LinkKind;
use crate::model::pva_link::PvaLink;
use crate::model::slot::Slot;
use crate::report::links::{LinkChannel, LinkInfo};
use crate::run::engine::Db;
use base::json::{self, Json};
use base::text::general;
use std::fmt::Write as _;

impl Db {
    /// A record's JSON links by field. Level 1 adds the arguments of computing links, level 2 the elements of lists.
    pub fn json_report(&mut self, record: RecId, level: i64) -> Vec<(String, String)> {
        let links: Vec<_> = self.links_of(record).into_iter().filter(|link| link.json).collect();
        let mut reports = Vec::new();
        for LinkInfo { field, text, channel, .. } in links {
            if let Some((channel, pva)) = channel.as_ref().and_then(|channel| Some((channel, channel.pva.as_ref()?))) {
                reports.push((field, over_pvaccess(channel, pva, level)));
                continue;
            }
            let number = self.records.type_of(record).field(&field);
            let brief = number.and_then(|number| match self.records.peek(record, number) {
                Slot::Link(link) => Some(link.brief()),
                _ => None,
            });
            let found =
                brief.filter(|brief| brief.kind == LinkKind::Json).and_then(|brief| self.links.json.get(brief.target));
            let mut out = String::new();
            if let Ok(json) = json::parse(&text) {
                report(&json, found, level, 6, &mut out);
            }
            reports.push((field, out));
        }
        reports
    }
}

/// The report of a link over PVAccess.
fn over_pvaccess(channel: &LinkChannel, link: &PvaLink, level: i64) -> String {
    let field = if link.field.is_empty() { String::new() } else { format!("|.{}", link.field) };
    let connected = if channel.connected { 'T' } else { 'F' };
    let disconnects = if level > 0 { format!(" #disconn={}", channel.disconnects) } else { String::new() };
    format!("      'pva': {}{field}{} conn={connected}{disconnects}\n", link.pv, link.options(level > 0))
}

/// Appends the report of one link: its JSON and its current state. Constants have no state.
fn report(json: &Json, link: Option<&JsonLink>, level: i64, indent: usize, out: &mut String) {
    let Json::Map(entries) = json else { return };
    let [(kind, inner)] = &entries[..] else { return };
    match (kind.as_str(), link) {
        ("const", _) => constant(inner, level, indent, out),
        ("debug" | "trace", _) => {
            let _ = writeln!(out, "{:indent$}'{kind}':", "");
            let link = match link {
                Some(JsonLink::Trace(link)) => Some(&**link),
                _ => None,
            };
            report(inner, link, level, indent + 2, out);
        }
        (_, Some(JsonLink::State { name, invert, value })) => {
            let (not, value) = (if *invert { "! " } else { "" }, if *value { "TRUE" } else { "FALSE" });
            let _ = writeln!(out, "{:indent$}'state': \"{name}\" = {not}{value}", "");
        }
        (_, Some(JsonLink::Calc(calc))) => {
            let Json::Map(keys) = inner else { return };
            calculation(keys, calc, level, indent, out);
        }
        _ => {}
    }
}

fn calculation(keys: &[(String, Json)], calc: &Calc, level: i64, indent: usize, out: &mut String) {
    let of = |key: &str| keys.iter().find(|(known, _)| known == key).map(|(_, value)| value);
    let text = |key: &str| match of(key) {
        Some(Json::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let (expr, units) = (text("expr").unwrap_or("(null)"), text("units").unwrap_or(""));
    let value = general(calc.value, usize::try_from(calc.precision).unwrap_or(6));
    let _ = writeln!(out, "{:indent$}'calc': \"{expr}\" = {value} {units}", "");
    if level <= 0 {
        return;
    }
    let mut line = |text: String| {
        let _ = writeln!(out, "{:indent$}  {text}", "");
    };
    match calc.severity {
        0 => {}
        1 => line("Alarm: MINOR, LINK, \"post_minor error\"".into()),
        _ => line("Alarm: MAJOR, LINK, \"post_major error\"".into()),
    }
    text("major").into_iter().for_each(|text| line(format!("Major expression: \"{text}\"")));
    text("minor").into_iter().for_each(|text| line(format!("Minor expression: \"{text}\"")));
    if let Some(at) = calc.time {
        // No link type of base provides a time stamp for an argument.
        line(format!("Timestamp input {}: <undefined>", letter(at)));
    }
    for (at, arg) in calc.args[..calc.count].iter().enumerate() {
        let _ = writeln!(out, "{:indent$}  Input {}: {}", "", letter(at), general(*arg, 6));
        let written = match of("args") {
            Some(Json::List(items)) => items.get(at),
            other => other,
        };
        let link = calc.inputs.iter().find(|(input, _)| *input == at).map(|(_, link)| link);
        written.into_iter().for_each(|written| report(written, link, level - 1, indent + 4, out));
    }
    if let Some(written) = of("out").filter(|_| calc.out.is_some()) {
        let _ = writeln!(out, "{:indent$}  Output:", "");
        report(written, calc.out.as_ref(), level - 1, indent + 4, out);
    }
}

fn letter(at: usize) -> char {
    char::from(b'A' + at as u8)
}

fn constant(json: &Json, level: i64, indent: usize, out: &mut String) {
    let (word, text) = kind_and_text(json);
    let Json::List(items) = json else {
        let _ = writeln!(out, "{:indent$}'const': {word} {text}", "");
        return;
    };
    let real = items.iter().any(|item| matches!(item, Json::Real(_)));
    let word = match items.first().map(kind_and_text) {
        // C prints this line for an empty list, which has no type.
        None => return out.push_str(&format!("{:indent$}'const': bug -- type=4\n", "")),
        Some((word, _)) => {
            if real {
                "double"
            } else {
                word
            }
        }
    };
    let plural = if items.len() > 1 { "s" } else { "" };
    let _ = writeln!(out, "{:indent$}'const': array of {} {word}{plural}", "", items.len());
    if level >= 2 {
        let texts: Vec<String> = items.iter().map(|item| kind_and_text(item).1).collect();
        let _ = writeln!(out, "{:indent$}  [{}]", "", texts.join(", "));
    }
}

fn kind_and_text(json: &Json) -> (&'static str, String) {
    match json {
        Json::Bool(on) => ("integer", u8::from(*on).to_string()),
        Json::Int(value) => ("integer", value.to_string()),
        Json::Real(value) => ("double", general(*value, 6)),
        Json::Text(text) => ("string", format!("\"{text}\"")),
        Json::Null | Json::List(_) | Json::Map(_) => ("bug", String::new()),
    }
}

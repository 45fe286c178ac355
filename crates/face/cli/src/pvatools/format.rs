//! Values and types as EPICS' PVAccess tools print them.

use base::Stamp;
use pva::codec::{Array, Mask, Struct, Type, Value};
use std::fmt::Write as _;

/// Seconds from 1970 to the epoch of EPICS, which means "no time".
const EPICS_EPOCH: i64 = 631_152_000;
/// Width of a time in a line.
const TIME_WIDTH: usize = 25;

/// Output mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A line with value, time and alarm; all fields for other structures.
    Plain,
    /// All fields that were received.
    Raw,
    /// All fields, also those that were not received.
    Whole,
    Json,
}

/// A value with its name. `width` is that of the longest name.
pub(super) fn line(mode: Mode, name: &str, width: usize, ty: &Type, marked: &Mask, value: &Value) -> String {
    match (mode, ty) {
        (Mode::Plain, Type::Struct(fields)) => match plain(fields, value) {
            Some(text) => format!("{name:<width$} {text}\n"),
            None => tree(name, width, ty, value, Some(marked)),
        },
        (Mode::Json, _) => {
            let mut out = format!("{name:<width$} ");
            json(ty, value, Some((marked, 0)), &mut out);
            out + "\n"
        }
        (Mode::Whole, _) => tree(name, width, ty, value, None),
        _ => tree(name, width, ty, value, Some(marked)),
    }
}

/// The part of a line after the name; `None` if the structure has no value that fits in a line.
pub(super) fn plain(fields: &Struct, value: &Value) -> Option<String> {
    let (shown, ty) = value.field(fields, "value")?;
    let time = value.field(fields, "timeStamp").map_or_else(no_time, |(value, ty)| time(ty, value));
    let alarm = value.field(fields, "alarm").map_or_else(String::new, |(value, ty)| alarm(ty, value));
    Some(match (ty, shown) {
        (Type::Scalar(_), shown) => format!("{time}{} {alarm}", scalar(shown)),
        (Type::Array(_), Value::Array(values)) => format!("{time}{alarm}{}", array(values)),
        (Type::Struct(_), _) => format!("{time}{alarm}{}", state(ty, shown)?),
        _ => return None,
    })
}

fn no_time() -> String {
    format!("{:<TIME_WIDTH$}", "<undefined>")
}

/// A field of a structure as a whole number.
fn number(ty: &Type, value: &Value, name: &str) -> Option<i64> {
    value.field(ty.fields()?, name)?.0.to_i64()
}

fn time(ty: &Type, value: &Value) -> String {
    let seconds = number(ty, value, "secondsPastEpoch").unwrap_or(0);
    let nanos = number(ty, value, "nanoseconds").unwrap_or(0).clamp(0, 999_999_999);
    if (seconds, nanos) == (EPICS_EPOCH, 0) || seconds < EPICS_EPOCH {
        return no_time();
    }
    let seconds = seconds.saturating_add(sys::clock::local_offset_secs(seconds));
    let millis = ((nanos + 500_000) / 1_000_000).min(999);
    let local = Stamp::from_unix(seconds.max(0) as u64, (millis * 1_000_000) as u32).to_string();
    let end = local.find('.').map_or(local.len(), |point| (point + 4).min(local.len()));
    format!("{:<TIME_WIDTH$}", &local[..end])
}

fn alarm(ty: &Type, value: &Value) -> String {
    let name = |names: &[&str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or("<INVALID>").to_owned()
    };
    let severity = number(ty, value, "severity").unwrap_or(0);
    if severity == 0 {
        return String::new();
    }
    let severity = name(&["NO_ALARM", "MINOR", "MAJOR", "INVALID", "UNDEFINED"], severity);
    let status = number(ty, value, "status").unwrap_or(0);
    let status = name(&["NO_STATUS", "DEVICE", "DRIVER", "RECORD", "DB", "CONF", "UNDEFINED", "CLIENT"], status);
    let message = ty.fields().and_then(|fields| value.field(fields, "message")).and_then(|(value, _)| value.as_text());
    format!("{severity} {status} {} ", message.unwrap_or_default())
}

/// The number and name of a state; `None` if the structure is not an enumeration.
fn state(ty: &Type, value: &Value) -> Option<String> {
    let fields = ty.fields()?;
    let index = value.field(fields, "index")?.0.to_i64()?;
    let (Value::Array(choices), _) = value.field(fields, "choices")? else { return None };
    let choice = usize::try_from(index).ok().and_then(|index| choices.get(index));
    Some(match choice {
        Some(Value::Text(text)) => format!("({index}) {text}"),
        _ => format!("({index}) <undefined>"),
    })
}

/// A single value. Texts with blanks or special characters are in quotation marks.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::F64(value) => base::text::general(*value, 6),
        Value::F32(value) => base::text::general(f64::from(*value), 6),
        Value::Bool(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        value => value.to_i64().map_or_else(|| "(none)".to_owned(), |value| value.to_string()),
    }
}

fn quoted(text: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\\' | '\'' | '"');
    if text.contains(special) { format!("\"{}\"", text.escape_default()) } else { text.to_owned() }
}

fn array(values: &Array) -> String {
    let each: Vec<String> = (0..values.len()).filter_map(|at| values.get(at)).map(|value| scalar(&value)).collect();
    format!("[{}]", each.join(if matches!(values, Array::Text(_)) { ", " } else { "," }))
}

/// The name of a type in a tree.
fn type_name(ty: &Type) -> String {
    let id = |fields: &Struct, default: &str| {
        if fields.id().is_empty() { default.to_owned() } else { fields.id().to_owned() }
    };
    match ty {
        Type::Scalar(kind) => kind.name().to_owned(),
        Type::Array(kind) => format!("{}[]", kind.name()),
        Type::Struct(fields) => id(fields, "structure"),
        Type::Union(fields) => id(fields, "union"),
        Type::Any => "any".into(),
        Type::StructArray(fields) => id(fields, "structure") + "[]",
        Type::UnionArray(fields) => id(fields, "union") + "[]",
        Type::AnyArray => "any[]".into(),
    }
}

/// All fields of a value, those in `marked` if it is given.
fn tree(name: &str, width: usize, ty: &Type, value: &Value, marked: Option<&Mask>) -> String {
    let mut out = format!("{name:<width$} {} \n", type_name(ty));
    match ty {
        Type::Struct(fields) => branches(fields, value, marked, 0, false, 1, &mut out),
        _ => {
            let _ = writeln!(out, "    {}", leaf(ty, value));
        }
    }
    out
}

fn branches(
    fields: &Struct,
    value: &Value,
    marked: Option<&Mask>,
    bit: u32,
    all: bool,
    depth: usize,
    out: &mut String,
) {
    let Value::Struct(values) = value else { return };
    let all = all || marked.is_none_or(|marked| marked.has(bit));
    let mut bit = bit + 1;
    for ((name, ty), value) in fields.fields().iter().zip(values) {
        let end = bit + ty.nodes();
        if all || marked.is_some_and(|marked| marked.meets(bit, end)) {
            let _ = write!(out, "{:width$}{} {name}", "", type_name(ty), width = depth * 4);
            match ty {
                Type::Struct(inner) => {
                    let summary = match inner.id() {
                        "alarm_t" => format!(" {}", alarm(ty, value)),
                        "time_t" => format!(" {}", time(ty, value)),
                        "enum_t" => format!(" {}", state(ty, value).unwrap_or_default()),
                        _ => String::new(),
                    };
                    let _ = writeln!(out, "{summary}");
                    branches(inner, value, marked, bit, all, depth + 1, out);
                }
                ty => {
                    let _ = writeln!(out, " {}", leaf(ty, value));
                }
            }
        }
        bit = end;
    }
}

/// A value without named fields.
fn leaf(ty: &Type, value: &Value) -> String {
    match (ty, value) {
        (_, Value::Array(values)) => array(values),
        (Type::Union(members), Value::Union(Some((index, value)))) => {
            let member = members.fields().get(*index as usize);
            member.map_or_else(String::new, |(name, ty)| format!("{name} {}", leaf(ty, value)))
        }
        (_, Value::Any(Some(any))) => format!("{} {}", type_name(&any.0), leaf(&any.0, &any.1)),
        (_, Value::Union(None) | Value::Any(None)) => "(none)".into(),
        (ty, Value::Struct(_) | Value::Elements(_)) => {
            let mut out = String::new();
            json(ty, value, None, &mut out);
            out
        }
        (_, value) => scalar(value),
    }
}

/// A value in the tools' form of JSON, in which names have no quotation marks.
fn json(ty: &Type, value: &Value, marked: Option<(&Mask, u32)>, out: &mut String) {
    match (ty, value) {
        (Type::Struct(fields), Value::Struct(values)) => {
            out.push('{');
            let marked = marked.filter(|(marked, bit)| !marked.has(*bit));
            let mut bit = marked.map_or(0, |(_, bit)| bit) + 1;
            let mut first = true;
            for ((name, ty), value) in fields.fields().iter().zip(values) {
                let end = bit + ty.nodes();
                if marked.is_none_or(|(marked, _)| marked.meets(bit, end)) {
                    let _ = write!(out, "{}{name}:", if first { "" } else { "," });
                    first = false;
                    json(ty, value, marked.map(|(marked, _)| (marked, bit)), out);
                }
                bit = end;
            }
            out.push('}');
        }
        (_, Value::Array(values)) => {
            let each = (0..values.len()).filter_map(|at| values.get(at));
            list(each.map(|value| json_scalar(&value)), out);
        }
        (Type::StructArray(fields), Value::Elements(values)) => {
            elements(&Type::Struct(fields.clone()), values, out);
        }
        (Type::UnionArray(members), Value::Elements(values)) => elements(&Type::Union(members.clone()), values, out),
        (_, Value::Elements(values)) => elements(&Type::Any, values, out),
        (Type::Union(members), Value::Union(Some((index, value)))) => match members.fields().get(*index as usize) {
            Some((_, ty)) => json(ty, value, None, out),
            None => out.push_str("null"),
        },
        (_, Value::Any(Some(any))) => json(&any.0, &any.1, None, out),
        (_, value) => out.push_str(&json_scalar(value)),
    }
}

fn elements(ty: &Type, values: &[Option<Value>], out: &mut String) {
    let each = values.iter().map(|value| {
        let mut text = String::new();
        match value {
            Some(value) => json(ty, value, None, &mut text),
            None => text.push_str("null"),
        }
        text
    });
    list(each, out);
}

fn list(each: impl Iterator<Item = String>, out: &mut String) {
    let _ = write!(out, "[{}]", each.collect::<Vec<_>>().join(","));
}

fn json_scalar(value: &Value) -> String {
    match value {
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::F64(value) => format!("{value:?}"),
        Value::F32(value) => format!("{value:?}"),
        Value::Union(None) | Value::Any(None) => "null".into(),
        value => scalar(value),
    }
}

/// A type with its fields, as `pvinfo` prints it.
pub(super) fn described(ty: &Type, depth: usize) -> String {
    let mut out = format!("{:width$}{}\n", "", type_name(ty), width = depth * 4);
    fields(ty, depth + 1, &mut out);
    out
}

fn fields(ty: &Type, depth: usize, out: &mut String) {
    let (Type::Struct(inner) | Type::Union(inner) | Type::StructArray(inner) | Type::UnionArray(inner)) = ty else {
        return;
    };
    for (name, ty) in inner.fields() {
        let _ = writeln!(out, "{:width$}{} {name}", "", type_name(ty), width = depth * 4);
        fields(ty, depth + 1, out);
    }
}

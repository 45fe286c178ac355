//! Commands that test field access, and commands of softIoc for its own components.

use super::commands::{Command, arg, command, needed, said};
use super::{report, values};
use base::{FieldType, Scalar, Str40, Value};
use db::Db;
use std::fmt::Write as _;

macro_rules! idle {
    ($name:literal, $arguments:literal, $why:literal) => {
        command!($name, $arguments, $why, |_, _| Ok(None))
    };
}

pub(super) const COMMANDS: &[Command] = &[
    idle!("callbackParallelThreads", "count [priority]", "accepted; callbacks run on the thread that owns the record"),
    idle!("callbackSetQueueSize", "entries", "accepted; each priority has room for 10000"),
    idle!("dbPvdTableSize", "entries", "accepted; the table of names grows automatically"),
    command!("dbli", "[pattern]", "info tags whose name matches", |shell, args| {
        let pattern = arg(args, 0).to_owned();
        super::commands::about(shell, move |db| tags(db, &pattern))
    }),
    command!("dbtgf", "field", "reads a field in each type", |shell, args| {
        let name = needed(args, "dbtgf \"pv name\"")?.to_owned();
        let out = shell.with_record(&name.clone(), move |db, _| values::in_each_type(db, &name, TYPES))?;
        said(shell, &out)
    }),
    command!("dbtpf", "field value", "writes a field in each type and reads it back", |shell, args| {
        let name = needed(args, "dbtpf \"pv name\", \"value\"")?.to_owned();
        let text = arg(args, 1).to_owned();
        let out = shell.with_record(&name.clone(), move |db, now| {
            let Ok(channel) = db.find(&name) else { return format!("PV '{name}' not found\n") };
            let mut out = String::new();
            for (word, kind) in TYPES {
                let Some(value) = value_of(*kind, &text) else {
                    let _ = writeln!(out, "Cvt to DBR_{word} failed.");
                    continue;
                };
                let _ = match db.put(&channel, &Value::Scalar(value), now) {
                    Ok(()) => write!(out, "Put as DBR_{word:<6} Ok, result as {}", values::native(db, &channel)),
                    Err(_) => writeln!(out, "Put as DBR_{word:<6} Failed."),
                };
            }
            out
        })?;
        said(shell, &out)
    }),
    idle!("eltc", "0 or 1", "accepted; messages go to standard error"),
    command!("errlog", "message", "prints a message in the form of the IOC's messages", |_, args| {
        eprintln!("{}", arg(args, 0));
        Ok(None)
    }),
    idle!("errlogInit", "bytes", "accepted; messages are not buffered"),
    idle!("errlogInit2", "bytes [length]", "accepted; messages are not buffered"),
    idle!("scanOnceSetQueueSize", "entries", "accepted; there is room for 10000"),
];

/// Types written by `dbtpf` and read by `dbtgf`, in their order.
const TYPES: &[(&str, FieldType)] = &[
    ("STRING", FieldType::String),
    ("CHAR", FieldType::I8),
    ("UCHAR", FieldType::U8),
    ("SHORT", FieldType::I16),
    ("USHORT", FieldType::U16),
    ("LONG", FieldType::I32),
    ("ULONG", FieldType::U32),
    ("INT64", FieldType::I64),
    ("UINT64", FieldType::U64),
    ("FLOAT", FieldType::F32),
    ("DOUBLE", FieldType::F64),
    ("ENUM", FieldType::Enum),
];

/// Parses a text as a value of a type; whole numbers are decimal.
fn value_of(kind: FieldType, text: &str) -> Option<Scalar> {
    let text = text.trim();
    Some(match kind {
        FieldType::I8 => Scalar::I8(text.parse().ok()?),
        FieldType::U8 => Scalar::U8(text.parse().ok()?),
        FieldType::I16 => Scalar::I16(text.parse().ok()?),
        FieldType::U16 => Scalar::U16(text.parse().ok()?),
        FieldType::I32 => Scalar::I32(text.parse().ok()?),
        FieldType::U32 => Scalar::U32(text.parse().ok()?),
        FieldType::I64 => Scalar::I64(text.parse().ok()?),
        FieldType::U64 => Scalar::U64(text.parse().ok()?),
        FieldType::F32 => Scalar::F32(text.parse().ok()?),
        FieldType::F64 => Scalar::F64(text.parse().ok()?),
        FieldType::Enum => Scalar::Enum(text.parse().ok()?),
        _ => Scalar::String(Str40::from(text)),
    })
}

/// `dbli`: info tags.
fn tags(db: &Db, pattern: &str) -> String {
    let mut out = String::new();
    for (name, record) in report::by_type(db).into_iter().filter(|(name, record)| *name == db.name_of(*record)) {
        for (tag, value) in db.info_tags(record) {
            if pattern.is_empty() || base::glob(pattern, tag) {
                let _ = writeln!(out, "{name} info({tag}, \"{value}\")");
            }
        }
    }
    out
}

//! `dbDump…`: records and their definitions, in file syntax.

use super::commands::{Command, CommandResult, arg, command, number, said};
use super::{Shell, commands, report, values};
use base::FieldType;
use db::{Db, RecId, Schema, Special};
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) const COMMANDS: &[Command] = &[
    command!("dbDumpPath", "pdbbase", "search path of .dbd files", |shell, _| said(shell, "no path defined")),
    command!(
        "dbDumpRecord",
        "pdbbase [type [level]]",
        "records as .db files hold them; level 1: all fields that tools set, 2: all",
        |shell, args| records_of(shell, behind_base(args))
    ),
    command!("dbDumpMenu", "pdbbase [menu]", "menus as .dbd files hold them", |shell, args| {
        let wanted = arg(behind_base(args), 0).to_owned();
        commands::about(shell, move |db| menus(db.schema(), &wanted))
    }),
    command!("dbDumpField", "pdbbase [type [field]]", "field definitions", |shell, args| {
        let args = behind_base(args);
        let (of_type, field) = (arg(args, 0).to_owned(), arg(args, 1).to_owned());
        commands::about(shell, move |db| fields(db.schema(), &of_type, &field))
    }),
    command!("dbDumpDevice", "pdbbase [type]", "device supports by record type", |shell, args| {
        let wanted = arg(behind_base(args), 0).to_owned();
        commands::about(shell, move |db| devices(db.schema(), &wanted))
    }),
    command!("dbDumpBreaktable", "pdbbase [table]", "breakpoint tables", |shell, args| {
        let wanted = arg(behind_base(args), 0).to_owned();
        commands::about(shell, move |db| tables(db.schema(), &wanted))
    }),
    command!("dbDumpFunction", "pdbbase", "functions of sub and aSub records", |shell, _| {
        let known = shell.with_db(|db, _| db.functions().map(|(name, _)| vec![name.to_owned()]).collect::<Vec<_>>())?;
        declared(shell, "function", known)
    }),
    command!("dbDumpLink", "pdbbase", "types of JSON links", |shell, _| {
        let text = LINKS.iter().fold(String::new(), |mut out, name| {
            let capital = name[..1].to_ascii_uppercase();
            let _ = writeln!(out, "link({name},lnk{capital}{}If)", &name[1..]);
            out
        });
        said(shell, &text)
    }),
    command!("dbDumpDriver", "pdbbase", "drivers that .dbd files declare", |shell, _| {
        declared(shell, "driver", Vec::new())
    }),
    command!("dbDumpRegistrar", "pdbbase", "registrars that .dbd files declare", |shell, _| {
        declared(shell, "registrar", Vec::new())
    }),
];

/// Types of JSON links.
pub(super) const LINKS: &[&str] = &["calc", "const", "debug", "state", "trace"];

/// Removes the database argument of C's commands: `pdbbase` or an empty word.
fn behind_base(args: &[String]) -> &[String] {
    match args {
        [base, rest @ ..] if matches!(base.as_str(), "pdbbase" | "") => rest,
        _ => args,
    }
}

/// Prints the names registered under a word, including those declared in `.dbd` files.
fn declared(shell: &mut Shell, word: &'static str, mut known: Vec<Vec<String>>) -> CommandResult {
    let lines = shell.with_db(move |db, _| db.schema().declared(word).map(<[String]>::to_vec).collect::<Vec<_>>())?;
    known.extend(lines);
    known.sort();
    known.dedup();
    said(shell, &known.iter().fold(String::new(), |out, words| out + word + "(" + &words.join(",") + ")\n"))
}

fn is_wanted(name: &str, wanted: &str) -> bool {
    matches!(wanted, "" | "*") || name == wanted
}

/// Records by type, followed by the type's aliases.
fn records_of(shell: &mut Shell, args: &[String]) -> CommandResult {
    let (of_type, level) = (arg(args, 0).to_owned(), number(args, 1));
    let known = of_type.clone();
    if !shell.with_db(move |db, _| is_wanted("", &known) || db.schema().type_index(&known).is_some())? {
        return Err(super::Failed(format!("dbDumpRecord: there is no record type \"{of_type}\"")));
    }
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let wanted = of_type.clone();
    for (of, text) in shell.with_each(move |db, _| records(db, &wanted, level))?.into_iter().flatten() {
        types.entry(of).or_default().push_str(&text);
    }
    for (of, text) in shell.with_db(move |db, _| aliases(db, &of_type))? {
        types.entry(of).or_default().push_str(&text);
    }
    said(shell, &types.into_values().collect::<String>())
}

/// Records of one owner, each with its type.
fn records(db: &mut Db, of_type: &str, level: u64) -> Vec<(String, String)> {
    let of = |db: &Db, record: RecId| db.location_of(record).is_none() && is_wanted(db.type_name(record), of_type);
    let wanted: Vec<RecId> = db.records().filter(|record| of(db, *record)).collect();
    wanted.into_iter().map(|record| (db.type_name(record).to_owned(), one_record(db, record, level))).collect()
}

fn aliases(db: &Db, of_type: &str) -> Vec<(String, String)> {
    let of = |(alias, record): (&str, RecId)| {
        let kind = db.type_name(record).to_owned();
        is_wanted(&kind, of_type).then(|| (kind, format!("alias(\"{}\",\"{alias}\")\n", db.name_of(record))))
    };
    db.aliases().filter_map(of).collect()
}

/// A record in the syntax of a `.db` file. Without `level`: the fields of configuration tools whose values differ from the
/// initial ones.
fn one_record(db: &mut Db, record: RecId, level: u64) -> String {
    let (kind, name) = (db.type_name(record).to_owned(), db.name_of(record).to_owned());
    let mut out = format!("record({kind},\"{name}\") {{\n");
    let schema = db.schema();
    let has_devices = schema.type_index(&kind).is_some_and(|at| !schema.types[at].devices.is_empty());
    let listed = db.fields(record).iter().filter(|def| level > 1 || !def.group.is_empty());
    let listed: Vec<_> = listed.filter(|def| has_devices || def.name != "DTYP").cloned().collect();
    for def in listed {
        let Ok(channel) = db.find(&format!("{name}.{}", def.name)) else { continue };
        let Some(text) = values::held(db, &channel, def.kind, def.hex) else { continue };
        let initial = def.initial.as_deref().unwrap_or_default();
        let is_initial = match def.kind {
            Some(FieldType::Device) => false,
            Some(FieldType::String | FieldType::Link) => text == initial,
            Some(FieldType::Menu) => {
                // The initial value may be a choice or its number.
                let number = if initial.is_empty() { Some(0) } else { initial.parse::<usize>().ok() };
                let choice = || {
                    let menu = def.menu.as_deref().and_then(|menu| db.schema().menu_index(menu))?;
                    db.schema().menus[menu].choices.get(number?).cloned()
                };
                text == initial || choice().is_some_and(|choice| text == choice)
            }
            _ if def.hex => text == "0x0",
            _ => text.parse() == Ok(initial.parse().unwrap_or(0.0f64)),
        };
        if level > 0 || !is_initial {
            let _ = writeln!(out, "\tfield({},\"{}\")", def.name, text.as_bytes().escape_ascii());
        }
    }
    for (tag, value) in db.info_tags(record) {
        let _ = writeln!(out, "\tinfo(\"{tag}\",\"{}\")", value.as_bytes().escape_ascii());
    }
    out + "}\n"
}

/// In the order of C: reverse alphabetical.
fn menus(schema: &Schema, wanted: &str) -> String {
    let mut menus: Vec<_> = schema.menus.iter().filter(|menu| is_wanted(&menu.name, wanted)).collect();
    menus.sort_by(|a, b| b.name.cmp(&a.name));
    let mut out = String::new();
    for menu in menus {
        let _ = writeln!(out, "menu({}) {{", menu.name);
        for (name, choice) in menu.names.iter().zip(&menu.choices) {
            let _ = writeln!(out, "\tchoice({name},\"{choice}\")");
        }
        out.push_str("}\n");
    }
    out
}

fn fields(schema: &Schema, of_type: &str, wanted: &str) -> String {
    let mut out = String::new();
    for kind in schema.types.iter().filter(|kind| is_wanted(&kind.name, of_type)) {
        let _ = writeln!(out, "recordtype({}) ", kind.name);
        for def in kind.fields.iter().filter(|def| is_wanted(&def.name, wanted)) {
            let special = match def.special {
                Special::None => "0 ".to_owned(),
                other => format!("{} {}", report::special_number(other), special_name(other)),
            };
            let group = if def.group.is_empty() { "0" } else { &def.group };
            let _ = writeln!(out, "    {}", def.name);
            for (what, value) in [
                ("prompt", def.prompt.as_str()),
                ("special", &special),
                ("field_type", &format!("DBF_{}", def.dbf)),
                ("process_passive", &u8::from(def.process_passive).to_string()),
                ("property", &u8::from(def.property).to_string()),
                ("base", &u8::from(def.hex).to_string()),
                ("promptgroup", group),
                ("interest", &def.interest.to_string()),
                ("as_level", &def.level.to_string()),
                ("initial", def.initial.as_deref().unwrap_or_default()),
                ("menu", def.menu.as_deref().unwrap_or_default()),
            ] {
                if what != "menu" || !value.is_empty() {
                    let _ = writeln!(out, "\t{what:>15}: {value}");
                }
            }
        }
    }
    out
}

const fn special_name(special: Special) -> &'static str {
    match special {
        Special::None => "",
        Special::NoMod => "SPC_NOMOD",
        Special::DbAddr => "SPC_DBADDR",
        Special::Scan => "SPC_SCAN",
        Special::AlarmAck => "SPC_ALARMACK",
        Special::As => "SPC_AS",
        Special::Attribute => "SPC_ATTRIBUTE",
        Special::Mod => "SPC_MOD",
        Special::Reset => "SPC_RESET",
        Special::LinConv => "SPC_LINCONV",
        Special::Calc => "SPC_CALC",
    }
}

fn devices(schema: &Schema, wanted: &str) -> String {
    let mut out = String::new();
    for kind in schema.types.iter().filter(|kind| is_wanted(&kind.name, wanted)) {
        let _ = writeln!(out, "recordtype({})", kind.name);
        for device in &kind.devices {
            let _ = writeln!(out, "\tchoice:    {}\n\tlink_type: {}", device.name, device.link);
        }
    }
    out
}

fn tables(schema: &Schema, wanted: &str) -> String {
    let mut out = String::new();
    for table in schema.tables.iter().filter(|table| is_wanted(&table.name, wanted)) {
        let _ = writeln!(out, "breaktable({}) {{", table.name);
        for (at, (raw, value)) in table.points.iter().enumerate() {
            // The slope to the next point. The last point has the slope of the segment before it.
            let pair = table.points.get(at..at + 2).or_else(|| table.points.get(at.wrapping_sub(1)..=at));
            let slope = pair.map_or(0.0, |pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0));
            let slope = base::text::exponent(slope, 6);
            let _ = writeln!(out, "\traw={raw:.6} slope={slope} eng={value:.6}");
        }
        out.push_str("}\n");
    }
    out
}

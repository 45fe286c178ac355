//! `tahti ioc --check-site`: reports which parts of a site's files run in tahti, as a table or as JSON.

use iocd::shell::site::{Fate, Survey, Use, survey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// All states, in the order of the tables.
const FATES: [Fate; 4] = [Fate::Works, Fate::WithoutDriver, Fate::CDriver, Fate::Missing];
/// Maximum rows of a table on the terminal.
const ROWS_MAX: usize = 30;

/// Surveys the folder and prints the result. The exit status is 1 if a file is refused or could not be read.
pub(crate) fn run(folder: &str, json: bool) -> ExitCode {
    let found = match survey(Path::new(folder)) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("tahti ioc: {folder}: {error}; --check-site needs a folder with a site's files");
            return ExitCode::from(2);
        }
    };
    match json {
        true => println!("{}", as_json(&found)),
        false => print!("{}", as_text(&found)),
    }
    match found.refused.is_empty() && found.unread.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Works => "works",
        Fate::WithoutDriver => "without driver",
        Fate::CDriver => "driver in C",
        Fate::Missing => "not here",
    }
}

fn as_json(found: &Survey) -> Value {
    let fates = |counts: &BTreeMap<Fate, usize>| -> Value {
        let count = |fate| counts.get(&fate).copied().unwrap_or_default();
        json!({
            "works": count(Fate::Works), "without_driver": count(Fate::WithoutDriver), "c_driver": count(Fate::CDriver),
            "not_here": count(Fate::Missing),
        })
    };
    let uses = |all: &BTreeMap<String, Use>| -> Value {
        let row = |(name, one): (&String, &Use)| {
            json!({
                "name": name, "state": word(one.fate), "count": one.count, "files": one.files, "instead": one.why,
            })
        };
        all.iter().map(row).collect()
    };
    let files = found
        .files
        .iter()
        .map(|(kind, files)| json!({ "kind": kind.name(), "files": files.all, "refused": files.refused }));
    let types = found.record_types.iter().map(|(name, counts)| json!({ "name": name, "records": fates(counts) }));
    let refused = found.refused.iter().map(|error| {
        json!({ "file": error.file, "line": error.place.line, "column": error.place.column, "reason": error.what })
    });
    json!({
        "files": files.collect::<Vec<_>>(),
        "records": fates(&found.records),
        "record_types": types.collect::<Vec<_>>(),
        "device_types": uses(&found.device_types),
        "commands": uses(&found.commands),
        "refused": refused.collect::<Vec<_>>(),
        "unread": found.unread,
    })
}

fn as_text(found: &Survey) -> String {
    let mut out = format!("{:<24} {:>8} {:>8}\n", "files", "read", "refused");
    for (kind, files) in &found.files {
        out += &format!("{:<24} {:>8} {:>8}\n", kind.name(), files.all, files.refused);
    }
    let count = |counts: &BTreeMap<Fate, usize>, fate| counts.get(&fate).copied().unwrap_or_default();
    let all: usize = found.records.values().sum();
    let [works, driver, c, missing] = FATES.map(|fate| count(&found.records, fate));
    if let Some(percent) = (100 * works).checked_div(all) {
        out += &format!("\n{all} records, each template counted once: {works} work ({percent} %), ");
        out += &format!(
            "{driver} load without their driver, {c} need a driver in C, {missing} have a type that is not here\n"
        );
        if let (Some(percent), true) = ((100 * works).checked_div(all - c), c > 0) {
            out += &format!("of the {} that need no driver in C, {works} work ({percent} %)\n", all - c);
        }
        out += &format!(
            "\n{:<24} {:>8} {:>14} {:>12} {:>8}\n",
            "record type", "works", "without driver", "driver in C", "not here"
        );
        let mut types: Vec<_> = found.record_types.iter().collect();
        types.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.values().sum::<usize>()));
        for (name, counts) in types.iter().take(ROWS_MAX) {
            let [works, driver, c, missing] = FATES.map(|fate| count(counts, fate));
            out += &format!("{name:<24} {works:>8} {driver:>14} {c:>12} {missing:>8}\n");
        }
        out += &rest(types.len());
    }
    out += &uses("DTYP", "records", &found.device_types);
    out += &uses("command", "calls", &found.commands);
    if !found.refused.is_empty() {
        out += "\nrefused (the rest of each file is loaded)\n";
        for error in found.refused.iter().take(ROWS_MAX) {
            out += &format!("  {error}\n");
        }
        out += &rest(found.refused.len());
    }
    for what in &found.unread {
        out += &format!("not read: {what}\n");
    }
    out
}

/// The last line of a shortened table: the number of rows that are not printed.
fn rest(rows: usize) -> String {
    match rows.checked_sub(ROWS_MAX) {
        None | Some(0) => String::new(),
        Some(more) => format!("  {more} more; --json lists all\n"),
    }
}

/// A table of uses: those that do not work first, then by descending count.
fn uses(title: &str, unit: &str, all: &BTreeMap<String, Use>) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut rows: Vec<_> = all.iter().collect();
    rows.sort_by_key(|(_, one)| (one.fate == Fate::Works, std::cmp::Reverse(one.count)));
    let mut out = format!("\n{title:<32} {unit:>8} {:>6}  state\n", "files");
    for (name, one) in rows.iter().take(ROWS_MAX) {
        let why = if one.why.is_empty() { String::new() } else { format!(": {}", one.why) };
        out += &format!("{name:<32} {:>8} {:>6}  {}{why}\n", one.count, one.files, word(one.fate));
    }
    out + &rest(rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iocd::shell::site::{Files, Kind};

    fn found() -> Survey {
        let mut found = Survey::default();
        found.files.insert(Kind::Database, Files { all: 2, refused: 1 });
        found.records = BTreeMap::from([(Fate::Works, 3), (Fate::CDriver, 2), (Fate::Missing, 1)]);
        found.record_types.insert("motor".into(), BTreeMap::from([(Fate::Missing, 1)]));
        let of = |fate, count, why| Use { fate, count, files: 1, why };
        found.commands.insert("dbl".into(), of(Fate::Works, 9, ""));
        found.commands.insert("seq".into(), of(Fate::WithoutDriver, 2, "records do it here"));
        found.unread.push("x.db: too large".into());
        found
    }

    #[test]
    fn the_table_counts_working_parts_and_lists_failing_ones_first() {
        let text = as_text(&found());
        for line in [
            "databases, templates            2        1",
            "6 records, each template counted once: 3 work (50 %), 0 load without their driver, 2 need a driver in C, 1 have a type that is not here",
            "of the 4 that need no driver in C, 3 work (75 %)",
            "motor                           0              0            0        1",
            "seq                                     2      1  without driver: records do it here",
            "not read: x.db: too large",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        assert!(text.find("seq ") < text.find("dbl "), "{text}");
    }

    #[test]
    fn the_json_has_every_row() {
        let all = as_json(&found());
        assert_eq!(all["records"], json!({ "works": 3, "without_driver": 0, "c_driver": 2, "not_here": 1 }));
        assert_eq!(all["commands"][1]["instead"], "records do it here");
        assert_eq!(all["record_types"][0]["records"]["not_here"], 1);
    }
}

//! `var`: numeric variables that scripts can set.

use super::commands::{Command, CommandResult, command, said};
use super::{Failed, Shell};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A variable of C's IOC.
struct Variable {
    name: &'static str,
    start: f64,
    double: bool,
    what: &'static str,
}

macro_rules! variable {
    ($name:literal, int $start:literal, $what:literal) => {
        Variable { name: $name, start: $start as f64, double: false, what: $what }
    };
    ($name:literal, double $start:literal, $what:literal) => {
        Variable { name: $name, start: $start, double: true, what: $what }
    };
}

/// In the order of C, with those of reccaster.
const VARIABLES: &[Variable] = &[
    variable!("CASDEBUG", int 0, "accepted; casr 2 shows details"),
    variable!("asCaDebug", int 0, "accepted; prints nothing"),
    variable!("asCheckClientIP", int 0, "1: access security identifies hosts by the address of the connection, not by the name they send"),
    variable!("atExitDebug", int 0, "accepted; prints nothing"),
    variable!("boHIGHlimit", double 100_000.0, "accepted; the limits that clients see of HIGH stay"),
    variable!("boHIGHprecision", int 2, "accepted; the precision that clients see of HIGH stays"),
    variable!("calcoutODLYlimit", double 100_000.0, "accepted; the limits that clients see of ODLY stay"),
    variable!("calcoutODLYprecision", int 2, "accepted; the precision that clients see of ODLY stays"),
    variable!("callbackParallelThreadsDefault", int 1, "accepted; callbacks run on the thread that owns their records"),
    variable!("dbAccessDebugPUTF", int 0, "accepted; prints nothing"),
    variable!("dbBptNotMonotonic", int 0, "accepted; breakpoint tables are taken as they are"),
    variable!("dbConvertStrict", int 0, "accepted; texts are read as by default"),
    variable!("dbJLinkDebug", int 0, "accepted; prints nothing"),
    variable!("dbQuietMacroWarnings", int 0, "accepted"),
    variable!("dbRecordsAbcSorted", int 0, "accepted; records keep the order in which they were loaded"),
    variable!("dbRecordsOnceOnly", int 0, "1: a second record of the same name is refused, unless its type is \"*\"; 0: it adds to the first"),
    variable!("dbTemplateMaxVars", int 100, "accepted; templates may have as many as they like"),
    variable!("dbThreadRealtimeLock", int 1, "accepted; memory is locked by the plant's settings"),
    variable!("freeListBypass", int 0, "accepted; there are no free lists"),
    variable!("histogramSDELprecision", int 2, "accepted; the precision that clients see of SDEL stays"),
    variable!("lnkDebug_debug", int 0, "accepted; prints nothing"),
    variable!("logClientDebug", int 0, "accepted; prints nothing"),
    variable!("reccastMaxHoldoff", double 10.0, "maximum random delay in seconds before records are sent to a RecCeiver"),
    variable!("reccastTimeout", double 20.0, "a RecCeiver that is silent for so many seconds, four times as long when idle, is left"),
    variable!("seqDLYlimit", double 100_000.0, "accepted; the limits that clients see of DLY1 and so on stay"),
    variable!("seqDLYprecision", int 2, "accepted; the precision that clients see of DLY1 and so on stays"),
    variable!("stampEachRecord", int 0, "1: each record reads the clock as C's IOC does; 0: once per processing pass"),
];

pub(super) const COMMANDS: &[Command] = &[
    command!("dbDumpVariable", "pdbbase", "variables that var accepts", |shell, _| {
        let types = types(shell)?;
        let text = types.into_iter().fold(String::new(), |mut out, (name, double)| {
            let _ = writeln!(out, "variable({name},{})", if double { "double" } else { "int" });
            out
        });
        said(shell, &text)
    }),
    command!(
        "var",
        "[name or pattern [value]]",
        "variables of the interpreter; help var: what each does",
        |shell, args| {
            match args {
                [] => show(shell, "*"),
                [pattern] => show(shell, pattern),
                [name, value, ..] => set(shell, name, value),
            }
        }
    ),
];

/// All variables with their initial values.
pub(super) fn at_start() -> BTreeMap<String, f64> {
    VARIABLES.iter().map(|known| (known.name.to_owned(), known.start)).collect()
}

/// Description of each variable.
pub(super) fn explained() -> String {
    VARIABLES.iter().fold(String::new(), |mut out, known| {
        let _ = writeln!(out, "    {}: {}", known.name, known.what);
        out
    })
}

/// Whether softIoc of C has this variable.
pub(super) fn is_known(name: &str) -> bool {
    VARIABLES.iter().any(|known| known.name == name)
}

/// All variables, and whether each is a double: those of tahti, and those declared in `.dbd` files, which have no effect in
/// tahti.
fn types(shell: &mut Shell) -> Result<BTreeMap<String, bool>, Failed> {
    let declared = shell.with_db(|db, _| {
        let lines = db.schema().declared("variable");
        lines
            .filter_map(|words| Some((words.first()?.clone(), words.get(1).is_some_and(|kind| kind == "double"))))
            .collect::<Vec<_>>()
    })?;
    let ours = VARIABLES.iter().map(|known| (known.name.to_owned(), known.double));
    Ok(declared.into_iter().chain(ours).collect())
}

fn show(shell: &mut Shell, pattern: &str) -> CommandResult {
    let mut out = String::new();
    for (name, double) in types(shell)?.into_iter().filter(|(name, _)| base::glob(pattern, name)) {
        let value = shell.vars.get(&name).copied().unwrap_or_default();
        let _ = match double {
            true => writeln!(out, "{name} = {}", base::text::general(value, 6)),
            false => writeln!(out, "{name} = {value}"),
        };
    }
    if out.is_empty() && pattern != "*" {
        return Err(Failed(format!("No var matching {pattern} found.")));
    }
    said(shell, &out)
}

fn set(shell: &mut Shell, name: &str, text: &str) -> CommandResult {
    let Some(double) = types(shell)?.get(name).copied() else {
        return Err(Failed(format!("Var {name} not found.")));
    };
    let value = if double { text.parse().ok() } else { whole(text) };
    let Some(value) = value else {
        // As in C, this is not a failure of the script.
        eprintln!("Invalid {} value. Var {name} not changed.", if double { "double" } else { "integer" });
        return Ok(None);
    };
    shell.vars.insert(name.to_owned(), value);
    shell.caster.is_used |= name.starts_with("reccast");
    if name == "stampEachRecord" {
        let clock: Option<fn() -> base::Stamp> = (value != 0.0).then(crate::stamps::clock);
        shell.with_each(move |db, _| db.stamp_each_record(clock))?;
    }
    if name == "dbRecordsOnceOnly" {
        shell.with_db(move |db, _| db.set_once_only(value != 0.0))?;
    }
    Ok(None)
}

/// A whole number, decimal or hexadecimal.
fn whole(text: &str) -> Option<f64> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => i32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value.ok().map(f64::from)
}

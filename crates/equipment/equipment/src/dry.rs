//! `--dry-run`: the steps that a request would cause, without any access to a device.

use crate::convert::Convert;
use crate::datum::{Datum, DeviceFault, Fault};
use crate::device::{Device, Pace};
use crate::execute::{self, Direction, Watch};
use crate::lane::built_in;
use crate::tables::Tables;
use base::{MonoNs, nearest};
use msg::Verb;
use std::fmt::{self, Write as _};

/// The error of a request that cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunError {
    /// The steps before the error, one per line.
    pub steps: String,
    /// The error.
    pub why: String,
}

impl fmt::Display for DryRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.steps, self.why)
    }
}

impl std::error::Error for DryRunError {}

/// The steps of `verb/object/complement`, with their values. `raw` replaces the answer of the device. Simulated devices
/// answer with their initial state.
///
/// # Errors
/// The error of the request, with the steps before it.
pub fn dry_run(tables: &Tables, request: &str, raw: Option<&str>) -> Result<String, DryRunError> {
    let mut out = format!("{request}\n");
    let mut parts = request.splitn(3, '/');
    let (word, object, complement) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(verb) = Verb::of_devices().find(|verb| verb.word() == word) else {
        let expected = Verb::words(Verb::of_devices());
        return Err(DryRunError { steps: out, why: format!("no row has the verb {word:?}; expected {expected}") });
    };
    let (entry, value) = match tables.interpret(verb, object, complement) {
        Ok(found) => found,
        Err(fault) => {
            let meant = nearest(object, tables.objects()).filter(|_| !tables.has(object));
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
            return Err(DryRunError { steps: out, why: format!("{fault}{meant}") });
        }
    };
    let known = &tables.entries[entry];
    let (row, device) = (&tables.rows[known.row], &tables.devices[known.device]);
    // Writing to a String cannot fail.
    let mut line = |word: &str, text: String| {
        let _ = writeln!(out, "  {word:<10} {text}");
    };
    let bound: Vec<String> = known.bound.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let bound = if bound.is_empty() { String::new() } else { format!(", {}", bound.join(", ")) };
    line("row", format!("{}  {} {}/{}{bound}", row.place, verb.word(), row.object, known.complement()));
    let lane = match device.driver.pace {
        Pace::RtSafe => "real-time lane",
        Pace::MayBlock => "separate worker",
    };
    let point = &device.points[known.point];
    let at = format!("{} ({}, {}, {lane})", device.name, device.driver.word, device.driver.pace_word());
    let simulated = || -> Option<Datum<'static>> {
        let mut device = built_in(device.driver, &device.settings, &device.points)?;
        device.read(known.point, MonoNs(0)).ok().map(Datum::into_owned)
    };
    let present = match raw {
        Some(raw) => Some(raw.parse().map_or_else(|_| Datum::Text(raw.to_owned().into()), Datum::Number)),
        None => simulated(),
    };
    if !verb.writes() {
        if present.is_none() {
            line("execute", format!("{at}: read {point}"));
            for step in &row.convert {
                line("convert", format!("{step}"));
            }
            line("answer", "unknown without the device; set its answer with --raw VALUE".to_owned());
            return Ok(out);
        }
        let (mut device, mut shown) = (Dry(present), Shown { out: &mut out, at: &at, point, refused: None });
        let value = execute::read(tables, entry, &mut device, MonoNs(0), &mut shown);
        let refused = shown.refused.take();
        let value = match (value, row.precision) {
            (Ok(value), Some(precision)) => format!("{value:.precision$}"),
            (Ok(value), None) => value.to_string(),
            (Err(fault), _) => {
                return Err(DryRunError { steps: out, why: refused.unwrap_or_else(|| fault.to_string()) });
            }
        };
        return Ok(format!("{out}  {:<10} {value}{}\n", "answer", row.unit));
    }
    let Some(value) = value else {
        return Err(DryRunError { steps: out, why: "no value to write".to_owned() });
    };
    line("interpret", format!("{complement} -> {value}{}", if value.number().is_some() { &row.unit } else { "" }));
    if let Some((low, high)) = row.limits {
        line("limits", format!("{low}..{high}{}: within", row.unit));
    }
    if let (Some(Convert::Bits { .. }), None) = (row.convert.first(), present.as_ref().and_then(Datum::number)) {
        line("execute", format!("{at}: read {point}, change some of its bits, write it; --raw VALUE shows which"));
        return Ok(out);
    }
    let (mut device, mut shown) = (Dry(present), Shown { out: &mut out, at: &at, point, refused: None });
    let written = execute::write(tables, entry, value, &mut device, MonoNs(0), &mut shown);
    let refused = shown.refused.take();
    if let Err(fault) = written {
        return Err(DryRunError { steps: out, why: refused.unwrap_or_else(|| fault.to_string()) });
    }
    let mut line = |word: &str, text: String| {
        let _ = writeln!(out, "  {word:<10} {text}");
    };
    match row.reached.as_ref().filter(|_| verb == Verb::Set) {
        Some(reached) => {
            let wait = format!("get/{object}/{} comes within {}{}", reached.complement, reached.within, row.unit);
            line("answer", format!("OK when {wait}; TIMEOUT after {}", reached.timeout));
        }
        None => line("answer", "OK".to_owned()),
    }
    Ok(out)
}

/// A device with a fixed answer that accepts all writes.
struct Dry(Option<Datum<'static>>);

impl Device for Dry {
    fn read(&mut self, _: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.0.clone().ok_or(DeviceFault::Refused("its answer is unknown without the device".into()))
    }

    fn write(&mut self, _: usize, _: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        Ok(())
    }
}

/// Writes the executed steps to a text.
struct Shown<'a> {
    out: &'a mut String,
    at: &'a str,
    point: &'a str,
    /// The step that refused its value, and the reason.
    refused: Option<String>,
}

impl Shown<'_> {
    fn line(&mut self, word: &str, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "  {word:<10} {text}");
    }
}

impl Watch for Shown<'_> {
    const SEES: bool = true;

    fn read(&mut self, raw: &Datum<'_>) {
        self.line("execute", &format!("{}: read {} = {raw}", self.at, self.point));
    }

    fn converted(&mut self, step: &Convert, way: Direction, from: &Datum<'_>, to: Result<&Datum<'_>, &Fault<'_>>) {
        match (to, way) {
            (Ok(to), Direction::Forwards) => self.line("convert", &format!("{step}: {from} -> {to}")),
            (Ok(to), Direction::Backwards) => self.line("convert", &format!("{step}, backwards: {from} -> {to}")),
            (Err(fault), _) => self.refused = Some(format!("{step}: {from}: {fault}")),
        }
    }

    fn written(&mut self, raw: &Datum<'_>) {
        self.line("execute", &format!("{}: write {} = {raw}", self.at, self.point));
    }
}

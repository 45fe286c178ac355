//! `--dry-run`: what a request would do, step by step, without touching anything.

use crate::convert::Convert;
use crate::datum::Datum;
use crate::device::Pace;
use crate::lane::{backwards, built_in};
use crate::tables::Tables;
use base::{MonoNs, nearest};
use msg::Verb;
use std::fmt::Write as _;

/// The steps of `verb/object/complement`, with their values. `raw` stands for what the device would answer; simulated
/// devices answer for themselves, as they are before anything was written.
///
/// # Errors
/// What is wrong with the request, with the steps up to there.
pub fn dry_run(tables: &Tables, request: &str, raw: Option<&str>) -> Result<String, String> {
    let mut out = format!("{request}\n");
    let mut parts = request.splitn(3, '/');
    let (word, object, complement) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(verb) = Verb::of_devices().find(|verb| verb.word() == word) else {
        let expected = Verb::words(Verb::of_devices());
        return Err(format!("{out}  no row has the verb {word:?}; expected {expected}"));
    };
    let (entry, value) = tables.interpret(verb, object, complement).map_err(|fault| {
        let meant = nearest(object, tables.objects());
        let meant =
            meant.filter(|_| !tables.has(object)).map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
        format!("{out}  {fault}{meant}")
    })?;
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
        Pace::MayBlock => "worker of its own",
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
        let Some(mut value) = present else {
            line("execute", format!("{at}: read {point}"));
            for step in &row.convert {
                line("convert", format!("{step}"));
            }
            line("answer", "not known without the device; --raw VALUE gives its answer".to_owned());
            return Ok(out);
        };
        line("execute", format!("{at}: read {point} = {value}"));
        for step in &row.convert {
            let next = step.forward(value.clone()).map_err(|fault| format!("{step}: {value}: {fault}"));
            let next = match next {
                Ok(next) => next.into_owned(),
                Err(why) => return Err(format!("{out}  {why}")),
            };
            line("convert", format!("{step}: {value} -> {next}"));
            value = next;
        }
        let value = match row.precision {
            Some(precision) => format!("{value:.precision$}"),
            None => value.to_string(),
        };
        line("answer", format!("{value}{}", row.unit));
        return Ok(out);
    }
    let Some(value) = value else { return Err(format!("{out}  nothing says what is written")) };
    line("interpret", format!("{complement} -> {value}{}", if value.number().is_some() { &row.unit } else { "" }));
    if let Some((low, high)) = row.limits {
        line("limits", format!("{low}..{high}{}: within", row.unit));
    }
    if let Some(Convert::Bits { .. }) = row.convert.first() {
        let Some(present) = present.as_ref().and_then(Datum::number) else {
            line("execute", format!("{at}: read {point}, change some of its bits, write it; --raw VALUE shows which"));
            return Ok(out);
        };
        line("execute", format!("{at}: read {point} = {present}"));
    }
    let mut step_value = value.clone();
    if row.write.is_none() {
        for step in row.convert.iter().rev() {
            let next = step.backward(step_value.clone(), present.as_ref().and_then(Datum::number));
            match next.map(Datum::into_owned) {
                Ok(next) => {
                    line("convert", format!("{step}, backwards: {step_value} -> {next}"));
                    step_value = next;
                }
                Err(fault) => {
                    let why = format!("{step}: {fault}");
                    return Err(format!("{out}  {why}"));
                }
            }
        }
    }
    debug_assert_eq!(
        backwards(row, value, present.as_ref().and_then(Datum::number)).map(Datum::into_owned),
        Ok(step_value.clone())
    );
    line("execute", format!("{at}: write {point} = {step_value}"));
    match row.reached.as_ref().filter(|_| verb == Verb::Set) {
        Some(reached) => {
            let wait = format!("get/{object}/{} comes within {}{}", reached.complement, reached.within, row.unit);
            line("answer", format!("OK when {wait}; TIMEOUT after {}", reached.timeout));
        }
        None => line("answer", "OK".to_owned()),
    }
    Ok(out)
}

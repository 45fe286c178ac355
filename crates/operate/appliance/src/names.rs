//! Answers about signals: names, descriptions, state.

use crate::call::{Filter, candidates, expression_of};
use crate::pb::{Payload, headers};
use crate::{Refused, Source, instant};
use segment::rows::Cause;
use serde_json::{Value, json};

/// Name of a signal in the archive.
pub(crate) fn resolve(source: &dyn Source, name: &str) -> Result<Option<String>, Refused> {
    for known in candidates(name) {
        if !source.rows(&known)?.is_empty() {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

pub(crate) fn matching(source: &dyn Source, filter: &Filter, limit: usize) -> Result<Vec<String>, Refused> {
    let mut names = source.names()?;
    match filter {
        Filter::Globs(patterns) => {
            names.retain(|name| patterns.iter().any(|pattern| pattern == name || base::glob(pattern, name)));
        }
        Filter::Expression(text) => {
            let expression = expression_of(text)?;
            names.retain(|name| expression.is_match(name));
        }
    }
    names.truncate(limit);
    Ok(names)
}

/// Description of a signal. All values are strings, as in the Appliance.
pub(crate) fn metadata(source: &dyn Source, name: &str) -> Result<Value, Refused> {
    let known = resolve(source, name)?.ok_or_else(|| Refused::unknown(name))?;
    let rows = source.rows(&known)?;
    let span = source.span(&known)?;
    let row = rows.last().ok_or_else(|| Refused::unknown(name))?;
    let payload = Payload::of(row.kind);
    let mut value = json!({
        "pvName": known, "DBRType": payload.name(), "scalar": payload.is_scalar().to_string(), "paused": "false",
        "creationTime": instant::show(rows.first().map_or(0, |row| row.since)),
        "modificationTime": instant::show(row.since), "units": row.about.units,
    });
    if let Some(digits) = row.about.precision {
        value["precision"] = digits.to_string().into();
    }
    if let Some((first, last)) = span {
        value["firstSample"] = instant::show(first).into();
        value["lastSample"] = instant::show(last).into();
    }
    for (header, text) in headers(&row.about) {
        value[header] = text.into();
    }
    Ok(value)
}

/// The same as a list of names and values, as on the Appliance's page of a signal.
pub(crate) fn details(source: &dyn Source, name: &str) -> Result<Value, Refused> {
    let known = metadata(source, name)?;
    let rows = [
        ("PV Name", "pvName"),
        ("Archiver DBR type (from typeinfo):", "DBRType"),
        ("Is this a scalar:", "scalar"),
        ("Is this PV paused:", "paused"),
        ("Archival params creation time:", "creationTime"),
        ("Archival params modification time:", "modificationTime"),
        ("Units:", "units"),
        ("Precision:", "precision"),
        ("First sample:", "firstSample"),
        ("Last sample:", "lastSample"),
    ];
    let row = |(name, key): (&str, &str)| {
        let value = known.get(key)?;
        Some(json!({ "name": name, "value": value, "source": "mgmt" }))
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

/// Archiving state of signals, derived from the archive alone: a logger leaves a gap when it is stopped or paused.
pub(crate) fn status(source: &dyn Source, patterns: &[String], now: i64) -> Result<Value, Refused> {
    let mut list = Vec::new();
    for pattern in patterns {
        let mut names: Vec<String> = resolve(source, pattern)?.into_iter().collect();
        if names.is_empty() {
            names = source.names()?;
            names.retain(|name| base::glob(pattern, name));
        }
        if names.is_empty() {
            list.push(json!({ "pvName": pattern, "status": "Not being archived" }));
        }
        for name in names {
            let span = source.span(&name)?;
            let since = span.map_or(i64::MIN, |(_, last)| last);
            let gaps = source.gaps(&name, since, now)?;
            let is_paused = gaps.last().is_some_and(|gap| matches!(gap.cause, Cause::Stopped | Cause::Paused));
            let is_lost = gaps.last().is_some_and(|gap| gap.cause == Cause::Disconnected);
            list.push(json!({
                "pvName": name, "pvNameOnly": name, "status": if is_paused { "Paused" } else { "Being archived" },
                "connectionState": (!is_lost && !is_paused).to_string(),
                "lastEvent": span.map_or_else(|| "Never".into(), |(_, last)| instant::show(last)),
            }));
        }
    }
    Ok(Value::Array(list))
}

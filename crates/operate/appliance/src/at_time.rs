//! Values of many signals at one instant.

use crate::format::put_json;
use crate::names::resolve;
use crate::pb::Payload;
use crate::{Refused, Source};
use serde_json::{Value, json};

const SECOND: i64 = 1_000_000_000;

/// Newest sample of each signal at or before an instant, but not before `oldest`. Signals without such a sample are omitted.
pub(crate) fn at_time(source: &dyn Source, names: &[String], at: i64, oldest: i64) -> Result<Value, Refused> {
    let mut found = serde_json::Map::new();
    for name in names {
        let Some(known) = resolve(source, name)? else { continue };
        let sample = source.at(&known, at)?;
        let Some(sample) = sample.filter(|sample| sample.at >= oldest) else { continue };
        let mut text = Vec::new();
        put_json(&mut text, &sample.datum);
        let val: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        let one = json!({
            "secs": sample.at.div_euclid(SECOND), "nanos": sample.at.rem_euclid(SECOND), "val": val,
            "severity": sample.severity, "status": sample.status,
            "meta": { "DBRType": Payload::of(sample.datum.kind()).name() },
        });
        found.insert(name.clone(), one);
    }
    Ok(Value::Object(found))
}

//! Active and hidden alarms of the plant, most severe first.

use crate::alarms::Alarms;
use crate::hub::News;
use crate::metrics::Source;
use alarm::Severity;
use alarm::wire::{List, Row};
use serde_json::{Value, json};

/// Maximum alarms displayed; in a flood, the most severe and oldest.
const SHOWN_MAX: usize = 500;

pub(super) fn look(alarms: &mut Alarms) -> News {
    match alarms.list() {
        Ok(mut list) => {
            list.sort();
            News { page: shown(&list, sys::clock::wall_ns()), source: Some(Source::Alarms(list)) }
        }
        Err(why) => News { page: json!({ "error": why.to_string() }), source: None },
    }
}

/// A sorted list for the page.
fn shown(list: &List, now_ns: u64) -> Value {
    let count = |is: fn(&Row) -> bool| list.rows.iter().filter(|row| is(row)).count();
    json!({
        "now_s": now_ns / 1_000_000_000,
        "name": list.name, "maintenance": list.maintenance, "alarms": list.alarms, "disconnected": list.disconnected,
        "active": count(|row| row.state.hidden().is_none() && row.state.alarm.severity.is_active()),
        "acknowledged": count(|row| {
            let severity = row.state.alarm.severity;
            row.state.hidden().is_none() && severity != Severity::Ok && !severity.is_active()
        }),
        "aside": count(|row| row.state.hidden().is_some()),
        "left_out": list.rows.len().saturating_sub(SHOWN_MAX),
        "rows": list.rows.iter().take(SHOWN_MAX).map(row).collect::<Value>(),
    })
}

/// The row as in the alarm server's protocol, with derived fields, so that the page does not repeat their rules.
fn row(row: &Row) -> Value {
    let mut value = json!(row);
    value["hidden"] = json!(row.state.hidden());
    value["is_active"] = row.state.alarm.severity.is_active().into();
    value["level"] = row.state.alarm.severity.level().into();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(path: &str, severity: &str, more: Value) -> Row {
        let mut value = json!({
            "path": path, "channel": path, "connected": true, "severity": severity, "message": "HIGH", "value": "5",
            "time": { "seconds": 7, "nano": 0 }, "current_severity": "OK", "current_message": "OK",
        });
        more.as_object().unwrap().iter().for_each(|(key, one)| value[key] = one.clone());
        serde_json::from_value(value).unwrap()
    }

    fn sorted(mut list: List, now_ns: u64) -> Value {
        list.sort();
        shown(&list, now_ns)
    }

    #[test]
    fn the_most_severe_alarm_comes_first_and_shelved_ones_last() {
        let shelf = json!({ "shelved": { "until": { "seconds": 9, "nano": 0 }, "by": "alice", "why": "cable" } });
        let rows = vec![
            row_of("/a/shelved", "MAJOR", shelf),
            row_of("/a/acknowledged", "MAJOR_ACK", json!({})),
            row_of("/a/minor", "MINOR", json!({})),
            row_of("/a/major", "MAJOR", json!({})),
        ];
        let data = sorted(List { rows, alarms: 9, ..List::default() }, 8_000_000_000);
        let paths: Vec<_> = data["rows"].as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/a/major", "/a/minor", "/a/acknowledged", "/a/shelved"]);
        let counts = ["active", "acknowledged", "aside", "left_out", "now_s"].map(|key| data[key].as_u64().unwrap());
        assert_eq!(counts, [2, 1, 1, 0, 8]);
        let last = &data["rows"][3];
        assert_eq!(
            (&last["hidden"], &last["shelved"]["by"], &last["level"]),
            (&json!("shelved"), &json!("alice"), &json!(2))
        );
    }

    #[test]
    fn in_a_flood_the_most_severe_alarms_are_shown_and_the_rest_is_counted() {
        let mut rows: Vec<_> = (0..SHOWN_MAX + 3).map(|at| row_of(&format!("/a/{at}"), "MINOR", json!({}))).collect();
        rows.push(row_of("/a/worst", "MAJOR", json!({})));
        let data = sorted(List { rows, ..List::default() }, 0);
        assert_eq!((data["rows"].as_array().unwrap().len(), &data["left_out"]), (SHOWN_MAX, &json!(4)));
        assert_eq!((&data["rows"][0]["path"], &data["active"]), (&json!("/a/worst"), &json!(SHOWN_MAX + 4)));
    }
}

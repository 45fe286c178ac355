//! The PVs of a plant, without sockets.

use super::tables::{Clock, TABLES};
use super::*;
use crate::hub::News;
use crate::metrics::Source as Data;
use keep::supervisor::control::{Claim, Outcome, RowState, RowStatus, Status as Plant};
use pva::codec::Array;
use serde_json::json;

/// A plant with one promise, seen at `now`.
fn plant(outcome: Outcome, state: RowState, now: MonoNs) -> Plant {
    let mut plant: Plant = serde_json::from_value(json!({
        "name": "rf", "file": "plant.toml", "phase": "up", "supervisor": 1, "since": 0, "now": now, "shield": "no shield",
        "shortfalls": [], "outcome": "good", "processes": [],
    }))
    .unwrap();
    plant.outcome = outcome;
    plant.health = vec![RowStatus {
        subject: "loop".to_owned(),
        claim: Claim::Runs,
        promise: "runs".to_owned(),
        line: Some(7),
        file: None,
        state,
        since: MonoNs(2_000_000_000),
        observed: now,
        evidence: "process 12".to_owned(),
        transitions: 1,
    }];
    plant
}

fn publish(hub: &Hub, plant: Option<Plant>, at: MonoNs) {
    let source = plant.map(|plant| Data::Plant(Box::new(plant)));
    hub.publish(Topic::Plant, News { page: json!({}), source }, at, 1);
}

fn options() -> Options {
    Options {
        plant: "rf".into(),
        listen: None,
        names: Vec::new(),
        identity: None,
        write: false,
        archive: None,
        retrieval: false,
        pvaccess: true,
        settings: None,
        messages: "none".into(),
    }
}

fn pvs() -> Pvs {
    let (done, _) = channel();
    Pvs::new("rf", Calls::start(&options(), &done, &canet::Waker::new().unwrap()).unwrap())
}

/// A field of a PV's value, by its path.
fn field(pvs: &Pvs, name: &str, path: &str) -> Value {
    let pv = pvs.all.iter().find(|pv| pv.name == name).unwrap();
    let (mut value, mut ty) = ((*pv.snapshot.value).clone(), Type::Struct(pv.ty.clone()));
    for part in path.split('.') {
        let (inner, inner_ty) = value.field(ty.fields().unwrap(), part).unwrap();
        (value, ty) = (inner.clone(), inner_ty.clone());
    }
    value
}

const WALL: i64 = 1_800_000_000_000_000_000;
const NOW: MonoNs = MonoNs(5_000_000_000);

#[test]
fn health_is_a_table_with_the_verdict_as_its_alarm() {
    let (hub, mut pvs) = (Hub::default(), pvs());
    assert_eq!(field(&pvs, "rf:health", "alarm.severity"), Value::I32(3), "not known before the first data");
    assert_eq!(field(&pvs, "rf:verdict", "value"), Value::Text("unknown".into()));
    publish(&hub, Some(plant(Outcome::Good, RowState::Kept, NOW)), NOW);
    let changed = pvs.refresh(&hub, NOW, WALL);
    let names: Vec<&str> = changed.iter().map(|(handle, _)| pvs.all[*handle as usize].name.as_str()).collect();
    assert_eq!(names, ["rf:health", "rf:processes", "rf:loops", "rf:verdict"]);
    let text = |text: &str| Value::Array(Array::Text(vec![text.to_owned()]));
    for (column, expected) in [
        ("subject", text("loop")),
        ("claim", text("runs")),
        ("state", text("kept")),
        ("evidence", text("process 12")),
        ("since", Value::Array(Array::F64(vec![1_799_999_997.0]))),
        ("line", Value::Array(Array::I32(vec![7]))),
    ] {
        assert_eq!(field(&pvs, "rf:health", &format!("value.{column}")), expected, "{column}");
    }
    assert_eq!(field(&pvs, "rf:health", "alarm.severity"), Value::I32(0));
    publish(&hub, Some(plant(Outcome::Failed(vec![]), RowState::Broken, NOW)), NOW);
    pvs.refresh(&hub, NOW, WALL);
    assert_eq!(field(&pvs, "rf:health", "alarm.severity"), Value::I32(2));
    assert_eq!(field(&pvs, "rf:verdict", "value"), Value::Text("failed".into()));
    publish(&hub, None, NOW);
    pvs.refresh(&hub, NOW, WALL);
    assert_eq!(field(&pvs, "rf:health", "alarm.message"), Value::Text("plant: the source is unavailable".into()));
    assert_eq!(field(&pvs, "rf:health", "value.subject"), Value::Array(Array::Text(vec![])));
}

#[test]
fn only_changed_columns_are_sent_and_nothing_while_the_data_stay_the_same() {
    let (hub, mut pvs) = (Hub::default(), pvs());
    publish(&hub, Some(plant(Outcome::Good, RowState::Kept, NOW)), NOW);
    pvs.refresh(&hub, NOW, WALL);
    let second = 1_000_000_000;
    let later = MonoNs(NOW.0 + second);
    // The clocks drift by 1 µs.
    let wall = WALL + second as i64 + 1_000;
    publish(&hub, Some(plant(Outcome::Good, RowState::Kept, later)), later);
    assert_eq!(pvs.refresh(&hub, later, wall), []);
    assert_eq!(field(&pvs, "rf:health", "timeStamp.nanoseconds"), Value::I32(1_000), "a read has the new time");
    publish(&hub, Some(plant(Outcome::Good, RowState::Within, later)), later);
    let changed = pvs.refresh(&hub, later, wall + 1_000);
    let [(0, snapshot)] = &changed[..] else { panic!("{changed:?}") };
    let ty = Type::Struct(pvs.all[0].ty.clone());
    let state = ["value", "state"].iter().fold((0, &ty), |(at, ty), part| {
        let (_, bit, ty) = ty.fields().unwrap().field(part).unwrap();
        (at + bit, ty)
    });
    assert!(snapshot.marks.has(state.0), "the state is marked");
    assert!(!snapshot.marks.has(state.0 - 1) && !snapshot.marks.has(1), "the promise and the labels are not");
    assert_eq!(pvs.refresh(&hub, later, wall + 2_000), []);
}

#[test]
fn each_table_has_as_many_cells_in_a_row_as_columns() {
    let frames = Data::Frames(json!([
        { "name": "down", "error": "not running" },
        { "name": "fast", "state": "runs", "pulse": 9, "counts": { "minors": 4 },
          "activities": [{ "name": "control", "p50": 1500, "calls": 3, "who": "process 7" }] },
    ]));
    let messages = Data::Messages(vec![("requests".into(), 5)]);
    for (suffix, source, rows) in [("frames", &frames, 2), ("activities", &frames, 1), ("messages", &messages, 1)] {
        let table = TABLES.iter().find(|table| table.suffix == suffix).unwrap();
        let ty = table.ty();
        let value = table.value(Some(source), Clock::default(), 0);
        let (columns, _) = value.field(&ty, "value").unwrap();
        let Value::Struct(columns) = columns else { panic!("{columns:?}") };
        for column in columns {
            let Value::Array(column) = column else { panic!("{column:?}") };
            assert_eq!(column.len(), rows, "{suffix}: {column:?}");
        }
    }
}

#[test]
fn values_that_are_not_numbers_are_no_change() {
    let column = |number| Value::Array(Array::F64(vec![number]));
    assert!(is_same(&column(f64::NAN), &column(f64::NAN)) && !is_same(&column(1.0), &column(f64::NAN)));
}

#[test]
fn clients_may_read_and_call_but_not_write() {
    let mut pvs = pvs();
    let peer = Peer { user: "ann", address: "127.0.0.1:1" };
    assert!(pvs.exists(b"rf:health") && !pvs.exists(b"rf:") && !pvs.exists(b"health"));
    let health = pvs.open(b"rf:health", peer).unwrap();
    assert_eq!(health.access, READ_ONLY);
    assert!(!pvs.is_function(health.handle));
    let archive = pvs.open(b"rf:archive", peer).unwrap();
    assert!(pvs.is_function(archive.handle));
    assert_eq!(pvs.call(archive.handle, peer, None, Token(1)), Call::Sent);
    assert!(matches!(pvs.write(0, peer, Write::Process, Token(1), false), Put::Failed(_)));
    assert_eq!(pvs.names().len(), TABLES.len() + 1 + Function::ALL.len());
}

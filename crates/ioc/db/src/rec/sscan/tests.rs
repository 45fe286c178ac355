//! Behaviour of scans, in virtual time. Source: sscanRecord.md of synApps sscan, and what its clients require.

use crate::rec::test_kit::{number, put, seen, started, text, wait, watch};
use crate::{Db, NotifyState, Now, RemoteRequest};
use base::{Alarm, FieldType, Stamp, Value};

/// A scan of `p` over 0, 1, … with a detector that is the square of the position, triggered with completion.
fn scan(fields: &str) -> Db {
    started(&format!(
        "record(sscan, \"s\") {{ field(P1PV, \"p.VAL\") field(NPTS, \"5\") field(P1SP, \"0\") field(P1EP, \"4\")
             field(T1PV, \"t.PROC\") field(D01PV, \"d.VAL\") field(FLNK, \"n\") {fields} }}
         record(ao, \"p\") {{ field(DRVH, \"100\") field(DRVL, \"-100\") field(EGU, \"mm\") field(PREC, \"2\") }}
         record(calcout, \"t\") {{ field(ODLY, \"0.1\") field(OUT, \"d.PROC PP\") field(CALC, \"1\") }}
         record(calc, \"d\") {{ field(INPA, \"p\") field(CALC, \"A*A\") field(EGU, \"cps\") field(HOPR, \"9\") }}
         record(calc, \"n\") {{ field(CALC, \"VAL+1\") }}"
    ))
}

fn all<const N: usize>(db: &mut Db, fields: [&str; N]) -> [f64; N] {
    fields.map(|field| number(db, &format!("s.{field}")))
}

/// The first elements of an array.
fn first(db: &mut Db, field: &str, count: usize) -> Vec<f64> {
    let channel = db.find(&format!("s.{field}")).unwrap();
    let array = db.get_as(&channel, FieldType::F64).unwrap();
    (0..count.min(array.len())).filter_map(|at| crate::text::conv::number(array.get(at)?)).collect()
}

fn message(db: &mut Db) -> String {
    text(db, "s.SMSG")
}

#[test]
fn a_linear_scan_moves_triggers_and_collects() {
    let mut db = scan("");
    assert_eq!(all(&mut db, ["P1SI", "P1CP", "P1WD", "P1NV", "R1NV", "D01NV"]), [1.0, 2.0, 4.0, 0.0, 1.0, 0.0]);
    assert_eq!(all(&mut db, ["P1HR", "P1LR", "P1PR", "D01HR"]), [100.0, -100.0, 2.0, 9.0]);
    assert_eq!((text(&mut db, "s.P1EU"), text(&mut db, "s.D01EU")), ("mm".into(), "cps".into()));
    assert_eq!((first(&mut db, "D01DA", 200).len(), first(&mut db, "P1PA", 200).len()), (100, 100), "MPTS");
    put(&mut db, "s.EXSC", 1);
    assert_eq!(all(&mut db, ["BUSY", "CPT", "DATA", "PACT", "XSC"]), [1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!((text(&mut db, "s.FAZE"), message(&mut db)), ("WAIT:DETCTRS".into(), "Scanning ...".into()));
    wait(&mut db, 0.15);
    assert_eq!((all(&mut db, ["CPT", "P1DV", "P1CV"]), number(&mut db, "n")), ([1.0, 1.0, 1.0], 0.0));
    wait(&mut db, 0.4);
    assert_eq!(
        all(&mut db, ["BUSY", "CPT", "BCPT", "DATA", "EXSC", "XSC", "ALRT"]),
        [0.0, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0]
    );
    assert_eq!((message(&mut db), number(&mut db, "n")), ("SCAN Complete".into(), 1.0));
    assert_eq!(
        (first(&mut db, "P1RA", 6), first(&mut db, "D01DA", 6)),
        (vec![0.0, 1.0, 2.0, 3.0, 4.0, 4.0], vec![0.0, 1.0, 4.0, 9.0, 16.0, 16.0])
    );
    assert_eq!((number(&mut db, "p"), text(&mut db, "s.FAZE")), (4.0, "IDLE".into()));
}

#[test]
fn a_put_callback_and_an_outer_scan_wait_for_the_end() {
    let mut db = started(
        "record(sscan, \"in\") { field(P1PV, \"x.VAL\") field(NPTS, \"3\") field(P1EP, \"2\") field(D01PV, \"d.VAL\") field(T1PV, \"d.PROC\") }
         record(sscan, \"out\") { field(P1PV, \"y.VAL\") field(NPTS, \"2\") field(P1EP, \"1\") field(T1PV, \"in.EXSC\") field(D01PV, \"in.CPT\") }
         record(ao, \"x\") {} record(ao, \"y\") {}
         record(calcout, \"d\") { field(INPA, \"x\") field(INPB, \"y\") field(CALC, \"A+10*B\") field(ODLY, \"1\") }",
    );
    let channel = db.find("out.EXSC").unwrap();
    assert_eq!(db.put_notify(&channel, &Value::from(1), 7, Now::default()), Ok(NotifyState::Pending));
    wait(&mut db, 5.5);
    assert_eq!((db.take_completed(), number(&mut db, "out.CPT"), number(&mut db, "in.CPT")), (vec![], 1.0, 2.0));
    wait(&mut db, 1.0);
    assert_eq!((db.take_completed().len(), number(&mut db, "out.BUSY"), number(&mut db, "in.BUSY")), (1, 0.0, 0.0));
    let channel = db.find("in.D01DA").unwrap();
    assert_eq!(db.get_as(&channel, FieldType::F64).and_then(|array| array.get(2)), Some(base::Scalar::F64(12.0)));
}

#[test]
fn val_follows_the_scalars_of_a_point_and_data_follows_the_arrays() {
    let mut db = scan("field(NPTS, \"2\")");
    let fields = ["s.BUSY", "s.CPT", "s.DATA", "s.D01CV", "s.P1DV", "s.R1CV", "s.VAL", "s.D01DA", "s.EXSC", "s.FAZE"];
    let queue = watch(&mut db, &fields[..9]);
    put(&mut db, "s.P1SP", 3.0);
    seen(&mut db, queue, &fields);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 0.15);
    let posts = seen(&mut db, queue, &fields);
    let order = |field| posts.iter().position(|(name, _)| *name == field);
    assert_eq!(posts[..3], [("s.EXSC", 1.0), ("s.DATA", 0.0), ("s.BUSY", 1.0)]);
    assert!(order("s.D01CV") < order("s.CPT") && order("s.CPT") < order("s.VAL"), "{posts:?}");
    wait(&mut db, 0.15);
    let posts = seen(&mut db, queue, &fields);
    let order = |field| posts.iter().position(|(name, _)| *name == field);
    let expected = ["s.VAL", "s.D01DA", "s.EXSC", "s.DATA", "s.BUSY"].map(order);
    assert!(expected.is_sorted() && expected.iter().all(Option::is_some), "{posts:?}");
    assert_eq!(posts.last(), Some(&("s.BUSY", 0.0)));
}

#[test]
fn parameters_follow_each_other_and_freeze_flags_hold_them() {
    let mut db = scan("");
    put(&mut db, "s.P1WD", 8.0);
    assert_eq!(all(&mut db, ["P1SP", "P1EP", "P1SI"]), [-2.0, 6.0, 2.0]);
    put(&mut db, "s.P1FI", "FREEZE");
    put(&mut db, "s.NPTS", 3);
    assert_eq!(all(&mut db, ["P1SP", "P1EP", "P1SI", "P1WD"]), [-2.0, 2.0, 2.0, 4.0]);
    put(&mut db, "s.P1WD", 6.0);
    assert_eq!(
        (all(&mut db, ["P1WD", "ALRT"]), message(&mut db)),
        ([4.0, 1.0], "P1 SCAN Parameters Too Constrained !".into())
    );
    put(&mut db, "s.CMND", "Clear msg");
    assert_eq!((all(&mut db, ["ALRT"]), message(&mut db)), ([0.0], String::new()));
    put(&mut db, "s.FFO", "OVERRIDE");
    assert_eq!(all(&mut db, ["P1FI", "FPTS"]), [0.0, 0.0]);
    put(&mut db, "s.FFO", "USE F-FLAGS");
    assert_eq!(all(&mut db, ["P1FI", "FPTS"]), [1.0, 1.0]);
    put(&mut db, "s.NPTS", 1_000);
    assert_eq!(all(&mut db, ["NPTS"]), [100.0]);
}

#[test]
fn positions_beyond_the_range_hold_the_scan_until_it_is_stopped() {
    let mut db = scan("field(P1EP, \"400\")");
    put(&mut db, "s.CMND", "Check limits");
    assert_eq!((message(&mut db), all(&mut db, ["ALRT"])), ("P1 Value > HI_Limit @ point 2".into(), [1.0]));
    put(&mut db, "s.EXSC", 1);
    assert_eq!(all(&mut db, ["BUSY", "EXSC", "ALRT"]), [1.0, 0.0, 1.0]);
    put(&mut db, "s.EXSC", 0);
    assert_eq!((all(&mut db, ["BUSY", "CPT"]), number(&mut db, "p")), ([0.0, 0.0], 0.0));
    put(&mut db, "s.P1EP", 4.0);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!((all(&mut db, ["BUSY", "CPT", "ALRT"]), message(&mut db)), ([0.0, 5.0, 0.0], "SCAN Complete".into()));
}

#[test]
fn tables_relative_positions_and_positions_after_the_scan() {
    let mut db = scan("field(P1AR, \"RELATIVE\") field(PASM, \"PRIOR POS\")");
    put(&mut db, "p", 10.0);
    put(&mut db, "s.P1SM", "TABLE");
    assert_eq!(all(&mut db, ["P1EP", "P1SI", "ALRT"]), [0.0, 0.0, 1.0], "too few positions");
    put(&mut db, "s.P1PA", vec![1.0, 2.0, 4.0, 8.0, 3.0]);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!((first(&mut db, "P1RA", 5), number(&mut db, "p")), (vec![11.0, 12.0, 14.0, 18.0, 13.0], 10.0));
    put(&mut db, "s.PASM", "PEAK POS");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(number(&mut db, "p"), 18.0, "the highest point");
    put(&mut db, "s.P1SM", "LINEAR");
    assert_eq!(all(&mut db, ["P1EP", "P1SI"]), [4.0, 1.0]);
    put(&mut db, "s.PASM", "START POS");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(number(&mut db, "p"), 18.0);
}

#[test]
fn a_positioner_in_fly_mode_is_sent_twice() {
    let mut db = started(
        "record(sscan, \"s\") { field(P1PV, \"m.VAL\") field(P1SM, \"FLY\") field(NPTS, \"5\") field(P1SP, \"2\") field(P1EP, \"6\")
             field(R1PV, \"m.RBV\") field(R2PV, \"TIME\") field(T1PV, \"t.CNT\") field(D01PV, \"t.S2\") }
         record(motor, \"m\") { field(DTYP, \"Simulated Motor\") field(MRES, \"0.01\") field(VELO, \"1\") }
         record(scaler, \"t\") { field(OUT, \"@4 100\") field(TP, \"1\") }",
    );
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.9);
    assert_eq!(all(&mut db, ["FAZE", "R2NV"]), [5.0, 1.0], "on its way to the start");
    wait(&mut db, 0.2);
    assert_eq!(number(&mut db, "m.VAL"), 6.0, "on its way to the end, while the scaler counts");
    wait(&mut db, 5.0);
    assert_eq!((all(&mut db, ["BUSY"]), first(&mut db, "D01DA", 5)), ([0.0], vec![100.0; 5]));
    let positions = first(&mut db, "P1RA", 5);
    assert!(positions.is_sorted() && positions[0] > 2.5 && positions[4] > 5.5, "{positions:?}");
    let times = first(&mut db, "P2RA", 5);
    assert!(times.windows(2).all(|pair| (pair[1] - pair[0] - 1.0).abs() < 0.01), "{times:?}");
}

#[test]
fn stopping_waits_for_completion_and_stopping_again_does_not() {
    let mut db = started(
        "record(sscan, \"s\") { field(T1PV, \"b\") field(D01PV, \"b\") field(FLNK, \"n\") }
         record(busy, \"b\") {} record(calc, \"n\") { field(CALC, \"VAL+1\") }",
    );
    put(&mut db, "s.EXSC", 1);
    put(&mut db, "b", 0);
    put(&mut db, "s.EXSC", 0);
    assert_eq!(
        (all(&mut db, ["BUSY", "CPT"]), message(&mut db)),
        ([1.0, 1.0], "Abort: waiting for callback(s)".into())
    );
    put(&mut db, "b", 0);
    assert_eq!(
        (all(&mut db, ["BUSY", "DATA", "BCPT"]), message(&mut db)),
        ([0.0, 1.0, 1.0], "Scan aborted by operator".into())
    );
    assert_eq!(number(&mut db, "n"), 1.0);
    put(&mut db, "s.EXSC", 1);
    put(&mut db, "s.EXSC", 0);
    put(&mut db, "s.EXSC", 0);
    assert_eq!((all(&mut db, ["BUSY", "KILL"]), message(&mut db)), ([0.0, 0.0], "NOTE: detector still active".into()));
    // The detector has not completed, so that the next scan cannot trigger it.
    put(&mut db, "s.EXSC", 1);
    assert_eq!((all(&mut db, ["BUSY", "ALRT"]), message(&mut db)), ([0.0, 1.0], "Detector 1 is busy".into()));
    put(&mut db, "b", 0);
    put(&mut db, "s.EXSC", 0);
    assert_eq!(message(&mut db), "Scan record is idle");
}

#[test]
fn a_pause_holds_the_scan_and_clients_can_hold_it() {
    let mut db = scan("field(RDLY, \"1\")");
    put(&mut db, "s.EXSC", 1);
    put(&mut db, "s.PAUS", "PAUSE");
    assert_eq!(message(&mut db), "Scan pause asserted");
    wait(&mut db, 1.0);
    assert_eq!((all(&mut db, ["CPT", "BUSY"]), message(&mut db)), ([0.0, 1.0], "Scan paused by operator".into()));
    put(&mut db, "s.PAUS", "GO");
    wait(&mut db, 0.9);
    assert_eq!(all(&mut db, ["CPT"]), [0.0], "RDLY");
    wait(&mut db, 0.15);
    put(&mut db, "s.WAIT", 1);
    wait(&mut db, 1.0);
    assert_eq!(
        (all(&mut db, ["CPT", "WTNG", "WCNT"]), message(&mut db)),
        ([1.0, 1.0, 1.0], "Waiting for client".into())
    );
    put(&mut db, "s.WAIT", 0);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["CPT", "WTNG", "BUSY"]), [5.0, 0.0, 0.0]);
    put(&mut db, "s.AWCT", 1);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["CPT", "WTNG", "WCNT"]), [0.0, 1.0, 1.0]);
}

#[test]
fn a_positioner_that_moves_does_not_shorten_the_delay_after_a_pause() {
    let mut db = scan("field(RDLY, \"1\")");
    put(&mut db, "s.EXSC", 1);
    put(&mut db, "s.PAUS", "PAUSE");
    wait(&mut db, 1.0);
    put(&mut db, "s.PAUS", "GO");
    wait(&mut db, 0.5);
    put(&mut db, "p", 7.0);
    wait(&mut db, 0.1);
    assert_eq!((all(&mut db, ["P1CV", "CPT"]), message(&mut db)), ([7.0, 0.0], "Scan pause rescinded".into()));
    wait(&mut db, 0.35);
    assert_eq!(all(&mut db, ["CPT"]), [0.0]);
    wait(&mut db, 0.1);
    assert_eq!(all(&mut db, ["CPT"]), [1.0]);
    // A scan that is requested within the delay starts after it, too.
    wait(&mut db, 1.0);
    put(&mut db, "s.PAUS", "PAUSE");
    put(&mut db, "s.EXSC", 1);
    put(&mut db, "s.PAUS", "GO");
    put(&mut db, "p", 8.0);
    assert_eq!((all(&mut db, ["P1CV", "BUSY"]), message(&mut db)), ([8.0, 0.0], "Scan is paused ...".into()));
    wait(&mut db, 1.01);
    assert_eq!(all(&mut db, ["BUSY"]), [1.0]);
}

#[test]
fn the_client_that_stores_data_holds_the_arrays_of_the_previous_scan() {
    let mut db = scan("field(AAWAIT, \"YES\")");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["AWAIT", "BUSY"]), [1.0, 0.0]);
    put(&mut db, "s.P1EP", 8.0);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!((text(&mut db, "s.DSTATE"), all(&mut db, ["BUSY", "DATA"])), ("SAVE_DATA_WAIT".into(), [1.0, 0.0]));
    assert_eq!(
        (first(&mut db, "P1RA", 5), first(&mut db, "P1CA", 5)),
        (vec![0.0, 1.0, 2.0, 3.0, 4.0], vec![0.0, 2.0, 4.0, 6.0, 8.0])
    );
    put(&mut db, "s.AWAIT", 0);
    assert_eq!((all(&mut db, ["BUSY", "DATA"]), first(&mut db, "P1RA", 2)), ([0.0, 1.0], vec![0.0, 2.0]));
}

#[test]
fn links_before_and_after_the_scan_settling_and_tolerance() {
    let mut db = scan(
        "field(BSPV, \"b.VAL\") field(BSCD, \"7\") field(ASPV, \"a.VAL\") field(ASCD, \"8\") field(PDLY, \"1\") field(DDLY, \"2\")
         field(R1PV, \"r.VAL\") field(R1DL, \"0.5\") field(NPTS, \"2\") }
         record(ao, \"b\") {} record(ao, \"a\") {} record(calc, \"r\") { field(INPA, \"p CP\") field(CALC, \"A>2?9:A\")",
    );
    put(&mut db, "s.P1EP", 1.0);
    put(&mut db, "s.EXSC", 1);
    assert_eq!((number(&mut db, "b"), text(&mut db, "s.FAZE")), (7.0, "WAIT:MOTORS".into()));
    wait(&mut db, 3.0);
    assert_eq!(all(&mut db, ["CPT"]), [0.0]);
    wait(&mut db, 0.2);
    assert_eq!((all(&mut db, ["CPT"]), number(&mut db, "a")), ([1.0], 0.0));
    wait(&mut db, 3.2);
    assert_eq!((all(&mut db, ["BUSY"]), number(&mut db, "a"), first(&mut db, "P1RA", 2)), ([0.0], 8.0, vec![0.0, 1.0]));
    put(&mut db, "s.P1EP", 4.0);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 10.0);
    assert_eq!(
        (all(&mut db, ["BUSY", "CPT", "ALRT"]), message(&mut db)),
        ([0.0, 1.0, 1.0], "SCAN Aborted: P1 Error > delta".into())
    );
}

#[test]
fn arrays_are_acquired_at_once_and_their_trigger_comes_first() {
    let mut db = started(
        "record(sscan, \"s\") { field(P1PV, \"p.VAL\") field(NPTS, \"3\") field(P1EP, \"4\") field(ACQT, \"1D ARRAY\") field(T1PV, \"c.PROC\")
             field(A1PV, \"c.PROC\") field(D01PV, \"w.VAL\") field(D02PV, \"c.VAL\") }
         record(ao, \"p\") {} record(calc, \"c\") { field(CALC, \"VAL+1\") }
         record(waveform, \"w\") { field(FTVL, \"DOUBLE\") field(NELM, \"4\") field(INP, [5, 6, 7, 8]) field(PINI, \"YES\") }",
    );
    assert_eq!(all(&mut db, ["D01NE", "D02NE"]), [4.0, 1.0]);
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 0.1);
    assert_eq!((all(&mut db, ["BUSY", "CPT"]), number(&mut db, "c")), ([0.0, 3.0], 2.0));
    assert_eq!((first(&mut db, "D01DA", 3), first(&mut db, "P1RA", 3)), (vec![5.0, 6.0, 7.0], vec![0.0, 2.0, 4.0]));
    assert_eq!(first(&mut db, "D02DA", 1), [1.0]);
}

#[test]
fn acquisitions_can_be_added() {
    let mut db = scan("field(ACQM, \"ACCUMULATE\")");
    for sum in [1.0, 2.0, 3.0] {
        put(&mut db, "s.EXSC", 1);
        wait(&mut db, 1.0);
        assert_eq!(first(&mut db, "D01DA", 5), [0.0, 1.0, 4.0, 9.0, 16.0].map(|value| value * sum));
    }
    put(&mut db, "s.ACQM", "NORMAL");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(first(&mut db, "D01DA", 2), [0.0, 1.0]);
}

#[test]
fn a_scan_waits_until_its_names_exist_and_few_fields_change_meanwhile() {
    let mut db = scan("field(D02PV, \"nobody\")");
    assert_eq!(text(&mut db, "s.D02NV"), "PV BAD");
    put(&mut db, "s.EXSC", 1);
    assert_eq!(
        (text(&mut db, "s.FAZE"), message(&mut db), all(&mut db, ["BUSY", "ALRT"])),
        ("SCAN_PENDING".into(), "Waiting for PV's to connect".into(), [0.0, 1.0])
    );
    put(&mut db, "s.D02PV", "p.VAL");
    assert_eq!(all(&mut db, ["BUSY", "D02NV"]), [1.0, 0.0]);
    let now = Now { mono: db.time.now.mono, ..Now::default() };
    for (field, value) in [("s.P1PV", Value::from("d.VAL")), ("s.NPTS", Value::from(9)), ("s.EXSC", Value::from(1))] {
        let channel = db.find(field).unwrap();
        assert!(db.put(&channel, &value, now).is_err(), "{field}");
    }
    assert_eq!(message(&mut db), "Already scanning");
    wait(&mut db, 1.0);
    assert_eq!(first(&mut db, "D02DA", 3), [0.0, 1.0, 2.0]);
    put(&mut db, "s.CMND", "Clear all PV's");
    assert_eq!((text(&mut db, "s.P1PV"), all(&mut db, ["P1NV", "D02NV"])), (String::new(), [1.0, 1.0]));
}

#[test]
fn a_waiting_scan_can_be_withdrawn_and_a_preview_shows_the_positions() {
    let mut db = scan("field(P2PV, \"nobody\")");
    let channel = db.find("s.EXSC").unwrap();
    assert_eq!(db.put_notify(&channel, &Value::from(1), 7, Now::default()), Ok(NotifyState::Pending));
    put(&mut db, "s.EXSC", 0);
    assert_eq!((db.take_completed().len(), text(&mut db, "s.FAZE")), (1, "IDLE".into()));
    put(&mut db, "s.CMND", "Preview scan");
    assert_eq!(
        (first(&mut db, "P1CA", 6), first(&mut db, "D01CA", 6)),
        (vec![0.0, 1.0, 2.0, 3.0, 4.0, 4.0], vec![0.0, 1.0, 2.0, 3.0, 4.0, 4.0])
    );
}

#[test]
fn a_process_variable_that_refuses_its_value_ends_the_scan() {
    let mut db = scan("");
    put(&mut db, "p.DISP", 1);
    put(&mut db, "s.EXSC", 1);
    assert_eq!(
        (all(&mut db, ["BUSY", "ALRT", "CPT", "DATA"]), message(&mut db)),
        ([0.0, 1.0, 0.0, 1.0], "A PV refused its value".into())
    );
}

#[test]
fn a_detector_of_another_ioc_is_read_when_the_trigger_has_completed() {
    let mut db = scan("field(D02PV, \"elsewhere\")");
    let requests = std::iter::from_fn(|| db.next_remote()).collect::<Vec<_>>();
    let [RemoteRequest::Connect { id, .. }] = requests[..] else { panic!("{requests:?}") };
    db.remote_update(id, Value::from(1.0), Alarm::NONE, Stamp::EPOCH);
    put(&mut db, "s.EXSC", 1);
    assert_eq!(db.next_remote(), None);
    wait(&mut db, 0.15);
    assert_eq!(
        (db.next_remote(), text(&mut db, "s.FAZE")),
        (Some(RemoteRequest::Get { id }), "RECORD SCALAR DATA".into())
    );
    db.remote_update(id, Value::from(7.0), Alarm::NONE, Stamp::EPOCH);
    db.remote_written(id, true);
    wait(&mut db, 0.01);
    assert_eq!((all(&mut db, ["CPT", "D02CV"]), first(&mut db, "D02CA", 1)), ([1.0, 7.0], vec![7.0]));
}

#[test]
fn a_scan_that_waits_for_nothing_ends_too() {
    let mut db =
        started("record(sscan, \"s\") { field(MPTS, \"5000\") field(NPTS, \"5000\") field(D01PV, \"s.NPTS\") }");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 0.0);
    assert_eq!((all(&mut db, ["BUSY", "CPT"]), first(&mut db, "D01DA", 1)), ([0.0, 5_000.0], vec![5_000.0]));
}

#[test]
fn the_arrays_of_the_scan_in_progress_keep_its_data_after_its_end() {
    let mut db = scan("");
    put(&mut db, "s.EXSC", 1);
    wait(&mut db, 1.0);
    assert_eq!(
        (first(&mut db, "D01CA", 5), first(&mut db, "P1CA", 5)),
        (first(&mut db, "D01DA", 5), first(&mut db, "P1RA", 5))
    );
    assert_eq!(first(&mut db, "D01CA", 5), [0.0, 1.0, 4.0, 9.0, 16.0]);
}

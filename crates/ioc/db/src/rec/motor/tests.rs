//! Behaviour of the record with its simulated axis, in virtual time. Sources: motorRecord.html of synApps motor, and what its
//! clients require.

use crate::rec::test_kit::{number, put, started, text, wait};
use crate::{Db, NotifyState, Now};
use base::Value;

fn axis(fields: &str) -> Db {
    started(&format!(
        "record(motor, \"m\") {{ field(DTYP, \"Simulated Motor\") field(OUT, \"@-1000 1000 0\") field(MRES, \"0.1\")
             field(VELO, \"10\") field(FLNK, \"n\") {fields} }}
         record(calc, \"n\") {{ field(CALC, \"VAL+1\") }}"
    ))
}

fn all<const N: usize>(db: &mut Db, fields: [&str; N]) -> [f64; N] {
    fields.map(|field| number(db, &format!("m.{field}")))
}

#[test]
fn it_moves_to_a_target_and_is_done_with_its_forward_link() {
    let mut db = axis("");
    put(&mut db, "m", 20.0);
    assert_eq!(all(&mut db, ["DMOV", "MOVN", "DVAL", "RVAL", "TDIR"]), [0.0, 1.0, 20.0, 200.0, 1.0]);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["RBV", "DMOV"]), [10.0, 0.0]);
    assert_eq!(number(&mut db, "n"), 0.0, "the forward link waits");
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["RBV", "DRBV", "RRBV", "DMOV", "MOVN", "DIFF"]), [20.0, 20.0, 200.0, 1.0, 0.0, 0.0]);
    assert_eq!(number(&mut db, "n"), 1.0);
}

#[test]
fn dmov_falls_before_the_value_is_seen_also_for_the_same_position() {
    let mut db = axis("");
    let queue = db.open_queue(100);
    let channel = db.find("m.DMOV").unwrap();
    db.subscribe(queue, &channel, base::EventMask::VALUE, 1);
    let mut seen = Vec::new();
    db.drain(queue, 100, |_, _| ());
    put(&mut db, "m", 0.0);
    db.drain(queue, 100, |_, event| seen.push(event.value));
    assert_eq!(seen, [Value::from(0i16), Value::from(1i16)]);
    assert_eq!(all(&mut db, ["DMOV", "RBV"]), [1.0, 0.0]);
}

#[test]
fn a_put_callback_completes_at_the_end_of_the_motion() {
    let mut db = axis("field(DLY, \"0.5\")");
    let channel = db.find("m").unwrap();
    assert_eq!(db.put_notify(&channel, &Value::from(10.0), 7, Now::default()), Ok(NotifyState::Pending));
    wait(&mut db, 1.2);
    assert_eq!((db.take_completed(), all(&mut db, ["MOVN", "DMOV"])), (vec![], [0.0, 0.0]), "DLY is running");
    wait(&mut db, 0.4);
    assert_eq!((db.take_completed().len(), all(&mut db, ["DMOV"])), (1, [1.0]));
}

#[test]
fn soft_limits_restore_the_target_and_direction_and_offset_move_them() {
    let mut db = axis("field(DHLM, \"50\") field(DLLM, \"-50\")");
    put(&mut db, "m", 60.0);
    assert_eq!(all(&mut db, ["LVIO", "DMOV", "VAL", "RBV"]), [1.0, 1.0, 0.0, 0.0]);
    put(&mut db, "m", 5.0);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["LVIO", "RBV"]), [0.0, 5.0]);
    put(&mut db, "m.OFF", 100.0);
    assert_eq!(all(&mut db, ["VAL", "RBV", "HLM", "LLM", "DMOV"]), [105.0, 105.0, 150.0, 50.0, 1.0]);
    // As in C, a variable offset takes up a change of the direction, and a frozen one moves the user value.
    put(&mut db, "m.DIR", "Neg");
    assert_eq!(all(&mut db, ["VAL", "RBV", "OFF", "HLM", "LLM"]), [105.0, 105.0, 110.0, 160.0, 60.0]);
    put(&mut db, "m.HLM", 120.0);
    assert_eq!(all(&mut db, ["DLLM", "DHLM"]), [-10.0, 50.0]);
    put(&mut db, "m.FOFF", "Frozen");
    put(&mut db, "m.DIR", "Pos");
    assert_eq!(all(&mut db, ["VAL", "RBV", "OFF"]), [115.0, 115.0, 110.0]);
}

#[test]
fn stop_takes_the_readback_as_target_and_pause_keeps_it() {
    let mut db = axis("");
    put(&mut db, "m", 20.0);
    wait(&mut db, 1.0);
    put(&mut db, "m.STOP", 1);
    wait(&mut db, 0.1);
    assert_eq!(all(&mut db, ["VAL", "RBV", "DMOV", "STOP"]), [10.0, 10.0, 1.0, 0.0]);
    put(&mut db, "m", 20.0);
    wait(&mut db, 0.5);
    put(&mut db, "m.SPMG", "Pause");
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["VAL", "RBV", "DMOV", "MOVN"]), [20.0, 15.0, 0.0, 0.0]);
    put(&mut db, "m.SPMG", "Go");
    wait(&mut db, 0.6);
    assert_eq!(all(&mut db, ["RBV", "DMOV"]), [20.0, 1.0]);
    put(&mut db, "m.SPMG", "Pause");
    put(&mut db, "m", 10.0);
    put(&mut db, "m.SPMG", "Move");
    wait(&mut db, 1.1);
    assert_eq!((all(&mut db, ["RBV", "DMOV"]), text(&mut db, "m.SPMG")), ([10.0, 1.0], "Pause".into()));
}

#[test]
fn backlash_is_taken_out_by_a_second_move_while_dmov_stays_0() {
    let mut db = axis("field(BDST, \"2\") field(BVEL, \"1\")");
    put(&mut db, "m", -10.0);
    wait(&mut db, 1.3);
    // It went to -12 at VELO in 1.2 s, and returns at BVEL.
    assert!(number(&mut db, "m.RBV") < -11.0 && number(&mut db, "m.DMOV") == 0.0);
    wait(&mut db, 2.0);
    assert_eq!(all(&mut db, ["RBV", "DMOV", "MIP"]), [-10.0, 1.0, 0.0]);
}

#[test]
fn a_new_target_during_a_move_is_reached_and_dmov_stays_0_between() {
    let mut db = axis("");
    put(&mut db, "m", 20.0);
    wait(&mut db, 1.0);
    put(&mut db, "m", -5.0);
    wait(&mut db, 0.3);
    assert_eq!(all(&mut db, ["DMOV", "TDIR"]), [0.0, 0.0], "stopped and turned");
    wait(&mut db, 2.0);
    assert_eq!((all(&mut db, ["RBV", "DMOV"]), number(&mut db, "n")), ([-5.0, 1.0], 1.0));
}

#[test]
fn it_jogs_while_the_button_is_on_and_ends_at_a_switch() {
    let mut db = axis("field(JVEL, \"20\") field(HLSV, \"MAJOR\")");
    put(&mut db, "m.JOGF", 1);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["RBV", "DMOV"]), [20.0, 0.0]);
    put(&mut db, "m.JOGF", 0);
    wait(&mut db, 0.1);
    assert_eq!(all(&mut db, ["RBV", "VAL", "DMOV"]), [20.0, 20.0, 1.0]);
    put(&mut db, "m.JOGF", 1);
    wait(&mut db, 10.0);
    assert_eq!(all(&mut db, ["RBV", "HLS", "LLS", "DMOV", "JOGF"]), [100.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!((text(&mut db, "m.STAT"), text(&mut db, "m.SEVR")), ("HIGH".into(), "MAJOR".into()));
}

#[test]
fn homing_sets_the_position_and_cannot_start_twice() {
    let mut db = axis("field(HVEL, \"5\")");
    put(&mut db, "m", 10.0);
    wait(&mut db, 1.0);
    put(&mut db, "m.HOMR", 1);
    let channel = db.find("m.HOMR").unwrap();
    assert!(db.put(&channel, &Value::from(1), Now { mono: db.time.now.mono, ..Now::default() }).is_err());
    wait(&mut db, 2.1);
    assert_eq!(all(&mut db, ["RBV", "VAL", "DMOV", "HOMR", "ATHM"]), [0.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(number(&mut db, "m.MSTA") as u32 >> 14 & 1, 1);
}

#[test]
fn set_redefines_positions_without_motion() {
    let mut db = axis("");
    put(&mut db, "m.SET", "Set");
    put(&mut db, "m", 7.0);
    assert_eq!(all(&mut db, ["OFF", "RBV", "DRBV", "DMOV"]), [7.0, 7.0, 0.0, 1.0]);
    put(&mut db, "m.DVAL", 3.0);
    assert_eq!(all(&mut db, ["OFF", "RBV", "DRBV", "RRBV", "DMOV"]), [7.0, 10.0, 3.0, 30.0, 1.0]);
    put(&mut db, "m.SUSE", 1);
    assert_eq!(text(&mut db, "m.SET"), "Use");
}

#[test]
fn tweaks_relative_and_raw_targets_move_it() {
    let mut db = axis("field(TWV, \"2\")");
    put(&mut db, "m.TWF", 1);
    wait(&mut db, 1.0);
    put(&mut db, "m.RLV", 3.0);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["RBV", "TWF", "RLV"]), [5.0, 0.0, 0.0]);
    put(&mut db, "m.RVAL", -10);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["RBV", "VAL", "DVAL"]), [-1.0, -1.0, -1.0]);
}

#[test]
fn a_readback_link_is_corrected_by_retries_until_they_are_used_up() {
    let mut db = started(
        "record(motor, \"m\") { field(DTYP, \"Simulated Motor\") field(MRES, \"0.1\") field(VELO, \"10\") field(URIP, \"Yes\")
             field(RDBL, \"enc\") field(RRES, \"1\") field(RTRY, \"2\") field(RDBD, \"0.5\") }
         record(ao, \"enc\") {}",
    );
    put(&mut db, "m", 5.0);
    wait(&mut db, 5.0);
    assert_eq!(all(&mut db, ["RCNT", "MISS", "DMOV", "RBV"]), [2.0, 1.0, 1.0, 0.0], "the readback does not move");
}

#[test]
fn a_new_step_size_scales_limits_and_speeds() {
    let mut db = axis("field(DHLM, \"50\") field(DLLM, \"-50\")");
    put(&mut db, "m.MRES", 0.2);
    assert_eq!(all(&mut db, ["DHLM", "VELO", "UREV", "RHLM"]), [100.0, 20.0, 40.0, 500.0]);
}

#[test]
fn a_soft_channel_writes_its_output_and_is_done() {
    let mut db = started(
        "record(motor, \"m\") { field(OUT, \"o PP\") field(FLNK, \"n\") } record(ao, \"o\") {} record(calc, \"n\") { field(CALC, \"VAL+1\") }",
    );
    put(&mut db, "m", 12.0);
    assert_eq!((number(&mut db, "o"), all(&mut db, ["RBV", "DMOV"])), (12.0, [12.0, 1.0]));
    assert!(number(&mut db, "n") >= 1.0);
}

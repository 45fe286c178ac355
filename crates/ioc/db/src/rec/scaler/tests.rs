//! Behaviour of the record with its simulated counters, in virtual time. Source: scalerRecord.md of synApps scaler, and what its
//! clients require.

use crate::rec::test_kit::{number, put, seen, started, text, wait, watch};
use crate::{Db, NotifyState, Now};
use base::Value;

/// Eight channels; channel 2 counts 500 per second, channel 3 20 per second, the others 1,000.
fn scaler(fields: &str) -> Db {
    started(&format!(
        "record(scaler, \"s\") {{ field(OUT, \"@8 500 20\") field(FREQ, \"1e6\") field(FLNK, \"n\") {fields} }}
         record(calc, \"n\") {{ field(CALC, \"VAL+1\") }}"
    ))
}

fn all<const N: usize>(db: &mut Db, fields: [&str; N]) -> [f64; N] {
    fields.map(|field| number(db, &format!("s.{field}")))
}

#[test]
fn a_count_ends_at_its_preset_time_with_its_forward_link() {
    let mut db = scaler("field(TP, \"2\")");
    assert_eq!(all(&mut db, ["NCH", "PR1", "G1", "TP"]), [8.0, 2e6, 1.0, 2.0]);
    put(&mut db, "s.CNT", "Count");
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["S1", "S2", "S3", "S4", "T", "CNT", "VAL"]), [1e6, 500.0, 20.0, 1e3, 1.0, 1.0, 0.0]);
    assert_eq!((number(&mut db, "n"), number(&mut db, "s.PACT")), (0.0, 0.0), "the forward link waits");
    wait(&mut db, 1.0);
    assert_eq!(
        all(&mut db, ["S1", "S2", "S3", "T", "CNT", "VAL", "SS", "US"]),
        [2e6, 1e3, 40.0, 2.0, 0.0, 2.0, 0.0, 0.0]
    );
    assert_eq!(number(&mut db, "n"), 1.0);
    wait(&mut db, 5.0);
    assert_eq!(all(&mut db, ["S1"]), [2e6], "the result stays");
}

#[test]
fn a_put_callback_completes_at_the_end_of_the_count_also_if_it_is_stopped() {
    let mut db = scaler("field(TP, \"2\") field(DLY, \"0.5\")");
    let channel = db.find("s.CNT").unwrap();
    assert_eq!(db.put_notify(&channel, &Value::from(1), 7, Now::default()), Ok(NotifyState::Pending));
    wait(&mut db, 2.4);
    assert_eq!((db.take_completed(), number(&mut db, "n")), (vec![], 0.0), "DLY shifts the count");
    wait(&mut db, 0.2);
    assert_eq!((db.take_completed().len(), number(&mut db, "n")), (1, 1.0));
    let now = Now { mono: db.time.now.mono, ..Now::default() };
    assert_eq!(db.put_notify(&channel, &Value::from(1), 8, now), Ok(NotifyState::Pending));
    wait(&mut db, 1.0);
    put(&mut db, "s.CNT", "Done");
    assert_eq!((db.take_completed().len(), all(&mut db, ["T", "VAL", "CNT"])), (1, [0.5, 0.5, 0.0]));
}

#[test]
fn the_first_gated_channel_that_reaches_its_preset_stops_all() {
    let mut db = scaler("");
    put(&mut db, "s.PR2", 100);
    assert_eq!(all(&mut db, ["G2", "G3"]), [1.0, 0.0]);
    put(&mut db, "s.G3", "Y");
    assert_eq!(all(&mut db, ["PR3"]), [1_000.0]);
    put(&mut db, "s.TP", 3.0);
    assert_eq!(all(&mut db, ["PR1"]), [3e6]);
    put(&mut db, "s.PR1", 4e6);
    assert_eq!(all(&mut db, ["TP"]), [4.0]);
    put(&mut db, "s.CNT", 1);
    wait(&mut db, 10.0);
    assert_eq!(all(&mut db, ["S1", "S2", "S3", "T", "CNT", "D2", "D4"]), [200_000.0, 100.0, 4.0, 0.2, 0.0, 1.0, 0.0]);
}

#[test]
fn counters_are_displayed_at_their_rate_and_val_is_posted_last() {
    let mut db = scaler("field(RATE, \"2\")");
    let fields = ["s.CNT", "s.S1", "s.T", "s.VAL"];
    let queue = watch(&mut db, &fields);
    put(&mut db, "s.CNT", 1);
    wait(&mut db, 2.0);
    let first = [("s.CNT", 1.0), ("s.S1", 500_000.0), ("s.T", 0.5)];
    let last = [("s.CNT", 0.0), ("s.S1", 1_000_000.0), ("s.T", 1.0), ("s.VAL", 1.0)];
    assert_eq!(seen(&mut db, queue, &fields), [&first[..], &last].concat());
    put(&mut db, "s.RATE", 100.0);
    assert_eq!(all(&mut db, ["RATE"]), [60.0]);
}

#[test]
fn coutp_announces_a_count_and_cout_follows_its_delay() {
    let mut db = started(
        "record(scaler, \"s\") { field(TP, \"1\") field(DLY, \"1\") field(COUT, \"c PP\") field(COUTP, \"p PP\") }
         record(ao, \"c\") {} record(ao, \"p\") {}",
    );
    let both = |db: &mut Db| [number(db, "c"), number(db, "p")];
    put(&mut db, "s.CNT", 1);
    assert_eq!(both(&mut db), [0.0, 1.0]);
    wait(&mut db, 1.0);
    assert_eq!(both(&mut db), [1.0, 1.0]);
    wait(&mut db, 1.0);
    assert_eq!(both(&mut db), [0.0, 0.0]);
    put(&mut db, "s.CNT", 1);
    put(&mut db, "s.CNT", 0);
    wait(&mut db, 5.0);
    assert_eq!((both(&mut db), all(&mut db, ["US", "T"])), ([0.0, 0.0], [0.0, 1.0]), "a count is withdrawn during DLY");
}

#[test]
fn background_counts_repeat_while_the_user_counts_not_and_leave_cnt_alone() {
    let mut db = scaler("field(TP, \"3\") field(TP1, \"1\") field(DLY1, \"0.5\") field(RAT1, \"4\")");
    put(&mut db, "s.CONT", "AutoCount");
    wait(&mut db, 1.2);
    assert_eq!(all(&mut db, ["T", "CNT", "SS"]), [0.5, 0.0, 2.0], "0.5 s of delay, displayed at 4 Hz");
    wait(&mut db, 0.3);
    assert_eq!((all(&mut db, ["T", "VAL", "SS", "PR1"]), number(&mut db, "n")), ([1.0, 1.0, 1.0, 3e6], 2.0));
    wait(&mut db, 0.7);
    assert_eq!(all(&mut db, ["SS"]), [2.0], "the next one");
    // The user's count has priority, and its result is held for 10 s.
    put(&mut db, "s.CNT", 1);
    wait(&mut db, 3.0);
    assert_eq!(all(&mut db, ["T", "VAL", "CNT"]), [3.0, 3.0, 0.0]);
    wait(&mut db, 9.9);
    assert_eq!(all(&mut db, ["T", "SS"]), [3.0, 1.0]);
    wait(&mut db, 1.2);
    assert_eq!(all(&mut db, ["T"]), [1.0]);
    put(&mut db, "s.CONT", "OneShot");
    wait(&mut db, 2.0);
    assert_eq!(all(&mut db, ["SS", "T"]), [0.0, 1.0]);
}

#[test]
fn a_second_start_is_ignored_and_a_record_that_is_disabled_ends_its_count_later() {
    let mut db = scaler("field(TP, \"2\")");
    put(&mut db, "s.CNT", 1);
    wait(&mut db, 1.0);
    put(&mut db, "s.CNT", 1);
    wait(&mut db, 0.9);
    put(&mut db, "s.DISA", 1);
    wait(&mut db, 0.5);
    assert_eq!(all(&mut db, ["CNT"]), [1.0]);
    put(&mut db, "s.DISA", 0);
    wait(&mut db, 1.0);
    assert_eq!(all(&mut db, ["CNT", "T"]), [0.0, 2.0]);
}

#[test]
fn an_address_that_is_wrong_is_reported() {
    let mut db = started("record(scaler, \"s\") { field(OUT, \"@99\") }");
    assert!(db.take_notices().iter().any(|notice| notice.0.contains("s.OUT: found \"@99\"")));
    assert_eq!((all(&mut db, ["NCH"]), text(&mut db, "s.DTYP")), ([0.0], "Simulated Scaler".into()));
}

#[test]
fn a_background_count_without_time_does_not_block_the_others() {
    let mut db = scaler("field(TP, \"0\") field(PR1, \"0\")");
    put(&mut db, "s.PR1", 0);
    put(&mut db, "s.CONT", "AutoCount");
    wait(&mut db, 0.01);
    assert_eq!(all(&mut db, ["S1", "CNT"]), [0.0, 0.0]);
}

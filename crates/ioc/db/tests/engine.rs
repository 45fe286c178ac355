//! The engine's interface to clients and the shell: subscriptions, completion, scans, adding and removing records.

use base::{Alarm, Array, DurNs, EventMask, MonoNs, Severity, Stamp, Status, Str40, Value};
use db::{Channel, Db, Function, Macros, NotifyState, Now, PutError, RemoteId, RemoteRequest, RemoteUpdate, Token};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

fn now(ms: u64) -> Now {
    Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }.plus_nanos(ms * 1_000_000), mono: MonoNs(ms * 1_000_000) }
}

fn database(text: &str) -> Db {
    let mut db = Db::new();
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db.init(now(0));
    db
}

fn channel(db: &Db, name: &str) -> Channel {
    db.find(name).unwrap_or_else(|error| panic!("{error}"))
}

fn put(db: &mut Db, name: &str, value: impl Into<Value>) {
    let channel = channel(db, name);
    db.put(&channel, &value.into(), now(1)).unwrap();
}

fn get(db: &mut Db, name: &str) -> Value {
    let channel = channel(db, name);
    db.get(&channel, usize::MAX)
}

#[test]
fn updates_are_sent_beyond_the_deadband_and_with_alarm_changes() {
    let mut db = database("record(ao, \"a\") { field(MDEL, 2) field(HIGH, 10) field(HSV, MINOR) field(VAL, 0) }");
    let queue = db.open_queue(100);
    let a = channel(&db, "a");
    db.subscribe(queue, &a, EventMask::VALUE | EventMask::ALARM, 1);
    for value in [1.0, 3.0, 4.0, 11.0, 11.5] {
        put(&mut db, "a", value);
    }
    let mut seen = Vec::new();
    db.drain(queue, 100, |_, event| seen.push((event.value, event.alarm.severity)));
    // The first processing clears the record's initial UDF alarm.
    assert_eq!(seen.first().map(|(value, _)| value.clone()), Some(Value::from(1.0)));
    assert_eq!(seen.last(), Some(&(Value::from(11.0), Severity::Minor)));
    assert!(!seen.contains(&(Value::from(4.0), Severity::None)));
}

#[test]
fn in_a_full_event_queue_the_newest_update_replaces_the_last_one_and_is_counted() {
    let mut db = database("record(longout, \"a\") {}\nrecord(longout, \"b\") {}");
    let queue = db.open_queue(4);
    for (token, name) in ["a", "b"].into_iter().enumerate() {
        let channel = channel(&db, name);
        db.subscribe(queue, &channel, EventMask::VALUE, token as u64);
    }
    for value in 1..=100 {
        put(&mut db, "a", value);
    }
    put(&mut db, "b", 5);
    assert!(db.waiting(queue) <= 8);
    let replaced = db.replaced(queue);
    let mut last = [Value::from(0), Value::from(0)];
    let taken = db.drain(queue, 1_000, |_, event| last[event.token as usize] = event.value);
    assert_eq!(last, [Value::from(100), Value::from(5)]);
    assert_eq!(taken as u64 + replaced, 101);
}

#[test]
fn a_stopped_queue_keeps_one_update_for_each_subscription() {
    let mut db = database("record(longout, \"a\") {}");
    let queue = db.open_queue(100);
    let a = channel(&db, "a");
    db.subscribe(queue, &a, EventMask::VALUE, 0);
    db.flow_control(queue, true);
    for value in 1..=10 {
        put(&mut db, "a", value);
    }
    assert_eq!((db.waiting(queue), db.replaced(queue)), (1, 9));
}

#[test]
fn a_put_with_completion_ends_when_the_whole_chain_has_ended() {
    let mut db = database(
        "record(ao, \"start\") { field(FLNK, \"slow\") }\n\
         record(calcout, \"slow\") { field(CALC, \"1\") field(ODLY, 0.5) field(FLNK, \"end\") }\n\
         record(ao, \"end\") {}",
    );
    let start = channel(&db, "start");
    assert_eq!(db.put_notify(&start, &Value::from(1.0), 77, now(10)), Ok(NotifyState::Pending));
    db.advance(now(100), 100);
    assert!(db.take_completed().is_empty());
    assert_eq!(db.next_deadline(), Some(now(10).mono + DurNs::from_ms(500)));
    db.advance(now(600), 100);
    let tokens: Vec<u64> = db.take_completed().into_iter().map(|completed| completed.token).collect();
    assert_eq!(tokens, [77]);
    let end = channel(&db, "end");
    assert_eq!(db.put_notify(&end, &Value::from(1.0), 78, now(700)), Ok(NotifyState::Done));
}

#[test]
fn a_refused_put_returns_the_reason_and_changes_nothing() {
    let mut db = database("record(bo, \"b\") { field(ZNAM, \"off\") field(ONAM, \"on\") }");
    let b = channel(&db, "b");
    assert_eq!(db.put(&b, &Value::from("maybe"), now(1)), Err(PutError::BadChoice { given: "maybe".into() }));
    let stat = channel(&db, "b.STAT");
    assert_eq!(db.put(&stat, &Value::from(1i16), now(1)), Err(PutError::NoModify));
    put(&mut db, "b.DISP", 1i16);
    assert_eq!(db.put(&b, &Value::from("on"), now(1)), Err(PutError::Disabled));
    assert_eq!(db.get_text(&b).to_str(), "off");
}

#[test]
fn periodic_scans_process_their_records_in_the_order_of_phase() {
    let mut db = database(
        "record(calc, \"late\") { field(SCAN, \"1 second\") field(PHAS, 1) field(CALC, \"A\") field(INPA, \"early\") }\n\
         record(calc, \"early\") { field(SCAN, \"1 second\") field(CALC, \"VAL+1\") }",
    );
    let scan = db.scans().into_iter().find(|scan| scan.records > 0).unwrap();
    assert_eq!((scan.period, scan.records), (DurNs::from_secs(1), 2));
    db.scan(scan.index, now(1_000));
    db.scan(scan.index, now(2_000));
    assert_eq!(get(&mut db, "late"), Value::from(2.0));
    put(&mut db, "early.SCAN", "Passive");
    db.scan(scan.index, now(3_000));
    assert_eq!(get(&mut db, "early"), Value::from(2.0));
}

#[test]
fn a_cp_link_processes_its_holder_on_each_change() {
    let mut db =
        database("record(ao, \"src\") {}\nrecord(calc, \"holder\") { field(CALC, \"A*2\") field(INPA, \"src CP\") }");
    db.advance(now(1), 100);
    put(&mut db, "src", 4.0);
    db.advance(now(2), 100);
    assert_eq!(get(&mut db, "holder"), Value::from(8.0));
}

#[test]
fn a_cp_link_delivers_its_first_value_once_although_its_source_is_processed_at_the_start() {
    let records = |name: &str| {
        format!(
            "record(ao, \"{name}k\") {{ field(VAL, \"3\") field(PINI, \"YES\") }}
             record(calc, \"{name}cp\") {{ field(CALC, \"VAL+1\") field(INPA, \"{name}k CP\") }}
             record(calc, \"{name}cpp\") {{ field(CALC, \"VAL+1\") field(INPA, \"{name}k CP\") field(INPB, \"{name}k CPP\") }}"
        )
    };
    let mut db = database(&records("a"));
    db.load_records(&records("b"), "late.db", &Macros::default(), &mut |_| None).unwrap();
    db.advance(now(1), 100);
    db.init(now(0));
    db.advance(now(1), 100);
    for (name, times) in [("acp", 1.0), ("acpp", 2.0), ("bcp", 1.0), ("bcpp", 2.0)] {
        assert_eq!(get(&mut db, name), Value::from(times), "{name}");
    }
    put(&mut db, "bk", 4.0);
    db.advance(now(1), 100);
    assert_eq!(get(&mut db, "bcp"), Value::from(2.0));
}

#[test]
fn records_can_be_added_and_removed_while_running() {
    let mut db = database("record(ao, \"a\") {}");
    db.load_records(
        "record(ao, \"b\") { field(PINI, YES) field(VAL, 3) field(FLNK, \"a\") }",
        "more.db",
        &Macros::default(),
        &mut |_| None,
    )
    .unwrap();
    db.init(now(5));
    let b = channel(&db, "b");
    assert_eq!(db.alarm(b.record), Alarm::NONE);
    db.remove_record(b.record);
    assert!(db.find("b").is_err());
    db.load_records("record(longout, \"b\") { field(VAL, 7) }", "more.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(6));
    assert_eq!(get(&mut db, "b"), Value::from(7));
}

#[test]
fn endlessly_nested_links_are_stopped_and_counted() {
    let mut text = String::new();
    for n in 0..400 {
        text.push_str(&format!("record(ai, \"n{n}\") {{ field(INP, \"n{} PP MS\") }}\n", n + 1));
    }
    text.push_str("record(ai, \"n400\") {}");
    let mut db = database(&text);
    put(&mut db, "n0.PROC", 1i16);
    assert_eq!(db.counters().too_deep, 1);
    let n0 = channel(&db, "n0");
    assert_eq!(db.alarm(n0.record), Alarm { status: Status::Link, severity: Severity::Invalid });
}

#[test]
fn a_long_chain_of_forward_links_needs_no_stack() {
    let mut text = String::new();
    for n in 0..100_000 {
        text.push_str(&format!("record(ao, \"n{n}\") {{ field(FLNK, \"n{}\") }}\n", n + 1));
    }
    text.push_str("record(ao, \"n100000\") {}");
    let mut db = database(&text);
    put(&mut db, "n0.PROC", 1i16);
    assert_eq!(db.counters().processed, 100_001);
}

#[test]
fn errors_of_malformed_files_name_the_place_and_the_expected_text() {
    for (text, expected) in [
        (
            "record(ai, \"a\") {\n  field(HIHII, 1)\n}",
            "t.db:2:9: ai record \"a\" has no field \"HIHII\"; nearest is \"HIHI\"",
        ),
        ("record(aii, \"a\") {}", "t.db:1:8: no record type \"aii\"; nearest is \"aai\""),
        (
            "record(ai, \"a\") {\n field(PREC, many) }",
            "t.db:2:14: a.PREC cannot be \"many\": expected a number that fits SHORT",
        ),
        ("record(ai, \"a.b\") {}", "t.db:1:12: record name \"a.b\" holds '.', expected letters, digits and _-+:[]<>;"),
        ("record(ai \"a\")", "t.db:1:11: found \"\\\"a\\\"\", expected \",\" after the record type"),
        (
            "recrod(ai, \"a\")",
            "t.db:1:1: found \"recrod\", expected record, grecord, alias, include, menu or breaktable; nearest is \"record\"",
        ),
    ] {
        let error = Db::new().load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap_err().to_string();
        let quoted = expected.replace("\"\\\"a\\\"\"", "\"a\"");
        assert!(error == expected || error == quoted, "{error}");
    }
}

#[test]
fn values_of_remote_links_are_delivered_by_the_shell() {
    let mut db = database("record(ai, \"a\") { field(INP, \"elsewhere CP MS\") }");
    let requests: Vec<RemoteRequest> = std::iter::from_fn(|| db.next_remote()).collect();
    let [RemoteRequest::Connect { id, name, monitor: true, pva: None }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(name, "elsewhere");
    let alarm = Alarm { status: Status::High, severity: Severity::Minor };
    db.remote_update(*id, Value::from(2.5), alarm, Stamp::EPOCH);
    db.advance(now(2), 10);
    assert_eq!(get(&mut db, "a"), Value::from(2.5));
    let a = channel(&db, "a");
    assert_eq!(db.alarm(a.record), Alarm { status: Status::Link, severity: Severity::Minor });
    db.remote_disconnect(*id);
    db.advance(now(3), 10);
    assert_eq!(db.alarm(a.record).severity, Severity::Invalid);
}

/// The PVAccess links of a database, by the name of their channel.
fn pva_links(db: &mut Db) -> HashMap<String, RemoteId> {
    let requests = std::iter::from_fn(|| db.next_remote());
    let each = requests.map(|request| match request {
        RemoteRequest::Connect { id, name, pva: Some(link), .. } if link.pv == name => (name, id),
        other => panic!("{other:?}"),
    });
    each.collect()
}

fn pva_update(id: RemoteId, value: f64, severity: Severity) -> RemoteUpdate {
    let alarm = Alarm { status: Status::Link, severity };
    RemoteUpdate { id, value: Some(Value::from(value)), alarm, stamp: Stamp::from_unix(1_800_000_000, 5), tag: 7 }
}

#[test]
fn a_link_over_pvaccess_has_value_severity_and_time_of_its_channel() {
    let mut db = database(
        "record(ai, \"a\") { field(INP, {pva:{pv:\"far\", proc:\"CP\", sevr:\"MS\", time:true}}) field(TSE, -2) }
         record(ai, \"b\") { field(INP, {pva:\"near\"}) }",
    );
    let links = pva_links(&mut db);
    let (far, near) = (links["far"], links["near"]);
    assert_eq!(get(&mut db, "b.INP"), Value::from("{pva:\"near\"}"), "the text as written");
    db.remote_updates(&mut [pva_update(far, 2.5, Severity::Major)], false, now(2));
    db.remote_updates(&mut [pva_update(near, 3.5, Severity::Major)], false, now(2));
    db.advance(now(2), 10);
    let [a, b] = ["a", "b"].map(|name| channel(&db, name));
    assert_eq!((get(&mut db, "a"), get(&mut db, "b")), (Value::from(2.5), Value::from(0.0)), "only CP processes");
    assert_eq!(db.alarm(a.record), Alarm { status: Status::Link, severity: Severity::Major });
    assert_eq!(db.stamp(a.record), (Stamp::from_unix(1_800_000_000, 5), 7));
    db.process(b.record, now(3));
    assert_eq!((get(&mut db, "b"), db.alarm(b.record).severity), (Value::from(3.5), Severity::None));
    for id in [far, near] {
        db.remote_disconnect(id);
    }
    db.advance(now(4), 10);
    db.process(b.record, now(4));
    for (of, channel) in [("a", &a), ("b", &b)] {
        assert_eq!(db.alarm(channel.record), Alarm { status: Status::Link, severity: Severity::Invalid }, "{of}");
        assert_eq!(get(&mut db, &format!("{of}.AMSG")), Value::from("INP Disconn"));
    }
    assert_eq!((get(&mut db, "a"), get(&mut db, "b")), (Value::from(2.5), Value::from(3.5)), "values are kept");
    assert_eq!(db.stamp(a.record).0, now(3).wall, "the time of the disconnection");
}

#[test]
fn holders_of_atomic_links_are_processed_together_in_their_order() {
    let mut db = database(
        "record(calc, \"sum\") { field(INPA, \"one\") field(INPB, \"two\") field(CALC, \"A+B\") }
         record(ai, \"two\") { field(INP, {pva:{pv:\"x\", field:\"b\", proc:\"CP\", atomic:true, monorder:1}}) field(FLNK, \"sum\") }
         record(ai, \"one\") { field(INP, {pva:{pv:\"y\", field:\"a\", proc:\"CP\", atomic:true}}) }",
    );
    let links = pva_links(&mut db);
    let mut updates = [pva_update(links["y"], 1.0, Severity::None), pva_update(links["x"], 2.0, Severity::None)];
    db.remote_updates(&mut updates, true, now(2));
    assert_eq!(get(&mut db, "sum"), Value::from(3.0), "without a later scan");
    assert!(updates.iter().all(|update| update.value.is_none()), "the previous values return");
}

#[test]
fn a_write_over_pvaccess_without_connection_fails_unless_it_is_retried() {
    let mut db = database(
        "record(ao, \"a\") { field(OUT, {pva:\"x\"}) }
         record(ao, \"b\") { field(OUT, {pva:{pv:\"y\", retry:true}}) }
         record(ai, \"c\") { field(FLNK, {pva:\"z\"}) }",
    );
    let links = pva_links(&mut db);
    for (name, sent) in [("a", None), ("b", Some(links["y"]))] {
        let out = channel(&db, name);
        db.put(&out, &Value::from(2.0), now(2)).unwrap();
        let put = db.next_remote().map(|request| match request {
            RemoteRequest::Put { id, .. } => id,
            other => panic!("{other:?}"),
        });
        assert_eq!(put, sent, "{name}");
        let expected = if sent.is_none() { Severity::Invalid } else { Severity::None };
        assert_eq!(db.alarm(out.record).severity, expected, "{name}");
    }
    let forward = channel(&db, "c").record;
    db.process(forward, now(3));
    assert_eq!(db.next_remote(), None);
    db.remote_connect(links["z"]);
    db.process(forward, now(4));
    assert_eq!(db.next_remote(), Some(RemoteRequest::Process { id: links["z"] }));
    assert_eq!(get(&mut db, "c.AMSG"), Value::from("Disconn"), "of the first processing");
}

#[test]
fn ignored_options_of_a_link_over_pvaccess_are_reported() {
    let mut db = Db::new();
    let text = "record(ai, \"a\") { field(INP, {pva:{pv:\"x\", prok:\"CP\"}}) }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    let notices: Vec<String> = db.take_notices().iter().map(|notice| format!("{notice:?}")).collect();
    assert!(notices.iter().any(|notice| notice.contains("a.INP") && notice.contains("nearest is")), "{notices:?}");
}

#[test]
fn a_link_whose_value_cannot_be_read_passes_on_no_alarm_of_its_source() {
    let mut db = database(
        "record(calc, \"number\") { field(INPA, \"elsewhere MSS\") }
         record(lso, \"words\") { }
         record(calc, \"characters\") { field(INPA, \"words.VAL$ MSS\") }",
    );
    let Some(RemoteRequest::Connect { id, .. }) = db.next_remote() else { panic!("no link elsewhere") };
    let alarm = Alarm { status: Status::Comm, severity: Severity::Invalid };
    for (name, value) in [("number", Value::from("words")), ("characters", Value::from("unused"))] {
        db.remote_update(id, value, alarm, Stamp::EPOCH);
        let record = channel(&db, name).record;
        db.process(record, now(1));
        assert_eq!(db.alarm(record).status, Status::Link, "{name}");
        assert_eq!(get(&mut db, &format!("{name}.AMSG")), Value::from("field INPA"));
    }
}

#[test]
fn an_asynchronous_output_waits_for_the_end_of_its_remote_write() {
    let mut db = database(
        "record(ao, \"a\") { field(DTYP, \"Async Soft Channel\") field(OUT, \"elsewhere\") field(FLNK, \"after\") }
         record(calc, \"after\") { field(CALC, \"A\") field(INPA, \"a\") }
         record(lso, \"text\") { field(DTYP, \"Async Soft Channel\") field(OUT, \"elsewhere\") field(SIZV, 20) }",
    );
    let asked = |db: &mut Db| std::iter::from_fn(|| db.next_remote()).collect::<Vec<_>>();
    for request in asked(&mut db) {
        let RemoteRequest::Connect { id, monitor: false, .. } = request else { panic!("{request:?}") };
        db.remote_connect(id);
    }
    for (name, value, ok) in
        [("a", Value::from(2.5), true), ("text", Value::from("words"), true), ("a", Value::from(3.5), false)]
    {
        let channel = channel(&db, name);
        assert_eq!(db.put_notify(&channel, &value, 7, now(2)), Ok(NotifyState::Pending));
        let requests = asked(&mut db);
        let [RemoteRequest::Put { id, value: sent, notify: true }] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(*sent, value);
        db.advance(now(3), 10);
        assert_eq!((db.next_completed(), get(&mut db, &format!("{name}.PACT"))), (None, Value::from(1u8)));
        // A lost connection also ends it.
        if ok {
            db.remote_written(*id, true)
        } else {
            db.remote_disconnect(*id)
        }
        db.advance(now(4), 10);
        assert_eq!(db.next_completed().map(|done| done.token), Some(7), "{name}");
        assert!(asked(&mut db).is_empty(), "no request is repeated");
        let expected = if ok { Severity::None } else { Severity::Invalid };
        assert_eq!(db.alarm(channel.record).severity, expected);
    }
    assert_eq!(get(&mut db, "after"), Value::from(3.5));
}

#[test]
fn a_function_may_end_later_and_puts_with_completion_wait_for_it() {
    let mut db = Db::new();
    let tokens: Arc<Mutex<Vec<Token>>> = Arc::default();
    let given = tokens.clone();
    db.register_function(
        "slow",
        Function::Sub(Arc::new(move |sub| {
            // Three steps: two waits, then a result.
            *sub.call.user += 1;
            if *sub.call.user % 3 != 0 {
                assert_eq!(sub.call.resumed, *sub.call.user % 3 == 2);
                given.lock().unwrap().push(sub.call.later());
                return -1;
            }
            *sub.val = 10.0 * sub.inputs[0];
            sub.call.alarm = Alarm { status: Status::Comm, severity: Severity::Minor };
            0
        })),
    );
    let given = tokens.clone();
    db.register_function(
        "slow array",
        Function::ASub(Arc::new(move |sub| {
            if !sub.call.resumed {
                given.lock().unwrap().push(sub.call.later());
            }
            sub.outputs[0] = Array::F64(vec![sub.call.resumed.into(); 2]);
            0
        })),
    );
    let text = "record(sub, \"s\") { field(SNAM, \"slow\") field(A, 4) field(INPA, \"source\") field(FLNK, \"after\") }
        record(ai, \"source\") { field(VAL, 4) field(PINI, YES) }
        record(calc, \"after\") { field(CALC, \"A\") field(INPA, \"s\") }
        record(aSub, \"as\") { field(SNAM, \"slow array\") field(FTVA, DOUBLE) field(NOVA, 2) field(OUTA, \"w PP\") }
        record(waveform, \"w\") { field(FTVL, DOUBLE) field(NELM, 2) }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    let s = channel(&db, "s.PROC");
    assert_eq!(db.put_notify(&s, &Value::from(1i16), 7, now(2)), Ok(NotifyState::Pending));
    let take = || tokens.lock().unwrap().pop().unwrap();
    let first = take();
    assert_eq!(Token::from_words(first.to_words()), first);
    // Inputs that change in the meantime are not read again.
    put(&mut db, "source", 9.0);
    assert!(db.finish_function(first) && !db.finish_function(first), "a token counts once");
    db.advance(now(3), 10);
    assert_eq!((get(&mut db, "s.PACT"), db.next_completed()), (Value::from(1u8), None));
    assert!(!db.finish_function(first), "a token of an earlier step is refused");
    assert!(db.finish_function(take()));
    db.advance(now(4), 10);
    assert_eq!(get(&mut db, "after"), Value::from(40.0));
    assert_eq!(db.alarm(s.record), Alarm { status: Status::Comm, severity: Severity::Minor });
    assert_eq!(db.next_completed().map(|done| done.token), Some(7));

    put(&mut db, "as.PROC", 1i16);
    assert_eq!(get(&mut db, "w.NORD"), Value::from(0u32));
    assert!(db.finish_function(take()));
    db.advance(now(5), 10);
    assert_eq!(get(&mut db, "w"), Value::from(vec![1.0, 1.0]));
}

#[test]
fn a_function_reads_fields_of_its_record_and_changes_some() {
    let mut db = Db::new();
    let initial = Arc::new(Mutex::new(Vec::new()));
    let seen = initial.clone();
    db.register_function(
        "f",
        Function::Sub(Arc::new(move |sub| {
            let fields = &mut sub.call.fields;
            assert_eq!((fields.description, fields.units.bytes()), (&b"text"[..], &b"mm"[..]));
            seen.lock().unwrap().push((fields.trace, fields.precision));
            assert_eq!(sub.call.initial, seen.lock().unwrap().len() == 1);
            (fields.bad_return, fields.trace, fields.precision, fields.undefined) = (1, 0, 4, 0);
            (fields.time, fields.time_event) = (Stamp { secs: 7, nanos: 8 }, -2);
            if !sub.call.initial {
                fields.units = Str40::new(b"a unit of more than 15 characters");
                sub.call.alarm = Alarm { status: Status::Read, severity: Severity::Major };
                sub.call.message = Str40::new(b"no answer");
            }
            -1
        })),
    );
    // One name may belong to a function of each kind.
    db.register_function(
        "f",
        Function::ASub(Arc::new(|sub| {
            assert_eq!((sub.call.fields.value, sub.capacity[0], sub.room[0]), (0, 3, 1));
            sub.call.fields.time = Stamp { secs: 7, nanos: 8 };
            5
        })),
    );
    let text = "record(sub, \"s\") { field(INAM, \"f\") field(SNAM, \"f\") field(DESC, \"text\") field(TPRO, 1) field(PREC, 3) field(EGU, \"mm\") field(UDFS, NO_ALARM) }
        record(aSub, \"as\") { field(SNAM, \"f\") field(NOA, 3) }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    put(&mut db, "s.PROC", 1i16);
    put(&mut db, "as.PROC", 1i16);
    let of = |db: &mut Db, name| channel(db, name).record;
    let (s, array) = (of(&mut db, "s"), of(&mut db, "as"));
    assert_eq!(db.alarm(s), Alarm { status: Status::Read, severity: Severity::Major });
    assert_eq!(get(&mut db, "s.AMSG"), Value::from("no answer"));
    assert_eq!(get(&mut db, "s.EGU"), Value::from("a unit of more "));
    assert_eq!((get(&mut db, "s.PREC"), get(&mut db, "s.TPRO")), (Value::from(4i16), Value::from(0u8)));
    assert_eq!(get(&mut db, "s.UDF"), Value::from(0u8));
    assert_eq!(db.stamp(s).0, Stamp { secs: 7, nanos: 8 });
    assert_ne!(db.stamp(array).0, Stamp { secs: 7, nanos: 8 });
    assert_eq!(get(&mut db, "as"), Value::from(5i32));
    assert_eq!(*initial.lock().unwrap(), [(1, 3), (0, 4)]);
}

#[test]
fn missing_functions_of_inam_and_snam_are_both_reported() {
    let mut db = Db::new();
    let text = r#"record(sub, "s") { field(INAM, "first") field(SNAM, "second") }
        record(aSub, "as") { field(INAM, "first") field(SNAM, "second") }"#;
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    let notices = db.take_notices();
    let expected = ["s.INAM", "s.SNAM", "as.INAM", "as.SNAM"];
    assert_eq!(notices.len(), expected.len(), "{notices:?}");
    for (notice, field) in notices.iter().zip(expected) {
        assert!(notice.0.starts_with(field) && notice.0.ends_with("dlload FILE"), "{notice:?}");
    }
}

#[test]
fn sub_and_asub_records_call_registered_functions() {
    let mut db = Db::new();
    db.register_function(
        "sum",
        Function::Sub(Arc::new(|call| {
            *call.call.user += 1;
            *call.val = call.inputs[0] + call.inputs[1];
            if *call.val < 0.0 { -1 } else { 0 }
        })),
    );
    db.register_function(
        "reverse",
        Function::ASub(Arc::new(|call| {
            let Array::F64(values) = &call.inputs[0] else { return -1 };
            call.outputs[0] = Array::F64(values.iter().rev().copied().collect());
            // The type differs from FTVB, so it is converted.
            call.outputs[1] = Array::I32(vec![values.len() as i32; 9]);
            0
        })),
    );
    let text = "record(sub, \"s\") { field(SNAM, \"sum\") field(INPA, 2) field(INPB, 3) field(BRSV, \"MAJOR\") }
        record(aSub, \"as\") { field(SNAM, \"reverse\") field(FTA, \"DOUBLE\") field(NOA, 4) field(INPA, [1,2,3])
            field(FTVA, \"DOUBLE\") field(NOVA, 4) field(OUTA, \"w PP\") field(FTVB, \"DOUBLE\") field(NOVB, 2) }
        record(aao, \"w\") { field(FTVL, \"DOUBLE\") field(NELM, 4) }
        record(sub, \"wrong\") { field(SNAM, \"reverse\") }";
    db.load_records(text, "t.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    let notices: Vec<String> = db.take_notices().into_iter().map(|notice| notice.0).collect();
    assert!(
        matches!(&notices[..], [one] if one.starts_with("wrong.SNAM: no function \"reverse\" for sub records")),
        "{notices:?}"
    );
    put(&mut db, "s.PROC", 1i16);
    put(&mut db, "as.PROC", 1i16);
    put(&mut db, "wrong.PROC", 1i16);
    assert_eq!(get(&mut db, "s"), Value::from(5.0));
    assert_eq!(get(&mut db, "w"), Value::Array(Array::F64(vec![3.0, 2.0, 1.0])));
    assert_eq!(get(&mut db, "as.VALB"), Value::Array(Array::F64(vec![3.0, 3.0])));
    assert_eq!(get(&mut db, "as.NEVB"), Value::from(2u32));
    put(&mut db, "s.A", -10.0);
    put(&mut db, "s.PROC", 1i16);
    let (s, wrong) = (channel(&db, "s"), channel(&db, "wrong"));
    assert_eq!(db.alarm(s.record), Alarm { status: Status::Soft, severity: Severity::Major });
    assert_eq!(db.alarm(wrong.record), Alarm { status: Status::BadSub, severity: Severity::Invalid });
}

/// The values that a subscription with filters receives while `a` (an ao) takes these values.
fn filtered(db: &mut Db, name: &str, values: &[f64]) -> Vec<f64> {
    let queue = db.open_queue(100);
    let watched = channel(db, name);
    db.subscribe(queue, &watched, EventMask::VALUE | EventMask::ALARM, 1);
    for value in values {
        put(db, "a", *value);
    }
    let mut seen = Vec::new();
    db.drain(queue, 100, |_, event| match event.value {
        Value::Scalar(base::Scalar::F64(value)) => seen.push(value),
        other => panic!("{other:?}"),
    });
    db.close_queue(queue);
    seen
}

#[test]
fn filters_apply_to_the_events_of_their_subscription_only() {
    let mut db = database("record(ao, \"a\") {}");
    db.set_state("on", false);
    let values = [1.0, 2.0, 3.0, 10.0, 11.0, 100.0];
    put(&mut db, "a", 0.0);
    assert_eq!(filtered(&mut db, "a.VAL{dbnd:{abs:3}}", &values), [0.0, 10.0, 100.0]);
    put(&mut db, "a", 0.0);
    // The initial value counts as the first.
    assert_eq!(filtered(&mut db, "a.VAL{dec:{n:3}}", &values), [0.0, 3.0, 100.0]);
    put(&mut db, "a", 100.0);
    assert_eq!(filtered(&mut db, "a.VAL{dbnd:{rel:10}}", &[105.0, 112.0, 120.0, 130.0]), [100.0, 112.0, 130.0]);
    put(&mut db, "a", 0.0);
    // The filters apply in order: every second value of those that moved by 3.
    assert_eq!(filtered(&mut db, "a.VAL{dbnd:{abs:3},dec:{n:2}}", &values), [0.0, 100.0]);
    let error = db.find("a.VAL{dec:{n:2}}{dec:{n:2}}").unwrap_err().to_string();
    assert!(error.contains("expected nothing more"), "{error}");
}

#[test]
fn a_state_filter_passes_events_before_at_and_after_its_changes() {
    for (mode, expected) in [
        ("before", vec![2.0]),
        ("first", vec![3.0]),
        ("while", vec![3.0, 4.0]),
        ("last", vec![4.0]),
        ("after", vec![5.0]),
        ("unless", vec![0.0, 1.0, 2.0, 5.0, 6.0]),
    ] {
        let mut db = database("record(ao, \"a\") {}");
        db.set_state("on", false);
        let queue = db.open_queue(100);
        let watched = channel(&db, &format!("a.VAL{{sync:{{{mode}:'on'}}}}"));
        db.subscribe(queue, &watched, EventMask::VALUE, 1);
        for value in 1..=6 {
            db.set_state("on", (3..=4).contains(&value));
            put(&mut db, "a", f64::from(value));
        }
        let mut seen = Vec::new();
        db.drain(queue, 100, |_, event| seen.push(event.value));
        assert_eq!(seen, expected.iter().map(|value| Value::from(*value)).collect::<Vec<_>>(), "{mode}");
    }
}

#[test]
fn filters_change_the_value_that_is_read_and_its_reported_type() {
    let mut db =
        database("record(waveform, \"w\") { field(FTVL, \"DOUBLE\") field(NELM, 8) field(INP, [1,2,3,4,5,6]) }");
    put(&mut db, "w.PROC", 1i16);
    let mut read = |name: &str| {
        let channel = channel(&db, name);
        let info = db.info(&channel);
        (info.kind, info.elements_max, db.get(&channel, usize::MAX))
    };
    use base::FieldType::{F64, String, U32};
    assert_eq!(read("w.VAL[1:3]{arr:{i:2}}"), (F64, 2, Value::Array(Array::F64(vec![2.0, 4.0]))));
    assert_eq!(read("w.VAL{ts:{num:'sec'}}"), (U32, 1, Value::from(1_000_000_000u32)));
    assert_eq!(
        read("w.VAL{ts:{num:'ts',epoch:'unix'}}"),
        (U32, 2, Value::Array(Array::U32(vec![1_631_152_000, 1_000_000])))
    );
    assert_eq!(read("w.VAL{ts:{str:'iso'}}"), (String, 1, Value::from("2021-09-09T01:46:40.001000+0000")));
    assert_eq!(read("w.VAL{dbnd:{abs:1},utag:{M:1}}").1, 8);
}

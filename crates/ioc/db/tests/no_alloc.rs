//! Once a database is started, processing and monitors allocate no memory: scalars, texts and arrays, links of all kinds,
//! alarms, deadbands, events, interrupts, monitors.

use base::{EventMask, MonoNs, Stamp, Value};
use db::{Db, Macros, Now};

#[global_allocator]
static ALLOCATOR: sys::alloc::Counting = sys::alloc::Counting;

const TEXT: &str = r#"
record(calc, "ramp") { field(SCAN, ".1 second") field(CALC, "A<9?A+1:0") field(INPA, "ramp") field(FLNK, "all") }
record(fanout, "all") { field(LNK1, "numbers") field(LNK2, "texts") field(LNK3, "arrays") field(LNK4, "states") }
record(ai, "numbers") { field(INP, "ramp MS") field(HIHI, 8) field(HHSV, MAJOR) field(HIGH, 5) field(HSV, MINOR) field(FLNK, "n2") field(MDEL, 1) }
record(longin, "n2") { field(INP, "numbers MSS") field(FLNK, "n3") }
record(int64in, "n3") { field(INP, "n2") field(FLNK, "n4") }
record(ao, "n4") { field(DOL, "n3") field(OMSL, closed_loop) field(OUT, "n5 PP MS") field(OROC, 2) field(FLNK, "n6") }
record(longout, "n5") { field(OUT, "n7 PP") }
record(calcout, "n6") { field(CALC, "A*2") field(INPA, "n4") field(OUT, "n8 PP") field(OOPT, "On Change") field(OEVT, "go") }
record(sel, "n7") { field(INPA, "ramp") field(INPB, "n4") field(SELM, "High Signal") }
record(dfanout, "n8") { field(OUTA, "n9 PP") field(OMSL, closed_loop) field(DOL, "ramp") }
record(ao, "n9") {}
record(calc, "waits") { field(SCAN, Event) field(EVNT, go) field(CALC, "A+1") field(INPA, "waits") }
record(ai, "line") { field(PRIO, HIGH) field(INP, "ramp") }
record(stringin, "texts") { field(INP, "ramp") field(FLNK, "t2") }
record(stringout, "t2") { field(DOL, "texts") field(OMSL, closed_loop) field(OUT, "t3 PP") field(FLNK, "t4") }
record(stringin, "t3") {}
record(lsi, "t4") { field(INP, "texts") field(SIZV, 60) }
record(waveform, "arrays") { field(INP, "source") field(FTVL, DOUBLE) field(NELM, 64) field(FLNK, "a2") field(MPST, "On Change") }
record(waveform, "source") { field(FTVL, FLOAT) field(NELM, 64) }
record(aai, "a2") { field(INP, "arrays") field(FTVL, LONG) field(NELM, 64) field(FLNK, "a3") }
record(subArray, "a3") { field(INP, "arrays") field(FTVL, DOUBLE) field(MALM, 64) field(NELM, 8) field(INDX, 4) field(FLNK, "a4") }
record(aao, "a4") { field(DOL, "a2") field(OMSL, closed_loop) field(FTVL, SHORT) field(NELM, 64) field(OUT, "a5 PP") field(FLNK, "a6") }
record(waveform, "a5") { field(FTVL, DOUBLE) field(NELM, 64) }
record(compress, "a6") { field(INP, "ramp") field(ALG, "Circular Buffer") field(NSAM, 16) field(FLNK, "a7") }
record(histogram, "a7") { field(SVL, "ramp") field(NELM, 10) field(ULIM, 10) field(FLNK, "a8") }
record(waveform, "a8") { field(INP, "strings") field(FTVL, STRING) field(NELM, 4) }
record(waveform, "strings") { field(FTVL, STRING) field(NELM, 4) }
record(bi, "states") { field(INP, "ramp") field(ZNAM, off) field(ONAM, on) field(OSV, MINOR) field(FLNK, "s2") }
record(mbbi, "s2") { field(INP, "ramp") field(ZRVL, 0) field(ONVL, 1) field(ONST, one) field(FLNK, "s3") }
record(mbboDirect, "s3") { field(DOL, "ramp") field(OMSL, closed_loop) field(FLNK, "s4") }
record(bo, "s4") { field(DOL, "states") field(OMSL, closed_loop) field(OUT, "s5 PP") }
record(mbbo, "s5") { field(ZRVL, 0) field(ONVL, 1) field(FLNK, "b1") }
record(ao, "b1") { field(DOL, "ramp") field(OMSL, closed_loop) field(OUT, "b2.B0 PP") field(FLNK, "b3") }
record(mbboDirect, "b2") {}
record(ao, "b3") { field(DOL, "ramp") field(OMSL, closed_loop) field(OUT, "b4.SGNL PP") }
record(histogram, "b4") { field(NELM, 10) field(ULIM, 10) }
"#;

fn now(ms: u64) -> Now {
    Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }.plus_nanos(ms * 1_000_000), mono: MonoNs(ms * 1_000_000) }
}

#[test]
fn processing_and_posting_allocate_and_free_nothing() {
    let mut db = Db::new();
    db.load_records(TEXT, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db.init(now(0));
    for (name, value) in [
        ("source", Value::from((0..64).map(|at| at as f32).collect::<Vec<_>>())),
        ("strings", Value::from(vec![base::Str40::from("a"), base::Str40::from("b")])),
    ] {
        let channel = db.find(name).unwrap();
        db.put(&channel, &value, now(1)).unwrap();
    }
    let source = db.source("card");
    let line = db.find("line.SCAN").unwrap();
    db.listen(line.record, Some(source));
    db.put(&line, &Value::from("I/O Intr"), now(1)).unwrap();
    let queue = db.open_queue(1_000);
    db.reserve_subscriptions(queue, 200);
    let names: Vec<String> = db.records().map(|record| db.name_of(record).to_owned()).collect();
    let mut channels = Vec::new();
    for name in &names {
        for field in ["VAL", "SEVR", "STAT"] {
            let Ok(channel) = db.find(&format!("{name}.{field}")) else { continue };
            db.subscribe(queue, &channel, EventMask(0xF), channels.len() as u64);
            // The subscriber provides the memory for arrays.
            let mut room = db.get(&channel, usize::MAX);
            let info = db.info(&channel);
            let most = info.elements_max as usize;
            // A long text that was never written has no element at first, and is a text later.
            if let (true, Value::Array(array)) = (info.array, &room) {
                room = Value::Array(base::Array::zeros(array.kind(), most));
            }
            channels.push((channel, room));
        }
    }
    db.reserve_arrays();
    let scan = db.scans().into_iter().find(|scan| scan.name == ".1 second").unwrap().index;
    let before = (sys::alloc::thread_counts().unwrap(), db.counters().processed);
    let mut seen = 0;
    for pass in 1..=100 {
        db.scan(scan, now(100 * pass));
        db.interrupt(source);
        db.advance(now(100 * pass), 1_000);
        while let Some((_, posted)) = db.next_posted(queue) {
            seen += 1;
            let (channel, room) = &mut channels[posted.token as usize];
            if posted.value.is_none() {
                db.get_into(channel, usize::MAX, room);
            }
        }
    }
    let after = (sys::alloc::thread_counts().unwrap(), db.counters().processed);
    assert!(after.1 - before.1 > 100 * (names.len() as u64 - 4), "{} records processed", after.1 - before.1);
    assert!(seen > 1_000, "{seen} posts");
    let asked = (after.0.taken - before.0.taken, after.0.given - before.0.given);
    assert_eq!(asked, (0, 0), "blocks allocated and freed in 100 passes");
    assert_eq!(db.counters().too_deep, 0);
    let counted = db.find("b4").unwrap();
    let Value::Array(base::Array::U32(bins)) = db.get(&counted, usize::MAX) else { panic!("counts") };
    assert!(bins.iter().sum::<u32>() >= 100, "a link counts: {bins:?}");
}

#[test]
fn a_search_for_an_unknown_name_allocates_nothing() {
    let mut db = Db::new();
    db.load_records("record(ai, \"a\") {}", "test.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(0));
    let before = sys::alloc::thread_counts().unwrap();
    let found = ["b", "b.VAL", "a.NONE", "a.VAL{bad", "a.", "a.DESC$"].map(|name| db.has_field(name));
    let after = sys::alloc::thread_counts().unwrap();
    assert_eq!(found, [false, false, false, true, true, true]);
    assert_eq!(after.taken - before.taken, 0);
}

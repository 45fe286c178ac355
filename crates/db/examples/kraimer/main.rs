//! The benchmark database of S2.2 in both readings: time per record, in chains (F) and through inputs (P).
//!
//! CPU time of this thread, not wall time: neighbours on the machine do not count.
//!
//! `cargo run --release -p db --example kraimer [-- COPIES [SCANS]]`

use base::{EventMask, MonoNs, Stamp, Value};
use db::{Db, Macros, Now};
use std::fmt::Write;
use std::time::Instant;

fn database(copies: usize, recursive: bool) -> String {
    let mut text = String::new();
    for copy in 0..copies {
        let p = format!("c{copy}:");
        write!(text, "record(fanout,\"{p}main\"){{").unwrap();
        for link in 0..6 {
            write!(text, "field(LNK{},\"{p}sub{}\")", link + 1, if link % 2 == 0 { "A" } else { "B" }).unwrap();
        }
        text.push_str("}\n");
        for sub in ["A", "B"] {
            write!(text, "record(fanout,\"{p}sub{sub}\"){{").unwrap();
            for calc in 1..=5 {
                write!(text, "field(LNK{calc},\"{p}c{sub}{calc}\")").unwrap();
            }
            text.push_str("}\n");
            for calc in 1..=5 {
                let c = format!("{p}c{sub}{calc}");
                let (input, forward) =
                    if recursive { (format!("{c}_1 PP"), String::new()) } else { (format!("{c}_9"), format!("{c}_1")) };
                writeln!(
                    text,
                    "record(calc,\"{c}\"){{field(CALC,\"A+1\")field(INPA,\"{input}\")field(FLNK,\"{forward}\")}}"
                )
                .unwrap();
                for ai in 1..=9 {
                    let (input, forward) = if recursive {
                        (if ai == 9 { "1".into() } else { format!("{c}_{} PP", ai + 1) }, String::new())
                    } else {
                        (
                            if ai == 1 { c.clone() } else { format!("{c}_{}", ai - 1) },
                            if ai == 9 { String::new() } else { format!("{c}_{}", ai + 1) },
                        )
                    };
                    writeln!(text, "record(ai,\"{c}_{ai}\"){{field(INP,\"{input}\")field(FLNK,\"{forward}\")}}")
                        .unwrap();
                }
            }
        }
    }
    text
}

fn now(start: Instant) -> Now {
    let mono = start.elapsed().as_nanos() as u64;
    Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }.plus_nanos(mono), mono: MonoNs(mono) }
}

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of nanoseconds")
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let copies = arguments.next().unwrap_or(1).max(1);
    let scans = arguments.next().unwrap_or(3_000_000 / (307 * copies) + 1).max(1);
    let start = Instant::now();
    for (reading, recursive) in [("F", false), ("P", true)] {
        for monitors in [false, true] {
            let mut db = Db::new();
            db.load_records(&database(copies, recursive), "kraimer.db", &Macros::default(), &mut |_| None).unwrap();
            db.init(now(start));
            let queue = db.open_queue(1_000);
            if monitors {
                let records: Vec<_> = db.records().collect();
                for record in records {
                    if ["calc", "ai"].contains(&db.type_name(record)) {
                        let channel = db.find(db.name_of(record)).unwrap();
                        db.subscribe(queue, &channel, EventMask::VALUE, 0);
                    }
                }
            }
            let mains: Vec<_> = (0..copies).map(|copy| db.find(&format!("c{copy}:main.PROC")).unwrap()).collect();
            let one = Value::from(1u8);
            let mut best = f64::INFINITY;
            let mut updates = 0;
            for _ in 0..5 {
                let before = db.counters().processed;
                let begin = cpu_ns();
                for _ in 0..scans {
                    let now = now(start);
                    for main in &mains {
                        db.put(main, &one, now).unwrap();
                    }
                    if monitors {
                        updates += db.drain(queue, usize::MAX, |_, event| drop(std::hint::black_box(event)));
                    }
                }
                let records = (db.counters().processed - before) as f64;
                best = best.min((cpu_ns() - begin) / records);
            }
            println!(
                "reading {reading}, {copies} copies, {}: {best:.2} ns per record ({updates} updates)",
                if monitors { "all calc and ai monitored" } else { "no monitors" }
            );
        }
    }
}

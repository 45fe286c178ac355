//! Time per record of the benchmark database of ANL/APS in both readings: records linked by forward links (F) and by
//! inputs (P).
//!
//! Measures CPU time of this thread, so that other load on the machine does not count.
//!
//! `cargo run --release -p db --example kraimer [-- COPIES [SCANS]]`

mod database;

use base::{EventMask, MonoNs, Stamp, Value};
use database::{RECORDS_PER_PASS, Reading, kraimer, monitored};
use db::{Db, Macros, Now};
use std::time::Instant;

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
    let scans = arguments.next().unwrap_or(3_000_000 / (RECORDS_PER_PASS as usize * copies) + 1).max(1);
    let start = Instant::now();
    for (name, reading) in [("F", Reading::Forward), ("P", Reading::Passive)] {
        let text = kraimer(copies, reading, "Passive");
        for monitors in [false, true] {
            let mut db = Db::new();
            db.load_records(&text, "kraimer.db", &Macros::default(), &mut |_| None).unwrap();
            db.init(now(start));
            let queue = db.open_queue(1_000);
            if monitors {
                for name in (0..copies).flat_map(monitored) {
                    let channel = db.find(&name).unwrap();
                    db.subscribe(queue, &channel, EventMask::VALUE, 0);
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
                "reading {name}, {copies} copies, {}: {best:.2} ns per record ({updates} updates)",
                if monitors { "all calc and ai monitored" } else { "no monitors" }
            );
        }
    }
}

//! Load time and memory of many `ai` records with five fields each. Their inputs are links, or the constant INP.
//!
//! `cargo run --release -p db --example load [-- RECORDS [INP]]`

use base::{MonoNs, Stamp};
use db::{Db, Macros, Now};
use std::fmt::Write;
use std::time::Instant;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let constant = std::env::args().nth(2);
    let mut text = String::new();
    for n in 0..count {
        let input = constant.clone().unwrap_or_else(|| format!("load:rec{}", n / 2));
        writeln!(
            text,
            "record(ai, \"load:rec{n}\") {{\n  field(DESC, \"Record {n}\")\n  field(EGU, \"mm\")\n  field(PREC, 3)\n  field(HIHI, 10)\n  field(INP, \"{input}\")\n}}"
        )
        .unwrap();
    }
    let before = resident();
    let start = Instant::now();
    let mut db = Db::new();
    db.load_records(&text, "load.db", &Macros::default(), &mut |_| None).unwrap();
    let loaded = start.elapsed();
    db.init(Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, mono: MonoNs(0) });
    let done = start.elapsed();
    let bytes = resident().saturating_sub(before);
    println!(
        "{count} ai records: read in {:.2} s, running after {:.2} s, {} bytes each",
        loaded.as_secs_f64(),
        done.as_secs_f64(),
        bytes / count
    );
}

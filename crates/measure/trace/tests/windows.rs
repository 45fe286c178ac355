//! Windows of a recording as files, and in other formats: the real trace of `stored.rs`, written and read again.

use base::{CpuSet, DurNs, MonoNs};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trace::stored::{Head, Page, Stored, StoredError, Thread, write};
use trace::{Clocks, EVENTS, EventKind, Symbols};

const HEADER: &str = include_str!("linux-6.18/header_page");
const FORMATS: &str = include_str!("linux-6.18/formats");
const SYMBOLS: &str = include_str!("linux-6.18/kallsyms");
const PAGES: &[u8] = include_bytes!("linux-6.18/cpu1.raw");
/// The thread of `cyclictest` that waits for its timer.
const TID: i32 = 15986;

fn head() -> Head {
    let format = |path: &str| {
        let section = FORMATS.split("# ").find(|section| section.starts_with(&format!("{path}\n")))?;
        Some((path.to_owned(), section.to_owned()))
    };
    Head {
        kernel: "Linux 6.18".into(),
        little_endian: true,
        reason: "a test".into(),
        at: MonoNs(5_000_000),
        cpus: CpuSet::single(1),
        threads: vec![Thread { tid: TID, pid: TID - 1, name: "cyclictest".into(), every_class: false }],
        above: DurNs::from_us(1),
        hypervisor: true,
        clocks: Clocks { wall: 1_700_000_000_000_000_000, boot: 7_000, tai: 0 },
        header_page: HEADER.into(),
        formats: EVENTS.iter().filter_map(|row| format(row.path)).collect(),
        ..Head::default()
    }
}

/// A window as a file, with the names of its functions.
fn file() -> Vec<u8> {
    let pages = || PAGES.chunks(4096).map(|bytes| Page { lane: 3, cpu: 1, bytes });
    let bytes = write(&head(), pages());
    let events = Stored::read(&bytes).unwrap().events().unwrap();
    let symbols = Symbols::parse(SYMBOLS);
    let addresses = trace::stored::addresses(events.into_iter().filter_map(|(.., event)| Some(event?.what)));
    let named = |address| Some((address, symbols.name(address)?.to_owned()));
    write(&Head { functions: addresses.into_iter().filter_map(named).collect(), ..head() }, pages())
}

#[test]
fn a_stored_window_is_explained_without_the_recorder() {
    let bytes = file();
    let stored = Stored::read(&bytes).unwrap();
    let events = stored.events().unwrap();
    let (explainer, lates) = stored.explain(&events, 100);
    // 36 ms at 1 kHz, each later than 1 µs.
    assert!((34..=37).contains(&lates.len()), "{}", lates.len());
    assert_eq!(explainer.real_time().delays.count(), lates.len() as u64);
    for late in &lates {
        assert_eq!(late.parts.iter().map(|part| part.ns).sum::<u64>(), late.delay_ns());
    }
    // The file contains the names of functions.
    let names: Vec<String> = lates.iter().flat_map(|late| &late.stack).cloned().collect();
    assert!(names.iter().any(|name| name == "asm_sysvec_apic_timer_interrupt"), "{names:?}");
    let missing: Vec<&str> = stored.missing().map(|row| row.path).collect();
    assert!(missing.contains(&"timer/hrtimer_init") && !missing.contains(&"sched/sched_switch"), "{missing:?}");
}

#[test]
fn a_malformed_or_foreign_window_is_refused_with_the_reason() {
    let bytes = file();
    assert_eq!(Stored::read(b"").unwrap_err(), StoredError::Form);
    assert_eq!(Stored::read(b"tahti trace 2\n{}\n").unwrap_err(), StoredError::Form);
    assert!(matches!(Stored::read(b"tahti trace 1\n{}\n").unwrap_err(), StoredError::Head(_)));
    assert!(matches!(Stored::read(b"tahti trace 1\n{").unwrap_err(), StoredError::Head(_)));
    let other = write(&Head { little_endian: false, ..head() }, std::iter::empty());
    assert_eq!(Stored::read(&other).unwrap_err(), StoredError::Endianness);
    assert!(matches!(Stored::read(&bytes[..bytes.len() - 1]).unwrap_err(), StoredError::Short { .. }));
    let broken = write(&Head { header_page: "odd".into(), ..head() }, std::iter::empty());
    assert!(matches!(Stored::read(&broken).unwrap().events().unwrap_err(), StoredError::Formats(_)));
}

proptest! {
    #[test]
    fn damaged_windows_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = file();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len()).max(bytes.len() / 2));
        if let Ok(stored) = Stored::read(&bytes) {
            let _ = trace::export::perfetto(&stored);
            let _ = trace::export::chrome(&stored);
        }
    }
}

/// A field of a protocol-buffer message, parsed independently of the writer.
#[derive(Clone, Debug, PartialEq)]
enum Wire {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// All fields of a message, by number.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Wire>> {
    let mut all: BTreeMap<u64, Vec<Wire>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (text, rest) = bytes.split_at(length);
                bytes = rest;
                Wire::Bytes(text.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        all.entry(key >> 3).or_default().push(wire);
    }
    all
}

fn messages(of: &BTreeMap<u64, Vec<Wire>>, field: u64) -> Vec<BTreeMap<u64, Vec<Wire>>> {
    let bytes = |wire: &Wire| match wire {
        Wire::Bytes(bytes) => fields(bytes),
        Wire::Number(number) => panic!("{number} is no message"),
    };
    of.get(&field).into_iter().flatten().map(bytes).collect()
}

fn number(of: &BTreeMap<u64, Vec<Wire>>, field: u64) -> u64 {
    match of.get(&field).map(Vec::as_slice) {
        Some([Wire::Number(number)]) => *number,
        other => panic!("field {field}: {other:?}"),
    }
}

fn text(of: &BTreeMap<u64, Vec<Wire>>, field: u64) -> String {
    match of.get(&field).map(Vec::as_slice) {
        Some([Wire::Bytes(bytes)]) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("field {field}: {other:?}"),
    }
}

#[test]
fn the_perfetto_export_has_every_switch_and_every_delay_with_its_culprit() {
    let bytes = file();
    let stored = Stored::read(&bytes).unwrap();
    let events = stored.events().unwrap();
    let (_, lates) = stored.explain(&events, 0);
    let packets = messages(&fields(&trace::export::perfetto(&stored).unwrap()), 1);
    let bundles: Vec<_> = packets.iter().flat_map(|packet| messages(packet, 1)).collect();
    assert!(bundles.iter().all(|bundle| number(bundle, 1) == 1), "CPU 1 alone");
    let kernel: Vec<_> = bundles.iter().flat_map(|bundle| messages(bundle, 2)).collect();
    let switches: Vec<_> = kernel.iter().filter(|event| event.contains_key(&4)).collect();
    let expected: Vec<_> = events
        .iter()
        .filter_map(|(at, _, event)| match &event.as_ref()?.what {
            EventKind::Switch { to, .. } => Some((at.0 + 7_000, to.tid as u64, to.prio as u64, to.name.to_string())),
            _ => None,
        })
        .collect();
    let found: Vec<_> = switches
        .iter()
        .map(|event| {
            let switch = &messages(event, 4)[0];
            (number(event, 1), number(switch, 6), number(switch, 7), text(switch, 5))
        })
        .collect();
    assert_eq!(found, expected);
    // Slices begin and end in pairs, each within the previously begun one.
    let (mut open, mut told) = (BTreeMap::<u64, Vec<u64>>::new(), Vec::new());
    for packet in packets.iter().filter(|packet| packet.contains_key(&11)) {
        let (at, event) = (number(packet, 8), &messages(packet, 11)[0]);
        let open = open.entry(number(event, 11)).or_default();
        match number(event, 9) {
            1 => {
                open.push(at);
                let details: BTreeMap<_, _> =
                    messages(event, 4).iter().map(|detail| (text(detail, 10), text(detail, 6))).collect();
                told.extend(details.get("culprit").map(|culprit| (at, culprit.clone(), details["priority"].clone())));
            }
            _ => assert!(open.pop().is_some_and(|begun| begun <= at)),
        }
    }
    assert!(open.values().all(Vec::is_empty));
    told.sort();
    let mut expected: Vec<_> = lates
        .iter()
        .map(|late| (late.due.0 + 7_000, late.worst().unwrap().to_string(), "real-time 80".to_owned()))
        .collect();
    expected.sort();
    assert_eq!(told, expected);
    let tracks: Vec<String> =
        packets.iter().flat_map(|packet| messages(packet, 60)).map(|track| text(&track, 2)).collect();
    assert!(tracks.contains(&format!("cyclictest ({TID})")), "{tracks:?}");
}

#[test]
fn the_chrome_export_is_json_with_the_delays_that_were_found() {
    let bytes = file();
    let stored = Stored::read(&bytes).unwrap();
    let (_, lates) = stored.explain(&stored.events().unwrap(), 0);
    let whole: Value = serde_json::from_str(&trace::export::chrome(&stored).unwrap()).unwrap();
    let slices: Vec<&Value> =
        whole["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    let late: Vec<&&Value> = slices.iter().filter(|slice| slice["args"]["culprit"].is_string()).collect();
    assert_eq!(late.len(), lates.len());
    let longest = lates.iter().map(|late| late.delay_ns()).max().unwrap() as f64 / 1e3;
    assert!(late.iter().any(|slice| slice["dur"].as_f64() == Some(longest)));
    assert!(slices.iter().any(|slice| slice["name"] == "softirq TIMER"));
    // Perfetto keeps 32 bits of a thread's number, and would otherwise draw several rows as one.
    let numbers: BTreeSet<u64> = late.iter().map(|slice| slice["tid"].as_u64().unwrap()).collect();
    assert!(numbers.iter().all(|number| *number < 1 << 31), "{numbers:?}");
    let rows: BTreeSet<u64> = whole["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "M" && event["name"] == "thread_name" && event["pid"] == late[0]["pid"])
        .map(|event| event["tid"].as_u64().unwrap())
        .collect();
    assert!(rows.is_superset(&numbers), "each row has a name: {rows:?} {numbers:?}");
}

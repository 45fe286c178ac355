//! Events that programs themselves report, among the kernel's events.

use base::{DurNs, MonoNs};
use serde_json::json;
use trace::stored::{self, Head, Stored, Thread};
use trace::{Event, EventKind, Explainer, Facts, Item, Late, Name, PROGRAM_EVENTS_SHOWN, ProgramEvent, Task, export};

const TID: i32 = 7;

fn reported(at: u64, tid: i32, name: &str, value: i64) -> ProgramEvent {
    ProgramEvent { at: MonoNs(at), cpu: 1, tid, name: name.into(), value }
}

fn kernel(at: u64, tid: i32, what: EventKind) -> Item {
    (MonoNs(at), 1, Some(Event { at: MonoNs(at), cpu: 1, tid, interrupt: false, what }))
}

#[test]
fn a_delay_has_the_last_events_that_its_thread_reported_before() {
    let control = Task { tid: TID, prio: 19, name: Name::of(b"control") };
    let logger = Task { tid: 9, prio: 120, name: Name::of(b"logger") };
    let mut explainer = Explainer::new(Facts::default(), DurNs::from_us(20), None, 10);
    explainer.watch(TID, "control");
    let mut late: Vec<Late> = Vec::new();
    let mut take = |item: Item| explainer.take(&item, |one| late.push(one.clone()));
    let program = |event: ProgramEvent| (event.at, event.cpu, Some(Event::from(&event)));
    (1..=5).for_each(|number| take(program(reported(100 * number, TID, "exposure", number as i64))));
    take(program(reported(700, 9, "of another thread", 1)));
    take(kernel(1_000, TID, EventKind::Switch { from: control, state: 1, to: logger }));
    take(kernel(5_000, 9, EventKind::Waking { task: control, cpu: 1 }));
    // Reported while the thread waits, as by a clock that runs ahead: it belongs to the next delay.
    take(program(reported(90_000, TID, "readout", 9)));
    take(kernel(65_000, 9, EventKind::Switch { from: logger, state: 0, to: control }));
    assert_eq!((late.len(), late[0].delay_ns()), (1, 60_000), "{late:?}");
    let shown: Vec<i64> = late[0].program_events.iter().map(|event| event.value).collect();
    assert_eq!((shown, PROGRAM_EVENTS_SHOWN), (vec![2, 3, 4, 5], 4));
    let counts: Vec<(String, u64)> =
        explainer.program_events().iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(
        counts,
        [("exposure".to_owned(), 5), ("readout".to_owned(), 1)],
        "those of threads that are not watched are ignored"
    );
}

#[test]
fn a_window_keeps_the_events_and_both_exports_draw_them() {
    let formats = include_str!("linux-6.18/formats");
    let formats = formats.split("# ").filter_map(|section| {
        let (path, _) = section.split_once('\n')?;
        Some((path.to_owned(), section.to_owned()))
    });
    let head = Head {
        little_endian: cfg!(target_endian = "little"),
        header_page: include_str!("linux-6.18/header_page").into(),
        formats: formats.collect(),
        threads: vec![Thread { tid: TID, pid: 6, name: "control".into(), every_class: false }],
        program_events: vec![reported(2_000, TID, "exposure", -3), reported(3_000, TID, "readout", 4)],
        ..Head::default()
    };
    let bytes = stored::write(&head, std::iter::empty());
    let read = Stored::read(&bytes).unwrap();
    assert_eq!(read.head.program_events, head.program_events);
    let times: Vec<u64> = read.events().unwrap().into_iter().map(|(at, ..)| at.0).collect();
    assert_eq!(times, [2_000, 3_000]);
    let chrome: serde_json::Value = serde_json::from_str(&export::chrome(&read).unwrap()).unwrap();
    let instants = chrome["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "i");
    let instants: Vec<_> = instants.map(|event| json!([event["name"], event["args"]["value"], event["ts"]])).collect();
    assert_eq!(serde_json::Value::from(instants), json!([["exposure", -3, 0.0], ["readout", 4, 1.0]]));
    let perfetto = export::perfetto(&read).unwrap();
    let text = String::from_utf8_lossy(&perfetto);
    assert!(text.contains("I|7|exposure -3") && text.contains("I|7|readout 4"), "{text}");
}

#[test]
fn a_window_of_an_earlier_version_is_readable() {
    let bytes =
        stored::write(&Head { little_endian: cfg!(target_endian = "little"), ..Head::default() }, std::iter::empty());
    let text = String::from_utf8(bytes).unwrap();
    let mut before = text;
    for added in [",\"program_events\":[]", ",\"processes\":{}", ",\"shortfall\":null"] {
        assert!(before.contains(added), "{before}");
        before = before.replace(added, "");
    }
    assert_eq!(
        Stored::read(before.as_bytes()).unwrap().head,
        Head { little_endian: cfg!(target_endian = "little"), ..Head::default() }
    );
}

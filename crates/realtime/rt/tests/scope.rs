//! The oscilloscope on the variables of a running loop.

use base::DurNs;
use ring::Counter;
use rt::scope::{Cause, Condition, Mode, Oscilloscope, Phase, Request, Rows, Timing, marks};
use rt::{Exports, Flow, LoopSpec, Number, Rt, SharedPage, VariableSpec};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// If set, the test binary is a reader that runs until it is killed.
const LOOK: &str = "TAHTI_TEST_SCOPE";

/// A loop at 2 kHz. It exports a sawtooth of 100 pulses and its pulse number, and misses its deadline on request.
struct Loop {
    name: String,
    page: SharedPage,
    miss: Arc<AtomicBool>,
    missed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    armed: Rt<rt::Armed>,
}

impl Loop {
    fn start(what: &str) -> Self {
        let name = format!("test-{what}-{}", std::process::id());
        let exports = Exports::open(&name, 2).unwrap();
        let add = |name, first| exports.add(&VariableSpec { name, unit: "V", first, safe: None }).unwrap();
        let (saw, number) = (add("saw", Number::Float(0.0)), add("number", Number::Int(0)));
        let page = SharedPage::own(what).unwrap();
        let [miss, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let missed = Arc::new(AtomicU64::new(0));
        let (misses, stops, at, shown) = (miss.clone(), stop.clone(), missed.clone(), exports.clone());
        let mut rt = Rt::new();
        let spec = LoopSpec { exports: Some(exports), ..LoopSpec::new(what, DurNs::from_us(500)) };
        rt.add_loop(spec, page.clone(), move |pulse| {
            shown.set(saw, Number::Float((pulse.number % 100) as f64), pulse.number, pulse.woke);
            shown.set(number, Number::Int(pulse.number as i64), pulse.number, pulse.woke);
            if misses.swap(false, Ordering::Relaxed) {
                at.store(pulse.number, Ordering::Relaxed);
                sys::clock::sleep_until(pulse.due + DurNs::from_us(1700));
            }
            if stops.load(Ordering::Relaxed) { Flow::Stop } else { Flow::Continue }
        });
        let mut armed = rt.arm().unwrap();
        assert!(!armed.missing().any(|missing| missing.to_string().contains("oscilloscope")));
        armed.start(DurNs::from_ms(5));
        Self { name, page, miss, missed, stop, armed }
    }

    fn open(&self) -> Oscilloscope {
        Oscilloscope::open(&self.name).unwrap()
    }

    /// Ends the loop, and checks that it has neither allocated nor faulted.
    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        until(|| self.armed.is_over().then_some(()));
        self.armed.stop();
        let read = self.page.read();
        assert_eq!((read.counter(Counter::Allocations), read.counter(Counter::Frees)), (0, 0));
        assert_eq!((read.counter(Counter::MinorFaults), read.counter(Counter::MajorFaults)), (0, 0));
    }
}

fn until<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let watchdog = Instant::now();
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(watchdog.elapsed() < Duration::from_secs(60), "it hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn request(condition: Condition, on: Option<&str>) -> Request {
    let timing = Timing { mode: Mode::Normal, pre: 50, length: 200, every: 1, holdoff: 0, patience: 0, captures: 1 };
    let channels = vec!["number".to_owned(), "saw".to_owned()];
    Request { channels, timing, condition, on: on.map(str::to_owned), keep: 4, detached: false }
}

fn each(rows: &Rows) -> Vec<&[u64]> {
    rows.words.chunks(rows.row_words).collect()
}

/// Checks that pulse numbers are contiguous, except for the missing ones that a row counts, and that values fit the pulse.
fn is_contiguous(rows: &Rows) {
    for row in each(rows) {
        assert_eq!((row[3], f64::from_bits(row[4])), (row[0], (row[0] % 100) as f64));
    }
    for pair in each(rows).windows(2) {
        assert_eq!(pair[1][0], pair[0][0] + 1 + (pair[1][2] >> 32));
    }
}

#[test]
fn an_edge_is_captured_with_the_rows_before_and_after_it() {
    let running = Loop::start("edge");
    let scope = running.open();
    assert_eq!(scope.status(), None);
    let id = scope.set_up(&request(Condition::Falling { level: 50.0, hysteresis: 0.0 }, Some("saw"))).unwrap();
    let (number, rows) = until(|| scope.captured(0).pop());
    assert_eq!((number, rows.cause, rows.trigger, each(&rows).len()), (0, Some(Cause::Condition), Some(50), 200));
    is_contiguous(&rows);
    let trigger = each(&rows)[50];
    assert!(f64::from_bits(trigger[4]) <= 50.0 && f64::from_bits(each(&rows)[49][4]) > 50.0);
    let status = scope.status().unwrap();
    assert_eq!((status.id, status.phase, status.captures), (id, Phase::Stopped, 1));
    assert_eq!(scope.captured(0).pop().unwrap().1, rows, "the capture is kept");
    running.end();
}

#[test]
fn a_missed_deadline_triggers_a_capture_and_is_the_row_at_the_trigger() {
    let running = Loop::start("miss");
    let scope = running.open();
    let mut wanted = request(Condition::Miss, None);
    // A busy machine may miss more deadlines.
    wanted.timing.captures = 0;
    let id = scope.set_up(&wanted).unwrap();
    let mut from = 0;
    let found = until(|| {
        // One miss for each capture. Otherwise the status might show the pulse of another one.
        until(|| scope.status().filter(|status| status.id == id && status.phase == Phase::Armed));
        running.miss.store(true, Ordering::Relaxed);
        until(|| scope.status().filter(|status| status.captures > from));
        let captures = scope.captured(from);
        captures.into_iter().find_map(|(number, rows)| {
            from = number + 1;
            is_contiguous(&rows);
            let at = rows.trigger.unwrap();
            assert!(each(&rows)[at][2] & marks::MISS != 0, "the trigger is a miss");
            (each(&rows)[at][0] == running.missed.load(Ordering::Relaxed)).then_some(rows)
        })
    });
    let after = each(&found)[found.trigger.unwrap() + 1];
    assert!(after[2] & marks::OVERRUN != 0 && after[2] >> 32 >= 2, "1.7 ms are two pulses and more");
    running.end();
}

#[test]
fn a_setup_is_changed_while_the_loop_runs_and_captures_are_forced() {
    let running = Loop::start("force");
    let scope = running.open();
    scope.set_up(&request(Condition::Never, None)).unwrap();
    let mut wanted = request(Condition::Never, None);
    (wanted.timing.captures, wanted.keep) = (0, 3);
    let id = scope.set_up(&wanted).unwrap();
    until(|| scope.status().filter(|status| status.id == id && status.phase == Phase::Armed));
    for number in 0..5 {
        scope.force(if number == 4 { Cause::Alarm } else { Cause::Forced }).unwrap();
        until(|| scope.status().filter(|status| status.captures == number + 1));
    }
    let kept = scope.captured(0);
    assert!((2..=3).contains(&kept.len()) && kept.last().unwrap().0 == 4, "the newest are kept");
    assert_eq!(kept.last().unwrap().1.cause, Some(Cause::Alarm));
    kept.iter().for_each(|(_, rows)| is_contiguous(rows));
    let refused = Request { keep: 1, ..wanted.clone() };
    assert!(scope.set_up(&refused).unwrap_err().to_string().contains("expected 2 to 64"));
    wanted.timing.mode = Mode::Roll;
    let id = scope.set_up(&wanted).unwrap();
    until(|| scope.status().filter(|status| status.id == id));
    let rows = until(|| scope.latest(100).filter(|rows| each(rows).len() == 100));
    is_contiguous(&rows);
    scope.stop().unwrap();
    until(|| scope.status().filter(|status| status.phase == Phase::Stopped));
    running.end();
}

#[test]
fn a_killed_reader_leaves_nothing_but_a_detached_trigger() {
    if let Ok(name) = std::env::var(LOOK) {
        let scope = Oscilloscope::open(&name).unwrap();
        let timing = Timing { captures: 0, mode: Mode::Auto, ..request(Condition::Never, None).timing };
        scope.set_up(&Request { timing, ..request(Condition::Never, None) }).unwrap();
        loop {
            assert!(scope.captured(0).len() <= 4);
        }
    }
    let running = Loop::start("killed");
    let scope = running.open();
    let here = std::env::current_exe().unwrap();
    let mut reader = Command::new(here);
    reader.args(["--exact", "a_killed_reader_leaves_nothing_but_a_detached_trigger"]);
    let mut reader = reader.env(LOOK, &running.name).spawn().unwrap();
    until(|| scope.status().filter(|status| status.captures > 2));
    reader.kill().unwrap();
    reader.wait().unwrap();
    until(|| scope.status().filter(|status| status.phase == Phase::Stopped));
    let before = running.page.read().counter(Counter::Cycles);
    until(|| (running.page.read().counter(Counter::Cycles) > before + 100).then_some(()));
    let detached = Request { detached: true, ..request(Condition::Above { level: -1.0 }, Some("saw")) };
    let first = running.open();
    let id = first.set_up(&detached).unwrap();
    drop(first);
    until(|| scope.status().filter(|status| status.id == id && status.captures == 1));
    assert_eq!(each(&scope.captured(0).pop().unwrap().1).len(), 200, "it was captured without a client");
    running.end();
}

#[test]
fn variables_are_sampled_by_one_thread_and_unsampled_ones_have_no_oscilloscope() {
    let name = format!("test-nobody-{}", std::process::id());
    let exports = Exports::open(&name, 1).unwrap();
    let why = Oscilloscope::open(&name).unwrap_err().to_string();
    assert!(why.contains("have no oscilloscope") && why.contains("tahti_export_cycle"), "{why}");
    let sampler = exports.sampler().unwrap();
    assert!(exports.sampler().unwrap_err().to_string().contains("another thread already"));
    drop(sampler);
    assert!(exports.sampler().is_ok());
    // Any user can open a socket whose name is not valid text.
    let strange = [b"tahti-variables-\xff\x1b".as_slice(), name.as_bytes()].concat();
    let _strange = UnixListener::bind_addr(&SocketAddr::from_abstract_name(strange).unwrap()).unwrap();
    let found = rt::scope::exported().unwrap();
    assert!(found.contains(&(name.clone(), true)), "{found:?}");
    let scope = Oscilloscope::open(&name).unwrap();
    let asked = request(Condition::Miss, None);
    assert!(scope.set_up(&asked).unwrap_err().to_string().contains("\"number\" is not exported here"));
}

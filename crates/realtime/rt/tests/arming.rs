//! A loop on the test machine, with any privileges.

use base::{DurNs, Lateness, ResultDeadline};
use ring::{Counter, PageState, Wait};
use rt::{Event, EventLoop, Exports, Flow, LoopSpec, Number, Pulse, Rt, SharedPage, VariableSpec, Watch};
use std::sync::Mutex;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// Runs a loop for `cycles` and returns its page.
fn looped(spec: LoopSpec, cycles: u64, mut body: impl FnMut(u64) + Send + 'static) -> (SharedPage, Vec<u64>) {
    let page = SharedPage::own(&spec.name).unwrap();
    let numbers = std::sync::Arc::new(Mutex::new(Vec::with_capacity(cycles as usize)));
    let seen = numbers.clone();
    let mut rt = Rt::new();
    let mut done = 0;
    rt.add_loop(spec, page.clone(), move |pulse| {
        body(done);
        seen.lock().unwrap().push(pulse.number);
        done += 1;
        if done == cycles { Flow::Stop } else { Flow::Continue }
    });
    let mut armed = rt.arm().unwrap();
    let tid = armed.tids().next().unwrap();
    let watch = Watch::begin(page.clone(), tid, None);
    armed.start(DurNs::from_ms(5));
    let watchdog = std::time::Instant::now();
    while !armed.is_over() {
        assert!(watchdog.elapsed() < Duration::from_secs(60), "the loop hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    armed.stop();
    watch.end();
    let numbers = numbers.lock().unwrap().clone();
    (page, numbers)
}

#[test]
fn a_loop_neither_allocates_nor_faults_once_it_is_armed() {
    for wait in [Wait::Sleep, Wait::Both { spin: DurNs::from_us(50) }] {
        let (page, numbers) = looped(LoopSpec { wait, ..LoopSpec::new("steady", DurNs::from_ms(1)) }, 100, |_| {});
        let read = page.read();
        assert_eq!(read.state(), PageState::Ended);
        assert_eq!(read.counter(Counter::Cycles), 100);
        assert_eq!((read.counter(Counter::Allocations), read.counter(Counter::Frees)), (0, 0));
        assert_eq!((read.counter(Counter::MinorFaults), read.counter(Counter::MajorFaults)), (0, 0));
        assert_eq!(read.wake().count(), 100 + read.counter(Counter::Overruns));
        assert!(read.wake().min().unwrap() >= DurNs::ZERO, "never early");
        // If the previous cycle was delayed for long, no time is left to sleep.
        let prompt =
            read.wake().buckets().filter(|(_, to, _)| *to < DurNs::from_us(500)).map(|bucket| bucket.2).sum::<u64>();
        assert!(read.counter(Counter::VoluntarySwitches) * 10 >= prompt * 9, "it sleeps between its pulses");
        assert_eq!(numbers.len(), 100);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let skipped = numbers[99] - numbers[0] - 99;
        assert_eq!(skipped, read.counter(Counter::Overruns), "each number that is missing was counted");
    }
}

#[test]
fn safe_values_apply_from_a_result_after_its_hard_deadline_until_one_is_in_time() {
    let name = format!("hard-{}", std::process::id());
    let exports = Exports::open(&name, 1).unwrap();
    let (first, safe) = (Number::Float(1.0), Some(Number::Float(-1.0)));
    exports.add(&VariableSpec { name: "drive", unit: "", first, safe }).unwrap();
    let page = SharedPage::own("hard").unwrap();
    let at = DurNs::from_ms(500);
    page.read().set_deadline(Some(ResultDeadline { at, late: Lateness::Hard }));
    let imports = rt::Imports::open(&name).unwrap();
    let stands = move || imports.get("drive").unwrap().safe;
    let mut rt = Rt::new();
    let spec = LoopSpec { exports: Some(exports), ..LoopSpec::new("hard", DurNs::from_ms(10)) };
    let (mut cycles, mut stood) = (0, false);
    rt.add_loop(spec, page.clone(), move |pulse| {
        cycles += 1;
        if cycles == 1 {
            assert!(!stands() && !pulse.is_void(pulse.due + at) && pulse.is_void(pulse.due + DurNs(at.0 + 1)));
            std::thread::sleep(Duration::from_millis(600));
            return Flow::Continue;
        }
        // On a slow machine later cycles may be late, too.
        let (before, now) = (stood, stands());
        stood |= now;
        if before && !now { Flow::Stop } else { Flow::Continue }
    });
    let mut armed = rt.arm().unwrap();
    armed.start(DurNs::from_ms(5));
    let watchdog = std::time::Instant::now();
    while !armed.is_over() {
        assert!(watchdog.elapsed() < Duration::from_secs(60), "safe values were active, and no longer are");
        std::thread::sleep(Duration::from_millis(5));
    }
    armed.stop();
    let tally = page.read().tally().unwrap();
    assert!(tally.late >= 1 && tally.due > tally.late, "{tally:?}");
    assert_eq!(tally.worth % 1_000_000, 0, "a hard result has its whole value or zero");
}

#[test]
fn an_event_loop_measures_from_the_time_of_each_event_and_counts_missing_numbers() {
    struct Numbers(u64);
    impl EventLoop for Numbers {
        fn await_event(&mut self) -> Option<Event> {
            self.0 += 1;
            sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_us(100));
            // Of ten events, one is not delivered and one is never made.
            let at = sys::clock::mono_now() + DurNs::from_us(-50);
            (self.0 % 10 > 1).then_some(Event { number: self.0, at })
        }

        fn cycle(&mut self, pulse: &Pulse) -> Flow {
            assert_eq!(pulse.skipped, if pulse.number % 10 == 2 && pulse.number > 2 { 2 } else { 0 });
            if pulse.number == 99 { Flow::Stop } else { Flow::Continue }
        }
    }
    let page = SharedPage::own("events").unwrap();
    let mut rt = Rt::new();
    rt.add_events(LoopSpec::new("events", DurNs::from_ms(1000)), page.clone(), Numbers(0));
    let mut armed = rt.arm().unwrap();
    armed.start(DurNs::ZERO);
    let watchdog = std::time::Instant::now();
    while !armed.is_over() {
        assert!(watchdog.elapsed() < Duration::from_secs(60), "the loop hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    armed.stop();
    let read = page.read();
    assert_eq!((read.counter(Counter::Cycles), read.counter(Counter::Overruns)), (80, 18));
    assert_eq!((read.counter(Counter::Allocations), read.counter(Counter::MinorFaults)), (0, 0));
    assert!(read.wake().min().unwrap() >= DurNs::from_us(50), "from the time of the event");
    assert_eq!(read.heartbeat().unwrap().cycle.pulse, 99);
}

#[test]
fn locks_conditions_and_barriers_neither_allocate_nor_fault_in_a_loop() {
    let (mutex, changed) = (rt::Mutex::new(0u64).unwrap(), rt::Condition::new().unwrap());
    let (lock, alone) = (rt::Lock::create(1).unwrap(), rt::Barrier::new(1).unwrap());
    let (page, _) = looped(LoopSpec::new("team", DurNs::from_ms(1)), 50, move |_| {
        *mutex.lock().unwrap() += 1;
        drop(lock.lock().unwrap());
        changed.signal();
        assert!(!changed.ticket().wait(Some(DurNs::from_us(10))));
        assert_eq!(alone.wait(DurNs::ZERO, None), rt::Met::Last);
    });
    let read = page.read();
    assert_eq!((read.counter(Counter::Cycles), read.counter(Counter::Allocations)), (50, 0));
    assert_eq!((read.counter(Counter::MinorFaults), read.counter(Counter::MajorFaults)), (0, 0));
}

#[test]
fn allocations_of_a_loop_are_counted() {
    let (page, _) = looped(LoopSpec::new("leaky", DurNs::from_ms(1)), 20, |_| {
        std::hint::black_box(vec![1u8; 100]);
    });
    let read = page.read();
    assert_eq!((read.counter(Counter::Allocations), read.counter(Counter::Frees)), (20, 20));
}

#[test]
fn a_cycle_that_outlasts_its_period_is_counted_and_the_phase_is_kept() {
    let slow = |cycle| {
        if cycle == 5 {
            std::thread::sleep(Duration::from_millis(7));
        }
    };
    let (page, numbers) = looped(LoopSpec::new("slow", DurNs::from_ms(1)), 20, slow);
    let read = page.read();
    assert!(read.counter(Counter::Late) >= 1);
    assert!(read.counter(Counter::Overruns) >= 6, "{}", read.counter(Counter::Overruns));
    let identity = read.identity().unwrap();
    let trail = read.trail().unwrap();
    let mut cursor = trail.from_oldest();
    let mut cycles = Vec::new();
    while let Some(cycle) = trail.next(&mut cursor) {
        cycles.push(ring::Cycle::from(cycle));
    }
    assert_eq!(cycles.iter().map(|cycle| cycle.pulse).collect::<Vec<_>>(), numbers);
    for cycle in cycles {
        let due = identity.first_due.0 + (cycle.pulse - identity.first_pulse) * 1_000_000;
        assert_eq!(cycle.expected.0, due, "pulse {} is in phase", cycle.pulse);
    }
}

#[test]
fn a_cpu_that_is_not_obtained_is_reported_and_not_shown_as_obtained() {
    let mut rt = Rt::new();
    let spec = LoopSpec { cpu: Some(1023), ..LoopSpec::new("nowhere", DurNs::from_ms(1)) };
    let page = SharedPage::own("nowhere").unwrap();
    rt.add_loop(spec, page.clone(), |_| Flow::Stop);
    let mut armed = rt.arm().unwrap();
    let missing: Vec<String> = armed.missing().map(ToString::to_string).collect();
    assert!(missing.iter().any(|text| text.contains("nowhere: CPU 1023")), "{missing:?}");
    armed.start(DurNs::ZERO);
    while !armed.is_over() {
        std::thread::yield_now();
    }
    armed.stop();
    let online = std::thread::available_parallelism().unwrap().get();
    assert_eq!(
        page.read().identity().unwrap().cpu.is_none(),
        online > 1,
        "the page has the actual state, not the request"
    );
}

#[test]
fn signals_are_blocked_in_the_thread_of_a_loop() {
    let (tell, told) = std::sync::mpsc::channel();
    let (page, _) = looped(LoopSpec::new("deaf", DurNs::from_ms(1)), 1, move |_| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        tell.send(u64::from_str_radix(blocked, 16).unwrap()).unwrap();
    });
    assert_eq!(page.read().counter(Counter::Cycles), 1);
    let blocked = told.recv().unwrap();
    // Signal N is bit N - 1: HUP, INT, USR1, TERM, CHLD, ALRM, PROF, XCPU.
    for signal in [1, 2, 10, 15, 17, 14, 27, 24] {
        assert!(blocked & 1 << (signal - 1) != 0, "signal {signal}: {blocked:x}");
    }
    for own in [4, 5, 6, 7, 8, 11, 31] {
        assert!(blocked & 1 << (own - 1) == 0, "signal {own} is unblocked: {blocked:x}");
    }
}

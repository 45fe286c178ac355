//! Frames with real threads, without privileges: order within minors, joining, and endings.

mod served;

use base::{DurNs, MonoNs, Priority};
use frame::{Activity, Config, Spec, TimeBase};
use ring::{ActivityCounter, AtomicU64, FrameBorder, FrameCounter, FramePage, FrameShape, Presence};
use rt::Exports;
use rt::frames::{Cause, Member, Report, Runner, Watcher, hand_trigger, trigger, what_word};
use served::{PATIENCE, Served, Triggered, begins_a_minor_with_each_tick, drive, serve};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

#[test]
fn activities_run_in_order_with_the_number_of_their_pulse() {
    let served = Served::new("order", TimeBase::Timer, 2, &["first", "second", "third"], PATIENCE);
    let calls = Mutex::new(Vec::new());
    scope(|scope| {
        for (index, name) in ["first", "second", "third"].into_iter().enumerate() {
            let (served, calls) = (&served, &calls);
            scope.spawn(move || {
                let mut member = served.join(name).unwrap();
                for _ in 0..20 {
                    let turn = member.next_turn().unwrap();
                    calls.lock().unwrap().push((turn.pulse, index, turn.minor));
                }
            });
        }
    });
    let calls = calls.into_inner().unwrap();
    assert_eq!(calls.len(), 60);
    // A busy machine loses minors, but never the order within one.
    for pair in calls.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1, "{pair:?} in {calls:?}");
    }
    assert!(calls.iter().all(|(pulse, _, minor)| pulse % 2 == u64::from(*minor)), "pulses count minors: {calls:?}");
}

#[test]
fn a_refused_join_returns_the_reason() {
    let served = Served::new("doors", TimeBase::Software, 1, &["control"], PATIENCE);
    let refusal = served.join("controll").unwrap_err().to_string();
    assert!(refusal.contains("no such activity; expected one of control"), "{refusal}");
    let member = served.join("control").unwrap();
    let refusal = served.join("control").unwrap_err().to_string();
    assert!(refusal.contains("has joined as it already"), "{refusal}");
    drop(member);
    // The frame detects that the member left, and its place is free again.
    served.until("its place is free", || served.join("control").is_ok());
    assert!(Watcher::open(&served.name).unwrap().page().counter(FrameCounter::Refused) >= 2);
    let absent = Member::join("test/absent", "a", None, DurNs(0)).unwrap_err();
    assert!(absent.to_string().contains("no frame \"test/absent\" runs here"), "{absent}");
    let again = Spec::new(&served.name, vec![DurNs::from_ms(1)], vec![Activity::new("a", Some(DurNs(1)), 0..1)]);
    let config = Config { spec: again, cpu: None, priority: Priority(50), join_within: PATIENCE, followers: vec![] };
    assert!(Runner::new(config).err().unwrap().to_string().contains("runs already"));
}

#[test]
fn an_activity_whose_thread_ends_without_leaving_has_died_although_its_process_lives() {
    let mut served = Served::new("thread", TimeBase::Timer, 1, &["control", "other"], PATIENCE);
    scope(|scope| {
        let other = scope.spawn(|| {
            let mut other = served.join("other").unwrap();
            let watcher = Watcher::open(&served.name).unwrap();
            let until = sys::clock::mono_now() + PATIENCE;
            while other.next_turn().is_some() && sys::clock::mono_now() < until {
                if watcher.page().who(0).0 == Presence::Died {
                    return true;
                }
            }
            false
        });
        let ended = scope.spawn(|| {
            let mut control = served.join("control").unwrap();
            control.next_turn().unwrap();
            std::mem::forget(control);
        });
        ended.join().unwrap();
        assert!(other.join().unwrap(), "it is reported as dead");
        served.join("control").unwrap();
    });
    let reports = served.end();
    assert!(reports.contains(&Report::Gone("control".to_owned(), false)), "{reports:?}");
}

#[test]
fn a_client_that_reads_no_answers_is_disconnected_and_delays_no_other() {
    let mut served = Served::new("flood", TimeBase::Timer, 1, &["control"], PATIENCE);
    let mut member = served.join("control").unwrap();
    let watcher = Watcher::open(&served.name).unwrap();
    // The server answers each request with the page. At some point the client's buffer has no space for another answer.
    let silent = sys::handover::connect(&rt::frames::address(&served.name)).unwrap();
    while sys::handover::send(silent.as_fd(), b"watch", &[]).unwrap() {}
    assert_eq!(watcher.page().counter(FrameCounter::HungUp), 1);
    // The next client is served, and the frame continues.
    assert!(Watcher::open(&served.name).is_ok() && served.join("control").is_err());
    (0..3).for_each(|_| assert!(member.next_turn().is_some()));
    drop(member);
    let reports = served.end();
    let told = |report: &Report| matches!(report, Report::Refused(why) if why.contains("reads no answers"));
    assert_eq!(reports.iter().filter(|report| told(report)).count(), 1, "{reports:?}");
}

#[test]
fn each_software_trigger_begins_one_minor() {
    let served = Served::new("software", TimeBase::Software, 1, &["control"], PATIENCE);
    let pulses = scope(|scope| {
        let member = scope.spawn(|| {
            let mut member = served.join("control").unwrap();
            let mut pulses = vec![];
            while pulses.len() < 6 {
                pulses.push(member.next_turn().unwrap().pulse);
            }
            // Triggers during the work are lost, not run in a burst. Then one more follows.
            let watcher = Watcher::open(&served.name).unwrap();
            sys::futex::count_up(watcher.page().trigger_word(), 10);
            served.until("they are lost", || watcher.page().counter(FrameCounter::Lost) >= 9);
            let _triggered = Triggered::start(&served.name);
            pulses.push(member.next_turn().unwrap().pulse);
            pulses
        });
        // The first trigger begins the first minor. One more follows for each call that has ended.
        for calls in 0..=5 {
            served.until("its call has ended", || {
                let made = |watcher: Watcher| watcher.page().activity_counter(0, ActivityCounter::Calls);
                Watcher::open(&served.name).is_ok_and(|watcher| made(watcher) >= calls)
            });
            trigger(&served.name).unwrap();
        }
        member.join().unwrap()
    });
    assert!(pulses[..6].windows(2).all(|pair| pair[1] == pair[0] + 1), "{pulses:?}");
    assert!(pulses[6] > pulses[5] + 10, "{pulses:?}");
}

#[test]
fn the_thread_for_oscilloscope_requests_does_not_run_on_the_cpu_of_the_frame() {
    let cpus = sys::sched::affinity(0).unwrap();
    let name = format!("test{}/placed", std::process::id());
    let activity = Activity::new("control", Some(DurNs::from_us(100)), 0..1);
    let spec = Spec { base: TimeBase::Software, ..Spec::new(&name, vec![DurNs::from_ms(2)], vec![activity]) };
    let (cpu, followers) = (cpus.iter().next(), Vec::new());
    let config = Config { spec, cpu, priority: Priority(50), join_within: PATIENCE, followers };
    let (stop, (tell, ready)) = (AtomicBool::new(false), channel());
    scope(|scope| {
        let frame = scope.spawn(|| serve(Runner::new(config).unwrap(), &stop, &tell, &Mutex::default()));
        ready.recv().unwrap();
        // The frame binds the joining thread to its CPU, if permitted.
        let joins = || Member::join(&name, "control", Some(&Exports::open(&name, 1).unwrap()), PATIENCE).map(drop);
        scope.spawn(joins).join().unwrap().unwrap();
        stop.store(true, Ordering::Release);
        frame.join().unwrap();
    });
    let is_desk = |tid: &i32| {
        std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).is_ok_and(|name| name == "tahti-scope\n")
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let desks: Vec<_> = tids.filter(is_desk).filter_map(|tid| sys::sched::affinity(tid).ok()).collect();
    assert!(!desks.is_empty() && desks.iter().all(|desk| *desk == cpus), "{desks:?}, of {cpus:?}");
}

#[test]
fn members_are_notified_of_the_end_of_their_frame() {
    let mut served = Served::new("end", TimeBase::Timer, 1, &["control"], PATIENCE);
    let (tell, told) = channel();
    let name = served.name.clone();
    let thread = std::thread::spawn(move || {
        let mut member = Member::join(&name, "control", None, PATIENCE).unwrap();
        member.next_turn().unwrap();
        tell.send(()).unwrap();
        while member.next_turn().is_some() {}
    });
    told.recv().unwrap();
    let reports = served.end();
    thread.join().unwrap();
    assert!(reports.contains(&Report::Running { missing: vec![] }), "{reports:?}");
}

#[test]
fn a_frame_begins_without_missing_activities_and_admits_them_later() {
    let served = Served::new("late", TimeBase::Timer, 1, &["there", "missing"], DurNs::from_ms(50));
    let mut there = served.join("there").unwrap();
    let watcher = Watcher::open(&served.name).unwrap();
    while watcher.page().activity_counter(1, ActivityCounter::Absences) < 3 {
        there.next_turn().unwrap();
    }
    assert_eq!(watcher.page().who(1).0, Presence::Never);
    scope(|scope| {
        scope.spawn(|| {
            let mut late = served.join("missing").unwrap();
            (0..3).for_each(|_| assert!(late.next_turn().is_some()));
        });
        while watcher.page().activity_counter(1, ActivityCounter::Calls) < 3 {
            there.next_turn().unwrap();
        }
    });
}

#[test]
fn a_follower_runs_the_minors_of_the_frame_that_it_follows() {
    let leader = Served::new("leader", TimeBase::Timer, 1, &["a"], PATIENCE);
    let follower = Served::new("follower", TimeBase::Frame(leader.name.clone()), 1, &["b"], PATIENCE);
    let mut a = leader.join("a").unwrap();
    let done = AtomicBool::new(false);
    let done = &done;
    scope(|scope| {
        scope.spawn(move || while !done.load(Ordering::Acquire) && a.next_turn().is_some() {});
        let mut b = follower.join("b").unwrap();
        (0..5).for_each(|_| assert!(b.next_turn().is_some()));
        done.store(true, Ordering::Release);
    });
}

#[test]
fn each_external_time_base_begins_one_minor_for_each_tick() {
    begins_a_minor_with_each_tick("counter", TimeBase::Counter(DurNs::from_us(100)), |served| {
        // A counter is incremented without a wake-up.
        let watcher = Watcher::open(&served.name).unwrap();
        watcher.page().trigger_word().fetch_add(1, Ordering::AcqRel);
    });
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    begins_a_minor_with_each_tick("udp", TimeBase::Udp(free), |_| {
        socket.send_to(b"tick", ("127.0.0.1", free)).unwrap();
    });
    let event = std::fs::File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
    let mut handed = false;
    begins_a_minor_with_each_tick("eventfd", TimeBase::Eventfd, |served| {
        if !std::mem::replace(&mut handed, true) {
            hand_trigger(&served.name, event.as_fd()).unwrap();
        }
        rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
    });
    let fifo = std::env::temp_dir().join(format!("tahti-fifo-{}", std::process::id()));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut writer = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    // One line has as many bytes as the count of a UIO device or an eventfd.
    for line in [&b"!"[..], b"tick", b"one tick", b"a tick of the clock"] {
        begins_a_minor_with_each_tick("device", TimeBase::Device(fifo.display().to_string()), |_| {
            std::io::Write::write_all(&mut writer, line).unwrap();
        });
    }
    std::fs::remove_file(&fifo).unwrap();
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut handed = false;
    begins_a_minor_with_each_tick("socket", TimeBase::Eventfd, |served| {
        if !std::mem::replace(&mut handed, true) {
            hand_trigger(&served.name, here.as_fd()).unwrap();
        }
        std::io::Write::write_all(&mut &there, b"tick").unwrap();
    });
}

#[test]
fn a_descriptor_is_handed_only_to_a_frame_that_waits_for_one() {
    let served = Served::new("unwilling", TimeBase::Software, 1, &["control"], PATIENCE);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let refusal = hand_trigger(&served.name, event.as_fd()).unwrap_err().to_string();
    assert!(refusal.contains("has the time base software; expected eventfd"), "{refusal}");
}

/// The events of a frame's page, as words.
fn events(served: &Served) -> Vec<&'static str> {
    let watcher = Watcher::open(&served.name).unwrap();
    let (page, mut words) = (watcher.page(), vec![]);
    let mut cursor = page.events();
    while let Some(event) = page.next_event(&mut cursor) {
        words.push(what_word(event.what));
    }
    words
}

#[test]
fn a_trigger_that_stops_is_early_or_late_is_counted_and_the_frame_continues() {
    // Minors of 0.5 s: an immediate trigger is much too early, however slow the machine.
    let half = DurNs::from_ms(500);
    let served = Served::of("faulty", TimeBase::Software, &[half], &["control"], PATIENCE, &[]);
    scope(|scope| {
        let member = scope.spawn(|| {
            let mut member = served.join("control").unwrap();
            while member.next_turn().is_some() {}
        });
        drive(&served, 4, || trigger(&served.name).unwrap());
        let watcher = Watcher::open(&served.name).unwrap();
        let page = watcher.page();
        let until = |counter: FrameCounter, least: u64| {
            served.until("it is counted", || page.counter(counter) >= least);
        };
        until(FrameCounter::TriggerEarly, 1);
        // Many triggers at once: one minor runs, the others are lost.
        let lost = page.counter(FrameCounter::Lost);
        sys::futex::count_up(page.trigger_word(), 1000);
        until(FrameCounter::Lost, lost + 999);
        // Then no trigger for three minors.
        until(FrameCounter::TriggerStopped, 1);
        let calls = page.activity_counter(0, ActivityCounter::Calls);
        trigger(&served.name).unwrap();
        until(FrameCounter::TriggerLate, 1);
        served.until("its next call", || page.activity_counter(0, ActivityCounter::Calls) > calls);
        let events = events(&served);
        for expected in ["trigger early", "trigger stopped", "trigger late"] {
            assert!(events.contains(&expected), "{expected} in {events:?}");
        }
        page.set_state(ring::FrameState::Ended);
        sys::futex::wake(page.call_word(0));
        member.join().unwrap();
    });
}

#[test]
fn the_activity_that_took_too_much_time_is_blamed_and_not_the_one_behind_it() {
    let half = DurNs::from_ms(500);
    let name = format!("test{}/blame", std::process::id());
    let activity = |name: &str, budget| Activity::new(name, Some(budget), 0..1);
    let activities = vec![activity("greedy", DurNs::from_us(100)), activity("innocent", DurNs::from_ms(400))];
    let spec = Spec::new(&name, vec![half], activities);
    let mut served = Served::serving(spec, PATIENCE, &[]);
    scope(|scope| {
        let mut greedy = served.join("greedy").unwrap();
        scope.spawn(move || {
            // It yields in time, but leaves almost nothing of the minor.
            while let Some(turn) = greedy.next_turn() {
                sys::clock::sleep_until(MonoNs(turn.end.0 - 20_000_000));
            }
        });
        let mut innocent = served.join("innocent").unwrap();
        let watcher = Watcher::open(&served.name).unwrap();
        let mut cursor = watcher.page().events();
        let (event, turn) = loop {
            let turn = innocent.next_turn().unwrap();
            // Uses the CPU until it has overrun.
            while watcher.page().border().pulse == turn.pulse {}
            let event = std::iter::from_fn(|| watcher.page().next_event(&mut cursor))
                .find(|event| (event.activity, event.pulse, what_word(event.what)) == (1, turn.pulse, "overrun"));
            // If the machine delayed this activity itself for long, that is the cause. Try again.
            if let Some(event) = event.filter(|event| event.elapsed < DurNs::from_ms(100)) {
                break (event, turn);
            }
        };
        served.end();
        assert_eq!((Cause::of(event.cause), event.detail), (Cause::Behind, 0), "{event:?} in {turn:?}");
        assert!(event.cpu < DurNs::from_ms(100), "{event:?}");
    });
}

/// TAI in ns at time 0 of the monotonic clock.
fn tai_at_0() -> i128 {
    let (now, tai) = sys::clock::mono_and_tai().unwrap();
    i128::from(tai) - i128::from(now.0)
}

#[test]
fn minors_have_the_lengths_of_the_plan_and_are_aligned_to_tai() {
    let ms = DurNs::from_ms;
    let lengths = [ms(2), ms(5), ms(3)];
    // The machine's clock may be stepped during the test. Frames keep their phase then.
    let (turns, tai_at_0) = (0..5)
        .find_map(|time| {
            let name = format!("lengths{time}");
            let before = tai_at_0();
            let served = Served::of(&name, TimeBase::Timer, &lengths, &["control"], PATIENCE, &[]);
            let mut member = served.join("control").unwrap();
            let turns: Vec<_> = (0..12).map(|_| member.next_turn().unwrap()).collect();
            let after = tai_at_0();
            // The clock is slewed by at most 500 ppm. A wrong phase is off by milliseconds.
            (before.abs_diff(after) < 200_000).then_some((turns, after))
        })
        .expect("the clock stopped for one of five frames");
    for turn in &turns {
        assert_eq!(turn.end - turn.due, lengths[usize::from(turn.minor)], "{turn:?}");
        let tai = tai_at_0 + i128::from(turn.due.0);
        let into = [0, 2, 7][usize::from(turn.minor)] * 1_000_000;
        let off = (tai - into).rem_euclid(10_000_000);
        assert!(off.min(10_000_000 - off) < 500_000, "{off} ns off the grid: {turn:?}");
        // Whole major frames since the start of TAI, times three, plus the minor.
        assert_eq!(
            i128::from(turn.pulse),
            (tai + 5_000_000 - into).div_euclid(10_000_000) * 3 + i128::from(turn.minor)
        );
    }
}

#[test]
fn no_minor_is_lost_by_a_slow_start() {
    let name = format!("test{}/start", std::process::id());
    let minor = DurNs::from_ms(2);
    let spec = Spec::new(&name, vec![minor], vec![Activity::new("control", Some(DurNs::from_us(100)), 0..1)]);
    // The frame reports at its start what it lacks. Handling that report takes 50 ms here, as long as locking much memory.
    let config = Config { spec, cpu: None, priority: Priority(50), join_within: PATIENCE, followers: vec![] };
    let mut runner = Runner::new(config).unwrap();
    let stop = &AtomicBool::new(false);
    scope(|scope| {
        let member = scope.spawn(|| {
            let mut member = Member::join(&name, "control", None, PATIENCE).unwrap();
            (0..3).for_each(|_| assert!(member.next_turn().is_some()));
            stop.store(true, Ordering::Release);
            member
        });
        let mut started = 0;
        while !stop.load(Ordering::Acquire) {
            runner.turn(|report| {
                if let Report::Missing(_) = report {
                    sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(50));
                    started = sys::clock::mono_and_tai().unwrap().1;
                }
            });
        }
        let member = member.join().unwrap();
        drop(runner);
        let page = member.page().unwrap();
        let (minors, lost) = (page.counter(FrameCounter::Minors), page.counter(FrameCounter::Lost));
        let first = page.border().pulse + 1 - minors - lost;
        assert!(first * minor.0 as u64 > started, "pulse {first} was over when the start was");
    });
}

#[test]
fn a_group_starts_only_when_complete_and_stays_synchronous() {
    let lengths = vec![DurNs::from_ms(4); 3];
    let leader = Served::of("group", TimeBase::Timer, &lengths, &["a"], PATIENCE, &["one", "two"]);
    let base = TimeBase::Frame(leader.name.clone());
    let follow = |name: &str| Served::of(name, base.clone(), &lengths, &["a"], PATIENCE, &[]);
    let one = follow("one");
    let (mut a, mut b) = (leader.join("a").unwrap(), one.join("a").unwrap());
    let watcher = Watcher::open(&leader.name).unwrap();
    let done = &AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(move || while a.next_turn().is_some() {});
        let steps = scope.spawn(move || {
            let mut turns = vec![];
            while let Some(turn) = b.next_turn() {
                turns.push((turn.pulse, turn.minor));
                if turns.len() == 10 {
                    done.store(true, Ordering::Release);
                }
            }
            turns
        });
        // The second one is missing.
        assert_eq!(watcher.page().state(), ring::FrameState::Forming);
        let two = follow("two");
        let mut c = two.join("a").unwrap();
        scope.spawn(move || while c.next_turn().is_some() {});
        leader.until("ten turns of its follower", || done.load(Ordering::Acquire));
        drop(leader);
        let turns = steps.join().unwrap();
        assert!(turns.iter().all(|(pulse, minor)| pulse % 3 == u64::from(*minor)), "the leader's numbers: {turns:?}");
    });
}

#[test]
fn a_group_that_stays_incomplete_ends() {
    let lengths = [DurNs::from_ms(4)];
    let mut leader = Served::of("alone", TimeBase::Timer, &lengths, &["a"], DurNs::from_ms(60), &["absent"]);
    let mut member = leader.join("a").unwrap();
    assert!(member.next_turn().is_none(), "it never has a turn");
    let reports = leader.end();
    let why = "not all of its followers are ready (absent): all start or none";
    assert!(reports.contains(&Report::Over(why.to_owned())), "{reports:?}");
}

#[test]
fn the_dispatcher_allocates_nothing() {
    let served = Served::new("memory", TimeBase::Timer, 1, &["control"], PATIENCE);
    let mut member = served.join("control").unwrap();
    let watcher = Watcher::open(&served.name).unwrap();
    // Longer than the interval at which its counters are read, with an overrun and its cause in between.
    let begun = sys::clock::mono_now();
    for call in 0..300 {
        member.next_turn().unwrap();
        while call == 100 && watcher.page().counter(FrameCounter::Overruns) == 0 {
            assert!(sys::clock::mono_now() < begun + PATIENCE, "its overrun is never counted");
            std::thread::yield_now();
        }
    }
    assert_eq!(watcher.page().counter(FrameCounter::Allocations), 0);
}

#[test]
fn the_border_of_a_minor_is_never_read_torn() {
    let shape = FrameShape { activities: 1, minors: 1, queue: 1, modes: 1 };
    let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
    let page = FramePage::format(&words, "fast", shape).unwrap();
    assert_eq!(page.border(), FrameBorder::default(), "no minor has begun");
    const LAST: u64 = 20_000;
    let border = |at: u64| FrameBorder {
        pulse: at,
        minor: at as u16,
        mode: at as u16,
        begun: MonoNs(at),
        due: MonoNs(at),
        end: MonoNs(at),
    };
    scope(|scope| {
        let seen = FramePage::attach(&words).unwrap();
        scope.spawn(move || {
            let mut last = 0;
            while last < LAST {
                let found = seen.border();
                // If a busy machine preempts the writer in the middle of a write, the page shows no border.
                if found != FrameBorder::default() {
                    assert_eq!(found, border(found.pulse));
                    assert!(found.pulse >= last);
                    last = found.pulse;
                }
            }
        });
        for at in 1..=LAST {
            match at % 2 {
                0 => page.extend(&border(at)),
                _ => drop(page.begin(&border(at), [0].into_iter())),
            }
        }
    });
}

//! Tests of the frame page with a single thread. The loom tests cover concurrent threads.

use super::*;
use base::MonoNs;
use std::vec::Vec;

const SHAPE: FrameShape = FrameShape { activities: 3, minors: 2, queue: 3, modes: 1 };

fn words() -> Vec<AtomicU64> {
    (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect()
}

fn begin(page: &FramePage<'_>, queue: &[u16]) -> Turn {
    page.begin(&FrameBorder::default(), queue.iter().copied())
}

#[test]
fn each_activity_releases_the_next_in_the_queue() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let turn = begin(&page, &[2, 0]);
    assert!(!page.start(2), "not released yet");
    assert_eq!(page.release_first(turn), Some(2));
    assert!(page.start(2) && !page.start(2) && !page.start(0));
    assert_eq!(page.progress(2, turn.sequence), (true, false, true));
    assert_eq!(page.finish(2, MonoNs(5)), Some(0));
    assert!(page.start(0));
    assert_eq!((page.finish(0, MonoNs(6)), page.turn().index), (None, 2));
    assert_eq!(
        (page.progress(2, turn.sequence), page.progress(1, turn.sequence)),
        ((true, true, false), (false, false, false))
    );
    assert_eq!((page.last_yield(), page.activity_counter(2, ActivityCounter::Calls)), (MonoNs(6), 1));
    let seen = FramePage::attach(&words).unwrap();
    assert_eq!((seen.name().as_str(), seen.shape()), ("fast", SHAPE));
}

#[test]
fn an_activity_that_did_not_begin_in_its_minor_does_not_begin_after_it() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let first = begin(&page, &[0, 1]);
    assert_eq!(page.release_first(first), Some(0));
    assert!(page.start(0));
    // The border comes while activity 0 is working; activity 1 was never released.
    assert!(page.close(0, first.sequence) && !page.close(1, first.sequence));
    let second = begin(&page, &[1, 0]);
    // Activity 0 yields late: it neither moves the new queue nor releases activity 1 for the old one.
    assert_eq!(page.finish(0, MonoNs(1)), None);
    assert!(!page.start(1));
    assert_eq!(page.progress(0, second.sequence), (false, false, false));
    assert_eq!(page.release_first(second), Some(1));
    assert!(page.start(1));
}

#[test]
fn a_continued_call_is_finished_in_the_turn_that_reaches_it() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let first = begin(&page, &[0]);
    assert_eq!(page.release_first(first), Some(0));
    assert!(page.start(0) && page.close(0, first.sequence));
    let second = begin(&page, &[1, 0, 2]);
    assert_eq!(page.release_first(second), Some(1));
    assert!(page.start(1));
    assert_eq!(page.finish(1, MonoNs(2)), Some(0));
    assert!(!page.start(0), "its call is still in progress");
    assert_eq!(page.progress(0, second.sequence), (true, false, true));
    assert_eq!(page.finish(0, MonoNs(3)), Some(2));
    assert_eq!(page.progress(0, second.sequence), (true, true, false));
}

#[test]
fn a_blocked_activity_is_passed_over_once_and_may_still_finish() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let turn = begin(&page, &[0, 1, 2]);
    assert!(page.release_first(turn) == Some(0) && page.start(0));
    assert!(page.in_order());
    assert_eq!((page.pass_over(turn), page.pass_over(turn)), ((true, Some(1)), (false, None)));
    assert!(!page.in_order(), "the activity before the turn needs a check");
    assert_eq!(page.finish(0, MonoNs(1)), None, "its successor was released already");
    assert!(page.start(1));
    assert_eq!(page.finish(1, MonoNs(1)), Some(2));
    assert!(!page.in_order());
    begin(&page, &[0]);
    assert!(page.in_order());
}

#[test]
fn an_admitted_activity_is_joined_once_it_waits_for_its_turn() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    page.set_who(1, Presence::Joining, 7, 8);
    let before = page.changes();
    page.come(1);
    assert_eq!((page.who(1), page.changes()), ((Presence::Joined, 7, 8), before + 1));
    page.set_who(1, Presence::Died, 0, 0);
    page.come(1);
    assert_eq!(page.who(1).0, Presence::Died, "an ended member cannot arrive");
}

#[test]
fn accounts_exclude_the_costs_of_the_frame() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let cost = |cpu, faults, voluntary, involuntary| Baseline { cpu: DurNs(cpu), faults, voluntary, involuntary };
    page.set_baseline(0, &page.beyond(0, &cost(100, 50, 10, 2)));
    // A call of 30 ns after a wait, then a call that is in progress at a border.
    page.count_wait(0);
    page.set_begun(0, MonoNs(1000));
    let _ = page.finish(0, MonoNs(1030));
    page.count_held(0);
    let (was, is) = (page.baseline(0), page.beyond(0, &cost(135, 51, 11, 3)));
    assert_eq!((is.cpu.0 - was.cpu.0, is.voluntary, is.involuntary), (5, was.voluntary, was.involuntary));
    page.set_baseline(0, &is);
    assert_eq!(page.activity_counter(0, ActivityCounter::PageFaults), 1);
    // That call cost 5 ns more than was measured of it. The following calls are expected to do the same.
    assert_eq!(page.around(0), DurNs(0));
    (0..3).for_each(|_| _ = page.finish(0, MonoNs(1030)));
    assert_eq!(page.around(0), DurNs(15));
}

#[test]
fn events_and_requests_survive_a_round_trip() {
    let words = words();
    let page = FramePage::format(&words, "fast", SHAPE).unwrap();
    let event = FrameEvent {
        pulse: 7,
        minor: 1,
        activity: 2,
        what: 3,
        action: 4,
        cause: 5,
        consecutive: 6,
        elapsed: DurNs(-1),
        ..FrameEvent::default()
    };
    page.tell(&event);
    assert_eq!(page.next_event(&mut page.events()), Some(event));
    page.want_mode(0);
    assert_eq!((page.wanted_mode(), page.wanted_mode()), (Some(0), None));
}

#[test]
fn no_content_of_the_memory_panics() {
    let words = words();
    let mut seed = 1u64;
    for round in 0..200 {
        FramePage::format(&words, "fast", SHAPE).unwrap();
        for _ in 0..50 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            words[(seed >> 20) as usize % if round % 2 == 0 { 200 } else { words.len() }]
                .store(seed, Ordering::Relaxed);
        }
        let Ok(page) = FramePage::attach(&words) else { continue };
        let turn = page.turn();
        let _ = (page.at(turn), page.release_first(turn), page.pass_on(turn), page.finish(9999, MonoNs(0)));
        let _ = (page.pass_over(page.turn()), page.beyond(1, &Baseline::default()), page.come(2));
        let _ = (page.close(2, turn.sequence), page.start(1), page.who(0), page.wanted_mode(), page.mode_name(77));
        begin(&page, &[0, 1, 2]);
        let _ = page.next_event(&mut page.events());
    }
}

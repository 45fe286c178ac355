//! Checks with loom every order in which two threads may see each other's writes:
//! `RUSTFLAGS="--cfg loom" cargo test --package ring --test loom --release`.
#![cfg(loom)]

use base::MonoNs;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use ring::{
    AtomicU64, Barrier, Captures, Condition, FrameBorder, FramePage, FrameShape, GateWords, Latest, Meeting, Number,
    Queue, Stream, Trail, VariableSpec, Variables,
};

fn words(count: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

#[test]
fn a_queue_delivers_each_item_once_whole_and_in_order() {
    loom::model(|| {
        let words = words(Queue::<2>::words_for(2));
        Queue::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let mut producer = Queue::<2>::attach(&mine).unwrap().producer();
            (1..=3u64).filter(|&item| producer.push_or_refuse([item, item * 10])).collect::<Vec<_>>()
        });
        let mut consumer = Queue::<2>::attach(&words).unwrap().consumer();
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(consumer.pop());
        }
        let sent = writer.join().unwrap();
        while let Some(item) = consumer.pop() {
            seen.push(item);
        }
        assert!(seen.iter().all(|[item, ten]| *ten == item * 10), "torn: {seen:?}");
        assert_eq!(seen.iter().map(|item| item[0]).collect::<Vec<_>>(), sent);
        assert_eq!(consumer.queue().refused() as usize, 3 - sent.len());
        assert_eq!(consumer.queue().resyncs(), 0);
    });
}

#[test]
fn a_cell_is_never_seen_half_written() {
    loom::model(|| {
        let words = words(Latest::<2>::WORDS);
        Latest::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let cell = Latest::<2>::attach(&mine).unwrap();
            cell.set_replace([1, 10]);
            cell.set_replace([2, 20]);
        });
        let cell = Latest::<2>::attach(&words).unwrap();
        if let Some((count, [one, ten])) = cell.get() {
            assert_eq!((one, ten), (count, count * 10));
        }
        writer.join().unwrap();
        assert_eq!(cell.get(), Some((2, [2, 20])));
    });
}

#[test]
fn a_trail_shows_whole_items_and_counts_lost_ones() {
    loom::model(|| {
        let words = words(Trail::<2>::words_for(2));
        Trail::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let trail = Trail::<2>::attach(&mine).unwrap();
            (1..=3u64).for_each(|item| trail.push_overwrite([item, item * 10]));
        });
        let trail = Trail::<2>::attach(&words).unwrap();
        let mut cursor = trail.from_oldest();
        let mut seen = Vec::new();
        seen.extend(trail.next(&mut cursor));
        writer.join().unwrap();
        while let Some(item) = trail.next(&mut cursor) {
            seen.push(item);
        }
        assert!(seen.iter().all(|[item, ten]| *ten == item * 10), "torn: {seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0][0] < pair[1][0]), "in order: {seen:?}");
        assert_eq!(seen.len() as u64 + cursor.lost(), 3);
    });
}

#[test]
fn a_stream_delivers_messages_whole_and_loses_no_wake_up() {
    loom::model(|| {
        let words = words(Stream::words_for(8));
        Stream::format(&words[..]).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let mut writer = Stream::attach(&mine[..]).unwrap().writer();
            assert!(writer.push_or_refuse(&[&[1], &[10]]));
            writer.stream().is_asleep()
        });
        let mut reader = Stream::attach(&words[..]).unwrap().reader();
        reader.fall_asleep();
        let sleeps = reader.is_empty();
        let told = writer.join().unwrap();
        assert!(told || !sleeps, "it sleeps, and the writer does not ring");
        let mut out = [0; 2];
        assert_eq!((reader.pop(&mut out), out), (Ok(Some(2)), [1, 10]));
    });
}

/// Model of a futex with one sleeper. A wake-up has no effect if the thread does not sleep.
#[derive(Default)]
struct Bed {
    asleep: loom::sync::Mutex<bool>,
    woken: loom::sync::Condvar,
}

impl Bed {
    fn sleep(&self) {
        let mut asleep = self.asleep.lock().unwrap();
        *asleep = true;
        while *asleep {
            asleep = self.woken.wait(asleep).unwrap();
        }
    }

    fn wake(&self) -> bool {
        let slept = std::mem::replace(&mut *self.asleep.lock().unwrap(), false);
        self.woken.notify_one();
        slept
    }
}

#[test]
fn a_reader_that_sleeps_at_a_gate_is_woken_by_each_item_without_a_timeout() {
    const WORK: usize = GateWords::WORDS;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (words, bed) = (words(WORK + 1), Arc::new(Bed::default()));
        let (theirs, their_bed) = (words.clone(), bed.clone());
        let visitor = thread::spawn(move || {
            let (step, mut woken) = (GateWords::attach(&theirs).unwrap(), 0);
            for work in 1..=2 {
                theirs[WORK].store(work, Relaxed);
                step.wake(
                    &mut woken,
                    || their_bed.wake(),
                    |_| {
                        thread::yield_now();
                        true
                    },
                );
            }
        });
        let (step, mut naps, mut done) = (GateWords::attach(&words).unwrap(), 0, 0);
        // After a lost wake-up it would sleep for ever, which loom reports.
        while done < 2 {
            step.nap(&mut naps, || words[WORK].load(Relaxed) > done, || bed.sleep());
            done = words[WORK].load(Relaxed);
        }
        visitor.join().unwrap();
    });
}

#[test]
fn a_barrier_releases_no_member_early_and_wakes_every_sleeper() {
    loom::model(|| {
        let words = words(Barrier::WORDS + 2);
        Barrier::format(&words, 2).unwrap();
        // Each writes its own word before it arrives, and reads the other's afterwards.
        let member = |words: &[AtomicU64], me: usize| {
            let barrier = Barrier::attach(words).unwrap();
            let (mine, theirs) = (&words[Barrier::WORDS + me], &words[Barrier::WORDS + 1 - me]);
            mine.store(1, Relaxed);
            let (sleeps, wakes) = match barrier.arrive() {
                Meeting::Broken => panic!("no member breaks it"),
                Meeting::Last { wake } => (false, wake),
                Meeting::Early(seen) => {
                    // It sleeps if no member has arrived between its announcement and its last check. The announcement stays: in real
                    // use it is not removed before the sleeper is woken.
                    barrier.event().announce();
                    let sleeps = !barrier.event().moved(seen);
                    while !barrier.event().moved(seen) {
                        thread::yield_now();
                    }
                    (sleeps, false)
                }
            };
            assert_eq!(theirs.load(Relaxed), 1, "earlier writes are visible after it");
            (sleeps, wakes)
        };
        let theirs = words.clone();
        let other = thread::spawn(move || member(&theirs, 1));
        let (mine, other) = (member(&words, 0), other.join().unwrap());
        assert!(!(mine.0 || other.0) || mine.1 || other.1, "a sleeper is woken");
    });
}

#[test]
fn a_time_out_during_the_last_arrival_breaks_a_barrier_for_both_members_or_for_none() {
    loom::model(|| {
        let words = words(Barrier::WORDS);
        Barrier::format(&words, 2).unwrap();
        let theirs = words.clone();
        let other = thread::spawn(move || Barrier::attach(&theirs).unwrap().arrive());
        let barrier = Barrier::attach(&words).unwrap();
        let mine = barrier.arrive();
        let met = match mine {
            // The other member arrives before, while or after this one stops waiting.
            Meeting::Early(seen) => barrier.break_up(seen).is_none(),
            Meeting::Last { .. } => true,
            Meeting::Broken => panic!("only this member breaks it"),
        };
        match (mine, other.join().unwrap()) {
            (Meeting::Early(seen), Meeting::Last { .. }) => assert!(met && barrier.event().moved(seen)),
            (Meeting::Early(_), Meeting::Broken) => assert!(!met),
            (Meeting::Last { .. }, Meeting::Early(seen)) => assert!(barrier.event().moved(seen)),
            unexpected => panic!("{unexpected:?}"),
        }
        let next = barrier.arrive();
        assert_eq!(next == Meeting::Broken, !met, "met: usable for the next meeting; broken: for good");
    });
}

#[test]
fn a_signal_is_seen_by_a_thread_that_is_about_to_sleep_or_wakes_it() {
    loom::model(|| {
        let words = words(Condition::WORDS + 1);
        Condition::format(&words).unwrap();
        let theirs = words.clone();
        let signaller = thread::spawn(move || {
            theirs[Condition::WORDS].store(1, Relaxed);
            Condition::attach(&theirs).unwrap().event().advance()
        });
        let event = Condition::attach(&words).unwrap().event();
        let seen = event.announce();
        // The state is read after the announcement, as under the mutex.
        let state = words[Condition::WORDS].load(Relaxed);
        let sleeps = state == 0 && !event.moved(seen);
        let woken = signaller.join().unwrap();
        assert!(!sleeps || woken, "it slept through the signal");
    });
}

#[test]
fn a_variable_appears_complete_and_its_value_is_never_torn() {
    loom::model(|| {
        let words = words(Variables::words_for(1));
        Variables::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let segment = Variables::attach(&mine).unwrap();
            let spec = VariableSpec { name: "v", unit: "V", first: Number::Int(10), safe: Some(Number::Int(-1)) };
            let index = segment.add(&spec).unwrap();
            segment.set(index, Number::Int(20), 2, MonoNs(2));
            segment.stand_safe(true);
        });
        let segment = Variables::attach(&words).unwrap();
        if let Some(index) = segment.find("v") {
            assert_eq!(segment.unit(index).unwrap().as_str(), "V");
            if let Some(read) = segment.get(index) {
                let expected = match (read.safe, read.pulse) {
                    (true, _) => -1,
                    (false, 0) => 10,
                    (false, _) => 20,
                };
                assert_eq!(read.value, Number::Int(expected));
            }
        }
        writer.join().unwrap();
        assert_eq!(segment.get(0).map(|read| (read.value, read.safe)), Some((Number::Int(-1), true)));
    });
}

const FRAME: FrameShape = FrameShape { activities: 2, minors: 1, queue: 2, modes: 0 };

/// Checks every order in a frame of two activities, of which the first has begun its call.
fn each_order_of_a_frame(then: impl Fn(Arc<Vec<AtomicU64>>, ring::Turn) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    // Creating the page takes hundreds of stores, and loom counts each.
    model.max_branches = 1_000_000;
    model.preemption_bound = Some(3);
    model.check(move || {
        let words = words(FRAME.words());
        let page = FramePage::format(&words, "fast", FRAME).unwrap();
        let turn = page.begin(&FrameBorder::default(), [0, 1].into_iter());
        assert_eq!(page.release_first(turn), Some(0));
        assert!(page.start(0));
        then(words.clone(), turn);
    });
}

#[test]
fn a_turn_is_passed_on_once_whether_its_owner_yields_or_is_skipped() {
    each_order_of_a_frame(|words, turn| {
        let theirs = words.clone();
        let caretaker = thread::spawn(move || {
            let page = FramePage::attach(&theirs).unwrap();
            page.pass_over(turn)
        });
        let page = FramePage::attach(&words).unwrap();
        let woken = page.finish(0, MonoNs(1));
        let (moved, over) = caretaker.join().unwrap();
        assert_eq!(u8::from(woken == Some(1)) + u8::from(over == Some(1)), 1, "released by one member");
        assert_eq!((page.turn().index, page.in_order()), (1, !moved));
        assert_eq!(page.progress(0, turn.sequence), (true, true, false));
        assert!(page.start(1) && !page.start(1));
    });
}

#[test]
fn an_activity_that_yields_while_its_minor_ends_keeps_its_call_and_the_next_minor_unchanged() {
    each_order_of_a_frame(|words, turn| {
        let theirs = words.clone();
        let activity = thread::spawn(move || {
            let page = FramePage::attach(&theirs).unwrap();
            page.finish(0, MonoNs(1))
        });
        let page = FramePage::attach(&words).unwrap();
        // The activity may still be in its call.
        let _ = page.close(0, turn.sequence);
        let never = page.close(1, turn.sequence);
        let next = page.begin(&FrameBorder::default(), [1].into_iter());
        assert_eq!(
            page.release_first(next),
            Some(1),
            "only the dispatcher releases the first activity of the new minor"
        );
        // An activity that was released for the old minor may be woken late. It begins once, for the new minor.
        let woken = activity.join().unwrap();
        assert!(!never && (woken.is_none() || woken == Some(1)));
        assert_eq!(page.turn(), next, "the old minor's end has no effect in the new minor");
        assert!(page.start(1) && !page.start(1));
        assert!(!page.progress(0, turn.sequence).2);
        assert_eq!(page.activity_counter(0, ring::ActivityCounter::Calls), 1);
    });
}

#[test]
fn a_row_of_a_capture_is_copied_whole_or_not_at_all_while_its_segment_is_restarted() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let words = words(Captures::words_for(1, 2, 1));
        let captures = Captures::format(&words[..]).unwrap();
        let division = captures.divide(1, 1).unwrap();
        let push = |captures: &Captures<&ring::Words>, place: &mut ring::WritePosition, pulse: u64| {
            captures.push_overwrite(place, [pulse, pulse * 10, 0], [pulse * 100].into_iter());
        };
        let mut place = captures.begin_overwrite(division, 0, 1);
        push(&captures, &mut place, 1);
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let captures = Captures::attach(&mine[..]).unwrap();
            push(&captures, &mut place, 2);
            captures.mark(&place, 7);
            let mut place = captures.begin_overwrite(division, 0, 2);
            push(&captures, &mut place, 3);
        });
        let mut out = [0; 4];
        if let Some(seen) = captures.segment(&division, 0)
            && let Some(count) = captures.rows(&division, 0, &seen, seen.written.saturating_sub(1), &mut out)
        {
            assert!(count == 0 || out == [out[0], out[0] * 10, 0, out[0] * 100], "torn: {out:?}");
            assert!(count == 0 || (out[0] == 3) == (seen.generation == 2), "of another capture: {seen:?} {out:?}");
            assert!(seen.trigger.is_none_or(|row| seen.generation == 1 && row == 1), "{seen:?}");
        }
        writer.join().unwrap();
        let seen = captures.segment(&division, 0).unwrap();
        assert_eq!((seen.generation, seen.written, seen.trigger), (2, 1, None));
    });
}

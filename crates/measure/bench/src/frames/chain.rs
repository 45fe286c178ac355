//! Ten activities in one minor of a frame, and ten bare threads that wake each other in the middle of the same minor.

use super::pairs::place_at;
use super::{MINOR, PRIORITY};
use crate::Failed;
use crate::failed::joined;
use base::{CpuId, DurNs, Histogram, MonoNs, Priority, Quantile};
use frame::{Activity, Config, Spec};
use ring::{FrameCounter, FrameState};
use rt::frames::{Member, Report, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::{mono_now, sleep_until};
use sys::futex;
use sys::shm::SharedWords;

/// Activities in the one minor that is measured.
pub(super) const TEAM: usize = 10;
/// Distance in words between the data of two bare threads: a cache line.
const LINE: usize = 8;
/// Words after those of the threads: time at which the leader woke, and number of runs of the last thread.
const WOKE: usize = TEAM * LINE;
const ENDED: usize = WOKE + 1;

/// Figures of a frame's page and of its last activity.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) dispatch: Histogram,
    pub(super) late: Histogram,
    /// From the dispatcher's wake-up to the last activity's turn.
    pub(super) whole: Histogram,
    pub(super) minors: u64,
    pub(super) lost: u64,
    pub(super) faults: u64,
    pub(super) allocations: u64,
    pub(super) missing: Vec<String>,
}

impl Figures {
    pub(super) fn merge(&mut self, other: &Self) {
        self.dispatch.merge(&other.dispatch);
        self.late.merge(&other.late);
        self.whole.merge(&other.whole);
        self.minors += other.minors;
        self.lost += other.lost;
        self.faults += other.faults;
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.missing.clone_from(&other.missing);
    }

    pub(super) fn accounts(&self) -> String {
        format!("in the dispatcher {} page faults, {} calls of the allocator", self.faults, self.allocations)
    }
}

pub(super) fn quantile(hist: &Histogram, of: u64, among: u64) -> Result<DurNs, Failed> {
    match hist.quantile(of, among) {
        Quantile::At(time) => Ok(time),
        _ => Err(Failed::answer("the frame", "more minors (increase --for)", hist.count())),
    }
}

/// Ten empty activities in one minor of 1 ms; with `bare`, also ten threads that are not activities.
pub(super) fn frame(cpu: CpuId, span: DurNs, bare: Option<&mut Histogram>) -> Result<Figures, Failed> {
    let name = format!("bench{}/chain", std::process::id());
    let activities = (0..TEAM).map(|n| Activity::new(&format!("a{n}"), Some(DurNs::from_us(50)), 0..1)).collect();
    let spec = Spec::new(&name, vec![MINOR], activities);
    let config =
        Config { spec, cpu: Some(cpu), priority: PRIORITY, join_within: DurNs::from_secs(20), followers: vec![] };
    let mut runner = Runner::new(config)?;
    let stop = Arc::new(AtomicBool::new(false));
    let members: Vec<_> = (0..TEAM)
        .map(|n| {
            let (name, stop) = (name.clone(), stop.clone());
            std::thread::spawn(move || member(&name, n, &stop))
        })
        .collect();
    let mut missing = Vec::new();
    // On a busy machine threads start late: the span begins with the frame.
    let mut until = None;
    let mut bare_threads = None;
    while until.is_none_or(|until| mono_now() < until) && !runner.is_over() {
        runner.turn(|report| match report {
            Report::Missing(what) => missing.push(what.to_string()),
            Report::Running { .. } => until = Some(mono_now() + span),
            _ => {}
        });
        let page = runner.page();
        if bare.is_some() && bare_threads.is_none() && page.state() == FrameState::Running && page.border().due.0 > 0 {
            bare_threads = Some(Bare::start(cpu, page.border().due + DurNs(MINOR.0 / 2))?);
        }
    }
    if let (Some(hist), Some(bare_threads)) = (bare, bare_threads) {
        hist.merge(&bare_threads.end()?);
    }
    let page = runner.page();
    let mut figures = Figures {
        dispatch: page.dispatch().read(),
        late: page.late().read(),
        whole: Histogram::new(),
        minors: page.counter(FrameCounter::Minors),
        lost: page.counter(FrameCounter::Lost),
        faults: page.counter(FrameCounter::PageFaults),
        allocations: page.counter(FrameCounter::Allocations),
        missing,
    };
    stop.store(true, Ordering::Relaxed);
    drop(runner);
    for member in members {
        if let Some(whole) = joined(member.join())? {
            figures.whole = whole;
        }
    }
    Ok(figures)
}

/// One activity; the last one records the time from the dispatcher's wake-up to its turn.
fn member(frame: &str, place: usize, stop: &AtomicBool) -> Result<Option<Histogram>, Failed> {
    let joined = Member::join(frame, &format!("a{place}"), None, DurNs::from_secs(20));
    let mut member = joined?;
    if place + 1 < TEAM {
        while !stop.load(Ordering::Relaxed) && member.next_turn().is_some() {}
        return Ok(None);
    }
    let mut whole = Histogram::new();
    while !stop.load(Ordering::Relaxed) && member.next_turn().is_some() {
        let now = mono_now();
        // Lives as long as the frame.
        let Some(page) = member.page() else { break };
        whole.record(now - page.border().begun);
    }
    Ok(Some(whole))
}

/// A thread that wakes in the middle of each minor and wakes the first of ten, each of which wakes the next: the kernel's
/// part of any such scheduler, at the same rate and with the same caches as the frame.
struct Bare {
    words: Arc<SharedWords>,
    stop: Arc<AtomicBool>,
    leader: std::thread::JoinHandle<Result<(), Failed>>,
    team: Vec<std::thread::JoinHandle<Result<Option<Histogram>, Failed>>>,
}

impl Bare {
    fn start(cpu: CpuId, first: MonoNs) -> Result<Self, Failed> {
        let words = SharedWords::create("tahti-bare", (TEAM + 1) * LINE)?;
        let (words, stop) = (Arc::new(words), Arc::new(AtomicBool::new(false)));
        let team = (0..TEAM)
            .map(|place| {
                let (words, stop) = (words.clone(), stop.clone());
                std::thread::spawn(move || bare(cpu, place, &words, &stop))
            })
            .collect();
        let leader = std::thread::spawn({
            let (words, stop) = (words.clone(), stop.clone());
            move || {
                place_at(cpu, PRIORITY)?;
                let (mut due, mut begun) = (first, 0);
                while !stop.load(Ordering::Relaxed) {
                    while due <= mono_now() {
                        due = due + MINOR;
                    }
                    sleep_until(due);
                    let woke = mono_now();
                    // Skips this round if the last one is still running.
                    if words.words()[ENDED].load(Ordering::Acquire) == begun {
                        begun += 1;
                        words.words()[WOKE].store(woke.0, Ordering::Relaxed);
                        futex::count_up(&words.words()[0], 1);
                    }
                }
                Ok(())
            }
        });
        Ok(Self { words, stop, leader, team })
    }

    fn end(self) -> Result<Histogram, Failed> {
        self.stop.store(true, Ordering::Relaxed);
        joined(self.leader.join())?;
        let mut whole = Histogram::new();
        for (place, thread) in self.team.into_iter().enumerate() {
            futex::count_up(&self.words.words()[place * LINE], 1);
            if let Some(found) = joined(thread.join())? {
                whole = found;
            }
        }
        Ok(whole)
    }
}

fn bare(cpu: CpuId, place: usize, words: &SharedWords, stop: &AtomicBool) -> Result<Option<Histogram>, Failed> {
    place_at(cpu, Priority(PRIORITY.0 - 1))?;
    let words = words.words();
    let mine = &words[place * LINE];
    let mut whole = Histogram::new();
    let mut seen = 0;
    loop {
        loop {
            let now = mine.load(Ordering::Acquire);
            if now != seen {
                seen = now;
                break;
            }
            futex::wait(mine, seen, None);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok((place + 1 == TEAM).then_some(whole));
        } else if place + 1 < TEAM {
            futex::count_up(&words[(place + 1) * LINE], 1);
        } else {
            whole.record(mono_now() - MonoNs(words[WOKE].load(Ordering::Relaxed)));
            words[ENDED].fetch_add(1, Ordering::Release);
        }
    }
}

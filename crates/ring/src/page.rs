//! The loop page: what a real-time loop tells everybody who was handed its memfd.
//!
//! Words, by writer (each on cache lines of its own):
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0.. | header, generation, state | who made the page, then the loop |
//! | [`IDENTITY`].. | who the loop is | the loop, before its state becomes armed |
//! | [`HEARTBEAT`].. | pulse, expected, actual, done, flags (seqlock) | the loop, each cycle |
//! | [`COUNTERS`].. | [`Counter`]s, since arming | the loop; some the watcher (see there) |
//! | [`WAKE`].. | histogram of wake-up latency | the loop |
//! | [`COMPUTE`].. | histogram of compute time | the loop |
//! | [`CALM`].. | wake-up latency without what steal may have touched | the watcher |
//! | [`CULPRITS`].. | who preempted the loop | the watcher |
//! | [`TRAIL`].. | the last cycles | the loop |
//!
//! The *watcher* is a thread of the loop's process that is not real time.

use crate::Words;
use crate::culprits::{Culprit, Culprits};
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::latest::Latest;
use crate::shared_hist::SharedHistogram;
use crate::sync::{Ordering, add_own};
use crate::trail::Trail;
use base::{CpuId, DurNs, Histogram, MonoNs};

const GENERATION: usize = 4;
const STATE: usize = 5;
const IDENTITY: usize = HEADER;
const HEARTBEAT: usize = 32;
const COUNTERS: usize = 40;
const WAKE: usize = 64;
const COMPUTE: usize = WAKE + SharedHistogram::WORDS;
const CALM: usize = COMPUTE + SharedHistogram::WORDS;
const CULPRITS: usize = CALM + SharedHistogram::WORDS;
const TRAIL: usize = CULPRITS + Culprits::WORDS;

/// Environment variable with the number of the descriptor of the loop page that a process's first loop fills.
pub const LOOP_FD: &str = "TAHTI_LOOP_FD";

/// Cycles that the page keeps as evidence.
pub const TRAIL_CYCLES: usize = 1024;
const CYCLE_WORDS: usize = 5;
/// Words of a loop page; times eight, the size of its memfd in bytes.
pub const LOOP_PAGE_WORDS: usize = TRAIL + Trail::<CYCLE_WORDS>::words_for(TRAIL_CYCLES);

/// Bits of a cycle's flags.
pub mod flags {
    /// Pulses before this one were given up because the loop was late.
    pub const SKIPPED: u64 = 1;
    /// The work lasted into the next period.
    pub const LATE: u64 = 1 << 1;
    /// The program told that its output is not to be trusted in this cycle.
    pub const FAULT: u64 = 1 << 2;
}

/// How far the loop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Made, but no loop has taken it yet.
    Empty,
    /// The loop is armed: everything below is being filled.
    Armed,
    /// The loop ended by itself.
    Ended,
}

/// How a loop waits for its next pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps until the pulse.
    Sleep,
    /// It reads the clock until the pulse.
    Spin,
    /// It sleeps until shortly before the pulse and reads the clock from there.
    Both {
        /// How long before the pulse it wakes up.
        spin: DurNs,
    },
}

/// Who a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its thread's name, padded with zeros.
    pub name: [u8; 16],
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Time between two pulses.
    pub period: DurNs,
    /// When pulse [`first_pulse`](Self::first_pulse) is due.
    pub first_due: MonoNs,
    /// Number of its first pulse.
    pub first_pulse: u64,
    /// The one CPU that it is bound to, if it is.
    pub cpu: Option<CpuId>,
    /// How it waits.
    pub wait: Wait,
    /// Its fixed priority; 0 for a time-sharing loop.
    pub priority: u8,
    /// When it was armed.
    pub armed: MonoNs,
}

/// The loop's sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Beats so far: cycles that began. Rises by one each cycle, whatever the pulse numbers do.
    pub beats: u64,
    /// The newest cycle; `done` is 0 while it runs.
    pub cycle: Cycle,
}

/// One cycle of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Pulse number.
    pub pulse: u64,
    /// When it was due.
    pub expected: MonoNs,
    /// When the loop was there.
    pub woke: MonoNs,
    /// When its work was done.
    pub done: MonoNs,
    /// Bits of [`flags`].
    pub flags: u64,
}

impl Cycle {
    /// How late the loop was there.
    #[must_use]
    pub fn latency(&self) -> DurNs {
        self.woke - self.expected
    }

    /// How long it worked.
    #[must_use]
    pub fn compute(&self) -> DurNs {
        self.done - self.woke
    }

    fn words(&self) -> [u64; CYCLE_WORDS] {
        [self.pulse, self.expected.0, self.woke.0, self.done.0, self.flags]
    }

    fn from_words([pulse, expected, woke, done, flags]: [u64; CYCLE_WORDS]) -> Self {
        Self { pulse, expected: MonoNs(expected), woke: MonoNs(woke), done: MonoNs(done), flags }
    }
}

/// What is counted, from arming on. Those marked *watcher* are not written by the loop itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Cycles that ran.
    Cycles,
    /// Pulses that were given up because the loop was late for them.
    Overruns,
    /// Cycles whose work lasted into the next period.
    Late,
    /// Page faults that needed no disk.
    MinorFaults,
    /// Page faults that needed the disk.
    MajorFaults,
    /// Times that the thread gave up its CPU: about one a cycle for a loop that sleeps.
    VoluntarySwitches,
    /// Times that the CPU was taken from it.
    InvoluntarySwitches,
    /// Calls of the allocator on the loop's thread.
    Allocations,
    /// Calls that gave memory back on the loop's thread.
    Frees,
    /// *Watcher:* cycles near which the hypervisor may have run something else on the CPU.
    SetApart,
    /// *Watcher:* cycles that it has looked at.
    Watched,
    /// *Watcher:* cycles that were overwritten before it came.
    WatchLost,
    /// *Watcher:* ticks of the CPU's steal counter.
    StealTicks,
    /// *Watcher:* 1 if it can see who preempts the loop, 0 if not.
    Naming,
    /// Readings that the program's output queue refused.
    OutputRefused,
}

/// A reader of a loop page.
#[derive(Clone, Copy)]
pub struct LoopPage<'a> {
    words: &'a Words,
}

/// The loop's own end of its page.
pub struct LoopWriter<'a> {
    page: LoopPage<'a>,
    heartbeat: Latest<'a, 6>,
    trail: Trail<'a, CYCLE_WORDS>,
    beats: u64,
}

/// The end of a page that the watcher writes.
pub struct LoopWatcher<'a> {
    page: LoopPage<'a>,
}

impl LoopWriter<'_> {
    /// A cycle begins: `cycle.done` is not known yet. Records its latency.
    pub fn begin(&mut self, cycle: &Cycle) {
        self.beats += 1;
        self.beat(cycle);
        self.page.hist(WAKE).record(cycle.latency());
        self.add(Counter::Cycles, 1);
    }

    /// The cycle's work is done: records its compute time and keeps it as evidence.
    pub fn end(&mut self, cycle: &Cycle) {
        self.beat(cycle);
        self.page.hist(COMPUTE).record(cycle.compute());
        self.trail.push_overwrite(cycle.words());
    }

    /// Pulse `expected` was given up at `now`. Its lateness so far is recorded, so that a long delay shows
    /// with its full weight.
    pub fn skip(&mut self, expected: MonoNs, now: MonoNs) {
        self.page.hist(WAKE).record(now - expected);
        self.add(Counter::Overruns, 1);
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, more: u64) {
        if more > 0 {
            add_own(&self.page.words[COUNTERS + counter as usize], more);
        }
    }

    /// The loop ends by itself.
    pub fn finish(self) {
        self.page.words[STATE].store(2, Ordering::Release);
    }

    fn beat(&self, cycle: &Cycle) {
        let [pulse, expected, woke, done, flags] = cycle.words();
        self.heartbeat.set_replace([self.beats, pulse, expected, woke, done, flags]);
    }
}

impl LoopWatcher<'_> {
    /// A cycle that no steal can have touched.
    pub fn calm(&self, cycle: &Cycle) {
        self.page.hist(CALM).record(cycle.latency());
    }

    /// Adds to one of the watcher's counters.
    pub fn add(&self, counter: Counter, more: u64) {
        if more > 0 {
            add_own(&self.page.words[COUNTERS + counter as usize], more);
        }
    }

    /// Counts one preemption by a task, or by one that is not known.
    pub fn preempted_by(&self, culprit: Option<(&str, u32)>) {
        self.page.table().add(culprit);
    }
}

impl From<[u64; CYCLE_WORDS]> for Cycle {
    fn from(words: [u64; CYCLE_WORDS]) -> Self {
        Self::from_words(words)
    }
}

impl<'a> LoopPage<'a> {
    /// Makes an empty page, for a loop that will [`take`](Self::take) it.
    ///
    /// # Errors
    /// `Short` if the memory has fewer than [`LOOP_PAGE_WORDS`] words.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        if words.len() < LOOP_PAGE_WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: LOOP_PAGE_WORDS });
        }
        let generation = words[GENERATION].load(Ordering::Relaxed);
        words[STATE].store(0, Ordering::Relaxed);
        words[IDENTITY..TRAIL].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let page = Self { words };
        [page.hist(WAKE), page.hist(COMPUTE), page.hist(CALM)].iter().for_each(SharedHistogram::clear);
        page.table().clear();
        Trail::<CYCLE_WORDS>::format(&words[TRAIL..LOOP_PAGE_WORDS])?;
        words[GENERATION].store(generation.wrapping_add(1), Ordering::Relaxed);
        header::write(words, Kind::LoopPage, TRAIL_CYCLES as u32, CYCLE_WORDS as u32);
        Ok(page)
    }

    /// Finds the page that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a loop page of this version.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let found = header::check(words, Kind::LoopPage)?;
        if found != (TRAIL_CYCLES as u32, CYCLE_WORDS as u32) {
            return Err(LayoutError::Shape { found, expected: "1024 cycles of 5 words" });
        }
        if words.len() < LOOP_PAGE_WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: LOOP_PAGE_WORDS });
        }
        Trail::<CYCLE_WORDS>::attach(&words[TRAIL..LOOP_PAGE_WORDS])?;
        Ok(Self { words })
    }

    /// Becomes the loop that fills the page; clears what an earlier loop left.
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn take(self, identity: &Identity) -> Result<LoopWriter<'a>, LayoutError> {
        let page = Self::format(self.words)?;
        page.write_identity(identity);
        let heartbeat = Latest::bare(&self.words[HEARTBEAT..COUNTERS]);
        let trail = Trail::attach(&self.words[TRAIL..LOOP_PAGE_WORDS])?;
        self.words[STATE].store(1, Ordering::Release);
        Ok(LoopWriter { page, heartbeat, trail, beats: 0 })
    }

    /// How often the page was begun anew: a reader that sees it change forgets what it had counted.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.words[GENERATION].load(Ordering::Relaxed)
    }

    /// How far the loop has come.
    #[must_use]
    pub fn state(&self) -> PageState {
        match self.words[STATE].load(Ordering::Acquire) {
            1 => PageState::Armed,
            2 => PageState::Ended,
            _ => PageState::Empty,
        }
    }

    /// Who the loop is, once it is armed.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        (self.state() != PageState::Empty).then(|| self.read_identity())
    }

    /// The newest sign of life; `None` before the first.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        let (_, [beats, cycle @ ..]) = Latest::<6>::bare(&self.words[HEARTBEAT..COUNTERS]).get()?;
        Some(Heartbeat { beats, cycle: Cycle::from_words(cycle) })
    }

    /// One of the counters.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.words[COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Wake-up latencies of all cycles, and for pulses that were given up the lateness they had by then.
    #[must_use]
    pub fn wake(&self) -> Histogram {
        self.hist(WAKE).read()
    }

    /// Compute times of all cycles.
    #[must_use]
    pub fn compute(&self) -> Histogram {
        self.hist(COMPUTE).read()
    }

    /// Wake-up latencies of the cycles near which the CPU's steal counter stood still.
    #[must_use]
    pub fn calm(&self) -> Histogram {
        self.hist(CALM).read()
    }

    /// The last cycles, oldest first, as [`Trail`] items; decode with [`Cycle`]'s [`From`].
    #[must_use]
    pub fn trail(&self) -> Option<Trail<'a, CYCLE_WORDS>> {
        Trail::attach(&self.words[TRAIL..LOOP_PAGE_WORDS]).ok()
    }

    /// Who preempted the loop, and how often.
    pub fn culprits(&self) -> impl Iterator<Item = Culprit> + use<'a> {
        self.table().named()
    }

    /// Preemptions by somebody beyond the [`crate::CULPRITS_MAX`] that have a place in the table.
    #[must_use]
    pub fn unnamed_switches(&self) -> u64 {
        self.table().unnamed()
    }

    /// The watcher's end: for one thread besides the loop.
    #[must_use]
    pub fn watcher(self) -> LoopWatcher<'a> {
        LoopWatcher { page: self }
    }

    fn table(&self) -> Culprits<'a> {
        Culprits::bare(&self.words[CULPRITS..TRAIL])
    }

    fn hist(&self, at: usize) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.words[at..at + SharedHistogram::WORDS])
    }

    fn write_identity(&self, identity: &Identity) {
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|index| identity.name[at + index])));
        let (wait, spin) = match identity.wait {
            Wait::Sleep => (0, 0),
            Wait::Spin => (1, 0),
            Wait::Both { spin } => (2, spin.0 as u64),
        };
        let words = [
            low,
            high,
            u64::from(identity.pid) << 32 | u64::from(identity.tid),
            identity.period.0 as u64,
            identity.first_due.0,
            identity.first_pulse,
            identity.cpu.map_or(0, |cpu| u64::from(cpu) + 1),
            wait,
            spin,
            u64::from(identity.priority),
            identity.armed.0,
        ];
        for (word, value) in self.words[IDENTITY..HEARTBEAT].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn read_identity(&self) -> Identity {
        let word = |index: usize| self.words[IDENTITY + index].load(Ordering::Relaxed);
        let [low, high] = [0, 1].map(|index| word(index).to_le_bytes());
        Identity {
            name: core::array::from_fn(|index| if index < 8 { low[index] } else { high[index - 8] }),
            pid: (word(2) >> 32) as u32,
            tid: word(2) as u32,
            period: DurNs(word(3) as i64),
            first_due: MonoNs(word(4)),
            first_pulse: word(5),
            cpu: word(6).checked_sub(1).and_then(|cpu| CpuId::try_from(cpu).ok()),
            wait: match word(7) {
                1 => Wait::Spin,
                2 => Wait::Both { spin: DurNs(word(8) as i64) },
                _ => Wait::Sleep,
            },
            priority: word(9) as u8,
            armed: MonoNs(word(10)),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::AtomicU64;
    use std::vec::Vec;

    const IDENTITY: Identity = Identity {
        name: *b"llrf\0\0\0\0\0\0\0\0\0\0\0\0",
        pid: 71,
        tid: 72,
        period: DurNs::from_ms(1),
        first_due: MonoNs(5_000_000),
        first_pulse: 1_795_000_000_005,
        cpu: Some(0),
        wait: Wait::Both { spin: DurNs::from_us(50) },
        priority: 80,
        armed: MonoNs(4_000_000),
    };

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn cycle(pulse: u64, late_ns: u64) -> Cycle {
        let expected = MonoNs(pulse * 1_000_000);
        let woke = MonoNs(expected.0 + late_ns);
        Cycle { pulse, expected, woke, done: MonoNs(woke.0 + 20_000), flags: 0 }
    }

    #[test]
    fn a_page_tells_who_its_loop_is_and_what_it_did() {
        let words = words(LOOP_PAGE_WORDS);
        assert_eq!(LoopPage::attach(&words).err(), Some(LayoutError::Magic { found: 0 }));
        let page = LoopPage::format(&words).unwrap();
        assert_eq!((page.state(), page.identity(), page.heartbeat()), (PageState::Empty, None, None));
        let mut writer = page.take(&IDENTITY).unwrap();
        let reader = LoopPage::attach(&words).unwrap();
        assert_eq!((reader.state(), reader.identity()), (PageState::Armed, Some(IDENTITY)));
        for pulse in 0..2_000 {
            let cycle = cycle(pulse, 5_000);
            writer.begin(&Cycle { done: MonoNs(0), ..cycle });
            writer.end(&cycle);
        }
        writer.skip(MonoNs(2_000_000_000), MonoNs(2_000_400_000));
        assert_eq!(reader.heartbeat(), Some(Heartbeat { beats: 2_000, cycle: cycle(1_999, 5_000) }));
        assert_eq!((reader.counter(Counter::Cycles), reader.counter(Counter::Overruns)), (2_000, 1));
        assert_eq!((reader.wake().count(), reader.wake().max()), (2_001, Some(DurNs::from_us(400))));
        assert_eq!(reader.compute().max(), Some(DurNs::from_us(20)));
        let trail = reader.trail().unwrap();
        let mut cursor = trail.from_oldest();
        let first = Cycle::from(trail.next(&mut cursor).unwrap());
        assert_eq!(first.pulse, 2_000 - TRAIL_CYCLES as u64, "the last cycles stay");
        writer.finish();
        assert_eq!(reader.state(), PageState::Ended);
        let generation = reader.generation();
        reader.take(&IDENTITY).unwrap();
        assert_eq!((reader.counter(Counter::Cycles), reader.heartbeat()), (0, None), "a new loop starts from nothing");
        assert_eq!(reader.generation(), generation + 1);
    }

    #[test]
    fn culprits_are_counted_by_task_and_the_rest_together() {
        let words = words(LOOP_PAGE_WORDS);
        let page = LoopPage::format(&words).unwrap();
        let watcher = page.watcher();
        for tid in 0..20 {
            watcher.preempted_by(Some(("kworker/1:1-events_long", tid)));
        }
        watcher.preempted_by(Some(("kworker/1:1-events_long", 3)));
        watcher.preempted_by(None);
        let named: Vec<_> = page.culprits().collect();
        assert_eq!((named.len(), named[3].name(), named[3].count), (16, "kworker/1:1-even", 2));
        assert_eq!(page.unnamed_switches(), 5);
    }

    #[test]
    fn a_page_is_read_whole_while_it_is_written() {
        let words = words(LOOP_PAGE_WORDS);
        let page = LoopPage::format(&words).unwrap();
        let mut writer = page.take(&IDENTITY).unwrap();
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for pulse in 1..=rounds {
                    let cycle = cycle(pulse, pulse);
                    writer.begin(&cycle);
                    writer.end(&cycle);
                }
            });
            let (mut beats, mut count) = (0, 0);
            let trail = page.trail().unwrap();
            let mut cursor = trail.from_oldest();
            while beats < rounds {
                if let Some(heartbeat) = page.heartbeat() {
                    assert_eq!(heartbeat.cycle, cycle(heartbeat.beats, heartbeat.beats), "no torn heartbeat");
                    assert!(heartbeat.beats >= beats);
                    beats = heartbeat.beats;
                }
                while let Some(found) = trail.next(&mut cursor).map(Cycle::from) {
                    assert_eq!(found, cycle(found.pulse, found.pulse), "no torn cycle");
                }
                let wake = page.wake();
                assert!(wake.count() >= count);
                count = wake.count();
                if count > 0 {
                    assert!(matches!(wake.quantile(1, 1), base::Quantile::At(at) if at <= wake.max().unwrap()));
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(page.wake().count(), rounds);
    }

    proptest::proptest! {
        #[test]
        fn no_content_of_the_memory_panics(noise in proptest::collection::vec((0usize..LOOP_PAGE_WORDS, 0u64..=u64::MAX), 0..40)) {
            let words = words(LOOP_PAGE_WORDS);
            let page = LoopPage::format(&words).unwrap();
            let mut writer = page.take(&IDENTITY).unwrap();
            for (at, value) in noise {
                words[at].store(value, Ordering::Relaxed);
                writer.begin(&cycle(7, 1));
                writer.end(&cycle(7, 1));
                if let Ok(page) = LoopPage::attach(&words) {
                    let _ = (page.heartbeat(), page.identity(), page.wake().mean(), page.calm().quantile(1, 2));
                    let _ = (page.culprits().count(), page.unnamed_switches(), page.counter(Counter::Cycles));
                    if let Some(trail) = page.trail() {
                        let mut cursor = trail.from_oldest();
                        for _ in 0..3 { let _ = trail.next(&mut cursor).map(|words| Cycle::from(words).latency()); }
                    }
                }
            }
        }
    }
}

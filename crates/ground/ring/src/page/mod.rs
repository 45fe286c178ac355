//! The loop page: the state of a real-time loop, readable by every process that has its memfd.
//!
//! Words and their writers (each writer has separate cache lines):
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0.. | header, generation, state, deadline of each result | the creator of the page; generation and state then the loop |
//! | [`IDENTITY`].. | identity of the loop | the loop, before its state becomes armed |
//! | [`HEARTBEAT`].. | pulse, expected, actual, done, flags (seqlock) | the loop, each cycle |
//! | [`COUNTERS`].. | [`Counter`]s, since arming | the loop; some the watcher (marked there) |
//! | [`WAKE`].. | histogram of wake-up latency | the loop |
//! | [`COMPUTE`].. | histogram of compute time | the loop |
//! | [`CALM`].. | wake-up latency, without cycles that steal may have affected | the watcher |
//! | [`CULPRITS`].. | tasks that preempted the loop | the watcher |
//! | [`TRAIL`].. | the last cycles | the loop |
//!
//! The *watcher* is a non-real-time thread of the loop's process.

mod parts;
mod writer;

pub use parts::{Counter, Cycle, Heartbeat, Identity, PageState, Wait, flags};
pub use writer::{LoopWatcher, LoopWriter};

use crate::Words;
use crate::culprits::{Culprit, Culprits};
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::latest::Latest;
use crate::shared_hist::SharedHistogram;
use crate::sync::Ordering;
use crate::trail::Trail;
use base::{Histogram, ResultDeadline, Tally};
use parts::CYCLE_WORDS;

const GENERATION: usize = 4;
const STATE: usize = 5;
/// Kept when a loop takes the page, because the creator of the page sets it.
const DEADLINE: usize = 6;
const IDENTITY: usize = HEADER;
const HEARTBEAT: usize = 32;
const COUNTERS: usize = 40;
const WAKE: usize = 64;
const COMPUTE: usize = WAKE + SharedHistogram::WORDS;
const CALM: usize = COMPUTE + SharedHistogram::WORDS;
const CULPRITS: usize = CALM + SharedHistogram::WORDS;
const TRAIL: usize = CULPRITS + Culprits::WORDS;

/// Environment variable with the number of an inherited descriptor: the loop page of the process's first loop.
pub const LOOP_FD: &str = "TAHTI_LOOP_FD";

/// Number of cycles that the page keeps.
pub const TRAIL_CYCLES: usize = 1024;
/// Size of a loop page, in words of 8 bytes.
pub const LOOP_PAGE_WORDS: usize = TRAIL + Trail::<CYCLE_WORDS>::words_for(TRAIL_CYCLES);

/// A reader of a loop page.
#[derive(Clone, Copy)]
pub struct LoopPage<'a> {
    words: &'a Words,
}

impl<'a> LoopPage<'a> {
    /// Formats `words` as an empty page. A loop can then [`take`](Self::take) it.
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

    /// Attaches to the loop page in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a loop page of this version.
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

    /// Takes the page for a loop, which becomes its writer. Clears the data of a previous loop.
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn take(self, identity: &Identity) -> Result<LoopWriter<'a>, LayoutError> {
        let page = Self::format(self.words)?;
        identity.write(&self.words[IDENTITY..HEARTBEAT]);
        let heartbeat = Latest::bare(&self.words[HEARTBEAT..COUNTERS]);
        let trail = Trail::attach(&self.words[TRAIL..LOOP_PAGE_WORDS])?;
        self.words[STATE].store(1, Ordering::Release);
        Ok(LoopWriter { page, heartbeat, trail, beats: 0, deadline: page.deadline() })
    }

    /// Number of times that the page was formatted. A reader that sees it change must reset its own counts.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.words[GENERATION].load(Ordering::Relaxed)
    }

    /// State of the loop.
    #[must_use]
    pub fn state(&self) -> PageState {
        match self.words[STATE].load(Ordering::Acquire) {
            1 => PageState::Armed,
            2 => PageState::Ended,
            _ => PageState::Empty,
        }
    }

    /// Identity of the loop; `None` before it is armed.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        (self.state() != PageState::Empty).then(|| Identity::read(&self.words[IDENTITY..HEARTBEAT]))
    }

    /// The newest heartbeat; `None` before the first.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        let (_, [beats, cycle @ ..]) = Latest::<6>::bare(&self.words[HEARTBEAT..COUNTERS]).get()?;
        Some(Heartbeat { beats, cycle: Cycle::from_words(cycle) })
    }

    /// Sets the result deadline of the loop. To be called by the creator of the page, before the loop begins.
    pub fn set_deadline(&self, deadline: Option<ResultDeadline>) {
        let words = deadline.map_or([0, 0], |deadline| deadline.to_words());
        self.words[DEADLINE..].iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Result deadline, counted from the due time of the pulse; `None` if none is set.
    #[must_use]
    pub fn deadline(&self) -> Option<ResultDeadline> {
        ResultDeadline::of_words([0, 1].map(|at| self.words[DEADLINE + at].load(Ordering::Relaxed)))
    }

    /// Total value of the loop's results. Results of skipped pulses are included, with the value zero. `None` without a
    /// deadline.
    #[must_use]
    pub fn tally(&self) -> Option<Tally> {
        self.deadline()?;
        let [judged, late, worth, given_up] =
            [Counter::Judged, Counter::BehindDeadline, Counter::Worth, Counter::Overruns].map(|one| self.counter(one));
        Some(Tally { due: judged.saturating_add(given_up), late, worth })
    }

    /// Value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.words[COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Wake-up latencies of all cycles. For a skipped pulse the histogram has its lateness when it was skipped.
    #[must_use]
    pub fn wake(&self) -> Histogram {
        self.hist(WAKE).read()
    }

    /// Compute times of all cycles.
    #[must_use]
    pub fn compute(&self) -> Histogram {
        self.hist(COMPUTE).read()
    }

    /// Wake-up latencies of the cycles near which the CPU's steal counter did not change.
    #[must_use]
    pub fn calm(&self) -> Histogram {
        self.hist(CALM).read()
    }

    /// The last cycles, oldest first, as [`Trail`] items; decode with [`Cycle`]'s [`From`].
    #[must_use]
    pub fn trail(&self) -> Option<Trail<'a, CYCLE_WORDS>> {
        Trail::attach(&self.words[TRAIL..LOOP_PAGE_WORDS]).ok()
    }

    /// Tasks that preempted the loop, with counts.
    pub fn culprits(&self) -> impl Iterator<Item = Culprit> + use<'a> {
        self.table().named()
    }

    /// Preemptions by tasks beyond the [`crate::CULPRITS_MAX`] in the table.
    #[must_use]
    pub fn unnamed_switches(&self) -> u64 {
        self.table().unnamed()
    }

    /// The watcher's writer. To be used by one thread other than the loop.
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
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::AtomicU64;
    use base::{DurNs, MonoNs};
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
    fn a_page_shows_the_identity_of_its_loop_and_its_cycles() {
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
        assert_eq!(first.pulse, 2_000 - TRAIL_CYCLES as u64, "the last cycles are kept");
        writer.finish();
        assert_eq!(reader.state(), PageState::Ended);
        let generation = reader.generation();
        reader.take(&IDENTITY).unwrap();
        assert_eq!((reader.counter(Counter::Cycles), reader.heartbeat()), (0, None), "a new loop starts from zero");
        assert_eq!(reader.generation(), generation + 1);
    }

    #[test]
    fn results_are_valued_by_the_deadline_of_the_page() {
        let words = words(LOOP_PAGE_WORDS);
        let page = LoopPage::format(&words).unwrap();
        assert_eq!(page.tally(), None);
        let late = base::Lateness::Soft(base::Fall::Linear(DurNs::from_us(100)));
        page.set_deadline(Some(ResultDeadline { at: DurNs::from_us(200), late }));
        let mut writer = page.take(&IDENTITY).unwrap();
        // Results 120, 200, 250 and 420 us after the pulse.
        let worths = [100_000, 180_000, 230_000, 400_000].map(|late_ns| writer.end(&cycle(7, late_ns)));
        assert_eq!(worths.map(|worth| worth.map(|worth| worth.0)), [1_000_000, 1_000_000, 500_000, 0].map(Some));
        writer.skip(MonoNs(8_000_000), MonoNs(9_000_000));
        assert_eq!(page.tally(), Some(Tally { due: 5, late: 2, worth: 2_500_000 }));
        page.take(&IDENTITY).unwrap();
        assert_eq!(page.tally(), Some(Tally::default()), "the deadline is kept, the count restarts");
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

//! Loop pages: created here, passed to processes through their keepers, and read for heartbeats and statistics.

use crate::supervisor::control::LoopStatus;
use base::{DurNs, Histogram, Lateness, MonoNs, Quantile, ResultDeadline, Tally};
use ring::{Counter, Cursor, Cycle, LOOP_PAGE_WORDS, LoopPage, PageState};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use sys::process::Process;
use sys::shm::SharedWords;

/// Name of the memfd. The next supervisor finds it by this name among a keeper's descriptors.
const NAME: &str = "tahti-loop";

/// Cycles stored with an incident.
const EVIDENCE_CYCLES: usize = 100;

/// A process's loop page.
#[derive(Debug)]
pub(crate) struct Page {
    words: Arc<SharedWords>,
    /// Time and cycle count at the last call of [`Page::rate`].
    last: Option<(MonoNs, u64)>,
    /// Generation of the loop whose cycles were read last, and the read position.
    generation: u64,
    cursor: Option<Cursor>,
}

/// Duplicates or reopens a descriptor of a keeper. A memfd of root is immutable (see [`SharedWords::keeps_its_pages`])
/// and cannot be reopened for writing. It must be duplicated, which needs more rights than reopening; root has them.
fn opened(keeper: i32, path: &Path) -> Option<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).ok().or_else(|| {
        let number = path.file_name()?.to_str()?.parse().ok()?;
        Process::open(keeper).ok()?.descriptor(number).ok()
    })
}

/// Failure to create a loop page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The kernel refused the shared memory.
    #[error(transparent)]
    Memory(#[from] sys::Error),
    /// The memory is too small for a page.
    #[error(transparent)]
    Format(#[from] ring::LayoutError),
}

impl Page {
    /// Creates an empty page.
    pub(crate) fn create() -> Result<Self, PageError> {
        let words = SharedWords::create(NAME, LOOP_PAGE_WORDS)?;
        LoopPage::format(words.words())?;
        Ok(Self { words: Arc::new(words), last: None, generation: 0, cursor: None })
    }

    /// Empties the page. Its process must have ended.
    pub(crate) fn clear(self) -> Result<Self, PageError> {
        LoopPage::format(self.words.words())?;
        Ok(self)
    }

    /// Finds the page that a keeper passed to its child; `None` if it has none.
    pub(crate) fn adopt(keeper: i32) -> Option<Self> {
        let folder = format!("/proc/{keeper}/fd");
        let wanted = format!("/memfd:{NAME}");
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with(&wanted)) {
                let words = SharedWords::attach(opened(keeper, &entry.path())?).ok()?;
                LoopPage::attach(words.words()).ok()?;
                return Some(Self { words: Arc::new(words), last: None, generation: 0, cursor: None });
            }
        }
        None
    }

    /// The descriptor's number in this process.
    pub(crate) fn fd(&self) -> i32 {
        self.words.fd().as_raw_fd()
    }

    fn page(&self) -> Option<LoopPage<'_>> {
        LoopPage::attach(self.words.words()).ok()
    }

    /// Sets the deadline of each result of the loop.
    pub(crate) fn set_deadline(&self, deadline: Option<ResultDeadline>) {
        if let Some(page) = self.page() {
            page.set_deadline(deadline);
        }
    }

    /// Value of the results so far; `None` without a deadline.
    pub(crate) fn tally(&self) -> Option<Tally> {
        self.page()?.tally()
    }

    /// Results that missed a hard deadline or did not arrive, including one that is overdue now. `None` if the deadline
    /// is not hard.
    pub(crate) fn hard_misses(&self, now: MonoNs) -> Option<u64> {
        let page = self.page()?;
        let deadline = page.deadline().filter(|deadline| deadline.late == Lateness::Hard)?;
        let missed = page.counter(Counter::BehindDeadline) + page.counter(Counter::Overruns);
        let running = page.heartbeat().map(|heartbeat| heartbeat.cycle).filter(|cycle| cycle.done == MonoNs(0));
        let overdue = running.is_some_and(|cycle| now - cycle.expected > deadline.at);
        Some(missed + u64::from(overdue))
    }

    /// Reader of the heartbeat, for the guard.
    pub(crate) fn watcher(&self) -> PageBeats {
        PageBeats { words: self.words.clone() }
    }

    /// Status of the loop; `None` before the loop starts.
    pub(crate) fn status(&self) -> Option<LoopStatus> {
        let page = self.page()?;
        let identity = page.identity()?;
        Some(LoopStatus {
            thread: i32::try_from(identity.tid).unwrap_or_default(),
            cycles: page.counter(Counter::Cycles),
            first: identity.first_due,
            period: identity.period,
            wake: Figures::of(&page.wake()),
            misses: page.counter(Counter::Overruns),
        })
    }

    /// Histogram of wake-up latencies; `None` before the loop starts.
    pub(crate) fn wake(&self) -> Option<Histogram> {
        let page = self.page()?;
        page.identity()?;
        Some(page.wake())
    }

    /// Passes every cycle since the last call to `take`. Returns the number of cycles that were overwritten before they
    /// were read.
    pub(crate) fn cycles(&mut self, mut take: impl FnMut(&Cycle)) -> u64 {
        let Some(page) = LoopPage::attach(self.words.words()).ok() else { return 0 };
        let Some(trail) = page.trail() else { return 0 };
        if self.generation != page.generation() {
            (self.generation, self.cursor) = (page.generation(), None);
        }
        let mut cursor = self.cursor.take().unwrap_or_else(|| trail.from_now());
        let lost = cursor.lost();
        // Bounded, so that a loop that is faster than this reader cannot block it.
        for _ in 0..ring::TRAIL_CYCLES {
            let Some(words) = trail.next(&mut cursor) else { break };
            take(&Cycle::from(words));
        }
        let lost = cursor.lost() - lost;
        self.cursor = Some(cursor);
        lost
    }

    /// The CPU that the loop is bound to.
    pub(crate) fn cpu(&self) -> Option<base::CpuId> {
        LoopPage::attach(self.words.words()).ok()?.identity()?.cpu
    }

    /// The last cycles, oldest first, as evidence.
    pub(crate) fn evidence(&self) -> Vec<serde_json::Value> {
        let Some(trail) = LoopPage::attach(self.words.words()).ok().and_then(|page| page.trail()) else {
            return Vec::new();
        };
        let mut cursor = trail.from_oldest();
        let mut last = VecDeque::new();
        for _ in 0..ring::TRAIL_CYCLES {
            let Some(words) = trail.next(&mut cursor) else { break };
            let cycle = Cycle::from(words);
            if last.len() == EVIDENCE_CYCLES {
                last.pop_front();
            }
            last.push_back(serde_json::json!({
                "pulse": cycle.pulse,
                "due_ns": cycle.expected.0,
                "late_ns": cycle.latency().0,
                "compute_ns": cycle.compute().0,
                "flags": cycle.flags,
            }));
        }
        last.into()
    }

    /// Cycles per second since the last call.
    pub(crate) fn rate(&mut self, now: MonoNs) -> Option<f64> {
        let cycles = self.page()?.counter(Counter::Cycles);
        let last = self.last.replace((now, cycles));
        let (then, before) = last?;
        let span = (now - then).0;
        (span > 0 && cycles >= before).then(|| (cycles - before) as f64 * 1e9 / span as f64)
    }
}

/// Reads the heartbeat in a page.
#[derive(Clone, Debug)]
pub(crate) struct PageBeats {
    words: Arc<SharedWords>,
}

impl PageBeats {
    /// Heartbeats so far; 0 while no loop is armed.
    ///
    /// Real-time: neither allocates nor blocks.
    pub(crate) fn beats(&self) -> u64 {
        let Ok(page) = LoopPage::attach(self.words.words()) else { return 0 };
        if page.state() != PageState::Armed {
            return 0;
        }
        // A restarted loop counts from 0. The generation in the upper bits makes its numbers differ from the previous
        // ones.
        let beats = page.heartbeat().map_or(0, |heartbeat| heartbeat.beats);
        beats.wrapping_add(page.generation() << 48)
    }
}

/// Percentiles and maximum of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Number of values.
    pub count: u64,
    /// Median; `None` if it is unknown.
    pub p50: Option<DurNs>,
    /// 99th percentile.
    pub p99: Option<DurNs>,
    /// 99.9th percentile.
    pub p999: Option<DurNs>,
    /// Exact maximum.
    pub max: Option<DurNs>,
}

impl Figures {
    /// Computes the figures of a histogram. A percentile beyond its range is `None`.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let at = |num, den| match histogram.quantile(num, den) {
            Quantile::At(time) => Some(time),
            Quantile::Beyond(_) | Quantile::Empty => None,
        };
        Self { count: histogram.count(), p50: at(50, 100), p99: at(99, 100), p999: at(999, 1000), max: histogram.max() }
    }
}

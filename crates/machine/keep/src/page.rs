//! Loop pages: made here, handed to processes through their keepers, read for heartbeats and figures.

use crate::supervisor::control::LoopStatus;
use base::{DurNs, Histogram, Lateness, MonoNs, Quantile, ResultDeadline, Tally};
use ring::{Counter, Cursor, Cycle, LOOP_PAGE_WORDS, LoopPage, PageState};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use sys::process::Process;
use sys::shm::SharedWords;

/// The name of the memfd, by which the next supervisor finds it in a keeper's table of descriptors.
const NAME: &str = "tahti-loop";

/// Cycles that are kept with an incident.
const EVIDENCE_CYCLES: usize = 100;

/// A process's loop page.
#[derive(Debug)]
pub(crate) struct Page {
    words: Arc<SharedWords>,
    /// Where the live figures stood at the last look.
    last: Option<(MonoNs, u64)>,
    /// The loop whose cycles were collected last, and how far.
    generation: u64,
    cursor: Option<Cursor>,
}

/// The memory behind a descriptor of a keeper. Root's is immutable (see [`SharedWords::keeps_its_pages`]) and cannot be opened for
/// writing anew; duplicating the descriptor needs more rights than opening its file, which root has.
fn opened(keeper: i32, path: &Path) -> Option<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).ok().or_else(|| {
        let number = path.file_name()?.to_str()?.parse().ok()?;
        Process::open(keeper).ok()?.descriptor(number).ok()
    })
}

/// A page that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] sys::Error),
    /// It has no room for a page.
    #[error(transparent)]
    Format(#[from] ring::LayoutError),
}

impl Page {
    /// Makes an empty page.
    pub(crate) fn create() -> Result<Self, PageError> {
        let words = SharedWords::create(NAME, LOOP_PAGE_WORDS)?;
        LoopPage::format(words.words())?;
        Ok(Self { words: Arc::new(words), last: None, generation: 0, cursor: None })
    }

    /// Makes it empty again; its process must be gone.
    pub(crate) fn clear(self) -> Result<Self, PageError> {
        LoopPage::format(self.words.words())?;
        Ok(self)
    }

    /// Finds the page that a keeper passed on to its child; `None` if it has none.
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

    /// Says until when each result of its loop counts.
    pub(crate) fn set_deadline(&self, deadline: Option<ResultDeadline>) {
        if let Some(page) = self.page() {
            page.set_deadline(deadline);
        }
    }

    /// What its results were worth, where there is a deadline.
    pub(crate) fn tally(&self) -> Option<Tally> {
        self.page()?.tally()
    }

    /// Results that came behind a hard deadline, or not at all; one that is overdue counts already. `None` where it is not hard.
    pub(crate) fn hard_misses(&self, now: MonoNs) -> Option<u64> {
        let page = self.page()?;
        let deadline = page.deadline().filter(|deadline| deadline.late == Lateness::Hard)?;
        let missed = page.counter(Counter::BehindDeadline) + page.counter(Counter::Overruns);
        let running = page.heartbeat().map(|heartbeat| heartbeat.cycle).filter(|cycle| cycle.done == MonoNs(0));
        let overdue = running.is_some_and(|cycle| now - cycle.expected > deadline.at);
        Some(missed + u64::from(overdue))
    }

    /// What the guard needs of it.
    pub(crate) fn watcher(&self) -> PageBeats {
        PageBeats { words: self.words.clone() }
    }

    /// How the loop stands, once there is one.
    pub(crate) fn status(&self) -> Option<LoopStatus> {
        let page = self.page()?;
        let identity = page.identity()?;
        Some(LoopStatus {
            cycles: page.counter(Counter::Cycles),
            first: identity.first_due,
            period: identity.period,
            wake: Figures::of(&page.wake()),
            misses: page.counter(Counter::Overruns),
        })
    }

    /// How late it woke up, how often, once there is a loop.
    pub(crate) fn wake(&self) -> Option<Histogram> {
        let page = self.page()?;
        page.identity()?;
        Some(page.wake())
    }

    /// Hands every cycle since the last call to `take`; how many were overwritten before.
    pub(crate) fn cycles(&mut self, mut take: impl FnMut(&Cycle)) -> u64 {
        let Some(page) = LoopPage::attach(self.words.words()).ok() else { return 0 };
        let Some(trail) = page.trail() else { return 0 };
        if self.generation != page.generation() {
            (self.generation, self.cursor) = (page.generation(), None);
        }
        let mut cursor = self.cursor.take().unwrap_or_else(|| trail.from_now());
        let lost = cursor.lost();
        // Bounded: a loop that is faster than this reader must not hold it.
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

    /// Cycles a second since the last call.
    pub(crate) fn rate(&mut self, now: MonoNs) -> Option<f64> {
        let cycles = self.page()?.counter(Counter::Cycles);
        let last = self.last.replace((now, cycles));
        let (then, before) = last?;
        let span = (now - then).0;
        (span > 0 && cycles >= before).then(|| (cycles - before) as f64 * 1e9 / span as f64)
    }
}

/// Reads the signs of life in a page.
#[derive(Clone, Debug)]
pub(crate) struct PageBeats {
    words: Arc<SharedWords>,
}

impl PageBeats {
    /// Signs of life so far; stands still while no loop is armed.
    ///
    /// Real-time: neither allocates nor blocks.
    pub(crate) fn beats(&self) -> u64 {
        let Ok(page) = LoopPage::attach(self.words.words()) else { return 0 };
        if page.state() != PageState::Armed {
            return 0;
        }
        // A loop that was started anew counts from the beginning: its generation makes the number differ.
        let beats = page.heartbeat().map_or(0, |heartbeat| heartbeat.beats);
        beats.wrapping_add(page.generation() << 48)
    }
}

/// The figures of a histogram that people compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// How many values.
    pub count: u64,
    /// Median; `None` if it is not known.
    pub p50: Option<DurNs>,
    /// 99 of 100 are at most this.
    pub p99: Option<DurNs>,
    /// 999 of 1000 are at most this.
    pub p999: Option<DurNs>,
    /// Exact maximum.
    pub max: Option<DurNs>,
}

impl Figures {
    /// Takes them from a histogram; a percentile beyond its range is not known.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let at = |num, den| match histogram.quantile(num, den) {
            Quantile::At(time) => Some(time),
            Quantile::Beyond(_) | Quantile::Empty => None,
        };
        Self { count: histogram.count(), p50: at(50, 100), p99: at(99, 100), p999: at(999, 1000), max: histogram.max() }
    }
}

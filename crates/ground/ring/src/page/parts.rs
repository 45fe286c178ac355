//! Parts of a loop page: identity, cycles and counters.

use crate::Words;
use crate::sync::Ordering;
use base::{CpuId, DurNs, MonoNs};

/// Size of a cycle, in words.
pub(super) const CYCLE_WORDS: usize = 5;

/// Bits of a cycle's flags.
pub mod flags {
    /// Pulses before this one were skipped because the loop was late.
    pub const SKIPPED: u64 = 1;
    /// The work of the cycle ended in the next period.
    pub const LATE: u64 = 1 << 1;
    /// The program reported that its output in this cycle must not be used.
    pub const FAULT: u64 = 1 << 2;
    /// The result came after its deadline.
    pub const BEHIND: u64 = 1 << 3;
}

/// State of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page is formatted, but no loop has taken it.
    Empty,
    /// The loop is armed and fills the page.
    Armed,
    /// The loop ended by itself.
    Ended,
}

/// The method by which a loop waits for its next pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleep until the pulse.
    Sleep,
    /// Read the clock until the pulse.
    Spin,
    /// Sleep until shortly before the pulse, then read the clock.
    Both {
        /// Time before the pulse at which the loop wakes up.
        spin: DurNs,
    },
}

/// Identity of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of its thread, padded with zeros.
    pub name: [u8; 16],
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// Time between pulses.
    pub period: DurNs,
    /// Due time of pulse [`first_pulse`](Self::first_pulse).
    pub first_due: MonoNs,
    /// Number of its first pulse.
    pub first_pulse: u64,
    /// The CPU that the loop is bound to; `None` if it may run on several.
    pub cpu: Option<CpuId>,
    /// Method of waiting.
    pub wait: Wait,
    /// Its fixed priority; 0 for a time-sharing loop.
    pub priority: u8,
    /// Time at which it was armed.
    pub armed: MonoNs,
}

impl Identity {
    pub(super) fn write(&self, to: &Words) {
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|index| self.name[at + index])));
        let (wait, spin) = match self.wait {
            Wait::Sleep => (0, 0),
            Wait::Spin => (1, 0),
            Wait::Both { spin } => (2, spin.0 as u64),
        };
        let words = [
            low,
            high,
            u64::from(self.pid) << 32 | u64::from(self.tid),
            self.period.0 as u64,
            self.first_due.0,
            self.first_pulse,
            self.cpu.map_or(0, |cpu| u64::from(cpu) + 1),
            wait,
            spin,
            u64::from(self.priority),
            self.armed.0,
        ];
        for (word, value) in to.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn read(from: &Words) -> Self {
        let word = |index: usize| from[index].load(Ordering::Relaxed);
        let [low, high] = [0, 1].map(|index| word(index).to_le_bytes());
        Self {
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

/// Heartbeat of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Number of cycles that began. It increases by one each cycle, independent of the pulse numbers.
    pub beats: u64,
    /// The newest cycle; `done` is 0 while it runs.
    pub cycle: Cycle,
}

/// One cycle of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Pulse number.
    pub pulse: u64,
    /// Time at which the pulse was due.
    pub expected: MonoNs,
    /// Time at which the loop woke up.
    pub woke: MonoNs,
    /// Time at which its work was done.
    pub done: MonoNs,
    /// Bits of [`flags`].
    pub flags: u64,
}

impl Cycle {
    /// Wake-up latency of the loop.
    #[must_use]
    pub fn latency(&self) -> DurNs {
        self.woke - self.expected
    }

    /// Compute time of the cycle.
    #[must_use]
    pub fn compute(&self) -> DurNs {
        self.done - self.woke
    }

    pub(super) fn words(&self) -> [u64; CYCLE_WORDS] {
        [self.pulse, self.expected.0, self.woke.0, self.done.0, self.flags]
    }

    pub(super) fn from_words([pulse, expected, woke, done, flags]: [u64; CYCLE_WORDS]) -> Self {
        Self { pulse, expected: MonoNs(expected), woke: MonoNs(woke), done: MonoNs(done), flags }
    }
}

/// Counters of a loop, since arming. The loop writes all of them except those marked *watcher*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Cycles that ran.
    Cycles,
    /// Pulses that were skipped because the loop was late.
    Overruns,
    /// Cycles whose work ended in the next period.
    Late,
    /// Page faults that needed no disk.
    MinorFaults,
    /// Page faults that needed the disk.
    MajorFaults,
    /// Times that the thread gave up its CPU: about one per cycle for a loop that sleeps.
    VoluntarySwitches,
    /// Times that the thread was preempted.
    InvoluntarySwitches,
    /// Calls of the allocator on the loop's thread.
    Allocations,
    /// Deallocations on the loop's thread.
    Frees,
    /// *Watcher:* cycles near which the hypervisor may have run something else on the CPU.
    SetApart,
    /// *Watcher:* cycles that it has checked.
    Watched,
    /// *Watcher:* cycles that were overwritten before it read them.
    WatchLost,
    /// *Watcher:* ticks of the CPU's steal counter.
    StealTicks,
    /// *Watcher:* 1 if it can identify the tasks that preempt the loop, otherwise 0.
    Naming,
    /// Readings that the program's output queue refused.
    OutputRefused,
    /// Cycles whose result was judged by a deadline.
    Judged,
    /// Judged results that came after the deadline.
    BehindDeadline,
    /// Total value of the judged results, in millionths of a full result.
    Worth,
}

impl From<[u64; CYCLE_WORDS]> for Cycle {
    fn from(words: [u64; CYCLE_WORDS]) -> Self {
        Self::from_words(words)
    }
}

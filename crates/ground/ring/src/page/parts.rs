//! What stands in a loop page: who the loop is, its cycles, what it counts.

use crate::Words;
use crate::sync::Ordering;
use base::{CpuId, DurNs, MonoNs};

/// Words of a cycle.
pub(super) const CYCLE_WORDS: usize = 5;

/// Bits of a cycle's flags.
pub mod flags {
    /// Pulses before this one were given up because the loop was late.
    pub const SKIPPED: u64 = 1;
    /// The work lasted into the next period.
    pub const LATE: u64 = 1 << 1;
    /// The program told that its output is not to be trusted in this cycle.
    pub const FAULT: u64 = 1 << 2;
    /// The result came behind its deadline.
    pub const BEHIND: u64 = 1 << 3;
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

    pub(super) fn words(&self) -> [u64; CYCLE_WORDS] {
        [self.pulse, self.expected.0, self.woke.0, self.done.0, self.flags]
    }

    pub(super) fn from_words([pulse, expected, woke, done, flags]: [u64; CYCLE_WORDS]) -> Self {
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
    /// Cycles whose result was weighed by a deadline.
    Judged,
    /// Those whose result came behind it.
    BehindDeadline,
    /// What all were worth, in millionths of a whole result.
    Worth,
}

impl From<[u64; CYCLE_WORDS]> for Cycle {
    fn from(words: [u64; CYCLE_WORDS]) -> Self {
        Self::from_words(words)
    }
}

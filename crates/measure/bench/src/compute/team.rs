//! A team for the measurements: one job of several kinds, over the first few CPUs.

use crate::Failed;
use base::{CpuId, DurNs, Policy};
use rt::team::{Team, TeamSpec, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words local to each worker: 16 KiB, which stay in its first cache.
const OWN: usize = 2048;
/// Passes through them in a job.
const PASSES: usize = 64;
/// Shared words: 16 MiB, more than second caches hold.
pub(super) const SHARED: usize = 2 << 20;
/// Time for which workers poll for a job before they sleep, if several teams share the CPUs. Meanwhile they block the
/// other teams' workers.
pub(super) const SHORT: DurNs = DurNs::from_us(200);
/// The same for a single team. Longer than the work of a job on one CPU; otherwise the workers would sleep, and their
/// wake-up would be measured.
pub(super) const LONG: DurNs = DurNs::from_ms(20);
/// Words of two cache lines, because the processor also fetches the adjacent line.
const LINES: usize = 16;
/// Additions of a worker to its counter.
pub(super) const ADDITIONS: u64 = 20_000;

/// Kind of a job; the work of a worker does not depend on the size of the team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Empty,
    /// Goes through its own small memory.
    Local,
    /// Adds to shared words, interleaved: each cache line moves from CPU to CPU.
    Interleaved,
    /// Adds to the same words, each worker to a separate part.
    Regions,
    /// Adds to its counter in a cache line that holds all counters.
    OneLine,
    /// Adds to its counter in a separate cache line.
    OwnLines,
    /// A share of this number of steps.
    Steps(u64),
}

/// Memory that the workers share.
pub(super) struct Shared {
    pub(super) kind: Kind,
    words: Arc<Vec<AtomicU64>>,
}

pub(super) type Crew = Team<Shared, Vec<u64>>;

/// The shared words, touched.
pub(super) fn words() -> Arc<Vec<AtomicU64>> {
    Arc::new((0..SHARED).map(|_| AtomicU64::new(1)).collect())
}

/// A team of the calling thread, on the first of these CPUs, and a worker on each of the others.
pub(super) fn crew(
    cpus: &[CpuId],
    class: Option<Policy>,
    words: &Arc<Vec<AtomicU64>>,
    (spin, timed): (DurNs, bool),
) -> Result<Crew, Failed> {
    let workers = cpus[1..].iter().map(|cpu| Some(*cpu)).collect();
    let spec = TeamSpec { class, timed, spin, limit: DurNs::from_ms(60_000), ..TeamSpec::new("bench", workers) };
    Ok(Team::start(spec, Shared { kind: Kind::Empty, words: words.clone() }, |_| vec![1; OWN], job)?)
}

fn job(shared: &Shared, own: &mut Vec<u64>, me: Worker) {
    // Without a locked instruction: each word has a single writer, or a lost addition does not matter.
    let add = |word: &AtomicU64| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    match shared.kind {
        Kind::Empty => {}
        Kind::Local => {
            for pass in 0..PASSES as u64 {
                own.iter_mut().for_each(|word| *word = word.wrapping_mul(3) ^ pass);
                std::hint::black_box(&mut *own);
            }
        }
        Kind::Interleaved => {
            (0..me.of).for_each(|_| shared.words.iter().skip(me.index).step_by(me.of).for_each(add));
        }
        Kind::Regions => (0..me.of).for_each(|_| shared.words[me.share(SHARED)].iter().for_each(add)),
        Kind::OneLine => count(&shared.words[me.index % 8]),
        Kind::OwnLines => count(&shared.words[me.index * LINES]),
        Kind::Steps(steps) => own[0] = work(me.share(steps as usize).len() as u64, own[0]),
    }
}

fn count(word: &AtomicU64) {
    (0..ADDITIONS).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
}

/// Steps that each depend on the previous one: pure CPU time.
pub(super) fn work(steps: u64, from: u64) -> u64 {
    (0..steps).fold(from | 1, |state, _| {
        let state = state ^ state << 13;
        let state = state ^ state >> 7;
        state ^ state << 17
    })
}

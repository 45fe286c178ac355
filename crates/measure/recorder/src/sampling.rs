//! Samples of chosen threads: a ring for each CPU, read as bytes.

use base::{CpuId, CpuSet, DurNs};
use std::os::fd::{AsFd as _, BorrowedFd};
use sys::Errno;
use sys::perf::{Event, Ring, Sampling, Source};

/// All rings together, if the machine has many CPUs; each has at least, and at most, what follows.
const RINGS_BYTES: usize = 64 << 20;
const RING_MIN: usize = 512 << 10;
const RING_MAX: usize = 4 << 20;
/// Most events that are open at once: each thread needs one on every CPU.
const EVENTS_MAX: usize = 1 << 16;

/// Why threads cannot be sampled.
#[derive(Debug)]
pub enum SamplingError {
    /// The kernel refuses it to this user; what `kernel.perf_event_paranoid` says.
    Forbidden(Option<String>),
    /// None of the threads is there any more.
    Ended,
    /// The kernel's answer.
    Kernel(sys::Error),
}

impl std::fmt::Display for SamplingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forbidden(paranoid) => {
                let paranoid = paranoid.as_deref().unwrap_or("unknown");
                write!(
                    f,
                    "the kernel does not let this user sample these threads: kernel.perf_event_paranoid is {paranoid}. \
                     Programs of one's own need 2 or less there, those of others root or the capability CAP_PERFMON"
                )
            }
            Self::Ended => f.write_str("the threads that were to be sampled have ended"),
            Self::Kernel(error) if error.errno == Errno::MFILE => {
                write!(
                    f,
                    "{error}: each thread needs a descriptor on every CPU; raise `ulimit -n`, or choose fewer threads"
                )
            }
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SamplingError {}

/// Threads that are being sampled.
#[derive(Debug)]
pub struct Sampler {
    how: Sampling,
    cpus: Vec<CpuId>,
    ring_bytes: usize,
    /// Of each CPU, once a thread is sampled there.
    rings: Vec<Option<Ring>>,
    /// Those that share a ring.
    events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Sampler {
    /// Samples nobody yet. Where the kernel does not let this user see its own code, or has no counters for the source, `how` is changed:
    /// see [`how`](Self::how).
    ///
    /// # Errors
    /// Nobody may be sampled.
    pub fn new(mut how: Sampling, online: &CpuSet) -> Result<Self, SamplingError> {
        let cpu = online.iter().next().ok_or(SamplingError::Ended)?;
        // Tried on this thread, where nothing but the machine and its rules can refuse it.
        loop {
            match Event::open(&Sampling { on_exec: false, ..how }, 0, cpu, 1) {
                Ok(_) => break,
                Err(error) if how.kernel && is_forbidden(&error) => how.kernel = false,
                Err(error) if is_forbidden(&error) => return Err(forbidden()),
                Err(error) if how.source == Source::Cycles && error.errno != Errno::MFILE => {
                    how.source = Source::CpuClock;
                }
                Err(error) => return Err(SamplingError::Kernel(error)),
            }
        }
        let cpus: Vec<CpuId> = online.iter().collect();
        let share = (RINGS_BYTES / cpus.len()).clamp(RING_MIN, RING_MAX);
        let ring_bytes = 1 << share.ilog2();
        let rings = cpus.iter().map(|_| None).collect();
        Ok(Self { how, cpus, ring_bytes, rings, events: Vec::new(), bytes: Vec::new() })
    }

    /// How threads are sampled.
    #[must_use]
    pub fn how(&self) -> &Sampling {
        &self.how
    }

    /// Memory that all rings may take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.ring_bytes * self.cpus.len()
    }

    /// Samples a thread, too, from [`enable_running`](Self::enable_running) on; `false` if it has ended.
    ///
    /// # Errors
    /// The user may not, or no more descriptors can be had.
    pub fn add(&mut self, tid: i32) -> Result<bool, SamplingError> {
        self.add_as(tid, false)
    }

    /// Samples a process from the moment on when it executes a program.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_at_exec(&mut self, pid: i32) -> Result<bool, SamplingError> {
        self.add_as(pid, true)
    }

    fn add_as(&mut self, tid: i32, on_exec: bool) -> Result<bool, SamplingError> {
        let how = Sampling { on_exec, inherit: self.how.inherit || on_exec, ..self.how };
        let watermark = (self.ring_bytes / 4) as u32;
        for (nth, &cpu) in self.cpus.iter().enumerate() {
            let event = match Event::open(&how, tid, cpu, watermark) {
                Ok(event) => event,
                Err(error) if error.errno == Errno::SRCH => return Ok(false),
                // A CPU that went offline meanwhile runs nobody.
                Err(error) if error.errno == Errno::NODEV => continue,
                Err(error) if is_forbidden(&error) => return Err(forbidden()),
                Err(error) => return Err(SamplingError::Kernel(error)),
            };
            match &self.rings[nth] {
                Some(ring) => {
                    event.write_into(ring).map_err(SamplingError::Kernel)?;
                    self.events.push(event);
                }
                None => {
                    let made = Ring::map(event, self.ring_bytes);
                    let ring = match made {
                        // What a user may lock is bounded.
                        Err(error) if error.errno == Errno::PERM && self.ring_bytes > RING_MIN / 2 => {
                            self.ring_bytes = RING_MIN / 2;
                            return self.add_as(tid, on_exec);
                        }
                        made => made.map_err(SamplingError::Kernel)?,
                    };
                    self.rings[nth] = Some(ring);
                }
            }
        }
        if self.events.len() > EVENTS_MAX {
            let doing =
                format!("sample more threads than {} on {} CPUs", EVENTS_MAX / self.cpus.len(), self.cpus.len());
            return Err(SamplingError::Kernel(sys::Error { doing, errno: Errno::MFILE }));
        }
        Ok(true)
    }

    /// Begins to sample all that run already; what was begun goes on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable_running(&self) -> Result<(), SamplingError> {
        self.all().filter(|event| !event.waits_for_exec()).try_for_each(Event::enable).map_err(SamplingError::Kernel)
    }

    /// Ends it; what has been written stays to be read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> Result<(), SamplingError> {
        self.all().try_for_each(Event::disable).map_err(SamplingError::Kernel)
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.rings.iter().flatten().map(Ring::event).chain(&self.events)
    }

    /// Waits until a ring fills or something else can be read, at most for `limit`.
    pub fn wait(&self, other: BorrowedFd<'_>, limit: DurNs) {
        let fds: Vec<_> = self.rings.iter().flatten().map(Ring::as_fd).chain([other]).collect();
        let _ = sys::poll::readable(&fds, limit);
    }

    /// Hands on what every ring holds, whole records. All that happened 1 ms before the call or earlier has then been handed on.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        for ring in self.rings.iter_mut().flatten() {
            self.bytes.clear();
            ring.drain(&mut self.bytes);
            take(&self.bytes);
        }
    }

    /// What the sources have counted (cycles, or nanoseconds of processor time), and records that found no room, where the kernel tells.
    #[must_use]
    pub fn counted(&self) -> (u64, Option<u64>) {
        let counts = self.all().filter_map(|event| event.read().ok());
        counts
            .fold((0, Some(0)), |(sum, lost), (count, more)| (sum + count, lost.zip(more).map(|(one, two)| one + two)))
    }
}

fn is_forbidden(error: &sys::Error) -> bool {
    matches!(error.errno, Errno::ACCESS | Errno::PERM)
}

fn forbidden() -> SamplingError {
    let paranoid = sys::root::RootDir::machine().read("/proc/sys/kernel/perf_event_paranoid").ok();
    SamplingError::Forbidden(paranoid.map(|text| text.trim().to_owned()))
}

/// Spins for so long to see what a sample takes.
const TRIED: DurNs = DurNs::from_ms(40);
/// Readings of the clock that lie further apart have something between them.
const GAP: DurNs = DurNs(400);

/// What a sample takes of the sampled thread, the interrupt included: the median of what this thread loses to its own samples while it
/// does nothing but read the clock. `None` where it cannot be told.
#[must_use]
pub fn sample_cost(how: &Sampling) -> Option<DurNs> {
    let cpus = sys::sched::affinity(0).ok()?;
    // One CPU and its ring are enough for a look.
    let cpu = cpus.iter().next()?;
    sys::sched::set_affinity(0, &CpuSet::single(cpu)).ok()?;
    let gaps = gaps(&Sampling { hz: 1000, inherit: false, on_exec: false, ..*how }, cpu);
    sys::sched::set_affinity(0, &cpus).ok()?;
    let (gaps, bytes) = gaps?;
    let registers = (how.stack_bytes > 0).then_some(profile::REGISTERS);
    let samples =
        profile::Records::new(&bytes, registers).filter(|timed| matches!(timed.record, profile::Record::Sample(_)));
    let taken = |at: u64| gaps.iter().find(|(from, to)| (*from..=*to).contains(&at)).map(|(from, to)| to - from);
    let mut costs: Vec<u64> = samples.filter_map(|timed| taken(timed.at)).collect();
    costs.sort_unstable();
    costs.get(costs.len() / 2).map(|cost| DurNs(*cost as i64))
}

/// Two times between which a thread did not run.
type Gap = (u64, u64);

/// When this thread did not run, and what its samples say.
fn gaps(how: &Sampling, cpu: CpuId) -> Option<(Vec<Gap>, Vec<u8>)> {
    // As deep as a copy goes.
    std::hint::black_box(&[0u8; 1 << 16]);
    let mut ring = Ring::map(Event::open(how, 0, cpu, u32::MAX).ok()?, RING_MAX).ok()?;
    let mut gaps = Vec::with_capacity(4096);
    ring.event().enable().ok()?;
    let mut last = sys::clock::mono_now();
    let until = last + TRIED;
    while last < until && gaps.len() < gaps.capacity() {
        let now = sys::clock::mono_now();
        if now - last > GAP {
            gaps.push((last.0, now.0));
        }
        last = now;
    }
    ring.event().disable().ok()?;
    let mut bytes = Vec::new();
    ring.drain(&mut bytes);
    Some((gaps, bytes))
}

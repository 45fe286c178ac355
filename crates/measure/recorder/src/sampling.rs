//! Sampling of selected threads: one ring per CPU, read as bytes.

use base::{CpuId, CpuSet, DurNs};
use std::os::fd::{AsFd as _, BorrowedFd};
use sys::Errno;
use sys::perf::{Event, Ring, Sampling, Source};

/// Total size of all rings in bytes, unless the limits per ring below apply.
const RINGS_BYTES: usize = 64 << 20;
const RING_MIN: usize = 512 << 10;
const RING_MAX: usize = 4 << 20;
/// Maximum open events: each thread needs one per CPU.
const EVENTS_MAX: usize = 1 << 16;

/// Reason why threads cannot be sampled.
#[derive(Debug)]
pub enum SamplingError {
    /// The kernel does not allow it for this user; with the value of `kernel.perf_event_paranoid`.
    Forbidden(Option<String>),
    /// None of the threads exists any longer.
    Ended,
    /// Another error of the kernel.
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

/// Sampler of threads.
#[derive(Debug)]
pub struct Sampler {
    how: Sampling,
    cpus: Vec<CpuId>,
    ring_bytes: usize,
    /// By CPU; created with the first thread sampled.
    rings: Vec<Option<Ring>>,
    /// Further events, which share the rings.
    events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Sampler {
    /// Creates a sampler without threads. If the kernel does not allow this user to sample kernel code, or has no counter for the
    /// source, `how` is changed: see [`how`](Self::how).
    ///
    /// # Errors
    /// If no thread may be sampled.
    pub fn new(mut how: Sampling, online: &CpuSet) -> Result<Self, SamplingError> {
        let cpu = online.iter().next().ok_or(SamplingError::Ended)?;
        // Test on this thread, for which only the machine and its settings can refuse.
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

    /// Present settings.
    #[must_use]
    pub fn how(&self) -> &Sampling {
        &self.how
    }

    /// Maximum memory of all rings, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.ring_bytes * self.cpus.len()
    }

    /// Adds a thread, sampled from [`enable_running`](Self::enable_running) on. Returns `false` if it has ended.
    ///
    /// # Errors
    /// If the user lacks the privilege, or no descriptor is free.
    pub fn add(&mut self, tid: i32) -> Result<bool, SamplingError> {
        self.add_as(tid, false)
    }

    /// Adds a process, sampled from the moment it executes a program.
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
                // A CPU that went offline runs no threads.
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
                        // The memory a user may lock is limited.
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

    /// Starts sampling all added threads that are already running.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enable_running(&self) -> Result<(), SamplingError> {
        self.all().filter(|event| !event.waits_for_exec()).try_for_each(Event::enable).map_err(SamplingError::Kernel)
    }

    /// Stops sampling. Samples already recorded can still be read.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn disable(&self) -> Result<(), SamplingError> {
        self.all().try_for_each(Event::disable).map_err(SamplingError::Kernel)
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.rings.iter().flatten().map(Ring::event).chain(&self.events)
    }

    /// Waits until a ring fills or `other` is readable, at most `limit`.
    pub fn wait(&self, other: BorrowedFd<'_>, limit: DurNs) {
        let fds: Vec<_> = self.rings.iter().flatten().map(Ring::as_fd).chain([other]).collect();
        let _ = sys::poll::readable(&fds, limit);
    }

    /// Passes the complete records of each ring to `take`. Afterwards, everything up to 1 ms before the call has been passed.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        for ring in self.rings.iter_mut().flatten() {
            self.bytes.clear();
            ring.drain(&mut self.bytes);
            take(&self.bytes);
        }
    }

    /// Total of the counters (cycles, or nanoseconds of processor time), and number of lost records if the kernel reports it.
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

/// Duration of the measurement of a sample's cost.
const TRIED: DurNs = DurNs::from_ms(40);
/// A larger difference between two clock readings is an interruption.
const GAP: DurNs = DurNs(400);

/// Time that a sample takes from the sampled thread, including the interrupt: the median loss of this thread while it only reads
/// the clock. `None` if it cannot be measured.
#[must_use]
pub fn sample_cost(how: &Sampling) -> Option<DurNs> {
    let cpus = sys::sched::affinity(0).ok()?;
    // One CPU and its ring are sufficient.
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

/// Start and end of an interruption.
type Gap = (u64, u64);

/// Interruptions of this thread, and its samples.
fn gaps(how: &Sampling, cpu: CpuId) -> Option<(Vec<Gap>, Vec<u8>)> {
    // Touch as much stack as a sample copies.
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

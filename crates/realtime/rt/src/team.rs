//! A fork-join team: threads on separate CPUs that share each job of a leader.
//!
//! The leader is the thread that calls [`Team::run`], for example the thread of a loop. The workers wait for it; they spin
//! first, then sleep. Each worker has its own *part*, which it created on its own thread, so that the thread that uses the
//! memory also touches it first. All threads can read the *shared* data. Between jobs the leader has access to both. During
//! a job the shared data is read-only, and each part belongs to its worker. So no locks are needed, and the compiler checks
//! the access.
//!
//! ```
//! use rt::team::{Team, TeamSpec};
//!
//! // Three workers and the leader each sum a share of the shared numbers.
//! let spec = TeamSpec::new("sum", vec![None; 3]);
//! let job = |numbers: &Vec<u64>, sum: &mut u64, me: rt::team::Worker| *sum = numbers[me.share(numbers.len())].iter().sum();
//! let mut team = Team::start(spec, (1..=1000).collect(), |_| 0, job)?;
//! team.run()?;
//! let mut total = 0;
//! team.each(|_, sum| total += *sum)?;
//! assert_eq!(total, 500_500);
//! # Ok::<(), rt::team::TeamError>(())
//! ```

use crate::looping::{self, LoopSpec};
use crate::obtained::Obtained;
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy, RtLevel, Size};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use sys::turn::{Lead, Member, Place};

/// Checks between two readings of the clock, because reading the clock costs more than a check.
const LOOKS: u32 = 64;
/// Number of the leader's first checks, a few hundred nanoseconds in which the workers mostly finish. It does not pause
/// between them, because a pause would be longer than the remaining wait.
const FIRST_LOOKS: u32 = 512;

/// Specification of a team.
#[derive(Clone, Debug)]
pub struct TeamSpec {
    /// Name of its threads, followed by `/` and the worker's number. The kernel keeps 15 bytes.
    pub name: String,
    /// CPU of the leader's thread. The leader's part is created there. The caller must bind the thread itself.
    pub leader: Option<CpuId>,
    /// CPU of each worker, without the leader; `None` leaves the worker on the process's CPUs.
    pub workers: Vec<Option<CpuId>>,
    /// Scheduling class of the workers; `None` uses that of the thread that starts them.
    pub class: Option<Policy>,
    /// Membership file of the control group that owns these CPUs, see [`LoopSpec::entry`].
    pub entry: Option<String>,
    /// Time that a waiting thread spins before it sleeps. [`spin_window`](crate::spin_window) measures a good value. Workers
    /// that must react at once need slightly more than the time between two jobs; they then keep their CPUs busy.
    pub spin: DurNs,
    /// Maximum time that the leader waits for the workers after its own share.
    pub limit: DurNs,
    /// Whether start and duration of each share are recorded, which costs two readings of the clock per thread. Otherwise
    /// all [`Times`] are zero.
    pub timed: bool,
    /// Size of the workers' stacks.
    pub stack: Size,
}

impl TeamSpec {
    /// A team of these workers and the leader. It uses the class of the thread that starts it, spins for 50 us, and has a
    /// limit of one second.
    #[must_use]
    pub fn new(name: impl Into<String>, workers: Vec<Option<CpuId>>) -> Self {
        Self {
            name: name.into(),
            leader: None,
            workers,
            class: None,
            entry: None,
            spin: DurNs::from_us(50),
            limit: DurNs::from_ms(1000),
            timed: true,
            stack: Size(256 << 10),
        }
    }
}

/// A thread's place in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Index; the leader is 0.
    pub index: usize,
    /// Number of threads, including the leader.
    pub of: usize,
}

impl Worker {
    /// The worker's share of a number of items. Shares are contiguous, in the order of workers, and their sizes differ by at
    /// most one.
    #[must_use]
    pub fn share(&self, items: usize) -> Range<usize> {
        let (each, more) = (items / self.of, items % self.of);
        let begin = |index: usize| index * each + index.min(more);
        begin(self.index)..begin(self.index + 1)
    }
}

/// Timing of a worker's share of the last job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time from dispatch to the start of the share; 0 for the leader.
    pub late: DurNs,
    /// Time from the start of the share to its end.
    pub took: DurNs,
}

/// Reason why a team cannot be started or has not finished its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// Two threads of the team have the same CPU.
    #[error("CPU {0} is given to two of the team; expected a CPU for each")]
    SharedCpu(CpuId),
    /// There are more real-time threads than CPUs. Threads that spin would keep each other from running.
    #[error(
        "a team of {threads} threads in a real-time class has {cpus} CPUs; expected a CPU for each: name fewer workers, or no \
         real-time class"
    )]
    Crowded {
        /// Number of threads of the team, including the leader.
        threads: usize,
        /// Number of CPUs of the process.
        cpus: usize,
    },
    /// A worker may not run on its CPU.
    #[error("worker {worker}: CPU {cpu}: {error}; expected a CPU of this process (see `tahti doctor`)")]
    Cpu {
        /// Index of the worker.
        worker: usize,
        /// The CPU that it should be bound to.
        cpu: CpuId,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// A worker's thread could not be started.
    #[error("worker {worker} cannot be started: {error}")]
    Spawn {
        /// Index of the worker.
        worker: usize,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A worker's thread has ended because its job panicked. The team cannot run further jobs.
    #[error("worker {worker} has ended in a panic; expected its job to return: start a new team")]
    Gone {
        /// Index of the worker.
        worker: usize,
    },
    /// A worker is still in the job. The team can run again once that worker has returned.
    #[error(
        "worker {worker}{} is still in its job {waited} after the leader; expected it within the limit",
        cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"))
    )]
    Late {
        /// Index of the worker.
        worker: usize,
        /// Its CPU, if one was given.
        cpu: Option<CpuId>,
        /// Time that the leader waited.
        waited: DurNs,
    },
}

/// A part, which leader and worker access alternately; `None` before the worker has created it.
type Slot<P> = Option<P>;

type Job<S, P> = Arc<dyn Fn(&S, &mut P, Worker) + Send + Sync>;

/// A team. `S` is the data that its workers share, `P` the part of each worker. Dropping it ends its workers and waits for
/// them.
pub struct Team<S, P> {
    // Dropped first, which ends the workers.
    lead: Lead<S, Slot<P>>,
    crew: Crew,
    own: P,
    job: Job<S, P>,
    times: Vec<Times>,
    obtained: Vec<Obtained>,
    spec: TeamSpec,
}

/// The workers' threads. Waits for them when dropped.
struct Crew(Vec<(JoinHandle<()>, i32)>);

impl Drop for Crew {
    fn drop(&mut self) {
        // `run` has already reported a panic.
        self.0.drain(..).for_each(|(thread, _)| drop(thread.join()));
    }
}

/// Message of a worker's thread once it is prepared.
type Ready = Result<(i32, Vec<Obtained>), sys::Error>;

impl<S: Send + Sync + 'static, P: Send + 'static> Team<S, P> {
    /// Starts the workers, and waits until each has created its part on its own thread and CPU. `job` is the work of each
    /// thread on its part. Call it before [`Rt::arm`](crate::Rt::arm), or after it if page faults at that time are
    /// acceptable. It allocates.
    ///
    /// # Errors
    /// Two threads have the same CPU, there are more real-time threads than CPUs, a worker cannot be started or bound, or
    /// `make` panicked.
    pub fn start(
        spec: TeamSpec,
        shared: S,
        make: impl Fn(Worker) -> P + Send + Sync + 'static,
        job: impl Fn(&S, &mut P, Worker) + Send + Sync + 'static,
    ) -> Result<Self, TeamError> {
        let inherited = sys::sched::scheduling(0).map_or(Policy::OTHER, |scheduling| scheduling.policy);
        check(&spec, inherited)?;
        let of = spec.workers.len() + 1;
        let (make, job): (Arc<_>, Job<S, P>) = (Arc::new(make), Arc::new(job));
        let empty = |_| None;
        // On an error the lead is dropped before the crew as well, so the workers already started end.
        let (mut crew, mut obtained) = (Crew(Vec::new()), Vec::new());
        let (lead, members) = sys::turn::team(shared, spec.workers.iter().map(empty).collect());
        // All workers are started before the first wait, so that they create their parts concurrently.
        let mut starting = Vec::new();
        for (index, member) in (1..).zip(members) {
            let mine = LoopSpec {
                class: spec.class,
                cpu: spec.workers[index - 1],
                entry: spec.entry.clone(),
                stack: spec.stack,
                ..LoopSpec::new(format!("{}/{index}", spec.name), DurNs::ZERO)
            };
            let (tell, ready) = channel();
            let (make, job, worker) = (make.clone(), job.clone(), Worker { index, of });
            let (spin, timed) = (spec.spin, spec.timed);
            let builder = std::thread::Builder::new().stack_size(spec.stack.0 as usize);
            let main = move || {
                if let Some(member) = prepare(member, &mine, inherited, || make(worker), &tell) {
                    work(member, (spin, timed), &job, worker);
                }
            };
            let thread = builder.spawn(main).map_err(|error| TeamError::Spawn { worker: index, error })?;
            crew.0.push((thread, 0));
            starting.push((index, ready));
        }
        let own = match spec.leader {
            None => make(Worker { index: 0, of }),
            Some(cpu) => std::thread::scope(|scope| {
                let there =
                    scope.spawn(|| looping::bind(cpu, spec.entry.as_deref()).map(|()| make(Worker { index: 0, of })));
                let bound = there.join().map_err(|_| TeamError::Gone { worker: 0 })?;
                bound.map_err(|error| TeamError::Cpu { worker: 0, cpu, error })
            })?,
        };
        for (worker, ready) in starting {
            let ready: Ready = ready.recv().map_err(|_| TeamError::Gone { worker })?;
            let bound = ready.map_err(|error| (spec.workers[worker - 1], error));
            let (tid, items) = bound.map_err(|(cpu, error)| TeamError::Cpu { worker, cpu: cpu.unwrap_or(0), error })?;
            obtained.extend(
                items.into_iter().map(|item| Obtained { what: format!("worker {worker}: {}", item.what), ..item }),
            );
            crew.0[worker - 1].1 = tid;
        }
        Ok(Self { lead, crew, own, job, times: vec![Times::default(); of], obtained, spec })
    }
}

impl<S, P> Team<S, P> {
    /// Number of threads, including the leader.
    #[must_use]
    pub fn size(&self) -> usize {
        self.times.len()
    }

    /// All properties requested for the workers, obtained or not.
    #[must_use]
    pub fn obtained(&self) -> &[Obtained] {
        &self.obtained
    }

    /// Requested properties that were not obtained.
    pub fn missing(&self) -> impl Iterator<Item = &Obtained> {
        self.obtained.iter().filter(|item| item.missing.is_some())
    }

    /// Thread ids of the workers, without the leader, for recording or monitoring.
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        self.crew.0.iter().map(|(_, tid)| *tid)
    }

    /// The shared data.
    #[must_use]
    pub fn shared(&self) -> &S {
        self.lead.shared()
    }

    /// Mutable access to the shared data between jobs.
    ///
    /// # Errors
    /// A worker is still in a job that timed out, or has ended.
    pub fn shared_mut(&mut self) -> Result<&mut S, TeamError> {
        self.join(DurNs::ZERO)?;
        self.lead.shared_mut().ok_or(TeamError::Gone { worker: 0 })
    }

    /// Calls `then` with each part between jobs, the leader's first. Use it to gather results or to exchange a buffer.
    ///
    /// # Errors
    /// A worker is still in a job that timed out, or has ended.
    pub fn each(&mut self, mut then: impl FnMut(Worker, &mut P)) -> Result<(), TeamError> {
        self.join(DurNs::ZERO)?;
        let of = self.size();
        then(Worker { index: 0, of }, &mut self.own);
        for index in 1..of {
            if let Some(Some(part)) = self.lead.part(index - 1) {
                then(Worker { index, of }, part);
            }
        }
        Ok(())
    }

    /// Runs a job: all threads do their shares, including the leader. Waits for the last one and returns the timing, in the
    /// order of workers.
    ///
    /// Real-time: one locked instruction for each worker, and a spin. Threads that sleep cost system calls. Does not
    /// allocate. Takes the time of the leader's share plus at most the limit.
    ///
    /// # Errors
    /// A worker has not returned within the limit, or has ended; the error identifies it. Until it has returned, the team's
    /// data cannot be changed, and another call fails at once with the same error.
    pub fn run(&mut self) -> Result<&[Times], TeamError> {
        self.join(DurNs::ZERO)?;
        let timed = self.spec.timed;
        let dispatched = if timed { mono_now() } else { MonoNs(0) };
        (0..self.lead.members()).for_each(|member| self.lead.pass(member));
        (self.job)(self.lead.shared(), &mut self.own, Worker { index: 0, of: self.times.len() });
        if timed {
            self.times[0] = Times { late: DurNs::ZERO, took: mono_now() - dispatched };
        }
        self.join(self.spec.limit)?;
        if timed {
            for (member, times) in self.times[1..].iter_mut().enumerate() {
                if let Some([begun, done]) = self.lead.note(member) {
                    *times = Times { late: MonoNs(begun) - dispatched, took: MonoNs(done) - MonoNs(begun) };
                }
            }
        }
        Ok(&self.times)
    }

    /// Timing of the last completed job, in the order of workers.
    #[must_use]
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// Waits until all workers have returned, at most for `limit`.
    fn join(&self, limit: DurNs) -> Result<(), TeamError> {
        let mut begun = None;
        for member in 0..self.lead.members() {
            let worker = member + 1;
            'member: loop {
                let first = begun.is_none();
                for _ in 0..if first { FIRST_LOOKS } else { LOOKS } {
                    match self.lead.place(member) {
                        Place::Back => break 'member,
                        Place::Gone => return Err(TeamError::Gone { worker }),
                        Place::Out if first => {}
                        Place::Out => std::hint::spin_loop(),
                    }
                }
                let now = mono_now();
                let waited = now - *begun.get_or_insert(now);
                if waited >= limit {
                    return Err(TeamError::Late { worker, cpu: self.spec.workers[member], waited });
                }
                if waited >= self.spec.spin {
                    self.lead.sleep(member, Some(DurNs(limit.0 - waited.0)));
                }
            }
        }
        Ok(())
    }
}

/// Checks that no CPU is used twice, and that a real-time team has a CPU for each thread.
fn check(spec: &TeamSpec, inherited: Policy) -> Result<(), TeamError> {
    let mut bound = CpuSet::EMPTY;
    for cpu in spec.workers.iter().chain([&spec.leader]).flatten() {
        if bound.contains(*cpu) {
            return Err(TeamError::SharedCpu(*cpu));
        }
        bound.insert(*cpu);
    }
    if spec.class.unwrap_or(inherited).level() == RtLevel::None {
        return Ok(());
    }
    let ours = sys::sched::affinity(0).unwrap_or(CpuSet::EMPTY);
    let (threads, cpus) = (spec.workers.len() + 1, ours.or(&bound).count());
    if threads > cpus { Err(TeamError::Crowded { threads, cpus }) } else { Ok(()) }
}

/// Prepares a worker's thread. Returns `None` if it may not run on its CPU; the error has been sent then.
fn prepare<S, P>(
    mut member: Member<S, Slot<P>>,
    spec: &LoopSpec,
    inherited: Policy,
    make: impl FnOnce() -> P,
    tell: &Sender<Ready>,
) -> Option<Member<S, Slot<P>>> {
    // Bound first, so that the part is created on the CPU that uses it. The class is set last, so that the creation disturbs
    // no other thread.
    if let Some(cpu) = spec.cpu
        && let Err(error) = looping::bind(cpu, spec.entry.as_deref())
    {
        let _ = tell.send(Err(error));
        return None;
    }
    let part = make();
    if let Some((_, slot)) = member.turn() {
        *slot = Some(part);
    }
    let obtained = looping::prepare(spec, inherited, false);
    member.pass();
    tell.send(Ok((sys::thread::id(), obtained))).is_ok().then_some(member)
}

/// Does a worker's share of each job until the leader has gone.
fn work<S, P>(mut member: Member<S, Slot<P>>, (spin, timed): (DurNs, bool), job: &Job<S, P>, worker: Worker) {
    let clock = || if timed { mono_now().0 } else { 0 };
    while await_turn(&mut member, spin) {
        if let Some((shared, Some(part))) = member.turn() {
            let begun = clock();
            job(shared, part, worker);
            member.note([begun, clock()]);
        }
        member.pass();
    }
}

/// Waits for the member's turn. Returns `false` if the leader has gone.
fn await_turn<S, P>(member: &mut Member<S, P>, spin: DurNs) -> bool {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            // Also before the first check, which would fetch the cache line back to this CPU before the leader has read it.
            std::hint::spin_loop();
            if member.turn().is_some() {
                return true;
            }
        }
        if member.is_closed() {
            return false;
        }
        let now = mono_now();
        if now - *begun.get_or_insert(now) >= spin {
            member.sleep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_contiguous_and_differ_by_one_item_at_most() {
        for (items, of) in [(0, 1), (1, 3), (7, 3), (9, 3), (100, 7)] {
            let shares: Vec<_> = (0..of).map(|index| Worker { index, of }.share(items)).collect();
            assert_eq!((shares[0].start, shares[of - 1].end), (0, items));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start), "{shares:?}");
            let longest = shares.iter().map(Range::len).max().unwrap();
            assert!(shares.iter().all(|share| share.len() + 1 >= longest), "{shares:?}");
        }
    }
}

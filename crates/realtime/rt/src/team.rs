//! A fork-join team: threads on CPUs of their own that share each job of one leader.
//!
//! The leader is whoever calls [`Team::run`], a loop's thread for instance; the workers wait for it, spinning first, then asleep.
//! Each has a *part* of its own, which it made on its own thread, so that the memory is touched first by who works on it; all see
//! what is *shared*. Between two jobs both are the leader's; in a job the shared is nobody's to change, and a part its owner's
//! alone. So nothing is locked, and the compiler keeps who may reach what.
//!
//! ```
//! use rt::team::{Team, TeamSpec};
//!
//! // Three workers and the leader each sum a share of what is shared.
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

/// Looks between two readings of the clock: a reading costs more than a look.
const LOOKS: u32 = 64;
/// The leader's first looks, some hundred nanoseconds in which the others mostly come: it does not pause between them, as a pause is longer than
/// what it waits for then.
const FIRST_LOOKS: u32 = 512;

/// How a team runs.
#[derive(Clone, Debug)]
pub struct TeamSpec {
    /// Name of its threads, with `/` and the worker's number behind it; the kernel keeps 15 bytes.
    pub name: String,
    /// The CPU of the leader's thread, which makes its part there; the thread itself is its owner's to bind.
    pub leader: Option<CpuId>,
    /// The CPU of each worker beside the leader; `None` leaves it the CPUs of the process.
    pub workers: Vec<Option<CpuId>>,
    /// Class of the workers; `None` takes over that of the thread that starts them.
    pub class: Option<Policy>,
    /// The file of a control group that has those CPUs for itself, as [`LoopSpec::entry`].
    pub entry: Option<String>,
    /// How long whoever waits spins before it sleeps; [`spin_window`](crate::spin_window) measures what pays. Workers that are to
    /// be there at once need a little more than the time between two jobs: then they keep their CPUs busy.
    pub spin: DurNs,
    /// How long the leader waits for the others after its own share.
    pub limit: DurNs,
    /// Whether it is kept when each began and how long it took: two readings of the clock by each. Else all [`Times`] are zero.
    pub timed: bool,
    /// The workers' stacks.
    pub stack: Size,
}

impl TeamSpec {
    /// A team of these workers and the leader; in the class of who starts it, spins for 50 us, gives up after one second.
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

/// Who of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// From 0, the leader, on.
    pub index: usize,
    /// How many they are, the leader among them.
    pub of: usize,
}

impl Worker {
    /// Its share of some items: in the order of workers, none more than one larger than another.
    #[must_use]
    pub fn share(&self, items: usize) -> Range<usize> {
        let (each, more) = (items / self.of, items % self.of);
        let begin = |index: usize| index * each + index.min(more);
        begin(self.index)..begin(self.index + 1)
    }
}

/// When a worker did its share of the last job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From dispatch to its beginning. The leader's is 0.
    pub late: DurNs,
    /// From its beginning to its end.
    pub took: DurNs,
}

/// A team cannot be started, or has not done its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// Two of it would spin on one CPU.
    #[error("CPU {0} is given to two of the team; expected a CPU for each")]
    SharedCpu(CpuId),
    /// Real-time threads that spin would keep each other from their CPUs.
    #[error(
        "a team of {threads} threads in a real-time class has {cpus} CPUs; expected a CPU for each: name fewer workers, or no \
         real-time class"
    )]
    Crowded {
        /// The team's, the leader among them.
        threads: usize,
        /// The process's.
        cpus: usize,
    },
    /// A worker may not run on its CPU.
    #[error("worker {worker}: CPU {cpu}: {error}; expected a CPU of this process (see `tahti doctor`)")]
    Cpu {
        /// Which.
        worker: usize,
        /// The CPU that it was to be bound to.
        cpu: CpuId,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// A worker's thread could not be started.
    #[error("worker {worker} cannot be started: {error}")]
    Spawn {
        /// Which.
        worker: usize,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A worker's thread has ended: its job has panicked. The team does no more.
    #[error("worker {worker} has ended in a panic; expected its job to return: start a new team")]
    Gone {
        /// Which.
        worker: usize,
    },
    /// A worker is still in the job. The team can be asked again: it goes on once that worker is back.
    #[error(
        "worker {worker}{} is still in its job {waited} after the leader; expected it within the limit",
        cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"))
    )]
    Late {
        /// Which.
        worker: usize,
        /// Its CPU, if it was given one.
        cpu: Option<CpuId>,
        /// How long the leader waited.
        waited: DurNs,
    },
}

/// What the leader and a worker have by turns: nothing before the worker has made it.
type Slot<P> = Option<P>;

type Job<S, P> = Arc<dyn Fn(&S, &mut P, Worker) + Send + Sync>;

/// A team: `S` is what its workers share, `P` what each has of its own. Dropped, it ends its workers and waits for them.
pub struct Team<S, P> {
    // Dropped first: that tells the workers to end.
    lead: Lead<S, Slot<P>>,
    crew: Crew,
    own: P,
    job: Job<S, P>,
    times: Vec<Times>,
    obtained: Vec<Obtained>,
    spec: TeamSpec,
}

/// Waits for its threads when dropped.
struct Crew(Vec<(JoinHandle<()>, i32)>);

impl Drop for Crew {
    fn drop(&mut self) {
        // A panic was told by `run` already.
        self.0.drain(..).for_each(|(thread, _)| drop(thread.join()));
    }
}

/// What a worker's thread tells once it is prepared.
type Ready = Result<(i32, Vec<Obtained>), sys::Error>;

impl<S: Send + Sync + 'static, P: Send + 'static> Team<S, P> {
    /// Starts the workers, and waits until each has made its part on its own thread and CPU. `job` is what they all do, each with
    /// its own part. To be called before [`Rt::arm`](crate::Rt::arm), or after it where the memory may be brought in late; it allocates.
    ///
    /// # Errors
    /// Two have one CPU, there are more real-time threads than CPUs, a worker cannot be started or bound, or `make` has panicked.
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
        // Where this fails the lead is dropped before the crew, too: whoever was started ends.
        let (mut crew, mut obtained) = (Crew(Vec::new()), Vec::new());
        let (lead, members) = sys::turn::team(shared, spec.workers.iter().map(empty).collect());
        // All are started before one is waited for: they make their parts at the same time.
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
    /// How many they are, the leader among them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.times.len()
    }

    /// All that was asked for its workers, obtained or not.
    #[must_use]
    pub fn obtained(&self) -> &[Obtained] {
        &self.obtained
    }

    /// What was not obtained.
    pub fn missing(&self) -> impl Iterator<Item = &Obtained> {
        self.obtained.iter().filter(|item| item.missing.is_some())
    }

    /// The workers' threads, for who records or watches them; without the leader's.
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        self.crew.0.iter().map(|(_, tid)| *tid)
    }

    /// What is shared.
    #[must_use]
    pub fn shared(&self) -> &S {
        self.lead.shared()
    }

    /// What is shared, to be changed before the next job.
    ///
    /// # Errors
    /// A worker is still in a job that was given up, or has ended.
    pub fn shared_mut(&mut self) -> Result<&mut S, TeamError> {
        self.join(DurNs::ZERO)?;
        self.lead.shared_mut().ok_or(TeamError::Gone { worker: 0 })
    }

    /// Shows each part, the leader's first, between two jobs: to gather results, or to exchange a buffer.
    ///
    /// # Errors
    /// A worker is still in a job that was given up, or has ended.
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

    /// Has all do their shares, the leader among them, and waits for the last: when each did, in the order of workers.
    ///
    /// Real-time: a locked instruction for each worker and a spin; system calls for those who sleep. Does not allocate. Takes
    /// the leader's share and at most the limit.
    ///
    /// # Errors
    /// A worker has not come back within the limit, or has ended: which. Until it is back nothing of the team can be changed, and
    /// to run again says the same at once.
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

    /// When each did its share of the last job that was done, in the order of workers.
    #[must_use]
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// Waits until all are back, for `limit` at most.
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

/// Whether each thread has a CPU, where it has to.
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

/// What a worker's thread does first. Nothing where it may not run on its CPU, which it has told then.
fn prepare<S, P>(
    mut member: Member<S, Slot<P>>,
    spec: &LoopSpec,
    inherited: Policy,
    make: impl FnOnce() -> P,
    tell: &Sender<Ready>,
) -> Option<Member<S, Slot<P>>> {
    // Bound first, so that the part is made where it is worked on; the class comes last, so that making it disturbs nobody.
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

/// Does a worker's share of each job until the leader is gone.
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

/// Waits for the member's turn; whether it is, or the leader is gone.
fn await_turn<S, P>(member: &mut Member<S, P>, spin: DurNs) -> bool {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            // Before the first look, too: it would fetch the word back to this CPU before the leader has seen it.
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
    fn shares_follow_each_other_and_differ_by_one_at_most() {
        for (items, of) in [(0, 1), (1, 3), (7, 3), (9, 3), (100, 7)] {
            let shares: Vec<_> = (0..of).map(|index| Worker { index, of }.share(items)).collect();
            assert_eq!((shares[0].start, shares[of - 1].end), (0, items));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start), "{shares:?}");
            let longest = shares.iter().map(Range::len).max().unwrap();
            assert!(shares.iter().all(|share| share.len() + 1 >= longest), "{shares:?}");
        }
    }
}

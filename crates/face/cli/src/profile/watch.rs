//! Collects samples until the time is over, the program has ended or a signal arrives.

use super::program::{Running, Waiting, prepare};
use super::{Args, Sampled};
use crate::control::plant_name;
use crate::explain::plant::running;
use crate::explain::target::Target;
use crate::failure::Failure;
use base::{DurNs, MonoNs, Policy};
use profile::Profile;
use recorder::{Objects, Sampler, SamplingError};
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use sys::perf::{Sampling, Source};
use sys::root::RootDir;
use sys::sched::Scheduling;
use sys::signal::SignalFd;
use trace::Symbols;
use trace::stored::Thread;

/// Interval between reads of the rings, which hold many times as much.
const LOOK: DurNs = DurNs::from_ms(20);
/// Interval between searches for new threads, if threads are selected by name.
const SEARCH: DurNs = DurNs::from_ms(200);
/// Maximum passes of a search, each of which may find threads that started during the previous pass.
const SEARCHES: u32 = 10;
/// Maximum time from the time stamp of a record until the record is visible in its ring.
const WRITTEN: DurNs = DurNs::from_ms(5);

/// The sampled threads, with the sampler and the profile.
struct Watched {
    sampler: Sampler,
    profile: Profile,
    files: Objects,
    target: Target,
    /// Threads that were selected, or that belong to a process that was read.
    threads: BTreeSet<i32>,
    processes: BTreeSet<i32>,
}

/// Growth of a process.
pub(super) struct Growth {
    pub(super) pid: i32,
    pub(super) name: String,
    /// Resident memory at the beginning and at the end, in KiB; `None`: the process has ended.
    pub(super) kib: [Option<u64>; 2],
}

/// Resident memory of a process, in KiB.
fn resident(pid: i32) -> Option<u64> {
    let status = RootDir::machine().read(&format!("/proc/{pid}/status")).ok()?;
    proc::status::field(&status, "VmRSS")?.split_whitespace().next()?.parse().ok()
}

pub(super) fn sample(args: &Args) -> Result<Sampled, Failure> {
    let mut threads = args.threads.clone();
    threads.pid.extend(processes(args)?);
    if threads.is_empty() && args.command.is_empty() {
        return Err("nothing to sample: select processes (--process, --pid), threads (--tid, --name PATTERN) or a program (-- CMD)".into());
    }
    let target = Target::of(&threads, !args.command.is_empty())?;
    let online = sys::kernel::online(&RootDir::machine()).ok_or("the list of online CPUs cannot be read")?;
    // The kernel follows new threads of selected processes. It does not do so for threads selected one by one.
    let inherit = threads.tid.is_empty() && threads.name.is_none();
    let how = Sampling {
        source: if args.memory { Source::PageFaults } else { Source::Cycles },
        hz: args.hz,
        stack_bytes: if args.frame_pointers { 0 } else { args.stack.0 as u32 },
        kernel: !args.user_only,
        inherit,
        on_exec: false,
    };
    let sampler = Sampler::new(how, &online)?;
    // The cost of a page fault depends on its page.
    let cost = if args.memory { None } else { recorder::sample_cost(sampler.how()) };
    let kernel = Symbols::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default());
    let profile = Profile::new(kernel, !args.frame_pointers);
    let (asked, known) = (BTreeSet::new(), BTreeSet::new());
    let mut watched = Watched { sampler, profile, files: Objects, target, threads: asked, processes: known };
    let signals = SignalFd::new(&sys::signal::end_signals())?;
    // This process must run promptly: samples that are not read in time are lost. Programs that it starts get the
    // default priority.
    let _ = sys::sched::set_scheduling(0, Scheduling { policy: Policy::Other { nice: -20 }, reset_on_fork: true });
    let program = if args.command.is_empty() { None } else { Some(prepare(&args.command, &[])?) };
    let (begin, burnt) = (sys::clock::mono_now(), sys::clock::thread_cpu());
    if !threads.is_empty() {
        watched.search()?;
        if watched.threads.is_empty() && args.command.is_empty() && !watched.may_come(args) {
            return Err(format!("no thread was found to sample: {}", watched.target.wanted()).into());
        }
    }
    let begun: Vec<i32> = if args.memory { watched.target.processes().iter().copied().collect() } else { Vec::new() };
    let mut growth: Vec<Growth> = begun
        .into_iter()
        .map(|pid| Growth { pid, name: recorder::thread_name(pid).unwrap_or_default(), kib: [resident(pid), None] })
        .collect();
    let mut program = program.map(|program| watched.begin(program)).transpose()?;
    watched.until(args, begin, &mut program, &signals)?;
    watched.sampler.disable()?;
    let span = sys::clock::mono_now() - begin;
    growth.iter_mut().for_each(|process| process.kib[1] = resident(process.pid));
    drop(program);
    watched.look();
    let (counted, lost) = watched.sampler.counted();
    let (how, rings_bytes, who) = (*watched.sampler.how(), watched.sampler.memory(), who(args, &watched.target));
    let found = watched.profile.found(&mut watched.files);
    let burnt = DurNs(sys::clock::thread_cpu().0 - burnt.0);
    let lost = lost.unwrap_or(found.lost);
    Ok(Sampled { found, how, who, span, counted, lost, burnt, rings_bytes, cost, growth })
}

/// The pids of the selected processes of the plant.
fn processes(args: &Args) -> Result<Vec<i32>, Failure> {
    if args.process.is_empty() {
        return Ok(Vec::new());
    }
    let status = crate::ps::status(&plant_name(args.plant.as_deref())?)?;
    let pids =
        running(&status, &args.process).map(|one| one.map(|(_, pid)| pid)).collect::<Result<Vec<i32>, Failure>>()?;
    Ok(keep::family(pids))
}

/// The sampled threads and programs as text.
fn who(args: &Args, target: &Target) -> String {
    let command = args.command.first().map(|name| format!("{} and what it started", name.display()));
    command.into_iter().chain([target.shown()]).filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
}

impl Watched {
    /// Whether threads with the requested name may start later.
    fn may_come(&self, args: &Args) -> bool {
        args.threads.name.is_some() && args.for_.is_some()
    }

    /// Samples the selected threads that are new. Repeats until a pass finds no new thread, at most [`SEARCHES`] times.
    fn search(&mut self) -> Result<(), Failure> {
        self.target.search();
        for _ in 0..SEARCHES {
            let (threads, profile) = (&self.threads, &self.profile);
            let is_new = |thread: &Thread| !threads.contains(&thread.tid) && !profile.knows(thread.tid);
            let fresh: Vec<Thread> = self.target.all().into_iter().filter(is_new).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            for thread in &fresh {
                self.threads.insert(thread.tid);
                self.profile.thread(thread.pid, thread.tid, &thread.name);
                self.add(thread.tid)?;
            }
            // From now on, records report new mappings. Existing mappings are read afterwards, so some may be reported
            // twice.
            self.sampler.enable_running()?;
            for thread in &fresh {
                if self.processes.insert(thread.pid) {
                    let maps = RootDir::machine().read(&format!("/proc/{}/maps", thread.pid)).unwrap_or_default();
                    self.profile.maps(thread.pid, &maps, &mut self.files);
                }
            }
            // Threads that one of these threads started meanwhile are sampled already. Their records mark them as
            // known.
            let profile = &mut self.profile;
            self.sampler.drain(|bytes| profile.take(bytes));
            self.profile.advance(u64::MAX, &mut self.files);
        }
        Ok(())
    }

    fn add(&mut self, tid: i32) -> Result<bool, SamplingError> {
        self.sampler.add(tid)
    }

    /// Samples the program from its first instruction, and starts it.
    fn begin(&mut self, program: Waiting) -> Result<Running, Failure> {
        self.sampler.add_at_exec(program.pid)?;
        self.target.add_process(program.pid);
        self.threads.insert(program.pid);
        self.processes.insert(program.pid);
        program.go()
    }

    fn until(
        &mut self,
        args: &Args,
        begin: MonoNs,
        program: &mut Option<Running>,
        signals: &SignalFd,
    ) -> Result<(), Failure> {
        let mut searched = begin;
        loop {
            let now = sys::clock::mono_now();
            let ended = program.as_mut().map(Running::has_ended).transpose()?.unwrap_or(false);
            self.look();
            let gone = program.is_none() && self.threads.iter().all(|tid| !is_there(*tid)) && !self.may_come(args);
            if ended || gone || args.for_.is_some_and(|span| now - begin >= span) {
                return Ok(());
            }
            if signals.read()?.is_some() {
                return Ok(());
            }
            if now - searched >= SEARCH {
                searched = now;
                match args.threads.name {
                    // Threads that start later are sampled, too.
                    Some(_) => self.search()?,
                    // The kernel follows the threads. The search only updates the names for the report.
                    None => drop(self.target.search()),
                }
            }
            self.sampler.wait(signals.as_fd(), LOOK);
        }
    }

    /// Reads the records from the rings.
    fn look(&mut self) {
        let until = sys::clock::mono_now();
        let profile = &mut self.profile;
        self.sampler.drain(|bytes| profile.take(bytes));
        self.profile.advance(until.0.saturating_sub(WRITTEN.0 as u64), &mut self.files);
    }
}

fn is_there(tid: i32) -> bool {
    RootDir::machine().exists(&format!("/proc/{tid}"))
}

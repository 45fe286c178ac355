//! Samples until the time is over, the program has ended or a signal comes.

use super::program::{Running, Waiting, prepare};
use super::{Args, Sampled};
use crate::control::{ask, plant_name};
use crate::explain::target::Target;
use crate::failure::Failure;
use base::{DurNs, MonoNs, Policy};
use keep::supervisor::control::{Reply, Request};
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

/// Time between two looks at the rings, which hold many times as much.
const LOOK: DurNs = DurNs::from_ms(20);
/// Time between two looks for new threads, where they are chosen by name.
const SEARCH: DurNs = DurNs::from_ms(200);
/// How often threads are looked for that began while others were found.
const SEARCHES: u32 = 10;
/// What a CPU may take from the time of a record until it stands in its ring.
const WRITTEN: DurNs = DurNs::from_ms(5);

/// Whom to sample, and what is known of them.
struct Watched {
    sampler: Sampler,
    profile: Profile,
    files: Objects,
    target: Target,
    /// Threads that were asked for, or whose process was read.
    threads: BTreeSet<i32>,
    processes: BTreeSet<i32>,
}

pub(super) fn sample(args: &Args) -> Result<Sampled, Failure> {
    let mut threads = args.threads.clone();
    threads.pid.extend(processes(args)?);
    if threads.is_empty() && args.command.is_empty() {
        return Err("nothing to sample: select processes (--process, --pid), threads (--tid, --name PATTERN) or a program (-- CMD)".into());
    }
    let target = Target::of(&threads, !args.command.is_empty())?;
    let online = sys::kernel::online(&RootDir::machine()).ok_or("the list of online CPUs cannot be read")?;
    // Threads of processes are followed by the kernel, those that are chosen one by one are not.
    let inherit = threads.tid.is_empty() && threads.name.is_none();
    let how = Sampling {
        source: Source::Cycles,
        hz: args.hz,
        stack_bytes: if args.frame_pointers { 0 } else { args.stack.0 as u32 },
        kernel: !args.user_only,
        inherit,
        on_exec: false,
    };
    let sampler = Sampler::new(how, &online)?;
    let cost = recorder::sample_cost(sampler.how());
    let kernel = Symbols::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default());
    let profile = Profile::new(kernel, !args.frame_pointers);
    let (asked, known) = (BTreeSet::new(), BTreeSet::new());
    let mut watched = Watched { sampler, profile, files: Objects, target, threads: asked, processes: known };
    let signals = SignalFd::new(&sys::signal::END_SIGNALS)?;
    // Whoever looks must not wait for long: what is not read in time is lost. Programs that it starts are as they would be.
    let _ = sys::sched::set_scheduling(0, Scheduling { policy: Policy::Other { nice: -20 }, reset_on_fork: true });
    let program = if args.command.is_empty() { None } else { Some(prepare(&args.command, &[])?) };
    let (begin, burnt) = (sys::clock::mono_now(), sys::clock::thread_cpu());
    if !threads.is_empty() {
        watched.search()?;
        if watched.threads.is_empty() && args.command.is_empty() && !watched.may_come(args) {
            return Err(format!("no thread was found to sample: {}", watched.target.wanted()).into());
        }
    }
    let mut program = program.map(|program| watched.begin(program)).transpose()?;
    watched.until(args, begin, &mut program, &signals)?;
    watched.sampler.disable()?;
    let span = sys::clock::mono_now() - begin;
    drop(program);
    watched.look();
    let (counted, lost) = watched.sampler.counted();
    let (how, rings_bytes, who) = (*watched.sampler.how(), watched.sampler.memory(), who(args, &watched.target));
    let found = watched.profile.found(&mut watched.files);
    let burnt = DurNs(sys::clock::thread_cpu().0 - burnt.0);
    let lost = lost.unwrap_or(found.lost);
    Ok(Sampled { found, how, who, span, counted, lost, burnt, rings_bytes, cost })
}

/// The processes of the plant that are meant.
fn processes(args: &Args) -> Result<Vec<i32>, Failure> {
    if args.process.is_empty() {
        return Ok(Vec::new());
    }
    let plant = plant_name(args.plant.as_deref())?;
    let Reply::Status(status) = ask(&plant, &Request::Status)? else {
        return Err(format!("the supervisor of plant {plant} does not list its processes").into());
    };
    let pid = |name: &String| -> Result<i32, Failure> {
        let process = status.processes.iter().find(|process| process.name == *name).ok_or_else(|| {
            let known: Vec<&str> = status.processes.iter().map(|process| process.name.as_str()).collect();
            format!("plant {plant} has no process {name:?}; it has {}", known.join(", "))
        })?;
        Ok(process.pid.ok_or_else(|| format!("process {name:?} of plant {plant} is not running"))?)
    };
    let pids = args.process.iter().map(pid).collect::<Result<Vec<i32>, Failure>>()?;
    Ok(keep::family(pids))
}

/// Whom, in words.
fn who(args: &Args, target: &Target) -> String {
    let command = args.command.first().map(|name| format!("{name} and what it started"));
    command.into_iter().chain([target.shown()]).filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
}

impl Watched {
    /// Whether threads with the name that is asked for may begin later.
    fn may_come(&self, args: &Args) -> bool {
        args.threads.name.is_some() && args.for_.is_some()
    }

    /// Samples threads that are meant and were not known before, until there are no more.
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
            // From here on the records tell what is mapped; what was mapped before is read afterwards, and may be told twice.
            self.sampler.enable_running()?;
            for thread in &fresh {
                if self.processes.insert(thread.pid) {
                    let maps = RootDir::machine().read(&format!("/proc/{}/maps", thread.pid)).unwrap_or_default();
                    self.profile.maps(thread.pid, &maps, &mut self.files);
                }
            }
            // Threads that one of these began meanwhile are sampled already: their records say so.
            let profile = &mut self.profile;
            self.sampler.drain(|bytes| profile.take(bytes));
            self.profile.advance(u64::MAX, &mut self.files);
        }
        Ok(())
    }

    fn add(&mut self, tid: i32) -> Result<bool, SamplingError> {
        self.sampler.add(tid)
    }

    /// Has the program sampled from its first instruction on, and lets it run.
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
                    // Those that begin later are sampled, too.
                    Some(_) => self.search()?,
                    // The kernel follows them; their names are for who reads.
                    None => drop(self.target.search()),
                }
            }
            self.sampler.wait(signals.as_fd(), LOOK);
        }
    }

    /// Takes what the rings hold.
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

//! `tahti explain`: finds out which tasks, interrupts and kernel work delayed the threads of a program.

pub(crate) mod plant;
mod print;
pub(crate) mod reported;
pub(crate) mod target;

pub(crate) use print::span;

use crate::failure::{self, Failure, in_file};
use base::{CpuSet, DurNs, MonoNs, Policy};
use recorder::{Conditions, Recorder, RecorderSettings};
use reported::Reported;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use sys::root::RootDir;
use sys::sched::Scheduling;
use sys::signal::SignalFd;
use target::{Target, Threads};
use trace::stored::{PROGRAM_LANE, Stored, StoredError};
use trace::{Explainer, LossCounters, Merge, Row, Summary};

/// Interval between reads of the recording. The buffer holds several times as much.
const LOOK: DurNs = DurNs::from_ms(20);
/// Interval between searches for new threads.
const SEARCH: DurNs = DurNs::from_ms(200);
/// Maximum time for a program to end after SIGTERM.
const END: DurNs = DurNs::from_secs(5);

/// Find the cause of late wake-ups of any program, from kernel events
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    threads: Threads,
    /// Watch the loops of these processes of a plant; of a process without a loop, all threads
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    process: Vec<String>,
    /// Name, file or folder of the plant [default: the only plant that is up]
    #[arg(long, short = 'P', value_name = "PLANT", requires = "process")]
    plant: Option<String>,
    /// Explain a recording of `tahti trace` instead of the running machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tid", "pid", "name", "process", "command", "for_", "cpus"])]
    file: Option<PathBuf>,
    /// Explain wake-ups that are later than this
    #[arg(long, value_name = "TIME", default_value = "50us")]
    above: DurNs,
    /// Also explain cycles longer than this, from a timer wake-up to the next timer sleep
    #[arg(long, value_name = "TIME")]
    cycle_above: Option<DurNs>,
    /// Duration [default: until CMD ends, or Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
    /// CPUs to record [default: all CPUs of the threads]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Number of worst wake-ups to print with their causes
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    worst: usize,
    /// Trace buffer per CPU, KiB
    #[arg(long, value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=65536))]
    buffer_kb: u32,
    /// Record the kernel stack at each wake-up: separates masked interrupts from the host; costs about 10 us each
    #[arg(long)]
    stacks: bool,
    /// Name system calls that delay a thread; slows every system call of the machine slightly
    #[arg(long)]
    syscalls: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Program to start and watch
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    failure::end(explain(args))
}

/// Result of a recording.
struct Recording {
    explainer: Explainer,
    /// The watched threads as text.
    who: String,
    cpus: CpuSet,
    span: DurNs,
    events: u64,
    lost: LossCounters,
    /// Events that threads themselves reported, overwritten before they were read.
    reported_lost: u64,
    /// Details that this kernel cannot record.
    lacks: BTreeSet<&'static str>,
    /// CPU time spent on reading and explaining.
    burnt: DurNs,
    /// Time that the hypervisor took from these CPUs (steal time).
    steal: Option<DurNs>,
    /// Conditions of the machine that changed during the recording.
    changed: Vec<String>,
}

impl Recording {
    fn new(explainer: Explainer, cpus: CpuSet) -> Self {
        let (lost, lacks) = (LossCounters::default(), BTreeSet::new());
        Self {
            explainer,
            who: String::new(),
            cpus,
            span: DurNs::ZERO,
            events: 0,
            lost,
            reported_lost: 0,
            lacks,
            burnt: DurNs::ZERO,
            steal: None,
            changed: Vec::new(),
        }
    }

    /// The displayed summary: of the real-time threads if any woke up, else of the others.
    fn summary(&self) -> &Summary {
        match self.explainer.real_time().delays.count() {
            0 => self.explainer.ordinary(),
            _ => self.explainer.real_time(),
        }
    }
}

fn explain(args: &Args) -> Result<(), Failure> {
    if let Some(file) = &args.file {
        return stored(args, file);
    }
    let (mut threads, mut names) = (args.threads.clone(), BTreeMap::new());
    if !args.process.is_empty() {
        names = plant::select(args.plant.as_deref(), &args.process, &mut threads)?;
    }
    if threads.is_empty() && args.command.is_empty() {
        return Err("nothing to watch: select threads (--tid, --name PATTERN), processes (--process, --pid) or a program (-- CMD)".into());
    }
    let mut target = Target::of(&threads, !args.command.is_empty())?;
    let online = sys::kernel::online(&RootDir::machine()).ok_or("the list of online CPUs cannot be read")?;
    let cpus = match (args.cpus, target.cpus()?) {
        (Some(cpus), _) => cpus,
        (None, Some(cpus)) => cpus.and(&online),
        (None, None) => online,
    };
    if !cpus.is_subset(&online) || cpus.is_empty() {
        return Err(format!("--cpus {cpus}: not all of them are online; those are {online}").into());
    }
    let home = sys::sched::affinity(0).unwrap_or(online);
    // Move this process off the watched CPUs, so that it does not disturb them.
    let aside = online.minus(&cpus);
    if !aside.is_empty() {
        let _ = sys::sched::set_affinity(0, &aside);
        // On the other CPUs it must run promptly: events that are not read in time are lost. Programs that it starts
        // get the default priority.
        let policy = Policy::Other { nice: -20 };
        let _ = sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: true });
    }
    let mut explainer = Explainer::new(recorder::facts(), args.above, args.cycle_above, args.worst);
    explainer.name_processes(names);
    target.search().iter().for_each(|thread| thread.watched_by(&mut explainer));
    let threads: Vec<i32> = explainer.watched().collect();
    let recorder = Recorder::start(&RecorderSettings {
        cpus,
        online,
        buffer_kb: args.buffer_kb,
        threads,
        syscalls: args.syscalls,
    })?;
    let signals = SignalFd::new(&sys::signal::end_signals())?;
    let mut child = start(args, &home)?;
    if let Some(child) = &child {
        target.add_process(child.id() as i32);
    }
    let found = watch(args, Recording::new(explainer, cpus), recorder, &mut target, &signals, &mut child);
    end(child);
    shown(args, &found?)
}

fn shown(args: &Args, found: &Recording) -> Result<(), Failure> {
    match args.json {
        true => print::json(args, found),
        false => print::text(args, found),
    }
}

/// Explains a window that a flight recorder has stored.
fn stored(args: &Args, file: &Path) -> Result<(), Failure> {
    let said = |error: StoredError| format!("{}: {error}", file.display());
    let bytes = std::fs::read(file).map_err(in_file(file))?;
    let mut stored = Stored::read(&bytes).map_err(said)?;
    if stored.head.threads.is_empty() {
        let why = stored.head.shortfall.as_deref().unwrap_or("the recorder found no thread to watch");
        let (shown, reason) = (file.display(), &stored.head.reason);
        return Err(format!("cannot explain {shown} ({reason}): the recorder watched no thread\n  {why}").into());
    }
    (stored.head.above, stored.head.cycle_above) = (args.above, args.cycle_above.or(stored.head.cycle_above));
    let begun = sys::clock::thread_cpu();
    let events = stored.events().map_err(said)?;
    let (explainer, _) = stored.explain(&events, args.worst);
    let head = &stored.head;
    let names: BTreeSet<&str> = head.threads.iter().map(|thread| thread.name.as_str()).collect();
    let ends = [events.first(), events.last()].map(|item| item.map_or(head.at, |(at, ..)| *at));
    shown(
        args,
        &Recording {
            who: format!("{}\n{}", head.reason, names.into_iter().collect::<Vec<_>>().join(", ")),
            span: ends[1] - ends[0],
            events: events.len() as u64,
            lost: head.lost,
            lacks: without(stored.missing()),
            burnt: DurNs(sys::clock::thread_cpu().0 - begun.0),
            ..Recording::new(explainer, head.cpus)
        },
    )
}

/// Details that cannot be explained without these tracepoints.
fn without(missing: impl Iterator<Item = &'static Row>) -> BTreeSet<&'static str> {
    missing.map(|row| row.without).filter(|without| !without.is_empty()).collect()
}

/// Starts the program on the CPUs that it would have without `tahti explain`.
fn start(args: &Args, home: &CpuSet) -> Result<Option<Child>, Failure> {
    let Some((program, words)) = args.command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(words);
    if args.json {
        // Standard output carries only the JSON object.
        command.stdout(std::io::stderr());
    }
    let child = command.spawn().map_err(|error| format!("`{}` could not be started: {error}", program.display()))?;
    let _ = sys::sched::set_affinity(child.id() as i32, home);
    Ok(Some(child))
}

/// Records until the time is over, the program has ended or a signal arrives.
fn watch(
    args: &Args,
    mut found: Recording,
    mut recorder: Recorder,
    target: &mut Target,
    signals: &SignalFd,
    child: &mut Option<Child>,
) -> Result<Recording, Failure> {
    let (begin, burnt) = (sys::clock::mono_now(), sys::clock::thread_cpu());
    let (steal, kept) = (recorder::steal(&found.cpus), Conditions::look());
    let (mut merge, mut reported) = (Merge::default(), Reported::since(begin));
    let mut searched = MonoNs(0);
    // Number of threads that were passed to the recorder. Starts at 0 with `--stacks`, so that stacks are requested for
    // all.
    let mut named = if args.stacks { 0 } else { found.explainer.watched().count() };
    loop {
        let now = sys::clock::mono_now();
        found.span = now - begin;
        let ended = match child {
            Some(child) => child.try_wait().map_err(|error| format!("wait for the program: {error}"))?.is_some(),
            None => false,
        };
        let over = args.for_.is_some_and(|span| found.span >= span) || ended;
        let interrupted = signals.read()?.is_some();
        if now - searched >= SEARCH || over {
            searched = now;
            target.search().iter().for_each(|thread| thread.watched_by(&mut found.explainer));
            reported.search(target.processes());
            let tids: Vec<i32> = found.explainer.watched().collect();
            if tids.len() > named && recorder.may_watch() {
                recorder.watch(&tids, args.stacks)?;
                named = tids.len();
            }
        }
        let until = recorder.poll(|lane, item| merge.push(lane, item))?;
        for event in reported.read() {
            merge.push(PROGRAM_LANE, (event.at, event.cpu, Some((&event).into())));
        }
        merge.drain(until, |item| found.explainer.take(&item, |_| {}));
        found.explainer.name_senders(recorder::thread_name);
        if over || interrupted {
            break;
        }
        sys::poll::is_readable(std::os::fd::AsFd::as_fd(signals), LOOK);
    }
    found.changed = kept.changed(&Conditions::look());
    found.burnt = DurNs(sys::clock::thread_cpu().0 - burnt.0);
    found.steal = recorder::steal(&found.cpus).zip(steal).map(|(after, before)| DurNs(after.0 - before.0));
    if found.explainer.watched().next().is_none() {
        return Err(format!("no thread was found to watch: {}", target.wanted()).into());
    }
    found.who = target.shown();
    (found.events, found.lost, found.reported_lost) = (recorder.events(), recorder.lost(), reported.lost());
    found.lacks = without(recorder.missing().iter().copied());
    Ok(found)
}

/// Ends the program if it still runs.
fn end(child: Option<Child>) {
    let Some(mut child) = child else { return };
    // The child is not reaped yet, so its pid cannot have been reused.
    let process = sys::process::Process::open(child.id() as i32);
    let _ = process.and_then(|process| process.signal(rustix::process::Signal::TERM.as_raw()));
    let until = sys::clock::mono_now() + END;
    while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
        if sys::clock::mono_now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use trace::stored::{Head, write};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_window_of_a_recorder_that_watched_no_thread_is_refused_with_the_reason() {
        let file = std::env::temp_dir().join(format!("tahti-explain-{}.trace", std::process::id()));
        let head = Head {
            little_endian: cfg!(target_endian = "little"),
            reason: "loop skipped 142 periods".to_owned(),
            shortfall: Some("watches 0 threads: `watch` matches no thread".to_owned()),
            ..Head::default()
        };
        std::fs::write(&file, write(&head, std::iter::empty())).unwrap();
        let line = Line::parse_from(["explain", "--file", file.to_str().unwrap()]);
        let why = explain(&line.args).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(why.contains("(loop skipped 142 periods): the recorder watched no thread"), "{why}");
        assert!(why.ends_with("watches 0 threads: `watch` matches no thread"), "{why}");
    }
}

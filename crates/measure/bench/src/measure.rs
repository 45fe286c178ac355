//! One loop in a process of its own, so that what is measured is the loop and not the measurer.

use crate::explained::Explained;
use crate::looprun::{self, WaitArg, wait_word};
use crate::{Failed, Helper, read};
use base::{CpuId, CpuSet, DurNs, Histogram, Policy};
use clap::Args as _;
use ring::{Counter, LoopPage, Wait};
use rt::{Flow, LOOP_FD, LoopSpec, SharedPage};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::signal::{END_SIGNALS, SignalFd};

/// The name of the loop's thread.
const LOOP_THREAD: &str = "bench-loop";

/// This program, to start a part of the measurement.
pub(crate) fn own_program() -> Result<PathBuf, Failed> {
    std::env::current_exe().map_err(Failed::process("tahti"))
}

/// A time between two beats, as a time (`250us`) or as a rate (`4001Hz`).
///
/// # Errors
/// It is neither.
pub(crate) fn period(text: &str) -> Result<DurNs, base::ParseUnitError> {
    text.parse::<base::Hz>().map(base::Hz::period).or_else(|_| text.parse())
}

/// On this thread, which is to end: on a CPU, in the class if there is one.
pub(crate) fn settle(cpu: CpuId, class: Option<Policy>) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(cpu))?;
    if let Some(policy) = class {
        set_scheduling(0, Scheduling { policy, reset_on_fork: false })?;
    }
    Ok(())
}

/// Waits for a process that was told to end, kills it after five seconds, and reaps it.
pub(crate) fn ended(child: &mut Child) {
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Nothing where it has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// A descriptor that a process which is started keeps.
pub(crate) fn handed_on(fd: BorrowedFd<'_>) -> sys::Result<OwnedFd> {
    rustix::io::dup(fd).map_err(|errno| sys::Error { doing: "hand a descriptor on".into(), errno })
}

/// Whether a program to compare with can be started.
pub(crate) fn installed(program: &'static str, argument: &str, package: &'static str) -> Result<(), Failed> {
    let started = Command::new(program).arg(argument).output();
    started.map(drop).map_err(|source| Failed::NoPeer { program, package, source })
}

/// Whether somebody wants the measurement to end: looked at between two pieces, so that everything is given back.
pub(crate) struct Interrupt(SignalFd);

impl Interrupt {
    /// From now on such a signal does not end this process.
    pub(crate) fn watch() -> Result<Self, Failed> {
        Ok(Self(SignalFd::new(&END_SIGNALS)?))
    }

    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.0.read()?.map_or(Ok(()), |_| Err(Failed::Interrupted))
    }
}

/// The CPU that is measured: the highest of those that this process may use, if none is wanted.
pub(crate) fn measured_cpu(wanted: Option<CpuId>, own: &CpuSet) -> Result<CpuId, Failed> {
    let Some(cpu) = wanted else { return own.iter().last().ok_or(Failed::Needs("a CPU")) };
    usable(&CpuSet::single(cpu), &format!("--cpu {cpu}"))?;
    Ok(cpu)
}

/// Checks that `cpus` are CPUs on which this process may run: online, and in its cpuset. The mask that it was started with
/// (`taskset`, `isolcpus=`, a unit's `CPUAffinity=`) does not bound a measurement that names its CPUs.
pub(crate) fn usable(cpus: &CpuSet, argument: &str) -> Result<(), Failed> {
    let all = every_cpu()?;
    if cpus.is_empty() || !cpus.is_subset(&all) {
        return Err(Failed::argument(argument, format!("CPUs that this process may use ({all})")));
    }
    Ok(())
}

/// The online CPUs of this process's cpuset.
fn every_cpu() -> Result<CpuSet, Failed> {
    let online = sys::kernel::online(&RootDir::machine()).ok_or(Failed::Needs("the list of online CPUs"))?;
    // A thread of its own asks for all of them, and the kernel gives it those of the cpuset.
    let asked = std::thread::spawn(move || {
        set_affinity(0, &online)?;
        sys::sched::affinity(0)
    });
    Ok(asked.join().map_err(|_| Failed::Needs("a thread that asks for its CPUs"))??)
}

/// Where something is measured.
pub(crate) struct Where {
    pub(crate) cpu: CpuId,
    /// Where a shield wants its tasks, if one stands.
    pub(crate) place: Option<keep::shield::ShieldGroup>,
}

/// The loop that is measured.
pub(crate) const LOOP: Helper =
    Helper { name: "loop", arguments: LoopArgs::augment_args, run: |matches| run_loop(&read(matches)?) };

/// The loop's own command line.
#[derive(clap::Args)]
struct LoopArgs {
    #[arg(long)]
    period: DurNs,
    #[arg(long)]
    wait: WaitArg,
    #[arg(long)]
    class: Policy,
    #[arg(long)]
    cpu: CpuId,
    #[arg(long = "for")]
    for_: DurNs,
}

/// A program that waits until it has been brought where it belongs, and then runs.
pub(crate) struct Gate {
    child: Child,
    shown: String,
}

impl Gate {
    /// Starts `command`; `page` is handed on to it.
    pub(crate) fn start(command: &[String], place: &Where, page: Option<&SharedPage>) -> Result<Self, Failed> {
        let shown = command.join(" ");
        // The shell reads one line, then becomes the program: it is in its place before its first instruction.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read -r go && exec \"$0\" \"$@\""]).args(command);
        let handed = match page {
            Some(page) => {
                let copy = handed_on(page.fd())?;
                shell.env(LOOP_FD, copy.as_raw_fd().to_string());
                Some(copy)
            }
            None => None,
        };
        let failed = Failed::process(&shown);
        let child =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(&failed)?;
        drop(handed);
        let pid = child.id() as i32;
        let mut gate = Self { child, shown: shown.clone() };
        if let Some(place) = &place.place {
            place.enter(&RootDir::machine(), pid)?;
        }
        let go = gate.child.stdin.as_mut().map(|input| input.write_all(b"go\n"));
        go.unwrap_or(Ok(())).map_err(failed)?;
        Ok(gate)
    }

    /// What goes to its standard input; it sees the end of it when this is dropped.
    pub(crate) fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it prints a line: it has come to where it wants to be.
    pub(crate) fn ready(&mut self) -> Result<(), Failed> {
        let Some(out) = self.child.stdout.as_mut() else { return Ok(()) };
        let mut byte = [0];
        // Byte by byte: what follows is for `output`.
        while byte != *b"\n" {
            let read = std::io::Read::read_exact(out, &mut byte);
            read.map_err(Failed::process(&self.shown))?;
        }
        Ok(())
    }

    /// Waits for its end.
    pub(crate) fn output(mut self) -> Result<String, Failed> {
        let failed = Failed::process(&self.shown);
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut out, &mut text).map_err(&failed)?;
        }
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(text),
            false => Err(Failed::Ended { command: self.shown.clone(), status, output: text }),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // It has ended already unless something went wrong on the way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was found on a CPU, summed over several runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) wake: Histogram,
    pub(crate) calm: Histogram,
    pub(crate) compute: Histogram,
    pub(crate) watched: u64,
    pub(crate) set_apart: u64,
    pub(crate) overruns: u64,
    pub(crate) allocations: u64,
    pub(crate) faults: u64,
    pub(crate) involuntary: u64,
    /// One text for each run with involuntary switches.
    pub(crate) preempted: Vec<String>,
    /// What a run could not have.
    pub(crate) missing: Vec<String>,
}

impl Measured {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.wake.merge(&other.wake);
        self.calm.merge(&other.calm);
        self.compute.merge(&other.compute);
        self.watched += other.watched;
        self.set_apart += other.set_apart;
        self.overruns += other.overruns;
        self.allocations += other.allocations;
        self.faults += other.faults;
        self.involuntary += other.involuntary;
        self.preempted.extend(other.preempted.iter().cloned());
        for line in &other.missing {
            if !self.missing.contains(line) {
                self.missing.push(line.clone());
            }
        }
    }

    /// Part of the cycles that steal may have touched, in percent.
    pub(crate) fn apart_percent(&self) -> f64 {
        self.set_apart as f64 * 100.0 / self.watched.max(1) as f64
    }

    fn of(page: &LoopPage<'_>, output: &str) -> Self {
        let count = |counter| page.counter(counter);
        let involuntary = count(Counter::InvoluntarySwitches);
        let naming = (count(Counter::Naming) == 0).then_some("tracefs not readable");
        Self {
            wake: page.wake(),
            calm: page.calm(),
            compute: page.compute(),
            watched: count(Counter::Watched),
            set_apart: count(Counter::SetApart),
            overruns: count(Counter::Overruns),
            allocations: count(Counter::Allocations) + count(Counter::Frees),
            faults: count(Counter::MinorFaults) + count(Counter::MajorFaults),
            involuntary,
            preempted: (involuntary > 0).then(|| looprun::preemptions(page, naming)).into_iter().collect(),
            missing: output.lines().map(str::to_owned).collect(),
        }
    }
}

/// Runs one loop that does nothing but be there in time; `explained` watches it.
pub(crate) fn run(
    place: &Where,
    (period, policy, wait): (DurNs, Policy, Wait),
    span: DurNs,
    explained: Option<&Explained>,
) -> Result<Measured, Failed> {
    let program = own_program()?;
    let page = SharedPage::own("bench")?;
    let words = [
        program.display().to_string(),
        "bench".into(),
        "loop".into(),
        format!("--period={period}"),
        format!("--wait={}", wait_word(wait)),
        format!("--class={policy}"),
        format!("--cpu={}", place.cpu),
        format!("--for={span}"),
    ];
    let gate = Gate::start(&words, place, Some(&page))?;
    explained.inspect(|explained| explained.watch(gate.pid(), policy, LOOP_THREAD));
    let output = gate.output()?;
    Ok(Measured::of(&page.read(), &output))
}

/// The measured process itself.
fn run_loop(args: &LoopArgs) -> Result<(), Failed> {
    let page = SharedPage::from_env_or_own("bench")?;
    let spec = LoopSpec {
        class: Some(args.class),
        cpu: Some(args.cpu),
        wait: args.wait.0,
        ..LoopSpec::new(LOOP_THREAD, args.period)
    };
    let mut missing = Vec::new();
    let body = |_: &rt::Pulse| Flow::Continue;
    let tell = |armed: &rt::Rt<rt::Armed>| missing.extend(armed.missing().map(ToString::to_string));
    let finished = looprun::run(spec, &page, Some(args.for_), body, tell, |_| {})?;
    // A bare loop needs no pulse numbers that other machines share.
    missing.retain(|line| !line.contains("TAI"));
    missing.extend(finished.unnamed_because.map(|why| format!("preempting tasks not named: {why}")));
    missing.extend(finished.no_steal_because.map(|why| format!("steal not watched: {why}")));
    missing.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_outside_the_mask_but_inside_the_cpuset_may_be_measured_and_one_that_is_not_there_is_refused() {
        std::thread::spawn(|| {
            let all = sys::sched::affinity(0).unwrap();
            let first = CpuSet::single(all.lowest().unwrap());
            set_affinity(0, &first).unwrap();
            let last = all.iter().last().unwrap();
            assert_eq!(measured_cpu(Some(last), &first).unwrap(), last);
            assert_eq!(measured_cpu(None, &first).unwrap(), first.lowest().unwrap());
            assert_eq!(sys::sched::affinity(0).unwrap(), first, "the own mask stays");
            let refused = usable(&"900".parse().unwrap(), "--cpus 900").unwrap_err().to_string();
            assert!(refused.contains("--cpus 900") && refused.contains("may use"), "{refused}");
        })
        .join()
        .unwrap();
    }
}

//! One loop in a separate process, so that the measuring program does not affect it.

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
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use sys::signal::{SignalFd, end_signals};

/// The name of the loop's thread.
const LOOP_THREAD: &str = "bench-loop";

/// This program, to start a helper of the measurement.
pub(crate) fn own_program() -> Result<PathBuf, Failed> {
    std::env::current_exe().map_err(Failed::process("tahti"))
}

/// A period, as a time (`250us`) or as a rate (`4001Hz`).
///
/// # Errors
/// It is neither.
pub(crate) fn period(text: &str) -> Result<DurNs, base::ParseUnitError> {
    text.parse::<base::Hz>().map(base::Hz::period).or_else(|_| text.parse())
}

/// Moves this thread to a CPU, and into the class if given. For threads that end afterwards.
pub(crate) fn settle(cpu: CpuId, class: Option<Policy>) -> Result<(), Failed> {
    set_affinity(0, &CpuSet::single(cpu))?;
    if let Some(policy) = class {
        set_scheduling(0, Scheduling { policy, reset_on_fork: false })?;
    }
    Ok(())
}

/// Waits for a process that was asked to end, kills it after five seconds, and reaps it.
pub(crate) fn ended(child: &mut Child) {
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Fails if it has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// A duplicate of a descriptor that child processes inherit.
pub(crate) fn handed_on(fd: BorrowedFd<'_>) -> sys::Result<OwnedFd> {
    rustix::io::dup(fd).map_err(|errno| sys::Error { doing: "duplicate a descriptor".into(), errno })
}

/// Whether a program to compare with can be started.
pub(crate) fn installed(program: &'static str, argument: &str, package: &'static str) -> Result<(), Failed> {
    let started = Command::new(program).arg(argument).output();
    started.map(drop).map_err(|source| Failed::NoPeer { program, package, source })
}

/// Termination signals, checked between two pieces so that the machine is restored before the end.
pub(crate) struct Interrupt(SignalFd);

impl Interrupt {
    /// From now on such a signal does not end this process.
    pub(crate) fn watch() -> Result<Self, Failed> {
        Ok(Self(SignalFd::new(&end_signals())?))
    }

    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.0.read()?.map_or(Ok(()), |_| Err(Failed::Interrupted))
    }
}

/// The measured CPU: the given one, or the highest that this process may use.
pub(crate) fn measured_cpu(given: Option<CpuId>, own: &CpuSet) -> Result<CpuId, Failed> {
    let Some(cpu) = given else { return own.iter().last().ok_or(Failed::Needs("a CPU")) };
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
    // A separate thread requests all of them; the kernel grants those of the cpuset.
    let thread = std::thread::spawn(move || {
        set_affinity(0, &online)?;
        sys::sched::affinity(0)
    });
    Ok(thread.join().map_err(|_| Failed::Needs("a thread that reads its CPUs"))??)
}

/// CPU and shield of a measurement.
pub(crate) struct TaskPlacement {
    pub(crate) cpu: CpuId,
    /// The group of the shield for its tasks, if a shield is applied.
    pub(crate) place: Option<keep::shield::ShieldGroup>,
}

/// The measured loop.
pub(crate) const LOOP: Helper =
    Helper { name: "loop", arguments: LoopArgs::augment_args, run: |matches| run_loop(&read(matches)?) };

/// The loop's command line.
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

/// A program that waits until it has been moved into its group, and then runs.
pub(crate) struct Gate {
    child: Child,
    shown: String,
}

impl Gate {
    /// Starts `command`, which inherits `page`.
    pub(crate) fn start(command: &[String], place: &TaskPlacement, page: Option<&SharedPage>) -> Result<Self, Failed> {
        let shown = command.join(" ");
        // The shell reads one line, then executes the program: it is in its group before its first instruction.
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

    /// Its standard input, which ends when this is dropped.
    pub(crate) fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output from here on; [`output`](Self::output) then returns nothing.
    pub(crate) fn results(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it prints a line: it is ready.
    pub(crate) fn ready(&mut self) -> Result<(), Failed> {
        let Some(out) = self.child.stdout.as_mut() else { return Ok(()) };
        let mut byte = [0];
        // Byte by byte: the rest belongs to `output`.
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
        // It has ended already unless an error occurred.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Results on a CPU, summed over several runs.
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
    /// Resources that were unavailable in a run.
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

    /// Share of the cycles that steal may have affected, in percent.
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

/// Runs one loop that only wakes up on time; `explained` watches it.
pub(crate) fn run(
    place: &TaskPlacement,
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

/// Main function of the measured process.
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
    missing.extend(finished.no_steal_because.map(|why| format!("steal not measured: {why}")));
    missing.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_the_cpuset_may_be_measured_even_outside_the_mask_and_others_are_refused() {
        std::thread::spawn(|| {
            let all = sys::sched::affinity(0).unwrap();
            let first = CpuSet::single(all.lowest().unwrap());
            set_affinity(0, &first).unwrap();
            let last = all.iter().last().unwrap();
            assert_eq!(measured_cpu(Some(last), &first).unwrap(), last);
            assert_eq!(measured_cpu(None, &first).unwrap(), first.lowest().unwrap());
            assert_eq!(sys::sched::affinity(0).unwrap(), first, "this thread's mask does not change");
            let refused = usable(&"900".parse().unwrap(), "--cpus 900").unwrap_err().to_string();
            assert!(refused.contains("--cpus 900") && refused.contains("may use"), "{refused}");
        })
        .join()
        .unwrap();
    }
}

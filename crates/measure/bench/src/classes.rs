//! `tahti bench classes`: shares of the machine that time-sharing and real-time loops get, scaled from
//! the published four processors to this machine's number.

use crate::failed::joined;
use crate::measure::{Interrupt, own_program};
use crate::{Bench, BenchResult, Failed, Helper, Progress, papers, read};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy, Priority};
use clap::{ArgMatches, Args as _};
use report::{Good, Row as Line, Table};
use std::process::{Child, Command, Stdio};
use sys::clock::{mono_now, sleep_until};
use sys::root::RootDir;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "classes",
    experiment: "SPring-8: scheduling classes",
    arguments: Args::augment_args,
    run,
    target: "as published: real-time loops run before time-sharing ones; processes stay in their CPU set",
    quick: &["--for", "700ms"],
    shields: false,
};

/// The endless loops.
pub(crate) const SPIN: Helper =
    Helper { name: "spin", arguments: SpinArgs::augment_args, run: |matches| spin(&read(matches)?) };

/// Shares of the machine that endless loops get, by class and binding
///
/// Each loop is a process (or a thread) that never yields its CPU. Meanwhile a shell is started again and again, as a login
/// needs. Real-time loops run for less than a second, with the current real-time throttling. Real-time loops on every CPU
/// stop all other processes: they are skipped unless --every-cpu is given.
#[derive(clap::Args)]
struct Args {
    /// Duration of each time-sharing row
    #[arg(long = "for", value_name = "TIME", default_value = "2s")]
    for_: DurNs,
    /// Also run real-time loops on every CPU, for half a second
    #[arg(long)]
    every_cpu: bool,
}

/// Arguments of a process with endless loops.
#[derive(clap::Args)]
struct SpinArgs {
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    cpus: CpuSet,
    #[arg(long)]
    class: Policy,
    #[arg(long = "for")]
    for_: DurNs,
}

/// Duration of real-time loops: less than the second over which the kernel throttles.
const RT_SPAN: DurNs = DurNs::from_ms(700);
const RT_EVERY_CPU_SPAN: DurNs = DurNs::from_ms(500);
/// From the start of the loops to the first reading of their CPU time.
const SETTLE: DurNs = DurNs::from_ms(150);
/// The class that reads the shares of real-time loops: above them.
const READER: Policy = Policy::Fifo(Priority(20));
/// Time between two shells.
const SHELL_PAUSE: DurNs = DurNs::from_ms(20);
const FIFO: Policy = Policy::Fifo(Priority(10));

/// Processes of one kind.
struct Group {
    name: &'static str,
    processes: usize,
    threads: usize,
    cpus: CpuSet,
    class: Policy,
}

/// Keys of the published experiments.
const CLASSES: &str = "madoca/classes";
const EVERY_CPU: &str = "madoca/every-cpu";
const BINDING: &str = "madoca/binding";
const SETS: &str = "madoca/sets";

/// One experiment.
struct Row {
    what: String,
    groups: Vec<Group>,
    /// The key of the published experiment.
    experiment: &'static str,
    /// Its line of published figures.
    nth: usize,
    span: DurNs,
}

/// Shares of a row's groups, in percent of the machine.
struct Shares {
    shares: Vec<(&'static str, Vec<f64>)>,
    /// Share of all other processes.
    others: f64,
    /// Mean number of loops that waited for a CPU.
    queued: f64,
    /// Times until a shell had run and ended, in ms: what a login needs.
    shells_ms: Vec<f64>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    if args.for_ < DurNs::from_ms(500) || args.for_ > DurNs::from_secs(60) {
        return Err(Failed::argument(format!("--for {}", args.for_), "500ms to 60s"));
    }
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    if online.count() < 2 {
        return Err(Failed::Needs("two CPUs"));
    }
    let (rows, left_out) = rows(&online, &args);
    let mut tables = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        progress.at(nth, rows.len(), &row.what);
        // In a separate thread: it may get another class.
        let shares = std::thread::scope(|scope| joined(scope.spawn(|| measure(row, &online)).join()))?;
        tables.push(table(row, shares));
        interrupt.check()?;
    }
    let setup = vec![format!("shares in percent of the machine ({} CPUs)", online.count())];
    Ok(BenchResult { setup, tables, notes: left_out })
}

/// An experiment with the published figures.
fn table(row: &Row, found: Shares) -> Table {
    let mut table = Table::new(&row.what);
    table.published.extend(papers::published(row.experiment).get(row.nth).cloned());
    for (name, shares) in &found.shares {
        let each: Vec<String> = shares.iter().map(|share| format!("{share:.1}")).collect();
        let note = if each.len() > 1 { format!("each {}", each.join(" ")) } else { String::new() };
        table = table.row(Line::figure(*name, "%", shares.iter().sum()).note(note));
    }
    let most = found.shells_ms.iter().copied().fold(0.0, f64::max);
    let shells = format!("maximum {most:.1}, {} of them", found.shells_ms.len());
    table
        .row(Line::figure("other processes", "%", found.others).good(Good::Neither))
        .row(Line::figure("in the run queue", "loops", found.queued).good(Good::Neither))
        .row(Line::samples("a shell starts, runs and ends", "ms", found.shells_ms).good(Good::Low).note(shells))
}

/// The published experiments with `n` for their four processors.
fn rows(online: &CpuSet, args: &Args) -> (Vec<Row>, Vec<String>) {
    let n = online.count();
    let last: CpuId = online.iter().last().unwrap_or_default();
    let (one, set) = (CpuSet::single(last), online.minus(&CpuSet::single(online.lowest().unwrap_or_default())));
    let group = |name, processes, threads, cpus: &CpuSet, class| Group { name, processes, threads, cpus: *cpus, class };
    let free = |processes| group("time sharing", processes, 1, online, Policy::OTHER);
    let row = |experiment, nth, what: String, groups| Row { what, groups, experiment, nth, span: args.for_ };
    let short = |row: Row, span| Row { span, ..row };
    let mut left_out = Vec::new();
    let mut rows = vec![
        row(CLASSES, 0, "class: 1 time-sharing loop".into(), vec![free(1)]),
        row(CLASSES, 1, format!("class: {n} time-sharing loops"), vec![free(n)]),
        row(CLASSES, 2, format!("class: {} time-sharing loops", n + 1), vec![free(n + 1)]),
        short(
            row(
                CLASSES,
                3,
                format!("class: {} real-time loop(s), one CPU left", n - 1),
                vec![group("real time", n - 1, 1, &set, FIFO)],
            ),
            RT_SPAN,
        ),
    ];
    let every =
        row(EVERY_CPU, 0, format!("every CPU: {n} real-time loops"), vec![group("real time", n, 1, online, FIFO)]);
    match args.every_cpu {
        true => rows.push(short(every, RT_EVERY_CPU_SPAN)),
        false => left_out.push(format!("skipped: {} (would stop all other processes; --every-cpu)", every.what)),
    }
    rows.push(row(
        BINDING,
        0,
        format!("binding: {} time-sharing loops and one bound to CPU {last}", n + 1),
        vec![free(n + 1), group("bound time sharing", 1, 1, &one, Policy::OTHER)],
    ));
    rows.push(short(
        row(
            BINDING,
            1,
            format!("binding: {} time-sharing loops, a time-sharing and a real-time one bound to CPU {last}", n + 1),
            vec![
                free(n + 1),
                group("bound time sharing", 1, 1, &one, Policy::OTHER),
                group("bound real time", 1, 1, &one, FIFO),
            ],
        ),
        RT_SPAN,
    ));
    for processes in [n - 1, n] {
        rows.push(row(
            SETS,
            0,
            format!("set: {processes} process(es) in a set of {} CPU(s)", n - 1),
            vec![group("in the set", processes, 1, &set, Policy::OTHER)],
        ));
    }
    for threads in [n - 1, n] {
        rows.push(row(
            SETS,
            1,
            format!("set: 1 process of {threads} thread(s) in a set of {} CPU(s)", n - 1),
            vec![group("in the set", 1, threads, &set, Policy::OTHER)],
        ));
    }
    (rows, left_out)
}

/// Loops, ended on drop.
struct Spinners(Vec<Child>);

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn measure(row: &Row, online: &CpuSet) -> Result<Shares, Failed> {
    let program = own_program()?;
    if row.groups.iter().any(|group| group.class.is_real_time()) {
        // Real-time loops may take every CPU. The loops and the shells do not inherit this class.
        set_scheduling(0, Scheduling { policy: READER, reset_on_fork: true })?;
    }
    let mut spinners = Spinners(Vec::new());
    for group in &row.groups {
        for _ in 0..group.processes {
            let mut command = Command::new(&program);
            command.args(["bench", "spin", "--threads", &group.threads.to_string()]);
            command.args([format!("--cpus={}", group.cpus), format!("--class={}", group.class)]);
            command.arg(format!("--for={}", DurNs(row.span.0 + SETTLE.0)));
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            spinners.0.push(child.map_err(Failed::process("tahti bench spin"))?);
        }
    }
    sleep_until(mono_now() + SETTLE);
    let used = |child: &Child| process_times(child.id());
    let read = || -> Result<_, Failed> {
        let each = spinners.0.iter().map(used).collect::<Result<Vec<_>, _>>()?;
        Ok((mono_now(), each, busy(online)?))
    };
    let before = read()?;
    // The last reading must come before the loops end.
    let end = before.0 + DurNs(row.span.0 - SETTLE.0);
    // In a separate thread of time sharing: a shell may wait for the end of the loops.
    let (after, shells_ms) = std::thread::scope(|scope| {
        let shells = scope.spawn(|| shells(end));
        sleep_until(end);
        let after = read();
        Ok::<_, Failed>((after?, joined(shells.join())?))
    })?;
    let machine = (after.0 - before.0).0 as f64 * online.count() as f64;
    let percent = |ns: u64| ns as f64 * 100.0 / machine;
    let [mut each, waited] = [0, 1].map(|which| {
        let pairs = before.1.iter().zip(&after.1);
        pairs.map(|(was, is)| is[which].saturating_sub(was[which])).collect::<Vec<u64>>().into_iter()
    });
    let shares: Vec<_> = row
        .groups
        .iter()
        .map(|group| (group.name, each.by_ref().take(group.processes).map(percent).collect::<Vec<_>>()))
        .collect();
    let ours: f64 = shares.iter().flat_map(|(_, shares)| shares).sum();
    let others = (percent(after.2.saturating_sub(before.2)) - ours).max(0.0);
    let queued = waited.sum::<u64>() as f64 / (after.0 - before.0).0 as f64;
    Ok(Shares { shares, others, queued, shells_ms })
}

/// Times of shells that begin before `end`, one after the other.
fn shells(end: MonoNs) -> Result<Vec<f64>, Failed> {
    let mut times_ms = Vec::new();
    while mono_now() + SHELL_PAUSE < end {
        times_ms.push(shell()?);
        sleep_until((mono_now() + SHELL_PAUSE).min(end));
    }
    Ok(times_ms)
}

/// Time until a shell has started, run and ended, in ms.
pub(crate) fn shell() -> Result<f64, Failed> {
    let begun = mono_now();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ":"]).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().map_err(Failed::process("/bin/sh"))?;
    Ok((mono_now() - begun).0 as f64 / 1e6)
}

/// Processor time of all threads of a process, and their time in the run queue, in nanoseconds.
fn process_times(pid: u32) -> Result<[u64; 2], Failed> {
    let root = RootDir::machine();
    let tasks = format!("/proc/{pid}/task");
    let mut sums = [0; 2];
    for tid in root.list(&tasks)? {
        let file = format!("{tasks}/{tid}/schedstat");
        let text = root.read(&file)?;
        let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let [ran, waited, _] = numbers[..] else { return Err(Failed::answer(&file, "three numbers", &text)) };
        sums = [sums[0] + ran, sums[1] + waited];
    }
    Ok(sums)
}

/// Time that these CPUs were not idle, in nanoseconds; the kernel counts it in ticks of 10 ms.
fn busy(cpus: &CpuSet) -> Result<u64, Failed> {
    let text = RootDir::machine().read("/proc/stat")?;
    Ok(busy_ticks(&text, cpus) * 10_000_000)
}

fn busy_ticks(text: &str, cpus: &CpuSet) -> u64 {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu: CpuId = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal
        (cpus.contains(cpu) && ticks.len() == 8).then(|| ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
    };
    text.lines().filter_map(line).sum()
}

/// The endless loop.
fn spin(args: &SpinArgs) -> Result<(), Failed> {
    if args.class.is_real_time() && args.for_ > DurNs::from_secs(1) {
        return Err(Failed::argument(format!("--for {}", args.for_), "at most 1s for a real-time loop"));
    }
    let end = mono_now() + args.for_;
    set_affinity(0, &args.cpus)?;
    // Set in each thread: the process ends with its first thread.
    let run = move |class: Policy| -> sys::Result<()> {
        set_scheduling(0, Scheduling { policy: class, reset_on_fork: false })?;
        let mut value = 1u64;
        while mono_now() < end {
            for _ in 0..10_000 {
                value = std::hint::black_box(value.wrapping_mul(3).wrapping_add(1));
            }
        }
        Ok(())
    };
    let class = args.class;
    let threads: Vec<_> = (1..args.threads).map(|_| std::thread::spawn(move || run(class))).collect();
    let mut result = run(class);
    for thread in threads {
        result = result.and(thread.join().unwrap_or(Ok(())));
    }
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_scale_with_the_machine_and_leave_a_cpu_without_real_time_loops() {
        for cpus in [2, 4, 64] {
            let online = CpuSet::first(cpus);
            let args = Args { for_: DurNs::from_secs(2), every_cpu: false };
            let (rows, left_out) = rows(&online, &args);
            assert_eq!(left_out.len(), 1);
            for row in &rows {
                let real_time = row.groups.iter().filter(|group| group.class.is_real_time());
                let taken = real_time.clone().fold(CpuSet::EMPTY, |taken, group| taken.or(&group.cpus));
                assert!(taken != online, "{}: leaves a CPU", row.what);
                assert!(real_time.count() == 0 || row.span < DurNs::from_secs(1), "{}", row.what);
            }
        }
    }

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        let text = "cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 100 4 5 6 7 8\ncpu1 10 0 0 5 5 0 0 0 0 0\n";
        assert_eq!(busy_ticks(text, &CpuSet::first(2)), 31);
        assert_eq!(busy_ticks(text, &CpuSet::single(1)), 10);
    }
}

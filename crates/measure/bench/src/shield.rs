//! `tahti bench shield`: time to apply and release a shield, compared with a bare C loop with the same writes.

use crate::scratch::Scratch;
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::CpuSet;
use base::text::Counted;
use clap::{ArgMatches, Args as _};
use host::plan::{self, Plan, Step, Want};
use host::snapshot::{Cgroup, Snapshot, Target, Value};
use keep::shield::machine::{Machine, RealMachine};
use keep::{RunDir, shield};
use report::{Figure, Good, Row, Table};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use sys::root::RootDir;

/// The loop, compiled here.
const SOURCE: &str = include_str!("shield_loop.c");

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "shield",
    experiment: "own: time to shield CPUs at run time",
    arguments: Args::augment_args,
    run: measure,
    target: "apply and release at most 1.2 times a bare C loop with the same writes",
    quick: &["--rounds", "8"],
    shields: true,
};

/// Time to apply and release a shield, compared with a bare C loop with the same writes
///
/// Changes the machine and restores it each time. The loop gets a list of writes; tahti has to plan them. Therefore the
/// time to read the machine and to plan is a separate figure (apply and release each include it once).
#[derive(clap::Args)]
struct Args {
    /// CPUs to shield [default: the highest]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Measurements of each; the medians are compared
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    #[command(flatten)]
    touched: Touched,
}

fn measure(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let online = sys::sched::affinity(0)?;
    let cpus = args.cpus.or_else(|| online.iter().last().map(CpuSet::single)).ok_or(Failed::Needs("a CPU"))?;
    let spare = args.touched.spare()?;
    let (root, scratch) = (RootDir::machine(), Scratch::new("shield")?);
    let program = compile(&scratch.0)?;
    let dir = RunDir::at(scratch.0.join("run"));
    let want = Want { cpus, spare, own: shield::own_processes(), ..Want::default() };
    let (mut ours, mut bare) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let (mut writes, mut look) = (0, Vec::new());
    for round in 0..args.rounds.max(1) {
        progress.at(round, args.rounds, "a shield and a loop");
        let start = Instant::now();
        let snapshot = RealMachine::at(&root).snapshot(&want.cpus)?;
        let plan = plan::plan(&snapshot, &want)?;
        look.push(start.elapsed().as_nanos() as f64 / 1e3);
        let (script, steps) = script(&snapshot, &plan);
        writes = steps;
        let [there, back] = bare_loop(&program, &script)?;
        bare[0].push(there);
        bare[1].push(back);
        let start = Instant::now();
        shield::apply(&root, &want, &dir)?;
        ours[0].push(start.elapsed().as_nanos() as f64 / 1e3);
        let start = Instant::now();
        let released = shield::release(&root, &dir, true)?;
        ours[1].push(start.elapsed().as_nanos() as f64 / 1e3);
        if !released.is_whole() {
            return Err(Failed::NotReleased);
        }
    }
    let both = |[there, back]: &[Vec<f64>; 2]| there.iter().zip(back).map(|(there, back)| there + back).collect();
    let (ours_both, bare_both) = (both(&ours), both(&bare));
    let ([apply, release], [bare_apply, bare_release]) = (ours, bare);
    let mut table = Table::new(format!("Shield of CPUs {cpus}: medians of {}", Counted(args.rounds, "round")))
        .columns("tahti", "C loop");
    for (name, ours, bare) in
        [("apply", apply, bare_apply), ("release", release, bare_release), ("both", ours_both, bare_both)]
    {
        let row = Row::samples(name, "us", ours).good(Good::Low).against(Figure::median(bare));
        table = table.row(if name == "both" { row.target(report::Target::ratio_at_most(1.2)) } else { row });
    }
    table.notes.push(format!("{writes} writes to apply"));
    Ok(table.row(Row::samples("reading the machine and planning", "us", look).good(Good::Low)).into())
}

fn compile(scratch: &Path) -> Result<PathBuf, Failed> {
    let (source, program) = (scratch.join("loop.c"), scratch.join("loop"));
    std::fs::write(&source, SOURCE).map_err(Failed::file(&source))?;
    let status = Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).status();
    match status {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(Failed::Ended { command: "cc".into(), status, output: String::new() }),
        Err(source) => Err(Failed::NoPeer { program: "cc", package: "gcc", source }),
    }
}

/// The writes of a plan and of its reversal, a line each, and the number of writes of the plan.
fn script(snapshot: &Snapshot, plan: &Plan) -> (String, usize) {
    let (mut script, mut count) = (String::new(), 0);
    for step in &plan.steps {
        count += usize::from(line(snapshot, step, &mut script));
    }
    script.push_str("-\n");
    for step in &plan::revert(plan).steps {
        line(snapshot, step, &mut script);
    }
    (script, count)
}

/// Adds the step's line, if it has one; returns whether it has.
fn line(snapshot: &Snapshot, step: &Step, script: &mut String) -> bool {
    let written = match (&step.target, &step.to) {
        (Target::Dir { path }, Value::Present) => writeln!(script, "m {path}"),
        (Target::Dir { path }, _) => writeln!(script, "r {path}"),
        (Target::File { path, form }, to) => match form.write(to) {
            Some(text) => writeln!(script, "w {path}\t{}", text.trim_end()),
            None => return false,
        },
        (Target::Irq { key }, Value::Cpus(cpus)) => {
            writeln!(script, "w /proc/irq/{}/smp_affinity_list\t{cpus}", snapshot.irqs[key].number)
        }
        (Target::Task { key }, Value::Place(place)) => match (&snapshot.cgroup, &place.cpuset) {
            (Cgroup::V1 { mount }, Some(cpuset)) => {
                let cpuset = if cpuset == "/" { "" } else { cpuset };
                writeln!(script, "w {mount}{cpuset}/tasks\t{}", key.tid)
            }
            _ => return false,
        },
        _ => return false,
    };
    written.is_ok()
}

/// Microseconds of apply and release.
fn bare_loop(program: &Path, script: &str) -> Result<[f64; 2], Failed> {
    let shown = program.to_string_lossy();
    let failed = Failed::process(&shown);
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(&failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(&failed)?;
    }
    let output = child.wait_with_output().map_err(&failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut times = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    match (times.next(), times.next()) {
        (Some(there), Some(back)) => Ok([there / 1e3, back / 1e3]),
        _ => Err(Failed::answer(program.display(), "two times", text)),
    }
}

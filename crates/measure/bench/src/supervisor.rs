//! `tahti bench supervisor`: cost of supervising idle processes, and start time of a plant.

use crate::measure::own_program;
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::DurNs;
use clap::{ArgMatches, Args as _};
use keep::supervisor::control::{Client, Reply, Request, Status};
use keep::supervisor::rundir::RunDir;
use keep::supervisor::{plant_file, read_plant, short, threads};
use report::{Good, Row, Table, Target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Targets: share of one CPU, memory of the supervisor and of each keeper.
const CPU_PERCENT_ALLOWED: f64 = 0.1;
const MEMORY_KIB_ALLOWED: f64 = 15.0 * 1024.0;
const KEEPER_KIB_ALLOWED: f64 = 500.0;

/// Timeout of a start.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "supervisor",
    experiment: "own: cost of supervising idle processes",
    arguments: Args::augment_args,
    run,
    target: "20 idle processes: at most 0.1 % of a CPU; supervisor 15 MiB; the first control cycle within 1 s",
    quick: &["--processes", "20", "--window", "3s"],
    shields: false,
};

/// Processor time and memory of a supervisor with idle processes; time to a plant's first control cycle
#[derive(clap::Args)]
struct Args {
    /// Idle processes
    #[arg(long, default_value_t = 50)]
    processes: u32,
    /// Time over which processor time is counted
    #[arg(long, default_value = "20s", value_name = "TIME")]
    window: DurNs,
    /// Instead, measure the time from `tahti up` of this plant to its first control cycle
    #[arg(long, value_name = "PLANT")]
    first_cycle: Option<PathBuf>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    progress.at(0, 1, &format!("for {}", args.window));
    match &args.first_cycle {
        Some(plant) => first_cycle(plant).map(BenchResult::from),
        None => idle(&args).map(BenchResult::from),
    }
}

/// A plant that this command started; stopped on drop.
struct Up {
    name: String,
    child: std::process::Child,
}

impl Up {
    fn start(plant: &Path, name: &str, words: &[&str]) -> Result<Self, Failed> {
        let program = own_program()?;
        let mut command = Command::new(program);
        command.arg("up").args(words).arg(plant).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(Failed::process("tahti up"))?;
        Ok(Self { name: name.to_owned(), child })
    }

    fn status(&self) -> Option<Status> {
        match Client::connect(&RunDir::of(&self.name).socket()).ok()?.ask(&Request::Status).ok()? {
            Reply::Status(status) => Some(*status),
            _ => None,
        }
    }

    /// Polls the status until it satisfies the condition.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Status) -> bool) -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            if self.status().is_some_and(|status| is_so(&status)) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Failed::answer(format!("plant {}", self.name), what, status));
            }
            if begin.elapsed() > WATCHDOG {
                return Err(Failed::answer(format!("plant {}", self.name), what, "none within a minute"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn cpu(&self) -> DurNs {
        DurNs(threads(self.child.id() as i32).iter().map(|thread| thread.cpu.0).sum())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Stopped through its socket, so that it restores the machine; then it exits.
        if let Ok(mut client) = Client::connect(&RunDir::of(&self.name).socket()) {
            let _ = client.ask(&Request::Down);
        }
        let _ = self.child.wait();
    }
}

fn idle(args: &Args) -> Result<Table, Failed> {
    let name = format!("bench-{}", std::process::id());
    let dir = std::env::temp_dir().join(format!("tahti-{name}"));
    std::fs::create_dir_all(&dir).map_err(Failed::file(&dir))?;
    let mut text = format!("[plant]\nname = \"{name}\"\n");
    for number in 0..args.processes {
        text += &format!("[[process]]\nname = \"p{number}\"\ncommand = \"sleep 100000\"\n");
    }
    let file = dir.join("plant.toml");
    let measured = std::fs::write(&file, text).map_err(Failed::file(&file)).and_then(|()| measure(args, &file, &name));
    // A file that cannot be removed stays in the folder for temporary files.
    let _ = std::fs::remove_dir_all(RunDir::of(&name).path());
    let _ = std::fs::remove_dir_all(&dir);
    measured
}

fn measure(args: &Args, file: &Path, name: &str) -> Result<Table, Failed> {
    let begin = Instant::now();
    let mut up = Up::start(file, name, &["--no-dashboard"])?;
    up.wait("up", |status| status.phase == host::supervise::Phase::Up)?;
    let came_up = begin.elapsed();
    let (cpu, begin) = (up.cpu(), Instant::now());
    std::thread::sleep(args.window.to_std());
    let (used, window) = (DurNs(up.cpu().0 - cpu.0), begin.elapsed());
    let percent = 100.0 * used.0 as f64 / window.as_nanos() as f64;
    let memory = kib(up.child.id() as i32, "status", "VmRSS:");
    let status = up.status().ok_or_else(|| Failed::answer("the supervisor", "its status", "no answer"))?;
    let keepers: Vec<i32> = status.processes.iter().filter_map(|process| process.keeper).collect();
    let keeper = keepers.iter().map(|pid| kib(*pid, "smaps_rollup", "Private_Dirty:")).max().unwrap_or(0);
    let title = format!("supervisor of {} idle processes, over {}", args.processes, short(args.window));
    Ok(Table::new(title)
        .row(Row::figure("processor time, share of one CPU", "%", percent).target(Target::at_most(CPU_PERCENT_ALLOWED)))
        .row(Row::figure("resident memory", "KiB", memory as f64).target(Target::at_most(MEMORY_KIB_ALLOWED)))
        .row(
            Row::figure("private memory of a keeper, maximum", "KiB", keeper as f64)
                .target(Target::at_most(KEEPER_KIB_ALLOWED)),
        )
        .row(Row::figure("from start to all running", "ms", came_up.as_secs_f64() * 1e3).good(Good::Low)))
}

/// A figure in KiB from a file of `/proc/PID`; 0 if it cannot be read.
fn kib(pid: i32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn first_cycle(plant: &Path) -> Result<Table, Failed> {
    let file = plant_file(plant)?;
    let name = read_plant(&file, &host::plant::Profiles::all())?.0.name;
    if RunDir::of(&name).socket().exists() {
        return Err(Failed::answer(
            format!("plant {name:?}"),
            "a stopped plant (`tahti down` stops it)",
            "a running plant",
        ));
    }
    let begin = sys::clock::mono_now();
    let mut up = Up::start(&file, &name, &[])?;
    let mut first = None;
    up.wait("a control cycle", |status| {
        let loops = status.processes.iter().filter_map(|process| process.loop_page.as_ref());
        first = loops.filter(|page| page.cycles > 0).map(|page| page.first).min();
        first.is_some()
    })?;
    let took = first.map_or(DurNs::ZERO, |first| first - begin);
    let row = Row::figure("first control cycle after `tahti up`", "ms", took.0 as f64 / 1e6);
    Ok(Table::new(format!("plant {name}")).row(row.target(Target::at_most(1_000.0))))
}

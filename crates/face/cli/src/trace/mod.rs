//! `tahti trace`: a flight recorder that records continuously, and the windows that it has stored.

mod serve;
mod show;
mod watched;

pub(crate) use show::late;

use crate::control::plant_name;
use crate::explain::target::Threads;
use crate::failure::{Failure, end, in_file, own_program};
use crate::out::{Colour, Painted};
use base::{CpuSet, DurNs};
use keep::supervisor::rundir::{RunDir, base};
use recorder::request::Request;
use recorder::status::Status;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Folder name of the recorder without a plant. Plant names begin with a letter or digit.
const ALONE: &str = "_recorder";
/// Lock file, held by a recorder while it runs.
const LOCK: &str = "lock";
/// Output of the recorder.
const LOG: &str = "log";
/// Maximum time to start or stop a recorder: switching tracepoints waits for every CPU.
const PATIENCE: Duration = Duration::from_secs(30);

/// Flight recorder: record kernel events, keep the time around a fault
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti trace start --name 'scan-*' --above 200us
  tahti trace status
  tahti trace dump --reason 'beam lost'
  tahti explain --file /run/tahti/_recorder/dump-1795436821000.trace
  tahti trace export dump-1795436821000.trace -o beam.perfetto-trace
  tahti trace stop")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: TraceCommand,
}

#[derive(clap::Subcommand)]
enum TraceCommand {
    /// Start recording in the background
    Start(Start),
    #[command(hide = true)]
    Serve(Serve),
    /// Stop recording; kept windows remain
    Stop(RecorderArgs),
    /// Show the last late wake-ups, their causes and the kept windows
    Status(Shown),
    /// Keep a window around the present time
    Dump(Dump),
    /// Convert a kept window for Perfetto or Chrome
    Export(Export),
}

/// Threads to record, and options of the recording.
#[derive(clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    how: RecordingOptions,
}

/// Options of a recording.
#[derive(Clone, Debug, clap::Args)]
struct RecordingOptions {
    /// Explain wake-ups later than this, and keep a window around each
    #[arg(long, value_name = "TIME", default_value = "200us")]
    above: DurNs,
    /// Also cycles longer than this, from a timer wake-up to the next timer sleep
    #[arg(long, value_name = "TIME")]
    cycle_above: Option<DurNs>,
    /// CPUs to record [default: all CPUs of the threads]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Also watch time-sharing threads that are not selected by --name or --tid
    #[arg(long)]
    ordinary: bool,
    /// Length of a window before its event
    #[arg(long, value_name = "TIME", default_value = "2s")]
    before: DurNs,
    /// Length of a window after its event
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    after: DurNs,
    /// Minimum time between two automatic windows
    #[arg(long, value_name = "TIME", default_value = "10s")]
    every: DurNs,
    /// Number of windows to keep; the oldest is deleted
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keep: u32,
    /// Kernel buffer per CPU, KiB
    #[arg(long, value_name = "KIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=65536))]
    buffer_kb: u32,
    /// Window size per CPU, KiB
    #[arg(long, value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    window_kb: u32,
}

/// The recorder itself.
#[derive(clap::Args)]
struct Serve {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    how: RecordingOptions,
    /// The loops and real-time threads of this plant
    #[arg(long)]
    plant: Option<String>,
}

/// Which recorder is meant.
#[derive(Clone, Debug, clap::Args)]
struct RecorderArgs {
    /// Recorder of this plant: name, file or folder
    #[arg(long, short = 'P', value_name = "PLANT")]
    plant: Option<String>,
}

/// Recorder to show, and output format.
#[derive(clap::Args)]
struct Shown {
    #[command(flatten)]
    which: RecorderArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Keeping by hand.
#[derive(clap::Args)]
struct Dump {
    #[command(flatten)]
    which: RecorderArgs,
    /// Reason
    #[arg(long, value_name = "TEXT", default_value = "asked for")]
    reason: String,
}

/// Writing for others.
#[derive(clap::Args)]
struct Export {
    /// Window, as listed by `tahti trace status`
    file: PathBuf,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format
    #[arg(long, value_enum, default_value = "perfetto")]
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Perfetto, for ui.perfetto.dev and trace_processor
    Perfetto,
    /// JSON of Chrome tracing
    Chrome,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let done = match args.what {
        TraceCommand::Start(args) => start(&args),
        TraceCommand::Serve(args) => serve::run(&args),
        TraceCommand::Stop(which) => stop(&which),
        TraceCommand::Status(args) => show::status(&args),
        TraceCommand::Dump(args) => dump(&args),
        TraceCommand::Export(args) => export(&args),
    };
    end(done)
}

/// The folder of the recorder of plant `plant`, or of the recorder without a plant.
pub(crate) fn folder(plant: Option<&str>) -> PathBuf {
    plant.map_or_else(|| base().join(ALONE), |plant| RunDir::find(plant).path().join("recorder"))
}

impl RecorderArgs {
    fn folder(&self) -> Result<PathBuf, Failure> {
        let plant = self.plant.as_deref().map(|plant| plant_name(Some(plant))).transpose()?;
        let alone = folder(plant.as_deref());
        if plant.is_some() || lives(&alone) {
            return Ok(alone);
        }
        // Without a recorder of its own: that of the only plant, if it has one.
        let only = plant_name(None).ok().map(|plant| folder(Some(&plant)));
        Ok(only.filter(|folder| lives(folder)).unwrap_or(alone))
    }

    /// The folder of the selected recorder, which must be running.
    fn living(&self) -> Result<PathBuf, Failure> {
        let folder = self.folder()?;
        match lives(&folder) {
            true => Ok(folder),
            false if self.plant.is_some() => {
                Err("this plant has no running recorder; add [recorder] to its plant file".into())
            }
            false => Err("no recorder runs; start one with `tahti trace start`, or name its plant with --plant".into()),
        }
    }
}

/// Whether a running recorder holds the lock of the folder.
pub(crate) fn lives(folder: &Path) -> bool {
    File::open(folder.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Polls until `done` returns a value. Returns `None` after [`PATIENCE`].
fn wait<T>(mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match done() {
            Some(found) => return Some(found),
            None if begun.elapsed() > PATIENCE => return None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn start(args: &Start) -> Result<(), Failure> {
    if args.threads.is_empty() {
        return Err("nothing to watch: select threads (--tid, --name PATTERN) or processes (--pid)".into());
    }
    let folder = folder(None);
    if lives(&folder) {
        return Err(format!("a recorder already runs, in {}; `tahti trace stop` stops it", folder.display()).into());
    }
    let said = in_file(&folder);
    serve::make(&folder, false)?;
    let log = File::create(folder.join(LOG)).map_err(said)?;
    let program = own_program()?;
    let mut command = Command::new(program);
    command.args(["trace", "serve"]).args(args.threads.words()).args(args.how.words());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // In a separate process group, so that it continues after this terminal is closed.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| format!("the recorder could not be started: {error}"))?;
    let pid = child.id();
    let up = wait(|| match child.try_wait() {
        Ok(Some(_)) | Err(_) => Some(false),
        Ok(None) => Status::read(&folder).is_some_and(|status| status.pid == pid).then_some(true),
    });
    if up == Some(true) {
        println!("records; `tahti trace status` shows its state ({})", folder.display());
        if let Some(shortfall) = Status::read(&folder).and_then(|status| status.shortfall) {
            println!("{}", Painted(Colour::Bad, shortfall));
        }
        return Ok(());
    }
    let _ = child.kill();
    let _ = child.wait();
    let why = std::fs::read_to_string(folder.join(LOG)).map_err(said)?;
    Err(format!("the recorder did not start: {}", why.trim().trim_start_matches("tahti: ")).into())
}

impl RecordingOptions {
    /// The options as command-line words.
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--above={}", self.above),
            format!("--before={}", self.before),
            format!("--after={}", self.after),
            format!("--every={}", self.every),
            format!("--keep={}", self.keep),
            format!("--buffer-kb={}", self.buffer_kb),
            format!("--window-kb={}", self.window_kb),
        ];
        words.extend(self.cycle_above.map(|above| format!("--cycle-above={above}")));
        words.extend(self.cpus.map(|cpus| format!("--cpus={cpus}")));
        words.extend(self.ordinary.then(|| "--ordinary".to_owned()));
        words
    }
}

fn stop(which: &RecorderArgs) -> Result<(), Failure> {
    let folder = which.living()?;
    Request::Stop.send(&folder).map_err(in_file(&folder))?;
    wait(|| (!lives(&folder)).then_some(()))
        .ok_or("the recorder does not stop; `tahti trace status` names its process")?;
    println!("stopped; its windows are in {}", folder.display());
    Ok(())
}

fn dump(args: &Dump) -> Result<(), Failure> {
    let folder = args.which.living()?;
    let label = format!("dump-{}", sys::clock::wall_ns() / 1_000_000);
    let file = folder.join(format!("{label}.trace"));
    let request = Request::Freeze { label, reason: args.reason.clone() };
    request.send(&folder).map_err(in_file(&folder))?;
    wait(|| file.exists().then_some(())).ok_or_else(|| {
        let trouble = Status::read(&folder).and_then(|status| status.trouble);
        format!("{} was not written{}", file.display(), trouble.map_or(String::new(), |why| format!(": {why}")))
    })?;
    println!("{}", file.display());
    Ok(())
}

fn export(args: &Export) -> Result<(), Failure> {
    let shown = args.file.display();
    let bytes = std::fs::read(&args.file).map_err(|error| format!("{shown}: {error}"))?;
    let stored = trace::stored::Stored::read(&bytes).map_err(|error| format!("{shown}: {error}"))?;
    let out = match args.form {
        Form::Perfetto => trace::export::perfetto(&stored),
        Form::Chrome => trace::export::chrome(&stored).map(String::into_bytes),
    };
    let out = out.map_err(|error| format!("{shown}: {error}"))?;
    match &args.output {
        Some(file) => std::fs::write(file, out).map_err(in_file(file)),
        None => std::io::Write::write_all(&mut std::io::stdout(), &out).map_err(Failure::from),
    }
}

//! `tahti profile`: which functions use the CPU time of threads, sampled by the kernel.

mod memory;
mod print;
mod program;
mod watch;

use crate::explain::target::Threads;
use crate::failure::{Failure, end};
use base::{DurNs, Size};
use profile::ProfileData;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use sys::perf::Sampling;

/// Find the functions that use CPU time or allocate memory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti profile --process loop --for 30s -o loop.svg
  tahti profile --name 'scan-*' --for 10s
  tahti profile -o run.folded -- ./solver input.dat
  tahti profile --process loop --for 60s --coverage
  tahti profile --memory --every 10s -- ./solver input.dat
  tahti profile --memory --process loop --for 60s")]
pub(crate) struct Args {
    #[command(flatten)]
    threads: Threads,
    /// Processes of a plant, with their child processes
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    process: Vec<String>,
    /// Name, file or folder of the plant [default: the only plant that is up]
    #[arg(long, short = 'P', value_name = "PLANT", requires = "process")]
    plant: Option<String>,
    /// Duration [default: until CMD ends, or Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
    /// Samples per second of CPU time of a thread
    #[arg(long, value_name = "COUNT", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    hz: u32,
    /// Bytes of the user stack in each sample, to find the callers
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = stack_size)]
    stack: Size,
    /// Find callers by frame pointers: cheaper, but misses callers of code built without them
    #[arg(long, conflicts_with = "stack")]
    frame_pointers: bool,
    /// Exclude kernel code
    #[arg(long)]
    user_only: bool,
    /// Output file: folded stacks (.folded), flame graph (.svg) or page with both (.html). Tables go to standard output
    #[arg(short, long, value_name = "FILE", value_parser = output)]
    output: Option<PathBuf>,
    /// Number of functions in the table
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
    /// Print a table for each thread
    #[arg(long)]
    by_thread: bool,
    /// List the sampled and the not sampled functions of each program and library
    #[arg(long)]
    coverage: bool,
    /// Count the allocations of CMD by caller: memory not freed, and allocations of real-time threads. Of a running process: the code that
    /// uses new memory, and the growth
    #[arg(long, conflicts_with = "coverage")]
    memory: bool,
    /// With --memory and CMD: print the growth at this interval
    #[arg(long, value_name = "TIME", requires_all = ["memory", "command"])]
    every: Option<DurNs>,
    /// Program to start and sample, with its child processes
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Bytes of stack copied per sample. The kernel copies whole words, and a sample including its other fields is limited
/// to 64 KiB.
fn stack_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error| format!("{error}"))?;
    match size.0 {
        512..=61_440 if size.0.is_multiple_of(8) => Ok(size),
        _ => Err("expected 512B to 60KiB, a multiple of 8 bytes".into()),
    }
}

fn output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|end| end.to_str()) {
        Some("folded" | "svg" | "html") => Ok(path),
        _ => Err("expected a name that ends in .folded, .svg or .html".into()),
    }
}

/// The result of sampling and its cost.
struct Sampled {
    found: ProfileData,
    how: Sampling,
    /// The sampled threads and processes as text.
    who: String,
    span: DurNs,
    /// Cycles, or nanoseconds of CPU time, of the sampled threads.
    counted: u64,
    /// Records lost because a ring was full, as counted by the kernel.
    lost: u64,
    /// CPU time spent on reading and resolving the samples.
    burnt: DurNs,
    /// Memory of the rings in bytes.
    rings_bytes: usize,
    /// Time that one sample takes from the sampled thread.
    cost: Option<DurNs>,
    /// With --memory: growth of the processes.
    growth: Vec<watch::Growth>,
}

impl Args {
    /// Allocations of a program are counted from its start by a library, without samples.
    fn counts_allocations(&self) -> Result<bool, Failure> {
        let counts = self.memory && !self.command.is_empty();
        let selects = !self.threads.is_empty() || !self.process.is_empty();
        if counts && (selects || self.output.is_some() || self.by_thread || self.frame_pointers || self.user_only) {
            return Err("--memory with a program (-- CMD) counts all of its allocations; expected no selection of threads or processes, \
                        and no -o, --by-thread, --frame-pointers or --user-only"
                .into());
        }
        Ok(counts)
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = args.counts_allocations().and_then(|counts| match counts {
        true => memory::run(args),
        false => watch::sample(args).and_then(|sampled| print::shown(args, &sampled)),
    });
    end(done)
}

//! `tahti profile`: which functions take the processor time of threads, by samples of the kernel.

mod memory;
mod print;
mod program;
mod watch;

use crate::explain::target::Threads;
use crate::failure::end;
use base::{DurNs, Size};
use profile::Found;
use std::path::PathBuf;
use std::process::ExitCode;
use sys::perf::Sampling;

/// Say which functions take the processor time of threads, and draw it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti profile --process loop --for 30s -o loop.svg
  tahti profile --name 'scan-*' --for 10s
  tahti profile -o run.folded -- ./solver input.dat
  tahti profile --process loop --for 60s --coverage
  tahti profile --memory --every 10s -- ./solver input.dat")]
pub(crate) struct Args {
    #[command(flatten)]
    threads: Threads,
    /// Processes of a plant, with all that they start
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    process: Vec<String>,
    /// The plant's name, file or folder; may be left out while only one is up
    #[arg(long, short = 'P', value_name = "PLANT", requires = "process")]
    plant: Option<String>,
    /// How long; without it until CMD ends, or Ctrl-C
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
    /// Samples in each second of a thread's processor time
    #[arg(long, value_name = "COUNT", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    hz: u32,
    /// How much of the user stack each sample copies, to find the callers by the tables that compilers write
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = stack_size)]
    stack: Size,
    /// Follow frame pointers instead, which costs a sampled thread less: callers of code built without them are missing
    #[arg(long, conflicts_with = "stack")]
    frame_pointers: bool,
    /// Leave the kernel's code out
    #[arg(long)]
    user_only: bool,
    /// Where to: folded stacks (.folded), a flame graph (.svg), or a page with it and the tables (.html); standard output has the tables
    #[arg(short, long, value_name = "FILE", value_parser = output)]
    output: Option<PathBuf>,
    /// How many functions the table has
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
    /// A table of functions for each thread
    #[arg(long)]
    by_thread: bool,
    /// List which functions of each program and library were seen, and which were not
    #[arg(long)]
    coverage: bool,
    /// Count CMD's allocations instead, by who makes them: what is not given back, and what real-time threads allocate
    #[arg(long, requires = "command", conflicts_with_all = ["tid", "pid", "name", "process", "output", "coverage", "by_thread", "frame_pointers", "user_only"])]
    memory: bool,
    /// With --memory: say again and again what has grown since
    #[arg(long, value_name = "TIME", requires = "memory")]
    every: Option<DurNs>,
    /// A program to start and to sample, with all that it starts
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Copies are of whole words and of less than 64 KiB, with all else that a sample has.
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

/// What was sampled, and what it took.
struct Sampled {
    found: Found,
    how: Sampling,
    /// The threads and processes, in words.
    who: String,
    span: DurNs,
    /// Cycles, or nanoseconds of processor time, of the sampled threads.
    counted: u64,
    /// Records that found no room, the kernel's own count.
    lost: u64,
    /// Processor time that reading and understanding took.
    burnt: DurNs,
    /// Memory of the rings.
    rings_bytes: usize,
    /// What a sample takes of the thread.
    cost: Option<DurNs>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match args.memory {
        true => memory::run(args),
        false => watch::sample(args).and_then(|sampled| print::shown(args, &sampled)),
    };
    end(done)
}

//! The reader of a loop's variables: a separate process on the other CPUs, like `tahti scope`.

use super::{SAMPLED, exported, request};
use crate::measure::{Gate, TaskPlacement, own_program};
use crate::{Failed, Helper, read};
use base::{CpuId, CpuSet, DurNs, MonoNs};
use clap::Args as _;
use rt::scope::Oscilloscope;
use std::io::Read as _;
use sys::clock::{mono_now, sleep_until};

/// The process.
pub(crate) const READER: Helper =
    Helper { name: "scope-reader", arguments: ReaderArgs::augment_args, run: |matches| run_reader(&read(matches)?) };

/// Its command line.
#[derive(clap::Args)]
struct ReaderArgs {
    /// The segment that it sets up; without one it creates a private segment, which no other process writes.
    #[arg(long)]
    segment: Option<String>,
    /// The CPUs that it runs on.
    #[arg(long)]
    cpus: CpuSet,
    /// Time between two reads; without it nothing is read.
    #[arg(long)]
    every: Option<DurNs>,
}

/// Rows of each read.
const ROWS: usize = 1000;

/// Work of the reader while the loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// No reader.
    None,
    /// Reads the same amount of memory that is unrelated to the loop.
    Elsewhere,
    /// Makes the loop sample, and reads nothing.
    SamplesOnly,
    /// Makes the loop sample, and reads the newest rows.
    Reads,
    /// The same, on the CPU of the loop.
    ReadsOnLoopCpu,
}

impl Reader {
    /// Starts it, if there is one; it is running when this returns, and ends when the result is dropped.
    pub(super) fn start(self, segment: &str, loop_cpu: CpuId, every: DurNs) -> Result<Option<Gate>, Failed> {
        let (ours, the_loops) = (sys::sched::affinity(0)?, CpuSet::single(loop_cpu));
        let other_cpus = Some(ours.minus(&the_loops)).filter(|cpus| !cpus.is_empty() && self != Self::ReadsOnLoopCpu);
        let cpus = other_cpus.unwrap_or(the_loops);
        let mut words =
            vec![own_program()?.display().to_string(), "bench".into(), READER.name.into(), format!("--cpus={cpus}")];
        match self {
            Self::None => return Ok(None),
            Self::Elsewhere => words.push(format!("--every={every}")),
            Self::SamplesOnly => words.push(format!("--segment={segment}")),
            Self::Reads | Self::ReadsOnLoopCpu => {
                words.extend([format!("--segment={segment}"), format!("--every={every}")])
            }
        }
        let mut gate = Gate::start(&words, &TaskPlacement { cpu: loop_cpu, place: None }, None)?;
        gate.ready()?;
        Ok(Some(gate))
    }
}

fn run_reader(args: &ReaderArgs) -> Result<(), Failed> {
    sys::sched::set_affinity(0, &args.cpus)?;
    let own = args.segment.is_none().then(exported).transpose()?;
    let sampler = own.as_ref().map(|(_, exports)| exports.sampler()).transpose()?;
    let name = own.as_ref().map(|(name, _)| name).or(args.segment.as_ref()).ok_or(Failed::Thread)?;
    let scope = Oscilloscope::open(name)?;
    scope.set_up(&request(SAMPLED))?;
    if let Some(mut sampler) = sampler {
        (0..2 * ROWS as u64).for_each(|pulse| sampler.cycle(pulse, MonoNs(pulse), 0));
        // Never dropped: a dropped sampler stops, and nothing would be read.
        std::mem::forget(sampler);
    }
    println!("ready");
    if let Some(every) = args.every {
        std::thread::Builder::new()
            .name("scope-reader".into())
            .spawn(move || {
                loop {
                    std::hint::black_box(scope.latest(ROWS));
                    sleep_until(mono_now() + every);
                }
            })
            .map_err(Failed::process("a thread"))?;
        return wait();
    }
    wait()
}

/// Waits until the parent closes standard input.
fn wait() -> Result<(), Failed> {
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(Failed::process("standard input"))
}

//! Who looks at a loop's variables: a process of its own, on the CPUs that the loop leaves, as `tahti scope` is one.

use super::{LOOKED_AT, exported, request};
use crate::measure::{Gate, Where, own_program};
use crate::{Failed, Helper, read};
use base::{CpuId, CpuSet, DurNs, MonoNs};
use clap::Args as _;
use rt::scope::Oscilloscope;
use std::io::Read as _;
use sys::clock::{mono_now, sleep_until};

/// The process.
pub(crate) const LOOK: Helper =
    Helper { name: "look", arguments: LookArgs::augment_args, run: |matches| look(&read(matches)?) };

/// Its command line.
#[derive(clap::Args)]
struct LookArgs {
    /// The segment that it sets up; without one it looks at one of its own, which nobody else writes.
    #[arg(long)]
    segment: Option<String>,
    /// The CPUs that it keeps to.
    #[arg(long)]
    cpus: CpuSet,
    /// Time between two looks; without it nothing is read.
    #[arg(long)]
    every: Option<DurNs>,
}

/// Rows that a look copies.
const ROWS: usize = 1000;

/// What somebody else does while the loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    /// There is nobody.
    Nobody,
    /// Reads as much as who looks does, in memory that has nothing to do with the loop.
    Elsewhere,
    /// Has the loop sample, and reads nothing.
    Holds,
    /// Has the loop sample, and reads the newest rows.
    Looks,
    /// The same, but on the CPU of the loop.
    LooksThere,
}

impl Other {
    /// Starts it, if there is one; it has begun when this returns, and ends when the result is dropped.
    pub(super) fn start(self, segment: &str, loop_cpu: CpuId, every: DurNs) -> Result<Option<Gate>, Failed> {
        let (ours, the_loops) = (sys::sched::affinity(0)?, CpuSet::single(loop_cpu));
        let aside = Some(ours.minus(&the_loops)).filter(|cpus| !cpus.is_empty() && self != Self::LooksThere);
        let cpus = aside.unwrap_or(the_loops);
        let mut words =
            vec![own_program()?.display().to_string(), "bench".into(), LOOK.name.into(), format!("--cpus={cpus}")];
        match self {
            Self::Nobody => return Ok(None),
            Self::Elsewhere => words.push(format!("--every={every}")),
            Self::Holds => words.push(format!("--segment={segment}")),
            Self::Looks | Self::LooksThere => {
                words.extend([format!("--segment={segment}"), format!("--every={every}")])
            }
        }
        let mut gate = Gate::start(&words, &Where { cpu: loop_cpu, place: None }, None)?;
        gate.ready()?;
        Ok(Some(gate))
    }
}

fn look(args: &LookArgs) -> Result<(), Failed> {
    sys::sched::set_affinity(0, &args.cpus)?;
    let own = args.segment.is_none().then(exported).transpose()?;
    let sampler = own.as_ref().map(|(_, exports)| exports.sampler()).transpose()?;
    let name = own.as_ref().map(|(name, _)| name).or(args.segment.as_ref()).ok_or(Failed::Thread)?;
    let scope = Oscilloscope::open(name)?;
    scope.set_up(&request(LOOKED_AT))?;
    if let Some(mut sampler) = sampler {
        (0..2 * ROWS as u64).for_each(|pulse| sampler.cycle(pulse, MonoNs(pulse), 0));
        // Left standing: a sampler that is dropped stops, and nothing would be read.
        std::mem::forget(sampler);
    }
    println!("ready");
    if let Some(every) = args.every {
        std::thread::Builder::new()
            .name("look".into())
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

/// Until who started it closes its standard input.
fn wait() -> Result<(), Failed> {
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(Failed::process("standard input"))
}

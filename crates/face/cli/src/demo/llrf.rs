//! `tahti demo llrf`: a 1 kHz feedback loop on a simulated RF cavity.

use super::RunArgs;
use super::cavity::{Cavity, Complex, Controller};
use super::channel::{Publisher, Reading, Readings};
use crate::failure::Failure;
use base::DurNs;
use bench::looprun::{self, WaitArg};
use rt::{Exports, Flow, LoopSpec, Number, SharedPage, VariableSpec};
use std::sync::Arc;
use sys::clock::mono_now;

/// Control loop: holds amplitude and phase of a simulated RF cavity
///
/// The cavity has measurement noise, a drifting and vibrating resonance, and a beam that is switched on and off. Each
/// cycle publishes a reading with its pulse number; `tahti demo logger` logs them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Period of the loop
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// Wait for a pulse by: sleep, spin, both or both:TIME
    #[arg(long, value_name = "HOW", default_value = "sleep")]
    wait: WaitArg,
    #[command(flatten)]
    run: RunArgs,
    /// Open loop: keep the drive at its feed-forward value
    #[arg(long)]
    open_loop: bool,
    /// Test of the guard: spin for 2 s after this time instead of waiting for the next pulse
    #[arg(long, value_name = "TIME")]
    runaway_after: Option<DurNs>,
    /// Name of the exported variables and of the published readings
    #[arg(long, default_value = "llrf")]
    channel: String,
}

/// Duration of the `--runaway-after` busy loop: it ends by itself if no guard stops it.
const RUNAWAY: DurNs = DurNs::from_secs(2);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.period < DurNs::from_us(20) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 20us to 1s", args.period).into());
    }
    let page = SharedPage::from_env_or_own("llrf")?;
    let memory = Arc::new(Publisher::memory()?);
    let mut publisher = Publisher::open(&args.channel)?;
    let shown = Shown::open(&args.channel, args.period)?;
    let exports = Some(shown.exports.clone());
    let spec = LoopSpec {
        class: args.run.class,
        cpu: args.run.cpu,
        wait: args.wait.0,
        exports,
        ..LoopSpec::new("llrf", args.period)
    };
    let body = body(args, memory.clone(), shown);
    // In a plant the keeper owns the terminal, and output goes to the log.
    let live = crate::out::is_terminal() && std::env::var_os(rt::frames::PLANT).is_none();
    let mut look = 0u32;
    let mut broken = None;
    let finished = looprun::run(
        spec,
        &page,
        args.run.for_,
        body,
        |armed| {
            for missing in armed.missing() {
                println!("{missing}");
            }
            println!("armed: {} Hz, wait {}", 1_000_000_000 / args.period.0.max(1), looprun::wait_word(args.wait.0));
        },
        |page| {
            if let Err(why) = publisher.serve(&memory) {
                broken.get_or_insert(why);
            }
            look += 1;
            if live && look.is_multiple_of(10) {
                let (wake, pulse) = (page.wake(), page.heartbeat().map_or(0, |beat| beat.cycle.pulse));
                let max = wake.max().map_or("-".into(), ::report::micros);
                let p99 = looprun::shown(wake.quantile(99, 100));
                // If the terminal is gone, only the live line is lost.
                let _ = crate::out::live(&format!("pulse {pulse}  wake-up p99 {p99} max {max} us "));
            }
        },
    )?;
    println!("{}", looprun::verdict(&page.read(), &finished).join("\n"));
    broken.map_or(Ok(()), |why| Err(format!("readings could not be published: {why}").into()))
}

/// The readings as exported variables, for records, the oscilloscope and the archive.
struct Shown {
    exports: Exports,
    indices: [usize; 5],
}

impl Shown {
    fn open(name: &str, period: DurNs) -> Result<Self, Failure> {
        let exports = Exports::open(name, 5)?;
        exports.set_period(period);
        let add = |name, unit, first| {
            // Safe value, set while a hard deadline is missed: no drive.
            let safe = (name == "drive").then_some(first);
            exports.add(&VariableSpec { name, unit, first, safe })
        };
        let zero = Number::Float(0.0);
        let indices = [
            add("amplitude", "", zero)?,
            add("phase", "deg", zero)?,
            add("drive", "", zero)?,
            add("drive-phase", "deg", zero)?,
            add("beam", "", Number::Bool(false))?,
        ];
        Ok(Self { exports, indices })
    }

    fn set(&self, reading: &Reading) {
        let floats = [reading.amplitude, reading.phase_deg, reading.drive, reading.drive_phase_deg];
        let values = floats.map(Number::Float).into_iter().chain([Number::Bool(reading.beam)]);
        for (index, value) in self.indices.iter().zip(values) {
            self.exports.set(*index, value, reading.pulse, base::MonoNs(reading.measured_ns));
        }
    }
}

/// The cycle function of the loop: measure, control, publish.
fn body(
    args: &Args,
    memory: Arc<sys::shm::SharedWords>,
    shown: Shown,
) -> impl FnMut(&rt::Pulse) -> Flow + Send + use<> {
    let step = args.period.0 as f64 * 1e-9;
    let mut cavity = Cavity::new();
    let mut controller = Controller::new(!args.open_loop);
    let mut drive = Complex::polar(controller.amplitude, controller.phase);
    let mut runs_away_in = args.runaway_after.map(|span| span.0 / args.period.0);
    move |pulse| {
        runs_away_in = runs_away_in.map(|left| left - 1);
        if runs_away_in.take_if(|left| *left < 0).is_some() {
            while mono_now() < pulse.woke + RUNAWAY {
                std::hint::spin_loop();
            }
        }
        // During skipped pulses the cavity continued under the old drive.
        let mut measured = cavity.step(drive, step);
        for _ in 0..pulse.skipped.min(100) {
            measured = cavity.step(drive, step);
        }
        drive = controller.drive(measured);
        let reading = Reading {
            pulse: pulse.number,
            measured_ns: pulse.woke.0,
            amplitude: measured.amplitude(),
            phase_deg: measured.phase().to_degrees(),
            drive: drive.amplitude(),
            drive_phase_deg: drive.phase().to_degrees(),
            beam: cavity.beam_is_on(),
        };
        if pulse.is_void(mono_now()) {
            // Past a firm or hard deadline. The loop's page counts the cycle as late, and nothing is output.
            return Flow::Continue;
        }
        shown.set(&reading);
        match Readings::attach(memory.words()) {
            Ok(readings) => {
                readings.push_overwrite(reading.words());
                Flow::Continue
            }
            // Another process with the descriptor has damaged the memory. The loop continues and marks this cycle's output as invalid.
            Err(_) => Flow::Fault,
        }
    }
}

//! `tahti demo ao`: an adaptive-optics loop, from a wavefront sensor's pixels to commands for a deformable mirror.

mod messages;

use super::RunArgs;
use crate::failure::Failure;
use adaptive::{
    Before, Card, Chosen, Control, Input, Pixels, Shown, Spec, SpotWork, Streams, calibrate, counted, sender,
};
use base::{CpuId, CpuSet, DurNs};
use bench::Failed;
use bench::looprun::{self, WaitArg};
use kernels::{Level, Light};
use optics::{Geometry, Settings, Stored};
use rt::team::TeamSpec;
use rt::{LoopSpec, SharedPage, Source};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use sys::clock::mono_now;
use sys::signal::{SignalFd, end_signals};

/// Adaptive-optics loop: wavefront sensor pixels in, mirror commands out, by UDP
///
/// First it calibrates pixels, spots and actuators (shutter closed, flat light, pokes). Then it processes each row of
/// sub-apertures on arrival, and sends the command after the last one. `compute` is the time from the last pixel to the
/// command. Missing rows are skipped; with too many, the frame is skipped.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of the pixels
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51511")]
    pixels: SocketAddr,
    /// Receive pixels from a network card queue by AF_XDP [default queue: 0]. Needs root and an MTU larger than a row
    #[arg(long, value_name = "IFACE[:QUEUE]")]
    xdp: Option<Card>,
    /// Target of the commands
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51512")]
    commands: SocketAddr,
    /// Sub-apertures across the pupil
    #[arg(long, default_value_t = 40)]
    across: usize,
    /// Period of the camera
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// Start with the loop open: the mirror stays flat
    #[arg(long)]
    open: bool,
    /// Gain of the integrator
    #[arg(long, default_value_t = 0.5)]
    gain: f32,
    /// Leak of the integrator: share of the last command that is kept
    #[arg(long, default_value_t = 0.99)]
    leak: f32,
    /// Maximum stroke of an actuator, both directions
    #[arg(long, value_name = "NM", default_value_t = 4000.0)]
    stroke: f32,
    /// Regularisation of the inverted interaction matrix, share of the mean diagonal
    #[arg(long, value_name = "SHARE", default_value_t = 3e-3)]
    regularise: f64,
    /// Maximum missing rows of a frame; with more it is skipped
    #[arg(long, value_name = "N", default_value_t = 4)]
    missing: usize,
    /// Additional threads for the multiplication, each on its own CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Wait for pixels by: sleep, spin, or both:TIME (sleep first, spin for the last rows)
    #[arg(long, value_name = "WAIT", default_value = "sleep")]
    wait: WaitArg,
    /// Number format of the reconstructor: byte (8 bits with scales), half or single
    #[arg(long, value_name = "HOW", default_value = "byte", value_parser = ["byte", "half", "single"])]
    stored: String,
    /// Vector instructions [default: the best of the CPU]
    #[arg(long, value_name = "NAME")]
    level: Option<String>,
    /// Calibrate and exit
    #[arg(long)]
    calibrate: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Name of the exported segment
    #[arg(long, default_value = "ao")]
    exports: String,
    /// Segment with its settings: closed, gain, leak
    #[arg(long, value_name = "NAME", default_value = "ao-settings")]
    settings: String,
    /// Message server for `ao_calibration`: parts from files, calibration, measured latency [default: none]
    #[arg(long, value_name = "NAME")]
    messages: Option<String>,
    /// Folder of the files that messages name
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    files: PathBuf,
    /// Folder for ImageStreamIO streams of each stage: wfs, slopes, dm, telemetry
    #[arg(long, value_name = "FOLDER", env = "MILK_SHM_DIR")]
    streams: Option<PathBuf>,
    /// Prefix of the stream names
    #[arg(long, value_name = "TEXT", default_value = "ao_")]
    prefix: String,
}

impl Args {
    fn spec(&self) -> Result<Spec, Failure> {
        within("--gain", self.gain.into(), 0.0, Settings::GAIN_MAX.into())?;
        within("--leak", self.leak.into(), 0.0, Settings::LEAK_MAX.into())?;
        within("--stroke", self.stroke.into(), 1.0, 1e6)?;
        within("--regularise", self.regularise, 0.0, 1.0)?;
        let level = self.level.as_deref().map_or(Ok(Level::best()), Level::named).map_err(|error| error.to_string())?;
        Ok(Spec {
            geometry: Geometry::new(self.across).map_err(|error| format!("--across: {error}"))?,
            period: self.period,
            level,
            // Both in camera counts: per pixel, and per sub-aperture.
            light: Light { threshold: 15.0, flux_min: 300.0 },
            stroke: self.stroke,
            regularise: self.regularise,
            stored: match self.stored.as_str() {
                "single" => Stored::Single,
                "half" => Stored::Half,
                _ => Stored::Byte,
            },
            spots: SpotWork::default(),
            begun: Settings { closed: !self.open, gain: self.gain, leak: self.leak },
        })
    }

    /// The team of threads on the process's CPUs. If there are workers, each worker and the loop get separate CPUs. The
    /// loop gets the first CPU unless `--cpu` names one.
    fn team(&self) -> Result<TeamSpec, Failure> {
        let ours: Vec<CpuId> = sys::sched::affinity(0)?.iter().collect();
        let leader = self.run.cpu.or(ours.first().copied().filter(|_| self.workers > 0));
        let others: Vec<CpuId> = ours.into_iter().filter(|cpu| Some(*cpu) != leader).collect();
        if self.workers > others.len() {
            let found = others.len();
            let wanted = "expected at most that many: set fewer workers, or shield more CPUs";
            return Err(format!(
                "--workers {}: the process has {found} CPUs without that of the loop; {wanted}",
                self.workers
            )
            .into());
        }
        let workers = others.into_iter().take(self.workers).map(Some).collect();
        // The steps of a frame follow each other closely, so workers spin for 50 us. Between frames they sleep.
        let spin = DurNs::from_us(50);
        Ok(TeamSpec { class: self.run.class, leader, spin, limit: self.period, ..TeamSpec::new("ao", workers) })
    }
}

fn within(option: &str, value: f64, least: f64, most: f64) -> Result<(), Failure> {
    // NaN is not in the range.
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{option} {value}: expected {least} to {most}").into())
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.period < DurNs::from_us(100) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 100us to 1s", args.period).into());
    }
    let (spec, team) = (args.spec()?, args.team()?);
    let cpu = team.leader;
    let page = SharedPage::from_env_or_own("ao")?;
    // The rest of a frame that has not arrived within one period is regarded as lost.
    let patience = args.period.clamp(DurNs::from_ms(1), DurNs::from_ms(100));
    let input = Input::open(args.pixels, args.xdp.as_ref(), &spec.geometry, patience)?;
    if let Some(said) = input.said() {
        println!("{said}");
    }
    let watch = input.watch()?;
    let mut pixels = Pixels::new(input, &spec.geometry, args.missing, args.wait.0);
    let commands = sender(args.commands)?;
    // Opened before the calibration, which takes seconds, because opening may fail. Opened after the port, so that a
    // running loop's streams are not replaced.
    let shown_in = args.streams.as_ref().filter(|_| !args.calibrate);
    let busy: CpuSet = team.leader.into_iter().chain(team.workers.iter().flatten().copied()).collect();
    let streams = shown_in.map(|folder| Streams::open(folder, &args.prefix, &spec.geometry, &busy)).transpose()?;
    let measure = || calibrate(&spec, &mut Before { pixels: &mut pixels, commands: &commands });
    let calibrated = super::unhurried(measure)?;
    println!("{}", calibrated.said);
    if args.calibrate {
        return Ok(());
    }
    // Block signals before the first thread starts. A thread that leaves them unblocked would end the process without
    // its report.
    let _blocked = SignalFd::new(&end_signals())?;
    let settings = Source::new(&args.settings);
    settings.look_after(mono_now());
    let chosen = Chosen::new(&settings, spec.begun);
    let shown = Shown::open(&args.exports, args.period)?;
    let exports = Some(shown.exports().clone());
    let (control, desk) = Control::new(&spec, team, pixels, commands, calibrated, chosen, shown, streams)?;
    if let Some(server) = &args.messages {
        // Use an absolute path: the client may run in another folder.
        let folder = std::path::absolute(&args.files).map_err(|error| format!("--files: {error}"))?;
        messages::serve(messages::LoopDesk { desk, folder }, server.clone())?;
    }
    control.missing().for_each(|missing| println!("{missing}"));
    let loop_spec = LoopSpec { class: args.run.class, cpu, exports, ..LoopSpec::new("ao", args.period) };
    let finished = looprun::run_events(
        loop_spec,
        &page,
        args.run.for_,
        control,
        |armed| {
            armed.missing().for_each(|missing| println!("{missing}"));
            let (hertz, threads) = (1_000_000_000 / args.period.0.max(1), args.workers + 1);
            println!(
                "armed: {hertz} Hz, {} slopes, {} actuators, {threads} threads, {}",
                2 * spec.geometry.apertures().len(),
                spec.geometry.actuators().len(),
                spec.level
            );
        },
        |_| {
            settings.look_after(mono_now());
            match watch.look() {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Failed::from(error)),
            }
        },
    )?;
    println!("{}", looprun::verdict(&page.read(), &finished).join("\n"));
    println!("{}", counted(&args.exports));
    Ok(())
}

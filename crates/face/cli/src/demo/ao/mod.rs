//! `tahti demo ao`: an adaptive-optics loop, from a wavefront sensor's pixels to commands for a deformable mirror.

mod calibrate;
mod control;
mod pixels;
mod shown;

use super::RunArgs;
use crate::failure::Failure;
use base::DurNs;
use bench::looprun;
use control::Control;
use kernels::{Level, Light};
use optics::{Geometry, Settings};
use pixels::Pixels;
use rt::{LoopSpec, SharedPage, Source};
use shown::{Chosen, Shown};
use std::net::{SocketAddr, UdpSocket};
use sys::clock::mono_now;

/// An adaptive-optics loop: pixels of a wavefront sensor by UDP, commands for a deformable mirror by UDP
///
/// First it measures pixels, spots and what each actuator does (the shutter closed, even light, pokes). Then each row of sub-apertures is
/// computed as it comes, and the command goes out after the last: the loop's `compute` is the time from the last pixel to the command. Rows that do
/// not come are left out, or the frame is.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the pixels come in
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51511")]
    pixels: SocketAddr,
    /// Where the commands go
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51512")]
    commands: SocketAddr,
    /// Sub-apertures across the pupil
    #[arg(long, default_value_t = 40)]
    across: usize,
    /// Time between two frames of the camera
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// Begin with the loop open: the mirror stays flat
    #[arg(long)]
    open: bool,
    /// Of each error this share is taken off
    #[arg(long, default_value_t = 0.5)]
    gain: f32,
    /// Of each command this share is kept
    #[arg(long, default_value_t = 0.99)]
    leak: f32,
    /// How far an actuator goes, up and down
    #[arg(long, value_name = "NM", default_value_t = 4000.0)]
    stroke: f32,
    /// Share of the mean diagonal that is added before the interaction matrix is inverted
    #[arg(long, value_name = "SHARE", default_value_t = 3e-3)]
    regularise: f64,
    /// Rows that may be missing in a frame; with more it is given up
    #[arg(long, value_name = "N", default_value_t = 4)]
    missing: usize,
    /// Threads beside the loop's that multiply, each on a CPU of this process
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Keep the reconstructor in single precision; else in half, which is half as much to read each frame
    #[arg(long)]
    single: bool,
    /// Vector instructions; the CPU's best if not given
    #[arg(long, value_name = "NAME")]
    level: Option<String>,
    /// Measure what is needed, and end
    #[arg(long)]
    calibrate: bool,
    #[command(flatten)]
    run: RunArgs,
    /// The name under which its variables are exported
    #[arg(long, default_value = "ao")]
    exports: String,
    /// The name under which somebody exports its settings: closed, gain, leak
    #[arg(long, value_name = "NAME", default_value = "ao-settings")]
    settings: String,
}

impl Args {
    /// What counts as light: counts of a pixel, and of a sub-aperture.
    fn light(&self) -> Light {
        Light { threshold: 15.0, flux_min: 300.0 }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.period < DurNs::from_us(100) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 100us to 1s", args.period).into());
    }
    let geometry = Geometry::new(args.across).map_err(|error| format!("--across: {error}"))?;
    let level = args.level.as_deref().map_or(Ok(Level::best()), Level::named).map_err(|error| error.to_string())?;
    let team = control::team(args)?;
    let cpu = team.leader;
    let page = SharedPage::from_env_or_own("ao")?;
    // A frame's rest that does not come within a period will not.
    let patience = args.period.clamp(DurNs::from_ms(1), DurNs::from_ms(100));
    let mut pixels = Pixels::open(args.pixels, &geometry, args.missing, patience)?;
    let any = if args.commands.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let refused = |error: std::io::Error| format!("--commands {}: {error}", args.commands);
    let commands = UdpSocket::bind(any).map_err(refused)?;
    commands.connect(args.commands).map_err(refused)?;
    let calibrated = super::unhurried(|| calibrate::calibrate(args, &geometry, &mut pixels, &commands))?;
    println!("{}", calibrated.said);
    if args.calibrate {
        return Ok(());
    }
    let settings = Source::new(&args.settings);
    settings.look_after(mono_now());
    let chosen = Chosen::new(&settings, Settings { closed: !args.open, gain: args.gain, leak: args.leak });
    let shown = Shown::open(&args.exports, args.period)?;
    let exports = Some(shown.exports().clone());
    let control = Control::new(args, team, level, &geometry, pixels, commands, calibrated, chosen, shown)?;
    control.missing().for_each(|missing| println!("{missing}"));
    let spec = LoopSpec { class: args.run.class, cpu, exports, ..LoopSpec::new("ao", args.period) };
    let finished = looprun::run_events(
        spec,
        &page,
        args.run.for_,
        control,
        |armed| {
            armed.missing().for_each(|missing| println!("{missing}"));
            let (hertz, threads) = (1_000_000_000 / args.period.0.max(1), args.workers + 1);
            println!(
                "armed: {hertz} Hz, {} slopes, {} actuators, {threads} threads, {level}",
                2 * geometry.apertures().len(),
                geometry.actuators().len()
            );
        },
        |_| settings.look_after(mono_now()),
    )?;
    println!("{}", looprun::verdict(&page.read(), &finished).join("\n"));
    println!("{}", shown::counted(&args.exports));
    Ok(())
}

//! The interference: threads that compute pi or a Fourier transform, in a separate process, or pi in guests.

use super::setting::{Ground, QEMU, Setting};
use crate::measure::own_program;
use crate::served::Served;
use crate::{Failed, Helper, read, sector};
use base::{DurNs, MonoNs, Policy};
use clap::Args as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_scheduling};

/// The process.
pub(crate) const COMPUTE: Helper =
    Helper { name: "compute-pi", arguments: ComputeArgs::augment_args, run: |matches| compute(&read(matches)?) };

/// Its command line.
#[derive(clap::Args)]
struct ComputeArgs {
    /// Share of each period in which the threads of a CPU compute, in percent
    #[arg(long)]
    percent: u32,
    /// Threads
    #[arg(long)]
    threads: usize,
    #[arg(long, allow_hyphen_values = true)]
    nice: i8,
    #[arg(long, value_enum, default_value = "pi")]
    work: Work,
}

/// Work of the interference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Work {
    /// Pi by a series, in registers
    Pi,
    /// Fourier transforms of 4096 points, in the caches
    Fft,
}

impl Work {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Pi => "pi",
            Self::Fft => "fft",
        }
    }
}

/// Period of the shares.
const PERIOD: DurNs = DurNs::from_ms(10);
/// Threads for each CPU of the machine.
const THREADS: usize = 2;
/// Maximum number of guests.
const GUESTS_MAX: usize = 8;

/// The interference, ended on drop.
#[derive(Default)]
pub(super) struct Computation {
    _computing: Option<Computing>,
    _guests: Vec<Served>,
}

impl Computation {
    /// Starts the interference of a setting for `percent` of the time: two threads for each CPU of the machine, on the CPUs that the setting
    /// allows, or a guest for each of these CPUs.
    pub(super) fn start(ground: &Ground<'_>, setting: Setting, percent: u32) -> Result<Self, Failed> {
        if percent == 0 {
            return Ok(Self::default());
        }
        if setting == Setting::Guest {
            let count = ground.others().count().min(GUESTS_MAX);
            let guests = (0..count).map(|nth| guest(ground, nth, percent)).collect::<Result<_, _>>()?;
            return Ok(Self { _guests: guests, ..Self::default() });
        }
        let computing = Computing::start(ground, percent, setting.nice())?;
        Ok(Self { _computing: Some(computing), ..Self::default() })
    }
}

/// An emulated guest that only computes: the same on every machine, independent of KVM.
fn guest(ground: &Ground<'_>, nth: usize, percent: u32) -> Result<Served, Failed> {
    let folder = &ground.scratch.0;
    let disk = folder.join(format!("pi-{nth}.img"));
    sector::write(&disk, "the guest computes", &sector::busy(percent))?;
    let mut command = Command::new(own_program()?);
    command.args(["guest", "serve", &format!("pi-{nth}"), "--accel", "emulated", "--memory", "32MiB"]);
    command.args(["--program", QEMU, "--disk"]).arg(&disk);
    command.env("TAHTI_RUN", folder.join("run"));
    Served::start(command, "tahti guest serve").map(|(served, _)| served)
}

struct Computing(Child);

impl Computing {
    fn start(ground: &Ground<'_>, percent: u32, nice: i8) -> Result<Self, Failed> {
        let failed = Failed::process("tahti bench compute-pi");
        let threads = THREADS * ground.online.count();
        let mut command = Command::new(own_program()?);
        command.args(["bench", "compute-pi", "--percent", &percent.to_string(), "--threads", &threads.to_string()]);
        command.args(["--work", ground.work.word()]);
        command.arg(format!("--nice={nice}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut computing = Self(command.spawn().map_err(&failed)?);
        ground.bind(computing.0.id() as i32)?;
        computing.0.stdin.as_mut().map_or(Ok(()), |input| input.write_all(b"go\n")).map_err(&failed)?;
        let mut line = String::new();
        if let Some(output) = computing.0.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(&failed)?;
        }
        match line.as_str() {
            "ready\n" => Ok(computing),
            _ => Err(Failed::answer("tahti bench compute-pi", "\"ready\"", line)),
        }
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it has been moved into its group, then computes until its parent has ended.
fn compute(args: &ComputeArgs) -> Result<(), Failed> {
    let failed = Failed::process("tahti bench compute-pi");
    let mut input = std::io::stdin().lock();
    let mut go = [0; 3];
    input.read_exact(&mut go).map_err(&failed)?;
    set_scheduling(0, Scheduling { policy: Policy::Other { nice: args.nice }, reset_on_fork: false })?;
    let busy = DurNs(PERIOD.0 * i64::from(args.percent) / 100 / THREADS as i64);
    for _ in 0..args.threads {
        // They inherit the class of this thread.
        let (percent, work) = (args.percent, args.work);
        std::thread::Builder::new().spawn(move || share(percent, busy, work)).map_err(&failed)?;
    }
    println!("ready");
    // Waits for the end of the input. No further data arrive.
    input.read(&mut go).map(drop).map_err(failed)
}

fn share(percent: u32, busy: DurNs, work: Work) {
    let mut points: Vec<(f64, f64)> = (0..POINTS).map(|point| (f64::from(point % 17), 0.0)).collect();
    loop {
        let begun = mono_now();
        let end = begun + if percent >= 100 { PERIOD } else { busy };
        match work {
            Work::Pi => _ = std::hint::black_box(pi(end)),
            Work::Fft => transforms(&mut points, end),
        }
        if percent < 100 {
            sleep_until(begun + PERIOD);
        }
    }
}

/// Points of a transform: 64 KiB, more than the first cache holds.
const POINTS: u32 = 4096;

/// Transforms the points and scales them to the same power, until `end`.
fn transforms(points: &mut [(f64, f64)], end: MonoNs) {
    let scale = 1.0 / (points.len() as f64).sqrt();
    while mono_now() < end {
        scope::fft(points);
        points.iter_mut().for_each(|(re, im)| (*re, *im) = (*re * scale, *im * scale));
    }
}

/// Computes pi by Leibniz' series until `end`.
fn pi(end: MonoNs) -> f64 {
    let (mut sum, mut term) = (0.0f64, 0u32);
    while mono_now() < end {
        for _ in 0..1000 {
            let sign = if term.is_multiple_of(2) { 4.0 } else { -4.0 };
            sum += sign / f64::from(2 * term + 1);
            term = (term + 1) % (u32::MAX / 4);
        }
        std::hint::black_box(sum);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_transforms_keep_the_power_of_the_points() {
        let mut points: Vec<(f64, f64)> = (0..64).map(|point| (f64::from(point % 17), 0.0)).collect();
        let power = |points: &[(f64, f64)]| points.iter().map(|(re, im)| re * re + im * im).sum::<f64>();
        let before = power(&points);
        transforms(&mut points, mono_now() + DurNs::from_ms(20));
        assert!((power(&points) / before - 1.0).abs() < 1e-6 && points[1].1 != 0.0, "{before}");
    }

    #[test]
    fn the_computed_digits_of_pi_are_correct() {
        assert!((pi(mono_now() + DurNs::from_ms(20)) - std::f64::consts::PI).abs() < 0.01);
    }
}

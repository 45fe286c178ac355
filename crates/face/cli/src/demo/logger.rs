//! `tahti demo logger`: records the readings that a loop publishes. Not real-time: the loop never waits for it.

use super::channel::{Reading, Readings, Subscription};
use crate::failure::Failure;
use base::DurNs;
use ring::Cursor;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use sys::clock::{mono_now, sleep_until};
use sys::signal::SignalFd;
use sys::signal::end_signals;

/// Logger: prints a summary of the readings of `tahti demo llrf` every second
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the published readings
    #[arg(long, default_value = "llrf")]
    channel: String,
    /// Write every reading to this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Interval of the summary
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: DurNs,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
}

/// Interval between reads of the trail.
const LOOK: DurNs = DurNs::from_ms(100);
const CSV_HEAD: &str = "pulse,monotonic_ns,amplitude,phase_deg,drive,drive_phase_deg,beam";

/// Statistics of the readings since the last printed line.
#[derive(Default)]
struct Summary {
    count: u64,
    last_pulse: u64,
    amplitude: Moments,
    phase: Moments,
}

/// Accumulator for mean and standard deviation.
#[derive(Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.count - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.every < LOOK {
        return Err(format!("--every {}: expected at least {LOOK}", args.every).into());
    }
    let signals = SignalFd::new(&end_signals())?;
    let mut csv = match &args.csv {
        Some(path) => Some(csv(path)?),
        None => None,
    };
    let failed = |error: std::io::Error| Failure::from(format!("failed to write the readings: {error}"));
    let (begun, mut told) = (mono_now(), mono_now());
    let mut source: Option<(Subscription, Cursor)> = None;
    let mut waiting = false;
    let mut lost = 0;
    let mut summary = Summary::default();
    let over = |now| args.for_.is_some_and(|limit| now - begun >= limit);
    while !over(mono_now()) && signals.read()?.is_none() {
        match &mut source {
            None => match Subscription::ask(&args.channel) {
                Ok(subscription) => {
                    println!("reading from channel {}", args.channel);
                    let readings = Readings::attach(subscription.memory.words())?;
                    let cursor = readings.from_oldest();
                    source = Some((subscription, cursor));
                    waiting = false;
                }
                Err(why) if !waiting => {
                    println!("waiting for channel {} ({why})", args.channel);
                    waiting = true;
                }
                Err(_) => {}
            },
            Some((subscription, cursor)) => {
                // Checked before reading, so that the last readings of a loop that ends are not missed.
                let alive = subscription.is_alive();
                let readings = Readings::attach(subscription.memory.words())?;
                for _ in 0..readings.bound() {
                    let Some(reading) = readings.next(cursor).map(Reading::from_words) else { break };
                    summary.add(&reading);
                    if let Some(csv) = &mut csv {
                        line(csv, &reading).map_err(failed)?;
                    }
                }
                if !alive {
                    lost += cursor.lost();
                    println!("the loop behind channel {} has ended", args.channel);
                    source = None;
                }
            }
        }
        if mono_now() - told >= args.every {
            told = mono_now();
            if summary.count > 0 {
                let lost = lost + source.as_ref().map_or(0, |(_, cursor)| cursor.lost());
                println!("{}", summary.line(lost));
                summary = Summary::default();
            }
            if let Some(csv) = &mut csv {
                csv.flush().map_err(failed)?;
            }
        }
        sleep_until(mono_now() + LOOK);
    }
    csv.map_or(Ok(()), |mut csv| csv.flush().map_err(failed))
}

fn csv(path: &std::path::Path) -> Result<BufWriter<File>, Failure> {
    let failed = |error| format!("failed to write {}: {error}", path.display());
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    writeln!(file, "{CSV_HEAD}").map_err(failed)?;
    Ok(file)
}

fn line(csv: &mut impl Write, reading: &Reading) -> std::io::Result<()> {
    let Reading { pulse, measured_ns, amplitude, phase_deg, drive, drive_phase_deg, beam } = reading;
    let beam = u8::from(*beam);
    writeln!(csv, "{pulse},{measured_ns},{amplitude:.6},{phase_deg:.4},{drive:.6},{drive_phase_deg:.4},{beam}")
}

impl Summary {
    fn add(&mut self, reading: &Reading) {
        self.count += 1;
        self.last_pulse = reading.pulse;
        self.amplitude.add(reading.amplitude);
        self.phase.add(reading.phase_deg);
    }

    fn line(&self, lost: u64) -> String {
        format!(
            "pulse {} readings {} amplitude {:.5} sd {:.5} phase {:+.3} sd {:.3} deg lost {lost}",
            self.last_pulse,
            self.count,
            self.amplitude.mean(),
            self.amplitude.deviation(),
            self.phase.mean(),
            self.phase.deviation(),
        )
    }
}

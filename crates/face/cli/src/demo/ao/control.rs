//! The loop: each row of sub-apertures is calibrated, its spots found and multiplied as it comes; the command goes out after the last.

use super::Args;
use super::calibrate::Calibrated;
use super::pixels::{Got, Pixels};
use super::shown::{Chosen, Figures, Shown};
use crate::failure::Failure;
use base::{CpuId, DurNs};
use kernels::{Centroids, Level, Light, Without};
use optics::{Command, Geometry, Integrator, Share, Source, Stored, Whole};
use rt::team::{Team, TeamSpec, Worker};
use rt::{Event, EventLoop, Flow, Obtained, Pulse};
use std::net::UdpSocket;
use std::ops::Range;
use sys::clock::mono_now;

/// What all workers see: the slopes, and which row of sub-apertures they are to multiply.
struct Slopes {
    all: Vec<f32>,
    row: usize,
    /// Whether it is the first of its frame.
    first: bool,
    /// The slopes of each row.
    ranges: Vec<Range<usize>>,
}

pub(super) struct Control {
    pixels: Pixels,
    commands: UdpSocket,
    spots: Centroids,
    level: Level,
    light: Light,
    team: Team<Slopes, Share>,
    begun: bool,
    /// The frame's last row, not computed yet.
    left: Option<(usize, bool)>,
    error: Vec<f32>,
    mirror: Integrator,
    datagram: Vec<u8>,
    chosen: Chosen,
    shown: Shown,
    figures: Figures,
    without: Without,
}

impl Control {
    #[expect(clippy::too_many_arguments, reason = "what a loop is made of")]
    pub(super) fn new(
        args: &Args,
        spec: TeamSpec,
        level: Level,
        geometry: &Geometry,
        pixels: Pixels,
        commands: UdpSocket,
        Calibrated { spots, inverse, .. }: Calibrated,
        chosen: Chosen,
        shown: Shown,
    ) -> Result<Self, Failure> {
        let (actuators, slopes) = (geometry.actuators().len(), 2 * spots.apertures());
        let ranges: Vec<Range<usize>> = (0..geometry.across()).map(|row| optics::slopes_of(geometry, row)).collect();
        let shape = geometry.clone();
        let stored = if args.single { Stored::Single } else { Stored::Half };
        let make = move |me: Worker| Share::new(&shape, &inverse, stored, &me.share(Share::panels(&shape)));
        let job = move |slopes: &Slopes, share: &mut Share, _: Worker| {
            // As many slopes as the reconstructor has, always.
            let _ = share.add(level, slopes.row, slopes.first, &slopes.all);
        };
        let shared = Slopes { all: vec![0.0; slopes], row: 0, first: true, ranges };
        let team = Team::start(spec, shared, make, job)?;
        Ok(Self {
            pixels,
            commands,
            spots,
            level,
            light: args.light(),
            team,
            begun: false,
            left: None,
            error: vec![0.0; actuators],
            mirror: Integrator::new(actuators, args.stroke),
            datagram: vec![0; Command::bytes(actuators)],
            chosen,
            shown,
            figures: Figures::default(),
            without: Without::default(),
        })
    }

    /// What the workers have not obtained.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Obtained> {
        self.team.missing()
    }

    /// Finds the spots of a row and adds what they are worth for each actuator. A worker that is not back in time ends the loop.
    fn compute(&mut self, row: usize, first: bool) -> Result<(), rt::team::TeamError> {
        let slopes = self.team.shared_mut()?;
        if first {
            slopes.all.fill(0.0);
        }
        (slopes.row, slopes.first) = (row, first);
        let range = slopes.ranges[row].clone();
        let apertures = range.start / 2..range.end / 2;
        // A spot without light stays at zero: no error is known there.
        let seen = self.spots.measure(self.level, apertures, self.pixels.image(), self.light, &mut slopes.all[range]);
        if let Ok(without) = seen {
            self.without.dark += without.dark;
            self.without.unbounded += without.unbounded;
        }
        self.team.run().map(drop)
    }

    /// From the last row on.
    fn finish(&mut self, pulse: &Pulse) -> Result<bool, rt::team::TeamError> {
        if let Some((row, first)) = self.left.take() {
            self.compute(row, first)?;
        }
        let error = &mut self.error;
        self.team.each(|_, share| error[share.actuators()].copy_from_slice(share.error()))?;
        let settings = self.chosen.now();
        let step = self.mirror.step(&self.error, settings);
        let commands = self.mirror.commands();
        let length = Command::write(pulse.number, Source::Sky, commands, &mut self.datagram).unwrap_or_default();
        let sent = self.commands.send(&self.datagram[..length]).is_ok();
        let now = mono_now();
        let counts = self.pixels.assembly().counts();
        let before = self.figures;
        self.figures = Figures {
            latency_us: (now - pulse.due).0 as f64 * 1e-3,
            slopes: f64::from(optics::rms(&self.team.shared().all)),
            stroke: f64::from(optics::rms(commands)),
            closed: f64::from(u8::from(settings.closed)),
            gain: f64::from(settings.gain),
            leak: f64::from(settings.leak),
            saturated: step.saturated as f64,
            saturations: before.saturations + step.saturated as f64,
            whole: counts.whole as f64,
            patched: counts.patched as f64,
            given_up: counts.given_up as f64,
            lost: counts.lost as f64,
            late: counts.late as f64,
            reordered: counts.reordered as f64,
            twice: counts.twice as f64,
            foreign: (counts.foreign + self.pixels.foreign()) as f64,
            dark: self.without.dark as f64,
            unbounded: self.without.unbounded as f64,
            held: before.held + f64::from(u8::from(step.held)),
            unsent: before.unsent + f64::from(u8::from(!sent)),
        };
        self.shown.set(&self.figures, pulse.number, now);
        Ok(sent && !step.held)
    }
}

impl EventLoop for Control {
    /// Receives rows and computes all but a frame's last.
    fn await_event(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.begun, true) {
            // Frames of before, which waited while the loop was made.
            self.pixels.restart();
        }
        loop {
            let whole = match self.pixels.next() {
                Got::Row { row, first, last: true } => {
                    self.left = Some((row, first));
                    self.pixels.end()
                }
                Got::Row { row, first, last: false } => {
                    // What is wrong with the team shows in the cycle.
                    let _ = self.compute(row, first);
                    continue;
                }
                Got::Over(whole) => Some(whole),
                Got::Nothing => None,
            };
            return match whole? {
                Whole::Yes(number) | Whole::Patched(number, _) => Some(Event { number, at: self.pixels.came() }),
                Whole::GivenUp(_) => None,
            };
        }
    }

    fn cycle(&mut self, pulse: &Pulse) -> Flow {
        match self.finish(pulse) {
            Ok(true) => Flow::Continue,
            Ok(false) => Flow::Fault,
            Err(rt::team::TeamError::Late { .. }) => Flow::Fault,
            Err(_) => Flow::Stop,
        }
    }
}

/// A team on the process's CPUs. Where there are workers, each has one of its own, and so has the loop, the first if it did not say which.
pub(super) fn team(args: &Args) -> Result<TeamSpec, Failure> {
    let ours: Vec<CpuId> = sys::sched::affinity(0)?.iter().collect();
    let leader = args.run.cpu.or(ours.first().copied().filter(|_| args.workers > 0));
    let others: Vec<CpuId> = ours.into_iter().filter(|cpu| Some(*cpu) != leader).collect();
    if args.workers > others.len() {
        let found = others.len();
        let wanted = "expected no more: name fewer, or a shield of more CPUs";
        return Err(
            format!("--workers {}: the process has {found} CPUs beside the loop's; {wanted}", args.workers).into()
        );
    }
    let workers = others.into_iter().take(args.workers).map(Some).collect();
    // Rows follow each other closely; between frames workers sleep.
    let spin = DurNs::from_us(50);
    Ok(TeamSpec { class: args.run.class, leader, spin, limit: args.period, ..TeamSpec::new("ao", workers) })
}

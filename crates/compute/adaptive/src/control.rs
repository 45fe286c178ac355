//! The control loop. Each row of sub-apertures is calibrated, measured and multiplied when it arrives; the command is sent after the last row.

use crate::calibrate::Calibrated;
use crate::desk::{self, Border, Desk, Order};
use crate::error::Error;
use crate::pixels::{Pixels, RowEvent};
use crate::shown::{Chosen, Figures, Shown};
use crate::spec::{Spec, SpotWork};
use crate::streams::Streams;
use base::{DurNs, MonoNs};
use kernels::{Centroids, Level, Without};
use optics::{Command, FrameEnd, Geometry, Integrator, Share, Source, Step};
use rt::team::{Team, TeamError, TeamSpec, Worker};
use rt::{Event, EventLoop, Flow, Obtained, Pulse};
use std::net::UdpSocket;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::clock::{mono_now, thread_cpu};
use sys::datagrams::BATCH_MAX;

/// Rows computed in one batch, because they arrived together.
#[derive(Clone, Copy, Debug, Default)]
struct Rows {
    rows: [usize; BATCH_MAX],
    count: usize,
    /// The batch contains the first row of the frame.
    first: bool,
}

impl Rows {
    fn push(&mut self, row: usize, first: bool) {
        self.rows[self.count] = row;
        self.count += 1;
        self.first |= first;
    }

    fn is_full(&self) -> bool {
        self.count == self.rows.len()
    }

    fn all(&self) -> &[usize] {
        &self.rows[..self.count]
    }
}

/// Data shared by all workers: the slopes, the next task and the rows that it covers.
struct Slopes {
    all: Vec<f32>,
    rows: Rows,
    task: Task,
    spots: Centroids,
    /// Pixels during a job. Outside a job the leader has them.
    image: Vec<u16>,
    /// Range of slopes of each row.
    ranges: Vec<Range<usize>>,
}

/// Task of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Finds spots. Each worker takes its share of the rows.
    Measure,
    /// Multiplies. Each worker takes its share of the actuators.
    Multiply,
}

/// Data private to a worker: its actuators, and the slopes of the rows that it measured.
struct Part {
    share: Share,
    slopes: Vec<f32>,
    without: Without,
}

/// The order in force.
struct Standing {
    order: Box<Order>,
    /// Number of the frame after which the command was first sent, and the time.
    sent: Option<(u64, MonoNs)>,
}

/// An adaptive-optics loop. Runs as an event loop, one event per frame.
pub struct Control {
    pixels: Pixels,
    commands: UdpSocket,
    team: Team<Slopes, Part>,
    spots: SpotWork,
    level: Level,
    begun: bool,
    /// Rows received but not yet computed.
    left: Rows,
    error: Vec<f32>,
    mirror: Integrator,
    datagram: Vec<u8>,
    chosen: Chosen,
    shown: Shown,
    figures: Figures,
    without: Without,
    /// CPU time of the thread at the end of the previous frame.
    burnt: DurNs,
    border: Border,
    order: Option<Standing>,
    /// All rows of the frame arrived.
    is_whole: bool,
    streams: Option<Streams>,
    /// Frame to be streamed next, and the arrival time of its last pixel.
    to_stream: Option<(u64, MonoNs)>,
    /// Number of the newest frame.
    frame: u64,
}

/// Reconstructor panels of a worker. The leader has six for every seven of another worker. It also receives pixels and sends the command, and
/// this evicts some of its panels from its cache. On two CPUs a frame took 107 us with 46 % of the panels on the leader, 111 us with 50 %, and
/// 119 us with 38 %.
pub(crate) fn panels_of(me: Worker, geometry: &Geometry) -> Range<usize> {
    const LEADER: usize = 6;
    const OTHER: usize = 7;
    let panels = Share::panels(geometry);
    let leader = panels * LEADER / (LEADER + OTHER * (me.of - 1));
    match me.index.checked_sub(1) {
        None => 0..leader,
        Some(index) => {
            let share = Worker { index, of: me.of - 1 }.share(panels - leader);
            leader + share.start..leader + share.end
        }
    }
}

/// Measures a worker's share of the rows. The shares are disjoint, so no worker waits for another.
fn measure(all: &Slopes, part: &mut Part, me: Worker, level: Level) {
    for row in &all.rows.all()[me.share(all.rows.count)] {
        let range = all.ranges[*row].clone();
        measure_row(&all.spots, level, &range, &all.image, &mut part.slopes, &mut part.without);
    }
}

/// Finds the spots of a row, whose slopes have this range.
fn measure_row(
    spots: &Centroids,
    level: Level,
    range: &Range<usize>,
    image: &[u16],
    slopes: &mut [f32],
    without: &mut Without,
) {
    let to = &mut slopes[range.clone()];
    // The slope of a spot without light stays at zero, because its error is unknown.
    to.fill(0.0);
    if let Ok(found) = spots.measure(level, range.start / 2..range.end / 2, image, to) {
        without.dark += found.dark;
        without.unbounded += found.unbounded;
    }
}

/// Maximum number of frames for which an order is in force. After that its sender is assumed to have exited, and the order is dropped.
const ORDER_FRAMES_MAX: u64 = 20_000;

impl Control {
    /// Makes a loop from a calibration, and the desk through which another thread controls it. Allocates, and starts the team. Sets the command
    /// socket to non-blocking: a command for which the kernel has no buffer space is counted as not sent.
    ///
    /// # Errors
    /// The team cannot be started, or a size in the calibration does not fit.
    #[expect(clippy::too_many_arguments, reason = "what a loop is made of")]
    pub fn new(
        spec: &Spec,
        team: TeamSpec,
        pixels: Pixels,
        commands: UdpSocket,
        calibrated: Calibrated,
        chosen: Chosen,
        shown: Shown,
        streams: Option<Streams>,
    ) -> Result<(Self, Desk), Error> {
        let (spots, inverse) = (calibrated.spots(&spec.geometry, spec.light)?, calibrated.inverse.clone());
        commands
            .set_nonblocking(true)
            .map_err(|error| sys::Error::of("keep the socket of commands from blocking", &error))?;
        let (desk, border) = desk::desk(spec, team.workers.len() + 1, calibrated);
        let (geometry, level, stored) = (spec.geometry.clone(), spec.level, spec.stored);
        let (actuators, slopes) = (geometry.actuators().len(), 2 * spots.apertures());
        let ranges: Vec<Range<usize>> = (0..geometry.across()).map(|row| optics::slopes_of(&geometry, row)).collect();
        let make = move |me: Worker| {
            let panels = panels_of(me, &geometry);
            let share = Share::new(&geometry, &inverse, stored, &panels, sys::mem::on_huge_pages);
            Part { share, slopes: vec![0.0; slopes], without: Without::default() }
        };
        let job = move |all: &Slopes, part: &mut Part, me: Worker| match all.task {
            Task::Measure => measure(all, part, me, level),
            Task::Multiply => {
                for (index, row) in all.rows.all().iter().enumerate() {
                    // Cannot fail: the number of slopes always matches the reconstructor.
                    let _ = part.share.add(level, *row, all.rows.first && index == 0, &all.all);
                }
            }
        };
        let shared = Slopes {
            all: vec![0.0; slopes],
            rows: Rows::default(),
            task: Task::Measure,
            spots,
            image: vec![0; pixels.image().len()],
            ranges,
        };
        let team = Team::start(team, shared, make, job)?;
        let control = Self {
            pixels,
            commands,
            team,
            spots: spec.spots,
            level,
            begun: false,
            left: Rows::default(),
            error: vec![0.0; actuators],
            mirror: Integrator::new(actuators, spec.stroke),
            datagram: vec![0; Command::bytes(actuators)],
            chosen,
            shown,
            figures: Figures::default(),
            without: Without::default(),
            burnt: DurNs::ZERO,
            border,
            order: None,
            is_whole: false,
            streams,
            to_stream: None,
            frame: 0,
        };
        Ok((control, desk))
    }

    /// Settings that the workers requested but did not obtain.
    pub fn missing(&self) -> impl Iterator<Item = &Obtained> {
        self.team.missing()
    }

    /// Figures of the newest frame.
    #[must_use]
    pub const fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Finds the spots of the received rows and adds their contribution to each actuator's error. Fails if a worker misses its deadline.
    fn compute(&mut self) -> Result<(), TeamError> {
        let rows = std::mem::take(&mut self.left);
        if rows.count == 0 {
            return Ok(());
        }
        let slopes = self.team.shared_mut()?;
        if rows.first {
            slopes.all.fill(0.0);
        }
        if self.spots == SpotWork::Leader {
            let Slopes { all, spots, ranges, .. } = slopes;
            for row in rows.all() {
                measure_row(spots, self.level, &ranges[*row], self.pixels.image(), all, &mut self.without);
            }
            (slopes.rows, slopes.task) = (rows, Task::Multiply);
            return self.team.run().map(drop);
        }
        (slopes.rows, slopes.task) = (rows, Task::Measure);
        self.pixels.lend(&mut slopes.image);
        let measured = self.team.run().map(drop);
        let without = &mut self.without;
        let slopes = self.team.shared_mut()?;
        // The image goes back to the leader even if the job failed.
        self.pixels.lend(&mut slopes.image);
        measured?;
        // Moved out of the shared data, because `each` borrows the team.
        let (ranges, mut all) = (std::mem::take(&mut slopes.ranges), std::mem::take(&mut slopes.all));
        let gathered = self.team.each(|me, part| {
            for row in &rows.all()[me.share(rows.count)] {
                all[ranges[*row].clone()].copy_from_slice(&part.slopes[ranges[*row].clone()]);
            }
            let now = std::mem::take(&mut part.without);
            without.dark += now.dark;
            without.unbounded += now.unbounded;
        });
        let slopes = self.team.shared_mut()?;
        (slopes.ranges, slopes.all, slopes.task) = (ranges, all, Task::Multiply);
        gathered?;
        self.team.run().map(drop)
    }

    /// Completes a frame: computes the remaining rows, sends the command and updates the figures.
    fn finish(&mut self, pulse: &Pulse) -> Result<bool, TeamError> {
        self.compute()?;
        let error = &mut self.error;
        self.team.each(|_, part| error[part.share.actuators()].copy_from_slice(part.share.error()))?;
        let settings = self.chosen.now();
        if self.border.flags.flat.swap(false, Ordering::Acquire) {
            self.mirror.flatten();
        }
        let ordered = self.order.as_ref().and_then(|standing| standing.order.command.as_ref());
        // A command that is too late to be useful is neither sent nor recorded as sent. The mirror keeps its position.
        let void = pulse.is_void(mono_now());
        // The integrator also stays unchanged while an order is in force.
        let step = if ordered.is_some() || void { Step::default() } else { self.mirror.step(&self.error, settings) };
        let (source, commands) = match ordered {
            Some((source, values)) => (*source, values.as_slice()),
            None => (Source::Sky, self.mirror.commands()),
        };
        let length = Command::write(pulse.number, source, commands, &mut self.datagram).unwrap_or_default();
        let sending = mono_now();
        let sent = void || self.commands.send(&self.datagram[..length]).is_ok();
        let (now, burnt) = (mono_now(), thread_cpu());
        let counts = self.pixels.assembly().counts();
        let (before, [hardware_us, hardware_frames]) = (self.figures, self.border.flags.latency());
        let [unwritten, restored] = self.streams.as_ref().map_or([0; 2], Streams::counts);
        self.frame = pulse.number;
        self.figures = Figures {
            latency_us: (now - pulse.due).0 as f64 / 1e3,
            cpu_us: (burnt.0 - self.burnt.0) as f64 / 1e3,
            slopes: f64::from(optics::rms(&self.team.shared().all)),
            stroke: f64::from(optics::rms(commands)),
            closed: f64::from(u8::from(settings.closed && ordered.is_none())),
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
            void: before.void + f64::from(u8::from(void)),
            resized: self.pixels.resized() as f64,
            exchanged: before.exchanged,
            hardware_us,
            hardware_frames,
            unwritten: unwritten as f64,
            restored: restored as f64,
        };
        self.burnt = burnt;
        self.shown.set(&self.figures, pulse.number, now);
        self.picture(pulse, sending);
        self.exchange()?;
        self.to_stream = self.streams.is_some().then_some((pulse.number, pulse.due));
        Ok(sent && !step.held)
    }

    /// Passes the frame to the sender of the order in force.
    fn picture(&mut self, pulse: &Pulse, sending: MonoNs) {
        let Some(Standing { order, sent }) = &mut self.order else { return };
        let sent = *sent.get_or_insert((pulse.number, sending));
        if self.is_whole
            && let Ok(mut picture) = self.border.free.pop()
        {
            picture.image.copy_from_slice(self.pixels.image());
            (picture.frame, picture.came, picture.order, picture.sent) = (pulse.number, pulse.due, order.number, sent);
            // Cannot fail: the ring has room for all pictures.
            let _ = self.border.full.push(picture);
        }
    }

    /// Takes over new parts and orders from the desk, between two frames.
    fn exchange(&mut self) -> Result<(), TeamError> {
        if let Ok(mut parts) = self.border.parts.pop() {
            if let Some(spots) = &mut parts.spots {
                std::mem::swap(spots, &mut self.team.shared_mut()?.spots);
            }
            let mut new = parts.shares.iter_mut();
            self.team.each(|_, part| {
                if let Some(new) = new.next() {
                    std::mem::swap(new, &mut part.share);
                }
            })?;
            self.figures.exchanged += 1.0;
            // Cannot fail: the ring has room for all parts.
            let _ = self.border.before.push(parts);
        }
        let sent = self.order.as_ref().and_then(|standing| standing.sent);
        let abandoned = sent.is_some_and(|(frame, _)| self.frame > frame + ORDER_FRAMES_MAX);
        let next = self.border.orders.pop().ok();
        if next.is_some() || abandoned {
            // An order without a command only ends the order in force.
            let (next, ended) = match next {
                Some(order) if order.command.is_none() => (None, Some(order)),
                next => (next, None),
            };
            let next = next.map(|order| Standing { order, sent: None });
            let before = std::mem::replace(&mut self.order, next).map(|standing| standing.order);
            for order in [ended, before].into_iter().flatten() {
                // Cannot fail: the ring has room for all orders.
                let _ = self.border.done.push(order);
            }
        }
        Ok(())
    }

    /// Passes the previous frame to the stream writer, before the loop waits for the next pixel.
    fn stream(&mut self) {
        if let (Some(streams), Some((frame, came))) = (&mut self.streams, self.to_stream.take()) {
            let commands = self.mirror.commands();
            streams.publish(self.pixels.image(), &self.team.shared().all, commands, &self.figures, (frame, came));
        }
    }
}

impl EventLoop for Control {
    /// Receives rows and computes all of them but the last batch of a frame.
    fn await_event(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.begun, true) {
            // Discards frames that were queued while the loop was set up.
            self.pixels.restart();
            self.burnt = thread_cpu();
        }
        self.stream();
        loop {
            let whole = match self.pixels.next() {
                RowEvent::Row { row, first, last } => {
                    self.left.push(row, first);
                    if last {
                        self.pixels.end()
                    } else {
                        if self.left.is_full() || !self.pixels.more() {
                            // A team error is reported again by the cycle.
                            let _ = self.compute();
                        }
                        continue;
                    }
                }
                RowEvent::Over(whole) => Some(whole),
                RowEvent::Nothing => None,
            };
            let whole = whole?;
            self.is_whole = matches!(whole, FrameEnd::Complete(_));
            return match whole {
                FrameEnd::Complete(number) | FrameEnd::Patched(number, _) => {
                    Some(Event { number, at: self.pixels.came() })
                }
                FrameEnd::Skipped(_) => {
                    self.left = Rows::default();
                    None
                }
            };
        }
    }

    fn cycle(&mut self, pulse: &Pulse) -> Flow {
        match self.finish(pulse) {
            Ok(true) => Flow::Continue,
            Ok(false) => Flow::Fault,
            Err(TeamError::Late { .. }) => Flow::Fault,
            Err(_) => Flow::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_has_one_worker_and_the_leader_has_no_larger_share() {
        for (across, of) in [(4, 1), (4, 9), (40, 1), (40, 2), (40, 7)] {
            let geometry = Geometry::new(across).unwrap();
            let all: Vec<Range<usize>> = (0..of).map(|index| panels_of(Worker { index, of }, &geometry)).collect();
            assert_eq!((all[0].start, all[of - 1].end), (0, Share::panels(&geometry)), "{across} {of}");
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
            assert!(all.iter().skip(1).all(|other| other.len() + 1 >= all[0].len()), "{all:?}");
        }
    }
}

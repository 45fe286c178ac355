//! Control of a running loop from another thread: new parts, taken over between two frames, and camera frames under the thread's own commands.
//!
//! All allocation and freeing is done on the requesting thread. At the end of each frame the loop checks a ring and swaps in the parts that it
//! finds. The old parts return through a second ring.

use crate::calibrate::{Calibrated, FAR, Frames, PATIENCE, POKE, SETTLES, calibrate};
use crate::control::panels_of;
use crate::error::Error;
use crate::spec::Spec;
use base::{DurNs, MonoNs};
use kernels::{Centroids, Level};
use optics::reconstruct::patterns;
use optics::{Share, Source};
use rt::team::Worker;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until};

/// Maximum number of images in flight.
const PICTURES: usize = 16;
/// Polling interval of the requesting thread.
const LOOK: DurNs = DurNs(500_000);
/// Pokes per latency measurement, and frames inspected after each poke.
const POKES: usize = 20;
const AFTER: u64 = 8;

/// Parts of a loop that are exchanged together.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) spots: Option<Centroids>,
    /// One per member of the team, or empty.
    pub(crate) shares: Vec<Share>,
}

/// A command that replaces the loop's own until the next order. `None` returns control to the loop.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) command: Option<(Source, Vec<f32>)>,
}

/// A frame received while an order was in force.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) image: Vec<u16>,
    pub(crate) frame: u64,
    pub(crate) came: MonoNs,
    pub(crate) order: u64,
    /// Number of the frame after which the order's command was first sent, and the time.
    pub(crate) sent: (u64, MonoNs),
}

/// State shared by the loop and the desk.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// Request to flatten the mirror once.
    pub(crate) flat: AtomicBool,
    /// Last measured latency as the bits of `f64`: microseconds, frames.
    latency: [AtomicU64; 2],
}

impl Flags {
    /// Mean latency in microseconds and frames; 0 if it has not been measured.
    pub(crate) fn latency(&self) -> [f64; 2] {
        self.latency.each_ref().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }
}

/// The loop's end of the rings.
#[derive(Debug)]
pub(crate) struct Border {
    pub(crate) parts: Consumer<Box<Parts>>,
    pub(crate) before: Producer<Box<Parts>>,
    pub(crate) orders: Consumer<Box<Order>>,
    pub(crate) done: Producer<Box<Order>>,
    pub(crate) free: Consumer<Box<Picture>>,
    pub(crate) full: Producer<Box<Picture>>,
    pub(crate) flags: Arc<Flags>,
}

/// The requesting end of the rings, for one thread without real-time priority.
#[derive(Debug)]
pub struct Desk {
    spec: Spec,
    team: usize,
    known: Calibrated,
    parts: Producer<Box<Parts>>,
    before: Consumer<Box<Parts>>,
    orders: Producer<Box<Order>>,
    done: Consumer<Box<Order>>,
    free: Producer<Box<Picture>>,
    full: Consumer<Box<Picture>>,
    flags: Arc<Flags>,
    number: u64,
}

/// Delay from sending a command until the last pixel of the frame that shows most of its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Mean over all pokes, in frames.
    pub frames: f64,
    /// Mean, minimum and maximum, in microseconds.
    pub us: [f64; 3],
    /// Number of pokes that the camera detected.
    pub pokes: usize,
}

/// Both ends, for a team of `team` members.
pub(crate) fn desk(spec: &Spec, team: usize, known: Calibrated) -> (Desk, Border) {
    let (flags, pixels) = (Arc::<Flags>::default(), spec.geometry.width() * spec.geometry.width());
    let (parts, parts_out) = RingBuffer::new(2);
    // Large enough for everything that can be in flight, so the loop can always return what it has.
    let (before_in, before) = RingBuffer::new(4);
    let (orders, orders_out) = RingBuffer::new(2);
    let (done_in, done) = RingBuffer::new(4);
    let (mut free, free_out) = RingBuffer::new(PICTURES);
    let (full_in, full) = RingBuffer::new(PICTURES);
    for _ in 0..PICTURES {
        let (image, none) = (vec![0; pixels], MonoNs(0));
        // Fills the ring exactly.
        let _ = free.push(Box::new(Picture { image, frame: 0, came: none, order: 0, sent: (0, none) }));
    }
    let border = Border {
        parts: parts_out,
        before: before_in,
        orders: orders_out,
        done: done_in,
        free: free_out,
        full: full_in,
        flags: flags.clone(),
    };
    let spec = spec.clone();
    (Desk { spec, team, known, parts, before, orders, done, free, full, flags, number: 0 }, border)
}

impl Desk {
    /// The calibration that the loop uses.
    #[must_use]
    pub const fn known(&self) -> &Calibrated {
        &self.known
    }

    /// The specification that the loop was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Replaces the calibration between two frames, all parts at once. Returns once the loop uses it. No frame is lost. The first frame with a
    /// new reconstructor is slower, because the reconstructor is in no cache.
    ///
    /// # Errors
    /// A size does not fit, or no frame arrived in time. In the second case the loop takes the parts over with its next frame.
    pub fn exchange(&mut self, new: Calibrated) -> Result<(), Error> {
        let geometry = &self.spec.geometry;
        let (actuators, slopes) = (geometry.actuators().len(), 2 * geometry.apertures().len());
        if new.inverse.len() != actuators * slopes {
            return Err(Error::Size { what: "reconstructor", found: new.inverse.len(), expected: actuators * slopes });
        }
        let spots = Some(new.spots(geometry, self.spec.light)?);
        let same = new.inverse == self.known.inverse;
        let share = |index| {
            let panels = panels_of(Worker { index, of: self.team }, geometry);
            Share::new(geometry, &new.inverse, self.spec.stored, &panels, sys::mem::on_huge_pages)
        };
        let shares = if same { Vec::new() } else { (0..self.team).map(share).collect() };
        self.sweep();
        self.parts.push(Box::new(Parts { spots, shares })).map_err(|_| Error::NoFrames(PATIENCE))?;
        self.known = new;
        let until = mono_now() + PATIENCE;
        while self.before.is_empty() {
            if mono_now() > until {
                return Err(Error::NoFrames(PATIENCE));
            }
            sleep_until(mono_now() + LOOK);
        }
        self.sweep();
        Ok(())
    }

    /// Frees parts and orders that the loop has returned.
    fn sweep(&mut self) {
        while self.before.pop().is_ok() {}
        while self.done.pop().is_ok() {}
    }

    /// Flattens the mirror at the next frame. A closed loop continues from there.
    pub fn flatten(&self) {
        self.flags.flat.store(true, Ordering::Release);
    }

    /// Repeats the whole calibration while the loop runs. The mirror follows the calibration's commands meanwhile. Returns the summary.
    ///
    /// # Errors
    /// No frames arrive, or the interaction matrix has no inverse. The loop continues with its previous calibration.
    pub fn calibrate(&mut self) -> Result<String, Error> {
        let spec = self.spec.clone();
        let measured = calibrate(&spec, self);
        // Also after a failure.
        self.over();
        let measured = measured?;
        let said = measured.said.clone();
        self.exchange(measured)?;
        Ok(said)
    }

    /// Measures the delay from a command to its effect in the camera. Pokes a sixteenth of the actuators up and down, with the lamp as the
    /// source.
    ///
    /// # Errors
    /// No frames arrive, or the camera detected no poke.
    pub fn latency(&mut self) -> Result<Latency, Error> {
        let measured = self.poke();
        self.over();
        let all = measured?;
        if all.is_empty() {
            return Err(Error::Unseen(POKES));
        }
        let mean = |value: &dyn Fn(&(u64, f64)) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
        let least = all.iter().fold(f64::INFINITY, |least, (_, us)| least.min(*us));
        let most = all.iter().fold(0.0, |most: f64, (_, us)| most.max(*us));
        let latency = Latency {
            frames: mean(&|(frames, _)| *frames as f64),
            us: [mean(&|(_, us)| *us), least, most],
            pokes: all.len(),
        };
        self.flags.latency[0].store(latency.us[0].to_bits(), Ordering::Relaxed);
        self.flags.latency[1].store(latency.frames.to_bits(), Ordering::Relaxed);
        Ok(latency)
    }

    /// Latency in frames and microseconds of each poke after which no frame was missing.
    fn poke(&mut self) -> Result<Vec<(u64, f64)>, Error> {
        let geometry = self.spec.geometry.clone();
        let (spots, pattern) = (self.known.spots(&geometry, self.spec.light)?, patterns(&geometry).swap_remove(0));
        let (mut all, mut now) = (Vec::new(), vec![0.0; 2 * spots.apertures()]);
        for poke in 0..=POKES {
            let mut values = vec![0.0; geometry.actuators().len()];
            let height = if poke % 2 == 0 { POKE } else { -POKE };
            pattern.iter().for_each(|actuator| values[*actuator] = height);
            let number = self.order(Some((Source::Lamp, values)))?;
            let (mut before, mut largest): (Option<(u64, Vec<f32>)>, _) = (None, (0.0, 0, 0.0));
            let mut seen = 0;
            while seen < AFTER {
                let picture = self.picture(number)?;
                now.fill(0.0);
                let measured = spots.measure(Level::best(), 0..spots.apertures(), &picture.image, &mut now);
                let (frame, us) = (picture.frame, (picture.came.0 as f64 - picture.sent.1.0 as f64) * 1e-3);
                let since = frame - picture.sent.0;
                let _ = self.free.push(picture);
                measured?;
                if let Some((last, slopes)) = before.take().filter(|(last, _)| last + 1 == frame) {
                    let change: f32 = slopes.iter().zip(&now).map(|(was, is)| (is - was) * (is - was)).sum();
                    if change > largest.0 {
                        largest = (change, frame - last + since - 1, us);
                    }
                } else if since > 0 {
                    // A frame is missing, and the change may have been in it.
                    largest.0 = f32::INFINITY;
                }
                before = Some((frame, now.clone()));
                seen = since;
            }
            // The first poke is not counted, because the mirror's previous position is unknown.
            if poke > 0 && largest.0.is_finite() && largest.0 > FAR {
                all.push((largest.1, largest.2));
            }
        }
        Ok(all)
    }

    fn order(&mut self, command: Option<(Source, Vec<f32>)>) -> Result<u64, Error> {
        self.number += 1;
        let (mut order, until) = (Box::new(Order { number: self.number, command }), mono_now() + PATIENCE);
        loop {
            self.sweep();
            match self.orders.push(order) {
                Ok(()) => return Ok(self.number),
                Err(rtrb::PushError::Full(back)) if mono_now() < until => order = back,
                Err(_) => return Err(Error::NoFrames(PATIENCE)),
            }
            sleep_until(mono_now() + LOOK);
        }
    }

    /// Next picture taken under the given order.
    fn picture(&mut self, order: u64) -> Result<Box<Picture>, Error> {
        let until = mono_now() + PATIENCE;
        loop {
            match self.full.pop() {
                Ok(picture) if picture.order == order => return Ok(picture),
                // Cannot fail: the ring has room for all pictures.
                Ok(before) => drop(self.free.push(before)),
                Err(_) if mono_now() > until => return Err(Error::NoFrames(PATIENCE)),
                Err(_) => sleep_until(mono_now() + LOOK),
            }
        }
    }
}

impl Frames for Desk {
    fn look(
        &mut self,
        (source, values): (Source, &[f32]),
        mut frames: usize,
        see: &mut dyn FnMut(&[u16]),
    ) -> Result<(), Error> {
        let number = self.order(Some((source, values.to_vec())))?;
        while frames > 0 {
            let picture = self.picture(number)?;
            if picture.frame > picture.sent.0 + SETTLES {
                see(&picture.image);
                frames -= 1;
            }
            let _ = self.free.push(picture);
        }
        Ok(())
    }

    fn over(&mut self) {
        // Can fail only if no frames arrive, and then the loop sends nothing. The loop also drops an order by itself after `ORDER_FRAMES_MAX`
        // frames.
        let _ = self.order(None);
    }
}

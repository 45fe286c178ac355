//! What another thread asks of a loop that runs: new parts, taken over between two frames, and looks at the camera under commands of its own.
//!
//! Everything is made and freed on the asking thread. The loop looks into a ring at each frame's border and exchanges what is there;
//! what it had goes back by another ring.

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

/// Images that are on their way at most.
const PICTURES: usize = 16;
/// How often the asking thread looks whether something has come.
const LOOK: DurNs = DurNs(500_000);
/// Pokes of which the latency is measured, and frames that are looked at after each.
const POKES: usize = 20;
const AFTER: u64 = 8;

/// Parts of a loop that are exchanged together.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) spots: Option<Centroids>,
    /// One for each of the team, or none.
    pub(crate) shares: Vec<Share>,
}

/// A command that stands instead of the loop's own, until another order comes; `None`: the loop's own again.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) command: Option<(Source, Vec<f32>)>,
}

/// A frame as it came while an order stood.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) image: Vec<u16>,
    pub(crate) frame: u64,
    pub(crate) came: MonoNs,
    pub(crate) order: u64,
    /// The frame after which the order's command went out first, and when.
    pub(crate) sent: (u64, MonoNs),
}

/// What both look at.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The mirror is to go flat once.
    pub(crate) flat: AtomicBool,
    /// The last measured latency, as bits: microseconds, frames.
    latency: [AtomicU64; 2],
}

impl Flags {
    /// Mean microseconds and frames; 0 before it was measured.
    pub(crate) fn latency(&self) -> [f64; 2] {
        self.latency.each_ref().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }
}

/// The loop's side.
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

/// The asking side, for one thread that is not real time.
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

/// How long a command takes until the camera sees most of what it does: from when it was sent until that frame's last pixel had come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Frames, the mean of all pokes.
    pub frames: f64,
    /// Microseconds: mean, least and most.
    pub us: [f64; 3],
    /// Pokes that were seen.
    pub pokes: usize,
}

/// Both sides, for a team of so many.
pub(crate) fn desk(spec: &Spec, team: usize, known: Calibrated) -> (Desk, Border) {
    let (flags, pixels) = (Arc::<Flags>::default(), spec.geometry.width() * spec.geometry.width());
    let (parts, parts_out) = RingBuffer::new(2);
    // Room for all that there can be: nothing is ever left over in the loop's hands.
    let (before_in, before) = RingBuffer::new(4);
    let (orders, orders_out) = RingBuffer::new(2);
    let (done_in, done) = RingBuffer::new(4);
    let (mut free, free_out) = RingBuffer::new(PICTURES);
    let (full_in, full) = RingBuffer::new(PICTURES);
    for _ in 0..PICTURES {
        let (image, none) = (vec![0; pixels], MonoNs(0));
        // As many as there is room for.
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
    /// What the loop computes with.
    #[must_use]
    pub const fn known(&self) -> &Calibrated {
        &self.known
    }

    /// What the loop was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Has the loop compute with this between two frames, all of it at once: returns when it does. No frame is lost; the first one with a
    /// new reconstructor finds it in no cache.
    ///
    /// # Errors
    /// A size does not fit, or no frame came in time: then it is taken over with the next one.
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

    /// Frees what the loop has given back.
    fn sweep(&mut self) {
        while self.before.pop().is_ok() {}
        while self.done.pop().is_ok() {}
    }

    /// Puts the mirror flat with the next frame; a closed loop goes on from there.
    pub fn flatten(&self) {
        self.flags.flat.store(true, Ordering::Release);
    }

    /// Measures everything anew while the loop runs: its mirror follows these orders meanwhile. What it was is told.
    ///
    /// # Errors
    /// No frames come, or what they show has no inverse: the loop goes on with what it had.
    pub fn calibrate(&mut self) -> Result<String, Error> {
        let spec = self.spec.clone();
        let measured = calibrate(&spec, self);
        // Also where it failed.
        self.over();
        let measured = measured?;
        let said = measured.said.clone();
        self.exchange(measured)?;
        Ok(said)
    }

    /// Measures how long a command takes until the camera sees it, by poking a sixteenth of the actuators up and down with the lamp.
    ///
    /// # Errors
    /// No frames come, or no poke was seen.
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

    /// Frames and microseconds of each poke of which each frame was seen.
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
                    // One was not seen: the change may have been in it.
                    largest.0 = f32::INFINITY;
                }
                before = Some((frame, now.clone()));
                seen = since;
            }
            // The first comes from wherever the mirror was.
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

    /// The next one that was taken under an order.
    fn picture(&mut self, order: u64) -> Result<Box<Picture>, Error> {
        let until = mono_now() + PATIENCE;
        loop {
            match self.full.pop() {
                Ok(picture) if picture.order == order => return Ok(picture),
                // There is room for all.
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
        // Where no frames come, the loop sends nothing anyway; it ends an order by itself that nobody follows.
        let _ = self.order(None);
    }
}

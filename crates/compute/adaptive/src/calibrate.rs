//! What is measured before the loop begins: the detector's pixels, where the spots are of a flat wave, what each actuator does.

use crate::error::Error;
use crate::pixels::{Got, Pixels};
use crate::spec::Spec;
use base::DurNs;
use kernels::{Centroids, Level, Light};
use optics::reconstruct::{Interaction, patterns};
use optics::{Command, Detector, Geometry, SIDE, Source, Whole};
use std::net::UdpSocket;
use sys::clock::mono_now;

/// Frames that a command may be on its way.
pub(crate) const SETTLES: u64 = 4;
/// Frames of which each measurement is the mean: without light, of even light, of spots.
const FRAMES: (usize, usize, usize) = (64, 128, 4);
/// How far actuators are pushed, in nanometres: a spot goes half a pixel.
pub(crate) const POKE: f32 = 200.0;
/// Squares of what all spots moved, in pixels, that are no noise.
pub(crate) const FAR: f32 = 1.0;
/// Images of another size, of which more are no camera's change of its region.
const RESIZED: u64 = 100;
/// For how long no frame may come.
pub(crate) const PATIENCE: DurNs = DurNs::from_secs(20);

/// What the loop needs.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// What each pixel shows without light.
    pub dark: Vec<f32>,
    /// What each pixel's light is multiplied by.
    pub gain: Vec<f32>,
    /// The slopes of a flat wave.
    pub zeros: Vec<f32>,
    /// Row by row, a row for each actuator.
    pub inverse: Vec<f32>,
    /// What was measured, and how long it took.
    pub said: String,
}

impl Calibrated {
    /// Where the spots are, and what each pixel is worth in this light.
    ///
    /// # Errors
    /// A size does not fit, or a number is none.
    pub fn spots(&self, geometry: &Geometry, light: Light) -> Result<Centroids, Error> {
        let size = (geometry.width(), geometry.width());
        let mut spots = Centroids::new(size, SIDE, &geometry.corners(), &self.dark, &self.gain, light)?;
        spots.set_zeros(&self.zeros)?;
        Ok(spots)
    }
}

/// Who shows whole frames under a command.
pub trait Frames {
    /// Shows so many, once the command has reached the mirror.
    ///
    /// # Errors
    /// None come.
    fn look(&mut self, command: (Source, &[f32]), frames: usize, see: &mut dyn FnMut(&[u16])) -> Result<(), Error>;

    /// No more are to be shown: what follows takes long.
    fn over(&mut self) {}
}

/// The camera before a loop takes its pixels.
#[derive(Debug)]
pub struct Before<'a> {
    /// Where pixels come in.
    pub pixels: &'a mut Pixels,
    /// Where commands go.
    pub commands: &'a UdpSocket,
}

impl Frames for Before<'_> {
    fn look(
        &mut self,
        (source, values): (Source, &[f32]),
        mut frames: usize,
        see: &mut dyn FnMut(&[u16]),
    ) -> Result<(), Error> {
        let (mut seen, mut last): (u64, _) = (0, mono_now());
        let mut datagram = vec![0; Command::bytes(values.len())];
        while frames > 0 {
            let whole = match self.pixels.next() {
                Got::Row { last: true, .. } => self.pixels.end(),
                Got::Over(whole) => Some(whole),
                Got::Row { .. } => None,
                Got::Nothing if self.pixels.resized() > RESIZED || mono_now() - last > PATIENCE => {
                    return Err(self.pixels.absent(PATIENCE));
                }
                Got::Nothing => None,
            };
            let Some(whole) = whole else { continue };
            // With each frame anew: commands get lost, too.
            let length = Command::write(seen, source, values, &mut datagram)?;
            let _ = self.commands.send(&datagram[..length]);
            if let Whole::Yes(_) = whole {
                (seen, last) = (seen + 1, mono_now());
                if seen > SETTLES {
                    see(self.pixels.image());
                    frames -= 1;
                }
            }
        }
        Ok(())
    }
}

/// The mean slopes under a command, with the lamp.
fn slopes(frames: &mut dyn Frames, spots: &Centroids, values: &[f32]) -> Result<Vec<f32>, Error> {
    let (mut sums, mut now) = (vec![0.0; 2 * spots.apertures()], vec![0.0; 2 * spots.apertures()]);
    frames.look((Source::Lamp, values), FRAMES.2, &mut |image| {
        if spots.measure(Level::best(), 0..spots.apertures(), image, &mut now).is_ok() {
            sums.iter_mut().zip(&now).for_each(|(sum, slope)| *sum += slope / FRAMES.2 as f32);
        }
    })?;
    Ok(sums)
}

/// Measures pixels, where spots are, and what each actuator does. Allocates, and takes a second for 1,300 actuators.
///
/// # Errors
/// No frames come, or what they show has no inverse.
pub fn calibrate(spec: &Spec, frames: &mut dyn Frames) -> Result<Calibrated, Error> {
    let geometry = &spec.geometry;
    let actuators = geometry.actuators().len();
    let (begun, flat, count) = (mono_now(), vec![0.0; actuators], geometry.width() * geometry.width());
    let mut detector = Detector::new(count);
    frames.look((Source::Shut, &flat), FRAMES.0, &mut |image| detector.add_dark(image))?;
    frames.look((Source::Flat, &flat), FRAMES.1, &mut |image| detector.add_flat(image))?;
    let (dark, gain, dead) = detector.calibration();
    let none = vec![0.0; 2 * geometry.apertures().len()];
    let mut known = Calibrated { dark, gain, zeros: none, inverse: Vec::new(), said: String::new() };
    known.zeros = slopes(frames, &known.spots(geometry, spec.light)?, &flat)?;
    let spots = known.spots(geometry, spec.light)?;
    let mut interaction = Interaction::new(geometry);
    let patterns = patterns(geometry);
    for pattern in &patterns {
        let mut side = |height: f32| {
            let mut values = flat.clone();
            pattern.iter().for_each(|actuator| values[*actuator] = height);
            slopes(frames, &spots, &values)
        };
        let (up, down) = (side(POKE)?, side(-POKE)?);
        let slopes: Vec<f32> = up.iter().zip(down).map(|(up, down)| (up - down) / (2.0 * POKE)).collect();
        interaction.poked(geometry, pattern, &slopes);
    }
    frames.over();
    let measured = mono_now();
    known.inverse = interaction.inverse(spec.regularise)?;
    known.said = format!(
        "calibrated: {count} pixels ({dead} dead), {} sub-apertures, {actuators} actuators poked in {} patterns, in {:.2} s; inverse of {actuators} x {} in {:.2} s",
        spots.apertures(),
        patterns.len(),
        (measured - begun).0 as f64 * 1e-9,
        2 * spots.apertures(),
        (mono_now() - measured).0 as f64 * 1e-9,
    );
    Ok(known)
}

//! Calibration: per-pixel dark value and gain, reference slopes of a flat wavefront, and the response to each actuator.

use crate::error::Error;
use crate::pixels::{Pixels, RowEvent};
use crate::spec::Spec;
use base::DurNs;
use kernels::{Centroids, Level, Light};
use optics::reconstruct::{Interaction, patterns};
use optics::{Command, Detector, FrameEnd, Geometry, SIDE, Source};
use std::net::UdpSocket;
use sys::clock::mono_now;

/// Maximum delay of a command, in frames. As many frames are ignored after each change of command.
pub(crate) const SETTLES: u64 = 4;
/// Frames averaged per measurement: dark, flat field, spots.
const FRAMES: (usize, usize, usize) = (64, 128, 4);
/// Amplitude of a poke, in nanometres. It moves a spot by half a pixel.
pub(crate) const POKE: f32 = 200.0;
/// Threshold on the sum of squared spot displacements, in pixels². A smaller sum is noise.
pub(crate) const FAR: f32 = 1.0;
/// Maximum number of announced images of another size. A few can follow a change of the camera's region of interest; more are an error.
const RESIZED: u64 = 100;
/// Maximum time without a whole frame.
pub(crate) const PATIENCE: DurNs = DurNs::from_secs(20);

/// Result of a calibration.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// Dark value of each pixel.
    pub dark: Vec<f32>,
    /// Gain of each pixel, applied after the dark value is subtracted.
    pub gain: Vec<f32>,
    /// Reference slopes, measured with a flat mirror and the lamp.
    pub zeros: Vec<f32>,
    /// Reconstructor in row-major order, one row per actuator.
    pub inverse: Vec<f32>,
    /// Summary of the measurement with its duration, one line.
    pub said: String,
}

impl Calibrated {
    /// Spot finder with these dark values, gains and reference slopes.
    ///
    /// # Errors
    /// An array has the wrong size, or an element is not a number.
    pub fn spots(&self, geometry: &Geometry, light: Light) -> Result<Centroids, Error> {
        let size = (geometry.width(), geometry.width());
        let mut spots = Centroids::new(size, SIDE, &geometry.corners(), &self.dark, &self.gain, light)?;
        spots.set_zeros(&self.zeros)?;
        Ok(spots)
    }
}

/// Source of whole frames taken under a given command.
pub trait Frames {
    /// Passes `frames` frames to `see`. The frames were taken after the command had reached the mirror.
    ///
    /// # Errors
    /// No frames arrive.
    fn look(&mut self, command: (Source, &[f32]), frames: usize, see: &mut dyn FnMut(&[u16])) -> Result<(), Error>;

    /// Ends the measurement. The caller computes for a long time afterwards and needs no frames.
    fn over(&mut self) {}
}

/// Camera and mirror before the loop starts.
#[derive(Debug)]
pub struct Before<'a> {
    /// Input of pixels.
    pub pixels: &'a mut Pixels,
    /// Output of commands.
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
                RowEvent::Row { last: true, .. } => self.pixels.end(),
                RowEvent::Over(whole) => Some(whole),
                RowEvent::Row { .. } => None,
                RowEvent::Nothing if self.pixels.resized() > RESIZED || mono_now() - last > PATIENCE => {
                    return Err(self.pixels.absent(PATIENCE));
                }
                RowEvent::Nothing => None,
            };
            let Some(whole) = whole else { continue };
            // Sent again with each frame, because commands can get lost.
            let length = Command::write(seen, source, values, &mut datagram)?;
            let _ = self.commands.send(&datagram[..length]);
            if let FrameEnd::Complete(_) = whole {
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

/// Mean slopes under a command, with the lamp as the source.
fn slopes(frames: &mut dyn Frames, spots: &Centroids, values: &[f32]) -> Result<Vec<f32>, Error> {
    let (mut sums, mut now) = (vec![0.0; 2 * spots.apertures()], vec![0.0; 2 * spots.apertures()]);
    frames.look((Source::Lamp, values), FRAMES.2, &mut |image| {
        if spots.measure(Level::best(), 0..spots.apertures(), image, &mut now).is_ok() {
            sums.iter_mut().zip(&now).for_each(|(sum, slope)| *sum += slope / FRAMES.2 as f32);
        }
    })?;
    Ok(sums)
}

/// Calibrates pixels, reference slopes and actuators. Allocates. Takes about one second for 1,300 actuators.
///
/// # Errors
/// No frames arrive, or the interaction matrix has no inverse.
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

//! What is measured before the loop begins: the detector's pixels, where the spots are of a flat wave, what each actuator does.

use super::Args;
use super::pixels::{Got, Pixels};
use base::DurNs;
use kernels::{Centroids, Level, Light};
use optics::reconstruct::{Interaction, patterns};
use optics::{Command, Detector, Geometry, SIDE, Source, Whole};
use std::net::UdpSocket;
use sys::clock::mono_now;

/// Frames that a command may be on its way.
const SETTLES: u64 = 4;
/// Frames of which each measurement is the mean: without light, of even light, of spots.
const FRAMES: (usize, usize, usize) = (64, 128, 4);
/// How far actuators are pushed, in nanometres: a spot goes half a pixel.
const POKE: f32 = 200.0;
/// For how long no frame may come.
const PATIENCE: DurNs = DurNs::from_secs(20);

/// What the loop needs.
pub(super) struct Calibrated {
    pub(super) spots: Centroids,
    /// Row by row, a row for each actuator.
    pub(super) inverse: Vec<f32>,
    /// What was measured, and how long it took.
    pub(super) said: String,
}

struct Bench<'a> {
    geometry: &'a Geometry,
    pixels: &'a mut Pixels,
    commands: &'a UdpSocket,
    datagram: Vec<u8>,
}

impl Bench<'_> {
    /// Looks at so many whole frames under a command.
    fn look(
        &mut self,
        (source, values): (Source, &[f32]),
        mut frames: usize,
        mut see: impl FnMut(&[u16]),
    ) -> Result<(), String> {
        let (mut seen, mut last): (u64, _) = (0, mono_now());
        while frames > 0 {
            let whole = match self.pixels.next() {
                Got::Row { last: true, .. } => self.pixels.end(),
                Got::Over(whole) => Some(whole),
                Got::Row { .. } => None,
                Got::Nothing if mono_now() - last > PATIENCE => {
                    return Err(format!(
                        "no whole frame came for {PATIENCE}; expected a camera that sends to --pixels: `tahti demo telescope`"
                    ));
                }
                Got::Nothing => None,
            };
            let Some(whole) = whole else { continue };
            // With each frame anew: commands get lost, too.
            let length = Command::write(seen, source, values, &mut self.datagram).map_err(|error| error.to_string())?;
            let _ = self.commands.send(&self.datagram[..length]);
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

    /// The mean slopes under a command, with the lamp.
    fn slopes(&mut self, spots: &Centroids, light: Light, values: &[f32]) -> Result<Vec<f32>, String> {
        let (mut sums, mut now) = (vec![0.0; 2 * spots.apertures()], vec![0.0; 2 * spots.apertures()]);
        self.look((Source::Lamp, values), FRAMES.2, |image| {
            if spots.measure(Level::best(), 0..spots.apertures(), image, light, &mut now).is_ok() {
                sums.iter_mut().zip(&now).for_each(|(sum, slope)| *sum += slope / FRAMES.2 as f32);
            }
        })?;
        Ok(sums)
    }
}

pub(super) fn calibrate(
    args: &Args,
    geometry: &Geometry,
    pixels: &mut Pixels,
    commands: &UdpSocket,
) -> Result<Calibrated, String> {
    let actuators = geometry.actuators().len();
    let (begun, flat, count) = (mono_now(), vec![0.0; actuators], geometry.width() * geometry.width());
    let mut bench = Bench { geometry, pixels, commands, datagram: vec![0; Command::bytes(actuators)] };
    let mut detector = Detector::new(count);
    bench.look((Source::Shut, &flat), FRAMES.0, |image| detector.add_dark(image))?;
    bench.look((Source::Flat, &flat), FRAMES.1, |image| detector.add_flat(image))?;
    let (dark, gain, dead) = detector.calibration();
    let size = (geometry.width(), geometry.width());
    let refused = |error: kernels::BadAperture| error.to_string();
    let mut spots = Centroids::new(size, SIDE, &geometry.corners(), &dark, &gain).map_err(refused)?;
    let zeros = bench.slopes(&spots, args.light(), &flat)?;
    spots.set_zeros(&zeros).map_err(|error| error.to_string())?;
    let mut interaction = Interaction::new(geometry);
    let patterns = patterns(bench.geometry);
    for pattern in &patterns {
        let mut side = |height: f32| {
            let mut values = flat.clone();
            pattern.iter().for_each(|actuator| values[*actuator] = height);
            bench.slopes(&spots, args.light(), &values)
        };
        let (up, down) = (side(POKE)?, side(-POKE)?);
        let slopes: Vec<f32> = up.iter().zip(down).map(|(up, down)| (up - down) / (2.0 * POKE)).collect();
        interaction.poked(geometry, pattern, &slopes);
    }
    let measured = mono_now();
    let inverse = interaction.inverse(args.regularise).map_err(|error| error.to_string())?;
    let said = format!(
        "calibrated: {count} pixels ({dead} dead), {} sub-apertures, {actuators} actuators poked in {} patterns, in {:.2} s; inverse of {actuators} x {} in {:.2} s",
        spots.apertures(),
        patterns.len(),
        (measured - begun).0 as f64 * 1e-9,
        2 * spots.apertures(),
        (mono_now() - measured).0 as f64 * 1e-9,
    );
    Ok(Calibrated { spots, inverse, said })
}

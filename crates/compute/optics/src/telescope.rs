//! A simulated telescope: moving atmosphere, a deformable mirror, and a Shack-Hartmann sensor with an imperfect detector.
//!
//! The atmosphere is a sum of waves with von Kármán's spectrum. The wind carries them, and they slowly change at random. All frames are
//! computed in advance and played forwards and backwards. The wavefront is known only at the actuators, and slopes are its differences (Fried).
//! The model therefore has no fitting or aliasing error. A command takes effect with the next frame.

use crate::command::{Command, Source};
use crate::geometry::{Geometry, SIDE};
use std::f64::consts::TAU;

/// Atmosphere above the telescope, and brightness of the star.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sky {
    /// Fried parameter at 500 nm, in metres.
    pub r0: f64,
    /// Outer scale, in metres.
    pub outer_scale: f64,
    /// Wind speed, in metres per second.
    pub wind: f64,
    /// Share of a wave that is kept from frame to frame. The rest is replaced at random.
    pub kept: f64,
    /// Time between two frames of the atmosphere, in seconds. A slow loop can be tested with a fast atmosphere.
    pub frame: f64,
    /// Number of frames computed in advance.
    pub frames: usize,
    /// Electrons per sub-aperture and frame from the star.
    pub light: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sky {
    fn default() -> Self {
        Self {
            r0: 0.15,
            outer_scale: 25.0,
            wind: 10.0,
            kept: 0.999,
            frame: 1e-3,
            frames: 1000,
            light: 10_000.0,
            seed: 1,
        }
    }
}

/// Side of a sub-aperture, in metres.
const PITCH: f64 = 0.2;
/// Wavelength to which `r0` refers, in nanometres.
const WAVELENGTH_NM: f64 = 500.0;
/// Spot displacement in pixels per nanometre of difference across a sub-aperture, for half an arc second per pixel.
const PIXELS_PER_NM: f32 = 0.002_06;
/// Width of a spot (one sigma), in pixels.
const SPOT: f32 = 1.0;
/// Steps per pixel in the table of spots.
const STEPS: usize = 256;
/// Maximum displacement of a spot, in pixels.
const REACH: f32 = 4.0;
/// Read noise of a pixel, in electrons.
const READING: f32 = 3.0;
/// Electrons per pixel in uniform light.
const EVEN: f32 = 2000.0;
/// Numbers in the table of noise, a power of two. The numbers of one sub-aperture follow in addition.
const NOISE: usize = 1 << 16;
/// Displacement of a neighbour's place, relative to that of the actuator.
const NEIGHBOUR: f32 = 0.15;

/// Pseudo-random numbers, reproducible for a given seed.
#[derive(Clone, Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform, above 0 and at most 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Two normally distributed numbers with standard deviation 1.
    fn normal(&mut self) -> [f64; 2] {
        let (radius, (sin, cos)) = ((-2.0 * self.share().ln()).sqrt(), (TAU * self.share()).sin_cos());
        [radius * cos, radius * sin]
    }
}

/// A telescope. A frame neither allocates nor blocks.
#[derive(Clone, Debug)]
pub struct Telescope {
    geometry: Geometry,
    /// Wavefronts of all frames, in nanometres.
    air: Vec<f32>,
    /// Number of frames of the atmosphere.
    frames: usize,
    /// Index of the next frame. It is not wrapped.
    at: usize,
    source: Source,
    mirror: Vec<f32>,
    /// Commands at each corner, before the coupling to neighbours.
    pushed: Vec<f32>,
    wavefront: Vec<f32>,
    spots: Vec<[f32; SIDE]>,
    noise: Vec<f32>,
    dark: Vec<f32>,
    worth: Vec<f32>,
    light: f32,
    chance: Chance,
}

impl Telescope {
    /// A telescope under this sky. Allocates. Takes about one second for 40 sub-apertures across and 1000 frames.
    #[must_use]
    pub fn new(geometry: Geometry, sky: Sky) -> Self {
        let mut chance = Chance(sky.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..20).for_each(|_| _ = chance.next());
        let points = geometry.points() * geometry.points();
        let frames = sky.frames.max(1);
        let air = air(&geometry, Sky { frames, ..sky }, &mut chance);
        let spot = |step: usize| {
            let shift = step as f32 / STEPS as f32 - REACH;
            let middle = (SIDE as f32 - 1.0) / 2.0;
            let weights = std::array::from_fn(|pixel| (-((pixel as f32 - middle - shift) / SPOT).powi(2) / 2.0).exp());
            weights.map(|weight: f32| weight / (SPOT * (TAU as f32).sqrt()))
        };
        let spots = (0..=(2.0 * REACH) as usize * STEPS).map(spot).collect();
        let noise = (0..(NOISE + SIDE * SIDE) / 2).flat_map(|_| chance.normal().map(|number| number as f32)).collect();
        let pixels = geometry.width() * geometry.width();
        let dark = (0..pixels).map(|_| (100.0 + 3.0 * chance.normal()[0]) as f32).collect();
        // Two electrons per count. One pixel in two thousand is dead.
        let worth = |chance: &mut Chance| {
            if chance.share() < 0.0005 { 0.0 } else { (0.5 * (1.0 + 0.05 * chance.normal()[0])) as f32 }
        };
        let worth = (0..pixels).map(|_| worth(&mut chance)).collect();
        Self {
            air,
            frames,
            at: 0,
            source: Source::Sky,
            mirror: vec![0.0; points],
            pushed: vec![0.0; points],
            wavefront: vec![0.0; points],
            spots,
            noise,
            dark,
            worth,
            light: sky.light,
            chance,
            geometry,
        }
    }

    /// Sets the command of the mirror, effective with the next frame. A command of another size moves only the actuators that both have.
    pub fn command(&mut self, command: &Command<'_>) {
        self.source = command.source;
        let across = self.geometry.points();
        for ((column, line), value) in self.geometry.actuators().iter().zip(command.values()) {
            self.pushed[line * across + column] = value;
        }
        for line in 0..across {
            for column in 0..across {
                let at = |line: usize, column: usize| {
                    if line < across && column < across { self.pushed[line * across + column] } else { 0.0 }
                };
                let row = |line: usize| {
                    at(line, column) + NEIGHBOUR * (at(line, column.wrapping_sub(1)) + at(line, column + 1))
                };
                let around = NEIGHBOUR * (row(line.wrapping_sub(1)) + row(line + 1));
                self.mirror[line * across + column] = row(line) + around;
            }
        }
    }

    /// Advances the atmosphere and computes the next frame.
    pub fn expose(&mut self) {
        let last = self.frames.saturating_sub(1);
        // Plays forwards, then backwards, to avoid a jump.
        let place = if last == 0 { 0 } else { self.at % (2 * last) };
        let place = if place > last { 2 * last - place } else { place };
        self.at += 1;
        let air = &self.air[place * self.mirror.len()..][..self.mirror.len()];
        let share = if self.source == Source::Sky { 1.0 } else { 0.0 };
        for ((wavefront, air), mirror) in self.wavefront.iter_mut().zip(air).zip(&self.mirror) {
            *wavefront = share * air + mirror;
        }
    }

    /// Residual wavefront of the frame, and the wavefront without the mirror, in nanometres rms over the pupil.
    #[must_use]
    pub fn residual(&self) -> (f64, f64) {
        let across = self.geometry.points();
        let rms = |value: &dyn Fn(usize) -> f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for (column, line) in self.geometry.actuators() {
                let value = value(line * across + column);
                sum += value;
                squares += value * value;
            }
            let count = self.geometry.actuators().len() as f64;
            (squares / count - (sum / count).powi(2)).max(0.0).sqrt()
        };
        let left = |at: usize| f64::from(self.wavefront[at]);
        (rms(&left), rms(&|at| f64::from(self.wavefront[at] - self.mirror[at])))
    }

    /// Pixels of a row of sub-apertures, little-endian, [`Geometry::row_bytes`] bytes. A shorter or longer buffer is filled as far as possible.
    pub fn row(&mut self, row: usize, to: &mut [u8]) {
        let (width, across) = (self.geometry.width(), self.geometry.points());
        let to = to.as_chunks_mut::<2>().0;
        let first = row * SIDE * width;
        let Some(pixels) = self.dark.get(first..first + SIDE * width) else { return };
        let worth = &self.worth[first..];
        let mut lit = self.geometry.row(row).map(|aperture| self.geometry.apertures()[aperture].0).peekable();
        let none = [0.0; SIDE];
        for column in 0..self.geometry.across() {
            let seen = lit.next_if_eq(&column).is_some();
            let (across_x, across_y, even) = match self.source {
                Source::Sky | Source::Lamp if seen => {
                    let corner = |x: usize, y: usize| self.wavefront[(row + y) * across + column + x];
                    let x = (corner(1, 0) + corner(1, 1) - corner(0, 0) - corner(0, 1)) / 2.0;
                    let y = (corner(0, 1) + corner(1, 1) - corner(0, 0) - corner(1, 0)) / 2.0;
                    let spot = |shift: f32| {
                        let shift = (shift * PIXELS_PER_NM).clamp(-REACH, REACH) + REACH;
                        self.spots[((shift * STEPS as f32 + 0.5) as usize).min(self.spots.len() - 1)]
                    };
                    (spot(x), spot(y), 0.0)
                }
                Source::Flat => (none, none, EVEN),
                _ => (none, none, 0.0),
            };
            let chance = (self.chance.next() >> 40) as usize % NOISE;
            let noise = self.noise[chance..chance + SIDE * SIDE].as_chunks::<SIDE>().0;
            for (line, noise) in noise.iter().enumerate() {
                let at = line * width + column * SIDE;
                let light = self.light * across_y[line];
                let pixels = pixels[at..at + SIDE].iter().zip(&worth[at..at + SIDE]);
                let Some(to) = to.get_mut(at..at + SIDE) else { return };
                for (((to, (dark, worth)), noise), weight) in to.iter_mut().zip(pixels).zip(noise).zip(across_x) {
                    let electrons = even + light * weight;
                    let electrons = electrons + noise * (electrons + READING * READING).sqrt();
                    // The conversion saturates at the bounds of the type.
                    *to = ((dark + worth * electrons + 0.5) as u16).to_le_bytes();
                }
            }
        }
    }
}

/// Wavefronts at the corners, frame by frame, in nanometres.
fn air(geometry: &Geometry, sky: Sky, chance: &mut Chance) -> Vec<f32> {
    let (points, waves) = (geometry.points(), 2 * geometry.across());
    // Waves repeat after twice the pupil.
    let step = 1.0 / (2.0 * geometry.across() as f64 * PITCH);
    let frequency = |wave: usize| (wave as f64 - waves as f64 / 2.0) * step;
    let nanometres = WAVELENGTH_NM / TAU;
    let mut deviation = vec![0.0; waves * waves];
    for (place, deviation) in deviation.iter_mut().enumerate() {
        let square = frequency(place / waves).powi(2) + frequency(place % waves).powi(2);
        if square > 0.0 {
            let power = 0.0229 * sky.r0.powf(-5.0 / 3.0) * (square + sky.outer_scale.powi(-2)).powf(-11.0 / 6.0);
            *deviation = (power * step * step).sqrt() * nanometres;
        }
    }
    let mut state: Vec<[f64; 2]> =
        deviation.iter().map(|deviation| chance.normal().map(|part| part * deviation)).collect();
    let new = (1.0 - sky.kept * sky.kept).max(0.0).sqrt();
    // Angle of the wind.
    let (sin, cos) = 0.4f64.sin_cos();
    let turn: Vec<[f32; 2]> = (0..waves * points)
        .map(|place| TAU * frequency(place / points) * (place % points) as f64 * PITCH)
        .map(|angle| [angle.cos() as f32, angle.sin() as f32])
        .collect();
    let moved: Vec<[f64; 2]> = (0..waves * waves)
        .map(|place| frequency(place / waves) * sin + frequency(place % waves) * cos)
        .map(|along| -TAU * along * sky.wind * sky.frame)
        .map(|angle| [sky.kept * angle.cos(), sky.kept * angle.sin()])
        .collect();
    let mut air = Vec::with_capacity(sky.frames * points * points);
    let (mut re, mut im) = (vec![0.0f32; waves * points], vec![0.0f32; waves * points]);
    for _ in 0..sky.frames {
        re.fill(0.0);
        im.fill(0.0);
        for (line, waves_of_line) in state.chunks_exact(waves).enumerate() {
            let (re, im) = (&mut re[line * points..][..points], &mut im[line * points..][..points]);
            for (wave, turn) in waves_of_line.iter().zip(turn.chunks_exact(points)) {
                let [a, b] = wave.map(|part| part as f32);
                for ((re, im), [cos, sin]) in re.iter_mut().zip(im.iter_mut()).zip(turn) {
                    *re += a * cos - b * sin;
                    *im += a * sin + b * cos;
                }
            }
        }
        let begin = air.len();
        air.resize(begin + points * points, 0.0f32);
        for (line, to) in air[begin..].chunks_exact_mut(points).enumerate() {
            for wave in 0..waves {
                let [cos, sin] = turn[wave * points + line];
                let (re, im) = (&re[wave * points..][..points], &im[wave * points..][..points]);
                for ((to, re), im) in to.iter_mut().zip(re).zip(im) {
                    *to += re * cos - im * sin;
                }
            }
        }
        for ((wave, [cos, sin]), deviation) in state.iter_mut().zip(&moved).zip(&deviation) {
            let ([a, b], fresh) = (*wave, chance.normal());
            *wave = [a * cos - b * sin + new * deviation * fresh[0], a * sin + b * cos + new * deviation * fresh[1]];
        }
    }
    air
}

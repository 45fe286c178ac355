//! Centroids of the light in each sub-aperture of an image: weighted centres of gravity of calibrated pixels.
//!
//! The value of a pixel is `v = max((pixel − dark)·gain − threshold, 0)`. The *flux* of a sub-aperture is the sum of its `v`. Its centre is the
//! sum of `v` times the pixel's place, divided by the flux, in pixels from the sub-aperture's middle. The subtracted part, `dark·gain +
//! threshold`, is computed per pixel in advance.
//!
//! **Order of summation.** First down each column from its top, then pairwise over neighbouring columns; the last of an odd number is carried
//! over. A column's sum of `v` times the line is `(n + 1)/2` times its sum, minus the sum of its partial sums: line `i` is in `n − i` of these,
//! so no line needs a multiplication. No operations are fused. All levels therefore give bit-identical results.
//!
//! **Error.** With `n` × `n` pixels, `u` = 2⁻²⁴, `k = 2n + 12` and `A = Σ(pixel·gain + |dark·gain + threshold|)`, each coordinate differs from
//! exact arithmetic by at most `k·u/(1 − k·u) · (2n + 1) · A / flux` pixels. The subtraction of the zero then rounds once more.

use crate::level::Kind;
use crate::{Level, Misfit, level};
use std::fmt;
use std::ops::Range;

/// Maximum side of a sub-aperture, in pixels.
pub const SIDE_MAX: usize = 32;
/// Side of a sub-aperture for which vector instructions are used, in pixels.
pub(crate) const SIDE: usize = 8;
/// Upper limit of a valid flux. Above it, sums of places would not be finite.
pub(crate) const FLUX_MAX: f32 = f32::MAX / SIDE_MAX as f32;
/// Lower limit of a valid flux. Below it, its products may have underflowed.
const FLUX_MIN: f32 = 1e-20;

/// Sub-apertures of an image, with the calibration of their pixels. Measuring neither allocates nor blocks.
#[derive(Clone, Debug)]
pub struct Centroids {
    width: usize,
    height: usize,
    side: usize,
    /// First pixel of each sub-aperture.
    corners: Vec<usize>,
    /// Calibration of each line of each sub-aperture, padded to multiples of eight pixels.
    calibration: Vec<Calibration>,
    flux_min: f32,
    /// Zero subtracted from each coordinate: x, y, x, y …
    zeros: Vec<f32>,
}

/// Gains and offsets of eight pixels. Aligned to a cache line, so that no line is read twice.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Calibration {
    pub(crate) gain: [f32; SIDE],
    pub(crate) offset: [f32; SIDE],
}

/// Limits for the light of a sub-aperture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Light {
    /// Value subtracted from each calibrated pixel. Negative results count as zero.
    pub threshold: f32,
    /// A sub-aperture with this flux or less has no centre.
    pub flux_min: f32,
}

/// Number of sub-apertures without a centre. Their coordinates are unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Sub-apertures with too little flux.
    pub dark: usize,
    /// Sub-apertures with a flux that is not finite, or too large for a finite centre.
    pub unbounded: usize,
}

/// Invalid sub-apertures or calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BadAperture {
    /// The side is not 1 to [`SIDE_MAX`] pixels.
    Side(usize),
    /// A sub-aperture is not completely within the image.
    Outside {
        /// Index of the sub-aperture.
        aperture: usize,
        /// Its top left pixel: column and line.
        corner: (usize, usize),
    },
    /// The calibration belongs to an image of another size.
    Misfit(Misfit),
    /// The threshold or the minimum flux is not finite.
    Light(Light),
    /// The calibration of a pixel is not finite, or its gain is negative.
    Pixel {
        /// Index of the pixel in the image.
        pixel: usize,
        /// Dark value of the pixel.
        dark: f32,
        /// Gain of the pixel.
        gain: f32,
    },
}

impl fmt::Display for BadAperture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Side(found) => write!(f, "sub-apertures of {found} pixels: expected 1 to {SIDE_MAX}"),
            Self::Outside { aperture, corner } => {
                write!(
                    f,
                    "sub-aperture {aperture} at column {}, line {}: expected it within the image",
                    corner.0, corner.1
                )
            }
            Self::Misfit(misfit) => misfit.fmt(f),
            Self::Light(Light { threshold, flux_min }) => {
                write!(f, "threshold {threshold}, least flux {flux_min}: expected finite numbers")
            }
            Self::Pixel { pixel, dark, gain } => {
                write!(
                    f,
                    "pixel {pixel}: dark {dark}, gain {gain}; expected finite numbers, the gain not below 0 (0 is a dead pixel)"
                )
            }
        }
    }
}

impl std::error::Error for BadAperture {}

impl From<Misfit> for BadAperture {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

impl Centroids {
    /// Sub-apertures of `side` × `side` pixels with these top left corners (column, line) in an image of `width` × `height`. `dark` and `gain`
    /// calibrate its pixels, line by line. `light` sets threshold and minimum flux. A gain of 0 excludes a dead pixel. Allocates.
    ///
    /// # Errors
    /// A sub-aperture is not within the image, the calibration has another size, or a number is not finite.
    pub fn new(
        (width, height): (usize, usize),
        side: usize,
        corners: &[(usize, usize)],
        dark: &[f32],
        gain: &[f32],
        light: Light,
    ) -> Result<Self, BadAperture> {
        if !(1..=SIDE_MAX).contains(&side) {
            return Err(BadAperture::Side(side));
        }
        Misfit::check("dark values", dark.len(), width.saturating_mul(height))?;
        Misfit::check("gains", gain.len(), dark.len())?;
        if !(light.threshold.is_finite() && light.flux_min.is_finite()) {
            return Err(BadAperture::Light(light));
        }
        let wrong = |(dark, gain): &(&f32, &f32)| !(dark.is_finite() && gain.is_finite() && **gain >= 0.0);
        if let Some((pixel, (dark, gain))) = dark.iter().zip(gain).enumerate().find(|(_, both)| wrong(both)) {
            return Err(BadAperture::Pixel { pixel, dark: *dark, gain: *gain });
        }
        let within = |at: usize, of: usize| at.checked_add(side).is_some_and(|end| end <= of);
        let outside =
            |(_, (column, line)): &(usize, &(usize, usize))| !within(*column, width) || !within(*line, height);
        if let Some((aperture, corner)) = corners.iter().enumerate().find(outside) {
            return Err(BadAperture::Outside { aperture, corner: *corner });
        }
        let corners: Vec<usize> = corners.iter().map(|(column, line)| line * width + column).collect();
        let lines = corners.iter().flat_map(|corner| (0..side).map(move |line| corner + line * width));
        // Always finite: a value out of range then gives an invalid flux rather than NaN.
        let offset = |pixel: usize| {
            let exact = f64::from(dark[pixel]) * f64::from(gain[pixel]) + f64::from(light.threshold);
            (exact as f32).clamp(f32::MIN, f32::MAX)
        };
        let mut calibration = vec![Calibration::default(); corners.len() * side * side.div_ceil(SIDE)];
        for (line, to) in lines.zip(calibration.chunks_mut(side.div_ceil(SIDE))) {
            for column in 0..side {
                let to = &mut to[column / SIDE];
                (to.gain[column % SIDE], to.offset[column % SIDE]) = (gain[line + column], offset(line + column));
            }
        }
        let zeros = vec![0.0; 2 * corners.len()];
        Ok(Self { width, height, side, corners, calibration, flux_min: light.flux_min.max(FLUX_MIN), zeros })
    }

    /// Number of sub-apertures.
    #[must_use]
    pub const fn apertures(&self) -> usize {
        self.corners.len()
    }

    /// Sets the reference subtracted from each coordinate: the centres for a flat wavefront, as x, y, x, y …
    ///
    /// # Errors
    /// There are not two zeros for each sub-aperture.
    pub fn set_zeros(&mut self, zeros: &[f32]) -> Result<(), Misfit> {
        Misfit::check("zeros", zeros.len(), self.zeros.len())?;
        self.zeros.copy_from_slice(zeros);
        Ok(())
    }

    /// Centres of some sub-apertures of an image, in pixels from their middles, minus their zeros: x, y, x, y … A sub-aperture without a centre
    /// keeps both coordinates and is counted. Does not allocate. Sub-apertures of 8 × 8 pixels use vector instructions.
    ///
    /// # Errors
    /// The image has another size, the sub-apertures do not exist, or `centres` does not have two places for each. Nothing was written.
    pub fn measure(
        &self,
        level: Level,
        apertures: Range<usize>,
        image: &[u16],
        centres: &mut [f32],
    ) -> Result<Without, Misfit> {
        Misfit::check("pixels of the image", image.len(), self.width * self.height)?;
        if apertures.start > apertures.end || apertures.end > self.corners.len() {
            return Err(Misfit::of("end of the sub-apertures", apertures.end, self.corners.len()));
        }
        Misfit::check("places for centres", centres.len(), 2 * apertures.len())?;
        let each = self.side * self.side.div_ceil(SIDE);
        let part = Part {
            width: self.width,
            side: self.side,
            corners: &self.corners[apertures.clone()],
            calibration: &self.calibration[apertures.start * each..apertures.end * each],
            zeros: &self.zeros[2 * apertures.start..2 * apertures.end],
            image,
            flux_min: self.flux_min,
        };
        let kind = if self.side == SIDE { level.0 } else { Kind::Scalar };
        Ok(match kind {
            Kind::Scalar => plain(&part, centres),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this level exists only if the CPU has its instructions.
            Kind::Sse42 => unsafe { level::sse42::centres(&part, centres) },
            #[cfg(target_arch = "x86_64")]
            // A line of a sub-aperture has 256 bits. SAFETY: as above; the level AVX-512 requires AVX2.
            Kind::Avx2 | Kind::Avx512 => unsafe { level::avx2::centres(&part, centres) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Kind::Neon => unsafe { level::neon::centres(&part, centres) },
        })
    }
}

/// Input of one call to `measure`.
pub(crate) struct Part<'a> {
    pub(crate) width: usize,
    side: usize,
    pub(crate) corners: &'a [usize],
    pub(crate) calibration: &'a [Calibration],
    zeros: &'a [f32],
    pub(crate) image: &'a [u16],
    flux_min: f32,
}

impl Part<'_> {
    /// Eight centres from their sums, as [`Part::centre`] computes each. Returns false, and writes nothing, unless all eight have a valid flux.
    #[inline(always)]
    pub(crate) fn eight_centres(&self, first: usize, [flux, x, y]: [&[f32; 8]; 3], centres: &mut [f32]) -> bool {
        let places = 2 * first..2 * first + 16;
        let (Some(centres), Some(zeros)) = (centres.get_mut(places.clone()), self.zeros.get(places)) else {
            return false;
        };
        // Without early exit: a branch per element takes longer.
        let lit = |flux: f32| (flux > self.flux_min) & (flux < FLUX_MAX);
        if !flux.iter().fold(true, |all, flux| all & lit(*flux)) {
            return false;
        }
        for (index, (centre, zero)) in
            centres.as_chunks_mut::<2>().0.iter_mut().zip(zeros.as_chunks::<2>().0).enumerate()
        {
            *centre = [x[index] / flux[index] - zero[0], y[index] / flux[index] - zero[1]];
        }
        true
    }

    /// One centre from its sums: flux, and flux times place.
    #[inline(always)]
    pub(crate) fn centre(&self, aperture: usize, [flux, x, y]: [f32; 3], centres: &mut [f32], without: &mut Without) {
        if flux > self.flux_min && flux < FLUX_MAX {
            centres[2 * aperture] = x / flux - self.zeros[2 * aperture];
            centres[2 * aperture + 1] = y / flux - self.zeros[2 * aperture + 1];
        } else if flux < FLUX_MAX {
            without.dark += 1;
        } else {
            without.unbounded += 1;
        }
    }
}

/// Distance of a pixel's middle from that of a sub-aperture of `side` pixels.
#[inline(always)]
pub(crate) fn place(at: usize, side: usize) -> f32 {
    at as f32 - (side as f32 - 1.0) / 2.0
}

/// Factor of a column's sum, from which the sum of its partial sums is subtracted.
#[inline(always)]
pub(crate) fn height(side: usize) -> f32 {
    (side as f32 + 1.0) / 2.0
}

/// Scalar arithmetic for any size: the reference.
fn plain(part: &Part<'_>, centres: &mut [f32]) -> Without {
    let (side, mut without) = (part.side, Without::default());
    for (aperture, corner) in part.corners.iter().enumerate() {
        let (mut flux, mut x, mut y) = ([0.0; SIDE_MAX], [0.0; SIDE_MAX], [0.0; SIDE_MAX]);
        for line in 0..side {
            let image = &part.image[corner + line * part.width..][..side];
            let calibration = &part.calibration[(aperture * side + line) * side.div_ceil(SIDE)..];
            for column in 0..side {
                let Calibration { gain, offset } = calibration[column / SIDE];
                let value = f32::from(image[column]) * gain[column % SIDE] - offset[column % SIDE];
                flux[column] += value.max(0.0);
                y[column] += flux[column];
            }
        }
        for column in 0..side {
            x[column] = flux[column] * place(column, side);
            y[column] = flux[column] * height(side) - y[column];
        }
        let sums = [&mut flux, &mut x, &mut y].map(|columns| tree(&mut columns[..side]));
        part.centre(aperture, sums, centres, &mut without);
    }
    without
}

/// Pairwise sum of neighbours.
fn tree(values: &mut [f32]) -> f32 {
    let mut left = values.len();
    while left > 1 {
        for pair in 0..left / 2 {
            values[pair] = values[2 * pair] + values[2 * pair + 1];
        }
        if left % 2 == 1 {
            values[left / 2] = values[left - 1];
        }
        left = left.div_ceil(2);
    }
    values[0]
}

/// The function for 8 × 8 pixels of one level, built from the primitives of the level's file. Computes eight sub-apertures at once, so that the
/// sums over their columns are computed together.
macro_rules! centre_kernel {
    ([$($attribute:meta)?], $line:ident) => {
        $(#[$attribute])?
        pub(crate) fn centres(part: &crate::centroids::Part<'_>, centres: &mut [f32]) -> crate::Without {
            use crate::centroids::{SIDE, height, place};
            let mut without = crate::Without::default();
            let calibrations = part.calibration.as_chunks::<SIDE>().0;
            let columns: $line = line(&std::array::from_fn(|column| place(column, SIDE)));
            let height = splat(height(SIDE));
            for (group, corners) in part.corners.chunks(8).enumerate() {
                let (mut flux, mut x, mut y) = ([splat(0.0); 8], [splat(0.0); 8], [splat(0.0); 8]);
                for (index, corner) in corners.iter().enumerate() {
                    let calibration = &calibrations[group * 8 + index];
                    let image = &part.image[*corner..corner + (SIDE - 1) * part.width + SIDE];
                    let (mut sum, mut sums) = (splat(0.0), splat(0.0));
                    for number in 0..SIDE {
                        // A bounds check of each line took 3 % of the time. SAFETY: the slice ends with the last line's eight pixels.
                        let pixels = unsafe { &*image.as_ptr().add(number * part.width).cast::<[u16; SIDE]>() };
                        let value = minus(times(widened(pixels), line(&calibration[number].gain)), line(&calibration[number].offset));
                        sum = plus(sum, not_below_zero(value));
                        sums = plus(sums, sum);
                    }
                    (flux[index], x[index], y[index]) = (sum, times(sum, columns), minus(times(sum, height), sums));
                }
                let (flux, x, y) = (sums(&flux), sums(&x), sums(&y));
                if part.eight_centres(group * 8, [&flux, &x, &y], centres) {
                    continue;
                }
                for index in 0..corners.len() {
                    part.centre(group * 8 + index, [flux[index], x[index], y[index]], centres, &mut without);
                }
            }
            without
        }
    };
}
pub(crate) use centre_kernel;

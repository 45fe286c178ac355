//! Correlation tracking: finds a reference in an image, for example an extended source or a mark on a part.
//!
//! For each place within reach, the *difference* is the sum of squared differences between its pixels and the reference. The result is the
//! place with the minimum, refined in each direction by the parabola through it and its neighbours.
//!
//! **Order.** Pixel by pixel, line by line, for several places at once. No operations are fused: all levels give the same bits.
//!
//! **Error.** For a reference of `n` × `n` pixels, with `u` = 2⁻²⁴ and `k = n² + 3`, each difference is within `k·u/(1 − k·u)` (relative) plus
//! `n²·1e-38` of exact arithmetic on the stored numbers. The parabola is exact if the difference is a parabola. For a Gaussian spot of 1.5
//! pixels (σ) or wider, completely within the reference, the result is within 0.03 pixels of the truth.

use crate::level::wide::{LANES, Wide, at};
use crate::{Level, Misfit};
use std::fmt;

/// Maximum side of a reference, in pixels.
pub const REFERENCE_MAX: usize = 128;
/// Maximum reach of a tracker, in pixels.
pub const REACH_MAX: usize = 64;

/// Finds one reference in images. Measuring neither allocates nor blocks, and its duration does not depend on the pixels.
///
/// ```
/// use kernels::{Level, Tracked, Tracker};
///
/// let spot = |x: f32, y: f32| 1000.0 * (-(x * x + y * y) / 8.0).exp();
/// let reference: Vec<f32> = (0..256).map(|at| spot((at % 16) as f32 - 7.5, (at / 16) as f32 - 7.5)).collect();
/// let mut tracker = Tracker::new(16, 4, &reference)?;
/// // The same spot, 1.3 pixels to the right and 0.6 up, in an image of 32 × 32 pixels; the tracker reads its middle.
/// let image: Vec<f32> = (0..1024).map(|at| spot((at % 32) as f32 - 16.8, (at / 32) as f32 - 14.9)).collect();
/// let Tracked::At(shift) = tracker.measure(Level::best(), &image, 32, (8, 8))? else { panic!() };
/// assert!((shift.x - 1.3).abs() < 0.03 && (shift.y + 0.6).abs() < 0.03);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tracker {
    side: usize,
    reach: usize,
    reference: Vec<f32>,
    /// Searched part of the image. Each line is padded to whole registers.
    window: Vec<f32>,
    /// Differences at all places, line by line.
    differences: Vec<f32>,
}

/// Displacement in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shift {
    /// To the right.
    pub x: f32,
    /// Down.
    pub y: f32,
    /// Sum of squared differences at the nearest whole pixel.
    pub difference: f32,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tracked {
    /// Found, with sub-pixel resolution.
    At(Shift),
    /// At the border of the searched area or beyond it; in whole pixels.
    Edge(Shift),
    /// All places have the same difference.
    Flat,
    /// No place has a finite difference.
    Unbounded,
}

/// An invalid tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BadTracker {
    /// The side of the reference is not 1 to [`REFERENCE_MAX`] pixels.
    Side(usize),
    /// The reach is not 1 to [`REACH_MAX`] pixels.
    Reach(usize),
    /// The reference has another size.
    Misfit(Misfit),
    /// A pixel of the reference is not finite: its index.
    Pixel(usize),
}

impl fmt::Display for BadTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Side(found) => write!(f, "a reference of {found} pixels a side: expected 1 to {REFERENCE_MAX}"),
            Self::Reach(found) => write!(f, "a reach of {found} pixels: expected 1 to {REACH_MAX}"),
            Self::Misfit(misfit) => misfit.fmt(f),
            Self::Pixel(pixel) => write!(f, "pixel {pixel} of the reference: expected a finite number"),
        }
    }
}

impl std::error::Error for BadTracker {}

impl From<Misfit> for BadTracker {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

impl Tracker {
    /// A tracker for a reference of `side` × `side` pixels, line by line, searched up to `reach` pixels away in each direction. Allocates.
    ///
    /// # Errors
    /// Side or reach is out of range, or the reference has another size or a non-finite pixel.
    pub fn new(side: usize, reach: usize, reference: &[f32]) -> Result<Self, BadTracker> {
        if !(1..=REFERENCE_MAX).contains(&side) {
            return Err(BadTracker::Side(side));
        }
        if !(1..=REACH_MAX).contains(&reach) {
            return Err(BadTracker::Reach(reach));
        }
        Misfit::check("pixels of the reference", reference.len(), side * side)?;
        if let Some(pixel) = reference.iter().position(|pixel| !pixel.is_finite()) {
            return Err(BadTracker::Pixel(pixel));
        }
        let places = 2 * reach + 1;
        let window = vec![0.0; (side + 2 * reach) * stride(side, reach)];
        let differences = vec![0.0; places * places.next_multiple_of(LANES)];
        Ok(Self { side, reach, reference: reference.to_vec(), window, differences })
    }

    /// Replaces the reference by another of the same size. Does not allocate, so it may be called between two images.
    ///
    /// # Errors
    /// As [`Tracker::new`]. The reference is unchanged.
    pub fn refer(&mut self, reference: &[f32]) -> Result<(), BadTracker> {
        Misfit::check("pixels of the reference", reference.len(), self.side * self.side)?;
        if let Some(pixel) = reference.iter().position(|pixel| !pixel.is_finite()) {
            return Err(BadTracker::Pixel(pixel));
        }
        self.reference.copy_from_slice(reference);
        Ok(())
    }

    /// Finds the reference in an image with lines of `width` pixels. The shift is relative to a reference with its top left pixel at `corner`
    /// (column, line).
    ///
    /// # Errors
    /// The image does not have whole lines, or a place within reach is outside of it.
    pub fn measure(
        &mut self,
        level: Level,
        image: &[f32],
        width: usize,
        corner: (usize, usize),
    ) -> Result<Tracked, Misfit> {
        let (side, reach) = (self.side, self.reach);
        let height = image.len() / width.max(1);
        Misfit::check("pixels of the image's lines", image.len(), width * height)?;
        for (what, at, of) in [("column of the corner", corner.0, width), ("line of the corner", corner.1, height)] {
            let end = at.saturating_add(side + reach);
            if at < reach {
                return Err(Misfit::of(what, at, reach));
            }
            if end > of {
                return Err(Misfit::of(what, at, of.saturating_sub(side + reach)));
            }
        }
        let stride = stride(side, reach);
        let (left, top, across) = (corner.0 - reach, corner.1 - reach, side + 2 * reach);
        for (line, to) in self.window.chunks_exact_mut(stride).enumerate() {
            to[..across].copy_from_slice(&image[(top + line) * width + left..][..across]);
        }
        let Self { reference, window, differences, .. } = self;
        at(level, Differences { side, reach, reference, window, differences });
        Ok(self.found())
    }

    /// Sum of squared differences at a place of the last image, from −reach to reach in both directions; `None` beyond.
    #[must_use]
    pub fn difference(&self, x: isize, y: isize) -> Option<f32> {
        let places = 2 * self.reach + 1;
        let at = |shift: isize| usize::try_from(shift + self.reach as isize).ok().filter(|at| *at < places);
        Some(self.differences[at(y)? * places.next_multiple_of(LANES) + at(x)?])
    }

    /// Place of the minimum difference, refined.
    fn found(&self) -> Tracked {
        let (places, last) = (2 * self.reach + 1, 2 * self.reach);
        let row = places.next_multiple_of(LANES);
        let (mut best, mut most) = (None::<(usize, usize, f32)>, f32::NEG_INFINITY);
        for line in 0..places {
            for column in 0..places {
                let difference = self.differences[line * row + column];
                if difference.is_finite() {
                    most = most.max(difference);
                    if best.is_none_or(|(.., least)| difference < least) {
                        best = Some((column, line, difference));
                    }
                }
            }
        }
        let Some((column, line, difference)) = best else { return Tracked::Unbounded };
        if most <= difference {
            return Tracked::Flat;
        }
        let whole = |at: usize| at as f32 - self.reach as f32;
        let shift = Shift { x: whole(column), y: whole(line), difference };
        if [column, line].iter().any(|at| *at == 0 || *at == last) {
            return Tracked::Edge(shift);
        }
        let of = |column: usize, line: usize| self.differences[line * row + column];
        let x = parabola(of(column - 1, line), difference, of(column + 1, line));
        let y = parabola(of(column, line - 1), difference, of(column, line + 1));
        Tracked::At(Shift { x: shift.x + x, y: shift.y + y, difference })
    }
}

/// Numbers of a line of the window. A register that begins at the last place extends beyond it.
const fn stride(side: usize, reach: usize) -> usize {
    side + (2 * reach + 1).next_multiple_of(LANES)
}

/// Place of the minimum of the parabola through three values, of which the middle one is the smallest: −0.5 to 0.5.
fn parabola(before: f32, least: f32, after: f32) -> f32 {
    let (before, after) = (before - least, after - least);
    let bend = before + after;
    // A neighbour is not finite, or both equal the minimum: no parabola.
    if bend > 0.0 && bend.is_finite() { 0.5 * (before - after) / bend } else { 0.0 }
}

struct Differences<'a> {
    side: usize,
    reach: usize,
    reference: &'a [f32],
    window: &'a [f32],
    differences: &'a mut [f32],
}

/// Registers of places processed at once, so that additions do not wait for each other.
const GROUP: usize = 2;

impl Wide for Differences<'_> {
    type Output = ();

    #[inline(always)]
    fn with<const N: usize>(self) {
        let Self { side, reach, reference, window, differences } = self;
        let places = 2 * reach + 1;
        let stride = stride(side, reach);
        for (line, to) in differences.chunks_exact_mut(places.next_multiple_of(LANES)).enumerate() {
            let window = &window[line * stride..];
            let mut begin = 0;
            while begin < places {
                if begin + GROUP * N <= to.len() && begin + N < places {
                    row::<N, GROUP>(side, stride, reference, &window[begin..], &mut to[begin..]);
                    begin += GROUP * N;
                } else {
                    row::<N, 1>(side, stride, reference, &window[begin..], &mut to[begin..]);
                    begin += N;
                }
            }
        }
    }
}

/// Differences at `G` registers of neighbouring places.
#[inline(always)]
fn row<const N: usize, const G: usize>(side: usize, stride: usize, reference: &[f32], window: &[f32], to: &mut [f32]) {
    let mut sums = [[0.0f32; N]; G];
    for (line, reference) in reference.chunks_exact(side).enumerate() {
        let window = &window[line * stride..][..side + G * N - 1];
        for (column, reference) in reference.iter().enumerate() {
            for (register, sum) in sums.iter_mut().enumerate() {
                let Some(pixels) = window[column + register * N..].first_chunk::<N>() else { continue };
                *sum = std::array::from_fn(|lane| {
                    let difference = pixels[lane] - reference;
                    sum[lane] + difference * difference
                });
            }
        }
    }
    for (register, sum) in sums.into_iter().enumerate() {
        to[register * N..][..N].copy_from_slice(&sum);
    }
}

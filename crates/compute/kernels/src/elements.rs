//! Element-wise arithmetic: several steps of a control loop in one pass over memory.
//!
//! The operation on an element is a closure, compiled for the registers of each level. No operations are fused and elements are independent.
//! All levels therefore give the same bits, for any split over workers.
//!
//! ```
//! use kernels::{Level, each, each_counted};
//!
//! // An integrator with a leak and a bound: command = leak·command − gain·error, and how many are at their bound.
//! let (error, mut command) = ([1.0, -40.0, 0.5], [2.0, 3.0, 4.0]);
//! let at_bound = each_counted(Level::best(), [&error], &mut command, |[error], command| {
//!     let next = 0.99 * command - 0.5 * error;
//!     (next.clamp(-10.0, 10.0), next.abs() >= 10.0)
//! })?;
//! assert_eq!((command[1], at_bound), (10.0, 1));
//!
//! // a·x + b, of three vectors, into a fourth.
//! let (a, x, b, mut y) = ([2.0; 3], [1.0, 2.0, 3.0], [0.5; 3], [0.0; 3]);
//! each(Level::best(), [&a, &x, &b], &mut y, |[a, x, b], _| a * x + b)?;
//! assert_eq!(y, [2.5, 4.5, 6.5]);
//! # Ok::<(), kernels::Misfit>(())
//! ```

use crate::level::wide::{Wide, at};
use crate::{Level, Misfit};

/// Sets each element of `y` to the result of `f`, called with the elements of the inputs at the same index and the present element of `y`.
/// Neither allocates nor blocks, if `f` does not. `f` is inlined into the loop. If it has a condition, both branches should be free of calls.
///
/// # Errors
/// An input is not as long as `y`. Nothing was written.
pub fn each<const I: usize>(
    level: Level,
    inputs: [&[f32]; I],
    y: &mut [f32],
    f: impl Fn([f32; I], f32) -> f32,
) -> Result<(), Misfit> {
    each_counted(level, inputs, y, |inputs, y| (f(inputs, y), false)).map(drop)
}

/// As [`each`], and returns the number of elements for which `f` returned true.
///
/// # Errors
/// As [`each`].
pub fn each_counted<const I: usize>(
    level: Level,
    inputs: [&[f32]; I],
    y: &mut [f32],
    f: impl Fn([f32; I], f32) -> (f32, bool),
) -> Result<usize, Misfit> {
    for input in inputs {
        Misfit::check("elements of an input", input.len(), y.len())?;
    }
    Ok(at(level, Each { inputs, y, f }))
}

/// Calibrates raw pixels: `(pixel − dark)·gain` each. Neither allocates nor blocks.
///
/// # Errors
/// The four slices differ in length. Nothing was written.
pub fn calibrate(level: Level, pixels: &[u16], dark: &[f32], gain: &[f32], y: &mut [f32]) -> Result<(), Misfit> {
    Misfit::check("dark values", dark.len(), pixels.len())?;
    Misfit::check("gains", gain.len(), pixels.len())?;
    Misfit::check("elements of the result", y.len(), pixels.len())?;
    at(level, Calibrate { pixels, dark, gain, y });
    Ok(())
}

/// All elements are finite. To be called once per frame, on the result. Neither allocates nor blocks.
#[must_use]
pub fn finite(level: Level, x: &[f32]) -> bool {
    at(level, Finite(x))
}

struct Each<'a, F, const I: usize> {
    inputs: [&'a [f32]; I],
    y: &'a mut [f32],
    f: F,
}

impl<F: Fn([f32; I], f32) -> (f32, bool), const I: usize> Wide for Each<'_, F, I> {
    type Output = usize;

    #[inline(always)]
    fn with<const N: usize>(self) -> usize {
        let Self { inputs, y, f } = self;
        let whole = inputs.map(|input| input.as_chunks::<N>());
        let (to, rest) = y.as_chunks_mut::<N>();
        // 32 bits wide like the elements. A lane cannot overflow with the elements that fit into a slice.
        let mut counts = [0u32; N];
        for (place, to) in to.iter_mut().enumerate() {
            let from: [&[f32; N]; I] = std::array::from_fn(|input| &whole[input].0[place]);
            let both: [(f32, bool); N] = std::array::from_fn(|lane| f(from.map(|input| input[lane]), to[lane]));
            *to = both.map(|both| both.0);
            counts = std::array::from_fn(|lane| counts[lane] + u32::from(both[lane].1));
        }
        let mut count = counts.iter().map(|count| *count as usize).sum();
        for (place, to) in rest.iter_mut().enumerate() {
            let counts;
            (*to, counts) = f(whole.map(|(_, rest)| rest[place]), *to);
            count += usize::from(counts);
        }
        count
    }
}

struct Calibrate<'a> {
    pixels: &'a [u16],
    dark: &'a [f32],
    gain: &'a [f32],
    y: &'a mut [f32],
}

impl Wide for Calibrate<'_> {
    type Output = ();

    #[inline(always)]
    fn with<const N: usize>(self) {
        let ((pixels, rest), (dark, rest_dark)) = (self.pixels.as_chunks::<N>(), self.dark.as_chunks::<N>());
        let ((gain, rest_gain), (y, rest_y)) = (self.gain.as_chunks::<N>(), self.y.as_chunks_mut::<N>());
        for (((pixels, dark), gain), y) in pixels.iter().zip(dark).zip(gain).zip(y) {
            *y = std::array::from_fn(|lane| (f32::from(pixels[lane]) - dark[lane]) * gain[lane]);
        }
        for (((pixel, dark), gain), y) in rest.iter().zip(rest_dark).zip(rest_gain).zip(rest_y) {
            *y = (f32::from(*pixel) - dark) * gain;
        }
    }
}

struct Finite<'a>(&'a [f32]);

impl Wide for Finite<'_> {
    type Output = bool;

    #[inline(always)]
    fn with<const N: usize>(self) -> bool {
        // All bits of the exponent are set. Uses integer operations only, so nothing overflows.
        let wrong = |number: f32| u32::from(number.to_bits() & 0x7f80_0000 == 0x7f80_0000);
        let (whole, rest) = self.0.as_chunks::<N>();
        let mut found = [0; N];
        for numbers in whole {
            found = std::array::from_fn(|lane| found[lane] | wrong(numbers[lane]));
        }
        found.into_iter().chain(rest.iter().copied().map(wrong)).all(|found| found == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_gives_the_same_elements_for_any_alignment() {
        for (length, begin) in [(0, 0), (1, 0), (15, 1), (16, 3), (17, 2), (100, 1), (257, 5)] {
            let x: Vec<f32> = (0..length + begin).map(|place| place as f32 * 0.37 - 5.0).collect();
            let a: Vec<f32> = (0..length + begin).map(|place| 3.0 / (place as f32 - 7.5)).collect();
            let (x, a) = (&x[begin..], &a[begin..]);
            let f = |[x, a]: [f32; 2], y: f32| {
                let value = a * x + y * 0.99;
                (value.clamp(-2.0, 2.0), value.abs() >= 2.0)
            };
            let expected: Vec<(f32, bool)> = x.iter().zip(a).map(|(x, a)| f([*x, *a], 0.25)).collect();
            for level in Level::all() {
                let mut memory = vec![0.25; length + begin];
                let counted = each_counted(level, [x, a], &mut memory[begin..], f).unwrap();
                assert_eq!(counted, expected.iter().filter(|(_, counts)| *counts).count(), "{level} {length}");
                assert!(memory[begin..].iter().zip(&expected).all(|(y, (to, _))| y == to), "{level} {length}");
                assert!(memory[..begin].iter().all(|y| *y == 0.25));
            }
        }
        let mut y = [9.0; 2];
        assert_eq!(
            each(Level::best(), [&[1.0; 2], &[1.0; 3]], &mut y, |[a, b], _| a + b).unwrap_err().to_string(),
            "elements of an input: found 3, expected 2"
        );
        assert_eq!(y, [9.0; 2]);
    }

    #[test]
    fn pixels_are_calibrated_at_every_level_and_other_lengths_are_refused() {
        for length in [0, 1, 16, 33] {
            let pixels: Vec<u16> = (0..length).map(|place| (place * 7919 % 65536) as u16).collect();
            let dark: Vec<f32> = (0..length).map(|place| place as f32 * 0.7).collect();
            let gain: Vec<f32> = (0..length).map(|place| 0.9 + place as f32 * 0.01).collect();
            let expected: Vec<f32> = (0..length).map(|at| (f32::from(pixels[at]) - dark[at]) * gain[at]).collect();
            for level in Level::all() {
                let mut y = vec![0.0; length];
                calibrate(level, &pixels, &dark, &gain, &mut y).unwrap();
                assert_eq!(y, expected, "{level}");
            }
        }
        let mut y = [9.0; 2];
        assert!(calibrate(Level::best(), &[1; 2], &[0.0; 2], &[1.0; 3], &mut y).is_err() && y == [9.0; 2]);
    }

    #[test]
    fn an_element_that_is_not_finite_is_found_at_every_position() {
        for level in Level::all() {
            for length in [1, 16, 17, 100] {
                let mut x = vec![f32::MAX; length];
                x[length / 2] = -1e-44;
                assert!(finite(level, &x), "{level}");
                for place in [0, length / 2, length - 1] {
                    for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let before = std::mem::replace(&mut x[place], wrong);
                        assert!(!finite(level, &x), "{level} {place}");
                        x[place] = before;
                    }
                }
            }
            assert!(finite(level, &[]));
        }
    }
}

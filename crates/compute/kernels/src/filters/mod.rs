//! Filters of many channels at once. Vectors span the channels, so each channel is computed as scalar code would.
//!
//! **Denormals** make some CPUs up to a hundred times slower, and a filter decays into them after its input ends. States and outputs are never
//! denormal: magnitudes below [`Real::TINY`] become 0, in the input as well. A product underflows only if a coefficient is extremely small.
//!
//! **Non-finite numbers** are replaced by 0 at the input and the output, and counted per channel. A filter therefore recovers as soon as its
//! input does, and no channel affects another.
//!
//! **Order.** No operations are fused and channels are independent: all levels give the same bits, for any split of channels over workers.
//!
//! **State is double-buffered**: a step does not overwrite what it reads, so the last step can be undone (`take_back`), for example to repeat a
//! frame.

mod biquads;
mod fir;

pub use biquads::{Biquads, Section};
pub use fir::Fir;

use crate::level::wide::LANES;
use std::fmt;
use std::ops::{Add, Mul, Sub};

/// Numbers of filters: f32 and f64.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + fmt::Display
    + sealed::Sealed
{
    /// Smaller magnitudes become 0: 1e-30 for f32, 1e-290 for f64.
    const TINY: Self;

    /// Absolute value.
    #[must_use]
    fn magnitude(self) -> Self;

    /// The number is finite.
    #[must_use]
    fn bounded(self) -> bool;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! real {
    ($($real:ident, $tiny:literal;)*) => {$(
        impl sealed::Sealed for $real {}

        impl Real for $real {
            const TINY: Self = $tiny;

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn bounded(self) -> bool {
                self.abs() <= Self::MAX
            }
        }
    )*};
}
real! {
    f32, 1e-30;
    f64, 1e-290;
}

/// An invalid filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BadFilter {
    /// The filter has no channels, sections or taps.
    Empty(&'static str),
    /// A coefficient that is not finite.
    Coefficient {
        /// Index of the section or tap.
        part: usize,
        /// The coefficient.
        value: f64,
    },
    /// The channel or section does not exist.
    Beyond {
        /// Kind of the missing item.
        what: &'static str,
        /// Requested index.
        found: usize,
        /// Number of existing items.
        of: usize,
    },
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(what) => write!(f, "a filter without {what}: expected 1 or more"),
            Self::Coefficient { part, value } => {
                write!(f, "coefficient {value} of section or tap {part}: expected a finite number")
            }
            Self::Beyond { what, found, of } => write!(f, "{what} {found}: there are {of}, numbered from 0"),
        }
    }
}

impl std::error::Error for BadFilter {}

/// The number to store: zero if it is tiny or not finite.
#[inline(always)]
fn kept<T: Real>(number: T) -> T {
    // NaN fails both conditions.
    if number.magnitude() >= T::TINY && number.bounded() { number } else { T::default() }
}

/// Number of channels, padded to whole registers of every level.
const fn filled(channels: usize) -> usize {
    channels.next_multiple_of(LANES)
}

/// Loads a register from index `at`, with zeros beyond the end.
#[inline(always)]
fn load<T: Real, const N: usize>(from: &[T], at: usize) -> [T; N] {
    match from.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(whole) => *whole,
        None => std::array::from_fn(|lane| from.get(at + lane).copied().unwrap_or_default()),
    }
}

/// Stores a register at index `at`, without the numbers beyond the end.
#[inline(always)]
fn store<T: Real, const N: usize>(numbers: [T; N], to: &mut [T], at: usize) {
    let Some(to) = to.get_mut(at..) else { return };
    match to.first_chunk_mut::<N>() {
        Some(whole) => *whole = numbers,
        None => to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number),
    }
}

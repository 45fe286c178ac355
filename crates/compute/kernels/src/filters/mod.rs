//! Filters of many channels at once: vectors lie across the channels, so a channel's filter is as plain code computes it.
//!
//! **Denormals** take some CPUs a hundred times as long, and a filter whose input has ended decays into them. No state and no output is
//! ever one: what is below [`Real::TINY`] becomes 0, in the input, too. A product underflows only where a coefficient is so small as to make it.
//!
//! **What is not finite** counts as 0 where it comes in or comes out, and is counted, channel by channel; so a filter is in order as soon as
//! its input is, and no channel reaches another.
//!
//! **Order.** Nothing is fused, and no channel needs another: all levels give the same bits, for any split of channels over workers.
//!
//! **State is double-buffered**: a step writes beside what it reads, so that the last one can be taken back (`take_back`), as when a frame is
//! repeated.

mod biquads;
mod fir;

pub use biquads::{Biquads, Section};
pub use fir::Fir;

use crate::level::wide::LANES;
use std::fmt;
use std::ops::{Add, Mul, Sub};

/// Numbers that filters are made of: f32 and f64.
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
    /// What is below this becomes 0: 1e-30 of f32, 1e-290 of f64.
    const TINY: Self;

    /// Its magnitude.
    #[must_use]
    fn magnitude(self) -> Self;

    /// Whether it is a number and not infinite.
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

/// A filter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BadFilter {
    /// Without channels, sections or taps.
    Empty(&'static str),
    /// A coefficient that is not finite.
    Coefficient {
        /// Of which section or tap.
        part: usize,
        /// The coefficient.
        value: f64,
    },
    /// There is no such channel, or section.
    Beyond {
        /// What there is none of.
        what: &'static str,
        /// Which was named.
        found: usize,
        /// How many there are.
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

/// The number as it may be kept.
#[inline(always)]
fn kept<T: Real>(number: T) -> T {
    // What is no number fails both.
    if number.magnitude() >= T::TINY && number.bounded() { number } else { T::default() }
}

/// Channels filled up to whole registers of every level.
const fn filled(channels: usize) -> usize {
    channels.next_multiple_of(LANES)
}

/// A register's numbers from `at` on; zeros beyond the end.
#[inline(always)]
fn load<T: Real, const N: usize>(from: &[T], at: usize) -> [T; N] {
    match from.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(whole) => *whole,
        None => std::array::from_fn(|lane| from.get(at + lane).copied().unwrap_or_default()),
    }
}

/// A register's numbers to `at` and on; those beyond the end nowhere.
#[inline(always)]
fn store<T: Real, const N: usize>(numbers: [T; N], to: &mut [T], at: usize) {
    let Some(to) = to.get_mut(at..) else { return };
    match to.first_chunk_mut::<N>() {
        Some(whole) => *whole = numbers,
        None => to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number),
    }
}

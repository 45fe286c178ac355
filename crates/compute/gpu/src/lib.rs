//! Matrix times vector, and a frame of adaptive optics, on a graphics card: to compare with CPUs, not for a loop.
//!
//! What is the same in each frame (matrix, calibration) stays on the card; vectors or pixels go there and results come back in each call, so
//! its time has both ways in it. Without the feature `cuda`, without a driver, without a card: [`Gpu::open`] says which.
//!
//! Never here: files, clocks, threads of its own; a panic where there is no card. Calls allocate on the host where the driver does, and block.
#![allow(unsafe_code, reason = "programs of another processor")]

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod none;

#[cfg(feature = "cuda")]
pub use cuda::{Frame, Gpu, Matrix};
#[cfg(not(feature = "cuda"))]
pub use none::{Frame, Gpu, Matrix};

/// What a frame of adaptive optics is computed from: all of it stays on the card.
#[derive(Clone, Copy, Debug)]
pub struct Sensor<'a> {
    /// Pixels of a line of the image.
    pub width: usize,
    /// The first pixel of each sub-aperture of 8 × 8 pixels, in the image.
    pub corners: &'a [usize],
    /// Of each pixel of the image.
    pub dark: &'a [f32],
    /// Of each pixel of the image.
    pub gain: &'a [f32],
    /// What is taken off each calibrated pixel.
    pub threshold: f32,
    /// A sub-aperture with no more flux than this counts as zero.
    pub flux_min: f32,
    /// A row for each actuator, a column for each slope; row by row.
    pub reconstructor: &'a [f32],
}

/// Why there is no card, or it did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// Left out when this program was built.
    #[error("this program was built without NVIDIA's driver; expected one built with the feature `cuda`")]
    NotBuilt,
    /// No driver.
    #[error(
        "NVIDIA's driver (libcuda.so.1) is not on this machine; expected a machine with such a card and its driver"
    )]
    NoDriver,
    /// A driver, and no card.
    #[error("NVIDIA's driver is here and finds no card; expected one (`nvidia-smi` lists them)")]
    NoCard,
    /// The driver has refused something.
    #[error("{doing}: NVIDIA's driver says {said}")]
    Refused {
        /// What was asked for.
        doing: &'static str,
        /// Its answer.
        said: String,
    },
    /// A size that does not fit.
    #[error("{what}: found {found}, expected {expected}")]
    Size {
        /// Of what.
        what: &'static str,
        /// As it is.
        found: usize,
        /// As it has to be.
        expected: usize,
    },
}

impl GpuError {
    #[cfg(feature = "cuda")]
    fn check(what: &'static str, found: usize, expected: usize) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self::Size { what, found, expected }) }
    }
}

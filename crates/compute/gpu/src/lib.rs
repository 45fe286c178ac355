//! Matrix times vector, and a frame of adaptive optics, on a graphics card. For comparison with CPUs, not for use in a loop.
//!
//! The data that do not change between frames (matrix, calibration) stay on the card. Each call copies its vector or pixels to the card and
//! the results back, so the measured time includes both transfers. Without the feature `cuda`, a driver or a card, [`Gpu::open`] returns an
//! error that names the missing part.
//!
//! The crate uses no files, clocks or threads, and does not panic if there is no card. Calls block. They allocate on the host if the driver
//! does.
#![allow(unsafe_code, reason = "programs of another processor")]

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod none;

#[cfg(feature = "cuda")]
pub use cuda::{Frame, Gpu, Matrix};
#[cfg(not(feature = "cuda"))]
pub use none::{Frame, Gpu, Matrix};

/// A sensor with its reconstructor, the input of a frame of adaptive optics. All of it stays on the card.
#[derive(Clone, Copy, Debug)]
pub struct Sensor<'a> {
    /// Pixels per line of the image.
    pub width: usize,
    /// Index in the image of the first pixel of each sub-aperture of 8 × 8 pixels.
    pub corners: &'a [usize],
    /// Dark value of each pixel of the image.
    pub dark: &'a [f32],
    /// Gain of each pixel of the image.
    pub gain: &'a [f32],
    /// Subtracted from each calibrated pixel. Negative results count as zero.
    pub threshold: f32,
    /// A sub-aperture whose flux is not above this has slopes of zero.
    pub flux_min: f32,
    /// Row-major matrix with one row per actuator and one column per slope.
    pub reconstructor: &'a [f32],
}

/// Why there is no card, or why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The feature `cuda` was off when this program was built.
    #[error("this program was built without NVIDIA's driver; expected one built with the feature `cuda`")]
    NotBuilt,
    /// NVIDIA's driver is missing.
    #[error(
        "NVIDIA's driver (libcuda.so.1) is not on this machine; expected a machine with such a card and its driver"
    )]
    NoDriver,
    /// The driver is installed, but finds no card.
    #[error("NVIDIA's driver is here and finds no card; expected one (`nvidia-smi` lists them)")]
    NoCard,
    /// The driver refused a call.
    #[error("{doing}: NVIDIA's driver reports {said}")]
    Refused {
        /// The refused action.
        doing: &'static str,
        /// The driver's answer.
        said: String,
    },
    /// A size does not match, or is too large.
    #[error("{what}: found {found}, expected {expected}")]
    Size {
        /// The object that has this size.
        what: &'static str,
        /// The size found.
        found: usize,
        /// The size expected, or the maximum.
        expected: usize,
    },
}

impl GpuError {
    #[cfg(feature = "cuda")]
    fn check(what: &'static str, found: usize, expected: usize) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self::Size { what, found, expected }) }
    }
}

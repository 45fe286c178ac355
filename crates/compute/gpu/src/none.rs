//! Implementation without the feature `cuda`: [`Gpu`] cannot be constructed, so its methods are never called.

use crate::{GpuError, Sensor};
use std::convert::Infallible;

/// A card.
#[derive(Debug)]
pub struct Gpu(Infallible);

/// A matrix on the card.
#[derive(Debug)]
pub struct Matrix(Infallible);

/// A sensor and its reconstructor on the card.
#[derive(Debug)]
pub struct Frame(Infallible);

impl Gpu {
    /// The first card.
    ///
    /// # Errors
    /// Always [`GpuError::NotBuilt`].
    pub const fn open() -> Result<Self, GpuError> {
        Err(GpuError::NotBuilt)
    }

    /// Name of the card.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// A matrix that stays on the card.
    ///
    /// # Errors
    /// None: there is no card.
    pub fn matrix(&self, _rows: usize, _columns: usize, _matrix: &[f32]) -> Result<Matrix, GpuError> {
        match self.0 {}
    }

    /// A sensor that stays on the card.
    ///
    /// # Errors
    /// None: there is no card.
    pub fn frame(&self, _sensor: &Sensor<'_>) -> Result<Frame, GpuError> {
        match self.0 {}
    }
}

impl Matrix {
    /// `y` = matrix times `x`.
    ///
    /// # Errors
    /// None: there is no card.
    pub fn multiply(&mut self, _x: &[f32], _y: &mut [f32]) -> Result<(), GpuError> {
        match self.0 {}
    }
}

impl Frame {
    /// The error of each actuator.
    ///
    /// # Errors
    /// None: there is no card.
    pub fn compute(&mut self, _image: &[u16], _error: &mut [f32]) -> Result<(), GpuError> {
        match self.0 {}
    }
}

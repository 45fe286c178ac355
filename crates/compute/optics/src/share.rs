//! The reconstructor, divided among a team. Each worker computes some actuators, and adds each row of sub-apertures when it is available.

use crate::geometry::Geometry;
use kernels::{F16, Level, Misfit, PANEL, Panels, Scaled};
use std::ops::Range;

/// A worker's part of the reconstructor: some actuators, with a block of columns for each row of sub-apertures. Processing a frame neither
/// allocates nor blocks.
#[derive(Debug)]
pub struct Share {
    actuators: Range<usize>,
    /// Range of slopes of each row.
    ranges: Vec<Range<usize>>,
    blocks: Blocks,
    product: Vec<f32>,
    error: Vec<f32>,
}

/// Number format of the reconstructor's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// 8 bits, with a scale for each actuator and row of sub-apertures. Reads a quarter of the memory of `Single` per frame. The maximum error
    /// of an element is 1/254 of the largest element of its actuator and row. The residual wavefront changes by less than 2 %. See [`Scaled`].
    #[default]
    Byte,
    /// 16 bits with 11 bits of precision. Reads half of the memory of `Single` per frame. Sums have 24 bits of precision.
    Half,
    /// 32 bits.
    Single,
}

#[derive(Debug)]
enum Blocks {
    Byte(Scaled),
    Half(Vec<Panels<F16>>),
    Single(Vec<Panels<f32>>),
}

impl Share {
    /// The actuators of some panels of a reconstructor in row-major order. Allocates; the calling thread touches the memory first. `prepare`
    /// receives the large allocation before that, for example to advise huge pages.
    ///
    /// # Panics
    /// A row has more than 256 sub-apertures. No [`Geometry`] has such a row.
    #[must_use]
    pub fn new(
        geometry: &Geometry,
        inverse: &[f32],
        stored: Stored,
        panels: &Range<usize>,
        prepare: impl FnOnce(&mut [i8]),
    ) -> Self {
        let (all, slopes) = (geometry.actuators().len(), 2 * geometry.apertures().len());
        let actuators = (panels.start * PANEL).min(all)..(panels.end * PANEL).min(all);
        let ranges: Vec<Range<usize>> = (0..geometry.across()).map(|row| slopes_of(geometry, row)).collect();
        let at = |row: usize, column: usize| {
            inverse.get((actuators.start + row) * slopes + column).copied().unwrap_or_default()
        };
        let rows = actuators.len();
        let half = |columns: &Range<usize>| {
            Panels::pack_with(rows, columns.len(), |row, column| F16::from_f32(at(row, columns.start + column)), |_| ())
        };
        let single = |columns: &Range<usize>| {
            Panels::pack_with(rows, columns.len(), |row, column| at(row, columns.start + column), |_| ())
        };
        let widths: Vec<usize> = ranges.iter().map(ExactSizeIterator::len).collect();
        let byte = || Scaled::pack_with(rows, &widths, at, prepare).expect("a row of at most 512 slopes");
        let blocks = match stored {
            Stored::Byte => Blocks::Byte(byte()),
            Stored::Half => Blocks::Half(ranges.iter().map(half).collect()),
            Stored::Single => Blocks::Single(ranges.iter().map(single).collect()),
        };
        let zeros = vec![0.0; actuators.len()];
        Self { actuators, ranges, blocks, product: zeros.clone(), error: zeros }
    }

    /// Number of panels of all actuators, to be divided among workers.
    #[must_use]
    pub fn panels(geometry: &Geometry) -> usize {
        geometry.actuators().len().div_ceil(PANEL)
    }

    /// Range of actuators.
    #[must_use]
    pub fn actuators(&self) -> Range<usize> {
        self.actuators.clone()
    }

    /// Error of each actuator, summed over the added rows.
    #[must_use]
    pub fn error(&self) -> &[f32] {
        &self.error
    }

    /// Adds the contribution of a row's slopes. With `first` the sum starts at zero. `slopes` holds the slopes of all rows; only those of `row`
    /// are read.
    ///
    /// # Errors
    /// `slopes` is too short for the row. Nothing was added. A row that does not exist is ignored.
    pub fn add(&mut self, level: Level, row: usize, first: bool, slopes: &[f32]) -> Result<(), Misfit> {
        if first {
            self.error.fill(0.0);
        }
        let Some(x) = self.ranges.get(row).map(|range| slopes.get(range.clone()).unwrap_or_default()) else {
            return Ok(());
        };
        match &self.blocks {
            Blocks::Byte(blocks) => return blocks.add(level, row, x, &mut self.error),
            Blocks::Half(blocks) => blocks[row].multiply(level, x, &mut self.product)?,
            Blocks::Single(blocks) => blocks[row].multiply(level, x, &mut self.product)?,
        }
        self.error.iter_mut().zip(&self.product).for_each(|(error, product)| *error += product);
        Ok(())
    }
}

/// Range of the slopes of a row of sub-apertures.
#[must_use]
pub fn slopes_of(geometry: &Geometry, row: usize) -> Range<usize> {
    let apertures = geometry.row(row);
    2 * apertures.start..2 * apertures.end
}

/// Root mean square.
#[must_use]
pub fn rms(values: &[f32]) -> f32 {
    // Sixteen independent sums avoid a dependency between additions.
    let (whole, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in whole {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value * value);
    }
    let rest = rest.iter().map(|value| value * value).sum::<f32>();
    ((sums.iter().sum::<f32>() + rest) / values.len().max(1) as f32).sqrt()
}

/// Converts little-endian bytes to 16-bit pixels, up to the shorter length.
pub fn unpack(bytes: &[u8], to: &mut [u16]) {
    for (to, from) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *to = u16::from_le_bytes(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_reconstructor_give_its_result_with_rows_in_any_order() {
        let geometry = Geometry::new(6).unwrap();
        let (actuators, slopes) = (geometry.actuators().len(), 2 * geometry.apertures().len());
        let inverse: Vec<f32> = (0..actuators * slopes).map(|place| (place % 7) as f32 - 3.0).collect();
        let all: Vec<f32> = (0..slopes).map(|slope| (slope % 5) as f32).collect();
        let panels = Share::panels(&geometry);
        let cases = [(0..panels / 2, Stored::Half), (panels / 2..panels, Stored::Single), (1..panels, Stored::Byte)];
        for (part, stored) in cases {
            let mut share = Share::new(&geometry, &inverse, stored, &part, |_| ());
            for (number, row) in [5, 3, 0, 1, 2, 4].into_iter().enumerate() {
                share.add(Level::best(), row, number == 0, &all).unwrap();
            }
            for (actuator, error) in share.actuators().zip(share.error()) {
                let row = &inverse[actuator * slopes..][..slopes];
                let exact = row.iter().zip(&all).map(|(a, b)| a * b).sum::<f32>();
                // The elements are up to 3 and the slopes up to 4, with 8 bits.
                let bound = if stored == Stored::Byte { slopes as f32 * 12.0 / 250.0 } else { 0.0 };
                assert!((error - exact).abs() <= bound, "{stored:?}: {error} instead of {exact}");
            }
            assert!(share.add(Level::best(), 1, false, &all[..3]).is_err());
        }
        assert_eq!(rms(&[3.0, 4.0]), 12.5f32.sqrt());
    }
}

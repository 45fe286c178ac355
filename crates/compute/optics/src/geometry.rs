//! Layout of sub-apertures and actuators: Fried geometry, with an actuator at each corner of a sub-aperture.

use std::ops::Range;

/// Side of a sub-aperture, in pixels.
pub const SIDE: usize = 8;
/// Maximum number of sub-apertures across the pupil.
pub const ACROSS_MAX: usize = 128;
/// Radius of the central obstruction by the secondary mirror, relative to the pupil's radius.
const OBSTRUCTION: f64 = 0.14;

/// The number of sub-apertures is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} sub-apertures across the pupil; expected 4 to {ACROSS_MAX}")]
pub struct GeometryError {
    found: usize,
}

/// Illuminated sub-apertures, row by row, and the actuators at their corners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    across: usize,
    apertures: Vec<(usize, usize)>,
    /// End index of each row in `apertures`.
    ends: Vec<usize>,
    actuators: Vec<(usize, usize)>,
}

impl Geometry {
    /// A round pupil with `across` sub-apertures across. Allocates.
    ///
    /// # Errors
    /// `across` is less than 4 or more than [`ACROSS_MAX`].
    pub fn new(across: usize) -> Result<Self, GeometryError> {
        if !(4..=ACROSS_MAX).contains(&across) {
            return Err(GeometryError { found: across });
        }
        let half = across as f64 / 2.0;
        let lit = |column: usize, row: usize| {
            let radius = (column as f64 + 0.5 - half).hypot(row as f64 + 0.5 - half) / half;
            (OBSTRUCTION..=1.0).contains(&radius)
        };
        let (mut apertures, mut ends) = (Vec::new(), Vec::new());
        for row in 0..across {
            apertures.extend((0..across).filter(|column| lit(*column, row)).map(|column| (column, row)));
            ends.push(apertures.len());
        }
        let mut corner = vec![false; (across + 1) * (across + 1)];
        for (column, row) in &apertures {
            for (x, y) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                corner[(row + y) * (across + 1) + column + x] = true;
            }
        }
        let places = corner.iter().enumerate().filter(|(_, used)| **used);
        let actuators = places.map(|(place, _)| (place % (across + 1), place / (across + 1))).collect();
        Ok(Self { across, apertures, ends, actuators })
    }

    /// Number of sub-apertures across the pupil. Also the number of rows of a frame.
    #[must_use]
    pub const fn across(&self) -> usize {
        self.across
    }

    /// Number of corners in a line: one more than sub-apertures.
    #[must_use]
    pub const fn points(&self) -> usize {
        self.across + 1
    }

    /// Side of the image, in pixels.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.across * SIDE
    }

    /// Bytes of a row of sub-apertures: eight lines of 16-bit pixels.
    #[must_use]
    pub const fn row_bytes(&self) -> usize {
        self.width() * SIDE * 2
    }

    /// Column and row of each illuminated sub-aperture.
    #[must_use]
    pub fn apertures(&self) -> &[(usize, usize)] {
        &self.apertures
    }

    /// Range of the sub-apertures in a row. Empty if the row does not exist.
    #[must_use]
    pub fn row(&self, row: usize) -> Range<usize> {
        let end = |row: usize| self.ends.get(row).copied().unwrap_or(self.apertures.len());
        if row == 0 { 0..end(0) } else { end(row - 1)..end(row) }
    }

    /// Top left pixel of each sub-aperture.
    #[must_use]
    pub fn corners(&self) -> Vec<(usize, usize)> {
        self.apertures.iter().map(|(column, row)| (column * SIDE, row * SIDE)).collect()
    }

    /// Column and line of each actuator in the grid of corners.
    #[must_use]
    pub fn actuators(&self) -> &[(usize, usize)] {
        &self.actuators
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_sub_apertures_across_are_1240_with_1332_actuators() {
        let geometry = Geometry::new(40).unwrap();
        assert_eq!((geometry.apertures().len(), geometry.actuators().len()), (1240, 1332));
        assert_eq!((geometry.width(), geometry.row_bytes()), (320, 5120));
        let rows: Vec<_> = (0..40).map(|row| geometry.row(row)).collect();
        assert!(rows.windows(2).all(|pair| pair[0].end == pair[1].start) && rows[39].end == 1240);
        assert!(geometry.row(7).all(|aperture| geometry.apertures()[aperture].1 == 7));
        assert!(geometry.row(40).is_empty());
        assert!(Geometry::new(3).unwrap_err().to_string().contains("expected 4 to 128"));
    }
}

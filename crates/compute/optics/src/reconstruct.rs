//! Reconstruction of actuator commands from slopes: the measured response to each actuator, and its regularised inverse.
//!
//! For use before a loop: it allocates, and takes about one second for 1,300 actuators.

use crate::geometry::Geometry;

/// Distance between actuators that are poked together, in each direction. An actuator also moves its neighbours' places, and a sub-aperture
/// depends on its four corners. At this distance no sub-aperture responds to two of them.
const APART: usize = 4;

/// Response of the slopes to each actuator, in pixels per nanometre. Only non-zero parts are stored.
#[derive(Clone, Debug)]
pub struct Interaction {
    slopes: usize,
    columns: Vec<Vec<(usize, f32)>>,
}

/// A matrix without an inverse.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "the interaction matrix has no inverse with a regularisation of {regularisation}: actuator {actuator} is not seen; expected more of it, or a poke that moves the spots"
)]
pub struct Singular {
    actuator: usize,
    regularisation: f64,
}

/// Groups of actuators that are poked together.
#[must_use]
pub fn patterns(geometry: &Geometry) -> Vec<Vec<usize>> {
    let mut patterns = vec![Vec::new(); APART * APART];
    for (actuator, (column, line)) in geometry.actuators().iter().enumerate() {
        patterns[line % APART * APART + column % APART].push(actuator);
    }
    patterns.retain(|pattern| !pattern.is_empty());
    patterns
}

impl Interaction {
    /// An empty interaction matrix.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        Self { slopes: 2 * geometry.apertures().len(), columns: vec![Vec::new(); geometry.actuators().len()] }
    }

    /// Stores the response to a pattern: slopes (x, y, x, y …, by sub-aperture) per nanometre of each of its actuators.
    pub fn poked(&mut self, geometry: &Geometry, pattern: &[usize], slopes: &[f32]) {
        for actuator in pattern {
            let (column, line) = geometry.actuators()[*actuator];
            // Includes sub-apertures one place further, because neighbours move along with an actuator.
            let near = |at: usize, of: usize| at + 2 >= of && at <= of + 1;
            let apertures = geometry.apertures().iter().enumerate();
            let seen = apertures.filter(|(_, (x, y))| near(*x, column) && near(*y, line));
            let both = seen.flat_map(|(aperture, _)| [2 * aperture, 2 * aperture + 1]);
            self.columns[*actuator] = both.filter_map(|slope| slopes.get(slope).map(|value| (slope, *value))).collect();
        }
    }

    /// The reconstructor `(DᵀD + r·I)⁻¹·Dᵀ`, where `r` is `regularisation` times the mean of the diagonal of `DᵀD`. In row-major order, one row
    /// per actuator.
    ///
    /// # Errors
    /// The matrix has no inverse.
    pub fn inverse(&self, regularisation: f64) -> Result<Vec<f32>, Singular> {
        let n = self.columns.len();
        let mut rows = vec![Vec::new(); self.slopes];
        for (actuator, column) in self.columns.iter().enumerate() {
            column.iter().for_each(|(slope, value)| rows[*slope].push((actuator, f64::from(*value))));
        }
        let mut normal = vec![0.0; n * n];
        for row in &rows {
            for (a, x) in row {
                row.iter().for_each(|(b, y)| normal[a * n + b] += x * y);
            }
        }
        let trace: f64 = (0..n).map(|place| normal[place * n + place]).sum();
        (0..n).for_each(|place| normal[place * n + place] += regularisation * trace / n.max(1) as f64);
        let inverse = inverted(normal, n).map_err(|actuator| Singular { actuator, regularisation })?;
        let mut result = vec![0.0f32; n * self.slopes];
        for (slope, row) in rows.iter().enumerate() {
            for (actuator, line) in inverse.chunks_exact(n).enumerate() {
                let sum: f64 = row.iter().map(|(other, value)| line[*other] * value).sum();
                result[actuator * self.slopes + slope] = sum as f32;
            }
        }
        Ok(result)
    }
}

/// Inverse of a symmetric positive definite matrix by Cholesky decomposition. Fails with the first row at which the matrix is not positive
/// definite.
fn inverted(mut matrix: Vec<f64>, n: usize) -> Result<Vec<f64>, usize> {
    // L, row by row, in the lower half.
    for row in 0..n {
        let (above, here) = matrix.split_at_mut(row * n);
        for column in 0..row {
            let other = &above[column * n..][..=column];
            here[column] = (here[column] - dot(&here[..column], &other[..column])) / other[column];
        }
        let square = here[row] - dot(&here[..row], &here[..row]);
        // Also rejects NaN.
        if !(square > 0.0 && square.is_finite()) {
            return Err(row);
        }
        here[row] = square.sqrt();
    }
    // The inverse of L, in place.
    for row in 0..n {
        let (above, here) = matrix.split_at_mut(row * n);
        let pivot = here[row];
        let factors = here[..row].to_vec();
        here[..row].fill(0.0);
        for (column, factor) in factors.iter().enumerate() {
            add(&mut here[..=column], -factor / pivot, &above[column * n..][..=column]);
        }
        here[row] = 1.0 / pivot;
    }
    // The product of its transpose and itself: the lower half first, then the upper.
    let mut inverse = vec![0.0; n * n];
    for row in matrix.chunks_exact(n.max(1)).enumerate().map(|(number, row)| &row[..=number]) {
        for (line, factor) in row.iter().enumerate() {
            add(&mut inverse[line * n..][..=line], *factor, &row[..=line]);
        }
    }
    for row in 0..n {
        for column in 0..row {
            inverse[column * n + row] = inverse[row * n + column];
        }
    }
    Ok(inverse)
}

/// Dot product with eight partial sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((eights, rest), (others, more)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in eights.iter().zip(others) {
        (0..8).for_each(|lane| sums[lane] += a[lane] * b[lane]);
    }
    sums.iter().sum::<f64>() + rest.iter().zip(more).map(|(a, b)| a * b).sum::<f64>()
}

fn add(to: &mut [f64], factor: f64, what: &[f64]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += factor * what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let n = 37;
        let at = |row: usize, column: usize| {
            let (low, high) = (row.min(column), row.max(column));
            ((low * 31 + high * 17) % 13) as f64 / 13.0 + if row == column { 40.0 } else { 0.0 }
        };
        let matrix: Vec<f64> = (0..n * n).map(|place| at(place / n, place % n)).collect();
        let inverse = inverted(matrix.clone(), n).unwrap();
        for (row, column) in (0..n).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let product: f64 = (0..n).map(|k| matrix[row * n + k] * inverse[k * n + column]).sum();
            assert!((product - f64::from(u8::from(row == column))).abs() < 1e-12, "{row} {column}: {product}");
        }
        assert_eq!(inverted(vec![1.0, 0.0, 0.0, -1.0], 2), Err(1));
        assert_eq!(inverted(vec![1.0, 0.0, 0.0, f64::NAN], 2), Err(1));
    }

    #[test]
    fn no_sub_aperture_sees_two_actuators_of_a_pattern() {
        let geometry = Geometry::new(16).unwrap();
        let patterns = patterns(&geometry);
        assert_eq!((patterns.len(), patterns.iter().map(Vec::len).sum::<usize>()), (16, geometry.actuators().len()));
        for pattern in &patterns {
            let mut seen = Interaction::new(&geometry);
            seen.poked(&geometry, pattern, &vec![1.0; 2 * geometry.apertures().len()]);
            let mut slopes: Vec<usize> = seen.columns.iter().flatten().map(|(slope, _)| *slope).collect();
            let count = slopes.len();
            slopes.sort_unstable();
            slopes.dedup();
            assert_eq!(slopes.len(), count);
        }
        let blind = Interaction::new(&geometry).inverse(1e-3).unwrap_err().to_string();
        assert!(blind.contains("actuator 0 is not seen"), "{blind}");
    }
}

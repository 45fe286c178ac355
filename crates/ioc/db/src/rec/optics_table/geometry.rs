//! Geometry of a table on three legs: where its six motors stand for a position of its top, and the reverse.
//!
//! A position has three angles (radians) and three translations, in the order AX, AY, AZ, X, Y, Z. Motors are in the order 0X, 0Y,
//! 1Y, 2X, 2Y, 2Z: leg and direction. Positions are relative to the table's own axes.

use std::f64::consts::FRAC_PI_2;

pub(super) type Six = [f64; 6];
type Vector = [f64; 3];

/// Motors that tables with fewer than six do not have: 2X of NEWPORT, and 2Z.
const M2X: usize = 3;
const M2Z: usize = 5;

/// GEOM: arrangement of legs and motors.
const GEOCARS: u16 = 1;
const NEWPORT: u16 = 2;
const PNC: u16 = 3;

/// Most iterations of the reverse calculation, and its accuracy.
const ROUNDS: usize = 50;
const ACCURACY: f64 = 1e-12;
/// Factor below which two coordinates are the same motion.
const SINGULAR: f64 = 1e-6;
/// Difference of an angle from which the effect of angles is computed, in radians.
const NUDGE: f64 = 1e-6;

/// A table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    kind: u16,
    /// Pivot points of the legs, from the point that stays fixed when the table turns.
    pub(super) pivots: [Vector; 3],
    /// Whether the table has these motors.
    has_2x: bool,
    has_2z: bool,
}

/// Rotation about the three axes.
pub(super) fn rotation(angles: [f64; 3]) -> [Vector; 3] {
    let [(sx, cx), (sy, cy), (sz, cz)] = angles.map(f64::sin_cos);
    [
        [cy * cz, cy * sz, -sy],
        [sx * sy * cz - cx * sz, sx * sy * sz + cx * cz, sx * cy],
        [cx * sy * cz + sx * sz, cx * sy * sz - sx * cz, cx * cy],
    ]
}

/// Turns angles and translations about the vertical axis, from the laboratory's to the table's axes.
pub(super) fn turned(position: Six, degrees: f64) -> Six {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let turn = |x: f64, z: f64| (x * cos + z * sin, z * cos - x * sin);
    let [ax, ay, az, x, y, z] = position;
    let ((ax, az), (x, z)) = (turn(ax, az), turn(x, z));
    [ax, ay, az, x, y, z]
}

impl Geometry {
    /// A table with distances `lx` and `lz` between its legs. `fixed` is the fixed point, from the origin of the drawings.
    pub(super) fn new(kind: u16, (lx, lz): (f64, f64), fixed: Vector, motors: [bool; 6]) -> Self {
        let legs = match kind {
            GEOCARS => [(0.0, lz / 2.0), (lx, lz), (lx, 0.0)],
            NEWPORT => [(lx, 0.0), (0.0, lz / 2.0), (lx, lz)],
            PNC => [(0.0, 0.0), (lx, 0.0), (lx / 2.0, lz)],
            _ => [(lx, 0.0), (0.0, 0.0), (lx / 2.0, lz)],
        };
        let pivots = legs.map(|(x, z)| [x - fixed[0], -fixed[1], z - fixed[2]]);
        Self { kind, pivots, has_2x: motors[M2X], has_2z: motors[M2Z] }
    }

    /// Pivot points of the table in a position.
    pub(super) fn moved(&self, position: &Six) -> [Vector; 3] {
        let [ax, ay, az, x, y, z] = *position;
        let (matrix, shift) = (rotation([ax, ay, az]), [x, y, z]);
        self.pivots.map(|pivot| {
            let along = |axis: usize| (0..3).map(|from| matrix[axis][from] * pivot[from]).sum::<f64>() + shift[axis];
            [along(0), along(1), along(2)]
        })
    }

    /// Motors of a table that has all six.
    fn six(&self, position: &Six) -> Six {
        let moved = self.moved(position);
        let away = |leg: usize, axis: usize| moved[leg][axis] - self.pivots[leg][axis];
        if self.kind != NEWPORT {
            return [away(0, 0), away(0, 1), away(1, 1), away(2, 0), away(2, 1), away(2, 2)];
        }
        // The legs are normal to the top.
        let [ax, ay, az, ..] = *position;
        let normal = rotation([ax, ay, az]).map(|row| row[1]);
        let legs = [0, 1, 2].map(|leg| away(leg, 1) / normal[1]);
        [
            away(0, 0) - normal[0] * legs[0],
            legs[0],
            legs[1],
            away(2, 0) - normal[0] * legs[2],
            legs[2],
            away(2, 2) - normal[2] * legs[2],
        ]
    }

    /// Motors for a position. A missing motor determines the translation in its direction.
    pub(super) fn motors(&self, position: &Six) -> Six {
        let mut motors = self.six(position);
        if self.kind == NEWPORT && !self.has_2x {
            motors[0] -= motors[M2X];
            motors[M2X] = 0.0;
        }
        if !self.has_2z {
            motors[M2Z] = 0.0;
        }
        motors
    }

    /// Position of the table for its motors, searched from `near`. A missing motor is 0. `None` if there is no such position with
    /// angles below 90 degrees.
    pub(super) fn position(&self, motors: &Six, near: &Six) -> Option<Six> {
        let is_upright = |position: &Six| position[..3].iter().all(|angle| angle.abs() < FRAC_PI_2);
        let found = |start: &Six| self.search(motors, *start).filter(is_upright);
        [near, &[0.0; 6]].into_iter().filter(|start| is_upright(start)).find_map(found)
    }

    fn search(&self, motors: &Six, mut position: Six) -> Option<Six> {
        let size = self.pivots.iter().flatten().fold(1.0, |size: f64, part| size.max(part.abs()));
        for _ in 0..ROUNDS {
            let present = self.six(&position);
            let mut rows = [[0.0; 7]; 6];
            // An angle counts as the way of the farthest leg, so that all coordinates are lengths.
            let unit = |axis: usize| if axis < 3 { 1.0 / size } else { 1.0 };
            for axis in 0..6 {
                let step = if axis < 3 { NUDGE } else { 1.0 };
                let [mut above, mut below] = [position; 2];
                above[axis] += step;
                below[axis] -= step;
                let (above, below) = (self.six(&above), self.six(&below));
                for motor in 0..6 {
                    rows[motor][axis] = (above[motor] - below[motor]) / (2.0 * step) * unit(axis);
                }
            }
            for motor in 0..6 {
                rows[motor][6] = motors[motor] - present[motor];
            }
            let change = solve(rows)?;
            let mut largest = 0.0f64;
            for axis in 0..6 {
                position[axis] += change[axis] * unit(axis);
                largest = largest.max(change[axis].abs() / size);
            }
            if !largest.is_finite() {
                return None;
            }
            if largest < ACCURACY {
                return Some(position);
            }
        }
        None
    }
}

/// Solves six linear equations, given with their right sides. `None` if they have no single solution.
fn solve(mut rows: [[f64; 7]; 6]) -> Option<Six> {
    for column in 0..6 {
        let pivot = (column..6).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        if rows[pivot][column].abs() <= SINGULAR {
            return None;
        }
        rows.swap(column, pivot);
        let reference = rows[column];
        for row in rows.iter_mut().skip(column + 1) {
            let factor = row[column] / reference[column];
            row.iter_mut().zip(reference).for_each(|(place, part)| *place -= factor * part);
        }
    }
    let mut solution = [0.0; 6];
    for row in (0..6).rev() {
        let known: f64 = (row + 1..6).map(|column| rows[row][column] * solution[column]).sum();
        solution[row] = (rows[row][6] - known) / rows[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [bool; 6] = [true; 6];

    fn near(a: Six, b: Six) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?}, expected {b:?}");
    }

    #[test]
    fn translations_move_the_motors_of_their_direction() {
        for kind in 0..4 {
            let table = Geometry::new(kind, (1000.0, 2000.0), [300.0, 50.0, 400.0], ALL);
            near(table.motors(&[0.0, 0.0, 0.0, 1.0, 2.0, 3.0]), [1.0, 2.0, 2.0, 1.0, 2.0, 3.0]);
        }
    }

    #[test]
    fn the_fixed_point_stays_where_it_is_and_legs_rise_by_their_distance() {
        // SRI: M0 and M1 at z 0, M2 at z 2000. About x through M2, M0 and M1 move.
        let table = Geometry::new(0, (1000.0, 2000.0), [500.0, 0.0, 2000.0], ALL);
        let angle = 0.001f64;
        let [_, m0y, m1y, m2x, m2y, m2z] = table.motors(&[angle, 0.0, 0.0, 0.0, 0.0, 0.0]);
        near([m0y, m1y, m2x, m2y, m2z, 0.0], [-2000.0 * angle.sin(), -2000.0 * angle.sin(), 0.0, 0.0, 0.0, 0.0]);
        // About z, the legs of both sides move in opposite directions.
        let [_, m0y, m1y, _, m2y, _] = table.motors(&[0.0, 0.0, angle, 0.0, 0.0, 0.0]);
        near([m0y, m1y, m2y, 0.0, 0.0, 0.0], [-500.0 * angle.sin(), 500.0 * angle.sin(), 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_position_follows_from_its_motors_in_each_geometry() {
        let position = [0.02, -0.03, 0.05, 4.0, -5.0, 6.0];
        for kind in 0..4 {
            let table = Geometry::new(kind, (1000.0, 2000.0), [300.0, 50.0, 400.0], ALL);
            let motors = table.motors(&position);
            near(table.position(&motors, &[0.0; 6]).unwrap(), position);
        }
    }

    #[test]
    fn missing_motors_determine_a_translation() {
        for (kind, motors) in [(0, [true, true, true, true, true, false]), (2, [true, true, true, false, true, false])]
        {
            let table = Geometry::new(kind, (1000.0, 2000.0), [300.0, 50.0, 400.0], motors);
            let motors = table.motors(&[0.02, -0.03, 0.05, 0.0, -5.0, 6.0]);
            assert_eq!(motors[5], 0.0);
            let found = table.position(&motors, &[0.0; 6]).unwrap();
            near([found[0], found[1], found[2], found[4], 0.0, 0.0], [0.02, -0.03, 0.05, -5.0, 0.0, 0.0]);
            near(table.motors(&found), motors);
        }
    }

    #[test]
    fn a_table_without_size_has_no_position() {
        assert_eq!(Geometry::new(0, (0.0, 0.0), [0.0; 3], ALL).position(&[1.0; 6], &[0.0; 6]), None);
    }

    #[test]
    fn a_turned_table_exchanges_the_horizontal_axes() {
        near(turned([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 90.0), [3.0, 2.0, -1.0, 6.0, 5.0, -4.0]);
    }
}

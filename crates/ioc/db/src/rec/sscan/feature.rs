//! Features of measured data to which positioners can be sent after a scan.

/// PASM: what happens to the positioners after a scan.
pub(super) mod pasm {
    pub(in super::super) const STAY: u16 = 0;
    pub(in super::super) const START: u16 = 1;
    pub(in super::super) const PRIOR: u16 = 2;
    pub(in super::super) const PEAK: u16 = 3;
    pub(in super::super) const VALLEY: u16 = 4;
    pub(in super::super) const RISING_EDGE: u16 = 5;
    pub(in super::super) const FALLING_EDGE: u16 = 6;
    pub(in super::super) const CENTER_OF_MASS: u16 = 7;
    /// Names in messages.
    pub(in super::super) const NAMES: [&str; 8] =
        ["STAY", "START POS", "PRIOR POS", "PEAK POS", "VALLEY POS", "+EDGE POS", "-EDGE POS", "CNTR OF MASS"];
}

/// Smallest distance of two positions, and smallest area, by which anything is divided.
const SMALLEST: f64 = 1e-6;

fn apart(distance: f64) -> f64 {
    if distance.abs() < SMALLEST { SMALLEST.copysign(distance) } else { distance }
}

/// Index of the highest or lowest point of the data, or of their derivative. `None` if it does not stand out: the range must
/// exceed twice the mean difference of neighbours.
pub(super) fn point(mode: u16, positions: &[f64], data: &[f32]) -> Option<usize> {
    let count = positions.len().min(data.len());
    if count < 2 {
        return None;
    }
    let mut values: Vec<f64> = data[..count].iter().map(|value| f64::from(*value)).collect();
    if matches!(mode, pasm::RISING_EDGE | pasm::FALLING_EDGE) {
        let slope = |at: usize| (values[at + 1] - values[at - 1]) / apart(positions[at + 1] - positions[at - 1]);
        let mut slopes: Vec<f64> = (1..count - 1).map(slope).collect();
        // The ends have the slopes of their neighbours.
        slopes.insert(0, *slopes.first()?);
        slopes.push(*slopes.last()?);
        values = slopes;
    }
    let differences: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
    let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
    // Of equal points the first.
    let high = (0..count).rev().max_by(by_value)?;
    let low = (0..count).min_by(by_value)?;
    let stands_out = values[high] - values[low] > 2.0 * differences / (count - 1) as f64;
    stands_out.then_some(if matches!(mode, pasm::VALLEY | pasm::FALLING_EDGE) { low } else { high })
}

/// Centre of mass of the data over the positions; `None` if the area under the data is 0.
pub(super) fn center_of_mass(positions: &[f64], data: &[f32]) -> Option<f64> {
    let (mut moment, mut area) = (0.0, 0.0);
    for (x, y) in positions.windows(2).zip(data.windows(2)) {
        let part = f64::from(y[0] + y[1]) / 2.0 * apart(x[1] - x[0]);
        moment += part * (x[0] + x[1]) / 2.0;
        area += part;
    }
    (area.abs() > SMALLEST).then(|| moment / area)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f64; 7] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    #[test]
    fn peaks_valleys_and_edges_are_found_where_they_stand_out() {
        let bump = [0.0, 0.0, 1.0, 9.0, 1.0, 0.0, 0.0];
        assert_eq!(point(pasm::PEAK, &X, &bump), Some(3));
        assert_eq!(point(pasm::VALLEY, &X, &bump.map(|y: f32| -y)), Some(3));
        let stairs = [0.0, 0.0, 0.0, 5.0, 10.0, 10.0, 10.0];
        assert_eq!(point(pasm::RISING_EDGE, &X, &stairs), Some(3));
        assert_eq!(point(pasm::FALLING_EDGE, &X, &stairs.map(|y: f32| -y)), Some(3));
        assert_eq!(point(pasm::PEAK, &X, &[1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]), None, "noise");
        assert_eq!(point(pasm::PEAK, &X[..1], &[1.0]), None);
    }

    #[test]
    fn the_centre_of_mass_is_weighted_by_the_data() {
        assert_eq!(center_of_mass(&X, &[0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]), Some(4.0));
        assert_eq!(center_of_mass(&X, &[0.0; 7]), None);
    }
}

//! Interpolation and local regression of samples.

/// Share of the samples used for each local line.
const BANDWIDTH: f64 = 0.3;
/// Iterations that reduce the weight of outliers.
const ROBUST: usize = 2;
/// Smaller deviations count as zero.
const ACCURACY: f64 = 1e-12;
/// Larger sets of samples are thinned, because the cost grows with their square.
const SAMPLES_MAX: usize = 4_096;

/// Value at `x` by linear interpolation. The first value if `x` is not between two samples, NaN if there are none. Samples are ordered by x.
pub(crate) fn linear(samples: &[(f64, f64)], x: f64) -> f64 {
    let Some(first) = samples.first() else { return f64::NAN };
    let next = samples.partition_point(|(at, _)| *at <= x);
    match (next.checked_sub(1).and_then(|before| samples.get(before)), samples.get(next)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((x0, y0)), None) if x0.total_cmp(&x).is_eq() => *y0,
        _ => first.1,
    }
}

/// Value at `x` by Cleveland's robust local regression and a natural spline through the smoothed values. The first value if there are too few
/// samples or `x` is not between two.
pub(crate) fn loess(samples: &[(f64, f64)], x: f64) -> f64 {
    let Some(first) = samples.first() else { return f64::NAN };
    let step = samples.len().div_ceil(SAMPLES_MAX);
    let mut few: Vec<(f64, f64)> = samples.iter().step_by(step).copied().collect();
    few.dedup_by(|later, earlier| later.0 <= earlier.0);
    let is_between = few.first().is_some_and(|first| first.0 <= x) && few.last().is_some_and(|last| x <= last.0);
    let near = (BANDWIDTH * few.len() as f64) as usize;
    if near < 2 || !is_between {
        return first.1;
    }
    let smooth = smooth(&few, near);
    spline(&few, &smooth, x)
}

/// Smoothed values of the samples, each from a local line through its `near` nearest neighbours.
fn smooth(samples: &[(f64, f64)], near: usize) -> Vec<f64> {
    let mut weights = vec![1.0; samples.len()];
    let mut smooth = vec![0.0; samples.len()];
    for turn in 0..=ROBUST {
        let (mut left, mut right) = (0, near - 1);
        for (index, (x, _)) in samples.iter().enumerate() {
            while right + 1 < samples.len() && samples[right + 1].0 - x < x - samples[left].0 {
                (left, right) = (left + 1, right + 1);
            }
            smooth[index] = local(&samples[left..=right], &weights[left..=right], *x);
        }
        if turn == ROBUST {
            break;
        }
        let far: Vec<f64> = samples.iter().zip(&smooth).map(|((_, y), on_line)| (y - on_line).abs()).collect();
        let mut sorted = far.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        if median < ACCURACY {
            break;
        }
        for (weight, far) in weights.iter_mut().zip(far) {
            let part = far / (6.0 * median);
            *weight = if part < 1.0 { (1.0 - part * part).powi(2) } else { 0.0 };
        }
    }
    smooth
}

/// Value at `x` of the weighted regression line. Near samples have more weight.
fn local(samples: &[(f64, f64)], robust: &[f64], x: f64) -> f64 {
    let reach = samples.iter().map(|(at, _)| (at - x).abs()).fold(0.0, f64::max) * 1.001;
    let (mut sum, mut sum_x, mut sum_xx, mut sum_y, mut sum_xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ((at, y), robust) in samples.iter().zip(robust) {
        // Relative to x. Squares of absolute seconds would lose the significant digits.
        let far = at - x;
        let part = if reach > 0.0 { far.abs() / reach } else { 0.0 };
        let weight = (1.0 - part.powi(3)).powi(3) * robust;
        sum += weight;
        sum_x += weight * far;
        sum_xx += weight * far * far;
        sum_y += weight * y;
        sum_xy += weight * far * y;
    }
    let (mean_x, mean_y) = (sum_x / sum, sum_y / sum);
    let spread = sum_xx / sum - mean_x * mean_x;
    let slope = if spread.abs().sqrt() < ACCURACY { 0.0 } else { (sum_xy / sum - mean_x * mean_y) / spread };
    mean_y - slope * mean_x
}

/// Value at `x` of the natural cubic spline through points.
fn spline(samples: &[(f64, f64)], values: &[f64], x: f64) -> f64 {
    let n = samples.len();
    let width = |index: usize| samples[index + 1].0 - samples[index].0;
    let slope = |index: usize| (values[index + 1] - values[index]) / width(index);
    // Halved second derivatives, by forward elimination and back substitution.
    let (mut upper, mut right) = (vec![0.0; n], vec![0.0; n]);
    for index in 1..n - 1 {
        let below = width(index - 1);
        let pivot = 2.0 * (below + width(index)) - below * upper[index - 1];
        upper[index] = width(index) / pivot;
        right[index] = (3.0 * (slope(index) - slope(index - 1)) - below * right[index - 1]) / pivot;
    }
    let mut curve = vec![0.0; n];
    for index in (1..n - 1).rev() {
        curve[index] = right[index] - upper[index] * curve[index + 1];
    }
    let index = samples.partition_point(|(at, _)| *at <= x).clamp(1, n - 1) - 1;
    let (far, h) = (x - samples[index].0, width(index));
    let first = slope(index) - h * (2.0 * curve[index] + curve[index + 1]) / 3.0;
    values[index] + far * (first + far * (curve[index] + far * (curve[index + 1] - curve[index]) / (3.0 * h)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_reproduced_by_loess_and_linear_regression() {
        let samples: Vec<(f64, f64)> = (0..100).map(|k| (f64::from(k) * 0.7, 3.0 - f64::from(k) * 0.35)).collect();
        for x in [0.1, 20.0, 33.3] {
            let expected = 3.0 - x / 2.0;
            assert!((linear(&samples, x) - expected).abs() < 1e-9, "{x}: {}", linear(&samples, x));
            assert!((loess(&samples, x) - expected).abs() < 1e-6, "{x}: {}", loess(&samples, x));
        }
    }

    #[test]
    fn an_outlier_hardly_changes_a_loess_value() {
        let mut samples: Vec<(f64, f64)> = (0..100).map(|k| (f64::from(k), (f64::from(k) / 20.0).sin())).collect();
        samples[50].1 = 1_000.0;
        assert!((loess(&samples, 50.0) - 2.5f64.sin()).abs() < 0.1, "{}", loess(&samples, 50.0));
        assert!((linear(&samples, 50.0) - 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn with_too_few_samples_or_outside_of_them_the_first_value_is_returned() {
        assert!(linear(&[], 1.0).is_nan() && loess(&[], 1.0).is_nan());
        let samples = [(1.0, 5.0), (2.0, 6.0)];
        assert_eq!((linear(&samples, 0.5), linear(&samples, 2.5), linear(&samples, 1.5)), (5.0, 5.0, 5.5));
        assert_eq!((linear(&samples, 2.0), loess(&samples, 1.5)), (6.0, 5.0));
        let same = [(1.0, 5.0); 20];
        assert_eq!(loess(&same, 1.0), 5.0);
    }
}

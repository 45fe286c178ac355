//! Wilcoxon rank-sum test with Holm's correction.

/// Maximum number of samples for the exact test; above it, the normal approximation is sufficient.
const EXACT_MAX: usize = 64;

/// One-sided p-value of the Wilcoxon rank-sum test: the probability that the new samples rank at least this high by chance.
/// Assumes no distribution of the samples.
pub(crate) fn rank_test(base: &[f64], new: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = base.iter().map(|value| (*value, false)).collect();
    all.extend(new.iter().map(|value| (*value, true)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let doubled = doubled_ranks(&all);
    let ours: usize = all.iter().zip(&doubled).filter(|((_, new), _)| *new).map(|(_, rank)| rank).sum();
    if all.len() <= EXACT_MAX { exact(&doubled, new.len(), ours) } else { normal(&doubled, new.len(), ours) }
}

/// Twice the rank of each, so that ties have an integer.
fn doubled_ranks(sorted: &[(f64, bool)]) -> Vec<usize> {
    let mut ranks = vec![0; sorted.len()];
    let mut from = 0;
    while from < sorted.len() {
        let alike = sorted[from..].iter().take_while(|(value, _)| *value == sorted[from].0).count().max(1);
        // The mean of the ranks from+1 to from+alike, doubled.
        ranks[from..from + alike].fill(2 * from + alike + 1);
        from += alike;
    }
    ranks
}

/// The share of all ways to choose `count` of the ranks whose sum is `sum` or more.
fn exact(doubled: &[usize], count: usize, sum: usize) -> f64 {
    let max: usize = doubled.iter().sum();
    // ways[chosen][sum]
    let mut ways = vec![vec![0.0f64; max + 1]; count + 1];
    ways[0][0] = 1.0;
    for rank in doubled {
        for chosen in (1..=count).rev() {
            let (less, this) = ways.split_at_mut(chosen);
            for (at, ways) in this[0].iter_mut().enumerate().skip(*rank) {
                *ways += less[chosen - 1][at - rank];
            }
        }
    }
    let all: f64 = ways[count].iter().sum();
    ways[count].iter().skip(sum).sum::<f64>() / all
}

/// The same by the normal approximation, with corrections for ties and continuity.
fn normal(doubled: &[usize], count: usize, sum: usize) -> f64 {
    let (all, count) = (doubled.len() as f64, count as f64);
    let mean = doubled.iter().sum::<usize>() as f64 / all;
    let spread = doubled.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum::<f64>() / (all - 1.0);
    let deviation = (spread * count * (all - count) / all).sqrt();
    if deviation == 0.0 { 1.0 } else { upper_tail((sum as f64 - 1.0 - count * mean) / deviation) }
}

/// The share of a normal distribution above `z` (Abramowitz and Stegun 26.2.17; error below 1e-7).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum: f64 = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z >= 0.0 { tail } else { 1.0 - tail }
}

/// p-values with Holm's correction, in the original order.
pub(crate) fn corrected(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let (mut corrected, mut floor) = (vec![1.0; p_values.len()], 0.0f64);
    for (place, nth) in order.into_iter().enumerate() {
        floor = floor.max(p_values[nth] * (p_values.len() - place) as f64).min(1.0);
        corrected[nth] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_ranks_have_the_probability_of_one_permutation() {
        let base = [1.0, 2.0, 3.0, 4.0];
        assert!((rank_test(&base, &[5.0, 6.0, 7.0, 8.0]) - 1.0 / 70.0).abs() < 1e-12);
        assert!((rank_test(&[5.0, 6.0, 7.0, 8.0], &base) - 1.0).abs() < 1e-12);
        assert!((rank_test(&[1.0; 4], &[1.0; 4]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_normal_approximation_agrees_with_the_exact_test() {
        let base: Vec<f64> = (0..32).map(f64::from).collect();
        let new: Vec<f64> = (0..32).map(|n| f64::from(n) + 6.5).collect();
        let mut all: Vec<(f64, bool)> = base.iter().map(|value| (*value, false)).collect();
        all.extend(new.iter().map(|value| (*value, true)));
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        let ranks = doubled_ranks(&all);
        let ours = all.iter().zip(&ranks).filter(|((_, new), _)| *new).map(|(_, rank)| rank).sum();
        assert!((exact(&ranks, 32, ours) - normal(&ranks, 32, ours)).abs() < 1e-3);
        assert!((upper_tail(1.644_853_6) - 0.05).abs() < 1e-6);
    }

    #[test]
    fn more_tests_raise_each_corrected_p_value() {
        assert_eq!(corrected(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.04]);
        assert_eq!(corrected(&[]), [0.0; 0]);
    }
}

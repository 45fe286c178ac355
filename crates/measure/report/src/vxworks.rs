//! Latencies as VxWorks' `jitterReport` prints them.

use crate::Latency;

const BINS: usize = 16;

/// Samples, maximum and average, and 16 bins with one star per doubling.
#[must_use]
pub fn vxworks(latency: &Latency) -> String {
    let us = |ns: i64| ns as f64 / 1000.0;
    let (max, mean) = (latency.max_ns.unwrap_or_default(), latency.mean_ns.unwrap_or_default());
    let mut text = format!(
        "TASK RESPONSE JITTER\n{:>12} {:>12} {:>12}\n{}\n{:>12} {:>12.3} {:>12.3}\n\nDistribution: [us]\n\n{:<22} {:>9}   {}\n{}\n",
        "Samples",
        "Maximum",
        "Average",
        "-".repeat(38),
        latency.count,
        us(max),
        us(mean),
        "Time Range",
        "Count",
        "Count (log scale)",
        "-".repeat(56),
    );
    let width = bin_width(max);
    for (index, count) in bins(latency, width).into_iter().enumerate() {
        let [low, high] = [index, index + 1].map(|edge| us(width.saturating_mul(edge as i64)));
        let stars = "*".repeat(if count == 0 { 0 } else { count.ilog2() as usize + 1 });
        text.push_str(&format!("{low:>9.3} - {high:>9.3} {count:>10}   {stars}\n"));
    }
    text
}

/// The smallest of 1, 2, 5, 10, … ns with 16 bins above the maximum.
fn bin_width(max_ns: i64) -> i64 {
    let scales = (0..18).map(|power| 10i64.pow(power));
    let widths = scales.flat_map(|scale| [1, 2, 5].map(|step| step * scale));
    widths
        .take_while(|width| *width < i64::MAX / 32)
        .find(|width| width * BINS as i64 > max_ns)
        .unwrap_or(i64::MAX / 32)
}

/// A bucket across an edge (buckets are up to 3 % wide) counts at its begin.
fn bins(latency: &Latency, width: i64) -> [u64; BINS] {
    let mut bins = [0u64; BINS];
    for (low, _, count) in &latency.buckets {
        let bin = &mut bins[((*low).max(0) / width).min(BINS as i64 - 1) as usize];
        *bin = bin.saturating_add(*count);
    }
    // Values beyond the histogram's range are the largest.
    bins[BINS - 1] = bins[BINS - 1].saturating_add(latency.overflow);
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{DurNs, Histogram};

    #[test]
    fn the_report_has_sixteen_bins_that_hold_every_sample() {
        let mut hist = Histogram::new();
        (0..1000).for_each(|index| hist.record(DurNs(index * 16)));
        let latency = Latency::from(&hist);
        assert_eq!(bin_width(15_984), 1000);
        assert_eq!(bins(&latency, 1000).iter().sum::<u64>(), 1000);
        let text = vxworks(&latency);
        assert!(text.contains("1000       15.984        7.992"), "{text}");
        assert_eq!(text.lines().count(), 9 + BINS);
        assert!(text.contains("    0.000 -     1.000         63   ******\n"), "{text}");
    }
}

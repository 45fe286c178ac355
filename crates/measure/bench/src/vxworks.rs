//! A histogram as VxWorks' `jitterReport` prints it.

use base::{DurNs, Histogram};

const BINS: usize = 16;

/// The report of S5.1: samples, maximum and average, 16 bins, one more star for each doubling.
pub(crate) fn report(hist: &Histogram) -> String {
    let us = |time: DurNs| time.0 as f64 / 1000.0;
    let (max, mean) = (hist.max().unwrap_or_default(), hist.mean().unwrap_or_default());
    let mut text = format!(
        "TASK RESPONSE JITTER\n{:>12} {:>12} {:>12}\n{}\n{:>12} {:>12.3} {:>12.3}\n\nDistribution: [us]\n\n{:<22} {:>9}   {}\n{}\n",
        "Samples",
        "Maximum",
        "Average",
        "-".repeat(38),
        hist.count(),
        us(max),
        us(mean),
        "Time Range",
        "Count",
        "Count (log scale)",
        "-".repeat(56),
    );
    let width = bin_width(max);
    for (index, count) in bins(hist, width).into_iter().enumerate() {
        let [low, high] = [index, index + 1].map(|edge| us(DurNs(width.0 * edge as i64)));
        let stars = "*".repeat(if count == 0 { 0 } else { count.ilog2() as usize + 1 });
        text.push_str(&format!("{low:>9.3} - {high:>9.3} {count:>10}   {stars}\n"));
    }
    text
}

/// The smallest of 1, 2, 5, 10, … ns of which 16 reach beyond the maximum.
fn bin_width(max: DurNs) -> DurNs {
    let mut scale = 1;
    loop {
        for step in [1, 2, 5] {
            if step * scale * BINS as i64 > max.0 {
                return DurNs(step * scale);
            }
        }
        scale *= 10;
    }
}

/// A bucket that lies across an edge (buckets are up to 3 % wide) counts where it begins.
fn bins(hist: &Histogram, width: DurNs) -> [u64; BINS] {
    let mut bins = [0; BINS];
    for (low, _, count) in hist.buckets() {
        bins[((low.0 / width.0) as usize).min(BINS - 1)] += count;
    }
    // Beyond the histogram's range lies nothing but the largest values.
    bins[BINS - 1] += hist.overflow();
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_sixteen_bins_that_hold_every_sample() {
        let mut hist = Histogram::new();
        (0..1000).for_each(|index| hist.record(DurNs(index * 16)));
        assert_eq!(bin_width(DurNs(15_984)), DurNs(1000));
        assert_eq!(bins(&hist, DurNs(1000)).iter().sum::<u64>(), 1000);
        let text = report(&hist);
        assert!(text.contains("1000       15.984        7.992"), "{text}");
        assert_eq!(text.lines().count(), 9 + BINS);
        assert!(text.contains("    0.000 -     1.000         63   ******\n"), "{text}");
    }
}

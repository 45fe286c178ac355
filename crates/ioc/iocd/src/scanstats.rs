//! Measurements of a scan in the records of `scanStats.db`.

use crate::engine::Mailbox;
use crate::publish::Publisher;
use crate::scans::ScanStats;
use base::{DurNs, Histogram, Quantile};
use std::io;

/// Number of histogram bins: the first is below 1 µs, each further one is twice as wide, the last ends at 8.4 s and includes
/// longer times.
const BINS: usize = 24;

/// Starts a thread that updates the records whose names begin with `prefix` and a colon, with the measurements of the scan
/// `rate` (a choice of menuScan) merged over all owners.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(mailbox: Mailbox, prefix: String, rate: String) -> io::Result<Publisher> {
    Publisher::start("ioc-scanstats", move || {
        let (of, reset) = (rate.clone(), format!("{prefix}:RESET"));
        let found = mailbox.ask(move |engine| {
            let shards = engine.store.shards.iter().map(|shard| &shard.scans);
            let clocks = std::iter::once(&engine.scans).chain(shards).flat_map(|scans| scans.clocks());
            let stats: Vec<ScanStats> = clocks
                .filter(|clock| clock.name == of && clock.stats.records() > 0)
                .map(|clock| clock.stats.clone())
                .collect();
            let wanted = engine.store.db.find(&reset).ok();
            let wanted = wanted.and_then(|channel| engine.store.db.get(&channel, 1).get(0)?.to_f64());
            (stats, wanted.is_some_and(|on| on != 0.0))
        });
        let Some((stats, wanted)) = found else { return false };
        let mut texts = shown(&stats);
        if wanted {
            stats.iter().for_each(ScanStats::reset);
            texts.push(("RESET", "0".into()));
        }
        mailbox.put_texts(texts.into_iter().map(|(word, text)| (format!("{prefix}:{word}"), text)).collect());
        true
    })
}

fn shown(stats: &[ScanStats]) -> Vec<(&'static str, String)> {
    let all = |of: fn(&ScanStats) -> Histogram| {
        stats.iter().map(of).fold(Histogram::new(), |mut sum, next| {
            sum.merge(&next);
            sum
        })
    };
    let (late, took) = (all(ScanStats::lateness), all(ScanStats::duration));
    let sum = |of: fn(&ScanStats) -> u64| stats.iter().map(of).sum::<u64>().to_string();
    let mut texts = vec![
        ("PASSES", sum(ScanStats::passes)),
        ("OVERRUNS", sum(ScanStats::overruns)),
        ("RECORDS", sum(ScanStats::records)),
    ];
    for (histogram, [p50, p99, max, bins]) in [
        (&late, ["LATE_P50", "LATE_P99", "LATE_MAX", "LATE_HIST"]),
        (&took, ["DUR_P50", "DUR_P99", "DUR_MAX", "DUR_HIST"]),
    ] {
        texts.push((p50, quantile(histogram.quantile(1, 2))));
        texts.push((p99, quantile(histogram.quantile(99, 100))));
        texts.push((max, histogram.max().map_or_else(|| "nan".into(), micros)));
        texts.push((bins, list(&binned(histogram))));
    }
    texts
}

fn micros(time: DurNs) -> String {
    format!("{:.3}", time.0 as f64 / 1e3)
}

/// A quantile in µs; not a number if it is unknown.
fn quantile(quantile: Quantile) -> String {
    match quantile {
        Quantile::At(time) => micros(time),
        Quantile::Beyond(_) | Quantile::Empty => "nan".into(),
    }
}

fn list(counts: &[u64]) -> String {
    format!("[{}]", counts.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
}

fn binned(histogram: &Histogram) -> [u64; BINS] {
    let mut bins = [0; BINS];
    for (low, _, count) in histogram.buckets() {
        let micros = (low.0 / 1_000).max(0) as u64;
        bins[(u64::BITS - micros.leading_zeros()).min(BINS as u32 - 1) as usize] += count;
    }
    bins[BINS - 1] += histogram.overflow();
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_from_a_microsecond_on() {
        let mut histogram = Histogram::new();
        for nanos in [500, 1_500, 2_500, 3_500, 6_000, 1_500_000_000, 100_000_000_000] {
            histogram.record(DurNs(nanos));
        }
        let bins = binned(&histogram);
        assert_eq!((bins[0], bins[1], bins[2], bins[3], bins[21], bins[23]), (1, 1, 2, 1, 1, 1));
        assert_eq!(bins.iter().sum::<u64>(), histogram.count());
    }

    #[test]
    fn unknown_figures_are_shown_as_nan() {
        let texts = shown(&[]);
        let of = |word: &str| texts.iter().find(|(known, _)| *known == word).map(|(_, text)| text.as_str());
        assert_eq!((of("LATE_P99"), of("PASSES")), (Some("nan"), Some("0")));
    }
}

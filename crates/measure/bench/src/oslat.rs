//! The real `oslat` (rt-tests) on the same CPU, in the same class, for comparison.

use crate::Failed;
use crate::measure::{Gate, TaskPlacement};
use base::{DurNs, Histogram, Policy};

/// Buckets of 1 us, the maximum of oslat; longer gaps are in the last.
const BUCKETS: u32 = 1024;

/// Its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OslatResult {
    /// Gaps of more than 1 us, in whole microseconds, rounded up by it.
    pub(crate) gaps: Histogram,
    /// Measured time in seconds.
    pub(crate) span_s: f64,
}

/// One run of a second: oslat accepts whole seconds only.
pub(crate) fn run(place: &TaskPlacement, policy: Policy) -> Result<OslatResult, Failed> {
    let words = [format!("-c{}", place.cpu), "-D1".into(), format!("-b{BUCKETS}"), "-q".into(), "-z".into()];
    let mut command = vec!["oslat".to_owned()];
    command.extend(words);
    if let Policy::Fifo(priority) = policy {
        command.push(format!("-f{}", priority.0));
    }
    let output = Gate::start(&command, place, None)?.output()?;
    parse(&output).ok_or_else(|| Failed::answer(command.join(" "), "its usual output", output))
}

/// Parses its output for one CPU.
fn parse(output: &str) -> Option<OslatResult> {
    let after = |head: &str| {
        output.lines().find_map(|line| line.trim().strip_prefix(head)?.split_whitespace().next()?.parse::<f64>().ok())
    };
    let (longest, span_s) = (after("Maximum:")?, after("Duration:")?);
    let mut gaps = Histogram::new();
    for line in output.lines() {
        let Some((us, rest)) = line.trim().split_once(" (us):") else { continue };
        let (us, mut rest) = (us.parse::<i64>().ok()?, rest.split_whitespace());
        let count = rest.next()?.parse::<u64>().ok()?;
        // Of the gaps beyond the last bucket only the longest is known: it counts once, the others as the last bucket.
        let overflow = rest.next().is_some() && count > 0 && longest > us as f64;
        let whole = |us: f64| DurNs((us * 1e3) as i64);
        (0..count - u64::from(overflow)).filter(|_| us > 1).for_each(|_| gaps.record(whole(us as f64)));
        if overflow {
            gaps.record(whole(longest));
        }
    }
    Some(OslatResult { gaps, span_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_oslat_is_parsed_with_its_maximum() {
        let output = "oslat V 2.40\n        Core:\t 1\nCounter Freq:\t 2597 (Mhz)\n    001 (us):\t 15888213\n    002 (us):\t 188\n    \
                      032 (us):\t 3 (including overflows)\n     Minimum:\t 1 (us)\n     Average:\t 1.037 (us)\n     Maximum:\t 29039 (us)\n     \
                      Max-Min:\t 29038 (us)\n    Duration:\t 0.998 (sec)\n";
        let found = parse(output).unwrap();
        assert_eq!((found.gaps.count(), found.span_s), (191, 0.998));
        assert_eq!((found.gaps.min(), found.gaps.max()), (Some(DurNs::from_us(2)), Some(DurNs::from_us(29_039))));
        assert_eq!(parse("oslat: no such option"), None);
    }
}

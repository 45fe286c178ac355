//! The real `cyclictest` (rt-tests) on the same CPU, at the same priority, for comparison.

use super::measure::{Gate, TaskPlacement};
use crate::Failed;
use crate::explained::Explained;
use base::{DurNs, Histogram, Policy};

/// Buckets of 1 us; longer times are in its overflow.
const BUCKETS_US: u32 = 50_000;

/// One run: cyclictest rounds down to whole microseconds; `explained` watches it.
pub(crate) fn run(
    place: &TaskPlacement,
    (period, policy): (DurNs, Policy),
    span: DurNs,
    explained: Option<&Explained>,
) -> Result<Histogram, Failed> {
    let (class, priority) = match policy {
        Policy::Fifo(priority) => ("fifo", priority.0),
        Policy::Rr(priority) => ("rr", priority.0),
        _ => ("other", 0),
    };
    // The length is given in cycles (-l), because -D accepts only whole seconds.
    let cycles = (span.0 / period.0).max(1);
    let words = [
        format!("-i{}", period.0 / 1000),
        format!("-l{cycles}"),
        format!("-a{}", place.cpu),
        format!("-h{BUCKETS_US}"),
        format!("--policy={class}"),
    ];
    let mut command = vec!["cyclictest".to_owned(), "-q".into(), "-m".into(), "-t1".into()];
    command.extend(words);
    if priority > 0 {
        command.push(format!("-p{priority}"));
    }
    let gate = Gate::start(&command, place, None)?;
    explained.inspect(|explained| explained.watch(gate.pid(), policy, "cyclictest"));
    let output = gate.output()?;
    parse(&output).ok_or_else(|| Failed::answer(command.join(" "), "its usual output", output))
}

/// Reads the output of `cyclictest -q -h N`.
fn parse(output: &str) -> Option<Histogram> {
    let mut hist = Histogram::new();
    let mut max_us = None;
    let mut overflow = None;
    for line in output.lines() {
        let after = |head: &str| line.strip_prefix(head).and_then(|rest| rest.trim().parse::<u64>().ok());
        max_us = max_us.or(after("# Max Latencies:"));
        overflow = overflow.or(after("# Histogram Overflows:"));
        if !line.starts_with('#')
            && let Some((us, count)) = line.split_once(' ')
            && let (Ok(us), Ok(count)) = (us.parse::<i64>(), count.trim().parse::<u64>())
        {
            (0..count).for_each(|_| hist.record(DurNs::from_us(us)));
        }
    }
    let max_us = max_us?;
    // Each of these was longer than the last bucket; only the longest is known, so all count as that.
    (0..overflow?).for_each(|_| hist.record(DurNs::from_us(max_us as i64)));
    Some(hist)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_cyclictest_is_parsed_with_its_overflow() {
        let output = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000004 000003\n000019 000001\n\
                      # Total: 000000004\n# Min Latencies: 00004\n# Avg Latencies: 00007\n# Max Latencies: 03115\n\
                      # Histogram Overflows: 00002\n# Histogram Overflow at cycle number:\n# Thread 0: 00000 # 00970 others\n";
        let found = parse(output).unwrap();
        assert_eq!(found.count(), 6);
        assert_eq!((found.min(), found.max()), (Some(DurNs::from_us(4)), Some(DurNs::from_us(3115))));
        assert_eq!(parse("WARN: stat /dev/cpu_dma_latency failed\n"), None);
    }
}

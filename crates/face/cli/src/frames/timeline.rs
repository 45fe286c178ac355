//! Bar charts of a frame's time: the time used in each minor, and the duration of calls relative to their budget.

use ::report::micros;
use base::{DurNs, Histogram, Quantile};
use bench::looprun::shown;

/// Columns of a bar, which represent the whole minor or the whole budget.
const BAR: usize = 40;

/// The heading above the bars.
pub(super) fn head(what: &str) -> String {
    let marks = "# half of them  = 99 %  - the longest";
    format!("{what:<14} {:>8} |{marks:<BAR$}| {:>8} {:>8} {:>8} {:>9}", "of [us]", "median", "p99", "p99.9", "max")
}

/// Distribution of durations: median, p99, p99.9 and maximum.
pub(super) struct Times {
    half: Quantile,
    most: Quantile,
    rare: Quantile,
    longest: Option<DurNs>,
}

impl Times {
    pub(super) fn taken(hist: &Histogram) -> Self {
        Self {
            half: hist.quantile(1, 2),
            most: hist.quantile(99, 100),
            rare: hist.quantile(999, 1000),
            longest: hist.max(),
        }
    }

    /// The time used in a minor, computed from its length and slack.
    pub(super) fn used(length: DurNs, slack: &Histogram) -> Self {
        // If the slack exceeds the range of the histogram, almost no time was used.
        let used = |left: DurNs| DurNs(length.0.saturating_sub(left.0).max(0));
        let of = |among| match slack.quantile(1, among) {
            Quantile::At(left) | Quantile::Beyond(left) => Quantile::At(used(left)),
            Quantile::Empty => Quantile::Empty,
        };
        Self { half: of(2), most: of(100), rare: of(1000), longest: slack.min().map(used) }
    }

    /// A bar with its figures. Without a limit there is no bar.
    pub(super) fn line(&self, name: &str, limit: Option<DurNs>) -> String {
        let bar = limit.map(|limit| self.bar(limit)).unwrap_or_default();
        format!(
            "{name:<14} {:>8} |{bar:<BAR$}| {:>8} {:>8} {:>8} {:>9}",
            limit.map_or("-".to_owned(), micros),
            shown(self.half),
            shown(self.most),
            shown(self.rare),
            self.longest.map_or("-".to_owned(), micros)
        )
    }

    /// The bar, to scale. A time fills each column that it has begun; if it exceeds the limit, the bar ends in `>`.
    fn bar(&self, limit: DurNs) -> String {
        let limit = limit.0.max(1) as u64;
        let columns = |time: DurNs| (time.0.max(0) as u64).saturating_mul(BAR as u64).div_ceil(limit);
        let of = |quantile| match quantile {
            Quantile::At(time) => columns(time),
            Quantile::Beyond(_) => u64::MAX,
            Quantile::Empty => 0,
        };
        let (half, most, longest) = (of(self.half), of(self.most), self.longest.map_or(0, columns));
        let mark = |at: u64| match at {
            at if at + 1 == BAR as u64 && longest > BAR as u64 => '>',
            at if at < half => '#',
            at if at < most => '=',
            at if at < longest => '-',
            _ => '.',
        };
        (0..BAR as u64).map(mark).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hist(times: &[(i64, usize)]) -> Histogram {
        let mut hist = Histogram::new();
        times.iter().for_each(|(us, count)| (0..*count).for_each(|_| hist.record(DurNs::from_us(*us))));
        hist
    }

    fn bar(line: &str) -> &str {
        line.split('|').nth(1).unwrap()
    }

    #[test]
    fn a_bar_shows_half_of_the_calls_nearly_all_and_the_longest_to_scale() {
        // Whole columns of 10 us each. The edge of the last bucket is the exact maximum.
        let line = Times::taken(&hist(&[(95, 600), (195, 395), (295, 5)])).line("control", Some(DurNs::from_us(400)));
        assert_eq!(bar(&line), "##########==========----------..........");
        assert!(line.starts_with("control ") && line.ends_with(" 295"), "{line}");
    }

    #[test]
    fn a_time_beyond_its_budget_ends_in_an_arrow_and_without_a_budget_there_is_no_bar() {
        let over = Times::taken(&hist(&[(95, 990), (2000, 10)]));
        assert_eq!(bar(&over.line("control", Some(DurNs::from_us(400)))), "##########----------------------------->");
        assert_eq!(bar(&over.line("log", None)).trim(), "");
        let never = Times::taken(&Histogram::new()).line("absent", Some(DurNs::from_us(400)));
        assert_eq!(bar(&never), ".".repeat(BAR));
        assert_eq!(never.matches(" -").count(), 4, "{never}");
    }

    #[test]
    fn the_used_share_of_a_minor_excludes_its_slack() {
        let used = Times::used(DurNs::from_us(1000), &hist(&[(100, 5), (750, 995)]));
        let bar = bar(&used.line("minor 0", Some(DurNs::from_us(1000)))).to_owned();
        assert!(bar.starts_with("##########") && bar.ends_with("-....") && !bar.contains('='), "{bar}");
    }
}

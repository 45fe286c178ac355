//! `--compare`: wake-up latency with and without the shield in alternating segments of one run.

use super::reporter::short;
use crate::page::{Figures, Page};
use base::{CpuId, DurNs, Histogram, MonoNs};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Length of a segment.
const SEGMENT: DurNs = DurNs::from_secs(5);

/// Time excluded at the start of a segment, while tasks are moved.
const SETTLE: DurNs = DurNs::from_ms(300);

/// Period of collecting cycles. If the steal counter rose in a period, all cycles of that period are excluded from `calm`.
const COLLECT_EVERY: DurNs = DurNs::from_ms(20);

/// Share of excluded cycles above which the second table is meaningless, in thousandths.
const SET_APART_MAX_MILLI: u64 = 10;

/// Latencies of one loop, either with or without the shield.
#[derive(Clone, Debug, Default)]
struct Side {
    /// Latencies of all cycles.
    all: Histogram,
    /// Latencies of cycles in periods during which the CPU's steal counter did not change.
    calm: Histogram,
    /// Cycles that were overwritten before they were collected.
    lost: u64,
}

/// State of the comparison.
#[derive(Debug)]
pub(crate) struct Compare {
    /// Whether the shield is active in this segment.
    shielded: bool,
    /// Start of the counted cycles. `None` until the plant is up.
    from: Option<MonoNs>,
    /// End of the segment.
    until: MonoNs,
    /// Time of the next collection.
    collect: MonoNs,
    /// Latencies per process: with the shield, and without.
    loops: Vec<[Box<Side>; 2]>,
    /// Steal ticks of each loop's CPU at the last collection.
    steal: Vec<u64>,
    /// Number of segments measured with and without the shield.
    segments: [u32; 2],
}

const NEVER: MonoNs = MonoNs(u64::MAX);

impl Compare {
    pub(crate) fn new(processes: usize) -> Self {
        let empty = || [Box::<Side>::default(), Box::<Side>::default()];
        Self {
            shielded: true,
            from: None,
            until: MonoNs(0),
            collect: MonoNs(0),
            loops: (0..processes).map(|_| empty()).collect(),
            steal: vec![0; processes],
            segments: [0; 2],
        }
    }

    /// Whether the shield is active in this segment.
    pub(crate) fn is_shielded(&self) -> bool {
        self.shielded
    }

    /// Time of the next call to [`turn`](Self::turn).
    pub(crate) fn due(&self) -> Option<MonoNs> {
        self.from.map(|_| self.collect)
    }

    /// Begins a segment. The shield is already in the state for it.
    pub(crate) fn begin(&mut self, now: MonoNs, shielded: bool) {
        self.shielded = shielded;
        (self.from, self.until, self.collect) = (Some(now + SETTLE), now + SETTLE + SEGMENT, now);
    }

    /// Collects the cycles of a plant that is up. At the end of a segment, returns the next state of the shield (`true`:
    /// active). Then no cycle counts until [`begin`](Self::begin). `loops` yields process ids and pages; `steal` returns
    /// steal ticks per CPU.
    pub(crate) fn turn<'a>(
        &mut self,
        now: MonoNs,
        steal: impl FnOnce() -> BTreeMap<CpuId, u64>,
        loops: impl Iterator<Item = (usize, &'a mut Page)>,
    ) -> Option<bool> {
        if self.from.is_none() {
            self.begin(now, true);
        }
        if now >= self.collect {
            self.collect = now + COLLECT_EVERY;
            self.collect(now, &steal(), loops);
        }
        if now < self.until {
            return None;
        }
        self.segments[self.side()] += 1;
        (self.from, self.until) = (Some(NEVER), NEVER);
        Some(!self.shielded)
    }

    fn collect<'a>(
        &mut self,
        now: MonoNs,
        steal: &BTreeMap<CpuId, u64>,
        loops: impl Iterator<Item = (usize, &'a mut Page)>,
    ) {
        let counts = self.from.is_some_and(|from| now >= from);
        let side = self.side();
        for (id, page) in loops {
            let Some(side) = self.loops.get_mut(id).map(|sides| &mut sides[side]) else { continue };
            let ticks = page.cpu().and_then(|cpu| steal.get(&cpu)).copied().unwrap_or(0);
            let calm = std::mem::replace(&mut self.steal[id], ticks) == ticks;
            let lost = page.cycles(|cycle| {
                if counts {
                    side.all.record(cycle.latency());
                    if calm {
                        side.calm.record(cycle.latency());
                    }
                }
            });
            side.lost += if counts { lost } else { 0 };
        }
    }

    /// Index of the side being measured.
    fn side(&self) -> usize {
        usize::from(!self.shielded)
    }

    /// The table for display.
    pub(crate) fn table(&self, name: &str, id: usize) -> Option<String> {
        let [with, without] = self.loops.get(id)?;
        if with.all.count() == 0 && without.all.count() == 0 {
            return None;
        }
        let mut out = format!(
            "wake-up latency of {name}, {} segments of {SEGMENT} with the shield and {} without, only the shield differing:\n",
            self.segments[0], self.segments[1]
        );
        columns(&mut out, "all cycles", (&with.all, &without.all), None);
        let all = (with.all.count(), without.all.count());
        columns(&mut out, "steal excluded", (&with.calm, &without.calm), Some(all));
        let apart = |side: &Side| (side.all.count() - side.calm.count()) * 1000 / side.all.count().max(1);
        if apart(with).max(apart(without)) > SET_APART_MAX_MILLI {
            out.push_str("  more than 1 % excluded: the effect of the shield without steal cannot be measured here\n");
        }
        if with.lost + without.lost > 0 {
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "  {} and {} cycles were overwritten before they were collected",
                with.lost, without.lost
            );
        }
        Some(out)
    }
}

/// Adds both sides of one table and their ratio.
fn columns(out: &mut String, title: &str, (with, without): (&Histogram, &Histogram), all: Option<(u64, u64)>) {
    let (a, b) = (Figures::of(with), Figures::of(without));
    let time = |time: Option<DurNs>| time.map_or_else(|| "?".to_owned(), short);
    let ratio = |a: Option<DurNs>, b: Option<DurNs>| match (a, b) {
        (Some(a), Some(b)) if a.0 > 0 => format!("{:.1}", b.0 as f64 / a.0 as f64),
        _ => "?".to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  {title:<16} {:>12} {:>12} {:>14}", "shielded", "unshielded", "without/with");
    let _ = writeln!(out, "  {:<16} {:>12} {:>12}", "cycles", a.count, b.count);
    if let Some((with, without)) = all {
        let share = |part: u64, all: u64| format!("{:.2} %", 100.0 * (all - part) as f64 / all.max(1) as f64);
        let _ = writeln!(out, "  {:<16} {:>12} {:>12}", "excluded", share(a.count, with), share(b.count, without));
    }
    for (row, a, b) in [("p50", a.p50, b.p50), ("p99", a.p99, b.p99), ("p99.9", a.p999, b.p999), ("max", a.max, b.max)]
    {
        let _ = writeln!(out, "  {row:<16} {:>12} {:>12} {:>14}", time(a), time(b), ratio(a, b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_both_settings_their_ratio_and_the_excluded_share() {
        let mut compare = Compare::new(1);
        compare.segments = [1, 1];
        for _ in 0..100 {
            compare.loops[0][0].all.record(DurNs::from_us(10));
            compare.loops[0][0].calm.record(DurNs::from_us(10));
            compare.loops[0][1].all.record(DurNs::from_us(100));
        }
        let table = compare.table("loop", 0).unwrap();
        assert!(table.contains("max                   10.0 µs       100 µs           10.0"), "{table}");
        assert!(table.contains("excluded               0.00 %     100.00 %"), "{table}");
        assert!(table.contains("cannot be measured here"), "{table}");
        assert_eq!(Compare::new(1).table("loop", 0), None);
    }
    #[test]
    fn segments_alternate_and_samples_during_changes_of_the_shield_do_not_count() {
        let (mut compare, at) = (Compare::new(1), |ms: i64| MonoNs(1) + DurNs::from_ms(ms));
        let turn = |compare: &mut Compare, ms| compare.turn(at(ms), BTreeMap::new, std::iter::empty());
        assert_eq!(compare.due(), None);
        assert_eq!(turn(&mut compare, 0), None);
        assert_eq!((turn(&mut compare, 5299), compare.due()), (None, Some(at(5319))));
        assert_eq!((turn(&mut compare, 5300), compare.segments), (Some(false), [1, 0]));
        assert_eq!(turn(&mut compare, 60_000), None, "not before the shield is changed for the next segment");
        compare.begin(at(60_000), false);
        assert_eq!((turn(&mut compare, 65_299), turn(&mut compare, 65_300)), (None, Some(true)));
        assert_eq!(compare.segments, [1, 1]);
    }
}

//! Comparison of two runs with a statistical test.

use crate::stats::{corrected, rank_test};
use crate::text::figure;
use crate::{Figure, Good, Report, Row};

/// Minimum number of single measurements for the test.
const SAMPLES_MIN: usize = 4;
/// Significance level.
const SIGNIFICANCE: f64 = 0.05;
/// Minimum difference, as a share of the base.
const DIFFERENCE_MIN: f64 = 0.05;

/// Change of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It got significantly worse.
    Worse,
    /// It got significantly better.
    Better,
    /// The difference is not significant.
    Same,
    /// Too few measurements for the test.
    NotTested,
}

impl Change {
    /// The text in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Worse => "WORSE",
            Self::Better => "better",
            Self::Same => "no difference measurable",
            Self::NotTested => "too few measurements to test",
        }
    }
}

/// One figure in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Measurement, table and row.
    pub what: String,
    /// The figure's unit.
    pub unit: String,
    /// The base figure.
    pub base: Figure,
    /// The new figure.
    pub new: Figure,
    /// p-value, corrected for the number of tests; nothing without a test.
    pub p_value: Option<f64>,
    /// The change.
    pub change: Change,
}

/// All figures of both runs, the worst change first, and what only one of them has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The figures of both.
    pub figures: Vec<Comparison>,
    /// Differences of the machines.
    pub machine: Vec<String>,
    /// New causes of delays.
    pub culprits: Vec<String>,
    /// Figures that could not be compared.
    pub missing: Vec<String>,
}

/// Compares two runs: figures of the same measurement with the same arguments, of the same table and name.
#[must_use]
pub fn compare(base: &[Report], new: &[Report]) -> Changes {
    let mut changes = Changes::default();
    let mut sides = Vec::new();
    // Published experiments repeat figures of the others.
    for was in base.iter().filter(|report| report.experiments.is_empty()) {
        let alike = |is: &&Report| is.bench == was.bench && is.arguments == was.arguments;
        let Some(is) = new.iter().find(alike) else {
            changes.missing.push(format!("{} {}: not in the new run", was.bench, was.arguments.join(" ")));
            continue;
        };
        for line in was.machine.differences(&is.machine) {
            if !changes.machine.contains(&line) {
                changes.machine.push(line);
            }
        }
        for table in &was.tables {
            let rows = is.tables.iter().filter(|other| other.title == table.title).flat_map(|other| &other.rows);
            let rows: Vec<&Row> = rows.collect();
            for row in &table.rows {
                let what = format!("{}: {}: {}", was.bench, table.title, row.name);
                match rows.iter().find(|other| other.name == row.name) {
                    Some(other) => {
                        changes.culprits.extend(new_culprits(&what, row, other));
                        sides.extend(Side::of(what, row, other));
                    }
                    None if row.good != Good::Neither => changes.missing.push(format!("{what}: not in the new run")),
                    None => {}
                }
            }
        }
    }
    if changes.figures.is_empty() && sides.is_empty() {
        changes.missing.push("no figure is in both runs".into());
    }
    changes.figures = judged(sides);
    changes
}

fn new_culprits(what: &str, base: &Row, new: &Row) -> Vec<String> {
    let known = |name: &str| base.culprits.iter().any(|culprit| culprit.name == name);
    let fresh = new.culprits.iter().filter(|culprit| !known(&culprit.name));
    fresh.map(|culprit| format!("{what}: {} ({:.1} % of the delay)", culprit.name, culprit.share_percent)).collect()
}

/// A figure in both runs, with the p-values of a rise and of a fall.
struct Side {
    what: String,
    unit: String,
    base: Figure,
    new: Figure,
    good: Good,
    p_values: Option<[f64; 2]>,
}

impl Side {
    fn of(what: String, base: &Row, new: &Row) -> Option<Self> {
        let (unit, good) = (base.unit.clone(), base.good);
        let (base, new) = (base.ours.clone()?, new.ours.clone()?);
        let enough = base.samples.len() >= SAMPLES_MIN && new.samples.len() >= SAMPLES_MIN;
        let p_values = enough.then(|| [rank_test(&base.samples, &new.samples), rank_test(&new.samples, &base.samples)]);
        (good != Good::Neither).then_some(Self { what, unit, base, new, good, p_values })
    }

    /// Minimum rise of the new figure, as a share of the base.
    fn higher(&self) -> f64 {
        match (self.base.value > 0.0, self.base.beyond && self.new.value <= self.base.value) {
            // The base is only a lower bound.
            (_, true) => 0.0,
            (true, _) => self.new.value / self.base.value - 1.0,
            (false, _) if self.new.value > self.base.value => f64::INFINITY,
            (false, _) => 0.0,
        }
    }
}

fn judged(sides: Vec<Side>) -> Vec<Comparison> {
    let tested: Vec<f64> = sides.iter().filter_map(|side| side.p_values).flatten().collect();
    let mut p_values = corrected(&tested).into_iter();
    let judge = |side: Side| {
        let pair = side.p_values.and_then(|_| p_values.next().zip(p_values.next()));
        let higher = side.higher();
        let (change, p_value) = match pair {
            None => (Change::NotTested, None),
            Some((up, _)) if up <= SIGNIFICANCE && higher > DIFFERENCE_MIN => {
                (if side.good == Good::Low { Change::Worse } else { Change::Better }, Some(up))
            }
            Some((_, down)) if down <= SIGNIFICANCE && higher < -DIFFERENCE_MIN => {
                (if side.good == Good::Low { Change::Better } else { Change::Worse }, Some(down))
            }
            Some((up, down)) => (Change::Same, Some(up.min(down))),
        };
        Comparison { what: side.what, unit: side.unit, base: side.base, new: side.new, p_value, change }
    };
    let mut figures: Vec<Comparison> = sides.into_iter().map(judge).collect();
    figures.sort_by_key(|figure| figure.change);
    figures
}

impl Changes {
    /// Whether any figure got worse.
    #[must_use]
    pub fn worse(&self) -> bool {
        self.figures.iter().any(|figure| figure.change == Change::Worse)
    }

    /// In a line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let count = |change| self.figures.iter().filter(|figure| figure.change == change).count();
        format!(
            "{} worse, {} better, {} without a measurable difference, {} not tested",
            count(Change::Worse),
            count(Change::Better),
            count(Change::Same),
            count(Change::NotTested)
        )
    }

    /// As text: the verdict, the changes, and figures that could not be compared.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![self.verdict()];
        for of in self.figures.iter().filter(|of| of.change <= Change::Better) {
            lines.push(format!("{}: {}", of.change.word(), of.line()));
        }
        let lists = [("new culprit", &self.culprits), ("machine", &self.machine), ("not compared", &self.missing)];
        lines.extend(lists.iter().flat_map(|(head, list)| list.iter().map(move |line| format!("{head}: {line}"))));
        lines.join("\n") + "\n"
    }
}

impl Comparison {
    /// The new figure divided by the base, if both are known.
    #[must_use]
    pub fn ratio(&self) -> String {
        match self.base.value > 0.0 && !self.base.beyond {
            true => format!("{}{:.2}", if self.new.beyond { ">" } else { "" }, self.new.value / self.base.value),
            false => "-".into(),
        }
    }

    /// The p-value in tables.
    #[must_use]
    pub fn p_value(&self) -> String {
        self.p_value.map_or("-".into(), |p_value| match p_value {
            p_value if p_value < 0.0001 => "< 0.0001".into(),
            p_value => format!("{p_value:.4}"),
        })
    }

    fn line(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let [base, new] = [&self.base, &self.new].map(|of| figure(Some(of)));
        format!("{}: {base} → {new}{unit} ({} x; p-value {})", self.what, self.ratio(), self.p_value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Culprit, Table};

    fn run(samples: impl Iterator<Item = f64>) -> Vec<Report> {
        let row = Row::samples("p99", "us", samples.collect()).good(Good::Low);
        let once = Row::figure("once", "us", 1.0).good(Good::Low);
        let table = Table::new("wake-up latency").row(row).row(once);
        vec![Report { bench: "wakeup".into(), tables: vec![table], ..Report::default() }]
    }

    #[test]
    fn only_a_significant_rise_is_worse() {
        let base = run((0..8).map(|n| 100.0 + f64::from(n)));
        let same = compare(&base, &run((0..8).map(|n| 100.5 + f64::from(n))));
        assert!(!same.worse() && same.figures[0].change == Change::Same);
        let worse = compare(&base, &run((0..8).map(|n| 150.0 + f64::from(n))));
        assert!(worse.worse());
        assert!(worse.text().starts_with("1 worse, 0 better, 0 without a measurable difference, 1 not tested\nWORSE: wakeup: wake-up latency: p99: 104 → 154 us (1.48 x; p-value 0.0002)"), "{}", worse.text());
        let better = compare(&base, &run((0..8).map(|n| 50.0 + f64::from(n))));
        assert!(!better.worse() && better.figures[0].change == Change::Better);
    }

    #[test]
    fn a_small_significant_difference_is_ignored() {
        let base = run((0..20).map(|n| 100.0 + f64::from(n) * 0.001));
        assert!(!compare(&base, &run((0..20).map(|n| 101.0 + f64::from(n) * 0.001))).worse());
    }

    #[test]
    fn one_long_piece_of_eight_is_not_significant() {
        let base = run((0..8).map(|n| 100.0 + f64::from(n)));
        let spike = run((0..8).map(|n| if n == 7 { 9_000.0 } else { 100.0 + f64::from(n) }));
        assert!(!compare(&base, &spike).worse());
    }

    #[test]
    fn runs_with_other_arguments_are_not_compared() {
        let base = run((0..8).map(f64::from));
        let mut other = run((0..8).map(|n| 100.0 + f64::from(n)));
        other[0].arguments = vec!["--load".into(), "all".into()];
        let changes = compare(&base, &other);
        assert!(!changes.worse() && changes.figures.is_empty());
        assert_eq!(changes.missing.len(), 2);
    }

    #[test]
    fn a_bound_is_not_treated_as_a_value() {
        let bound = |value: f64| {
            let mut report = run((0..8).map(|_| 1e6));
            report[0].tables[0].rows[0].ours = Some(Figure { value, beyond: true, samples: vec![value; 8] });
            report
        };
        assert!(!compare(&bound(1e6), &bound(1e6)).worse());
        let worse = compare(&run((0..8).map(|n| 100.0 + f64::from(n))), &bound(1e6));
        assert!(worse.worse() && worse.text().contains("→ >1000000 us (>"), "{}", worse.text());
    }

    #[test]
    fn a_new_culprit_is_listed() {
        let (base, mut new) = (run((0..8).map(f64::from)), run((0..8).map(f64::from)));
        new[0].tables[0].rows[0].culprits.push(Culprit { name: "interrupt 14".into(), share_percent: 61.0, count: 4 });
        assert_eq!(compare(&base, &new).culprits, ["wakeup: wake-up latency: p99: interrupt 14 (61.0 % of the delay)"]);
        assert!(compare(&new, &base).culprits.is_empty());
    }
}

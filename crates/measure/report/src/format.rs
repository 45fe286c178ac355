//! The format: a report has tables, a table has rows, a row has one figure of ours and the compared one.

use crate::Latency;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Name and version of the format, the first entry of each report.
pub(crate) const FORMAT: &str = "tahti bench 1";

/// Result of one run of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the format.
    pub format: String,
    /// The measurement's name, as on the command line.
    pub bench: String,
    /// The experiment that it repeats.
    pub experiment: String,
    /// Description of the measurement, in a line.
    pub what: String,
    /// The target, in words; the limits are in the rows.
    #[serde(default)]
    pub target: String,
    /// Arguments of the measurement.
    pub arguments: Vec<String>,
    /// Seconds since 1970 when it ended.
    pub ended_s: u64,
    /// Duration in seconds.
    pub took_s: f64,
    /// The measured machine.
    pub machine: Machine,
    /// Setup, in lines above the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// Results.
    pub tables: Vec<Table>,
    /// Conclusions, and what was unavailable, in lines below the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Published figures for the whole measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Published experiments, with the figures measured here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
    /// Stacks of profiled threads, folded (`thread;outermost;…;innermost COUNT`, a line each): a page draws them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stacks: String,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            format: FORMAT.into(),
            bench: String::new(),
            experiment: String::new(),
            what: String::new(),
            target: String::new(),
            arguments: Vec::new(),
            ended_s: 0,
            took_s: 0.0,
            machine: Machine::default(),
            setup: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
            published: Vec::new(),
            experiments: Vec::new(),
            stacks: String::new(),
        }
    }
}

impl Report {
    /// All rows with a target, with the title of their table.
    pub fn rows_with_target(&self) -> impl Iterator<Item = (&str, &Row)> {
        let rows = self.tables.iter().flat_map(|table| table.rows.iter().map(|row| (table.title.as_str(), row)));
        rows.filter(|(_, row)| row.target.is_some())
    }
}

/// The machine, its kernel and their settings, which a comparison of figures needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of this program.
    pub tahti: String,
    /// The kernel's version, from `/proc/version`.
    pub kernel: String,
    /// Facts from `/proc/cpuinfo` about the first CPU: model, microcode, …
    pub cpu: BTreeMap<String, String>,
    /// Name of the hypervisor, or "unknown"; nothing without one.
    pub hypervisor: Option<String>,
    /// Contents of files that affect latency, including the kernel's command line.
    pub knobs: BTreeMap<String, String>,
    /// Knobs that a shield would set differently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_profile: Vec<String>,
    /// Share of the CPUs' time that the hypervisor took during the run, in percent; nothing if the kernel does not report
    /// it.
    pub steal_percent: Option<f64>,
    /// Cost of one clock reading: minimum, median and maximum of several thousand.
    pub clock_read_ns: [i64; 3],
}

impl Machine {
    /// Summary in lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let fact = |key: &str| self.cpu.get(key).map_or("unknown", String::as_str);
        let knob = |path: &str| self.knobs.get(path).map_or("-", String::as_str);
        let [minimum, median, maximum] = self.clock_read_ns;
        let under = match self.hypervisor.as_deref() {
            None => String::new(),
            Some("unknown") => ", under a hypervisor".into(),
            Some(name) => format!(", under a hypervisor ({name})"),
        };
        let steal = self.steal_percent.map_or(String::new(), |share| format!("; steal during the run {share:.2} %"));
        vec![
            format!(
                "machine: {}, microcode {}, CPUs {}{under}{steal}",
                fact("model name"),
                fact("microcode"),
                knob("/sys/devices/system/cpu/online"),
            ),
            format!("kernel: {}", self.kernel.split(" (").next().unwrap_or_default()),
            format!(
                "clock: {}; a reading takes {median} ns (minimum {minimum}, maximum {maximum})",
                knob("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ),
        ]
    }

    /// Differences from another machine, one per line.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut differ = |what: &str, one: &str, two: &str| {
            if one != two {
                lines.push(format!("{what}: {one} → {two}"));
            }
        };
        differ("tahti", &self.tahti, &other.tahti);
        differ("kernel", &self.kernel, &other.kernel);
        let word = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".into());
        differ("hypervisor", &word(&self.hypervisor), &word(&other.hypervisor));
        for (mine, theirs) in [(&self.cpu, &other.cpu), (&self.knobs, &other.knobs)] {
            // The current clock rate is not a setting.
            let keys = mine.keys().chain(theirs.keys().filter(|key| !mine.contains_key(*key)));
            for key in keys.filter(|key| *key != "cpu MHz") {
                let value = |of: &BTreeMap<String, String>| of.get(key).cloned().unwrap_or_else(|| "-".into());
                differ(key, &value(mine), &value(theirs));
            }
        }
        lines
    }
}

/// Published figures of another laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The laboratory or product.
    pub publisher: Cow<'static, str>,
    /// The year.
    pub year: Cow<'static, str>,
    /// Hardware and operating system.
    pub hardware: Cow<'static, str>,
    /// The figures, with units.
    pub figures: Cow<'static, str>,
}

impl Published {
    /// Published figures for a table of measurements.
    #[must_use]
    pub const fn new(
        publisher: &'static str,
        year: &'static str,
        hardware: &'static str,
        figures: &'static str,
    ) -> Self {
        Self {
            publisher: Cow::Borrowed(publisher),
            year: Cow::Borrowed(year),
            hardware: Cow::Borrowed(hardware),
            figures: Cow::Borrowed(figures),
        }
    }

    /// As a line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("published: {} ({}, {}): {}", self.publisher, self.hardware, self.year, self.figures)
    }
}

/// A published experiment with its figures and ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its key, such as `kek/scan-load`.
    pub key: String,
    /// The publication: authors, title, year.
    pub paper: String,
    /// The measured quantity.
    pub what: String,
    /// Published figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Our figures with their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<String>,
    /// The commands that measured them, or that show what the paper describes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The commands that measure the missing figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Differences between our experiment and the published one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub differs: String,
    /// Required hardware or software that this machine lacks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub needs: String,
}

impl Experiment {
    /// Our figures, then missing ones, differences and requirements.
    #[must_use]
    pub fn answer(&self) -> Vec<String> {
        let missing = self.missing.iter().map(|command| format!("not measured here: run `{command}`"));
        let differs = (!self.differs.is_empty()).then(|| format!("differs: {}", self.differs));
        let needs = (!self.needs.is_empty()).then(|| format!("needs {}", self.needs));
        self.found.iter().cloned().chain(missing).chain(differs).chain(needs).collect()
    }

    /// The experiment has figures, or a command that shows it, and no part is missing.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.missing.is_empty() && !(self.found.is_empty() && self.by.is_empty())
    }
}

/// Rows that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// The name of our column.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ours: String,
    /// The name of the compared column.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other: String,
    /// Published figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Notes in lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Names the columns.
    #[must_use]
    pub fn columns(self, ours: &str, other: &str) -> Self {
        Self { ours: ours.into(), other: other.into(), ..self }
    }

    /// With one more row.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }
}

/// One figure of ours, and the compared one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the figure.
    pub name: String,
    /// Its unit: "us", "%", or nothing for a count.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Ours; nothing if it was not measured. Of latencies the 99th percentile.
    pub ours: Option<Figure>,
    /// The compared figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Figure>,
    /// Ours divided by the other; with several measurements the median of the ratios of consecutive ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The verdict; nothing if none is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether low or high values are good.
    #[serde(default)]
    pub good: Good,
    /// The latencies, if it is a figure of latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Causes of the delays, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<Culprit>,
    /// The longest delays, in chronological order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spikes: Vec<Spike>,
    /// A remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Row {
    /// A figure that is neither good nor bad; NaN and infinity count as not measured.
    #[must_use]
    pub fn figure(name: impl Into<String>, unit: &str, value: f64) -> Self {
        Self { name: name.into(), unit: unit.into(), ours: Figure::once(value), ..Self::default() }
    }

    /// The median of several measurements.
    #[must_use]
    pub fn samples(name: impl Into<String>, unit: &str, samples: Vec<f64>) -> Self {
        Self { name: name.into(), unit: unit.into(), ours: Figure::median(samples), ..Self::default() }
    }

    /// Latencies of ours with the 99th percentile as their figure. `pieces` are the percentiles of each piece of the run, for
    /// the rank test.
    #[must_use]
    pub fn latency(name: impl Into<String>, latency: Latency, pieces: Vec<f64>) -> Self {
        let ours = latency.p99().map(|p99| Figure { samples: pieces, ..p99 });
        Self { name: name.into(), unit: "us".into(), ours, latency: Some(latency), good: Good::Low, ..Self::default() }
    }

    /// Latencies for information: of a peer, or of a part of ours.
    #[must_use]
    pub fn reference(name: impl Into<String>, latency: Latency) -> Self {
        Self { good: Good::Neither, ..Self::latency(name, latency, Vec::new()) }
    }

    /// Sets whether low or high values are good.
    #[must_use]
    pub fn good(self, good: Good) -> Self {
        Self { good, ..self }
    }

    /// Adds the compared figure and the ratio.
    #[must_use]
    pub fn against(self, other: Option<Figure>) -> Self {
        let ratio = match (&self.ours, &other) {
            (Some(ours), Some(other)) => ours.ratio(other),
            _ => None,
        };
        Self { other, ratio, ..self }.judged()
    }

    /// Sets a ratio that is not computed from the two figures.
    #[must_use]
    pub fn ratio(self, ratio: Option<f64>) -> Self {
        Self { ratio: ratio.filter(|ratio| ratio.is_finite()), ..self }.judged()
    }

    /// Sets the target.
    #[must_use]
    pub fn target(self, target: Target) -> Self {
        let good = match target.bound {
            Bound::AtMost => Good::Low,
            Bound::AtLeast => Good::High,
        };
        Self { target: Some(target), good, ..self }.judged()
    }

    /// Adds a remark.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Updates the verdict from figures and target.
    fn judged(self) -> Self {
        let verdict = self.target.and_then(|target| target.verdict(&self));
        Self { verdict, ..self }
    }
}

/// A measured number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Whether the value is only a lower bound: a percentile beyond the histogram.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beyond: bool,
    /// Single measurements, in chronological order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

impl Figure {
    /// Measured once; nothing for NaN and infinity.
    #[must_use]
    pub fn once(value: f64) -> Option<Self> {
        value.is_finite().then(|| Self { value, ..Self::default() })
    }

    /// Measured several times.
    #[must_use]
    pub fn median(samples: Vec<f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self { value: *sorted.get(sorted.len() / 2)?, beyond: false, samples })
    }

    /// This divided by the other, if both are known.
    fn ratio(&self, other: &Self) -> Option<f64> {
        (!self.beyond && !other.beyond && other.value > 0.0).then(|| self.value / other.value)
    }
}

/// Whether low or high values are good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Good {
    /// For information.
    #[default]
    Neither,
    /// The lower the better.
    Low,
    /// The higher the better.
    High,
}

/// Target of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The number that it applies to.
    pub of: TargetSubject,
    /// The side of the limit.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
}

/// The number that a target applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetSubject {
    /// Our figure.
    Ours,
    /// Ours divided by the other.
    Ratio,
}

/// The side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The limit or less.
    AtMost,
    /// The limit or more.
    AtLeast,
}

impl Target {
    /// Maximum of our figure.
    #[must_use]
    pub const fn at_most(limit: f64) -> Self {
        Self { of: TargetSubject::Ours, bound: Bound::AtMost, limit }
    }

    /// Maximum ratio of our figure to the other.
    #[must_use]
    pub const fn ratio_at_most(limit: f64) -> Self {
        Self { of: TargetSubject::Ratio, ..Self::at_most(limit) }
    }

    /// Minimum of our figure.
    #[must_use]
    pub const fn at_least(limit: f64) -> Self {
        Self { bound: Bound::AtLeast, ..Self::at_most(limit) }
    }

    /// Minimum ratio of our figure to the other.
    #[must_use]
    pub const fn ratio_at_least(limit: f64) -> Self {
        Self { of: TargetSubject::Ratio, ..Self::at_least(limit) }
    }

    /// The text in tables.
    #[must_use]
    pub fn words(&self) -> String {
        let side = match self.bound {
            Bound::AtMost => '≤',
            Bound::AtLeast => '≥',
        };
        // Rounded, as a product may have many digits.
        let limit = (self.limit * 1e6).round() / 1e6;
        match self.of {
            TargetSubject::Ours => format!("{side} {limit}"),
            TargetSubject::Ratio => format!("{side} {limit} x"),
        }
    }

    fn verdict(&self, row: &Row) -> Option<Verdict> {
        let (value, beyond) = match self.of {
            TargetSubject::Ours => row.ours.as_ref().map(|ours| (ours.value, ours.beyond))?,
            TargetSubject::Ratio => (row.ratio?, false),
        };
        let held = match self.bound {
            // A lower bound below the limit decides nothing.
            Bound::AtMost if beyond && value <= self.limit => return None,
            Bound::AtMost => value <= self.limit,
            Bound::AtLeast => value >= self.limit,
        };
        Some(if held { Verdict::Reached } else { Verdict::Missed })
    }
}

/// Verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The target is reached.
    Reached,
    /// The target is missed.
    Missed,
    /// Ours is better than the other's.
    Better,
    /// Ours is worse than the other's.
    Worse,
    /// The difference may be chance.
    NoDifferenceMeasurable,
}

impl Verdict {
    /// The text in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "yes",
            Self::Missed => "NO",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceMeasurable => "no difference measurable",
        }
    }
}

/// A cause of delays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its name: an interrupt, a thread, the host, "unexplained".
    pub name: String,
    /// Its share of the delay, in percent.
    pub share_percent: f64,
    /// Number of delays that it contributed to.
    pub count: u64,
}

/// One delay with its causes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spike {
    /// Time in nanoseconds since the start of the measurement.
    pub at_ns: u64,
    /// The delay in nanoseconds.
    pub late_ns: u64,
    /// Causes with their shares in nanoseconds, the largest first.
    pub parts: Vec<(String, u64)>,
}

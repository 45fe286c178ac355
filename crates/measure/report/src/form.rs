//! The form itself: a report has tables, a table has rows, a row has one figure of ours and what stands beside it.

use crate::Latency;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The form's name and version, the first thing in each report.
pub(crate) const FORM: &str = "tahti bench 1";

/// What one run of one measurement found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The form's name and version.
    pub form: String,
    /// The measurement's name, as on the command line.
    pub bench: String,
    /// The experiment that it repeats.
    pub experiment: String,
    /// What it measures, in a line.
    pub what: String,
    /// What is wanted, in words; the limits stand in the rows.
    #[serde(default)]
    pub target: String,
    /// What stood behind its name on the command line.
    pub arguments: Vec<String>,
    /// Seconds since 1970 when it ended.
    pub ended_s: u64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Where.
    pub machine: Machine,
    /// How it was set up, in lines that stand above the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// What was found.
    pub tables: Vec<Table>,
    /// What can be concluded and what could not be had, in lines that stand below the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What others found, where it belongs to the measurement as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Published experiments as a whole, beside what was found of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
    /// Stacks of profiled threads, folded (`thread;outermost;…;innermost COUNT`, a line each): a page draws them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stacks: String,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            form: FORM.into(),
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
    /// All rows that want something, with the title of their table.
    pub fn rows_with_target(&self) -> impl Iterator<Item = (&str, &Row)> {
        let rows = self.tables.iter().flat_map(|table| table.rows.iter().map(|row| (table.title.as_str(), row)));
        rows.filter(|(_, row)| row.target.is_some())
    }
}

/// What a figure must carry with it to be compared: the machine, its kernel, and how they are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of this program.
    pub tahti: String,
    /// The kernel's version, as `/proc/version` says it.
    pub kernel: String,
    /// What `/proc/cpuinfo` says of the first CPU: model, microcode, …
    pub cpu: BTreeMap<String, String>,
    /// The hypervisor below, if any: its name, or "unknown".
    pub hypervisor: Option<String>,
    /// Files that decide about latency, as they are; the kernel's command line among them.
    pub knobs: BTreeMap<String, String>,
    /// Knobs of the shield that stand otherwise than a shield would set them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_profile: Vec<String>,
    /// Share of the run for which the hypervisor took the CPUs, in percent of their time; nothing where the kernel does
    /// not tell.
    pub steal_percent: Option<f64>,
    /// What one reading of the clock costs: least, median, and largest of some thousands.
    pub clock_read_ns: [i64; 3],
}

impl Machine {
    /// The lines that a reader of a table needs.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let fact = |key: &str| self.cpu.get(key).map_or("unknown", String::as_str);
        let knob = |path: &str| self.knobs.get(path).map_or("-", String::as_str);
        let [least, median, largest] = self.clock_read_ns;
        let under = match self.hypervisor.as_deref() {
            None => String::new(),
            Some("unknown") => ", under a hypervisor".into(),
            Some(name) => format!(", under a hypervisor ({name})"),
        };
        let steal = self.steal_percent.map_or(String::new(), |share| format!("; steal meanwhile {share:.2} %"));
        vec![
            format!(
                "machine: {}, microcode {}, CPUs {}{under}{steal}",
                fact("model name"),
                fact("microcode"),
                knob("/sys/devices/system/cpu/online"),
            ),
            format!("kernel: {}", self.kernel.split(" (").next().unwrap_or_default()),
            format!(
                "clock: {}; reading it costs {median} ns (least {least}, largest {largest})",
                knob("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ),
        ]
    }

    /// In what two machines differ, a line each.
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
            // The clock rate of the moment is no setting.
            let keys = mine.keys().chain(theirs.keys().filter(|key| !mine.contains_key(*key)));
            for key in keys.filter(|key| *key != "cpu MHz") {
                let value = |of: &BTreeMap<String, String>| of.get(key).cloned().unwrap_or_else(|| "-".into());
                differ(key, &value(mine), &value(theirs));
            }
        }
        lines
    }
}

/// Figures that another laboratory published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The laboratory or product.
    pub who: Cow<'static, str>,
    /// The year.
    pub year: Cow<'static, str>,
    /// Hardware and operating system.
    pub hardware: Cow<'static, str>,
    /// The figures, with units.
    pub figures: Cow<'static, str>,
}

impl Published {
    /// Figures of others for a table of measurements.
    #[must_use]
    pub const fn new(who: &'static str, year: &'static str, hardware: &'static str, figures: &'static str) -> Self {
        Self {
            who: Cow::Borrowed(who),
            year: Cow::Borrowed(year),
            hardware: Cow::Borrowed(hardware),
            figures: Cow::Borrowed(figures),
        }
    }

    /// As a line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("published: {} ({}, {}): {}", self.who, self.hardware, self.year, self.figures)
    }
}

/// A published experiment with its figures and ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its key, such as `kek/scan-load`.
    pub key: String,
    /// The publication: authors, title, year.
    pub paper: String,
    /// What was measured.
    pub what: String,
    /// What was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Our figures with their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<String>,
    /// The commands that gave them, or that show what the paper describes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The commands that would measure what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How our experiment differs from the published one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub differs: String,
    /// Hardware or software that this machine lacks for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub needs: String,
}

impl Experiment {
    /// Our figures, then what is missing and what would be needed.
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
    /// What they have in common.
    pub title: String,
    /// The name of our column.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ours: String,
    /// The name of the column beside it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub other: String,
    /// What others found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What is to be said of them, in lines.
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

/// One figure of ours, and what stands beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is a figure of.
    pub name: String,
    /// Its unit: "us", "%", or nothing for a number of things.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Ours; nothing where it was not measured. Of latencies the 99th percentile.
    pub ours: Option<Figure>,
    /// That of the other, measured beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Figure>,
    /// Ours by the other's; where there are several measurements, the median of the ratios of neighbours in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What can be concluded; nothing where nothing can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Which way ours is good.
    #[serde(default)]
    pub good: Good,
    /// Where it is a figure of latencies: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Who made them late, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<Culprit>,
    /// The longest delays, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spikes: Vec<Spike>,
    /// A remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Row {
    /// A figure that is neither good nor bad; one that is no number is none.
    #[must_use]
    pub fn figure(name: impl Into<String>, unit: &str, value: f64) -> Self {
        Self { name: name.into(), unit: unit.into(), ours: Figure::once(value), ..Self::default() }
    }

    /// A figure measured several times: the median stands for it.
    #[must_use]
    pub fn samples(name: impl Into<String>, unit: &str, samples: Vec<f64>) -> Self {
        Self { name: name.into(), unit: unit.into(), ours: Figure::median(samples), ..Self::default() }
    }

    /// Latencies of ours, shown as a whole; the 99th percentile stands for them. `pieces`: that of each piece of the run,
    /// which tells how far chance moves it.
    #[must_use]
    pub fn latency(name: impl Into<String>, latency: Latency, pieces: Vec<f64>) -> Self {
        let ours = latency.p99().map(|p99| Figure { samples: pieces, ..p99 });
        Self { name: name.into(), unit: "us".into(), ours, latency: Some(latency), good: Good::Low, ..Self::default() }
    }

    /// Latencies of somebody else, or of a part of ours: to look at.
    #[must_use]
    pub fn beside(name: impl Into<String>, latency: Latency) -> Self {
        Self { good: Good::Neither, ..Self::latency(name, latency, Vec::new()) }
    }

    /// With which way it is good.
    #[must_use]
    pub fn good(self, good: Good) -> Self {
        Self { good, ..self }
    }

    /// With the other's figure beside it, and the ratio of the two.
    #[must_use]
    pub fn against(self, other: Option<Figure>) -> Self {
        let ratio = match (&self.ours, &other) {
            (Some(ours), Some(other)) => ours.ratio(other),
            _ => None,
        };
        Self { other, ratio, ..self }.judged()
    }

    /// With a ratio found otherwise than from the two figures.
    #[must_use]
    pub fn ratio(self, ratio: Option<f64>) -> Self {
        Self { ratio: ratio.filter(|ratio| ratio.is_finite()), ..self }.judged()
    }

    /// With what is wanted.
    #[must_use]
    pub fn target(self, target: Target) -> Self {
        let good = match target.bound {
            Bound::AtMost => Good::Low,
            Bound::AtLeast => Good::High,
        };
        Self { target: Some(target), good, ..self }.judged()
    }

    /// With a remark.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The verdict that figures and wish give, unless it was said otherwise.
    fn judged(self) -> Self {
        let verdict = self.target.and_then(|target| target.verdict(&self));
        Self { verdict, ..self }
    }
}

/// A number that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Whether all that is known is that it lies above: a percentile beyond the histogram.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beyond: bool,
    /// Single measurements of the same, in their order, each on its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

impl Figure {
    /// Measured once. What is no number is no figure.
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

    /// This by the other, if both are known.
    fn ratio(&self, other: &Self) -> Option<f64> {
        (!self.beyond && !other.beyond && other.value > 0.0).then(|| self.value / other.value)
    }
}

/// Which way a figure is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Good {
    /// It is there to be looked at.
    #[default]
    Neither,
    /// The lower the better.
    Low,
    /// The higher the better.
    High,
}

/// What is wanted of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Of which of its numbers.
    pub of: Of,
    /// On which side of the limit.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
}

/// The number that something is wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// Our figure.
    Ours,
    /// Ours by the other's.
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
    /// Our figure at most this.
    #[must_use]
    pub const fn at_most(limit: f64) -> Self {
        Self { of: Of::Ours, bound: Bound::AtMost, limit }
    }

    /// Our figure at most this share of the other's.
    #[must_use]
    pub const fn ratio_at_most(limit: f64) -> Self {
        Self { of: Of::Ratio, ..Self::at_most(limit) }
    }

    /// Our figure at least this.
    #[must_use]
    pub const fn at_least(limit: f64) -> Self {
        Self { bound: Bound::AtLeast, ..Self::at_most(limit) }
    }

    /// Our figure at least this share of the other's, or so many times.
    #[must_use]
    pub const fn ratio_at_least(limit: f64) -> Self {
        Self { of: Of::Ratio, ..Self::at_least(limit) }
    }

    /// As a table says it.
    #[must_use]
    pub fn words(&self) -> String {
        let side = match self.bound {
            Bound::AtMost => '≤',
            Bound::AtLeast => '≥',
        };
        // Without the last digits of a product.
        let limit = (self.limit * 1e6).round() / 1e6;
        match self.of {
            Of::Ours => format!("{side} {limit}"),
            Of::Ratio => format!("{side} {limit} x"),
        }
    }

    fn verdict(&self, row: &Row) -> Option<Verdict> {
        let (value, beyond) = match self.of {
            Of::Ours => row.ours.as_ref().map(|ours| (ours.value, ours.beyond))?,
            Of::Ratio => (row.ratio?, false),
        };
        let held = match self.bound {
            // What lies beyond its value may lie beyond the limit, too.
            Bound::AtMost if beyond && value <= self.limit => return None,
            Bound::AtMost => value <= self.limit,
            Bound::AtLeast => value >= self.limit,
        };
        Some(if held { Verdict::Reached } else { Verdict::Missed })
    }
}

/// What can be concluded from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is as wanted.
    Reached,
    /// It is not as wanted.
    Missed,
    /// Ours is better than the other's.
    Better,
    /// Ours is worse than the other's.
    Worse,
    /// Chance would have it so, too.
    NoDifferenceMeasurable,
}

impl Verdict {
    /// As a table says it.
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

/// Who made something late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its name: an interrupt, a thread, the host, "unexplained".
    pub name: String,
    /// Its share of the delay, in percent.
    pub share_percent: f64,
    /// How many of the late ones it had a part in.
    pub count: u64,
}

/// One that was late, and who made it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spike {
    /// When, in nanoseconds from the measurement's begin.
    pub at_ns: u64,
    /// How late, in nanoseconds.
    pub late_ns: u64,
    /// Who took how much of that, in nanoseconds, the most first.
    pub parts: Vec<(String, u64)>,
}

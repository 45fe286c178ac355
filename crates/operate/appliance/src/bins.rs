//! Post-processors that work on bins: intervals of equal length, aligned to multiples of it since 1970.

use crate::flow::{SignalRequest, Take};
use crate::gaps::Gaps;
use crate::operator::Stat;
use crate::pb::Row;
use crate::{Failed, regression};
use base::{Array, Scalar};
use segment::{Datum, Sample, Summary};

/// Maximum samples of a bin that are held in memory.
pub const BIN_SAMPLES_MAX: usize = 1 << 20;
/// Maximum bins per query to the source.
const WINDOW: i64 = 8_192;
const SECOND: i64 = 1_000_000_000;

/// Reported value of a bin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinOutput {
    One(Stat),
    /// [`Stat::Stats`] and the last value. An empty bin has the last value of the previous bin, and a count of zero.
    AllAndLast,
}

impl BinOutput {
    /// The value can be computed from a [`Summary`].
    const fn is_in_summary(self) -> bool {
        !matches!(self, Self::One(Stat::Median | Stat::Kurtosis | Stat::Skewness | Stat::Linear | Stat::Loess))
    }
}

/// Bins of a width in nanoseconds. Bin 0 begins at 1970.
#[derive(Clone, Copy)]
struct Bins(i64);

impl Bins {
    const fn of(secs: u64) -> Self {
        // At most 2^32 seconds: 4.3e18 ns.
        Self(secs as i64 * SECOND)
    }

    const fn number(self, at: i64) -> i64 {
        at.div_euclid(self.0)
    }

    fn begin(self, number: i64) -> i64 {
        (i128::from(number) * i128::from(self.0)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn middle(self, number: i64) -> i64 {
        self.begin(number).saturating_add(self.0 / 2)
    }
}

/// Accumulated samples of a bin, as far as they are needed.
enum Collected {
    Summary(Summary),
    /// Seconds since the start of the bin with values, and the maximum severity.
    Values(Vec<(f64, f64)>, u8),
}

impl Collected {
    fn new(what: BinOutput) -> Self {
        if what.is_in_summary() { Self::Summary(Summary::default()) } else { Self::Values(Vec::new(), 0) }
    }

    fn add(&mut self, sample: &Sample, begin: i64) -> Option<()> {
        let value = sample.datum.to_f64().unwrap_or(f64::NAN);
        match self {
            Self::Summary(summary) => summary.add(sample.at, value, sample.severity),
            Self::Values(values, severity) => {
                *severity = sample.severity.max(*severity);
                if !value.is_nan() {
                    if values.len() == BIN_SAMPLES_MAX {
                        return None;
                    }
                    values.push((sample.at.saturating_sub(begin) as f64 / SECOND as f64, value));
                }
            }
        }
        Some(())
    }

    fn summarise(self, what: BinOutput, middle: f64) -> SummaryValue {
        let (severity, value, field) = match self {
            Self::Summary(all) => {
                let (value, field) = of_summary(what, &all);
                (all.severity, value, field)
            }
            Self::Values(values, severity) => (severity, Value::One(of_values(what, values, middle)), None),
        };
        SummaryValue { severity, value, field }
    }
}

/// Result of a bin.
#[derive(Clone)]
struct SummaryValue {
    severity: u8,
    value: Value,
    field: Option<(String, String)>,
}

#[derive(Clone)]
enum Value {
    One(f64),
    Many(Vec<f64>),
}

fn of_summary(what: BinOutput, all: &Summary) -> (Value, Option<(String, String)>) {
    let of = |value: f64| if all.count == 0 { f64::NAN } else { value };
    let (mean, std) = (of(all.mean), of(all.std()));
    let stats = vec![mean, std, of(all.min), of(all.max), all.count as f64];
    let one = match what {
        BinOutput::AllAndLast => return (Value::Many([stats, vec![of(all.last.value)]].concat()), None),
        BinOutput::One(Stat::Stats) => return (Value::Many(stats), None),
        BinOutput::One(Stat::ErrorBar) => return (Value::One(mean), Some(("stdz".into(), format!("{std:?}")))),
        BinOutput::One(Stat::Min) => of(all.min),
        BinOutput::One(Stat::Max) => of(all.max),
        BinOutput::One(Stat::Count) => all.count as f64,
        BinOutput::One(Stat::Std) => std,
        BinOutput::One(Stat::Variance) => std * std,
        BinOutput::One(Stat::Rms) => of((all.mean.powi(2) + all.squares.max(0.0) / all.count as f64).sqrt()),
        BinOutput::One(Stat::PopVariance) => of(all.squares.max(0.0) / all.count as f64),
        BinOutput::One(Stat::Jitter) => std / mean,
        BinOutput::One(_) => mean,
    };
    (Value::One(one), None)
}

fn of_values(what: BinOutput, mut values: Vec<(f64, f64)>, middle: f64) -> f64 {
    match what {
        BinOutput::One(Stat::Median) => {
            values.sort_unstable_by(|one, other| one.1.total_cmp(&other.1));
            let half = values.len() / 2;
            match (values.get(half), values.len() % 2) {
                (None, _) => f64::NAN,
                (Some(value), 1) => value.1,
                (Some(value), _) => f64::midpoint(values[half - 1].1, value.1),
            }
        }
        BinOutput::One(Stat::Skewness) => moments(&values).0,
        BinOutput::One(Stat::Kurtosis) => moments(&values).1,
        BinOutput::One(Stat::Loess) => regression::loess(&values, middle),
        _ => regression::linear(&values, middle),
    }
}

/// Skewness and kurtosis of a sample, unbiased for normal distributions. 0 if all values are equal; NaN for fewer than three and four values.
fn moments(values: &[(f64, f64)]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().map(|(_, value)| value).sum::<f64>() / n;
    let power = |k: i32| values.iter().map(|(_, value)| (value - mean).powi(k)).sum::<f64>();
    let variance = power(2) / (n - 1.0);
    let std = variance.sqrt();
    let is_flat = variance < 1e-19;
    let skewness = n / ((n - 1.0) * (n - 2.0)) * power(3) / std.powi(3);
    let (below, beyond) = ((n - 1.0) * (n - 2.0) * (n - 3.0), 3.0 * (n - 1.0).powi(2) / ((n - 2.0) * (n - 3.0)));
    let kurtosis = n * (n + 1.0) / below * power(4) / std.powi(4) - beyond;
    let of = |least: usize, value: f64| if values.len() < least { f64::NAN } else { value };
    (of(3, if is_flat { 0.0 } else { skewness }), of(4, if is_flat { 0.0 } else { kurtosis }))
}

/// Emits bins, and fills the empty ones between them.
struct Filler<'a, 't> {
    bins: Bins,
    what: BinOutput,
    fill: bool,
    /// Last bin that may be filled.
    end: i64,
    before: Option<(i64, SummaryValue)>,
    gaps: Gaps,
    take: &'a mut Take<'t>,
}

impl Filler<'_, '_> {
    fn bin(&mut self, number: i64, summary: SummaryValue) -> Result<(), Failed> {
        self.fill_until(number)?;
        self.give(number, summary.clone())?;
        self.before = Some((number, summary));
        Ok(())
    }

    /// Fills the bins between the previous one and `number`.
    fn fill_until(&mut self, number: i64) -> Result<(), Failed> {
        let Some((before, summary)) = self.before.take().filter(|_| self.fill) else { return Ok(()) };
        let summary = self.repeated(summary);
        for number in before + 1..number {
            self.give(number, summary.clone())?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), Failed> {
        self.fill_until(self.end.saturating_add(1))
    }

    fn repeated(&self, summary: SummaryValue) -> SummaryValue {
        match (self.what, &summary.value) {
            (BinOutput::One(Stat::Count), _) => SummaryValue { severity: 0, value: Value::One(0.0), field: None },
            (BinOutput::AllAndLast, Value::Many(many)) => {
                let last = many.last().copied().unwrap_or(f64::NAN);
                SummaryValue { value: Value::Many(vec![last, 0.0, last, last, 0.0, last]), ..summary }
            }
            _ => summary,
        }
    }

    fn give(&mut self, number: i64, summary: SummaryValue) -> Result<(), Failed> {
        let datum = match summary.value {
            Value::One(value) => Datum::Number(Scalar::F64(value)),
            Value::Many(values) => Datum::Array(Array::F64(values)),
        };
        let mut fields = self.gaps.before_bin_ends(self.bins.begin(number).saturating_add(self.bins.0));
        fields.extend(summary.field);
        let sample = Sample { severity: summary.severity, ..Sample::new(self.bins.middle(number), datum) };
        (self.take)(Row { sample, fields })
    }
}

/// Emits one number per bin, or several.
pub(crate) fn stat(
    asked: &SignalRequest<'_>,
    what: BinOutput,
    secs: u64,
    fill: bool,
    take: &mut Take<'_>,
) -> Result<(), Failed> {
    let bins = Bins::of(secs);
    let (first, last) = (bins.number(asked.from), bins.number(asked.to));
    let gaps = Gaps::after(asked.from, asked.source.gaps(asked.name, asked.from, asked.to)?);
    // Bins in the future are not filled.
    let end = last.min(bins.number(asked.now));
    let mut filler = Filler { bins, what, fill, end, before: None, gaps, take };
    let before = asked.source.at(asked.name, asked.from)?;
    if let Some(sample) = before.filter(|sample| sample.at < asked.from && sample.datum.to_f64().is_some()) {
        let mut collected = Collected::new(what);
        // The time within the bin does not matter for a single sample.
        let _ = collected.add(&sample, sample.at);
        filler.bin(first - 1, collected.summarise(what, 0.0))?;
    }
    let Some((oldest, newest)) = asked.source.span(asked.name)? else { return filler.end() };
    let (from, to) = (asked.from.max(oldest), asked.to.min(newest));
    // Bins that are completely within the requested span, for which the source has summaries.
    let begin = if bins.begin(first) == asked.from { first } else { first + 1 }.max(bins.number(from));
    let behind = last.min(bins.number(to).saturating_add(1));
    if !what.is_in_summary() || begin >= behind {
        collect(asked, bins, (from, to), what, &mut filler)?;
        return filler.end();
    }
    collect(asked, bins, (from, bins.begin(begin).saturating_sub(1)), what, &mut filler)?;
    let mut next = begin;
    while next < behind {
        let count = (behind - next).min(WINDOW);
        let found = asked.source.bins(asked.name, bins.begin(next), bins.0, usize::try_from(count).unwrap_or(0))?;
        filler.gaps.renew(asked.source.gaps(asked.name, asked.from, asked.to)?);
        for (at, summary) in found {
            filler.bin(bins.number(at), Collected::Summary(summary).summarise(what, 0.0))?;
        }
        next += count;
    }
    collect(asked, bins, (bins.begin(behind), to), what, &mut filler)?;
    filler.end()
}

/// Reads samples and emits each bin that has some.
fn collect(
    asked: &SignalRequest<'_>,
    bins: Bins,
    (from, to): (i64, i64),
    what: BinOutput,
    filler: &mut Filler<'_, '_>,
) -> Result<(), Failed> {
    if from > to {
        return Ok(());
    }
    let middle = (bins.0 / SECOND / 2) as f64;
    let mut open: Option<(i64, Collected)> = None;
    for sample in asked.source.samples(asked.name, from, to)? {
        let sample = match sample {
            Ok(sample) => sample,
            Err(why) => {
                filler.gaps.unread(why.to_string());
                continue;
            }
        };
        if sample.datum.to_f64().is_none() {
            continue;
        }
        let number = bins.number(sample.at);
        if let Some((done, collected)) = open.take_if(|(open, _)| *open != number) {
            filler.bin(done, collected.summarise(what, middle))?;
        }
        let (_, collected) = open.get_or_insert_with(|| (number, Collected::new(what)));
        let full = || Failed::Full { name: asked.name.to_owned() };
        collected.add(&sample, bins.begin(number)).ok_or_else(full)?;
    }
    match open {
        Some((done, collected)) => filler.bin(done, collected.summarise(what, middle)),
        None => Ok(()),
    }
}

/// Emits the first or the last sample of each bin.
pub(crate) fn pick(
    asked: &SignalRequest<'_>,
    last: bool,
    secs: u64,
    fill: bool,
    take: &mut Take<'_>,
) -> Result<(), Failed> {
    let bins = Bins::of(secs);
    let first = bins.number(asked.from);
    let end = bins.number(asked.to).min(bins.number(asked.now));
    // The sample before the requested span counts as a separate bin.
    let number = |at: i64| if at < asked.from { first - 1 } else { bins.number(at) };
    let mut before: Option<(i64, Row)> = None;
    let mut give = |(number, row): (i64, Row), next: i64| -> Result<(), Failed> {
        if !fill {
            return take(row);
        }
        let Row { mut sample, mut fields } = row;
        for number in number..next.max(number + 1) {
            sample.at = bins.middle(number);
            take(Row { sample: sample.clone(), fields: std::mem::take(&mut fields) })?;
        }
        Ok(())
    };
    asked.raw(&mut |row| {
        let now = number(row.sample.at);
        match before.take_if(|(open, _)| *open != now) {
            Some(done) => give(done, now)?,
            None if before.is_some() && !last => return Ok(()),
            None => {}
        }
        before = Some((now, row));
        Ok(())
    })?;
    match before {
        Some(done) => give(done, end.saturating_add(1)),
        None => Ok(()),
    }
}

/// Emits the samples that are far from their bin's mean, or the others.
pub(crate) fn flyers(
    asked: &SignalRequest<'_>,
    secs: u64,
    sigmas: f64,
    far: bool,
    take: &mut Take<'_>,
) -> Result<(), Failed> {
    let bins = Bins::of(secs);
    let mut open: (i64, Vec<Row>, Summary) = (i64::MIN, Vec::new(), Summary::default());
    let mut give = |rows: Vec<Row>, all: &Summary| {
        let limit = sigmas * all.std();
        let is_far = |row: &Row| row.sample.datum.to_f64().is_some_and(|value| (value - all.mean).abs() > limit);
        rows.into_iter().filter(|row| is_far(row) == far).try_for_each(&mut *take)
    };
    asked.numbers(&mut |row| {
        let number = bins.number(row.sample.at);
        if number != open.0 {
            let (_, rows, all) = std::mem::replace(&mut open, (number, Vec::new(), Summary::default()));
            give(rows, &all)?;
        }
        if open.1.len() == BIN_SAMPLES_MAX {
            return Err(Failed::Full { name: asked.name.to_owned() });
        }
        open.2.add(row.sample.at, row.sample.datum.to_f64().unwrap_or(f64::NAN), row.sample.severity);
        open.1.push(row);
        Ok(())
    })?;
    give(open.1, &open.2)
}

/// Emits up to four samples per bin, as in the plots of the Channel Archiver: first, minimum, maximum, last.
pub(crate) fn plot(asked: &SignalRequest<'_>, secs: u64, take: &mut Take<'_>) -> Result<(), Failed> {
    let bins = Bins::of(secs);
    let first = bins.number(asked.from);
    let mut open: (i64, Summary) = (i64::MIN, Summary::default());
    let mut give = |number: i64, all: &Summary| -> Result<(), Failed> {
        let mut one =
            |at: i64, value: f64| take(Row::from(Sample { severity: all.severity, ..Sample::new(at, value) }));
        // Whole seconds, as in the Appliance.
        let part = |quarters: i64| bins.begin(number).saturating_add(bins.0 / SECOND * quarters / 4 * SECOND);
        match all.count {
            0 => Ok(()),
            1 => one(all.first.at, all.first.value),
            2 => one(all.first.at, all.first.value).and_then(|()| one(all.last.at, all.last.value)),
            _ => [all.first.value, all.min, all.max, all.last.value]
                .into_iter()
                .zip(0..)
                .try_for_each(|(value, quarters)| one(part(quarters), value)),
        }
    };
    asked.numbers(&mut |row| {
        let at = row.sample.at;
        let number = if at < asked.from { first - 1 } else { bins.number(at) };
        if number != open.0 {
            let (done, all) = std::mem::replace(&mut open, (number, Summary::default()));
            give(done, &all)?;
        }
        open.1.add(at, row.sample.datum.to_f64().unwrap_or(f64::NAN), row.sample.severity);
        Ok(())
    })?;
    give(open.0, &open.1)
}

//! Stream of the samples that answer a request.

use crate::gaps::{Carried, Gaps};
use crate::operator::Operator;
use crate::pb::Row;
use crate::{Failed, Source, bins};
use base::Scalar;
use segment::rows::Cause;
use segment::{Datum, Sample};

/// Request for one signal.
pub(crate) struct SignalRequest<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) name: &'a str,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Latest time for which bins are filled.
    pub(crate) now: i64,
}

/// Consumer of samples.
pub(crate) type Take<'t> = dyn FnMut(Row) -> Result<(), Failed> + 't;

impl SignalRequest<'_> {
    /// Passes all samples of the answer to `take`.
    pub(crate) fn give(&self, operator: Operator, take: &mut Take<'_>) -> Result<(), Failed> {
        match operator {
            Operator::Raw => self.raw(take),
            Operator::Nth(step) => {
                let mut count = 0u64;
                self.some(
                    |_| {
                        count += 1;
                        (count - 1).is_multiple_of(step)
                    },
                    take,
                )
            }
            Operator::NCount => self.ncount(take),
            Operator::DeadBand(band) => self.dead_band(band, take),
            Operator::Optimized { points, last, fill } => self.optimized(points, last, fill, take),
            Operator::Stat { stat, secs, fill } => bins::stat(self, bins::BinOutput::One(stat), secs, fill, take),
            Operator::Pick { last, secs, fill } => bins::pick(self, last, secs, fill, take),
            Operator::Flyers { secs, sigmas, far } => bins::flyers(self, secs, sigmas, far, take),
            Operator::Plot { secs } => bins::plot(self, secs, take),
        }
    }

    /// Emits the newest sample at or before the start, then all others, with increasing timestamps.
    pub(crate) fn raw(&self, take: &mut Take<'_>) -> Result<(), Failed> {
        let first = self.source.at(self.name, self.from)?;
        let since = first.as_ref().map_or(self.from, |first| first.at);
        let mut gaps = Gaps::after(since, self.source.gaps(self.name, since, self.to)?);
        let mut last = first.as_ref().map(|first| first.at);
        if let Some(first) = first {
            take(first.into())?;
        }
        if self.from == i64::MAX || self.from >= self.to {
            return Ok(());
        }
        for sample in self.source.samples(self.name, self.from + 1, self.to)? {
            let sample = match sample {
                Ok(sample) => sample,
                Err(why) => {
                    gaps.unread(why.to_string());
                    continue;
                }
            };
            if last.is_some_and(|last| sample.at <= last) {
                continue;
            }
            last = Some(sample.at);
            take(Row { fields: gaps.before_sample(sample.at), sample })?;
        }
        match gaps.take_unread() {
            // No sample follows, and no gap reports the damage.
            Some(why) if !self.is_damaged_after(last)? => Err(Failed::Source(why.into())),
            _ => Ok(()),
        }
    }

    /// A gap reports damage after a sample.
    fn is_damaged_after(&self, last: Option<i64>) -> Result<bool, Failed> {
        let gaps = self.source.gaps(self.name, last.unwrap_or(self.from), self.to)?;
        Ok(gaps.iter().any(|gap| gap.cause == Cause::Damaged))
    }

    /// Emits the selected samples of [`raw`](Self::raw). Damage before a skipped sample is reported with the next one.
    fn some(&self, mut is_given: impl FnMut(&Row) -> bool, take: &mut Take<'_>) -> Result<(), Failed> {
        let mut carried = Carried::default();
        self.raw(&mut |mut row| {
            if !is_given(&row) {
                carried.keep(row.fields);
                return Ok(());
            }
            carried.add_to(&mut row.fields);
            take(row)
        })
    }

    /// A value within the requested span may be a number.
    fn is_numeric(&self) -> Result<bool, Failed> {
        let rows = self.source.rows(self.name)?;
        let before = rows.partition_point(|row| row.since <= self.from).saturating_sub(1);
        Ok(rows[before..].iter().take_while(|row| row.since <= self.to).any(|row| row.kind.is_number())
            || rows.first().is_some_and(|row| row.since > self.to && row.kind.is_number()))
    }

    /// Emits the numeric samples of [`raw`](Self::raw).
    pub(crate) fn numbers(&self, take: &mut Take<'_>) -> Result<(), Failed> {
        self.some(|row| row.sample.datum.to_f64().is_some(), take)
    }

    fn ncount(&self, take: &mut Take<'_>) -> Result<(), Failed> {
        let mut count = 0u64;
        let mut gaps = Gaps::after(self.from, Vec::new());
        for sample in self.source.samples(self.name, self.from, self.to)? {
            match sample {
                Ok(_) => count += 1,
                Err(why) => gaps.unread(why.to_string()),
            }
        }
        let count = i32::try_from(count).map_or(Scalar::F64(count as f64), Scalar::I32);
        let sample = Sample::new(self.from, Datum::Number(count));
        take(Row { fields: gaps.before_sample(self.from), sample })
    }

    fn dead_band(&self, band: f64, take: &mut Take<'_>) -> Result<(), Failed> {
        let mut last: Option<(f64, u8)> = None;
        self.numbers(&mut |row| {
            let value = row.sample.datum.to_f64().unwrap_or(f64::NAN);
            let is_told = last.is_none_or(|(before, severity)| {
                let is_finite = value.is_finite() && before.is_finite();
                !is_finite || severity != row.sample.severity || (value - before).abs() >= band
            });
            if is_told || !row.fields.is_empty() {
                last = Some((value, row.sample.severity));
                return take(row);
            }
            Ok(())
        })
    }

    fn optimized(&self, points: u64, last: bool, fill: bool, take: &mut Take<'_>) -> Result<(), Failed> {
        let wanted = usize::try_from(points).unwrap_or(usize::MAX);
        let first = usize::from(self.source.at(self.name, self.from)?.is_some());
        let begin = self.from.saturating_add(1);
        let is_few = || -> Result<bool, Failed> {
            Ok(begin > self.to
                || first + self.source.samples(self.name, begin, self.to)?.take(wanted.saturating_add(1)).count()
                    <= wanted)
        };
        if !self.is_numeric()? || is_few()? {
            return self.raw(take);
        }
        let what = if last { bins::BinOutput::AllAndLast } else { bins::BinOutput::One(crate::Stat::Stats) };
        bins::stat(self, what, optimal_secs(self.from, self.to, points), fill, take)
    }
}

/// Width of a bin in seconds that divides a span into `points` bins; at least one.
pub(crate) const fn optimal_secs(from: i64, to: i64, points: u64) -> u64 {
    let secs = to.div_euclid(1_000_000_000).saturating_sub(from.div_euclid(1_000_000_000));
    let secs = (if secs > 0 { secs as u64 } else { 0 }) / points;
    if secs > 0 { secs } else { 1 }
}

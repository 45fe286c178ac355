//! A capture: variables over pulses, with a trigger.

use rt::scope::{Cause, ROW_WORDS, Rows};
use rt::{Imports, Number};

/// The bit of [`Capture::marks`] of the trigger's row. The bits below it are those of [`rt::scope::marks`].
pub const TRIGGER_MARK: u64 = 1 << 8;

/// One variable of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// A value for each row.
    pub values: Vec<f64>,
}

/// A capture. All columns have a value for each row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// Pulse numbers, rising, with gaps for skipped pulses.
    pub pulses: Vec<u64>,
    /// Time of each row, `CLOCK_MONOTONIC` in ns.
    pub times: Vec<u64>,
    /// Flags of each cycle, with [`TRIGGER_MARK`]. The upper half is the number of pulses skipped before it.
    pub marks: Vec<u64>,
    /// The variables.
    pub channels: Vec<Channel>,
    /// Cause of the capture: one of [`Cause`]'s words; empty without a trigger.
    pub cause: String,
}

impl Capture {
    /// A capture of the loop's rows. `describe` returns name, unit and type (by any value) of the variable with this index.
    #[must_use]
    pub fn of_rows(rows: &Rows, describe: impl Fn(usize) -> Option<(String, String, Number)>) -> Self {
        let each = || rows.words.chunks_exact(rows.row_words.max(ROW_WORDS));
        let column = |at: usize| each().map(|row| row[at]).collect::<Vec<_>>();
        let mut marks = column(2);
        // The bits between the flags and the count belong to the file format.
        marks.iter_mut().for_each(|marks| *marks &= !0xffff_ff00);
        if let Some(mark) = rows.trigger.and_then(|at| marks.get_mut(at)) {
            *mark |= TRIGGER_MARK;
        }
        let channels = rows.channels.iter().enumerate().map(|(at, index)| {
            let known = describe(*index);
            let (name, unit, kind) = known.unwrap_or_else(|| (format!("#{index}"), String::new(), Number::Float(0.0)));
            let value = |bits: u64| match kind {
                Number::Float(_) => f64::from_bits(bits),
                Number::Int(_) => bits as i64 as f64,
                Number::Bool(_) => f64::from(u8::from(bits != 0)),
            };
            Channel { name, unit, values: column(ROW_WORDS + at).into_iter().map(value).collect() }
        });
        let cause = rows.cause.map(Cause::word).unwrap_or_default().to_owned();
        Self { channels: channels.collect(), pulses: column(0), times: column(1), marks, cause }
    }

    /// The loop's rows of these variables.
    #[must_use]
    pub fn of_imports(variables: &Imports, rows: &Rows) -> Self {
        let variables = variables.segment().ok();
        Self::of_rows(rows, |index| {
            let variables = variables.as_ref()?;
            let (name, unit) = (variables.name(index)?, variables.unit(index)?);
            Some((name.as_str().to_owned(), unit.as_str().to_owned(), variables.get(index)?.value))
        })
    }

    /// The rows between two times from the trigger, in seconds: the index of the first row, and the index after the last row.
    #[must_use]
    pub fn rows_between(&self, (from, to): (f64, f64)) -> (usize, usize) {
        let seconds = self.seconds();
        (seconds.partition_point(|at| *at < from), seconds.partition_point(|at| *at <= to))
    }

    /// A capture of one variable, with a value for each pulse from 0 on, at intervals of `period` seconds.
    #[must_use]
    pub fn of_values(name: &str, unit: &str, period: f64, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let pulses: Vec<u64> = (0..values.len() as u64).collect();
        let times = pulses.iter().map(|pulse| (*pulse as f64 * period * 1e9).round() as u64).collect();
        let marks = vec![0; values.len()];
        let channels = vec![Channel { name: name.to_owned(), unit: unit.to_owned(), values }];
        Self { pulses, times, marks, channels, cause: String::new() }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pulses.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pulses.is_empty()
    }

    /// The trigger's row.
    #[must_use]
    pub fn trigger(&self) -> Option<usize> {
        self.marks.iter().position(|marks| marks & TRIGGER_MARK != 0)
    }

    /// Seconds from one pulse to the next: the median over rows half a capture apart, so that a late cycle does
    /// not affect it; `None` for fewer than two rows.
    #[must_use]
    pub fn period(&self) -> Option<f64> {
        let half = (self.len() / 2).max(1);
        let (pulses, times) = (self.pulses.get(half..)?, self.times.get(half..)?);
        let pairs = self.pulses.iter().zip(&self.times).zip(pulses.iter().zip(times));
        let each = pairs.filter_map(|((pulse, time), (later, then))| {
            let pulses = later.checked_sub(*pulse).filter(|pulses| *pulses > 0)?;
            Some(then.checked_sub(*time).filter(|time| *time > 0)? as f64 / pulses as f64)
        });
        let mut each: Vec<f64> = each.collect();
        each.sort_by(f64::total_cmp);
        Some(each.get(each.len() / 2)? / 1e9)
    }

    /// Seconds from one row to the next, without gaps: the minimum number of pulses between two rows, times the period.
    #[must_use]
    pub fn step(&self) -> Option<f64> {
        let least = self.pulses.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min()?;
        Some(self.period()? * least.max(1) as f64)
    }

    /// Seconds of each row from the trigger's row, or from the first row. Computed from pulse numbers, which are exact. 0 if the
    /// period is unknown.
    #[must_use]
    pub fn seconds(&self) -> Vec<f64> {
        let origin = self.pulses.get(self.trigger().unwrap_or(0)).copied().unwrap_or(0);
        let period = self.period().unwrap_or(0.0);
        self.pulses.iter().map(|pulse| (*pulse as f64 - origin as f64) * period).collect()
    }

    /// Pulses missing between the rows, because the loop skipped them.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.marks.iter().skip(1).map(|marks| marks >> 32).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::scope::marks;

    #[test]
    fn rows_become_columns_with_the_variables_names_and_types() {
        let words = vec![
            7,
            1000,
            0,
            1.5f64.to_bits(),
            u64::MAX,
            8,
            2000,
            marks::MISS,
            2.5f64.to_bits(),
            4,
            11,
            5000,
            2 << 32,
            0,
            0,
        ];
        let (trigger, cause) = (Some(1), Some(Cause::Condition));
        let rows = Rows { row_words: 5, words, trigger, cause, channels: vec![3, 0] };
        let describe = |index| match index {
            3 => Some(("voltage".to_owned(), "MV".to_owned(), Number::Float(0.0))),
            _ => Some(("count".to_owned(), String::new(), Number::Int(0))),
        };
        let capture = Capture::of_rows(&rows, describe);
        assert_eq!((capture.pulses.clone(), capture.trigger(), capture.missing()), (vec![7, 8, 11], Some(1), 2));
        assert_eq!(capture.marks[1], marks::MISS | TRIGGER_MARK);
        assert_eq!(capture.channels[0].values, [1.5, 2.5, 0.0]);
        assert_eq!((capture.channels[1].values.clone(), capture.cause.as_str()), (vec![-1.0, 4.0, 0.0], "trigger"));
        assert_eq!((capture.period(), capture.step()), (Some(1e-6), Some(1e-6)));
        let seconds: Vec<i64> = capture.seconds().iter().map(|at| (at * 1e6).round() as i64).collect();
        assert_eq!(seconds, [-1, 0, 3], "by pulse numbers");
    }
}

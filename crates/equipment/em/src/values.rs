//! Reads tables of current values.

use crate::error::ValuesError;
use base::{DurNs, MonoNs};
use equipment::Tables;
use rt::{Imports, Number, stale_after};
use sys::clock::mono_now;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// `object/complement`
    pub name: String,
    /// The value; `None` if it was never read.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// Age of the value.
    pub age: DurNs,
    /// The value is older than the limit for its period, was never read, or its poller has ended.
    pub stale: bool,
}

/// All values of the table `name`. Needs no message and does not disturb the poller.
///
/// # Errors
/// No process polls under this name, or the shared variables are not such a table.
pub fn values(name: &str) -> Result<Vec<Shown>, ValuesError> {
    shown(&Imports::open(name)?, name)
}

fn shown(imports: &Imports, name: &str) -> Result<Vec<Shown>, ValuesError> {
    let segment = imports.segment().map_err(rt::ShareError::from)?;
    let Some(period) = segment.period() else {
        return Err(ValuesError::NoTable { name: name.to_owned() });
    };
    let (now, alive) = (mono_now(), imports.is_alive());
    let limit = stale_after(period);
    let one = |index: usize| {
        let name = segment.name(index)?.as_str().to_owned();
        let unit = segment.unit(index)?.as_str().to_owned();
        let read = segment.get(index)?;
        let value = match read.value {
            Number::Float(value) if read.writes > 0 => Some(value),
            _ => None,
        };
        let age = now - read.at;
        Some(Shown { name, value, unit, age, stale: !alive || value.is_none() || age > limit })
    };
    Ok((0..segment.len()).filter_map(one).collect())
}

/// Monitors a manager's own tables for stale values, which show that a device does not answer. Opened once, because memory
/// must not be mapped and unmapped while real-time threads run.
pub(crate) struct Watched {
    tables: Vec<(String, Imports)>,
    /// Before this time, values that were never read are not reported.
    patient_until: MonoNs,
    due: MonoNs,
    /// The result of the last check.
    trouble: Option<String>,
}

/// Interval of checks.
const LOOK_EVERY: DurNs = DurNs::from_secs(1);

impl Watched {
    /// Opens all tables of a manager, which must already export them.
    pub(crate) fn open(tables: &Tables) -> Result<Self, rt::ShareError> {
        let longest = tables.polls.iter().map(|poll| stale_after(poll.period)).max().unwrap_or(DurNs(0));
        let open = |poll: &equipment::Poll| Ok((poll.name.clone(), Imports::open(&poll.name)?));
        let patient_until = mono_now() + longest + LOOK_EVERY;
        Ok(Self {
            tables: tables.polls.iter().map(open).collect::<Result<_, rt::ShareError>>()?,
            patient_until,
            due: patient_until,
            trouble: None,
        })
    }

    /// The present fault, if any.
    pub(crate) fn trouble(&mut self) -> Option<&str> {
        let now = mono_now();
        if now >= self.due.max(self.patient_until) {
            self.due = now + LOOK_EVERY;
            self.trouble = self.tables.iter().find_map(|(name, imports)| match shown(imports, name) {
                Ok(values) => stale(&values),
                Err(why) => Some(format!("values {name:?} cannot be read: {why}")),
            });
        }
        self.trouble.as_deref()
    }
}

fn stale(values: &[Shown]) -> Option<String> {
    let mut stale = values.iter().filter(|one| one.stale);
    let first = stale.next()?;
    let (count, of) = (1 + stale.count(), values.len());
    Some(format!("{count} of {of} polled values are stale: {}{}", first.name, if count > 1 { ", …" } else { "" }))
}

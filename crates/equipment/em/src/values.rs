//! Reading a table of current values.

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
    /// How long ago it was read.
    pub age: DurNs,
    /// Whether it is older than two cycles, was never read, or its poller is gone.
    pub stale: bool,
}

/// All values of the table `name`, without a message; the poller is not disturbed.
///
/// # Errors
/// Nobody polls under this name, or what is shared there is no such table.
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

/// A manager's own tables, looked at for what is stale: a device does not answer. Opened once, as memory is not mapped and unmapped
/// beside real-time threads.
pub(crate) struct Watched {
    tables: Vec<(String, Imports)>,
    /// Until when values that were never read are not late yet.
    patient_until: MonoNs,
    due: MonoNs,
    /// What was found last.
    trouble: Option<String>,
}

/// How often they are looked at.
const LOOK_EVERY: DurNs = DurNs::from_secs(1);

impl Watched {
    /// Opens all of a manager, which exports them already.
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

    /// What is wrong, if anything.
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

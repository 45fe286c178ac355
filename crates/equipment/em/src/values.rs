//! Reading a table of current values.

use crate::error::ValuesError;
use base::DurNs;
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
    let imports = Imports::open(name)?;
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

//! The tables of current values: shared memory that pollers write and any process can read without a message.

use crate::error::Error;
use base::MonoNs;
use equipment::Tables;
use rt::{Exports, Number, VariableSpec};

// Names and units that pass the check fit into the shared memory.
const _: () = assert!(equipment::POLLED_NAME_BYTES_MAX == ring::NAME_BYTES);
const _: () = assert!(equipment::POLLED_UNIT_BYTES_MAX == ring::UNIT_BYTES);

/// The tables of a manager. Clones share the memory. Each value has exactly one writing thread.
#[derive(Clone, Debug)]
pub(crate) struct Polls {
    tables: Vec<(Exports, Vec<usize>)>,
}

impl Polls {
    /// Opens all tables of a manager.
    pub(crate) fn open(tables: &Tables) -> Result<Self, Error> {
        let mut all = Vec::new();
        for poll in &tables.polls {
            let exports = Exports::open(&poll.name, poll.entries.len().max(1)).map_err(Error::Values)?;
            exports.set_period(poll.period);
            let mut indices = Vec::new();
            for entry in &poll.entries {
                let entry = &tables.entries[*entry];
                let name = format!("{}/{}", entry.object, entry.complement());
                let unit = &tables.rows[entry.row].unit;
                let spec = VariableSpec { name: &name, unit, first: Number::Float(0.0), safe: None };
                indices.push(exports.add(&spec).map_err(Error::Values)?);
            }
            all.push((exports, indices));
        }
        Ok(Self { tables: all })
    }

    /// Writes a value with the number of its cycle. A value that could not be read (`None`) keeps its time.
    ///
    /// Real-time: a few stores.
    pub(crate) fn set(&self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, now: MonoNs) {
        if let (Some(value), Some((exports, indices))) = (value, self.tables.get(poll)) {
            exports.set(indices[entry], Number::Float(value), pulse, now);
        }
    }
}

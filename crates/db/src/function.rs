//! Functions that `sub` and `aSub` records call, found by name.

use crate::engine::Db;
use base::Array;
use std::sync::Arc;

/// How many inputs and outputs these records have: A to U.
pub const ARGUMENTS: usize = 21;

/// What a `sub` record hands to its function.
pub struct SubCall<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// A to U; what is written here stays in the fields.
    pub inputs: &'a mut [f64; ARGUMENTS],
    /// VAL.
    pub val: &'a mut f64,
    /// The function's own number for this record, 0 at first.
    pub user: &'a mut u64,
}

/// What an `aSub` record hands to its function.
pub struct ASubCall<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// A to U with as many elements as were read (NEA to NEU), of the types in FTA to FTU.
    pub inputs: &'a mut [Array; ARGUMENTS],
    /// VALA to VALU. Their lengths become NEVA to NEVU; types (FTVA to FTVU) and room (NOVA to NOVU) are the record's:
    /// elements beyond the room are cut, an array of another type is converted.
    pub outputs: &'a mut [Array; ARGUMENTS],
    /// The function's own number for this record, 0 at first.
    pub user: &'a mut u64,
}

/// A function of `sub` or `aSub` records. It runs on the thread that processes the record: it must not block, and on a
/// real-time scan it must not allocate. A negative result raises SOFT alarm with the severity in BRSV.
#[derive(Clone)]
pub enum Function {
    /// For `sub` records.
    Sub(Arc<dyn Fn(&mut SubCall<'_>) -> i32 + Send + Sync>),
    /// For `aSub` records.
    ASub(Arc<dyn Fn(&mut ASubCall<'_>) -> i32 + Send + Sync>),
}

/// All functions, by name. A record keeps the number of its function, plus one.
#[derive(Clone, Default)]
pub(crate) struct Functions {
    names: Vec<String>,
    functions: Vec<Function>,
}

impl Functions {
    pub(crate) fn get(&self, number: u32) -> Option<&Function> {
        self.functions.get((number as usize).checked_sub(1)?)
    }

    fn find(&self, name: &[u8]) -> Option<(u32, &Function)> {
        let at = self.names.iter().position(|known| known.as_bytes() == name)?;
        Some((at as u32 + 1, &self.functions[at]))
    }

    /// The number of a function for `sub` records; 0 where there is none.
    pub(crate) fn sub(&self, name: &[u8]) -> u32 {
        self.find(name).filter(|(_, function)| matches!(function, Function::Sub(_))).map_or(0, |(number, _)| number)
    }

    /// The number of a function for `aSub` records; 0 where there is none.
    pub(crate) fn a_sub(&self, name: &[u8]) -> u32 {
        self.find(name).filter(|(_, function)| matches!(function, Function::ASub(_))).map_or(0, |(number, _)| number)
    }
}

impl Db {
    /// Makes a function known to `sub` and `aSub` records by its name; records that are there call the new one from now.
    pub fn register_function(&mut self, name: &str, function: Function) {
        match self.functions.names.iter().position(|known| known == name) {
            Some(at) => self.functions.functions[at] = function,
            None => {
                self.functions.names.push(name.to_owned());
                self.functions.functions.push(function);
            }
        }
    }

    /// Names of all functions and the type of record that calls them.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.functions
            .names
            .iter()
            .zip(&self.functions.functions)
            .map(|(name, function)| (name.as_str(), if matches!(function, Function::Sub(_)) { "sub" } else { "aSub" }))
    }

    /// Says that a record's function is not registered.
    pub(crate) fn no_function(&mut self, rec: u32, field: &str, name: &[u8]) {
        let text = format!(
            "{}.{field}: no function \"{}\" for {} records is registered; register it or load its plug-in before iocInit",
            self.record_name(rec),
            name.escape_ascii(),
            self.type_of(rec).name
        );
        self.notice(text);
    }
}

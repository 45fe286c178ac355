//! Functions that `sub` and `aSub` records call, found by name.

use crate::model::id::RecId;
use crate::run::callback::Callback;
use crate::run::engine::Db;
use base::{Alarm, Array};
use std::sync::Arc;

/// How many inputs and outputs these records have: A to U.
pub const ARGUMENTS: usize = 21;

/// A call that ends later, as a number that any thread may keep; see [`Call::later`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The shard of the database that owns the record, numbered as [`Db::split`] returned them.
    pub shard: Option<u32>,
    /// Number of the record there.
    record: RecId,
    /// Tells the call from others of the record.
    serial: u64,
}

impl Token {
    /// As words, for other languages.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [u64::from(self.shard.map_or(0, |shard| shard + 1)) << 32 | u64::from(self.record.0), self.serial]
    }

    /// From what [`to_words`](Self::to_words) gave.
    #[must_use]
    pub const fn from_words([place, serial]: [u64; 2]) -> Self {
        Self { shard: ((place >> 32) as u32).checked_sub(1), record: RecId(place as u32), serial }
    }
}

/// What both record types hand to a function.
pub struct Call<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// The function's own number for this record, 0 at first.
    pub user: &'a mut u64,
    /// Whether this is the second half of a call that was to end [`later`](Self::later), and now has ended.
    pub resumed: bool,
    /// An alarm for the record to raise, besides what the result says.
    pub alarm: Alarm,
    token: Token,
    later: bool,
}

impl<'a> Call<'a> {
    pub(crate) const fn new(record: &'a str, user: &'a mut u64, resumed: bool, token: Token) -> Self {
        Self { record, user, resumed, alarm: Alarm::NONE, token, later: false }
    }

    /// The alarm to raise, and what to wait for; 0 where it has ended.
    pub(crate) const fn end(self) -> (Alarm, u64) {
        (self.alarm, if self.later { self.token.serial } else { 0 })
    }

    /// Lets the call end later: the record stays active (PACT) and the result of this call does not count. Once the
    /// token was given to [`Db::finish_function`], the function is called again, [`resumed`](Self::resumed), and that
    /// result counts. At start, for INAM, there is no later.
    pub const fn later(&mut self) -> Token {
        self.later = true;
        self.token
    }

    /// What [`later`](Self::later) would return.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }
}

/// What a `sub` record hands to its function.
pub struct SubCall<'a> {
    /// The record, and what else the function may say.
    pub call: Call<'a>,
    /// A to U; what is written here stays in the fields.
    pub inputs: &'a mut [f64; ARGUMENTS],
    /// VAL.
    pub val: &'a mut f64,
}

/// What an `aSub` record hands to its function.
pub struct ASubCall<'a> {
    /// The record, and what else the function may say.
    pub call: Call<'a>,
    /// A to U with as many elements as were read (NEA to NEU), of the types in FTA to FTU.
    pub inputs: &'a mut [Array; ARGUMENTS],
    /// VALA to VALU. Their lengths become NEVA to NEVU; types (FTVA to FTVU) and room (NOVA to NOVU) are the record's:
    /// elements beyond the room are cut, an array of another type is converted.
    pub outputs: &'a mut [Array; ARGUMENTS],
    /// NOVA to NOVU.
    pub room: &'a [u32; ARGUMENTS],
}

/// A function of `sub` or `aSub` records. It runs on the thread that processes the record: it must not block, and on a
/// real-time scan it must not allocate. A negative result raises SOFT alarm with the severity in BRSV. What takes long
/// belongs on a thread of its own: see [`Call::later`].
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
    /// Calls so far.
    calls: u64,
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

    /// A call that was to end later has ended: its record goes on soon, in the order of PRIO. Whether it waited for that.
    pub fn finish_function(&mut self, token: Token) -> bool {
        if token.record >= self.records.common.end() {
            return false;
        }
        let Some(waiting) = self.records.waiting(token.record) else { return false };
        if *waiting != token.serial || token.serial == 0 {
            return false;
        }
        *waiting = 0;
        self.call_back(token.record, Callback::Resume);
        true
    }

    /// The number of a record's next call.
    pub(crate) fn next_call(&mut self, rec: RecId) -> Token {
        self.functions.calls += 1;
        Token { shard: self.split.shard, record: rec, serial: self.functions.calls }
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
    pub(crate) fn no_function(&mut self, rec: RecId, field: &str, name: &[u8]) {
        let text = format!(
            "{}.{field}: no function \"{}\" for {} records is registered; register it or load its plug-in before iocInit",
            self.records.name(rec),
            name.escape_ascii(),
            self.records.type_of(rec).name
        );
        self.notice(text);
    }
}

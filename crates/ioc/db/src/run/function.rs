//! Functions called by `sub` and `aSub` records, by name.

use crate::model::id::RecId;
use crate::run::callback::Callback;
use crate::run::engine::Db;
use base::{Alarm, Array};
use std::sync::Arc;

/// Number of inputs and outputs of these records: A to U.
pub const ARGUMENTS: usize = 21;

/// Identifies a call that ends later; see [`Call::later`]. It can be kept by any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Shard that owns the record, as numbered by [`Db::split`].
    pub shard: Option<u32>,
    /// Number of the record in the shard.
    record: RecId,
    /// Serial number of the call within the record.
    serial: u64,
}

impl Token {
    /// The token as numbers, for other languages.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [u64::from(self.shard.map_or(0, |shard| shard + 1)) << 32 | u64::from(self.record.0), self.serial]
    }

    /// Restores a token from [`to_words`](Self::to_words).
    #[must_use]
    pub const fn from_words([place, serial]: [u64; 2]) -> Self {
        Self { shard: ((place >> 32) as u32).checked_sub(1), record: RecId(place as u32), serial }
    }
}

/// Arguments common to functions of both record types.
pub struct Call<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// A number that the function may keep per record; initially 0.
    pub user: &'a mut u64,
    /// Whether this is the second half of a call that was continued [`later`](Self::later).
    pub resumed: bool,
    /// Alarm to raise, in addition to that of the result.
    pub alarm: Alarm,
    token: Token,
    later: bool,
}

impl<'a> Call<'a> {
    pub(crate) const fn new(record: &'a str, user: &'a mut u64, resumed: bool, token: Token) -> Self {
        Self { record, user, resumed, alarm: Alarm::NONE, token, later: false }
    }

    /// The alarm to raise, and the serial number of the call to wait for; 0 if the call has ended.
    pub(crate) const fn end(self) -> (Alarm, u64) {
        (self.alarm, if self.later { self.token.serial } else { 0 })
    }

    /// Defers the end of the call. The record stays active (PACT) and the result of this call is ignored. After
    /// [`Db::finish_function`] with the token, the function is called again with [`resumed`](Self::resumed) set, and that
    /// result is used. Functions in INAM, which run at start, cannot be deferred.
    pub const fn later(&mut self) -> Token {
        self.later = true;
        self.token
    }

    /// The token that [`later`](Self::later) would return.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }
}

/// Arguments of a function of a `sub` record.
pub struct SubCall<'a> {
    /// Common arguments.
    pub call: Call<'a>,
    /// A to U. Changes are stored in the fields.
    pub inputs: &'a mut [f64; ARGUMENTS],
    /// VAL.
    pub val: &'a mut f64,
}

/// Arguments of a function of an `aSub` record.
pub struct ASubCall<'a> {
    /// Common arguments.
    pub call: Call<'a>,
    /// A to U: the elements that were read (NEA to NEU), of the types in FTA to FTU.
    pub inputs: &'a mut [Array; ARGUMENTS],
    /// VALA to VALU. Their lengths become NEVA to NEVU. The record determines types (FTVA to FTVU) and capacities (NOVA to
    /// NOVU): longer arrays are truncated and other types are converted.
    pub outputs: &'a mut [Array; ARGUMENTS],
    /// NOVA to NOVU.
    pub room: &'a [u32; ARGUMENTS],
}

/// A function of `sub` or `aSub` records. It runs on the thread that processes the record, so it must not block. On a
/// real-time scan it must not allocate. A negative result raises a SOFT alarm with the severity in BRSV. Long work belongs on
/// a separate thread: see [`Call::later`].
#[derive(Clone)]
pub enum Function {
    /// For `sub` records.
    Sub(Arc<dyn Fn(&mut SubCall<'_>) -> i32 + Send + Sync>),
    /// For `aSub` records.
    ASub(Arc<dyn Fn(&mut ASubCall<'_>) -> i32 + Send + Sync>),
}

/// All functions by name. A record stores the number of its function, plus one.
#[derive(Clone, Default)]
pub(crate) struct Functions {
    names: Vec<String>,
    functions: Vec<Function>,
    /// Number of calls so far.
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

    /// Number of a function for `sub` records; 0 if it does not exist.
    pub(crate) fn sub(&self, name: &[u8]) -> u32 {
        self.find(name).filter(|(_, function)| matches!(function, Function::Sub(_))).map_or(0, |(number, _)| number)
    }

    /// Number of a function for `aSub` records; 0 if it does not exist.
    pub(crate) fn a_sub(&self, name: &[u8]) -> u32 {
        self.find(name).filter(|(_, function)| matches!(function, Function::ASub(_))).map_or(0, |(number, _)| number)
    }
}

impl Db {
    /// Registers a function for `sub` or `aSub` records. It replaces an existing function of the same name from the next call
    /// on.
    pub fn register_function(&mut self, name: &str, function: Function) {
        match self.functions.names.iter().position(|known| known == name) {
            Some(at) => self.functions.functions[at] = function,
            None => {
                self.functions.names.push(name.to_owned());
                self.functions.functions.push(function);
            }
        }
    }

    /// Ends a deferred call. Its record continues soon, in the order of PRIO. Returns whether the record waited for this
    /// call.
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

    /// Token of a record's next call.
    pub(crate) fn next_call(&mut self, rec: RecId) -> Token {
        self.functions.calls += 1;
        Token { shard: self.split.shard, record: rec, serial: self.functions.calls }
    }

    /// Names of all functions, and the record type that calls each.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.functions
            .names
            .iter()
            .zip(&self.functions.functions)
            .map(|(name, function)| (name.as_str(), if matches!(function, Function::Sub(_)) { "sub" } else { "aSub" }))
    }

    /// Reports that a record's function is not registered.
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

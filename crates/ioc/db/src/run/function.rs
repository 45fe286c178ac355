//! Functions called by `sub` and `aSub` records, by name.

use crate::model::id::RecId;
use crate::rec::common::Common;
use crate::rec::message::Message;
use crate::run::callback::Callback;
use crate::run::engine::Db;
use base::{Alarm, Array, Severity, Stamp, Status, Str40};
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

/// Fields of a record that its function may read. Changes of some are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFields<'a> {
    /// DESC.
    pub description: &'a [u8],
    /// TIME. A change is stored if TSE is -2: the function sets the time stamp.
    pub time: Stamp,
    /// VAL of an aSub record; 0 for a sub record.
    pub value: i32,
    /// STAT and SEVR.
    pub alarm: Alarm,
    /// NSTA and NSEV, the alarm raised so far in this processing.
    pub new_alarm: Alarm,
    /// BRSV, the severity after a negative result. A change is stored.
    pub bad_return: u16,
    /// PRIO.
    pub priority: u16,
    /// PREC. A change is stored.
    pub precision: i16,
    /// EGU of a sub record. A change is stored.
    pub units: Str40,
    /// TSE. A change is stored.
    pub time_event: i16,
    /// TPRO. A change is stored.
    pub trace: u8,
    /// UDF. A change is stored, but a call without a negative result sets it as in C.
    pub undefined: u8,
}

impl<'a> RecordFields<'a> {
    const fn without_description(self) -> RecordFields<'static> {
        let Self { time, value, alarm, new_alarm, bad_return, priority, .. } = self;
        let Self { precision, units, time_event, trace, undefined, .. } = self;
        #[rustfmt::skip]
        let fields = RecordFields {
            description: b"", time, value, alarm, new_alarm, bad_return, priority, precision, units, time_event, trace,
            undefined,
        };
        fields
    }

    pub(crate) fn of(common: &'a Common, value: i32, bad_return: u16, precision: i16) -> Self {
        Self {
            description: common.desc.bytes(),
            time: common.time,
            value,
            alarm: common.alarm(),
            new_alarm: Alarm {
                status: Status::from_index(common.nsta).unwrap_or_default(),
                severity: Severity::from_index(common.nsev),
            },
            bad_return,
            priority: common.prio,
            precision,
            units: Str40::EMPTY,
            time_event: common.tse,
            trace: common.tpro,
            undefined: common.udf,
        }
    }
}

/// Arguments common to functions of both record types.
pub struct Call<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// Other fields of the record.
    pub fields: RecordFields<'a>,
    /// A number that the function may keep per record; initially 0.
    pub user: &'a mut u64,
    /// Whether this is the second half of a call that was continued [`later`](Self::later).
    pub resumed: bool,
    /// Whether this is the call of the function in INAM, when the record starts.
    pub initial: bool,
    /// Alarm to raise, in addition to that of the result.
    pub alarm: Alarm,
    /// Message of this alarm (AMSG). The process keeps up to 1,000 different ones; later ones are empty.
    pub message: Str40,
    token: Token,
    later: bool,
}

impl<'a> Call<'a> {
    pub(crate) const fn new(
        record: &'a str,
        fields: RecordFields<'a>,
        user: &'a mut u64,
        turn: Turn,
        token: Token,
    ) -> Self {
        let (resumed, initial) = (matches!(turn, Turn::Resumed), matches!(turn, Turn::Initial));
        let (alarm, message) = (Alarm::NONE, Str40::EMPTY);
        Self { record, fields, user, resumed, initial, alarm, message, token, later: false }
    }

    /// Result of the call, apart from the arguments.
    pub(crate) const fn end(self) -> CallEnd {
        CallEnd {
            alarm: self.alarm,
            message: self.message,
            waiting: if self.later { self.token.serial } else { 0 },
            fields: self.fields.without_description(),
        }
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

/// Reason of a call.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    /// The record starts: INAM.
    Initial,
    /// The record is processed.
    Process,
    /// The second half of a call that ends later.
    Resumed,
}

impl Turn {
    pub(crate) const fn of(resumed: bool) -> Self {
        if resumed { Self::Resumed } else { Self::Process }
    }
}

/// Result of a call, apart from the arguments.
pub(crate) struct CallEnd {
    /// The alarm to raise.
    pub(crate) alarm: Alarm,
    message: Str40,
    /// Serial number of the call to wait for; 0 if the call has ended.
    pub(crate) waiting: u64,
    /// The fields as the function left them, without DESC.
    pub(crate) fields: RecordFields<'static>,
}

impl CallEnd {
    /// Raises the alarm of a call that has ended, and stores the fields that records of all types have.
    pub(crate) fn store(&self, common: &mut Common) {
        common.raise_with(self.alarm.status, self.alarm.severity as u16, Message::of_text(self.message.bytes()));
        (common.tse, common.tpro, common.udf) = (self.fields.time_event, self.fields.trace, self.fields.undefined);
        if common.tse == -2 {
            common.time = self.fields.time;
        }
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
    /// NOA to NOU.
    pub capacity: &'a [u32; ARGUMENTS],
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

impl Function {
    /// Whether it is for `aSub` records.
    const fn takes_arrays(&self) -> bool {
        matches!(self, Self::ASub(_))
    }
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

    /// Number of a function; 0 if it does not exist.
    fn find(&self, name: &[u8], arrays: bool) -> u32 {
        let mut all = self.names.iter().zip(&self.functions);
        let found = all.position(|(known, function)| known.as_bytes() == name && function.takes_arrays() == arrays);
        found.map_or(0, |at| at as u32 + 1)
    }

    /// Number of a function for `sub` records; 0 if it does not exist.
    pub(crate) fn sub(&self, name: &[u8]) -> u32 {
        self.find(name, false)
    }

    /// Number of a function for `aSub` records; 0 if it does not exist.
    pub(crate) fn a_sub(&self, name: &[u8]) -> u32 {
        self.find(name, true)
    }
}

impl Db {
    /// Registers a function for `sub` or `aSub` records. It replaces an existing function of the same name and kind from the
    /// next call on.
    pub fn register_function(&mut self, name: &str, function: Function) {
        match self.functions.find(name.as_bytes(), function.takes_arrays()) {
            0 => {
                self.functions.names.push(name.to_owned());
                self.functions.functions.push(function);
            }
            number => self.functions.functions[number as usize - 1] = function,
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
            .map(|(name, function)| (name.as_str(), if function.takes_arrays() { "aSub" } else { "sub" }))
    }

    /// Reports that a record's function is not registered.
    pub(crate) fn no_function(&mut self, rec: RecId, field: &str, name: &[u8]) {
        let text = format!(
            "{}.{field}: no function \"{}\" for {} records is registered; load a plug-in with it before iocInit: dlload FILE",
            self.records.name(rec),
            name.escape_ascii(),
            self.records.type_of(rec).name
        );
        self.notice(text);
    }
}

//! Functions of `sub` and `aSub` records from plug-ins written in C (`tahti.h`).

mod child;
mod separate;
mod wire;

pub use child::run;

use crate::engine::Mailbox;
use crate::faults::Faults;
use crate::shell::Failed;
use base::{Alarm, Severity, Stamp, Status};
use db::{ASubCall, Call, Db, Function, RecordFields, SubCall, Token};
use separate::Separate;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use sys::plugin::{self, CFunction, Fields};
use wire::{Arguments, Arrays};

/// Option of `tahti ioc` for the process of a plug-in: [`run`].
pub const RUN_OPTION: &str = "--run-plugin";

/// Maximum time of a call in a separate process.
const LIMIT: Duration = Duration::from_secs(1);

/// Where the functions of a plug-in run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a separate process. A call may take this long.
    Separate(Duration),
    /// In the IOC, on the thread of the record: for real-time scans. A fault of a function ends the IOC.
    Inside,
}

impl Default for Place {
    fn default() -> Self {
        Self::Separate(LIMIT)
    }
}

/// A text that is no place of a plug-in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found \"{0}\", expected inside, or seconds of a call from 0.001 to 3600")]
pub struct BadPlace(pub String);

impl FromStr for Place {
    type Err = BadPlace;

    /// `inside`, or the maximum seconds of a call; empty: a separate process, 1 s.
    fn from_str(text: &str) -> Result<Self, BadPlace> {
        match text {
            "" => Ok(Self::default()),
            "inside" => Ok(Self::Inside),
            seconds => match seconds.parse::<f64>() {
                Ok(seconds) if (0.001..=3_600.0).contains(&seconds) => {
                    Ok(Self::Separate(Duration::from_secs_f64(seconds)))
                }
                _ => Err(BadPlace(seconds.to_owned())),
            },
        }
    }
}

/// Loads a plug-in and returns its functions by name. Ends of deferred calls are sent to the IOC behind `mailbox`, once it
/// runs. `faults` gets the ends of a separate process.
///
/// # Errors
/// If the file cannot be loaded, or is not a plug-in of this version.
pub fn load(
    path: &Path,
    place: Place,
    mailbox: Arc<OnceLock<Mailbox>>,
    faults: &Faults,
) -> Result<Vec<(String, Function)>, Failed> {
    let done = move |words| mailbox.get().is_some_and(|mailbox| mailbox.finish_or_refuse(Token::from_words(words)));
    match place {
        Place::Inside => {
            let functions = plugin::load(path, done).map_err(|error| Failed(error.to_string()))?;
            Ok(functions.into_iter().map(|function| (function.name.clone(), function_of(function))).collect())
        }
        Place::Separate(limit) => {
            let (plugin, functions) =
                Separate::start(path, limit, done, faults.clone()).map_err(|error| Failed(error.to_string()))?;
            let numbered = functions.into_iter().zip(0..);
            Ok(numbered.map(|((name, arrays), number)| (name, separate_function(&plugin, number, arrays))).collect())
        }
    }
}

/// A function of a plug-in in a separate process.
fn separate_function(plugin: &Arc<Separate>, number: u32, arrays: bool) -> Function {
    let plugin = plugin.clone();
    if arrays {
        Function::ASub(Arc::new(move |sub: &mut ASubCall<'_>| {
            let ASubCall { call, inputs, outputs, capacity, room } = sub;
            let (capacity, room) = (**capacity, **room);
            let given = Arrays { inputs: inputs.clone(), outputs: outputs.clone(), capacity, room };
            let initial = call.initial;
            around(call, |raw| match plugin.call(number, initial, raw, Arguments::Arrays(Box::new(given))) {
                Some((result, Arguments::Arrays(arrays))) => {
                    (**inputs, **outputs) = (arrays.inputs, arrays.outputs);
                    result
                }
                _ => -1,
            })
        }))
    } else {
        Function::Sub(Arc::new(move |sub: &mut SubCall<'_>| {
            let SubCall { call, inputs, val } = sub;
            let initial = call.initial;
            around(call, |raw| match plugin.call(number, initial, raw, Arguments::Numbers(**inputs, **val)) {
                Some((result, Arguments::Numbers(numbers, value))) => {
                    (**inputs, **val) = (numbers, value);
                    result
                }
                _ => -1,
            })
        }))
    }
}

/// Headers of the structures of record types and of menus, by file name.
#[must_use]
pub fn headers() -> Vec<(String, String)> {
    db::c_headers(Db::new().schema())
}

fn function_of(function: CFunction) -> Function {
    if function.arrays {
        Function::ASub(Arc::new(move |sub: &mut ASubCall<'_>| {
            let ASubCall { call, inputs, outputs, capacity, room } = sub;
            around(call, |raw| function.call_arrays(raw, inputs, outputs, capacity, room))
        }))
    } else {
        Function::Sub(Arc::new(move |sub: &mut SubCall<'_>| {
            let SubCall { call, inputs, val } = sub;
            around(call, |raw| function.call_numbers(raw, inputs, val))
        }))
    }
}

/// Converts the common arguments of a call to the plug-in's form and back.
fn around(call: &mut Call<'_>, run: impl FnOnce(&mut plugin::Call<'_>) -> i32) -> i32 {
    let token = call.token().to_words();
    let (record, resumed) = (call.record, call.resumed);
    let (description, fields) = (call.fields.description, fields_of(&call.fields));
    let mut raw =
        plugin::Call { record, user: call.user, resumed, token, later: false, description, fields, alarm: (0, 0) };
    let result = run(&mut raw);
    let (later, (status, severity), fields) = (raw.later, raw.alarm, raw.fields);
    if later {
        call.later();
    }
    call.fields.bad_return = fields.bad_return.min(Severity::Invalid as u16);
    (call.fields.precision, call.fields.units) = (fields.precision, fields.units);
    (call.fields.time_event, call.fields.trace, call.fields.undefined) =
        (fields.time_event, fields.trace, fields.undefined);
    call.message = fields.message;
    call.fields.time = Stamp { secs: fields.seconds, nanos: fields.nanoseconds.min(999_999_999) };
    call.alarm =
        Alarm { status: Status::from_index(status).unwrap_or_default(), severity: Severity::from_index(severity) };
    result
}

/// The fields of a record as a plug-in reads them.
fn fields_of(fields: &RecordFields<'_>) -> Fields {
    Fields {
        value: fields.value,
        seconds: fields.time.secs,
        nanoseconds: fields.time.nanos,
        status: fields.alarm.status as u16,
        severity: fields.alarm.severity as u16,
        new_status: fields.new_alarm.status as u16,
        new_severity: fields.new_alarm.severity as u16,
        bad_return: fields.bad_return,
        priority: fields.priority,
        precision: fields.precision,
        time_event: fields.time_event,
        trace: fields.trace,
        undefined: fields.undefined,
        units: fields.units,
        ..Fields::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plug_in_runs_in_a_separate_process_unless_asked_otherwise() {
        assert_eq!("".parse(), Ok(Place::Separate(LIMIT)));
        assert_eq!("inside".parse(), Ok(Place::Inside));
        assert_eq!("2.5".parse(), Ok(Place::Separate(Duration::from_millis(2_500))));
        for wrong in ["0", "-1", "nan", "1e9", "outside"] {
            assert!(wrong.parse::<Place>().unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}

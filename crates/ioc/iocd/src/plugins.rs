//! Functions of `sub` and `aSub` records from plug-ins written in C (`tahti.h`).

use crate::engine::Mailbox;
use base::{Alarm, Severity, Status};
use db::{ASubCall, Call, Function, SubCall, Token};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use sys::plugin::{self, CFunction, PluginError};

/// Loads a plug-in and returns its functions by name. Ends of deferred calls are sent to the IOC behind `mailbox`, once it
/// runs.
///
/// # Errors
/// If the file cannot be loaded, or is not a plug-in of this version.
pub fn load(path: &Path, mailbox: Arc<OnceLock<Mailbox>>) -> Result<Vec<(String, Function)>, PluginError> {
    let done = move |words| mailbox.get().is_some_and(|mailbox| mailbox.finish_or_refuse(Token::from_words(words)));
    Ok(plugin::load(path, done)?.into_iter().map(|function| (function.name.clone(), function_of(function))).collect())
}

fn function_of(function: CFunction) -> Function {
    if function.arrays {
        Function::ASub(Arc::new(move |sub: &mut ASubCall<'_>| {
            let ASubCall { call, inputs, outputs, room } = sub;
            around(call, |raw| function.call_arrays(raw, inputs, outputs, room))
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
    let mut raw = plugin::Call { record, user: call.user, resumed, token, later: false, alarm: (0, 0) };
    let result = run(&mut raw);
    let (later, (status, severity)) = (raw.later, raw.alarm);
    if later {
        call.later();
    }
    call.alarm =
        Alarm { status: Status::from_index(status).unwrap_or_default(), severity: Severity::from_index(severity) };
    result
}

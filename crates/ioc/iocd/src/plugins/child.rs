//! The process of a plug-in: calls its functions as the IOC asks, until the IOC ends.

use super::wire::{Arguments, Reply, Request, Writer, receive, send};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use sys::plugin::{self, CFunction, Call};

/// Maximum length of a request. The IOC is trusted; this only detects a wrong program at the other end.
const REQUEST_MAX: usize = 1 << 40;

/// Runs a plug-in. Standard input is the socket for calls, standard output the one for ends of calls that end later.
///
/// # Errors
/// If the standard streams are not such sockets. The IOC gets the reason why a plug-in is not loaded.
pub fn run(file: &Path) -> std::io::Result<()> {
    let mut calls = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let ends = UnixStream::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    plugin::isolate()?;
    let ends = Mutex::new(ends);
    let done = move |words: [u64; 2]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        ends.lock().is_ok_and(|mut ends| ends.write_all(&bytes).is_ok())
    };
    let functions = match plugin::load(file, done) {
        Ok(functions) => functions,
        Err(error) => return send(&mut calls, &hello(&[], &error.to_string())),
    };
    send(&mut calls, &hello(&functions, ""))?;
    let mut users = HashMap::new();
    while let Ok(message) = receive(&mut calls, REQUEST_MAX) {
        let Some(reply) = Request::decode(&message).ok().and_then(|request| answer(&functions, &mut users, request))
        else {
            break;
        };
        send(&mut calls, &reply.encode())?;
    }
    Ok(())
}

/// First message: the fault, or the functions.
fn hello(functions: &[CFunction], fault: &str) -> Vec<u8> {
    let mut to = Writer::default();
    to.text(fault);
    to.u32(functions.len() as u32);
    for function in functions {
        to.text(&function.name);
        to.u32(function.arrays.into());
    }
    to.0
}

/// Calls a function. `None` if the request is malformed.
fn answer(functions: &[CFunction], users: &mut HashMap<String, u64>, request: Request) -> Option<Reply> {
    let function = functions.get(request.function as usize)?;
    let Request { resumed, token, record, description, fields, mut arguments, .. } = request;
    let user = users.entry(record.clone()).or_default();
    let mut call =
        Call { record: &record, user, resumed, token, later: false, description: &description, fields, alarm: (0, 0) };
    let result = match &mut arguments {
        Arguments::Numbers(inputs, val) if !function.arrays => function.call_numbers(&mut call, inputs, val),
        Arguments::Arrays(arrays) if function.arrays => {
            function.call_arrays(&mut call, &mut arrays.inputs, &mut arrays.outputs, &arrays.capacity, &arrays.room)
        }
        _ => return None,
    };
    Some(Reply { result, later: call.later, alarm: call.alarm, fields: call.fields, arguments })
}

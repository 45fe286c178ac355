//! `tahti pvcall`: calls a channel as a function, and prints the result.

use super::options::{self, Options};
use super::{Args, format, open, parse};
use crate::failure::Failure;
use pva::client::{Event, OpId};
use pva::codec::{Array, Kind, Mask, Struct, Type, Value};
use pvanet::session::Session;
use serde_json::Value as Json;
use std::process::ExitCode;

const PVCALL: options::Tool = options::Tool {
    name: "pvcall",
    letters: "hVr:w:p:M:vds:a:qtinF:f:",
    anywhere: false,
    needs_name: true,
    timeout_secs: 5.0,
    usage: "
Usage: tahti pvcall [options] <PV name> [<arg1>=<value>]...

options:
  -h: Help: Print this message
  -V: Print version and exit
  -r <pv request>:   Request, default is empty
  -w <sec>:          Wait time, specifies timeout, default is 5 second(s)
  -p <provider>:     Only 'pva'
  -M <raw|nt|json>:  Output mode, default is 'nt'
  -v:                Show argument and entire result (implies Raw mode)
  -s <service name>: legacy form of PV name
  -a <arg=value>:    legacy form of argument
  -d, -q, -t, -i, -n, -F: ignored
A value is a text, an array of texts ([...]), or a structure ({...}) in JSON.

example: tahti pvcall pv:name:add lhs=1 rhs=2
",
};

/// The error of a call without an answer in time.
const TIMEOUT: &str = "Timeout";

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&PVCALL, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let called = open().map(|mut session| call(&mut session, &options));
    match called {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) if failure.to_string() == TIMEOUT => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        Ok(Err(failure)) => {
            eprintln!("Error: {failure}");
            ExitCode::FAILURE
        }
        Err(code) => code,
    }
}

fn call(session: &mut Session, options: &Options) -> Result<(), Failure> {
    let [name, words @ ..] = &options.words[..] else { return Err("No pv name specified.".into()) };
    let arguments = words.iter().map(|word| argument(word).map_err(|what| format!("argument '{word}': {what}")));
    let (ty, value) = uri(name, arguments.collect::<Result<_, _>>()?)?;
    let shows = |ty: &Type, value: &Value| {
        let line = format::line(options.mode, "", 0, ty, &Mask::of([0]), value);
        print!("{}", line.strip_prefix(' ').unwrap_or(&line));
    };
    let verbose = options.mode == format::Mode::Raw || options.mode == format::Mode::Whole;
    if verbose {
        println!("# Argument");
        shows(&ty, &value);
    }
    let id = session.client.channel(Session::now(), name);
    let call = session.client.call(id, &options.request, ty, value);
    let (ty, value) = answer(session, options, call)?;
    if verbose {
        println!("# Result");
    }
    if !matches!(value, Value::Any(None)) {
        shows(&ty, &value);
    }
    Ok(())
}

/// Waits for the result of a call.
pub(super) fn answer(session: &mut Session, options: &Options, call: OpId) -> Result<(Type, Value), Failure> {
    let until = options.until();
    loop {
        match session.step(until)? {
            Some(Event::Returned(op, ty, value)) if op == call => return Ok((ty, value)),
            Some(Event::Failed(op, status)) if op == call => return Err(status.message.into()),
            Some(Event::Refused(_, status)) => return Err(status.message.into()),
            Some(Event::Message(_, text)) => eprintln!("{text}"),
            Some(_) => {}
            None => return Err(TIMEOUT.into()),
        }
    }
}

/// The argument of a call: the name of the channel, and named values.
pub(super) fn uri(path: &str, query: Vec<(String, Type, Value)>) -> Result<(Type, Value), Failure> {
    let structure = |id: &str, fields| Struct::new(id, fields).map(Type::Struct);
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for (name, ty, value) in query {
        fields.push((name, ty));
        values.push(value);
    }
    let text = |name: &str| (name.to_owned(), Type::Scalar(Kind::Text));
    let query = ("query".to_owned(), structure("", fields)?);
    let ty = structure("epics:nt/NTURI:1.0", vec![text("scheme"), text("authority"), text("path"), query])?;
    let word = |text: &str| Value::Text(text.to_owned());
    Ok((ty, Value::Struct(vec![word("pva"), word(""), word(path), Value::Struct(values)])))
}

/// A named value of the command line.
fn argument(word: &str) -> Result<(String, Type, Value), Failure> {
    let (name, text) = word.split_once('=').ok_or("'=' is missing")?;
    let (ty, value) = match (text.chars().next(), text.chars().last()) {
        (Some('['), Some(']')) => {
            let items: Vec<Json> = serde_json::from_str(text)?;
            let texts = items.into_iter().map(|item| match item {
                Json::String(text) => text,
                other => other.to_string(),
            });
            (Type::Array(Kind::Text), Value::Array(Array::Text(texts.collect())))
        }
        (Some('{'), Some('}')) => parse::natural(&serde_json::from_str(text)?, 0)?,
        _ => (Type::Scalar(Kind::Text), Value::Text(text.to_owned())),
    };
    Ok((name.to_owned(), ty, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_texts_arrays_of_texts_or_structures() {
        let text = |name: &str, text: &str| (name.to_owned(), Type::Scalar(Kind::Text), Value::Text(text.into()));
        assert_eq!(argument("lhs=1").unwrap(), text("lhs", "1"));
        assert_eq!(argument("a=b=c").unwrap(), text("a", "b=c"));
        let array = Value::Array(Array::Text(vec!["x".into(), "2".into()]));
        assert_eq!(argument("a=[\"x\",2]").unwrap(), ("a".into(), Type::Array(Kind::Text), array));
        let (_, ty, value) = argument("a={\"n\":1,\"x\":[1,2.5]}").unwrap();
        assert_eq!(ty.fields().unwrap().field("x").unwrap().2, &Type::Array(Kind::F64));
        assert_eq!(value, Value::Struct(vec![Value::I64(1), Value::Array(Array::F64(vec![1.0, 2.5]))]));
        for wrong in ["a", "a={\"n\":null}", "a={1}", "a=[1,]"] {
            assert!(argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_argument_of_a_call_names_the_channel() {
        let (ty, value) = uri("add", vec![argument("lhs=1").unwrap()]).unwrap();
        let fields = ty.fields().unwrap();
        assert_eq!(fields.id(), "epics:nt/NTURI:1.0");
        assert_eq!(value.field(fields, "path").unwrap().0.as_text(), Some("add"));
    }
}

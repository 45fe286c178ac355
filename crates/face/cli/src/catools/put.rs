//! `tahti caput`: writes a variable.

use super::format::{stamp, unescaped, wide};
use super::get::print;
use super::options::{self, Options, Output};
use super::{Args, Tool};
use crate::failure::Failure;
use base::{Array, Scalar, Str40, Value};
use ca::client::Event;
use ca::{Basic, Class, Dbr};
use std::process::ExitCode;

const CAPUT: options::Tool = options::Tool {
    name: "caput",
    letters: "cnlhatsVS#:w:p:F:",
    anywhere: false,
    usage: "
Usage: tahti caput [options] <PV name> <PV value> ...
       tahti caput -a [options] <PV name> <no of values> <PV value> ...

  -h: Help: Print this message
  -V: Version
Channel Access options:
  -w <sec>:  Wait time, specifies CA timeout, default is 1.0 second(s)
  -c: Asynchronous put (wait for completion)
  -p <prio>: CA priority (0-99, default 0=lowest)
Format options:
  -t: Terse mode - print only successfully written value, without name
  -l: Long mode \"name timestamp value stat sevr\" (read PVs as DBR_TIME_xxx)
Enum format:
  Default: Auto - try value as ENUM string, then as index number
  -n: Force interpretation of values as numbers
  -s: Force interpretation of values as strings
Arrays:
  Default: Put scalar; all value arguments concatenated with spaces
  -S: Put string as an array of chars (long string)
  -a: Put array; number of values, then list of values
  -F <ofs>: Use <ofs> as an alternate output field separator
",
};

pub(crate) fn run(args: Args) -> ExitCode {
    let mut options = match options::parse(&CAPUT, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let words = std::mem::take(&mut options.words);
    // The EPICS tool accepts a count but prints all elements regardless.
    options.count = 0;
    let (name, values) = (&words[..1], &words[1..]);
    if values.is_empty() {
        eprintln!("No value specified. ('caput -h' for help.)");
        return ExitCode::FAILURE;
    }
    let mut tool = match Tool::open(name, &options) {
        Ok(tool) => tool,
        Err(code) => return code,
    };
    if !tool.connect(&options) {
        return ExitCode::FAILURE;
    }
    let id = tool.pvs[0].id;
    let Some(info) = tool.session.client.info(id) else { return ExitCode::FAILURE };
    // With `-a` the first value is the count. It is ignored: the number of values given counts.
    let texts: Vec<String> =
        if options.array { values.iter().skip(1).cloned().collect() } else { vec![values.join(" ")] };
    let value = match value(&mut tool, &options, info.native, &texts) {
        Ok(value) => value,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    if options.output != Output::Terse {
        print!("Old : ");
        show(&mut tool, &options, info.native);
    }
    let io = match tool.session.client.write(id, &value, options.callback) {
        Ok(io) => io,
        Err(error) => {
            eprintln!("ERROR from put operation: {}", refusal(error));
            return ExitCode::FAILURE;
        }
    };
    if let Some(wanted) = io {
        let until = options.until();
        loop {
            match tool.step(until) {
                Ok(Some(Event::Written { io, result, .. })) if io == wanted => {
                    if let Err(status) = result {
                        eprintln!("ERROR occured writing data: {status}");
                        return ExitCode::FAILURE;
                    }
                    break;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    eprintln!("Write callback operation timed out");
                    break;
                }
            }
        }
    }
    if options.output != Output::Terse {
        print!("New : ");
    }
    show(&mut tool, &options, info.native);
    ExitCode::SUCCESS
}

fn show(tool: &mut Tool, options: &Options, native: Basic) {
    let name = tool.pvs[0].name.clone();
    for answer in tool.read_all(options, false) {
        match (options.output, answer) {
            (Output::Wide, Some(Ok((dbr, reading)))) => {
                println!("{}", wide(options, &name, &stamp(reading.stamp), dbr, &reading));
            }
            (_, answer) => print(options, &name, native, answer),
        }
    }
}

/// The value to write: strings, enum state numbers, or characters.
fn value(tool: &mut Tool, options: &Options, native: Basic, texts: &[String]) -> Result<Value, Failure> {
    if options.chars_as_text {
        let mut bytes = unescaped(&texts.join(" "));
        bytes.push(0);
        return Ok(Value::Array(Array::U8(bytes)));
    }
    let strings: Vec<Str40> = texts.iter().map(|text| Str40::new(&unescaped(text))).collect();
    if native != Basic::Enum {
        return Ok(one_or_more(strings.iter().map(|text| Scalar::String(*text)).collect(), options.array));
    }
    let labels = labels(tool, options)?;
    let mut numbers = Vec::new();
    for (text, given) in strings.iter().zip(texts) {
        if !options.enums_as_numbers && labels.contains(text) {
            continue;
        }
        let number = base::text::parse_double(text.bytes()).map(|(number, _)| number);
        let number = match number {
            Some(number) if !options.enums_as_text => number,
            None if options.enums_as_numbers => {
                return Err(format!("Enum index value '{given}' is not a number.").into());
            }
            _ => return Err(format!("Enum string value '{text}' invalid.").into()),
        };
        if number >= labels.len() as f64 {
            eprintln!("Warning: enum index value '{given}' may be too large.");
        }
        numbers.push(Scalar::F64(number));
    }
    if numbers.is_empty() {
        return Ok(one_or_more(strings.iter().map(|text| Scalar::String(*text)).collect(), options.array));
    }
    Ok(one_or_more(numbers, options.array))
}

fn one_or_more(values: Vec<Scalar>, array: bool) -> Value {
    if let ([one], false) = (&values[..], array) {
        return Value::Scalar(*one);
    }
    let texts = values.iter().filter_map(|value| if let Scalar::String(text) = value { Some(*text) } else { None });
    let texts: Vec<Str40> = texts.collect();
    if texts.len() == values.len() {
        return Value::Array(Array::String(texts));
    }
    Value::Array(Array::F64(values.iter().filter_map(|value| value.to_f64()).collect()))
}

fn labels(tool: &mut Tool, options: &Options) -> Result<Vec<Str40>, Failure> {
    let asked = Options { output: Output::Type(Dbr::new(Class::Gr, Basic::Enum)), count: 1, ..options.clone() };
    match tool.read_all(&asked, false).pop().flatten() {
        Some(Ok((_, reading))) => Ok(reading.meta.labels),
        _ => Err("Read operation timed out: ENUM data was not read.".into()),
    }
}

fn refusal(error: ca::client::RequestError) -> ca::Eca {
    use ca::client::RequestError::{BadCount, BadType, Disconnected, NoAccess};
    match error {
        Disconnected => ca::Eca::DISCONN,
        BadType => ca::Eca::BADTYPE,
        BadCount => ca::Eca::BADCOUNT,
        NoAccess => ca::Eca::NOWTACCESS,
    }
}

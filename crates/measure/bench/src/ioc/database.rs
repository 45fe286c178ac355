//! The databases of the measurements except the benchmark database, as `.db` text.

use std::fmt::Write;

/// `count` analog outputs `x0`, `x1`, ….
pub(crate) fn outputs(count: usize) -> String {
    lines(count, |n| format!("record(ao,\"x{n}\"){{field(PREC,\"3\")}}"))
}

/// `count` counters `x0`, `x1`, … that increase by one ten times a second.
pub(crate) fn counters(count: usize) -> String {
    lines(count, |n| format!("record(calc,\"x{n}\"){{field(SCAN,\".1 second\")field(CALC,\"VAL+1\")}}"))
}

/// `count` analog inputs with five fields each. Not linked: the load time of softIoc grows with the square of the number
/// of linked records.
pub(crate) fn inputs(count: usize) -> String {
    lines(count, |n| {
        let common = "field(EGU,\"mm\")field(PREC,\"3\")field(HIHI,\"10\")field(INP,\"1\")";
        format!("record(ai,\"x{n}\"){{field(DESC,\"Record {n}\"){common}}}")
    })
}

/// A record that posts an event, and two that the event processes, one after the other.
pub(crate) fn event() -> String {
    "record(event,\"post\"){field(VAL,\"pulse\")}\n\
     record(calc,\"first\"){field(SCAN,\"Event\")field(EVNT,\"pulse\")field(PHAS,\"1\")field(PRIO,\"HIGH\")field(CALC,\"VAL+1\")}\n\
     record(calc,\"second\"){field(SCAN,\"Event\")field(EVNT,\"pulse\")field(PHAS,\"2\")field(PRIO,\"HIGH\")field(CALC,\"VAL+1\")}\n"
        .to_owned()
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for n in 0..count {
        let _ = writeln!(text, "{}", line(n));
    }
    text
}

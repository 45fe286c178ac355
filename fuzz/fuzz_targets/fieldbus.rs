//! Answers of equipment, and protocol files: Modbus transactions, protocol parsers and their runs. Nothing panics, and
//! every run ends.
#![no_main]

use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use fieldbus::modbus::{Framing, Request, Table, Transaction};
use fieldbus::stream::{File, RunInputs, Session};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|input: (bool, u16, Vec<u8>, Vec<Vec<u8>>)| {
    let (rtu, count, text, answers) = input;
    let framing = if rtu { Framing::Rtu } else { Framing::Tcp };
    let request = Request::Read { table: Table::Holding, address: 0, count: count % 125 + 1 };
    let mut transaction = Transaction::new(framing, 1, 1, request, DurNs::from_secs(1)).expect("within the limits");
    run(&mut transaction, &answers);
    for answer in &answers {
        let _ = Request::decode(answer);
    }
    let Ok(file) = File::parse(&text, "x") else { return };
    for name in ["p", "get", "a"] {
        if let Ok(protocol) = file.protocol(name, &["1".to_owned()]) {
            let given = RunInputs { value: Some(base::Value::from(1.5)), raw: Some(count.into()), ..RunInputs::default() };
            run(&mut Session::new(Arc::new(protocol), given), &answers);
        }
    }
});

fn run(exchange: &mut dyn Exchange, answers: &[Vec<u8>]) {
    let mut answers = answers.iter();
    let mut now = MonoNs(0);
    // A run has few commands, answers and time-outs. More steps mean that it loops.
    for _ in 0..10_000 + answers.len() {
        exchange.poll_transmit(now, &mut Vec::new());
        if exchange.is_over() {
            return;
        }
        match answers.next() {
            Some(bytes) => exchange.handle_bytes(now, bytes),
            None => {
                now = exchange.poll_timeout().expect("it waits for something");
                exchange.handle_timeout(now);
            }
        }
    }
    panic!("it does not come to an end");
}

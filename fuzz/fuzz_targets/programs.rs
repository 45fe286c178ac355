//! Programs of the state notation language: any text is parsed or refused, and what is parsed runs within bounds.
#![no_main]

use snl::{Action, Event, Machine, Now};
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(program) = snl::parse(text, "p.st", &mut |_, _| None) else { return };
    let mut machine = Machine::new(Arc::new(program), "P=X", Now::default());
    machine.start(Now::default());
    for _ in 0..4 {
        for action in machine.take_actions() {
            match action {
                Action::Connect(channel, _) => machine.handle(Event::Connected(channel, 1)),
                Action::Read(channel) => machine.handle(Event::Unread(channel)),
                Action::Write(channel, _, true) => machine.handle(Event::Written(channel, true)),
                _ => {}
            }
        }
        machine.step(Now::default());
    }
});

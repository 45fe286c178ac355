//! Writes, with and without completion.

use crate::CHANNELS;
use crate::wire::{Wire, compare};
use ca::wire::command;

/// Values of every plain type, as written.
fn samples(kind: u16) -> Vec<Vec<u8>> {
    let text = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        bytes
    };
    match kind {
        0 => {
            ["7", "two", "", "1e3", "0x1F", "-3.9", " 5 ", "99999999999", "nan", "a text that is longer than any field"]
                .map(text)
                .to_vec()
        }
        1 | 3 => [0i16, 1, 2, 15, 16, -1, i16::MAX].map(|value| value.to_be_bytes().to_vec()).to_vec(),
        2 => [0.0f32, 1.5, -2.5, 1e30, f32::NAN].map(|value| value.to_be_bytes().to_vec()).to_vec(),
        4 => [0u8, 1, 127, 255].map(|value| vec![value]).to_vec(),
        5 => [0, 1, 3, -7, i32::MAX, i32::MIN].map(|value: i32| value.to_be_bytes().to_vec()).to_vec(),
        _ => [0.0f64, 1.25, 3.0, -99.5, 1e3, 32_768.0].map(|value| value.to_be_bytes().to_vec()).to_vec(),
    }
}

#[test]
fn writes_are_done_and_refused_as_by_cs_server() {
    compare(
        &[
            ("every type into every channel", |wire| {
                for (name, native) in CHANNELS {
                    let sid = wire.create(name, 1);
                    for kind in 0..7 {
                        for sample in samples(kind) {
                            wire.say(command::WRITE_NOTIFY, kind, 1, sid, kind.into(), &sample);
                            wire.take(1);
                            wire.say(command::READ_NOTIFY, 0, 0, sid, 100, b"");
                            wire.say(command::READ_NOTIFY, *native, 0, sid, 101, b"");
                            wire.settle();
                        }
                    }
                }
            }),
            ("without an answer", |wire| {
                let sid = wire.create("X:i", 1);
                wire.say(command::WRITE, 5, 1, sid, 1101, &43i32.to_be_bytes());
                wire.say(command::READ_NOTIFY, 5, 1, sid, 1102, b"");
                wire.say(command::WRITE, 0, 1, sid, 1103, b"volt\0");
                wire.say(command::READ_NOTIFY, 5, 1, sid, 1104, b"");
                wire.settle();
            }),
            ("types with more than a value", |wire| {
                let sid = wire.create("X:i", 1);
                for kind in [7, 12, 19, 26, 33, 34] {
                    wire.say(command::WRITE_NOTIFY, kind, 1, sid, kind.into(), &[0; 88]);
                    wire.take(1);
                    wire.say(command::WRITE, kind, 1, sid, kind.into(), &[0; 88]);
                }
                wire.say(command::READ_NOTIFY, 5, 1, sid, 1104, b"");
                wire.settle();
            }),
            ("too many elements", |wire| {
                for name in ["X:i", "X:a", "X:s"] {
                    let sid = wire.create(name, 1);
                    wire.say(command::WRITE_NOTIFY, 1, 8, sid, 5, &[1; 16]);
                    wire.take(1);
                    wire.say(command::READ_NOTIFY, 1, 0, sid, 6, b"");
                    wire.settle();
                }
            }),
            ("no elements", |wire| {
                for name in ["X:i", "X:a"] {
                    let sid = wire.create(name, 1);
                    wire.say(command::WRITE_NOTIFY, 1, 0, sid, 5, b"");
                    wire.take(1);
                    wire.say(command::READ_NOTIFY, 1, 0, sid, 6, b"");
                    wire.settle();
                }
            }),
            ("acknowledgements", |wire| {
                let sid = wire.create("X:d", 1);
                wire.say(command::WRITE_NOTIFY, 6, 1, sid, 1, &95f64.to_be_bytes());
                wire.take(1);
                for (kind, value) in [(35, [0, 0]), (36, [0, 2]), (35, [0, 1])] {
                    wire.say(command::WRITE_NOTIFY, kind, 1, sid, kind.into(), &value);
                    wire.take(1);
                    wire.say(command::READ_NOTIFY, 37, 1, sid, 2, b"");
                    wire.take(1);
                }
                wire.say(command::WRITE, 35, 1, sid, 6, &[0, 0]);
                wire.say(command::READ_NOTIFY, 37, 1, sid, 7, b"");
                wire.settle();
            }),
            ("fields that may not be written", |wire| {
                for name in ["X:i.NAME", "X:i.STAT", "X:locked"] {
                    let sid = wire.create(name, 1);
                    wire.say(command::WRITE_NOTIFY, 0, 1, sid, 3, b"1\0");
                    wire.take(1);
                    wire.say(command::WRITE, 0, 1, sid, 4, b"1\0");
                    wire.settle();
                }
            }),
            ("a second put waits for the first", |wire| {
                let sid = wire.create("X:busy.A", 1);
                let other = wire.create("X:busy", 2);
                wire.together(|wire| {
                    wire.say(command::WRITE_NOTIFY, 6, 1, sid, 1, &1f64.to_be_bytes());
                    wire.say(command::READ_NOTIFY, 6, 1, other, 2, b"");
                    wire.say(command::WRITE_NOTIFY, 6, 1, sid, 3, &2f64.to_be_bytes());
                    wire.say(command::READ_NOTIFY, 6, 1, other, 4, b"");
                });
                wire.take(4);
            }),
            ("a channel that is cleared during its put", |wire| {
                let sid = wire.create("X:busy.A", 1);
                wire.together(|wire| {
                    wire.say(command::WRITE_NOTIFY, 6, 1, sid, 1, &1f64.to_be_bytes());
                    wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 1, b"");
                });
                wire.settle();
            }),
            ("a type that is none", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::WRITE, 0xEFEF, 1, sid, 1101, &[0, 0, 0, 0x2B]);
                wire.settle();
            }),
            ("a type that is none, awaited", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::WRITE_NOTIFY, 0xEFEF, 1, sid, 1101, &[0, 0, 0, 0x2B]);
                wire.settle();
            }),
            ("a type that can only be read", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::WRITE_NOTIFY, 38, 1, sid, 1101, &[0; 40]);
                wire.settle();
            }),
            ("a channel that is none", |wire| {
                wire.say(command::WRITE, 5, 1, 77_777, 1, &[0; 8]);
                wire.settle();
            }),
            ("a channel that is none, awaited", |wire| {
                wire.say(command::WRITE_NOTIFY, 5, 1, 77_777, 1, &[0; 8]);
                wire.settle();
            }),
        ],
        Wire::open,
    );
}

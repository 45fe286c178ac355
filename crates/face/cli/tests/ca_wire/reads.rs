//! Reads, with both read commands.

use crate::CHANNELS;
use crate::wire::{Wire, compare};
use ca::wire::command;

#[test]
fn reads_are_answered_as_by_cs_server() {
    compare(
        &[
            ("every type of every channel", |wire| {
                for (name, _) in CHANNELS {
                    let sid = wire.create(name, 1);
                    for kind in (0..=34).chain([37, 38]) {
                        wire.say(command::READ_NOTIFY, kind, 1, sid, kind.into(), b"");
                    }
                    wire.settle();
                }
            }),
            ("the old way of reading", |wire| {
                for (name, _) in CHANNELS {
                    let sid = wire.create(name, 1);
                    for kind in (0..=34).chain([37, 38]) {
                        wire.say(command::READ, kind, 1, sid, kind.into(), b"");
                    }
                    wire.settle();
                }
            }),
            ("arrays in part, whole, and beyond", |wire| {
                let sid = wire.create("X:a", 1);
                wire.say(command::WRITE, 1, 3, sid, 1, &[0, 1, 0, 2, 0xFF, 0xFD]);
                for kind in [0, 1, 2, 4, 5, 6, 8, 15, 20, 22, 29, 34] {
                    for count in [0, 1, 2, 3, 4, 5, 6, 100] {
                        wire.say(command::READ_NOTIFY, kind, count, sid, count, b"");
                    }
                }
                wire.settle();
            }),
            ("arrays for a client that knows no varying length", |wire| {
                wire.say(command::VERSION, 0, 11, 0, 0, b"");
                wire.say(command::CREATE_CHAN, 0, 0, 5, 11, b"X:a\0");
                wire.take(2);
                let sid = wire.sids[0];
                for count in [0, 2, 5] {
                    wire.say(command::READ_NOTIFY, 1, count, sid, count, b"");
                }
                wire.settle();
            }),
            ("more elements than the field has", |wire| {
                for (name, kind) in CHANNELS {
                    let sid = wire.create(name, 1);
                    wire.say(command::READ_NOTIFY, *kind, 7, sid, 1, b"");
                    wire.say(command::READ, *kind, 7, sid, 1, b"");
                    wire.settle();
                }
            }),
            ("arrays of texts", |wire| {
                let sid = wire.create("X:w", 1);
                let mut payload = vec![0; 80];
                payload[..3].copy_from_slice(b"one");
                payload[40..43].copy_from_slice(b"2.5");
                wire.say(command::WRITE, 0, 2, sid, 1, &payload);
                for kind in [0, 1, 5, 6] {
                    for count in [0, 1, 2, 3] {
                        wire.say(command::READ_NOTIFY, kind, count, sid, count, b"");
                        wire.say(command::READ, kind, count, sid, count, b"");
                    }
                }
                wire.settle();
            }),
            ("a long array takes the wide form", |wire| {
                let sid = wire.create("X:big", 1);
                let values: Vec<u8> = (0..20_000u32).flat_map(|n| f64::from(n).to_be_bytes()).collect();
                wire.say(command::WRITE, 6, 20_000, sid, 1, &values);
                wire.say(command::READ_NOTIFY, 6, 20_000, sid, 2, b"");
                wire.say(command::READ_NOTIFY, 20, 0, sid, 3, b"");
                wire.say(command::READ_NOTIFY, 4, 20_000, sid, 4, b"");
                wire.settle();
            }),
            ("long texts", |wire| {
                let sid = wire.create("X:long.VAL$", 1);
                wire.say(command::WRITE, 4, 60, sid, 1, &[b'y'; 60]);
                for kind in [0, 1, 4, 6, 18] {
                    for count in [0, 1, 50, 100] {
                        wire.say(command::READ_NOTIFY, kind, count, sid, count, b"");
                    }
                }
                wire.settle();
            }),
            ("a part of an array by its name", |wire| {
                let sid = wire.create("X:a.[1:2]", 1);
                for count in [0, 1, 2, 5] {
                    wire.say(command::READ_NOTIFY, 1, count, sid, count, b"");
                }
                wire.settle();
            }),
            ("a type that is none", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::READ_NOTIFY, 0xEFEF, 1, sid, 1, b"");
                wire.settle();
            }),
            ("a type that is none, the old way", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::READ, 39, 1, sid, 1, b"");
                wire.settle();
            }),
            ("types that can only be written", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::READ_NOTIFY, 35, 1, sid, 1, b"");
                wire.say(command::READ_NOTIFY, 36, 1, sid, 1, b"");
                wire.settle();
            }),
            ("a channel that is none", |wire| {
                wire.say(command::READ_NOTIFY, 5, 1, 77_777, 1, b"");
                wire.settle();
            }),
            ("a channel that is none, the old way", |wire| {
                wire.say(command::READ, 5, 1, 77_777, 1, b"");
                wire.settle();
            }),
        ],
        Wire::open,
    );
}

//! Circuits, channels, and searches over circuits.

use crate::CHANNELS;
use crate::wire::{Wire, compare};
use ca::wire::{Header, MINOR, command};

#[test]
fn a_circuit_is_opened_kept_and_closed_as_by_cs_server() {
    compare(
        &[
            ("an echo comes back whole", |wire| {
                wire.say(command::ECHO, 12, 23, 5678, 9_101_112, b"");
                wire.say(command::ECHO, 1, 2, 3, 4, b"payload of an echo");
                wire.settle();
            }),
            ("a sync comes back", |wire| {
                wire.say(command::READ_SYNC, 1, 2, 3, 4, b"");
                wire.settle();
            }),
            ("a channel is created and cleared", |wire| {
                let sid = wire.create("X:i", 156);
                wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 156, b"");
                wire.settle();
            }),
            ("channels of every type report type and count", |wire| {
                for (name, _) in CHANNELS {
                    wire.create(name, 1);
                }
                for name in [
                    "X:big",
                    "X:long",
                    "X:long.VAL$",
                    "X:i.DESC$",
                    "X:i.RTYP",
                    "X:a.[1:2]",
                    "X:a.VAL{\"arr\":{\"s\":1}}",
                ] {
                    wire.create(name, 2);
                }
            }),
            ("names that are not there fail and the circuit lives on", |wire| {
                for name in [
                    "absent",
                    "X:i.NOPE",
                    "X:",
                    "X:i.",
                    "X:i.VAL ",
                    "X:a.[",
                    "X:a.{\"nope\":{}}",
                    "X:a{\"arr\":{\"s\":1}}",
                    "X:i.VAL$",
                    "X:long$",
                    "X:i.TIME",
                    "\0",
                ] {
                    wire.say(command::CREATE_CHAN, 0, 0, 9, MINOR.into(), format!("{name}\0").as_bytes());
                }
                wire.settle();
            }),
            ("a name without its end", |wire| {
                wire.say(command::CREATE_CHAN, 0, 0, 9, MINOR.into(), b"X:iXXXXX");
                wire.settle();
            }),
            ("a channel without a name", |wire| {
                wire.say(command::CREATE_CHAN, 0, 0, 9, MINOR.into(), b"");
                wire.settle();
            }),
            ("a client of long ago", |wire| {
                wire.say(command::CREATE_CHAN, 0, 0, 9, 3, b"X:i\0");
                wire.settle();
            }),
            ("the same client's number twice", |wire| {
                wire.create("X:i", 5);
                wire.create("X:d", 5);
            }),
            ("clearing what is not there", |wire| {
                let sid = wire.create("X:i", 5);
                wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 5, b"");
                wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 5, b"");
                wire.settle();
            }),
            ("names of user and host after the first channel", |wire| {
                wire.create("X:i", 5);
                wire.say(command::HOST_NAME, 0, 0, 0, 0, b"elsewhere\0");
                wire.say(command::CLIENT_NAME, 0, 0, 0, 0, b"other\0");
                wire.settle();
            }),
            ("a very long name of a user", |wire| {
                wire.say(command::CLIENT_NAME, 0, 0, 0, 0, &[b'x'; 600]);
                wire.settle();
            }),
            ("a very long name of a host", |wire| {
                wire.say(command::HOST_NAME, 0, 0, 0, 0, &[b'x'; 600]);
                wire.settle();
            }),
            ("a message of odd length", |wire| {
                let mut bytes = Vec::new();
                Header { command: command::ECHO, size: 5, ..Header::default() }.write(&mut bytes);
                wire.raw(&bytes);
                wire.settle();
            }),
            ("messages that no client sends", |wire| {
                wire.say(99, 0, 0, 0, 0, b"");
                wire.settle();
            }),
            ("messages of servers", |wire| {
                wire.say(command::ACCESS_RIGHTS, 0, 0, 0, 3, b"");
                wire.settle();
            }),
            ("messages that only servers of long ago knew", |wire| {
                wire.say(5, 0, 0, 0, 0, b"");
                wire.settle();
            }),
            ("a message in the wide form without need", |wire| {
                let sid = wire.create("X:i", 5);
                let mut bytes = Vec::new();
                Header::bare(command::READ_NOTIFY, 5, 1, sid, 3).write(&mut bytes);
                bytes[2..4].copy_from_slice(&[0xFF; 2]);
                bytes[6..8].copy_from_slice(&[0; 2]);
                bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
                wire.raw(&bytes);
                wire.settle();
            }),
        ],
        Wire::open,
    );
    compare(
        &[
            ("a server greets at once", |wire| wire.take(1)),
            ("a request before the version", |wire| {
                wire.say(command::CREATE_CHAN, 0, 0, 9, MINOR.into(), b"X:i\0");
                // C discards all that it has read until then, which may be more.
                wire.take(2);
            }),
            ("an old version", |wire| {
                wire.say(command::VERSION, 0, 3, 0, 0, b"");
                wire.settle();
            }),
            ("the highest priority", |wire| {
                wire.say(command::VERSION, 99, 13, 0, 0, b"");
                wire.settle();
            }),
            ("a priority beyond the highest", |wire| {
                wire.say(command::VERSION, 100, 13, 0, 0, b"");
                wire.settle();
            }),
            ("a version from the future", |wire| {
                wire.say(command::VERSION, 0, 99, 0, 0, b"");
                wire.settle();
            }),
            ("a search by name", |wire| {
                wire.say(command::VERSION, 0, 13, 0, 0, b"");
                wire.say(command::SEARCH, 5, 13, 0x1234, 0x1234, b"X:i\0");
                wire.settle();
            }),
            ("a search by an older client", |wire| {
                wire.say(command::VERSION, 0, 11, 0, 0, b"");
                wire.say(command::SEARCH, 5, 11, 0x1234, 0x1234, b"X:i\0");
                wire.settle();
            }),
            ("searches for an absent name", |wire| {
                wire.say(command::VERSION, 0, 13, 0, 0, b"");
                wire.say(command::SEARCH, 5, 13, 1, 1, b"absent\0");
                wire.say(command::SEARCH, 10, 13, 2, 2, b"absent\0");
                wire.say(command::SEARCH, 5, 13, 3, 3, b"");
                wire.settle();
            }),
            ("a search of long ago", |wire| {
                wire.say(command::VERSION, 0, 13, 0, 0, b"");
                wire.say(command::SEARCH, 5, 3, 1, 1, b"X:i\0");
                wire.settle();
            }),
        ],
        Wire::bare,
    );
}

//! Subscriptions.

use crate::CHANNELS;
use crate::wire::{Wire, compare};
use ca::wire::command;

#[test]
fn subscriptions_are_served_as_by_cs_server() {
    compare(
        &[
            ("a number is followed until the subscription ends", |wire| {
                let sid = wire.create("X:i", 156);
                wire.subscribe(sid, 5, 1, 1102, 1);
                wire.take(1);
                wire.say(command::WRITE, 5, 1, sid, 1101, &45i32.to_be_bytes());
                wire.take(1);
                wire.say(command::EVENT_CANCEL, 5, 1, sid, 1102, b"");
                wire.take(1);
                wire.say(command::WRITE, 5, 1, sid, 1103, &46i32.to_be_bytes());
                wire.settle();
            }),
            ("one element of an array", |wire| follow_array(wire, 1)),
            ("three elements of an array", |wire| follow_array(wire, 3)),
            ("as many elements as there are", |wire| follow_array(wire, 0)),
            ("more elements than there are", |wire| follow_array(wire, 9)),
            ("every type", |wire| {
                for (name, _) in CHANNELS {
                    let sid = wire.create(name, 1);
                    for kind in (0..=34).chain([37, 38]) {
                        wire.subscribe(sid, kind, 1, kind.into(), 1);
                        wire.take(1);
                        wire.say(command::EVENT_CANCEL, kind, 1, sid, kind.into(), b"");
                        wire.take(1);
                    }
                }
            }),
            ("deadbands of value and log, and alarms", |wire| {
                let sid = wire.create("X:dead", 1);
                for (id, mask) in [(1, 1), (2, 2), (3, 4), (4, 7)] {
                    wire.subscribe(sid, 20, 1, id, mask);
                    wire.take(1);
                }
                // Expected updates per value, counted by hand over the deadbands value, log, alarm, all. The first
                // value ends an alarm.
                for (value, updates) in [(1.0, 2), (3.0, 2), (4.0, 0), (6.0, 3), (60.0, 4), (61.0, 0), (1.0, 4)] {
                    wire.say(command::WRITE_NOTIFY, 6, 1, sid, 50, &f64::to_be_bytes(value));
                    let from = wire.seen.len();
                    wire.take(updates + 1);
                    wire.seen[from..].sort();
                }
            }),
            ("properties", |wire| {
                let (sid, units) = (wire.create("X:d", 1), wire.create("X:d.EGU", 2));
                wire.subscribe(sid, 34, 1, 1, 8);
                wire.take(1);
                wire.say(command::WRITE, 0, 1, units, 2, b"km\0");
                wire.take(1);
                wire.say(command::WRITE, 0, 1, units, 3, b"mm\0");
                wire.take(1);
            }),
            ("the same number twice, and its end", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 1);
                wire.take(1);
                wire.subscribe(sid, 6, 1, 7, 1);
                wire.take(1);
                wire.say(command::EVENT_CANCEL, 5, 1, sid, 7, b"");
                wire.take(1);
                wire.say(command::EVENT_CANCEL, 5, 1, sid, 7, b"");
                wire.take(1);
            }),
            ("a channel that is cleared with its subscriptions", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 1);
                wire.take(1);
                wire.say(command::CLEAR_CHANNEL, 0, 0, sid, 1, b"");
                wire.settle();
            }),
            ("nothing is sent while the client wants nothing", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 1);
                wire.take(1);
                wire.say(command::EVENTS_OFF, 0, 0, 0, 0, b"");
                for value in 60..80i32 {
                    wire.say(command::WRITE_NOTIFY, 5, 1, sid, 8, &value.to_be_bytes());
                }
                wire.take(20);
                wire.settle();
                wire.say(command::EVENTS_ON, 0, 0, 0, 0, b"");
                wire.take(1);
                wire.say(command::WRITE_NOTIFY, 5, 1, sid, 8, &5i32.to_be_bytes());
                let from = wire.seen.len();
                wire.take(2);
                wire.seen[from..].sort();
            }),
            ("the end of a subscription that is none", |wire| {
                let sid = wire.create("X:i", 1);
                wire.say(command::EVENT_CANCEL, 5, 1, sid, 7, b"");
                wire.settle();
            }),
            ("the end of a subscription of no channel", |wire| {
                wire.say(command::EVENT_CANCEL, 5, 1, 77_777, 7, b"");
                wire.settle();
            }),
            ("a mask of nothing", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 0);
                wire.settle();
            }),
            ("a mask of everything and more", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 0x1FF);
                wire.settle();
            }),
            ("a mask of bits that mean nothing", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 5, 1, 7, 0xF0);
                wire.take(1);
            }),
            ("a type that is none", |wire| {
                let sid = wire.create("X:i", 1);
                wire.subscribe(sid, 39, 1, 7, 1);
                wire.settle();
            }),
            ("a channel that is none", |wire| {
                wire.subscribe(77_777, 5, 1, 7, 1);
                wire.settle();
            }),
        ],
        Wire::open,
    );
}

/// Subscribes to an array of two, four and one elements as numbers of another type.
fn follow_array(wire: &mut Wire, count: u32) {
    let sid = wire.create("X:a", 1);
    wire.say(command::WRITE_NOTIFY, 1, 1, sid, 1, &[0, 9]);
    wire.take(1);
    wire.subscribe(sid, 5, count, 7, 1);
    wire.take(1);
    for (kind, values, payload) in
        [(5, 2, &[0, 0, 0, 42, 0, 0, 0, 45][..]), (1, 4, &[0, 43, 0, 44, 0, 45, 0, 46]), (1, 1, &[0, 44])]
    {
        wire.say(command::WRITE, kind, values, sid, 2, payload);
        wire.take(1);
    }
    wire.say(command::EVENT_CANCEL, 5, count, sid, 7, b"");
    wire.take(1);
}

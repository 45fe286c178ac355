//! Monitors: what is sent, when, and how much.

use super::*;

#[test]
fn a_monitor_starts_with_the_whole_value_and_then_sends_what_changed() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let (_, ty) = bench.init(command::MONITOR, sid, 1, "", None);
    let ty = ty.unwrap();
    assert_eq!(bench.values.watched, 1);
    bench.post(2.0);
    assert!(bench.take().is_empty(), "not started");
    bench.ask(command::MONITOR, sid, 1, 0x44);
    let (mask, number, overrun) = update(&ty, &bench.one().1);
    assert!(mask.has(1) && mask.has(3) && mask.has(14) && overrun.is_empty());
    assert_eq!(number, 2.0);
    bench.post(3.0);
    assert_eq!(update(&ty, &bench.one().1), (Mask::of([1, 7, 8, 9]), 3.0, Mask::default()));
    bench.ask(command::MONITOR, sid, 1, 0x04);
    bench.post(4.0);
    assert!(bench.take().is_empty(), "stopped");
    bench.server.close(bench.id, &mut bench.values);
    assert_eq!((bench.values.watched, bench.values.open), (0, 0));
}

#[test]
fn properties_are_sent_when_they_change() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let (_, ty) = bench.init(command::MONITOR, sid, 1, "", None);
    bench.ask(command::MONITOR, sid, 1, 0x44);
    bench.take();
    bench.values.meta.units = "kV".into();
    let value = Value::from(1.5);
    let mask = EventMask::PROPERTY;
    let post = Post { watch: 0, mask, alarm: Alarm::NONE, stamp: Stamp::EPOCH, note: Annotation::NONE, value: &value };
    bench.server.post(&post, &mut bench.values);
    let (mask, ..) = update(&ty.unwrap(), &bench.one().1);
    assert!(mask.has(14) && !mask.has(1));
}

#[test]
fn a_closed_window_holds_updates_until_the_acknowledgement_and_marks_what_was_replaced() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let (_, ty) = bench.init(command::MONITOR, sid, 1, "field(value)record[pipeline=true,queueSize=2]", Some(2));
    let ty = ty.unwrap();
    bench.ask(command::MONITOR, sid, 1, 0x44);
    for n in 1..30 {
        bench.post(f64::from(n));
    }
    let seen: Vec<_> = bench.take().iter().map(|(_, payload)| update(&ty, payload)).collect();
    assert_eq!(seen.iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [1.5, 1.0], "two updates of credit");
    // The acknowledgement sends what waits, without another post.
    bench.send(command::MONITOR, |out| {
        out.u32(sid);
        out.u32(1);
        out.u8(0x80);
        out.u32(2);
    });
    let seen: Vec<_> = bench.take().iter().map(|(_, payload)| update(&ty, payload)).collect();
    assert_eq!(seen, [(Mask::of([1]), 2.0, Mask::default()), (Mask::of([1]), 29.0, Mask::of([1]))]);
    assert_eq!(bench.server.counters.replaced, 26);
}

#[test]
fn without_credit_at_the_start_nothing_is_sent_before_the_first_acknowledgement() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let (_, ty) = bench.init(command::MONITOR, sid, 1, "record[pipeline=true]", Some(0));
    bench.ask(command::MONITOR, sid, 1, 0x44);
    assert!(bench.take().is_empty());
    bench.send(command::MONITOR, |out| {
        out.u32(sid);
        out.u32(1);
        out.u8(0x80);
        out.u32(1);
    });
    let (mask, number, _) = update(&ty.unwrap(), &bench.one().1);
    assert!(number == 1.5 && mask.has(14), "the whole value, with its properties");
}

#[test]
fn a_client_that_does_not_read_has_bounded_memory_and_gets_the_newest_value() {
    let limits = Limits { out_bytes: 4096, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let sid = bench.create(1, "n");
    let (_, ty) = bench.init(command::MONITOR, sid, 1, "field(value)", None);
    let ty = ty.unwrap();
    bench.ask(command::MONITOR, sid, 1, 0x44);
    for n in 0..10_000 {
        bench.post(f64::from(n));
    }
    assert!(bench.server.output(bench.id).len() < 5000);
    assert!(!bench.server.wants_input(bench.id));
    let mut last = Vec::new();
    loop {
        let seen = bench.take();
        if seen.is_empty() {
            break;
        }
        last.extend(seen.iter().map(|(_, payload)| update(&ty, payload).1));
    }
    assert_eq!(last.last(), Some(&9999.0));
    assert!(last.is_sorted_by(|a, b| a < b || *a == 1.5), "in order");
}

#[test]
fn a_monitor_without_read_access_gets_an_error_at_its_start_and_when_the_right_is_lost() {
    let refused = Status::error("no read access");
    for name in ["n", "s"] {
        let mut bench = Bench::new(Limits::default());
        let sid = bench.create(1, name);
        assert!(bench.init(command::MONITOR, sid, 1, "", None).0.is_success());
        bench.ask(command::MONITOR, sid, 1, 0x44);
        bench.take();
        bench.values.access = Some(Access { read: false, write: true });
        bench.server.refresh_access(&mut bench.values);
        let (command, payload) = bench.one();
        assert_eq!((command, payload[4], status(&payload)), (command::MONITOR, 0x10, refused.clone()), "{name}");
        assert_eq!(bench.values.watched, 0);
        bench.post(9.0);
        assert_eq!(
            (bench.take(), bench.init(command::MONITOR, sid, 1, "", None).0),
            (vec![], refused.clone()),
            "{name}"
        );
        bench.values.access = None;
        bench.server.refresh_access(&mut bench.values);
        assert!(bench.init(command::MONITOR, sid, 1, "", None).0.is_success(), "{name}");
    }
}

#[test]
fn rights_are_announced_with_the_channel_and_when_they_change() {
    let mut bench = Bench::new(Limits::default());
    let right = |read, write| Some(Access { read, write });
    for (name, first, second) in [("n", 3, 0), ("f", 7, 4)] {
        bench.values.access = None;
        bench.send(command::CREATE_CHANNEL, |out| {
            out.u16(1);
            out.u32(9);
            out.text(name);
        });
        assert_eq!(bench.take()[1], (command::ACL_CHANGE, vec![9, 0, 0, 0, first]), "{name}");
        bench.values.access = right(true, false);
        bench.server.refresh_access(&mut bench.values);
        assert_eq!(bench.take().last(), Some(&(command::ACL_CHANGE, vec![9, 0, 0, 0, second])), "{name}");
        bench.server.refresh_access(&mut bench.values);
        assert_eq!(bench.take(), [], "no right has changed");
        bench.send(command::DESTROY_CHANNEL, |out| {
            out.u32(if name == "n" { 1 } else { 2 });
            out.u32(9);
        });
        bench.take();
    }
}

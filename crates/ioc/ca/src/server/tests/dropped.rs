//! Channels that the server drops while answers are pending, and the circuits, channels and subscriptions that
//! reuse their slots.

use super::*;

#[test]
fn tokens_stay_below_their_limit_after_thousands_of_clients() {
    let mut bench = Bench::new();
    bench.values.later = true;
    for _ in 0..5000 {
        bench.server.close(bench.id, &mut bench.values);
        bench.id = bench.server.accept("here");
        bench.send(Header::bare(command::VERSION, 10, 13, 0, 0), &[]);
        let x = bench.create("x", 1);
        bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, x, 1), &[0; 8]);
        let token = bench.values.pending[0];
        assert!(token.0 < Token::END, "{token:?}");
    }
}

#[test]
fn a_pending_update_of_a_dropped_channel_does_not_reach_the_next_subscription_in_its_slot() {
    let mut bench = Bench::new();
    bench.values.lane = Some((&["x", "wave"], 3));
    let (x, wave) = (bench.create("x", 1), bench.create("wave", 2));
    bench.subscribe(x, 6, 42);
    bench.server.drop_channels(|handle| handle == 0, &mut bench.values);
    bench.subscribe(wave, 6, 43);
    assert_eq!(bench.receive()[0].0.command, command::SERVER_DISCONN);
    bench.answer();
    assert_eq!(bench.receive(), [], "the value of x belongs to no subscription");
    bench.answer();
    let updates = bench.receive();
    assert_eq!((updates.len(), updates[0].0.p2, updates[0].0.count), (1, 43, 3));
    assert_eq!(updates[0].1[..8], 1.0f64.to_be_bytes());
}

#[test]
fn a_request_to_a_dropped_channel_does_not_reach_the_next_channel_in_its_slot() {
    let mut bench = Bench::new();
    let wave = bench.create("wave", 1);
    bench.server.drop_channels(|handle| handle == 2, &mut bench.values);
    let x = bench.create("x", 2);
    assert_ne!(x, wave);
    bench.send(Header::bare(command::WRITE, 6, 1, wave, 1), &7.5f64.to_be_bytes());
    assert_eq!(bench.receive()[0].0.command, command::ERROR);
    assert_eq!(bench.values.values[0].1, Value::from(1.5));
}

#[test]
fn a_put_that_waits_for_one_on_a_dropped_channel_continues_at_once() {
    let mut bench = Bench::new();
    let x = bench.create("x", 1);
    bench.values.later = true;
    for io in 0..2 {
        bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, x, io), &7.5f64.to_be_bytes());
    }
    assert!(!bench.server.wants_input(bench.id), "the second waits for the first");
    bench.server.drop_channels(|handle| handle == 0, &mut bench.values);
    bench.receive();
    let now = MonoNs(1);
    assert!(bench.server.poll_timeout().is_some_and(|until| until <= now));
    bench.server.handle_timeout(now, &mut bench.values);
    assert_eq!(bench.receive()[0].0.command, command::ERROR, "the channel no longer exists");
    assert_eq!((bench.values.pending.len(), bench.server.poll_timeout()), (0, None));
}

#[test]
fn requests_after_one_of_a_dropped_channel_continue() {
    let (mut bench, x, text) = apart();
    bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, x, 1), &7.5f64.to_be_bytes());
    bench.send(Header::bare(command::READ_NOTIFY, 0, 1, text, 2), &[]);
    bench.server.drop_channels(|handle| handle == 0, &mut bench.values);
    bench.receive();
    let (token, ..) = bench.values.asked.remove(0);
    bench.server.answer(MonoNs(0), token, Answer::Write(PutOutcome::Later), &mut bench.values);
    assert_eq!(bench.receive()[0].0.p2, 2);
    bench.server.put_done(MonoNs(0), token, true, &mut bench.values);
    assert_eq!(bench.receive(), [], "a client without the channel waits for no end");
}

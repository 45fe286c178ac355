use super::*;
use crate::{Moment, Server, Target};

fn at(seconds: u64) -> Now {
    Now { mono: MonoNs(seconds * 1_000_000_000), wall: Wall(seconds as i64 * 1_000_000_000) }
}

fn to(name: &str) -> Destination {
    let server = Server { host: "localhost".into(), port: 80, is_secure: false };
    Destination {
        name: name.into(),
        to: Target::Web { server, authority: "localhost".into(), path: "/".into(), token_file: None },
        severity: Severity::Minor,
        paths: Vec::new(),
        delay: DurNs::from_secs(10),
        repeat: DurNs::from_secs(3600),
        ca: "/ca.pem".into(),
    }
}

fn row(path: &str, severity: Severity) -> Row {
    let alarm = Moment { severity, message: "HIHI".into(), value: "53".into(), time: Wall(0) };
    Row {
        path: path.into(),
        channel: path.rsplit('/').next().unwrap().into(),
        description: String::new(),
        connected: true,
        guidance: Vec::new(),
        displays: Vec::new(),
        state: State { current_severity: severity.active(), alarm, ..State::default() },
    }
}

/// One destination in virtual time.
struct Play(Notifier);

impl Play {
    fn new(to: Destination) -> Self {
        Self(Notifier::new(&[to], at(0)))
    }

    fn is(&mut self, second: u64, path: &str, severity: Severity) {
        self.0.observe(&row(path, severity), true, at(second));
    }

    /// The alerts that are sent at this time: each path with its severity, or the reason of its end. The result of the try follows
    /// at once.
    fn sends(&mut self, second: u64, result: &Delivery) -> Option<Vec<String>> {
        let batch = self.0.tick(at(second)).pop().map(|(_, batch)| batch)?;
        self.0.sent(0, result.clone(), at(second));
        let word = |alert: &Alert| match &alert.ended {
            None => alert.state.alarm.severity.name().to_owned(),
            Some((_, why)) => format!("ended {why}"),
        };
        Some(batch.alerts.iter().map(|alert| format!("{} {}", alert.path, word(alert))).collect())
    }

    fn counts(&self) -> Counts {
        self.0.counts().next().unwrap().1
    }
}

const WELL: Delivery = Delivery::Delivered(None);

fn failed() -> Delivery {
    Delivery::Failed("connection refused".into(), None)
}

fn all(texts: &[&str]) -> Option<Vec<String>> {
    Some(texts.iter().map(ToString::to_string).collect())
}

#[test]
fn an_alarm_is_sent_after_its_delay_again_while_unacknowledged_and_once_when_it_has_ended() {
    let mut play = Play::new(to("a"));
    play.is(0, "/r/A", Severity::Major);
    assert_eq!(play.sends(9, &WELL), None);
    assert_eq!(play.sends(10, &WELL), all(&["/r/A MAJOR"]));
    assert_eq!([play.sends(11, &WELL), play.sends(3609, &WELL)], [None, None]);
    assert_eq!(play.sends(3610, &WELL), all(&["/r/A MAJOR"]));
    play.is(4000, "/r/A", Severity::MajorAck);
    assert_eq!(play.sends(9000, &WELL), None, "it is acknowledged");
    play.is(9000, "/r/A", Severity::Ok);
    assert_eq!(play.sends(9000, &WELL), all(&["/r/A ended OK"]));
    assert_eq!(play.sends(99_000, &WELL), None);
    assert_eq!(play.counts(), Counts { delivered: 3, lost: 0, failed: 0 });
}

#[test]
fn an_alarm_that_ends_is_hidden_or_acknowledged_within_the_delay_is_not_sent() {
    for end in [Severity::Ok, Severity::MajorAck] {
        let mut play = Play::new(to("a"));
        play.is(0, "/r/A", Severity::Major);
        play.is(9, "/r/A", end);
        assert_eq!(play.sends(100, &WELL), None);
        play.is(100, "/r/A", Severity::Ok);
        assert_eq!(play.sends(200, &WELL), None, "its end is none either");
    }
    let mut play = Play::new(to("a"));
    let mut hidden = row("/r/A", Severity::Major);
    hidden.state.suppressed = true;
    play.0.observe(&hidden, true, at(0));
    play.0.observe(&row("/r/B", Severity::Major), false, at(0));
    assert_eq!(play.sends(100, &WELL), None, "neither a hidden one nor one that is never announced");
}

#[test]
fn a_higher_severity_and_an_expired_acknowledgement_are_sent_again_and_a_shelved_alarm_has_ended() {
    let mut play = Play::new(to("a"));
    play.is(0, "/r/A", Severity::Minor);
    assert_eq!(play.sends(10, &WELL), all(&["/r/A MINOR"]));
    play.is(20, "/r/A", Severity::Major);
    assert_eq!(play.sends(30, &WELL), all(&["/r/A MAJOR"]));
    play.is(31, "/r/A", Severity::Minor);
    assert_eq!(play.sends(60, &WELL), None, "a lower severity is no news");
    play.is(60, "/r/A", Severity::MinorAck);
    play.is(70, "/r/A", Severity::Minor);
    assert_eq!(play.sends(80, &WELL), all(&["/r/A MINOR"]));
    let mut shelved = row("/r/A", Severity::Minor);
    shelved.state.shelved = Some(crate::Shelf { until: Wall(0), once: false, by: "alice".into(), why: String::new() });
    play.0.observe(&shelved, true, at(90));
    assert_eq!(play.sends(90, &WELL), all(&["/r/A ended shelved"]));
}

#[test]
fn a_destination_receives_only_its_severities_and_paths() {
    let mut play = Play::new(Destination {
        severity: Severity::Major,
        paths: vec!["/r/RF".into(), "BPM:*".into()],
        delay: DurNs(0),
        ..to("a")
    });
    play.is(0, "/r/RF/A", Severity::Minor);
    play.is(0, "/r/RF/B", Severity::Major);
    play.is(0, "/r/X/BPM:7", Severity::Undefined);
    play.is(0, "/r/X/C", Severity::Major);
    assert_eq!(play.sends(0, &WELL), all(&["/r/RF/B MAJOR", "/r/X/BPM:7 UNDEFINED"]));
    play.is(20, "/r/RF/B", Severity::Minor);
    assert_eq!(play.sends(20, &WELL), all(&["/r/RF/B ended MINOR"]), "it is below the severity");
}

#[test]
fn alarms_within_ten_seconds_are_sent_together_and_a_batch_has_at_most_100() {
    let mut play = Play::new(Destination { delay: DurNs(0), ..to("a") });
    play.is(0, "/r/first", Severity::Major);
    assert_eq!(play.sends(0, &WELL).unwrap().len(), 1);
    (0..250).for_each(|number| play.is(1, &format!("/r/{number:03}"), Severity::Minor));
    let sizes: Vec<_> = (1..60).filter_map(|second| Some((second, play.sends(second, &WELL)?.len()))).collect();
    assert_eq!(sizes, [(10, 100), (20, 100), (30, 50)]);
}

#[test]
fn a_failed_batch_is_tried_again_with_growing_pauses_and_later_changes_wait_behind_it() {
    let mut play = Play::new(Destination { delay: DurNs(0), ..to("a") });
    play.is(0, "/r/A", Severity::Major);
    let mut times = Vec::new();
    for second in 0..400 {
        if let Some(alerts) = play.sends(second, &failed()) {
            assert_eq!(alerts, ["/r/A MAJOR"]);
            times.push(second);
        }
        if second == 100 {
            play.is(100, "/r/B", Severity::Minor);
        }
    }
    assert!((8..12).contains(&times.len()), "{times:?}");
    assert!(times.windows(3).skip(3).all(|three| three[1] - three[0] < 3 * (three[2] - three[1])), "{times:?}");
    let fault = play.0.faults(at(400));
    assert!(
        fault.starts_with("notification a fails for 400 s, 2 alerts waiting, 0 lost: connection refused"),
        "{fault}"
    );
    let first = (400..1000).find_map(|second| play.sends(second, &WELL));
    assert_eq!(first, all(&["/r/A MAJOR"]));
    assert_eq!((400..1000).find_map(|second| play.sends(second, &WELL)), all(&["/r/B MINOR"]));
    assert_eq!(play.0.faults(at(1000)), "");
    let lines = play.0.lines();
    assert_eq!(lines.len(), 2, "one for the first failure and one for its end: {lines:?}");
}

#[test]
fn a_batch_is_lost_after_twenty_tries_or_a_final_refusal_and_both_are_counted_logged_and_a_fault_until_a_delivery() {
    let mut play = Play::new(Destination { delay: DurNs(0), repeat: DurNs(0), ..to("a") });
    play.is(0, "/r/A", Severity::Major);
    let tries = (0..20_000).filter(|second| play.sends(*second, &failed()).is_some()).count();
    assert_eq!(tries, TRIES_MAX as usize);
    assert_eq!(play.counts(), Counts { delivered: 0, lost: 1, failed: 20 });
    assert!(play.0.faults(at(20_000)).contains("0 alerts waiting, 1 lost"));
    assert_eq!(play.0.lines().last().unwrap(), "notification a: 1 alert lost at try 20: connection refused");
    play.is(20_000, "/r/B", Severity::Major);
    assert!(play.sends(20_000, &Delivery::Refused("status 404".into())).is_some());
    assert_eq!((20_000..40_000).find_map(|second| play.sends(second, &WELL)), None);
    assert_eq!(play.0.lines(), ["notification a: 1 alert lost at try 1: status 404"]);
    play.is(40_000, "/r/C", Severity::Major);
    assert!(play.sends(40_000, &WELL).is_some());
    assert_eq!((play.0.faults(at(40_000)).as_str(), play.counts().lost), ("", 2));
}

#[test]
fn a_full_queue_loses_the_least_severe_of_the_oldest_and_counts_it() {
    let mut play = Play::new(Destination { delay: DurNs(0), ..to("a") });
    play.is(0, "/r/first", Severity::Minor);
    assert!(play.sends(0, &failed()).is_some());
    for number in 0..QUEUE_MAX + 5 {
        let severity = if number == 3 { Severity::Minor } else { Severity::Major };
        play.is(0, &format!("/r/{number:04}"), severity);
    }
    play.0.tick(at(0));
    assert_eq!(play.counts().lost, 5);
    assert_eq!(play.0.lines().len(), 2, "the failure and the first loss");
    let mut left = Vec::new();
    for second in 1..2000 {
        left.extend(play.sends(second, &WELL).unwrap_or_default());
    }
    let is_left = |path: &str| left.iter().any(|alert| alert.starts_with(path));
    assert_eq!((left.len(), is_left("/r/0003"), is_left("/r/0000"), is_left("/r/1004")), (1001, false, false, true));
}

#[test]
fn an_alarm_that_comes_and_goes_during_a_failure_is_sent_with_its_end() {
    let mut play = Play::new(Destination { delay: DurNs(0), ..to("a") });
    play.is(0, "/r/first", Severity::Minor);
    assert!(play.sends(0, &failed()).is_some());
    for second in [10, 20] {
        play.is(second, "/r/A", Severity::Major);
        play.sends(second, &failed());
        play.is(second + 5, "/r/A", Severity::Ok);
    }
    let mut sent = Vec::new();
    (30..100).for_each(|second| sent.extend(play.sends(second, &WELL).unwrap_or_default()));
    assert_eq!(sent, ["/r/first MINOR", "/r/A ended OK", "/r/A ended OK"]);
}

#[test]
fn a_destination_decides_the_earliest_time_of_the_next_try_up_to_an_hour() {
    for (asked, expected) in [(60, 60), (100_000, 3600)] {
        let mut play = Play::new(Destination { delay: DurNs(0), ..to("a") });
        play.is(0, "/r/A", Severity::Major);
        let busy = Delivery::Failed("status 429".into(), Some(DurNs::from_secs(asked)));
        assert!(play.sends(0, &busy).is_some());
        assert_eq!((1..10_000).find(|second| play.sends(*second, &WELL).is_some()), Some(expected));
    }
}

#[test]
fn a_destination_that_does_not_answer_delays_no_other() {
    let mut notifier = Notifier::new(&[to("silent"), to("good")], at(0));
    notifier.observe(&row("/r/A", Severity::Major), true, at(0));
    assert_eq!(notifier.tick(at(10)).len(), 2);
    notifier.sent(1, WELL, at(10));
    notifier.observe(&row("/r/B", Severity::Major), true, at(11));
    let batches = notifier.tick(at(21));
    assert_eq!(batches.iter().map(|(to, batch)| (*to, batch.alerts.len())).collect::<Vec<_>>(), [(1, 1)]);
    let lines = notifier.end();
    assert!(lines[0].starts_with("notification silent: 2 alerts not delivered before the end"), "{lines:?}");
}

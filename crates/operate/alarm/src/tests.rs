//! Tests of the rules: sequences from Phoebus' own tests, a reference model as a table, and invariants.

use crate::*;
use base::{DurNs, MonoNs};
use proptest::prelude::*;

fn at(secs: u64) -> Now {
    Now { mono: MonoNs(secs * 1_000_000_000), wall: Wall(secs as i64 * 1_000_000_000) }
}

fn update(severity: Severity, message: &str, now: Now) -> Update {
    Update { moment: Moment { severity, message: message.into(), value: message.into(), time: now.wall }, number: None }
}

/// A step of a test.
#[derive(Clone, Copy, Debug)]
enum Do {
    Is(Severity),
    Ack,
    Unack,
    Wait(u64),
}
use Do::{Ack, Is, Unack, Wait};
use Severity::{Invalid, InvalidAck, Major, MajorAck, Minor, MinorAck, Ok as Well, Undefined, UndefinedAck};

/// Executes all steps. Returns the severity after each, and whether it was announced.
fn play(rules: &Rules, maintenance: bool, steps: &[Do]) -> Vec<(Severity, bool)> {
    let (mut alarm, mut secs) = (Alarm::new(rules.clone()), 0);
    let mut seen = Vec::new();
    for step in steps {
        let now = at(secs);
        let happened = match step {
            Is(severity) => alarm.update(update(*severity, severity.name(), now), maintenance, now),
            Ack => alarm.acknowledge(now),
            Unack => alarm.unacknowledge(now),
            Wait(time) => {
                let mut all = StateChange::default();
                for _ in 0..*time {
                    secs += 1;
                    let one = alarm.tick(maintenance, at(secs));
                    all = StateChange { changed: all.changed || one.changed, announce: all.announce.max(one.announce) };
                }
                all
            }
        };
        seen.push((alarm.state().alarm.severity, happened.announce.is_some()));
    }
    seen
}

#[test]
fn latched_and_unlatched_alarms_behave_as_in_the_tests_of_phoebus() {
    let latching = Rules::default();
    let follows = Rules { latching: false, ..latching.clone() };
    for (rules, steps) in [
        (
            &latching,
            &[
                (Is(Minor), Minor, true),
                (Is(Minor), Minor, false),
                (Is(Major), Major, true),
                (Ack, MajorAck, false),
                (Is(Minor), MajorAck, false),
                (Is(Well), Well, false),
            ][..],
        ),
        (
            &latching,
            &[
                (Is(Minor), Minor, true),
                (Is(Major), Major, true),
                (Is(Minor), Major, false),
                (Is(Well), Major, false),
                (Ack, Well, false),
            ],
        ),
        (
            &latching,
            &[
                (Is(Major), Major, true),
                (Ack, MajorAck, false),
                (Is(Invalid), Invalid, true),
                (Is(Major), Invalid, false),
                // The present severity is acknowledged, not the latched one.
                (Ack, MajorAck, false),
                (Is(Undefined), Undefined, true),
                (Ack, UndefinedAck, false),
                (Is(Major), UndefinedAck, false),
                (Is(Well), Well, false),
            ],
        ),
        (
            &latching,
            &[
                (Is(Major), Major, true),
                (Is(Undefined), Undefined, true),
                (Ack, UndefinedAck, false),
                (Is(Major), UndefinedAck, false),
                (Unack, Major, false),
                (Ack, MajorAck, false),
                (Is(Well), Well, false),
            ],
        ),
        (
            &follows,
            &[
                (Is(Major), Major, true),
                (Is(Minor), Minor, false),
                (Ack, MinorAck, false),
                (Is(Major), Major, true),
                (Is(Well), Well, false),
                (Ack, Well, false),
            ],
        ),
    ] {
        let (does, expected): (Vec<Do>, Vec<(Severity, bool)>) =
            steps.iter().map(|(does, severity, announced)| (*does, (*severity, *announced))).unzip();
        assert_eq!(play(rules, false, &does), expected, "{does:?}");
    }
}

#[test]
fn in_maintenance_invalid_alarms_are_acknowledged_automatically() {
    let seen = play(&Rules::default(), true, &[Is(Invalid), Is(Undefined), Is(Major), Is(Invalid), Is(Minor)]);
    assert_eq!(seen, [(InvalidAck, false), (UndefinedAck, false), (Major, true), (InvalidAck, false), (Minor, true)]);
}

#[test]
fn a_rise_waits_for_its_delay_keeps_the_maximum_and_is_dropped_if_the_value_recovers() {
    let rules = Rules { delay: DurNs::from_secs(5), ..Rules::default() };
    let seen = play(&rules, false, &[Is(Minor), Wait(3), Is(Major), Is(Minor), Wait(1), Wait(1)]);
    assert_eq!(seen.last(), Some(&(Major, true)), "{seen:?}");
    assert!(seen[..5].iter().all(|(severity, announced)| *severity == Well && !announced), "{seen:?}");
    let seen = play(&rules, false, &[Is(Major), Wait(4), Is(Well), Is(Minor), Wait(4), Wait(1)]);
    assert_eq!(seen[3..], [(Well, false), (Well, false), (Minor, true)], "the delay restarts");
}

#[test]
fn the_configured_count_of_rises_within_the_delay_raises_the_alarm_at_once() {
    let rules = Rules { delay: DurNs::from_secs(10), count: 3, ..Rules::default() };
    let often = [Is(Minor), Wait(1), Is(Well), Is(Minor), Wait(1), Is(Well), Is(Minor)];
    assert_eq!(play(&rules, false, &often).last(), Some(&(Minor, true)));
    let seldom = [Is(Minor), Wait(6), Is(Well), Is(Minor), Wait(6), Is(Well), Is(Minor)];
    assert_eq!(play(&rules, false, &seldom).last(), Some(&(Well, false)));
}

#[test]
fn a_return_to_normal_waits_for_the_off_delay() {
    let rules = Rules { off_delay: DurNs::from_secs(5), latching: false, ..Rules::default() };
    let seen = play(&rules, false, &[Is(Minor), Is(Well), Wait(4), Is(Minor), Is(Well), Wait(4), Wait(1)]);
    let expected =
        [(Minor, true), (Minor, false), (Minor, false), (Minor, false), (Minor, false), (Minor, false), (Well, false)];
    assert_eq!(seen, expected, "one alarm, announced once");
}

#[test]
fn a_value_counts_as_better_only_beyond_the_deadband() {
    let mut alarm = Alarm::new(Rules { deadband: 1.0, latching: false, ..Rules::default() });
    let mut is = |number: f64, severity| {
        let now = at(1);
        let update = Update { number: Some(number), ..update(severity, severity.name(), now) };
        alarm.update(update, false, now);
        alarm.state().alarm.severity
    };
    assert_eq!(is(10.1, Major), Major);
    assert_eq!([is(9.9, Well), is(9.2, Well), is(9.1, Well)], [Major, Major, Well]);
    assert_eq!([is(10.0, Major), is(12.0, Major), is(11.5, Minor), is(10.9, Minor)], [Major, Major, Major, Minor]);
    assert_eq!(is(f64::NAN, Invalid), Invalid);
    assert_eq!(is(0.0, Well), Well, "no number, no deadband");
}

#[test]
fn a_long_lasting_alarm_is_announced_again_and_loses_its_acknowledgement() {
    let rules = Rules { realarm: DurNs::from_secs(5), ..Rules::default() };
    let seen = play(&rules, false, &[Is(Major), Wait(4), Ack, Wait(4), Wait(1), Wait(5), Is(Well), Wait(9)]);
    let expected = [
        (Major, true),
        (Major, false),
        (MajorAck, false),
        (MajorAck, false),
        (Major, true),
        (Major, true),
        (Major, false),
        (Major, false),
    ];
    assert_eq!(seen, expected);
}

fn shelf(until: u64, once: bool) -> Shelf {
    Shelf { until: at(until).wall, once, by: "alice".into(), why: String::new() }
}

#[test]
fn a_shelved_alarm_is_evaluated_but_not_announced_until_it_is_unshelved_automatically() {
    let mut alarm = Alarm::new(Rules::default());
    assert!(alarm.shelve(shelf(10, false), at(0)).changed);
    let happened = alarm.update(update(Major, "HIHI", at(1)), false, at(1));
    assert_eq!((happened.announce, alarm.state().hidden()), (None, Some("shelved")));
    assert_eq!(alarm.due(), Some(at(10).mono));
    let happened = alarm.tick(false, at(10));
    assert_eq!(
        (happened.announce, alarm.state().hidden()),
        (Some(Major), None),
        "it is announced when it is shown again"
    );

    alarm.acknowledge(at(11));
    alarm.shelve(shelf(100, true), at(11));
    assert_eq!(alarm.update(update(Well, "OK", at(12)), false, at(12)).announce, None);
    assert_eq!(alarm.state().hidden(), None, "one shot: shown as soon as it is OK");
}

#[test]
fn suppressed_and_out_of_service_alarms_are_evaluated_and_disabled_ones_are_not() {
    let mut alarm = Alarm::new(Rules::default());
    alarm.suppress(true, at(0));
    assert_eq!(alarm.update(update(Minor, "HIGH", at(1)), false, at(1)), StateChange { changed: true, announce: None });
    assert_eq!(alarm.suppress(false, at(1)).announce, Some(Minor));
    let mark = Mark { by: "bob".into(), why: "pump".into(), until: None };
    alarm.out_of_service(Some(mark.clone()));
    alarm.update(update(Major, "HIHI", at(2)), false, at(2));
    assert_eq!((alarm.state().alarm.severity, alarm.state().hidden()), (Major, Some("out of service")));
    assert_eq!(alarm.out_of_service(None).announce, Some(Major));

    alarm.disable(Mark { until: Some(at(9).wall), ..mark }, at(3));
    assert_eq!(alarm.state().alarm.message, "Disabled");
    assert!(!alarm.update(update(Invalid, "LINK", at(4)), false, at(4)).changed);
    assert!(!alarm.acknowledge(at(5)).changed);
    assert_eq!(alarm.tick(false, at(9)).announce, Some(Invalid), "updates of that time are evaluated");
}

#[test]
fn an_alarm_continues_from_its_saved_state() {
    let mut alarm = Alarm::new(Rules::default());
    alarm.update(update(Major, "HIHI", at(1)), false, at(1));
    alarm.acknowledge(at(2));
    alarm.shelve(shelf(50, false), at(3));
    let text = serde_json::to_string(&alarm.state()).unwrap();
    assert!(text.starts_with(r#"{"severity":"MAJOR_ACK","message":"HIHI","value":"HIHI","time":{"seconds":1,"nano":0},"current_severity":"MAJOR""#), "{text}");
    let mut next = Alarm::new(Rules::default());
    next.restore(serde_json::from_str(&text).unwrap(), at(4));
    assert_eq!(next.state(), alarm.state());
    assert_eq!(next.due(), Some(at(50).mono));
    assert!(!next.update(update(Major, "HIHI", at(5)), false, at(5)).changed, "the same alarm is no new event");
}

/// Reference model: next severity of an alarm without delays, from its severity and the update.
fn table(latching: bool, is: Severity, comes: Severity) -> Severity {
    match (is, comes) {
        // Acknowledged, and over.
        (Well | MinorAck | MajorAck | InvalidAck | UndefinedAck, Well) => Well,
        (MinorAck, Minor) | (MajorAck, Minor | Major) | (InvalidAck, Minor | Major | Invalid) | (UndefinedAck, _) => is,
        (Well | MinorAck | MajorAck | InvalidAck, _) => comes,
        (_, _) if !latching => comes,
        (Minor, Major | Invalid | Undefined) | (Major, Invalid | Undefined) | (Invalid, Undefined) => comes,
        (_, _) => is,
    }
}

fn anything() -> impl Strategy<Value = Do> {
    let severity = prop::sample::select(vec![Well, Minor, Major, Invalid, Undefined]);
    prop_oneof![6 => severity.prop_map(Is), 2 => Just(Ack), 1 => Just(Unack), 1 => (1u64..8).prop_map(Wait)]
}

fn rules() -> impl Strategy<Value = Rules> {
    let secs = || prop::sample::select(vec![0i64, 0, 2, 5]).prop_map(DurNs::from_secs);
    (any::<bool>(), secs(), secs(), secs(), 0u32..4).prop_map(|(latching, delay, off_delay, realarm, count)| Rules {
        latching,
        delay,
        off_delay,
        realarm,
        count,
        ..Rules::default()
    })
}

proptest! {
    #[test]
    fn without_delays_an_alarm_follows_the_table_of_states(latching: bool, steps in prop::collection::vec(anything(), 1..60)) {
        let seen = play(&Rules { latching, ..Rules::default() }, false, &steps);
        let (mut is, mut current) = (Well, Well);
        for (step, (severity, announced)) in steps.iter().zip(seen) {
            let before = is;
            match *step {
                Is(comes) => {
                    // An equal update changes nothing.
                    if comes != current {
                        is = table(latching, is, comes);
                    }
                    current = comes;
                }
                Ack if is == Well => {}
                Ack if current == Well => is = Well,
                Ack => is = Severity::ALL.into_iter().find(|one| !one.is_active() && one.level() == is.level().min(current.level())).unwrap(),
                Unack if is != Well && !is.is_active() => is = current,
                Unack | Wait(_) => {}
            }
            prop_assert_eq!(severity, is);
            prop_assert_eq!(announced, matches!(step, Is(_)) && is.update_rank() > before.update_rank());
        }
    }

    #[test]
    fn a_latched_alarm_is_lowered_by_users_only(mut rules in rules(), steps in prop::collection::vec(anything(), 1..60)) {
        rules.latching = true;
        rules.realarm = DurNs(0);
        let seen = play(&rules, false, &steps);
        for (step, two) in steps[1..].iter().zip(seen.windows(2)) {
            let (before, after) = (two[0].0, two[1].0);
            if matches!(step, Is(_) | Wait(_)) && before.is_active() {
                prop_assert!(after.is_active() && after.level() >= before.level(), "{before} {step:?} {after}");
            }
        }
    }

    #[test]
    fn a_lasting_alarm_is_raised_in_the_end_and_due_times_always_advance(rules in rules(), steps in prop::collection::vec(anything(), 0..40)) {
        let mut all = steps;
        all.extend([Is(Well), Wait(20), Is(Major), Wait(20)]);
        let seen = play(&rules, false, &all);
        prop_assert!(seen.last().unwrap().0.level() >= Major.level());
        let (mut alarm, mut now) = (Alarm::new(rules), at(0));
        alarm.update(update(Major, "HIHI", now), false, now);
        for _ in 0..20 {
            let Some(due) = alarm.due() else { break };
            prop_assert!(due > now.mono, "an endless number of ticks");
            now.mono = due;
            alarm.tick(false, now);
        }
    }

    #[test]
    fn a_panel_rebuilt_from_its_entries_is_the_same(steps in prop::collection::vec((0usize..3, anything()), 0..60)) {
        let text = "[alarms]\nfolder = \"x\"\n[[alarm]]\nchannels = [\"A\", \"B\"]\n[[alarm]]\nchannels = [\"C\"]\nlatching = false\nfilter = \"'A' > 0\"\n";
        let config = read(text).0.unwrap();
        let mut panel = Panel::new(&config, at(0));
        let channels: Vec<ChannelUse> = panel.channels().map(|(channel, _)| channel).collect();
        let (mut secs, mut entries) = (0, panel.snapshot(true, at(0)));
        for (which, step) in steps {
            let (now, names) = (at(secs), vec![["A", "B", "/alarms/C"][which].to_owned()]);
            let by = Actor { user: "alice".into(), uid: 1, pid: 2, on_behalf_of: String::new() };
            let act = match step {
                Is(Undefined) => { panel.disconnected(channels[which], now); None }
                Is(severity) => { panel.update(channels[which], Update { number: Some(which as f64), ..update(severity, "x", now) }, now); None }
                Ack => Some(Act::Acknowledge { names }),
                Unack => Some(Act::Shelve { names, time: "9s".into(), once: which == 1, why: String::new() }),
                Wait(time) => { secs += time; panel.tick(at(secs)); None }
            };
            if let Some(act) = act {
                entries.push(Entry { at: now.wall, path: String::new(), what: EntryContent::Act { by: by.clone(), act: act.clone() } });
                panel.act(&act, &by, now).unwrap();
            }
            while let Some(entry) = panel.poll_entry() {
                entries.push(entry);
            }
        }
        let mut again = Panel::new(&config, at(secs));
        for entry in entries {
            let text = serde_json::to_string(&entry).unwrap();
            let read: Entry = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &entry, "{}", text);
            again.restore(read, at(secs));
        }
        let states = |panel: &Panel| panel.rows(&[], true).map(|row| row.state).collect::<Vec<_>>();
        prop_assert_eq!(states(&again), states(&panel));
        prop_assert_eq!(again.snapshot(true, at(secs)), panel.snapshot(true, at(secs)));
    }
}

#[test]
fn alarms_without_a_name_are_served_under_the_name_of_their_plant() {
    let named = |name: &str| {
        let text = format!("[alarms]\nfolder = \"x\"\n{name}\n[[alarm]]\nchannels = [\"A\"]\n");
        read(&text).0.unwrap()
    };
    assert_eq!(named("").served_as(Some("rf")), "rf");
    assert_eq!(named("").served_as(None), "alarms");
    assert_eq!(named("name = \"ring\"").served_as(Some("rf")), "ring");
}

#[test]
fn names_match_channels_paths_and_areas_and_unknown_ones_are_refused() {
    let text = "[alarms]\nfolder = \"x\"\n[[alarm]]\nchannels = [\"RF:A\", \"RF:B\"]\narea = \"RF/Cavity\"\n[[alarm]]\nchannels = [\"BPM:C\"]\n";
    let panel = Panel::new(&read(text).0.unwrap(), at(0));
    let meant = |name: &str| panel.check(&Act::Acknowledge { names: vec![name.to_owned()] });
    assert_eq!(meant("RF:*"), Ok(vec![0, 1]));
    assert_eq!(meant("/alarms/RF"), Ok(vec![0, 1]));
    assert_eq!(meant("/alarms/BPM:C"), Ok(vec![2]));
    assert_eq!(meant("*").map(|all| all.len()), Ok(3));
    assert_eq!(meant("RF:X").unwrap_err().to_string(), "no alarm has the name \"RF:X\"; did you mean \"RF:A\"?");
    let names = || vec!["*".to_owned()];
    let long = Act::Shelve { names: names(), time: "48h".into(), once: false, why: String::new() };
    assert!(panel.check(&long).unwrap_err().to_string().contains("expected 1s to 86400s"));
    assert_eq!(panel.check(&Act::Enable { names: Vec::new() }), Err(ActError::NoNames));
}

#[test]
fn a_channel_without_a_server_is_an_alarm_after_a_time() {
    let text = "[alarms]\nfolder = \"x\"\nconnect_within = \"5s\"\n[[alarm]]\nchannels = [\"A\", \"B\"]\n";
    let mut panel = Panel::new(&read(text).0.unwrap(), at(0));
    let first = panel.channels().next().unwrap().0;
    panel.update(first, update(Well, "OK", at(1)), at(1));
    assert_eq!(panel.due(), Some(at(5).mono));
    panel.tick(at(5));
    let rows: Vec<_> = panel.rows(&[], false).collect();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].channel.as_str(), rows[0].state.alarm.severity, rows[0].connected), ("B", Undefined, false));
    assert_eq!(panel.due(), None);
}

#[test]
fn an_alarm_counts_again_after_its_delay_when_its_filter_becomes_true() {
    let delayed = Rules { delay: DurNs::from_secs(10), ..Rules::default() };
    let mut alarm = Alarm::new(delayed.clone());
    alarm.suppress(true, at(0));
    alarm.update(update(Major, "HIHI", at(1)), false, at(1));
    alarm.tick(false, at(11));
    assert_eq!(alarm.state().alarm.severity, Major, "it is evaluated while it is suppressed");
    assert_eq!(alarm.suppress(false, at(20)).announce, None);
    assert_eq!((alarm.state().alarm.severity, alarm.due()), (Well, Some(at(30).mono)));
    assert_eq!(alarm.tick(false, at(30)).announce, Some(Major));

    // A pending delay starts again; an alarm that ends in the meantime is never raised.
    let mut alarm = Alarm::new(delayed.clone());
    alarm.suppress(true, at(0));
    alarm.update(update(Major, "HIHI", at(15)), false, at(15));
    alarm.suppress(false, at(20));
    assert_eq!(alarm.due(), Some(at(30).mono));
    alarm.update(update(Well, "OK", at(25)), false, at(25));
    assert_eq!((alarm.tick(false, at(40)).announce, alarm.state().alarm.severity), (None, Well));

    // An acknowledged alarm is not a new one.
    let mut alarm = Alarm::new(delayed);
    alarm.update(update(Major, "HIHI", at(0)), false, at(0));
    alarm.tick(false, at(10));
    alarm.acknowledge(at(11));
    alarm.suppress(true, at(12));
    alarm.suppress(false, at(13));
    assert_eq!(alarm.state().alarm.severity, MajorAck);
}

#[test]
fn suppressed_alarms_are_not_announced_at_a_start() {
    let text = "[alarms]\nfolder = \"x\"\nconnect_within = \"5s\"\n[[alarm]]\nchannels = [\"A\"]\nfilter = \"P > 0 && Q > 0\"\n";
    let mut panel = Panel::new(&read(text).0.unwrap(), at(0));
    let channels: Vec<ChannelUse> = panel.channels().map(|(channel, _)| channel).collect();
    let announced = |panel: &mut Panel| -> Vec<Severity> {
        let entries = std::iter::from_fn(|| panel.poll_entry());
        let of = |entry: Entry| match entry.what {
            EntryContent::State { announce, .. } => announce,
            _ => None,
        };
        entries.filter_map(of).collect()
    };
    let number = |number: f64, now| Update { number: Some(number), ..update(Well, "OK", now) };
    // The channels connect one after the other, the alarm's own first.
    panel.update(channels[0], update(Major, "HIHI", at(1)), at(1));
    panel.update(channels[1], number(1.0, at(2)), at(2));
    panel.update(channels[2], number(0.0, at(2)), at(2));
    panel.tick(at(5));
    assert_eq!(announced(&mut panel), []);
    panel.update(channels[2], number(1.0, at(6)), at(6));
    assert_eq!(announced(&mut panel), [Major], "it is when its filter becomes true");
    panel.update(channels[2], number(0.0, at(7)), at(7));

    // The next server restores the state.
    let mut again = Panel::new(&read(text).0.unwrap(), at(10));
    panel.snapshot(true, at(7)).into_iter().for_each(|entry| again.restore(entry, at(10)));
    again.update(channels[1], number(1.0, at(11)), at(11));
    again.update(channels[0], update(Major, "HIHI", at(11)), at(11));
    again.update(channels[2], number(0.0, at(12)), at(12));
    again.tick(at(15));
    assert_eq!(announced(&mut again), []);

    // A filter whose channels never connect does not suppress for long.
    let mut lost = Panel::new(&read(text).0.unwrap(), at(0));
    lost.update(channels[0], update(Major, "HIHI", at(1)), at(1));
    assert_eq!(announced(&mut lost), []);
    lost.tick(at(5));
    assert_eq!(announced(&mut lost), [Major]);
}

#[test]
fn every_announced_alarm_is_counted_in_the_figures() {
    let text = "[alarms]\nfolder = \"x\"\n[[alarm]]\nchannels = [\"A\"]\nfilter = \"P > 0\"\nrealarm = \"60s\"\n";
    let mut panel = Panel::new(&read(text).0.unwrap(), at(0));
    let channels: Vec<ChannelUse> = panel.channels().map(|(channel, _)| channel).collect();
    let by = Actor { user: "alice".into(), uid: 1, pid: 2, on_behalf_of: String::new() };
    let names = || vec!["A".to_owned()];
    let filter = |panel: &mut Panel, number: f64, now| {
        panel.update(channels[1], Update { number: Some(number), ..update(Well, "OK", now) }, now);
    };
    panel.update(channels[0], update(Major, "HIHI", at(1)), at(1));
    // The filter becomes true without a delay.
    filter(&mut panel, 0.0, at(2));
    filter(&mut panel, 1.0, at(3));
    let (time, why) = ("1h".to_owned(), String::new());
    for (secs, act) in [
        (4, Act::OutOfService { names: names(), why: why.clone() }),
        (5, Act::InService { names: names() }),
        (6, Act::Shelve { names: names(), time, once: false, why }),
        (7, Act::Unshelve { names: names() }),
    ] {
        panel.act(&act, &by, at(secs)).unwrap();
    }
    panel.tick(at(70));
    let (mut reckoner, mut announced) = (Reckoner::default(), 0);
    while let Some(entry) = panel.poll_entry() {
        announced += usize::from(matches!(entry.what, EntryContent::State { announce: Some(_), .. }));
        reckoner.take(&entry, false);
    }
    let figures = reckoner.finish(Wall(0), at(3600).wall, true);
    assert_eq!((announced, figures.alarms, figures.top[0].count), (4, 4, 4), "{figures:?}");
}

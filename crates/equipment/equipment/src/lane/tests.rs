use super::*;
use crate::{Access, DRIVERS, check};
use proptest::prelude::*;

const FILE: &str = r#"
[manager]
name = "magnets"

[[device]]
name = "ps_b"
driver = "power-supply"
ramp = 100
lag = "0s"

[[device]]
name = "bpm_1"
driver = "bpm"
x = 0.5

[[device]]
name = "fb"
driver = "feedback"
period = "100ms"
input = "sr_bpm_1/x"
output = "sr_bpm_1/kick={value}"
ki = 5
low = -10
high = 10

[[map]]
verb = ["put", "set"]
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "setpoint"
unit = "A"
limits = [0, 500]
reached = { complement = "current_adc", within = 0.1, timeout = "5s" }

[[map]]
verb = "put"
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]

[[map]]
verb = "get"
object = "sr_mag_ps_{name}"
complement = "current_adc"
device = "ps_{name}"
point = "current"
unit = "A"
precision = 2

[[map]]
verb = "get"
object = "sr_bpm_{name}"
complement = "x"
device = "bpm_{name}"
point = "x"

[[map]]
verb = "put"
object = "sr_bpm_{name}"
complement = "kick={value}"
device = "bpm_{name}"
point = "kick"
limits = [-10, 10]

[[map]]
verb = "put"
object = "sr_orbit"
device = "fb"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]

[[poll]]
name = "values"
period = "100ms"
objects = ["sr_*"]
"#;

#[derive(Default)]
struct Recording {
    answers: Vec<(u32, String)>,
    polled: usize,
    /// The cycle number and the time of each cycle's first value.
    cycles: Vec<(u64, MonoNs)>,
}

impl Answers<u32> for Recording {
    fn answer(&mut self, id: u32, answer: Result<Answer<'_>, Fault<'_>>) {
        let text = match answer {
            Ok(Answer::Ok) => "OK".to_owned(),
            Ok(Answer::Value(value, unit, Some(precision))) => format!("{value:.precision$}{unit}"),
            Ok(Answer::Value(value, unit, None)) => format!("{value}{unit}"),
            Err(fault) => format!("failed: {fault}"),
        };
        self.answers.push((id, text));
    }

    fn expired(&mut self, id: u32) {
        self.answers.push((id, "expired".to_owned()));
    }

    fn polled(&mut self, _: usize, _: usize, value: Option<f64>, pulse: u64, now: MonoNs) {
        self.polled += usize::from(value.is_some());
        if self.cycles.last().is_none_or(|last| last.0 != pulse) {
            self.cycles.push((pulse, now));
        }
    }
}

fn tables(text: &str) -> Arc<Tables> {
    let checked = check(
        "t.toml",
        text,
        &DRIVERS.iter().collect::<Vec<_>>(),
        &mut |_| Err(std::io::ErrorKind::NotFound.into()),
        &(),
    );
    Arc::new(checked.tables.clone().unwrap_or_else(|| panic!("{}", checked.render())))
}

fn lane(text: &str) -> Lane<u32> {
    Lane::new(tables(text), 0, (at(0), 0), None, &mut |_| Err("no other device")).unwrap()
}

fn at(ms: u64) -> MonoNs {
    MonoNs(1_000_000_000 + ms * 1_000_000)
}

fn ask(lane: &mut Lane<u32>, line: &str, now: MonoNs) -> String {
    let mut seen = Recording::default();
    request(lane, 1, line, None, now, &mut seen);
    seen.answers.first().map_or("waits".to_owned(), |(_, text)| text.clone())
}

fn request(lane: &mut Lane<u32>, id: u32, line: &str, deadline: Option<MonoNs>, now: MonoNs, seen: &mut Recording) {
    let parts: Vec<&str> = line.splitn(3, '/').collect();
    let verb = parts[0].parse().unwrap();
    lane.request(id, verb, parts[1], parts[2], deadline, now, seen);
}

/// Advances the time to `until`, as a lane's thread does.
fn go_on(lane: &mut Lane<u32>, until: MonoNs, seen: &mut Recording) {
    for _ in 0..100_000 {
        match lane.due().filter(|due| *due <= until) {
            Some(due) => lane.run(due.max(at(0)), seen),
            None => return,
        }
    }
    panic!("the lane does not settle");
}

#[test]
fn requests_are_interpreted_executed_and_converted() {
    let mut lane = lane(FILE);
    for (line, expected) in [
        ("put/sr_mag_ps_b/on", "OK"),
        ("put/sr_mag_ps_b/100A", "OK"),
        ("put/sr_mag_ps_b/1000mA", "OK"),
        ("put/sr_mag_ps_b/501A", "failed: 501A is out of range; expected 0A to 500A"),
        ("put/sr_mag_ps_b/5V", "failed: the unit does not fit; expected A or a unit that converts to A"),
        ("put/sr_mag_ps_b/sideways", "failed: no such value; expected NUMBERA, off|on"),
        ("put/sr_mag_ps_b/onn", "failed: no such value (did you mean \"on\"?); expected NUMBERA, off|on"),
        ("get/sr_mag_ps_b/current", "failed: no such attribute; expected current_adc"),
        (
            "get/sr_mag_ps_b/current_adcc",
            "failed: no such attribute (did you mean \"current_adc\"?); expected current_adc",
        ),
        ("call/sr_mag_ps_b/reset", "failed: the object does not have this verb; expected one of get, put, set"),
        ("get/sr_mag_ps_c/current_adc", "failed: no such object here"),
    ] {
        assert_eq!(ask(&mut lane, line, at(0)), expected, "{line}");
    }
    assert_eq!(ask(&mut lane, "get/sr_mag_ps_b/current_adc", at(5000)), "1.00A");
}

#[test]
fn a_set_is_answered_when_its_value_is_reached_or_cannot_be_reached() {
    let (mut lane, mut seen) = (lane(FILE), Recording::default());
    request(&mut lane, 1, "put/sr_mag_ps_b/on", None, at(0), &mut seen);
    request(&mut lane, 2, "set/sr_mag_ps_b/100A", None, at(0), &mut seen);
    go_on(&mut lane, at(900), &mut seen);
    assert_eq!(seen.answers.len(), 1, "100 A take a second");
    go_on(&mut lane, at(1100), &mut seen);
    assert_eq!(seen.answers[1], (2, "OK".to_owned()));
    request(&mut lane, 3, "put/sr_mag_ps_b/off", None, at(2000), &mut seen);
    request(&mut lane, 4, "set/sr_mag_ps_b/50A", None, at(2000), &mut seen);
    request(&mut lane, 5, "set/sr_mag_ps_b/60A", Some(at(3000)), at(2000), &mut seen);
    go_on(&mut lane, at(10_000), &mut seen);
    assert_eq!(
        seen.answers[3..],
        [
            (5, "failed: not reached within 990ms; the value is 0A".to_owned()),
            (4, "failed: not reached within 5s; the value is 0A".to_owned())
        ]
    );
}

#[test]
fn a_request_past_its_deadline_is_not_executed() {
    let (mut lane, mut seen) = (lane(FILE), Recording::default());
    request(&mut lane, 1, "put/sr_bpm_1/kick=3", Some(at(0)), at(0), &mut seen);
    assert_eq!(seen.answers, [(1, "expired".to_owned())]);
    assert_eq!(ask(&mut lane, "get/sr_bpm_1/x", at(0)), "0.5");
}

#[test]
fn an_agent_is_started_by_a_message_and_moves_the_beam_to_its_set_point() {
    let (mut lane, mut seen) = (lane(FILE), Recording::default());
    go_on(&mut lane, at(1000), &mut seen);
    assert_eq!(ask(&mut lane, "get/sr_bpm_1/x", at(1000)), "0.5", "not started");
    request(&mut lane, 1, "put/sr_orbit/on", None, at(1000), &mut seen);
    go_on(&mut lane, at(6000), &mut seen);
    let x: f64 = ask(&mut lane, "get/sr_bpm_1/x", at(6000)).parse().unwrap();
    assert!(x.abs() < 0.01, "{x}");
    request(&mut lane, 2, "put/sr_orbit/off", None, at(6000), &mut seen);
    let kick = ask(&mut lane, "get/sr_bpm_1/x", at(9000));
    go_on(&mut lane, at(12_000), &mut seen);
    assert_eq!(ask(&mut lane, "get/sr_bpm_1/x", at(12_000)), kick, "stopped: the output stays");
}

#[test]
fn points_of_an_agent_are_found_by_name_in_any_order() {
    let points = ["faults", "ki", "skipped", "setpoint", "cycles", "kp"];
    let rows: String = points
        .iter()
        .map(|point| {
            let get = format!(
                "[[map]]\nverb = \"get\"\nobject = \"sr_orbit\"\ncomplement = \"{point}\"\ndevice = \"fb\"\npoint = \"{point}\"\n"
            );
            if !crate::agent::WRITABLE.contains(point) {
                return get;
            }
            format!(
                "{get}[[map]]\nverb = \"put\"\nobject = \"sr_orbit\"\ncomplement = \"{point}={{value}}\"\ndevice = \"fb\"\n\
                 point = \"{point}\"\nlimits = [0, 9]\n"
            )
        })
        .collect();
    let mut lane = lane(&format!("{FILE}{rows}"));
    for (line, expected) in [
        ("get/sr_orbit/ki", "5"),
        ("put/sr_orbit/ki=7", "OK"),
        ("put/sr_orbit/setpoint=1", "OK"),
        ("put/sr_orbit/kp=2", "OK"),
        ("get/sr_orbit/ki", "7"),
        ("get/sr_orbit/setpoint", "1"),
        ("get/sr_orbit/kp", "2"),
        ("put/sr_orbit/on", "OK"),
    ] {
        assert_eq!(ask(&mut lane, line, at(0)), expected, "{line}");
    }
    // In a frame, the time is the time of the borders. Here each cycle has two.
    for border in 0..100 {
        lane.run(at(border * 50), &mut Recording::default());
    }
    let said = |lane: &mut Lane<u32>, what: &str| ask(lane, &format!("get/sr_orbit/{what}"), at(5000));
    assert_eq!([said(&mut lane, "cycles"), said(&mut lane, "skipped"), said(&mut lane, "faults")], ["50", "0", "0"]);
}

#[test]
fn polls_run_at_their_cycle() {
    let (mut lane, mut seen) = (lane(FILE), Recording::default());
    go_on(&mut lane, at(999), &mut seen);
    assert_eq!(seen.polled, 2 * 10, "two objects, ten cycles");
}

#[test]
fn polls_of_all_hosts_have_the_same_number_at_the_same_time_and_the_first_is_immediate() {
    // Two hosts: their monotonic clocks have different origins, and the manager of the second host starts 130 ms later.
    let tai = 1_700_000_000_030 * 1_000_000;
    let begun = |mono: u64, after: u64| {
        let mut lane: Lane<u32> =
            Lane::new(tables(FILE), 0, (at(mono), tai + after * 1_000_000), None, &mut |_| Err("none")).unwrap();
        let mut seen = Recording::default();
        for ms in mono..mono + 500 {
            lane.run(at(ms), &mut seen);
        }
        seen.cycles
            .iter()
            .map(|(pulse, now)| (*pulse, (*now - at(mono)).0 / 1_000_000 + after as i64))
            .collect::<Vec<_>>()
    };
    let (first, second) = (begun(40, 0), begun(7_000, 130));
    assert_eq!(first[..3], [(17_000_000_000, 0), (17_000_000_001, 70), (17_000_000_002, 170)]);
    assert_eq!(second[..3], [(17_000_000_001, 130), (17_000_000_002, 170), (17_000_000_003, 270)]);
}

#[test]
fn changed_tables_take_over_unchanged_devices_and_waiting_requests() {
    let (mut old, mut seen) = (lane(FILE), Recording::default());
    request(&mut old, 1, "put/sr_mag_ps_b/on", None, at(0), &mut seen);
    request(&mut old, 2, "set/sr_mag_ps_b/100A", None, at(0), &mut seen);
    go_on(&mut old, at(500), &mut seen);
    let tables = tables(&FILE.replace("limits = [0, 500]", "limits = [0, 50]"));
    let mut new = Lane::new(tables, 0, (at(500), 0), Some(old.tables()), &mut |_| Err("no other device")).unwrap();
    new.take_over(&mut old, at(500), &mut seen);
    assert_eq!(ask(&mut new, "get/sr_mag_ps_b/current_adc", at(500)), "50.00A", "the supply continues its ramp");
    assert!(ask(&mut new, "put/sr_mag_ps_b/60A", at(500)).contains("expected 0A to 50A"));
    go_on(&mut new, at(2000), &mut seen);
    assert_eq!(seen.answers.last(), Some(&(2, "OK".to_owned())));
}

proptest! {
    #[test]
    fn every_request_gets_exactly_one_answer(
        lines in proptest::collection::vec((0usize..6, 0u64..3000, proptest::option::of(0u64..4000)), 1..60),
    ) {
        let all = ["put/sr_mag_ps_b/on", "put/sr_mag_ps_b/off", "set/sr_mag_ps_b/70A", "set/sr_mag_ps_b/600A",
            "get/sr_mag_ps_b/current_adc", "get/nothing/x"];
        let (mut lane, mut seen) = (lane(FILE), Recording::default());
        let mut now = 0;
        for (id, (line, wait, deadline)) in lines.iter().enumerate() {
            now += wait / 10;
            go_on(&mut lane, at(now), &mut seen);
            request(&mut lane, id as u32, all[*line], deadline.map(|more| at(now + more)), at(now), &mut seen);
        }
        go_on(&mut lane, at(now + 20_000), &mut seen);
        let mut ids: Vec<u32> = seen.answers.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..lines.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_point_that_is_read_only_for_the_check_is_read_only_for_its_device_and_no_other() {
    let points = |driver: &Driver| match driver.word {
        "power-supply" => PowerSupply::POINTS,
        "bpm" => Bpm::POINTS,
        "rf-station" => RfStation::POINTS,
        "clock" => &["mono"],
        "memory" => &["any"],
        "feedback" | "copy" => crate::agent::POINTS,
        // These need more than arithmetic and are created in another crate.
        _ => &[],
    };
    for driver in DRIVERS {
        for point in points(driver) {
            let (settings, names) = (Settings::default(), [(*point).to_owned()]);
            let written = match built_in(driver, &settings, &names) {
                Some(mut device) => device.write(0, &Datum::Number(0.0), at(0)),
                None => Agent::new(driver, &settings, &names).write(0, &Datum::Number(0.0), at(0)),
            };
            let access = if written.is_ok() { Access::ReadWrite } else { Access::ReadOnly };
            assert_eq!((driver.point)(point), Ok(access), "{} {point}: {written:?}", driver.word);
        }
    }
}

//! Equipment managers as processes with a message server, as users see them.

use broker::{Client, Sending};
use harness::process::Running;
use harness::site::Site;
use harness::{PATIENCE, fresh, tahti};
use msg::Band;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

const MAGNETS: &str = r#"
[manager]
name = "magnets"

[[device]]
name = "ps_b"
driver = "power-supply"
ramp = 10000
lag = "1ms"

[[device]]
name = "bpm_1"
driver = "bpm"
x = 0.5

[[device]]
name = "fb"
driver = "feedback"
period = "5ms"
input = "sr_bpm_1/x"
output = "sr_bpm_1"
ki = 20
low = -10
high = 10

[[map]]
verb = ["put", "set"]
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "setpoint"
unit = "A"
limits = [0, 500]
reached = { complement = "current_adc", within = 0.1, timeout = "20s" }

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
precision = 1

[[map]]
verb = "get"
object = "sr_bpm_{n}"
complement = "x"
device = "bpm_{n}"
point = "x"
unit = "mm"

[[map]]
verb = "put"
object = "sr_bpm_{n}"
device = "bpm_{n}"
point = "kick"
limits = [-10, 10]

[[map]]
verb = "put"
object = "sr_orbit"
device = "fb"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]
"#;

/// Waits until a process reports such a fault to its supervisor.
fn hears_fault(supervisor: &UnixDatagram, is_expected: impl Fn(&str) -> bool) {
    supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let mut bytes = [0; 4096];
        let len = supervisor.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        if text.lines().filter_map(|line| line.strip_prefix("X_TAHTI_TROUBLE=")).any(&is_expected) {
            return;
        }
    }
}

#[test]
fn a_manager_serves_its_tables_keeps_its_state_and_takes_new_tables() {
    let mut site = Site::new();
    let poll = fresh("values");
    let text = format!("{MAGNETS}\n[[poll]]\nname = \"{poll}\"\nperiod = \"20ms\"\nobjects = [\"sr_*\"]\n");
    let file = site.folder.write("magnets.toml", &text);
    // The supervisor of the manager.
    let notify = site.folder.0.join("notify").display().to_string();
    let supervisor = UnixDatagram::bind(&notify).unwrap();
    let manager = site.manager_with(&file, &[("NOTIFY_SOCKET", &notify)]);
    for (line, answer) in [
        ("put/sr_mag_ps_b/on", "OK"),
        ("set/sr_mag_ps_b/100A", "OK"),
        ("get/sr_mag_ps_b/current_adc", "100.0A"),
        ("put/sr_mag_ps_b/0.6kA", "tahti: RANGE: 600A is out of range; expected 0A to 500A"),
        ("call/sr_mag_ps_b/reset", "tahti: NO_VERB: the object does not have this verb; expected one of get, put, set"),
        (
            "get/sr_mag_ps_b/current_adcc",
            "tahti: NO_VERB: no such attribute (did you mean \"current_adc\"?); expected current_adc",
        ),
        ("put/sr_mag_ps_b/onn", "tahti: RANGE: no such value (did you mean \"on\"?); expected NUMBERA, off|on"),
        ("ping/sr_mag_ps_b", "magnets"),
        ("ping/sr_mag_ps_b_x", "tahti: NO_OBJECT: no such object here"),
    ] {
        assert_eq!(site.ask(line), answer, "{line}");
    }
    let nothing =
        (true, "tahti: no served object matches \"nothing\"; `tahti msg list` lists what is served".to_owned());
    assert_eq!(site.say(&["msg", "send", "list/nothing"]), nothing);
    assert!(site.ask("describe/sr_mag_ps_b").contains("get current_adc: number A read"));

    // An agent, switched on by a message.
    assert_eq!(site.ask("put/sr_orbit/on"), "OK");
    site.until("get/sr_bpm_1/x", |x| x.trim_end_matches("mm").parse::<f64>().is_ok_and(|x| x.abs() < 0.01));

    // New tables, some of them refused, are loaded while the devices run.
    site.folder.write("magnets.toml", &text.replace("limits = [0, 500]", "limits = [0, 50]"));
    manager.signal("-HUP");
    manager.hears("tables reloaded");
    site.until("put/sr_mag_ps_b/60A", |answer| answer.contains("expected 0A to 50A"));
    assert_eq!(site.ask("get/sr_mag_ps_b/current_adc"), "100.0A", "devices continue");
    site.folder.write("magnets.toml", &text.replace("point = \"kick\"", "point = \"kik\""));
    manager.signal("-HUP");
    assert!(manager.hears("the old ones stay").contains("not reloaded"));
    assert_eq!(site.ask("put/sr_mag_ps_b/40A"), "OK");
    hears_fault(&supervisor, |fault| fault.starts_with("tables not reloaded, the old ones stay in use"));
    site.folder.write("magnets.toml", &text);
    manager.signal("-HUP");
    manager.hears("tables reloaded");
    hears_fault(&supervisor, str::is_empty);

    // The message server is lost and comes back: loops kept running, and devices kept their state.
    site.serve();
    manager.hears("serves");
    site.until("get/sr_mag_ps_b/current_adc", |answer| answer == "40.0A");

    // Polled values are read without a message, and become stale when the poller has ended.
    let values = || tahti().args(["em", "values", &poll]).output().unwrap();
    let begun = Instant::now();
    while !values().status.success() && begun.elapsed() < PATIENCE {}
    let shown = String::from_utf8(values().stdout).unwrap();
    assert!(shown.contains("sr_mag_ps_b/current_adc  40A"), "{shown}");
    manager.signal("-TERM");
    // They are displayed as stale while the process ends.
    let gone = || String::from_utf8(values().stderr).unwrap().contains("no variables are exported");
    while !gone() {
        assert!(begun.elapsed() < 2 * PATIENCE, "{:?}", values());
    }
}

#[test]
fn objects_are_listed_and_batches_have_a_result_for_each_line_also_where_a_manager_hangs() {
    let site = Site::new();
    let _magnets = site.manager(&site.folder.write("magnets.toml", MAGNETS));
    let devices: String = (0..600).map(|n| format!("[[device]]\nname = \"v_{n}\"\ndriver = \"memory\"\n")).collect();
    let many = format!(
        "[manager]\nname = \"many\"\n{devices}[[map]]\nverb = \"get\"\nobject = \"li_v_{{n}}\"\ncomplement = \"a\"\n\
         device = \"v_{{n}}\"\npoint = \"a\"\n[[map]]\nverb = \"put\"\nobject = \"li_v_{{n}}\"\ndevice = \"v_{{n}}\"\npoint = \"a\"\n"
    );
    let hangs = site.manager(&site.folder.write("many.toml", &many));
    let (good, said) = site.say(&["msg", "list"]);
    let mut lines: Vec<&str> = said.lines().collect();
    assert!(good && lines.len() == 603 && lines.contains(&"li_v_599"), "{said}");
    lines.retain(|object| object.starts_with("sr_"));
    assert_eq!(lines, ["sr_bpm_1", "sr_mag_ps_b", "sr_orbit"]);
    assert_eq!(site.say(&["msg", "list", "*_v_12?"]).1.lines().count(), 10);

    let batch = ["msg", "send", "--batch"];
    let ask = |lines: &[&str]| site.say(&[&batch[..], lines].concat());
    let (good, said) = ask(&["put/sr_mag_ps_b/on", "set/sr_mag_ps_b/100A", "get/sr_bpm_1/x", "put/sr_mag_ps_b/600A"]);
    let expected = "put/sr_mag_ps_b/on OK\nset/sr_mag_ps_b/100A OK\nget/sr_bpm_1/x 0.5mm\n\
                    tahti: put/sr_mag_ps_b/600A RANGE: 600A is out of range; expected 0A to 500A";
    assert_eq!((good, said.as_str()), (false, expected));
    assert!(ask(&["describe/sr_bpm_1"]).1.contains("get x: number mm read"));
    let all: Vec<String> = (0..256).map(|n| format!("put/li_v_{n}/{n}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (good, said) = ask(&all);
    assert!(good && said.lines().count() == 256, "{said}");
    assert_eq!(site.ask("get/li_v_255/a"), "255");
    assert_eq!(
        ask(&["ping/li_v_1", "get/li_v_2/a"]).1,
        "tahti: NO_VERB: line 1 of the batch: ping cannot be part of one; nothing was done"
    );
    let more: Vec<&str> = all.iter().copied().chain(["put/li_v_256/256"]).collect();
    let (good, said) = ask(&more);
    assert!(!good && said.contains("257 lines with") && said.contains("expected at most 256 and 16384"), "{said}");
    assert_eq!(
        site.say(&["msg", "list", "none_*"]).1,
        "tahti: no served object matches \"none_*\"; `tahti msg list` lists what is served"
    );
    let (good, said) = ask(&["get/sr_bpm_1/x", "get/li_v_1/a"]);
    assert!(!good && said.contains("another manager"), "{said}");

    // A hanging manager is reported once, and the objects of the others are still listed.
    hangs.signal("-STOP");
    let (good, said) = site.say(&["msg", "list", "--timeout", "3s"]);
    hangs.signal("-CONT");
    assert!(!good && said.contains("sr_mag_ps_b") && said.contains("li_v\n"), "{said}");
    assert_eq!(said.matches("many does not list its objects").count(), 1, "{said}");
}

#[test]
fn loops_with_a_configured_frame_run_as_its_activity_and_end_with_it() {
    let mut site = Site::new();
    let plant = fresh("emframe");
    let queue = r#"[[0, {"underrunnable":false,"overrunnable":false,"continuable":false,"background":false}]]"#;
    let frame = format!(
        r#"{{"spec":{{"name":"fast","base":"timer","minors":["5ms"],"activities":[{{"name":"magnets","budget":"2ms",
           "queue":{queue},"recovery":"none","tolerate":null}}],"modes":[],"reserve":"0s"}},
           "cpu":null,"priority":50,"join_within":"60s","followers":[]}}"#
    );
    let mut command = tahti();
    command.args(["frames", "run"]).env("TAHTI_PLANT", &plant).env("TAHTI_FRAME", frame);
    let frame = Running::until(&mut command, "waits for its activities");
    let named = format!("name = \"magnets\"\nframe = {{ name = \"{plant}/fast\", activity = \"magnets\" }}");
    let text = MAGNETS.replacen("name = \"magnets\"", &named, 1).replace("period = \"5ms\"", "period = \"10ms\"")
        + "[[map]]\nverb = \"get\"\nobject = \"sr_orbit\"\ncomplement = \"{what}\"\nfor = { what = [\"cycles\", \"on\"] }\n\
           device = \"fb\"\npoint = \"{what}\"\n\
           [[map]]\nverb = \"put\"\nobject = \"sr_orbit\"\ncomplement = \"ki={value}\"\ndevice = \"fb\"\npoint = \"ki\"\nlimits = [0, 100]\n";
    let manager = site.manager(&site.folder.write("magnets.toml", &text));
    frame.hears("frame fast runs");
    let cycles = |site: &Site| site.ask("get/sr_orbit/cycles").parse::<u64>().unwrap();

    // Starts, tunes and stops the loop by messages.
    assert_eq!(cycles(&site), 0);
    assert_eq!(site.ask("put/sr_orbit/ki=10"), "OK");
    assert_eq!(site.ask("put/sr_orbit/on"), "OK");
    site.until("get/sr_bpm_1/x", |x| x.trim_end_matches("mm").parse::<f64>().is_ok_and(|x| x.abs() < 0.01));
    assert!(cycles(&site) > 0);
    assert_eq!(site.ask("put/sr_orbit/off"), "OK");
    let stopped = cycles(&site);
    // The frame still drives the lane: it can set a value that is reached over time.
    assert_eq!(site.ask("put/sr_mag_ps_b/on"), "OK");
    assert_eq!(site.ask("set/sr_mag_ps_b/100A"), "OK");
    assert_eq!(cycles(&site), stopped);
    let shown = site.say(&["frames", "show", &format!("{plant}/fast")]).1;
    assert!(shown.lines().any(|line| line.starts_with("magnets")), "{shown}");

    // The message server ends: the lane stays in the frame, and its loop continues there.
    assert_eq!(site.ask("put/sr_orbit/on"), "OK");
    let calls = |site: &Site| {
        let shown = site.say(&["frames", "show", &format!("{plant}/fast")]).1;
        let line = shown.lines().rfind(|line| line.starts_with("magnets")).unwrap_or_default();
        line.split_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    drop(site.messages.take());
    manager.hears("; reconnecting");
    let (before, begun) = (calls(&site), Instant::now());
    while calls(&site) < before + 20 {
        assert!(begun.elapsed() < PATIENCE, "the lane has left its frame");
    }
    site.serve();
    manager.hears("magnets serves");
    assert!(cycles(&site) > stopped);

    // If the frame ends, the manager ends too instead of running without it, and the supervisor restarts it.
    drop(frame);
    manager.hears("of which the lane was activity \"magnets\", has ended");
    let twice = site.folder.write("twice.toml", &text.replacen("[manager]", "[manager]\nclass = \"fifo:10\"", 1));
    let said = site.say(&["em", "check", &twice.display().to_string()]).1;
    assert!(said.contains("`class` and `frame` in one manager") && said.contains("twice.toml:3:9"), "{said}");
}

#[test]
fn locks_and_rules_apply_to_objects_of_managers_and_a_second_manager_is_refused() {
    let mut site = Site::new();
    let file = site.folder.write("magnets.toml", MAGNETS);
    let manager = site.manager(&file);
    let mut holder = Client::connect(&site.server, "holder", Band::DEFAULT).unwrap();
    let mut hold = |line: &str| holder.ask(line, &Sending::default()).unwrap().code;
    assert_eq!(hold("lock/sr_mag"), msg::Code::Ok);
    let locked = "LOCKED: ";
    assert!(site.ask("put/sr_mag_ps_b/on").contains(locked));
    assert_eq!(site.ask("get/sr_mag_ps_b/current_adc"), "0.0A");
    assert!(site.say(&["msg", "send", "--batch", "put/sr_orbit/on", "put/sr_mag_ps_b/on"]).1.contains(locked));
    assert_eq!(hold("put/sr_mag_ps_b/on"), msg::Code::Ok);
    assert_eq!(hold("unlock/sr_mag"), msg::Code::Ok);
    assert_eq!(site.ask("put/sr_mag_ps_b/100A"), "OK");

    // A manager that claims objects of another one is refused with the reason, and retries until it succeeds.
    let mut second = tahti();
    second.args(["em", "serve", "--server", &site.server]).arg(&file);
    let second = Running::until(&mut second, "no message server yet");
    drop(manager);
    second.hears("magnets serves 3 objects");
    assert_eq!(site.ask("get/sr_mag_ps_b/current_adc"), "0.0A", "another process, another device");

    // A rule of the server refuses the manager. The manager finds the new server by itself.
    site.messages = None;
    let mut strict = tahti();
    strict.args(["msg", "serve", "--name", &site.server, "--rule", "deny objects=sr_mag_* verbs=put,set"]);
    site.messages = Some(Running::until(&mut strict, "serving"));
    second.hears("magnets serves 3 objects");
    assert!(site.ask("put/sr_mag_ps_b/on").contains("DENIED: "));
    assert_eq!(site.ask("put/sr_orbit/on"), "OK");
}

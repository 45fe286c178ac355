//! The dashboard's page in a real browser, panel by panel (`cargo xtask test browser` sets the browser up).

#[path = "dashboard_page/tour.rs"]
mod tour;

use harness::ioc::Ioc;
use harness::plant::Bench;
use harness::port::free_port;
use harness::process::finish;
use serde_json::json;
use std::process::Stdio;

const DATABASE: &str = r#"
record(calc, "X:COUNT") { field(SCAN, ".1 second") field(INPA, "X:COUNT") field(CALC, "A+1") field(EGU, "turns") field(DESC, "turns of a wheel") }
record(ao, "X:SET") { field(VAL, "2") field(EGU, "A") field(HIGH, "100") field(HSV, "MINOR") field(PINI, "YES") }
record(ao, "X:TEMP") { field(HIHI, "20") field(HHSV, "MAJOR") field(VAL, "53") field(PINI, "YES") }
record(calc, "X:SAW") { field(SCAN, ".1 second") field(INPA, "X:SAW") field(CALC, "A>19?0:A+1") field(EGU, "kV") field(HIGH, "10") field(HSV, "MINOR") }
record(mbbo, "X:MODE") { field(ZRST, "off") field(ONST, "standby") field(TWST, "on") field(VAL, "1") field(PINI, "YES") }
record(waveform, "X:ARRAY") { field(FTVL, "DOUBLE") field(NELM, "3") field(INP, [1, 4, 2.5]) field(EGU, "V") field(PINI, "YES") }
"#;

/// A loop without priority (which needs no privilege), a frame, alarms, a message server with an RF station, and a
/// dashboard for operators.
fn processes(port: u16, segment: &str, server: &str, [sensor, filter]: [&str; 2]) -> String {
    let name = harness::fresh("page-frame");
    let activity = |activity: &str, keys: &str, work: &str| {
        format!(
            "[[frame.activity]]\nname = \"{activity}\"\n{keys}\n\
             [[process]]\nname = \"{activity}\"\ncommand = \"tahti demo activity {name} {activity} --work {work}\"\n"
        )
    };
    let frame = format!(
        "[[frame]]\nname = \"{name}\"\nminors = 4\nperiod = \"10ms\"\njoin_within = \"60s\"\n{}{}",
        activity(sensor, "budget = \"3ms\"", "1ms"),
        activity(filter, "budget = \"5ms\"\nminors = [\"1\", \"3\"]", "2ms"),
    );
    format!(
        "{frame}[[process]]\nname = \"loop\"\ncommand = [\"tahti\", \"demo\", \"llrf\", \"--channel\", \"{segment}\"]\nready = {{ line = \"armed:\", within = \"60s\" }}\nheartbeat = {{ within = \"60s\" }}\n\
         [[process]]\nname = \"steady\"\ncommand = [\"/bin/sleep\", \"1000\"]\n\
         [alarms]\nname = \"alarms\"\nfile = \"alarms.toml\"\n\
         [dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\nwrite = true\nsettings = \"settings\"\nmessages = \"{server}\"\n\
         [messages]\nname = \"{server}\"\n\
         [archive]\nname = \"archive\"\nfolder = \"archive\"\nsync = \"100ms\"\n[[signal]]\nnames = [\"X:COUNT\"]\n\
         [[equipment]]\nname = \"rf\"\nfile = \"rf.toml\"\nserver = \"{server}\"\nafter = [\"{server}\"]\n"
    )
}

#[test]
fn every_panel_shows_its_data_and_is_usable_by_keyboard_and_screen_reader() {
    let (port, segment) = (free_port(), harness::fresh("page-llrf"));
    let ioc = Ioc::start(&[("a.db", DATABASE)], &["-d", "a.db"]);
    // Activities export variables under their own names, which must be unique on this machine.
    let (sensor, filter) = (harness::fresh("sensor"), harness::fresh("filter"));
    let bench = Bench::new("page", &processes(port, &segment, &harness::fresh("page"), [&sensor, &filter]));
    let rf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/madoca/rf.toml");
    std::fs::copy(rf, bench.dir.join("rf.toml")).unwrap();
    std::fs::create_dir(bench.dir.join("settings")).unwrap();
    std::fs::write(bench.dir.join("settings/station.req"), "X:SET\nX:TEMP\n").unwrap();
    let alarms = format!(
        "[alarms]\nname = \"{}\"\nfolder = \"journal\"\n[[alarm]]\nchannels = [\"X:TEMP\"]\narea = \"RF\"\ndescription = \"Cooling water\"\n\
         guidance = [{{ title = \"Pump\", details = \"switch to pump 2\" }}]\n[[alarm]]\nchannels = [\"X:SET\"]\narea = \"RF\"\n",
        harness::fresh("page")
    );
    std::fs::write(bench.dir.join("alarms.toml"), alarms).unwrap();
    let up = bench
        .tahti(&["up", ".", "--detach"])
        .envs([("EPICS_CA_ADDR_LIST", "127.0.0.1".to_owned()), ("EPICS_CA_AUTO_ADDR_LIST", "NO".to_owned())])
        .envs([("EPICS_CA_SERVER_PORT", ioc.port.to_string())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let up = finish(up.unwrap());
    assert!(up.status.success(), "{up:?}\n{}", bench.log());
    let more = json!({ "segment": segment, "loop": bench.pid("loop"), "sensor": sensor, "filter": filter });
    tour::go(&bench, &["panels", "work", "scope", "overview", "views", "page"], &more);
}

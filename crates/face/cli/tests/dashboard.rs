//! The dashboard of a plant, as seen by browser connections: access, updates, and the actions open to operators.

use harness::epics::pvaccess;
use harness::ioc::Ioc;
use harness::page::{Socket, http, token};
use harness::plant::{Bench, sh};
use harness::port::free_port;
use harness::process::{finish, text};
use std::process::Stdio;

/// A plant with one running process and a dashboard on a separate port.
fn plant(name: &str, port: u16, more: &str) -> Bench {
    let process = sh("steady", "echo up; exec sleep 1000", "");
    let dashboard = format!("[dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\n{more}\n");
    Bench::new(name, &(process + &dashboard))
}

#[test]
fn a_plant_prints_the_address_of_its_dashboard_which_shows_its_processes() {
    let port = free_port();
    let bench = plant("dash-looks", port, "");
    let said = bench.ok(&["up", ".", "--detach"]);
    assert!(said.contains(&format!("dashboard: http://127.0.0.1:{port}/#token=")), "{said}");
    let address = bench.ok(&["dash", "url"]);
    assert!(said.contains(address.trim()), "{said}");
    assert_eq!(bench.ok(&["dash", "url", "p"]), address, "the plant may be named");
    let operators = bench.run(&["dash", "url", "--operator"]);
    assert!(!operators.status.success());

    assert!(http(port, "GET / HTTP/1.1", "").contains("<title>tahti</title>"));
    assert!(http(port, "GET /vendor/uPlot.iife.min.js HTTP/1.1", "").starts_with("HTTP/1.1 200"));
    assert!(http(port, "GET /../Cargo.toml HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    assert!(http(port, "GET /who HTTP/1.1", "").starts_with("HTTP/1.1 401"));
    assert!(http(port, "POST /login HTTP/1.1", "0123").starts_with("HTTP/1.1 403"));
    let good = http(port, "POST /login HTTP/1.1", &token(&address)).to_ascii_lowercase();
    assert!(good.starts_with("http/1.1 200") && good.contains("httponly; samesite=strict"), "{good}");

    let mut socket = Socket::open(port, &token(&address));
    assert_eq!(socket.until(|message| message["hello"]["role"].as_str().map(str::to_owned)), "viewer");
    socket.say(r#"{"do":"want","topics":["plant","histograms","late","frames","alarms"]}"#);
    let plant = socket.until(|message| (message["topic"] == "plant").then(|| message["data"].clone()));
    let processes = plant["processes"].as_array().unwrap();
    let steady = processes.iter().find(|process| process["name"] == "steady").unwrap();
    assert_eq!(
        (steady["state"].as_str(), steady["pid"].as_i64()),
        (Some("running"), Some(i64::from(bench.pid("steady"))))
    );
    socket.until(|message| message["beat"]["stale"].as_array().map(Vec::is_empty));
    let late = socket.until(|message| (message["topic"] == "late").then(|| message["data"].clone()));
    assert!(late["error"].as_str().unwrap().contains("[recorder]"), "{late}");
    let alarms = socket.until(|message| (message["topic"] == "alarms").then(|| message["data"].clone()));
    assert!(alarms["error"].as_str().unwrap().contains("[alarms]"), "{alarms}");

    socket.say(r#"{"id":1,"do":"process","what":"stop","name":"steady"}"#);
    let refused = socket.answer(1);
    assert!(refused["error"].as_str().unwrap().contains("viewers may only read"), "{refused}");
    assert_eq!(bench.process("steady")["state"], "running");
    assert!(bench.ok(&["down"]).contains("good"));
}

#[test]
fn operators_restart_a_process_and_the_log_names_them() {
    let port = free_port();
    let bench = plant("dash-acts", port, "write = true");
    bench.ok(&["up", ".", "--detach"]);
    let mut socket = Socket::open(port, &token(&bench.ok(&["dash", "url", "--operator"])));
    let before = bench.pid("steady");
    socket.say(r#"{"id":7,"do":"process","what":"restart","name":"steady"}"#);
    assert_eq!(socket.answer(7)["ok"], serde_json::json!({}));
    bench.until("it has another number", || {
        bench.process("steady")["pid"].as_i64().is_some_and(|pid| pid != i64::from(before))
    });
    socket.say(r#"{"id":8,"do":"process","what":"stop","name":"absent"}"#);
    assert!(socket.answer(8)["error"].as_str().unwrap().contains("absent"));
    let log = bench.ok(&["logs", "dashboard", "-n", "50"]);
    let user = std::fs::metadata("/proc/self").map(|about| std::os::unix::fs::MetadataExt::uid(&about)).unwrap();
    let acted =
        log.lines().find(|line| line.contains("restart process steady: done")).unwrap_or_else(|| panic!("{log}"));
    assert!(acted.contains("audit: operator 127.0.0.1:") && acted.contains(&format!("user {user}")), "{acted}");
    assert!(log.contains("stop process absent: failed"), "{log}");
    assert!(!log.contains("token="), "{log}");
}

/// A separate message server with a simulated RF station, for the plant's dashboard.
fn with_messages(name: &str, port: u16) -> Bench {
    let server = harness::fresh(name);
    let more = format!(
        "write = true\nmessages = \"{server}\"\n[messages]\nname = \"{server}\"\n\
         [[equipment]]\nname = \"rf\"\nfile = \"rf.toml\"\nserver = \"{server}\"\nafter = [\"{server}\"]\n"
    );
    let bench = plant(name, port, &more);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/madoca/rf.toml");
    std::fs::copy(example, bench.dir.join("rf.toml")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench
}

#[test]
fn viewers_read_and_watch_messages_and_only_operators_send_writes() {
    let port = free_port();
    let bench = with_messages("dash-console", port);
    let mut viewer = Socket::open(port, &token(&bench.ok(&["dash", "url"])));
    let mut operator = Socket::open(port, &token(&bench.ok(&["dash", "url", "--operator"])));

    viewer.say(r#"{"id":1,"do":"objects","pattern":"sr_rf_*"}"#);
    let known = viewer.answer(1)["ok"].clone();
    assert!(known["found"].as_array().unwrap().iter().any(|name| name == "sr_rf_acc"), "{known}");
    assert!(known["subjects"].as_array().unwrap().iter().any(|name| name == "dashboard"), "{known}");
    viewer.say(r#"{"id":2,"do":"watch","pattern":"put/sr_rf_*"}"#);
    viewer.answer(2);
    viewer.until(|message| (message["data"]["state"] == "watching").then_some(()));

    // Attempts of a hostile page: invalid characters, additional keys, several messages in one, locks, another
    // client's watch.
    for line in ["put/sr_rf_acc/on", "set/sr_rf_acc/1MV", "call/sr_rf_acc/reset", "lock/sr_rf_acc", "batch/sr_rf_acc"] {
        viewer.say(&format!(r#"{{"id":3,"do":"message","line":"{line}"}}"#));
        assert!(viewer.answer(3)["error"].as_str().unwrap().contains("viewers may only read"), "{line}");
    }
    for line in ["PUT/sr_rf_acc/on", " put/sr_rf_acc/on", "get/sr_rf_acc/x\\nput/sr_rf_acc/on", "watch/*/*", "put"] {
        viewer.say(&format!(r#"{{"id":4,"do":"message","line":"{line}"}}"#));
        let answer = viewer.answer(4);
        assert!(answer["error"].is_string() || answer["ok"]["good"] == false, "{line}: {answer}");
    }
    viewer.say(r#"{"id":5,"do":"message","line":"put/sr_rf_acc/on","role":"operator"}"#);
    assert!(viewer.until(|message| message["error"].as_str().map(str::to_owned)).contains("not understood"));

    operator.say(r#"{"id":6,"do":"message","line":"put/sr_rf_acc/on"}"#);
    let done = operator.answer(6)["ok"].clone();
    assert_eq!(
        (&done["code"], &done["good"], &done["timed_out"]),
        (&"OK".into(), &true.into(), &false.into()),
        "{done}"
    );
    let seen = viewer.until(|message| message["data"]["lines"].get(0)?.as_str().map(str::to_owned));
    assert!(seen.contains("dashboard uid=") && seen.contains("put/sr_rf_acc/on -> OK/"), "{seen}");
    operator.say(r#"{"id":7,"do":"message","line":"set/sr_rf_acc/9MV"}"#);
    let refused = operator.answer(7)["ok"].clone();
    assert_eq!((&refused["code"], &refused["good"]), (&"RANGE".into(), &false.into()), "{refused}");

    let log = bench.ok(&["logs", "dashboard", "-n", "100"]);
    let written: Vec<_> = log.lines().filter(|line| line.contains("message ") && line.contains(": done")).collect();
    assert!(written.len() == 1 && written[0].contains("operator 127.0.0.1:") && written[0].contains("user "), "{log}");
    assert!(log.contains("set/sr_rf_acc/9MV: failed: RANGE") && log.contains("audit: viewer"), "{log}");
    // Without a name, the command finds the message server of the only plant that is up.
    assert!(bench.ok(&["msg", "list", "sr_rf_*"]).contains("sr_rf_acc"));
}

const RECORDS: &str = r#"
record(ao, "X:SET") { field(VAL, "2") field(EGU, "A") field(PINI, "YES") }
record(mbbo, "X:MODE") { field(ZRST, "off") field(ONST, "standby") field(VAL, "1") field(PINI, "YES") }
record(lso, "X:TEXT") { field(SIZV, "100") }
record(waveform, "X:CURVE") { field(FTVL, "DOUBLE") field(NELM, "4") }
"#;

#[test]
fn signals_of_pvaccess_are_watched_described_and_set() {
    let port = free_port();
    let ioc = Ioc::start(&[("a.db", RECORDS)], &["-d", "a.db"]);
    let bench = plant("dash-pva", port, "write = true");
    let up = bench
        .tahti(&["up", ".", "--detach"])
        .envs(pvaccess(ioc.port))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let up = finish(up.unwrap());
    assert!(up.status.success(), "{}", text(&up));
    let mut socket = Socket::open(port, &token(&bench.ok(&["dash", "url", "--operator"])));
    let texts = [
        ("pva://X:SET", "3.5", "3.5"),
        ("pva://X:MODE", "off", "0"),
        ("pva://X:TEXT", "a text that is longer than the forty bytes of a string", "a text that is"),
        ("pva://X:CURVE", "[1, 2.5]", "[1,2.5]"),
    ];
    for (id, (name, value, shown)) in (1..).zip(texts) {
        socket.say(&format!(r#"{{"id":{id},"do":"put","name":"{name}","value":"{value}"}}"#));
        assert_eq!(socket.answer(id)["ok"], serde_json::json!({}), "{name}");
        let get = ioc.run(true, "pvget", &["-r", "field(value)", &name[6..]]);
        assert!(get.contains(shown), "{get}");
    }
    socket.say(r#"{"id":10,"do":"describe","name":"pva://X:MODE"}"#);
    let about = socket.answer(10)["ok"].clone();
    assert_eq!((&about["type"], &about["states"]), (&"enum".into(), &serde_json::json!(["off", "standby"])), "{about}");
    for (id, name, value, why) in [
        (11, "pva://X:MODE", "on", "is no state, expected one of off, standby"),
        (12, "pva://X:SET", "fast", "is no value of the type double"),
        (13, "pva://X:CURVE", "[1, 2, 3, 4, 5]", "the field holds 4"),
    ] {
        socket.say(&format!(r#"{{"id":{id},"do":"put","name":"{name}","value":"{value}"}}"#));
        let refused = socket.answer(id)["error"].as_str().unwrap().to_owned();
        assert!(refused.contains(why), "{refused}");
    }
    let signal = |socket: &mut Socket, stream: u32, key: &str, expected: &str| {
        socket.until(|message| {
            let data = &message["data"];
            (message["topic"] == "signal" && data["stream"] == stream && data[key] == expected).then_some(())
        });
    };
    socket.say(r#"{"do":"subscribe","stream":1,"name":"pva://X:CURVE"}"#);
    signal(&mut socket, 1, "text", "[1, 2.5]");
    socket.say(r#"{"do":"subscribe","stream":2,"name":"pva://X:SET"}"#);
    signal(&mut socket, 2, "units", "A");
    assert_eq!(ioc.exit(), Some(0));
    signal(&mut socket, 2, "state", "disconnected");
}

#[test]
fn operators_acknowledge_an_alarm_and_journal_and_log_name_them() {
    let port = free_port();
    let bench = plant("dash-alarms", port, "write = true\n[alarms]\nname = \"alarms\"\nfile = \"alarms.toml\"");
    let name = harness::fresh("dash");
    let file =
        format!("[alarms]\nname = \"{name}\"\nfolder = \"journal\"\n[[alarm]]\nchannels = [\"process steady\"]\n");
    std::fs::write(bench.dir.join("alarms.toml"), file).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let mut socket = Socket::open(port, &token(&bench.ok(&["dash", "url", "--operator"])));
    socket.say(r#"{"do":"want","topics":["alarms"]}"#);
    let failed = socket.until(|message| {
        let row = (message["topic"] == "alarms").then(|| message["data"]["rows"].get(0).cloned())?;
        // The alarm server detects restarts by comparing scans, and may not have scanned before the kill.
        if let (None, Some(pid)) = (&row, bench.process("steady")["pid"].as_i64()) {
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        row
    });
    assert_eq!((&failed["channel"], &failed["is_active"]), (&"process steady".into(), &true.into()), "{failed}");

    let acknowledge = r#"{"id":1,"do":"alarm","act":{"do":"acknowledge","names":["process steady"]}}"#;
    let mut viewer = Socket::open(port, &token(&bench.ok(&["dash", "url"])));
    viewer.say(acknowledge);
    assert!(viewer.answer(1)["error"].as_str().unwrap().contains("viewers may only read"));
    socket.say(acknowledge);
    assert_eq!(socket.answer(1)["ok"], serde_json::json!({ "changed": 1 }));
    socket.say(r#"{"id":2,"do":"alarm","act":{"do":"acknowledge","names":["X:NONE"]}}"#);
    assert!(socket.answer(2)["error"].as_str().unwrap().contains("X:NONE"));

    let log = bench.ok(&["logs", "dashboard", "-n", "50"]);
    let acted = log.lines().find(|line| line.contains(r#""names":["process steady"]}: done"#));
    assert!(acted.is_some_and(|line| line.contains("audit: operator 127.0.0.1:")), "{log}");
    let own = bench.ok(&["alarm", "history", "--server", &name]);
    assert!(
        own.lines().any(|line| line.contains("acknowledged process steady by ") && line.contains(" for ")),
        "{own}"
    );
}

#[test]
fn malformed_requests_are_answered_with_errors_and_the_connection_stays_open() {
    let port = free_port();
    let bench = plant("dash-hostile", port, "");
    bench.ok(&["up", ".", "--detach"]);
    let mut socket = Socket::open(port, &token(&bench.ok(&["dash", "url"])));
    for wrong in
        ["", "[", "{}", r#"{"do":"down"}"#, r#"{"do":"rate","hz":1e99}"#, r#"{"id":1,"do":"describe","name":""}"#]
    {
        socket.say(wrong);
        socket.until(|message| message["error"].as_str().map(str::to_owned));
    }
    socket.say(r#"{"id":2,"do":"message","line":"put/absent/1A"}"#);
    assert!(socket.answer(2)["error"].as_str().unwrap().contains("viewers"));
    socket.say(r#"{"id":3,"do":"history","name":"X","seconds":60,"points":10}"#);
    assert!(socket.answer(3)["error"].as_str().unwrap().contains("archive"));
    for (id, wrong) in (5..).zip([r#""seconds":0"#, r#""seconds":1e12"#, r#""seconds":1,"until":-1e300"#]) {
        socket.say(&format!(r#"{{"id":{id},"do":"history","name":"X",{wrong},"points":10}}"#));
        assert!(socket.answer(id)["error"].as_str().unwrap().contains("expected"), "{wrong}");
    }
    socket.say(r#"{"id":4,"do":"search","pattern":"*"}"#);
    assert_eq!(socket.answer(4)["ok"]["found"], serde_json::json!([]));
}

#[test]
fn a_plant_with_a_taken_dashboard_port_is_up_without_the_dashboard_and_fails() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let bench = plant("dash-taken", port, "");
    let said = bench.ok(&["up", ".", "--detach"]);
    // If the dashboard has already reported it, `up` prints the fault.
    assert!(!said.contains("dashboard: http"), "{said}");
    assert_eq!(bench.process("steady")["state"], "running");
    let log = bench.ok(&["logs", "dashboard"]);
    assert!(log.contains("is taken by another program"), "{log}");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("is taken by another program"), "{last}");
}

/// Starts a plant as users do: a dashboard is started by default.
fn up_as_users_do(bench: &Bench, words: &[&str]) -> String {
    let mut up = bench.tahti(&[&["up", ".", "--detach"], words].concat());
    up.env_remove("TAHTI_NO_DASHBOARD").stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(up.spawn().unwrap());
    assert!(output.status.success(), "{}{}", text(&output), bench.log());
    text(&output)
}

/// The dashboard's port in the output of `up`.
fn port_in(said: &str) -> u16 {
    let address = said.lines().find_map(|line| line.strip_prefix("dashboard: http://127.0.0.1:"));
    address.and_then(|rest| rest.split('/').next()?.parse().ok()).unwrap_or_else(|| panic!("{said:?} has an address"))
}

#[test]
fn plants_without_a_dashboard_table_get_a_dashboard_each_on_different_ports() {
    let plants = ["dash-first", "dash-second"].map(|name| Bench::new(name, &sh("steady", "exec sleep 1000", "")));
    let said = plants.each_ref().map(|plant| up_as_users_do(plant, &[]));
    let ports = said.each_ref().map(|said| port_in(said));
    assert_ne!(ports[0], ports[1]);
    for ((plant, said), port) in plants.iter().zip(&said).zip(ports) {
        assert!((8765..8785).contains(&port), "{said}");
        let mut socket = Socket::open(port, &token(said.lines().find(|line| line.starts_with("dashboard: ")).unwrap()));
        socket.say(r#"{"do":"want","topics":["plant"]}"#);
        let seen = socket.until(|message| (message["topic"] == "plant").then(|| message["data"].clone()));
        assert!(seen.to_string().contains("steady"), "{seen}");
        socket.say(r#"{"id":1,"do":"process","what":"stop","name":"steady"}"#);
        assert!(socket.answer(1)["error"].as_str().unwrap().contains("viewers may only read"));
        assert_eq!(plant.process("dashboard")["state"], "running");
        // Reload of a plant file that still does not mention the dashboard.
        assert!(!plant.ok(&["reload", "--dry-run"]).contains("dashboard"));
        assert!(plant.ok(&["down"]).contains("good"));
    }
}

#[test]
fn a_plant_can_be_brought_up_without_a_dashboard_and_stays_so() {
    let bench = Bench::new("dash-without", &sh("steady", "exec sleep 1000", ""));
    let said = up_as_users_do(&bench, &["--no-dashboard"]);
    assert!(!said.contains("dashboard"), "{said}");
    bench.write(&(sh("steady", "exec sleep 1000", "") + &sh("more", "exec sleep 1000", "")));
    bench.ok(&["reload"]);
    assert_eq!(bench.status()["processes"].as_array().map(Vec::len), Some(2), "{}", bench.status());
    let url = text(&bench.run(&["dash", "url"]));
    assert!(url.contains("--no-dashboard"), "{url}");
}

#[test]
fn a_stopped_detached_setup_is_kept_until_an_operator_takes_the_loop_or_releases_it() {
    let (port, segment) = (free_port(), harness::fresh("dash-scope"));
    let looped = format!(
        "[[process]]\nname = \"loop\"\ncommand = [\"tahti\", \"demo\", \"llrf\", \"--channel\", \"{segment}\"]\n\
         ready = {{ line = \"armed:\", within = \"60s\" }}\n"
    );
    let bench = plant("dash-scope", port, &format!("write = true\n{looped}"));
    bench.ok(&["up", ".", "--detach"]);
    let mut viewer = Socket::open(port, &token(&bench.ok(&["dash", "url"])));
    let mut operator = Socket::open(port, &token(&bench.ok(&["dash", "url", "--operator"])));
    let arm = |socket: &mut Socket, id: u64| {
        let arm = format!(
            r#"{{"id":{id},"do":"scope","act":{{"do":"arm","segment":"{segment}","channels":["amplitude"],"trigger":null,"mode":"single","pre":0,"length":20,"every":1,"holdoff":0,"keep":1}}}}"#
        );
        socket.say(&arm);
        socket.answer(id)
    };
    let detach = || {
        bench.ok(&["scope", &format!("{segment}/phase"), "--length", "30", "--detach"]);
        bench.until("it has captured and stopped", || {
            bench.ok(&["scope", &segment, "--fetch", "--no-plot"]).contains("30 rows")
        });
    };
    detach();
    let refused = arm(&mut viewer, 1);
    assert!(refused["error"].as_str().unwrap().contains("another client has set up"), "{refused}");
    assert!(bench.ok(&["scope", &segment, "--fetch", "--no-plot"]).contains("30 rows"), "its capture exists");
    assert!(arm(&mut operator, 2)["ok"].is_object(), "an operator replaces the setup of another client");
    operator.say(r#"{"id":3,"do":"scope","act":{"do":"stop"}}"#);
    operator.answer(3);

    detach();
    assert!(arm(&mut viewer, 4)["error"].is_string());
    bench.ok(&["scope", &segment, "--stop"]);
    bench.until("it is released", || arm(&mut viewer, 5)["ok"].is_object());
}

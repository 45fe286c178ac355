//! `tahti scope` on the loop of the examples.

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// The loop process, killed on drop.
struct Loop {
    child: Child,
    name: String,
}

impl Loop {
    fn start(what: &str) -> Self {
        let name = format!("test-{what}-{}", std::process::id());
        let mut command = harness::tahti();
        command.args(["demo", "llrf", "--for", "60s", "--channel", &name]).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let running = Self { child, name };
        let watchdog = Instant::now();
        while !running.scope(&[&running.whole("amplitude"), "--no-plot", "--length", "2"]).status.success() {
            assert!(watchdog.elapsed() < Duration::from_secs(30), "the loop does not appear");
            std::thread::sleep(Duration::from_millis(20));
        }
        running
    }

    fn whole(&self, variable: &str) -> String {
        format!("{}/{variable}", self.name)
    }

    fn scope(&self, args: &[&str]) -> Output {
        harness::tahti().arg("scope").args(args).output().unwrap()
    }

    /// The output of a command that must succeed.
    fn says(&self, args: &[&str]) -> String {
        let output = self.scope(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error output of a command that must fail.
    fn refuses(&self, args: &[&str]) -> String {
        let output = self.scope(args);
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.len() > 0)
}

#[test]
fn a_capture_is_drawn_measured_exported_and_read_back_from_each_kind_of_file() {
    let running = Loop::start("scope");
    let folder = std::env::temp_dir().join(&running.name);
    std::fs::create_dir_all(&folder).unwrap();
    let (amplitude, beam) = (running.whole("amplitude"), running.whole("beam"));
    let files = ["a.csv", "a.npy", "a.json"].map(|name| folder.join(name));
    let [csv, npy, json] = files.each_ref().map(|file| file.to_str().unwrap());
    // The beam switches on and off once in two seconds.
    let args = [
        amplitude.as_str(),
        &beam,
        "--trigger",
        "beam changes",
        "--length",
        "300",
        "--pre",
        "20%",
        "--within",
        "30s",
        "--fft",
        "--cursors=-10ms..10ms",
        "--export",
        csv,
        "--export",
        npy,
        "--export",
        json,
    ];
    let said = running.says(&args);
    assert!(said.contains("trigger at pulse") && said.contains("300 rows from -"), "{said}");
    assert!(said.contains("spectrum of 256 rows") && said.contains("cursors: ") && said.contains('┊'), "{said}");
    for file in &files {
        assert!(is_file(file));
        let shown = running.says(&["--open", file.to_str().unwrap(), "--fft", "--cursors=-10ms..10ms"]);
        let behind_head = |text: &str| text.split_once(": ").unwrap().1.replace("written to ", "");
        assert!(behind_head(&said).starts_with(behind_head(&shown).as_str()), "{said}\n{shown}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_detached_trigger_captures_and_is_fetched_later() {
    let running = Loop::start("detached");
    let name = running.name.as_str();
    assert!(
        running
            .says(&[name, "--trigger", "pulse % 100 = 0", "--normal", "--length", "50", "--detach"])
            .contains("--fetch")
    );
    let watchdog = Instant::now();
    let said = loop {
        let said = running.says(&[name, "--fetch", "--no-plot"]);
        if said.matches("rows from").count() >= 2 {
            break said;
        }
        assert!(watchdog.elapsed() < Duration::from_secs(30), "{said}");
    };
    assert!(said.contains("amplitude") && said.contains("drive-phase [deg]"), "{said}");
    running.says(&[name, "--stop"]);
    let listed = running.says(&[]);
    assert!(listed.lines().any(|line| line.starts_with(&running.whole("phase")) && line.ends_with("deg")), "{listed}");
}

/// A capture with a trigger outside the loop. `happens` is called once the capture waits for the trigger.
fn captured_beside(running: &Loop, trigger: &str, about: &[(&str, &str)], happens: impl FnOnce()) -> String {
    let (name, amplitude) = (running.name.as_str(), running.whole("amplitude"));
    let mut command = harness::tahti();
    command.args(["scope", &amplitude, "--trigger", trigger, "--no-plot", "--length", "50", "--within", "60s"]);
    command.envs(about.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    harness::eventually("the loop waits for the trigger", || {
        let output = running.scope(&[name, "--fetch", "--no-plot"]);
        String::from_utf8_lossy(&output.stdout).contains("armed, 0 captures")
    });
    happens();
    let output = harness::process::finish(child);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_new_alarm_begins_a_capture() {
    use harness::epics::program;
    let running = Loop::start("by-alarm");
    let database = "record(ao, \"X:TEMP\") { field(HIHI, \"20\") field(HHSV, \"MAJOR\") field(VAL, \"1\") field(PINI, \"YES\") }\n\
                    record(ao, \"X:OTHER\") { field(HIHI, \"20\") field(HHSV, \"MAJOR\") field(VAL, \"1\") field(PINI, \"YES\") }\n";
    let ioc = harness::ioc::Ioc::start(&[("a.db", database)], &["-d", "a.db"]);
    let (folder, server) = (harness::Folder::new(), harness::fresh("by-alarm"));
    let text = format!(
        "[alarms]\nname = \"{server}\"\nfolder = \"{}\"\nconnect_within = \"60s\"\n[[alarm]]\nchannels = [\"X:TEMP\", \"X:OTHER\"]\narea = \"RF\"\n",
        folder.0.join("journal").display()
    );
    let file = folder.write("alarms.toml", &text);
    let mut serve = program(true, "alarm", ioc.port);
    let _alarms = harness::process::Running::until(serve.args(["serve", file.to_str().unwrap()]), "serves 2 alarms");
    let put =
        |name: &str| assert!(program(true, "caput", ioc.port).args([name, "30"]).output().unwrap().status.success());
    let is_known = |name: &str| {
        let output = program(true, "alarm", ioc.port).args(["list", "--server", &server]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(name)
    };
    let said = captured_beside(&running, "alarm /*/RF/X:TEMP", &[("TAHTI_ALARMS", &server)], || {
        // An alarm of another channel does not trigger.
        put("X:OTHER");
        harness::eventually("the other alarm is known", || is_known("X:OTHER"));
        let output = running.scope(&[&running.name, "--fetch", "--no-plot"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("armed, 0 captures"), "{output:?}");
        put("X:TEMP");
    });
    assert!(said.contains("alarm at pulse"), "{said}");
}

#[test]
fn a_matching_message_begins_a_capture_and_an_absent_server_is_reported() {
    let running = Loop::start("by-message");
    let server = harness::fresh("by-message");
    let amplitude = running.whole("amplitude");
    let refused = running.refuses(&[&amplitude, "--trigger", "message get/*", "--messages", &server]);
    assert!(refused.contains(&server), "{refused}");
    let refused = running.refuses(&[&amplitude, "--trigger", "alarm *", "--alarms", &server]);
    assert!(refused.contains(&format!("the alarms {server:?} do not answer")), "{refused}");
    let mut serve = harness::tahti();
    let _server = harness::process::Running::until(serve.args(["msg", "serve", "--name", &server]), "serving as");
    let refused = running.refuses(&[&amplitude, "--trigger", "message get/*", "--messages", &server, "--detach"]);
    assert!(refused.contains("remove --detach"), "{refused}");
    let send = |line: &str| harness::tahti().args(["msg", "send", "--server", &server, line]).output().unwrap();
    let said = captured_beside(&running, "message get/sr_*", &[("TAHTI_MESSAGES", &server)], || {
        send("get/other/x");
        send("get/sr_rf/x");
    });
    assert!(said.contains("message at pulse"), "{said}");
}

#[test]
fn impossible_captures_are_refused_with_the_allowed_values() {
    let running = Loop::start("refused");
    let amplitude = running.whole("amplitude");
    assert!(running.refuses(&["not-exported"]).contains("expected a running process that exports them"));
    assert!(
        running.refuses(&[&running.whole("x")]).contains("expected one of amplitude, phase, drive, drive-phase, beam")
    );
    assert!(running.refuses(&[&amplitude, "other/a"]).contains("one loop samples those of one segment"));
    assert!(running.refuses(&[&amplitude, "--trigger", "amplitude !"]).contains("VAR > LEVEL rising"));
    assert!(running.refuses(&[&amplitude, "--length", "10000000"]).contains("at most"));
    let why = running.refuses(&[&amplitude, "--trigger", "amplitude > 99", "--within", "50ms", "--length", "10"]);
    assert!(why.contains("no trigger within 50ms: armed"), "{why}");
    assert!(running.refuses(&[&amplitude, "--export", "x.txt"]).contains(".csv, .npy or .json"));
    assert!(running.refuses(&["--open", "/nowhere.csv"]).contains("/nowhere.csv"));
}

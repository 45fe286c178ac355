//! Plants of real processes: up, down, faults, adoption. Needs no privilege; each test has a separate folder.

use harness::plant::{Bench, sh};
use harness::process::{Running, alive, finish, kill, text};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn two_processes_start_in_order_and_stop_in_reverse_and_nothing_remains() {
    let late = sh(
        "late",
        "trap 'echo late >> order; exit 0' TERM; echo up; while :; do sleep 0.05; done",
        "after = [\"early\"]",
    );
    let early = sh(
        "early",
        "trap 'echo early >> order; exit 0' TERM; sleep 0.2; echo armed; while :; do sleep 0.05; done",
        "ready = { line = \"armed\" }",
    );
    let bench = Bench::new("order", &(late + &early));
    let said = bench.ok(&["up", ".", "--detach"]);
    assert!(said.starts_with("plant p is up"), "{said}");
    let (early, late) = (bench.process("early"), bench.process("late"));
    assert_eq!((&early["state"], &late["state"]), (&"running".into(), &"running".into()));
    assert!(early["started"].as_u64() < late["started"].as_u64());
    let pids = [bench.pid("early"), bench.pid("late"), bench.supervisor()];
    let keepers = [early["keeper"].as_i64().unwrap() as i32, late["keeper"].as_i64().unwrap() as i32];
    let listing = bench.ok(&["ps"]);
    assert!(listing.contains("late") && listing.contains("running"), "{listing}");
    assert!(bench.ok(&["logs", "early", "-n", "1"]).contains("armed"));

    let verdict = bench.ok(&["down"]);
    assert!(verdict.contains("good"), "{verdict}");
    assert_eq!(fs::read_to_string(bench.dir.join("order")).unwrap(), "late\nearly\n");
    bench.until("all ended", || pids.iter().chain(&keepers).all(|pid| !alive(*pid)));
    assert_eq!(bench.ok(&["ps"]), "no plant is up\n");
}

#[test]
fn a_second_start_of_a_plant_is_refused_with_the_pid_of_its_supervisor() {
    let bench = Bench::new("twice", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let supervisor = bench.supervisor();
    let again = bench.run(&["up", "."]);
    assert!(!again.status.success());
    let said = text(&again);
    assert!(said.contains("already up") && said.contains(&supervisor.to_string()), "{said}");
    bench.ok(&["down"]);
}

#[test]
fn a_supervisor_killed_with_sigkill_is_continued_by_the_next_up_with_its_history() {
    let bench = Bench::new(
        "adopt",
        &(sh("steady", "sleep 1000", "") + &sh("wild", "sleep 1000", "restart = { backoff = \"0s\" }")),
    );
    bench.ok(&["up", ".", "--detach"]);
    let wild = bench.pid("wild");
    kill(wild, "SEGV");
    bench.until("restarted", || bench.process("wild")["pid"].as_i64().is_some_and(|pid| pid as i32 != wild));
    let before = (bench.process("steady"), bench.process("wild"));
    let supervisor = bench.supervisor();
    kill(supervisor, "KILL");
    bench.until("killed", || !alive(supervisor));
    // The children survive.
    let pids = [&before.0, &before.1].map(|process| process["pid"].as_i64().unwrap() as i32);
    assert!(pids.iter().all(|pid| alive(*pid)));
    let said = text(&bench.run(&["ps"]));
    assert!(said.contains("lost its supervisor"), "{said}");

    bench.ok(&["up", ".", "--detach"]);
    let after = (bench.process("steady"), bench.process("wild"));
    for (before, after) in [(&before.0, &after.0), (&before.1, &after.1)] {
        for key in ["pid", "keeper", "started", "starts", "restarts", "ended"] {
            assert_eq!(before[key], after[key], "{key}\n{}", bench.log());
        }
    }
    assert_eq!(after.1["restarts"], 1);
    // A child that ends without a supervisor is noticed by the next supervisor.
    let supervisor = bench.supervisor();
    kill(supervisor, "KILL");
    kill(pids[0], "SEGV");
    bench.until("killed", || !alive(supervisor));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("restarted", || bench.process("steady")["restarts"] == 1);
    bench.ok(&["down"]);
    assert!(pids.iter().all(|pid| !alive(*pid)));
}

#[test]
fn an_upgrade_replaces_the_supervisor_and_touches_no_process() {
    let bench = Bench::new("upgrade", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let (supervisor, pid) = (bench.supervisor(), bench.pid("a"));
    bench.ok(&["up", ".", "--upgrade"]);
    bench.until("continued", || bench.log().contains("continues the plant of process"));
    bench.until("answering", || bench.run(&["ps", "p"]).status.success());
    assert_eq!((bench.supervisor(), bench.pid("a")), (supervisor, pid), "exec keeps the process id");
    bench.ok(&["down"]);
    assert!(!alive(pid));
}

#[test]
fn a_failed_start_in_the_background_prints_its_cause_as_one_in_the_foreground_does() {
    let keys = "ready = { line = \"armed\" }\nrestart = { policy = \"never\" }";
    let bad = sh("bad", "echo cannot open /dev/x >&2; exit 1", keys);
    let bench = Bench::new("behind", &(bad + &sh("late", "sleep 1000", "after = [\"bad\"]")));
    let output = bench.run(&["up", ".", "--detach"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("bad: its fault is latched after exit 1; last line: \"cannot open /dev/x\" [runs, line 3]"),
        "{said}"
    );
    assert!(said.contains("late: it was never started: it waited for bad [runs, line "), "{said}");
    assert!(!said.contains("_supervisor.log"), "no log needs to be read: {said}");
}

#[test]
fn a_refused_start_in_the_background_prints_the_reason_only() {
    let bench = Bench::new("behind-twice", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let again = bench.run(&["up", ".", "--detach"]);
    let said = text(&again);
    assert!(!again.status.success() && said.contains("already up"), "{said}");
    // The log is that of the plant that is up.
    assert_eq!(said.lines().count(), 1, "{said}");
    bench.ok(&["down"]);
}

#[test]
fn the_verdict_names_the_last_line_of_a_restarted_process() {
    let script = "test -e once && exec sleep 1000; touch once; echo no such gain >&2; exit 1";
    let bench = Bench::new("restart-line", &sh("a", script, "restart = { backoff = \"1ms\" }"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("restarted", || bench.process("a")["restarts"] == 1 && bench.process("a")["state"] == "running");
    bench.until("judged", || bench.status()["outcome"] == "degraded");
    let verdict = bench.ok(&["down"]);
    assert!(verdict.contains("a: restarted once, last after exit 1; last line: \"no such gain\" ["), "{verdict}");
}

#[test]
fn a_process_that_is_not_ready_in_time_is_reported_with_the_missing_sign() {
    let keys = "ready = { line = \"armed\", within = \"50ms\" }\nrestart = { policy = \"never\" }";
    let bench = Bench::new("unready", &sh("a", "echo starting; sleep 1000", keys));
    let said = text(&bench.run(&["up", ".", "--detach"]));
    let missing = "no sign of readiness in time: no line of its output with \"armed\"";
    assert!(said.contains(&format!("a: {missing} [ready within 50ms, line ")), "{said}");
    let missing = "trouble: not ready in time: no line of its output with \"armed\"";
    assert!(bench.log().contains(missing), "{}", bench.log());
}

#[test]
fn a_missing_program_is_found_before_anything_starts() {
    let bench = Bench::new(
        "missing",
        &(sh("first", "touch started; sleep 1000", "")
            + "[[process]]\nname = \"b\"\ncommand = \"/no/such/program\"\nafter = [\"first\"]\n"),
    );
    let output = bench.run(&["up", "."]);
    assert!(!output.status.success());
    let said = text(&output);
    assert!(said.contains("/no/such/program does not exist") && said.contains("plant.toml:"), "{said}");
    assert!(!bench.dir.join("started").exists());
}

#[test]
fn a_process_that_keeps_failing_takes_the_plant_down_at_start_and_is_latched_later() {
    let keys = "restart = { backoff = \"1ms\", limit = 2 }\non_fault = [\"/bin/sh\", \"-c\", \"echo safe >> safe\"]";
    let failing = sh("bad", "exit 3", &format!("ready = {{ line = \"never\" }}\n{keys}"));
    let bench = Bench::new("failing", &(sh("good", "sleep 1000", "") + &failing));
    let output = bench.run(&["up", "."]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("failed to start") && said.contains("exit 3"), "{said}");
    assert!(said.contains("FAULT (exit 3): `tahti logs bad` shows its output"), "{said}");
    assert_eq!(fs::read_to_string(bench.dir.join("safe")).unwrap(), "safe\nsafe\nsafe\n");
    assert_eq!(bench.ok(&["ps"]), "no plant is up\n");

    // A process that fails after its start: the fault is latched, the other process continues, an operator resets the
    // fault.
    let later =
        sh("bad", "test -e fail && exit 3; echo on; sleep 1000", &format!("ready = {{ line = \"on\" }}\n{keys}"));
    bench.write(&(sh("good", "sleep 1000", "") + &later));
    bench.ok(&["up", ".", "--detach"]);
    fs::write(bench.dir.join("fail"), "").unwrap();
    kill(bench.pid("bad"), "SEGV");
    bench.until("latched", || bench.process("bad")["state"] == "FAULT");
    assert_eq!(bench.process("good")["state"], "running");
    fs::remove_file(bench.dir.join("fail")).unwrap();
    assert!(bench.ok(&["restart", "bad"]).contains("bad: running"));
    bench.until("reset", || bench.process("bad")["state"] == "running");
    let (status, verdict) = bench.down();
    assert!(status == Some(3) && verdict.contains("bad: its fault is latched after exit 3"), "{verdict}");
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_with_its_descendants() {
    let script =
        "trap '' TERM INT; (trap '' TERM INT; echo $$ > group; sleep 1000) & sleep 1000 & echo $! > child; wait; wait";
    let bench = Bench::new("stubborn", &sh("a", script, "stop = [\"TERM 100ms\", \"INT 100ms\"]"));
    bench.ok(&["up", ".", "--detach"]);
    let pid = bench.pid("a");
    bench.until("its child", || bench.dir.join("child").metadata().is_ok_and(|file| file.len() > 1));
    let child: i32 = fs::read_to_string(bench.dir.join("child")).unwrap().trim().parse().unwrap();
    let (status, verdict) = bench.down();
    assert!(status == Some(4) && verdict.contains("a: it did not end within its stop sequence; SIGKILL"), "{verdict}");
    bench.until("ended", || !alive(pid) && !alive(child));
}

#[test]
fn descendants_of_a_killed_keeper_end_before_the_next_copy_starts_and_with_the_plant() {
    // A daemon that left its session and parent, and ignores all signals that can be ignored.
    let script = "setsid sh -c 'trap \"\" HUP TERM INT; echo $$ >> daemons; while :; do sleep 1; done' & \
                  while :; do sleep 1; done";
    let bench = Bench::new("family", &sh("a", script, "restart = { backoff = \"0s\", limit = 9 }"));
    let daemons = || -> Vec<i32> {
        let text = fs::read_to_string(bench.dir.join("daemons")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    bench.ok(&["up", ".", "--detach"]);
    bench.until("its daemon", || daemons().len() == 1);
    // Two shells and the commands that they wait for.
    let family = || bench.process("a")["family"].clone();
    bench.until("all of them", || family()["processes"].as_u64().is_some_and(|count| count >= 3));
    let threads = |of: &serde_json::Value| of["threads"].as_u64();
    assert!(threads(&family()) > threads(&bench.process("a")), "{}", bench.process("a"));
    assert!(bench.ok(&["ps"]).contains("processes together; "), "{}", bench.ok(&["ps"]));
    kill(bench.process("a")["keeper"].as_i64().unwrap() as i32, "KILL");
    bench.until("another copy", || daemons().len() == 2);
    assert!(!alive(daemons()[0]), "the first copy's daemon still runs with the second copy\n{}", bench.log());
    // The same without a supervisor at that time.
    let keeper = bench.process("a")["keeper"].as_i64().unwrap() as i32;
    kill(bench.supervisor(), "KILL");
    kill(keeper, "KILL");
    bench.until("killed", || !alive(keeper));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("a third copy", || daemons().len() == 3);
    assert!(!alive(daemons()[1]), "the second copy's daemon still runs with the third\n{}", bench.log());
    kill(bench.process("a")["keeper"].as_i64().unwrap() as i32, "KILL");
    bench.run(&["down"]);
    let left: Vec<i32> = daemons().into_iter().filter(|pid| alive(*pid)).collect();
    assert!(left.is_empty(), "{left:?} still run after the plant stopped\n{}", bench.log());
}

#[test]
fn a_stopped_keeper_delays_no_other_process_and_is_killed_at_the_end() {
    let quick = "restart = { backoff = \"0s\" }";
    let bench = Bench::new("deaf", &(sh("a", "sleep 1000", "stop = [\"TERM 100ms\"]") + &sh("b", "sleep 1000", quick)));
    bench.ok(&["up", ".", "--detach"]);
    let keeper = bench.process("a")["keeper"].as_i64().unwrap() as i32;
    let (a, b) = (bench.pid("a"), bench.pid("b"));
    kill(keeper, "STOP");
    // An operator's signal waits for the keeper. Meanwhile the other process is still supervised.
    let asking = bench.tahti(&["signal", "USR1", "a"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    bench.until("reported", || bench.run(&["ps"]).status.success());
    kill(b, "SEGV");
    bench.until("restarted", || bench.process("b")["pid"].as_i64().is_some_and(|pid| pid as i32 != b));
    assert!(!bench.log().contains("does not answer"), "the restart was first\n{}", bench.log());
    let refused = finish(asking);
    assert!(!refused.status.success() && text(&refused).contains("does not answer"), "{}", text(&refused));
    bench.run(&["down"]);
    assert!(bench.log().contains("killed with everything below it"), "{}", bench.log());
    bench.until("ended", || !alive(a) && !alive(keeper));
}

#[test]
fn a_slow_start_of_a_keeper_delays_no_other_process() {
    let quick = "restart = { backoff = \"0s\" }";
    let bench = Bench::new("slow", &(sh("slow", "sleep 1000", quick) + &sh("b", "sleep 1000", quick)));
    // Opening a pipe for writing blocks until it has a reader.
    let spec = bench.dir.join("run/p/keep/slow/spec.json");
    fs::create_dir_all(spec.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(&spec).status().unwrap().success());
    let up = bench.tahti(&["up", "."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let b = || bench.process("b")["pid"].as_i64().map(|pid| pid as i32);
    bench.until("started", || bench.log().contains("b: started"));
    let first = b().unwrap();
    kill(first, "SEGV");
    bench.until("restarted", || b().is_some_and(|pid| pid != first));
    assert_eq!(bench.process("slow")["state"], "starting", "{}", bench.log());
    let reader = fs::File::open(&spec).unwrap();
    fs::remove_file(&spec).unwrap();
    bench.until("another attempt", || bench.process("slow")["state"] == "running");
    drop(reader);
    bench.run(&["down"]);
    finish(up);
}

#[test]
fn a_reload_changes_only_processes_that_differ_and_prints_them() {
    let keep = sh("keep", "sleep 1000", "");
    let bench = Bench::new("reload", &(keep.clone() + &sh("old", "sleep 1000", "") + &sh("edit", "sleep 1000", "")));
    bench.ok(&["up", ".", "--detach"]);
    assert_eq!(bench.ok(&["reload"]), "nothing differs\n");
    let (kept, old, edit) = (bench.pid("keep"), bench.pid("old"), bench.pid("edit"));
    bench.write(&(keep + &sh("edit", "sleep 2000", "") + &sh("new", "sleep 1000", "")));
    let expected = "- old: stops\n~ edit: restarts (changed: command)\n+ new: starts\n";
    assert_eq!(bench.ok(&["reload", "--dry-run"]), expected);
    assert_eq!(bench.pid("old"), old);
    let said = bench.ok(&["reload"]);
    assert!(said.starts_with(expected), "{said}");
    assert!(!alive(old) && !alive(edit), "it waits: {said}");
    bench.until("changed", || !alive(old) && !alive(edit) && bench.process("new")["state"] == "running");
    bench.until("restarted", || bench.process("edit")["pid"].is_i64());
    assert_eq!(bench.pid("keep"), kept);
    bench.write("[[process]]\nname = \"x\"\n");
    let refused = bench.run(&["reload"]);
    assert!(!refused.status.success() && text(&refused).contains("`command` is missing"), "{}", text(&refused));
    bench.ok(&["down"]);
}

#[test]
fn a_process_that_fails_is_shown_with_the_last_line_that_it_wrote() {
    let script = "echo starting; printf 'cannot open \\033[31m/dev/x\\033[0m\\007\\n' >&2; exit 1";
    let bad = sh("bad", script, "restart = { backoff = \"1ms\", limit = 1 }");
    let bench = Bench::new("reason", &(sh("good", "echo fine; sleep 1000", "") + &bad));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("latched", || bench.process("bad")["state"] == "FAULT");
    let reason = "cannot open /dev/x\\x07";
    let line = format!("; last line: \"{reason}\"");
    let is_end = |text: &str| text.contains("[error] bad: ended: exit 1 after ") && text.ends_with(&line);
    assert!(bench.log().lines().any(is_end), "{}", bench.log());
    let severe = bench.ok(&["logs", "--all", "--severity", "error"]);
    let ended = |line: &str| line.contains(" error   bad") && line.contains("ended: exit ");
    assert!(severe.lines().filter(|line| ended(line)).count() >= 2 && !severe.contains("started"), "{severe}");
    assert_eq!(bench.process("bad")["last_line"], reason);
    for words in [&["ps"][..], &["status", "bad"], &["top", "-n", "1"]] {
        let said = text(&bench.run(words));
        assert!(said.lines().any(|text| text.contains("exit 1, ") && text.ends_with(&format!("ago{line}"))), "{said}");
    }
    // A start that sees the process running in between succeeds.
    bench.until("a start that sees the fault", || {
        text(&bench.run(&["start", "bad"])).contains(&format!("FAULT (exit 1{line})"))
    });
    let verdict = text(&bench.run(&["down"]));
    assert!(verdict.contains(&format!("exit 1{line}")) && !verdict.contains("fine"), "{verdict}");
}

#[test]
fn a_panic_is_shown_by_its_message_although_other_lines_follow() {
    let panic =
        "printf \"thread 'main' panicked at src/main.rs:2:5:\\nno pressure\\nnote: run with RUST_BACKTRACE=1\\n\" >&2";
    let script = format!("{panic}; echo goodbye; exit 101");
    let bench = Bench::new("panic", &sh("bad", &script, "restart = { backoff = \"1ms\", limit = 1 }"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("latched", || bench.process("bad")["state"] == "FAULT");
    assert!(
        bench
            .log()
            .lines()
            .any(|text| text.contains("bad: ended: exit 101 after ") && text.ends_with("; last line: \"no pressure\""))
    );
    bench.run(&["down"]);
}

#[test]
fn a_process_changes_the_interval_of_its_heartbeat() {
    let keys = "heartbeat = { within = \"600s\" }\nrestart = { policy = \"never\" }";
    let bench = Bench::new("interval", &sh("a", "sleep 1000", keys));
    bench.ok(&["up", ".", "--detach"]);
    let socket = UnixDatagram::unbound().unwrap();
    let send = |text: &str| socket.send_to(text.as_bytes(), bench.dir.join("run/p/keep/a/notify")).unwrap();
    send("WATCHDOG_USEC=500000000");
    bench.until("longer", || bench.log().contains("its heartbeat is due within 500s now"));
    // Another supervisor continues with it.
    bench.ok(&["up", ".", "--upgrade"]);
    bench.until("answering", || bench.run(&["ps", "p"]).status.success());
    send("WATCHDOG_USEC=50000");
    bench.until("hangs", || bench.process("a")["state"] == "FAULT");
    assert!(bench.log().contains("its heartbeat is due within 50ms now"), "{}", bench.log());
    bench.run(&["down"]);
}

#[test]
fn logs_of_a_silent_process_whose_file_was_moved_say_that_it_is_running() {
    let bench = Bench::new("silent", &sh("quiet", "echo starts; sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let log = bench.dir.join("run/p/log/quiet.log");
    bench.until("its first line", || fs::read_to_string(&log).is_ok_and(|text| text.contains("starts")));
    fs::rename(&log, log.with_extension("old")).unwrap();
    let output = bench.run(&["logs", "quiet"]);
    let said = text(&output);
    assert!(output.status.success() && said.contains("quiet is running and has printed nothing since"), "{said}");
    let said = text(&bench.run(&["logs", "lost"]));
    assert!(said.contains("has no log of \"lost\"; there are: quiet"), "{said}");
    bench.ok(&["down"]);
}

#[test]
fn a_program_that_forks_is_shown_with_the_processor_time_of_its_descendants() {
    let script = "while :; do /bin/sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done'; done";
    let bench = Bench::new("forks", &sh("forks", script, ""));
    bench.ok(&["up", ".", "--detach"]);
    let percent = || {
        let listing = bench.ok(&["ps"]);
        let row = listing.lines().find(|line| line.trim_start().starts_with("forks ")).unwrap().to_owned();
        let (before, _) = row.split_once(" %").unwrap();
        before.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    bench.until("its children's time is shown", || percent() > 5.0);
    bench.ok(&["down"]);
}

#[test]
fn variables_of_the_plant_and_automatic_ones_reach_a_process_and_are_shown() {
    let env = "env = { PLANT_WIDE = \"yes\", EPICS_CA_CONN_TMO = \"7\" }\n";
    let a = sh(
        "a",
        "echo \"[$PLANT_WIDE] [$EPICS_CA_CONN_TMO] [$TAHTI_MESSAGES]\"; sleep 1000",
        "env = { EPICS_CA_CONN_TMO = \"8\" }",
    );
    let b = sh("b", "echo \"[$TAHTI_MESSAGES]\"; sleep 1000", "");
    let name = format!("env{}", std::process::id());
    let bench = Bench::new("env", &format!("{env}[messages]\nname = \"{name}\"\n{a}{b}"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("printed", || bench.ok(&["logs", "a"]).contains(&format!("[yes] [8] [{name}]")));
    let said = bench.ok(&["status", "a"]);
    assert!(said.contains(&format!("set by tahti: TAHTI_MESSAGES={name}")), "{said}");
    bench.ok(&["down"]);
    // A variable in the supervisor's own environment is the user's choice and is kept.
    let own = bench.tahti(&["up", ".", "--detach"]).env("TAHTI_MESSAGES", "mine").output().unwrap();
    assert!(own.status.success(), "{}", text(&own));
    bench.until("printed", || bench.ok(&["logs", "b"]).contains("[mine]"));
    assert!(!bench.ok(&["status", "b"]).contains("set by tahti: TAHTI_MESSAGES"));
    bench.ok(&["down"]);
}

#[test]
fn top_reports_that_its_plant_went_down_and_ends() {
    let bench = Bench::new("topdown", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let top = Running::follow(&mut bench.tahti(&["top", "p", "--every", "100ms"]));
    top.hears("running");
    bench.ok(&["down"]);
    top.hears("plant \"p\" went down");
}

#[test]
fn top_redraws_the_screen_on_a_terminal_and_prints_a_list_on_a_pipe() {
    let bench = Bench::new("top", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let piped = bench.ok(&["top", "p", "-n", "1"]);
    assert!(piped.contains("running") && !piped.contains('\x1b'), "{piped:?}");
    // util-linux's script provides a pseudo-terminal.
    let own = bench.tahti(&[]);
    let line = format!("{} top p -n 2 --every 100ms", own.get_program().to_string_lossy());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(&bench.dir).env("TAHTI_RUN", bench.dir.join("run"));
    let child = script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let drawn = text(&finish(child));
    assert_eq!(drawn.matches("\x1b[H").count(), 2, "{drawn:?}");
    assert!(drawn.contains("sleep") || drawn.contains("running"), "{drawn:?}");
    bench.ok(&["down"]);
}

#[test]
fn a_process_without_a_heartbeat_is_a_hang_and_distinguished_from_a_crash() {
    let keys = "heartbeat = { within = \"200ms\" }\nrestart = { policy = \"never\" }";
    let trigger = "python3 -c 'import os, socket, time\nline = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                   line.sendto(b\"WATCHDOG=trigger\", os.environ[\"NOTIFY_SOCKET\"])\ntime.sleep(1000)'";
    let long = "heartbeat = { within = \"600s\" }\nrestart = { policy = \"never\" }";
    let processes = sh("a", "sleep 1000", keys) + &sh("b", "sleep 1000", "") + &sh("c", "sh ./trigger", long);
    let bench = Bench::new("hang", &processes);
    fs::write(bench.dir.join("trigger"), trigger).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    for process in ["a", "c"] {
        bench.until("latched", || bench.process(process)["state"] == "FAULT");
        assert_eq!(bench.process(process)["ended"][1], "hang", "{process}");
    }
    assert_eq!(bench.process("b")["state"], "running");
    bench.ok(&["signal", "USR1", "b"]);
    bench.until("restarted", || bench.process("b")["ended"][1]["own"]["signal"] == 10);
    let verdict = bench.run(&["down"]);
    assert_eq!(verdict.status.code(), Some(3), "{}", text(&verdict));
    assert!(text(&verdict).contains(": failed: a: its fault is latched after hang"), "{}", text(&verdict));
    // The service file makes systemd handle this exit status.
    let service = include_str!("../../../../contrib/tahti@.service");
    assert!(service.contains("\nRestart=on-failure\n") && service.contains("\nRestartPreventExitStatus=3\n"));
}

#[test]
fn a_watchdog_is_petted_only_while_its_critical_process_lives_and_disarmed_in_order() {
    // A plain file replaces the device. The test checks the written bytes.
    let keys = "heartbeat = { within = \"300ms\", critical = true }\nrestart = { policy = \"never\" }";
    let bench = Bench::new("dog", &(sh("a", "sleep 1000", keys) + "[watchdog]\ndevice = \"dog\"\ntimeout = \"1s\"\n"));
    let device = bench.dir.join("dog");
    fs::write(&device, "").unwrap();
    let plant = fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
    fs::write(bench.dir.join("plant.toml"), plant.replace("\"dog\"", &format!("{device:?}"))).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench.until("petted", || !fs::read(&device).unwrap().is_empty());
    bench.until("latched", || bench.process("a")["state"] == "FAULT");
    bench.until("reported", || bench.log().contains("NOT PETTED: no heartbeat from a; the machine resets within 1s"));
    // Four times the period in which a healthy plant pets it.
    let pets = fs::read(&device).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(fs::read(&device).unwrap(), pets, "no longer petted");
    bench.run(&["down"]);
    assert_eq!(fs::read(&device).unwrap().last(), Some(&b'V'));
}

#[test]
fn a_reload_changes_the_timeout_of_a_watchdog_and_disarms_a_removed_one() {
    let table = |device: &Path, timeout: &str| format!("[watchdog]\ndevice = {device:?}\ntimeout = \"{timeout}\"\n");
    let process = sh("a", "sleep 1000", "heartbeat = { within = \"600s\", critical = true }");
    let bench = Bench::new("redog", &process);
    let (one, two) = (bench.dir.join("one"), bench.dir.join("two"));
    for device in [&one, &two] {
        fs::write(device, "").unwrap();
    }
    let halted = |device: &Path| fs::read(device).unwrap().last() == Some(&b'V');
    bench.ok(&["up", ".", "--detach"]);
    // A watchdog that the plant did not have before.
    bench.write(&(process.clone() + &table(&one, "1s")));
    assert!(bench.ok(&["reload"]).contains("~ watchdog"));
    bench.until("armed", || !fs::read(&one).unwrap().is_empty());
    bench.write(&(process.clone() + &table(&one, "2s")));
    bench.ok(&["reload"]);
    assert!(bench.log().contains("one continues, timeout 2s") && !halted(&one), "{}", bench.log());
    bench.write(&(process.clone() + &table(&two, "2s")));
    bench.ok(&["reload"]);
    bench.until("the other device is armed", || !fs::read(&two).unwrap().is_empty());
    assert!(halted(&one));
    bench.write(&process);
    bench.ok(&["reload"]);
    assert!(halted(&two), "{}", bench.log());
    bench.ok(&["down"]);
}

#[test]
fn evidence_of_a_hang_is_gathered_after_the_safe_output_and_before_the_core_file() {
    let keys = "heartbeat = { within = \"200ms\" }\nrestart = { policy = \"never\" }\non_fault = \"touch safe\"";
    let bench = Bench::new("look", &sh("a", "exec sleep 1000", keys));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("latched", || bench.process("a")["state"] == "FAULT");
    bench.until("evidence", || bench.process("a")["evidence"].is_string());
    let log = bench.log();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("{text}: {log}"));
    assert!(at("trouble: hang") < at("evidence in") && at("evidence in") < at("SIGABRT sent"), "{log}");
    assert!(bench.dir.join("safe").exists());
    let folder = bench.process("a")["evidence"].as_str().unwrap().to_owned();
    let incident = fs::read(Path::new(&folder).join("incident.json")).unwrap();
    let incident: serde_json::Value = serde_json::from_slice(&incident).unwrap();
    assert_eq!((&incident["kind"], &incident["threads"][0]["name"]), (&"hang".into(), &"sleep".into()));
    bench.run(&["down"]);
}

#[test]
fn the_handler_of_a_stopped_process_runs_when_the_plant_goes_down() {
    let script = "trap 'echo safe > safe; exit 0' TERM; while :; do sleep 0.02; done";
    let bench = Bench::new("stopped-handler", &sh("a", script, "stop = [\"TERM 60s\"]"));
    bench.ok(&["up", ".", "--detach"]);
    let pid = bench.pid("a");
    kill(pid, "STOP");
    bench.until("stopped", || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T "));
    bench.run(&["down"]);
    assert_eq!(fs::read_to_string(bench.dir.join("safe")).unwrap(), "safe\n", "{}", bench.log());
}

#[test]
fn housekeeping_processes_stay_on_the_cpus_of_the_supervisor() {
    let allowed = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    let first = sys::sched::affinity(0).unwrap().lowest().unwrap().to_string();
    let bench = Bench::new("mask", &sh("a", "sleep 1000", "cpus = \"housekeeping\""));
    let tahti = bench.tahti(&["up", ".", "--detach"]);
    let mut masked = Command::new("taskset");
    masked.args(["-c", &first]).arg(tahti.get_program()).args(tahti.get_args()).current_dir(&bench.dir);
    masked.envs(tahti.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(masked.output().unwrap().status.success());
    assert_eq!(allowed(bench.pid("a")), first);
    bench.run(&["down"]);
}

#[test]
fn interrupting_the_foreground_takes_the_plant_down_and_the_time_limit_does_too() {
    let bench = Bench::new("foreground", &sh("a", "sleep 1000", ""));
    let child = bench.tahti(&["up", "."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.until("up", || bench.run(&["ps", "p"]).status.success() && bench.process("a")["pid"].is_i64());
    let pid = bench.pid("a");
    kill(child.id() as i32, "INT");
    let output = finish(child);
    assert!(output.status.success() && !alive(pid), "{}", text(&output));
    let limited = bench.ok(&["up", ".", "--for", "10s"]);
    assert!(limited.contains("time is up") && limited.contains("good"), "{limited}");
}

#[test]
fn a_plant_whose_time_ends_before_it_is_up_fails() {
    let never = sh("never", "sleep 1000", "ready = { line = \"never\", within = \"600s\" }");
    let bench = Bench::new("halfway", &(never + &sh("after", "sleep 1000", "after = [\"never\"]")));
    let output = bench.run(&["up", ".", "--for", "1s"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains(": failed: "), "{said}");
    assert!(said.contains("never: it was never ready") && said.contains("after: it was never started"), "{said}");
}

#[test]
fn readiness_by_file_port_and_notification_is_detected() {
    // A free port, on which the process listens only later.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port();
    let bench = Bench::new(
        "ready",
        &(sh("file", "sleep 1000", "ready = { file = \"here\", within = \"60s\" }")
            + &sh("port", "sleep 1000", &format!("ready = {{ port = {port}, within = \"60s\" }}"))
            + &sh("stale", "sleep 1000", "ready = { file = \"old\", within = \"60s\" }")
            + &sh("taken", "sleep 1000", &format!("ready = {{ port = {taken}, within = \"60s\" }}"))
            + &sh("note", "echo $NOTIFY_SOCKET > note; sleep 1000", "ready = { notify = true, within = \"60s\" }")),
    );
    fs::write(bench.dir.join("old"), "").unwrap();
    let child = bench.tahti(&["up", "."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.until("up", || bench.run(&["ps", "p"]).status.success());
    bench.until("started", || {
        ["file", "port", "note", "stale", "taken"].iter().all(|name| bench.process(name)["pid"].is_i64())
    });
    bench.until("noted", || fs::read_to_string(bench.dir.join("note")).is_ok_and(|text| text.ends_with('\n')));
    for name in ["file", "port", "note"] {
        assert_eq!(bench.process(name)["state"], "starting", "{name}");
    }
    // A condition that already holds before the start does not count as ready.
    let log = bench.log();
    let expected = [format!("another process already listens on port {taken}"), "old exists already".to_owned()];
    assert!(expected.iter().all(|text| log.contains(text.as_str())), "{log}");
    for name in ["stale", "taken"] {
        assert_eq!(bench.process(name)["state"], "starting", "{name}");
    }
    fs::write(bench.dir.join("old"), "again").unwrap();
    drop(other);
    let _listeners = [port, taken].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    fs::write(bench.dir.join("here"), "").unwrap();
    let socket = fs::read_to_string(bench.dir.join("note")).unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"READY=1", socket.trim()).unwrap();
    for name in ["file", "port", "note", "stale", "taken"] {
        bench.until("ready", || bench.process(name)["state"] == "running");
    }
    assert_eq!(bench.status()["phase"], "up");
    kill(child.id() as i32, "TERM");
    assert!(finish(child).status.success());
}

#[test]
fn every_mistake_in_a_plant_file_is_shown_with_its_place_and_remedy_and_nothing_starts() {
    let touch = sh("a", "touch started; sleep 1000", "");
    for (lines, expected) in [
        ("[shild]\ncpus = \"1\"\n", &["plant.toml:3:2", "unknown table `shild`", "did you mean `shield`?"][..]),
        ("[shield]\ncups = \"1\"\n", &["plant.toml:4:1", "unknown key `cups`", "did you mean `cpus`?"]),
        ("[shield]\ncpus = \"900\"\n", &["plant.toml:4:8", "CPU 900 to be isolated is not online"]),
        ("[shield]\ncpus = \"0-899\"\n", &["plant.toml:4:8", "CPUs of this machine: 0"]),
        ("[shield]\ncpus = \"x\"\n", &["plant.toml:4:8", "`cpus` in [shield] cannot be", "CPU list such as"]),
    ] {
        let bench = Bench::new("mistake", &format!("{lines}{touch}"));
        let said = text(&bench.run(&["up", "."]));
        assert!(expected.iter().all(|part| said.contains(part)), "{lines}: {said}");
        assert!(!bench.dir.join("started").exists() && bench.ok(&["ps"]) == "no plant is up\n");
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let bench = Bench::new("mistake-all", &format!("[shield]\ncpus = \"{}\"\n{touch}", online.trim()));
    let said = text(&bench.run(&["up", "."]));
    let expected = ["every CPU of the machine would be isolated", "at least one of CPUs"];
    assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    let said = text(&bench.run(&["shield", "apply", "--cpus", online.trim()]));
    assert!(said.contains("none would remain for other tasks: exclude at least one"), "{said}");
    assert!(text(&bench.run(&["shield", "plan", "--cpus", "900"])).contains("this machine has no CPU 900"));
}

#[test]
fn the_state_of_another_boot_is_not_continued() {
    let bench = Bench::new("boot", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let supervisor = bench.supervisor();
    let (pid, keeper) = (bench.pid("a"), bench.process("a")["keeper"].as_i64().unwrap() as i32);
    for killed in [supervisor, keeper] {
        kill(killed, "KILL");
        bench.until("killed", || !alive(killed));
    }
    bench.until("the process is killed with its keeper", || !alive(pid));
    let state = bench.dir.join("run/p/state.json");
    let text = fs::read_to_string(&state).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(&state, text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    assert!(!bench.log().contains("continues the plant of process"), "{}", bench.log());
    assert_eq!((bench.process("a")["starts"].as_u64(), bench.process("a")["restarts"].as_u64()), (Some(1), Some(0)));
    bench.ok(&["down"]);
}

#[test]
fn an_unreadable_state_orphans_no_process_and_starts_none_twice() {
    let ready = "ready = { line = \"on\", within = \"600s\" }";
    let (steady, other) = (sh("steady", "echo on; sleep 1000", ready), sh("other", "sleep 1000", ""));
    let bench = Bench::new("unread", &(steady.clone() + &other));
    bench.ok(&["up", ".", "--detach"]);
    let state = bench.dir.join("run/p/state.json");
    let wrong: [&dyn Fn(); 3] = [
        &|| fs::write(&state, "{").unwrap(),
        &|| {
            let text = fs::read_to_string(&state).unwrap();
            fs::write(&state, text.replacen("\"version\":1", "\"version\":999", 1)).unwrap();
        },
        &|| fs::remove_file(&state).unwrap(),
    ];
    for spoil in wrong {
        let pids = ["steady", "other"].map(|name| bench.pid(name));
        let supervisor = bench.supervisor();
        kill(supervisor, "KILL");
        bench.until("killed", || !alive(supervisor));
        spoil();
        assert!(text(&bench.run(&["ps"])).contains("lost its supervisor"));
        bench.ok(&["up", ".", "--detach"]);
        assert_eq!(["steady", "other"].map(|name| bench.pid(name)), pids, "{}", bench.log());
        assert!(bench.log().contains("continues with the running processes that it found"), "{}", bench.log());
    }
    // A process that is no longer in the plant file is also found, and stopped.
    let (supervisor, orphan) = (bench.supervisor(), bench.pid("other"));
    kill(supervisor, "KILL");
    bench.until("killed", || !alive(supervisor));
    fs::write(&state, "{").unwrap();
    bench.write(&steady);
    bench.ok(&["up", ".", "--detach"]);
    bench.until("stopped", || !alive(orphan));
    assert!(bench.log().contains("but the plant file no longer contains it"), "{}", bench.log());
    let said = text(&bench.run(&["down"]));
    assert!(said.contains("the observations of the supervisor before cannot be read"), "{said}");
}

#[test]
fn logs_and_evidence_in_the_folder_for_records_survive_the_loss_of_the_run_folder() {
    let process = sh("a", "echo begun $$; sleep 1000", "restart = { backoff = \"0s\" }");
    let records = |folder: &str| format!("[records]\nfolder = \"{folder}\"\n{process}");
    let bench = Bench::new("records", &records("kept"));
    bench.ok(&["up", ".", "--detach"]);
    let first = bench.pid("a");
    kill(first, "SEGV");
    bench.until("evidence", || bench.process("a")["evidence"].is_string());
    bench.until("restarted", || bench.process("a")["pid"].as_i64().is_some_and(|pid| pid as i32 != first));
    assert!(bench.ok(&["logs", "a"]).contains(&format!("begun {first}")));
    assert!(bench.ok(&["down"]).contains("degraded: a: restarted once, last after SIGSEGV"));
    let kept = bench.dir.join("kept");
    assert_eq!(fs::read_dir(kept.join("evidence")).unwrap().count(), 1);
    let said = fs::read_to_string(kept.join("log/_supervisor.log")).unwrap();
    assert!(said.contains("evidence in") && said.contains("ended: SIGSEGV"), "{said}");
    // Simulates a reset of the machine.
    fs::remove_dir_all(bench.dir.join("run")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench.until("both runs", || {
        let log = bench.ok(&["logs", "a"]);
        log.contains(&format!("begun {first}")) && log.matches("begun").count() >= 3
    });
    // A changed folder takes effect at the next start.
    bench.write(&records("elsewhere"));
    assert_eq!(bench.ok(&["reload"]), "~ records: from the next `tahti up` on\n");
    bench.ok(&["down"]);
    bench.ok(&["up", ".", "--detach"]);
    bench.ok(&["down"]);
    assert!(bench.dir.join("elsewhere/log/a.log").exists() && kept.join("log/a.log").exists());
    // If the folder cannot be created, the start fails before any process starts.
    bench.write(&records("/proc/records"));
    let said = text(&bench.run(&["up", "."]));
    assert!(said.contains("/proc/records"), "{said}");
    bench.write(&process);
    bench.ok(&["up", ".", "--detach"]);
    assert!(bench.dir.join("run/p/log").read_link().is_err());
    bench.ok(&["down"]);
}

#[test]
fn without_privileges_a_plant_runs_with_reported_shortfalls_or_does_not_start() {
    let plant = "[shield]\ncpus = \"1\"\n[[process]]\nname = \"a\"\ncommand = \"sleep 1000\"\nclass = \"fifo:5\"\n";
    let bench = Bench::new("nobody", plant);
    let as_nobody = |words: &[&str]| {
        let mut command = bench.tahti(words);
        // If run by root, the command runs as user nobody; other users are unprivileged already.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            let own = bench.tahti(words);
            command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--clear-groups"]).arg(own.get_program()).args(own.get_args());
            command.current_dir(&bench.dir).env("TAHTI_RUN", bench.dir.join("run")).stdin(Stdio::null());
        }
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    fs::create_dir_all(bench.dir.join("run")).unwrap();
    fs::set_permissions(bench.dir.join("run"), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody(&["up", ".", "--for", "10s"]);
    let said = text(&output);
    let (events, verdict) = said.trim_end().rsplit_once('\n').unwrap();
    for lack in ["no shield on CPUs 1: only root may", "no class fifo:5:", "no real-time guard:", "no memory lock:"] {
        assert_eq!(events.matches(lack).count(), 1, "{lack}: {said}");
    }
    assert!(!events.contains('…'), "a line is truncated in a pipe: {said}");
    assert!(verdict.contains("degraded: ") && verdict.contains("a: no class fifo:5 ["), "{said}");
    assert!(output.status.code() == Some(4) && events.contains("run as root"), "the remedy is shown: {said}");
    assert!(bench.log().contains("run as root"), "{}", bench.log());
    let output = as_nobody(&["up", ".", "--require-rt"]);
    assert!(!output.status.success() && text(&output).contains("only root may move other tasks"), "{}", text(&output));
    let output = as_nobody(&["shield", "apply", "--cpus", "1"]);
    let said = text(&output);
    assert!(output.status.code() == Some(2) && said.contains("nothing was changed: only root may"), "{said}");
}

#[test]
fn a_run_folder_that_cannot_be_used_is_an_error_before_anything_starts() {
    let bench = Bench::new("norun", &sh("a", "touch started; sleep 1000", ""));
    fs::write(bench.dir.join("file"), "").unwrap();
    let run = |path: &Path| {
        let child = bench.tahti(&["up", "."]).env("TAHTI_RUN", path).stderr(Stdio::piped()).spawn().unwrap();
        let output = finish(child);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(&bench.dir.join("file/below"));
    assert!(said.contains("TAHTI_RUN"), "{said}");
    let said = run(&bench.dir.join("n".repeat(120)));
    assert!(said.contains("too long for a Unix socket"), "{said}");
    assert!(!bench.dir.join("started").exists());
}

/// Starts a loop that is late once, by 2 s, and returns the output of `down`.
fn late_once(what: &str, keys: &str) -> (Option<i32>, String, Bench) {
    let command = "command = \"tahti demo llrf --period 10ms --runaway-after 100ms --channel CHANNEL\"";
    let command = command.replace("CHANNEL", &format!("{what}{}", std::process::id()));
    let ready = "heartbeat = { within = \"30s\" }\nready = { line = \"armed\" }";
    let bench = Bench::new(what, &format!("[[process]]\nname = \"loop\"\n{command}\n{ready}\n{keys}\n"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("a late result", || bench.process("loop")["value"]["late"].as_u64().unwrap_or(0) > 0);
    let listing = bench.ok(&["ps"]);
    assert!(listing.contains("% of the full value obtained ("), "{listing}");
    fs::write(bench.dir.join("now.json"), bench.ok(&["ps", "--json"])).unwrap();
    let page = bench.ok(&["report", bench.dir.join("now.json").to_str().unwrap(), "--markdown"]);
    assert!(page.contains("loop: value obtained") && page.contains("loop: wake-up p99 "), "{page}");
    let output = bench.run(&["down"]);
    (output.status.code(), text(&output), bench)
}

#[test]
fn late_results_have_no_value_after_a_firm_deadline_and_less_after_a_soft_one() {
    // 200 pulses that could not be run have no value in either case.
    let (code, said, _bench) = late_once("firm", "deadline = { at = \"1s\", kind = \"firm\", least = \"1%\" }");
    let last = said.lines().last().unwrap();
    assert!(last.contains(": degraded: loop: ") && last.contains("% of the full value obtained (1 of "), "{said}");
    assert!(last.contains("deadline 1s firm") && code == Some(4), "{said}");
    let keys = "deadline = { at = \"1s\", kind = \"soft\", value = \"linear 10s\", least = \"100%\" }";
    let (code, said, bench) = late_once("soft", keys);
    let last = said.lines().last().unwrap();
    assert!(last.contains(": failed: loop: ") && last.contains("less than the required 100.00 %"), "{said}");
    assert_eq!(code, Some(3));
    let log = bench.ok(&["logs", "loop"]);
    assert!(log.contains("deadline 1s soft linear 10s: 1 of ") && log.contains("% of the full value"), "{log}");
}

#[test]
fn a_result_after_its_hard_deadline_runs_the_safe_output_command() {
    let keys = "deadline = { at = \"300ms\", kind = \"hard\" }\non_fault = [\"touch\", \"safe\"]";
    let (code, said, bench) = late_once("hard", keys);
    assert!(bench.dir.join("safe").exists());
    let log = bench.log();
    assert!(log.contains("trouble: hard deadline missed") && log.contains("safe-output command done"), "{log}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("hard deadlines were missed") && last.contains("loop: a hard deadline was missed"), "{said}");
    assert_eq!(code, Some(3));
}

#[test]
fn the_value_of_replies_of_the_message_server_is_in_the_verdict() {
    let server = format!("value{}", std::process::id());
    let deadlines = "deadlines = [{ verbs = [\"list\"], at = \"1us\", kind = \"soft\", value = \"linear 10s\" }]";
    let bench = Bench::new("answers", &format!("[messages]\nname = \"{server}\"\n{deadlines}\n"));
    bench.ok(&["up", ".", "--detach"]);
    for _ in 0..3 {
        bench.ok(&["msg", "send", "--server", &server, "list/server"]);
    }
    bench.until("three answers with a value", || bench.process(&server)["value"]["due"].as_u64().unwrap_or(0) >= 3);
    let value = bench.process(&server)["value"].clone();
    // No answer takes less than a microsecond, and one after 10 s has no value.
    assert_eq!(value["due"], value["late"], "{value}");
    assert!(value["share"].as_u64().unwrap() > 0 && value["share"].as_u64().unwrap() < 1_000_000, "{value}");
    let told = bench.ok(&["msg", "send", "--server", &server, "describe/server"]);
    assert!(told.contains("answers_due=3 answers_late=3 value_millionths="), "{told}");
    let said = bench.ok(&["down"]);
    let last = said.lines().last().unwrap();
    assert!(
        last.contains(&format!(": degraded: {server}: ")) && last.contains(" of the full value obtained ("),
        "{said}"
    );
}

#[test]
fn skipped_periods_of_a_loop_are_in_the_outcome_and_judged_by_their_limit() {
    let run = |limit: &str| {
        let command = "command = \"tahti demo llrf --period 10ms --runaway-after 100ms --channel CHANNEL\"";
        let command = command.replace("CHANNEL", &format!("verdict{}", std::process::id()));
        let keys = "heartbeat = { within = \"30s\" }\nready = { line = \"armed\" }";
        let bench = Bench::new("verdict", &format!("[[process]]\nname = \"loop\"\n{command}\n{keys}\n{limit}\n"));
        bench.ok(&["up", ".", "--detach"]);
        bench.until("periods are skipped", || bench.process("loop")["loop"]["misses"].as_u64().unwrap_or(0) > 100);
        let output = bench.run(&["down"]);
        (output.status.code(), text(&output))
    };
    let (code, said) = run("");
    let last = said.lines().last().unwrap();
    assert!(last.contains("loop: ") && last.contains(" periods skipped; each one degrades the plant"), "{said}");
    assert!(matches!(code, Some(3 | 4)), "{said}");
    let (code, said) = run("miss_ratio_max = \"99.9%\"");
    assert!(said.lines().last().unwrap().contains(" periods skipped, within its limit of 99.9 %"), "{said}");
    assert!(matches!(code, Some(3 | 4)), "{said}");
    let (code, said) = run("miss_ratio_max = \"1%\"");
    let last = said.lines().last().unwrap();
    assert!(last.contains(": failed: ") && last.contains(", more than its limit of 1 %"), "{said}");
    assert_eq!(code, Some(3));
}

#[test]
fn a_profile_adds_its_members_also_in_the_background_and_after_a_reload() {
    let debug = |name: &str| sh(name, "sleep 1000", "profiles = [\"debug\"]");
    let bench = Bench::new("profile", &(sh("a", "sleep 1000", "") + &debug("probe")));
    let names = || {
        let status = bench.status();
        let all = status["processes"].as_array().unwrap().clone();
        let shown = all.iter().map(|one| one["name"].as_str().unwrap().to_owned());
        shown.filter(|name| name != "dashboard").collect::<Vec<_>>()
    };
    bench.ok(&["up", ".", "--detach"]);
    assert_eq!(names(), ["a"]);
    bench.ok(&["down"]);
    let refused = text(&bench.run(&["up", ".", "--detach", "--profile", "debgu"]));
    assert!(refused.contains("has the profile \"debgu\"") && refused.contains("did you mean \"debug\"?"), "{refused}");

    let up = bench.tahti(&["up", ".", "--detach"]).env("TAHTI_PROFILES", "debug").output().unwrap();
    assert!(up.status.success(), "{}", text(&up));
    assert_eq!(names(), ["a", "probe"]);
    // The command that asks for a reload has no profiles: those of `up` count.
    bench.write(&(sh("a", "sleep 1000", "") + &debug("probe") + &debug("further")));
    bench.ok(&["reload"]);
    assert_eq!(names(), ["a", "probe", "further"]);
    bench.ok(&["down"]);
}

#[test]
fn a_plant_of_several_files_reads_them_all_again_on_reload() {
    let bench = Bench::new("include", "");
    let main = "include = [\"parts/*.toml\"]\n[variables]\nNAME = \"p\"\n[plant]\nname = \"${NAME}\"\n";
    fs::create_dir_all(bench.dir.join("parts")).unwrap();
    fs::write(bench.dir.join("plant.toml"), main).unwrap();
    fs::write(bench.dir.join("parts/a.toml"), sh("a", "sleep 1000", "")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    fs::write(bench.dir.join("parts/b.toml"), sh("b", "sleep 1000", "class = \"no\"")).unwrap();
    let refused = text(&bench.run(&["reload"]));
    assert!(refused.contains("parts/b.toml:") && refused.contains("`class`"), "{refused}");
    fs::write(bench.dir.join("parts/b.toml"), sh("b", "exit 3", "restart = { policy = \"never\" }")).unwrap();
    bench.run(&["reload"]);
    bench.until("b ended", || bench.process("b")["state"] != "running");
    // The verdict names the file of the promise.
    let verdict = text(&bench.run(&["down", "."]));
    assert!(verdict.contains("of parts/b.toml]"), "{verdict}");
}

#[test]
fn a_keeper_that_answers_too_late_is_replaced_by_the_next_start() {
    use keep::keeper::Keeper;
    use keep::keeper::protocol::KeeperSpec;
    use keep::launch::LaunchSpec;
    let bench = Bench::new("late-keeper", &sh("loop", "exec sleep 1000", ""));
    let spec = KeeperSpec {
        dir: bench.dir.join("run/p/keep/loop"),
        launch: LaunchSpec::new("loop", ["/bin/sleep", "1000"]),
        bounds: host::plant::Bounds::default(),
        within: Vec::new(),
        log: None,
        ready_line: None,
        notify: false,
        held: false,
        operators: None,
        supervisor: None,
    };
    let mut late =
        Keeper::start(&spec, Path::new(env!("CARGO_BIN_EXE_tahti"))).unwrap_or_else(|error| panic!("{error}"));
    let status = late.status().unwrap();
    let (keeper, child) = (status.keeper.pid, status.child.unwrap().pid);
    drop(late);
    kill(keeper, "STOP");
    let mut up = Running::start(&mut bench.tahti(&["up", ".", "--detach"]));
    bench.until("a start failed", || bench.log().contains("another keeper already serves there"));
    kill(keeper, "CONT");
    bench.until("up has ended", || up.child.try_wait().unwrap().is_some());
    bench.until_row("loop", "runs", "kept");
    assert!(bench.pid("loop") != child && !alive(child) && !alive(keeper), "{}", bench.log());
    let (_, last) = bench.down();
    assert!(last.contains("loop: restarted"), "{last}");
}

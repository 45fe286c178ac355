//! The outcome of a plant's life: each way in which a promise of the plant file can be broken, and the reports of
//! `ps` and `down`. Needs no privilege; each test has a separate folder.

use harness::plant::{Bench, sh};
use harness::process::{alive, kill, text};
use std::fs;
use std::process::{Output, Stdio};
use std::time::Instant;

fn last_line(output: &Output) -> String {
    text(output).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_plant_that_kept_every_promise_is_good_and_a_process_without_faults_has_every_row_kept() {
    let bench = Bench::new("verdict-good", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    for claim in ["runs", "class", "cpus", "restarts"] {
        bench.until_row("a", claim, "kept");
    }
    assert_eq!(bench.status()["outcome"], "good", "{}", bench.status());
    assert!(bench.ok(&["status", "a"]).contains("class other"), "{}", bench.ok(&["status", "a"]));
    let (code, last) = bench.down();
    assert!(code == Some(0) && last.ends_with(": good"), "{last}");
}

#[test]
fn a_process_that_is_stopped_by_a_signal_fails_the_plant() {
    let bench = Bench::new("verdict-stop", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let pid = bench.pid("a");
    kill(pid, "STOP");
    let found = bench.until_row("a", "runs", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("stopped by a signal"), "{found}");
    let listing = bench.ok(&["ps"]);
    assert!(listing.contains("failed") && listing.contains("a broken for"), "{listing}");
    kill(pid, "CONT");
    bench.until_row("a", "runs", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains(": failed: a: stopped by a signal"), "{last}");
    assert!(last.contains("[runs, line 3]"), "{last}");
}

#[test]
fn a_stopped_keeper_fails_the_plant_until_it_answers_again() {
    let bench = Bench::new("verdict-keeper", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let keeper = i32::try_from(bench.process("a")["keeper"].as_i64().unwrap()).unwrap();
    kill(keeper, "STOP");
    let found = bench.until_row("a", "runs", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("its keeper does not answer"), "{found}");
    kill(keeper, "CONT");
    bench.until_row("a", "runs", "kept");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn output_that_cannot_be_logged_fails_the_plant_and_names_the_process() {
    let bench = Bench::new("verdict-output", &sh("a", "while :; do echo line; sleep 0.1; done", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("supervisor", "records", "kept");
    let log = bench.dir.join("run/p/log/a.log");
    assert!(log.exists(), "{}", log.display());
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let found = bench.until_row("supervisor", "records", "broken");
    assert!(found["evidence"].as_str().unwrap().ends_with("could not be written to a log, the last of a"), "{found}");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn output_at_the_end_of_a_process_that_cannot_be_logged_fails_the_plant() {
    let script = "trap 'echo farewell; exit 0' TERM; while :; do sleep 0.1; done";
    let bench = Bench::new("verdict-farewell", &sh("a", script, ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("supervisor", "records", "kept");
    let log = bench.dir.join("run/p/log/a.log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn a_changed_mode_of_the_run_folder_fails_the_plant_and_its_files_are_still_removed() {
    let bench = Bench::new("verdict-mode", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("supervisor", "files", "kept");
    let run = bench.dir.join("run/p");
    fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let found = bench.until_row("supervisor", "files", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("has mode 777"), "{found}");
    assert_eq!(bench.down().0, Some(3));
    assert!(!run.join("control").exists());
}

#[test]
fn a_hard_deadline_of_a_process_without_results_is_never_good() {
    let keys = "heartbeat = { within = \"1h\" }\ndeadline = { at = \"1ms\", kind = \"hard\" }";
    let bench = Bench::new("verdict-results", &sh("a", "sleep 1000", keys));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "value", "broken");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn a_safe_output_command_that_fails_fails_the_plant() {
    let keys = "on_fault = [\"false\"]\nrestart = { backoff = \"0s\" }";
    let bench = Bench::new("verdict-unsafe", &sh("a", "sleep 1000", keys));
    bench.ok(&["up", ".", "--detach"]);
    kill(bench.pid("a"), "SEGV");
    bench.until_row("a", "safe-output", "broken");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("a: its safe-output command failed: exit status 1 ["), "{last}");
}

#[test]
fn a_process_that_ends_at_once_without_a_declared_result_is_never_good() {
    let keys = "heartbeat = { within = \"1s\" }\ndeadline = { at = \"1ms\", kind = \"firm\" }\nrestart = { policy = \"never\" }";
    let bench = Bench::new("verdict-brief", &sh("a", "true", keys));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "value", "broken");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("a: no result was due, so its value cannot be judged ["), "{last}");
}

#[test]
fn a_heartbeat_that_the_process_switches_off_fails_the_plant() {
    let bench = Bench::new("verdict-off", &sh("a", "sleep 1000", "heartbeat = { within = \"600s\" }"));
    bench.ok(&["up", ".", "--detach"]);
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let send = |text: &str| socket.send_to(text.as_bytes(), bench.dir.join("run/p/keep/a/notify")).unwrap();
    send("WATCHDOG_USEC=700000000");
    bench.until_row("a", "heartbeat", "within");
    send("WATCHDOG_USEC=0");
    bench.until_row("a", "heartbeat", "broken");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn a_process_that_ends_with_an_error_when_it_is_stopped_degrades_the_plant() {
    let bench = Bench::new(
        "verdict-nine",
        &sh("a", "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done", "ready = { line = \"up\" }"),
    );
    bench.ok(&["up", ".", "--detach"]);
    let (code, last) = bench.down();
    assert!(code == Some(4) && last.contains("a: it was asked to end, and ended with exit 9 ["), "{last}");
}

#[test]
fn a_removed_state_file_fails_the_plant_and_is_written_again() {
    let bench = Bench::new("verdict-state", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("supervisor", "files", "kept");
    let state = bench.dir.join("run/p/state.json");
    fs::remove_file(&state).unwrap();
    bench.until("written again", || state.exists());
    bench.until_row("supervisor", "files", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("state.json was removed ["), "{last}");
}

#[test]
fn processes_of_a_lost_supervisor_end_before_a_new_one_starts_them_again_also_without_a_run_folder() {
    let bench = Bench::new("verdict-twice", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    let (first, keeper) = (bench.pid("a"), bench.process("a")["keeper"].as_i64().unwrap() as i32);
    let supervisor = bench.supervisor();
    kill(supervisor, "KILL");
    bench.until("killed", || !alive(supervisor));
    fs::remove_dir_all(bench.dir.join("run/p/keep")).unwrap();
    fs::remove_file(bench.dir.join("run/p/state.json")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    assert!(bench.pid("a") != first && !alive(first));
    kill(keeper, "KILL");
    bench.ok(&["down"]);
}

#[test]
fn a_process_that_is_restarted_within_its_policy_degrades_the_plant() {
    let bench = Bench::new("verdict-restart", &sh("a", "sleep 1000", "restart = { backoff = \"0s\" }"));
    bench.ok(&["up", ".", "--detach"]);
    let pid = bench.pid("a");
    kill(pid, "KILL");
    bench.until("restarted", || bench.process("a")["restarts"] == 1);
    bench.until("degraded", || bench.status()["outcome"] == "degraded");
    let (code, last) = bench.down();
    assert!(code == Some(4) && last.contains("a: restarted once, last after SIGKILL"), "{last}");
}

#[test]
fn a_helper_that_ends_late_breaks_no_promise_of_its_process() {
    // The helper ignores SIGTERM and SIGHUP, so the keeper waits for it before it reports the end.
    let bench = Bench::new(
        "verdict-helper",
        &sh(
            "a",
            "trap '' TERM HUP; sleep 1000 & trap - TERM; echo helped; exec sleep 1000",
            "restart = { backoff = \"0s\" }",
        ),
    );
    bench.ok(&["up", ".", "--detach"]);
    bench.until("the helper runs", || bench.ok(&["logs", "a"]).contains("helped"));
    bench.until_row("a", "runs", "kept");
    bench.ok(&["signal", "TERM", "a"]);
    bench.until("restarted", || bench.process("a")["restarts"] == 1);
    bench.until_row("a", "class", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(4) && !last.contains("no observation"), "{last}");
}

#[test]
fn a_process_that_fails_each_second_within_its_policy_is_never_good() {
    let keys = "restart = { backoff = \"0s\", limit = 1000 }";
    let bench = Bench::new("verdict-failing", &sh("a", "sleep 0.2; exit 7", keys));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("restarted", || bench.process("a")["restarts"].as_u64().unwrap() >= 2);
    let (code, last) = bench.down();
    assert!(matches!(code, Some(3 | 4)) && last.contains("last after exit 7"), "{last}");
}

#[test]
fn a_stopped_supervisor_is_named_by_ps_and_its_silence_fails_the_plant() {
    let bench = Bench::new("verdict-supervisor", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let supervisor = bench.supervisor();
    kill(supervisor, "STOP");
    let begin = Instant::now();
    let output = bench.run(&["ps", "p"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("does not answer in time"), "{said}");
    assert!(said.contains(&format!("it is stopped: `kill -CONT {supervisor}`")), "{said}");
    // `ps` waits for more than two intervals, so that there is one gap.
    assert!(begin.elapsed().as_secs() >= 2);
    let said = text(&bench.run(&["down", "p"]));
    assert!(said.contains("it is stopped"), "{said}");
    kill(supervisor, "CONT");
    // The request that waited in the socket is served: the plant goes down.
    bench.until("down", || !alive(supervisor));
    let log = bench.log();
    assert!(log.contains("stop requested"), "{log}");
}

#[test]
fn a_supervisor_that_was_stopped_reports_the_gap_in_its_observations() {
    let bench = Bench::new("verdict-gap", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let supervisor = bench.supervisor();
    // The keeper has its own log, so it reports what the supervisor cannot.
    let log = || fs::read_to_string(bench.dir.join("run/p/log/a.log")).unwrap_or_default();
    kill(supervisor, "STOP");
    assert!(!bench.run(&["ps", "p"]).status.success());
    let stopped = format!("it is stopped (`kill -CONT {supervisor}` continues it); this process continues");
    bench.until("reported by the keeper", || log().contains(&stopped));
    kill(supervisor, "CONT");
    bench.until("observed again", || bench.status()["outcome"] == "failed");
    bench.until("reported as over", || log().contains("observes again, after "));
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("supervisor: no observation for more than 2s: no pass for "), "{last}");
    assert!(last.contains(" stopped, asleep or blocked (longest steps: "), "{last}");
    let others =
        " promises, first of a, last of supervisor: no observation for more than 2s: the supervisor made no pass";
    assert_eq!(last.matches("the supervisor made no pass").count(), 1, "one reason for all other rows: {last}");
    assert!(last.contains(others), "{last}");
}

#[test]
fn a_process_stopped_by_a_signal_is_observed_before_a_request_ends_it() {
    let keep = sh("keep", "sleep 1000", "");
    for (nth, request) in [&["reload"][..], &["stop", "old"], &["restart", "old"]].into_iter().enumerate() {
        let bench = Bench::new(&format!("verdict-request-{nth}"), &(keep.clone() + &sh("old", "sleep 1000", "")));
        bench.ok(&["up", ".", "--detach"]);
        bench.until_row("old", "runs", "kept");
        bench.write(&keep);
        kill(bench.pid("old"), "STOP");
        bench.ok(request);
        let (code, last) = bench.down();
        assert!(code == Some(3) && last.contains("old: stopped by a signal"), "{request:?}: {last}");
    }
}

#[test]
fn a_removed_run_folder_fails_the_plant_and_no_second_supervisor_starts() {
    let bench = Bench::new("verdict-folder", &sh("a", "sleep 1000", ""));
    let up = bench.tahti(&["up", "."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.until("up", || bench.run(&["ps", "p"]).status.success() && bench.process("a")["pid"].is_i64());
    let pid = bench.pid("a");
    bench.until_row("supervisor", "files", "kept");
    fs::remove_dir_all(bench.dir.join("run")).unwrap();
    let second = bench.run(&["up", "."]);
    let said = text(&second);
    assert!(!second.status.success() && said.contains("whose run folder was removed"), "{said}");
    assert!(said.contains(&up.id().to_string()), "{said}");
    let status = text(&bench.run(&["ps", "p"]));
    assert!(status.contains(&format!("`kill {}` takes the plant down", up.id())), "{status}");
    // The first process must not remove files that the second has created meanwhile.
    let lock = bench.dir.join("run/p/lock");
    assert!(lock.exists());
    kill(up.id() as i32, "TERM");
    let output = harness::process::finish(up);
    assert!(output.status.code() == Some(3) && !alive(pid), "{}", text(&output));
    assert!(last_line(&output).contains("supervisor: "), "{}", text(&output));
    assert!(lock.exists());
}

#[test]
fn a_limit_that_differs_from_the_plant_file_fails_the_plant() {
    let bench = Bench::new("verdict-limits", &sh("a", "ulimit -n 5; exec sleep 1000", "limits = { files = 64 }"));
    bench.ok(&["up", ".", "--detach"]);
    let row = bench.until_row("a", "bounds", "broken");
    assert_eq!(row["evidence"], "limit of files is 5 (hard 5), expected 64");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("a: limit of files is 5"), "{last}");
}

#[test]
fn the_observations_of_a_killed_supervisor_are_kept_by_the_next() {
    let bench = Bench::new("verdict-continue", &sh("a", "sleep 1000", ""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let pid = bench.pid("a");
    kill(pid, "STOP");
    bench.until_row("a", "runs", "broken");
    kill(pid, "CONT");
    bench.until_row("a", "runs", "kept");
    let supervisor = bench.supervisor();
    kill(supervisor, "KILL");
    bench.until("killed", || !alive(supervisor));
    bench.ok(&["up", ".", "--detach"]);
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("a: stopped by a signal"), "{last}");
}

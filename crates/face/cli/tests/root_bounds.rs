//! Resource limits of a process and all its descendants, enforced by its control group.

use harness::machine::last_cpu;
use harness::plant::{Bench, sh};
use harness::process::kill;
use std::fs;
use std::path::Path;

/// The control group directories of a process, as recorded by its keeper.
fn dirs(bench: &Bench, name: &str) -> Vec<String> {
    let noted = fs::read_to_string(bench.dir.join(format!("run/p/keep/{name}/group"))).unwrap();
    noted.lines().map(str::to_owned).collect()
}

#[test]
fn memory_and_tasks_are_bounded_and_shown_with_their_usage_and_nothing_is_left() {
    last_cpu();
    // The third fork of each inner shell is refused. There is always room for one inner shell.
    let script = "while :; do /bin/sh -c 'sleep 1000 & sleep 1000 & sleep 1000'; sleep 0.05; done";
    let keys = "memory_max = \"64MiB\"\ntasks_max = 4\nrestart = { policy = \"never\" }";
    let free = sh("free", "sleep 1000", "");
    let bench = Bench::new("root-bounds", &(sh("a", script, keys) + &free));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("refused", || bench.process("a")["family"]["tasks_bound"]["met"].as_u64().unwrap_or(0) > 0);
    let family = bench.process("a")["family"].clone();
    assert_eq!((&family["memory_bound"]["max"], &family["tasks_bound"]["max"]), (&(64 << 20).into(), &4.into()));
    let used = family["memory_bound"]["used"].as_u64().unwrap();
    assert!((1..64 << 20).contains(&used) && family["tasks_bound"]["used"].as_u64().unwrap() <= 4, "{family}");
    assert!(bench.process("free")["family"]["memory_bound"].is_null(), "no bound is configured");
    let shown = bench.ok(&["ps"]);
    assert!(shown.contains(" M of 64.0 M, tasks ") && shown.contains(" of 4 ("), "{shown}");
    assert_eq!(bench.process("a")["shortfalls"], serde_json::json!([]));
    let dirs = dirs(&bench, "a");
    assert!(dirs.iter().all(|dir| Path::new(dir).exists()), "{dirs:?}");
    bench.ok(&["down"]);
    assert!(!dirs.iter().any(|dir| Path::new(dir).exists()), "{dirs:?}");
}

#[test]
fn a_process_beyond_its_memory_bound_is_killed_and_the_bound_is_named_as_the_cause() {
    last_cpu();
    // If the bound is not effective, the limit on the address space is.
    let keys = "memory_max = \"32MiB\"\nlimits = { memory = \"1GiB\" }\nrestart = { policy = \"never\" }";
    let bench = Bench::new("root-memory", &sh("a", "sleep 0.2; exec tail /dev/zero", keys));
    bench.ok(&["up", ".", "--detach"]);
    bench.until("ended", || bench.process("a")["state"] == "FAULT");
    let listing = bench.ok(&["ps"]);
    assert!(listing.contains("out of memory") && listing.contains("it used its memory_max of 32MiB"), "{listing}");
    bench.until("evidence", || bench.process("a")["evidence"].is_string());
    let evidence = bench.process("a")["evidence"].as_str().unwrap().to_owned();
    let incident = || fs::read_to_string(format!("{evidence}/incident.json")).unwrap_or_default();
    bench.until("its end", || incident().contains("\"exit\": {"));
    let incident: serde_json::Value = serde_json::from_str(&incident()).unwrap();
    assert_eq!(incident["kind"], "out-of-memory");
    let summary = incident["summary"].as_str().unwrap();
    assert!(summary.starts_with("out of memory: it used its memory_max of 32MiB"), "{summary}");
    bench.run(&["down"]);
}

#[test]
fn groups_of_a_killed_keeper_are_removed_and_the_restarted_process_is_bounded_again() {
    last_cpu();
    let keys = "memory_max = \"64MiB\"\ntasks_max = 8\nrestart = { policy = \"always\", backoff = \"10ms\" }";
    let bench = Bench::new("root-regroup", &sh("a", "sleep 1000", keys));
    bench.ok(&["up", ".", "--detach"]);
    let first = bench.pid("a");
    let dirs = dirs(&bench, "a");
    kill(bench.process("a")["keeper"].as_i64().unwrap() as i32, "KILL");
    bench.until("another start", || bench.process("a")["pid"].as_i64().is_some_and(|pid| pid != i64::from(first)));
    bench.until("bounded", || bench.process("a")["family"]["tasks_bound"]["max"] == 8);
    bench.run(&["down"]);
    assert!(!dirs.iter().any(|dir| Path::new(dir).exists()), "{dirs:?}");
}

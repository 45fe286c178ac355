//! Promises that only root can have kept and broken: classes, CPUs, locked memory, the shield. Every task that the
//! test did not start is spared.

use harness::plant::{Bench, sh};
use harness::process::{self, kill, text};
use std::fs;
use std::process::Command;

fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output));
}

/// Waits until the observer has twice found the threads of a process as declared.
fn settled(bench: &Bench, process: &str, claim: &str) {
    let first = bench.until_row(process, claim, "kept")["observed"].as_u64().unwrap();
    bench.until("observed again", || bench.row(process, claim)["observed"].as_u64().unwrap() > first + 2_500_000_000);
}

/// The id of a process's thread with this name.
fn thread(pid: i32, name: &str) -> String {
    let task = process::thread(pid, name).unwrap_or_else(|| panic!("process {pid} has no thread {name}"));
    task.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_thread_that_loses_its_class_or_its_cpus_or_its_locked_memory_fails_the_plant() {
    let last = harness::machine::last_cpu();
    let keys = "class = \"fifo:20\"\nbudget = \"99%/1s\"";
    let bench = Bench::new("verdict-class", &sh("a", "while :; do sleep 0.1; done", keys));
    bench.ok(&["up", ".", "--detach"]);
    settled(&bench, "a", "cpus");
    bench.until_row("a", "class", "kept");
    bench.until_row("a", "memory", "kept");
    let pid = bench.pid("a").to_string();
    run(&["chrt", "-o", "-p", "0", &pid]);
    let found = bench.until_row("a", "class", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("has class other, expected fifo:20"), "{found}");
    run(&["chrt", "-f", "-p", "20", &pid]);
    bench.until_row("a", "class", "kept");
    run(&["taskset", "-pc", &last, &pid]);
    let found = bench.until_row("a", "cpus", "broken");
    assert!(found["evidence"].as_str().unwrap().contains(&format!("may run on CPUs {last}")), "{found}");
    let (code, said) = bench.down();
    assert!(code == Some(3) && said.contains("expected fifo:20 [class fifo:20, line 6]"), "{said}");
    assert!(said.contains("may run on CPUs"), "{said}");
}

#[test]
fn a_thread_of_a_service_that_loses_its_declared_class_fails_the_plant() {
    let server = harness::fresh("bands");
    let text = format!(
        "[messages]\nname = \"{server}\"\nbands = [{{ number = \"7\", class = \"fifo:4\" }}]\n\
         [[ioc]]\nname = \"ioc\"\nload = [{{ file = \"t.db\" }}]\nscan = [{{ rates = [\".1 second\"], class = \"fifo:3\" }}]\n"
    );
    let bench = Bench::new("verdict-bands", &text);
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(SCAN, \".1 second\") }").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    for (service, name, wanted) in [(&*server, "band-7", "fifo:4"), ("ioc", "scan-0", "fifo:3")] {
        settled(&bench, service, "class");
        run(&["chrt", "-o", "-p", "0", &thread(bench.pid(service), name)]);
        let found = bench.until_row(service, "class", "broken");
        assert!(
            found["evidence"].as_str().unwrap().ends_with(&format!("has class other, expected {wanted}")),
            "{found}"
        );
    }
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn a_guard_that_loses_its_class_fails_the_plant() {
    let bench =
        Bench::new("verdict-guard", &sh("a", "while :; do sleep 0.1; done", "class = \"fifo:2\"\nbudget = \"99%/1s\""));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "runs", "kept");
    let supervisor = i32::try_from(bench.status()["supervisor"].as_i64().unwrap()).unwrap();
    bench.until_row("supervisor", "observes", "kept");
    run(&["chrt", "-o", "-p", "0", &thread(supervisor, "tahti-guard")]);
    let found = bench.until_row("supervisor", "observes", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("the guard"), "{found}");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn a_nice_value_that_is_changed_fails_the_plant() {
    let bench = Bench::new("verdict-nice", &sh("a", "sleep 1000", "nice = -5"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("a", "class", "kept");
    run(&["renice", "-n", "10", "-p", &bench.pid("a").to_string()]);
    bench.until_row("a", "class", "broken");
    assert_eq!(bench.down().0, Some(3));
}

#[test]
fn all_threads_of_a_loop_on_the_shield_are_compared() {
    let last = harness::machine::last_cpu();
    let channel = format!("verdict-{}", std::process::id());
    let command = format!("command = \"tahti demo llrf --channel {channel}\"");
    let text = format!(
        "[shield]\ncpus = \"{last}\"\nrequired = true\n[[process]]\nname = \"a\"\n{command}\nclass = \"fifo:80\"\nready = {{ line = \"armed\" }}\n"
    );
    let bench = Bench::new("root-verdict-loop", &text);
    bench.ok(&["up", ".", "--detach"]);
    settled(&bench, "a", "class");
    bench.until_row("a", "cpus", "kept");
    let pid = bench.pid("a").to_string();
    run(&["chrt", "-a", "-o", "-p", "0", &pid]);
    let found = bench.until_row("a", "class", "broken");
    let evidence = found["evidence"].as_str().unwrap();
    assert!(evidence.contains("expected fifo:80") || evidence == "no thread has class fifo:80", "{found}");
    let (code, said) = bench.down();
    assert!(code == Some(3) && said.contains(evidence), "{said}");
}

#[test]
fn a_shield_whose_journal_was_removed_is_released_completely_and_the_plant_fails() {
    let last = harness::machine::last_cpu();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = || ["/proc/sys/vm/stat_interval", "/sys/devices/virtual/workqueue/cpumask"].map(read);
    let shield = format!("[shield]\ncpus = \"{last}\"\nrequired = true\n");
    let bench = Bench::new("root-verdict-journal", &(shield + &sh("a", "sleep 1000", "")));
    let before = machine();
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("shield", "journal", "kept");
    assert_ne!(machine(), before, "the shield changes them");
    let journal = bench.dir.join("run/shield.json");
    fs::remove_file(&journal).unwrap();
    let said = bench.run(&["shield", "status"]);
    assert!(text(&said).contains(&format!("CPUs {last}")), "{}", text(&said));
    bench.until("written again", || journal.exists());
    bench.until("failed", || bench.status()["outcome"] == "failed");
    // Removed again while the stopped supervisor cannot write it.
    let supervisor = bench.supervisor();
    kill(supervisor, "STOP");
    fs::remove_file(&journal).unwrap();
    kill(supervisor, "CONT");
    let output = bench.run(&["down", "p"]);
    let said = text(&output);
    assert!(output.status.code() == Some(3) && said.contains("shield.json is missing"), "{said}");
    assert!(said.contains("everything is as it was"), "{said}");
    assert_eq!(machine(), before);
    assert_eq!(read("/run/tahti-shield.lock"), "");
}

#[test]
fn a_shield_whose_journal_was_removed_with_its_supervisor_is_released_from_the_copy() {
    let last = harness::machine::last_cpu();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let bench = Bench::new("root-verdict-copy", "[shield]\ncpus = \"0\"\n");
    let before = read("/sys/devices/virtual/workqueue/cpumask");
    bench.ok(&["shield", "apply", "--cpus", &last]);
    assert_ne!(read("/sys/devices/virtual/workqueue/cpumask"), before);
    fs::remove_dir_all(bench.dir.join("run")).unwrap();
    bench.ok(&["shield", "release"]);
    assert_eq!(read("/sys/devices/virtual/workqueue/cpumask"), before);
}

//! A machine with `isolcpus=` for CPUs 2 and 3: processes without real time stay away from these CPUs, and a
//! measurement that names one of them runs there.

use harness::plant::{Bench, sh};

fn allowed(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn housekeeping_processes_avoid_cpus_isolated_at_boot() {
    testkit::guest::required();
    let keys = "cpus = \"housekeeping\"";
    let bench = Bench::new("isolcpus", &(sh("a", "sleep 1000", keys) + &sh("b", "sleep 1000", "cpus = \"2\"")));
    bench.ok(&["up", ".", "--detach"]);
    assert_eq!((allowed(bench.pid("a")).as_str(), allowed(bench.pid("b")).as_str()), ("0-1", "2"));
    bench.ok(&["down"]);
}

#[test]
fn a_cpu_isolated_at_boot_can_be_measured() {
    testkit::guest::required();
    let bench = Bench::new("isolcpus-bench", "");
    let done = bench.run(&["bench", "wakeup", "--cpus", "3", "--for", "1s", "--no-cyclictest"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("CPU 3") || said.contains("CPUs 3"), "{said}");
    assert!(!said.contains("may use"), "{said}");
}

//! A plant with shield, IOC and real-time loop, on the processor of the guest: x86-64 or 64-bit Arm.

use base::CpuSet;
use harness::plant::Bench;
use keep::machine::snapshot;
use std::fs;
use sys::root::RootDir;

const PLANT: &str = r#"
[shield]
cpus = "3"
required = true

[[process]]
name = "loop"
command = ["sleep", "1000"]
class = "fifo:80"
cpus = "shield"

[[ioc]]
name = "ioc"
load = [{ file = "p.db" }]
"#;

/// Settings and control groups of the machine.
fn state() -> String {
    let snapshot = snapshot(&RootDir::machine(), &"0-3".parse::<CpuSet>().unwrap()).unwrap();
    format!("{:?} {:?}", snapshot.files, snapshot.dirs)
}

#[test]
fn a_plant_with_shield_loop_and_ioc_comes_up_and_the_machine_is_restored() {
    testkit::guest::required();
    let before = state();
    let bench = Bench::new("processor", PLANT);
    fs::write(bench.dir.join("p.db"), "record(ai, \"p:volts\") { field(VAL, \"3.25\") }\n").unwrap();
    bench.ok(&["up", "plant.toml", "--detach"]);
    for (subject, claim) in [("loop", "runs"), ("loop", "class"), ("loop", "memory"), ("ioc", "serves")] {
        bench.until_row(subject, claim, "kept");
    }
    assert_eq!(sys::sched::affinity(bench.pid("loop")).unwrap(), "3".parse().unwrap());
    let mut get = bench.tahti(&["caget", "-t", "-w", "60", "p:volts"]);
    let output = get.env("EPICS_CA_ADDR_LIST", "127.0.0.1").env("EPICS_CA_AUTO_ADDR_LIST", "NO").output().unwrap();
    assert_eq!(harness::process::text(&output).trim(), "3.25");
    // An emulated supervisor may be late; a broken promise fails.
    bench.ok(&["down", "p"]);
    assert_eq!(state(), before);
}

//! A guest within a guest: a plant on an emulated machine without KVM runs a virtual machine with another kind of
//! kernel.

use harness::guest::disk;
use harness::plant::Bench;
use harness::process::text;

#[test]
fn a_plant_within_a_guest_runs_a_nested_guest() {
    testkit::guest::required();
    let keys =
        "accel = \"emulated\"\nmemory = \"32MiB\"\ndisks = [\"hmi.img\"]\nvcpu_cpus = \"1\"\nvcpu_class = \"other:7\"";
    let bench = Bench::new("within", &format!("[[guest]]\nname = \"hmi\"\n{keys}\n"));
    disk(&bench.dir.join("hmi.img"), false);
    let log = || std::fs::read_to_string(bench.dir.join("run/p/log/hmi.log")).unwrap_or_default();
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("the guest has booted", || log().contains("the guest is \\x1b[2Jup"));
    let status = bench.ok(&["guest", "status", "hmi", "--plant", "p"]);
    assert!(status.contains("CPUs 1, other:7, has run "), "{status}");
    bench.ok(&["guest", "stop", "hmi", "--plant", "p"]);
    bench.until("it has shut down", || log().contains("it shut down on request"));
    assert!(!bench.dir.join("run/p/guest/hmi").exists(), "its sockets still exist");
}

#[test]
fn without_kvm_a_guest_is_emulated_with_a_note_and_one_that_requires_kvm_is_refused() {
    testkit::guest::required();
    assert!(!std::fs::exists("/dev/kvm").unwrap(), "this machine has KVM");
    let guest = |keys| format!("[[guest]]\nname = \"hmi\"\nmemory = \"32MiB\"\ndisks = [\"hmi.img\"]\n{keys}\n");
    let bench = Bench::new("without-kvm", &guest("accel = \"kvm\""));
    disk(&bench.dir.join("hmi.img"), false);
    let found = text(&bench.run(&["check", "plant.toml"]));
    let error = "accel = \"kvm\": /dev/kvm: No such file or directory";
    assert!(found.contains(error) && found.contains("or set accel = \"auto\""), "{found}");
    bench.write(&guest(""));
    bench.ok(&["up", "plant.toml", "--detach"]);
    let note = "EMULATED, many times slower than the processor: /dev/kvm: No such file or directory";
    let log = || std::fs::read_to_string(bench.dir.join("run/p/log/hmi.log")).unwrap_or_default();
    bench.until("it runs", || log().contains(&format!("hmi runs, {note}")));
    let status = bench.ok(&["guest", "status", "hmi", "--plant", "p"]);
    assert!(status.starts_with("hmi: running, emulated\n") && status.contains(note), "{status}");
    let listed = bench.ok(&["ps", "p"]);
    assert!(listed.contains(note), "{listed}");
}

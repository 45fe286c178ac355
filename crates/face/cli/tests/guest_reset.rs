//! Lets the watchdog reset the machine, which is only possible in a guest. This is the last test of its guest.

use harness::plant::Bench;
use std::time::{Duration, Instant};

/// Watchdog timeout. The emulator may delay the supervisor for a while.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn a_plant_whose_critical_process_hangs_is_reset_by_its_watchdog() {
    testkit::guest::required();
    let plant = format!(
        "[[process]]\nname = \"loop\"\ncommand = [\"tahti\", \"demo\", \"llrf\", \"--period\", \"20ms\"]\n\
         heartbeat = {{ within = \"5s\", critical = true }}\nrestart = {{ policy = \"never\" }}\n\
         [watchdog]\ndevice = \"/dev/watchdog0\"\ntimeout = \"{}s\"\n",
        TIMEOUT.as_secs()
    );
    let bench = Bench::new("reset", &plant);
    bench.ok(&["up", "plant.toml", "--detach"]);
    bench.until("armed", || bench.log().contains("/dev/watchdog0 armed, timeout 20s"));
    // The watchdog is a device with its own clock, which a test cannot advance. While it is petted, the machine is
    // not reset.
    std::thread::sleep(TIMEOUT + TIMEOUT / 4);
    assert!(!bench.log().contains("NOT PETTED"), "{}", bench.log());
    sys::process::Process::open(bench.pid("loop")).unwrap().signal(19).unwrap();
    bench.until("reported", || bench.log().contains("NOT PETTED: no heartbeat from loop"));
    testkit::guest::ends_here();
    let begun = Instant::now();
    while begun.elapsed() < 4 * TIMEOUT {
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the watchdog is not fed, and the machine still runs: {}", bench.log());
}

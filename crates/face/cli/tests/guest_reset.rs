//! What nobody may do to a machine that others use: have its watchdog reset it. The last test of its guest.

use harness::plant::Bench;
use std::time::{Duration, Instant};

/// The emulator may keep the supervisor waiting for a while.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn a_plant_whose_critical_process_hangs_is_reset_by_the_watchdog_that_it_fed_until_then() {
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
    // Its clock is a device's: nobody can advance it. Fed, the machine outlives it.
    std::thread::sleep(TIMEOUT + TIMEOUT / 4);
    assert!(!bench.log().contains("NOT PETTED"), "{}", bench.log());
    sys::process::Process::open(bench.pid("loop")).unwrap().signal(19).unwrap();
    bench.until("told", || bench.log().contains("NOT PETTED: no heartbeat from loop"));
    testkit::guest::ends_here();
    let begun = Instant::now();
    while begun.elapsed() < 4 * TIMEOUT {
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("nobody feeds the watchdog, and the machine still runs: {}", bench.log());
}

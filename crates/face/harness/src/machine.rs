//! The machine, which tests share.

use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which another test may hold a shield before this test fails.
const OTHERS: Duration = Duration::from_secs(600);

/// Waits until no run directory except `own` has a shield.
pub fn wait_for_others(own: &Path) {
    let begin = Instant::now();
    let mut said = false;
    loop {
        let holder = std::fs::read_to_string("/run/tahti-shield.lock").unwrap_or_default();
        if holder.is_empty() || Path::new(&holder) == own || !Path::new(&holder).join("shield.json").exists() {
            return;
        }
        assert!(begin.elapsed() < OTHERS, "a shield of {holder} prevents this test: release it there");
        if !said {
            eprintln!("waiting for the shield of {holder} to go");
            said = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The last CPU of the machine, for tests that change the machine. They need root and at least two CPUs.
pub fn last_cpu() -> String {
    // The effective user id, from the kernel.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    assert!(root, "these tests change the machine: run them as root (--unprivileged leaves them out)");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let last = online.trim().split([',', '-']).next_back().unwrap().to_owned();
    assert!(last != "0", "these tests need two CPUs");
    last
}

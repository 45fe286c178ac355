//! A machine has one shield: a test that makes one waits until somebody else's has gone.

use std::path::Path;
use std::time::{Duration, Instant};

/// How long somebody else's shield may stand before the test fails and names it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until no run directory but `own` has a shield.
pub(crate) fn wait(own: &Path) {
    let begin = Instant::now();
    let mut said = false;
    loop {
        let holder = std::fs::read_to_string("/run/tahti-shield.lock").unwrap_or_default();
        if holder.is_empty() || Path::new(&holder) == own || !Path::new(&holder).join("shield.json").exists() {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "a shield of {holder} stands in this test's way: release it there");
        if !said {
            eprintln!("waiting for the shield of {holder} to go");
            said = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

//! Kills this process at a chosen write, for tests which prove that no value is lost.
//!
//! Present only with the feature `fault-injection`, which no shipped binary has.

/// Kills the process before the write with the number in `TAHTI_DIE_AT_WRITE`. Journal writes count, too.
#[cfg(feature = "fault-injection")]
pub(crate) fn before_write() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed) + 1;
    let fatal = std::env::var("TAHTI_DIE_AT_WRITE").ok().and_then(|text| text.parse::<u32>().ok());
    if fatal == Some(number) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// Does nothing in a shipped binary.
#[cfg(not(feature = "fault-injection"))]
pub(crate) fn before_write() {}

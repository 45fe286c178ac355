//! Clocks.

use base::{DurNs, MonoNs};
use rustix::thread::ClockId;

/// Reads `CLOCK_MONOTONIC` (through the vDSO where the clock source allows it: no system call).
///
/// Real-time: neither allocates nor blocks.
#[must_use]
pub fn mono_now() -> MonoNs {
    to_ns(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// Processor time that the calling thread has used.
///
/// Real-time: neither allocates nor blocks; a system call.
#[must_use]
pub fn thread_cpu() -> DurNs {
    DurNs(to_ns(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).0 as i64)
}

fn to_ns(time: rustix::time::Timespec) -> MonoNs {
    MonoNs(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sleeps until `wake` on `CLOCK_MONOTONIC`; returns at once if that has passed. Interrupted sleeps go on.
///
/// Real-time: blocks until `wake`; does not allocate.
pub fn sleep_until(wake: MonoNs) {
    let request =
        rustix::time::Timespec { tv_sec: (wake.0 / 1_000_000_000) as i64, tv_nsec: (wake.0 % 1_000_000_000) as i64 };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_sleep_never_ends_early() {
        let wake = mono_now() + DurNs::from_ms(2);
        sleep_until(wake);
        assert!(mono_now() >= wake);
        sleep_until(MonoNs(0));
    }
}

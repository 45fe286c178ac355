//! Clocks.

use crate::error::{Doing, Error, Result};
use base::{DurNs, MonoNs};
use rustix::thread::ClockId;
use rustix::time::DynamicClockId;

/// Reads `CLOCK_MONOTONIC` (through the vDSO without a system call if the clock source supports it).
///
/// Real-time: neither allocates nor blocks.
#[must_use]
pub fn mono_now() -> MonoNs {
    to_ns(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// Reads `CLOCK_REALTIME`: nanoseconds since 1970.
///
/// Real-time: neither allocates nor blocks.
#[must_use]
pub fn wall_ns() -> u64 {
    to_ns(rustix::time::clock_gettime(ClockId::Realtime)).0
}

/// `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC`: the time that the machine has been suspended since boot, accurate to about
/// 100 ns.
#[must_use]
pub fn boot_offset() -> DurNs {
    let before = mono_now().0 as i64;
    let boot = to_ns(rustix::time::clock_gettime(ClockId::Boottime)).0 as i64;
    let between = (before + mono_now().0 as i64) / 2;
    // On a machine that was never suspended, both clocks are equal.
    DurNs((boot - between).max(0) / 1000 * 1000)
}

/// The processor's time stamp counter; `None` on architectures without support. The kernel knows whether it runs evenly
/// and equally on all CPUs: its clock source is then `tsc`.
///
/// Real-time: a single instruction, which may execute before preceding ones.
#[must_use]
#[inline]
pub fn counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor of this architecture has the instruction, and supported kernels permit it.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// `CLOCK_MONOTONIC` and `CLOCK_TAI` (nanoseconds since 1970) at the same time, as accurately as possible: the best of
/// several attempts, each between two readings.
///
/// `CLOCK_TAI` equals UTC until a program (chrony, ptp4l) sets the offset in the kernel; see [`discipline`].
///
/// # Errors
/// The kernel's, if it has no such clock.
pub fn mono_and_tai() -> Result<(MonoNs, u64)> {
    let mut best = (u64::MAX, MonoNs(0), 0);
    for _ in 0..16 {
        let before = mono_now().0;
        let tai = rustix::time::clock_gettime_dynamic(DynamicClockId::Tai).doing(|| "read CLOCK_TAI".to_owned())?;
        let tai = to_ns(tai).0;
        let after = mono_now().0;
        if after - before < best.0 {
            best = (after - before, MonoNs(before + (after - before) / 2), tai);
        }
    }
    Ok((best.1, best.2))
}

/// The current time, and the corresponding value of the time scale on which pulses are counted: TAI, or the time since
/// boot if the kernel has no such clock.
#[must_use]
pub fn mono_and_scale() -> (MonoNs, u64) {
    mono_and_tai().unwrap_or_else(|_| {
        let now = mono_now();
        (now, now.0)
    })
}

/// Processor time used by the calling thread.
///
/// Real-time: neither allocates nor blocks; a system call.
#[must_use]
pub fn thread_cpu() -> DurNs {
    DurNs(to_ns(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).0 as i64)
}

/// Processor time used by a process so far, including its ended threads.
///
/// # Errors
/// There is no such process.
pub fn process_cpu(pid: i32) -> Result<DurNs> {
    let doing = || format!("read the processor time of process {pid}");
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid and writable for the call.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if code != 0 {
        return Err(rustix::io::Errno::from_raw_os_error(code)).doing(doing);
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid and writable for the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(Error::last(doing()));
    }
    Ok(DurNs(time.tv_sec * 1_000_000_000 + time.tv_nsec))
}

fn to_ns(time: rustix::time::Timespec) -> MonoNs {
    MonoNs(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sleeps until `wake` on `CLOCK_MONOTONIC`. Returns at once if it has passed. Interrupted sleeps are continued.
///
/// Real-time: blocks until `wake`; does not allocate.
pub fn sleep_until(wake: MonoNs) {
    let request =
        rustix::time::Timespec { tv_sec: (wake.0 / 1_000_000_000) as i64, tv_nsec: (wake.0 % 1_000_000_000) as i64 };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
}

/// State of the synchronisation of `CLOCK_REALTIME`.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// Whether the kernel considers the clock synchronised.
    pub synchronised: bool,
    /// TAI minus UTC in seconds; 0 if not set.
    pub tai_offset_s: i32,
    /// Error estimated by the synchronisation daemon.
    pub estimated_error_us: i64,
    /// Maximum error.
    pub maximum_error_us: i64,
    /// Frequency correction, in parts per billion (10⁻⁹).
    pub frequency_ppb: i64,
}

/// Reads the synchronisation state of `CLOCK_REALTIME`, without changing anything.
///
/// # Errors
/// The kernel's.
pub fn discipline() -> Result<Discipline> {
    // SAFETY: a timex of zeros is valid; mode 0 sets nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is valid and writable for the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(Error::last("read the clock's discipline"));
    }
    Ok(Discipline {
        synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        tai_offset_s: timex.tai,
        estimated_error_us: timex.esterror,
        maximum_error_us: timex.maxerror,
        // `freq` is in parts per million with 16 bits of fraction.
        frequency_ppb: timex.freq.saturating_mul(1000) >> 16,
    })
}

/// The resolution of `CLOCK_MONOTONIC` timers: 1 ns with high-resolution timers, a tick without.
#[must_use]
pub fn mono_resolution() -> DurNs {
    DurNs(to_ns(rustix::time::clock_getres(ClockId::Monotonic)).0 as i64)
}

/// Formats a Unix time as local time with a format of `strftime(3)`. Returns the number of bytes, `None` if they do not
/// fit (at most 255 bytes, also for the format).
///
/// Uses the C library's time zone (`TZ`, `/etc/localtime`, read at the first call). Does not allocate after that. Takes
/// the C library's time zone lock, which another thread holds only for the same operation.
#[must_use]
pub fn local_text(unix: u64, format: &str, out: &mut [u8]) -> Option<usize> {
    if format.is_empty() {
        return Some(0);
    }
    // A mark after the text distinguishes an empty result from one that does not fit.
    let (mut ended, mut text) = ([0_u8; 258], [0_u8; 258]);
    if format.len() > 255 || format.contains('\0') {
        return None;
    }
    ended[..format.len()].copy_from_slice(format.as_bytes());
    ended[format.len()] = b'.';
    let unix = i64::try_from(unix).ok()?;
    let mut fields = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, which fills the structure or returns null.
    if unsafe { libc::localtime_r(&raw const unix, fields.as_mut_ptr()) }.is_null() {
        return None;
    }
    // SAFETY: the buffer has the length passed, the format is zero-terminated, and localtime_r has filled the
    // structure.
    let length =
        unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len() - 1, ended.as_ptr().cast(), fields.as_ptr()) };
    let length = length.checked_sub(1)?;
    out.get_mut(..length)?.copy_from_slice(&text[..length]);
    Some(length)
}

/// Seconds by which local time is ahead of UTC at a Unix time, from the C library's time zone (`TZ`, `/etc/localtime`).
#[must_use]
pub fn local_offset_secs(unix: i64) -> i64 {
    let mut fields = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, which fills the structure or returns null.
    let filled = unsafe { libc::localtime_r(&raw const unix, fields.as_mut_ptr()) };
    if filled.is_null() {
        return 0;
    }
    // SAFETY: all-zero bytes are a valid tm, and localtime_r has filled it.
    unsafe { fields.assume_init() }.tm_gmtoff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_is_written_if_it_fits() {
        let mut out = [0; 39];
        let offset = local_offset_secs(1_700_000_000);
        let length = local_text(1_700_000_000, "%s %% %z", &mut out).unwrap();
        let sign = if offset < 0 { '-' } else { '+' };
        let minutes = offset.abs() / 60;
        let expected = format!("1700000000 % {sign}{:02}{:02}", minutes / 60, minutes % 60);
        assert_eq!(std::str::from_utf8(&out[..length]), Ok(&*expected));
        assert_eq!(local_text(0, "", &mut out), Some(0));
        assert_eq!(local_text(0, "%Y", &mut out[..3]), None);
        assert_eq!(local_text(0, "a\0b", &mut out), None);
        assert_eq!(local_text(0, &"x".repeat(256), &mut [0; 300]), None);
    }

    #[test]
    fn a_process_has_used_at_least_the_cpu_time_of_its_thread() {
        let thread = thread_cpu();
        assert!(process_cpu(std::process::id() as i32).is_ok_and(|process| process >= thread));
        assert!(process_cpu(1 << 28).is_err());
    }

    #[test]
    fn an_absolute_sleep_never_ends_early() {
        let wake = mono_now() + DurNs::from_ms(2);
        sleep_until(wake);
        assert!(mono_now() >= wake);
        sleep_until(MonoNs(0));
    }
}

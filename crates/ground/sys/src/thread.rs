//! The calling thread: its name, its resource usage, and settings for steady timing.

use crate::error::{Doing, Error, Result};
use crate::root::RootDir;
use base::CpuSet;
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// Resource usage of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Page faults without disk access.
    pub minor_faults: u64,
    /// Page faults with disk access.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Processor time, with a resolution of 1 us.
    pub cpu: base::DurNs,
}

/// Permanently prevents programs started by the calling thread from gaining privileges by `exec` (`no_new_privs`).
///
/// # Errors
/// The kernel's.
pub fn no_new_privileges() -> Result<()> {
    rustix::thread::set_no_new_privs(true).doing(|| "give up new privileges (no_new_privs)".to_owned())
}

/// Resource usage of the calling thread.
///
/// Real-time: one system call that neither blocks nor allocates.
#[must_use]
pub fn usage() -> ThreadUsage {
    // SAFETY: a struct of integers; all zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable; RUSAGE_THREAD with a valid pointer cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    ThreadUsage {
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
        cpu: base::DurNs(
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000_000
                + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1_000,
        ),
    }
}

/// The calling thread's id.
#[must_use]
pub fn id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The CPU that the calling thread had a moment ago.
///
/// Real-time: no system call on most processors.
#[must_use]
pub fn cpu() -> base::CpuId {
    rustix::thread::sched_getcpu() as base::CpuId
}

/// Names the calling thread; the kernel keeps 15 bytes.
///
/// # Errors
/// The kernel's.
pub fn set_name(name: &str) -> Result<()> {
    let text = CString::new(name.replace('\0', "?")).unwrap_or_default();
    rustix::thread::set_name(&text).doing(|| format!("name a thread {name:?}"))
}

/// Makes the calling thread's timers expire exactly when due, instead of up to 50 us later (time-sharing threads only;
/// real-time threads have no slack).
///
/// # Errors
/// The kernel's.
pub fn no_timer_slack() -> Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes one number and touches no memory.
    let answer = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    if answer == 0 { Ok(()) } else { Err(Error::last("set the timer slack to 1 ns")) }
}

/// Keeps `cpus` (`None`: every CPU) out of deep sleep for as long as the descriptor is open.
///
/// Returns `None` if the latency of each of them is already limited, as by a shield. There is no other limit for single
/// CPUs that ends with the process, and the global one makes every idle CPU of the machine poll.
///
/// # Errors
/// The kernel's: no such device, or no privilege.
pub fn keep_awake(cpus: Option<&CpuSet>) -> Result<Option<OwnedFd>> {
    let limited = cpus.is_some_and(|cpus| is_latency_limited(&RootDir::machine(), cpus));
    if limited { Ok(None) } else { hold_idle_latency(0).map(Some) }
}

/// Whether each of `cpus` has a limit on the latency of its idle states.
fn is_latency_limited(root: &RootDir, cpus: &CpuSet) -> bool {
    let limit = |cpu| root.read(&format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"));
    // 0 means no limit; `n/a` is the strictest.
    !cpus.is_empty() && cpus.iter().all(|cpu| limit(cpu).is_ok_and(|text| !matches!(text.trim(), "" | "0")))
}

/// Requests idle states with an exit latency of at most `us` microseconds on every CPU, for as long as the descriptor
/// is open (`/dev/cpu_dma_latency`). With 0, idle CPUs poll.
fn hold_idle_latency(us: i32) -> Result<OwnedFd> {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let doing = || format!("hold {DEVICE} at {us} us");
    let device = rustix::fs::open(DEVICE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).doing(doing)?;
    rustix::io::write(&device, &us.to_ne_bytes()).doing(doing)?;
    Ok(device)
}

/// Makes the calling thread's floating-point unit treat denormal numbers as zero: arithmetic with them is up to a
/// hundred times slower. Returns whether this CPU supports it.
#[must_use]
pub fn flush_denormals() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const FLUSH_TO_ZERO: u32 = 1 << 15;
        const DENORMALS_ARE_ZERO: u32 = 1 << 6;
        let mut control = 0u32;
        // SAFETY: stores the control register into `control`, which is writable.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack)) };
        control |= FLUSH_TO_ZERO | DENORMALS_ARE_ZERO;
        // SAFETY: both bits exist on every x86-64; they change results below 2^-1022 only.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, readonly)) };
        true
    }
    #[cfg(target_arch = "aarch64")]
    {
        const FLUSH_TO_ZERO: u64 = 1 << 24;
        let mut control: u64;
        // SAFETY: reads the control register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack)) };
        control |= FLUSH_TO_ZERO;
        // SAFETY: the bit exists on every AArch64; it changes results below 2^-1022 only.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) control, options(nomem, nostack)) };
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_limit_of_cpus_is_read_and_a_missing_one_means_no_limit() {
        let folder = std::env::temp_dir().join(format!("tahti-awake-{}", std::process::id()));
        let root = RootDir::at(&folder);
        for (cpu, limit) in [(0, "0\n"), (1, "10\n"), (2, "n/a\n")] {
            let power = folder.join(format!("sys/devices/system/cpu/cpu{cpu}/power"));
            std::fs::create_dir_all(&power).unwrap();
            std::fs::write(power.join("pm_qos_resume_latency_us"), limit).unwrap();
        }
        let limited = |cpus: &str| is_latency_limited(&root, &cpus.parse().unwrap());
        let found = ["1", "1-2", "0", "0-2", "3", ""].map(limited);
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(found, [true, true, false, false, false, false]);
    }

    #[test]
    fn denormals_become_zero_on_this_thread_only() {
        let product = || std::hint::black_box(f64::MIN_POSITIVE) * std::hint::black_box(0.25);
        std::thread::spawn(move || {
            if flush_denormals() {
                assert_eq!(product(), 0.0);
            }
        })
        .join()
        .unwrap();
        assert!(product() > 0.0);
    }

    #[test]
    fn a_thread_has_a_name_and_a_resource_usage() {
        std::thread::spawn(|| {
            set_name("a-name-that-is-too-long").unwrap();
            no_timer_slack().unwrap();
            let name = std::fs::read_to_string(format!("/proc/self/task/{}/comm", id())).unwrap();
            assert_eq!(name, "a-name-that-is-\n");
            // If another thread uses the CPU meanwhile, the end of a sleep has passed before it begins.
            let before = usage();
            let slept = (0..100).any(|_| {
                crate::clock::sleep_until(crate::clock::mono_now() + base::DurNs::from_ms(1));
                usage().voluntary > before.voluntary
            });
            assert!(slept);
        })
        .join()
        .unwrap();
    }
}

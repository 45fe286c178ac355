//! Memory of this process.

use crate::error::{Doing, Result};
use rustix::mm::{Advice, MapFlags, MlockAllFlags, ProtFlags};

/// Bytes of a huge page on the supported CPUs.
const HUGE: usize = 2 << 20;

/// Locks all pages that this process has touched or will touch. Pages never touched use no memory (`MCL_ONFAULT`).
///
/// # Errors
/// The kernel's: `EPERM`, `ENOMEM` (`RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`).
pub fn lock_touched() -> Result<()> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .doing(|| "lock the memory of this process".to_owned())
}

/// Locks all present and future pages of the process. They are populated at once.
///
/// # Errors
/// The kernel's: `EPERM` or `ENOMEM` if `RLIMIT_MEMLOCK` is too small and `CAP_IPC_LOCK` is missing.
pub fn lock_all() -> Result<()> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).doing(|| "lock all memory".to_owned())
}

/// Configures the C library's allocator to keep its memory: no trimming, no separate mappings for large blocks
/// (unmapping them would interrupt every CPU of the process), one arena. Returns whether the allocator supports this.
pub fn keep_heap() -> bool {
    #[cfg(target_env = "gnu")]
    {
        let options = [(libc::M_TRIM_THRESHOLD, -1), (libc::M_MMAP_MAX, 0), (libc::M_ARENA_MAX, 1)];
        // SAFETY: mallopt only sets the allocator's own parameters, under its own lock.
        options.into_iter().all(|(option, value)| unsafe { libc::mallopt(option, value) } == 1)
    }
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Disables huge pages for this process, because the kernel creates and splits them at arbitrary times.
///
/// # Errors
/// The kernel's.
pub fn no_huge_pages() -> Result<()> {
    rustix::thread::disable_transparent_huge_pages(true).doing(|| "keep huge pages away".to_owned())
}

/// Places this memory on huge pages wherever whole ones fit. Touched parts are moved (Linux 6.1), others get huge pages
/// when touched. The contents are preserved. An allocator's memory may have been used before; then its pages are small,
/// whatever the advice.
///
/// If the kernel has no huge pages, or they are disabled for this process ([`no_huge_pages`]), nothing changes.
/// `AnonHugePages` in `/proc/self/smaps` shows the result. Not for a real-time thread: the kernel copies memory, and
/// interrupts the other CPUs of the process.
pub fn on_huge_pages<T>(memory: &mut [T]) {
    collapsed(memory);
}

/// Whether all whole huge pages of this memory are huge now. False if a part has not been touched yet.
fn collapsed<T>(memory: &mut [T]) -> bool {
    /// `MADV_COLLAPSE`.
    const COLLAPSE: libc::c_int = 25;
    let begin = memory.as_mut_ptr();
    let (before, bytes) = (begin.addr().next_multiple_of(HUGE) - begin.addr(), size_of_val(memory));
    let whole = bytes.saturating_sub(before) / HUGE * HUGE;
    if whole == 0 {
        return false;
    }
    let first = begin.wrapping_byte_add(before).cast();
    // SAFETY: the pages are within the slice, and the advice does not change their contents.
    let advised = unsafe { rustix::mm::madvise(first, whole, Advice::LinuxHugepage) };
    // SAFETY: as above; the kernel moves the contents.
    advised.is_ok() && unsafe { libc::madvise(first, whole, COLLAPSE) } == 0
}

/// Returns the allocator's unused memory to the kernel.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time; it locks the allocator itself.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Total memory of the machine.
#[must_use]
pub fn total() -> base::Size {
    let info = rustix::system::sysinfo();
    base::Size((info.totalram as u64).saturating_mul(u64::from(info.mem_unit)))
}

/// Checks whether `bytes` of memory can be locked: maps, locks and unmaps them.
///
/// # Errors
/// The kernel's.
pub fn try_lock(bytes: usize) -> Result<()> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let doing = |what: &str| format!("{what} {bytes} bytes of memory");
    // SAFETY: an anonymous mapping at an address chosen by the kernel touches no existing memory.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.doing(|| doing("map"))?;
    // SAFETY: `start` and `bytes` are the mapping just created.
    let locked = unsafe { rustix::mm::mlock(start, bytes) };
    // SAFETY: the mapping belongs to this function and is no longer referenced; unmapping unlocks it.
    let unmapped = unsafe { rustix::mm::munmap(start, bytes) };
    locked.doing(|| doing("lock"))?;
    unmapped.doing(|| doing("unmap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_moved_to_huge_pages_where_whole_ones_fit_and_keeps_its_content() {
        on_huge_pages(&mut vec![0u8; HUGE - 1]);
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        // Five whole huge pages, of which the last are not touched yet, because large blocks come from the system as
        // zeros.
        let mut memory = vec![0u64; 6 * HUGE / 8];
        memory[1..2 * HUGE / 8].fill(7);
        on_huge_pages(&mut memory[1..]);
        assert!(memory[1..2 * HUGE / 8].iter().all(|word| *word == 7));
        memory[2 * HUGE / 8..].fill(8);
        let is_all = collapsed(&mut memory[1..]);
        let first = memory.as_ptr().addr().wrapping_add(8).next_multiple_of(HUGE);
        let whole = (memory.as_ptr_range().end.addr() - first) / HUGE * HUGE;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut mapping = maps.lines().skip_while(|line| !line.starts_with(&format!("{first:x}-"))).skip(1);
        let huge_kib = mapping.find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
        let huge_kib: usize = huge_kib.trim().trim_end_matches(" kB").parse().unwrap();
        // Before Linux 6.1 nothing is moved. If the memory is fragmented, there is no huge page to move to.
        assert!(!is_all || huge_kib * 1024 == whole, "{huge_kib} KiB of {whole} bytes");
        let flags = mapping.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
    }

    #[test]
    fn locking_more_memory_than_there_is_address_space_is_refused() {
        assert!(try_lock(usize::MAX / 2).is_err());
        assert!(try_lock(0).is_err());
    }
}

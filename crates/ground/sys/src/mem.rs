//! This process's own memory.

use crate::error::{Doing, Result};
use rustix::mm::{Advice, MapFlags, MlockAllFlags, ProtFlags};

/// Bytes of a huge page, as this kind of CPU has them.
const HUGE: usize = 2 << 20;

/// Keeps every page that this process has touched, and will touch, in memory; pages never touched cost
/// nothing (`MCL_ONFAULT`).
///
/// # Errors
/// The kernel's: `EPERM`, `ENOMEM` (`RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`).
pub fn lock_touched() -> Result<()> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .doing(|| "lock the memory of this process".to_owned())
}

/// Locks every page that the process has and will ever have; they are brought in at once.
///
/// # Errors
/// The kernel's: `EPERM` or `ENOMEM` where `RLIMIT_MEMLOCK` is too small and `CAP_IPC_LOCK` is missing.
pub fn lock_all() -> Result<()> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).doing(|| "lock all memory".to_owned())
}

/// Tells the C library's allocator to keep what it has: no trimming, no mappings of their own for large blocks
/// (their unmapping would interrupt every CPU of the process), one arena. Says whether there was one to tell.
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

/// Keeps the kernel from giving this process huge pages, which it makes and splits at times of its own.
///
/// # Errors
/// The kernel's.
pub fn no_huge_pages() -> Result<()> {
    rustix::thread::disable_transparent_huge_pages(true).doing(|| "keep huge pages away".to_owned())
}

/// Has this memory lie on huge pages wherever whole ones fit: what was touched already is moved there (Linux 6.1), what is touched later comes
/// there at once. What stands in it stays. Memory of an allocator may have been used before: then its pages are small, whatever is advised.
///
/// Where the kernel has no huge pages, or keeps them from this process ([`no_huge_pages`]), memory stays as it is; where there are some shows in
/// `AnonHugePages` of `/proc/self/smaps`. Not for a real-time thread: the kernel copies, and interrupts the other CPUs of the process.
pub fn on_huge_pages<T>(memory: &mut [T]) {
    collapsed(memory);
}

/// Whether all whole huge pages of this memory are huge now: not where some of it was never touched, which comes later.
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
    // SAFETY: the pages lie in the slice, and the advice changes nothing that is in them.
    let advised = unsafe { rustix::mm::madvise(first, whole, Advice::LinuxHugepage) };
    // SAFETY: as above: the kernel moves what is in them.
    advised.is_ok() && unsafe { libc::madvise(first, whole, COLLAPSE) } == 0
}

/// Gives memory that the allocator holds but nobody uses back to the kernel.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time; it locks the allocator itself.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// How much memory the machine has.
#[must_use]
pub fn total() -> base::Size {
    let info = rustix::system::sysinfo();
    base::Size((info.totalram as u64).saturating_mul(u64::from(info.mem_unit)))
}

/// Maps `bytes` of memory, locks them, and gives them back: whether that is allowed.
///
/// # Errors
/// The kernel's.
pub fn try_lock(bytes: usize) -> Result<()> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let doing = |what: &str| format!("{what} {bytes} bytes of memory");
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.doing(|| doing("map"))?;
    // SAFETY: `start` and `bytes` are the mapping just made.
    let locked = unsafe { rustix::mm::mlock(start, bytes) };
    // SAFETY: the mapping is this function's own and nothing refers to it any more; unmapping unlocks it.
    let unmapped = unsafe { rustix::mm::munmap(start, bytes) };
    locked.doing(|| doing("lock"))?;
    unmapped.doing(|| doing("unmap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lies_on_huge_pages_where_whole_ones_fit_touched_before_or_after_with_what_stands_in_it() {
        on_huge_pages(&mut vec![0u8; HUGE - 1]);
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        // Five whole ones, of which the last are not touched yet: large blocks come from the system as zeros.
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
        // A kernel before 6.1 moves nothing, and one whose memory is in pieces has no huge page to move to.
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

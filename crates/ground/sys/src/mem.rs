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

/// Asks for huge pages wherever whole ones lie in this memory, which nobody has touched yet; of how many bytes that is. Whether the kernel
/// gives them shows once they are touched (`AnonHugePages` in `/proc/self/smaps`): it need not have any.
///
/// # Errors
/// The kernel's: `EINVAL` where it is built without them.
pub fn want_huge_pages<T>(memory: &mut [T]) -> Result<usize> {
    let begin = memory.as_mut_ptr();
    let (before, bytes) = (begin.addr().next_multiple_of(HUGE) - begin.addr(), size_of_val(memory));
    let whole = bytes.saturating_sub(before) / HUGE * HUGE;
    if whole > 0 {
        let first = begin.wrapping_byte_add(before).cast();
        // SAFETY: the pages lie in the slice, and the advice changes nothing that is in them.
        unsafe { rustix::mm::madvise(first, whole, Advice::LinuxHugepage) }
            .doing(|| format!("ask for huge pages in {whole} bytes of memory"))?;
    }
    Ok(whole)
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
    fn huge_pages_are_asked_for_where_whole_ones_fit_and_nowhere_else() {
        assert_eq!(want_huge_pages(&mut vec![0u8; HUGE - 1]), Ok(0));
        let mut memory = vec![0u64; 4 * HUGE / 8];
        let Ok(whole) = want_huge_pages(&mut memory[1..]) else {
            // A kernel without them.
            assert!(!std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists());
            return;
        };
        assert!(whole % HUGE == 0 && (2 * HUGE..=3 * HUGE).contains(&whole), "{whole}");
        let first = memory.as_ptr().addr().wrapping_add(8).next_multiple_of(HUGE);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = maps.split("VmFlags:").zip(maps.split("VmFlags:").skip(1)).find(|(head, _)| {
            let line = head.lines().rev().find(|line| line.contains('-') && !line.contains("kB")).unwrap_or_default();
            let begin = line.split('-').next().and_then(|begin| usize::from_str_radix(begin, 16).ok());
            begin == Some(first)
        });
        let flags = mapping.unwrap().1.lines().next().unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
    }

    #[test]
    fn locking_more_memory_than_there_is_address_space_is_refused() {
        assert!(try_lock(usize::MAX / 2).is_err());
        assert!(try_lock(0).is_err());
    }
}

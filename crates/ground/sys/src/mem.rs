//! This process's own memory.

use crate::error::{Doing, Result};
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags};

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
    fn locking_more_memory_than_there_is_address_space_is_refused() {
        assert!(try_lock(usize::MAX / 2).is_err());
        assert!(try_lock(0).is_err());
    }
}

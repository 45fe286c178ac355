//! This process's own memory.

/// Gives memory that the allocator holds but nobody uses back to the kernel.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time; it locks the allocator itself.
    let _ = unsafe { libc::malloc_trim(0) };
}

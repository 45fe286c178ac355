//! Registers of a device: its memory mapped into this process, accessed by volatile loads and stores.

use crate::error::{Doing, Error, Result};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Mapped memory of a device. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed by single volatile operations.
unsafe impl Send for Mapping {}
// SAFETY: as above; the device's bus orders the accesses.
unsafe impl Sync for Mapping {}

/// Type of a register's value: 8, 16, 32 or 64 bits.
pub trait Word: Copy + sealed::Sealed {}

mod sealed {
    /// Any bit pattern is valid.
    pub trait Sealed {}
}

macro_rules! words {
    ($($word:ty)*) => { $(impl sealed::Sealed for $word {} impl Word for $word {})* };
}
words!(u8 u16 u32 u64);

/// One register, created by [`Region::register`]. Reading and writing need no further checks.
#[derive(Clone, Debug)]
pub struct Register<W> {
    mapping: Arc<Mapping>,
    at: usize,
    word: PhantomData<W>,
}

impl Region {
    /// Maps `bytes` of `file` from `offset` on.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for an empty region.
    pub fn map(file: impl AsFd, offset: u64, bytes: usize) -> Result<Self> {
        let doing = || format!("map {bytes} bytes of a device from {offset:#x} on");
        if bytes == 0 {
            return Err(Error { doing: doing(), errno: Errno::INVAL });
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset) };
        let base = NonNull::new(at.doing(doing)?.cast()).ok_or(Error { doing: doing(), errno: Errno::NOMEM })?;
        Ok(Self { mapping: Arc::new(Mapping { base, bytes }) })
    }

    /// Its address, for code that accesses registers directly (by volatile operations of their width). Valid as long as
    /// a clone exists.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.mapping.base.as_ptr()
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// The register at byte offset `at`.
    ///
    /// # Errors
    /// `EINVAL` if it is outside the region or not aligned to its size.
    pub fn register<W: Word>(&self, at: usize) -> Result<Register<W>> {
        let size = size_of::<W>();
        let inside = at.checked_add(size).is_some_and(|end| end <= self.mapping.bytes);
        if !inside || !at.is_multiple_of(size) {
            let doing =
                format!("find a register of {size} bytes at {at:#x} of a region of {:#x} bytes", self.mapping.bytes);
            return Err(Error { doing, errno: Errno::INVAL });
        }
        Ok(Register { mapping: self.mapping.clone(), at, word: PhantomData })
    }
}

impl<W: Word> Register<W> {
    /// Reads the register with exactly one access.
    ///
    /// Real-time: one load from the device, whose duration depends on its bus.
    #[must_use]
    pub fn read(&self) -> W {
        // SAFETY: within the mapping and aligned, as checked in `register`; the mapping lives as long as self.
        unsafe { self.at().read_volatile() }
    }

    /// Writes the register with exactly one access.
    ///
    /// Real-time: one store to the device.
    pub fn write(&self, value: W) {
        // SAFETY: as in `read`.
        unsafe { self.at().write_volatile(value) }
    }

    fn at(&self) -> *mut W {
        self.mapping.base.as_ptr().wrapping_add(self.at).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with this length, and every register keeps it open.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_at_their_offsets_and_none_is_outside_the_region() {
        let memory = crate::shm::SharedWords::create("registers", 512).unwrap();
        let region = Region::map(memory.fd(), 0, 4096).unwrap();
        region.register::<u32>(8).unwrap().write(0x1122_3344);
        assert_eq!(region.register::<u16>(8).unwrap().read().swap_bytes().to_be(), 0x3344);
        assert_eq!(region.register::<u8>(4095).map(|register| register.read()), Ok(0));
        for (at, what) in [(4096, "behind"), (4093, "across the end"), (2, "not aligned"), (usize::MAX, "far away")] {
            assert!(region.register::<u32>(at).is_err(), "{what}");
        }
        let kept = region.register::<u64>(8).unwrap();
        drop(region);
        assert_eq!(kept.read(), 0x1122_3344, "a register keeps its mapping");
        assert!(Region::map(memory.fd(), 0, 0).is_err());
    }
}

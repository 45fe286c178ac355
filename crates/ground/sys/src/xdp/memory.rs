//! Memory shared with the kernel: chunks for packets, and rings of descriptors.

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Mapped memory.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Zeroed and populated: no page faults later.
    pub(super) fn anonymous(bytes: usize) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        Ok(Self { base: NonNull::new(at.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    fn of(socket: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, socket, offset) }?;
        Ok(Self { base: NonNull::new(at.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of `count` values of a type at offset `at`; `None` if they exceed the mapping.
    fn place<T>(&self, at: usize, count: usize) -> Option<*mut T> {
        let end = size_of::<T>().checked_mul(count)?.checked_add(at)?;
        // SAFETY: within the mapping, as checked.
        (end <= self.bytes).then(|| unsafe { self.base.as_ptr().add(at) }.cast())
    }

    /// Bytes of a packet; empty if out of range. Its chunks must be owned by this process, so that the kernel does not
    /// write there.
    pub(super) fn packet(&self, at: u64, length: usize) -> &[u8] {
        let Some(at) = usize::try_from(at).ok().and_then(|at| self.place(at, length)) else { return &[] };
        // SAFETY: within the mapping, which lives as long as self. Nothing writes there (see above) except `take_word`,
        // which writes only before packets, where no slice is.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    /// Takes the word directly before a packet and replaces it by 0. Returns 0 if out of range.
    pub(super) fn take_word(&self, at: u64) -> u64 {
        let place = usize::try_from(at).ok().and_then(|at| at.checked_sub(size_of::<u64>()));
        let place = place.filter(|at| at.is_multiple_of(align_of::<u64>())).and_then(|at| self.place::<u64>(at, 1));
        // SAFETY: within the mapping and aligned, as checked. Accessed only as an atomic.
        place.map_or(0, |place| unsafe { AtomicU64::from_ptr(place) }.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries between the kernel and this process, each the only user of its end. The kernel sees changes after
/// [`show`](Outgoing::show).
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Mapped,
    places: XdpRingOffset,
    mask: u32,
    /// This process's index, as the kernel sees it after `show`.
    ours: u32,
    /// The kernel's index at the last reading.
    theirs: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring with `count` entries, a power of two.
    pub(super) fn map(socket: BorrowedFd<'_>, offset: u64, places: XdpRingOffset, count: usize) -> Result<Self> {
        let memory = Mapped::of(socket, offset, places.desc as usize + count * size_of::<T>())?;
        Ok(Self { memory, places, mask: count as u32 - 1, ours: 0, theirs: 0, entry: PhantomData })
    }

    fn word(&self, at: u64) -> Option<&AtomicU32> {
        let place = self.memory.place(at as usize, 1)?;
        // SAFETY: within the mapping. The kernel keeps an aligned word there, which both sides access as an atomic.
        Some(unsafe { AtomicU32::from_ptr(place) })
    }

    fn entry(&self, number: u32) -> Option<*mut T> {
        self.memory.place(self.places.desc as usize + (number & self.mask) as usize * size_of::<T>(), 1)
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Incoming<T>(pub(super) Ring<T>);

impl<T: Copy> Incoming<T> {
    /// The entry at position `nth` after the first one not skipped; `None` if the kernel has not filled it.
    pub(super) fn get(&mut self, nth: u32) -> Option<T> {
        let ring = &mut self.0;
        if ring.theirs.wrapping_sub(ring.ours) <= nth {
            ring.theirs = ring.word(ring.places.producer)?.load(Ordering::Acquire);
        }
        let there = ring.theirs.wrapping_sub(ring.ours);
        let entry = ring.entry(ring.ours.wrapping_add(nth)).filter(|_| nth < there)?;
        // SAFETY: within the mapping. The kernel has filled it, and writes there again only after it was skipped.
        Some(unsafe { entry.read() })
    }

    pub(super) fn skip(&mut self, count: u32) {
        self.0.ours = self.0.ours.wrapping_add(count);
    }

    pub(super) fn show(&self) {
        if let Some(word) = self.0.word(self.0.places.consumer) {
            word.store(self.0.ours, Ordering::Release);
        }
    }
}

/// A ring that the kernel empties.
#[derive(Debug)]
pub(super) struct Outgoing<T>(pub(super) Ring<T>);

impl<T: Copy> Outgoing<T> {
    /// Adds an entry. The caller must not add more than the ring can hold.
    pub(super) fn put(&mut self, value: T) {
        if let Some(entry) = self.0.entry(self.0.ours) {
            // SAFETY: within the mapping. The kernel reads there only after `show`.
            unsafe { entry.write(value) };
            self.0.ours = self.0.ours.wrapping_add(1);
        }
    }

    pub(super) fn show(&self) {
        if let Some(word) = self.0.word(self.0.places.producer) {
            word.store(self.0.ours, Ordering::Release);
        }
    }

    /// Whether the kernel needs a system call to continue.
    pub(super) fn wants_waking(&self) -> bool {
        let word = self.0.places.flags.and_then(|at| self.0.word(at));
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 != 0)
    }
}

//! Sampling of threads by the kernel (`perf_event_open(2)`): takes a thread's position at a fixed rate of its processor
//! time, and writes it to rings that this process reads.
//!
//! Records are not interpreted here. They are returned as bytes, always whole records.

use crate::error::{Doing, Error, Result};
use base::CpuId;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Event that triggers a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// CPU cycles, from the performance counters. Also samples code that masks interrupts.
    Cycles,
    /// A kernel timer. Available everywhere, but code that masks interrupts is seen only where it unmasks them.
    CpuClock,
    /// Each page fault: the first use of each page of new memory.
    PageFaults,
}

/// Parameters of the sampling.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The trigger.
    pub source: Source,
    /// Samples per second of the thread's processor time; not used with [`Source::PageFaults`].
    pub hz: u32,
    /// Bytes of the user stack copied with each sample, a multiple of 8 below 64 KiB; 0: the kernel follows frame
    /// pointers.
    pub stack_bytes: u32,
    /// Whether kernel code is sampled as well. Requires a privilege.
    pub kernel: bool,
    /// Whether threads and processes started by a sampled one are sampled as well.
    pub inherit: bool,
    /// Whether sampling starts when the thread's process executes a program.
    pub on_exec: bool,
}

/// Fields of a sample: instruction, thread, time, call chain, period; registers and stack of user mode if copied.
const FIELDS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 8;
const FIELDS_OF_STACK: u64 = 1 << 12 | 1 << 13;
/// Number of lost samples when the event is read (Linux 6.0).
const READ_LOST: u64 = 1 << 4;
/// Unlike `sched_clock`, the same on all CPUs.
const CLOCK: u64 = libc::CLOCK_MONOTONIC as u64;
/// Frame pointer, stack pointer and instruction pointer, by `asm/perf_regs.h`.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// Frame pointer, link register, stack pointer and instruction pointer, by `asm/perf_regs.h`.
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

impl Sampling {
    /// `struct perf_event_attr`, version 7, as words.
    fn attributes(&self, lost: bool, watermark: u32) -> [u64; 16] {
        let bit = |on: bool, nth: u32| u64::from(on) << nth;
        let stack = self.stack_bytes > 0;
        let (kind, config) = match self.source {
            Source::Cycles => (0, 0),
            Source::CpuClock => (1, 0),
            Source::PageFaults => (1, 2),
        };
        let every_event = self.source == Source::PageFaults;
        let mut words = [0; 16];
        words[0] = kind | 128 << 32;
        words[1] = config;
        words[2] = if every_event { 1 } else { u64::from(self.hz) };
        words[3] = FIELDS | if stack { FIELDS_OF_STACK } else { 0 };
        words[4] = if lost { READ_LOST } else { 0 };
        words[5] = bit(true, 0) // disabled
            | bit(self.inherit, 1)
            | bit(!self.kernel, 5)
            | bit(true, 6) // exclude the hypervisor
            | bit(true, 8) // records of mappings
            | bit(true, 9) // records of names
            | bit(!every_event, 10) // `words[2]` is a rate, not a period
            | bit(self.on_exec, 12)
            | bit(true, 13) // records of the start and end of threads
            | bit(true, 14) // the watermark is in bytes
            | bit(true, 18) // time stamps in all records
            | bit(!self.kernel, 21)
            | bit(stack, 22)
            | bit(true, 23) // records of mappings contain the inode
            | bit(true, 24) // records of names mark an exec
            | bit(true, 25); // use `CLOCK`
        words[6] = u64::from(watermark);
        words[10] = if stack { REGISTERS } else { 0 };
        words[11] = u64::from(self.stack_bytes) | CLOCK << 32;
        words
    }
}

/// Sampling of one thread on one CPU. Initially disabled; ends when dropped.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    counts_lost: bool,
    on_exec: bool,
}

impl Event {
    /// Samples thread `tid` whenever it runs on `cpu`. A reader is woken after `watermark` bytes.
    ///
    /// # Errors
    /// The kernel's: `EACCES` or `EPERM` without the right, `ENOENT` where the source does not exist, `ESRCH` for a thread that has ended,
    /// `EMFILE`.
    pub fn open(how: &Sampling, tid: i32, cpu: CpuId, watermark: u32) -> Result<Self> {
        match Self::try_open(how, tid, cpu, watermark, true) {
            // The kernel is older than Linux 6.0.
            Err(error) if error.errno == rustix::io::Errno::INVAL => Self::try_open(how, tid, cpu, watermark, false),
            answer => answer,
        }
    }

    fn try_open(how: &Sampling, tid: i32, cpu: CpuId, watermark: u32, counts_lost: bool) -> Result<Self> {
        let words = how.attributes(counts_lost, watermark);
        // Closed at exec.
        let flags: libc::c_ulong = 1 << 3;
        let cpu_number = libc::c_int::from(cpu);
        // SAFETY: `words` is the structure in the size that it states; the kernel reads it during the call only.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, words.as_ptr(), tid, cpu_number, -1, flags) };
        if fd < 0 {
            return Err(Error::last(format!("sample thread {tid} on CPU {cpu}")));
        }
        // SAFETY: the kernel has just created this descriptor for this process alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self { fd, counts_lost, on_exec: how.on_exec })
    }

    /// Whether it starts when its process executes a program.
    #[must_use]
    pub fn waits_for_exec(&self) -> bool {
        self.on_exec
    }

    /// Writes its records to the ring of another event on the same CPU.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` if the ring is on another CPU.
    pub fn write_into(&self, ring: &Ring) -> Result<()> {
        self.control(0x2405, ring.event.fd.as_raw_fd() as u64, "redirect events to a shared ring")
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> Result<()> {
        self.control(0x2400, 0, "begin to sample")
    }

    /// Stops sampling. Records already written can still be read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> Result<()> {
        self.control(0x2401, 0, "end sampling")
    }

    fn control(&self, request: libc::Ioctl, argument: u64, doing: &str) -> Result<()> {
        // SAFETY: these requests take a number, no memory.
        let answer = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) };
        if answer < 0 { Err(Error::last(doing)) } else { Ok(()) }
    }

    /// The source's counter (cycles, nanoseconds of processor time, or page faults), and the number of lost records, if the kernel
    /// reports it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> Result<(u64, Option<u64>)> {
        let mut bytes = [0; 16];
        let wanted = if self.counts_lost { 16 } else { 8 };
        rustix::io::read(&self.fd, &mut bytes[..wanted]).doing(|| "read a sampling counter".to_owned())?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Ok((word(0), self.counts_lost.then(|| word(8))))
    }
}

/// The ring of one CPU, in memory that the kernel writes and this process reads. If it is full, new records are lost.
#[derive(Debug)]
pub struct Ring {
    event: Event,
    base: NonNull<u8>,
    /// Length of the mapping.
    bytes: usize,
}

/// Minimum page size; the ring's header is within it.
const PAGE: usize = 4096;
/// Offsets of the kernel's and this process's positions in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

// SAFETY: the mapping belongs to the process, not to a thread; only `&mut self` reads it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `event`'s ring with `data_bytes`, a power of two.
    ///
    /// # Errors
    /// The kernel's: `EPERM` if the memory exceeds the user's limit of locked memory.
    pub fn map(event: Event, data_bytes: usize) -> Result<Self> {
        let doing = || format!("map a ring of {data_bytes} bytes");
        let page = rustix::param::page_size();
        let bytes = data_bytes + page;
        let null = std::ptr::null_mut();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let at = unsafe { rustix::mm::mmap(null, bytes, protection, MapFlags::SHARED, &event.fd, 0) };
        let base =
            NonNull::new(at.doing(doing)?.cast()).ok_or(Error { doing: doing(), errno: rustix::io::Errno::NOMEM })?;
        Ok(Self { event, base, bytes })
    }

    /// The event that owns the ring.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Appends the records written since the last call, and frees their space.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        let page = rustix::param::page_size();
        let room = self.bytes - page;
        let mut at = tail;
        while at < head {
            let from = at as usize & (room - 1);
            let length = (room - from).min((head - at) as usize);
            // SAFETY: `from + length` is within the data part of the mapping, as `room` is its size.
            let start = unsafe { self.base.as_ptr().add(page + from) };
            // SAFETY: between tail and head the kernel writes nothing until the tail has moved, which it does below.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
            at += length as u64;
        }
        self.position(TAIL).store(head, Ordering::Release);
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= PAGE);
        // SAFETY: `at` is within the first page of the mapping.
        let place = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: aligned to eight bytes, mapped as long as self lives; kernel and process access it as a whole word.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computing_thread_is_sampled_and_the_ring_has_only_complete_records() {
        let cpu = crate::sched::affinity(0).unwrap().iter().next().unwrap();
        let before = crate::sched::affinity(0).unwrap();
        crate::sched::set_affinity(0, &base::CpuSet::single(cpu)).unwrap();
        let how = Sampling {
            source: Source::CpuClock,
            hz: 1000,
            stack_bytes: 4096,
            kernel: false,
            inherit: false,
            on_exec: false,
        };
        let mut ring = Ring::map(Event::open(&how, 0, cpu, 1 << 14).unwrap(), 1 << 18).unwrap();
        ring.event().enable().unwrap();
        let until = crate::clock::thread_cpu().0 + 20_000_000;
        while crate::clock::thread_cpu().0 < until {}
        ring.event().disable().unwrap();
        crate::sched::set_affinity(0, &before).unwrap();
        let mut bytes = Vec::new();
        ring.drain(&mut bytes);
        let (mut rest, mut samples) = (&bytes[..], 0);
        while let Some(head) = rest.get(..8) {
            let length = usize::from(u16::from_ne_bytes([head[6], head[7]]));
            samples += usize::from(u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) == 9);
            rest = &rest[length..];
        }
        // If the host delays timers, one sample may represent several.
        assert!(rest.is_empty() && (1..=25).contains(&samples), "{samples}");
        let (counted, lost) = ring.event().read().unwrap();
        assert!(counted >= 15_000_000, "{counted}");
        assert!(lost.unwrap_or(0) == 0);
        bytes.clear();
        ring.drain(&mut bytes);
        assert!(bytes.is_empty(), "no record is read twice");
    }

    #[test]
    fn each_page_of_new_memory_is_a_sample() {
        const PAGES: usize = 100;
        let cpu = crate::sched::affinity(0).unwrap().iter().next().unwrap();
        let before = crate::sched::affinity(0).unwrap();
        crate::sched::set_affinity(0, &base::CpuSet::single(cpu)).unwrap();
        let (source, hz, stack_bytes) = (Source::PageFaults, 0, 0);
        let how = Sampling { source, hz, stack_bytes, kernel: false, inherit: false, on_exec: false };
        let mut ring = Ring::map(Event::open(&how, 0, cpu, 1 << 14).unwrap(), 1 << 18).unwrap();
        let null = std::ptr::null_mut();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; no existing memory is touched.
        let memory = unsafe { rustix::mm::mmap_anonymous(null, PAGES * PAGE, protection, MapFlags::PRIVATE) }.unwrap();
        ring.event().enable().unwrap();
        for page in 0..PAGES {
            // SAFETY: within the mapping.
            let place = unsafe { memory.cast::<u8>().add(page * PAGE) };
            // SAFETY: mapped for writing; only this test uses it.
            unsafe { place.write_volatile(1) };
        }
        ring.event().disable().unwrap();
        let (counted, lost) = ring.event().read().unwrap();
        // SAFETY: made above with this length; not used afterwards.
        unsafe { rustix::mm::munmap(memory, PAGES * PAGE) }.unwrap();
        crate::sched::set_affinity(0, &before).unwrap();
        let mut bytes = Vec::new();
        ring.drain(&mut bytes);
        let (mut rest, mut samples) = (&bytes[..], 0);
        while let Some(head) = rest.get(..8) {
            samples += usize::from(u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) == 9);
            rest = &rest[usize::from(u16::from_ne_bytes([head[6], head[7]]))..];
        }
        // Larger pages need fewer faults, code that runs for the first time more.
        assert!(samples > 0 && samples as u64 == counted - lost.unwrap_or(0), "{samples} of {counted}");
        assert!(counted >= PAGES as u64 * 4096 / rustix::param::page_size() as u64 / 16, "{counted}");
    }
}

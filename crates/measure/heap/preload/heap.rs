//! Counts a program's allocations by their callers. Loaded with `LD_PRELOAD`, it replaces the C library's `malloc` and forwards each call.
//!
//! The counts are in a file that the program maps and a reader opens (`layout.rs`), so they survive a crash of the program. The library uses no
//! locks, no allocations and no standard library, only atomics in a mapping of fixed size. It counts entries that do not fit. A forked child
//! starts a separate file at its first allocation.
//!
//! A forked child inherits the locks that all threads of its parent held, but not the threads. So after it is loaded, the library takes no lock
//! of the C library or the dynamic linker: it finds functions while it is loaded, and reads the list of modules from the kernel.
#![no_std]

#[path = "../src/layout.rs"]
#[allow(dead_code, reason = "the readers' half of the form")]
mod layout;
mod modules;

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use layout::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process. A replacement of malloc cannot report an error.
    unsafe { abort() }
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Two = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Posix = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Step = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Step, *mut c_void) -> c_int;
type Ip = unsafe extern "C" fn(*mut c_void) -> usize;

unsafe extern "C" {
    fn abort() -> !;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn getpid() -> c_int;
    fn mmap(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn ftruncate(fd: c_int, bytes: i64) -> c_int;
    fn readlink(path: *const c_char, into: *mut c_char, bytes: usize) -> isize;
    fn syscall(number: c_long, ...) -> c_long;
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

const NEXT: *mut c_void = -1isize as *mut c_void;
const ANYWHERE: *mut c_void = null_mut();
const PAGE: usize = 4096;
const WIPE_ON_FORK: c_int = 18;
#[cfg(target_arch = "x86_64")]
mod call {
    pub(crate) const GETSCHEDULER: i64 = 145;
    pub(crate) const OPENAT: i64 = 257;
    pub(crate) const READ: i64 = 0;
    pub(crate) const CLOSE: i64 = 3;
}
#[cfg(target_arch = "aarch64")]
mod call {
    pub(crate) const GETSCHEDULER: i64 = 120;
    pub(crate) const OPENAT: i64 = 56;
    pub(crate) const READ: i64 = 63;
    pub(crate) const CLOSE: i64 = 57;
}

/// Opens a file. Uses the system call directly, because `open` of the C library is a cancellation point: it ends the calling thread if that was
/// cancelled.
pub(crate) fn open(path: &CStr, flags: c_int) -> Option<c_int> {
    const HERE: c_long = -100;
    // SAFETY: the path ends in zero.
    let fd = unsafe { syscall(call::OPENAT, HERE, path.as_ptr(), c_long::from(flags), 0o600 as c_long) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// Reads at most `into.len()` bytes. Returns `None` at the end of the file and on an error.
pub(crate) fn read(fd: c_int, into: &mut [u8]) -> Option<usize> {
    // SAFETY: writes at most `into.len()` bytes.
    let length = unsafe { syscall(call::READ, c_long::from(fd), into.as_mut_ptr(), into.len()) };
    usize::try_from(length).ok().filter(|length| *length > 0 && *length <= into.len())
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: passes only a number.
    unsafe { syscall(call::CLOSE, c_long::from(fd)) };
}

/// Addresses of the C library's functions. 0 until found, while the library is loaded or at the first call.
static MALLOC: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
static CALLOC: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static ALIGNED: AtomicUsize = AtomicUsize::new(0);
static POSIX: AtomicUsize = AtomicUsize::new(0);
static MEMALIGN: AtomicUsize = AtomicUsize::new(0);
static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
static GET_IP: AtomicUsize = AtomicUsize::new(0);
/// Whether the unwinder finds code without taking a lock of the dynamic linker.
static UNWINDS_WITHOUT_LOCK: AtomicBool = AtomicBool::new(false);
/// Whether this process was forked and has not executed another program since.
static FORKED: AtomicBool = AtomicBool::new(false);

/// A page that the kernel clears in a forked child. Its first word is the address of the counts. Null until the page is mapped.
static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// 0: not tried; 1: a thread is creating the counts; 2: the counts exist; 3: they could not be created.
static STATE: AtomicUsize = AtomicUsize::new(0);

/// Memory for allocations before the C library's `malloc` is found, because `dlsym` may allocate.
const EARLY_BYTES: usize = 1 << 16;
#[repr(align(16))]
struct Early(core::cell::UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: handed out in separate pieces, each to one caller.
unsafe impl Sync for Early {}
static EARLY: Early = Early(core::cell::UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

fn early(bytes: usize, align: usize) -> *mut c_void {
    let align = align.max(16);
    let room = bytes.saturating_add(align + 16) & !15;
    let from = EARLY_USED.fetch_add(room, Relaxed);
    if from.saturating_add(room) > EARLY_BYTES {
        return null_mut();
    }
    let base = EARLY.0.get() as usize + from + 16;
    let at = (base + align - 1) & !(align - 1);
    // SAFETY: within the piece that was just taken. The size is stored before the block, for realloc.
    unsafe { ((at - 8) as *mut usize).write(bytes) };
    at as *mut c_void
}

fn is_early(block: *mut c_void) -> bool {
    (block as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// Finds the C library's function. Returns 0 while this thread is already finding it.
fn find(place: &AtomicUsize, name: &CStr) -> usize {
    let known = place.load(Acquire);
    if known > 1 {
        return known;
    }
    let me = thread();
    if FINDING.load(Relaxed) == me {
        return 0;
    }
    // Another thread is searching, or was when this process was forked. Finding the function twice does no harm.
    let mut tries = 0;
    while FINDING.compare_exchange(0, me, Acquire, Relaxed).is_err() && tries < 1_000_000 {
        tries += 1;
        core::hint::spin_loop();
    }
    // SAFETY: the name ends in zero.
    let found = unsafe { dlsym(NEXT, name.as_ptr()) } as usize;
    place.store(found, Release);
    let _ = FINDING.compare_exchange(me, 0, Release, Relaxed);
    found
}
static FINDING: AtomicU64 = AtomicU64::new(0);

/// Identifies a thread within its process without a call: the address of the thread's own data.
fn thread() -> u64 {
    let mut id: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of a thread's data is its own address.
    unsafe {
        asm!("mov {}, fs:0", out(reg) id, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) id, options(nostack, nomem, preserves_flags));
    }
    // Early in a process the address is 0, which means "no thread" here.
    if id == 0 {
        id = 1;
    }
    id
}

/// Threads that are counting. Their allocations during that time are not counted.
static BUSY: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

struct Counting(&'static AtomicU64);

impl Counting {
    fn begin() -> Option<Self> {
        let me = thread();
        let first = (me >> 6) as usize;
        if BUSY.iter().any(|place| place.load(Relaxed) == me) {
            return None;
        }
        let places = (0..BUSY.len()).map(|nth| &BUSY[(first + nth) % BUSY.len()]);
        places.into_iter().find(|place| place.compare_exchange(0, me, Acquire, Relaxed).is_ok()).map(Self)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// The counts of this process, as words.
#[derive(Clone, Copy)]
struct Counts(*mut AtomicU64);

impl Counts {
    fn word(self, at: usize) -> &'static AtomicU64 {
        debug_assert!(at < WORDS);
        // SAFETY: the mapping has `WORDS` words.
        let word = unsafe { self.0.add(at) };
        // SAFETY: it is never unmapped.
        unsafe { &*word }
    }

    fn add(self, at: usize, more: u64) -> u64 {
        self.word(at).fetch_add(more, Relaxed)
    }
}

/// Returns the counts, and creates them at the first call of a process. The caller has marked this thread as busy.
fn counts() -> Option<Counts> {
    loop {
        match STATE.load(Acquire) {
            2 => {}
            0 => {
                if STATE.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                    let begun = begin();
                    STATE.store(if begun.is_some() { 2 } else { 3 }, Release);
                    return begun;
                }
                continue;
            }
            // The thread that creates the counts may wait for this one. Do not wait: this call is not counted.
            _ => return None,
        }
        let place = PLACE.load(Acquire);
        // SAFETY: mapped for the life of the process.
        let counts = unsafe { &*place }.load(Acquire) as *mut AtomicU64;
        if !counts.is_null() {
            return Some(Counts(counts));
        }
        // The process was forked and needs separate counts.
        FORKED.store(true, Relaxed);
        BUSY.iter().filter(|busy| busy.load(Relaxed) != thread()).for_each(|busy| busy.store(0, Relaxed));
        let _ = STATE.compare_exchange(2, 0, AcqRel, Relaxed);
    }
}

fn begin() -> Option<Counts> {
    let mut place = PLACE.load(Acquire);
    if place.is_null() {
        // SAFETY: a new mapping: read and write, private, anonymous.
        let page = unsafe { mmap(null_mut(), PAGE, 3, 0x22, -1, 0) };
        // SAFETY: the page was just mapped.
        if page as isize == -1 || unsafe { madvise(page, PAGE, WIPE_ON_FORK) } != 0 {
            return None;
        }
        place = page.cast();
        PLACE.store(place, Release);
    }
    let fd = file()?;
    // SAFETY: the file was just created.
    let at = match unsafe { ftruncate(fd, (WORDS * 8) as i64) } {
        // SAFETY: a new mapping, shared.
        0 => unsafe { mmap(null_mut(), WORDS * 8, 3, 1, fd, 0) },
        _ => -1isize as *mut c_void,
    };
    close(fd);
    if at as isize == -1 {
        return None;
    }
    let counts = Counts(at.cast());
    // SAFETY: takes no arguments.
    counts.word(head::PID).store(unsafe { getpid() } as u64, Relaxed);
    modules::note(counts);
    counts.word(head::MAGIC).store(MAGIC, Release);
    // SAFETY: mapped for the life of the process.
    unsafe { &*place }.store(at as u64, Release);
    Some(counts)
}

/// Creates a new file in the folder that the environment variable names.
fn file() -> Option<c_int> {
    // SAFETY: the name ends in zero.
    let folder = unsafe { getenv(c"TAHTI_HEAP".as_ptr()) };
    if folder.is_null() {
        return None;
    }
    // SAFETY: a string from getenv ends in zero.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    // SAFETY: takes no arguments.
    let pid = unsafe { getpid() } as u64;
    // A process keeps its id across exec, and the next program needs a separate file.
    for nth in 0..1000 {
        let mut path = [0u8; 512];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            let fits = path.get_mut(at..at + bytes.len())?;
            fits.copy_from_slice(bytes);
            at += bytes.len();
            Some(())
        };
        put(folder)?;
        put(b"/")?;
        let mut digits = [0u8; 20];
        put(decimal(pid, &mut digits))?;
        put(b"-")?;
        put(decimal(nth, &mut digits))?;
        put(b".heap\0")?;
        // O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC.
        let flags = 0o2 | 0o100 | 0o200 | 0o2000000;
        let fd = CStr::from_bytes_until_nul(&path).ok().and_then(|path| open(path, flags));
        if fd.is_some() {
            return fd;
        }
    }
    None
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Return addresses, innermost first.
struct Stack {
    count: usize,
    frames: [u64; CALLERS_MAX],
}

unsafe extern "C" fn step(context: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: `callers` passes a pointer to a `Stack`.
    let stack = unsafe { &mut *data.cast::<Stack>() };
    // SAFETY: `callers` found it under its name.
    let ip = unsafe { core::mem::transmute::<usize, Ip>(GET_IP.load(Relaxed)) };
    // SAFETY: the context comes from the unwinder.
    let at = unsafe { ip(context) } as u64;
    if stack.count >= CALLERS_MAX || at == 0 {
        // A value other than 0 ends the unwinding.
        return 4;
    }
    stack.frames[stack.count] = at;
    stack.count += 1;
    0
}

fn callers(stack: &mut Stack) {
    if FORKED.load(Relaxed) && !UNWINDS_WITHOUT_LOCK.load(Relaxed) {
        // A thread of the parent may have held the lock, and it does not exist here to release it. Count without callers.
        return;
    }
    if BACKTRACE.load(Acquire) == 0 {
        // glibc 2.35 and later has this function, and its unwinder then uses it. musl resets its lock in a child.
        // SAFETY: the name ends in zero.
        let finds = unsafe { dlsym(ANYWHERE, c"_dl_find_object".as_ptr()) };
        // SAFETY: the name ends in zero.
        let is_glibc = unsafe { dlsym(ANYWHERE, c"gnu_get_libc_version".as_ptr()) };
        UNWINDS_WITHOUT_LOCK.store(!finds.is_null() || is_glibc.is_null(), Relaxed);
        // SAFETY: the name ends in zero. The flags are RTLD_LAZY and RTLD_LOCAL.
        let library = unsafe { dlopen(c"libgcc_s.so.1".as_ptr(), 1) };
        if library.is_null() {
            BACKTRACE.store(1, Release);
            return;
        }
        // SAFETY: the library is open, and the name ends in zero.
        GET_IP.store(unsafe { dlsym(library, c"_Unwind_GetIP".as_ptr()) } as usize, Release);
        // SAFETY: as above.
        let backtrace = unsafe { dlsym(library, c"_Unwind_Backtrace".as_ptr()) } as usize;
        BACKTRACE.store(backtrace.max(1), Release);
    }
    let backtrace = BACKTRACE.load(Acquire);
    if backtrace > 1 && GET_IP.load(Acquire) != 0 {
        // SAFETY: found under its name.
        let backtrace = unsafe { core::mem::transmute::<usize, Backtrace>(backtrace) };
        // SAFETY: `step` is called only during this call.
        unsafe { backtrace(step, (&raw mut *stack).cast()) };
    }
}

/// Index of the site with these callers. Creates it if new. Returns `None` if the table is full.
fn site_of(counts: Counts, stack: &Stack) -> Option<usize> {
    let frames = &stack.frames[..stack.count];
    let hash = frames
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15u64, |hash, at| (hash ^ at).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23));
    // The lowest bit marks a complete site.
    let (whole, making) = (hash | 1, 2);
    for probe in 0..64 {
        let nth = (hash as usize >> 8).wrapping_add(probe) % SITES_MAX;
        let at = SITES_AT + nth * SITE_WORDS;
        let place = counts.word(at + site::HASH);
        let mut seen = place.load(Acquire);
        if seen == 0 {
            match place.compare_exchange(0, making, Acquire, Acquire) {
                Ok(_) => {
                    for (word, frame) in frames.iter().enumerate() {
                        counts.word(at + site::FIRST + word).store(*frame, Relaxed);
                    }
                    counts.word(at + site::CALLERS).store(frames.len() as u64, Relaxed);
                    place.store(whole, Release);
                    return Some(nth);
                }
                Err(other) => seen = other,
            }
        }
        // Another thread is creating this site with a few stores. Stop waiting after a while, because the thread may have been killed.
        for _ in 0..10_000 {
            if seen != making {
                break;
            }
            core::hint::spin_loop();
            seen = place.load(Acquire);
        }
        if seen == whole {
            return Some(nth);
        }
    }
    None
}

fn is_real_time() -> bool {
    // SAFETY: passes only numbers; 0 is this thread.
    let class = unsafe { syscall(call::GETSCHEDULER, 0 as c_long) };
    // FIFO, RR or DEADLINE. SCHED_RESET_ON_FORK is above these bits.
    matches!(class & 0xffff, 1 | 2 | 6)
}

const GONE: u64 = 1;

fn block_places(block: u64) -> impl Iterator<Item = usize> {
    let first = ((block >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..256).map(move |probe| BLOCKS_AT + (first + probe) % BLOCKS_MAX * BLOCK_WORDS)
}

/// Counts a new block.
#[inline(never)]
fn made(block: *mut c_void, bytes: usize) {
    if block.is_null() || is_early(block) {
        return;
    }
    let Some(_counting) = Counting::begin() else { return };
    let Some(counts) = counts() else { return };
    let mut stack = Stack { count: 0, frames: [0; CALLERS_MAX] };
    callers(&mut stack);
    let real_time = is_real_time();
    counts.add(head::ALLOCATIONS, 1);
    let all = counts.add(head::BYTES, bytes as u64) + bytes as u64;
    counts.word(head::PEAK_BYTES).fetch_max(all.saturating_sub(counts.word(head::FREED_BYTES).load(Relaxed)), Relaxed);
    counts.add(head::RT_CALLS, u64::from(real_time));
    let Some(nth) = site_of(counts, &stack) else {
        counts.add(head::SITES_LOST, 1);
        return;
    };
    let at = SITES_AT + nth * SITE_WORDS;
    let first = counts.add(at + site::ALLOCATIONS, 1) == 0;
    counts.add(at + site::BYTES, bytes as u64);
    counts.add(at + site::RT_ALLOCATIONS, u64::from(real_time));
    if first && stack.frames[..stack.count].iter().any(|at| !modules::holds(counts, *at)) {
        // The caller is in a module that was loaded since the last scan.
        modules::note(counts);
    }
    let size = (bytes as u64).min((1 << SIZE_BITS) - 1);
    for place in block_places(block as u64) {
        let word = counts.word(place);
        let seen = word.load(Relaxed);
        // Only the thread that allocated the block writes the second word, before any thread can free the block.
        if seen <= GONE && word.compare_exchange(seen, block as u64, Acquire, Relaxed).is_ok() {
            counts.word(place + 1).store(size | (nth as u64) << SIZE_BITS, Release);
            return;
        }
    }
    counts.add(head::BLOCKS_LOST, 1);
}

/// Counts a block that is about to be freed.
#[inline(never)]
fn gone(block: *mut c_void) {
    if block.is_null() || is_early(block) {
        return;
    }
    let Some(_counting) = Counting::begin() else { return };
    let Some(counts) = counts() else { return };
    let real_time = is_real_time();
    counts.add(head::RT_CALLS, u64::from(real_time));
    for place in block_places(block as u64) {
        let word = counts.word(place);
        match word.load(Relaxed) {
            0 => break,
            seen if seen == block as u64 => {
                let about = counts.word(place + 1).load(Acquire);
                word.store(GONE, Release);
                let (bytes, nth) = (about & ((1 << SIZE_BITS) - 1), (about >> SIZE_BITS) as usize % SITES_MAX);
                let at = SITES_AT + nth * SITE_WORDS;
                counts.add(at + site::FREES, 1);
                counts.add(at + site::FREED_BYTES, bytes);
                counts.add(at + site::RT_FREES, u64::from(real_time));
                counts.add(head::FREES, 1);
                counts.add(head::FREED_BYTES, bytes);
                return;
            }
            _ => {}
        }
    }
    counts.add(head::FREES_UNKNOWN, 1);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match find(&MALLOC, c"malloc") {
        0 => early(bytes, 16),
        next => {
            // SAFETY: found under its name.
            let next = unsafe { core::mem::transmute::<usize, Malloc>(next) };
            // SAFETY: the caller's contract.
            let block = unsafe { next(bytes) };
            made(block, bytes);
            block
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    match find(&CALLOC, c"calloc") {
        // This memory was never used before, so it is zero.
        0 => early(count.saturating_mul(each), 16),
        next => {
            // SAFETY: found under its name.
            let next = unsafe { core::mem::transmute::<usize, Two>(next) };
            // SAFETY: the caller's contract.
            let block = unsafe { next(count, each) };
            made(block, count.saturating_mul(each));
            block
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    if is_early(old) {
        // SAFETY: the caller's contract.
        let block = unsafe { malloc(bytes) };
        if !block.is_null() {
            // SAFETY: an early block has 8 bytes before it.
            let size = unsafe { old.cast::<u8>().sub(8) };
            // SAFETY: the size of the block, aligned as every early block is.
            let had = unsafe { size.cast::<usize>().read() };
            // SAFETY: both blocks have at least that many bytes.
            unsafe { core::ptr::copy_nonoverlapping(old.cast::<u8>(), block.cast(), had.min(bytes)) };
        }
        return block;
    }
    match find(&REALLOC, c"realloc") {
        0 if old.is_null() => early(bytes, 16),
        0 => null_mut(),
        next => {
            // Count the free first, because another thread may receive the same address as soon as the block is freed. If realloc fails, the old
            // block is counted as a new allocation.
            // SAFETY: the caller passes a valid block.
            let had = if old.is_null() { 0 } else { unsafe { malloc_usable_size(old) } };
            gone(old);
            // SAFETY: found under its name.
            let next = unsafe { core::mem::transmute::<usize, Realloc>(next) };
            // SAFETY: the caller's contract.
            let block = unsafe { next(old, bytes) };
            match block.is_null() {
                true if bytes > 0 => made(old, had),
                _ => made(block, bytes),
            }
            block
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if is_early(block) {
        return;
    }
    gone(block);
    let next = find(&FREE, c"free");
    if next != 0 {
        // SAFETY: found under its name.
        let next = unsafe { core::mem::transmute::<usize, Free>(next) };
        // SAFETY: the caller's contract.
        unsafe { next(block) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    aligned(&ALIGNED, c"aligned_alloc", align, bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    aligned(&MEMALIGN, c"memalign", align, bytes)
}

fn aligned(place: &AtomicUsize, name: &CStr, align: usize, bytes: usize) -> *mut c_void {
    match find(place, name) {
        0 => early(bytes, align),
        next => {
            // SAFETY: found under its name.
            let next = unsafe { core::mem::transmute::<usize, Two>(next) };
            // SAFETY: the caller's contract.
            let block = unsafe { next(align, bytes) };
            made(block, bytes);
            block
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    match find(&POSIX, c"posix_memalign") {
        0 => 12,
        next => {
            // SAFETY: found under its name.
            let next = unsafe { core::mem::transmute::<usize, Posix>(next) };
            // SAFETY: the caller's contract.
            let answer = unsafe { next(into, align, bytes) };
            if answer == 0 {
                // SAFETY: the call has just written it.
                made(unsafe { *into }, bytes);
            }
            answer
        }
    }
}

/// Called when the library is loaded. The counts exist before the program's first instruction, and all functions are found.
extern "C" fn loaded() {
    let all = [
        (&MALLOC, c"malloc"),
        (&FREE, c"free"),
        (&CALLOC, c"calloc"),
        (&REALLOC, c"realloc"),
        (&ALIGNED, c"aligned_alloc"),
        (&POSIX, c"posix_memalign"),
        (&MEMALIGN, c"memalign"),
    ];
    for (place, name) in all {
        find(place, name);
    }
    if let Some(_counting) = Counting::begin() {
        let _ = counts();
        let mut stack = Stack { count: 0, frames: [0; CALLERS_MAX] };
        callers(&mut stack);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

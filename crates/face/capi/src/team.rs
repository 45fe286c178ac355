//! Shared memory, mutexes, conditions and barriers for C.

use crate::{Failed, answer, handle, open, text};
use base::DurNs;
use rt::{Barrier, Condition, Lock, Met};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use sys::shm::SharedWords;

/// The kernel's error number for an invalid argument, the same on every Linux.
const EINVAL: c_int = 22;

/// A segment, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_segment(SharedWords);

/// A mutex, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_mutex(Lock);

/// A condition, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_cond(Condition);

/// A barrier, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_barrier(Barrier);

/// Publishes a new object under its name. Without a name, the object stays private.
///
/// # Safety
/// `name` is NULL or ends with a zero.
unsafe fn named<T>(
    name: *const c_char,
    made: Result<T, Failed>,
    fd: impl Fn(&T) -> BorrowedFd<'_>,
) -> Result<T, Failed> {
    let made = made?;
    if !name.is_null() {
        // SAFETY: the caller's promise.
        rt::offer(unsafe { text("the name", name) }?, fd(&made))?;
    }
    Ok(made)
}

/// Fetches the descriptor of an object that was published under a name.
///
/// # Safety
/// `name` ends with a zero.
unsafe fn asked(name: *const c_char) -> Result<OwnedFd, Failed> {
    // SAFETY: the caller's promise.
    Ok(rt::ask(unsafe { text("the name", name) }?)?)
}

/// Closes a handle.
///
/// # Safety
/// `handle` is NULL, or came from this library and is not used afterwards.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(handle) });
    }
}

fn limit(within_ns: i64) -> Option<DurNs> {
    (within_ns >= 0).then_some(DurNs(within_ns))
}

/// See `tahti.h`.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_segment_create(name: *const c_char, bytes: u64) -> *mut tahti_segment {
    let words = usize::try_from(bytes.div_ceil(8)).unwrap_or(usize::MAX / 8).max(1);
    let made = SharedWords::create("tahti-segment", words.min(usize::MAX / 8)).map_err(Failed::from);
    // SAFETY: the caller's promise.
    handle(unsafe { named(name, made, SharedWords::fd) }.map(tahti_segment))
}

/// See `tahti.h`.
///
/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_segment_open(name: *const c_char) -> *mut tahti_segment {
    // SAFETY: the caller's promise.
    let asked = unsafe { asked(name) };
    handle(asked.and_then(|fd| SharedWords::attach(fd).map_err(Failed::from)).map(tahti_segment))
}

/// See `tahti.h`.
///
/// # Safety
/// `segment` is a handle; `bytes` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_segment_memory(segment: *mut tahti_segment, bytes: *mut u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Ok(segment) = (unsafe { open(segment) }) else { return std::ptr::null_mut() };
    let words = segment.0.words();
    // SAFETY: NULL, or the caller's promise.
    if let Some(bytes) = unsafe { bytes.as_mut() } {
        *bytes = size_of_val(words) as u64;
    }
    words.as_ptr().cast_mut().cast()
}

/// See `tahti.h`.
///
/// # Safety
/// `segment` is NULL or a handle, which is not used afterwards; nor is its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_segment_close(segment: *mut tahti_segment) {
    // SAFETY: the caller's promise.
    unsafe { close(segment) }
}

/// See `tahti.h`.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_create(name: *const c_char) -> *mut tahti_mutex {
    let made = Lock::create(0).map_err(Failed::from);
    // SAFETY: the caller's promise.
    handle(unsafe { named(name, made, Lock::fd) }.map(tahti_mutex))
}

/// See `tahti.h`.
///
/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_open(name: *const c_char) -> *mut tahti_mutex {
    // SAFETY: the caller's promise.
    let asked = unsafe { asked(name) };
    handle(asked.and_then(|fd| Lock::attach(fd).map_err(Failed::from)).map(tahti_mutex))
}

/// See `tahti.h`.
///
/// # Safety
/// `mutex` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_lock(mutex: *mut tahti_mutex) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let Some(mutex) = (unsafe { mutex.as_ref() }) else { return -EINVAL };
    mutex.0.acquire().map_or_else(|errno| -errno.raw_os_error(), c_int::from)
}

/// See `tahti.h`.
///
/// # Safety
/// `mutex` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_trylock(mutex: *mut tahti_mutex) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let Some(mutex) = (unsafe { mutex.as_ref() }) else { return -EINVAL };
    mutex.0.try_acquire().map_or_else(|errno| -errno.raw_os_error(), c_int::from)
}

/// See `tahti.h`.
///
/// # Safety
/// `mutex` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_unlock(mutex: *mut tahti_mutex) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let Some(mutex) = (unsafe { mutex.as_ref() }) else { return -EINVAL };
    mutex.0.release().map_or_else(|errno| -errno.raw_os_error(), |()| 0)
}

/// See `tahti.h`.
///
/// # Safety
/// `mutex` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_mutex_close(mutex: *mut tahti_mutex) {
    // SAFETY: the caller's promise.
    unsafe { close(mutex) }
}

/// See `tahti.h`.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_create(name: *const c_char) -> *mut tahti_cond {
    let made = Condition::new().map_err(Failed::from);
    // SAFETY: the caller's promise.
    handle(unsafe { named(name, made, Condition::fd) }.map(tahti_cond))
}

/// See `tahti.h`.
///
/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_open(name: *const c_char) -> *mut tahti_cond {
    // SAFETY: the caller's promise.
    let asked = unsafe { asked(name) };
    handle(asked.and_then(|fd| Condition::attach(fd).map_err(Failed::from)).map(tahti_cond))
}

/// See `tahti.h`.
///
/// # Safety
/// `cond` and `mutex` are NULL or handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_wait(cond: *mut tahti_cond, mutex: *mut tahti_mutex, within_ns: i64) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let Some(cond) = (unsafe { cond.as_ref() }) else { return -EINVAL };
    // SAFETY: as above.
    let Some(mutex) = (unsafe { mutex.as_ref() }) else { return -EINVAL };
    let ticket = cond.0.ticket();
    if let Err(errno) = mutex.0.release() {
        return -errno.raw_os_error();
    }
    let signalled = ticket.wait(limit(within_ns));
    match mutex.0.acquire() {
        Err(errno) => -errno.raw_os_error(),
        Ok(owner_died) => c_int::from(!signalled) << 1 | c_int::from(owner_died),
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `cond` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_signal(cond: *mut tahti_cond) {
    // SAFETY: NULL, or a handle that is only read.
    if let Some(cond) = unsafe { cond.as_ref() } {
        cond.0.signal();
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `cond` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_broadcast(cond: *mut tahti_cond) {
    // SAFETY: NULL, or a handle that is only read.
    if let Some(cond) = unsafe { cond.as_ref() } {
        cond.0.broadcast();
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `cond` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_cond_close(cond: *mut tahti_cond) {
    // SAFETY: the caller's promise.
    unsafe { close(cond) }
}

/// See `tahti.h`.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_barrier_create(name: *const c_char, threads: u32) -> *mut tahti_barrier {
    let made = match threads {
        0 => Err("a barrier for 0 threads; expected at least 1".into()),
        threads => Barrier::new(threads).map_err(Failed::from),
    };
    // SAFETY: the caller's promise.
    handle(unsafe { named(name, made, Barrier::fd) }.map(tahti_barrier))
}

/// See `tahti.h`.
///
/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_barrier_open(name: *const c_char) -> *mut tahti_barrier {
    // SAFETY: the caller's promise.
    let asked = unsafe { asked(name) };
    handle(asked.and_then(|fd| Barrier::attach(fd).map_err(Failed::from)).map(tahti_barrier))
}

/// See `tahti.h`.
///
/// # Safety
/// `barrier` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_barrier_wait(barrier: *mut tahti_barrier, spin_ns: u64, within_ns: i64) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let Some(barrier) = (unsafe { barrier.as_ref() }) else {
        return answer(Err("the handle is NULL; expected one that a call returned".into()));
    };
    let spin = DurNs(i64::try_from(spin_ns).unwrap_or(i64::MAX / 2));
    match barrier.0.wait(spin, limit(within_ns)) {
        Met::Together => 0,
        Met::Last => 1,
        // No error text is stored, because that would allocate.
        Met::Broken => -1,
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `barrier` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_barrier_close(barrier: *mut tahti_barrier) {
    // SAFETY: the caller's promise.
    unsafe { close(barrier) }
}

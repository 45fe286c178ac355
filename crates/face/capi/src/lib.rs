//! `libtahti`: the C interface of `include/tahti.h`, where each function is documented.
//!
//! The functions only translate. They check pointers for NULL, structures for their declared size and text for UTF-8,
//! then call `rt` or `broker`. Panics do not cross the C boundary: a release build aborts, and in other builds the
//! runtime stops them at `extern "C"`.
//!
//! The crate is one of the few that may use `unsafe`: a C interface takes pointers, and only the caller can guarantee
//! that they are valid.
#![allow(unsafe_code, reason = "a C interface takes pointers; each block says what the caller promises")]

pub mod device;
pub mod events;
pub mod loops;
pub mod messages;
pub mod quiet;
pub mod team;
pub mod workers;

use base::DurNs;
use rt::frames::{Member, hand_trigger, trigger};
use rt::scope::Sampler;
use rt::{Exports, Imports, Number, VariableSpec};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn fail(why: &str) {
    let text = CString::new(why.replace('\0', "?")).unwrap_or_default();
    // Fails if the thread is already running its thread-local destructors. The text is dropped then.
    let _ = ERROR.try_with(|error| *error.borrow_mut() = text);
}

/// Why a call failed. The text is all that C gets.
pub(crate) struct Failed(String);

impl<E: std::fmt::Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// The result of a call as C sees it.
fn answer(result: Result<c_int, Failed>) -> c_int {
    result.unwrap_or_else(|why| {
        fail(&why.0);
        -1
    })
}

/// A new handle, or NULL.
fn handle<T>(result: Result<T, Failed>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(why) => {
            fail(&why.0);
            std::ptr::null_mut()
        }
    }
}

/// A text that the caller passes.
///
/// # Safety
/// `text` is NULL or ends with a zero, and lives as long as the result is used.
unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(format!("{what} is NULL; expected a text").into());
    }
    // SAFETY: not NULL, and the caller promises that the string is NUL-terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| format!("{what} is no UTF-8").into())
}

/// The value behind a handle that the caller passes.
///
/// # Safety
/// `handle` is NULL, or was returned by this library and not yet closed. It is not used elsewhere while the result
/// exists.
unsafe fn open<'a, T>(handle: *mut T) -> Result<&'a mut T, Failed> {
    // SAFETY: NULL gives None. Any other pointer is a Box that `handle` has leaked.
    unsafe { handle.as_mut() }.ok_or_else(|| "the handle is NULL; expected one that a call returned".into())
}

/// A joined thread, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_frame(Member);

/// Exported variables, as C holds them.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_exports {
    exports: Exports,
    /// Sampler of the thread that calls `tahti_export_cycle`.
    sampler: Mutex<Option<Sampler>>,
}

impl tahti_exports {
    /// The variables, to be shared with a loop.
    pub(crate) fn shared(&self) -> Exports {
        self.exports.clone()
    }
}

/// Variables of another process, as C holds them.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_imports(Imports);

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug, Default)]
pub struct tahti_turn {
    pub size: u32,
    pub minor: u16,
    pub mode: u16,
    pub pulse: u64,
    pub due_ns: u64,
    pub end_ns: u64,
    pub void_ns: u64,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug, Default)]
pub struct tahti_reading {
    pub size: u32,
    pub kind: u32,
    pub as_double: f64,
    pub as_int: i64,
    pub pulse: u64,
    pub at_ns: u64,
    pub writes: u64,
    pub safe: u32,
    pub alive: u32,
}

/// Copies `value` into the caller's structure, up to the `size` in its first word. A program that was built with an
/// older header has a shorter structure.
///
/// # Safety
/// `to` is NULL, or begins with a `u32` with its size in bytes, and that many bytes are writable.
unsafe fn fill<T>(to: *mut T, value: &T) -> Result<(), Failed> {
    if to.is_null() {
        return Err("the structure is NULL; expected one to fill".into());
    }
    // SAFETY: the caller promises that the structure begins with its size.
    let size = unsafe { to.cast::<u32>().read() } as usize;
    let behind_size = size_of::<u32>();
    if size <= behind_size {
        return Err(format!("the structure's size is {size}; expected {}: set `size` to sizeof", size_of::<T>()).into());
    }
    let (from, bytes) = (std::ptr::from_ref(value).cast::<u8>(), size.min(size_of::<T>()) - behind_size);
    // SAFETY: both have at least that many bytes and do not overlap. The first four bytes are not changed.
    unsafe {
        std::ptr::copy_nonoverlapping(from.wrapping_add(behind_size), to.cast::<u8>().wrapping_add(behind_size), bytes)
    };
    Ok(())
}

/// See `tahti.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tahti_api_version() -> u32 {
    10
}

/// See `tahti.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tahti_error() -> *const c_char {
    ERROR.try_with(|error| error.borrow().as_ptr()).unwrap_or(c"no reason is kept: the thread is ending".as_ptr())
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero; `exports` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_join(
    frame: *const c_char,
    activity: *const c_char,
    exports: *mut tahti_exports,
    within_ms: u32,
) -> *mut tahti_frame {
    let join = || {
        // SAFETY: the caller's promise.
        let frame = unsafe { text("the frame's name", frame) }?;
        // SAFETY: the caller's promise.
        let activity = unsafe { text("the activity's name", activity) }?;
        // SAFETY: NULL, or a handle that is only read.
        let exports = unsafe { exports.as_ref() }.map(|exports| &exports.exports);
        let member = Member::join(frame, activity, exports, DurNs::from_ms(within_ms.into()));
        member.map(tahti_frame).map_err(Failed::from)
    };
    handle(join())
}

/// See `tahti.h`.
///
/// # Safety
/// `frame` is a handle of this thread; `turn` begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_yield(frame: *mut tahti_frame, turn: *mut tahti_turn) -> c_int {
    let next = || {
        // SAFETY: the caller's promise.
        let frame = unsafe { open(frame) }?;
        let Some(now) = frame.0.next_turn() else {
            return if frame.0.frame_died() { Err("the frame's process has died".into()) } else { Ok(0) };
        };
        let (pulse, due_ns, end_ns) = (now.pulse, now.due.0, now.end.0);
        let void_ns = now.deadline.map_or(0, |deadline| (now.due + deadline.void_after()).0);
        let value = tahti_turn { size: 0, minor: now.minor, mode: now.mode, pulse, due_ns, end_ns, void_ns };
        // SAFETY: the caller's promise.
        unsafe { fill(turn, &value) }.map(|()| 1)
    };
    answer(next())
}

/// See `tahti.h`.
///
/// # Safety
/// `frame` is a handle of this thread; the text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_mode(frame: *mut tahti_frame, mode: *const c_char) -> c_int {
    let ask = || {
        // SAFETY: the caller's promise.
        let frame = unsafe { open(frame) }?;
        // SAFETY: the caller's promise.
        let mode = unsafe { text("the mode's name", mode) }?;
        frame.0.want_mode(mode).map(|()| 0).map_err(Failed::from)
    };
    answer(ask())
}

/// See `tahti.h`.
///
/// # Safety
/// `frame` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_leave(frame: *mut tahti_frame) {
    if !frame.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(frame) });
    }
}

/// See `tahti.h`.
///
/// # Safety
/// The text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_trigger(frame: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text("the frame's name", frame) };
    answer(name.and_then(|name| trigger(name).map(|()| 0).map_err(Failed::from)))
}

/// See `tahti.h`.
///
/// # Safety
/// The text ends with a zero; the descriptor stays open during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_frame_trigger_fd(frame: *const c_char, fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text("the frame's name", frame) };
    answer(name.and_then(|name| {
        if fd < 0 {
            return Err(format!("the descriptor is {fd}; expected one that is open").into());
        }
        // SAFETY: not -1, and the caller promises that it stays open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        hand_trigger(name, fd).map(|()| 0).map_err(Failed::from)
    }))
}

/// See `tahti.h`.
///
/// # Safety
/// The text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_export_open(name: *const c_char, count: u32) -> *mut tahti_exports {
    // SAFETY: the caller's promise.
    let name = unsafe { text("the name", name) };
    handle(
        name.and_then(|name| Exports::open(name, count as usize).map_err(Failed::from))
            .map(|exports| tahti_exports { exports, sampler: Mutex::default() }),
    )
}

/// See `tahti.h`.
///
/// # Safety
/// `exports` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_export_period(exports: *mut tahti_exports, period_ns: u64) {
    // SAFETY: NULL, or a handle that is only read.
    if let Some(exports) = unsafe { exports.as_ref() } {
        exports.exports.set_period(DurNs(i64::try_from(period_ns).unwrap_or(i64::MAX)));
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `exports` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_export_cycle(exports: *mut tahti_exports, pulse: u64, marks: u64) -> c_int {
    let cycle = || {
        // SAFETY: NULL, or a handle that is only read.
        let exports = unsafe { exports.as_ref() }.ok_or("the handle is NULL; expected one of tahti_export_open")?;
        // Does not wait: the lock is only taken if another thread calls this function, which the contract forbids.
        let mut sampler = exports.sampler.try_lock().map_err(|_| "another thread ends its cycles here")?;
        let sampler = match &mut *sampler {
            Some(sampler) => sampler,
            none => none.insert(exports.exports.sampler()?),
        };
        sampler.cycle(pulse, sys::clock::mono_now(), marks);
        Ok(0)
    };
    answer(cycle())
}

/// Adds a variable.
///
/// # Safety
/// As the functions that call it.
unsafe fn add(
    exports: *mut tahti_exports,
    name: *const c_char,
    unit: *const c_char,
    first: Number,
    safe: Option<Number>,
) -> c_int {
    let add = || {
        // SAFETY: NULL, or a handle that is only read.
        let exports = unsafe { exports.as_ref() }.ok_or("the handle is NULL; expected one of tahti_export_open")?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("the variable's name", name) }?;
        // SAFETY: the caller's promise.
        let unit = unsafe { text("the unit", unit) }?;
        Ok(exports.exports.add(&VariableSpec { name, unit, first, safe })? as c_int)
    };
    answer(add())
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero; `exports` is a handle; `safe` is NULL or a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_export_double(
    exports: *mut tahti_exports,
    name: *const c_char,
    unit: *const c_char,
    safe: *const f64,
) -> c_int {
    // SAFETY: NULL, or the caller's promise.
    let safe = unsafe { safe.as_ref() }.map(|safe| Number::Float(*safe));
    // SAFETY: the caller's promise.
    unsafe { add(exports, name, unit, Number::Float(0.0), safe) }
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero; `exports` is a handle; `safe` is NULL or a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_export_int(
    exports: *mut tahti_exports,
    name: *const c_char,
    unit: *const c_char,
    safe: *const i64,
) -> c_int {
    // SAFETY: NULL, or the caller's promise.
    let safe = unsafe { safe.as_ref() }.map(|safe| Number::Int(*safe));
    // SAFETY: the caller's promise.
    unsafe { add(exports, name, unit, Number::Int(0), safe) }
}

/// Writes a variable.
///
/// # Safety
/// `exports` is NULL or a handle.
unsafe fn set(exports: *mut tahti_exports, index: c_int, value: Number, pulse: u64) -> c_int {
    // SAFETY: NULL, or a handle that is only read.
    let exports = unsafe { exports.as_ref() };
    let written = exports.is_some_and(|exports| {
        usize::try_from(index).is_ok_and(|index| exports.exports.set(index, value, pulse, sys::clock::mono_now()))
    });
    // No error text is stored, because that would allocate.
    if written { 0 } else { -1 }
}

/// See `tahti.h`.
///
/// # Safety
/// `exports` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_set_double(exports: *mut tahti_exports, index: c_int, value: f64, pulse: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set(exports, index, Number::Float(value), pulse) }
}

/// See `tahti.h`.
///
/// # Safety
/// `exports` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_set_int(exports: *mut tahti_exports, index: c_int, value: i64, pulse: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set(exports, index, Number::Int(value), pulse) }
}

/// See `tahti.h`.
///
/// # Safety
/// The text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_import_open(name: *const c_char) -> *mut tahti_imports {
    // SAFETY: the caller's promise.
    let name = unsafe { text("the name", name) };
    handle(name.and_then(|name| Imports::open(name).map_err(Failed::from)).map(tahti_imports))
}

/// See `tahti.h`.
///
/// # Safety
/// `imports` is a handle; the text ends with a zero; `reading` begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_import_get(
    imports: *mut tahti_imports,
    name: *const c_char,
    reading: *mut tahti_reading,
) -> c_int {
    let get = || {
        // SAFETY: the caller's promise.
        let imports = unsafe { open(imports) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("the variable's name", name) }?;
        let read = imports.0.get(name).ok_or_else(|| format!("there is no variable {name:?}, or it cannot be read"))?;
        let (kind, as_double, as_int) = match read.value {
            Number::Float(value) => (1, value, value as i64),
            Number::Int(value) => (2, value as f64, value),
            Number::Bool(value) => (3, f64::from(u8::from(value)), value.into()),
        };
        let (pulse, at_ns, writes) = (read.pulse, read.at.0, read.writes);
        let (safe, alive) = (read.safe.into(), imports.0.is_alive().into());
        let value = tahti_reading { size: 0, kind, as_double, as_int, pulse, at_ns, writes, safe, alive };
        // SAFETY: the caller's promise.
        unsafe { fill(reading, &value) }.map(|()| 0)
    };
    answer(get())
}

/// See `tahti.h`.
///
/// # Safety
/// `imports` is a handle; `name` has room for 65 bytes, `unit` for 17.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_import_name(
    imports: *mut tahti_imports,
    index: u32,
    name: *mut c_char,
    unit: *mut c_char,
) -> c_int {
    let get = || {
        // SAFETY: the caller's promise.
        let imports = unsafe { open(imports) }?;
        let segment = imports.0.segment()?;
        let known = segment.name(index as usize).zip(segment.unit(index as usize));
        let (known, of) =
            known.ok_or_else(|| format!("there is no variable {index}; expected less than {}", segment.len()))?;
        for (to, text) in [(name, known.as_str()), (unit, of.as_str())] {
            if to.is_null() {
                continue;
            }
            // SAFETY: the caller promises room for the longest text and its NUL, and no overlap.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len()) };
            // SAFETY: as above. The NUL follows the text.
            unsafe { to.cast::<u8>().wrapping_add(text.len()).write(0) };
        }
        Ok(0)
    };
    answer(get())
}

/// See `tahti.h`.
///
/// # Safety
/// `imports` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_import_close(imports: *mut tahti_imports) {
    if !imports.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(imports) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::scope::{Condition, Mode, Oscilloscope, Request, Timing, marks};

    #[test]
    fn a_program_with_its_own_loop_ends_its_cycles_for_the_oscilloscope() {
        let name = CString::new(format!("capi-scope-{}", std::process::id())).unwrap();
        // SAFETY: NUL-terminated texts, and a handle that only this thread uses.
        let exports = unsafe { tahti_export_open(name.as_ptr(), 1) };
        // SAFETY: as above. NULL means no safe value.
        let index = unsafe { tahti_export_int(exports, c"count".as_ptr(), c"".as_ptr(), std::ptr::null()) };
        assert_eq!(index, 0);
        let cycle = |pulse: u64, missed: bool| {
            // SAFETY: as above.
            assert_eq!(unsafe { tahti_set_int(exports, index, pulse as i64 * 2, pulse) }, 0);
            // SAFETY: as above.
            assert_eq!(unsafe { tahti_export_cycle(exports, pulse, if missed { marks::MISS } else { 0 }) }, 0);
        };
        cycle(0, false);
        let scope = Oscilloscope::open(name.to_str().unwrap()).unwrap();
        let timing = Timing { mode: Mode::Normal, pre: 2, length: 4, every: 1, holdoff: 0, patience: 0, captures: 1 };
        let (channels, condition) = (vec!["count".to_owned()], Condition::Miss);
        scope.set_up(&Request { channels, timing, condition, on: None, keep: 1, detached: false }).unwrap();
        (1..=9).for_each(|pulse| cycle(pulse, pulse == 5));
        let (_, rows) = scope.captured(0).pop().unwrap();
        let seen: Vec<(u64, u64)> = rows.words.chunks(rows.row_words).map(|row| (row[0], row[3])).collect();
        assert_eq!((seen, rows.trigger), (vec![(3, 6), (4, 8), (5, 10), (6, 12)], Some(2)));
        // SAFETY: NULL is detected and reported.
        assert_eq!(unsafe { tahti_export_cycle(std::ptr::null_mut(), 1, 0) }, -1);
    }
}

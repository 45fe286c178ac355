//! Messages for C: the parts that clients and managers share.

pub mod client;
pub mod manager;
pub mod room;

use crate::{Failed, answer, fail, text};
use msg::{Band, Code, Lines, write_lines};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The words of `Code::ALL`, with the zero that C needs.
const CODES: [&std::ffi::CStr; Code::ALL.len()] = [
    c"OK",
    c"NO_OBJECT",
    c"NO_VERB",
    c"DENIED",
    c"LOCKED",
    c"BUSY",
    c"RANGE",
    c"DEVICE",
    c"EXPIRED",
    c"OVERLOAD",
    c"MALFORMED",
    c"TIMEOUT",
    c"UNKNOWN",
    c"INTERNAL",
];

/// Locks state that one thread at a time may use. Fails instead of waiting if another thread uses it.
fn only<T>(place: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failed> {
    match place.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err("another thread is at it, or a handler; expected one thread at a time: wake it and call from there"
                .into())
        }
    }
}

fn band(number: u32) -> Result<Band, Failed> {
    let band = u8::try_from(number).ok().and_then(Band::new);
    band.ok_or_else(|| format!("band {number}, expected 0 to {}", msg::BANDS - 1).into())
}

/// Bytes that the caller passes.
///
/// # Safety
/// `from` is NULL, or `length` bytes may be read there as long as the result is used.
unsafe fn bytes<'a>(from: *const c_void, length: u64) -> Result<&'a [u8], Failed> {
    if length == 0 {
        return Ok(&[]);
    }
    let most = broker::POOL_BYTES_MAX;
    if from.is_null() || length > most {
        return Err(format!("a body of {length} bytes at {from:?}; expected at most {most}, and not at NULL").into());
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), length as usize) })
}

/// See `tahti.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tahti_code(code: u32) -> *const c_char {
    CODES.get(code as usize).map_or(std::ptr::null(), |word| word.as_ptr())
}

/// See `tahti.h`.
///
/// # Safety
/// `lines` has `count` texts that end with a zero; `room` bytes may be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_lines_write(lines: *const *const c_char, count: u32, to: *mut c_void, room: u64) -> i64 {
    let write = || {
        if count as usize > msg::BATCH_LINES_MAX {
            return Err(format!("{count} lines; expected at most {}", msg::BATCH_LINES_MAX).into());
        }
        if count > 0 && lines.is_null() {
            return Err(format!("the lines are NULL; expected {count}").into());
        }
        let mut texts = Vec::new();
        for at in 0..count as usize {
            // SAFETY: the caller's promise.
            let line = unsafe { lines.wrapping_add(at).read() };
            // SAFETY: the caller's promise.
            texts.push(unsafe { text("a line", line) }?);
        }
        let mut body = Vec::new();
        write_lines(texts.into_iter(), &mut body);
        let most = usize::try_from(room).unwrap_or(usize::MAX).min(msg::BODY_BYTES_MAX);
        if body.len() > most {
            return Err(format!("{} bytes; expected at most {most}", body.len()).into());
        }
        if to.is_null() {
            return Err("the room is NULL".into());
        }
        // SAFETY: the size was checked, and the new allocation overlaps nothing.
        unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to.cast(), body.len()) };
        Ok(body.len() as i64)
    };
    write().unwrap_or_else(|why: Failed| {
        fail(&why.0);
        -1
    })
}

/// See `tahti.h`.
///
/// # Safety
/// `length` bytes may be read at `body`; `line` and `line_bytes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_line_read(
    body: *const c_void,
    length: u64,
    index: u32,
    line: *mut *const c_char,
    line_bytes: *mut u64,
) -> c_int {
    let read = || {
        // SAFETY: the caller's promise.
        let body = unsafe { bytes(body, length) }?;
        let Some(found) = Lines::read(body)?.nth(index as usize) else {
            return Ok(0);
        };
        let found = found?;
        if line.is_null() || line_bytes.is_null() {
            return Err("line or line_bytes is NULL; expected where to put them".into());
        }
        // SAFETY: the caller's promise.
        unsafe { line.write(found.as_ptr().cast()) };
        // SAFETY: the caller's promise.
        unsafe { line_bytes.write(found.len() as u64) };
        Ok(1)
    };
    answer(read())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_the_c_interface_are_those_of_messages() {
        assert_eq!(CODES.map(|word| word.to_str().unwrap()), Code::ALL.map(Code::word));
        for (at, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, at);
        }
        let header = include_str!("../../include/tahti.h");
        for code in Code::ALL {
            assert!(header.contains(&format!("#define TAHTI_{} {}\n", code.word(), code as u8)), "{code}");
        }
    }
}

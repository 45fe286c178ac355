//! Events that a program reports, for C.

use crate::{answer, text};
use std::ffi::{c_char, c_int};

/// See `tahti.h`.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_event(name: *const c_char, value: i64) -> c_int {
    let report = || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("the event's name", name) }?;
        Ok(rt::program_event(name, value).map(|()| 0)?)
    };
    answer(report())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_c_has_its_name_and_number_and_a_wrong_name_is_refused() {
        // SAFETY: a NUL-terminated text.
        assert_eq!(unsafe { tahti_event(c"from C".as_ptr(), -7) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { tahti_event(c"a name that is too long".as_ptr(), 1) }, -1);
        // SAFETY: NULL is detected and reported.
        assert_eq!(unsafe { tahti_event(std::ptr::null(), 1) }, -1);
        let mut events = rt::ProgramEvents::open(std::process::id().cast_signed()).unwrap();
        let mut found = Vec::new();
        events.read(|event| found.push((event.name, event.value)));
        assert_eq!(found, [(*b"from C\0\0\0\0\0\0\0\0\0\0", -7)]);
    }
}

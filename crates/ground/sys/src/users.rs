//! User names from the C library's name services.

use rustix::process::getuid;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Id and name of the user who started this process; the name is `None` if no name service has it.
#[must_use]
pub fn own() -> (u32, Option<String>) {
    let uid = getuid().as_raw();
    (uid, name_of(uid))
}

/// The name of a user; `None` if no name service has it. Allocates, and may wait for a directory service.
#[must_use]
pub fn name_of(uid: u32) -> Option<String> {
    let mut room = vec![0u8; 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are valid and writable for the call, `room` for its whole length.
        let failed =
            unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), room.as_mut_ptr().cast(), room.len(), &raw mut found) };
        match failed {
            // An entry of a directory service may be long. One above 1 MiB is treated as missing.
            libc::ERANGE if room.len() < 1 << 20 => room.resize(room.len() * 2, 0),
            _ if failed != 0 || found.is_null() => return None,
            _ => {
                // SAFETY: the call has filled it, as it reports an entry.
                let name = unsafe { entry.assume_init() }.pw_name;
                // SAFETY: a zero-terminated string in `room`.
                let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
                return Some(name.to_owned()).filter(|name| !name.is_empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_an_unused_user_number_has_none() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(u32::MAX - 7), None);
    }
}

//! Rooms in a client's pool for C: memory for bodies that are made in place.

use super::client::{sending, tahti_client, tahti_sending};
use crate::{Failed, fail, handle, text};
use broker::{Mapping, Room, Sending};
use std::ffi::{c_char, c_void};
use std::sync::PoisonError;

/// A room, as C holds it. Its memory stays mapped as long as C does.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub struct tahti_room {
    /// `None`: it has been sent.
    room: Option<Room>,
    memory: *mut c_void,
    _mapping: Mapping,
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_room(client: *const tahti_client, bytes: u64) -> *mut tahti_room {
    let make = || {
        // SAFETY: the caller's promise.
        let client = unsafe { super::client::shared(client) }?;
        let rooms = client.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let rooms = rooms.as_ref().ok_or("the client has no pool, or no connection at the moment")?;
        let room = rooms.room(bytes)?;
        let memory = room.words().as_ptr().cast_mut().cast();
        Ok(tahti_room { memory, _mapping: room.mapping(), room: Some(room) })
    };
    handle(make())
}

/// See `tahti.h`.
///
/// # Safety
/// `room` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_room_memory(room: *const tahti_room) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { room.as_ref() }.map_or(std::ptr::null_mut(), |room| room.memory)
}

/// See `tahti.h`.
///
/// # Safety
/// `client` and `room` are handles; the text ends with a zero; `how` is NULL or begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_send_room(
    client: *mut tahti_client,
    line: *const c_char,
    how: *const tahti_sending,
    room: *mut tahti_room,
    body_bytes: u64,
) -> i64 {
    let send = || {
        // SAFETY: the caller's promise.
        let client = unsafe { super::client::shared(client) }?;
        // SAFETY: the caller's promise.
        let line = unsafe { text("the line", line) }?;
        // SAFETY: the caller's promise.
        let how = unsafe { sending(how) }?;
        // SAFETY: the caller's promise. No other code uses the room.
        let tahti_room { room, .. } =
            unsafe { room.as_mut() }.ok_or("the room is NULL; expected one of tahti_client_room")?;
        if let Some(room) = room {
            let most = room.room();
            let bytes = usize::try_from(body_bytes).ok().filter(|bytes| *bytes <= most);
            room.filled(bytes.ok_or_else(|| format!("a body of {body_bytes} bytes in a room for {most}"))?);
        }
        client.send(|open| open.send_room_or_keep(line, &Sending { body: &[], ..how }, room))
    };
    send().unwrap_or_else(|why: Failed| {
        fail(&why.0);
        -1
    })
}

/// See `tahti.h`.
///
/// # Safety
/// `room` is NULL or a handle, which is not used afterwards, nor its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_room_free(room: *mut tahti_room) {
    if !room.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(room) });
    }
}

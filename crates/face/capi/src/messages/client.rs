//! Message client for C.

use super::{band, bytes, only};
use crate::{Failed, answer, fail, fill, handle, text};
use base::DurNs;
use broker::{Client, ClientError, Received, Rooms, Sending, Waker};
use msg::Flags;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// A connection to a message server, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub struct tahti_client {
    open: Mutex<Open>,
    waker: Mutex<Option<Waker>>,
    pub(super) rooms: Mutex<Option<Rooms>>,
}

/// State that one thread at a time uses.
struct Open {
    client: Client,
    /// The message that was handed out last.
    received: Option<Received>,
    /// The text of that message, with the terminating zero.
    text: Vec<u8>,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug)]
pub struct tahti_sending {
    pub size: u32,
    pub flags: u32,
    pub within_ns: i64,
    pub pulse: u64,
    pub body: *const c_void,
    pub body_bytes: u64,
    pub answer_bytes: u64,
}

/// Size of [`tahti_sending`] in version 3 of the interface.
const SENDING_BYTES: usize = std::mem::offset_of!(tahti_sending, answer_bytes);

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug)]
pub struct tahti_reply {
    pub size: u32,
    pub code: u32,
    pub id: u64,
    pub pulse: u64,
    pub text: *const c_char,
    pub text_bytes: u64,
    pub body: *const c_void,
    pub body_bytes: u64,
    pub event: u32,
    pub reserved: u32,
}

/// Options for sending a request; the defaults if NULL.
///
/// # Safety
/// `sending` is NULL or begins with its size, and its body may be read as long as the result is used.
pub(super) unsafe fn sending<'a>(sending: *const tahti_sending) -> Result<Sending<'a>, Failed> {
    if sending.is_null() {
        return Ok(Sending::default());
    }
    // SAFETY: the caller promises that the structure begins with its size.
    let size = unsafe { sending.cast::<u32>().read() } as usize;
    if size < SENDING_BYTES {
        return Err(format!(
            "the size of tahti_sending is {size}; expected at least {SENDING_BYTES}: set `size` to sizeof"
        )
        .into());
    }
    let nothing = std::ptr::null();
    let mut given =
        tahti_sending { size: 0, flags: 0, within_ns: 0, pulse: 0, body: nothing, body_bytes: 0, answer_bytes: 0 };
    let bytes_known = size.min(size_of::<tahti_sending>());
    // SAFETY: not NULL, and as large as it declares. All fields are plain numbers and a pointer.
    unsafe { std::ptr::copy_nonoverlapping(sending.cast::<u8>(), (&raw mut given).cast(), bytes_known) };
    let known = [(1, Flags::IDEMPOTENT), (2, Flags::DRY_RUN)].into_iter();
    let flags = known.fold(Flags::NONE, |all, (bit, flag)| if given.flags & bit == 0 { all } else { all.with(flag) });
    if given.flags > 3 {
        return Err(format!("flags {}; expected a sum of TAHTI_IDEMPOTENT and TAHTI_DRY_RUN", given.flags).into());
    }
    let limit = if given.within_ns > 0 { DurNs(given.within_ns) } else { Sending::default().limit };
    // SAFETY: the caller's promise.
    let body = unsafe { bytes(given.body, given.body_bytes) }?;
    Ok(Sending { limit, flags, pulse: given.pulse, body, answer: given.answer_bytes, ..Sending::default() })
}

impl tahti_client {
    /// Updates the waker and the rooms. Needed after each call that may have reconnected.
    fn renew(&self, open: &Open) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = open.client.waker();
        *self.rooms.lock().unwrap_or_else(PoisonError::into_inner) = open.client.rooms();
    }

    /// Sends a request and returns its id. Returns 0 if the caller must take replies first.
    pub(super) fn send(&self, send: impl FnOnce(&mut Client) -> Result<u64, ClientError>) -> Result<i64, Failed> {
        let mut open = only(&self.open)?;
        let sent = send(&mut open.client);
        self.renew(&open);
        match sent {
            Ok(id) => Ok(id as i64),
            Err(ClientError::Full) => Ok(0),
            // Outstanding requests release their room when they finish.
            Err(ClientError::NoRoom(_)) if open.client.outstanding() > 0 => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl Open {
    /// Stores the message and fills the caller's structure, which points into it.
    ///
    /// # Safety
    /// `reply` is NULL or begins with its size.
    unsafe fn hand_out(&mut self, mut received: Received, reply: *mut tahti_reply) -> Result<(), Failed> {
        // Copied out, so that the other process cannot change it during the read.
        if let Some(room) = received.room.take().filter(|room| !room.is_empty()) {
            received.body.resize(room.len(), 0);
            room.copy_to(&mut received.body);
        }
        let received = self.received.insert(received);
        self.text.clear();
        self.text.extend_from_slice(received.text.as_bytes());
        self.text.push(0);
        let value = tahti_reply {
            size: 0,
            code: received.code as u32,
            id: received.id,
            pulse: received.pulse,
            text: self.text.as_ptr().cast(),
            text_bytes: received.text.len() as u64,
            body: received.body.as_ptr().cast(),
            body_bytes: received.body.len() as u64,
            event: received.event.into(),
            reserved: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { fill(reply, &value) }
    }
}

/// The client of a handle.
///
/// # Safety
/// `client` is NULL or a handle.
pub(super) unsafe fn shared<'a>(client: *const tahti_client) -> Result<&'a tahti_client, Failed> {
    // SAFETY: the caller's promise. The handle is only used by shared reference.
    unsafe { client.as_ref() }.ok_or_else(|| "the handle is NULL; expected one of tahti_client_connect".into())
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_connect(
    server: *const c_char,
    name: *const c_char,
    urgency: u32,
) -> *mut tahti_client {
    // SAFETY: the caller's promise.
    unsafe { tahti_client_connect_with_pool(server, name, urgency, 0) }
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_connect_with_pool(
    server: *const c_char,
    name: *const c_char,
    urgency: u32,
    pool_bytes: u64,
) -> *mut tahti_client {
    let connect = || {
        // SAFETY: the caller's promise.
        let server = unsafe { text("the server's name", server) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("the client's name", name) }?;
        let client = match pool_bytes {
            0 => Client::connect(server, name, band(urgency)?),
            bytes => Client::with_pool(server, name, band(urgency)?, bytes),
        };
        let client = client?;
        let (waker, rooms) = (Mutex::new(client.waker()), Mutex::new(client.rooms()));
        Ok(tahti_client { open: Mutex::new(Open { client, received: None, text: Vec::new() }), waker, rooms })
    };
    handle(connect())
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle; the text ends with a zero; `how` is NULL or begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_send(
    client: *mut tahti_client,
    line: *const c_char,
    how: *const tahti_sending,
) -> i64 {
    let send = || {
        // SAFETY: the caller's promise.
        let client = unsafe { shared(client) }?;
        // SAFETY: the caller's promise.
        let line = unsafe { text("the line", line) }?;
        // SAFETY: the caller's promise.
        let how = unsafe { sending(how) }?;
        client.send(|open| open.send(line, &how))
    };
    send().unwrap_or_else(|why: Failed| {
        fail(&why.0);
        -1
    })
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle; `reply` begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_next(
    client: *mut tahti_client,
    reply: *mut tahti_reply,
    within_ns: i64,
) -> c_int {
    let next = || {
        // SAFETY: the caller's promise.
        let client = unsafe { shared(client) }?;
        let mut open = only(&client.open)?;
        let came = open.client.next(DurNs(within_ns.max(0)));
        client.renew(&open);
        match came? {
            None => Ok(0),
            // SAFETY: the caller's promise.
            Some(received) => unsafe { open.hand_out(received, reply) }.map(|()| 1),
        }
    };
    answer(next())
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle; the text ends with a zero; `how` is NULL or begins with its size, as does `reply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_ask(
    client: *mut tahti_client,
    line: *const c_char,
    how: *const tahti_sending,
    reply: *mut tahti_reply,
) -> c_int {
    let ask = || {
        // SAFETY: the caller's promise.
        let client = unsafe { shared(client) }?;
        // SAFETY: the caller's promise.
        let line = unsafe { text("the line", line) }?;
        // SAFETY: the caller's promise.
        let how = unsafe { sending(how) }?;
        let mut open = only(&client.open)?;
        let received = open.client.ask(line, &how);
        client.renew(&open);
        // SAFETY: the caller's promise.
        unsafe { open.hand_out(received?, reply) }.map(|()| 0)
    };
    answer(ask())
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_outstanding(client: *mut tahti_client) -> c_int {
    // SAFETY: the caller's promise.
    let client = unsafe { shared(client) };
    answer(client.and_then(|client| Ok(only(&client.open)?.client.outstanding() as c_int)))
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_wake(client: *const tahti_client) {
    // SAFETY: the caller's promise.
    let Ok(client) = (unsafe { shared(client) }) else { return };
    if let Some(waker) = client.waker.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        waker.wake();
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `client` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_client_close(client: *mut tahti_client) {
    if !client.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(client) });
    }
}

//! Equipment manager for C.

use super::{CODES, band, bytes, only};
use crate::{Failed, answer, fail, handle, text};
use base::DurNs;
use broker::{Manager, ManagerLane, Replies, Waker};
use msg::{Answer, Band, Code, Flags, ManagerRequest, OBJECT_BYTES_MAX, TEXT_BYTES_MAX, Ticket};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::Mutex;

/// Maximum length of a request's verb, object and complement, each with its zero.
const WORDS_BYTES: usize = 16 + OBJECT_BYTES_MAX + 1 + TEXT_BYTES_MAX + 1;

/// A manager, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub struct tahti_manager {
    lanes: [Option<BandThread>; msg::BANDS],
}

/// One band of a manager.
struct BandThread {
    waker: Waker,
    open: Mutex<Open>,
}

/// State that one thread at a time uses.
struct Open {
    lane: ManagerLane,
    words: Box<[u8; WORDS_BYTES]>,
}

/// Receives the answers of a handler: a `broker::Replies`, whose lifetime C cannot express.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[repr(C)]
pub struct tahti_replies {
    _opaque: [u8; 0],
}

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Debug)]
pub struct tahti_asked {
    pub size: u32,
    pub band: u32,
    pub id: u64,
    pub verb: *const c_char,
    pub object: *const c_char,
    pub complement: *const c_char,
    pub body: *const c_void,
    pub body_bytes: u64,
    pub deadline_ns: u64,
    pub pulse: u64,
    pub flags: u32,
    pub user: u32,
    pub process: u32,
    pub host: u32,
    pub answer_bytes: u64,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub type tahti_handler =
    unsafe extern "C" fn(user: *mut c_void, asked: *const tahti_asked, replies: *mut tahti_replies);

/// Writes the words of a request one after another. Returns where each begins. Does not allocate.
fn words(room: &mut [u8; WORDS_BYTES], asked: &ManagerRequest<'_>) -> Option<[*const c_char; 3]> {
    let mut rest = &mut room[..];
    let mut left = [0; 4];
    left[0] = rest.len();
    // The unescaped complement is never longer than the escaped form, whose length was checked when the text was
    // received.
    write!(rest, "{}\0", asked.request.verb).ok()?;
    left[1] = rest.len();
    write!(rest, "{}\0", asked.request.object).ok()?;
    left[2] = rest.len();
    write!(rest, "{}\0", asked.request.complement).ok()?;
    let begin = room.as_ptr();
    Some([0, 1, 2].map(|at| begin.wrapping_add(WORDS_BYTES - left[at]).cast()))
}

/// The thread of a band, with the band's number.
///
/// # Safety
/// `manager` is NULL or a handle.
unsafe fn place<'a>(manager: *const tahti_manager, number: u32) -> Result<(&'a BandThread, Band), Failed> {
    // SAFETY: the caller's promise. The handle is only used by shared reference.
    let manager = unsafe { manager.as_ref() }.ok_or("the handle is NULL; expected one of tahti_manager_connect")?;
    let band = band(number)?;
    let place = manager.lanes[usize::from(band.number())].as_ref();
    Ok((place.ok_or_else(|| format!("band {band}; expected one of those that the manager was connected with"))?, band))
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_connect(
    server: *const c_char,
    name: *const c_char,
    serves: *const c_char,
    bands: u32,
) -> *mut tahti_manager {
    // SAFETY: the caller's promise.
    unsafe { tahti_manager_connect_with_bodies(server, name, serves, bands, 0) }
}

/// See `tahti.h`.
///
/// # Safety
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_connect_with_bodies(
    server: *const c_char,
    name: *const c_char,
    serves: *const c_char,
    bands: u32,
    body_bytes: u64,
) -> *mut tahti_manager {
    let connect = || {
        // SAFETY: the caller's promise.
        let server = unsafe { text("the server's name", server) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("the manager's name", name) }?;
        // SAFETY: the caller's promise.
        let serves: Vec<&str> = unsafe { text("what it serves", serves) }?.split_whitespace().collect();
        if serves.is_empty() {
            return Err("it serves nothing; expected names of objects, with blanks between them".into());
        }
        let wanted: Vec<Band> = Band::all().filter(|band| bands & 1 << band.number() != 0).collect();
        if wanted.is_empty() || bands >> msg::BANDS != 0 {
            return Err(format!("bands {bands:#x}; expected a sum of 1 << BAND, or TAHTI_ALL_BANDS").into());
        }
        let mut lanes = [const { None }; msg::BANDS];
        let connected = match body_bytes {
            0 => Manager::connect(server, name, &serves, &wanted),
            bytes => Manager::with_bodies(server, name, &serves, &wanted, bytes),
        };
        for lane in connected? {
            let (at, waker) = (usize::from(lane.band().number()), lane.waker());
            lanes[at] = Some(BandThread { waker, open: Mutex::new(Open { lane, words: Box::new([0; WORDS_BYTES]) }) });
        }
        Ok(tahti_manager { lanes })
    };
    handle(connect())
}

/// See `tahti.h`.
///
/// # Safety
/// `manager` is a handle; `handler` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_serve(
    manager: *mut tahti_manager,
    band: u32,
    handler: Option<tahti_handler>,
    user: *mut c_void,
    within_ns: i64,
) -> c_int {
    let serve = || {
        // SAFETY: the caller's promise.
        let (place, band) = unsafe { place(manager, band) }?;
        let handler = handler.ok_or("the handler is NULL; expected a function")?;
        let mut open = only(&place.open)?;
        let Open { lane, words: room } = &mut *open;
        let served = lane.serve(DurNs(within_ns.max(0)), |asked, replies| {
            let Some([verb, object, complement]) = words(room, asked) else {
                replies.answer(asked.ticket, &Answer::failed(Code::Malformed, "a longer text than can be"));
                return;
            };
            let value = tahti_asked {
                size: size_of::<tahti_asked>() as u32,
                band: band.number().into(),
                id: asked.ticket.id,
                verb,
                object,
                complement,
                body: asked.body.as_ptr().cast(),
                body_bytes: asked.body.len() as u64,
                deadline_ns: asked.deadline.0,
                pulse: asked.pulse,
                flags: if asked.flags.has(Flags::DRY_RUN) { 2 } else { 0 },
                user: asked.subject.uid,
                process: asked.subject.pid,
                host: asked.subject.host.into(),
                answer_bytes: asked.answer_bytes_max,
            };
            // SAFETY: the caller promises that the handler may be called. All its arguments are valid until it
            // returns.
            unsafe { handler(user, &raw const value, std::ptr::from_mut(replies).cast()) };
        });
        served.map(|served| c_int::try_from(served).unwrap_or(c_int::MAX)).map_err(Failed::from)
    };
    answer(serve())
}

/// The replies and the request of a handler.
///
/// # Safety
/// Both pointers are those that the handler received.
unsafe fn at_hand<'a>(
    replies: *mut tahti_replies,
    asked: *const tahti_asked,
) -> Result<(&'a mut Replies<'a>, Ticket), Failed> {
    // SAFETY: made from a `Replies` that outlives the handler's call. Only that call uses it.
    let replies = unsafe { replies.cast::<Replies<'_>>().as_mut() }.ok_or("replies is NULL; expected the handler's")?;
    // SAFETY: the caller's promise.
    let asked = unsafe { asked.as_ref() }.ok_or("the request is NULL; expected the handler's")?;
    Ok((replies, Ticket { id: asked.id, band: band(asked.band)? }))
}

/// Memory in which the answer to a request may be written in place, and its size in bytes.
fn memory(replies: &Replies<'_>, ticket: Ticket) -> (*mut c_void, usize) {
    let none = (std::ptr::null_mut(), 0);
    replies.kept(ticket).map_or(none, |room| (room.words().as_ptr().cast_mut().cast(), room.room()))
}

/// See `tahti.h`.
///
/// # Safety
/// `replies` and `asked` are those that the handler received. `bytes` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_answer_memory(
    replies: *mut tahti_replies,
    asked: *const tahti_asked,
    bytes: *mut u64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let at_hand = unsafe { at_hand(replies, asked) };
    let (at, room) = match at_hand {
        Ok((replies, ticket)) => memory(replies, ticket),
        Err(why) => {
            fail(&why.0);
            (std::ptr::null_mut(), 0)
        }
    };
    // SAFETY: the caller's promise.
    if let Some(bytes) = unsafe { bytes.as_mut() } {
        *bytes = room as u64;
    }
    at
}

/// An answer from the arguments of the C functions.
///
/// # Safety
/// `complement` is NULL or ends with a zero; `body_bytes` bytes may be read at `body`; both as long as it is used.
unsafe fn answered<'a>(
    code: u32,
    complement: *const c_char,
    body: *const c_void,
    body_bytes: u64,
) -> Result<Answer<'a>, Failed> {
    let code = Code::ALL.get(code as usize).copied();
    let code = code.ok_or_else(|| format!("no code; expected TAHTI_OK to TAHTI_INTERNAL, below {}", CODES.len()))?;
    let complement = match complement.is_null() {
        true => "",
        // SAFETY: not NULL, and the caller's promise.
        false => unsafe { CStr::from_ptr(complement) }.to_str().map_err(|_| "the complement is no UTF-8")?,
    };
    // SAFETY: the caller's promise.
    Ok(Answer { code, complement, body: unsafe { bytes(body, body_bytes) }? })
}

/// See `tahti.h`.
///
/// # Safety
/// `replies` and `asked` are those that the handler received. `complement` is NULL or ends with a zero. `body_bytes`
/// bytes may be read at `body`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_answer(
    replies: *mut tahti_replies,
    asked: *const tahti_asked,
    code: u32,
    complement: *const c_char,
    body: *const c_void,
    body_bytes: u64,
) -> c_int {
    let put = || {
        // SAFETY: the caller's promise.
        let (replies, ticket) = unsafe { at_hand(replies, asked) }?;
        let (made, room) = memory(replies, ticket);
        let in_place = !made.is_null() && std::ptr::eq(made, body);
        // A body made in place is not read here: the client may write to the same memory.
        let (body, copied) = if in_place { (std::ptr::null(), 0) } else { (body, body_bytes) };
        // SAFETY: the caller's promise.
        let answer = unsafe { answered(code, complement, body, copied) }?;
        let put = match in_place {
            true if body_bytes > room as u64 => {
                return Err(
                    format!("a body of {body_bytes} bytes in the memory for the answer, which has {room}").into()
                );
            }
            true => replies.answer_made(ticket, answer.code, answer.complement, body_bytes as usize),
            false => replies.answer(ticket, &answer),
        };
        if put { Ok(0) } else { Err("the message server no longer accepts answers".into()) }
    };
    answer(put())
}

/// See `tahti.h`.
///
/// # Safety
/// `manager` is a handle; `complement` is NULL or ends with a zero; `body_bytes` bytes may be read at `body`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_answer(
    manager: *mut tahti_manager,
    band: u32,
    id: u64,
    code: u32,
    complement: *const c_char,
    body: *const c_void,
    body_bytes: u64,
) -> c_int {
    let put = || {
        // SAFETY: the caller's promise.
        let (place, band) = unsafe { place(manager, band) }?;
        // SAFETY: the caller's promise.
        let answer = unsafe { answered(code, complement, body, body_bytes) }?;
        let mut put = false;
        only(&place.open)?.lane.replies(|replies| put = replies.answer(Ticket { id, band }, &answer));
        if put { Ok(0) } else { Err("the message server no longer accepts answers".into()) }
    };
    answer(put())
}

/// See `tahti.h`.
///
/// # Safety
/// `manager` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_wake(manager: *const tahti_manager, band: u32) {
    // SAFETY: the caller's promise.
    match unsafe { place(manager, band) } {
        Ok((place, _)) => place.waker.wake(),
        Err(why) => fail(&why.0),
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `manager` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_manager_close(manager: *mut tahti_manager) {
    if !manager.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(manager) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::server::{Config, Event, serve};
    use broker::{Client, Sending};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    const BYTES: usize = 1 << 20;

    /// Answers with 1 MiB that is written in place, or with the reason why not.
    unsafe extern "C" fn image(failed: *mut c_void, asked: *const tahti_asked, replies: *mut tahti_replies) {
        let mut bytes = 0;
        // SAFETY: the arguments are those of the handler.
        let memory = unsafe { tahti_answer_memory(replies, asked, &raw mut bytes) };
        if memory.is_null() {
            assert_eq!(bytes, 0);
            // SAFETY: the arguments are those of the handler.
            unsafe { tahti_answer(replies, asked, Code::Ok as u32, c"no room".as_ptr(), std::ptr::null(), 0) };
            return;
        }
        for at in 0..BYTES {
            // SAFETY: `at` is below the size of the memory.
            unsafe { memory.cast::<u8>().wrapping_add(at).write_volatile(at as u8) };
        }
        let answer = |bytes: usize| {
            // SAFETY: the arguments are those of the handler.
            unsafe { tahti_answer(replies, asked, Code::Ok as u32, c"made".as_ptr(), memory, bytes as u64) }
        };
        // SAFETY: the pointer that the test passed as `user`.
        unsafe { failed.cast::<c_int>().write(answer(bytes as usize + 1)) };
        assert_eq!((bytes as usize >= BYTES, answer(BYTES)), (true, 0));
    }

    #[test]
    fn the_body_of_an_answer_is_written_in_place_if_its_client_has_a_pool() {
        let (name, stop) = (format!("capi-{}", std::process::id()), Arc::new(AtomicBool::new(false)));
        let (ready, is_ready) = channel();
        let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
        let server = std::thread::spawn(move || {
            let mut say = |event| {
                if matches!(event, Event::Ready(_)) {
                    ready.send(()).unwrap();
                }
            };
            serve(config, &stopped, &mut say).unwrap();
        });
        is_ready.recv().unwrap();
        let server_name = std::ffi::CString::new(name.clone()).unwrap();
        let band = u32::from(Band::DEFAULT.number());
        let (mut failed, mut served): (c_int, c_int) = (0, 0);
        let camera = c"camera".as_ptr();
        // SAFETY: NUL-terminated texts.
        let manager =
            unsafe { tahti_manager_connect_with_bodies(server_name.as_ptr(), camera, camera, 1 << band, 1 << 16) };
        assert!(!manager.is_null());
        let asks = std::thread::spawn(move || {
            let mut client = Client::with_pool(&name, "asking", Band::DEFAULT, 4 << 20).unwrap();
            let sending = Sending { limit: DurNs::from_secs(60), ..Sending::default() };
            let large = client.ask("get/camera/image", &Sending { answer: BYTES as u64, ..sending }).unwrap();
            (large, client.ask("get/camera/image", &sending).unwrap())
        });
        while served < 2 {
            let user = (&raw mut failed).cast();
            // SAFETY: a valid handle, and a handler that takes this `user`.
            served += unsafe { tahti_manager_serve(manager, band, Some(image), user, 60_000_000_000) };
        }
        let (large, small) = asks.join().unwrap();
        // SAFETY: a valid handle, which is not used afterwards.
        unsafe { tahti_manager_close(manager) };
        assert_eq!(
            (large.code, &*large.text, failed),
            (Code::Ok, "made", -1),
            "more than the available room is refused"
        );
        assert!(large.body.len() == BYTES && large.body.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert_eq!((small.code, &*small.text), (Code::Ok, "no room"));
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
    }
}

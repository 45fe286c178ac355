//! Wire format of messages between hosts.
//!
//! A body above 16 KiB, or the body of a request whose answer may be that long, follows the frame. As for a
//! [pool](Pooled), the frame has the body's length and the space for the answer. The field for the pool's number
//! contains the body's checksum.

use crate::error::WireError;
use base::{DurNs, MonoNs};
use msg::{
    BODY_BYTES_MAX, Band, Code, Flags, Frame, FrameError, HEADER_BYTES, Header, Kind, ManagerRequest, Pooled,
    TextBuffer,
};
use msg::{Reply, Request, Subject, checksum};
use zenoh::qos::Priority;

/// Divisor of the remaining time: 1/16 is reserved for the way back, so that a missing answer is also reported in time.
const KEPT: i64 = 16;
/// Maximum of that reserve.
const KEPT_MAX: DurNs = DurNs::from_ms(50);

/// Zenoh's priority of a band. Zenoh keeps its highest priority for itself, so there is one less than there are bands:
/// 0 and 1 share the lowest.
pub(crate) fn priority(band: Band) -> Priority {
    match band.number() {
        7.. => Priority::RealTime,
        6 => Priority::InteractiveHigh,
        5 => Priority::InteractiveLow,
        4 => Priority::DataHigh,
        3 => Priority::Data,
        2 => Priority::DataLow,
        _ => Priority::Background,
    }
}

/// Part of the remaining time that the next hop gets.
pub(crate) fn limit(remaining: DurNs) -> DurNs {
    DurNs(remaining.0 - (remaining.0 / KEPT).min(KEPT_MAX.0))
}

/// Encodes a request to another host.
pub(crate) fn request(asked: &ManagerRequest<'_>, limit: DurNs) -> Result<Vec<u8>, FrameError> {
    let header = Header {
        flags: asked.flags.without(Flags::POOLED),
        deadline: Some(MonoNs(limit.0.unsigned_abs())),
        pulse: asked.pulse,
        subject: asked.subject,
        hops: 1,
        ..Header::request(asked.band(), asked.ticket.id)
    };
    encode(header, &asked.request.to_string(), asked.body, asked.answer_bytes_max)
}

/// A request from another host.
pub(crate) struct Incoming<'a> {
    pub(crate) header: Header,
    pub(crate) line: &'a str,
    pub(crate) body: &'a [u8],
    /// Maximum bytes of the answer's body.
    pub(crate) answer: u64,
    pub(crate) limit: DurNs,
}

/// Parses a request from another host.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Incoming<'_>, WireError> {
    let (frame, body, answer) = decode(bytes)?;
    Request::parse(frame.text)?;
    let Header { kind, deadline, flags, .. } = frame.header;
    match deadline {
        Some(limit) if kind == Kind::Request => Ok(Incoming {
            header: Header { flags: flags.without(Flags::POOLED), ..frame.header },
            line: frame.text,
            body,
            answer,
            limit: DurNs(i64::try_from(limit.0).unwrap_or(i64::MAX)),
        }),
        _ => Err(WireError::NoRequest),
    }
}

/// Encodes a reply to another host.
pub(crate) fn reply(asked: &Header, code: Code, complement: &str, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut line = TextBuffer::new();
    line.reply(code, complement);
    encode(Header { subject: Subject::default(), ..asked.reply() }, line.text(), body, 0)
}

/// Parses a reply from another host: code, unescaped complement, body.
pub(crate) fn parse_reply(bytes: &[u8]) -> Result<(Code, String, Vec<u8>), WireError> {
    let (frame, body, _) = decode(bytes)?;
    let reply = Reply::parse(frame.text)?;
    Ok((reply.code, reply.complement.text().into_owned(), body.to_vec()))
}

fn encode(header: Header, text: &str, body: &[u8], answer: u64) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    if body.len().max(answer as usize) <= BODY_BYTES_MAX {
        Frame::new(header, text, body)?.encode(&mut bytes);
        return Ok(bytes);
    }
    let length = body.len() as u64;
    let place = Pooled { offset: 0, room: answer.max(length), bytes: length, pool: checksum(body).into() };
    let header = Header { flags: header.flags.with(Flags::POOLED), ..header };
    Frame::new(header, text, &place.to_bytes())?.encode(&mut bytes);
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// A frame, its body, and the maximum bytes of the answer's body.
fn decode(bytes: &[u8]) -> Result<(Frame<'_>, &[u8], u64), WireError> {
    let short = || WireError::Short { found: bytes.len() };
    let header = Header::from_bytes(bytes.first_chunk().ok_or_else(short)?)?;
    if !header.flags.has(Flags::POOLED) {
        let frame = Frame::decode(bytes)?;
        return Ok((frame, frame.body, BODY_BYTES_MAX as u64));
    }
    let frame_bytes = HEADER_BYTES + usize::from(header.text_bytes) + Pooled::BYTES;
    let (frame, body) = bytes.split_at_checked(frame_bytes).ok_or_else(short)?;
    let frame = Frame::decode(frame)?;
    let place = Pooled::from_bytes(frame.body).ok_or_else(short)?;
    if place.bytes != body.len() as u64 || place.pool != u64::from(checksum(body)) {
        return Err(WireError::Body { found: body.len(), expected: place.bytes });
    }
    Ok((frame, body, place.room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use msg::Ticket;

    fn asked<'a>(request: Request<'a>, body: &'a [u8], deadline: MonoNs) -> ManagerRequest<'a> {
        let ticket = Ticket { id: 7, band: Band::DEFAULT };
        let subject = Subject { uid: 1000, pid: 42, host: 0 };
        let answer_bytes_max = BODY_BYTES_MAX as u64;
        ManagerRequest { ticket, subject, deadline, pulse: 5, flags: Flags::DRY_RUN, request, body, answer_bytes_max }
    }

    #[test]
    fn a_large_body_follows_its_frame_and_a_garbled_one_is_refused() {
        let body: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
        let deadline = MonoNs(1_000_000_000);
        let asked = ManagerRequest {
            answer_bytes_max: 1 << 20,
            flags: Flags::IDEMPOTENT.with(Flags::POOLED),
            ..asked(Request::parse("put/camera/image").unwrap(), &body, deadline)
        };
        let mut bytes = request(&asked, DurNs::from_ms(100)).unwrap();
        let read = parse_request(&bytes).unwrap();
        assert_eq!((read.line, read.body, read.answer), ("put/camera/image", &body[..], 1 << 20));
        assert_eq!(read.header.flags, Flags::IDEMPOTENT, "the transport is not its own property");
        let answer = reply(&read.header, Code::Ok, "", &body).unwrap();
        assert_eq!(parse_reply(&answer), Ok((Code::Ok, String::new(), body.clone())));
        let small = ManagerRequest { body: b"which", ..asked };
        let small = request(&small, DurNs::from_ms(100)).unwrap();
        let read = parse_request(&small).unwrap();
        assert_eq!((read.body, read.answer), (&b"which"[..], 1 << 20), "room for the answer alone");
        assert!(parse_request(&bytes[..bytes.len() - 1]).is_err());
        *bytes.last_mut().unwrap() ^= 1;
        assert!(parse_request(&bytes).is_err());
    }

    #[test]
    fn a_request_survives_a_round_trip_with_its_subject_and_a_shorter_limit() {
        let now = MonoNs(1_000_000_000);
        let asked = asked(Request::parse("put/sr_mag_ps_b/a%2Fb").unwrap(), b"body", now + DurNs::from_ms(160));
        let limit = limit(asked.deadline - now);
        assert_eq!(limit, DurNs::from_ms(150));
        let bytes = request(&asked, limit).unwrap();
        let read = parse_request(&bytes).unwrap();
        assert_eq!((read.line, read.body, read.limit), ("put/sr_mag_ps_b/a%2Fb", &b"body"[..], limit));
        assert_eq!((read.header.subject, read.header.pulse, read.header.flags), (asked.subject, 5, Flags::DRY_RUN));
        let bytes = reply(&read.header, Code::Range, "at most 1/2", b"x").unwrap();
        assert_eq!(parse_reply(&bytes), Ok((Code::Range, "at most 1/2".to_owned(), b"x".to_vec())));
        assert!(parse_request(&bytes).is_err(), "a reply is no request");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_from_another_host_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = (parse_request(&bytes).is_ok(), parse_reply(&bytes).is_ok());
            let header = Header { flags: Flags::POOLED, text_bytes: 3, body_bytes: 32, ..Header::request(Band::DEFAULT, 1) };
            let _ = parse_request(&[&header.to_bytes()[..], &bytes].concat()).is_ok();
        }
    }
}

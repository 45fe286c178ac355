//! Messages as they travel between hosts.

use base::{DurNs, MonoNs};
use msg::{Asked, Band, Code, Flags, Frame, FrameError, Header, Kind, Line, Reply, Request, Subject};
use zenoh::qos::Priority;

/// The part of the time until a deadline that is kept for the way back, so that silence too is told in time.
const KEPT: i64 = 16;
/// At most this.
const KEPT_MAX: DurNs = DurNs::from_ms(50);

/// How urgent a band is to Zenoh, which keeps its highest priority for itself and so has one less than there are
/// bands: 0 and 1 share the lowest.
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

/// What the next hop is given of the time that remains.
pub(crate) fn limit(remaining: DurNs) -> DurNs {
    DurNs(remaining.0 - (remaining.0 / KEPT).min(KEPT_MAX.0))
}

/// A request for another host.
pub(crate) fn request(asked: &Asked<'_>, limit: DurNs) -> Result<Vec<u8>, FrameError> {
    let header = Header {
        flags: asked.flags,
        deadline: Some(MonoNs(limit.0.unsigned_abs())),
        pulse: asked.pulse,
        subject: asked.subject,
        hops: 1,
        ..Header::request(asked.band(), asked.ticket.id)
    };
    encode(header, &asked.request.to_string(), asked.body)
}

/// A request from another host.
pub(crate) struct Incoming<'a> {
    pub(crate) header: Header,
    pub(crate) line: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) limit: DurNs,
}

/// Reads a request from another host.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Incoming<'_>, String> {
    let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
    Request::parse(frame.text).map_err(|error| error.to_string())?;
    let Header { kind, deadline, flags, .. } = frame.header;
    match deadline {
        Some(limit) if kind == Kind::Request && !flags.has(Flags::POOLED) => Ok(Incoming {
            header: frame.header,
            line: frame.text,
            body: frame.body,
            limit: DurNs(i64::try_from(limit.0).unwrap_or(i64::MAX)),
        }),
        _ => Err("between hosts a message is a request with a deadline and its own body".to_owned()),
    }
}

/// A reply to another host.
pub(crate) fn reply(asked: &Header, code: Code, complement: &str, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut line = Line::new();
    line.reply(code, complement);
    encode(Header { subject: Subject::default(), ..asked.reply() }, line.text(), body)
}

/// Reads a reply of another host: code, plain complement, body.
pub(crate) fn parse_reply(bytes: &[u8]) -> Result<(Code, String, Vec<u8>), String> {
    let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
    let reply = Reply::parse(frame.text).map_err(|error| error.to_string())?;
    Ok((reply.code, reply.complement.text().into_owned(), frame.body.to_vec()))
}

fn encode(header: Header, text: &str, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    Frame::new(header, text, body)?.encode(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use msg::Ticket;

    fn asked<'a>(request: Request<'a>, body: &'a [u8], deadline: MonoNs) -> Asked<'a> {
        let ticket = Ticket { id: 7, band: Band::DEFAULT };
        let subject = Subject { uid: 1000, pid: 42, host: 0 };
        Asked { ticket, subject, deadline, pulse: 5, flags: Flags::DRY_RUN, request, body }
    }

    #[test]
    fn a_request_reads_back_with_less_time_and_its_asker() {
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
        }
    }
}

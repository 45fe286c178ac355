//! The answers of a circuit.

use super::circuit::{Circuit, PendingWrite};
use super::{Access, Backend, PutOutcome, Token};
use crate::dbr::Dbr;
use crate::eca::Eca;
use crate::encode::{self, Reading};
use crate::wire::{self, Header, command, padded};

/// A READ request, its channel and its record.
pub(super) struct About<'a> {
    pub(super) header: Header,
    pub(super) dbr: Dbr,
    pub(super) cid: u32,
    pub(super) record: &'a str,
}

/// Answers a READ: the value in a READ message, or an error.
pub(super) fn write_old(
    circuit: &mut Circuit,
    about: &About<'_>,
    reading: Result<&Reading, Eca>,
    message: &mut Vec<u8>,
) {
    let About { header, dbr, cid, record } = *about;
    message.clear();
    // Unlike in READ_NOTIFY, a count of zero requests no elements. Nothing can fail.
    let encoded = reading.and_then(|reading| match header.count {
        0 => {
            message.resize(dbr.size(0), 0);
            Ok(())
        }
        count => encode::encode(dbr, count, reading, message).map(|_| ()),
    });
    if encoded.is_err() {
        circuit.send_error(&header, Eca::GETFAIL, record);
        return;
    }
    if dbr.wire() == 0 && header.count == 1 {
        // A single text is sent without padding to 40 bytes.
        let text = wire::text_of(message).len();
        message.truncate((text + 1).min(40));
    }
    let size = padded(message.len());
    message.resize(size, 0);
    circuit.send(Header { size: size as u32, p1: cid, ..header });
    circuit.out.vec().extend_from_slice(message);
}

/// Answers a write.
pub(super) fn written(circuit: &mut Circuit, header: &Header, token: Token, put: PutOutcome, backend: &impl Backend) {
    let notify = header.command == command::WRITE_NOTIFY;
    if put == PutOutcome::Later && notify {
        circuit.puts.insert(token.0, PendingWrite { channel: header.p1, header: *header });
        return;
    }
    if notify && let Some(channel) = circuit.channels.get_mut(header.p1) {
        channel.put = None;
    }
    match put {
        PutOutcome::Failed => refuse(circuit, header, Eca::PUTFAIL, backend),
        PutOutcome::Done if notify => circuit.send(write_reply(header, Eca::NORMAL)),
        PutOutcome::Done | PutOutcome::Later | PutOutcome::Sent => {}
    }
}

/// Writes a complete update except for the number of the subscription.
pub(super) fn build(dbr: Dbr, count: u32, reading: Result<&Reading, Eca>, out: &mut Vec<u8>) {
    let header = Header { command: command::EVENT_ADD, size: 0, kind: dbr.wire(), count, p1: 0, p2: 0 };
    write_value(header, dbr, reading, out);
}

/// Answers a READ_NOTIFY. A large value uses the server's `spare` memory.
pub(super) fn write_read(
    circuit: &mut Circuit,
    header: Header,
    dbr: Dbr,
    reading: Result<&Reading, Eca>,
    spare: &mut Vec<u8>,
) {
    let all = || reading.map_or(0, |reading| reading.value.len() as u32);
    let bytes = dbr.size(if header.count == 0 { all() } else { header.count });
    circuit.out.make_room(bytes, spare);
    write_value(header, dbr, reading, circuit.out.vec());
}

/// Appends a message with a value, or with zeros and the error.
fn write_value(mut header: Header, dbr: Dbr, reading: Result<&Reading, Eca>, out: &mut Vec<u8>) {
    // Most messages have the short header. If the wide one is necessary, the payload is moved.
    let body = out.len() + 16;
    out.extend_from_slice(&[0; 16]);
    header.p1 = match reading.and_then(|reading| encode::encode(dbr, header.count, reading, out)) {
        Ok(count) => {
            header.count = count;
            Eca::NORMAL.0
        }
        Err(status) => status.0,
    };
    let size = padded((out.len() - body).max(dbr.size(header.count)));
    out.resize(body + size, 0);
    header.size = size as u32;
    if header.is_wide() {
        out.splice(body..body, [0; 8]);
    }
    header.write_over(&mut out[body - 16..]);
}

/// Refuses a write in the form that the client expects.
pub(super) fn refuse(circuit: &mut Circuit, header: &Header, status: Eca, backend: &impl Backend) {
    if header.command == command::WRITE_NOTIFY {
        circuit.send(write_reply(header, status));
    } else {
        let channel = circuit.channels.get(header.p1);
        let record = channel.map_or("", |channel| backend.record_name(channel.opened.handle));
        circuit.send_error(header, status, record);
    }
}

pub(super) const fn write_reply(header: &Header, status: Eca) -> Header {
    Header::bare(command::WRITE_NOTIFY, header.kind, header.count, status.0, header.p2)
}

pub(super) fn access_rights(cid: u32, access: Access) -> Header {
    Header::bare(command::ACCESS_RIGHTS, 0, 0, cid, u32::from(access.read) | u32::from(access.write) << 1)
}

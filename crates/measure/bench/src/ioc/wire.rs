//! A Channel Access client with low overhead, the same for both servers: it batches requests and parses only what it
//! needs.

use crate::Failed;
use ca::wire::{self, Header, HeaderParse as Parsed, MINOR, command, padded};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

/// Timeout of the server.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Channels requested at once.
const BATCH: usize = 500;

/// A circuit whose input is read in large pieces.
pub(crate) struct Circuit {
    pub(crate) stream: TcpStream,
    pub(crate) out: Vec<u8>,
    input: Vec<u8>,
    at: usize,
    patient: bool,
    /// Bytes sent and received.
    pub(crate) bytes: u64,
}

impl Circuit {
    /// Connects to a server of this host.
    pub(crate) fn open(port: u16) -> Result<Self, Failed> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(Failed::Socket)?;
        stream.set_nodelay(true).map_err(Failed::Socket)?;
        stream.set_read_timeout(Some(WATCHDOG)).map_err(Failed::Socket)?;
        let mut circuit = Self { stream, out: Vec::new(), input: Vec::new(), at: 0, patient: true, bytes: 0 };
        circuit.queue(Header::bare(command::VERSION, 0, MINOR.into(), 0, 0), &[]);
        Ok(circuit)
    }

    /// Queues a message.
    pub(crate) fn queue(&mut self, mut header: Header, payload: &[u8]) {
        header.size = padded(payload.len()) as u32;
        header.write(&mut self.out);
        self.out.extend_from_slice(payload);
        self.out.resize(self.out.len() + header.size as usize - payload.len(), 0);
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self) -> Result<(), Failed> {
        self.bytes += self.out.len() as u64;
        self.stream.write_all(&self.out).map_err(Failed::Socket)?;
        self.out.clear();
        Ok(())
    }

    /// Reads received data; returns whether there was any.
    pub(crate) fn fill(&mut self) -> Result<bool, Failed> {
        self.input.drain(..self.at);
        self.at = 0;
        let len = self.input.len();
        self.input.resize(len + (64 << 10), 0);
        let got = self.stream.read(&mut self.input[len..]);
        self.input.truncate(len + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(Failed::Socket(io::ErrorKind::UnexpectedEof.into())),
            Ok(got) => {
                self.bytes += got as u64;
                Ok(true)
            }
            Err(error) if !self.patient && error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Failed::Socket(error)),
        }
    }

    /// From now on an empty input is not an error, after `patience` or at once.
    pub(crate) fn impatient(&mut self, patience: Option<Duration>) -> Result<(), Failed> {
        self.patient = false;
        match patience {
            Some(patience) => self.stream.set_read_timeout(Some(patience)).map_err(Failed::Socket),
            None => self.stream.set_nonblocking(true).map_err(Failed::Socket),
        }
    }

    /// Restarts the timeout.
    pub(crate) fn patient(&mut self) -> Result<(), Failed> {
        self.patient = true;
        self.stream.set_read_timeout(Some(WATCHDOG)).map_err(Failed::Socket)
    }

    /// The next message that has already been received.
    pub(crate) fn message(&mut self) -> Option<(Header, &[u8])> {
        let Parsed::Header(header, head) = Header::read(&self.input[self.at..]) else { return None };
        let from = self.at + head;
        let payload = self.input.get(from..from + header.size as usize)?;
        self.at = from + header.size as usize;
        Some((header, payload))
    }

    /// Waits for `count` messages of one kind, skips others, and passes each to a function.
    pub(crate) fn expect(
        &mut self,
        kind: u16,
        count: usize,
        mut take: impl FnMut(&Header, &[u8]),
    ) -> Result<(), Failed> {
        let mut left = count;
        while left > 0 {
            while let Some((header, payload)) = self.message() {
                if header.command == kind {
                    take(&header, payload);
                    left -= 1;
                    if left == 0 {
                        break;
                    }
                } else if matches!(header.command, command::ERROR | command::CREATE_CH_FAIL) {
                    let tail = payload.get(16..).map(|tail| String::from_utf8_lossy(wire::text_of(tail)).into_owned());
                    return Err(Failed::answer("the IOC", "a successful reply", tail.unwrap_or_default()));
                }
            }
            if left > 0 {
                self.fill()?;
            }
        }
        Ok(())
    }

    /// Opens a channel; the server's number for it.
    pub(crate) fn channel(&mut self, name: &str) -> Result<u32, Failed> {
        Ok(self.channels(&[name.to_owned()])?[0])
    }

    /// Opens channels; the server's numbers for them.
    pub(crate) fn channels(&mut self, names: &[String]) -> Result<Vec<u32>, Failed> {
        let mut sids = vec![0; names.len()];
        for (start, batch) in names.chunks(BATCH).enumerate() {
            for (n, name) in batch.iter().enumerate() {
                let cid = (start * BATCH + n) as u32;
                let mut payload = name.as_bytes().to_vec();
                payload.push(0);
                self.queue(Header::bare(command::CREATE_CHAN, 0, 0, cid, MINOR.into()), &payload);
            }
            self.flush()?;
            self.expect(command::CREATE_CHAN, batch.len(), |header, _| {
                if let Some(sid) = sids.get_mut(header.p1 as usize) {
                    *sid = header.p2;
                }
            })?;
        }
        Ok(sids)
    }

    /// Subscribes to values and alarms with stamps; the subscription's number is its place in `sids`.
    pub(crate) fn subscribe(&mut self, sids: &[u32]) -> Result<(), Failed> {
        for (start, batch) in sids.chunks(BATCH).enumerate() {
            for (n, sid) in batch.iter().enumerate() {
                let mut payload = [0; 16];
                payload[13] = 5;
                let id = (start * BATCH + n) as u32;
                self.queue(Header::bare(command::EVENT_ADD, TIME_DOUBLE, 1, *sid, id), &payload);
            }
            self.flush()?;
            self.expect(command::EVENT_ADD, batch.len(), |_, _| ())?;
        }
        Ok(())
    }

    /// Queues a request for a channel's number.
    pub(crate) fn queue_get(&mut self, sid: u32) {
        self.queue_get_as(sid, DOUBLE, 1);
    }

    /// Queues a request for a channel's elements in a type of the wire.
    pub(crate) fn queue_get_as(&mut self, sid: u32, kind: u16, count: u32) {
        self.queue(Header::bare(command::READ_NOTIFY, kind, count, sid, 0), &[]);
    }

    /// Reads a channel as a number, after all previous requests.
    pub(crate) fn get(&mut self, sid: u32) -> Result<f64, Failed> {
        self.queue_get(sid);
        self.flush()?;
        let mut value = f64::NAN;
        self.expect(command::READ_NOTIFY, 1, |_, payload| value = double(payload, 0))?;
        Ok(value)
    }

    /// The stamp of a channel in ns.
    pub(crate) fn stamp(&mut self, sid: u32) -> Result<u64, Failed> {
        self.queue(Header::bare(command::READ_NOTIFY, TIME_DOUBLE, 1, sid, 0), &[]);
        self.flush()?;
        let mut stamp = 0;
        self.expect(command::READ_NOTIFY, 1, |_, payload| stamp = stamped(payload).0)?;
        Ok(stamp)
    }

    /// Queues a write without an answer.
    pub(crate) fn put(&mut self, sid: u32, value: f64) {
        self.queue(Header::bare(command::WRITE, DOUBLE, 1, sid, 0), &value.to_be_bytes());
    }
}

/// Types of the wire.
pub(crate) const STRING: u16 = 0;
pub(crate) const SHORT: u16 = 1;
pub(crate) const DOUBLE: u16 = 6;
pub(crate) const TIME_DOUBLE: u16 = 20;

/// The double at offset `at` of a payload.
pub(crate) fn double(payload: &[u8], at: usize) -> f64 {
    payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(f64::NAN, f64::from_be_bytes)
}

/// Nanoseconds of the stamp of a `TIME` payload, and its double.
pub(crate) fn stamped(payload: &[u8]) -> (u64, f64) {
    let word =
        |at: usize| payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
    (u64::from(word(4)) * 1_000_000_000 + u64::from(word(8)), double(payload, 16))
}

/// Searches for names until each is found; a datagram holds the same number as EPICS'.
pub(crate) fn search(port: u16, names: &[String]) -> Result<u64, Failed> {
    const DATAGRAM_BYTES: usize = 1024;
    /// Outstanding datagrams.
    const WINDOW: usize = 8;
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(Failed::Socket)?;
    socket.connect(("127.0.0.1", port)).map_err(Failed::Socket)?;
    socket.set_read_timeout(Some(Duration::from_millis(300))).map_err(Failed::Socket)?;
    let mut missing: Vec<bool> = vec![true; names.len()];
    let (mut left, mut bytes, mut idle) = (names.len(), 0, 0);
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        let mut remaining = missing.iter().enumerate().filter(|(_, missing)| **missing).map(|(n, _)| n).peekable();
        let mut asked = 0;
        for _ in 0..WINDOW {
            let mut out = Vec::new();
            Header::bare(command::VERSION, 1, MINOR.into(), 0, 0).write(&mut out);
            while let Some(n) = remaining.next_if(|n| out.len() + 16 + padded(names[*n].len() + 1) <= DATAGRAM_BYTES) {
                let header = Header::bare(command::SEARCH, wire::DONT_REPLY, MINOR.into(), n as u32, n as u32);
                wire::write_text(header, names[n].as_bytes(), &mut out);
                asked += 1;
            }
            if out.len() > 16 {
                bytes += out.len() as u64;
                socket.send(&out).map_err(Failed::Socket)?;
            }
        }
        while asked > 0 {
            let Ok(len) = socket.recv(&mut buffer) else {
                idle += 1;
                break;
            };
            bytes += len as u64;
            for (header, _) in wire::messages(&buffer[..len]).filter(|(header, _)| header.command == command::SEARCH) {
                if let Some(missing) = missing.get_mut(header.p2 as usize).filter(|missing| **missing) {
                    *missing = false;
                    left -= 1;
                    asked -= 1;
                }
            }
        }
        if idle > 100 {
            return Err(Failed::answer("the IOC", format!("{} names", names.len()), format!("all but {left}")));
        }
    }
    Ok(bytes)
}

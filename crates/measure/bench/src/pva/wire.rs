//! A PVAccess client with low overhead, the same for all servers. It batches requests and decodes only what it needs.

use crate::Failed;
use pva::codec::{Order, Reader, Type, Value, Writer};
use pva::request::Request;
use pva::search::{Address, SearchResponse, write_search};
use pva::wire::{self, Inbox, Message, Side, command};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Timeout of the server.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Requests sent before waiting for their answers.
const BATCH: usize = 500;

/// A connection.
pub(super) struct Circuit {
    stream: TcpStream,
    out: Writer,
    inbox: Inbox,
    buffer: Vec<u8>,
    /// Bytes received.
    pub(super) received: u64,
}

impl Circuit {
    /// Connects to a server of this host.
    pub(super) fn open(port: u16) -> Result<Self, Failed> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(Failed::Socket)?;
        stream.set_nodelay(true).map_err(Failed::Socket)?;
        stream.set_read_timeout(Some(WATCHDOG)).map_err(Failed::Socket)?;
        let mut circuit = Self {
            stream,
            out: Writer::new(Order::Little),
            inbox: Inbox::new(Side::Server, 1 << 28),
            buffer: vec![0; 1 << 18],
            received: 0,
        };
        circuit.expect(command::VALIDATION, 1, |_| ())?;
        circuit.queue(command::VALIDATION, |out| {
            out.u32(0x1_0000);
            out.u16(0x7FFF);
            out.u16(0);
            out.text("anonymous");
            out.u8(0xFF);
        });
        circuit.flush()?;
        circuit.expect(command::VALIDATED, 1, |_| ())?;
        Ok(circuit)
    }

    fn queue(&mut self, command: u8, body: impl FnOnce(&mut Writer)) {
        wire::message(&mut self.out, Side::Client, command, body);
    }

    /// Sends what is queued.
    pub(super) fn flush(&mut self) -> Result<(), Failed> {
        self.stream.write_all(&self.out.bytes).map_err(Failed::Socket)?;
        self.out.bytes.clear();
        Ok(())
    }

    /// Reads received data. Returns whether there was any before the timeout.
    fn fill(&mut self) -> Result<bool, Failed> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(Failed::Socket(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                self.received += len as u64;
                self.inbox.feed(&self.buffer[..len]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Failed::Socket(error)),
        }
    }

    /// Waits for `count` messages of one command, skips others, and passes each to a function.
    pub(super) fn expect(
        &mut self,
        wanted: u8,
        count: usize,
        mut take: impl FnMut(&Message<'_>),
    ) -> Result<(), Failed> {
        let mut left = count;
        while left > 0 {
            while left > 0
                && let Some(message) = self.inbox.next_message().map_err(|fault| wrong(fault.to_string()))?
            {
                if message.header.command == wanted && !message.header.is_control() {
                    take(&message);
                    left -= 1;
                }
            }
            if left > 0 && !self.fill()? {
                return Err(wrong(format!("{left} of {count} answers missing after {} s", WATCHDOG.as_secs())));
            }
        }
        Ok(())
    }

    /// Opens channels. Returns the server's numbers for them.
    pub(super) fn channels(&mut self, names: &[String]) -> Result<Vec<u32>, Failed> {
        let mut sids = vec![0; names.len()];
        for (start, batch) in names.chunks(BATCH).enumerate() {
            for (n, name) in batch.iter().enumerate() {
                self.queue(command::CREATE_CHANNEL, |out| {
                    out.u16(1);
                    out.u32((start * BATCH + n) as u32);
                    out.text(name);
                });
            }
            self.flush()?;
            self.expect(command::CREATE_CHANNEL, batch.len(), |message| {
                let mut reader = Reader::new(message.payload, message.header.order());
                if let (Ok(cid), Ok(sid)) = (reader.u32(), reader.u32())
                    && let Some(place) = sids.get_mut(cid as usize)
                {
                    *place = sid;
                }
            })?;
        }
        Ok(sids)
    }

    /// Creates an operation on each channel, with the number of its place. Returns the bytes of the last answer.
    pub(super) fn create(&mut self, operation: u8, sids: &[u32], request: &str) -> Result<usize, Failed> {
        let request = Request::parse(request).map_err(|invalid| wrong(invalid.to_string()))?;
        let (ty, value) = request.to_value().ok_or_else(|| wrong("a request that is no structure".into()))?;
        let mut bytes = 0;
        let mut refused = None;
        for (start, batch) in sids.chunks(BATCH).enumerate() {
            for (n, sid) in batch.iter().enumerate() {
                self.request(operation, *sid, (start * BATCH + n) as u32, 0x08, |out| {
                    out.ty(&Type::Struct(ty.clone()));
                    out.value(&value);
                });
            }
            self.flush()?;
            self.expect(operation, batch.len(), |message| {
                bytes = message.payload.len() + 8;
                let mut reader = Reader::new(message.payload, message.header.order());
                let status = reader.take(5).and_then(|_| reader.status());
                if let Ok(status) = status
                    && !status.is_success()
                {
                    refused = Some(status.message);
                }
            })?;
        }
        match refused {
            None => Ok(bytes),
            Some(why) => Err(wrong(why)),
        }
    }

    /// Queues a request of an operation.
    pub(super) fn request(&mut self, operation: u8, sid: u32, ioid: u32, sub: u8, body: impl FnOnce(&mut Writer)) {
        self.queue(operation, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(sub);
            body(out);
        });
    }

    /// Starts the monitors that were created with [`create`](Self::create), and waits for the first value of each.
    pub(super) fn start(&mut self, sids: &[u32]) -> Result<(), Failed> {
        for (start, batch) in sids.chunks(BATCH).enumerate() {
            for (n, sid) in batch.iter().enumerate() {
                self.request(command::MONITOR, *sid, (start * BATCH + n) as u32, 0x44, |_| ());
            }
            self.flush()?;
            self.expect(command::MONITOR, batch.len(), |_| ())?;
        }
        Ok(())
    }

    /// Receives and counts updates for a time.
    pub(super) fn count_updates(&mut self, time: Duration) -> Result<u64, Failed> {
        self.stream.set_read_timeout(Some(Duration::from_millis(20))).map_err(Failed::Socket)?;
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < time {
            self.fill()?;
            while let Some(message) = self.inbox.next_message().map_err(|fault| wrong(fault.to_string()))? {
                count += u64::from(message.header.command == command::MONITOR);
            }
        }
        self.stream.set_read_timeout(Some(WATCHDOG)).map_err(Failed::Socket)?;
        Ok(count)
    }

    /// Writes a number, without waiting for the answer.
    pub(super) fn put(&mut self, sid: u32, ioid: u32, value: f64) {
        self.request(command::PUT, sid, ioid, 0, |out| {
            out.mask64(2);
            out.value(&Value::F64(value));
        });
    }
}

fn wrong(found: String) -> Failed {
    Failed::answer("the IOC", "a successful reply over PVAccess", found)
}

/// Searches for names until each is found.
pub(super) fn search(port: u16, names: &[String]) -> Result<(), Failed> {
    const NAMES: usize = 50;
    /// Outstanding datagrams.
    const WINDOW: usize = 8;
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(Failed::Socket)?;
    let own = socket.local_addr().map_err(Failed::Socket)?.port();
    socket.set_read_timeout(Some(Duration::from_millis(300))).map_err(Failed::Socket)?;
    let mut missing = vec![true; names.len()];
    let (mut left, mut idle) = (names.len(), 0);
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        let wanted: Vec<(u32, &str)> = names
            .iter()
            .enumerate()
            .filter(|(n, _)| missing[*n])
            .map(|(n, name)| (n as u32, name.as_str()))
            .take(NAMES * WINDOW)
            .collect();
        for batch in wanted.chunks(NAMES) {
            let mut out = Writer::new(Order::Little);
            let reply_to = Address { ip: std::net::Ipv4Addr::LOCALHOST.into(), port: own };
            write_search(&mut out, 1, 0x80, reply_to, batch);
            socket.send_to(&out.bytes, ("127.0.0.1", port)).map_err(Failed::Socket)?;
        }
        let mut asked = wanted.len();
        while asked > 0 {
            let Ok(len) = socket.recv(&mut buffer) else {
                idle += 1;
                break;
            };
            for message in wire::datagram(&buffer[..len], Some(Side::Server)) {
                let read = SearchResponse::read(message.payload, message.header.order());
                for id in read.ok().flatten().map(|response| response.ids).unwrap_or_default() {
                    if let Some(missing) = missing.get_mut(id as usize).filter(|missing| **missing) {
                        *missing = false;
                        left -= 1;
                        asked -= 1;
                    }
                }
            }
        }
        if idle > 100 {
            return Err(wrong(format!("no answer to {left} of {} names", names.len())));
        }
    }
    Ok(())
}

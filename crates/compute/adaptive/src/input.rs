//! Sources of datagrams: a socket, or a queue of a network card.

use crate::error::Error;
use crate::spec::receiver;
use base::{DurNs, MonoNs};
use optics::Geometry;
use optics::gvsp::{HEADER, LEADER};
use std::net::{SocketAddr, UdpSocket};
use std::str::FromStr;
use sys::Errno;
use sys::clock::{mono_now, sleep_until, wall_ns};
use sys::datagrams::{Datagrams, Waits};
use sys::xdp::{self, Queue};

/// Frames that the kernel's buffer holds. Older frames are of no use to a loop.
const BUFFERED: usize = 2;
/// Datagrams of a frame in addition to its rows: a leader and a trailer.
const BESIDE: usize = 2;
/// Maximum number of datagrams discarded when a queue is opened. A socket holds fewer.
const BEFORE_MAX: usize = 10_000;
/// Maximum age of a timestamp, in nanoseconds. An older timestamp is invalid.
const LONG_AGO: u64 = 1_000_000_000;
/// The kernel releases the queue of an ended process after a delay. Opening is retried for this long, at the interval `AGAIN`.
const LET_GO: DurNs = DurNs::from_secs(2);
const AGAIN: DurNs = DurNs::from_ms(20);

/// A queue of a network card, as written on the command line: `eth0` for its first queue, or `eth0:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name of the interface.
    pub interface: String,
    /// Number of the queue.
    pub queue: u32,
}

impl FromStr for Card {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "expected an interface, or INTERFACE:QUEUE such as eth0:3";
        let (interface, queue) = match text.split_once(':') {
            Some((interface, queue)) => (interface, queue.parse().map_err(|_| WANTED)?),
            None => (text, 0),
        };
        match interface.is_empty() {
            true => Err(WANTED),
            false => Ok(Self { interface: interface.to_owned(), queue }),
        }
    }
}

impl std::fmt::Display for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.interface, self.queue)
    }
}

/// A source of datagrams.
#[derive(Debug)]
pub struct Input {
    /// With a card's queue, the socket reserves the port and receives the datagrams that bypass the queue.
    socket: UdpSocket,
    port: u16,
    from: From,
    patience: DurNs,
}

#[derive(Debug)]
enum From {
    Socket(Box<Datagrams>),
    Card(Box<Queue>, Card),
}

/// Health check of the input for threads other than the loop's. Holds a card if the input uses one.
#[derive(Debug)]
pub struct InputWatch(Option<(xdp::Watch, Card)>);

impl InputWatch {
    /// Checks that pixels can still arrive.
    ///
    /// # Errors
    /// The card is gone.
    pub fn look(&self) -> Result<(), Error> {
        match &self.0 {
            Some((watch, card)) => watch.look().map_err(|error| Error::card(card, error)),
            None => Ok(()),
        }
    }
}

impl Input {
    /// Opens a source of datagrams at `address`: the queue of `card` if given, else a socket. A wait for datagrams ends after `patience`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn open(address: SocketAddr, card: Option<&Card>, geometry: &Geometry, patience: DurNs) -> Result<Self, Error> {
        let refused = |error: std::io::Error| Error::Socket { address, error };
        let socket = receiver(address)?;
        let local = socket.local_addr().map_err(refused)?;
        let bytes = geometry.row_bytes() + HEADER + LEADER;
        let from = match card {
            Some(card) => {
                let SocketAddr::V4(to) = local else {
                    return Err(Error::NotIpv4 { address: local, card: card.clone() });
                };
                let wanted = xdp::QueueSettings {
                    interface: &card.interface,
                    queue: card.queue,
                    to,
                    longest: geometry.row_bytes() + HEADER + optics::ethernet::HEADERS,
                    packets: BUFFERED * (geometry.across() + BESIDE),
                    patience,
                };
                let begun = mono_now();
                let queue = loop {
                    match Queue::open(&wanted) {
                        Err(error) if error.errno == Errno::BUSY && mono_now() - begun < LET_GO => {
                            sleep_until(mono_now() + AGAIN)
                        }
                        queue => break queue.map_err(|error| Error::card(card, error))?,
                    }
                };
                socket.set_nonblocking(true).map_err(refused)?;
                // Datagrams that arrived before the queue was opened did not bypass it.
                let _ = (0..BEFORE_MAX).take_while(|_| socket.recv(&mut [0]).is_ok()).count();
                From::Card(Box::new(queue), card.clone())
            }
            None => {
                socket.set_read_timeout(Some(std::time::Duration::from_nanos(patience.0 as u64))).map_err(refused)?;
                // Without kernel timestamps, the time of reception in this process is used.
                let _ = sys::datagrams::stamp(&socket);
                // Exceeds the system limit if the process has the privilege. The default size suffices as long as the loop keeps up.
                let buffer = BUFFERED * geometry.across() * geometry.row_bytes();
                if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
                    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer);
                }
                From::Socket(Box::new(Datagrams::new(bytes + 1)))
            }
        };
        Ok(Self { socket, port: local.port(), from, patience })
    }

    /// Local address.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Maximum duration of a wait.
    #[must_use]
    pub const fn patience(&self) -> DurNs {
        self.patience
    }

    /// Description of the path of a card's packets; `None` for a socket.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        let From::Card(queue, card) = &self.from else { return None };
        let way = queue.way();
        let place = if way.in_driver { "in the driver" } else { "behind the driver, without its support" };
        let copied = if way.zero_copy { "written by the card" } else { "copied by the kernel" };
        Some(format!("pixels from {card} by XDP {place}, {copied}"))
    }

    /// Health check for a thread other than the loop's.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn watch(&self) -> Result<InputWatch, Error> {
        let From::Card(queue, card) = &self.from else { return Ok(InputWatch(None)) };
        let watch = queue.watch().map_err(|error| Error::card(card, error))?;
        Ok(InputWatch(Some((watch, card.clone()))))
    }

    /// Reason why nothing arrived for `while_`: the sender is silent, or its datagrams bypass the card's queue.
    pub(crate) fn silent(&self, while_: DurNs) -> Error {
        match &self.from {
            From::Card(_, card) if self.socket.peek(&mut [0]).is_ok() => Error::Past(card.clone()),
            _ => Error::NoFrames(while_),
        }
    }

    /// Receives the available datagrams and returns their number. The previous ones are released, even on failure.
    ///
    /// Real-time: does not allocate. A socket needs one system call for up to 16 datagrams. A card's queue needs none if datagrams are
    /// available.
    ///
    /// # Errors
    /// An error of the kernel; `EAGAIN` if nothing arrived in time.
    pub fn take(&mut self, waits: Waits) -> Result<usize, Errno> {
        match &mut self.from {
            From::Socket(taken) => taken.take(&self.socket, waits),
            From::Card(queue, _) => queue.take(waits),
        }
    }

    /// Number of datagrams received last.
    #[must_use]
    pub const fn there(&self) -> usize {
        match &self.from {
            From::Socket(taken) => taken.there(),
            From::Card(queue, _) => queue.there(),
        }
    }

    /// Datagram `index` of those received last. Empty beyond the last one, and for a packet that is not a datagram.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        match &self.from {
            From::Socket(taken) => taken.get(index),
            From::Card(queue, _) => optics::ethernet::datagram(queue.get(index), self.port).unwrap_or_default(),
        }
    }

    /// Timestamp of the kernel, or of the program on the card, if available. In nanoseconds of that source's clock, see [`at`](Self::at).
    #[must_use]
    pub fn came_ns(&self, index: usize) -> Option<u64> {
        match &self.from {
            From::Socket(taken) => taken.came_ns(index),
            From::Card(queue, _) => queue.came(index).map(|came| came.0),
        }
    }

    /// Converts a timestamp to this process's clock. `None` if it is in the future or more than a second old, and therefore invalid. Real-time:
    /// reads two clocks.
    #[must_use]
    pub fn at(&self, came_ns: u64) -> Option<MonoNs> {
        let (now, theirs) = match &self.from {
            From::Socket(_) => (mono_now(), wall_ns()),
            From::Card(..) => (mono_now(), mono_now().0),
        };
        let ago = theirs.checked_sub(came_ns).filter(|ago| *ago < LONG_AGO)?;
        Some(MonoNs(now.0.saturating_sub(ago)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_an_interface_and_a_queue() {
        let read = |text: &str| text.parse::<Card>().map(|card| card.to_string());
        assert_eq!(read("eth0").as_deref(), Ok("eth0:0"));
        assert_eq!(read("wire:3").as_deref(), Ok("wire:3"));
        for wrong in ["", ":1", "eth0:", "eth0:x", "eth0:-1"] {
            assert!(read(wrong).unwrap_err().contains("INTERFACE:QUEUE"), "{wrong}");
        }
    }
}

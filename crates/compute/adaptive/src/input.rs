//! Where datagrams come from: a socket, or a network card's queue.

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

/// Frames that the kernel's buffer holds: what is older is of no use to a loop.
const BUFFERED: usize = 2;
/// Beside a frame's rows: a leader and a trailer.
const BESIDE: usize = 2;
/// Datagrams that are forgotten when a queue is taken, at most: more than a socket keeps.
const BEFORE_MAX: usize = 10_000;
/// A datagram that is said to have come so many nanoseconds ago did not.
const LONG_AGO: u64 = 1_000_000_000;
/// After its process has ended the kernel lets a queue go when it comes to it: within this time, looked for so often.
const LET_GO: DurNs = DurNs::from_secs(2);
const AGAIN: DurNs = DurNs::from_ms(20);

/// A queue of a network card, as a command line says it: `eth0`, which is its first, or `eth0:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The interface's name.
    pub interface: String,
    /// Its queue.
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

/// Where datagrams come from.
#[derive(Debug)]
pub struct Input {
    /// Of a queue it keeps the port, and has what comes past it.
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

/// What a thread other than the loop's sees of it: whether there is still a card.
#[derive(Debug)]
pub struct InputWatch(Option<(xdp::Watch, Card)>);

impl InputWatch {
    /// Why no more pixels will come.
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
    /// Datagrams at `address`, from a card's queue where one is named; a wait for them ends after `patience`.
    ///
    /// # Errors
    /// The kernel's.
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
                let wanted = xdp::Wanted {
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
                // What came before the queue was taken does not come past it.
                let _ = (0..BEFORE_MAX).take_while(|_| socket.recv(&mut [0]).is_ok()).count();
                From::Card(Box::new(queue), card.clone())
            }
            None => {
                socket.set_read_timeout(Some(std::time::Duration::from_nanos(patience.0 as u64))).map_err(refused)?;
                // Where it does not, it is the moment at which a datagram was in hand.
                let _ = sys::datagrams::stamp(&socket);
                // Beyond the machine's limit where the process may; what is had is enough where the loop keeps up.
                let buffer = BUFFERED * geometry.across() * geometry.row_bytes();
                if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
                    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer);
                }
                From::Socket(Box::new(Datagrams::new(bytes + 1)))
            }
        };
        Ok(Self { socket, port: local.port(), from, patience })
    }

    /// Where they come in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How long a wait is, at most.
    #[must_use]
    pub const fn patience(&self) -> DurNs {
        self.patience
    }

    /// How a card's packets come, in words; `None` of a socket.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        let From::Card(queue, card) = &self.from else { return None };
        let way = queue.way();
        let place = if way.in_driver { "in the driver" } else { "behind the driver, which knows nothing of it" };
        let copied = if way.zero_copy { "written by the card" } else { "copied by the kernel" };
        Some(format!("pixels from {card} by XDP {place}, {copied}"))
    }

    /// For a thread other than the loop's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self) -> Result<InputWatch, Error> {
        let From::Card(queue, card) = &self.from else { return Ok(InputWatch(None)) };
        let watch = queue.watch().map_err(|error| Error::card(card, error))?;
        Ok(InputWatch(Some((watch, card.clone()))))
    }

    /// Why nothing comes for `while_`: who sends is silent, or sends past the card's queue.
    pub(crate) fn silent(&self, while_: DurNs) -> Error {
        match &self.from {
            From::Card(_, card) if self.socket.peek(&mut [0]).is_ok() => Error::Past(card.clone()),
            _ => Error::NoFrames(while_),
        }
    }

    /// Takes what has come: how many. Those of before are gone, also where it fails.
    ///
    /// Real-time: allocates nothing. From a socket a system call for up to 16; from a card's queue none where there are some.
    ///
    /// # Errors
    /// The kernel's: `EAGAIN` where nothing has come in time.
    pub fn take(&mut self, waits: Waits) -> Result<usize, Errno> {
        match &mut self.from {
            From::Socket(taken) => taken.take(&self.socket, waits),
            From::Card(queue, _) => queue.take(waits),
        }
    }

    /// How many were taken last.
    #[must_use]
    pub const fn there(&self) -> usize {
        match &self.from {
            From::Socket(taken) => taken.there(),
            From::Card(queue, _) => queue.there(),
        }
    }

    /// One of those that were taken last; nothing behind them, and of a packet that is no datagram.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        match &self.from {
            From::Socket(taken) => taken.get(index),
            From::Card(queue, _) => optics::ethernet::datagram(queue.get(index), self.port).unwrap_or_default(),
        }
    }

    /// When the kernel had it, or the program on the card, where they say so: in nanoseconds of their clock, see [`at`](Self::at).
    #[must_use]
    pub fn came_ns(&self, index: usize) -> Option<u64> {
        match &self.from {
            From::Socket(taken) => taken.came_ns(index),
            From::Card(queue, _) => queue.came(index).map(|came| came.0),
        }
    }

    /// A time at which something came, by this process's clock; `None` of one that is long ago or to come: it was not then.
    /// Real-time: two readings of clocks.
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

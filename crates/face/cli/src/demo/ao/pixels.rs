//! Pixels that come as datagrams, row by row, in whatever order and with whatever missing.

use crate::failure::Failure;
use base::{DurNs, MonoNs};
use optics::gvsp::{Content, HEADER, LEADER, Packet};
use optics::{Assembly, Geometry, Taken, Whole};
use std::net::{SocketAddr, UdpSocket};
use sys::clock::mono_now;

/// Datagrams that are looked at before the caller may see whether it is to end.
const LOOKS: usize = 4096;
/// A datagram that is said to have come so many nanoseconds ago did not.
const LONG_AGO: u64 = 1_000_000_000;
/// Frames that the kernel's buffer holds: what is older is of no use to a loop.
const BUFFERED: usize = 2;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// A row, which is in the image; whether it is the frame's first, and whether its last.
    Row { row: usize, first: bool, last: bool },
    /// The frame that had begun is over without all of its rows.
    Over(Whole),
    /// Nothing.
    Nothing,
}

/// The end of the wire.
pub(super) struct Pixels {
    socket: UdpSocket,
    datagram: Vec<u8>,
    length: usize,
    /// Whether the datagram is to be looked at once more.
    again: bool,
    at: MonoNs,
    side: usize,
    row: usize,
    assembly: Assembly,
    image: Vec<u16>,
    /// Datagrams that are no pixels of this camera.
    foreign: u64,
    patience: DurNs,
}

impl Pixels {
    /// Takes datagrams at `address`; a frame of which nothing has come for `patience` is over.
    pub(super) fn open(
        address: SocketAddr,
        geometry: &Geometry,
        missing_max: usize,
        patience: DurNs,
    ) -> Result<Self, Failure> {
        let refused = |error: std::io::Error| format!("--pixels {address}: {error}");
        let socket = UdpSocket::bind(address).map_err(refused)?;
        socket.set_read_timeout(Some(std::time::Duration::from_nanos(patience.0 as u64))).map_err(refused)?;
        // Where it does not, it is the moment at which a datagram was in hand.
        let _ = sys::arrival::note(&socket);
        // Beyond the machine's limit where the process may; what is had is enough where the loop keeps up.
        let buffer = BUFFERED * geometry.across() * geometry.row_bytes();
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer);
        }
        Ok(Self {
            socket,
            datagram: vec![0; geometry.row_bytes() + HEADER + LEADER + 1],
            length: 0,
            again: false,
            at: MonoNs(0),
            side: geometry.width(),
            row: geometry.row_bytes(),
            assembly: Assembly::new(geometry.across(), missing_max),
            image: vec![0; geometry.width() * geometry.width()],
            foreign: 0,
            patience,
        })
    }

    /// The image; rows that did not come are of before.
    pub(super) fn image(&self) -> &[u16] {
        &self.image
    }

    pub(super) fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// When the newest datagram came: by the kernel, where it says so. Real-time: a system call, two readings of clocks.
    pub(super) fn came(&self) -> MonoNs {
        let (Some(came), now) = (sys::arrival::newest_ns(&self.socket), mono_now()) else { return self.at };
        let ago = sys::clock::wall_ns().saturating_sub(came);
        // A clock that was stepped meanwhile says nothing.
        if ago < LONG_AGO { MonoNs(now.0.saturating_sub(ago)).min(self.at) } else { self.at }
    }

    pub(super) fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Forgets what came before now, up to the end of a frame.
    pub(super) fn restart(&mut self) {
        let now = mono_now();
        for _ in 0..LOOKS {
            let Ok(length) = self.socket.recv(&mut self.datagram) else { break };
            let trailer =
                matches!(Packet::read(&self.datagram[..length]), Ok(Packet { content: Content::Trailer { .. }, .. }));
            // What waited for us came faster than a frame's rest does.
            if trailer && mono_now() - now > self.patience {
                break;
            }
        }
        self.assembly.restart();
        (self.again, self.foreign) = (false, 0);
    }

    /// Ends the frame of which the last row has come.
    pub(super) fn end(&mut self) -> Option<Whole> {
        self.assembly.end()
    }

    /// Waits for the next row, or the end of a frame, for the patience at most. Real-time: a system call a datagram, no allocation.
    pub(super) fn next(&mut self) -> Got {
        for _ in 0..LOOKS {
            if !std::mem::take(&mut self.again) {
                match self.socket.recv(&mut self.datagram) {
                    Ok(length) => (self.length, self.at) = (length, mono_now()),
                    // Nothing came; what else a receiving socket may say passes.
                    Err(_) => return self.assembly.end().map_or(Got::Nothing, Got::Over),
                }
            }
            let side = self.side as u32;
            let (block, row, pixels) = match Packet::read(&self.datagram[..self.length]) {
                Ok(Packet { content: Content::Leader { width, height, .. }, .. })
                    if (width, height) == (side, side) =>
                {
                    continue;
                }
                Ok(Packet { content: Content::Trailer { .. }, .. }) => continue,
                Ok(Packet { block, content: Content::Payload { index, pixels } }) if pixels.len() == self.row => {
                    (block, index as usize, pixels)
                }
                _ => {
                    self.foreign += 1;
                    continue;
                }
            };
            let first = self.assembly.frame().is_none();
            match self.assembly.take(block, row) {
                Taken::Row { last } => {
                    optics::unpack(pixels, &mut self.image[row * self.row / 2..][..self.row / 2]);
                    return Got::Row { row, first, last };
                }
                Taken::Later => {
                    self.again = true;
                    return self.assembly.end().map_or(Got::Nothing, Got::Over);
                }
                Taken::Dropped => {}
            }
        }
        Got::Nothing
    }
}

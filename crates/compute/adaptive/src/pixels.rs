//! Pixels that come as datagrams, row by row, in whatever order and with whatever missing.

use crate::error::Error;
use base::{DurNs, MonoNs};
use optics::gvsp::{Content, HEADER, LEADER, Packet};
use optics::{Assembly, Geometry, Taken, Whole};
use rt::Wait;
use std::net::{SocketAddr, UdpSocket};
use sys::clock::{mono_now, sleep_until};
use sys::datagrams::{Datagrams, Waits};

/// Datagrams that are looked at before the caller may see whether it is to end.
const LOOKS: usize = 4096;
/// A datagram that is said to have come so many nanoseconds ago did not.
const LONG_AGO: u64 = 1_000_000_000;
/// Frames that the kernel's buffer holds: what is older is of no use to a loop.
const BUFFERED: usize = 2;
/// Looks at the socket between two readings of the clock.
const SPINS: usize = 16;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// A row, which is in the image; whether it is the frame's first, and whether its last.
    Row { row: usize, first: bool, last: bool },
    /// The frame that had begun is over without all of its rows.
    Over(Whole),
    /// Nothing.
    Nothing,
}

/// The end of the wire: a socket, the frame that comes, and its image.
#[derive(Debug)]
pub struct Pixels {
    socket: UdpSocket,
    taken: Datagrams,
    /// The datagram that is looked at next.
    index: usize,
    /// When those that were taken were in hand.
    at: MonoNs,
    /// When the newest row came, in nanoseconds since 1970, where the kernel says so; and that of the frame's first.
    came_ns: [Option<u64>; 2],
    /// From row to row, by the frame before.
    pace: DurNs,
    wait: Wait,
    side: usize,
    row: usize,
    assembly: Assembly,
    image: Vec<u16>,
    /// Datagrams that are no pixels of this camera.
    foreign: u64,
    /// Images of another size that were announced.
    resized: u64,
    patience: DurNs,
}

impl Pixels {
    /// Takes datagrams at `address`; a frame of which nothing has come for `patience` is over.
    ///
    /// How the thread waits: asleep for each datagram; spinning; or both: asleep between frames and while much of one is to come, spinning
    /// at its end and for so long wherever it waits for a row.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(
        address: SocketAddr,
        geometry: &Geometry,
        missing_max: usize,
        patience: DurNs,
        wait: Wait,
    ) -> Result<Self, Error> {
        let refused = |error: std::io::Error| Error::Socket { address, error };
        let socket = UdpSocket::bind(address).map_err(refused)?;
        socket.set_read_timeout(Some(std::time::Duration::from_nanos(patience.0 as u64))).map_err(refused)?;
        // Where it does not, it is the moment at which a datagram was in hand.
        let _ = sys::datagrams::stamp(&socket);
        // Beyond the machine's limit where the process may; what is had is enough where the loop keeps up.
        let buffer = BUFFERED * geometry.across() * geometry.row_bytes();
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer);
        }
        Ok(Self {
            socket,
            taken: Datagrams::new(geometry.row_bytes() + HEADER + LEADER + 1),
            index: 0,
            at: MonoNs(0),
            came_ns: [None; 2],
            pace: DurNs::ZERO,
            wait,
            side: geometry.width(),
            row: geometry.row_bytes(),
            assembly: Assembly::new(geometry.across(), missing_max),
            image: vec![0; geometry.width() * geometry.width()],
            foreign: 0,
            resized: 0,
            patience,
        })
    }

    /// Where they come in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The image; rows that did not come are of before.
    #[must_use]
    pub fn image(&self) -> &[u16] {
        &self.image
    }

    /// Exchanges the image for another of its size: whoever has it is to bring it back before the next row.
    pub(crate) fn lend(&mut self, other: &mut Vec<u16>) {
        std::mem::swap(&mut self.image, other);
    }

    /// The frame that comes, and what was counted.
    #[must_use]
    pub const fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// When the newest row came: by the kernel, where it says so. Real-time: two readings of clocks.
    pub(crate) fn came(&self) -> MonoNs {
        let (Some(came), now) = (self.came_ns[0], mono_now()) else { return self.at };
        let ago = sys::clock::wall_ns().saturating_sub(came);
        // A clock that was stepped meanwhile says nothing.
        if ago < LONG_AGO { MonoNs(now.0.saturating_sub(ago)).min(self.at) } else { self.at }
    }

    /// Takes what has come as for a frame, looks at none of it, and says how many: for who measures what the taking costs. Real-time: a
    /// system call for up to 16 datagrams, and one that finds none.
    pub fn discard(&mut self) -> usize {
        let mut all = 0;
        while let Ok(there) = self.taken.take(&self.socket, Waits::Not) {
            all += there;
        }
        self.index = self.taken.there();
        all
    }

    /// Datagrams that were no pixels of this camera.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Images of another size that the camera announced: it reads another region of its detector. Their pixels count as foreign.
    #[must_use]
    pub const fn resized(&self) -> u64 {
        self.resized
    }

    /// Whether more datagrams are in hand: the next row comes without waiting.
    pub(crate) fn more(&self) -> bool {
        self.index < self.taken.there()
    }

    /// Forgets what came before now, up to the end of a frame.
    pub(crate) fn restart(&mut self) {
        let now = mono_now();
        let mut over = false;
        for _ in 0..LOOKS {
            if over || self.taken.take(&self.socket, Waits::ForOne).is_err() {
                break;
            }
            // What waited for us came faster than a frame's rest does.
            over = mono_now() - now > self.patience && (0..self.taken.there()).any(|index| self.is_trailer(index));
        }
        self.assembly.restart();
        (self.index, self.foreign, self.resized) = (self.taken.there(), 0, 0);
    }

    fn is_trailer(&self, index: usize) -> bool {
        matches!(Packet::read(self.taken.get(index)), Ok(Packet { content: Content::Trailer { .. }, .. }))
    }

    /// Ends the frame of which the last row has come.
    pub(crate) fn end(&mut self) -> Option<Whole> {
        let rows = self.assembly.seen().len() as i64;
        if let [Some(last), Some(first)] = self.came_ns {
            self.pace = DurNs((last.saturating_sub(first) as i64 / (rows - 1).max(1)).clamp(0, self.patience.0));
        }
        self.assembly.end()
    }

    /// Takes what has come, waiting for it for the patience at most; whether there was anything.
    fn take(&mut self) -> bool {
        self.index = 0;
        let spin = match self.wait {
            Wait::Sleep => DurNs::ZERO,
            Wait::Spin => self.patience,
            // Between frames it sleeps.
            Wait::Both { .. } if self.assembly.frame().is_none() => DurNs::ZERO,
            Wait::Both { spin } => spin,
        };
        if spin > DurNs::ZERO {
            let begun = mono_now();
            let mut napped = self.wait == Wait::Spin;
            loop {
                for _ in 0..SPINS {
                    if self.taken.take(&self.socket, Waits::Not).is_ok() {
                        self.at = mono_now();
                        return true;
                    }
                    std::hint::spin_loop();
                }
                // Half of the time that the rest of the frame takes, then half of what is left, and so on: the last rows find it spinning.
                let rest = DurNs(self.pace.0.saturating_mul(self.assembly.missing() as i64));
                if !napped && rest > DurNs(2 * spin.0) {
                    sleep_until(begun + DurNs(rest.0 / 2));
                    napped = true;
                } else if mono_now() - begun > spin {
                    break;
                }
            }
        }
        let taken = self.wait != Wait::Spin && self.taken.take(&self.socket, Waits::ForOne).is_ok();
        self.at = mono_now();
        taken
    }

    /// Waits for the next row, or the end of a frame, for the patience at most. Real-time: a system call for up to [`BATCH_MAX`]
    /// datagrams, no allocation.
    ///
    /// [`BATCH_MAX`]: sys::datagrams::BATCH_MAX
    pub(crate) fn next(&mut self) -> Got {
        for _ in 0..LOOKS {
            // Nothing came; what else a receiving socket may say passes.
            if !self.more() && !self.take() {
                return self.end().map_or(Got::Nothing, Got::Over);
            }
            let (side, index) = (self.side as u32, self.index);
            self.index += 1;
            let (block, row, pixels) = match Packet::read(self.taken.get(index)) {
                Ok(Packet { content: Content::Leader { width, height, .. }, .. }) => {
                    self.resized += u64::from((width, height) != (side, side));
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
                    self.came_ns[0] = self.taken.came_ns(index);
                    if first {
                        self.came_ns[1] = self.came_ns[0];
                    }
                    return Got::Row { row, first, last };
                }
                Taken::Later => {
                    self.index = index;
                    return self.end().map_or(Got::Nothing, Got::Over);
                }
                Taken::Dropped => {}
            }
        }
        Got::Nothing
    }
}

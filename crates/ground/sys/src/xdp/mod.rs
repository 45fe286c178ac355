//! Packets of a network card's queue without the kernel's network stack (`AF_XDP`). They are in the memory of this
//! process. While packets are available, taking them needs no system call.
//!
//! A program on the interface ([`program`]) passes all packets to the kernel except UDP packets to one address. It is
//! removed with the [`Queue`], also if the process is killed.

mod memory;
mod program;

use crate::datagrams::{BATCH_MAX, Waits};
use crate::error::{Doing, Error, Result};
use base::{DurNs, MonoNs};
use memory::{Incoming, Mapped, Outgoing, Ring};
use program::Attached;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a chunk, which holds a packet or a part of one: a page.
const CHUNK: usize = 4096;
/// Bytes that the kernel reserves before a packet.
const BEFORE: usize = 256;
/// If the interface's MTU is larger, packets may arrive in several buffers.
const ONE_BUFFER_MTU: usize = 1500;
/// Bytes of Ethernet's addresses, two tags and type, which the MTU does not include.
const ETHERNET: usize = 22;
/// Maximum number of buffers of a packet: the kernel's limit.
const BUFFERS_MAX: u32 = 18;
/// Maximum number of chunks: 64 MiB.
const CHUNKS_MAX: usize = 1 << 14;

/// An interface's queue, and the size of its buffers.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings<'a> {
    /// The interface's name.
    pub interface: &'a str,
    /// Its queue, from 0 on.
    pub queue: u32,
    /// Destination address of the packets to take.
    pub to: SocketAddrV4,
    /// Maximum bytes of a packet, with all its headers.
    pub longest: usize,
    /// Number of packets for which there is room until they are taken.
    pub packets: usize,
    /// Maximum time to wait for a packet.
    pub patience: DurNs,
}

/// Path of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// Taken in the driver, before the kernel allocates its own packet structure.
    pub in_driver: bool,
    /// Written by the card directly into this process's memory. Otherwise the kernel copies them.
    pub zero_copy: bool,
}

/// A packet that was taken.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedPacket {
    /// Offset in the chunks, or in `Queue::joined`.
    at: u64,
    length: usize,
    /// The packet is in `Queue::joined`.
    joined: bool,
    came: Option<MonoNs>,
}

/// A queue of a network card.
#[derive(Debug)]
pub struct Queue {
    // Before the memory, because the kernel must release it first.
    _program: Attached,
    socket: OwnedFd,
    chunks: Mapped,
    filled: Outgoing<u64>,
    came: Incoming<XdpDesc>,
    taken: [ReceivedPacket; BATCH_MAX],
    there: usize,
    /// Chunks of the packets taken last.
    held: Vec<u64>,
    /// Packets that arrived in several chunks.
    joined: Vec<u8>,
    longest: usize,
    patience: DurNs,
    way: PacketPath,
}

impl Queue {
    /// Takes over the packets to an address on a queue of an interface. Allocates. From then on the memory is shared
    /// with the kernel.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without the rights (`CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF`), `ENODEV` without the
    /// interface, `EINVAL` without the queue, `EBUSY` if another process uses the queue or has a program on the
    /// interface, `EMSGSIZE` if the interface's maximum packet is shorter than requested, `ENOBUFS` if the memory
    /// exceeds the limit of locked memory.
    pub fn open(wanted: &QueueSettings<'_>) -> Result<Self> {
        let name = wanted.interface;
        let family = || "make a socket for a card's packets (AF_XDP)".to_owned();
        let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let socket = socket.doing(family)?;
        let find = || format!("find network interface {name:?}");
        // An `AF_XDP` socket does not support queries about interfaces.
        let asked = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let asked = asked.doing(find)?;
        let index = rustix::net::netdevice::name_to_index(&asked, name).doing(find)?;
        let mtu = crate::interfaces::mtu(&asked, name)?;
        if wanted.longest > mtu + ETHERNET {
            let doing = format!("receive packets of {} bytes from {name:?}, whose MTU is {mtu}", wanted.longest);
            return Err(Error { doing, errno: Errno::MSGSIZE });
        }
        let several = mtu + ETHERNET > CHUNK - BEFORE;
        let each = wanted.longest.div_ceil(CHUNK - BEFORE);
        let count = (wanted.packets * each).clamp(64, CHUNKS_MAX).next_power_of_two();
        let chunks = Mapped::anonymous(count * CHUNK).doing(|| format!("have {} bytes of memory", count * CHUNK))?;
        let register = XdpUmemReg {
            addr: chunks.address(),
            len: chunks.bytes() as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        let doing = || format!("lock {} KiB for packets of {name:?}", chunks.bytes() >> 10);
        sockopt::set_xdp_umem_reg(&socket, register).doing(doing)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, count as u32).doing(doing)?;
        // The kernel requires this ring, although nothing is sent.
        sockopt::set_xdp_umem_completion_ring_size(&socket, 2).doing(doing)?;
        sockopt::set_xdp_rx_ring_size(&socket, count as u32).doing(doing)?;
        let places = sockopt::xdp_mmap_offsets(&socket).doing(doing)?;
        let ring = Ring::map(socket.as_fd(), XDP_UMEM_PGOFF_FILL_RING, places.fr, count).doing(doing)?;
        let came = Incoming(Ring::map(socket.as_fd(), XDP_PGOFF_RX_RING, places.rx, count).doing(doing)?);
        let mut filled = Outgoing(ring);
        (0..count as u64).for_each(|chunk| filled.put(chunk * CHUNK as u64));
        filled.show();
        let several_flag = if several { SocketAddrXdpFlags::XDP_USE_SG } else { SocketAddrXdpFlags::empty() };
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | several_flag;
        let doing = || format!("take queue {} of {name:?}", wanted.queue);
        rustix::net::bind(&socket, &SocketAddrXdp::new(flags, index, wanted.queue)).doing(doing)?;
        let place = (index, name, wanted.queue);
        let program = program::attach(socket.as_fd(), wanted.to, place, mtu > ONE_BUFFER_MTU)?;
        let zero_copy = sockopt::xdp_options(&socket).doing(doing)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        Ok(Self {
            way: PacketPath { in_driver: program.in_driver, zero_copy },
            _program: program,
            socket,
            chunks,
            filled,
            came,
            taken: [ReceivedPacket::default(); BATCH_MAX],
            there: 0,
            held: Vec::with_capacity(BATCH_MAX * BUFFERS_MAX as usize),
            joined: if several { vec![0; BATCH_MAX * wanted.longest] } else { Vec::new() },
            longest: wanted.longest,
            patience: wanted.patience,
        })
    }

    /// Path of the packets.
    #[must_use]
    pub const fn way(&self) -> PacketPath {
        self.way
    }

    /// Number of packets taken last.
    #[must_use]
    pub const fn there(&self) -> usize {
        self.there
    }

    /// One of the packets taken last, from the Ethernet header on; empty if `index` is out of range. Bytes beyond the
    /// configured maximum are cut.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        match self.taken[..self.there].get(index) {
            Some(taken) if taken.joined => &self.joined[taken.at as usize..][..taken.length],
            Some(taken) => self.chunks.packet(taken.at, taken.length),
            None => &[],
        }
    }

    /// Time when the program received the packet, if the driver leaves room for it.
    #[must_use]
    pub fn came(&self, index: usize) -> Option<MonoNs> {
        self.taken[..self.there].get(index)?.came
    }

    /// Takes the packets that have arrived. Returns their number. The previous packets become invalid, also on failure.
    ///
    /// Real-time: no system call while packets are available and the card is not asleep; otherwise one or two. Does not
    /// allocate.
    ///
    /// # Errors
    /// `EAGAIN` if no packet arrived in time, also if the interface has gone: see [`Watch`].
    pub fn take(&mut self, waits: Waits) -> std::result::Result<usize, Errno> {
        self.there = 0;
        if !self.held.is_empty() {
            self.held.drain(..).for_each(|chunk| self.filled.put(chunk));
            self.filled.show();
        }
        if self.look() > 0 {
            return Ok(self.there);
        }
        // Both calls wake a sleeping card.
        if waits == Waits::ForOne {
            crate::poll::is_readable(self.socket.as_fd(), self.patience);
        } else if self.filled.wants_waking() {
            let _ = rustix::net::recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
        if self.look() > 0 { Ok(self.there) } else { Err(Errno::AGAIN) }
    }

    /// A handle for another thread to check whether the interface still exists. Allocates.
    ///
    /// # Errors
    /// The kernel's: too many descriptors.
    pub fn watch(&self) -> Result<Watch> {
        let copy = rustix::io::fcntl_dupfd_cloexec(&self.socket, 3);
        Ok(Watch(copy.doing(|| "watch a network card's queue".to_owned())?))
    }

    fn look(&mut self) -> usize {
        while self.there < BATCH_MAX {
            let Some((taken, buffers)) = self.packet() else { break };
            // Chunks are returned to the kernel by their start address.
            let chunks = (0..buffers).filter_map(|nth| self.came.get(nth)).map(|part| part.addr & !(CHUNK as u64 - 1));
            self.held.extend(chunks);
            self.came.skip(buffers);
            self.taken[self.there] = taken;
            self.there += 1;
        }
        // Only if something has changed, because the kernel's CPU reads this word.
        if self.there > 0 {
            self.came.show();
        }
        self.there
    }

    /// The next packet, and its number of buffers. The kernel publishes all of them at once.
    fn packet(&mut self) -> Option<(ReceivedPacket, u32)> {
        let first = self.came.get(0)?;
        let came = Some(self.chunks.take_word(first.addr)).filter(|came| *came > 0).map(MonoNs);
        let is_last = |part: &XdpDesc| !part.options.contains(XdpDescOptions::XDP_PKT_CONTD);
        if is_last(&first) {
            let length = (first.len as usize).min(self.longest);
            return Some((ReceivedPacket { at: first.addr, length, joined: false, came }, 1));
        }
        let begin = self.there * self.longest;
        let mut room = self.joined.get_mut(begin..begin + self.longest).unwrap_or_default();
        let (mut part, mut length, mut buffers) = (first, 0, 1);
        loop {
            let bytes = self.chunks.packet(part.addr, (part.len as usize).min(room.len()));
            let (to, rest) = room.split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            (room, length) = (rest, length + bytes.len());
            if is_last(&part) || buffers == BUFFERS_MAX {
                return Some((ReceivedPacket { at: begin as u64, length, joined: true, came }, buffers));
            }
            part = self.came.get(buffers)?;
            buffers += 1;
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Checks from another thread whether the queue's interface still exists.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Whether it exists. An interface that is down may come up again.
    ///
    /// # Errors
    /// `ENXIO` if it no longer exists.
    pub fn look(&self) -> Result<()> {
        match rustix::net::recv(&self.0, &mut [0u8; 0], RecvFlags::DONTWAIT) {
            Err(Errno::NXIO) => Err(Errno::NXIO).doing(|| "take packets any longer".to_owned()),
            _ => Ok(()),
        }
    }
}

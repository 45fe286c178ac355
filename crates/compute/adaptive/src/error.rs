//! Errors before the loop runs.

use crate::input::Card;
use base::DurNs;
use sys::Errno;

/// Reason why a loop cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket cannot be opened.
    #[error("{address}: {error}; expected {}", address_wanted(error))]
    Socket {
        /// Its address.
        address: std::net::SocketAddr,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// The queue of a network card cannot be opened, or is gone.
    #[error("--xdp {card}: {error}; {remedy}")]
    Card {
        /// The card.
        card: Card,
        /// Error of the kernel.
        error: sys::Error,
        /// Expected condition and remedy.
        remedy: &'static str,
    },
    /// A card's queue does not support this address.
    #[error("--xdp {card}: pixels at {address}; expected an IPv4 address, that of the interface")]
    NotIpv4 {
        /// Address of the pixels.
        address: std::net::SocketAddr,
        /// The card.
        card: Card,
    },
    /// Pixels arrive at the host, but not on the card's queue.
    #[error(
        "--xdp {0}: pixels come to this host, but not whole on this queue; expected each in one packet of the interface, without VLAN tag, \
         IP options and pieces, steered to the queue (`ethtool -N IFACE flow-type udp4 dst-port PORT action QUEUE`)"
    )]
    Past(Card),
    /// No frames arrive.
    #[error("no complete frame arrived for {0}; expected a camera that sends to --pixels: `tahti demo telescope`")]
    NoFrames(DurNs),
    /// The camera announces images of another size.
    #[error(
        "{images} images came of another size than {side} x {side} pixels; expected a loop of the camera's size: --across, and the whole of its \
         detector read"
    )]
    Resized {
        /// Number of images announced.
        images: u64,
        /// Expected pixels per line.
        side: usize,
    },
    /// A part has another size than the loop.
    #[error("a {what} of {found} numbers; expected {expected}")]
    Size {
        /// Name of the part.
        what: &'static str,
        /// Its number of elements.
        found: usize,
        /// Number of elements that the loop needs.
        expected: usize,
    },
    /// The camera does not detect the pokes of the mirror.
    #[error(
        "none of {0} pokes was seen by the camera; expected spots that move: is the lamp on, do commands reach the mirror?"
    )]
    Unseen(usize),
    /// A calibration that does not fit the sensor.
    #[error(transparent)]
    Aperture(#[from] kernels::BadAperture),
    /// An array has the wrong size.
    #[error(transparent)]
    Misfit(#[from] kernels::Misfit),
    /// A command cannot be written.
    #[error(transparent)]
    Command(#[from] optics::CommandError),
    /// The interaction matrix has no inverse.
    #[error(transparent)]
    Singular(#[from] optics::reconstruct::Singular),
    /// The team cannot be started.
    #[error(transparent)]
    Team(#[from] rt::team::TeamError),
    /// A stream cannot be created.
    #[error("{0}; expected a folder that this process may write, best in memory (/dev/shm)")]
    Stream(#[from] sys::Error),
    /// The variables cannot be exported under this name.
    #[error(transparent)]
    Share(#[from] rt::ShareError),
}

fn address_wanted(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrInUse => {
            "an unused address: end the process that has it (`ss -ulpn` shows it), or set another address"
        }
        ErrorKind::AddrNotAvailable => "an address of this host (`ip address` lists them)",
        ErrorKind::PermissionDenied => "a port from 1024 on, or root",
        _ => "an address of this host to listen at, one that can be reached to send to",
    }
}

impl Error {
    pub(crate) fn card(card: &Card, error: sys::Error) -> Self {
        let remedy = match error.errno {
            Errno::PERM | Errno::ACCESS => "expected root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
            Errno::AFNOSUPPORT | Errno::NOSYS => "expected a kernel with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL",
            Errno::NODEV | Errno::NXIO => "expected a network interface of this host: `ip link` lists them",
            Errno::BUSY => {
                "expected a queue and an interface that no other program has: see `ip link show IFACE`, end who has it, or take another"
            }
            Errno::MSGSIZE => {
                "expected packets that hold a row: `ip link set IFACE mtu 9000`, on both ends of the wire"
            }
            Errno::RANGE => "expected an MTU that the driver takes with XDP: make the interface's less",
            Errno::NOBUFS | Errno::NOMEM => "expected memory that may be locked: raise `ulimit -l`, or CAP_IPC_LOCK",
            Errno::INVAL => {
                "expected one of the interface's queues, from 0 on: `ls /sys/class/net/IFACE/queues`; and Linux 6.6 where its MTU is above 3800"
            }
            Errno::OPNOTSUPP => "expected an interface that takes XDP",
            _ => "without --xdp, pixels arrive on a socket",
        };
        Self::Card { card: card.clone(), error, remedy }
    }
}

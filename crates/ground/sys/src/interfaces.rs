//! The network interfaces of this host.

use crate::error::{Doing, Error, Result};
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// An IPv4 address of an interface that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The host's address on this interface.
    pub address: Ipv4Addr,
    /// The network's broadcast address; `None` for loopback and point-to-point links.
    pub broadcast: Option<Ipv4Addr>,
}

/// The IPv4 addresses of the interfaces that are up.
///
/// # Errors
/// The kernel's.
pub fn list() -> Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is valid and writable for the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(Error::last("list the network interfaces"));
    }
    let mut all = Vec::new();
    let mut next = first;
    // SAFETY: getifaddrs made a list that ends with null; it is freed below, after the last use of an entry.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is = |flag: libc::c_int| entry.ifa_flags & flag as u32 != 0;
        if let Some(address) = ipv4(entry.ifa_addr).filter(|_| is(libc::IFF_UP)) {
            let broadcast = ipv4(entry.ifa_ifu).filter(|_| is(libc::IFF_BROADCAST) && !is(libc::IFF_LOOPBACK));
            all.push(Interface { address, broadcast });
        }
    }
    // SAFETY: `first` came from getifaddrs and is no longer used.
    unsafe { libc::freeifaddrs(first) };
    Ok(all)
}

/// MTU of an interface: the maximum packet without the Ethernet header. The socket may be of any kind.
///
/// # Errors
/// `ENODEV` if there is no such interface.
pub fn mtu(socket: impl AsFd, name: &str) -> Result<usize> {
    // SAFETY: all zeros are an empty name and an empty result.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and terminates the name; no interface has a longer one.
    for (to, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    let (socket, at) = (socket.as_fd().as_raw_fd(), &raw mut request);
    // SAFETY: the request is valid and writable for the call, which reads the name and writes the answer.
    if unsafe { libc::ioctl(socket, libc::SIOCGIFMTU as _, at) } != 0 {
        return Err(Error::last(format!("ask network interface {name:?} for its MTU")));
    }
    // SAFETY: the kernel has filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Creates a network namespace with only a loopback interface, which is down. It exists as long as it is open or a
/// process is in it. Requires root. Starts and joins a thread.
///
/// # Errors
/// The kernel's.
pub fn empty_network() -> Result<OwnedFd> {
    let apart = || {
        // SAFETY: a flag and no memory; the thread in the new namespace ends here.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(Error::last("make a network namespace"));
        }
        let path = "/proc/thread-self/ns/net";
        std::fs::File::open(path).map(OwnedFd::from).doing(|| format!("open {path}"))
    };
    let joined = std::thread::scope(|scope| scope.spawn(apart).join());
    joined.unwrap_or_else(|_| Err(Error { doing: "make a network namespace".into(), errno: Errno::IO }))
}

/// The IPv4 address in a socket address of the list.
fn ipv4(address: *const libc::sockaddr) -> Option<Ipv4Addr> {
    // SAFETY: null, or a socket address of the list, which lives until it is freed.
    let family = unsafe { address.as_ref() }?.sa_family;
    if i32::from(family) != libc::AF_INET {
        return None;
    }
    // SAFETY: the family identifies a sockaddr_in; the read requires no alignment.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_address_and_no_broadcast() {
        let interfaces = list().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.address.is_loopback());
        assert!(loopback.is_none_or(|interface| interface.broadcast.is_none()), "{interfaces:?}");
    }
}

//! TCP connections that are to be given the newest, not all.

use crate::{Result, option};
use std::os::fd::AsFd;

/// Has the kernel take no more from who writes to a TCP connection while so many bytes wait to be sent for the first time: without it some
/// megabytes do, which is half a minute of a slow line. What is on its way and not yet confirmed does not count.
///
/// # Errors
/// The kernel's, where it is no TCP connection.
pub fn keep_unsent_below(connection: impl AsFd, bytes: u32) -> Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    option::set(connection, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes, "bound what waits to be sent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_tcp_connection_takes_the_bound_and_another_socket_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_unsent_below(&stream, 16 << 10).unwrap();
        assert!(keep_unsent_below(UdpSocket::bind("127.0.0.1:0").unwrap(), 1).is_err());
    }
}

//! TCP options: a limit for unsent data, so that new data replaces old, and detection of dead peers.

use crate::{Result, option};
use base::DurNs;
use std::os::fd::AsFd;

/// Limits the bytes of a TCP connection that wait to be sent for the first time. Beyond that, the kernel accepts no
/// further writes. Without the limit it buffers several megabytes, half a minute on a slow line. Data that was sent but
/// not acknowledged does not count.
///
/// # Errors
/// The kernel's, if it is not a TCP connection.
pub fn keep_unsent_below(connection: impl AsFd, bytes: u32) -> Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    option::set(connection, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes, "bound what waits to be sent")
}

/// Number of unanswered probes of an idle connection until it is considered dead.
const PROBES: i64 = 4;

/// Makes the kernel end a TCP connection (`ETIMEDOUT`) whose peer has not responded for about this time, neither to
/// data nor, while idle, to probes. Otherwise a connection that only receives never detects that its peer has lost
/// power. From 2 s to 1 h, in whole seconds.
///
/// # Errors
/// The kernel's, if it is not a TCP connection.
pub fn notice_death_within(connection: impl AsFd, within: DurNs) -> Result<()> {
    let seconds = (within.0 / 1_000_000_000).clamp(2, 3_600);
    // The first probe is sent after half of the time, the others evenly in the rest.
    let idle = (seconds / 2).max(1);
    let between = ((seconds - idle) / PROBES).max(1);
    let probes = ((seconds - idle) / between).max(1);
    let doing = "notice a peer that has died";
    let tcp = |name: i32, value: i64| option::set(&connection, libc::IPPROTO_TCP, name, value as i32, doing);
    option::set(&connection, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, doing)?;
    tcp(libc::TCP_KEEPIDLE, idle)?;
    tcp(libc::TCP_KEEPINTVL, between)?;
    tcp(libc::TCP_KEEPCNT, probes)?;
    tcp(libc::TCP_USER_TIMEOUT, seconds * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn a_tcp_connection_takes_the_bound_and_another_socket_does_not() {
        keep_unsent_below(stream(), 16 << 10).unwrap();
        assert!(keep_unsent_below(UdpSocket::bind("127.0.0.1:0").unwrap(), 1).is_err());
    }

    #[test]
    fn probes_of_a_silent_connection_end_within_the_requested_time() {
        use rustix::net::sockopt;
        for (asked, seconds) in [(0, 2), (2, 2), (3, 3), (20, 20), (60, 60), (100_000, 3_600)] {
            let stream = stream();
            notice_death_within(&stream, DurNs::from_secs(asked)).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            let idle = sockopt::tcp_keepidle(&stream).unwrap().as_secs();
            let between = sockopt::tcp_keepintvl(&stream).unwrap().as_secs();
            let all = idle + between * u64::from(sockopt::tcp_keepcnt(&stream).unwrap());
            assert!(all <= seconds && all * 5 >= seconds * 4, "{asked} s asked: {all} s of probes");
            assert_eq!(u64::from(sockopt::tcp_user_timeout(&stream).unwrap()), seconds * 1_000);
        }
        assert!(notice_death_within(UdpSocket::bind("127.0.0.1:0").unwrap(), DurNs::from_secs(9)).is_err());
    }
}

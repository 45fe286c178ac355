//! The user at the other end of a loopback connection, from the kernel's table of connections.

use std::net::{IpAddr, SocketAddr};

/// The user id of the process whose connection goes from `peer` to `local`.
pub(crate) fn user(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let file = if peer.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let table = std::fs::read_to_string(file).ok()?;
    find(&table, peer, local).filter(|_| peer.ip().to_canonical().is_loopback())
}

/// The user in the line whose local address is `peer`, which is the client's end.
fn find(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let (own, other) = (address(peer), address(local));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = words.next()? == own && words.next()? == other;
        words.nth(4).filter(|_| is_it)?.parse().ok()
    })
}

/// An address in the format of the table: 32-bit words in host byte order, in hexadecimal.
fn address(address: SocketAddr) -> String {
    let words = |bytes: &[u8]| -> String {
        let word = |four: &[u8]| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        bytes.chunks_exact(4).map(|four| format!("{:08X}", word(four))).collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_at_the_other_end_of_a_loopback_connection_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (there, peer) = listener.accept().unwrap();
            assert_eq!(user(peer, there.local_addr().unwrap()), Some(sys::users::own().0), "{address}");
            drop(here);
        }
    }

    #[test]
    fn malformed_lines_of_the_connection_table_name_no_user() {
        let (peer, local) = ("127.0.0.1:5000".parse().unwrap(), "127.0.0.1:8765".parse().unwrap());
        let line = "   0: 0100007F:1388 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1000        0 1 1";
        let head = "sl local rem\n";
        if cfg!(target_endian = "little") {
            assert_eq!(find(&format!("{head}{line}\n"), peer, local), Some(1000));
        }
        assert_eq!(find(&format!("{head}{line}\n"), local, peer), None);
        for bad in
            ["", "\n\n", "sl\nx", "sl\n0: 0100007F:1388 0100007F:223D", "sl\n0: 0100007F:1388 0100007F:223D 01 a b c x"]
        {
            assert_eq!(find(bad, peer, local), None);
        }
    }
}

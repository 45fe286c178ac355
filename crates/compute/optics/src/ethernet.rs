//! UDP datagrams in Ethernet packets.

/// Bytes before the content of a datagram: the headers of Ethernet, IPv4 without options, and UDP.
pub const HEADERS: usize = 14 + 20 + 8;

/// Content of a UDP datagram to a port, in an Ethernet packet with IPv4, without options and not fragmented. `None` for any other packet and
/// for a truncated one. Does not verify checksums: the card has verified them, and a datagram from this host does not have one yet.
///
/// Does not allocate. Accepts arbitrary bytes.
#[must_use]
pub fn datagram(packet: &[u8], port: u16) -> Option<&[u8]> {
    let (headers, _) = packet.split_first_chunk::<HEADERS>()?;
    let short = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    let (total, length) = (usize::from(short(16)), usize::from(short(38)));
    let is_ours = short(12) == 0x0800 && headers[14] == 0x45 && short(20) & 0x3fff == 0 && headers[23] == 17;
    // Ethernet padding of a short packet is behind the end of the datagram.
    let fits = length >= 8 && total >= 20 + length && packet.len() >= 14 + total;
    (is_ours && fits && short(36) == port).then(|| packet.get(HEADERS..HEADERS - 8 + length))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet to port 51511.
    fn packet(content: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xaa; 12];
        packet.extend([0x08, 0x00, 0x45, 0]);
        packet.extend((28 + content.len() as u16).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 0x12, 0x34]);
        packet.extend(51511u16.to_be_bytes());
        packet.extend((8 + content.len() as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(content);
        packet
    }

    #[test]
    fn the_content_of_a_datagram_is_returned_without_ethernet_padding() {
        let mut whole = packet(b"abc");
        whole.resize(60, 0);
        assert_eq!(datagram(&whole, 51511), Some(&b"abc"[..]));
        assert_eq!(datagram(&packet(b""), 51511), Some(&b""[..]));
    }

    #[test]
    fn a_packet_that_is_not_a_whole_datagram_to_the_port_is_ignored() {
        let whole = packet(b"abc");
        assert_eq!(datagram(&whole, 51512), None);
        for length in 0..whole.len() {
            assert_eq!(datagram(&whole[..length], 51511), None, "truncated to {length}");
        }
        // IPv6, options, more fragments, a later fragment, TCP, a datagram longer than its packet, one shorter than its header.
        for (at, value) in [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (39, 12), (39, 7), (17, 30), (17, 32)]
        {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(datagram(&other, 51511), None, "byte {at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_cause_a_panic(
            content in prop::collection::vec(any::<u8>(), 0..80),
            changes in prop::collection::vec((0..HEADERS + 80, any::<u8>()), 0..4),
            length in 0..HEADERS + 80,
        ) {
            let mut bytes = packet(&content);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            if let Some(found) = datagram(&bytes, 51511) {
                prop_assert!(found.len() + HEADERS <= bytes.len());
            }
        }
    }
}

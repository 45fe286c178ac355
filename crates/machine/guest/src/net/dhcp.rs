//! DHCP server for the single address of a guest's network.

use super::{GATEWAY, GUEST, MASK_BITS};
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, Ipv4Address, Ipv4Cidr};

/// Answer to a datagram on the DHCP port; `None` if it is not a request.
pub(super) fn answer(datagram: &[u8]) -> Option<Vec<u8>> {
    let packet = DhcpPacket::new_checked(datagram).ok()?;
    let asked = DhcpRepr::parse(&packet).ok()?;
    let message_type = match asked.message_type {
        DhcpMessageType::Discover => DhcpMessageType::Offer,
        DhcpMessageType::Request if asked.requested_ip.unwrap_or(asked.client_ip) == GUEST => DhcpMessageType::Ack,
        DhcpMessageType::Request => DhcpMessageType::Nak,
        _ => return None,
    };
    let gives = message_type != DhcpMessageType::Nak;
    let given = DhcpRepr {
        message_type,
        transaction_id: asked.transaction_id,
        secs: 0,
        client_hardware_address: asked.client_hardware_address,
        client_ip: Ipv4Address::UNSPECIFIED,
        your_ip: if gives { GUEST } else { Ipv4Address::UNSPECIFIED },
        server_ip: GATEWAY,
        // No router: the network leads nowhere else.
        router: None,
        subnet_mask: gives.then(|| Ipv4Cidr::new(GUEST, MASK_BITS).netmask()),
        relay_agent_ip: Ipv4Address::UNSPECIFIED,
        broadcast: true,
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(GATEWAY),
        parameter_request_list: None,
        dns_servers: None,
        max_size: None,
        lease_duration: gives.then_some(24 * 3600),
        renew_duration: None,
        rebind_duration: None,
        additional_options: &[],
    };
    let mut bytes = vec![0; given.buffer_len()];
    given.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_datagram_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if bytes.len() > 244 {
                bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
                bytes[236..243].copy_from_slice(&[0x63, 0x82, 0x53, 0x63, 53, 1, 1]);
            }
            let _ = answer(&bytes);
        }
    }
}

//! The repeater: one process per host receives the beacons and forwards them to all clients on the host.

use crate::wire::{Header, HeaderParse, command};

/// Maximum number of clients. A further client replaces the oldest one.
const CLIENTS_MAX: usize = 4096;

/// The clients that receive beacons, by UDP port on this host.
#[derive(Debug, Default)]
pub struct Repeater {
    clients: Vec<u16>,
}

/// The reaction to a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send these bytes to the new client on this port.
    Confirm(u16, Vec<u8>),
    /// Send these bytes to all clients except the sender.
    FanOut(Vec<u8>),
}

impl Repeater {
    /// Processes a datagram. `local`: it was sent from this host. `from`: the IPv4 address of the sender.
    pub fn handle(&mut self, bytes: &[u8], port: u16, local: bool, from: u32) -> Vec<Action> {
        let head = Header::read(bytes);
        let registers = bytes.is_empty()
            || matches!(head, HeaderParse::Header(header, _) if header.command == command::REPEATER_REGISTER);
        if registers && local {
            if !self.clients.contains(&port) {
                if self.clients.len() >= CLIENTS_MAX {
                    self.clients.remove(0);
                }
                self.clients.push(port);
            }
            let mut out = Vec::new();
            Header::bare(command::REPEATER_CONFIRM, 0, 0, 0, from).write(&mut out);
            return vec![Action::Confirm(port, out)];
        }
        let mut bytes = bytes.to_vec();
        if let HeaderParse::Header(header, 16) = head
            && header.command == command::RSRV_IS_UP
            && header.p2 == 0
        {
            bytes[12..16].copy_from_slice(&from.to_be_bytes());
        }
        if bytes.is_empty() { Vec::new() } else { vec![Action::FanOut(bytes)] }
    }

    /// The ports of the clients.
    #[must_use]
    pub fn clients(&self) -> &[u16] {
        &self.clients
    }

    /// Removes a client that has ended.
    pub fn forget(&mut self, port: u16) {
        self.clients.retain(|client| *client != port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_register_and_get_beacons_with_the_servers_address() {
        let mut repeater = Repeater::default();
        let mut register = Vec::new();
        Header::bare(command::REPEATER_REGISTER, 0, 0, 0, 0).write(&mut register);
        for _ in 0..2 {
            assert!(matches!(&repeater.handle(&register, 4000, true, 7)[..], [Action::Confirm(4000, _)]));
        }
        repeater.handle(b"", 4001, true, 7);
        assert_eq!(repeater.clients(), [4000, 4001]);
        let mut beacon = Vec::new();
        Header::bare(command::RSRV_IS_UP, 13, 5064, 0, 0).write(&mut beacon);
        let [Action::FanOut(bytes)] = &repeater.handle(&beacon, 9, false, 0x0102_0304)[..] else { panic!("fan out") };
        assert_eq!(bytes[12..16], [1, 2, 3, 4]);
        repeater.forget(4000);
        assert_eq!(repeater.clients(), [4001]);
    }
}

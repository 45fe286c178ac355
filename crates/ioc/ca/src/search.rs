//! Searches by datagram: the server's side.

use crate::client::Address;
use crate::wire::{self, Header, MINOR, MINOR_MIN, NONE, command};

/// Maximum size of a sent datagram in bytes, as in EPICS. It fits into one Ethernet frame.
pub const DATAGRAM_BYTES_MAX: usize = 1024;

/// Counters of a server's answers to searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounters {
    /// Number of names searched.
    pub asked: u64,
    /// Number of names found.
    pub found: u64,
}

/// Answers the searches in one datagram. `exists` returns whether a name is known; `send` is called for each datagram with
/// answers. `server` is where its circuits are; address 0 means that of the answer's sender. Unknown names are ignored. The function keeps no state and allocates only the answer.
pub fn answer(
    datagram: &[u8],
    server: Address,
    counters: &mut SearchCounters,
    mut exists: impl FnMut(&[u8]) -> bool,
    mut send: impl FnMut(&[u8]),
) {
    let address = if server.ip == 0 { NONE } else { server.ip };
    let mut version: Option<Header> = None;
    let mut out = Vec::new();
    for (header, payload) in wire::messages(datagram) {
        match (header.command, version) {
            (command::VERSION, _) if header.count >= MINOR_MIN.into() => version = Some(header),
            (command::SEARCH, Some(first)) => {
                if header.count < MINOR_MIN.into() || header.size <= 1 {
                    continue;
                }
                counters.asked += 1;
                if !exists(wire::text_of(payload)) {
                    continue;
                }
                counters.found += 1;
                if out.len() + 24 > DATAGRAM_BYTES_MAX {
                    send(&out);
                    out.clear();
                }
                if out.is_empty() && first.count >= 11 {
                    // The sequence number identifies the answered datagram for the client.
                    Header::bare(command::VERSION, 1, MINOR.into(), first.p1, 0).write(&mut out);
                }
                Header { command: command::SEARCH, size: 8, kind: server.port, count: 0, p1: address, p2: header.p2 }
                    .write(&mut out);
                out.extend_from_slice(&u64::from(MINOR).rotate_left(48).to_be_bytes());
            }
            // An invalid message. The rest of the datagram is not trusted either.
            _ => break,
        }
    }
    if !out.is_empty() {
        send(&out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(names: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        Header::bare(command::VERSION, 1, 13, 77, 0).write(&mut out);
        for (id, name) in names.iter().enumerate() {
            let header = Header::bare(command::SEARCH, wire::DO_REPLY, 13, id as u32, id as u32);
            wire::write_text(header, name.as_bytes(), &mut out);
        }
        out
    }

    fn answers(datagram: &[u8]) -> Vec<Vec<u8>> {
        answers_of(Address { ip: 0, port: 5064 }, datagram)
    }

    fn answers_of(server: Address, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let exists = |name: &[u8]| name.starts_with(b"X:");
        answer(datagram, server, &mut SearchCounters::default(), exists, |out| sent.push(out.to_vec()));
        sent
    }

    #[test]
    fn an_answer_has_the_address_of_the_server_if_it_is_another_than_the_senders() {
        let sent = answers_of(Address { ip: 0x7f00_0001, port: 5064 }, &ask(&["X:a"]));
        let (header, _) = wire::messages(&sent[0]).nth(1).unwrap();
        assert_eq!((header.kind, header.p1), (5064, 0x7f00_0001));
    }

    #[test]
    fn a_search_is_answered_with_port_and_sequence_for_known_names_only() {
        let sent = answers(&ask(&["X:a", "nobody", "X:b"]));
        let found: Vec<_> = wire::messages(&sent[0])
            .map(|(header, payload)| (header.command, header.kind, header.p1, header.p2, payload.to_vec()))
            .collect();
        assert_eq!(sent.len(), 1);
        assert_eq!(found[0], (0, 1, 77, 0, vec![]));
        assert_eq!(found[1], (6, 5064, NONE, 0, vec![0, 13, 0, 0, 0, 0, 0, 0]));
        assert_eq!(found[2].3, 2);
        assert!(answers(&ask(&["nobody"])).is_empty());
    }

    #[test]
    fn many_answers_take_several_datagrams() {
        let names: Vec<String> = (0..100).map(|n| format!("X:{n}")).collect();
        let sent = answers(&ask(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        assert!(sent.len() > 1 && sent.iter().all(|out| out.len() <= DATAGRAM_BYTES_MAX));
        let total: usize =
            sent.iter().map(|out| wire::messages(out).filter(|(header, _)| header.command == 6).count()).sum();
        assert_eq!(total, 100);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = answers(&bytes);
            let mut asked = ask(&["X:a"]);
            asked.extend_from_slice(&bytes);
            let _ = answers(&asked);
        }
    }
}

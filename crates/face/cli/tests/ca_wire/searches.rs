//! Searches by datagram.

use crate::DATABASE;
use crate::wire::hex;
use ca::wire::{self, Header, command};
use harness::PATIENCE;
use harness::ioc::Ioc;
use std::net::UdpSocket;

/// A datagram with searches: minor version sent first (`None` to omit it), then reply kind, minor version and name of
/// each search.
type Search = (&'static str, Option<u32>, &'static [(u16, u32, &'static [u8])]);

const SEARCHES: &[Search] = &[
    ("a name", Some(13), &[(5, 13, b"X:i\0")]),
    ("an absent name", Some(13), &[(5, 13, b"absent\0")]),
    ("an absent name, with a reply required", Some(13), &[(10, 13, b"absent\0")]),
    ("several", Some(13), &[(5, 13, b"X:i\0"), (5, 13, b"absent\0"), (5, 13, b"X:d.EGU\0"), (5, 13, b"X:s\0")]),
    ("an older client", Some(11), &[(5, 11, b"X:i\0")]),
    ("a client that numbers nothing", Some(10), &[(5, 10, b"X:i\0")]),
    ("a client of long ago", Some(3), &[(5, 3, b"X:i\0")]),
    ("no version", None, &[(5, 13, b"X:i\0")]),
    ("no name", Some(13), &[(5, 13, b""), (5, 13, b"X:i\0")]),
    ("a name without its end", Some(13), &[(5, 13, b"X:iXXXXX")]),
    ("a field that is none", Some(13), &[(5, 13, b"X:i.NOPE\0")]),
    (
        "fields with something behind them",
        Some(13),
        &[
            (5, 13, b"X:i.VAL$\0"),
            (5, 13, b"X:i.{no\0"),
            (5, 13, b"X:i$\0"),
            (5, 13, b"X:i.VAL x\0"),
            (5, 13, b"X:a.[1:2]\0"),
        ],
    ),
    ("a kind that is none", Some(13), &[(77, 13, b"X:i\0")]),
    ("a field without a value", Some(13), &[(5, 13, b"X:i.TIME\0"), (5, 13, b"X:a{}\0")]),
];

#[test]
fn searches_by_datagram_are_answered_as_by_cs_server() {
    let servers = [Ioc::serving(false, DATABASE), Ioc::serving(true, DATABASE)];
    let ask = |port: u16, datagrams: &[Vec<u8>]| -> Vec<String> {
        let [socket, other] = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.set_nonblocking(true).unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut last = Vec::new();
        Header::bare(command::VERSION, 1, 13, 0xABCD, 0).write(&mut last);
        wire::write_text(Header::bare(command::SEARCH, 5, 13, 0xABCD, 0xABCD), b"X:i", &mut last);
        let mut seen = Vec::new();
        let mut buffer = [0; 65_536];
        for datagram in datagrams {
            socket.send_to(datagram, ("127.0.0.1", port)).unwrap();
            // Both servers send all answers for one client before they answer the next. The other client's answer
            // shows that all have arrived.
            other.send_to(&last, ("127.0.0.1", port)).unwrap();
            other.recv(&mut buffer).expect("the last search is answered");
            while let Ok(len) = socket.recv(&mut buffer) {
                seen.push("a datagram".into());
                for (header, payload) in wire::messages(&buffer[..len]) {
                    let kind = if header.kind == port { 0 } else { header.kind };
                    seen.push(format!(
                        "{} kind {kind} count {} {:#x} {:#x} {}",
                        header.command,
                        header.count,
                        header.p1,
                        header.p2,
                        hex(payload)
                    ));
                }
            }
        }
        seen
    };
    let search = |(_, version, names): &Search| {
        let mut datagram = Vec::new();
        if let Some(minor) = *version {
            Header::bare(command::VERSION, 1, minor, 4711, 0).write(&mut datagram);
        }
        for (id, (kind, minor, name)) in names.iter().enumerate() {
            let size = wire::padded(name.len());
            Header {
                command: command::SEARCH,
                size: size as u32,
                kind: *kind,
                count: *minor,
                p1: id as u32,
                p2: id as u32,
            }
            .write(&mut datagram);
            datagram.extend_from_slice(name);
            datagram.resize(datagram.len() + size - name.len(), 0);
        }
        datagram
    };
    let mut cases: Vec<(&str, Vec<Vec<u8>>)> = SEARCHES.iter().map(|case| (case.0, vec![search(case)])).collect();
    let mut echo = Vec::new();
    Header::bare(command::ECHO, 12, 23, 5678, 9_101_112).write(&mut echo);
    let known = search(&SEARCHES[0]);
    cases.push(("an echo", vec![echo.clone()]));
    cases.push(("a search behind an echo", vec![[&echo[..], &known].concat()]));
    cases.push(("a search before an echo", vec![[&known[..], &echo].concat()]));
    cases.push(("a search cut short", vec![known[..known.len() - 4].to_vec()]));
    cases.push(("a header cut short", vec![known[..20].to_vec()]));
    cases.push(("nothing", vec![Vec::new()]));
    cases.push(("two datagrams", vec![known.clone(), known.clone()]));
    let mut many = Vec::new();
    Header::bare(command::VERSION, 1, 13, 4711, 0).write(&mut many);
    (0..200).for_each(|id| wire::write_text(Header::bare(command::SEARCH, 5, 13, id, id), b"X:i", &mut many));
    cases.push(("two hundred in one datagram", vec![many]));
    for (name, datagrams) in cases {
        let both = || servers.each_ref().map(|server| ask(server.port, &datagrams));
        // If C finds both datagrams waiting, it omits the version from its first answer.
        let mut answers = both();
        for _ in 0..100 {
            if answers[0] != answers[1] {
                answers = both();
            }
        }
        let [theirs, ours] = answers;
        assert_eq!(theirs, ours, "{name}: C left, tahti right");
    }
}

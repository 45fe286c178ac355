//! Searches and beacons: datagrams as functions of their bytes.

use crate::codec::{Fault, Order, Reader, Writer};
use crate::wire::{self, NAME_MAX, Side, command};
use base::{DurNs, MonoNs};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum size of a sent datagram in bytes. It fits into one Ethernet frame.
pub const DATAGRAM_BYTES_MAX: usize = 1400;
/// Maximum number of names in one received request. A datagram cannot hold more.
const NAMES_MAX: usize = 16_384;

/// The client wants an answer even if no name is known.
const MUST_REPLY: u8 = 0x01;
/// The request was sent to the address of one host, where only one of several servers receives it.
pub const UNICAST: u8 = 0x80;

/// No address: that of the sender of a datagram.
pub const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// An IP address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The address. An unspecified one is [`SENDER`].
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", SocketAddr::from(*self))
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        Self::new(address.ip, address.port)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { ip: address.ip().to_canonical(), port: address.port() }
    }
}

/// The 16 bytes of an address in a message.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// An address from its 16 bytes. Zero in both spellings is [`SENDER`].
fn ip_of(bytes: [u8; 16]) -> IpAddr {
    let ip = Ipv6Addr::from(bytes).to_canonical();
    if ip.is_unspecified() { SENDER } else { ip }
}

fn write_ip(out: &mut Writer, ip: IpAddr) {
    out.bytes.extend_from_slice(&octets(ip));
}

fn read_ip(reader: &mut Reader<'_>) -> Result<IpAddr, Fault> {
    Ok(ip_of(reader.take(16)?.try_into().unwrap_or([0; 16])))
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search<'a> {
    /// Repeated in the answer.
    pub sequence: u32,
    /// Flags of the request, see [`UNICAST`].
    pub flags: u8,
    /// Destination of the answer. Without an IP address it is the sender.
    pub reply_to: Address,
    /// The client can connect by TCP without TLS.
    pub tcp: bool,
    /// Identifiers and names of channels.
    pub names: Vec<(u32, &'a [u8])>,
}

impl<'a> Search<'a> {
    /// Decodes the payload of a search.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(payload: &'a [u8], order: Order) -> Result<Self, Fault> {
        let mut reader = Reader::new(payload, order);
        let (sequence, flags) = (reader.u32()?, reader.u8()?);
        reader.take(3)?;
        let ip = read_ip(&mut reader)?;
        let reply_to = Address { ip, port: reader.u16()? };
        let protocols = reader.size()?;
        let mut tcp = protocols == 0;
        for _ in 0..protocols {
            tcp |= reader.text_bytes()? == b"tcp";
        }
        let count = usize::from(reader.u16()?).min(NAMES_MAX);
        let mut names = Vec::with_capacity(count.min(reader.rest().len() / 5));
        for _ in 0..count {
            names.push((reader.u32()?, reader.text_bytes()?));
        }
        Ok(Self { sequence, flags, reply_to, tcp, names })
    }
}

/// Appends a request for names.
pub fn write_search(out: &mut Writer, sequence: u32, flags: u8, reply_to: Address, names: &[(u32, &str)]) {
    wire::message(out, Side::Client, command::SEARCH, |out| {
        out.u32(sequence);
        out.u8(flags);
        out.bytes.extend_from_slice(&[0; 3]);
        write_ip(out, reply_to.ip);
        out.u16(reply_to.port);
        out.size(1);
        out.text("tcp");
        out.u16(names.len() as u16);
        for (id, name) in names {
            out.u32(*id);
            out.text(name);
        }
    });
}

/// Sets or clears [`UNICAST`] in an encoded request, for the kind of its destination.
pub fn set_unicast(datagram: &mut [u8], unicast: bool) {
    if let Some(byte) = datagram.get_mut(wire::HEADER_BYTES + 4) {
        *byte = *byte & !UNICAST | if unicast { UNICAST } else { 0 };
    }
}

/// Sets the port for answers in an encoded request of [`servers`] or of a client.
pub fn set_reply_port(datagram: &mut [u8], port: u16) {
    if let Some(bytes) = datagram.get_mut(wire::HEADER_BYTES + 24..wire::HEADER_BYTES + 26) {
        bytes.copy_from_slice(&port.to_be_bytes());
    }
}

/// A request that all servers answer, see [`ServerReply`].
#[must_use]
pub fn servers(reply_port: u16) -> Vec<u8> {
    let mut out = Writer::new(Order::Big);
    write_search(&mut out, 0, MUST_REPLY, Address { ip: SENDER, port: reply_port }, &[]);
    out.bytes
}

/// The answer of a server to a request, with or without channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerReply {
    /// The server.
    pub guid: [u8; 12],
    /// Address of the server. Without an IP address it is the sender.
    pub server: Address,
    /// Protocol version of the server.
    pub version: u8,
}

impl ServerReply {
    /// The answers in a datagram. Others are skipped.
    pub fn all(datagram: &[u8]) -> impl Iterator<Item = Self> {
        wire::datagram(datagram, Some(Side::Server)).filter_map(|message| {
            if message.header.command != command::SEARCH_RESPONSE {
                return None;
            }
            let mut reader = Reader::new(message.payload, message.header.order());
            let guid = reader.take(12).ok()?.try_into().ok()?;
            reader.u32().ok()?;
            let ip = read_ip(&mut reader).ok()?;
            let server = Address { ip, port: reader.u16().ok()? };
            Some(Self { guid, server, version: message.header.version })
        })
    }
}

/// Counters of a server's answers to searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounters {
    /// Number of names searched.
    pub asked: u64,
    /// Number of names found.
    pub found: u64,
}

/// The identity of a server in its answers and beacons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A number that is new at each start.
    pub guid: [u8; 12],
    /// The address that clients connect to. [`SENDER`] is the address from which the answer comes.
    pub ip: IpAddr,
    /// The TCP port.
    pub port: u16,
}

/// Appends the answer to a search. `None` if there is nothing to answer: unknown names are ignored.
pub fn answer(
    search: &Search<'_>,
    identity: Identity,
    counters: &mut SearchCounters,
    mut exists: impl FnMut(&[u8]) -> bool,
    out: &mut Writer,
) -> Option<()> {
    if !search.tcp {
        return None;
    }
    counters.asked += search.names.len() as u64;
    let known = |(_, name): &&(u32, &[u8])| name.len() <= NAME_MAX && exists(name);
    let found: Vec<u32> = search.names.iter().filter(known).map(|(id, _)| *id).collect();
    counters.found += found.len() as u64;
    if found.is_empty() && search.flags & MUST_REPLY == 0 {
        return None;
    }
    wire::message(out, Side::Server, command::SEARCH_RESPONSE, |out| {
        out.bytes.extend_from_slice(&identity.guid);
        out.u32(search.sequence);
        write_ip(out, identity.ip);
        out.u16(identity.port);
        out.text("tcp");
        out.u8((!found.is_empty()).into());
        out.u16(found.len() as u16);
        found.iter().for_each(|id| out.u32(*id));
    });
    Some(())
}

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResponse {
    /// The server.
    pub guid: [u8; 12],
    /// The number of the request.
    pub sequence: u32,
    /// Address of the server. Without an IP address it is the sender.
    pub server: Address,
    /// Identifiers of the channels that it has.
    pub ids: Vec<u32>,
}

impl SearchResponse {
    /// Decodes the payload of an answer; `None` if the server has no name or uses another protocol.
    ///
    /// # Errors
    /// It is not an answer.
    pub fn read(payload: &[u8], order: Order) -> Result<Option<Self>, Fault> {
        let mut reader = Reader::new(payload, order);
        let guid = reader.take(12)?.try_into().unwrap_or([0; 12]);
        let sequence = reader.u32()?;
        let server = Address { ip: read_ip(&mut reader)?, port: reader.u16()? };
        let tcp = reader.text_bytes()? == b"tcp";
        let found = reader.u8()? != 0;
        let count = usize::from(reader.u16()?);
        let mut ids = Vec::with_capacity(count.min(reader.rest().len() / 4));
        for _ in 0..count {
            ids.push(reader.u32()?);
        }
        Ok((tcp && found).then_some(Self { guid, sequence, server, ids }))
    }
}

/// A copy of a search for the other servers of the host, which share a multicast group on the loopback interface. The first
/// message names the address at which the search arrived. `None` if it must not be copied.
#[must_use]
pub fn forwarded(search: &Search<'_>, payload: &[u8], order: Order, from: Address, at: IpAddr) -> Option<Vec<u8>> {
    let ip = if search.reply_to.ip.is_unspecified() { from.ip } else { search.reply_to.ip };
    if ip.is_unspecified() || payload.len() > 65_000 {
        return None;
    }
    let mut out = Writer::new(order);
    wire::message(&mut out, Side::Client, command::ORIGIN_TAG, |out| write_ip(out, at));
    wire::message(&mut out, Side::Client, command::SEARCH, |out| {
        let start = out.bytes.len();
        out.bytes.extend_from_slice(payload);
        // The layout before the names is fixed: sequence, flags, reserved, address, port.
        if let Some(head) = out.bytes.get_mut(start..start + 24) {
            head[4] &= !UNICAST;
            head[8..24].copy_from_slice(&octets(ip));
        }
    });
    Some(out.bytes)
}

/// Appends a beacon.
pub fn write_beacon(out: &mut Writer, identity: Identity, sequence: u8) {
    wire::message(out, Side::Server, command::BEACON, |out| {
        out.bytes.extend_from_slice(&identity.guid);
        out.u8(0);
        out.u8(sequence);
        out.u16(0);
        write_ip(out, identity.ip);
        out.u16(identity.port);
        out.text("tcp");
        out.u8(0xFF);
    });
}

/// The schedule of a server's beacons.
#[derive(Debug)]
pub struct Beacons {
    next: MonoNs,
    period: DurNs,
    sequence: u8,
}

impl Beacons {
    /// The first beacon is sent at `now`.
    #[must_use]
    pub const fn new(now: MonoNs, period: DurNs) -> Self {
        Self { next: now, period, sequence: 0 }
    }

    /// The time of the next call to [`poll`](Self::poll).
    #[must_use]
    pub const fn poll_timeout(&self) -> MonoNs {
        self.next
    }

    /// The beacon to send, if one is due.
    pub fn poll(&mut self, now: MonoNs, identity: Identity) -> Option<Vec<u8>> {
        if now < self.next {
            return None;
        }
        let mut out = Writer::new(Order::Big);
        write_beacon(&mut out, identity, self.sequence);
        self.sequence = self.sequence.wrapping_add(1);
        self.next = now + self.period;
        Some(out.bytes)
    }
}

/// The server that sent a beacon, with its port.
///
/// # Errors
/// The payload is not a beacon.
pub fn read_beacon(payload: &[u8], order: Order) -> Result<Identity, Fault> {
    let mut reader = Reader::new(payload, order);
    let guid = reader.take(12)?.try_into().unwrap_or([0; 12]);
    reader.take(4)?;
    let ip = read_ip(&mut reader)?;
    Ok(Identity { guid, ip, port: reader.u16()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDENTITY: Identity = Identity { guid: *b"0123456789ab", ip: SENDER, port: 5075 };
    const FROM: Address = Address { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 4000 };
    const FROM_V6: Address = Address { ip: IpAddr::V6(Ipv6Addr::LOCALHOST), port: 4000 };

    fn asked(order: Order, flags: u8, names: &[(u32, &str)]) -> Vec<u8> {
        let mut out = Writer::new(order);
        write_search(&mut out, 7, flags, Address { ip: SENDER, port: 4000 }, names);
        out.bytes
    }

    fn answered(datagram: &[u8]) -> Option<Vec<u8>> {
        let message = wire::datagram(datagram, Some(Side::Client)).next()?;
        let search = Search::read(message.payload, message.header.order()).ok()?;
        let mut out = Writer::new(Order::Big);
        let known = |name: &[u8]| name.starts_with(b"X:");
        answer(&search, IDENTITY, &mut SearchCounters::default(), known, &mut out)?;
        Some(out.bytes)
    }

    #[test]
    fn a_search_is_answered_for_known_names_only() {
        for order in [Order::Little, Order::Big] {
            let bytes = answered(&asked(order, 0, &[(17, "X:a"), (18, "nothing"), (19, "X:b")])).unwrap();
            let message = wire::datagram(&bytes, Some(Side::Server)).next().unwrap();
            let found = SearchResponse::read(message.payload, message.header.order()).unwrap().unwrap();
            let server = Address { ip: SENDER, port: 5075 };
            assert_eq!(found, SearchResponse { guid: IDENTITY.guid, sequence: 7, server, ids: vec![17, 19] });
        }
        assert_eq!(answered(&asked(Order::Big, 0, &[(1, "nothing")])), None);
        let long = format!("X:{}", "x".repeat(NAME_MAX));
        assert_eq!(answered(&asked(Order::Big, 0, &[(1, &long)])), None);
    }

    #[test]
    fn an_answer_has_the_bytes_that_clients_expect() {
        let bytes = answered(&asked(Order::Little, 0, &[(17, "X:a")])).unwrap();
        let expected = [
            &[0xCA, 2, 0xC0, 4, 0, 0, 0, 0x2D][..],
            b"0123456789ab",
            &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0],
            &[0x13, 0xD3, 3],
            b"tcp",
            &[1, 0, 1, 0, 0, 0, 17],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn addresses_of_both_versions_of_ip_have_the_bytes_of_ipv6() {
        assert_eq!([ip_of([0; 16]), ip_of(octets(SENDER))], [SENDER; 2]);
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1];
        assert_eq!((octets(FROM.ip), ip_of(bytes)), (bytes, FROM.ip));
        let mut bytes = [0; 16];
        bytes[15] = 1;
        assert_eq!((octets(FROM_V6.ip), ip_of(bytes)), (bytes, FROM_V6.ip));
        assert_eq!((FROM.to_string(), FROM_V6.to_string()), ("127.0.0.1:4000".into(), "[::1]:4000".into()));
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:4000".parse().unwrap();
        assert_eq!((Address::from(mapped), SocketAddr::from(FROM_V6)), (FROM, "[::1]:4000".parse().unwrap()));
    }

    #[test]
    fn the_port_for_answers_can_be_that_of_another_socket() {
        let mut datagram = servers(4000);
        set_reply_port(&mut datagram, 4001);
        let message = wire::datagram(&datagram, None).next().unwrap();
        let search = Search::read(message.payload, message.header.order()).unwrap();
        assert_eq!((search.reply_to, search.names.len()), (Address { ip: SENDER, port: 4001 }, 0));
        set_reply_port(&mut [], 1);
    }

    #[test]
    fn a_search_without_names_finds_the_server() {
        let bytes = answered(&servers(4000)).unwrap();
        let server = Address { ip: SENDER, port: 5075 };
        let reply = ServerReply { guid: IDENTITY.guid, server, version: wire::VERSION };
        assert_eq!(ServerReply::all(&bytes).collect::<Vec<_>>(), [reply]);
        let message = wire::datagram(&bytes, Some(Side::Server)).next().unwrap();
        assert_eq!(SearchResponse::read(message.payload, message.header.order()), Ok(None), "no channel was found");
    }

    #[test]
    fn a_forwarded_search_has_the_address_of_the_client_and_is_not_forwarded_again() {
        let datagram = asked(Order::Little, UNICAST, &[(1, "X:a")]);
        let message = wire::datagram(&datagram, None).next().unwrap();
        let search = Search::read(message.payload, Order::Little).unwrap();
        for from in [FROM, FROM_V6] {
            let copy = forwarded(&search, message.payload, Order::Little, from, from.ip).unwrap();
            let messages: Vec<_> = wire::datagram(&copy, None).collect();
            let commands = [messages[0].header.command, messages[1].header.command];
            assert_eq!(commands, [command::ORIGIN_TAG, command::SEARCH]);
            let again = Search::read(messages[1].payload, Order::Little).unwrap();
            assert_eq!((again.flags & UNICAST, again.reply_to, again.names), (0, from, search.names.clone()));
        }
        let nowhere = Address { ip: SENDER, port: 1 };
        assert_eq!(forwarded(&search, message.payload, Order::Little, nowhere, SENDER), None);
    }

    #[test]
    fn a_beacon_names_the_server() {
        let mut out = Writer::new(Order::Big);
        write_beacon(&mut out, IDENTITY, 3);
        let message = wire::datagram(&out.bytes, Some(Side::Server)).next().unwrap();
        assert_eq!(read_beacon(message.payload, Order::Big), Ok(IDENTITY));
    }

    #[test]
    fn beacons_are_sent_once_per_period() {
        let mut beacons = Beacons::new(MonoNs(5), DurNs(10));
        let sent: Vec<u64> = (0..30).filter(|at| beacons.poll(MonoNs(*at), IDENTITY).is_some()).collect();
        assert_eq!((sent, beacons.poll_timeout()), (vec![5, 15, 25], MonoNs(35)));
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), order in any::<bool>()) {
            let order = if order { Order::Big } else { Order::Little };
            if let Ok(search) = Search::read(&bytes, order) {
                let mut out = Writer::new(order);
                let _ = answer(&search, IDENTITY, &mut SearchCounters::default(), |_| true, &mut out);
                let _ = forwarded(&search, &bytes, order, FROM, FROM_V6.ip);
            }
            let _ = SearchResponse::read(&bytes, order);
            let _ = ServerReply::all(&bytes).count();
            let _ = read_beacon(&bytes, order);
            let _ = answered(&bytes);
        }
    }
}

//! Configuration of servers and clients from EPICS' environment variables.

use base::DurNs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs, UdpSocket};

/// The network configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses to listen on. Default: loopback only; see `EPICS_CAS_INTF_ADDR_LIST`.
    pub interfaces: Vec<Ipv4Addr>,
    /// Addresses of IPv6 to listen on.
    pub interfaces_v6: Vec<Ipv6Addr>,
    /// The variable with the addresses to listen on, for messages.
    pub interfaces_variable: &'static str,
    /// Multicast groups in that list. Searches sent to them are also answered.
    pub groups: Vec<Ipv4Addr>,
    /// Multicast group on the loopback interface by which the servers of this host share searches.
    pub local_group: Option<Ipv4Addr>,
    /// Broadcast addresses of this host's networks, each with the host's own address there, if only this host is served. Searches
    /// that programs of this host send to them are answered, too.
    pub own_broadcasts: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// The preferred TCP port.
    pub port: u16,
    /// The UDP port of searches.
    pub search_port: u16,
    /// Destinations of beacons.
    pub beacons: Vec<SocketAddrV4>,
    /// Maximum number of routers for beacons to multicast groups: `EPICS_CA_MCAST_TTL`, 1 to 255.
    pub multicast_ttl: u32,
    /// Maximum interval between beacons.
    pub beacon_period: DurNs,
    /// Clients whose searches are ignored.
    pub ignored: Vec<Ipv4Addr>,
    /// Maximum message size in bytes if `EPICS_CA_AUTO_ARRAY_BYTES=NO`.
    pub message_bytes: Option<usize>,
}

/// A value in the environment that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint(pub String);

/// The variables of a protocol's servers. In a list, the first variable that is set counts.
#[derive(Clone, Copy, Debug)]
pub struct Variables {
    /// The addresses to listen on.
    pub interfaces: &'static str,
    /// They may be of IPv6.
    pub has_v6: bool,
    /// The TCP port.
    pub ports: &'static [&'static str],
    /// The TCP port if no variable sets it.
    pub port: u16,
    /// The UDP port of searches, and its default. Without variables it is the TCP port.
    pub search_ports: (&'static [&'static str], u16),
    /// The UDP port of beacons, and its default. Without variables it is that of searches.
    pub beacon_ports: (&'static [&'static str], u16),
    /// The destinations of beacons.
    pub beacons: &'static str,
    /// The addresses that clients search; beacons go to them if there is no list of their own.
    pub searched: &'static str,
    /// Whether beacons also go to this host and to broadcast addresses.
    pub automatic: &'static [&'static str],
    /// Seconds between beacons.
    pub periods: &'static [&'static str],
    /// Clients whose searches are ignored.
    pub ignored: &'static str,
    /// See [`ServerConfig::local_group`].
    pub local_group: Option<Ipv4Addr>,
}

/// The variables of Channel Access.
const CHANNEL_ACCESS: Variables = Variables {
    interfaces: "EPICS_CAS_INTF_ADDR_LIST",
    has_v6: false,
    ports: &["EPICS_CAS_SERVER_PORT", "EPICS_CA_SERVER_PORT"],
    port: ca::wire::SERVER_PORT,
    search_ports: (&[], 0),
    beacon_ports: (&["EPICS_CAS_BEACON_PORT", "EPICS_CA_REPEATER_PORT"], ca::wire::REPEATER_PORT),
    beacons: "EPICS_CAS_BEACON_ADDR_LIST",
    searched: "EPICS_CA_ADDR_LIST",
    automatic: &["EPICS_CAS_AUTO_BEACON_ADDR_LIST", "EPICS_CA_AUTO_ADDR_LIST"],
    periods: &["EPICS_CAS_BEACON_PERIOD", "EPICS_CA_BEACON_PERIOD"],
    ignored: "EPICS_CAS_IGNORE_ADDR_LIST",
    local_group: None,
};

impl ServerConfig {
    /// Reads the variables of Channel Access. Invalid values are reported and replaced by their defaults.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<Complaint>) {
        let (mut config, mut complaints) = Self::read(&CHANNEL_ACCESS, &get);
        config.message_bytes = message_bytes(&get);
        config.multicast_ttl = multicast_ttl(&get, &mut complaints);
        (config, complaints)
    }

    /// Reads the variables of a protocol. Invalid values are reported and replaced by their defaults.
    pub fn read(of: &Variables, get: impl Fn(&str) -> Option<String>) -> (Self, Vec<Complaint>) {
        let mut complaints = Vec::new();
        let port = port_of(&get, of.ports, of.port, &mut complaints);
        let search_port = match of.search_ports {
            ([], _) => port,
            (names, default) => port_of(&get, names, default, &mut complaints),
        };
        let beacon_port = match of.beacon_ports {
            ([], _) => search_port,
            (names, default) => port_of(&get, names, default, &mut complaints),
        };
        let list = |name: &str, port: u16, complaints: &mut Vec<Complaint>| {
            get(name).map(|text| addresses(name, &text, port, complaints)).filter(|list| !list.is_empty())
        };
        let words = get(of.interfaces).unwrap_or_default();
        let is_v6 = |word: &&str| of.has_v6 && ipv6(word, 0).is_some_and(|address| !address.ip().is_multicast());
        let (six, four): (Vec<&str>, Vec<&str>) = words.split_whitespace().partition(is_v6);
        let interfaces_v6: Vec<Ipv6Addr> = six.iter().filter_map(|word| Some(*ipv6(word, 0)?.ip())).collect();
        let listed = addresses(of.interfaces, &four.join(" "), 0, &mut complaints);
        let default = if listed.is_empty() && six.is_empty() { Some(Ipv4Addr::LOCALHOST) } else { None };
        let listed = listed.iter().map(|address| *address.ip()).chain(default);
        let (groups, interfaces) = listed.partition::<Vec<_>, _>(|address| address.is_multicast());
        // A list with only multicast groups makes the server available to other hosts.
        let is_open = interfaces.is_empty() && six.is_empty();
        let interfaces = if is_open { vec![Ipv4Addr::UNSPECIFIED] } else { interfaces };
        let mut beacons = list(of.beacons, beacon_port, &mut complaints)
            .or_else(|| list(of.searched, beacon_port, &mut Vec::new()).map(|list| at_port(&list, beacon_port)))
            .unwrap_or_default();
        let automatic = of.automatic.iter().find_map(|name| get(name));
        if automatic.is_none_or(|text| !text.trim().eq_ignore_ascii_case("no")) {
            let ips = std::iter::once(Ipv4Addr::LOCALHOST).chain(broadcasts_of(&interfaces));
            let missing: Vec<_> =
                ips.map(|ip| SocketAddrV4::new(ip, beacon_port)).filter(|to| !beacons.contains(to)).collect();
            beacons.extend(missing);
        }
        let beacon_period = match first(&get, of.periods) {
            None => DurNs::from_secs(15),
            Some((name, text)) => match text.trim().parse::<f64>() {
                Ok(seconds) if (0.1..1e6).contains(&seconds) => DurNs((seconds * 1e9) as i64),
                _ => {
                    complaints.push(Complaint(format!("{name}={text}: expected seconds from 0.1 up, using 15")));
                    DurNs::from_secs(15)
                }
            },
        };
        let ignored =
            list(of.ignored, 0, &mut complaints).unwrap_or_default().iter().map(|address| *address.ip()).collect();
        let only_here = !interfaces.is_empty() && interfaces.iter().all(Ipv4Addr::is_loopback);
        let config = Self {
            own_broadcasts: if only_here { own_broadcasts() } else { Vec::new() },
            interfaces,
            interfaces_v6,
            interfaces_variable: of.interfaces,
            groups,
            local_group: of.local_group,
            port,
            search_port,
            beacons,
            multicast_ttl: 1,
            beacon_period,
            ignored,
            message_bytes: None,
        };
        (config, complaints)
    }
}

/// The first variable that is set, with its name.
fn first(get: impl Fn(&str) -> Option<String>, names: &[&str]) -> Option<(String, String)> {
    names
        .iter()
        .find_map(|name| get(name).filter(|text| !text.trim().is_empty()).map(|text| ((*name).to_owned(), text)))
}

/// A port from the first variable that is set.
pub fn port_of(
    get: impl Fn(&str) -> Option<String>,
    names: &[&str],
    default: u16,
    complaints: &mut Vec<Complaint>,
) -> u16 {
    match first(get, names) {
        None => default,
        Some((name, text)) => text.trim().parse().ok().filter(|port| *port > 1024).unwrap_or_else(|| {
            complaints.push(Complaint(format!("{name}={text}: expected a port above 1024, using {default}")));
            default
        }),
    }
}

/// The maximum message size from `EPICS_CA_MAX_ARRAY_BYTES`, if `EPICS_CA_AUTO_ARRAY_BYTES=NO`.
pub(crate) fn message_bytes(get: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let fixed = get("EPICS_CA_AUTO_ARRAY_BYTES").is_some_and(|text| text.trim().eq_ignore_ascii_case("no"));
    fixed.then(|| {
        let bytes = get("EPICS_CA_MAX_ARRAY_BYTES").and_then(|text| text.trim().parse::<usize>().ok());
        bytes.unwrap_or(16_384).max(16_384).saturating_add(ca::wire::HEADER_BYTES_MAX)
    })
}

/// Maximum number of routers for multicast datagrams, from `EPICS_CA_MCAST_TTL`. With 1 they stay in the local network.
pub(crate) fn multicast_ttl(get: impl Fn(&str) -> Option<String>, complaints: &mut Vec<Complaint>) -> u32 {
    let Some(text) = get("EPICS_CA_MCAST_TTL").filter(|text| !text.trim().is_empty()) else { return 1 };
    text.trim().parse().ok().filter(|ttl| (1..=255).contains(ttl)).unwrap_or_else(|| {
        complaints.push(Complaint(format!("EPICS_CA_MCAST_TTL={text}: expected a number from 1 to 255, using 1")));
        1
    })
}

/// Joins a socket to a multicast group on one interface. If `interface` is unspecified, joins on each interface with an
/// address.
///
/// # Errors
/// No interface could join: the error of the first one.
pub(crate) fn join(socket: &UdpSocket, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
    if !interface.is_unspecified() {
        return socket.join_multicast_v4(&group, &interface);
    }
    let mut tried: Vec<io::Result<()>> = vec![socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)];
    for interface in sys::interfaces::list().unwrap_or_default() {
        match socket.join_multicast_v4(&group, &interface.address) {
            // The interface that the kernel chooses was tried first.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            done => tried.push(done),
        }
    }
    if tried.iter().any(Result::is_ok) { Ok(()) } else { tried.swap_remove(0) }
}

/// Broadcast addresses of the networks on which a server listens; none if it serves only this host.
pub(crate) fn broadcasts_of(served: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
    if served.iter().all(Ipv4Addr::is_loopback) {
        return Vec::new();
    }
    // If the interfaces cannot be listed, clients still reach the host by name servers and address lists.
    let all = sys::interfaces::list().unwrap_or_default();
    let serves = |address: Ipv4Addr| served.iter().any(|served| served.is_unspecified() || *served == address);
    all.iter().filter(|interface| serves(interface.address)).filter_map(|interface| interface.broadcast).collect()
}

/// Broadcast addresses of this host's networks, each with the host's own address there.
fn own_broadcasts() -> Vec<(Ipv4Addr, Ipv4Addr)> {
    // If the interfaces cannot be listed, clients find the server by its address.
    let all = sys::interfaces::list().unwrap_or_default();
    all.iter().filter_map(|interface| Some((interface.broadcast?, interface.address))).collect()
}

fn at_port(list: &[SocketAddrV4], port: u16) -> Vec<SocketAddrV4> {
    list.iter().map(|address| SocketAddrV4::new(*address.ip(), port)).collect()
}

/// An address of IPv6 with an optional port: `::1`, `[::1]`, `[::1]:5076`.
fn ipv6(word: &str, port: u16) -> Option<SocketAddrV6> {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    word.parse().ok().or_else(|| Some(SocketAddrV6::new(bare.parse().ok()?, port, 0, 0)))
}

/// Like [`addresses`], also of IPv6.
pub fn addresses_of_both(name: &str, text: &str, port: u16, complaints: &mut Vec<Complaint>) -> Vec<SocketAddr> {
    let each = text.split_whitespace().flat_map(|word| match ipv6(word, port) {
        Some(address) => vec![SocketAddr::V6(address)],
        None => addresses(name, word, port, complaints).into_iter().map(SocketAddr::V4).collect(),
    });
    each.collect()
}

/// Parses IPv4 addresses separated by blanks, each with an optional port. Host names are resolved once.
pub fn addresses(name: &str, text: &str, port: u16, complaints: &mut Vec<Complaint>) -> Vec<SocketAddrV4> {
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        let (host, port) = match word.rsplit_once(':') {
            Some((host, digits)) => (host, digits.parse().unwrap_or(port)),
            None => (word, port),
        };
        let found = match host.parse::<Ipv4Addr>() {
            Ok(address) => Some(address),
            Err(_) => (host, port).to_socket_addrs().ok().and_then(|mut found| {
                found.find_map(|address| match address.ip() {
                    std::net::IpAddr::V4(address) => Some(address),
                    std::net::IpAddr::V6(_) => None,
                })
            }),
        };
        match found {
            Some(address) => all.push(SocketAddrV4::new(address, port)),
            None => {
                complaints.push(Complaint(format!("{name}: \"{word}\" is no IPv4 address and no known host; ignored")))
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> (ServerConfig, Vec<Complaint>) {
        ServerConfig::from_env(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn without_variables_only_this_host_is_served() {
        let (config, complaints) = read(&[]);
        assert_eq!((config.interfaces, config.port), (vec![Ipv4Addr::LOCALHOST], 5064));
        assert_eq!((config.groups, config.multicast_ttl), (Vec::new(), 1));
        assert_eq!(config.beacons, ["127.0.0.1:5065".parse().unwrap()]);
        assert!(complaints.is_empty());
    }

    #[test]
    fn variables_of_the_server_override_the_general_ones() {
        let (config, _) = read(&[
            ("EPICS_CA_SERVER_PORT", "6000"),
            ("EPICS_CAS_SERVER_PORT", "7000"),
            ("EPICS_CAS_INTF_ADDR_LIST", "0.0.0.0"),
            ("EPICS_CA_REPEATER_PORT", "6001"),
            ("EPICS_CA_ADDR_LIST", "10.0.0.255:9999"),
            ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO"),
            ("EPICS_CA_AUTO_ARRAY_BYTES", "NO"),
            ("EPICS_CA_MAX_ARRAY_BYTES", "100000"),
        ]);
        assert_eq!((config.port, config.interfaces), (7000, vec![Ipv4Addr::UNSPECIFIED]));
        assert_eq!(config.beacons, ["10.0.0.255:6001".parse().unwrap()]);
        assert_eq!(config.message_bytes, Some(100_024));
    }

    #[test]
    fn multicast_groups_are_distinguished_from_addresses() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let (config, _) = read(&[("EPICS_CAS_INTF_ADDR_LIST", "10.0.0.1 239.1.2.3"), ("EPICS_CA_MCAST_TTL", "7")]);
        assert_eq!((config.interfaces, config.groups), (vec![Ipv4Addr::new(10, 0, 0, 1)], vec![group]));
        assert_eq!(config.multicast_ttl, 7);
        let (config, _) = read(&[("EPICS_CAS_INTF_ADDR_LIST", "239.1.2.3")]);
        assert_eq!((config.interfaces, config.groups), (vec![Ipv4Addr::UNSPECIFIED], vec![group]));
    }

    #[test]
    fn unusable_variables_are_reported_by_name() {
        let (config, complaints) =
            read(&[("EPICS_CA_SERVER_PORT", "80"), ("EPICS_CAS_BEACON_PERIOD", "soon"), ("EPICS_CA_MCAST_TTL", "256")]);
        assert_eq!((config.port, config.multicast_ttl, complaints.len()), (5064, 1, 3));
        assert!(complaints[0].0.contains("EPICS_CA_SERVER_PORT=80"), "{complaints:?}");
    }
}

//! Channel Access between hosts: network namespaces of this machine connected by virtual wires, with C's programs and
//! ours on either side. Covers broadcasts on several interfaces, multicast groups, and the hop limit of multicast
//! datagrams.

use harness::epics::{epics, normal, program};
use harness::network::{Namespace, ip};
use harness::port::free_port;
use harness::process::{Running, by_lines};
use harness::{PATIENCE, eventually};
use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

const PAIRS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];
/// EPICS' default port. Each namespace has its own ports.
const PORT: u16 = 5064;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 93, 0, 1);

/// A host, removed with its namespace on drop.
struct Host(Namespace);

impl Host {
    fn new() -> Self {
        Self(Namespace::new("ca"))
    }

    fn name(&self) -> &str {
        &self.0.0
    }

    /// Connects two hosts by a wire: network 10.93.`net`.0, this host is `.1`, the other `.2`.
    fn wire_to(&self, other: &Self, net: u8) {
        let name = format!("wire{net}");
        ip(&format!("-n {} link add {name} type veth peer name {name} netns {}", self.name(), other.name()));
        for (host, number) in [(self, 1), (other, 2)] {
            ip(&format!("-n {} addr add 10.93.{net}.{number}/24 broadcast 10.93.{net}.255 dev {name}", host.name()));
            ip(&format!("-n {} link set {name} up", host.name()));
        }
    }

    /// Sets the route for multicast datagrams, which has no default.
    fn multicast_through(&self, net: u8) {
        ip(&format!("-n {} route add 239.0.0.0/8 dev wire{net}", self.name()));
    }

    /// A program on this host, on EPICS' default port, with these variables.
    fn program(&self, ours: bool, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = self.0.command(&program(ours, name, PORT));
        command.envs(variables.iter().copied());
        command
    }

    /// An IOC with one record, run on this host.
    fn serve(&self, ours: bool, record: &str, variables: &[(&str, &str)]) -> Running {
        let file = std::env::temp_dir().join(format!("{}-{}.db", self.name(), free_port()));
        std::fs::write(&file, format!("record(ao, \"{record}\") {{ field(VAL, \"1.5\") field(PINI, \"YES\") }}\n"))
            .unwrap();
        let mut command = self.program(ours, "softIoc", variables);
        command.args(["-S", "-D"]).arg(epics().join("dbd/softIoc.dbd")).arg("-d").arg(&file);
        let running = Running::start(command.stdout(Stdio::null()));
        // The IOC is up when it accepts circuits.
        let mut probe = self.program(false, "caget", &[("EPICS_CA_ADDR_LIST", "127.0.0.1 10.93.1.2 10.93.2.2")]);
        probe.args(["-w", "1", record]);
        eventually("the IOC answers", || probe.output().unwrap().status.success());
        std::fs::remove_file(&file).unwrap();
        running
    }

    /// Runs a tool and returns its output.
    fn run(&self, ours: bool, tool: &str, variables: &[(&str, &str)], args: &[&str]) -> String {
        let output = self.program(ours, tool, variables).args(args).output().unwrap();
        normal(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()), PORT)
    }

    /// Runs `work` in this host's network namespace, in a separate thread.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.within(work)
    }
}

/// A host with two interfaces, and one host behind each.
fn network() -> [Host; 3] {
    let hosts = [Host::new(), Host::new(), Host::new()];
    hosts[0].wire_to(&hosts[1], 1);
    hosts[0].wire_to(&hosts[2], 2);
    hosts[0].multicast_through(1);
    hosts[1].multicast_through(1);
    hosts
}

/// Runs a scenario for each pair of client and servers. All results must equal C's.
fn for_each_pair<T: Send + PartialEq + std::fmt::Debug>(story: impl Fn(bool, bool) -> T + Sync) -> T {
    let mut ends = std::thread::scope(|scope| {
        let story = &story;
        let threads = PAIRS.map(|(client, server)| scope.spawn(move || story(client, server)));
        threads.map(|thread| thread.join().unwrap()).into_iter()
    });
    let first = ends.next().unwrap();
    for ((client, server), end) in PAIRS[1..].iter().zip(ends) {
        assert_eq!(first, end, "C with C left; client ours: {client}, server ours: {server}");
    }
    first
}

const EVERYWHERE: (&str, &str) = ("EPICS_CAS_INTF_ADDR_LIST", "0.0.0.0");

#[test]
fn a_server_for_its_host_only_is_found_by_programs_there_without_configuration() {
    let [host, other, _] = network();
    let _ioc = host.serve(true, "here", &[]);
    for ours in [true, false] {
        assert_eq!(host.run(ours, "caget", &[], &["here"]), "here                           1.5\n", "ours: {ours}");
        let said = other.run(ours, "caget", &[], &["-w", "0.5", "here"]);
        assert!(said.contains("Channel connect timed out"), "ours: {ours}: {said}");
    }
}

#[test]
fn servers_on_every_interface_are_found_by_broadcast() {
    let said = for_each_pair(|client, server| {
        let [here, left, right] = network();
        // One server serves all addresses of its host, the other only one.
        let _left = left.serve(server, "left", &[EVERYWHERE]);
        let _right = right.serve(server, "right", &[("EPICS_CAS_INTF_ADDR_LIST", "10.93.2.2")]);
        let ask = |variables: &[(&str, &str)], args: &[&str]| here.run(client, "caget", variables, args);
        [
            ask(&[("EPICS_CA_ADDR_LIST", ""), ("EPICS_CA_AUTO_ADDR_LIST", "YES")], &["-w", "60", "left", "right"]),
            ask(&[("EPICS_CA_ADDR_LIST", "10.93.2.255")], &["-w", "60", "right"]),
            ask(&[("EPICS_CA_ADDR_LIST", "10.93.2.255")], &["-w", "2", "left"]),
        ]
    });
    assert_eq!(said[0].matches("1.5").count(), 2, "{said:?}");
    assert!(said[2].contains("not found"), "{said:?}");
}

#[test]
fn servers_that_joined_a_multicast_group_are_found_through_it() {
    let said = for_each_pair(|client, server| {
        let [here, left, _right] = network();
        let ask = |wait: &str| {
            let args = ["-w", wait, "left"];
            here.run(client, "caget", &[("EPICS_CA_ADDR_LIST", &GROUP.to_string())], &args)
        };
        let serve = |list: &str| left.serve(server, "left", &[("EPICS_CAS_INTF_ADDR_LIST", list)]);
        let joined = serve(&format!("0.0.0.0 {GROUP}"));
        let first = ask("60");
        drop(joined);
        let joined = serve(&GROUP.to_string());
        let second = ask("60");
        drop(joined);
        let _not_joined = serve("0.0.0.0");
        [first, second, ask("2")]
    });
    assert!(said[..2].iter().all(|said| said.contains("1.5")), "{said:?}");
    assert!(said[2].contains("not found"), "{said:?}");
    // C's server receives no multicast if it serves a single address.
    let [here, left, _right] = network();
    let _one = left.serve(true, "left", &[("EPICS_CAS_INTF_ADDR_LIST", &format!("10.93.1.2 {GROUP}"))]);
    let said = here.run(true, "caget", &[("EPICS_CA_ADDR_LIST", &GROUP.to_string())], &["-w", "60", "left"]);
    assert!(said.contains("1.5"), "{said}");
}

/// The hop limit of datagrams to the group that arrive at a port of a host while `run` runs.
fn reach(host: &Host, net: u8, port: u16, run: impl FnOnce() + Send) -> u8 {
    host.within(|| {
        let member = UdpSocket::bind((GROUP, port)).unwrap();
        member.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 93, net, if port == PORT { 2 } else { 1 })).unwrap();
        // Datagrams from a raw socket include the IP header.
        let raw = UdpSocket::from(socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap());
        raw.set_read_timeout(Some(PATIENCE)).unwrap();
        run();
        loop {
            let mut packet = [0; 2048];
            let len = raw.recv(&mut packet).expect("a datagram to the group arrives");
            let head = usize::from(packet[0] & 15) * 4;
            if packet[16..20] == GROUP.octets() && packet[head + 2..head + 4] == port.to_be_bytes() && len > head {
                return packet[8];
            }
        }
    })
}

#[test]
fn datagrams_to_groups_have_the_configured_time_to_live() {
    for ours in [false, true] {
        let [here, left, _right] = network();
        let list = GROUP.to_string();
        for (variable, expected) in [(None, 1), (Some("7"), 7), (Some("300"), 1)] {
            let ttl: Vec<(&str, &str)> = variable.map(|ttl| ("EPICS_CA_MCAST_TTL", ttl)).into_iter().collect();
            let variables = [&ttl[..], &[("EPICS_CA_ADDR_LIST", &*list)]].concat();
            let search = reach(&left, 1, PORT, || drop(here.run(ours, "caget", &variables, &["-w", "1", "nobody"])));
            assert_eq!(search, expected, "searches, ours: {ours}, {variable:?}");
            let variables = [&ttl[..], &[("EPICS_CAS_BEACON_ADDR_LIST", &*list), EVERYWHERE]].concat();
            let beacon = reach(&here, 1, PORT + 1, || drop(left.serve(ours, "left", &variables)));
            assert_eq!(beacon, expected, "beacons, ours: {ours}, {variable:?}");
        }
    }
}

#[test]
fn repeaters_receive_beacons_to_a_group() {
    for_each_pair(|ours_repeats, ours_serves| {
        let [here, left, _right] = network();
        let list = GROUP.to_string();
        let to = [("EPICS_CAS_BEACON_ADDR_LIST", &*list)];
        let repeater = if ours_repeats { "carepeater" } else { "caRepeater" };
        let _repeater = Running::start(here.program(ours_repeats, repeater, &to).stdout(Stdio::null()));
        let taken = || here.within(|| UdpSocket::bind(("0.0.0.0", PORT + 1)).is_err());
        eventually("the repeater binds its port", taken);
        let casw = Running::follow(&mut by_lines(&here.program(false, "casw", &[])));
        let lines = &casw.lines;
        eventually("casw reports a server", || {
            let _ioc = left.serve(ours_serves, "left", &[to[0], EVERYWHERE]);
            let next = || lines.recv_timeout(Duration::from_secs(5)).ok();
            std::iter::from_fn(next).any(|line| line.contains("10.93.1.2"))
        });
    });
}

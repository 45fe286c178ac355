//! The repeater program: receives the beacons on one port of a host and forwards them to all clients on the host.
//!
//! As in EPICS' C implementation, long-running clients start a repeater if none is running. In contrast to it, this repeater
//! ends after a minute without clients.

use crate::config::{addresses, join};
use ca::repeater::{Action, Repeater};
use ca::wire;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Interval of checks for ended clients.
const CHECK: Duration = Duration::from_secs(10);
/// Number of consecutive checks without a client before the repeater ends.
const IDLE_CHECKS_MAX: u32 = 6;

/// Destinations of beacons of servers on this host. If it is not set, the addresses of searches.
const BEACONS_TO: &str = "EPICS_CAS_BEACON_ADDR_LIST";
const SEARCHES_TO: &str = "EPICS_CA_ADDR_LIST";

/// The repeater's port from the environment.
pub fn port(get: impl Fn(&str) -> Option<String>) -> u16 {
    let given = get("EPICS_CA_REPEATER_PORT").and_then(|text| text.trim().parse().ok());
    given.unwrap_or(wire::REPEATER_PORT)
}

/// The multicast groups among the destinations of beacons.
pub fn groups(get: impl Fn(&str) -> Option<String>) -> Vec<Ipv4Addr> {
    let list = |name: &str| get(name).map(|text| addresses(name, &text, 0, &mut Vec::new()));
    let listed = list(BEACONS_TO).filter(|list| !list.is_empty());
    let listed = listed.or_else(|| list(SEARCHES_TO)).unwrap_or_default();
    listed.iter().map(|address| *address.ip()).filter(Ipv4Addr::is_multicast).collect()
}

/// Runs until there are no clients. Returns immediately if another repeater uses the port. Groups that cannot be joined are
/// skipped.
///
/// # Errors
/// The port is unavailable for another reason, or the kernel reports an error while receiving.
pub fn run(port: u16, groups: &[Ipv4Addr]) -> io::Result<()> {
    let socket = match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)) {
        Ok(socket) => socket,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => return Err(io::Error::new(error.kind(), format!("cannot take UDP port {port}: {error}"))),
    };
    for group in groups {
        if let Err(error) = join(&socket, *group, Ipv4Addr::UNSPECIFIED) {
            eprintln!("carepeater: beacons to the multicast group {group} are not heard: {error}");
        }
    }
    socket.set_read_timeout(Some(CHECK))?;
    let mut repeater = Repeater::default();
    let mut buffer = vec![0; 65_536];
    let mut idle = 0;
    while idle < IDLE_CHECKS_MAX {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                serve(&mut repeater, &socket, &buffer[..len], from);
                idle = 0;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                forget_gone(&mut repeater);
                idle = if repeater.clients().is_empty() { idle + 1 } else { 0 };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn serve(repeater: &mut Repeater, socket: &UdpSocket, bytes: &[u8], from: SocketAddr) {
    let IpAddr::V4(ip) = from.ip() else { return };
    // Only an address of this host can be bound here.
    let local = ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok();
    let known = repeater.clients().len();
    for action in repeater.handle(bytes, from.port(), local, ip.into()) {
        match action {
            // A client that does not receive the confirmation repeats its request.
            Action::Confirm(port, bytes) => drop(socket.send_to(&bytes, (ip, port))),
            Action::FanOut(bytes) => {
                let others = repeater.clients().iter().filter(|port| !(local && **port == from.port()));
                others.for_each(|port| drop(socket.send_to(&bytes, (Ipv4Addr::LOCALHOST, *port))));
            }
        }
    }
    if repeater.clients().len() > known {
        forget_gone(repeater);
    }
}

/// Removes clients whose port can be bound: they have ended.
fn forget_gone(repeater: &mut Repeater) {
    let gone = |port: &u16| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    let gone: Vec<u16> = repeater.clients().iter().copied().filter(gone).collect();
    gone.into_iter().for_each(|port| repeater.forget(port));
}

/// Starts this program as a repeater with EPICS' variables, unless the port is in use.
///
/// # Errors
/// The program cannot be started.
pub fn start(get: impl Fn(&str) -> Option<String>) -> io::Result<()> {
    let port = port(&get);
    if UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("carepeater").env("EPICS_CA_REPEATER_PORT", port.to_string()).process_group(0).current_dir("/");
    for list in [BEACONS_TO, SEARCHES_TO] {
        command.envs(get(list).map(|text| (list, text)));
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // The repeater may end before this process does.
    std::thread::Builder::new().name("carepeater".into()).spawn(move || child.wait())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ca::wire::{Header, command};

    #[test]
    fn beacons_reach_each_client_and_closed_clients_are_removed() {
        let client = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        let (server, here, gone) = (client(), client(), client());
        let mut repeater = Repeater::default();
        let mut register = Vec::new();
        Header::bare(command::REPEATER_REGISTER, 0, 0, 0, 0).write(&mut register);
        for socket in [&gone, &here] {
            serve(&mut repeater, &server, &register, socket.local_addr().unwrap());
        }
        assert_eq!(repeater.clients().len(), 2);
        drop(gone);
        forget_gone(&mut repeater);
        assert_eq!(repeater.clients(), [here.local_addr().unwrap().port()]);
        let mut beacon = Vec::new();
        Header::bare(command::RSRV_IS_UP, 13, 5064, 0, 0).write(&mut beacon);
        serve(&mut repeater, &server, &beacon, "127.0.0.1:9".parse().unwrap());
        let mut buffer = [0; 64];
        assert_eq!(here.recv(&mut buffer).unwrap(), 16, "the confirmation is first");
        assert_eq!(buffer[1], command::REPEATER_CONFIRM as u8);
        assert_eq!(here.recv(&mut buffer).unwrap(), 16);
        assert_eq!((buffer[1], &buffer[12..16]), (command::RSRV_IS_UP as u8, &[127, 0, 0, 1][..]));
    }
}

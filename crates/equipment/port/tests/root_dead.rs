//! A device that loses power: its host does not answer, and the connection is not closed.

use base::DurNs;
use port::Connection;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit of each wait, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test of this file again, in its own network namespace.
fn apart(test: &str) {
    let program = std::env::current_exe().unwrap();
    let script = "ip link set lo up && exec \"$0\" --ignored --exact --nocapture \"$1\"";
    let status = Command::new("unshare").args(["-n", "sh", "-c", script]).arg(program).arg(test).status();
    assert!(status.expect("unshare (util-linux) is needed").success());
}

#[test]
fn a_dead_device_is_detected_on_a_connection_that_only_listens() {
    apart("on_a_network_that_is_cut");
}

#[test]
#[ignore = "runs in a network of its own, started by the test above"]
fn on_a_network_that_is_cut() {
    let device = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address: port::Address = device.local_addr().unwrap().to_string().parse().unwrap();
    address.set("keepalive", "2s").unwrap();
    let mut line = Connection::new(address);
    line.connect().unwrap();
    let _accepted = device.accept().unwrap();
    assert!(Command::new("ip").args(["link", "set", "lo", "down"]).status().unwrap().success());
    let begun = Instant::now();
    while line.status.connected {
        assert!(begun.elapsed() < PATIENCE, "the dead device is still connected");
        sys::poll::is_readable(line.fd().unwrap(), DurNs::from_secs(1));
        assert!(line.take().is_empty());
    }
    assert!(line.status.trouble.contains("timed out"), "{}", line.status.trouble);
}

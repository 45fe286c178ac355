//! A loop whose commands are sent over a very slow link.

mod bench;

use bench::running_with;
use std::net::UdpSocket;
use std::process::Command;

/// A link of 1 kbit/s. Its queue holds all packets that are sent.
const LINK: &str = "ip link set lo up && ip link add slow type veth peer name far && ip link set far up && ip addr add 10.9.9.1/24 dev slow && ip link set slow up && \
    ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:02 dev slow && tc qdisc add dev slow root tbf rate 1kbit burst 2000 limit 1000000 && \
    exec \"$0\" --ignored --exact --nocapture \"$1\"";

#[test]
fn a_command_that_finds_no_kernel_buffer_is_counted_and_the_loop_continues() {
    let program = std::env::current_exe().unwrap();
    let command = ["-n", "sh", "-c", LINK];
    let status = Command::new("unshare").args(command).arg(program).arg("behind_a_slow_queue").status();
    assert!(status.expect("unshare (util-linux) is needed").success());
}

#[test]
#[ignore = "runs in a network of its own, started by the test above"]
fn behind_a_slow_queue() {
    let commands = UdpSocket::bind("10.9.9.1:0").unwrap();
    commands.connect("10.9.9.2:9").unwrap();
    // Room for a few datagrams.
    rustix::net::sockopt::set_socket_send_buffer_size(&commands, 4096).unwrap();
    running_with("slow", (0, adaptive::SpotWork::default()), Some(commands), |running| {
        running.until("commands are not sent", || running.value("unsent") > 3.0);
        let whole = running.value("whole");
        running.until("the loop continues", || running.value("whole") > whole + 3.0);
    });
}

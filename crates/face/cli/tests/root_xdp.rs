//! `tahti demo ao --xdp`: pixels from a network card's queue. The cards are the ends of a virtual wire between two
//! network namespaces.

use harness::eventually;
use harness::network::{Namespace, ip};
use harness::process::{Running, finish, text};
use harness::{fresh, tahti};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The host of the loop and the host of the camera, 10.94.3.1 and .2, with a wire of this name between them.
struct Hosts([Namespace; 2], String);

impl Hosts {
    fn new(mtu: usize) -> Self {
        let hosts = Self([Namespace::new("loop"), Namespace::new("camera")], fresh("x"));
        let [a, b] = &hosts.0;
        ip(&format!("-n {} link add wire mtu {mtu} type veth peer name wire mtu {mtu} netns {}", a.0, b.0));
        for (host, number) in [(a, 1), (b, 2)] {
            ip(&format!("-n {} addr add 10.94.3.{number}/24 dev wire", host.0));
            ip(&format!("-n {} link set wire up", host.0));
        }
        hosts
    }

    /// A camera with `across` sub-apertures per row, which sends until it is dropped.
    fn camera(&self, across: &str) -> Running {
        let mut command = tahti();
        command.args(["demo", "telescope", "--across", across, "--period", "4ms", "--to", "10.94.3.1:51511"]);
        command.args(["--listen", "10.94.3.2:51512", "--exports", &format!("{}-sky", self.1)]);
        Running::until(&mut self.0[1].command(&command), "armed")
    }

    /// The loop's command, run on its host.
    fn control(&self, across: &str, words: &[&str]) -> Command {
        self.0[0].command(&self.own(across, words))
    }

    /// The loop's command without the host's namespace.
    fn own(&self, across: &str, words: &[&str]) -> Command {
        let mut command = tahti();
        command.args(["demo", "ao", "--across", across, "--period", "4ms", "--commands", "10.94.3.2:51512"]);
        command.args(["--exports", &self.1, "--settings", &format!("{}-settings", self.1)]).args(words);
        command
    }

    /// The error output of a loop that cannot start.
    fn refused(&self, words: &[&str]) -> String {
        let child = self.control("12", words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = finish(child);
        assert!(!output.status.success(), "{words:?}: {}", text(&output));
        text(&output)
    }

    /// Whether an XDP program is attached to the wire's end, as any user can see.
    fn has_program(&self) -> bool {
        let output = Command::new("ip").args(["-n", &self.0[0].0, "link", "show", "wire"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        said.contains("xdp")
    }
}

const PIXELS: [&str; 4] = ["--pixels", "10.94.3.1:51511", "--xdp", "wire"];

#[test]
fn a_loop_closes_on_a_cards_queue_and_leaves_no_program_behind() {
    // Rows of 1,556 bytes fit one buffer; rows of 5,140 bytes need two.
    for (mtu, across) in [(1600, "12"), (9000, "40")] {
        let hosts = Hosts::new(mtu);
        let _camera = hosts.camera(across);
        for wait in ["sleep", "spin", "both:50us"] {
            let words = [&PIXELS[..], &["--wait", wait, "--for", "1s"]].concat();
            let child = hosts.control(across, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let output = finish(child);
            let said = text(&output);
            assert!(output.status.success(), "{said}");
            assert!(said.contains("pixels from wire:0 by XDP in the driver, copied by the kernel"), "{said}");
            assert!(said.contains("actuators poked"), "{said}");
            let frames = said.lines().find(|line| line.starts_with("frames: ")).expect(&said);
            let whole: u64 = frames.split(' ').nth(1).unwrap().parse().unwrap();
            assert!(whole > 10 && frames.contains("datagrams of others 0,"), "{said}");
            assert!(said.contains("after arming: allocations 0,"), "{said}");
            assert!(!hosts.has_program(), "nothing remains");
        }
    }
}

#[test]
fn a_loop_that_is_killed_leaves_no_program_on_the_interface() {
    let hosts = Hosts::new(1600);
    let _camera = hosts.camera("12");
    let running = Running::until(&mut hosts.control("12", &PIXELS), "armed");
    assert!(hosts.has_program());
    // Packets for other receivers take the normal path.
    let other = |address: &str| UdpSocket::bind(address).unwrap();
    let receiver = hosts.0[0].within(|| other("10.94.3.1:51513"));
    hosts.0[1].within(|| other("10.94.3.2:0").send_to(b"beside", "10.94.3.1:51513").unwrap());
    let mut room = [0; 16];
    receiver.set_read_timeout(Some(harness::PATIENCE)).unwrap();
    assert_eq!(receiver.recv(&mut room).unwrap(), 6);
    // A second loop finds the port in use; a loop with another port finds the queue in use.
    assert!(hosts.refused(&PIXELS).contains("in use"));
    let said = hosts.refused(&["--pixels", "10.94.3.1:51514", "--xdp", "wire:0"]);
    assert!(
        said.contains("--xdp wire:0: failed to take queue 0 of \"wire\"") && said.contains("no other program"),
        "{said}"
    );
    running.signal("-KILL");
    eventually("it has ended", || running.has_ended());
    eventually("the interface has no program", || !hosts.has_program());
    let _again = Running::until(&mut hosts.control("12", &PIXELS), "armed");
}

#[test]
fn the_loss_of_an_interface_ends_the_loop_with_an_error() {
    let hosts = Hosts::new(1600);
    let _camera = hosts.camera("12");
    let mut running = Running::until(&mut hosts.control("12", &PIXELS), "armed");
    ip(&format!("-n {} link del wire", hosts.0[0].0));
    let said = running.hears("--xdp wire:0");
    assert!(
        said.contains("failed to take packets any longer") && said.contains("expected a network interface"),
        "{said}"
    );
    assert!(!running.child.wait().unwrap().success());
}

#[test]
fn unavailable_interfaces_and_queues_are_refused_with_a_remedy() {
    let hosts = Hosts::new(1500);
    let with = |card: &str| hosts.refused(&["--pixels", "10.94.3.1:51511", "--xdp", card]);
    let said = with("none");
    assert!(said.contains("failed to find network interface \"none\"") && said.contains("`ip link`"), "{said}");
    let said = with("wire");
    assert!(said.contains("receive packets of 1598 bytes from \"wire\", whose MTU is 1500"), "{said}");
    assert!(said.contains("`ip link set IFACE mtu 9000`"), "{said}");
    ip(&format!("-n {} link set wire mtu 1600", hosts.0[0].0));
    let said = with("wire:99");
    assert!(said.contains("failed to take queue 99") && said.contains("/queues`"), "{said}");
    let said = hosts.refused(&["--pixels", "[::1]:51511", "--xdp", "wire"]);
    assert!(said.contains("[::1]:51511; expected an IPv4 address"), "{said}");
    let said = with(":3");
    assert!(said.contains("INTERFACE:QUEUE"), "{said}");
    // All of root's capabilities except one.
    let mut command = Command::new("setpriv");
    let control = hosts.control("12", &PIXELS);
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"]).arg(control.get_program());
    let child = command.args(control.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = text(&finish(child));
    assert!(
        said.contains("Operation not permitted") && said.contains("CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"),
        "{said}"
    );
    // Only the camera is missing, also for a user with just these capabilities.
    let rights = "-all,+net_raw,+net_admin,+bpf";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps", rights, "--ambient-caps", rights]);
    let own = hosts.own("12", &PIXELS);
    command.arg(own.get_program()).args(own.get_args()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = text(&finish(hosts.0[0].within(|| command.spawn().unwrap())));
    assert!(said.contains("pixels from wire:0 by XDP") && said.contains("no complete frame arrived"), "{said}");
}

#[test]
fn pixels_that_bypass_the_queue_are_reported_as_such() {
    let hosts = Hosts::new(1600);
    let control = hosts.control("12", &PIXELS).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Fragmented datagrams: longer than the wire's MTU.
    let camera = hosts.0[1].within(|| UdpSocket::bind("10.94.3.2:0").unwrap());
    let stop = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The receiver may not be listening yet.
                let _ = camera.send_to(&[0; 3000], "10.94.3.1:51511");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let output = finish(control);
        stop.store(true, Ordering::Relaxed);
        text(&output)
    });
    assert!(said.contains("--xdp wire:0: pixels come to this host, but not whole on this queue"), "{said}");
}

#[test]
fn a_measurement_compares_both_inputs_and_restores_the_interfaces() {
    let host = Namespace::new("lent");
    ip(&format!("-n {} link add one mtu 1400 type veth peer name other mtu 1450", host.0));
    let measure = |words: &[&str]| {
        let mut command = tahti();
        command.args(["bench", "input", "--across", "8", "--frames", "20", "--rounds", "1", "--json"]).args(words);
        let command = &mut host.command(&command);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        assert!(output.status.code().is_some_and(|code| code < 2), "{}", text(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = |table: usize| report["tables"][table]["rows"].as_array().unwrap().len();
        assert_eq!([rows(0), rows(1), rows(2)], [3, 4, 1], "{report}");
    };
    measure(&[]);
    measure(&["--between", "one", "other"]);
    let links = Command::new("ip").args(["-n", &host.0, "link"]).output().unwrap();
    let links = text(&links);
    assert!(links.contains("one@other:") && links.contains("mtu 1400") && links.contains("mtu 1450"), "{links}");
}

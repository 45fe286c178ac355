//! A network link between two temporary network namespaces.

use crate::Failed;
use crate::failed::joined;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;
use sys::Errno;

/// The ends' addresses.
pub(crate) const ADDRESSES: [&str; 2] = ["10.94.1.1", "10.94.1.2"];

/// The same by IPv6, unique local.
pub(crate) const ADDRESSES_V6: [&str; 2] = ["fd94:7461:6874:6900::1", "fd94:7461:6874:6900::2"];

/// The program that runs another program in a namespace.
const NSENTER: &str = "nsenter";

/// Two namespaces with one interface each, connected to each other. The kernel removes them when this process ends for
/// any reason.
pub(crate) struct Wire {
    namespaces: [OwnedFd; 2],
    /// Name of the interface in each namespace.
    pub(crate) interfaces: [String; 2],
    /// MTUs of borrowed interfaces, which are returned to the host.
    lent: Option<[usize; 2]>,
}

impl Wire {
    /// A virtual link. Needs root.
    pub(crate) fn make() -> Result<Self, Failed> {
        let wire = Self::begin(["wire".into(), "wire".into()], None)?;
        let there = wire.path(1);
        wire.tool(0, "ip", &format!("link add wire type veth peer name wire netns {there}"))?;
        wire.up()?;
        Ok(wire)
    }

    /// A link between two unused interfaces of this host; afterwards they are down and without addresses.
    pub(crate) fn between(interfaces: [String; 2]) -> Result<Self, Failed> {
        let asked = UdpSocket::bind("127.0.0.1:0").map_err(Failed::Socket)?;
        let mtu = |at: usize| sys::interfaces::mtu(&asked, &interfaces[at]);
        let lent = [mtu(0)?, mtu(1)?];
        let wire = Self::begin(interfaces, Some(lent))?;
        for (end, interface) in wire.interfaces.iter().enumerate() {
            tool("ip", &format!("link set {interface} netns {}", wire.path(end)))?;
        }
        wire.up()?;
        Ok(wire)
    }

    fn begin(interfaces: [String; 2], lent: Option<[usize; 2]>) -> Result<Self, Failed> {
        let made = || match sys::interfaces::empty_network() {
            Err(error) if error.errno == Errno::PERM => Err(Failed::Needs("root: it creates two network namespaces")),
            made => Ok(made?),
        };
        let namespaces = [made()?, made()?];
        Ok(Self { namespaces, interfaces, lent })
    }

    fn up(&self) -> Result<(), Failed> {
        for (end, (interface, address)) in self.interfaces.iter().zip(ADDRESSES).enumerate() {
            self.tool(end, "ip", &format!("addr add {address}/24 dev {interface}"))?;
            self.tool(end, "ip", &format!("link set {interface} up"))?;
        }
        Ok(())
    }

    /// Gives both ends IPv6 addresses.
    pub(crate) fn add_ipv6(&self) -> Result<(), Failed> {
        let mut both = self.interfaces.iter().zip(ADDRESSES_V6).enumerate();
        // Without the detection of duplicates, which takes a second.
        both.try_for_each(|(end, (interface, address))| {
            self.tool(end, "ip", &format!("addr add {address}/64 dev {interface} nodad"))
        })
    }

    /// Whether its interfaces are borrowed from the host.
    pub(crate) const fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Sets the MTU of both ends.
    pub(crate) fn carry(&self, mtu: usize) -> Result<(), Failed> {
        let both = self.interfaces.iter().enumerate();
        both.into_iter().try_for_each(|(end, at)| self.tool(end, "ip", &format!("link set {at} mtu {mtu}")))
    }

    /// The path of an end's namespace, for programs.
    fn path(&self, end: usize) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespaces[end].as_raw_fd())
    }

    /// Prefix of a command that runs at an end.
    pub(crate) fn words(&self, end: usize) -> [String; 2] {
        [NSENTER.into(), format!("--net={}", self.path(end))]
    }

    /// Runs a program of iproute2 at an end.
    pub(crate) fn tool(&self, end: usize, program: &str, words: &str) -> Result<(), Failed> {
        tool(NSENTER, &format!("--net={} {program} {words}", self.path(end)))
    }

    /// Runs a function at an end, in a separate thread.
    pub(crate) fn at<T: Send>(&self, end: usize, work: impl FnOnce() -> Result<T, Failed> + Send) -> Result<T, Failed> {
        let enter = || {
            let entered = rustix::thread::move_into_link_name_space(self.namespaces[end].as_fd(), None);
            entered.map_err(|errno| sys::Error { doing: "enter a network namespace".into(), errno })?;
            work()
        };
        std::thread::scope(|scope| joined(scope.spawn(enter).join()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for (end, mtu) in self.lent.into_iter().flatten().enumerate() {
            let interface = &self.interfaces[end];
            // Fails for an interface that was never moved.
            let _ = self.tool(end, "ip", &format!("link set {interface} mtu {mtu}"));
            let _ = self.tool(end, "ip", &format!("link set {interface} netns {}", std::process::id()));
        }
    }
}

fn tool(program: &'static str, words: &str) -> Result<(), Failed> {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.map_err(|source| Failed::NoPeer { program, package: "iproute2 and util-linux", source })?;
    let (status, printed) = (output.status, String::from_utf8_lossy(&output.stderr).trim().to_owned());
    match status.success() {
        true => Ok(()),
        false => Err(Failed::Ended { command: format!("{program} {words}"), status, output: printed }),
    }
}

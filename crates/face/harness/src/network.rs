//! Network namespaces as hosts. Only root can create them. They are removed on drop.

use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

/// Runs `ip` of iproute2.
pub fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program of iproute2.
fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(pub String);

impl Namespace {
    /// Creates an empty namespace with `what` in its name.
    pub fn new(what: &str) -> Self {
        let name = crate::fresh(&format!("tahti-{what}"));
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        Self(name)
    }

    /// Limits the rate and the queue of the loopback interface, as on a slow connection.
    pub fn slow_loopback(&self, rate: &str) {
        // The MTU of Ethernet. The token bucket drops packets that are larger than the bucket.
        ip(&format!("-n {} link set lo mtu 1500", self.0));
        run("tc", &format!("-n {} qdisc add dev lo root tbf rate {rate} burst 8kb limit 32kb", self.0));
    }

    /// The same command in the namespace.
    pub fn command(&self, likeness: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(likeness.get_program()).args(likeness.get_args());
        command.envs(likeness.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        command
    }

    /// Moves the calling thread, and threads that it starts, into the namespace.
    pub fn enter(&self) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        rustix::thread::move_into_link_name_space(file.as_fd(), None).unwrap();
    }

    /// Runs a function in the namespace, in a separate thread.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            self.enter();
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

//! Hosts that are network namespaces of this machine, which root makes and which go with their test.

use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

/// `ip` of iproute2 with these words.
pub fn ip(words: &str) {
    run("ip", words);
}

/// A program of iproute2 with these words.
fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(pub String);

impl Namespace {
    /// An empty one, whose name has `what` in it.
    pub fn new(what: &str) -> Self {
        let name = crate::fresh(&format!("tahti-{what}"));
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        Self(name)
    }

    /// Lets no more than so much through its loopback, and little wait there: as a line that far away hosts share.
    pub fn slow_loopback(&self, rate: &str) {
        // Packets as on a wire: a queue of tokens takes none that is longer than all its tokens.
        ip(&format!("-n {} link set lo mtu 1500", self.0));
        run("tc", &format!("-n {} qdisc add dev lo root tbf rate {rate} burst 8kb limit 32kb", self.0));
    }

    /// A program within it: the command's words and variables.
    pub fn command(&self, likeness: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(likeness.get_program()).args(likeness.get_args());
        command.envs(likeness.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        command
    }

    /// Brings the calling thread, and those that it starts, into it.
    pub fn enter(&self) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        rustix::thread::move_into_link_name_space(file.as_fd(), None).unwrap();
    }

    /// Does something within it, in a thread of its own.
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

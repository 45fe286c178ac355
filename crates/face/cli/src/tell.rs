//! What processes of a plant tell their supervisor at their notify socket.

use base::{DurNs, MonoNs, Tally};
use keep::supervisor::{TROUBLE_TOLD, VALUE_TOLD};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// When it is said again what a supervisor that has come since has not heard.
const AGAIN: DurNs = DurNs::from_secs(5);
/// Letters of a trouble that are told: a message has at most 1 KiB.
const TROUBLE_MAX: usize = 200;

/// The notify socket of this process, if it has one.
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    reported: String,
    at: MonoNs,
}

impl Supervisor {
    pub(crate) fn from_env() -> Self {
        let to = std::env::var("NOTIFY_SOCKET").ok().and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        let socket = to.and_then(|to| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, to))
        });
        Self { socket, reported: String::new(), at: MonoNs(0) }
    }

    /// Says something where it is new; who does not read hears it with the next.
    pub(crate) fn tell(&mut self, text: String) {
        let Some((socket, to)) = &self.socket else { return };
        if text != self.reported && socket.send_to_addr(text.as_bytes(), to).is_ok() {
            self.reported = text;
        }
    }

    /// Says what is wrong with this process, or that nothing is any more; called again and again.
    pub(crate) fn trouble(&mut self, why: Option<&str>) {
        let now = sys::clock::mono_now();
        if now - self.at >= AGAIN {
            self.at = now;
            self.reported.clear();
        }
        let why = why.unwrap_or_default().chars().take(TROUBLE_MAX);
        let line: String = why.map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        self.tell(format!("{TROUBLE_TOLD}{line}\n"));
    }
}

/// What results were worth, and hard deadlines that were missed, as the supervisor hears it.
pub(crate) fn value(tally: &Tally, hard: u64) -> String {
    format!("{VALUE_TOLD}{} {} {} {hard}\n", tally.due, tally.late, tally.worth)
}

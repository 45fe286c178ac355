//! What processes of a plant tell their supervisor at their notify socket.

use base::Tally;
use keep::supervisor::VALUE_TOLD;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The notify socket of this process, if it has one.
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    reported: String,
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
        Self { socket, reported: String::new() }
    }

    /// Says something where it is new; who does not read hears it with the next.
    pub(crate) fn tell(&mut self, text: String) {
        let Some((socket, to)) = &self.socket else { return };
        if text != self.reported && socket.send_to_addr(text.as_bytes(), to).is_ok() {
            self.reported = text;
        }
    }
}

/// What results were worth, and hard deadlines that were missed, as the supervisor hears it.
pub(crate) fn value(tally: &Tally, hard: u64) -> String {
    format!("{VALUE_TOLD}{} {} {} {hard}\n", tally.due, tally.late, tally.worth)
}

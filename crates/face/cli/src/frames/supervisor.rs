//! What a frame's process tells its supervisor: what the frame has lost, for the plant's verdict.

use keep::supervisor::FRAME_PULSES;
use ring::{FrameCounter, FramePage};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Its notify socket, if it has one.
pub(super) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    reported: String,
}

impl Supervisor {
    pub(super) fn from_env() -> Self {
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

    /// Says the counts where they are new; who does not read hears them with the next.
    pub(super) fn tell(&mut self, page: &FramePage<'_>) {
        let Some((socket, to)) = &self.socket else { return };
        let count = |counter| page.counter(counter);
        let (ran, lost) = (count(FrameCounter::Minors), count(FrameCounter::Lost));
        let text = format!("{FRAME_PULSES}{ran} {lost} {}\n", count(FrameCounter::Overruns));
        if text != self.reported && socket.send_to_addr(text.as_bytes(), to).is_ok() {
            self.reported = text;
        }
    }
}

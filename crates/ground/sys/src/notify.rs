//! Messages from a process to its supervisor through the socket in `NOTIFY_SOCKET` (`sd_notify(3)`). Never waits.

use crate::rounds;
use base::{DurNs, MonoNs};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A message with this line proves that the main loop of a service is running.
pub const WORKS: &str = "X_TAHTI_WORKS=1";

/// Prefix of a description of the process's current fault. An empty description means that there is none.
pub const TROUBLE: &str = "X_TAHTI_TROUBLE=";

/// Prefix of a description of something that the process could not obtain since its start, such as a file.
pub const SHORTFALL: &str = "X_TAHTI_SHORTFALL=";

/// Time between two messages of the main loop.
pub const WORKS_EVERY: DurNs = DurNs::from_secs(1);

/// Minimum time between two checks of the process's threads.
const CHECK_EVERY: DurNs = DurNs::from_ms(500);

/// Minimum time for which a fault is reported, so that the supervisor observes it.
const TROUBLE_FOR: DurNs = DurNs(WORKS_EVERY.0 * 2);

/// Maximum characters of a fault's description or a status, because a message has at most 1 KiB.
const TEXT_MAX: usize = 200;

/// The supervisor of this process; a process without one sends nothing.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The last text of [`send`](Self::send).
    sent: String,
    trouble: Option<String>,
    /// Time until which the fault is reported even if it has ended.
    trouble_until: MonoNs,
    /// Time of the next message of the main loop.
    due: MonoNs,
    /// The threads that hang, and the time of the next check.
    hanging: (Option<String>, MonoNs),
    /// The last text of [`status`](Self::status), and the time of the next one.
    status: (String, MonoNs),
}

impl Supervisor {
    /// The supervisor given by the environment.
    #[must_use]
    pub fn from_env() -> Self {
        Self::at(std::env::var("NOTIFY_SOCKET").ok().as_deref())
    }

    /// The supervisor at a socket: a path, or `@` followed by an abstract name.
    #[must_use]
    pub fn at(name: Option<&str>) -> Self {
        let to = name.and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        let socket = to.and_then(|to| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, to))
        });
        Self { socket, ..Self::default() }
    }

    /// Sends a text if it differs from the last one. A text that could not be sent is sent with the next call.
    pub fn send(&mut self, text: String) {
        if text != self.sent && self.post(&text) {
            self.sent = text;
        }
    }

    /// Reports something that this process could not obtain. Returns whether it was sent, or if there is no supervisor.
    #[must_use]
    pub fn shortfall(&self, text: &str) -> bool {
        self.socket.is_none() || self.post(&format!("{SHORTFALL}{}\n", line(text)))
    }

    /// Reports that the main loop is running, and the fault of the process: a watched thread that hangs
    /// ([`Rounds`](rounds::Rounds)), or `trouble`. Call it in every round; it sends once per [`WORKS_EVERY`], and immediately
    /// if the fault has changed. A fault is reported for at least 2 s.
    pub fn works(&mut self, now: MonoNs, trouble: Option<&str>) {
        if self.socket.is_none() {
            return;
        }
        if now >= self.hanging.1 {
            self.hanging = (rounds::hanging(now), now + CHECK_EVERY);
        }
        let hanging = self.hanging.0.clone();
        let held = self.trouble.clone().filter(|_| now < self.trouble_until);
        self.report(now, hanging.as_deref().or(trouble).or(held.as_deref()));
    }

    fn report(&mut self, now: MonoNs, trouble: Option<&str>) {
        let is_same = trouble == self.trouble.as_deref();
        if is_same && now < self.due {
            return;
        }
        if self.post(&format!("{WORKS}\n{TROUBLE}{}\n", line(trouble.unwrap_or_default()))) {
            if !is_same {
                self.trouble_until = now + TROUBLE_FOR;
            }
            self.trouble = trouble.map(str::to_owned);
        }
        self.due = now + WORKS_EVERY;
    }

    /// Sends a line about the present state for users, if it has changed. `text` is called once per [`WORKS_EVERY`]; an
    /// empty text removes the line.
    pub fn status(&mut self, now: MonoNs, text: impl FnOnce() -> String) {
        if self.socket.is_none() || now < self.status.1 {
            return;
        }
        self.status.1 = now + WORKS_EVERY;
        let text = text();
        if text != self.status.0 && self.post(&format!("STATUS={}\n", line(&text))) {
            self.status.0 = text;
        }
    }

    /// Latest time of the next call of [`works`](Self::works); `None` without a supervisor.
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        self.socket.is_some().then_some(self.due)
    }

    fn post(&self, text: &str) -> bool {
        self.socket.as_ref().is_some_and(|(socket, to)| socket.send_to_addr(text.as_bytes(), to).is_ok())
    }
}

/// A text as one line of limited length.
fn line(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_loop_reports_once_a_second_and_a_new_fault_at_once() {
        let name = format!("tahti-sys-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let heard = || {
            let mut bytes = [0; 1024];
            socket.recv(&mut bytes).ok().map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        let mut supervisor = Supervisor::at(Some(&format!("@{name}")));
        let ms = |ms: u64| MonoNs(ms * 1_000_000);
        supervisor.works(ms(5000), None);
        assert_eq!(heard().unwrap(), "X_TAHTI_WORKS=1\nX_TAHTI_TROUBLE=\n");
        assert_eq!(supervisor.due(), Some(ms(6000)));
        supervisor.works(ms(5999), None);
        assert_eq!(heard(), None);
        supervisor.works(ms(5999), Some("disk\nfull"));
        assert_eq!(heard().unwrap(), "X_TAHTI_WORKS=1\nX_TAHTI_TROUBLE=disk full\n");
        supervisor.works(ms(6500), Some("disk\nfull"));
        assert_eq!(heard(), None);
        supervisor.works(ms(6999), None);
        assert_eq!(heard().unwrap(), "X_TAHTI_WORKS=1\nX_TAHTI_TROUBLE=disk full\n", "it may not be observed yet");
        supervisor.works(ms(7998), None);
        assert_eq!(heard(), None);
        supervisor.works(ms(7999), None);
        assert_eq!(heard().unwrap(), "X_TAHTI_WORKS=1\nX_TAHTI_TROUBLE=\n");
    }

    #[test]
    fn a_status_is_sent_when_it_has_changed_and_at_most_once_a_second() {
        let name = format!("tahti-sys-status-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut supervisor = Supervisor::at(Some(&format!("@{name}")));
        let mut sent = |ms: u64, text: &str| {
            supervisor.status(MonoNs(ms * 1_000_000), || text.to_owned());
            let mut bytes = [0; 1024];
            socket.recv(&mut bytes).ok().map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        assert_eq!(sent(1, ""), None, "a process without a status sends none");
        assert_eq!(sent(1001, "1 of 2\nconnected").as_deref(), Some("STATUS=1 of 2 connected\n"));
        assert_eq!([sent(1500, "2 of 2"), sent(2001, "1 of 2\nconnected")], [None, None]);
        assert_eq!(sent(3001, "").as_deref(), Some("STATUS=\n"));
    }

    #[test]
    fn a_process_without_a_supervisor_has_no_report_due() {
        let mut supervisor = Supervisor::at(None);
        supervisor.works(MonoNs(1), Some("x"));
        assert_eq!(supervisor.due(), None);
    }
}

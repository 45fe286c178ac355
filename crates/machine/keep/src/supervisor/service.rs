//! Notifications to systemd from a supervisor that it started (`Type=notify`): ready, status, alive, stopping.
//!
//! `sd_notify(3)`: datagrams of `NAME=value` lines to the socket in `NOTIFY_SOCKET`. These variables must not reach the
//! plant's processes, which could otherwise send notifications in the supervisor's name ([`VARIABLES`]).

use base::{DurNs, MonoNs};
use host::supervise::{Phase, State, Supervision};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variables that systemd sets for the supervisor alone (`systemd.exec(5)`).
pub(crate) const VARIABLES: [&str; 12] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
];

/// The notification socket to systemd.
#[derive(Debug)]
pub(crate) struct Service {
    socket: UnixDatagram,
    to: SocketAddr,
    /// Interval of watchdog notifications: half of systemd's timeout.
    every: Option<DurNs>,
    next: MonoNs,
    said: String,
}

/// A notification setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("NOTIFY_SOCKET={name}: {error}: systemd gets no notifications")]
    Socket { name: String, error: std::io::Error },
    #[error("WATCHDOG_USEC={0}: expected microseconds")]
    Patience(String),
}

impl Service {
    /// Connects as `variable` (an environment lookup) specifies; `None` without `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub(crate) fn new(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ServiceError> {
        let Some(name) = variable("NOTIFY_SOCKET") else { return Ok(None) };
        let to = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        let failed = |error| ServiceError::Socket { name: name.clone(), error };
        let to = to.map_err(failed)?;
        let socket = UnixDatagram::unbound().map_err(failed)?;
        // The supervisor must not block if the service manager does not read.
        socket.set_nonblocking(true).map_err(failed)?;
        let own = |pid: String| pid == std::process::id().to_string();
        let patience = variable("WATCHDOG_USEC").filter(|_| variable("WATCHDOG_PID").is_none_or(own));
        let every = match patience.map(|text| text.parse::<u32>().map_err(|_| text)).transpose() {
            Ok(every) => every.filter(|us| *us > 0).map(|us| DurNs(i64::from(us) * 1000 / 2)),
            Err(text) => return Err(ServiceError::Patience(text)),
        };
        Ok(Some(Self { socket, to, every, next: MonoNs(0), said: String::new() }))
    }

    /// Sends the pending notifications.
    pub(super) fn report(&mut self, now: MonoNs, all: &Supervision) {
        let units = || all.units().iter().filter(|unit| !unit.retired);
        let running = units().filter(|unit| unit.state == State::Running).count();
        self.say(now, all.phase(), running, units().count());
    }

    /// Sends the plant's status if it has changed, and the watchdog notification if it is due.
    fn say(&mut self, now: MonoNs, phase: Phase, running: usize, all: usize) {
        let word = super::phase_word(phase);
        let first = match phase {
            Phase::Up => "READY=1\n",
            Phase::Stopping(_) | Phase::Down => "STOPPING=1\n",
            Phase::Starting => "",
        };
        let news = format!("{first}STATUS={word}: {running} of {all} processes run\n");
        if news != self.said && self.send(&news) {
            self.said = news;
        }
        self.pulse(now);
    }

    /// Sends the watchdog notification if it is due.
    pub(super) fn pulse(&mut self, now: MonoNs) {
        if let Some(every) = self.every
            && now >= self.next
        {
            self.send("WATCHDOG=1\n");
            self.next = now + every;
        }
    }

    /// Time of the next watchdog notification.
    pub(super) fn due(&self) -> Option<MonoNs> {
        self.every.map(|_| self.next)
    }

    /// Whether the message was sent. If not, the status is sent again with the next report, and systemd's watchdog timeout
    /// applies.
    fn send(&self, text: &str) -> bool {
        self.socket.send_to_addr(text.as_bytes(), &self.to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_receives_each_change_once_and_heartbeats_in_time() {
        let name = format!("tahti-service-{}", std::process::id());
        let here = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        let variable = |asked: &str| match asked {
            "NOTIFY_SOCKET" => Some(format!("@{name}")),
            "WATCHDOG_USEC" => Some("10000000".to_owned()),
            _ => None,
        };
        let mut service = Service::new(variable).unwrap().unwrap();
        let mut heard = |at: u64, phase, running| {
            service.say(MonoNs(at * 1_000_000_000), phase, running, 2);
            let (mut text, mut bytes) = (String::new(), [0; 200]);
            while let Ok(length) = here.recv(&mut bytes) {
                text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
            }
            text
        };
        assert_eq!(heard(1, Phase::Starting, 0), "STATUS=starting: 0 of 2 processes run\nWATCHDOG=1\n");
        assert_eq!(heard(2, Phase::Starting, 0), "");
        assert_eq!(heard(3, Phase::Up, 2), "READY=1\nSTATUS=up: 2 of 2 processes run\n");
        assert_eq!(heard(6, Phase::Up, 2), "WATCHDOG=1\n");
        assert_eq!(heard(7, Phase::Stopping(None), 1), "STOPPING=1\nSTATUS=stopping: 1 of 2 processes run\n");
    }

    #[test]
    fn without_systemd_no_status_is_sent_and_a_malformed_interval_is_reported() {
        assert!(Service::new(|_| None).unwrap().is_none());
        let bad = |asked: &str| match asked {
            "NOTIFY_SOCKET" => Some("@x".to_owned()),
            "WATCHDOG_USEC" => Some("soon".to_owned()),
            _ => None,
        };
        assert!(Service::new(bad).unwrap_err().to_string().contains("WATCHDOG_USEC=soon"));
        // The variable is set for another process.
        let other = |asked: &str| match asked {
            "NOTIFY_SOCKET" => Some("@x".to_owned()),
            "WATCHDOG_USEC" => Some("1000".to_owned()),
            "WATCHDOG_PID" => Some("1".to_owned()),
            _ => None,
        };
        assert!(Service::new(other).unwrap().unwrap().due().is_none());
    }
}

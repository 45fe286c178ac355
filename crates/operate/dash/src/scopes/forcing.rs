//! Triggers outside a loop: alarms and messages. A thread watches them and forces a capture.

use crate::messages::{WatchError, watched};
use alarm::wire::{Look, Reply, Row};
use alarmd::Client as Alarms;
use base::DurNs;
use broker::Client as Messages;
use rt::scope::{Cause, Oscilloscope, ScopeError};
use scope::Beside;
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Interval of checks whether the watcher is still needed.
const LOOK: DurNs = DurNs::from_ms(300);

/// Reason why a trigger is not watched, or no longer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForcingError {
    /// The alarm server does not answer.
    #[error("the alarms {server:?} do not answer: {why}")]
    Alarms {
        /// Its name.
        server: String,
        /// The operating system's error.
        why: String,
    },
    /// The message server refuses the watch.
    #[error("the message server {server:?}: {why}")]
    Messages {
        /// Its name.
        server: String,
        /// The reason.
        why: WatchError,
    },
    /// The connection to the message server was lost.
    #[error("the message server {0:?} was lost: arm again")]
    Lost(String),
    /// The loop does not accept the request.
    #[error("{0}")]
    Loop(ScopeError),
    /// The thread could not be started.
    #[error("no thread for it: {0}")]
    Thread(String),
}

/// Servers for triggers outside the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Name of the alarm server.
    pub alarms: String,
    /// Name of the message server.
    pub messages: String,
}

/// Watches alarms or messages until dropped, in a thread that is not real-time, and forces a capture of the oscilloscope for
/// each. The delay from the alarm or message to the trigger row includes both socket connections and has no upper bound.
#[derive(Debug)]
pub struct Forcing {
    shared: Arc<Shared>,
    alarms: Option<UnixStream>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    failed: Mutex<Option<ForcingError>>,
}

impl Forcing {
    /// Starts watching. Existing alarms do not force a capture.
    ///
    /// # Errors
    /// If the server does not answer, or the loop's process no longer exports anything.
    pub fn start(beside: &Beside, segment: &str, servers: &Servers) -> Result<Self, ForcingError> {
        let scope = Oscilloscope::open(segment).map_err(ForcingError::Loop)?;
        let shared = Arc::<Shared>::default();
        let inside = shared.clone();
        let mut breaker = None;
        let work: Box<dyn FnOnce() -> Result<(), ForcingError> + Send> = match beside {
            Beside::Alarm(names) => {
                let (names, server) = (names.clone(), servers.alarms.clone());
                let failed =
                    move |error: io::Error| ForcingError::Alarms { server: server.clone(), why: error.to_string() };
                let mut client = Alarms::find(&servers.alarms).map_err(&failed)?;
                breaker = Some(client.breaker().map_err(&failed)?);
                let first = client.look(&Look::Watch).map_err(&failed)?;
                Box::new(move || of_alarms(client, first, &names, &scope, failed))
            }
            Beside::Message(pattern) => {
                let server = servers.messages.clone();
                let failed = |why| ForcingError::Messages { server: server.clone(), why };
                let client = watched(&servers.messages, pattern).map_err(failed)?;
                Box::new(move || of_messages(client, &server, &scope, &inside.over))
            }
        };
        let inside = shared.clone();
        let started = std::thread::Builder::new().name("scope-forcing".to_owned()).spawn(move || {
            if let Err(why) = work() {
                *inside.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        started.map_err(|error| ForcingError::Thread(error.to_string()))?;
        Ok(Self { shared, alarms: breaker })
    }

    /// Reason why watching ended; `None` while it continues.
    #[must_use]
    pub fn failed(&self) -> Option<ForcingError> {
        self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forcing {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(stream) = &self.alarms {
            // If the connection has ended already, so has the thread.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Last known severity level of each alarm, by path.
struct SeverityLevels(HashMap<String, u8>);

impl SeverityLevels {
    fn of(rows: &[Row]) -> Self {
        Self(rows.iter().map(|row| (row.path.clone(), row.state.current_severity.level())).collect())
    }

    /// Whether the alarm is new or has become worse since the last change.
    fn is_worse(&mut self, row: &Row) -> bool {
        let now = row.state.current_severity.level();
        now > self.0.insert(row.path.clone(), now).unwrap_or(0)
    }
}

fn of_alarms(
    mut client: Alarms,
    first: Reply,
    names: &str,
    scope: &Oscilloscope,
    failed: impl Fn(io::Error) -> ForcingError,
) -> Result<(), ForcingError> {
    let mut known = SeverityLevels(HashMap::new());
    let mut next = Some(first);
    while let Some(reply) = next {
        match reply {
            Reply::List(list) => known = SeverityLevels::of(&list.rows),
            Reply::Change(row) if alarm::is_meant(names, &row.path) && known.is_worse(&row) => {
                scope.force(Cause::Alarm).map_err(ForcingError::Loop)?;
            }
            Reply::Refused(why) => return Err(failed(io::Error::other(why))),
            Reply::Change(_) | Reply::Done { .. } => {}
        }
        next = client.hear().map_err(&failed)?;
    }
    Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "they closed the connection")))
}

fn of_messages(
    mut client: Messages,
    server: &str,
    scope: &Oscilloscope,
    over: &AtomicBool,
) -> Result<(), ForcingError> {
    while !over.load(Ordering::Relaxed) {
        match client.next(LOOK) {
            Ok(Some(event)) if event.event => scope.force(Cause::Message).map_err(ForcingError::Loop)?,
            Ok(_) if client.reconnections() == 0 => {}
            // The watch ended with the old connection.
            _ => return Err(ForcingError::Lost(server.to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alarm::{Severity, State};

    #[test]
    fn an_alarm_triggers_when_it_begins_or_becomes_more_severe_only() {
        let row = |path: &str, current_severity| Row {
            path: path.to_owned(),
            channel: "X".to_owned(),
            description: String::new(),
            connected: true,
            guidance: Vec::new(),
            displays: Vec::new(),
            state: State { current_severity, ..State::default() },
        };
        let mut known = SeverityLevels::of(&[row("/a/X", Severity::Minor)]);
        let told = [
            ("/a/X", Severity::Minor, false),
            ("/a/X", Severity::Major, true),
            ("/a/X", Severity::Major, false),
            ("/a/X", Severity::Ok, false),
            ("/a/X", Severity::Minor, true),
            ("/b/X", Severity::Ok, false),
            ("/b/X", Severity::Invalid, true),
            ("/b/X", Severity::Minor, false),
        ];
        for (path, severity, expected) in told {
            assert_eq!(known.is_worse(&row(path, severity)), expected, "{path} {severity:?}");
        }
    }
}

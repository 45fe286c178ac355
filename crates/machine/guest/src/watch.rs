//! Watches a running QEMU without blocking: polls the state of the guest and sends the commands of a stop.

use crate::qemu::Qemu;
use crate::qmp::codec::{Message, Refusal};
use crate::qmp::{ANSWER_WITHIN, Client, QmpError};
use crate::state::{Still, still};
use crate::stop::Step;
use base::{DurNs, MonoNs, Visible};
use serde_json::Value;
use std::path::PathBuf;

/// Polling interval while the guest runs.
pub(crate) const WATCH: DurNs = DurNs::from_secs(10);
/// Maximum messages of QEMU per pass.
const MESSAGES: usize = 64;
/// Command that returns the run state.
const QUERY: &str = "query-status";

/// A running QEMU. No method waits for it.
pub(crate) struct Watched {
    pub(crate) qmp: Option<Client>,
    path: PathBuf,
    asked: Option<QmpCommand>,
    /// Run state and its meaning while the guest does not run.
    still: Option<(String, Still)>,
    /// Whether the loss of QEMU was reported.
    lost: bool,
    next: MonoNs,
}

/// A command to QEMU.
struct QmpCommand {
    command: &'static str,
    /// The command's number after it was sent.
    id: Option<u64>,
    end: MonoNs,
}

impl Watched {
    /// Begins with an open connection; `path` is its control socket.
    pub(crate) fn begin(qmp: Client, path: PathBuf, now: MonoNs) -> Self {
        Self { qmp: Some(qmp), path, asked: None, still: None, lost: false, next: now + WATCH }
    }

    /// Whether an answer of QEMU is pending.
    pub(crate) const fn awaits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether QEMU did not answer the last command.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Reason why the guest does not run; `None` if it runs.
    pub(crate) const fn still(&self) -> Option<&(String, Still)> {
        self.still.as_ref()
    }

    /// Handles QEMU's messages and sends a pending command. Returns `false` if a command failed.
    pub(crate) fn go_on(&mut self, now: MonoNs, tell: &mut dyn FnMut(&str)) -> bool {
        for _ in 0..MESSAGES {
            match self.qmp.as_mut().map(Client::take) {
                Some(Ok(Some(Message::Event(name)))) => {
                    happened(&name, tell);
                    // The state is queried at once, to report why the guest stopped or that it runs again.
                    if ["STOP", "RESUME", "SUSPEND", "WAKEUP"].contains(&name.as_str()) {
                        self.next = now;
                    }
                }
                Some(Ok(Some(Message::Answer { id, result }))) => {
                    let Some(asked) = self.asked.take_if(|asked| asked.id.is_some() && asked.id == id) else {
                        continue;
                    };
                    if std::mem::take(&mut self.lost) {
                        tell("QEMU answers again");
                    }
                    match result {
                        Ok(answer) if asked.command == QUERY => self.stands(&answer, tell),
                        Ok(_) => {}
                        Err(Refusal(why)) => {
                            tell(&QmpError::Refused { command: asked.command.to_owned(), why }.to_string());
                            return false;
                        }
                    }
                }
                Some(Ok(Some(Message::Greeting))) => {}
                Some(Ok(None)) | None => break,
                // QEMU usually is ending; if not, the next poll reports it.
                Some(Err(QmpError::Closed)) => (self.qmp, self.asked) = (None, None),
                Some(Err(error)) => return self.lose(&error, tell),
            }
        }
        let (Some(qmp), Some(asked)) = (&mut self.qmp, &mut self.asked) else { return true };
        if qmp.is_ready() && asked.id.is_none() {
            match qmp.send(asked.command, None) {
                Ok(id) => asked.id = Some(id),
                Err(error) => return self.lose(&error, tell),
            }
        }
        if now >= asked.end {
            let error = qmp.silent(asked.command);
            return self.lose(&error, tell);
        }
        true
    }

    /// Handles the run state. Reports a change.
    fn stands(&mut self, answer: &Value, tell: &mut dyn FnMut(&str)) {
        let state = answer["status"].as_str().unwrap_or("no word");
        let now = still(state).map(|still| (state.to_owned(), still));
        if now == self.still {
            return;
        }
        self.still = now;
        match &self.still {
            Some(still) => tell(&said(still)),
            None => tell("the guest runs again"),
        }
    }

    fn lose(&mut self, error: &QmpError, tell: &mut dyn FnMut(&str)) -> bool {
        (self.qmp, self.asked) = (None, None);
        if !std::mem::replace(&mut self.lost, true) {
            tell(&format!("{error}; the guest is left alone, QEMU is tried again every {WATCH}"));
        }
        false
    }

    /// Prepares a command, which is sent when the connection is ready. Returns whether there is a connection.
    fn ask(&mut self, command: &'static str, now: MonoNs) -> bool {
        if self.qmp.is_none() {
            self.qmp = Client::begin(&self.path, ANSWER_WITHIN).ok();
        }
        self.asked = self.qmp.is_some().then_some(QmpCommand { command, id: None, end: now + ANSWER_WITHIN });
        self.qmp.is_some()
    }

    /// Polls QEMU if a poll is due.
    pub(crate) fn look(&mut self, now: MonoNs) {
        if now >= self.next && self.asked.is_none() {
            self.ask(QUERY, now);
            self.next = now + WATCH;
        }
    }

    /// Takes a step of a stop, for the first time or `again`. Returns whether it was possible.
    pub(crate) fn step(
        &mut self,
        step: Step,
        again: bool,
        qemu: &mut Qemu,
        now: MonoNs,
        tell: &mut dyn FnMut(&str),
    ) -> bool {
        let (command, said) = match step {
            Step::Powerdown => ("system_powerdown", "the power button was pressed"),
            Step::Quit => ("quit", "QEMU was requested to quit"),
            Step::Kill => {
                tell("QEMU is killed");
                return qemu.child.kill().is_ok();
            }
        };
        if again {
            // A pending command is awaited as before. A QEMU that no longer accepts connections usually is ending.
            if self.asked.is_none() {
                self.ask(command, now);
            }
            return true;
        }
        tell(said);
        // Its failure is to be reported in any case.
        self.lost = false;
        self.ask(command, now)
    }
}

/// Message that a guest does not run.
pub(crate) fn said((state, Still { what, remedy, .. }): &(String, Still)) -> String {
    format!("the guest DOES NOT RUN ({}): {what}; {remedy}", Visible { text: state, colours: false })
}

/// Reports events about the guest's power state. Button presses, and hundreds of other events, are not reported.
fn happened(event: &str, tell: &mut dyn FnMut(&str)) {
    let worth =
        ["SHUTDOWN", "RESET", "GUEST_PANICKED", "WATCHDOG", "STOP", "RESUME", "BLOCK_IO_ERROR", "SUSPEND", "WAKEUP"];
    if worth.contains(&event) {
        tell(&format!("event {event}"));
    }
}

//! A running QEMU, as far as it answers: asked now and then how the guest stands, and told to stop it.

use crate::qemu::Qemu;
use crate::qmp::codec::Message;
use crate::qmp::{ANSWER_WITHIN, Client, QmpError};
use crate::state::{Still, still};
use crate::stop::Step;
use base::{DurNs, MonoNs, Visible};
use serde_json::Value;
use std::path::PathBuf;

/// Between two looks at QEMU while it runs.
pub(crate) const WATCH: DurNs = DurNs::from_secs(10);
/// Answers and events of QEMU that are taken between two looks at everything else.
const MESSAGES: usize = 64;
/// Asks how the guest stands.
const QUERY: &str = "query-status";

/// A running QEMU, as far as it answers. Nothing here waits for it.
pub(crate) struct Watched {
    pub(crate) qmp: Option<Client>,
    path: PathBuf,
    asked: Option<Asked>,
    /// The guest's run state, and what it means, where it stands still.
    still: Option<(String, Still)>,
    /// Whether it was told that QEMU does not answer.
    lost: bool,
    next: MonoNs,
}

/// What QEMU is told.
struct Asked {
    command: &'static str,
    /// Its number, once it was sent.
    id: Option<u64>,
    end: MonoNs,
}

impl Watched {
    /// Begins with a connection to the control socket there.
    pub(crate) fn begin(qmp: Client, path: PathBuf, now: MonoNs) -> Self {
        Self { qmp: Some(qmp), path, asked: None, still: None, lost: false, next: now + WATCH }
    }

    /// Whether QEMU is to answer.
    pub(crate) const fn awaits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether QEMU did not answer when it was asked last.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Why the guest stands still, where it does.
    pub(crate) const fn still(&self) -> Option<&(String, Still)> {
        self.still.as_ref()
    }

    /// Takes what QEMU has said, and sends what waits; whether QEMU does what it is told.
    pub(crate) fn go_on(&mut self, now: MonoNs, tell: &mut dyn FnMut(&str)) -> bool {
        for _ in 0..MESSAGES {
            match self.qmp.as_mut().map(Client::take) {
                Some(Ok(Some(Message::Event(name)))) => {
                    happened(&name, tell);
                    // Why it does not run any more, or that it does, is asked at once.
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
                        Err(why) => {
                            tell(&QmpError::Refused { command: asked.command.to_owned(), why }.to_string());
                            return false;
                        }
                    }
                }
                Some(Ok(Some(Message::Greeting))) => {}
                Some(Ok(None)) | None => break,
                // It ends, mostly; if not, the next look says so.
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

    /// Takes how the guest stands; told when it changes.
    fn stands(&mut self, answer: &Value, tell: &mut dyn FnMut(&str)) {
        let state = answer["status"].as_str().unwrap_or("no word");
        let now = still(state).map(|still| (state.to_owned(), still));
        if now == self.still {
            return;
        }
        self.still = now;
        match &self.still {
            Some(still) => tell(&said(still)),
            None => tell("the guest goes on"),
        }
    }

    fn lose(&mut self, error: &QmpError, tell: &mut dyn FnMut(&str)) -> bool {
        (self.qmp, self.asked) = (None, None);
        if !std::mem::replace(&mut self.lost, true) {
            tell(&format!("{error}; the guest is left alone, QEMU is tried again every {WATCH}"));
        }
        false
    }

    /// Has QEMU told something as soon as it listens; whether there is anybody to be told.
    fn ask(&mut self, command: &'static str, now: MonoNs) -> bool {
        if self.qmp.is_none() {
            self.qmp = Client::begin(&self.path, ANSWER_WITHIN).ok();
        }
        self.asked = self.qmp.is_some().then_some(Asked { command, id: None, end: now + ANSWER_WITHIN });
        self.qmp.is_some()
    }

    /// Asks QEMU now and then whether it is still there.
    pub(crate) fn look(&mut self, now: MonoNs) {
        if now >= self.next && self.asked.is_none() {
            self.ask(QUERY, now);
            self.next = now + WATCH;
        }
    }

    /// Takes a step of a stop, for the first time or `again`; whether it can be.
    pub(crate) fn step(
        &mut self,
        step: Step,
        again: bool,
        qemu: &mut Qemu,
        now: MonoNs,
        tell: &mut dyn FnMut(&str),
    ) -> bool {
        let (command, said) = match step {
            Step::Powerdown => ("system_powerdown", "the guest is asked to shut down"),
            Step::Quit => ("quit", "QEMU is asked to quit"),
            Step::Kill => {
                tell("QEMU is killed");
                return qemu.child.kill().is_ok();
            }
        };
        if again {
            // One that has not answered yet is waited for as before; who does not listen any more ends, mostly.
            if self.asked.is_none() {
                self.ask(command, now);
            }
            return true;
        }
        tell(said);
        // It shall be told in any case.
        self.lost = false;
        self.ask(command, now)
    }
}

/// That a guest stands still, in a line.
pub(crate) fn said((state, Still { what, remedy, .. }): &(String, Still)) -> String {
    format!("the guest STANDS STILL ({}): {what}; {remedy}", Visible { text: state, colours: false })
}

/// What the guest does with its power is worth a line; presses of its button, each an event, and hundreds of others are not.
fn happened(event: &str, tell: &mut dyn FnMut(&str)) {
    let worth =
        ["SHUTDOWN", "RESET", "GUEST_PANICKED", "WATCHDOG", "STOP", "RESUME", "BLOCK_IO_ERROR", "SUSPEND", "WAKEUP"];
    if worth.contains(&event) {
        tell(&format!("event {event}"));
    }
}

//! Safe-output commands, which put the equipment into a safe state. They run in parallel with everything else.

use super::processes::Processes;
use super::reporter::Reporter;
use super::site::Site;
use crate::keeper::protocol::End;
use crate::launch::{self, CapabilityError, LaunchError, Terminal};
use base::{DurNs, MonoNs};
use host::plant::{Process, Signal};
use host::supervise::Id;
use sys::child::{Waited, look};
use sys::clock::mono_now;
use sys::process::Process as Child;

/// Maximum run time of a command.
const WITHIN: DurNs = DurNs::from_secs(10);

/// Interval for checking running commands.
const LOOK_EVERY: DurNs = DurNs::from_ms(10);

/// The running commands.
#[derive(Debug, Default)]
pub(crate) struct SafeOutputs(Vec<Run>);

#[derive(Debug)]
struct Run {
    id: Id,
    process: Child,
    until: MonoNs,
    killed: bool,
}

/// A reason why a command did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl SafeOutputs {
    /// Whether no command is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Time of the next check of the running commands.
    pub(crate) fn due(&self, now: MonoNs) -> Option<MonoNs> {
        self.0.iter().map(|run| run.until.min(now + LOOK_EVERY)).min()
    }

    /// Starts a process's command, as the process's own user: the folder in which the command is looked up may belong to
    /// that user.
    pub(crate) fn start(&mut self, id: Id, process: &Process, site: &Site, tell: &mut Reporter) {
        let Some(command) = &process.on_fault else { return };
        let start = || -> Result<Child, StartError> {
            let mut spec = site.launch(process, command)?;
            spec.terminal = Terminal::Null;
            spec.output = Some(site.run.log(Some(&process.name)));
            Ok(launch::start(&spec)?.process)
        };
        let now = mono_now();
        match start() {
            Ok(child) => self.0.push(Run { id, process: child, until: now + WITHIN, killed: false }),
            Err(why) => tell.event(now, &process.name, &format!("SAFE-OUTPUT COMMAND DID NOT START: {why}")),
        }
    }

    /// Reaps ended commands, and kills those that exceed their time.
    pub(crate) fn reap(&mut self, now: MonoNs, processes: &Processes, tell: &mut Reporter) {
        self.0.retain_mut(|run| {
            let (text, goes_on) = match look(run.process.pid(), false) {
                Ok(Waited::Ended(_)) if run.killed => return false,
                Ok(Waited::Ended(ended)) if ended.status == 0 => ("safe-output command done".to_owned(), false),
                Ok(Waited::Ended(ended)) => (format!("SAFE-OUTPUT COMMAND FAILED: {}", End::of(ended.status)), false),
                Err(error) => (format!("SAFE-OUTPUT COMMAND LOST: {error}"), false),
                Ok(_) if now < run.until => return true,
                Ok(_) if run.killed => ("SAFE-OUTPUT COMMAND LOST: SIGKILL does not end it".to_owned(), false),
                Ok(_) => {
                    // Signal the command's process group, so that its children end too.
                    let _ = run.process.signal_group(Signal::KILL.0.into());
                    (run.killed, run.until) = (true, now + WITHIN);
                    (format!("SAFE-OUTPUT COMMAND KILLED after {WITHIN}"), true)
                }
            };
            tell.event(now, processes.name(run.id), &text);
            goes_on
        });
    }
}

//! Safe-output commands, which put the equipment into a safe state. They run in parallel with everything else.

use super::logs::Level;
use super::processes::Processes;
use super::reporter::Reporter;
use super::site::Site;
use crate::keeper::protocol::End;
use crate::launch::{self, CapabilityError, LaunchError, Terminal};
use base::{DurNs, MonoNs};
use host::health::Observation;
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

/// The runs of a process's command that are over.
#[derive(Debug, Default)]
pub(crate) struct SafeOutputRuns {
    /// Number of failed runs.
    failed: u64,
    /// Failure of the last one that failed.
    failure: String,
    /// Result of the last run: whether it succeeded.
    last: Option<bool>,
}

impl SafeOutputRuns {
    /// Adds a run. `failure`: why it failed.
    fn note(&mut self, failure: Option<String>) {
        self.last = Some(failure.is_none());
        if let Some(failure) = failure {
            (self.failed, self.failure) = (self.failed.saturating_add(1), failure);
        }
    }

    /// Observes the runs. `seen`: the number of failed runs at the last observation.
    pub(crate) fn observe(&self, seen: &mut u64) -> Observation {
        let has_failed = self.failed > std::mem::replace(seen, self.failed);
        match self.last {
            None => Observation::NotDue("no fault has required it".to_owned()),
            Some(true) if !has_failed => Observation::Kept,
            Some(_) => Observation::Broken(format!("its safe-output command {}", self.failure)),
        }
    }
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
    pub(crate) fn start(
        &mut self,
        id: Id,
        process: &Process,
        site: &Site,
        runs: &mut SafeOutputRuns,
        tell: &mut Reporter,
    ) {
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
            Err(why) => {
                tell.error(now, &process.name, &format!("SAFE-OUTPUT COMMAND DID NOT START: {why}"));
                runs.note(Some(format!("did not start: {why}")));
            }
        }
    }

    /// Reaps ended commands, and kills those that exceed their time.
    pub(crate) fn reap(&mut self, now: MonoNs, processes: &mut Processes, tell: &mut Reporter) {
        self.0.retain_mut(|run| {
            let (failure, goes_on) = match look(run.process.pid(), false) {
                Ok(Waited::Ended(_)) if run.killed => return false,
                Ok(Waited::Ended(ended)) if ended.status == 0 => (None, false),
                Ok(Waited::Ended(ended)) => (Some(("FAILED", End::of(ended.status).to_string())), false),
                Err(error) => (Some(("LOST", error.to_string())), false),
                Ok(_) if now < run.until => return true,
                Ok(_) if run.killed => (Some(("LOST", "SIGKILL does not end it".to_owned())), false),
                Ok(_) => {
                    // Signal the command's process group, so that its children end too.
                    let _ = run.process.signal_group(Signal::KILL.0.into());
                    (run.killed, run.until) = (true, now + WITHIN);
                    (Some(("KILLED", format!("no end within {WITHIN}"))), true)
                }
            };
            let text = match &failure {
                Some((what, why)) => format!("SAFE-OUTPUT COMMAND {what}: {why}"),
                None => "safe-output command done".to_owned(),
            };
            let level = if failure.is_some() { Level::Error } else { Level::Info };
            tell.message(level, now, processes.name(run.id), &text);
            let failure = failure.map(|(what, why)| format!("{}: {why}", what.to_lowercase()));
            processes[run.id].safe_outputs.note(failure);
            goes_on
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_is_observed_also_if_the_next_one_succeeds_before_the_observation() {
        let (mut runs, mut seen) = (SafeOutputRuns::default(), 0);
        assert!(matches!(runs.observe(&mut seen), Observation::NotDue(_)));
        runs.note(None);
        assert_eq!(runs.observe(&mut seen), Observation::Kept);
        runs.note(Some("failed: exit status 1".to_owned()));
        runs.note(None);
        let broken = Observation::Broken("its safe-output command failed: exit status 1".to_owned());
        assert_eq!(runs.observe(&mut seen), broken);
        assert_eq!(runs.observe(&mut seen), Observation::Kept);
        runs.note(Some("failed: exit status 1".to_owned()));
        assert_eq!([runs.observe(&mut seen), runs.observe(&mut seen)], [broken.clone(), broken]);
    }
}

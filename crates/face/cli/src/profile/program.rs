//! Starts a program so that it can be observed from its first instruction.

use crate::failure::Failure;
use base::DurNs;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use sys::child::Waited;
use sys::process::Process;
use sys::program::find;
use sys::spawn::{HeldChild, PlannedStep, Prepared, Step};

/// Maximum time for a program to end after SIGTERM.
const END: DurNs = DurNs::from_secs(5);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A process that has a pid but waits before it executes the program.
pub(super) struct Waiting {
    held: HeldChild,
    name: String,
    pub(super) pid: i32,
}

/// A running program. Dropping it ends and reaps the process.
pub(super) struct Running {
    pub(super) pid: i32,
    process: Process,
    ended: bool,
}

/// Prepares `words[0]`, found as a shell would find it. The variables `more` are added to its environment.
pub(super) fn prepare(words: &[OsString], more: &[(String, OsString)]) -> Result<Waiting, Failure> {
    let name = words.first().ok_or("no program given")?;
    let path = find(name, Path::new("."), None)?;
    let text =
        |bytes: Vec<u8>| CString::new(bytes).map_err(|_| format!("{name:?}: arguments must not contain a zero byte"));
    let argv = words.iter().map(|word| text(word.clone().into_vec())).collect::<Result<_, _>>()?;
    let replaced = |key: &OsString| more.iter().any(|(name, _)| key.as_os_str() == name.as_str());
    let kept = std::env::vars_os().filter(|(key, _)| !replaced(key));
    let added = more.iter().map(|(key, value)| (OsString::from(key), value.clone()));
    let variable = |(key, value): (OsString, OsString)| {
        let mut bytes = key.into_vec();
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        text(bytes)
    };
    let envp = kept.chain(added).map(variable).collect::<Result<_, _>>()?;
    let steps = [Step::ResetSignals, Step::Hold].map(|step| PlannedStep { step, required: true });
    let prepared = Prepared::new(text(path.into_os_string().into_vec())?, argv, envp, steps.to_vec());
    let held = prepared.hold()?;
    let pid = held.process().map(Process::pid).ok_or_else(|| format!("`{}` could not be started", name.display()))?;
    Ok(Waiting { held, name: name.to_string_lossy().into_owned(), pid })
}

impl Waiting {
    /// Executes the program.
    pub(super) fn go(self) -> Result<Running, Failure> {
        let spawned = self.held.go()?;
        match (spawned.child, spawned.refused.last()) {
            (Some(process), _) => Ok(Running { pid: process.pid(), process, ended: false }),
            (None, Some(refused)) => {
                let why = std::io::Error::from(refused.errno);
                Err(format!("`{}` could not be started: {why}", self.name).into())
            }
            (None, None) => Err(format!("`{}` could not be started", self.name).into()),
        }
    }
}

impl Running {
    /// Whether the program has ended.
    pub(super) fn has_ended(&mut self) -> sys::Result<bool> {
        if !self.ended {
            let waited = sys::child::look(self.pid, false)?;
            self.ended = matches!(waited, Waited::Ended(_) | Waited::NoChildren);
        }
        Ok(self.ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() != Ok(false) {
            return;
        }
        let _ = self.process.signal(SIGTERM);
        let until = sys::clock::mono_now() + END;
        while self.has_ended() == Ok(false) {
            if sys::clock::mono_now() > until {
                // No process survives SIGKILL. The next pass reaps it.
                let _ = self.process.signal(SIGKILL);
            }
            sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(10));
        }
    }
}

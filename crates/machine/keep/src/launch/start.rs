//! From a [`LaunchSpec`] to a running process.

use super::explain::explain;
use super::lock::{Locked, lock_memory};
use super::plan::Plan;
use super::{LaunchSpec, Shortfall};
use crate::keeper::protocol::ChildId;
use crate::supervisor::SERVICE_VARIABLES;
use base::DurNs;
use rustix::fd::{AsFd as _, OwnedFd};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use sys::child::Waited;
use sys::process::{Process, start_ticks};
use sys::root::RootDir;
use sys::signal::SIGKILL;
use sys::spawn::{Prepared, Refusal};

/// A process that could not be started as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// The process's name.
    pub process: String,
    /// The request that failed.
    pub wanted: String,
    /// The kernel's error, or the missing thing.
    pub found: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot start {}: no {}: {}; {}", self.process, self.wanted, self.found, self.remedy)
    }
}

impl std::error::Error for LaunchError {}

/// A running process, and the starter's ends of its streams.
#[derive(Debug)]
pub struct Started {
    /// The process.
    pub child: ChildId,
    /// The handle for signals to it.
    pub process: Process,
    /// The process ended before its first instruction (out of memory while its memory was locked, or a damaged
    /// program). Its parent reaps it like any other child.
    pub ended: bool,
    /// Requests that were not fulfilled; empty if the spec requires everything.
    pub shortfalls: Vec<Shortfall>,
    /// The other end of its terminal, for [`Terminal::Pty`](super::Terminal::Pty) and
    /// [`Terminal::FreePty`](super::Terminal::FreePty).
    pub pty: Option<OwnedFd>,
    /// The reading ends of its output and error, for [`Terminal::Pipes`](super::Terminal::Pipes).
    pub pipes: Option<[OwnedFd; 2]>,
}

/// Starts a process. Everything in the spec is set before its first instruction.
///
/// The calling thread is its parent and must reap it.
///
/// # Errors
/// The request that failed, with the remedy. No process runs then.
pub fn start(spec: &LaunchSpec) -> Result<Started, LaunchError> {
    hold(spec)?.go()
}

/// A process that exists and has a PID, but no scheduling class, CPUs or program yet. A guard can watch it before it
/// can use processor time. Dropping the value ends it.
#[derive(Debug)]
pub struct HeldProcess {
    spec: LaunchSpec,
    program: PathBuf,
    plan: Plan,
    held: sys::spawn::HeldChild,
    child: ChildId,
}

/// Starts a process up to the point before its class is set. It waits for [`HeldProcess::go`].
///
/// The calling thread is its parent and must reap it.
///
/// # Errors
/// The request that failed, with the remedy. No process runs then.
pub fn hold(spec: &LaunchSpec) -> Result<HeldProcess, LaunchError> {
    let error = |wanted: &str, found: String, remedy: &str| LaunchError {
        process: spec.name.clone(),
        wanted: wanted.to_owned(),
        found,
        remedy: remedy.to_owned(),
    };
    if spec.argv.is_empty() {
        return Err(error("program", "the command is empty".into(), "name a program"));
    }
    let here = spec.dir.as_deref().unwrap_or(Path::new("."));
    let program = sys::program::find(&spec.argv[0], here, spec.env.get("PATH").map(String::as_str))
        .map_err(|found| error("program", found.to_string(), "check its path and PATH"))?;
    let plan = Plan::of(spec, &program)?;
    let words = |words: &mut dyn Iterator<Item = OsString>| -> Result<Vec<CString>, LaunchError> {
        words
            .map(|word| {
                CString::new(word.into_vec())
                    .map_err(|_| error("such word", "it holds a zero byte".into(), "remove it"))
            })
            .collect()
    };
    let argv = words(&mut spec.argv.iter().cloned())?;
    let variables = environment(spec, &plan.user_variables, &plan.variables).into_iter();
    let envp = words(&mut variables.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    }))?;
    let file = CString::new(program.as_os_str().as_bytes())
        .map_err(|_| error("program", "its path holds a zero byte".into(), "remove it"))?;
    let mut prepared = Prepared::new(file, argv, envp, plan.steps.clone());
    if spec.watchdog.is_some() {
        prepared = prepared.with_pid_variable(c"WATCHDOG_PID".to_owned());
    }
    let held = prepared
        .hold()
        .map_err(|cause| error("process", cause.to_string(), "see the limits (ulimit -u, pids cgroup)"))?;
    let Some(pid) = held.process().map(Process::pid) else {
        let refused = held.go().map_or(Vec::new(), |spawned| spawned.refused);
        return Err(plan.failed(spec, &program, &refused));
    };
    let Some(start_ticks) = start_ticks(pid) else {
        return Err(error("process", format!("process {pid} vanished"), "try again"));
    };
    Ok(HeldProcess { spec: spec.clone(), program, plan, held, child: ChildId { pid, start_ticks } })
}

impl HeldProcess {
    /// The process.
    #[must_use]
    pub fn child(&self) -> ChildId {
        self.child
    }

    /// Call this if the process was killed while it waited, and the caller has reaped it.
    pub fn was_reaped(self) {
        self.held.was_reaped();
    }

    /// Continues: class, CPUs, memory lock, program. Everything is set before its first instruction.
    ///
    /// # Errors
    /// The request that failed, with the remedy. No process runs then.
    pub fn go(self) -> Result<Started, LaunchError> {
        let Self { spec, program, plan, held, child } = self;
        let failed = |error: sys::Error| LaunchError {
            process: spec.name.clone(),
            wanted: "memory lock".to_owned(),
            found: error.to_string(),
            remedy: "allow ptrace (kernel.yama.ptrace_scope, seccomp filters)".to_owned(),
        };
        let spawned = held.go().map_err(failed)?;
        let Some(process) = spawned.child else {
            return Err(plan.failed(&spec, &program, &spawned.refused));
        };
        let mut shortfalls = plan.shortfalls(&spec, &program, &spawned.refused);
        let mut ended = spawned.ended;
        if let Some(traced) = spawned.traced {
            match lock_memory(child.pid, traced) {
                Ok(locked) => ended = locked == Locked::Ended,
                Err(shortfall) if spec.require_rt => {
                    end(&process);
                    return Err(LaunchError::of(&spec, shortfall));
                }
                Err(shortfall) => shortfalls.push(shortfall),
            }
        }
        Ok(Started { child, process, ended, shortfalls, pty: plan.pty, pipes: plan.pipes })
    }
}

impl Plan {
    /// Requests that were not fulfilled.
    fn shortfalls(&self, spec: &LaunchSpec, program: &Path, refused: &[Refusal]) -> Vec<Shortfall> {
        let step = |refusal: &Refusal| refusal.step.map(|step| &self.steps[step].step);
        let explained = refused.iter().map(|refusal| explain(spec, program, step(refusal), refusal.errno));
        self.shortfalls.iter().cloned().chain(explained).collect()
    }

    /// Reason why no process runs: the last refusal ended it.
    fn failed(&self, spec: &LaunchSpec, program: &Path, refused: &[Refusal]) -> LaunchError {
        let ended = || Shortfall {
            wanted: "process".to_owned(),
            found: "it ended at once".to_owned(),
            remedy: "try again".to_owned(),
        };
        LaunchError::of(spec, self.shortfalls(spec, program, refused).pop().unwrap_or_else(ended))
    }
}

impl LaunchError {
    fn of(spec: &LaunchSpec, Shortfall { wanted, found, remedy }: Shortfall) -> Self {
        Self { process: spec.name.clone(), wanted, found, remedy }
    }
}

/// Maximum parents that are followed.
const PARENTS_MAX: usize = 256;

/// Whether `pid` is `ancestor` or descends from it now.
pub(crate) fn is_below(pid: i32, ancestor: i32) -> bool {
    let parent = |pid: i32| -> Option<i32> {
        let text = RootDir::machine().read(&format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let mut line = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|pid| *pid > 0));
    line.by_ref().take(PARENTS_MAX).any(|pid| pid == ancestor)
}

/// UID that a process would run as; `None` if it is the starter's, or if the user does not exist.
pub(crate) fn user_of(spec: &LaunchSpec) -> Option<u32> {
    super::users::identity(spec.user.as_deref(), spec.group.as_deref()).ok()?.uid
}

/// Variables that every process inherits from its starter: search path, language, time zone and terminal type.
const PASSED: [&str; 6] = ["PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM"];

/// The variables of a process.
fn environment(
    spec: &LaunchSpec,
    user: &[(&'static str, String)],
    added: &[(String, String)],
) -> BTreeMap<OsString, OsString> {
    let passes = |name: &str| match &spec.env_pass {
        _ if spec.env_clear => false,
        Some(_) if SERVICE_VARIABLES.contains(&name) => false,
        None => true,
        Some(more) => {
            let mut patterns = PASSED.into_iter().chain(more.iter().map(String::as_str));
            patterns.any(|pattern| base::glob(pattern, name))
        }
    };
    // Values pass as they are, whatever their encoding.
    let own = std::env::vars_os().filter(|(name, _)| passes(&name.to_string_lossy()));
    let mut all: BTreeMap<OsString, OsString> = own.collect();
    all.extend(user.iter().map(|(name, value)| ((*name).into(), value.into())));
    all.extend(spec.env.iter().map(|(name, value)| (name.into(), value.into())));
    all.extend(added.iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(within) = spec.watchdog {
        // This variable is meant for the starter only.
        all.remove(OsStr::new("WATCHDOG_PID"));
        all.insert("WATCHDOG_USEC".into(), (within.0.max(1000) / 1000).to_string().into());
    }
    all
}

/// Ends a process that must not run, and reaps it.
fn end(process: &Process) {
    // The process may have ended; then the error is ignored.
    let _ = process.signal(SIGKILL);
    while matches!(sys::child::look(process.pid(), false), Ok(Waited::Nothing)) {
        // SIGKILL ends it; an interrupted wait only causes an extra round.
        sys::poll::is_readable(process.as_fd(), DurNs::from_secs(1));
    }
}

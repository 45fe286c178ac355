//! Locks the memory of programs that do not lock it themselves: `mlockall`, injected at `exec`.

use super::users::Identity;
use super::{Capability, LaunchSpec, Resource, Shortfall};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use sys::root::RootDir;
use sys::trace::Traced;

fn shortfall(found: String, remedy: impl Into<String>) -> Shortfall {
    Shortfall { wanted: "memory lock".to_owned(), found, remedy: remedy.into() }
}

/// Checks before the start that the memory of this program can be locked from outside.
pub(super) fn lockable(spec: &LaunchSpec, program: &Path, identity: &Identity) -> Result<(), Shortfall> {
    let special = program.metadata().is_ok_and(|data| data.permissions().mode() & 0o6000 != 0);
    let mut none = [0u8; 0];
    let with_capabilities =
        rustix::fs::getxattr(program, c"security.capability", &mut none[..]).is_ok_and(|size| size > 0);
    if special || with_capabilities {
        let what = if special { "setuid or setgid" } else { "given capabilities by its file" };
        return Err(shortfall(
            format!("{} is {what}: the kernel does not allow tracing it at exec", program.display()),
            "start it as its user, with `capabilities`, instead; or let it call mlockall itself",
        ));
    }
    let root = RootDir::machine();
    let status = root.read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let own = effective.unwrap_or(0) & Capability::IPC_LOCK.bit() != 0;
    let stays_root = identity.uid.map_or(own, |uid| uid == 0 && own);
    let capable = match &spec.capabilities {
        Some(kept) => kept.contains(&Capability::IPC_LOCK),
        None => stays_root,
    };
    let unlimited = match spec.limits.iter().find(|limit| limit.resource == Resource::Locked) {
        Some(limit) => limit.value.is_none(),
        None => root.read("/proc/self/limits").is_ok_and(|text| {
            text.lines().any(|line| line.starts_with("Max locked memory") && line.contains("unlimited"))
        }),
    };
    if capable || unlimited {
        return Ok(());
    }
    Err(shortfall(
        "its locked memory is limited and it has no CAP_IPC_LOCK: later allocations would fail".to_owned(),
        "add CAP_IPC_LOCK to its capabilities, or lift the limit (`ulimit -l unlimited`, LimitMEMLOCK=infinity)",
    ))
}

/// Result of locking a child's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locked {
    /// It runs, with its memory locked.
    Runs,
    /// The process ended before (out of memory, or killed), and is not reaped.
    Ended,
}

/// Locks the present and future memory of a child that is stopped at its `exec`, and continues it. After an error it
/// continues without the lock. Verified with `VmLck` of `/proc/PID/status`.
pub(super) fn lock_memory(pid: i32, mut traced: Traced) -> Result<Locked, Shortfall> {
    let failed =
        |error: sys::Error| shortfall(error.to_string(), "allow ptrace (kernel.yama.ptrace_scope, seccomp filters)");
    let answer = traced.lock_memory().map_err(failed);
    let status = RootDir::machine().read(&format!("/proc/{pid}/status")).unwrap_or_default();
    let runs = traced.release().map_err(failed)?;
    let Some(answer) = answer?.filter(|_| runs) else { return Ok(Locked::Ended) };
    let locked =
        status.lines().find_map(|line| line.strip_prefix("VmLck:")?.trim().split(' ').next()?.parse::<u64>().ok());
    match (answer, locked) {
        (0, Some(1..)) => Ok(Locked::Runs),
        (0, _) => Err(shortfall(
            "mlockall succeeded, but /proc/PID/status shows nothing locked".to_owned(),
            "report this with the kernel's version",
        )),
        (errno, _) => Err(shortfall(
            format!("mlockall: {}", std::io::Error::from_raw_os_error(-errno as i32)),
            "add CAP_IPC_LOCK to its capabilities, or lift the limit (`ulimit -l unlimited`)",
        )),
    }
}

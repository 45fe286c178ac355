//! Suspends the reservations of tahti's guards while a shield changes.
//!
//! The kernel keeps a DEADLINE thread on all CPUs of its root domain. A guard of any plant, or of `tahti run`, would
//! thus forbid every shield. Here each guard becomes FIFO 99, which only DEADLINE can delay, and gets its reservation
//! back afterwards. If the kernel refuses to restore it, the guard stays FIFO 99, like a guard that never had a
//! reservation.

use base::{Policy, Priority};
use host::plan::{GUARD, PlanError, PlanErrors};
use sys::root::RootDir;
use sys::sched::{Scheduling, scheduling, try_set_scheduling};

/// Adds the plant and process name to each task whose reservation prevents the plan. Both are in the environment that a
/// plant gives its processes.
#[must_use]
pub fn with_owners(root: &RootDir, mut errors: PlanErrors) -> PlanErrors {
    for error in &mut errors.0 {
        let PlanError::Deadline { tasks } = error else { continue };
        for task in tasks {
            // Unknown for a process of another user and for a process that has ended.
            let environment = root.read(&format!("/proc/{}/environ", task.process.0)).unwrap_or_default();
            let value = |name: &str| {
                let mut all = environment.split('\0').filter_map(|one| one.split_once('='));
                all.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
            };
            task.plant = value("TAHTI_PLANT").zip(value("TAHTI_PROCESS"));
        }
    }
    errors
}

/// Guards without their reservation. Dropping the value restores it.
#[derive(Debug)]
pub(super) struct SuspendedGuards(Vec<(i32, Scheduling)>);

impl SuspendedGuards {
    /// Suspends the reservation of every guard. Does nothing if `root` is not the machine.
    pub(super) fn suspend(root: &RootDir) -> Self {
        let mut guards = Self(Vec::new());
        if !root.is_machine() {
            return guards;
        }
        for pid in root.list("/proc").unwrap_or_default().iter().filter(|name| name.parse::<i32>().is_ok()) {
            // A process that has ended meanwhile has no threads.
            for tid in root.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
                let Ok(tid) = tid.parse::<i32>() else { continue };
                let Ok(before @ Scheduling { policy: Policy::Deadline(_), .. }) = scheduling(tid) else { continue };
                let comm = root.read(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
                let fixed = Scheduling { policy: Policy::Fifo(Priority(99)), ..before };
                // A guard that keeps its reservation makes the shield fail, with the kernel's error.
                if comm.trim_end() == GUARD && try_set_scheduling(tid, fixed).is_ok() {
                    guards.0.push((tid, before));
                }
            }
        }
        guards
    }
}

impl Drop for SuspendedGuards {
    fn drop(&mut self) {
        for (tid, before) in &self.0 {
            // Refused, or the guard has ended: it stays FIFO 99 (see above).
            let _ = try_set_scheduling(*tid, *before);
        }
    }
}

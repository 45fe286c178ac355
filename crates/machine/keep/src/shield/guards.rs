//! Guards of tahti and their reservations: given up while a shield changes.
//!
//! The kernel keeps a DEADLINE thread on all CPUs of its root domain, so a guard of any plant, or of `tahti run`, would forbid
//! every shield. Here each becomes FIFO 99, which no other class but DEADLINE delays, and gets its reservation back afterwards.
//! If the kernel refuses that, it stays FIFO 99, as a guard does that never had a reservation.

use base::{Policy, Priority};
use host::plan::GUARD;
use sys::root::RootDir;
use sys::sched::{Scheduling, scheduling, try_set_scheduling};

/// Guards that have given their reservation up; they get it back when the value is dropped.
#[derive(Debug)]
pub(super) struct Aside(Vec<(i32, Scheduling)>);

impl Aside {
    /// Has every guard of the machine give its reservation up; of a machine that is none, nothing.
    pub(super) fn step(root: &RootDir) -> Self {
        let mut aside = Self(Vec::new());
        if !root.is_machine() {
            return aside;
        }
        for pid in root.list("/proc").unwrap_or_default().iter().filter(|name| name.parse::<i32>().is_ok()) {
            // A process that has ended meanwhile has no threads.
            for tid in root.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
                let Ok(tid) = tid.parse::<i32>() else { continue };
                let Ok(before @ Scheduling { policy: Policy::Deadline(_), .. }) = scheduling(tid) else { continue };
                let comm = root.read(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
                let fixed = Scheduling { policy: Policy::Fifo(Priority(99)), ..before };
                // One that keeps its reservation is in the way: the kernel says so.
                if comm.trim_end() == GUARD && try_set_scheduling(tid, fixed).is_ok() {
                    aside.0.push((tid, before));
                }
            }
        }
        aside
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for (tid, before) in &self.0 {
            // Refused, or gone: see above.
            let _ = try_set_scheduling(*tid, *before);
        }
    }
}

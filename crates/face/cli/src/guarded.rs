//! A guard within the process that it watches, for tahti processes with real-time threads that run without a
//! supervisor.

use crate::failure::Failure;
use base::{CpuSet, DurNs};
use host::guard::{BUDGET, Rung, RungAction, STARVED_AFTER};
use keep::guard::{Guard, WatchSpec};
use keep::keeper::protocol::ChildId;
use std::os::fd::AsFd as _;

/// Starts a guard on this process with the usual limits. The guard cannot stop the process, because it is part of it.
pub(crate) fn guard(keep_off: CpuSet) -> Result<(), Failure> {
    let rung = |action, wait| Rung { action, wait };
    let pid = std::process::id() as i32;
    let (mut guard, lacks) = Guard::start(&keep_off)?;
    lacks.iter().for_each(|lack| eprintln!("tahti msg: {lack}"));
    let start_ticks = keep::launch::start_ticks(pid).ok_or("/proc is not mounted")?;
    let ladder = vec![
        rung(RungAction::Demote, DurNs::from_ms(500)),
        rung(RungAction::Abort, DurNs::from_secs(2)),
        rung(RungAction::Kill, DurNs::from_secs(1)),
    ];
    let child = ChildId { pid, start_ticks };
    let (budget, starved_after) = (BUDGET, STARVED_AFTER);
    let watch = WatchSpec { child, ancestor: pid, budget, ladder, heartbeat: None, freezer: None, starved_after };
    guard.watch(watch)?;
    // Runs for the lifetime of the process.
    std::thread::spawn(move || {
        loop {
            while let Some(event) = guard.next_event() {
                eprintln!("tahti msg: thread {}: {}", event.tid, keep::evidence::describe(&event.what));
            }
            sys::poll::is_readable(guard.as_fd(), DurNs::from_secs(3600));
        }
    });
    Ok(())
}

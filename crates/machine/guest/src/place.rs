//! Threads of virtual CPUs: who they are, as QEMU says it and the kernel confirms it, and where they run.

use crate::model::Guest;
use crate::qmp::{Client, QmpError};
use base::{CpuSet, Policy};
use std::path::Path;
use sys::sched::{Scheduling, affinity, scheduling, set_affinity, set_scheduling};

/// The thread of a virtual CPU, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// The virtual CPU's number.
    pub index: u64,
    /// Its thread.
    pub tid: i32,
    /// Where it may run.
    pub cpus: CpuSet,
    /// Its class.
    pub class: Policy,
}

/// Why threads are not where they should be.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// QEMU did not say who they are.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// What it said makes no sense.
    #[error("virtual CPU {index}: QEMU names thread {tid}, which is none of its own")]
    Foreign {
        /// The virtual CPU.
        index: u64,
        /// The thread.
        tid: i64,
    },
    /// The kernel refuses.
    #[error(
        "virtual CPU {index}: {error}; are `vcpu_cpus` within the CPUs of the process, and may it have `vcpu_class`?"
    )]
    Kernel {
        /// The virtual CPU.
        index: u64,
        /// Its answer.
        error: sys::Error,
    },
    /// The shield does not take it.
    #[error("virtual CPU {index} is for CPUs of the shield, which does not take its thread ({}: {error}); may this user change it?", .entry.display())]
    Shield {
        /// The virtual CPU.
        index: u64,
        /// The shield's file for threads.
        entry: std::path::PathBuf,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// It took place, but did not last.
    #[error("virtual CPU {index} is on CPUs {} in class {}, not where it was put", .found.cpus, .found.class)]
    Elsewhere {
        /// The virtual CPU.
        index: u64,
        /// Where it is.
        found: Box<Vcpu>,
    },
}

/// The threads of the virtual CPUs of the QEMU that is process `pid`.
///
/// # Errors
/// QEMU does not answer, names what is not its own, or the kernel does not know them.
pub fn vcpus(qmp: &mut Client, pid: i32) -> Result<Vec<Vcpu>, PlaceError> {
    let answer = qmp.call("query-cpus-fast")?;
    let all = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |cpu: &serde_json::Value| {
        let index = cpu["cpu-index"].as_u64().unwrap_or_default();
        let tid = cpu["thread-id"].as_i64().unwrap_or_default();
        let own = i32::try_from(tid).ok().filter(|tid| *tid > 0);
        let own = own.filter(|tid| Path::new(&format!("/proc/{pid}/task/{tid}")).exists());
        look(index, own.ok_or(PlaceError::Foreign { index, tid })?)
    };
    all.iter().map(one).collect()
}

fn look(index: u64, tid: i32) -> Result<Vcpu, PlaceError> {
    let kernel = |error| PlaceError::Kernel { index, error };
    Ok(Vcpu { index, tid, cpus: affinity(tid).map_err(kernel)?, class: scheduling(tid).map_err(kernel)?.policy })
}

/// Puts the threads where the guest's description wants them, and reads back that they are there.
///
/// # Errors
/// As [`vcpus`]; the kernel refuses, or a thread is elsewhere afterwards.
pub fn place(guest: &Guest, qmp: &mut Client, pid: i32) -> Result<Vec<Vcpu>, PlaceError> {
    let mut placed = Vec::new();
    for Vcpu { index, tid, .. } in vcpus(qmp, pid)? {
        let kernel = |error| PlaceError::Kernel { index, error };
        if let Some(cpus) = &guest.vcpu_cpus {
            if let Some(home) = guest.home.as_ref().filter(|home| home.cpus.intersects(cpus)) {
                std::fs::write(&home.entry, tid.to_string()).map_err(|error| PlaceError::Shield {
                    index,
                    entry: home.entry.clone(),
                    error,
                })?;
            }
            set_affinity(tid, cpus).map_err(kernel)?;
        }
        if let Some(policy) = guest.vcpu_class {
            set_scheduling(tid, Scheduling { policy, reset_on_fork: false }).map_err(kernel)?;
        }
        let found = look(index, tid)?;
        if guest.vcpu_cpus.is_some_and(|cpus| cpus != found.cpus)
            || guest.vcpu_class.is_some_and(|class| class != found.class)
        {
            return Err(PlaceError::Elsewhere { index, found: Box::new(found) });
        }
        placed.push(found);
    }
    Ok(placed)
}

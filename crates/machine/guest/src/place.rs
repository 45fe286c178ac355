//! Threads of virtual CPUs: identified by QEMU, confirmed by the kernel, and placed on CPUs.

use crate::model::Guest;
use crate::qmp::{Client, QmpError};
use base::{CpuSet, Policy};
use std::path::Path;
use sys::sched::{Scheduling, affinity, scheduling, set_affinity, set_scheduling};

/// The thread of a virtual CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// The virtual CPU's number.
    pub index: u64,
    /// Its thread.
    pub tid: i32,
    /// CPUs that the thread may use.
    pub cpus: CpuSet,
    /// Scheduling class.
    pub class: Policy,
}

/// Reason why threads are not placed as configured.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// QEMU did not identify the threads.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// QEMU named a thread of another process.
    #[error("virtual CPU {index}: QEMU reports thread {tid}, which is not a thread of QEMU")]
    Foreign {
        /// The virtual CPU.
        index: u64,
        /// The thread.
        tid: i64,
    },
    /// The kernel refused the placement.
    #[error(
        "virtual CPU {index}: {error}; are `vcpu_cpus` within the CPUs of the process, and may it have `vcpu_class`?"
    )]
    Kernel {
        /// The virtual CPU.
        index: u64,
        /// The kernel's error.
        error: sys::Error,
    },
    /// The shield did not accept the thread.
    #[error("virtual CPU {index} is for CPUs of the shield, which does not take its thread ({}: {error}); may this user change it?", .entry.display())]
    Shield {
        /// The virtual CPU.
        index: u64,
        /// The shield's file for thread IDs.
        entry: std::path::PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The placement succeeded, but reads otherwise.
    #[error("virtual CPU {index} is on CPUs {} in class {}, not where it was put", .found.cpus, .found.class)]
    Elsewhere {
        /// The virtual CPU.
        index: u64,
        /// The placement found.
        found: Box<Vcpu>,
    },
}

/// The threads of the virtual CPUs of the QEMU with process ID `pid`.
///
/// # Errors
/// QEMU does not answer, names threads of another process, or the kernel does not know them.
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

/// Places the threads as configured for the guest, and reads the placement back.
///
/// # Errors
/// Errors of [`vcpus`]; the kernel refuses, or a thread is elsewhere afterwards.
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

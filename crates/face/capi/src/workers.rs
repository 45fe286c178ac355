//! Fork-join teams for C.

use crate::{Failed, fail, handle, open, text};
use base::{CpuId, DurNs, Policy, Priority};
use rt::team::{Team, TeamError, TeamSpec, Times, Worker};
use std::ffi::{CString, c_char, c_int, c_void};

/// See `tahti.h`.
#[allow(non_camel_case_types, missing_docs, reason = "the names and the documentation of tahti.h")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tahti_team_spec {
    pub size: u32,
    pub workers: u32,
    pub name: *const c_char,
    pub cpus: *const i32,
    pub priority: i32,
    pub reserved: u32,
    pub spin_ns: u64,
    pub limit_ns: u64,
    pub part_bytes: u64,
}

/// See `tahti.h`.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub type tahti_job = unsafe extern "C" fn(*mut c_void, *mut c_void, u32, u32);

/// Maximum number of workers of a team. No machine has as many CPUs.
const WORKERS_MAX: u32 = 4096;
/// Maximum bytes of a part. No larger part has an address.
const PART_MAX: u64 = 1 << 46;

/// Memory on separate cache lines: pairs of 64 bytes, because the adjacent line is prefetched.
#[derive(Clone)]
#[repr(C, align(128))]
struct Lines([u8; 128]);

/// Private memory of a worker.
type Part = Vec<Lines>;

/// The function that all threads of the team call, with its argument.
#[derive(Clone, Copy)]
struct Job {
    call: tahti_job,
    user: *mut c_void,
}

// SAFETY: tahti.h documents that the function is called on all threads of the team at the same time, with the given
// `user`.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    fn run(&self, part: &mut Part, me: Worker) {
        let part = if part.is_empty() { std::ptr::null_mut() } else { part.as_mut_ptr().cast() };
        // SAFETY: the caller's function, called with the caller's `user` and memory that belongs to this thread for
        // the call.
        unsafe { (self.call)(self.user, part, me.index as u32, me.of as u32) }
    }
}

/// A team, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
pub struct tahti_team {
    team: Team<Job, Part>,
    missing: Vec<CString>,
}

/// See `tahti.h`.
///
/// # Safety
/// `spec` is NULL, or points at a structure of its declared size, with a name that ends with a zero, and with NULL or a
/// CPU for each thread of the team. `make` (or NULL) and `job` may be called with `user` on all threads of the team
/// until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_start(
    spec: *const tahti_team_spec,
    make: Option<tahti_job>,
    job: Option<tahti_job>,
    user: *mut c_void,
) -> *mut tahti_team {
    let start = || {
        let call = job.ok_or("the job is NULL; expected a function")?;
        // SAFETY: the caller's promise. NULL is handled.
        let size = if spec.is_null() { 0 } else { unsafe { spec.cast::<u32>().read() } };
        if (size as usize) < size_of::<tahti_team_spec>() {
            return Err("the spec is NULL or too small; expected `size` to be its sizeof".into());
        }
        // SAFETY: not NULL, and as large as it says.
        let spec = unsafe { spec.read() };
        // SAFETY: the caller's promise.
        let name = unsafe { text("the name", spec.name) }?;
        if spec.workers > WORKERS_MAX || spec.part_bytes > PART_MAX {
            let (workers, bytes) = (spec.workers, spec.part_bytes);
            return Err(format!(
                "team {name:?}: {workers} workers with {bytes} bytes each; expected at most {WORKERS_MAX} workers, {PART_MAX} bytes"
            ).into());
        }
        let cpus: Vec<i32> = if spec.cpus.is_null() {
            vec![-1; spec.workers as usize + 1]
        } else {
            // SAFETY: the caller's promise: one for the leader and each worker.
            unsafe { std::slice::from_raw_parts(spec.cpus, spec.workers as usize + 1) }.to_vec()
        };
        let lines = usize::try_from(spec.part_bytes.div_ceil(128))?;
        let spec = read(name, &spec, &cpus)?;
        let made = make.map(|call| Job { call, user });
        // Allocated on the worker's own thread and CPU: writing the zeros is the first touch of the memory.
        let make = move |me: Worker| {
            let mut part = vec![Lines([0; 128]); lines];
            if let Some(made) = &made {
                made.run(&mut part, me);
            }
            part
        };
        let team = Team::start(spec, Job { call, user }, make, |job, part, me| job.run(part, me))?;
        let missing = team.missing().map(|missing| CString::new(missing.to_string()).unwrap_or_default()).collect();
        Ok(tahti_team { team, missing })
    };
    handle(start())
}

/// A team as C describes it.
fn read(name: &str, spec: &tahti_team_spec, cpus: &[i32]) -> Result<TeamSpec, Failed> {
    let cpu = |cpu: &i32| match cpu {
        -1 => Ok(None),
        cpu => CpuId::try_from(*cpu).map(Some).map_err(|_| format!("team {name:?} has CPU {cpu}; expected one, or -1")),
    };
    let mut cpus = cpus.iter().map(cpu).collect::<Result<Vec<_>, _>>()?;
    let class = match spec.priority {
        0 => None,
        1..=99 => Some(Policy::Fifo(Priority(spec.priority as u8))),
        other => {
            return Err(
                format!("team {name:?} has priority {other}; expected 1 to 99, or 0 for the caller's class").into()
            );
        }
    };
    let leader = cpus.remove(0);
    let spin = DurNs(i64::try_from(spec.spin_ns).unwrap_or(i64::MAX / 2));
    let usual = TeamSpec::new(name, cpus);
    let limit = match spec.limit_ns {
        0 => usual.limit,
        limit => DurNs(i64::try_from(limit).unwrap_or(i64::MAX / 2)),
    };
    Ok(TeamSpec { leader, class, spin, limit, ..usual })
}

/// See `tahti.h`.
///
/// # Safety
/// `team` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_run(team: *mut tahti_team) -> c_int {
    // SAFETY: NULL, or the caller's promise.
    let Some(team) = (unsafe { team.as_mut() }) else { return c_int::MIN };
    // No error text is stored, because that would allocate.
    match team.team.run() {
        Ok(_) => 0,
        Err(TeamError::Late { worker, .. }) => worker as c_int,
        Err(TeamError::Gone { worker }) => -(worker as c_int),
        // Only `start` returns other errors.
        Err(_) => c_int::MIN,
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `team` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_part(team: *mut tahti_team, index: u32) -> *mut c_void {
    // SAFETY: NULL, or the caller's promise.
    let Some(team) = (unsafe { team.as_mut() }) else { return std::ptr::null_mut() };
    let mut found = std::ptr::null_mut();
    let told = team.team.each(|me, part| {
        if me.index == index as usize && !part.is_empty() {
            found = part.as_mut_ptr().cast();
        }
    });
    if told.is_ok() { found } else { std::ptr::null_mut() }
}

/// See `tahti.h`.
///
/// # Safety
/// `team` is NULL or a handle; `late_ns` and `took_ns` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_times(
    team: *const tahti_team,
    index: u32,
    late_ns: *mut u64,
    took_ns: *mut u64,
) -> c_int {
    // SAFETY: NULL, or the caller's promise.
    let times = unsafe { team.as_ref() }.and_then(|team| team.team.times().get(index as usize));
    let Some(Times { late, took }) = times else {
        fail("there is no such worker; expected 0 to the number of workers");
        return -1;
    };
    // SAFETY: NULL, or the caller's promise.
    if let Some(to) = unsafe { late_ns.as_mut() } {
        *to = late.0.max(0) as u64;
    }
    // SAFETY: as above.
    if let Some(to) = unsafe { took_ns.as_mut() } {
        *to = took.0.max(0) as u64;
    }
    0
}

/// See `tahti.h`.
///
/// # Safety
/// `team` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_missing(team: *mut tahti_team, index: u32) -> *const c_char {
    // SAFETY: the caller's promise.
    let Ok(team) = (unsafe { open(team) }) else { return std::ptr::null() };
    team.missing.get(index as usize).map_or(std::ptr::null(), |text| text.as_ptr())
}

/// See `tahti.h`.
///
/// # Safety
/// `team` is NULL or a handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_team_close(team: *mut tahti_team) {
    if !team.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(team) });
    }
}

/// See `tahti.h`.
#[unsafe(no_mangle)]
pub extern "C" fn tahti_share(items: u64, index: u32, of: u32) -> u64 {
    if of == 0 || index >= of {
        return items;
    }
    Worker { index: index as usize, of: of as usize }.share(items as usize).start as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_contiguous_and_end_with_the_last_item() {
        let begins: Vec<u64> = (0..=3).map(|index| tahti_share(10, index, 3)).collect();
        assert_eq!(begins, [0, 4, 7, 10]);
        assert_eq!((tahti_share(10, 0, 0), tahti_share(u64::MAX, 1, 1)), (10, u64::MAX));
    }
}

//! Machine state that the supervisor reads: processes, ports, CPUs.

use crate::keeper::Keeper;
use crate::keeper::protocol::ChildId;
use crate::shield::ChooseError;
use base::{CpuId, CpuSet, DurNs, Policy, Size};
use host::health::gap::Effort;
use host::plant::{Missing, Partition, Reservations, Surroundings, UsableCpus};
use rustix::fd::AsFd as _;
use rustix::fs::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use sys::process::{Process, ThreadId};
use sys::root::RootDir;
use sys::signal::SIGKILL;

/// Resource usage of a process, from `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: DurNs,
    pub(crate) memory: Size,
    pub(crate) threads: u32,
}

/// Processor time, memory and threads of a single process; all zero if it is gone.
pub(crate) fn usage(pid: i32) -> Usage {
    usage_with(pid, 0)
}

/// Kernel counters of the calling thread; `None` if the kernel does not report them.
pub(crate) fn own_effort() -> Option<Effort> {
    let root = RootDir::machine();
    effort(&root.read("/proc/thread-self/schedstat").ok()?, &root.read("/proc/thread-self/stat").ok()?)
}

fn effort(schedstat: &str, stat: &str) -> Option<Effort> {
    let mut times = schedstat.split_whitespace().map(|ns| ns.parse::<i64>().ok().map(DurNs));
    let (ran, waited) = (times.next()??, times.next()??);
    // The fields after the name, which may contain any characters, start with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let disk = DurNs(field(42)?.saturating_mul(tick_ns) as i64);
    Some(Effort { ran, waited, disk, major_faults: field(12)? })
}

/// The number of these processes that still exist, and their total usage. The processor time of ended children counts for
/// the parent that waited for them.
pub(crate) fn usage_together(pids: &[i32]) -> (u32, Usage) {
    let each = pids.iter().map(|pid| usage_with(*pid, 2)).filter(|usage| usage.threads > 0);
    each.fold((0, Usage::default()), |(count, all), one| {
        let cpu = DurNs(all.cpu.0 + one.cpu.0);
        let (memory, threads) = (Size(all.memory.0 + one.memory.0), all.threads + one.threads);
        (count + 1, Usage { cpu, memory, threads })
    })
}

/// `further`: number of additional time fields to add; 2 includes the ended children.
fn usage_with(pid: i32, further: usize) -> Usage {
    let root = RootDir::machine();
    let (Ok(stat), Ok(statm)) = (root.read(&format!("/proc/{pid}/stat")), root.read(&format!("/proc/{pid}/statm")))
    else {
        return Usage::default();
    };
    // The fields after the name, which may contain any characters, start with field 3.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| rest.split_whitespace().nth(number - 3).and_then(|text| text.parse::<u64>().ok());
    let ticks: u64 = (14..16 + further).filter_map(field).sum();
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    Usage {
        cpu: DurNs(ticks.saturating_mul(tick_ns) as i64),
        memory: Size(pages * rustix::param::page_size() as u64),
        threads: field(20).unwrap_or(0) as u32,
    }
}

/// A thread, from `/proc`.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: Policy,
    /// The CPUs on which it may run.
    pub cpus: CpuSet,
    /// Processor time used.
    pub cpu: DurNs,
}

/// The threads of a process. Threads that end meanwhile are omitted.
#[must_use]
pub fn threads(pid: i32) -> Vec<Thread> {
    let root = RootDir::machine();
    let tids = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    let thread = |tid: &String| {
        let tid: i32 = tid.parse().ok()?;
        let name = root.read(&format!("/proc/{pid}/task/{tid}/comm")).ok()?.trim_end().to_owned();
        let (class, cpus) = placement(tid)?;
        // The first number is the time on a CPU in nanoseconds. Kernels without schedstat report only ticks, so the time is
        // 0 there.
        let times = root.read(&format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
        let cpu = DurNs(times.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0));
        Some(Thread { tid, name, class, cpus, cpu })
    };
    tids.iter().filter_map(thread).collect()
}

/// Steal ticks of each CPU; empty if the kernel does not report them.
pub(crate) fn steal() -> BTreeMap<CpuId, u64> {
    let text = RootDir::machine().read("/proc/stat").unwrap_or_default();
    let times = proc::stat::cpu_times(&text).unwrap_or_default();
    times.into_iter().filter_map(|(cpu, times)| Some((cpu?, times.steal))).collect()
}

/// The threads of a process and its descendants, at most 1000.
pub(crate) fn threads_below(pid: i32) -> Vec<ThreadId> {
    const TASKS_MAX: usize = 1000;
    let root = RootDir::machine();
    let threads = |pid: i32| root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    let tids = crate::family(vec![pid]).into_iter().flat_map(threads);
    tids.filter_map(|tid| ThreadId::of(tid.parse().ok()?)).take(TASKS_MAX).collect()
}

/// Kills a process whose keeper is gone, and waits up to 1 s for its end. A process that has reused the PID is not touched.
pub(crate) fn kill_for_good(child: ChildId) {
    let Ok(process) = Process::started_at(child.pid, child.start_ticks) else { return };
    kill_and_wait(&process);
}

/// Kills a keeper that does not answer, and all its descendants, which no other process could end.
pub(crate) fn end_keeper(keeper: &Keeper) {
    let Some(process) = keeper.process() else { return };
    // If another process has the PID, the keeper is gone. Its descendants are found through its directory.
    if let Ok(process) = Process::started_at(process.pid, process.start_ticks) {
        let below = crate::family::descendants(process.pid());
        kill_and_wait(&process);
        below.iter().for_each(kill_and_wait);
    }
    crate::group::end_family(keeper.dir());
}

fn kill_and_wait(process: &Process) {
    if process.signal(SIGKILL).is_ok() {
        // A process that does not end on SIGKILL hangs in the kernel; nothing more can be done here.
        sys::poll::is_readable(process.as_fd(), DurNs::from_secs(1));
    }
}

/// Actual scheduling class and CPUs of a thread.
fn placement(tid: i32) -> Option<(Policy, CpuSet)> {
    Some((sys::sched::scheduling(tid).ok()?.policy, sys::sched::affinity(tid).ok()?))
}

/// Class and CPUs of a process's most urgent thread, the first one among equals. Checks at most 256 threads.
pub(crate) fn foremost(pid: i32) -> Option<(Policy, CpuSet)> {
    const THREADS_MAX: usize = 256;
    let first = sys::sched::scheduling(pid).ok()?.policy;
    let mut most = (first, pid);
    for tid in RootDir::machine().list(&format!("/proc/{pid}/task")).unwrap_or_default().iter().take(THREADS_MAX) {
        let Ok(tid) = tid.parse::<i32>() else { continue };
        // Skip threads that have ended meanwhile.
        let Ok(found) = sys::sched::scheduling(tid) else { continue };
        if found.policy.level() > most.0.level() {
            most = (found.policy, tid);
        }
    }
    placement(most.1).or_else(|| placement(pid))
}

/// Inodes of the sockets that listen on a TCP port. Read from `/proc`, because a connection would disturb the server.
pub(crate) fn listeners(port: u16) -> BTreeSet<u64> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let mut found = BTreeSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = RootDir::machine().read(file).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, ..] = fields[..] else { continue };
            if local.ends_with(&suffix) && state == LISTEN {
                found.extend(fields.get(9).and_then(|inode| inode.parse::<u64>().ok()));
            }
        }
    }
    found
}

/// Identity of a file and time of its last change.
pub(crate) type FileId = (u64, u64, i64, i64);

/// Identity of the file at `path`, if it exists.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

/// The CPUs online; CPU 0 if the kernel does not report them.
pub(crate) fn online() -> CpuSet {
    sys::kernel::online(&RootDir::machine()).unwrap_or_else(|| CpuSet::single(0))
}

/// The machine on which a plant file is checked.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The plant file's folder, the base of relative paths.
    pub folder: PathBuf,
}

/// The CPUs that a plant may use. CPUs that an existing shield has removed from this process's affinity are included.
pub(crate) fn usable() -> UsableCpus {
    let root = RootDir::machine();
    let online = online();
    let boot_isolated = root.read("/sys/devices/system/cpu/isolated").ok().and_then(|text| text.trim().parse().ok());
    let shield = crate::shield::current(&root, &crate::RunDir::from_env()).ok().flatten();
    let shielded = shield.map_or(CpuSet::EMPTY, |journal| journal.want.cpus);
    let own = sys::sched::affinity(0).map_or(online, |own| own.or(&shielded));
    UsableCpus { online, own, boot_isolated: boot_isolated.unwrap_or(CpuSet::EMPTY) }
}

impl Surroundings for Machine {
    fn online(&self) -> Option<CpuSet> {
        Some(online())
    }

    fn choose(&self, count: usize) -> Result<CpuSet, Missing> {
        let choice = host::suggest::Choice::Auto(count);
        crate::shield::choose(&RootDir::machine(), &crate::RunDir::from_env(), choice).map_err(|error| match error {
            ChooseError::TooMany(too_many) => Missing::Cpus(too_many),
            ChooseError::Journal(_) | ChooseError::Machine(_) => Missing::Unreadable(error.to_string()),
        })
    }

    fn has_node(&self, node: u16) -> bool {
        RootDir::machine().exists(&format!("/sys/devices/system/node/node{node}"))
    }

    fn partition(&self) -> Result<(), Missing> {
        let mounts = RootDir::machine().read("/proc/self/mountinfo").unwrap_or_default();
        let cpuset = |line: &str| line.contains("cpuset") || line.contains(" - cgroup2 ");
        if mounts.lines().any(cpuset) { Ok(()) } else { Err(Missing::Cpuset) }
    }

    fn program(&self, program: &str, dir: Option<&str>, user: Option<&str>) -> Result<(), Missing> {
        let dir = dir.map_or(self.folder.clone(), |dir| self.folder.join(dir));
        use sys::program::{Missing as Absent, barred, find};
        let file = match program {
            "tahti" => std::env::current_exe().ok(),
            program => Some(find(program, &dir, None).map_err(|missing| match missing {
                Absent::File(path) => Missing::File(path),
                Absent::Executable(path) => Missing::Executable(path),
                Absent::Interpreter { script, name } => Missing::Interpreter { script, name },
                Absent::Program { name, path } => Missing::Program { name, path },
            })?),
        };
        let Some(user) = user else { return Ok(()) };
        let Some((uid, groups)) = crate::launch::users::rights_of(user) else { return Ok(()) };
        match std::iter::once(dir).chain(file).find_map(|path| barred(&path, uid, &groups)) {
            Some(path) => Err(Missing::Permission { is_folder: path.is_dir(), path, user: user.to_owned() }),
            None => Ok(()),
        }
    }

    fn bound(&self, partition: &Partition, on_shield: &[String]) -> Vec<Missing> {
        let ground = crate::partition::ground(std::slice::from_ref(partition));
        crate::partition::lacking(&ground, partition, on_shield).into_iter().map(Missing::from).collect()
    }

    fn can_hold(&self, folder: &Path) -> Result<(), Missing> {
        let folder = self.folder.join(folder);
        // The deepest existing part of the path.
        let found = folder.ancestors().find_map(|part| Some((part, std::fs::metadata(part).ok()?)));
        let Some((there, about)) = found else { return Err(Missing::File(folder)) };
        if !about.is_dir() {
            return Err(Missing::NoFolder(there.to_owned()));
        }
        const KERNEL: [i64; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];
        #[allow(clippy::unnecessary_cast, reason = "its type differs between C libraries")]
        let is_kernel_s = |found: rustix::fs::StatFs| KERNEL.contains(&(found.f_type as i64));
        if rustix::fs::statfs(there).is_ok_and(is_kernel_s) {
            return Err(Missing::KernelFiles(folder));
        }
        rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| Missing::NotWritable {
            path: there.to_owned(),
            why: std::io::Error::from(errno).to_string(),
        })
    }

    fn is_folder(&self, folder: &Path) -> Result<(), Missing> {
        let folder = self.folder.join(folder);
        match std::fs::metadata(&folder) {
            Ok(about) if about.is_dir() => Ok(()),
            Ok(_) => Err(Missing::NoFolder(folder)),
            // The process's own user may have access to a folder that this process cannot read.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            Err(_) => Err(Missing::File(folder)),
        }
    }

    fn is_file(&self, file: &Path) -> Result<(), Missing> {
        let file = self.folder.join(file);
        match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Missing::File(file)),
            // The loader reports other errors, with the rights of its user.
            _ => Ok(()),
        }
    }

    fn reservations(&self) -> Reservations {
        let root = RootDir::machine();
        let number = |name: &str| root.read(&format!("/proc/sys/kernel/{name}")).ok()?.trim().parse::<i64>().ok();
        let default = Reservations::default();
        let micros = |name: &str, default: DurNs| number(name).map_or(default, DurNs::from_us);
        let share_milli = match (number("sched_rt_runtime_us"), number("sched_rt_period_us")) {
            (Some(-1), _) => 1000,
            (Some(runtime), Some(period)) if period > 0 => (runtime.max(0) * 1000 / period).min(1000) as u32,
            _ => default.share_milli,
        };
        Reservations {
            period_min: micros("sched_deadline_period_min_us", default.period_min),
            period_max: micros("sched_deadline_period_max_us", default.period_max),
            share_milli,
        }
    }

    fn has_user(&self, user: &str) -> bool {
        if user.parse::<u32>().is_ok() {
            return true;
        }
        let users = RootDir::machine().read("/etc/passwd").unwrap_or_default();
        users.lines().any(|line| line.split(':').next() == Some(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_this_thread_are_read_whatever_its_name() {
        let stat = "1 (a) b) S 1 1 1 0 -1 0 98 0 7 0 2 3 0 0 20 0 1 0 2 3 4 5 1 2 3 0 0 0 0 0 0 0 0 0 17 1 0 0 25 0 0";
        let found = effort("120000000 5000000 9", stat).unwrap();
        let expected =
            Effort { ran: DurNs::from_ms(120), waited: DurNs::from_ms(5), disk: DurNs::from_ms(250), major_faults: 7 };
        assert_eq!(found, expected);
        assert_eq!((effort("", stat), effort("1 2 3", "1 (a) S 1")), (None, None));
        assert!(own_effort().is_some(), "this kernel counts them");
    }

    #[test]
    fn a_port_counts_as_ready_only_while_a_process_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners(port).len(), 1);
        drop(listener);
        assert!(listeners(port).is_empty());
    }

    #[test]
    fn usage_of_this_process_and_its_child_is_read_and_that_of_an_invalid_pid_is_zero() {
        let usage = usage(std::process::id() as i32);
        assert!(usage.memory.0 > 100_000 && usage.threads >= 1);
        assert_eq!(super::usage(-1).threads, 0);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (count, all) = usage_together(&[std::process::id() as i32, child.id() as i32, -1]);
        assert!(count == 2 && all.memory.0 > usage.memory.0 / 2 && all.threads >= 2);
        child.kill().unwrap();
        child.wait().unwrap();
        let own = std::process::id() as i32;
        assert_eq!(foremost(own), placement(own));
    }
}

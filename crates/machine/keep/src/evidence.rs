//! Evidence of an incident: one directory per incident, with everything that was readable, as JSON.
//!
//! Reading evidence must not disturb the process. It happens on an ordinary thread, after the guard has acted. Anything
//! unreadable is omitted, with the reason if there is one.

use crate::guard::{EventKind, GuardEvent};
use crate::keeper::protocol::{ChildId, End, ExitRecord};
use base::{DurNs, MonoNs};
use proc::cgroup::keyed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::process::Process;
use sys::root::RootDir;
use sys::whole::Survives;

/// Maximum threads of a process that are read.
const THREADS_MAX: usize = 64;
/// Incidents stored per process; older ones are removed.
const INCIDENTS_MAX: usize = 50;
/// Time a thread has to stop for reading its registers.
const STOP_WITHIN: Duration = Duration::from_millis(100);

/// Failure to write evidence.
#[derive(Debug, thiserror::Error)]
#[error("evidence cannot be written to {}: {error}", .dir.display())]
pub struct EvidenceError {
    /// The directory.
    pub dir: PathBuf,
    /// The system's error.
    pub error: std::io::Error,
}

/// Kind of incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The process exited with a status other than 0, or with an unknown status.
    Exit,
    /// A signal ended the process.
    Signal,
    /// The heartbeat was lost.
    Hang,
    /// The process used up its budget without yielding its CPU.
    Runaway,
    /// The process was runnable but did not run.
    Starved,
    /// The kernel killed the process for lack of memory.
    OutOfMemory,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Exit, Self::Signal, Self::Hang, Self::Runaway, Self::Starved, Self::OutOfMemory];

    /// The word in file names and messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Hang => "hang",
            Self::Runaway => "runaway",
            Self::Starved => "starved",
            Self::OutOfMemory => "out-of-memory",
        }
    }
}

/// An incident, from its first sign on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Kind of incident.
    pub kind: Kind,
    /// The process's name.
    pub name: String,
    /// The process.
    pub child: ChildId,
    /// Time of the first sign.
    pub at: MonoNs,
    /// The same time on the wall clock, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Summary in one sentence.
    pub summary: String,
    /// Observations and actions of the guard, in order.
    pub ladder: Vec<Entry>,
    /// State of the threads when the evidence was taken.
    pub threads: Vec<ThreadEvidence>,
    /// Counters of the machine: free memory, pressure, out-of-memory kills.
    pub machine: BTreeMap<String, String>,
    /// The last cycles of the loop, oldest first; empty without a loop page.
    pub cycles: Vec<serde_json::Value>,
    /// From the plant's recorder: the file with the window around the first sign, and the last late wake-ups with their
    /// causes.
    #[serde(default)]
    pub recorder: Option<serde_json::Value>,
    /// Exit status or signal, if the process has ended.
    pub exit: Option<ExitRecord>,
}

/// An entry of the guard's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Time since the first sign, in steps of 1 µs.
    pub after: DurNs,
    /// The thread concerned.
    pub tid: i32,
    /// The event.
    pub what: String,
}

/// Evidence of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEvidence {
    /// Its id.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Scheduling class.
    pub class: String,
    /// State, switches, CPUs: fields of `/proc/PID/task/TID/status`.
    pub status: BTreeMap<String, String>,
    /// Processor time, time waited for a CPU (both ns), times run.
    pub schedstat: String,
    /// The kernel function in which the thread waits.
    pub wchan: String,
    /// The current system call, or `running`.
    pub syscall: String,
    /// Its kernel stack, innermost first.
    pub kernel_stack: Vec<String>,
    /// User registers in hexadecimal, or the reason why they are unreadable.
    pub registers: BTreeMap<String, String>,
    /// Code position as file and offset: `/usr/bin/loop+0x1234`.
    pub at: String,
}

impl Incident {
    /// Creates an incident with the evidence that is readable now. `cycles` are the last cycles of the loop, if it has
    /// one.
    #[must_use]
    pub fn new(
        kind: Kind,
        name: &str,
        child: ChildId,
        at: MonoNs,
        summary: String,
        cycles: Vec<serde_json::Value>,
    ) -> Self {
        let process = Process::started_at(child.pid, child.start_ticks).ok();
        Self {
            kind,
            name: name.to_owned(),
            child,
            at,
            at_unix_ms: sys::clock::wall_ns() / 1_000_000,
            summary,
            ladder: Vec::new(),
            threads: process.as_ref().map_or(Vec::new(), threads),
            machine: machine(),
            cycles,
            recorder: None,
            exit: None,
        }
    }

    /// Asks the plant's recorder to keep the window around this moment, and adds the recorder's last late wake-ups.
    /// `folder` is the recorder's folder. Does nothing if no recorder runs.
    pub fn ask_recorder(&mut self, folder: &Path) {
        let label = format!("fault-{}-{}-{}", self.name, self.at_unix_ms, self.kind.word());
        let label: String =
            label.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
        let request = format!("freeze {label} {}: {}", self.name, self.summary);
        let asked = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(request.as_bytes(), folder.join("socket"))
        });
        if asked.is_err() {
            return;
        }
        let window = folder.join(label).with_added_extension("trace");
        // A larger file is not a status file.
        let status = std::fs::read(folder.join("status.json")).ok().filter(|bytes| bytes.len() < 4 << 20);
        let status: Option<serde_json::Value> = status.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let last = status.map_or(serde_json::Value::Null, |mut status| status["last"].take());
        self.recorder = Some(serde_json::json!({ "window": window, "last_late": last }));
    }

    /// Adds an event of the guard.
    pub fn add(&mut self, event: &GuardEvent) {
        let after = DurNs((event.at - self.at).0 / 1000 * 1000);
        self.ladder.push(Entry { after, tid: event.tid, what: describe(&event.what) });
    }

    /// Writes the incident to its directory below `base`, or overwrites an earlier version. Returns the directory.
    ///
    /// # Errors
    /// The file or directory that could not be written.
    pub fn write(&self, base: &Path) -> Result<PathBuf, EvidenceError> {
        let dir = base.join(format!("{}-{}-{}", self.name.replace('/', "_"), self.at_unix_ms, self.kind.word()));
        let failed = |error: std::io::Error| EvidenceError { dir: dir.clone(), error };
        // Registers and paths of a root process must not be readable by every user.
        std::fs::create_dir_all(base.parent().unwrap_or(base)).map_err(failed)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))? + "\n";
        // Evidence of the cause of a machine reset must survive the reset.
        let kept = sys::whole::replace(&dir.join("incident.json"), text.as_bytes(), 0o600, Survives::PowerLoss);
        kept.map_err(failed)?;
        forget_oldest(base, &self.name);
        Ok(dir)
    }
}

/// Describes a guard event for users.
#[must_use]
pub fn describe(what: &EventKind) -> String {
    match what {
        EventKind::Runaway { used, window } => {
            format!("runaway: used {} of processor time in {} without yielding its CPU", ms(*used), ms(*window))
        }
        EventKind::Over { in_a_row } => format!("over its budget in {in_a_row} periods in a row"),
        EventKind::Silent { silence } => format!("no heartbeat for {}", ms(*silence)),
        EventKind::Starved { waited } => format!("starved: runnable, but not run for {}", ms(*waited)),
        EventKind::Step { action, reached, refused } => {
            let done = match action {
                host::guard::RungAction::Demote => "demoted to time sharing",
                host::guard::RungAction::Freeze => "frozen",
                host::guard::RungAction::Abort => "sent SIGABRT",
                host::guard::RungAction::Kill => "sent SIGKILL",
            };
            if *refused == 0 { format!("{done} ({reached})") } else { format!("{done} ({reached}, {refused} refused)") }
        }
        EventKind::Tamed => "no longer a runaway: it continues as a time-sharing process".to_owned(),
        EventKind::Gone { by_ladder: true } => "gone".to_owned(),
        EventKind::Gone { by_ladder: false } => "ended by itself".to_owned(),
        EventKind::Exhausted => "still running after every step; SIGKILL is repeated".to_owned(),
        EventKind::Unwatched { threads, processes } => {
            format!("NOT WATCHED: {threads} real-time threads and {processes} processes exceed the guard's capacity")
        }
    }
}

fn ms(span: DurNs) -> String {
    format!("{}.{} ms", span.0 / 1_000_000, span.0 / 100_000 % 10)
}

/// Reads the threads of a process, real-time threads first.
#[must_use]
pub fn threads(process: &Process) -> Vec<ThreadEvidence> {
    let (root, pid) = (RootDir::machine(), process.pid());
    let listed = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    let mut tids: Vec<i32> = listed.iter().filter_map(|name| name.parse().ok()).collect();
    tids.sort_by_key(|tid| sys::sched::has_fixed_priority(*tid) != Some(true));
    let maps = root.read(&format!("/proc/{pid}/maps")).unwrap_or_default();
    // A thread is stopped to read its registers. A thread of another process that reused the ID must not be stopped.
    let own = tids.into_iter().take(THREADS_MAX).filter(|tid| process.has_thread(*tid));
    own.map(|tid| thread(&root, pid, tid, &maps)).collect()
}

fn thread(root: &RootDir, pid: i32, tid: i32, maps: &str) -> ThreadEvidence {
    const FIELDS: [&str; 7] = [
        "State",
        "Cpus_allowed_list",
        "voluntary_ctxt_switches",
        "nonvoluntary_ctxt_switches",
        "VmRSS",
        "VmLck",
        "SigPnd",
    ];
    let read = |name: &str| match root.read(&format!("/proc/{pid}/task/{tid}/{name}")) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("? {}", std::io::Error::from(error.errno)),
    };
    let status = read("status");
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    let (registers, at) = match sys::trace::user_registers(tid, STOP_WITHIN) {
        Ok(found) => {
            let at = found.first().map(|(_, ip)| place(maps, *ip)).unwrap_or_default();
            (found.into_iter().map(|(name, value)| (name.to_owned(), format!("{value:#x}"))).collect(), at)
        }
        Err(error) => ([("unreadable".to_owned(), error.to_string())].into(), String::new()),
    };
    ThreadEvidence {
        tid,
        name: read("comm"),
        class: sys::sched::scheduling(tid).map_or_else(|error| format!("? {error}"), |found| found.policy.to_string()),
        status: fields
            .filter(|(name, _)| FIELDS.contains(name))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
        schedstat: read("schedstat"),
        wchan: read("wchan"),
        syscall: read("syscall"),
        kernel_stack: read("stack").lines().map(str::to_owned).collect(),
        registers,
        at,
    }
}

/// The file and offset of an address.
fn place(maps: &str, address: u64) -> String {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let offset = hex(fields.nth(1)?)?;
        let name = fields.nth(2).unwrap_or("anonymous memory");
        (start..end).contains(&address).then(|| format!("{name}+{:#x}", address - start + offset))
    });
    found.unwrap_or_default()
}

fn machine() -> BTreeMap<String, String> {
    let root = RootDir::machine();
    let mut found = BTreeMap::new();
    for name in ["loadavg", "pressure/cpu", "pressure/memory"] {
        if let Ok(text) = root.read(&format!("/proc/{name}")) {
            found.insert(name.to_owned(), text.trim().to_owned());
        }
    }
    let wanted =
        |line: &&str| ["MemAvailable", "MemFree", "SwapFree", "oom_kill "].iter().any(|name| line.starts_with(name));
    for file in ["meminfo", "vmstat"] {
        let text = root.read(&format!("/proc/{file}")).unwrap_or_default();
        for line in text.lines().filter(wanted) {
            if let Some((name, value)) = line.split_once([':', ' ']) {
                found.insert(name.to_owned(), value.trim().to_owned());
            }
        }
    }
    found
}

/// Processes killed by the kernel for lack of memory so far: in the process's control group if the kernel counts there,
/// else on the whole machine.
#[must_use]
pub fn out_of_memory_kills(pid: i32) -> u64 {
    let root = RootDir::machine();
    let count = |text: &str| keyed(text, "oom_kill");
    let groups = root.read(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let file = match controllers {
            "memory" => format!("/sys/fs/cgroup/memory{path}/memory.oom_control"),
            "" => format!("/sys/fs/cgroup{path}/memory.events"),
            _ => return None,
        };
        count(&root.read(&file).ok()?)
    });
    own.or_else(|| count(&root.read("/proc/vmstat").ok()?)).unwrap_or(0)
}

/// The kernel log line about killing this process for lack of memory; `None` if the log has none.
///
/// # Errors
/// The log cannot be read.
pub fn out_of_memory_line(pid: i32) -> Result<Option<String>, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    let log = open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let wanted = format!("Killed process {pid} ");
    let mut found = None;
    let mut record = [0u8; 8192];
    loop {
        // Each read returns one record. Records that were overwritten in between are skipped.
        match rustix::io::read(&log, &mut record) {
            Ok(got) => {
                let text = String::from_utf8_lossy(&record[..got]);
                let line = text.lines().next().and_then(|line| line.split_once(';'));
                found = line.filter(|(_, line)| line.contains(&wanted)).map(|(_, line)| line.to_owned()).or(found);
            }
            Err(Errno::AGAIN) => return Ok(found),
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Kind of incident for this end; `None` for a normal exit. `kills_before` and `kills_after` are
/// [`out_of_memory_kills`] at start and end. If they differ, `by_log` is whether the kernel's log names this process;
/// `None` if the log is unreadable.
#[must_use]
pub fn kind_of_end(end: End, kills_before: u64, kills_after: u64, by_log: Option<bool>) -> Option<Kind> {
    match end {
        End::Exit(0) => None,
        End::Exit(_) | End::Unseen => Some(Kind::Exit),
        End::Signal { signal: 9, .. } if kills_after > kills_before && by_log != Some(false) => Some(Kind::OutOfMemory),
        End::Signal { .. } => Some(Kind::Signal),
    }
}

/// Removes the oldest incidents of a process beyond [`INCIDENTS_MAX`].
fn forget_oldest(base: &Path, name: &str) {
    let prefix = format!("{}-", name.replace('/', "_"));
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let own = |path: &PathBuf| {
        // `loop` must not match the folders of `loop-slow`.
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = file.strip_prefix(&prefix).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(time, kind)| {
            time.bytes().all(|byte| byte.is_ascii_digit()) && Kind::ALL.iter().any(|known| known.word() == kind)
        })
    };
    let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(own).collect();
    // The number of digits in the time does not change for centuries, so text order is time order.
    dirs.sort_unstable();
    for dir in dirs.iter().take(dirs.len().saturating_sub(INCIDENTS_MAX)) {
        // A directory that cannot be removed is tried again at the next incident.
        let _ = std::fs::remove_dir_all(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::process::start_ticks;

    #[test]
    fn kinds_of_ends_are_distinguished() {
        let signal = |signal| End::Signal { signal, core: false };
        for (end, after, by_log, expected) in [
            (End::Exit(0), 0, None, None),
            (End::Exit(3), 5, Some(true), Some(Kind::Exit)),
            (signal(11), 5, None, Some(Kind::Signal)),
            (signal(9), 0, None, Some(Kind::Signal)),
            (signal(9), 1, None, Some(Kind::OutOfMemory)),
            (signal(9), 1, Some(true), Some(Kind::OutOfMemory)),
            // Another process of the control group was killed.
            (signal(9), 1, Some(false), Some(Kind::Signal)),
        ] {
            assert_eq!(kind_of_end(end, 0, after, by_log), expected, "{end:?}");
        }
    }

    #[test]
    fn an_address_is_named_by_its_file() {
        let maps = "1000-2000 r-xp 00000500 fe:00 12 /usr/bin/loop\n3000-4000 rw-p 00000000 00:00 0\n";
        assert_eq!(place(maps, 0x1010), "/usr/bin/loop+0x510");
        assert_eq!(place(maps, 0x3001), "anonymous memory+0x1");
        assert_eq!(place(maps, 0x5000), "");
    }

    #[test]
    fn an_incident_is_stored_with_its_threads_and_the_oldest_ones_are_deleted() {
        let base = std::env::temp_dir().join(format!("tahti-evidence-{}", std::process::id()));
        let pid = std::process::id() as i32;
        let child = ChildId { pid, start_ticks: start_ticks(pid).unwrap() };
        for number in 0..INCIDENTS_MAX as u64 + 3 {
            let mut incident = Incident::new(Kind::Hang, "a/b", child, MonoNs(5), "it hung".into(), Vec::new());
            incident.at_unix_ms = 1_000_000_000_000 + number;
            let dir = incident.write(&base).unwrap();
            let text = std::fs::read_to_string(dir.join("incident.json")).unwrap();
            assert_eq!(serde_json::from_str::<Incident>(&text).unwrap(), incident);
            assert!(incident.threads.iter().any(|thread| thread.tid == pid && thread.status.contains_key("State")));
        }
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), INCIDENTS_MAX);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_running_recorder_is_asked_for_its_window() {
        let folder = std::env::temp_dir().join(format!("tahti-evidence-recorder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pid = std::process::id() as i32;
        let child = ChildId { pid, start_ticks: start_ticks(pid).unwrap() };
        let mut incident = Incident::new(Kind::Hang, "a/b", child, MonoNs(5), "it hung".into(), Vec::new());
        incident.at_unix_ms = 17;
        incident.ask_recorder(&folder);
        assert_eq!(incident.recorder, None);
        let here = UnixDatagram::bind(folder.join("socket")).unwrap();
        std::fs::write(folder.join("status.json"), r#"{"last":[{"culprit":"hog"}]}"#).unwrap();
        incident.ask_recorder(&folder);
        let mut bytes = [0; 200];
        let length = here.recv(&mut bytes).unwrap();
        assert_eq!(std::str::from_utf8(&bytes[..length]), Ok("freeze fault-a_b-17-hang a/b: it hung"));
        let kept = incident.recorder.unwrap();
        assert_eq!(kept["last_late"][0]["culprit"], "hog");
        assert_eq!(kept["window"], folder.join("fault-a_b-17-hang.trace").to_str().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_process_whose_name_begins_like_anothers_keeps_its_evidence() {
        let base = std::env::temp_dir().join(format!("tahti-evidence-names-{}", std::process::id()));
        let others = ["loop-slow-1795243644420-hang", "loop-2-1795243644420-runaway", "loop-1795243644420-notes"];
        others.iter().for_each(|name| std::fs::create_dir_all(base.join(name)).unwrap());
        for number in 0..=INCIDENTS_MAX as u64 {
            std::fs::create_dir_all(base.join(format!("loop-{}-exit", 1_795_243_644_421 + number))).unwrap();
        }
        forget_oldest(&base, "loop");
        assert!(others.iter().all(|name| base.join(name).exists()));
        assert!(!base.join("loop-1795243644421-exit").exists() && base.join("loop-1795243644422-exit").exists());
        std::fs::remove_dir_all(base).unwrap();
    }
}

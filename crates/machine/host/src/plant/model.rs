//! The content of a plant file as plain values, with all defaults filled in.

use crate::plan::Profile;
use base::{CpuSet, DurNs, ParseUnitError, Policy, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The real-time part of a machine, as `tahti up` sets it up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plant {
    /// Name of the plant and of its folder in `/run/tahti`.
    pub name: String,
    /// Users that may view the plant in addition to root and the plant's user.
    #[serde(default)]
    pub operators: Option<Operators>,
    /// CPUs from which all other tasks are kept away, if any.
    pub shield: Option<Shield>,
    /// The processes, in the order of the file.
    pub processes: Vec<Process>,
    /// Limits that several processes share.
    #[serde(default)]
    pub partitions: Vec<super::Partition>,
    /// The frames. For each frame, `processes` contains a process that runs it.
    #[serde(default)]
    pub frames: Vec<frame::Config>,
    /// Hardware watchdog, if the plant uses it.
    pub watchdog: Option<Watchdog>,
    /// Additional places for logs and evidence.
    #[serde(default)]
    pub records: Records,
    /// Its dashboard. [`with_dashboard`](Self::with_dashboard) makes it one of the processes.
    #[serde(default)]
    pub dashboard: Option<Box<Process>>,
    /// Lines of the plant file.
    #[serde(default)]
    pub places: super::Places,
}

/// `[records]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Folder for logs and evidence, relative to the plant file's folder. The default is the run folder, whose content
    /// is lost at a reboot.
    pub folder: Option<String>,
    /// The system journal that also gets each line.
    pub also: Option<Also>,
}

/// A system journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Also {
    /// The systemd journal.
    Journal,
    /// The program that reads `/dev/log`.
    Syslog,
}

impl FromStr for Also {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "journal" => Ok(Self::Journal),
            "syslog" => Ok(Self::Syslog),
            _ => Err("expected `journal` or `syslog`"),
        }
    }
}

/// Users that may view a plant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operators {
    /// Group, by name or number.
    pub group: String,
    /// Whether its members may type into the consoles of processes.
    pub may_type: bool,
}

/// `[shield]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shield {
    /// The isolated CPUs.
    pub cpus: CpuSet,
    /// Purpose that the isolated CPUs are tuned for.
    pub profile: Profile,
    /// Processes that must not be touched.
    pub spare: Vec<crate::plan::Spared>,
    /// Whether `up` fails if the shield is unavailable.
    pub required: bool,
    /// Interrupts that are placed on the shield.
    #[serde(default)]
    pub irqs: Vec<crate::plan::Placed>,
    /// Parts of the shield to apply.
    #[serde(default)]
    pub parts: crate::plan::ShieldParts,
}

/// `[[process]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Name, unique in the plant.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Scheduling class of its first thread. The other threads inherit it.
    pub class: Policy,
    /// CPUs on which it runs.
    pub cpus: Cpus,
    /// NUMA node of its memory.
    pub numa: Option<u16>,
    /// Whether all its memory is locked.
    pub mlock: bool,
    /// Resource limits.
    pub limits: Limits,
    /// Limits on the process and all its descendants together.
    #[serde(default)]
    pub bounds: Bounds,
    /// The partition that it belongs to.
    #[serde(default)]
    pub partition: Option<String>,
    /// User (name or number) of the process; the supervisor's if `None`.
    pub user: Option<String>,
    /// Capabilities that it keeps (`CAP_…`); `None` keeps those of the user.
    pub capabilities: Option<Vec<String>>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// Variables by which it finds other parts of the plant. A variable in the supervisor's environment has precedence.
    #[serde(default)]
    pub automatic: BTreeMap<String, String>,
    /// Working directory; the plant file's folder if `None`.
    pub dir: Option<String>,
    /// Processes that must be ready before this one starts.
    pub after: Vec<String>,
    /// Condition for readiness.
    pub ready: Ready,
    /// Restart policy.
    pub restart: Restart,
    /// Stop sequence. SIGKILL follows after the last step.
    pub stop: Vec<StopStep>,
    /// Inherited settings and restrictions, in addition to class, user and capabilities.
    #[serde(default)]
    pub hygiene: Hygiene,
    /// Command that puts the equipment into a safe state after a fault of the process.
    pub on_fault: Option<Vec<String>>,
    /// Its log files.
    pub log: Log,
    /// Heartbeat that it must send.
    pub heartbeat: Option<Heartbeat>,
    /// Processor time that a real-time thread may use without yielding its CPU.
    pub budget: Budget,
    /// Steps against a runaway, in order.
    pub ladder: Vec<Rung>,
    /// Classes and CPUs of threads, by thread name.
    pub threads: Vec<ThreadRule>,
    /// Classes and CPUs that a service gives its own threads, as declared: scans of an IOC, bands of a message server.
    pub own_threads: Vec<ThreadRule>,
    /// Maximum share of its pulses that its loop may skip. A larger share makes the plant's verdict worse.
    #[serde(default)]
    pub miss_ratio_max: Option<MissRatio>,
    /// Deadline of the results of its loop.
    #[serde(default)]
    pub deadline: Option<super::DeadlineRule>,
    /// Whether it may give some of its threads a fixed priority (bands, scans, lanes, a frame). If so, the guard
    /// monitors it.
    #[serde(default)]
    pub has_own_priorities: bool,
    /// Whether the plant counts as up without it. The start of the plant does not wait for it, and its failure does not
    /// take the plant down.
    #[serde(default)]
    pub optional: bool,
}

/// Settings that a process inherits from the supervisor, and its restrictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hygiene {
    /// Patterns of the supervisor's variables that it gets. `None` means all variables, or none if it has a different
    /// user.
    pub pass_environment: Option<Vec<String>>,
    /// Nice value of its time-sharing threads, -20 to 19, as an alternative to a nice value in the class.
    #[serde(default)]
    pub nice: Option<i8>,
    /// Permissions that its new files never have.
    pub umask: Option<u32>,
    /// Value that the kernel adds to its out-of-memory score, -1000 (never killed) to 1000 (killed first).
    pub oom_score_adjust: Option<i16>,
    /// Whether it can never gain privileges by starting a program.
    pub no_new_privileges: bool,
    /// Its view of the file system.
    pub sandbox: Option<Sandbox>,
}

impl Default for Hygiene {
    fn default() -> Self {
        Self {
            pass_environment: None,
            nice: None,
            umask: None,
            oom_score_adjust: None,
            no_new_privileges: true,
            sandbox: None,
        }
    }
}

/// `sandbox = {…}`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// Whether `/tmp` and `/var/tmp` are private, empty and in memory.
    pub private_tmp: bool,
    /// System folders that it cannot write.
    pub protect_system: ProtectSystem,
    /// Its access to home folders.
    pub protect_home: ProtectHome,
    /// Exceptions: paths that it may write.
    pub read_write_paths: Vec<String>,
    /// Paths that are empty for it.
    pub inaccessible_paths: Vec<String>,
}

/// System folders that are read-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectSystem {
    /// None.
    #[default]
    No,
    /// `/usr`, `/boot`, `/efi`.
    Yes,
    /// Also `/etc`.
    Full,
    /// All folders except `/dev`, `/proc`, `/sys` and the writable paths.
    Strict,
}

/// Access to home folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectHome {
    /// Full access.
    #[default]
    No,
    /// No access.
    Yes,
    /// Read-only access.
    ReadOnly,
}

/// CPUs on which a process or thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// On the isolated CPUs.
    Shield,
    /// On all CPUs that are not isolated.
    Housekeeping,
    /// On these CPUs.
    List(CpuSet),
}

/// Resource limits; `None` inherits the supervisor's limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Open files.
    pub files: Option<u64>,
    /// Size of a core file.
    pub core: Option<Size>,
    /// Memory that may be locked.
    pub locked: Option<Size>,
    /// Address space.
    pub memory: Option<Size>,
    /// Stack of the first thread.
    pub stack: Option<Size>,
    /// Processor time that a real-time thread may use without a blocking call.
    #[serde(default)]
    pub rttime: Option<DurNs>,
}

/// Limits on a process and all its descendants together, set for their control group; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Memory including the page cache. If it is exceeded, the kernel kills one of the processes.
    pub memory_max: Option<Size>,
    /// Number of processes and threads. If it is reached, no further one can be started.
    pub tasks_max: Option<u64>,
}

/// Condition and time limit for readiness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The condition.
    pub when: ReadyCondition,
    /// Time limit.
    pub within: DurNs,
}

/// Condition for readiness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadyCondition {
    /// It has been started.
    Started,
    /// Its output contains a line with this text.
    Line(String),
    /// This file exists.
    File(String),
    /// This TCP port of the loopback address accepts connections.
    Port(u16),
    /// It sends `READY=1` to the socket named in `NOTIFY_SOCKET`.
    Notify,
}

impl ReadyCondition {
    /// The sign of readiness that a process has not given, for messages; `None` if it needs none.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Started => None,
            Self::Line(text) => Some(format!("no line of its output with {text:?}")),
            Self::File(path) => Some(format!("no new file {path}")),
            Self::Port(port) => Some(format!("nothing new accepts connections on 127.0.0.1:{port}")),
            Self::Notify => Some("no READY=1 to the socket in NOTIFY_SOCKET".to_owned()),
        }
    }
}

/// Restart policy after the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Ends after which it is restarted.
    pub policy: RestartPolicy,
    /// Pause before the first restart. It doubles with each further restart within the window.
    pub backoff: DurNs,
    /// Maximum pause.
    pub backoff_max: DurNs,
    /// Time over which restarts are counted.
    pub window: DurNs,
    /// Number of restarts within the window after which the fault is latched.
    pub limit: u32,
}

/// Ends after which a process is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Every end.
    Always,
    /// Every end but exit status 0.
    OnFailure,
    /// Never; a failure is latched at once.
    Never,
}

/// One step of a stop sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopStep {
    /// The signal sent.
    pub signal: Signal,
    /// Time until the next step, if the process has not ended.
    pub wait: DurNs,
}

/// Log files of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Size at which a file is rotated.
    pub size: Size,
    /// Number of old files that are kept.
    pub keep: u32,
}

/// Heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Maximum interval between heartbeats.
    pub within: DurNs,
    /// Whether the hardware watchdog is serviced only while this heartbeat arrives.
    pub critical: bool,
}

/// Processor time that a real-time thread may use without yielding its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Budget {
    /// At most this share of each period.
    Share {
        /// Percent of one CPU.
        percent: u8,
        /// The period.
        period: DurNs,
    },
    /// Not monitored, because the process polls. Only a missing heartbeat makes it a runaway.
    None,
}

/// One step against a runaway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// The action.
    pub action: RungAction,
    /// Time for the action to take effect, before the next step.
    pub wait: DurNs,
}

/// Action against a runaway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RungAction {
    /// Makes its threads time sharing.
    Demote,
    /// Stops it (SIGSTOP or the freezer), to preserve evidence.
    Freeze,
    /// Sends SIGABRT, for a core file.
    Abort,
    /// Sends SIGKILL.
    Kill,
}

/// Class and CPUs of the threads whose name matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadRule {
    /// Pattern of the thread name: `*` matches any text, `?` one character.
    pub pattern: String,
    /// Class of the threads, if the rule has one.
    pub class: Option<Policy>,
    /// CPUs of the threads, if the rule has them.
    pub cpus: Option<Cpus>,
}

/// `[watchdog]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    /// The device file.
    pub device: String,
    /// Time without a sign of life after which the machine is reset.
    pub timeout: DurNs,
}

/// A signal, by its Linux number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub u8);

/// Names of the signals that a stop sequence or an operator may send, with their numbers on Linux.
const SIGNALS: &[(&str, u8)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("XCPU", 24),
    ("WINCH", 28),
    ("ILL", 4),
    ("TRAP", 5),
    ("BUS", 7),
    ("FPE", 8),
    ("XFSZ", 25),
    ("SYS", 31),
];

impl Signal {
    /// SIGABRT.
    pub const ABRT: Self = Self(6);
    /// SIGKILL.
    pub const KILL: Self = Self(9);
    /// SIGTERM.
    pub const TERM: Self = Self(15);
    /// SIGINT.
    pub const INT: Self = Self(2);

    /// Whether the signal comes from another process or a user, unlike signals for faults of the process itself.
    #[must_use]
    pub fn is_of_others(self) -> bool {
        /// SIGHUP and SIGQUIT.
        const FURTHER: [Signal; 2] = [Signal(1), Signal(3)];
        [Self::INT, Self::KILL, Self::TERM].contains(&self) || FURTHER.contains(&self)
    }
}

impl FromStr for Signal {
    type Err = &'static str;

    /// Parses `TERM`, `SIGTERM` or `15`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some((_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
            return Ok(Self(*number));
        }
        match name.parse() {
            Ok(number @ 1..=64) => Ok(Self(number)),
            _ => Err("expected a signal such as TERM, INT, USR1 or its number"),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl Serialize for Signal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).map(Self)
    }
}

impl Cpus {
    /// Resolves to CPUs of `machine`, on which the CPUs `shielded` are shielded.
    #[must_use]
    pub fn resolve(&self, machine: &UsableCpus, shielded: &CpuSet) -> CpuSet {
        match self {
            Self::Shield => shielded.and(&machine.online),
            Self::Housekeeping => machine.housekeeping(shielded),
            Self::List(cpus) => *cpus,
        }
    }
}

/// CPUs that a plant may use without naming them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableCpus {
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs on which the supervisor may run (`taskset`, a unit's `CPUAffinity=`, `isolcpus=`), regardless of a shield.
    pub own: CpuSet,
    /// CPUs that the boot line isolated (`isolcpus=`).
    pub boot_isolated: CpuSet,
}

impl UsableCpus {
    /// The CPUs for everything that is not real time: online, in the supervisor's mask, and neither shielded nor
    /// isolated at boot. If there are none, CPUs that are isolated at boot are included; if there are still none, also
    /// CPUs outside the mask.
    #[must_use]
    pub fn housekeeping(&self, shielded: &CpuSet) -> CpuSet {
        let online = self.online.minus(shielded);
        let own = online.and(&self.own);
        [own.minus(&self.boot_isolated), own].into_iter().find(|cpus| !cpus.is_empty()).unwrap_or(online)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shield => f.write_str("shield"),
            Self::Housekeeping => f.write_str("housekeeping"),
            Self::List(cpus) => cpus.fmt(f),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { percent, period } => write!(f, "{percent}%/{period}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Maximum share of skipped pulses, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissRatio(pub u32);

impl MissRatio {
    /// Whether `missed` of `of` pulses are within the share.
    #[must_use]
    pub fn allows(self, missed: u64, of: u64) -> bool {
        u128::from(missed) * 1_000_000 <= u128::from(of) * u128::from(self.0)
    }
}

impl fmt::Display for MissRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000.0)
    }
}

impl FromStr for MissRatio {
    type Err = &'static str;

    /// Parses `0.1%`: 0 % to 100 %, in steps of 0.0001 %.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent
            .map(|percent| Self((percent * 10_000.0).round() as u32))
            .ok_or("a percentage such as 0.1%, from 0% to 100%")
    }
}

/// An invalid budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share of a period such as 80%/100ms (1% to 99%, 10ms to 60s), or none{}", .period.as_ref().map_or(String::new(), |error| format!(": {error}")))]
pub struct BudgetError {
    /// The parse error of the period, if it is not a time.
    pub period: Option<ParseUnitError>,
}

impl FromStr for Budget {
    type Err = BudgetError;

    /// Parses `80%/100ms` or `none`.
    ///
    /// The share is 1 % to 99 %: no thread can use more than 100 % of a CPU, so a budget of 100 % would never be
    /// exceeded. The period is 10 ms to 60 s: kernels account running threads at their tick, at least 100 times per
    /// second.
    fn from_str(text: &str) -> Result<Self, BudgetError> {
        const WRONG: BudgetError = BudgetError { period: None };
        if text.trim() == "none" {
            return Ok(Self::None);
        }
        let (share, period) = text.split_once('/').ok_or(WRONG)?;
        let percent = share.trim().strip_suffix('%').and_then(|number| number.trim().parse::<u8>().ok());
        let percent = percent.filter(|percent| (1..=99).contains(percent)).ok_or(WRONG)?;
        let period: DurNs = period.trim().parse().map_err(|error| BudgetError { period: Some(error) })?;
        if period < DurNs::from_ms(10) || period > DurNs::from_secs(60) {
            return Err(WRONG);
        }
        Ok(Self::Share { percent, period })
    }
}

impl RungAction {
    /// The word in files and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Demote => "demote",
            Self::Freeze => "freeze",
            Self::Abort => "abort",
            Self::Kill => "kill",
        }
    }

    /// All actions, from the mildest to the strongest.
    pub const ALL: [Self; 4] = [Self::Demote, Self::Freeze, Self::Abort, Self::Kill];
}

impl Plant {
    /// Finds a process by its name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.name == name)
    }

    /// Makes the dashboard one of the processes.
    #[must_use]
    pub fn with_dashboard(mut self) -> Self {
        self.processes.extend(self.dashboard.take().map(|dashboard| *dashboard));
        self
    }

    /// The isolated CPUs; empty without a shield.
    #[must_use]
    pub fn isolated(&self) -> CpuSet {
        self.shield.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus)
    }
}

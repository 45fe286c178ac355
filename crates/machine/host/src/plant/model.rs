//! What a plant file says, as plain values with every default filled in.

use crate::plan::Profile;
use base::{CpuSet, DurNs, ParseUnitError, Policy, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A machine's real-time part: what `tahti up` makes so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plant {
    /// Name; also that of its folder under `/run/tahti`.
    pub name: String,
    /// Who may look, beside root and the plant's own user.
    #[serde(default)]
    pub operators: Option<Operators>,
    /// CPUs to keep free of everybody else, if any.
    pub shield: Option<Shield>,
    /// The processes, in the file's order.
    pub processes: Vec<Process>,
    /// Bounds that processes share.
    #[serde(default)]
    pub partitions: Vec<super::Partition>,
    /// The frames; each has a process of its own among the others.
    #[serde(default)]
    pub frames: Vec<frame::Config>,
    /// Hardware watchdog, if the plant asks for it.
    pub watchdog: Option<Watchdog>,
    /// Where logs and evidence go besides.
    #[serde(default)]
    pub records: Records,
    /// Its dashboard, which is one of its processes where somebody wants it ([`with_dashboard`](Self::with_dashboard)).
    #[serde(default)]
    pub dashboard: Option<Box<Process>>,
    /// Lines of its file.
    #[serde(default)]
    pub places: super::Places,
}

/// `[records]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The folder for logs and evidence, from the plant file's; the run folder when missing, which ends with the boot.
    pub folder: Option<String>,
    /// Which journal of the machine gets each line, too.
    pub also: Option<Also>,
}

/// A journal of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Also {
    /// systemd's journal.
    Journal,
    /// Whatever reads `/dev/log`.
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

/// Who may look at a plant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operators {
    /// A group, by name or number.
    pub group: String,
    /// Whether its members may type into consoles.
    pub may_type: bool,
}

/// `[shield]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shield {
    /// The isolated CPUs.
    pub cpus: CpuSet,
    /// What the isolated CPUs are tuned for.
    pub profile: Profile,
    /// Processes that must not be touched.
    pub spare: Vec<crate::plan::Spared>,
    /// Whether `up` fails if the shield is unavailable.
    pub required: bool,
    /// Interrupts that belong onto the shield.
    #[serde(default)]
    pub irqs: Vec<crate::plan::Placed>,
    /// What is kept away.
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
    /// Scheduling class of its first thread, inherited by the others.
    pub class: Policy,
    /// Where it runs.
    pub cpus: Cpus,
    /// NUMA node that its memory comes from.
    pub numa: Option<u16>,
    /// Whether all its memory is locked.
    pub mlock: bool,
    /// Resource limits.
    pub limits: Limits,
    /// Bounds on itself and everything that it starts, together.
    #[serde(default)]
    pub bounds: Bounds,
    /// The partition that it is in.
    #[serde(default)]
    pub partition: Option<String>,
    /// User (name or number) that it runs as; the supervisor's when missing.
    pub user: Option<String>,
    /// Capabilities that it keeps (`CAP_…`); `None` leaves them as the user has them.
    pub capabilities: Option<Vec<String>>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// Variables by which it finds other parts of the plant, unless it has them from the supervisor's environment.
    #[serde(default)]
    pub automatic: BTreeMap<String, String>,
    /// Working directory; the plant file's folder when missing.
    pub dir: Option<String>,
    /// Processes that must be ready before this one starts.
    pub after: Vec<String>,
    /// When it counts as ready.
    pub ready: Ready,
    /// What happens when it ends.
    pub restart: Restart,
    /// How it is asked to end; SIGKILL follows the last step.
    pub stop: Vec<StopStep>,
    /// What it inherits and what it may do, beyond class, user and capabilities.
    #[serde(default)]
    pub hygiene: Hygiene,
    /// Command that puts the equipment into a safe state when the process faults.
    pub on_fault: Option<Vec<String>>,
    /// Its log files.
    pub log: Log,
    /// Proof of life that it owes.
    pub heartbeat: Option<Heartbeat>,
    /// Processor time that a real-time thread may use without giving its CPU up.
    pub budget: Budget,
    /// What is done about a runaway, in order.
    pub ladder: Vec<Rung>,
    /// Classes and CPUs of threads by name.
    pub threads: Vec<ThreadRule>,
    /// Share of its pulses that its loop may give up before the plant's verdict is against it.
    #[serde(default)]
    pub miss_ratio_max: Option<MissRatio>,
    /// Until when the results of its loop count.
    #[serde(default)]
    pub deadline: Option<super::DeadlineRule>,
    /// Whether it may give threads of its own a fixed priority (bands, scans, lanes, a frame): the guard watches it then.
    #[serde(default)]
    pub has_own_priorities: bool,
    /// Whether the plant is up without it: nobody waits until it is ready, and its failure takes nothing down.
    #[serde(default)]
    pub optional: bool,
}

/// What a process inherits of who started it, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hygiene {
    /// Patterns of the supervisor's variables that it gets; `None`: all, or none of them where it has a user of its own.
    pub pass_environment: Option<Vec<String>>,
    /// Nice value of its time-sharing threads, -20 to 19, beside the class.
    #[serde(default)]
    pub nice: Option<i8>,
    /// Permissions that its new files do not get.
    pub umask: Option<u32>,
    /// What the kernel adds to its score when memory runs out, -1000 (never) to 1000 (first).
    pub oom_score_adjust: Option<i16>,
    /// Whether it can never gain rights by starting a program.
    pub no_new_privileges: bool,
    /// What of the file system it sees.
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
    /// Whether `/tmp` and `/var/tmp` are its own, empty and in memory.
    pub private_tmp: bool,
    /// What of the system it cannot write to.
    pub protect_system: ProtectSystem,
    /// What of the homes it sees.
    pub protect_home: ProtectHome,
    /// Where it may write all the same.
    pub read_write_paths: Vec<String>,
    /// What it sees empty.
    pub inaccessible_paths: Vec<String>,
}

/// What of the system is read-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectSystem {
    /// Nothing.
    #[default]
    No,
    /// `/usr`, `/boot`, `/efi`.
    Yes,
    /// `/etc`, too.
    Full,
    /// Everything but `/dev`, `/proc`, `/sys` and the writable paths.
    Strict,
}

/// What of the homes is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectHome {
    /// All.
    #[default]
    No,
    /// Nothing.
    Yes,
    /// All, but nothing can be written.
    ReadOnly,
}

/// Where a process or thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// On the isolated CPUs.
    Shield,
    /// On all others.
    Housekeeping,
    /// On these.
    List(CpuSet),
}

/// Resource limits; `None` leaves what the supervisor has.
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

/// Bounds on a process and everything that it starts, together, by their control group; `None` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Memory, page cache included: beyond it the kernel ends one of them.
    pub memory_max: Option<Size>,
    /// Processes and threads: beyond it none can be started.
    pub tasks_max: Option<u64>,
}

/// When a process counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The sign that it gives.
    pub when: ReadyWhen,
    /// How long it may take.
    pub within: DurNs,
}

/// The sign by which a process says that it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadyWhen {
    /// It has been started.
    Started,
    /// Its output has a line that contains this text.
    Line(String),
    /// This file exists.
    File(String),
    /// This TCP port of the loopback address accepts connections.
    Port(u16),
    /// It sends `READY=1` to the socket named in `NOTIFY_SOCKET`.
    Notify,
}

/// What happens when a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Which ends are followed by a new start.
    pub policy: RestartPolicy,
    /// Pause before the first restart; doubled for each further one within the window.
    pub backoff: DurNs,
    /// Longest pause.
    pub backoff_max: DurNs,
    /// Time over which restarts are counted.
    pub window: DurNs,
    /// Restarts within the window before the fault is latched.
    pub limit: u32,
}

/// Which ends of a process are followed by a new start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Every end.
    Always,
    /// Every end but exit status 0.
    OnFailure,
    /// None; a failure is latched at once.
    Never,
}

/// One step of a stop sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopStep {
    /// The signal sent.
    pub signal: Signal,
    /// How long the process has to end before the next step.
    pub wait: DurNs,
}

/// Log files of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Size at which a file is rotated.
    pub size: Size,
    /// Old files kept.
    pub keep: u32,
}

/// Proof of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Longest silence.
    pub within: DurNs,
    /// Whether the hardware watchdog depends on it.
    pub critical: bool,
}

/// Processor time that a real-time thread may use without giving its CPU up.
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
    /// Not watched: the process polls; its silence is the runaway.
    None,
}

/// One step against a runaway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// What is done.
    pub action: RungAction,
    /// How long it may take to help before the next step.
    pub wait: DurNs,
}

/// What is done about a runaway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RungAction {
    /// Its threads become time sharing.
    Demote,
    /// It is stopped (SIGSTOP or the freezer), for evidence.
    Freeze,
    /// SIGABRT, for a core file.
    Abort,
    /// SIGKILL.
    Kill,
}

/// Class and CPUs of the threads whose name matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadRule {
    /// Pattern of the thread's name: `*` stands for any text, `?` for one character.
    pub pattern: String,
    /// Their class, where the rule says one.
    pub class: Option<Policy>,
    /// Their CPUs, where the rule says so.
    pub cpus: Option<Cpus>,
}

/// `[watchdog]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    /// The device file.
    pub device: String,
    /// The machine resets after this long without a sign.
    pub timeout: DurNs,
}

/// A signal by its Linux number.
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
}

impl FromStr for Signal {
    type Err = &'static str;

    /// Reads `TERM`, `SIGTERM` or `15`.
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
    /// The CPUs meant, on a machine with these CPUs where these are shielded.
    #[must_use]
    pub fn resolve(&self, machine: &UsableCpus, shielded: &CpuSet) -> CpuSet {
        match self {
            Self::Shield => shielded.and(&machine.online),
            Self::Housekeeping => machine.housekeeping(shielded),
            Self::List(cpus) => *cpus,
        }
    }
}

/// The CPUs of a machine, as far as a plant may use them without naming them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableCpus {
    /// Those online.
    pub online: CpuSet,
    /// Those on which the supervisor may run (`taskset`, a unit's `CPUAffinity=`, `isolcpus=`), without regard to a shield.
    pub own: CpuSet,
    /// Those that the boot line isolated (`isolcpus=`).
    pub boot_isolated: CpuSet,
}

impl UsableCpus {
    /// The CPUs for everything that is not real time: online, in the supervisor's mask, neither shielded nor isolated at
    /// boot. Where that leaves none, what the mask leaves; without that, what is online.
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

/// A share of pulses that may be missed, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissRatio(pub u32);

impl MissRatio {
    /// Whether so many of so many are within it.
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

    /// Reads `0.1%`: 0 % to 100 %, in steps of 0.0001 %.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent
            .map(|percent| Self((percent * 10_000.0).round() as u32))
            .ok_or("a percentage such as 0.1%, from 0% to 100%")
    }
}

/// A budget that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share of a period such as 80%/100ms (1% to 99%, 10ms to 60s), or none{}", .period.as_ref().map_or(String::new(), |error| format!(": {error}")))]
pub struct BudgetError {
    /// What is wrong with its period, where it is no time.
    pub period: Option<ParseUnitError>,
}

impl FromStr for Budget {
    type Err = BudgetError;

    /// Reads `80%/100ms` or `none`.
    ///
    /// 1 % to 99 %: more than all of a CPU cannot be burnt, so that 100 % would watch nothing. 10 ms to 60 s:
    /// kernels account running threads at their tick, at worst 100 times a second.
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
    /// The word that files and reports use.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Demote => "demote",
            Self::Freeze => "freeze",
            Self::Abort => "abort",
            Self::Kill => "kill",
        }
    }

    /// All steps, gentlest first.
    pub const ALL: [Self; 4] = [Self::Demote, Self::Freeze, Self::Abort, Self::Kill];
}

impl Plant {
    /// A process by its name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.name == name)
    }

    /// With its dashboard as one of its processes.
    #[must_use]
    pub fn with_dashboard(mut self) -> Self {
        self.processes.extend(self.dashboard.take().map(|dashboard| *dashboard));
        self
    }

    /// The isolated CPUs; none without a shield.
    #[must_use]
    pub fn isolated(&self) -> CpuSet {
        self.shield.as_ref().map_or(CpuSet::EMPTY, |shield| shield.cpus)
    }
}

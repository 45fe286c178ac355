//! The requested shield.

use super::{Context, PlanError};
use base::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The requested shield.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The CPUs to shield.
    pub cpus: CpuSet,
    /// Purpose of the CPUs.
    #[serde(default)]
    pub profile: Profile,
    /// Processes that must not be touched (see [`Spare`](super::Spare)).
    #[serde(default)]
    pub spare: Vec<Spared>,
    /// The requesting process and its parent. Their other descendants are not spared even if an ancestor is.
    #[serde(default)]
    pub own: Vec<i32>,
    /// Parts of the shield to apply.
    #[serde(default)]
    pub parts: ShieldParts,
    /// Apply only the knob of this name, and move neither tasks nor interrupts. For measuring the effect of one knob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Interrupts that belong to the shield, each with the CPU of its handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<Placed>,
}

/// A process that must not be touched. `PID` means the process with its threads. `PID+` means also all its descendants,
/// including those started later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Spared {
    /// The process. The ID of a thread means its process.
    pub pid: i32,
    /// Whether its descendants are spared, too.
    pub descendants: bool,
}

impl Spared {
    /// The process alone.
    #[must_use]
    pub fn alone(pid: i32) -> Self {
        Self { pid, descendants: false }
    }

    /// Parses a list such as `1+,345,346`. Blanks and empty entries are ignored.
    ///
    /// # Errors
    /// The first invalid word.
    pub fn list(text: &str) -> Result<Vec<Self>, WordError> {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse).collect()
    }
}

/// Value of `--spare` and `TAHTI_SPARE`: a list of processes; empty text means none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparedList(pub Vec<Spared>);

impl FromStr for SparedList {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Spared::list(text).map(Self)
    }
}

/// A word that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?}: expected {expected}")]
pub struct WordError {
    /// The word.
    pub found: String,
    /// Expected form.
    pub expected: &'static str,
}

impl WordError {
    pub(crate) fn of(found: &str, expected: &'static str) -> Self {
        Self { found: found.to_owned(), expected }
    }
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.pid, if self.descendants { "+" } else { "" })
    }
}

impl FromStr for Spared {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let (number, descendants) = text.strip_suffix('+').map_or((text, false), |number| (number, true));
        let pid = number.parse().ok().filter(|pid| *pid > 0);
        let expected = "a process id such as 1234, or 1234+ for it and its descendants";
        pid.map(|pid| Self { pid, descendants }).ok_or_else(|| WordError::of(text, expected))
    }
}

impl From<Spared> for String {
    fn from(spared: Spared) -> Self {
        spared.to_string()
    }
}

impl TryFrom<String> for Spared {
    type Error = WordError;

    fn try_from(text: String) -> Result<Self, WordError> {
        text.parse()
    }
}

/// One part of a shield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShieldPart {
    /// Keeps other tasks and movable work of the kernel away.
    Tasks,
    /// Keeps interrupts of devices away, and the work that follows them.
    Interrupts,
    /// Keeps periodic work of the kernel away.
    Timers,
    /// Sets power, memory and preemption for the shielded CPUs.
    Settings,
}

/// Parts of a shield to apply; all by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ShieldParts {
    /// [`ShieldPart::Tasks`].
    pub tasks: bool,
    /// [`ShieldPart::Interrupts`].
    pub interrupts: bool,
    /// [`ShieldPart::Timers`].
    pub timers: bool,
    /// [`ShieldPart::Settings`].
    pub settings: bool,
}

impl Default for ShieldParts {
    fn default() -> Self {
        Self { tasks: true, interrupts: true, timers: true, settings: true }
    }
}

impl ShieldParts {
    /// Whether this part is requested.
    #[must_use]
    pub fn has(self, part: ShieldPart) -> bool {
        match part {
            ShieldPart::Tasks => self.tasks,
            ShieldPart::Interrupts => self.interrupts,
            ShieldPart::Timers => self.timers,
            ShieldPart::Settings => self.settings,
        }
    }

    /// Whether it includes all parts of `other`.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        let parts = [ShieldPart::Tasks, ShieldPart::Interrupts, ShieldPart::Timers, ShieldPart::Settings];
        parts.into_iter().all(|part| self.has(part) || !other.has(part))
    }
}

impl fmt::Display for ShieldPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tasks => "tasks",
            Self::Interrupts => "interrupts",
            Self::Timers => "timers",
            Self::Settings => "settings",
        })
    }
}

impl fmt::Display for ShieldParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [ShieldPart::Tasks, ShieldPart::Interrupts, ShieldPart::Timers, ShieldPart::Settings];
        let words: Vec<String> =
            parts.into_iter().filter(|part| self.has(*part)).map(|part| part.to_string()).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for ShieldParts {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let mut parts = Self { tasks: false, interrupts: false, timers: false, settings: false };
        for word in text.split(',').map(str::trim) {
            *match word {
                "tasks" => &mut parts.tasks,
                "interrupts" => &mut parts.interrupts,
                "timers" => &mut parts.timers,
                "settings" => &mut parts.settings,
                _ => return Err(WordError::of(word, "some of tasks, interrupts, timers, settings")),
            } = true;
        }
        Ok(parts)
    }
}

impl From<ShieldParts> for String {
    fn from(parts: ShieldParts) -> Self {
        parts.to_string()
    }
}

impl TryFrom<String> for ShieldParts {
    type Error = WordError;

    fn try_from(text: String) -> Result<Self, WordError> {
        text.parse()
    }
}

/// An interrupt to be placed: `WORDS=CPU`. The words must occur in its line of `/proc/interrupts` (`0000:00:03.0=2`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Placed {
    /// Part of the interrupt's device and action.
    pub words: String,
    /// The CPU of its handler.
    pub cpu: CpuId,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.words, self.cpu)
    }
}

impl FromStr for Placed {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let expected = "WORDS=CPU, words of a line of /proc/interrupts, such as 0000:00:03.0=2";
        let wrong = || WordError::of(text, expected);
        let (words, cpu) = text.rsplit_once('=').ok_or_else(wrong)?;
        let cpu = cpu.trim().parse().ok().filter(|_| !words.trim().is_empty()).ok_or_else(wrong)?;
        Ok(Self { words: words.trim().to_owned(), cpu })
    }
}

impl From<Placed> for String {
    fn from(placed: Placed) -> Self {
        placed.to_string()
    }
}

impl TryFrom<String> for Placed {
    type Error = WordError;

    fn try_from(text: String) -> Result<Self, WordError> {
        text.parse()
    }
}

/// Purpose of a shielded CPU. It determines the values of the knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Periodic work that sleeps between its cycles. The timer tick does no harm; deep idle states do.
    #[default]
    ControlLoop,
    /// Work that never sleeps. Every interruption counts.
    Polling,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlLoop => "control-loop",
            Self::Polling => "polling",
        })
    }
}

impl FromStr for Profile {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        match text {
            "control-loop" => Ok(Self::ControlLoop),
            "polling" => Ok(Self::Polling),
            _ => Err(WordError::of(text, "the profile control-loop or polling")),
        }
    }
}

impl Want {
    /// Errors that do not depend on the back-end.
    pub(super) fn check(&self, context: &Context<'_>, errors: &mut Vec<PlanError>) {
        let cpus = &context.snapshot.cpus;
        let impossible = self.cpus.minus(&cpus.possible.or(&cpus.online));
        let offline = self.cpus.minus(&cpus.online).minus(&impossible);
        if self.cpus.is_empty() {
            errors.push(PlanError::NoCpus);
        }
        if !impossible.is_empty() {
            errors.push(PlanError::Impossible { cpus: impossible, online: cpus.online });
        }
        if !offline.is_empty() {
            errors.push(PlanError::Offline { cpus: offline });
        }
        if cpus.online.is_subset(&self.cpus) {
            errors.push(PlanError::AllCpus { online: cpus.online });
        }
        for placed in self.irqs.iter().filter(|placed| !self.cpus.contains(placed.cpu)) {
            errors.push(PlanError::Elsewhere { interrupt: placed.words.clone(), cpu: placed.cpu, shield: self.cpus });
        }
    }
}

//! What is asked for.

use super::{Context, PlanError};
use base::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The shield that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The CPUs to keep free.
    pub cpus: CpuSet,
    /// What they are kept free for.
    #[serde(default)]
    pub profile: Profile,
    /// Processes that must not be touched (see [`Spare`](super::Spare)).
    #[serde(default)]
    pub spare: Vec<Spared>,
    /// The asking process and the one that started it: their other descendants are not spared even where
    /// an ancestor is.
    #[serde(default)]
    pub own: Vec<i32>,
    /// What they are kept free of.
    #[serde(default)]
    pub parts: ShieldParts,
    /// Only the knob of this name, and neither tasks nor interrupts: to measure what it is worth alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Interrupts that belong onto the shield, each to the CPU of its handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<Placed>,
}

/// A process that must not be touched: `PID` is it alone with its threads, `PID+` also all that descend from it, those
/// born later included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Spared {
    /// The process; a thread's id means its process.
    pub pid: i32,
    /// Whether its descendants are meant too.
    pub descendants: bool,
}

impl Spared {
    /// The process alone.
    #[must_use]
    pub fn alone(pid: i32) -> Self {
        Self { pid, descendants: false }
    }

    /// It and all that descend from it.
    #[must_use]
    pub fn with_descendants(pid: i32) -> Self {
        Self { pid, descendants: true }
    }

    /// A list such as `1+,345,346`; blanks and empty places do no harm.
    ///
    /// # Errors
    /// What is wrong with which word.
    pub fn list(text: &str) -> Result<Vec<Self>, WordError> {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse).collect()
    }
}

/// What `--spare` and `TAHTI_SPARE` take: some processes, or none where the text is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparedList(pub Vec<Spared>);

impl FromStr for SparedList {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Spared::list(text).map(Self)
    }
}

/// A word that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?}: expected {expected}")]
pub struct WordError {
    /// The word.
    pub found: String,
    /// What it should be.
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

/// One of the things that a shield keeps away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShieldPart {
    /// Other tasks, and the kernel's movable work.
    Tasks,
    /// Devices' interrupts, and what follows them.
    Interrupts,
    /// The kernel's own periodic work.
    Timers,
    /// No disturber: power, memory and preemption, as is good for the shield.
    Settings,
}

/// What a shield keeps away; all of it by default.
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
    /// Whether this part is wanted.
    #[must_use]
    pub fn has(self, part: ShieldPart) -> bool {
        match part {
            ShieldPart::Tasks => self.tasks,
            ShieldPart::Interrupts => self.interrupts,
            ShieldPart::Timers => self.timers,
            ShieldPart::Settings => self.settings,
        }
    }

    /// Whether all of `other` is in it.
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

/// An interrupt that is placed: `WORDS=CPU`, where the words stand in its line of `/proc/interrupts` (`0000:00:03.0=2`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Placed {
    /// A part of its device and action.
    pub words: String,
    /// Where it goes.
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

/// What a shielded CPU is for; it decides what is good for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Periodic work that sleeps between its cycles: regular ticks do no harm, deep sleep does.
    #[default]
    ControlLoop,
    /// Work that never sleeps: every interruption counts.
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
    /// Errors that no back-end can help.
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

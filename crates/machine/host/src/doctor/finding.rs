//! The result of a check: evidence, effect on each use, and remedy.

use serde::Serialize;
use std::fmt;

/// An intended use of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Use {
    /// A control loop with a period of 1 ms.
    #[serde(rename = "loop-1khz")]
    Loop1kHz,
    /// A control loop with a period of 100 us.
    #[serde(rename = "loop-10khz")]
    Loop10kHz,
    /// A thread that never sleeps and has a CPU to itself.
    #[serde(rename = "polling")]
    Polling,
}

impl Use {
    /// All uses, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Loop1kHz, Self::Loop10kHz, Self::Polling];
    /// Both loops.
    pub const LOOPS: [Self; 2] = [Self::Loop1kHz, Self::Loop10kHz];

    /// Name on the command line and in `--json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loop1kHz => "loop-1khz",
            Self::Loop10kHz => "loop-10khz",
            Self::Polling => "polling",
        }
    }

    /// Name for users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Loop1kHz => "1 kHz loop",
            Self::Loop10kHz => "10 kHz loop",
            Self::Polling => "busy polling",
        }
    }
}

/// Effect of a finding on one use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// No effect.
    #[default]
    None,
    /// The use works, but deadlines may be missed.
    Reservation,
    /// Deadlines will be missed, or the use is impossible.
    Unfit,
}

/// Severity of a finding, derived from its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As recommended.
    Fine,
    /// For information; affects no use.
    Note,
    /// Not determined. The finding has the reason.
    Unknown,
    /// At least one use has reservations.
    Warning,
    /// At least one use is unfit.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// Kind of remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyKind {
    /// A command or a file, effective at once or at the next login.
    Change,
    /// Done by `tahti shield apply`, which can also revert it.
    Shield,
    /// A boot parameter.
    Boot,
    /// Another kernel.
    Kernel,
    /// A setting of the firmware (BIOS, UEFI).
    Firmware,
    /// Other hardware, or the host of a virtual machine.
    Machine,
}

/// Remedy of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Kind of remedy.
    pub how: RemedyKind,
    /// The step, in the imperative.
    pub text: String,
}

impl Remedy {
    /// Creates a remedy of kind `how`.
    pub fn new(how: RemedyKind, text: impl Into<String>) -> Self {
        Self { how, text: text.into() }
    }

    /// Whether the remedy needs a reboot.
    #[must_use]
    pub fn needs_reboot(&self) -> bool {
        matches!(self.how, RemedyKind::Boot | RemedyKind::Kernel | RemedyKind::Firmware)
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    fine: bool,
    effects: [Effect; 3],
    /// Evidence, one statement per line.
    pub evidence: Vec<String>,
    /// The remedy, if there is one.
    pub remedy: Option<Remedy>,
}

impl Finding {
    /// Creates a finding that is as recommended.
    pub fn fine(evidence: impl Into<String>) -> Self {
        Self { fine: true, effects: [Effect::None; 3], evidence: vec![evidence.into()], remedy: None }
    }

    /// Creates a finding that is not as recommended. It is a note until [`reserve`](Self::reserve) or
    /// [`unfit`](Self::unfit) is called.
    pub fn note(evidence: impl Into<String>) -> Self {
        Self { fine: false, ..Self::fine(evidence) }
    }

    /// Adds a line of evidence.
    #[must_use]
    pub fn and(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Gives these uses reservations. Uses that are unfit stay unfit.
    #[must_use]
    pub fn reserve(self, uses: &[Use]) -> Self {
        self.at_least(Effect::Reservation, uses)
    }

    /// Makes these uses unfit.
    #[must_use]
    pub fn unfit(self, uses: &[Use]) -> Self {
        self.at_least(Effect::Unfit, uses)
    }

    /// Sets the remedy.
    #[must_use]
    pub fn remedy(mut self, how: RemedyKind, text: impl Into<String>) -> Self {
        self.remedy = Some(Remedy::new(how, text));
        self
    }

    /// Effect on the use `wanted`.
    #[must_use]
    pub fn effect(&self, wanted: Use) -> Effect {
        self.effects[wanted as usize]
    }

    /// Severity, derived from the strongest effect on any use.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.effects.iter().max() {
            Some(Effect::Unfit) => Severity::Problem,
            Some(Effect::Reservation) => Severity::Warning,
            _ if self.fine => Severity::Fine,
            _ => Severity::Note,
        }
    }

    fn at_least(mut self, effect: Effect, uses: &[Use]) -> Self {
        self.fine &= uses.is_empty();
        for &wanted in uses {
            let slot = &mut self.effects[wanted as usize];
            *slot = (*slot).max(effect);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severity_follows_from_the_worst_effect() {
        assert_eq!(Finding::fine("x").severity(), Severity::Fine);
        assert_eq!(Finding::note("x").severity(), Severity::Note);
        let warning = Finding::note("x").reserve(&Use::ALL);
        assert_eq!(warning.severity(), Severity::Warning);
        let problem = warning.unfit(&[Use::Polling]).reserve(&[Use::Polling]);
        assert_eq!(problem.severity(), Severity::Problem);
        assert_eq!(problem.effect(Use::Polling), Effect::Unfit);
        assert_eq!(problem.effect(Use::Loop1kHz), Effect::Reservation);
    }
}

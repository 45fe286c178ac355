//! What is asked for.

use super::{Context, PlanError};
use base::CpuSet;
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
    /// Processes that must not be touched, with their descendants (see [`Spare`](super::Spare)).
    #[serde(default)]
    pub spare: Vec<i32>,
    /// The asking process and the one that started it: their other descendants are not spared even where
    /// an ancestor is.
    #[serde(default)]
    pub own: Vec<i32>,
    /// Only the knob of this name, and neither tasks nor interrupts: to measure what it is worth alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "control-loop" => Ok(Self::ControlLoop),
            "polling" => Ok(Self::Polling),
            _ => Err(format!("unknown profile {text:?}: expected control-loop or polling")),
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
    }
}

//! A plan: steps, and what no step can do.

use crate::snapshot::{Target, Value};
use serde::{Deserialize, Serialize};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is written.
    pub target: Target,
    /// Its name for people.
    pub label: String,
    /// The value that must stand there before.
    pub from: Value,
    /// The value that stands there afterwards.
    pub to: Value,
    /// Why.
    pub why: String,
    /// Why the kernel may refuse, where that is no failure of the shield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_refuse: Option<String>,
}

impl Step {
    /// Whether it writes nothing: the kernel may change this value along with another, and the release puts it back.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.from == self.to
    }
}

/// Something to know that is not a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub about: String,
    /// What there is to know.
    pub text: String,
}

/// An ordered list of steps. It leaves no choice to whoever executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// How tasks are kept off.
    #[serde(default)]
    pub backend: String,
    /// The writes, in order.
    pub steps: Vec<Step>,
    /// What cannot be moved, and what else there is to know.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Boot parameters that would do what no run-time step can.
    #[serde(default)]
    pub boot: Vec<Note>,
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The plan without steps on `targets`, which refused before.
    #[must_use]
    pub fn without<'a>(mut self, targets: impl Iterator<Item = &'a Target> + Clone) -> Self {
        self.steps.retain(|step| !targets.clone().any(|target| *target == step.target));
        self
    }
}

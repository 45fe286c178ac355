//! A plan: steps, and notes about things that no step can do.

use crate::snapshot::{Target, Value};
use serde::{Deserialize, Serialize};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The target.
    pub target: Target,
    /// Name of the value for users.
    pub label: String,
    /// Value that the target must have before the write.
    pub from: Value,
    /// Value that the target has after the write.
    pub to: Value,
    /// The reason.
    pub why: String,
    /// Possible reason for a refusal by the kernel, if that is not a failure of the shield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_refuse: Option<String>,
}

impl Step {
    /// Whether the step writes nothing. The kernel may change this value together with another one; the release
    /// restores it.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.from == self.to
    }
}

/// A remark that is not a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The subject.
    pub about: String,
    /// The text.
    pub text: String,
}

/// An ordered list of steps. Its executor makes no decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Method that keeps tasks off the CPUs.
    #[serde(default)]
    pub backend: String,
    /// The writes, in order.
    pub steps: Vec<Step>,
    /// Things that cannot be moved, and other remarks.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Boot parameters that would make changes that are impossible at run time.
    #[serde(default)]
    pub boot: Vec<Note>,
}

impl Plan {
    /// Whether there are no steps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The plan without steps on `targets`, which were refused before.
    #[must_use]
    pub fn without<'a>(mut self, targets: impl Iterator<Item = &'a Target> + Clone) -> Self {
        self.steps.retain(|step| !targets.clone().any(|target| *target == step.target));
        self
    }
}

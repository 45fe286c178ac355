//! The outcome of a plant's life, with reasons.

use base::DurNs;
use serde::{Deserialize, Serialize};

/// Maximum number of rows with gaps of the supervisor that are listed one by one.
const GAPS_MAX: usize = 3;

/// The outcome of a plant's life so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reasons", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every promise was kept all the time.
    Good,
    /// Something optional was missing, or something happened within its limit.
    Degraded(Vec<Reason>),
    /// A promise was broken, or not observed.
    Failed(Vec<Reason>),
}

/// Reason why an outcome is not good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The subject of the promise.
    pub subject: String,
    /// The promise, as in the plant file.
    pub promise: String,
    /// Line of the plant file; `None` for a default.
    pub line: Option<u32>,
    /// The included file of the line; `None` for the plant file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The observation.
    pub found: String,
    /// Start of the first incident, relative to the start of the plant.
    pub from: DurNs,
    /// Total duration of all incidents.
    pub lasted: DurNs,
    /// Whether the last incident is still open.
    pub lasts: bool,
    /// Number of incidents.
    pub count: u64,
    /// Number of incidents that were gaps of the supervisor, whose cause is in its own row.
    #[serde(default)]
    pub gaps: u64,
    /// Whether the promise is judged over the whole life. The times have no meaning then.
    pub whole_life: bool,
    /// Whether it makes the plant *failed*; otherwise *degraded*.
    pub is_failure: bool,
}

impl Outcome {
    /// The outcome as one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Degraded(_) => "degraded",
            Self::Failed(_) => "failed",
        }
    }

    /// Reasons why the outcome is not good, one for each row.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Good => &[],
            Self::Degraded(reasons) | Self::Failed(reasons) => reasons,
        }
    }

    /// The reasons for users. More than [`GAPS_MAX`] rows that failed only in gaps of the supervisor are one reason.
    #[must_use]
    pub fn summary(&self) -> Vec<Reason> {
        let is_gap = |reason: &&Reason| reason.count > 0 && reason.gaps == reason.count;
        let (gaps, others): (Vec<&Reason>, Vec<&Reason>) = self.reasons().iter().partition(is_gap);
        let [first, .., last] = gaps.as_slice() else { return self.reasons().to_vec() };
        if gaps.len() <= GAPS_MAX {
            return self.reasons().to_vec();
        }
        let merged = Reason {
            subject: format!("{} promises, first of {}, last of {}", gaps.len(), first.subject, last.subject),
            promise: "each is observed once per second".to_owned(),
            line: None,
            file: None,
            from: gaps.iter().map(|gap| gap.from).min().unwrap_or_default(),
            lasted: gaps.iter().map(|gap| gap.lasted).max().unwrap_or_default(),
            lasts: gaps.iter().any(|gap| gap.lasts),
            count: gaps.iter().map(|gap| gap.count).max().unwrap_or_default(),
            is_failure: gaps.iter().any(|gap| gap.is_failure),
            ..(*first).clone()
        };
        let at = others.iter().position(|reason| !reason.is_failure).unwrap_or(others.len());
        let (failed, degraded) = others.split_at(at);
        failed.iter().copied().cloned().chain([merged]).chain(degraded.iter().copied().cloned()).collect()
    }

    /// The exit status of `tahti up` and `tahti down`.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Degraded(_) => 4,
            Self::Failed(_) => 3,
        }
    }

    /// The word and all reasons on one line. `time` formats a duration.
    #[must_use]
    pub fn words(&self, time: impl Fn(DurNs) -> String) -> String {
        let reasons: Vec<String> = self.summary().iter().map(|reason| reason.words(&time)).collect();
        match self {
            Self::Good => "good".to_owned(),
            _ => format!("{}: {}", self.word(), reasons.join("; ")),
        }
    }
}

impl Reason {
    /// The outcome that the reason alone would give, as one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        if self.is_failure { "failed" } else { "degraded" }
    }

    /// The reason on one line. `time` formats a duration.
    #[must_use]
    pub fn words(&self, time: impl Fn(DurNs) -> String) -> String {
        let line = match (self.line, &self.file) {
            (Some(line), Some(file)) => format!(", line {line} of {file}"),
            (Some(line), None) => format!(", line {line}"),
            (None, _) => String::new(),
        };
        let mut text = format!("{}: {} [{}{line}]", self.subject, self.found, self.promise);
        if !self.whole_life && self.lasted == DurNs::ZERO {
            text += &format!(", at {}", time(self.from));
        } else if !self.whole_life {
            text += &format!(", from {} for {}", time(self.from), time(self.lasted));
            if self.count > 1 {
                text += &format!(" in {} incidents", self.count);
            }
        }
        text
    }
}

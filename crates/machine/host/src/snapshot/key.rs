//! Keys of tasks and interrupts. A key stays the same while the kernel reuses numbers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A thread: its ID and its start time, because the kernel reuses IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TaskKey {
    /// The thread ID.
    pub tid: i32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
}

/// An interrupt: its device and action, because its number can change (`PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IrqKey(pub String);

impl fmt::Display for IrqKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not the key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadKey;

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected TID@START, such as 1388@258348")
    }
}

impl std::error::Error for BadKey {}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.tid, self.start)
    }
}

impl FromStr for TaskKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let (tid, start) = text.split_once('@').ok_or(BadKey)?;
        Ok(Self { tid: tid.parse().map_err(|_| BadKey)?, start: start.parse().map_err(|_| BadKey)? })
    }
}

impl From<TaskKey> for String {
    fn from(key: TaskKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for TaskKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

//! How a flight recorder stands, as its folder says.

use base::{CpuId, CpuSet, DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use trace::{Late, Lost, Tally};

/// Spans of time in JSON: whole nanoseconds, as moments are.
mod ns {
    use base::DurNs;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &DurNs, serializer: S) -> Result<S::Ok, S::Error> {
        span.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DurNs, D::Error> {
        i64::deserialize(deserializer).map(DurNs)
    }
}

/// The file in its folder.
pub const FILE: &str = "status.json";
/// No status is longer.
const BYTES_MAX: u64 = 4 << 20;

/// How a flight recorder stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// When it began.
    #[serde(rename = "since_ns")]
    pub since: MonoNs,
    /// When this was written.
    #[serde(rename = "now_ns")]
    pub now: MonoNs,
    /// CPUs of which everything is recorded.
    pub cpus: CpuSet,
    /// What counts as late.
    #[serde(rename = "above_ns", with = "ns")]
    pub above: DurNs,
    /// Threads that were watched.
    pub threads: usize,
    /// Events so far.
    pub events: u64,
    /// What was lost.
    pub lost: Lost,
    /// Processor time of reading and explaining.
    #[serde(rename = "burnt_ns", with = "ns")]
    pub burnt: DurNs,
    /// Bytes of the window.
    pub held_bytes: u64,
    /// As many as it may have.
    pub held_bytes_max: u64,
    /// Wake-ups of the watched threads.
    pub wakeups: u64,
    /// Of these, late.
    pub late: u64,
    /// Share of late delay that nothing tells of, in percent.
    pub unexplained_percent: f64,
    /// Who took most of it.
    pub culprits: Vec<(String, Tally)>,
    /// The last late wake-ups, the newest first.
    pub last: Vec<LateLine>,
    /// Windows that were kept, the oldest first.
    pub kept: Vec<Kept>,
    /// Windows that were not kept, because one had been just before.
    pub left_out: u64,
    /// What went wrong last.
    pub trouble: Option<String>,
}

impl Status {
    /// Reads the one in `folder`; nothing where there is none, or none that is understood.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let file = folder.join(FILE);
        let length = std::fs::metadata(&file).ok()?.len();
        if length > BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }
}

/// A late wake-up in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateLine {
    /// When the thread ran at last.
    #[serde(rename = "at_ns")]
    pub at: MonoNs,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Where it ran.
    pub cpu: CpuId,
    /// How late.
    #[serde(rename = "delay_ns", with = "ns")]
    pub delay: DurNs,
    /// Who took most of it.
    pub culprit: String,
    /// Each culprit with its share in nanoseconds, the largest first.
    pub parts: Vec<(String, u64)>,
}

impl LateLine {
    /// In words.
    #[must_use]
    pub fn of(late: &Late) -> Self {
        let parts: Vec<_> = late.by_culprit().into_iter().map(|(culprit, ns)| (culprit.to_string(), ns)).collect();
        Self {
            at: late.ran,
            tid: late.tid,
            name: late.name.clone(),
            cpu: late.cpu,
            delay: DurNs(i64::try_from(late.delay_ns()).unwrap_or(i64::MAX)),
            culprit: parts.first().map_or_else(String::new, |(culprit, _)| culprit.clone()),
            parts,
        }
    }
}

/// A window that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
    /// The moment of that; nothing of what an earlier recorder kept.
    #[serde(rename = "at_ns")]
    pub at: Option<MonoNs>,
    /// Its length.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_nanoseconds_with_their_unit_in_the_name() {
        let (at, delay) = (MonoNs(5_000_000_123), DurNs(250_001));
        let parts = vec![("timer interrupt".to_owned(), 250_001)];
        let line =
            LateLine { at, tid: 7, name: "loop".into(), cpu: 1, delay, culprit: "timer interrupt".into(), parts };
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!((json["at_ns"].as_u64(), json["delay_ns"].as_i64()), (Some(5_000_000_123), Some(250_001)));
        assert_eq!(serde_json::from_value::<LateLine>(json).ok(), Some(line));
    }
}

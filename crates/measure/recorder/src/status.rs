//! Status of a flight recorder, as written to its folder.

use base::{CpuId, CpuSet, DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use trace::{Late, LossCounters, Tally};

/// Durations in JSON: integer nanoseconds, like time stamps.
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

/// Name of the status file.
pub const FILE: &str = "status.json";
/// Maximum size of a status.
const BYTES_MAX: u64 = 4 << 20;

/// Status of a flight recorder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process id.
    pub pid: u32,
    /// Start of the recording.
    #[serde(rename = "since_ns")]
    pub since: MonoNs,
    /// Time of this status.
    #[serde(rename = "now_ns")]
    pub now: MonoNs,
    /// CPUs whose events are recorded completely.
    pub cpus: CpuSet,
    /// Threshold of late wake-ups.
    #[serde(rename = "above_ns", with = "ns")]
    pub above: DurNs,
    /// Number of watched threads.
    pub threads: usize,
    /// Selected threads that the recorder does not find, with the remedy.
    #[serde(default)]
    pub shortfall: Option<String>,
    /// Events so far.
    pub events: u64,
    /// Losses so far.
    pub lost: LossCounters,
    /// Processor time for reading and explaining.
    #[serde(rename = "burnt_ns", with = "ns")]
    pub burnt: DurNs,
    /// Size of the window in bytes.
    pub held_bytes: u64,
    /// Its maximum size.
    pub held_bytes_max: u64,
    /// Wake-ups of the watched threads.
    pub wakeups: u64,
    /// Wake-ups later than the threshold.
    pub late: u64,
    /// Unexplained share of the total delay, in percent.
    pub unexplained_percent: f64,
    /// Culprits with the largest totals.
    pub culprits: Vec<(String, Tally)>,
    /// Last late wake-ups, newest first.
    pub last: Vec<LateLine>,
    /// Windows kept, oldest first.
    pub kept: Vec<StoredWindow>,
    /// Windows and calls that were dropped, because too many were pending or a window had just been kept.
    pub left_out: u64,
    /// The last fault.
    pub trouble: Option<String>,
}

impl Status {
    /// Reads the status in `folder`; `None` if there is none or it is invalid.
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

/// Summary of a late wake-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateLine {
    /// When the thread finally ran.
    #[serde(rename = "at_ns")]
    pub at: MonoNs,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The CPU it ran on.
    pub cpu: CpuId,
    /// Its delay.
    #[serde(rename = "delay_ns", with = "ns")]
    pub delay: DurNs,
    /// The culprit with the largest share.
    pub culprit: String,
    /// Each culprit with its share in nanoseconds, largest first.
    pub parts: Vec<(String, u64)>,
}

impl LateLine {
    /// Summarizes a delay.
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
pub struct StoredWindow {
    /// Its file.
    pub file: PathBuf,
    /// The reason.
    pub reason: String,
    /// Time of its event; `None` for windows of an earlier recorder.
    #[serde(rename = "at_ns")]
    pub at: Option<MonoNs>,
    /// Its size in bytes.
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

//! CPU usage of a guest: one value per virtual CPU and one for the rest of QEMU, every 10 s, for the last hour.

use crate::place::Vcpu;
use base::{DurNs, MonoNs};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// Interval between samples.
const EVERY: DurNs = DurNs::from_secs(10);
/// Samples kept: one hour.
const KEPT: usize = 360;

/// Usage in hundredths of a percent of a CPU: the rest of QEMU, then each virtual CPU.
type Shares = Vec<u32>;

/// The history of one guest, in a file that is rewritten at each sample.
pub(crate) struct Usage {
    pid: i32,
    vcpus: Vec<i32>,
    file: PathBuf,
    last: (MonoNs, Vec<u64>),
    kept: VecDeque<Shares>,
}

impl Usage {
    pub(crate) fn begin(pid: i32, vcpus: &[Vcpu], file: PathBuf, now: MonoNs) -> Self {
        let vcpus: Vec<i32> = vcpus.iter().map(|vcpu| vcpu.tid).collect();
        let last = (now, spent(pid, &vcpus));
        Self { pid, vcpus, file, last, kept: VecDeque::with_capacity(KEPT) }
    }

    /// Takes a sample if it is due.
    pub(crate) fn look(&mut self, now: MonoNs) {
        if now - self.last.0 < EVERY {
            return;
        }
        let spent = spent(self.pid, &self.vcpus);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(shares(&self.last.1, &spent, now - self.last.0));
        self.last = (now, spent);
        let text: String = self.kept.iter().map(|shares| line(shares)).collect();
        // On failure the file is missing or outdated; readers handle that.
        let _ = fs::write(&self.file, text);
    }
}

fn line(shares: &[u32]) -> String {
    shares.iter().map(|share| format!("{}.{:02} ", share / 100, share % 100)).collect::<String>().trim_end().to_owned()
        + "\n"
}

/// The history from a guest's file, oldest first. Percent of a CPU: the rest of QEMU, then each virtual CPU.
#[must_use]
pub fn history(file: &Path) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().take(KEPT).map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect()).collect()
}

/// Run time in nanoseconds: the sum of QEMU's other threads, then each virtual CPU.
fn spent(pid: i32, vcpus: &[i32]) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    let rest = tids.filter(|tid| !vcpus.contains(tid)).map(|tid| ran(pid, tid)).sum();
    std::iter::once(rest).chain(vcpus.iter().map(|tid| ran(pid, *tid))).collect()
}

/// Run time of a thread in nanoseconds; 0 if it has ended.
#[must_use]
pub fn ran(pid: i32, tid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

fn shares(before: &[u64], after: &[u64], span: DurNs) -> Shares {
    let span = u128::from(span.0.max(1).unsigned_abs());
    let share = |(before, after): (&u64, &u64)| {
        u32::try_from(u128::from(after.saturating_sub(*before)) * 10_000 / span).unwrap_or(u32::MAX)
    };
    before.iter().zip(after).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_thread_is_its_run_time_and_zero_after_its_end() {
        let found = shares(&[0, 1_000, 5_000_000], &[5_000_000, 10_001_000, 0], DurNs::from_ms(10));
        assert_eq!(found, [5_000, 10_000, 0]);
        assert_eq!(line(&found), "50.00 100.00 0.00\n");
        assert!(ran(std::process::id() as i32, std::process::id() as i32) > 0);
    }
}

//! `/proc/stat`: where the CPUs' time went.

use crate::FormatError;
use base::CpuId;

/// Time in ticks of `USER_HZ` (10 ms) since boot. Columns that an old kernel lacks are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In programs.
    pub user: u64,
    /// In programs with a raised nice value.
    pub nice: u64,
    /// In the kernel.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while something waited for a device.
    pub iowait: u64,
    /// In interrupts.
    pub irq: u64,
    /// In softirqs.
    pub softirq: u64,
    /// Taken by the hypervisor while this guest wanted to run.
    pub steal: u64,
}

impl CpuTimes {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [self.user, self.nice, self.system, self.idle, self.iowait, self.irq, self.softirq, self.steal];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// The lines `cpu` (`None`: all of them together) and `cpuN`.
///
/// # Errors
/// If such a line holds something other than numbers.
pub fn cpu_times(text: &str) -> Result<Vec<(Option<CpuId>, CpuTimes)>, FormatError> {
    let mut lines = Vec::new();
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let wrong = || FormatError::value("cpu", "CPU times", line);
        let mut columns = line.split_whitespace();
        let cpu = match columns.next().and_then(|name| name.strip_prefix("cpu")) {
            Some("") => None,
            Some(number) => Some(number.parse().map_err(|_| wrong())?),
            None => return Err(wrong()),
        };
        let mut numbers = [0u64; 8];
        for (slot, column) in numbers.iter_mut().zip(columns) {
            *slot = column.parse().map_err(|_| wrong())?;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = numbers;
        lines.push((cpu, CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal }));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_cpu_and_their_sum_are_read() {
        let times = cpu_times("cpu  10 2 3 400 5 0 6 7 0 0\ncpu0 10 2 3 400 5 0 6 7 0 0\nintr 1 2\ncpu9 1\n").unwrap();
        assert_eq!(times.len(), 2);
        assert_eq!((times[0].0, times[1].0), (None, Some(0)));
        assert_eq!((times[0].1.steal, times[0].1.total()), (7, 433));
        assert!(cpu_times("cpu0 x").is_err());
        assert_eq!(cpu_times("cpu0 1 2 3 4").unwrap()[0].1.total(), 10);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = cpu_times(&format!("cpu{text}"));
        }
    }
}

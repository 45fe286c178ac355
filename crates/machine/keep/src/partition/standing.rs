//! Status of a partition: use and bounds.

use crate::group::{Group, MEMORY, Standing, TASKS};
use base::DurNs;
use host::partition::network::{Class, is_partitions};
use host::partition::{Controller, Home, RequestedValue, Version};
use host::plant::BitRate;
use host::snapshot::Target;
use proc::cgroup::keyed;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Status of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    /// Its name.
    pub name: String,
    /// The processes that are in it.
    #[serde(default)]
    pub processes: Vec<String>,
    /// Processor time; `None` if unbounded.
    pub cpu: Option<Processor>,
    /// Memory, in bytes.
    pub memory: Option<Standing>,
    /// Processes and threads.
    pub tasks: Option<Standing>,
    /// Limits on devices in the kernel's form: `io.max` 254:0 rbps=1048576.
    pub io: Vec<String>,
    /// Lines of the file that divides cache and memory bandwidth, in the kernel's form: `L3:0=e00`.
    #[serde(default)]
    pub divided: Vec<String>,
    /// Its class on a network device.
    #[serde(default)]
    pub network: Option<Sending>,
    /// Bounds changed by other programs: `PATH reads X, expected Y`.
    #[serde(default)]
    pub drift: Vec<String>,
}

/// Network bounds of a partition, and its traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The device.
    pub device: String,
    /// Guaranteed rate.
    pub rate: BitRate,
    /// Maximum rate.
    pub max: BitRate,
    /// Bytes sent.
    pub sent: u64,
    /// Packets dropped because its queue was full.
    pub dropped: u32,
}

/// Processor time of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// Used time; `None` if the kernel does not count it.
    pub used: Option<DurNs>,
    /// Maximum time in each period; `None` if only its weight is set.
    pub max: Option<DurNs>,
    /// The period.
    pub period: Option<DurNs>,
    /// Its weight; the kernel's default is 100.
    pub weight: Option<u64>,
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled: u64,
    /// Throttled time, the sum of all its CPUs.
    pub waited: DurNs,
}

pub(super) fn of(name: &str, homes: &[Home], wanted: &[RequestedValue]) -> Stands {
    let group = Group::at(homes.iter().map(|home| PathBuf::from(&home.dir)).collect());
    Stands {
        name: name.to_owned(),
        processes: Vec::new(),
        cpu: homes.iter().find(|home| home.controllers.contains(&Controller::Cpu)).map(|home| processor(home, homes)),
        memory: group.standing(&MEMORY),
        tasks: group.standing(&TASKS),
        io: homes.iter().filter(|home| home.controllers.contains(&Controller::Io)).flat_map(devices).collect(),
        divided: homes.iter().filter(|home| home.version == Version::Resctrl).flat_map(divided).collect(),
        network: wanted.iter().find_map(sending),
        drift: Vec::new(),
    }
}

/// Rates and traffic of a partition's own class, read from the kernel.
fn sending(wanted: &RequestedValue) -> Option<Sending> {
    let Target::TrafficClass { device, id } = &wanted.target else { return None };
    let class: Class = wanted.value.text()?.parse().ok().filter(|_| is_partitions(*id))?;
    let sent = super::traffic::sent(device, *id)?;
    let [rate, max] = [class.rate, class.ceil].map(|bytes| BitRate(bytes * 8));
    Some(Sending { device: device.clone(), rate, max, sent: sent.bytes, dropped: sent.dropped })
}

fn processor(home: &Home, homes: &[Home]) -> Processor {
    let read = |dir: &str, name: &str| std::fs::read_to_string(format!("{dir}/{name}")).ok();
    let number = |name: &str| read(&home.dir, name)?.trim().parse::<i64>().ok();
    let micros = |value: i64| DurNs(value.saturating_mul(1000));
    let stat = read(&home.dir, "cpu.stat").unwrap_or_default();
    let count = |name: &str| keyed(&stat, name).unwrap_or(0);
    let mut found =
        Processor { periods: count("nr_periods"), throttled: count("nr_throttled"), ..Processor::default() };
    if home.version == Version::V2 {
        found.used = keyed(&stat, "usage_usec").map(|usec| micros(usec as i64));
        found.waited = micros(count("throttled_usec") as i64);
        found.weight = number("cpu.weight").map(i64::unsigned_abs);
        let max = read(&home.dir, "cpu.max").unwrap_or_default();
        let mut words = max.split_whitespace().map(|word| word.parse::<i64>().ok().map(micros));
        found.max = words.next().flatten();
        found.period = words.next().flatten();
        return found;
    }
    let account = homes.iter().find_map(|home| read(&home.dir, "cpuacct.usage"));
    found.used = account.and_then(|text| text.trim().parse().ok()).map(DurNs);
    found.waited = DurNs(count("throttled_time") as i64);
    found.weight = number("cpu.shares").map(|shares| shares.unsigned_abs() * 100 / 1024);
    found.max = number("cpu.cfs_quota_us").filter(|quota| *quota > 0).map(micros);
    found.period = number("cpu.cfs_period_us").map(micros);
    found
}

/// Lines of a resctrl group's `schemata` file.
fn divided(home: &Home) -> Vec<String> {
    let text = std::fs::read_to_string(format!("{}/schemata", home.dir)).unwrap_or_default();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Lines of the files with device limits.
fn devices(home: &Home) -> Vec<String> {
    const FILES: [&str; 5] = [
        "io.max",
        "blkio.throttle.read_bps_device",
        "blkio.throttle.write_bps_device",
        "blkio.throttle.read_iops_device",
        "blkio.throttle.write_iops_device",
    ];
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(format!("{}/{name}", home.dir)).unwrap_or_default();
        text.lines().map(|line| format!("{name} {}", line.trim())).collect()
    };
    FILES.iter().flat_map(|name| lines(name)).collect()
}

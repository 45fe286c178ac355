//! A partition's part of the last-level cache and of the memory bandwidth, as a resctrl group. Needs a processor that
//! supports it.
//!
//! Processes of the group fill only the highest ways, which the shield does not use, and are delayed if they use more
//! than their part of the memory bandwidth. Other processes may fill these ways, too: the limit applies to the
//! partition's effect on others.
//!
//! Must never touch a group that another program has created.

use super::plan::RequestedValue;
use super::{Ground, Lack, RESCTRL};
use crate::plant::Partition;
use crate::snapshot::{Cache, Form, Share, Target, Value};
use serde::{Deserialize, Serialize};

/// Resources that a machine can divide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resctrl {
    /// The last-level cache.
    pub cache: Option<Ways>,
    /// The memory bandwidth.
    pub bandwidth: Option<Bandwidth>,
}

/// Possible divisions of the last-level cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// All ways.
    pub all: u64,
    /// Minimum ways of a group.
    pub least: u32,
    /// Ways that tasks in no group may fill, as in `schemata`.
    pub now: String,
}

/// Possible divisions of the memory bandwidth, in percent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Minimum of a group.
    pub least: u32,
    /// Step.
    pub step: u32,
    /// Percentage of tasks in no group, as in `schemata`.
    pub now: String,
}

/// Obstacles to a partition's parts.
pub(super) fn lacks(ground: &Ground, partition: &Partition) -> Vec<Lack> {
    let (wants_cache, wants_bandwidth) = (partition.cache.is_some(), partition.memory_bandwidth.is_some());
    let Some(has) = ground.resctrl.as_ref() else {
        return if wants_cache || wants_bandwidth { vec![Lack::Resctrl] } else { Vec::new() };
    };
    let cache = (wants_cache && ways(has).is_none()).then_some(Lack::NoCacheWays);
    let bandwidth = (wants_bandwidth && shares(has).is_none()).then_some(Lack::NoBandwidth);
    cache.into_iter().chain(bandwidth).collect()
}

fn ways(has: &Resctrl) -> Option<(&Ways, Cache)> {
    let ways = has.cache.as_ref()?;
    Some((ways, Cache::parse(&ways.now)?))
}

fn shares(has: &Resctrl) -> Option<(&Bandwidth, Share)> {
    let bandwidth = has.bandwidth.as_ref()?;
    Some((bandwidth, Share::parse(&bandwidth.now)?))
}

/// Requested lines of the group's `schemata`.
pub(super) fn wanted(ground: &Ground, dir: &str, partition: &Partition) -> Vec<RequestedValue> {
    let Some(has) = ground.resctrl.as_ref() else { return Vec::new() };
    let file = |form: Form, text: String| RequestedValue {
        target: Target::File { path: format!("{dir}/schemata"), form },
        value: Value::Text(text),
        why: format!("partition {:?}", partition.name),
        option: "CONFIG_X86_CPU_RESCTRL",
    };
    let cache = partition.cache.zip(ways(has)).map(|(percent, (ways, now))| {
        let count = (ways.all.count_ones() * u32::from(percent) / 100).max(ways.least).max(1);
        let ways = now.ways.iter().map(|(id, mask)| (*id, highest(*mask, count))).collect();
        file(Form::Cache, Cache { ways }.to_string())
    });
    let bandwidth = partition.memory_bandwidth.zip(shares(has)).map(|(percent, (bandwidth, now))| {
        // The kernel rounds up to whole steps. The written value must read back unchanged.
        let percent = u32::from(percent).next_multiple_of(bandwidth.step.max(1)).max(bandwidth.least).min(100);
        let percents = now.percents.keys().map(|id| (*id, percent)).collect();
        file(Form::Bandwidth, Share { percents }.to_string())
    });
    cache.into_iter().chain(bandwidth).collect()
}

/// The highest `count` ways of `mask`.
fn highest(mask: u64, count: u32) -> u64 {
    let mut left = mask;
    while left.count_ones() > count {
        left &= left - 1;
    }
    left
}

/// Directory of a partition's group.
pub(super) fn dir(name: &str) -> String {
    format!("{RESCTRL}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Ground {
        let cache = Ways { all: 0xfff, least: 2, now: "    MB:0=100;1=100\n    L3:0=ff8;1=fff\n".into() };
        let bandwidth = Bandwidth { least: 10, step: 10, now: cache.now.clone() };
        Ground { resctrl: Some(Resctrl { cache: Some(cache), bandwidth: Some(bandwidth) }), ..Ground::default() }
    }

    fn told(ground: &Ground, cache: Option<u8>, memory_bandwidth: Option<u8>) -> Vec<String> {
        let partition = Partition { name: "hmi".into(), cache, memory_bandwidth, ..Partition::default() };
        let lacks = lacks(ground, &partition);
        assert!(lacks.is_empty(), "{lacks:?}");
        wanted(ground, "/g", &partition).iter().map(|one| one.value.to_string()).collect()
    }

    #[test]
    fn a_partition_gets_the_highest_ways_left_by_the_shield_and_whole_steps_of_bandwidth() {
        assert_eq!(told(&machine(), Some(25), Some(33)), ["L3:0=e00;1=e00", "MB:0=40;1=40"]);
        assert_eq!(told(&machine(), Some(1), Some(1)), ["L3:0=c00;1=c00", "MB:0=10;1=10"], "not below the minimum");
        assert_eq!(told(&machine(), Some(100), Some(100)), ["L3:0=ff8;1=fff", "MB:0=100;1=100"]);
        assert_eq!(told(&machine(), None, None), [] as [&str; 0]);
    }

    #[test]
    fn missing_features_of_the_processor_are_reported() {
        let partition =
            Partition { name: "hmi".into(), cache: Some(20), memory_bandwidth: Some(20), ..Partition::default() };
        assert_eq!(lacks(&Ground::default(), &partition), [Lack::Resctrl]);
        let none = Ground { resctrl: Some(Resctrl::default()), ..Ground::default() };
        assert_eq!(lacks(&none, &partition), [Lack::NoCacheWays, Lack::NoBandwidth]);
        assert_eq!(lacks(&Ground::default(), &Partition::default()), []);
    }
}

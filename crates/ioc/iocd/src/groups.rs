//! Scan groups: scans that run on separate threads, with their scheduling class and CPUs.

use crate::devices::Devices;
use crate::engine::Engine;
use crate::owner::{Owner, OwnerShared};
use crate::shard::Shard;
use crate::shard_port::ShardPort;
use base::{CpuId, CpuSet, DurNs, Policy};
use canet::Waker;
use db::{Db, ScanGroup, SplitError};
use rt::{Armed, LoopSpec, Rt};
use std::str::FromStr;
use std::sync::Arc;
use sys::rounds::Rounds;

/// A scan group: `RATE[,RATE…]=CLASS[@CPUS]`, such as `.1 second=fifo:80@1` or `1 second,2 second=rr:40@2-3`.
///
/// With several CPUs, the group's lock sets are divided among as many threads, each bound to one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Choices of menuScan.
    pub scans: Vec<String>,
    /// Scheduling class of its threads.
    pub policy: Policy,
    /// CPUs of its threads; empty means those of the process.
    pub cpus: CpuSet,
}

/// A shield: CPUs reserved for members of its control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// File to which a thread writes its id to become a member.
    pub entry: String,
}

/// The text is not a valid scan group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?}: {what}; expected RATE[,RATE…]=CLASS[@CPUS], such as \".1 second=fifo:80@1\"")]
pub struct ParseGroupError {
    /// The text.
    pub found: String,
    /// The error in it.
    pub what: String,
}

impl FromStr for GroupSpec {
    type Err = ParseGroupError;

    fn from_str(text: &str) -> Result<Self, ParseGroupError> {
        let fail = |what: &str| ParseGroupError { found: text.to_owned(), what: what.to_owned() };
        let (scans, how) = text.rsplit_once('=').ok_or_else(|| fail("no \"=\""))?;
        let (class, cpus) = how.split_once('@').map_or((how, None), |(class, cpus)| (class, Some(cpus)));
        let policy: Policy = class.parse().map_err(|error| fail(&format!("{error}")))?;
        let cpus: CpuSet = match cpus {
            None => CpuSet::EMPTY,
            Some(list) => list.parse().map_err(|error| fail(&format!("{error}")))?,
        };
        let scans: Vec<String> =
            scans.split(',').map(|scan| scan.trim().to_owned()).filter(|scan| !scan.is_empty()).collect();
        if scans.is_empty() {
            return Err(fail("no rate before \"=\""));
        }
        if let (Policy::Deadline(_), 1..) = (policy, cpus.count()) {
            return Err(fail("the kernel binds no DEADLINE thread to single CPUs; leave out the CPUs"));
        }
        Ok(Self { scans, policy, cpus })
    }
}

impl GroupSpec {
    fn owners(&self) -> usize {
        self.cpus.count().max(1)
    }
}

/// Divides a loaded database into shards, highest scheduling class first, and initialises all of it.
///
/// # Errors
/// If menuScan does not have a scan, or two groups claim it.
pub(crate) fn divide(db: &mut Db, groups: &mut [GroupSpec]) -> Result<Vec<Db>, SplitError> {
    groups.sort_by_key(|group| std::cmp::Reverse(group.policy.level()));
    let wanted: Vec<ScanGroup> =
        groups.iter().map(|group| ScanGroup { scans: group.scans.clone(), owners: group.owners() }).collect();
    let mut shards = db.split(&wanted)?;
    for (number, shard) in shards.iter_mut().enumerate() {
        shard.init(crate::engine::now());
        db.learn(number, shard);
    }
    Ok(shards)
}

/// Threads of the scan groups, prepared but not started.
pub(crate) struct Threads {
    armed: Rt<Armed>,
    /// Requested features that were not obtained.
    pub(crate) missing: Vec<String>,
}

impl Threads {
    /// Prepares a thread for each shard: locks memory, sets class and CPU, and gives the engine its ring ends. Threads on
    /// CPUs of `home` enter it individually; the rest of the process stays where it is.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn arm(
        engine: &mut Engine,
        shards: Vec<Db>,
        groups: &[GroupSpec],
        home: Option<&Home>,
        devices: &Devices,
    ) -> Result<Self, rt::ArmError> {
        let waker: Waker = engine.net.waker();
        let mut rt = Rt::new();
        let mut ends = Vec::new();
        let places = groups.iter().flat_map(|group| (0..group.owners()).map(move |nth| (group, nth)));
        for (number, (db, (group, nth))) in shards.into_iter().zip(places).enumerate() {
            let cpu: Option<CpuId> = group.cpus.iter().nth(nth);
            let thread = format!("scan-{number}");
            let shared = Arc::new(OwnerShared::counted(Rounds::watch(&thread, crate::HANGS_AFTER)));
            let (shard, end) = Shard::new(db, number, true, devices.ends(number + 1), &shared);
            let (owner, scans) = Owner::new(shard, waker.clone(), shared);
            let place = cpu.map_or_else(String::new, |cpu| format!("@{cpu}"));
            let name = format!("{}={}{place}", group.scans.join(","), group.policy);
            ends.push(ShardPort::new(name, number, end, scans));
            let spec = LoopSpec {
                class: Some(group.policy),
                cpu,
                entry: cpu.and_then(|cpu| home.filter(|home| home.cpus.contains(cpu))).map(|home| home.entry.clone()),
                ..LoopSpec::new(thread, DurNs::from_ms(1))
            };
            rt.add_task(spec, move || owner.run());
        }
        engine.add_shards(ends);
        let armed = rt.arm()?;
        let real_time = groups.iter().any(|group| group.policy.is_real_time());
        // Other findings of the arming (idle states, TAI) do not affect which CPUs and classes the scans get.
        let counts = |what: &str| {
            what.contains("CPU ")
                || what.contains("class ")
                || (real_time && (what.starts_with("memory") || what.starts_with("heap")))
        };
        let missing = armed.missing().filter(|item| counts(&item.what)).map(ToString::to_string).collect();
        Ok(Self { armed, missing })
    }

    /// Lets the threads run.
    pub(crate) fn start(&mut self) {
        self.armed.start(DurNs::ZERO);
    }

    /// Waits for the threads to end. The engine has requested their stop.
    pub(crate) fn join(mut self) {
        self.armed.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Priority;

    #[test]
    fn a_scan_group_is_parsed_from_one_word() {
        let group: GroupSpec = ".1 second, 1 second=fifo:80@1-2".parse().unwrap();
        assert_eq!(group.scans, [".1 second", "1 second"]);
        assert_eq!((group.policy, group.owners()), (Policy::Fifo(Priority(80)), 2));
        assert_eq!("1 second=other".parse::<GroupSpec>().unwrap().owners(), 1);
        for (text, word) in [
            (".1 second", "no \"=\""),
            ("=fifo:1", "no rate"),
            ("1 second=fifo:100", "1 to 99"),
            ("1 second=fifo:1@x", "1 second=fifo:1@x"),
            ("1 second=deadline:1ms/2ms/2ms@1", "DEADLINE"),
        ] {
            let error = text.parse::<GroupSpec>().unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
    }
}

//! Partitions: limits that several processes of a plant share, as steps on control groups.
//!
//! A partition has a directory in each control group hierarchy that limits something: one in version 2, one per
//! controller in version 1. [`homes`] returns the directories, [`plan()`] the remaining writes. If none remain, the
//! limits are active. The executor reads the machine again after each round, because the kernel creates a directory's
//! files with the directory.
//!
//! Must never take over a directory that another program has created.

mod controller;
mod files;
pub mod network;
mod plan;
pub mod resctrl;

pub use controller::{Controller, Counted, Version};
pub use plan::{RequestedValue, drift, dropped, made, plan, wanted};

use crate::plant::Partition;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Facts that partitions are planned from: places for control groups, and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// The caller's own group per controller in version 1.
    pub v1: BTreeMap<Controller, String>,
    /// The hierarchy of version 2, if it is mounted.
    pub v2: Option<Unified>,
    /// Page size in bytes. Memory limits are whole pages.
    pub page_bytes: u64,
    /// Devices by their names in the plant file.
    pub devices: BTreeMap<String, Device>,
    /// Cache and memory bandwidth that can be divided; `None` if resctrl is not mounted.
    #[serde(default)]
    pub resctrl: Option<resctrl::Resctrl>,
    /// Network devices that partitions name; `None` if the device does not exist.
    #[serde(default)]
    pub links: BTreeMap<String, Option<network::Link>>,
    /// Groups above that are mounted read-only.
    #[serde(default)]
    pub read_only: BTreeSet<String>,
}

/// The hierarchy of version 2, relative to the caller's own group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unified {
    /// Available controllers.
    pub controllers: Vec<Controller>,
    /// The own group and those above it up to the top, each with the controllers that it enables for its children.
    pub above: Vec<(String, Vec<Controller>)>,
}

/// Mount point of resctrl.
pub const RESCTRL: &str = "/sys/fs/resctrl";

/// Prefix of a partition's directories: its control groups and its resctrl group.
pub const DIR_BEGINS: &str = "tahti-";

/// Kind of a path in `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A whole block device with its major and minor number.
    Block(u32, u32),
    /// A disk partition of a block device.
    Part,
    /// Anything else, or a missing path.
    None,
}

/// A directory of a partition, with the controllers that limit it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Its path.
    pub dir: String,
    /// Version of its hierarchy.
    pub version: Version,
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// A group above that must enable controllers for its children first.
    pub passes: Option<(String, Vec<Controller>)>,
}

/// A missing requirement of a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// No hierarchy has the controller.
    #[error(
        "no mounted control group hierarchy has the {0} controller: see /proc/cgroups and the boot line (cgroup_disable)"
    )]
    Controller(Controller),
    /// The kernel was built without a file.
    #[error("{path} does not exist: the kernel was built without it ({option})")]
    File {
        /// The file.
        path: String,
        /// The kernel configuration option.
        option: &'static str,
    },
    /// There is no such device.
    #[error("{0} is no block device: name one of /proc/partitions")]
    NoDevice(String),
    /// The kernel limits whole devices only.
    #[error("{0} is a part of a device, and the kernel bounds whole ones: name the device")]
    Part(String),
    /// Cache and memory bandwidth cannot be divided at all.
    #[error(
        "cache and memory bandwidth cannot be divided: {RESCTRL} does not exist; mount it (`mount -t resctrl resctrl {RESCTRL}`) if the processor supports it (Intel RDT, AMD QoS, CONFIG_X86_CPU_RESCTRL); virtual machines mostly cannot"
    )]
    Resctrl,
    /// The processor does not divide its last-level cache.
    #[error("this processor does not divide its last-level cache: {RESCTRL}/info/L3 does not exist; remove `cache`")]
    NoCacheWays,
    /// The processor does not divide the memory bandwidth.
    #[error(
        "this processor does not divide the memory's bandwidth: {RESCTRL}/info/MB does not exist; remove `memory_bandwidth`"
    )]
    NoBandwidth,
    /// There is no such network device.
    #[error("{0} is no network device: see `ip link`")]
    NoLink(String),
    /// Another program configures the traffic of the network device.
    #[error(
        "another program orders the traffic of {device}: its first discipline is {kind} {number:x}:, expected the kernel's default; see `tc qdisc show dev {device}`"
    )]
    Traffic {
        /// The device.
        device: String,
        /// Kind of its root discipline.
        kind: String,
        /// Its handle.
        number: u32,
    },
    /// There is no hierarchy of version 2, which identifies senders.
    #[error(
        "control groups of version 2, which classify packets, are not mounted: mount cgroup2, with version 1 for example at /sys/fs/cgroup/unified"
    )]
    Unified,
    /// Control groups that are mounted read-only.
    #[error(
        "{0} is mounted read-only, as container runtimes mount control groups: run tahti outside the container, or in one that may write there (`podman run --privileged --cgroupns private`, say)"
    )]
    ReadOnly(String),
    /// A directory that is in no journal.
    #[error(
        "{0} exists, but has no journal: it belongs to another program, or its run directory is gone; remove it (rmdir) when it is empty"
    )]
    Foreign(String),
    /// A process is in the shield's group of version 2 and cannot join another one.
    #[error(
        "process {0:?} is on the shield, whose control group of version 2 it cannot leave: set its own `memory_max` and `tasks_max`, or run it on housekeeping CPUs"
    )]
    OnShield(String),
}

/// The directories of a partition, each named `name`, and the missing requirements.
#[must_use]
pub fn homes(ground: &Ground, name: &str, partition: &Partition) -> (Vec<Home>, Vec<Lack>) {
    let mut homes: Vec<Home> = Vec::new();
    let mut lacks = Vec::new();
    let mut unified = Vec::new();
    for controller in partition.controllers() {
        let has = |unified: &Unified| unified.controllers.contains(&controller);
        if let Some(parent) = ground.v1.get(&controller) {
            let dir = format!("{}/{name}", parent.trim_end_matches('/'));
            // Several controllers may share a hierarchy.
            match homes.iter_mut().find(|home| home.dir == dir) {
                Some(home) => home.controllers.push(controller),
                None => {
                    let controllers = vec![controller];
                    homes.push(Home { dir, version: Version::V1, controllers, passes: None });
                }
            }
        } else if ground.v2.as_ref().is_some_and(has) {
            unified.push(controller);
        } else if controller != Controller::Account {
            lacks.push(Lack::Controller(controller));
        }
    }
    if let Some(v2) = ground.v2.as_ref().filter(|_| !unified.is_empty()) {
        let passes_all = |passed: &Vec<Controller>| unified.iter().all(|controller| passed.contains(controller));
        // The nearest group that enables all of them. At the top they can be enabled, because it contains no processes.
        let (parent, passed) = match v2.above.iter().find(|(_, passed)| passes_all(passed)).or(v2.above.last()) {
            Some((parent, passed)) => (parent.as_str(), passed.clone()),
            None => ("", Vec::new()),
        };
        let more: Vec<Controller> = unified.iter().copied().filter(|one| !passed.contains(one)).collect();
        homes.push(Home {
            dir: format!("{}/{name}", parent.trim_end_matches('/')),
            version: Version::V2,
            controllers: unified,
            passes: (!more.is_empty()).then(|| (parent.to_owned(), more)),
        });
    }
    if let Some(network) = &partition.network {
        lacks.extend(network::lacks(ground, network));
        if let Some(v2) = ground.v2.as_ref().filter(|_| !homes.iter().any(|home| home.version == Version::V2)) {
            let parent = v2.above.first().map_or("", |(own, _)| own);
            let dir = format!("{}/{name}", parent.trim_end_matches('/'));
            homes.push(Home { dir, version: Version::V2, controllers: Vec::new(), passes: None });
        }
    }
    if partition.cache.is_some() || partition.memory_bandwidth.is_some() {
        lacks.extend(resctrl::lacks(ground, partition));
        if ground.resctrl.is_some() {
            let (dir, version) = (resctrl::dir(name), Version::Resctrl);
            homes.push(Home { dir, version, controllers: Vec::new(), passes: None });
        }
    }
    for one in &partition.io_max {
        match ground.devices.get(&one.device) {
            Some(Device::Block(..)) => {}
            Some(Device::Part) => lacks.push(Lack::Part(one.device.clone())),
            Some(Device::None) | None => lacks.push(Lack::NoDevice(one.device.clone())),
        }
    }
    let parents: BTreeSet<&str> = homes.iter().filter_map(|home| Some(home.dir.rsplit_once('/')?.0)).collect();
    let read_only = parents.into_iter().filter(|parent| ground.read_only.contains(*parent));
    lacks.extend(read_only.map(|parent| Lack::ReadOnly(parent.to_owned())));
    (homes, lacks)
}

#[cfg(test)]
mod tests;

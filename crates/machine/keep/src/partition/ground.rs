//! Facts about the machine that partitions are planned from.

use crate::group::OwnGroups;
use host::partition::RESCTRL;
use host::partition::network::Link;
use host::partition::resctrl::{Bandwidth, Resctrl, Ways};
use host::partition::{Controller, Device, Ground, Unified};
use host::plant::Partition;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use sys::root::RootDir;
use sys::traffic::{self, Traffic};

/// Places where the caller may create control groups, and the devices that these partitions name.
#[must_use]
pub fn ground(partitions: &[Partition]) -> Ground {
    let places = OwnGroups::machine();
    let version_1 = |controller: Controller| {
        let name = controller.name(host::partition::Version::V1);
        Some((controller, places.of_v1(name)?.display().to_string()))
    };
    let v1: BTreeMap<_, _> = Controller::ALL.into_iter().filter_map(version_1).collect();
    let v2 = places.of_v2().map(|own| unified(&own.top, &own.dir));
    let above = v2.iter().flat_map(|v2: &Unified| v2.above.iter().map(|(dir, _)| dir));
    let read_only = v1.values().chain(above).map(|dir| dir.trim_end_matches('/'));
    let devices = partitions.iter().flat_map(|one| &one.io_max).map(|one| (one.device.clone(), device(&one.device)));
    Ground {
        read_only: read_only.filter(|dir| is_read_only(dir)).map(str::to_owned).collect(),
        v1,
        v2,
        page_bytes: rustix::param::page_size() as u64,
        devices: devices.collect(),
        resctrl: resctrl(&|path| RootDir::machine().read(path).ok()),
        links: partitions
            .iter()
            .filter_map(|one| one.network.as_ref())
            .map(|one| (one.device.clone(), link(&one.device)))
            .collect(),
    }
}

/// Cache and memory bandwidth that can be divided, from the files of a machine.
#[must_use]
pub fn resctrl(read: &dyn Fn(&str) -> Option<String>) -> Option<Resctrl> {
    let now = read(&format!("{RESCTRL}/schemata"))?;
    let info = |name: &str| read(&format!("{RESCTRL}/info/{name}")).map(|text| text.trim().to_owned());
    let number = |name: &str| info(name)?.parse::<u32>().ok();
    let cache = || {
        let all = u64::from_str_radix(&info("L3/cbm_mask")?, 16).ok()?;
        Some(Ways { all, least: number("L3/min_cbm_bits")?, now: now.clone() })
    };
    let bandwidth = || {
        let (least, step) = (number("MB/min_bandwidth")?, number("MB/bandwidth_gran")?);
        Some(Bandwidth { least, step, now: now.clone() })
    };
    Some(Resctrl { cache: cache(), bandwidth: bandwidth() })
}

/// Root queueing discipline of a network device; `None` if there is no such device.
fn link(device: &str) -> Option<Link> {
    let disciplines = Traffic::of(device).and_then(|traffic| traffic.disciplines()).ok()?;
    let first = disciplines.into_iter().find(|one| one.parent == traffic::ROOT && one.handle != 0);
    Some(Link { first: first.map(|one| (one.kind, one.handle)) })
}

fn unified(top: &Path, own: &Path) -> Unified {
    let controllers = |path: std::path::PathBuf| -> Vec<Controller> {
        let text = RootDir::machine().read(&path.display().to_string()).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let above = own.ancestors().take_while(|dir| dir.starts_with(top));
    let above = above.map(|dir| (dir.display().to_string(), controllers(dir.join("cgroup.subtree_control"))));
    Unified { controllers: controllers(top.join("cgroup.controllers")), above: above.collect() }
}

fn is_read_only(dir: &str) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|about| about.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

fn device(path: &str) -> Device {
    let Ok(found) = std::fs::metadata(path) else { return Device::None };
    if !found.file_type().is_block_device() {
        return Device::None;
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    if RootDir::machine().exists(&format!("/sys/dev/block/{major}:{minor}/partition")) {
        return Device::Part;
    }
    Device::Block(major, minor)
}

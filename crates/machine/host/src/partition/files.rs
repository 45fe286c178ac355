//! The files and values of each limit, in either version.

use super::plan::RequestedValue;
use super::{Controller, Device, Ground, Home, Version};
use crate::plant::{IoMax, Partition};
use crate::snapshot::{Form, Target, Value};

/// Default weight of a group, in either version.
const WEIGHT_V2: u64 = 100;
const SHARES_V1: u64 = 1024;

/// The files with a partition's limits for one controller.
pub(super) fn bounds(
    ground: &Ground,
    home: &Home,
    controller: Controller,
    partition: &Partition,
) -> Vec<RequestedValue> {
    let v2 = home.version == Version::V2;
    let file = |name: &str, form: Form, value: String, option: &'static str| RequestedValue {
        target: Target::File { path: format!("{}/{name}", home.dir), form },
        value: Value::Text(value),
        why: format!("partition {:?}", partition.name),
        option,
    };
    let text = |name: &str, value: u64, option| file(name, Form::Text, value.to_string(), option);
    match controller {
        Controller::Cpu => {
            const OPTION: &str = "CONFIG_CFS_BANDWIDTH";
            let mut files = Vec::new();
            if let Some(max) = partition.cpu_max {
                let (quota, period) = (max.quota_us(), max.period_us());
                if v2 {
                    files.push(file("cpu.max", Form::Text, format!("{quota} {period}"), OPTION));
                } else {
                    files.push(text("cpu.cfs_period_us", period, OPTION));
                    files.push(text("cpu.cfs_quota_us", quota, OPTION));
                }
            }
            if let Some(weight) = partition.cpu_weight {
                const OPTION: &str = "CONFIG_FAIR_GROUP_SCHED";
                files.push(match v2 {
                    true => text("cpu.weight", u64::from(weight), OPTION),
                    false => text("cpu.shares", (u64::from(weight) * SHARES_V1 / WEIGHT_V2).max(2), OPTION),
                });
            }
            files
        }
        Controller::Memory => {
            let max = partition.bounds.memory_max.iter();
            let page = ground.page_bytes.max(1);
            let name = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
            max.map(|max| text(name, max.0 - max.0 % page, "CONFIG_MEMCG")).collect()
        }
        Controller::Pids => {
            let max = partition.bounds.tasks_max.iter();
            max.map(|max| text("pids.max", *max, "CONFIG_CGROUP_PIDS")).collect()
        }
        Controller::Io => partition.io_max.iter().flat_map(|one| io(ground, v2, one, &file)).collect(),
        Controller::Account => Vec::new(),
    }
}

fn io(
    ground: &Ground,
    v2: bool,
    one: &IoMax,
    file: &dyn Fn(&str, Form, String, &'static str) -> RequestedValue,
) -> Vec<RequestedValue> {
    const OPTION: &str = "CONFIG_BLK_DEV_THROTTLING";
    let Some(Device::Block(major, minor)) = ground.devices.get(&one.device).copied() else { return Vec::new() };
    let form = Form::Device { major, minor };
    let bytes = |size: Option<base::Size>| size.map(|size| size.0);
    let rows = [
        ("rbps", "blkio.throttle.read_bps_device", bytes(one.read)),
        ("wbps", "blkio.throttle.write_bps_device", bytes(one.write)),
        ("riops", "blkio.throttle.read_iops_device", one.read_ops),
        ("wiops", "blkio.throttle.write_iops_device", one.write_ops),
    ];
    if v2 {
        let word = |value: Option<u64>| value.map_or("max".to_owned(), |value| value.to_string());
        let words = rows.map(|(key, _, value)| format!("{key}={}", word(value))).join(" ");
        return vec![file("io.max", form, words, OPTION)];
    }
    rows.into_iter().filter_map(|(_, name, value)| Some(file(name, form, value?.to_string(), OPTION))).collect()
}

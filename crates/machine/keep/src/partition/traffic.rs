//! Classes of network devices and their senders: read and written for the executor.

use host::partition::network::{Class, Discipline, priority_of, sender};
use host::plant::Queue;
use host::snapshot::{Target, Value};
use rustix::io::Errno;
use sys::traffic::{ClassCounters, ROOT, Traffic};
use sys::{Error, Result};

/// Present value of a target; [`Value::Absent`] if the device or control group is gone.
pub(crate) fn read(target: &Target) -> Result<Value> {
    let text = |text: String| Ok(Value::Text(text));
    let found = match target {
        Target::Traffic { device, handle } => match device_of(device)? {
            None => None,
            Some(traffic) => traffic.disciplines()?.into_iter().find(|one| one.handle == *handle).map(|one| {
                let is = match (one.kind.as_str(), one.number) {
                    ("htb", Some(others)) if one.parent == ROOT => Discipline::Bucket { others },
                    (kind, Some(bytes)) => match Queue::of_kind(kind) {
                        Some(queue) => Discipline::Queue { queue, parent: one.parent, bytes },
                        None => Discipline::Other(one.kind),
                    },
                    _ => Discipline::Other(one.kind),
                };
                is.to_string()
            }),
        },
        Target::TrafficClass { device, id } => match device_of(device)? {
            None => None,
            Some(traffic) => traffic.classes()?.into_iter().find(|(one, _)| one.id == *id).map(|(one, _)| {
                // The kernel reports first-level classes as children of the root.
                let parent = if one.parent == ROOT { id & 0xffff_0000 } else { one.parent };
                Class { parent, rate: one.rate, ceil: one.ceil }.to_string()
            }),
        },
        Target::Sender { path } => match sys::sender::priority(path) {
            Ok(priority) => Some(priority.map_or(String::new(), sender)),
            Err(error) if error.errno == Errno::NOENT => None,
            Err(error) => return Err(error),
        },
        _ => return Err(unknown(target)),
    };
    found.map_or(Ok(Value::Absent), text)
}

/// Sets a target to a value.
pub(crate) fn write(target: &Target, to: &Value) -> Result<()> {
    match (target, to) {
        (Target::Traffic { device, handle }, Value::Text(text)) => {
            let traffic = Traffic::of(device)?;
            match text.parse().unwrap_or(Discipline::Other(String::new())) {
                Discipline::Bucket { others } => traffic.make_bucket(*handle, others),
                Discipline::Queue { queue, parent, bytes } => traffic.make_queue(queue.kind(), parent, *handle, bytes),
                Discipline::Other(_) => Err(unknown(target)),
            }
        }
        (Target::Traffic { device, handle }, Value::Absent) => {
            let traffic = Traffic::of(device)?;
            let found = traffic.disciplines()?.into_iter().find(|one| one.handle == *handle);
            found.map_or(Ok(()), |one| traffic.remove_discipline(one.parent, one.handle))
        }
        (Target::TrafficClass { device, id }, Value::Text(text)) => {
            let class: Class = text.parse().map_err(|_| unknown(target))?;
            let Class { parent, rate, ceil } = class;
            Traffic::of(device)?.make_class(&sys::traffic::Class { parent, id: *id, rate, ceil })
        }
        (Target::TrafficClass { device, id }, Value::Absent) => Traffic::of(device)?.remove_class(*id),
        (Target::Sender { path }, Value::Text(text)) => {
            // An earlier BPF program of the group is removed first: of several, the last would apply.
            sys::sender::unset_priority(path)?;
            priority_of(text).map_or(Ok(()), |priority| sys::sender::set_priority(path, priority))
        }
        _ => Err(unknown(target)),
    }
}

/// Traffic of a class of a device; `None` if either is gone.
pub(super) fn sent(device: &str, id: u32) -> Option<ClassCounters> {
    let classes = Traffic::of(device).ok()?.classes().ok()?;
    classes.into_iter().find(|(one, _)| one.id == id).map(|(_, sent)| sent)
}

/// Traffic control of a device; `None` if the device is gone.
fn device_of(device: &str) -> Result<Option<Traffic>> {
    match Traffic::of(device) {
        Ok(traffic) => Ok(Some(traffic)),
        Err(error) if error.errno == Errno::NODEV => Ok(None),
        Err(error) => Err(error),
    }
}

fn unknown(target: &Target) -> Error {
    Error { doing: format!("set {target}"), errno: Errno::INVAL }
}

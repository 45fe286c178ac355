//! A partition's class on a network device: a guaranteed rate, a maximum rate and a bounded queue.
//!
//! A device that partitions name gets a hierarchical token bucket as its root discipline. The only class below it is
//! the link. The link contains the class of all other senders and one class per partition, each with a separate queue.
//! A packet belongs to the class whose number is its priority. The kernel sets the priority of all packets from a
//! partition's control group of version 2, which needs no controller. It therefore also works on hosts with version 1
//! if the hierarchy of version 2 is mounted as well.
//!
//! Must never take over a device whose root discipline another program has created.

use super::plan::RequestedValue;
use super::{Ground, Lack};
use crate::plant::{Network, Partition, Queue};
use crate::snapshot::{Target, Value};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Handle of the root discipline on a device, and thereby of all its classes: `7a68:`.
pub const BUCKET: u32 = 0x7a68_0000;
/// Class of the whole link.
const LINK: u32 = BUCKET | 1;
/// Class of senders that are in no partition.
const OTHERS: u32 = BUCKET | 2;
/// First number of partitions' classes and of their queues.
const FIRST: u32 = 0x10;
/// Minimum part of the link for other senders: one hundredth.
const OTHERS_PART: u64 = 100;
/// Minimum queue size in bytes: a few packets, or the queue would never send anything.
const QUEUE_MIN: u64 = 4 * 1514;

/// Root of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Kind and handle of its root discipline; `None` if it is one that the kernel creates by itself.
    pub first: Option<(String, u32)>,
}

/// A queueing discipline in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// A hierarchical token bucket at the device's root. Packets of no class go to `others`.
    Bucket {
        /// The class.
        others: u32,
    },
    /// A queue with a size limit in bytes.
    Queue {
        /// Kind of queue.
        queue: Queue,
        /// The class of the queue.
        parent: u32,
        /// Size limit in bytes. For fair queues it limits the memory that the packets use.
        bytes: u32,
    },
    /// Any other discipline.
    Other(String),
}

/// A class in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The parent class.
    pub parent: u32,
    /// Guaranteed rate in bytes per second.
    pub rate: u64,
    /// Maximum rate in bytes per second.
    pub ceil: u64,
}

/// A class ID in the notation of `tc`.
struct Number(u32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.0 >> 16, self.0 & 0xffff)
    }
}

fn number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    let part = |text: &str| u32::from_str_radix(text, 16).ok().filter(|part| *part <= 0xffff);
    Some(part(major)? << 16 | part(minor)?)
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { others } => write!(f, "htb default {}", Number(*others)),
            Self::Queue { queue, parent, bytes } => write!(f, "{} for {} limit {bytes}", queue.kind(), Number(*parent)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl FromStr for Discipline {
    type Err = std::convert::Infallible;

    /// Parses the output of `Display`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(' ').collect();
        let read = match words[..] {
            ["htb", "default", others] => number(others).map(|others| Self::Bucket { others }),
            [kind, "for", parent, "limit", bytes] => {
                let read = (Queue::of_kind(kind), number(parent), bytes.parse().ok());
                if let (Some(queue), Some(parent), Some(bytes)) = read {
                    Some(Self::Queue { queue, parent, bytes })
                } else {
                    None
                }
            }
            _ => None,
        };
        Ok(read.unwrap_or_else(|| Self::Other(text.to_owned())))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} rate {} ceil {}", Number(self.parent), self.rate, self.ceil)
    }
}

impl FromStr for Class {
    type Err = &'static str;

    /// Parses the output of `Display`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a class: in PARENT rate BYTES ceil BYTES";
        let words: Vec<&str> = text.split(' ').collect();
        let ["in", parent, "rate", rate, "ceil", ceil] = words[..] else { return Err(WRONG) };
        let bytes = |text: &str| text.parse::<u64>().map_err(|_| WRONG);
        Ok(Self { parent: number(parent).ok_or(WRONG)?, rate: bytes(rate)?, ceil: bytes(ceil)? })
    }
}

/// Class ID of the partition at position `place` among those with a class.
#[must_use]
pub fn class_of(place: usize) -> u32 {
    BUCKET | (FIRST + place as u32)
}

/// Whether a class belongs to a partition.
#[must_use]
pub fn is_partitions(id: u32) -> bool {
    id & 0xffff_0000 == BUCKET && id & 0xffff >= FIRST
}

/// Obstacles to a partition's class.
#[must_use]
pub fn lacks(ground: &Ground, network: &Network) -> Vec<Lack> {
    let mut lacks = Vec::new();
    match ground.links.get(&network.device) {
        None | Some(None) => lacks.push(Lack::NoLink(network.device.clone())),
        Some(Some(Link { first: Some((kind, handle)) })) if *handle != BUCKET => {
            lacks.push(Lack::Traffic { device: network.device.clone(), kind: kind.clone(), number: handle >> 16 });
        }
        Some(Some(_)) => {}
    }
    if ground.v2.is_none() {
        lacks.push(Lack::Unified);
    }
    lacks
}

/// Settings of a partition on its device, in the order in which they must be made. `all` are the plant's partitions.
pub(super) fn wanted(dir: &str, partition: &Partition, all: &[Partition]) -> Vec<RequestedValue> {
    let Some(network) = &partition.network else { return Vec::new() };
    let device = &network.device;
    let why = format!("partition {:?}", partition.name);
    let wanted = |target: Target, text: String, option: &'static str| RequestedValue {
        target,
        value: Value::Text(text),
        why: why.clone(),
        option,
    };
    let discipline = |handle: u32, is: &Discipline, option| {
        wanted(Target::Traffic { device: device.clone(), handle }, is.to_string(), option)
    };
    let class = |id: u32, is: Class| {
        wanted(Target::TrafficClass { device: device.clone(), id }, is.to_string(), "CONFIG_NET_SCH_HTB")
    };
    let link = network.link.bytes();
    // Partitions of other devices count as well. A partition thus keeps its number when partitions of other devices
    // change.
    let place = all.iter().filter(|one| one.network.is_some()).position(|one| one.name == partition.name);
    let id = class_of(place.unwrap_or_default());
    let on_device = all.iter().filter_map(|one| one.network.as_ref()).filter(|one| one.device == *device);
    let given: u64 = on_device.map(|one| one.rate.bytes()).sum();
    let rest = link.saturating_sub(given).max(link / OTHERS_PART).max(1);
    let ceil = network.max.map_or(link, |max| max.bytes());
    let mut steps = vec![
        discipline(BUCKET, &Discipline::Bucket { others: OTHERS }, "CONFIG_NET_SCH_HTB"),
        class(LINK, Class { parent: BUCKET, rate: link, ceil: link }),
        class(OTHERS, Class { parent: LINK, rate: rest, ceil: link }),
        class(id, Class { parent: LINK, rate: network.rate.bytes(), ceil }),
    ];
    if let Some(delay) = network.delay {
        let bytes = u128::from(network.rate.bytes()) * u128::from(delay.0.unsigned_abs()) / 1_000_000_000;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(QUEUE_MIN as u32);
        // The handles of queues are separate major numbers.
        let handle = ((BUCKET >> 16) + (id & 0xffff)) << 16;
        let queue = network.queue;
        steps.push(discipline(handle, &Discipline::Queue { queue, parent: id, bytes }, queue.option()));
    }
    steps.push(wanted(Target::Sender { path: dir.to_owned() }, Number(id).to_string(), "CONFIG_CGROUP_BPF"));
    steps
}

/// The priority in the value of a [`Target::Sender`].
#[must_use]
pub fn priority_of(text: &str) -> Option<u32> {
    number(text)
}

/// The value of a [`Target::Sender`].
#[must_use]
pub fn sender(priority: u32) -> String {
    Number(priority).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DurNs;

    fn partition(name: &str, device: &str, rate: &str) -> Partition {
        let network = Network {
            device: device.into(),
            link: "100Mbit".parse().unwrap(),
            rate: rate.parse().unwrap(),
            max: Some("50Mbit".parse().unwrap()),
            delay: Some(DurNs::from_ms(5)),
            queue: Queue::Fifo,
        };
        Partition { name: name.into(), network: Some(network), ..Partition::default() }
    }

    #[test]
    fn each_partition_has_a_class_and_a_queue_within_the_link_and_others_have_the_rest() {
        let all = [partition("a", "eth0", "20Mbit"), Partition::default(), partition("b", "eth0", "30Mbit")];
        let wanted = wanted("/group", &all[2], &all);
        let told: Vec<String> = wanted.iter().map(|one| format!("{}: {}", one.target, one.value)).collect();
        let expected = [
            "traffic of eth0, discipline 7a68:: htb default 7a68:2",
            "traffic of eth0, class 7a68:1: in 7a68:0 rate 12500000 ceil 12500000",
            "traffic of eth0, class 7a68:2: in 7a68:1 rate 6250000 ceil 12500000",
            "traffic of eth0, class 7a68:11: in 7a68:1 rate 3750000 ceil 6250000",
            "traffic of eth0, discipline 7a79:: bfifo for 7a68:11 limit 18750",
            "what /group sends: 7a68:11",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn written_values_are_read_back_equal() {
        for text in [
            "htb default 7a68:2",
            "bfifo for 7a68:10 limit 6056",
            "cake for 7a68:10 limit 6056",
            "fq_codel",
            "htb default x",
        ] {
            assert_eq!(text.parse::<Discipline>().unwrap().to_string(), text);
        }
        let class = Class { parent: BUCKET, rate: 1, ceil: u64::MAX };
        assert_eq!(class.to_string().parse::<Class>(), Ok(class));
        assert!("in 1 rate 2 ceil 3".parse::<Class>().is_err() && "".parse::<Class>().is_err());
        assert_eq!(priority_of(&sender(class_of(3))), Some(class_of(3)));
    }

    #[test]
    fn a_foreign_discipline_a_missing_device_and_a_host_without_version_2_are_reported() {
        let network = partition("a", "eth0", "20Mbit").network.unwrap();
        let with = |link: Option<Link>| Ground {
            links: [("eth0".to_owned(), link)].into(),
            v2: Some(crate::partition::Unified::default()),
            ..Ground::default()
        };
        let first = |handle| Some(Link { first: Some(("htb".to_owned(), handle)) });
        assert_eq!(lacks(&with(Some(Link::default())), &network), [], "the kernel's own queue is replaced");
        assert_eq!(lacks(&with(first(BUCKET)), &network), [], "the journal names the owner");
        let told = lacks(&with(first(0x10000)), &network);
        assert_eq!(told, [Lack::Traffic { device: "eth0".into(), kind: "htb".into(), number: 1 }]);
        assert_eq!(lacks(&with(None), &network), [Lack::NoLink("eth0".into())]);
        let bare = Ground { v2: None, ..with(Some(Link::default())) };
        assert_eq!(lacks(&bare, &network), [Lack::Unified]);
    }
}

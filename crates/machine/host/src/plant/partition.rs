//! Reads `[[partition]]`.

use super::keys::{Key, Table, key};
use super::model::Bounds;
use super::process;
use super::{Missing, Surroundings};
use crate::partition::Controller;
use base::{DurNs, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use table::{Diagnostics, Placed, Section, clipped};
use toml::de::{DeTable, DeValue};

/// Maximum number of partitions in a plant.
pub(crate) const PARTITIONS_MAX: usize = 64;

const KEYS: [Key; 10] = [
    key(
        "name",
        r#""hmi""#,
        "letters, digits, `-`, `_` and `.`, at most 32",
        "",
        "Name of the partition, unique in the plant.",
    ),
    key(
        "cpu_max",
        r#""50%/100ms""#,
        "percent of one CPU, 1% to 100000%, and a period, 1ms to 1s",
        "none; a period of `100ms`",
        "Maximum CPU time of all threads together in each period, at least 1ms (`cpu.max`, v1: `cpu.cfs_quota_us`). Above it they wait for the next \
         period. Applies to time sharing only: a partition with this key may not contain a real-time process.",
    ),
    key(
        "cpu_weight",
        "50",
        "1 to 10000",
        "none, as 100",
        "Share of busy CPUs relative to other groups, as systemd's `CPUWeight=` (`cpu.weight`, v1: `cpu.shares`). Applies to time sharing only.",
    ),
    key(
        "memory_max",
        r#""512MiB""#,
        "size, at least 1MiB",
        "none",
        "Maximum memory of all processes together, with page cache. Above it the kernel kills one of them (`memory.max`, v1: `memory.limit_in_bytes`).",
    ),
    key(
        "tasks_max",
        "64",
        "1 to 4194304",
        "none",
        "Maximum number of processes and threads. Above it no further one starts (`pids.max`).",
    ),
    key(
        "io_max",
        r#"[{ device = "/dev/sda", read = "20MiB" }]"#,
        "list of tables, see *io_max*",
        "none",
        "Limits on reads and writes of block devices (`io.max`, v1: `blkio.throttle.*`). v1 does not limit writes through the page cache.",
    ),
    key(
        "cache",
        r#""25%""#,
        "percentage, `1%` to `100%`",
        "none",
        "Maximum share of the last-level cache that its processes fill, in whole ways, the highest ones. Uses a resctrl group; the processor must \
         support it.",
    ),
    key(
        "memory_bandwidth",
        r#""30%""#,
        "percentage, `1%` to `100%`",
        "none",
        "Maximum share of the memory bandwidth, rounded up to the processor's steps. Uses resctrl.",
    ),
    key(
        "network",
        r#"{ device = "eth0", link = "100Mbit", rate = "20Mbit" }"#,
        "table, see *network*",
        "none",
        "Limit on the data it sends through a network device. Uses HTB (`tc`) and a kernel program on the partition's v2 cgroup. It needs no \
         controller, so hosts with v1 can use it if v2 is mounted too.",
    ),
    key(
        "required",
        "false",
        "true or false",
        "`true`",
        "Refuse the plant if this machine cannot apply a limit. With `false` tahti prints a warning once and applies the other limits.",
    ),
];

/// `[[partition]]`
pub(crate) const PARTITION: Table = Table {
    header: "[[partition]]",
    doc: "Limits that several processes share: all with `partition = \"NAME\"`, and their descendants ([partitions](../partitions.md)). tahti creates \
          cgroups for them and removes these when the plant is down.",
    keys: &KEYS,
};

/// `io_max = [{…}]`
pub(crate) const IO_MAX: Table = Table {
    header: "io_max",
    doc: "Limits on a block device. Set at least one of the four.",
    keys: &[
        key("device", r#""/dev/sda""#, "path of a whole block device", "", "The device."),
        key("read", r#""20MiB""#, "size", "none", "Maximum bytes read per second."),
        key("write", r#""5MiB""#, "size", "none", "Maximum bytes written per second."),
        key("read_ops", "200", "1 to 1000000000", "none", "Maximum reads per second."),
        key("write_ops", "100", "1 to 1000000000", "none", "Maximum writes per second."),
    ],
};

/// `network = {…}`
pub(crate) const NETWORK: Table = Table {
    header: "network",
    doc: "Limits on the data that the partition's processes send through a network device. All other processes share the bandwidth that partitions \
          do not use. A device whose root discipline another program set is refused.",
    keys: &[
        key("device", r#""eth0""#, "name of a network device", "", "The device."),
        key(
            "link",
            r#""100Mbit""#,
            "bits a second: `kbit`, `Mbit`, `Gbit`",
            "",
            "Speed of the link; the same in all partitions that use the device. It limits all traffic sent through the device while the plant is up. \
             Queues then form in the kernel, where tahti orders them, and not in the device.",
        ),
        key(
            "rate",
            r#""20Mbit""#,
            "bits a second",
            "",
            "Guaranteed rate. All partitions together may have at most 99 % of the link.",
        ),
        key(
            "max",
            r#""50Mbit""#,
            "bits a second, at least `rate`",
            "`link`",
            "Maximum rate, also if the link is otherwise idle.",
        ),
        key(
            "delay",
            r#""5ms""#,
            "time, 100us to 10s",
            "none: a queue of the device's length",
            "Maximum time in the queue at `rate`. Packets that do not fit in the queue are lost.",
        ),
        key(
            "queue",
            r#""fq_codel""#,
            "`fifo`, `fq_codel` or `cake`",
            "`fifo`",
            "Order of the queue. `fifo`: order of arrival. `fq_codel`, `cake`: connections share the queue fairly, so that one flood does not delay \
             other traffic of the partition; the kernel must have the discipline.",
        ),
    ],
};

/// `[[partition]]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Processor time of all its threads together.
    pub cpu_max: Option<CpuMax>,
    /// Its weight on busy CPUs; default 100.
    pub cpu_weight: Option<u16>,
    /// Limits of memory and of the number of tasks.
    pub bounds: Bounds,
    /// Limits on reading and writing block devices.
    pub io_max: Vec<IoMax>,
    /// Percent of the last-level cache.
    #[serde(default)]
    pub cache: Option<u8>,
    /// Percent of the memory bandwidth.
    #[serde(default)]
    pub memory_bandwidth: Option<u8>,
    /// Its class of a network device.
    #[serde(default)]
    pub network: Option<Network>,
    /// Whether the plant is refused if the machine cannot apply these limits.
    pub required: bool,
    /// Controllers for separate limits of some of its processes.
    pub inner: Vec<Controller>,
}

/// A class of a network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The device.
    pub device: String,
    /// Rate of the link.
    pub link: BitRate,
    /// Guaranteed rate.
    pub rate: BitRate,
    /// Maximum rate; `None` means the rate of the link.
    pub max: Option<BitRate>,
    /// Maximum time in its queue.
    pub delay: Option<DurNs>,
    /// Order in which the queue is sent.
    #[serde(default)]
    pub queue: Queue,
}

/// Order in which the queue of a class is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// In order of arrival.
    #[default]
    Fifo,
    /// Alternating between connections.
    FqCodel,
    /// Alternating between hosts, then between their connections.
    Cake,
}

impl Queue {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::FqCodel, Self::Cake];

    /// The order with this name in the kernel.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| queue.kind() == kind)
    }

    /// The discipline's name in the kernel.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Fifo => "bfifo",
            Self::FqCodel => "fq_codel",
            Self::Cake => "cake",
        }
    }

    /// The kernel configuration option that provides it.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Fifo => "CONFIG_NET_SCH_FIFO",
            Self::FqCodel => "CONFIG_NET_SCH_FQ_CODEL",
            Self::Cake => "CONFIG_NET_SCH_CAKE",
        }
    }
}

impl FromStr for Queue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fifo" => Ok(Self::Fifo),
            "fq_codel" => Ok(Self::FqCodel),
            "cake" => Ok(Self::Cake),
            _ => Err("fifo, fq_codel or cake"),
        }
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Bytes per second.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0 / 8
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0 {
            bits if bits % 1_000_000_000 == 0 => (bits / 1_000_000_000, "Gbit"),
            bits if bits % 1_000_000 == 0 => (bits / 1_000_000, "Mbit"),
            bits => (bits / 1000, "kbit"),
        };
        write!(f, "{number}{unit}")
    }
}

impl FromStr for BitRate {
    type Err = &'static str;

    /// Parses `100Mbit`: 8kbit to 32Gbit.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "bits a second such as 100Mbit (8kbit to 32Gbit)";
        let units = [("kbit", 1000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];
        let read = units
            .iter()
            .find_map(|(unit, factor)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*factor));
        read.filter(|bits| (8000..=32_000_000_000).contains(bits)).map(Self).ok_or(WRONG)
    }
}

/// A limit of processor time per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMax {
    /// Percent of one CPU.
    pub percent: u32,
    /// The period.
    pub period: DurNs,
}

/// Limits on a block device; `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoMax {
    /// The device's path.
    pub device: String,
    /// Bytes read per second.
    pub read: Option<Size>,
    /// Bytes written per second.
    pub write: Option<Size>,
    /// Read operations per second.
    pub read_ops: Option<u64>,
    /// Write operations per second.
    pub write_ops: Option<u64>,
}

impl Partition {
    /// The controllers that its limits need.
    #[must_use]
    pub fn controllers(&self) -> Vec<Controller> {
        let cpu = self.bounds_cpu();
        let rows = [
            (Controller::Cpu, cpu),
            (Controller::Account, cpu),
            (Controller::Memory, self.bounds.memory_max.is_some()),
            (Controller::Pids, self.bounds.tasks_max.is_some()),
            (Controller::Io, !self.io_max.is_empty()),
        ];
        let needed = |(controller, own): (Controller, bool)| own || self.inner.contains(&controller);
        rows.into_iter().filter(|row| needed(*row)).map(|(controller, _)| controller).collect()
    }

    /// Whether processor time is limited. The limit applies to time-sharing threads only.
    #[must_use]
    pub fn bounds_cpu(&self) -> bool {
        self.cpu_max.is_some() || self.cpu_weight.is_some()
    }
}

impl CpuMax {
    /// Processor time per period in microseconds.
    #[must_use]
    pub fn quota_us(self) -> u64 {
        self.period_us() * u64::from(self.percent) / 100
    }

    /// Period in microseconds.
    #[must_use]
    pub fn period_us(self) -> u64 {
        self.period.0.unsigned_abs() / 1000
    }
}

impl fmt::Display for CpuMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%/{}", self.percent, self.period)
    }
}

impl FromStr for CpuMax {
    type Err = &'static str;

    /// Parses `50%/100ms` or `50%`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "percent of one CPU and a period such as 50%/100ms (1% to 100000%, 1ms to 1s, at least 1ms of each period)";
        let (share, period) = text.split_once('/').unwrap_or((text, "100ms"));
        let percent = share.trim().strip_suffix('%').and_then(|number| number.trim().parse::<u32>().ok());
        let percent = percent.filter(|percent| (1..=100_000).contains(percent)).ok_or(WRONG)?;
        let period: DurNs = period.trim().parse().map_err(|_| WRONG)?;
        let max = Self { percent, period };
        let fits = period >= DurNs::from_ms(1) && period <= DurNs::from_secs(1);
        if fits && max.quota_us() >= 1000 { Ok(max) } else { Err(WRONG) }
    }
}

/// Reads all partitions.
pub(crate) fn read_all(root: &DeTable<'_>, found: &mut Diagnostics<'_>) -> Vec<Placed<Partition>> {
    let tables = table::tables(root, "partition", true, found);
    if let Some((_, span)) = tables.get(PARTITIONS_MAX) {
        let message = format!("the plant has {} partitions", tables.len());
        found.error(span.clone(), message, format!("at most {PARTITIONS_MAX}"), "");
    }
    let mut all: Vec<Placed<Partition>> = Vec::new();
    for (table, span) in tables.into_iter().take(PARTITIONS_MAX) {
        let named = table.iter().find(|(key, _)| *key.get_ref() == "name").and_then(|(_, it)| it.get_ref().as_str());
        let called = named.map_or("a partition".to_owned(), |name| format!("partition {:?}", clipped(name)));
        let section = Section::open(table, span, &PARTITION, &called, found);
        let partition = read(&section, &called, found);
        if all.iter().any(|(other, _)| !partition.name.is_empty() && other.name == partition.name) {
            let message = format!("a second partition {:?}", partition.name);
            found.error(section.range(), message, "a unique name", "rename one");
        }
        all.push((partition, section.range()));
    }
    all
}

fn read(section: &Section<'_>, called: &str, found: &mut Diagnostics<'_>) -> Partition {
    let partition = Partition {
        name: process::name(section, found).map_or(String::new(), |(name, _)| name),
        cpu_max: section.parsed("cpu_max", found).map(|(max, _)| max),
        cpu_weight: section.number("cpu_weight", 1, 10_000, found).map(|(weight, _)| weight as u16),
        bounds: process::bounds(section, found),
        io_max: io_max(section, found),
        cache: percent(section, "cache", found),
        memory_bandwidth: percent(section, "memory_bandwidth", found),
        network: network(section, found),
        required: section.flag("required", found).unwrap_or(true),
        inner: Vec::new(),
    };
    let says = |name: &str| section.value(name).is_some();
    if !KEYS.iter().any(|key| !matches!(key.name, "name" | "required") && says(key.name)) {
        found.error(
            section.range(),
            format!("{called} has no limit"),
            "at least one limit",
            "add `memory_max`, for example",
        );
    }
    partition
}

fn percent(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<u8> {
    let (text, span) = section.text(name, found)?;
    let read = text.strip_suffix('%').and_then(|number| number.trim().parse::<u8>().ok());
    let percent = read.filter(|percent| (1..=100).contains(percent));
    if percent.is_none() {
        found.error(
            span,
            format!("`{name}` cannot be {:?}", clipped(text)),
            "a percentage such as 25%, 1% to 100%",
            "",
        );
    }
    percent
}

fn network(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Network> {
    let table = section.section("network", &NETWORK, "network", found)?;
    for name in ["device", "link", "rate"] {
        if table.value(name).is_none() {
            table.missing(name, found);
        }
    }
    let device = table.words("device", found).filter(|(name, span)| {
        let fits = name.len() < 16 && !name.contains(['/', ' ']);
        if !fits {
            found.error(
                span.clone(),
                format!("`device` cannot be {:?}", clipped(name)),
                "a name such as eth0, at most 15 letters",
                "",
            );
        }
        fits
    });
    let [link, rate, max] = ["link", "rate", "max"].map(|name| table.parsed::<BitRate>(name, found));
    let delay = table.time("delay", DurNs::from_us(100), DurNs::from_secs(10), found).map(|(delay, _)| delay);
    let (link, (rate, rate_span)) = (link?.0, rate?);
    if rate > link {
        found.error(rate_span, format!("`rate` {rate} is more than its `link`"), format!("at most {link}"), "");
    }
    if let Some((max, span)) = max.as_ref().filter(|(max, _)| *max < rate || *max > link) {
        found.error(span.clone(), format!("`max` cannot be {max}"), format!("{rate} to {link}"), "");
    }
    let queue = table.parsed::<Queue>("queue", found);
    if let Some((_, span)) = queue.as_ref().filter(|(queue, _)| *queue != Queue::Fifo && delay.is_none()) {
        found.error(
            span.clone(),
            "`queue` without `delay`",
            "`delay`, which limits the queue",
            "add `delay = \"20ms\"`",
        );
    }
    let queue = queue.map_or(Queue::Fifo, |(queue, _)| queue);
    Some(Network { device: device?.0.to_owned(), link, rate, max: max.map(|(max, _)| max), delay, queue })
}

/// Checks the partitions of each network device: equal links, and guaranteed rates whose sum the link can carry.
fn share(partitions: &[Placed<Partition>], found: &mut Diagnostics<'_>) {
    let classes = || partitions.iter().filter_map(|(one, span)| Some((one.network.as_ref()?, span)));
    for (at, (network, span)) in classes().enumerate() {
        let before = || classes().take(at).filter(|(other, _)| other.device == network.device);
        if let Some((other, _)) = before().find(|(other, _)| other.link != network.link) {
            let message = format!(
                "the `link` of {} is {}, but {} in a previous partition",
                network.device, network.link, other.link
            );
            found.error(span.clone(), message, "the same value in all partitions", "");
        }
        let given = before().map(|(other, _)| other.rate.0).sum::<u64>() + network.rate.0;
        if given > network.link.0 - network.link.0 / 100 {
            let message = format!(
                "partitions have a guaranteed rate of {} of {}, but its link has {}",
                BitRate(given),
                network.device,
                network.link
            );
            found.error(
                span.clone(),
                message,
                "at most 99 % of the link: other processes need the rest",
                "lower a `rate`",
            );
        }
    }
}

fn io_max(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<IoMax> {
    let Some(value) = section.value("io_max") else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        section.wrong("io_max", value, "a list of tables", found);
        return Vec::new();
    };
    let mut all: Vec<IoMax> = Vec::new();
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            section.wrong("io_max", item, "tables", found);
            continue;
        };
        let one = Section::open(table, item.span(), &IO_MAX, "limits of a device", found);
        if one.value("device").is_none() {
            one.missing("device", found);
        }
        let mut size = |name: &str| {
            let (size, span) = one.parsed::<Size>(name, found)?;
            if size.0 == 0 {
                found.error(span, format!("`{name}` cannot be {size}"), "at least 1B", "remove the key for no limit");
            }
            Some(size)
        };
        let (read, write) = (size("read"), size("write"));
        let mut number = |name: &str| one.number(name, 1, 1_000_000_000, found).map(|(number, _)| number);
        let (read_ops, write_ops) = (number("read_ops"), number("write_ops"));
        let device = one.words("device", found).map_or(String::new(), |(device, _)| device.to_owned());
        if ["read", "write", "read_ops", "write_ops"].iter().all(|name| one.value(name).is_none()) {
            found.error(
                item.span(),
                "limits of a device without any limit",
                "`read`, `write`, `read_ops` or `write_ops`",
                "",
            );
        }
        if all.iter().any(|other| other.device == device) {
            found.error(item.span(), format!("a second table of limits on {device}"), "one table per device", "");
        }
        all.push(IoMax { device, read, write, read_ops, write_ops });
    }
    all
}

/// Checks processes against the partitions that they name, and partitions against the machine.
pub(crate) fn check(
    partitions: &mut [Placed<Partition>],
    reads: &[process::PlacedProcess],
    shield: Option<base::CpuSet>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) {
    share(partitions, found);
    let mut on_shield: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for read in reads {
        let process = &read.process;
        let Some((name, span)) = &read.partition else { continue };
        let known = || partitions.iter().map(|(one, _)| one.name.as_str());
        let Some(at) = partitions.iter().position(|(one, _)| one.name == *name) else {
            let remedy = match base::nearest(name, known()) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "add `[[partition]]` with this name".to_owned(),
            };
            let message = format!("`partition` of process {:?} names an unknown one, {name:?}", process.name);
            found.error(span.clone(), message, known().collect::<Vec<_>>().join(", "), remedy);
            continue;
        };
        let (partition, _) = &mut partitions[at];
        let is_real_time = process.class.is_real_time()
            || process.has_own_priorities
            || process.threads.iter().any(|rule| rule.class.is_some_and(base::Policy::is_real_time));
        if is_real_time && partition.bounds_cpu() {
            found.error(
                span.clone(),
                format!("process {:?} is real time, but partition {name:?} limits CPU time", process.name),
                "time-sharing processes: the kernel cannot limit others this way",
                "give it a partition without `cpu_max` and `cpu_weight`; the guard watches its `budget`",
            );
        }
        let inner = [
            (Controller::Memory, process.bounds.memory_max.is_some()),
            (Controller::Pids, process.bounds.tasks_max.is_some()),
        ];
        for (controller, _) in inner.into_iter().filter(|(_, bounded)| *bounded) {
            if !partition.inner.contains(&controller) {
                partition.inner.push(controller);
            }
        }
        let cpus = match process.cpus {
            super::Cpus::Shield => true,
            super::Cpus::List(list) => shield.is_some_and(|shield| list.is_subset(&shield)),
            super::Cpus::Housekeeping => false,
        };
        if cpus {
            on_shield.entry(name.clone()).or_default().push(process.name.clone());
        }
    }
    for (partition, span) in partitions.iter().filter(|(one, _)| !one.name.is_empty()) {
        let inside = on_shield.get(&partition.name).map_or(&[][..], Vec::as_slice);
        for lack in around.bound(partition, inside) {
            lacks(partition, span, &lack, found);
        }
        if !reads.iter().any(|read| read.partition.as_ref().is_some_and(|(name, _)| *name == partition.name)) {
            let message = format!("no process is in partition {:?}", partition.name);
            found.warning(span.clone(), message, format!("give one `partition = {:?}`", partition.name));
        }
    }
}

fn lacks(partition: &Partition, span: &Range<usize>, lack: &Missing, found: &mut Diagnostics<'_>) {
    let message = format!("this machine cannot apply a limit of partition {:?}: {lack}", partition.name);
    if partition.required {
        found.error(
            span.clone(),
            message,
            "a machine and a kernel that can apply its limits",
            "`required = false` continues without it",
        );
    } else {
        found.warning(span.clone(), message, "its other limits apply");
    }
}

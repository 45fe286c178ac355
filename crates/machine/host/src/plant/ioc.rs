//! Reads `[[ioc]]`. An EPICS IOC is a process whose command line is generated from the table.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Cpus, Ready, ReadyCondition, ThreadRule};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::{CpuSet, DurNs, Policy};
use std::ops::Range;
use table::{Diagnostics, Placed, Section, clipped};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Output of `tahti ioc` when it serves.
const SERVING: &str = "iocRun: All initialization complete";
/// Time limit for loading.
const LOAD_WITHIN: DurNs = DurNs::from_secs(60);

const OWN: [Key; 10] = [
    key(
        "load",
        r#"[{ file = "ring.db", macros = "P=SR:" }]"#,
        "list of tables with `file`, `macros` and `inside`",
        "none",
        "Databases (`.db`), templates (`.substitutions`), definitions (`.dbd`) and plug-ins with functions (`.so`), in \
         load order, relative to `dir`. A plug-in has its own process, or runs in the IOC with `inside = true`.",
    ),
    key("access", r#""site.acf""#, "file", "all clients may read and write", "Access security file."),
    key(
        "scan",
        r#"[{ rates = [".1 second"], class = "fifo:80", cpus = "3" }]"#,
        "list of tables, see *scan*",
        "one thread for all",
        "Scans with their own threads, as `tahti ioc --scan`.",
    ),
    key(
        "port",
        r#"[{ name = "plc", address = "10.0.0.7:502" }]"#,
        "list of tables, see *port*",
        "none",
        "Connections to equipment for records with DTYP `Modbus TCP`, `Modbus RTU` or `stream`.",
    ),
    key(
        "protocols",
        r#"["protocols"]"#,
        "list of folders",
        "`STREAM_PROTOCOL_PATH`, else `dir`",
        "Folders with the protocol files of `stream` records.",
    ),
    key(
        "require_rt",
        "true",
        "true or false",
        "`false`",
        "Exit if the class, CPU or memory lock of a scan is unavailable.",
    ),
    key(
        "strict",
        "true",
        "true or false",
        "`false`",
        "Refuse a whole database file that has an error. Otherwise its valid part is loaded; the IOC still exits if \
         the file is in `load`.",
    ),
    key(
        "pvaccess",
        "false",
        "true or false",
        "`true`",
        "Serve records over PVAccess ([PVAccess](../pvaccess.md)) in addition to Channel Access.",
    ),
    key(
        "script",
        r#""st.cmd""#,
        "file",
        "none",
        "Commands to run after `load`. Must contain `iocInit` if `load` is empty.",
    ),
    key("ready", r#"{ line = "armed" }"#, "table, see *ready*", "it serves, within 60s", "As in `[[process]]`."),
];

// `command` is generated, and `ready` has a different default.
const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 2] = with_process(&OWN, &["command", "ready"]);

/// `[[ioc]]`, for the documentation.
pub(crate) const IOC: Table = Table {
    header: "[[ioc]]",
    doc: "An EPICS IOC ([ioc](../ioc.md)). It is a process: all keys of `[[process]]` except `command` are valid here. Names are unique among IOCs and \
          processes. SIGTERM ends it as `exit` does. If scans have shielded CPUs, the default is `cpus = \"shield\"`: the whole IOC is on the \
          shield, and needs a second shielded CPU for its network. With `cpus = \"housekeeping\"` only its scans are on the shield; a shield that is \
          a cgroup v2 partition does not allow that.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[[ioc]]", doc: "", keys: &SHAPE };

/// `load = [{…}]`
pub(super) const LOAD: Table = Table {
    header: "load",
    doc: "A file to load.",
    keys: &[
        key("file", r#""ring.db""#, "file", "", "A `.db`, `.template`, `.substitutions`, `.dbd` or `.so` file."),
        key("macros", r#""P=SR:""#, "`NAME=VALUE,…`", "none", "Values of its macros."),
        key("inside", "true", "true or false", "`false`", "Run the functions of a `.so` file in the IOC."),
    ],
};

/// `scan = [{…}]`
pub(crate) const SCAN: Table = Table {
    header: "scan",
    doc: "A scan group. Its threads run all lock sets with records of these rates.",
    keys: &[
        key("rates", r#"[".1 second"]"#, "list of choices of menuScan", "", "The scans."),
        key("class", r#""fifo:80""#, "as in `[[process]]`", "", "Class of its threads."),
        key(
            "cpus",
            r#""3""#,
            "CPU list",
            "those of the IOC",
            "One thread per CPU; lock sets are distributed among them.",
        ),
    ],
};

/// `port = [{…}]`
pub(crate) const PORT: Table = Table {
    header: "port",
    doc: "A connection to equipment ([devices](../devices.md)).",
    keys: &[
        key("name", r#""plc""#, "one word", "", "Name for records."),
        key(
            "address",
            r#""10.0.0.7:502""#,
            "`HOST:PORT`, or a serial line such as `/dev/ttyS0`",
            "",
            "Address or serial device.",
        ),
        key("baud", "19200", "50 to 4000000", "`9600`", "Bits per second of a serial line."),
        key("bits", "7", "5 to 8", "`8`", "Bits per character."),
        key("parity", r#""even""#, "`none`, `even` or `odd`", "`none`", "Parity."),
        key("stop", "2", "1 or 2", "`1`", "Stop bits."),
    ],
};

/// Reads an IOC as a process.
pub(crate) fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    called: &str,
    has_shield: bool,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = vec!["tahti".into(), "ioc".into()];
    let mut files: Vec<Placed<String>> = Vec::new();
    if let Some((file, span)) = section.words("access", found) {
        command.extend(["-a".into(), file.to_owned()]);
        files.push((file.to_owned(), span));
    }
    let loads = load(&section, &mut command, &mut files, found);
    let scans = scan(&section, &mut command, found);
    let real_time = scans.iter().any(|(class, _)| class.is_real_time());
    ports(&section, &mut command, found);
    if let Some(folders) = section.texts("protocols", found) {
        let path = folders.iter().map(|(folder, _)| *folder).collect::<Vec<_>>().join(":");
        command.extend(["--protocols".into(), path]);
    }
    if section.flag("strict", found).unwrap_or(false) {
        command.push("--strict".into());
    }
    if section.flag("require_rt", found).unwrap_or(false) {
        command.push("--require-rt".into());
    }
    if section.flag("pvaccess", found) == Some(false) {
        command.push("--no-pvaccess".into());
    }
    match section.words("script", found) {
        Some((script, span)) => {
            command.push(script.to_owned());
            files.push((script.to_owned(), span));
        }
        None if loads == 0 => {
            let expected = "`load`, or a `script` that loads and ends with iocInit";
            found.error(
                section.range(),
                format!("{called} has nothing to load"),
                expected,
                "add `load = [{ file = \"…\" }]`",
            );
        }
        None => {}
    }
    let made = GeneratedCommand { command, has_own_priorities: real_time };
    let mut read = process::read(&section, called, has_shield, Some(made), found);
    read.process.own_threads = scan_threads(scans);
    read.files = files;
    if section.value("cpus").is_none() && real_time && has_shield {
        read.process.cpus = Cpus::Shield;
    }
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(SERVING.to_owned()), within: LOAD_WITHIN };
    }
    read
}

/// Opens the tables of a list.
pub(super) fn each<'t>(
    section: &Section<'t>,
    name: &str,
    shape: &'static Table,
    found: &mut Diagnostics<'_>,
) -> Vec<Section<'t>> {
    let Some(value) = section.value(name) else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        section.wrong(name, value, "a list of tables", found);
        return Vec::new();
    };
    let mut all = Vec::new();
    for item in items.iter() {
        match item.get_ref() {
            DeValue::Table(table) => all.push(Section::open(table, item.span(), shape, shape.header, found)),
            _ => section.wrong(name, item, "tables", found),
        }
    }
    all
}

/// Reads the files to load into the command. Returns their number.
fn load(
    section: &Section<'_>,
    command: &mut Vec<String>,
    files: &mut Vec<Placed<String>>,
    found: &mut Diagnostics<'_>,
) -> usize {
    let loads = each(section, "load", &LOAD, found);
    for load in &loads {
        if load.value("file").is_none() {
            load.missing("file", found);
        }
        let Some((file, span)) = load.words("file", found) else { continue };
        // Macros apply to all following files, so empty macros must be passed as well.
        let macros = load.words("macros", found).map_or("", |(macros, _)| macros);
        let option = match file.rsplit('.').next() {
            Some("dbd") => "-D",
            Some("db" | "template" | "vdb" | "substitutions" | "subs") => "-d",
            Some("so") if load.flag("inside", found).unwrap_or(false) => "--plugin-inside",
            Some("so") => "--plugin",
            _ => {
                let message = format!("`file` cannot be {:?}", clipped(file));
                found.error(span, message, "a .db, .template, .substitutions, .dbd or .so file", "");
                continue;
            }
        };
        command.extend(["-m".into(), macros.to_owned(), option.into(), file.to_owned()]);
        files.push((file.to_owned(), span));
    }
    loads.len()
}

/// Reads the scan groups. Returns whether any is real time.
/// Reads the scan groups. Returns class and CPUs of each.
fn scan(
    section: &Section<'_>,
    command: &mut Vec<String>,
    found: &mut Diagnostics<'_>,
) -> Vec<(Policy, Option<CpuSet>)> {
    let mut groups = Vec::new();
    let mut claimed: Vec<&str> = Vec::new();
    for scan in each(section, "scan", &SCAN, found) {
        for needed in ["rates", "class"].into_iter().filter(|needed| scan.value(needed).is_none()) {
            scan.missing(needed, found);
        }
        let rates = scan.texts("rates", found).unwrap_or_default();
        if rates.is_empty() && scan.value("rates").is_some() {
            found.error(scan.range(), "a scan group without rates", "at least one, such as \".1 second\"", "");
        }
        for (rate, span) in &rates {
            if claimed.contains(rate) || rate.contains([',', '=', '@']) || rate.trim().is_empty() {
                let message = format!("`rates` cannot hold {:?}", clipped(rate));
                found.error(span.clone(), message, "choices of menuScan, each in one group only", "");
            }
            claimed.push(rate);
        }
        let class = scan.parsed::<Policy>("class", found);
        let cpus = scan.cpu_list("cpus", found);
        let Some((class, span)) = class else { continue };
        if let (Policy::Deadline(_), true) = (class, cpus.is_some()) {
            let remedy = "remove `cpus`, or use fifo";
            found.error(span, "a DEADLINE thread cannot be bound to single CPUs", "fifo, rr or other", remedy);
        }
        groups.push((class, cpus.as_ref().map(|(cpus, _)| *cpus)));
        let rates = rates.iter().map(|(rate, _)| *rate).collect::<Vec<_>>().join(",");
        let place = cpus.map_or_else(String::new, |(cpus, _)| format!("@{cpus}"));
        command.extend(["--scan".into(), format!("{rates}={class}{place}")]);
    }
    groups
}

/// Class and CPUs of the threads of scan groups. The IOC numbers them by urgency, with one for each CPU of a group.
fn scan_threads(mut groups: Vec<(Policy, Option<CpuSet>)>) -> Vec<ThreadRule> {
    groups.sort_by_key(|(class, _)| std::cmp::Reverse(class.level()));
    let threads = groups.into_iter().flat_map(|(class, cpus)| {
        let each: Vec<Option<Cpus>> = match cpus {
            Some(cpus) if !cpus.is_empty() => cpus.iter().map(|cpu| Some(Cpus::List(CpuSet::single(cpu)))).collect(),
            _ => vec![None],
        };
        each.into_iter().map(move |cpus| (class, cpus))
    });
    let rule = |(number, (class, cpus))| ThreadRule { pattern: format!("scan-{number}"), class: Some(class), cpus };
    threads.enumerate().map(rule).collect()
}

/// Place in the plant file where a scan group of the IOC `name` has `rate`. An unknown rate is found only when the IOC
/// has loaded the definition of menuScan.
#[must_use]
pub fn place_of_rate(text: &str, name: &str, rate: &str) -> Option<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    let items = |value: &DeValue<'_>| value.as_array().map_or(0, |items| items.len());
    let iocs = root.get_ref().get("ioc")?.get_ref();
    let own = |nth: &usize| iocs.get(*nth).and_then(|ioc| ioc.get_ref().get("name")?.get_ref().as_str()) == Some(name);
    let scans = iocs.get((0..items(iocs)).find(own)?)?.get_ref().get("scan")?.get_ref();
    let groups = (0..items(scans)).filter_map(|nth| scans.get(nth)?.get_ref().get("rates"));
    let rates = groups.flat_map(|rates| match rates.get_ref() {
        DeValue::Array(all) => all.iter().collect(),
        _ => vec![rates],
    });
    let mut found = rates.filter(|one| one.get_ref().as_str().is_some_and(|text| text.trim() == rate));
    found.next().map(Spanned::span)
}

fn ports(section: &Section<'_>, command: &mut Vec<String>, found: &mut Diagnostics<'_>) {
    let mut names: Vec<String> = Vec::new();
    for port in each(section, "port", &PORT, found) {
        for needed in ["name", "address"].into_iter().filter(|needed| port.value(needed).is_none()) {
            port.missing(needed, found);
        }
        let name = port.words("name", found);
        if let Some((name, span)) = &name {
            let word = !name.is_empty() && !name.contains([',', '=']) && !name.contains(char::is_whitespace);
            if !word || names.iter().any(|known| known == name) {
                let message = format!("`name` cannot be {:?}", clipped(name));
                found.error(span.clone(), message, "one word, unique among ports", "");
            }
            names.push((*name).to_owned());
        }
        let address = port.words("address", found);
        let serial = address.as_ref().is_some_and(|(address, _)| address.starts_with('/'));
        if let Some((address, span)) = &address {
            let number = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            let tcp = number.is_some_and(|(host, port)| !host.is_empty() && port != 0);
            if (!serial && !tcp) || address.contains(',') || address.contains(char::is_whitespace) {
                let message = format!("`address` cannot be {:?}", clipped(address));
                found.error(
                    span.clone(),
                    message,
                    "HOST:PORT of a TCP server, or a serial line such as /dev/ttyS0",
                    "",
                );
            }
        }
        let mut options = String::new();
        for (key, low, high) in [("baud", 50, 4_000_000), ("bits", 5, 8), ("stop", 1, 2)] {
            if let Some((value, _)) = port.number(key, low, high, found) {
                options += &format!(",{key}={value}");
            }
        }
        if let Some((parity, span)) = port.words("parity", found) {
            if !["none", "even", "odd"].contains(&parity) {
                let message = format!("`parity` cannot be {:?}", clipped(parity));
                found.error(span, message, "none, even or odd", "");
            }
            options += &format!(",parity={parity}");
        }
        if let (Some((_, span)), false, false) = (&address, serial, options.is_empty()) {
            found.error(span.clone(), "a TCP port has no baud, bits, parity or stop", "a serial line", "");
        } else if let (Some((name, _)), Some((address, _))) = (name, address) {
            command.extend(["--port".into(), format!("{name}={address}{options}")]);
        }
    }
}

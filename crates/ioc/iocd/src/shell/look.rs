//! Commands that inspect the running IOC: addresses, links, lock sets, queues, threads, parameters.

use super::commands::{Command, arg, command, needed, number, said};
use super::{Failed, IocState, Shell, report, values};
use crate::engine::Engine;
use crate::guard::Reached;
use base::FieldType;
use db::{Channel, Db, FieldDef, FieldInfo, QueueInfo};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Commands of C's IOC that tahti does not have, with the reason, which is printed.
const ABSENT: &[(&str, &str)] = &[
    ("ClockTime_Report", "see UPTIME and STARTTOD of iocAdminSoft.db"),
    ("asDumpHash", "rights are evaluated from the rules at each access; there is no table"),
    ("dbDumpRecordType", LOOK),
    ("dbLockShowLocked", "records have owners instead of locks; dblsr shows lock sets"),
    ("dbNotifyDump", "see the PACT fields"),
    ("dbPutAttribute", "attributes of record types are fixed: RTYP and VERS"),
    ("dbPvdDump", "the table of names grows automatically"),
    ("dbel", "casr 2 shows subscriptions by client"),
    ("epicsMutexShowAll", "records have owners instead of locks"),
    ("epicsThreadResume", "threads are not suspended"),
    ("iocBuild", "iocInit does all of it"),
    ("iocLogShow", LOG),
    ("setIocLogDisable", LOG),
    ("registryDump", REGISTRY),
    ("registryDeviceSupportFind", REGISTRY),
    ("registryDriverSupportFind", REGISTRY),
    ("registryRecordTypeFind", REGISTRY),
    ("taskwdShow", "threads do not end by themselves"),
];
const LOOK: &str = "the .dbd file that was loaded has it";
const LOG: &str = "messages go to standard error, for the supervisor or systemd to keep";
const REGISTRY: &str = "record types and device supports are part of the program";

/// Reason why tahti does not have a command of C's IOC.
pub(super) fn absent(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "installLastResortEventProvider",
        "",
        "stamps events that nothing else stamps (TSE) with the wall clock",
        |shell, _| {
            shell.with_each(|db, _| db.stamp_events_last_resort())?;
            Ok(None)
        }
    ),
    command!("iocLogInit", "", "accepted: messages go to standard error", |shell, _| {
        match parameter(&shell.env, "EPICS_IOC_LOG_INET").is_none_or(|address| address.is_empty()) {
            true => eprintln!("iocLog: EPICS environment variable \"EPICS_IOC_LOG_INET\" undefined"),
            false => eprintln!("iocLogInit: {LOG}; the server that EPICS_IOC_LOG_INET names is not sent any"),
        }
        Ok(None)
    }),
    command!("iocLogPrefix", "prefix", "accepted: messages go to standard error, without a prefix", |shell, args| {
        let prefix = arg(args, 0);
        if shell.log_prefix.is_empty() {
            prefix.clone_into(&mut shell.log_prefix);
        } else if shell.log_prefix != prefix {
            let before = &shell.log_prefix;
            super::complain(&format!(
                "WARNING iocLogPrefix: The prefix was already set to \"{before}\" and can't be changed."
            ));
        }
        Ok(None)
    }),
    command!("ascar", "[level]", "links of access security's inputs", |shell, args| {
        let level = number(args, 0);
        let text = shell.with_engine(move |engine| security_inputs(engine, level))?;
        said(shell, &text)
    }),
    command!("callbackQueueShow", "[reset]", "how full the queues of callbacks were", |shell, args| {
        queues(shell, args, &[("cbLow", 0), ("cbMedium", 1), ("cbHigh", 2)])
    }),
    command!("dba", "field", "type and size of a field", |shell, args| {
        let name = needed(args, "dba \"pv name\"")?.to_owned();
        super::commands::about(shell, move |db| address(db, &name))
    }),
    command!("dbCreateAlias", "pdbbase record alias", "adds an alias to a record", |shell, args| {
        let names = args.strip_prefix(&["pdbbase".to_owned()][..]).unwrap_or(args);
        let [record, alias] = names else { return Err("usage: dbCreateAlias pdbbase record alias".into()) };
        shell.load_text(format!("alias(\"{record}\", \"{alias}\")"), "dbCreateAlias", "").map(|()| None)
    }),
    command!("dbcar", "[record [level]]", "links to other IOCs, and local links that work like them", |shell, args| {
        let (record, level) = (arg(args, 0).to_owned(), number(args, 1));
        let of = record.clone();
        let owners = shell.with_each(move |db, _| report::channel_links(db, &of))?;
        let lost = owners.iter().map(|(_, lost)| lost).sum();
        let links: Vec<_> = owners.into_iter().flat_map(|(links, _)| links).collect();
        let names: Vec<String> = links.iter().map(|link| link.channel.name.clone()).collect();
        let servers = shell.with_engine(move |engine| engine.servers(names))?;
        said(shell, &report::remote_links(&record, level, &links, lost, &servers))
    }),
    command!("dbpvar", "[record [level]]", "links over PVAccess", |shell, args| {
        let (record, level) = (arg(args, 0).to_owned(), number(args, 1));
        let of = record.clone();
        let owners = shell.with_each(move |db, _| report::channel_links(db, &of))?;
        let links: Vec<_> = owners.into_iter().flat_map(|(links, _)| links).collect();
        said(shell, &report::pvaccess_links(&record, level, &links))
    }),
    command!("dbhcr", "", "records with links to hardware", |shell, _| hardware_report(shell)),
    command!("dbReportDeviceConfig", "pdbbase", "as dbhcr", |shell, _| hardware_report(shell)),
    command!("dbior", "[driver [level]]", "reports of drivers: there are none", |_, _| Ok(None)),
    command!("dbjlr", "[record [level]]", "JSON links", |shell, args| {
        let (record, level) = (arg(args, 0).to_owned(), number(args, 1) as i64);
        let all = matches!(record.as_str(), "" | "*");
        let head =
            if all { "JSON links in all records\n\n".into() } else { format!("JSON links in record '{record}'\n\n") };
        let texts = shell.with_each(move |db, _| json_links(db, &record, level))?;
        said(shell, &(head + &texts.concat()))
    }),
    command!("dblsr", "[record [level]]", "lock sets: 1 names records, 2 their links", |shell, args| {
        let (record, level) = (arg(args, 0).to_owned(), number(args, 1));
        let sets = shell.with_each(move |db, _| lock_sets(db, &record, level))?;
        let mut out = String::new();
        for (number, (members, text)) in sets.into_iter().flatten().enumerate() {
            let _ = write!(out, "Lock Set {} {members} members\n{text}", number + 1);
        }
        said(shell, &out)
    }),
    command!("dbsr", "[level]", "the server", |shell, args| {
        let level = number(args, 0);
        let text = shell.with_engine(move |engine| super::clients::report(engine, level))?;
        said(shell, &format!("Server state: running\nServer 'tahti'\n{text}"))
    }),
    command!("epicsParamShow", "", "EPICS' parameters", |shell, _| parameters(shell)),
    command!("epicsPrtEnvParams", "", "EPICS' parameters", |shell, _| parameters(shell)),
    command!("epicsThreadShowAll", "[level]", "threads with class, priority and CPU", |shell, _| {
        let text = threads()?;
        said(shell, &text)
    }),
    command!("epicsThreadShow", "[thread]", "as epicsThreadShowAll, of threads whose name matches", |shell, args| {
        let wanted = arg(args, 0).to_owned();
        let lines = threads()?;
        let of = |line: &str| {
            line.split_whitespace().next().is_some_and(|name| wanted.is_empty() || base::glob(&wanted, name))
        };
        let text = lines
            .lines()
            .enumerate()
            .filter(|(at, line)| *at == 0 || of(line))
            .fold(String::new(), |all, (_, line)| all + line + "\n");
        said(shell, &text)
    }),
    command!("generalTimeReport", "[level]", "time providers", |shell, _| {
        said(
            shell,
            "Backwards time errors prevented 0 times.\n\nCurrent Time Providers:\n    \"OS Clock\", priority = 999\n\nEvent Time Providers:\n    No Providers registered.",
        )
    }),
    command!("iocPause", "", "pauses periodic scans", |shell, _| pause(shell, true)),
    command!("iocRun", "", "resumes paused scans", |shell, _| pause(shell, false)),
    command!(
        "registryFunctionFind",
        "name",
        "whether a function of sub and aSub records is registered",
        |shell, args| {
            let name = needed(args, "registryFunctionFind name")?.to_owned();
            super::commands::about(shell, move |db| {
                let found = db
                    .functions()
                    .find(|(known, _)| *known == name)
                    .map(|(_, of)| format!("registered, for {of} records"));
                found.unwrap_or_else(|| "(nil)".into())
            })
        }
    ),
    command!("scanOnceQueueShow", "[reset]", "how full the queue of single scans was", |shell, args| {
        queues(shell, args, &[("scanOnce", 3)])
    }),
    command!("scanpiol", "", "I/O Intr lists", |shell, _| {
        let texts = shell.with_each(|db, _| report::interrupts(db))?;
        said(shell, &texts.concat())
    }),
    command!("softIoc_registerRecordDeviceDriver", "pdbbase", "accepted; all is registered", |_, _| Ok(None)),
    command!("registerAllRecordDeviceDrivers", "pdbbase", "accepted; all is registered", |_, _| Ok(None)),
];

fn pause(shell: &mut Shell, on: bool) -> super::commands::CommandResult {
    if !on && matches!(shell.state, IocState::Building(_)) {
        return shell.init().map(|()| None);
    }
    let changed = shell.with_engine(move |engine| {
        let changed = engine.is_paused() != on;
        if changed {
            engine.pause(on);
        }
        changed
    })?;
    if changed && !on {
        shell.devices.ports.greet_again(None)?;
    }
    let state = match (on, changed) {
        (true, true) => "iocPause: IOC suspended",
        (true, false) => "iocPause: IOC not running",
        (false, true) => "iocRun: IOC restarted",
        (false, false) => "iocRun: IOC not paused",
    };
    // To standard error, like the messages of iocInit.
    eprintln!("{state}");
    Ok(None)
}

/// Queues in the format of C. With several owners, each has its name.
fn queues(
    shell: &mut Shell,
    args: &[String],
    wanted: &'static [(&'static str, usize)],
) -> super::commands::CommandResult {
    let reset = number(args, 0) != 0;
    let all = shell.with_each(move |db, _| db.queues(reset))?;
    let names = match &shell.state {
        IocState::Running(..) => {
            shell.with_engine(|engine| engine.store.live().map(|(_, shard)| shard.name.clone()).collect::<Vec<_>>())?
        }
        _ => Vec::new(),
    };
    let mut out = String::from("PRIORITY  HIGH-WATER MARK  ITEMS IN Q  Q SIZE  % USED  Q OVERFLOWS\n");
    for (owner, queues) in all.iter().enumerate() {
        if let Some(name) = owner.checked_sub(1).and_then(|at| names.get(at)) {
            let _ = writeln!(out, "owner {name}:");
        }
        for (name, at) in wanted {
            let QueueInfo { used, high_water, size, overflows } = queues[*at];
            let share = 100.0 * used as f64 / size.max(1) as f64;
            let _ = writeln!(out, "{name:>8}  {high_water:>15}  {used:>10}  {size:>6}  {share:>6.1}  {overflows:>11}");
        }
    }
    said(shell, &out)
}

/// `dba`: the report of C, without memory addresses.
fn address(db: &mut Db, name: &str) -> String {
    let Ok(channel) = db.find(name) else { return format!("PV '{name}' not found\n") };
    let info = db.info(&channel);
    let field = name.split_once('.').map_or("VAL", |(_, field)| field.split(['$', '[', '{']).next().unwrap_or("VAL"));
    let Some(def) = db.fields(channel.record).iter().find(|def| def.name == field) else { return String::new() };
    let size = size_of(&info, def);
    // The type of an array field is that of its elements.
    let dbf = if info.array { values::dbf(info.kind).to_owned() } else { def.dbf.clone() };
    let dbr = match info.kind {
        FieldType::Menu | FieldType::Device => "ENUM".to_owned(),
        FieldType::Link => "STRING".to_owned(),
        kind => values::dbf(kind).to_owned(),
    };
    const DBF: &[&str] = &[
        "STRING", "CHAR", "UCHAR", "SHORT", "USHORT", "LONG", "ULONG", "INT64", "UINT64", "FLOAT", "DOUBLE", "ENUM",
        "MENU", "DEVICE", "INLINK", "OUTLINK", "FWDLINK", "NOACCESS",
    ];
    let number = |word: &str| DBF.iter().position(|known| *known == word).unwrap_or(DBF.len() - 1);
    let special = report::special_number(def.special);
    format!(
        "   No Elements: {}\n   Record Type: {}\n    Field Type: {} = DBF_{dbf}\n    Field Size: {size}\n       Special: {special}\nDBR Field Type: {} = DBR_{dbr}\n",
        info.elements_max,
        db.type_name(channel.record),
        number(&dbf),
        number(&dbr)
    )
}

/// Size of an element in bytes, as stored in C.
pub(super) fn field_size(db: &Db, channel: &Channel) -> u16 {
    let info = db.info(channel);
    let def = db.fields(channel.record).get(usize::from(channel.field));
    if channel.long_string { 1 } else { def.map_or(0, |def| size_of(&info, def)) }
}

/// Size of an element in bytes; for arrays, from the element type.
fn size_of(info: &FieldInfo, def: &FieldDef) -> u16 {
    let dbf = if info.array { values::dbf(info.kind) } else { &def.dbf };
    match dbf {
        "STRING" if info.array => 40,
        "STRING" => def.size,
        _ if def.kind.is_none() && info.kind == FieldType::String => info.text_size,
        "CHAR" | "UCHAR" => 1,
        "SHORT" | "USHORT" | "ENUM" | "MENU" | "DEVICE" => 2,
        "LONG" | "ULONG" | "FLOAT" => 4,
        "INT64" | "UINT64" | "DOUBLE" => 8,
        _ => 80,
    }
}

fn wanted(db: &Db, record: &str) -> Vec<db::RecId> {
    let all = matches!(record, "" | "*");
    db.records().filter(|of| db.location_of(*of).is_none() && (all || db.name_of(*of) == record)).collect()
}

fn hardware_report(shell: &mut Shell) -> super::commands::CommandResult {
    let mut lines: Vec<(String, String)> = shell.with_each(|db, _| hardware(db))?.into_iter().flatten().collect();
    // Sorted by type, as in C.
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    said(shell, &lines.into_iter().map(|(_, line)| line).collect::<String>())
}

/// Bus, address, device support, record and conversion of each record with an address, in the format of C, sorted by type.
fn hardware(db: &mut Db) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for record in wanted(db, "") {
        let found = db.links_of(record).into_iter().find(|link| link.text.starts_with(['@', '#']));
        let Some(address) = found.map(|link| link.text) else { continue };
        let (kind, name) = (db.type_name(record).to_owned(), db.name_of(record).to_owned());
        let mut text = |field: &str| {
            let channel = db.find(&format!("{name}.{field}")).ok()?;
            let kind = db.info(&channel).kind;
            values::held(db, &channel, Some(kind), false)
        };
        let Some(support) = text("DTYP") else { continue };
        let is_linear = text("LINR").is_some_and(|linr| linr == "LINEAR");
        let convert = |low: String, high: String| format!("cvt({low},{high})");
        let convert = text("EGUL").zip(text("EGUF")).filter(|_| is_linear).map(|(low, high)| convert(low, high));
        let schema = db.schema();
        let devices = schema.type_index(&kind).map_or(&[][..], |at| &schema.types[at].devices);
        let bus = devices.iter().find(|device| device.name == support).map_or("", |device| &device.link);
        let (bus, convert) = (bus.trim_end_matches("_IO"), convert.unwrap_or_default());
        lines.push((kind, format!("{bus:<8} {address:<20} {support:<20} {name:<20} {convert}\n")));
    }
    lines
}

fn json_links(db: &mut Db, record: &str, level: i64) -> String {
    let mut records = wanted(db, record);
    records.sort_by_key(|of| db.type_name(*of).to_owned());
    let mut out = String::new();
    for of in records {
        let _ = writeln!(out, "  {} record '{}':", db.type_name(of), db.name_of(of));
        for (field, report) in db.json_report(of, level) {
            let _ = write!(out, "    Link field '{field}':\n{report}");
        }
    }
    out
}

/// `ascar`: level 1 lists the inputs that are not connected, 2 lists all.
fn security_inputs(engine: &Engine, level: u64) -> String {
    if engine.store.guard.rules().is_none() {
        return "access security not started\n".into();
    }
    let inputs = engine.store.guard.inputs();
    let servers = engine.servers(inputs.iter().map(|(name, _)| name.clone()));
    let lost = inputs.iter().filter(|(_, reached)| *reached != Reached::Now).count();
    let mut out = String::new();
    for (name, reached) in &inputs {
        let word = match reached {
            Reached::Now => "yes",
            Reached::Never => "never",
            Reached::Before => "prev",
        };
        let server = servers.get(name).filter(|_| *reached == Reached::Now);
        let right = |has: bool| if has { "yes" } else { "no" };
        let (read, write) = server.map_or(("no", "no"), |(_, access)| (right(access.read), right(access.write)));
        let host = server.map_or("<disconnected>", |(host, _)| host);
        if level > 1 || (level == 1 && *reached != Reached::Now) {
            let _ = writeln!(out, "connected:{word:<6} read:{read:<3} write:{write:<3} {name} {host}");
        }
    }
    let _ = writeln!(out, "{} channels {lost} not connected", inputs.len());
    out
}

fn lock_sets(db: &mut Db, record: &str, level: u64) -> Vec<(usize, String)> {
    let all = matches!(record, "" | "*");
    let sets = db.lock_set_members().into_iter();
    let sets = sets.filter(|set| all || set.iter().any(|member| db.name_of(*member) == record)).collect::<Vec<_>>();
    let mut texts = Vec::new();
    for set in sets {
        let mut text = String::new();
        for member in set.iter().filter(|_| level > 0) {
            let _ = writeln!(text, "{}", db.name_of(*member));
            let links = if level > 1 { db.links_of(*member) } else { Vec::new() };
            for link in links {
                let Some(target) = link.target else { continue };
                let pp = if link.pp { "PP" } else { "NPP" };
                let (field, dbf, severity) = (&link.field, &link.dbf, link.severity);
                let _ = writeln!(text, "\t{field}\t{dbf:>7} {pp:>3} {severity} {}", db.name_of(target));
            }
        }
        texts.push((set.len(), text));
    }
    texts
}

/// EPICS parameters and their default values.
const PARAMETERS: &[(&str, Option<&str>)] = &[
    ("EPICS_CA_ADDR_LIST", None),
    ("EPICS_CA_CONN_TMO", Some("30.0")),
    ("EPICS_CA_AUTO_ADDR_LIST", Some("YES")),
    ("EPICS_CA_REPEATER_PORT", Some("5065")),
    ("EPICS_CA_SERVER_PORT", Some("5064")),
    ("EPICS_CA_MAX_ARRAY_BYTES", Some("16384")),
    ("EPICS_CA_AUTO_ARRAY_BYTES", Some("YES")),
    ("EPICS_CA_MAX_SEARCH_PERIOD", Some("300.0")),
    ("EPICS_CA_NAME_SERVERS", None),
    ("EPICS_CA_MCAST_TTL", Some("1")),
    ("EPICS_CAS_INTF_ADDR_LIST", None),
    ("EPICS_CAS_IGNORE_ADDR_LIST", None),
    ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", None),
    ("EPICS_CAS_BEACON_ADDR_LIST", None),
    ("EPICS_CAS_SERVER_PORT", None),
    ("EPICS_CA_BEACON_PERIOD", Some("15.0")),
    ("EPICS_CAS_BEACON_PERIOD", None),
    ("EPICS_CAS_BEACON_PORT", None),
    ("IOCSH_PS1", Some("epics> ")),
    ("IOCSH_HISTSIZE", Some("50")),
    ("IOCSH_HISTEDIT_DISABLE", None),
];

/// Value of an environment variable; for EPICS parameters, the default if it is not set.
pub(super) fn parameter(env: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let default = || PARAMETERS.iter().find(|(known, _)| *known == name).and_then(|(_, default)| *default);
    env.get(name).cloned().or_else(|| default().map(str::to_owned))
}

fn parameters(shell: &mut Shell) -> super::commands::CommandResult {
    let mut out = String::new();
    for (name, _) in PARAMETERS {
        let _ = match parameter(&shell.env, name) {
            Some(value) => writeln!(out, "{name}: {value}"),
            None => writeln!(out, "{name} is undefined"),
        };
    }
    said(shell, &out)
}

/// Threads of the process, as reported by the kernel.
fn threads() -> Result<String, Failed> {
    let mut out = format!("{:>15} {:>9} {:>8} {:>8} {:>4}\n", "NAME", "LWP ID", "POLICY", "PRIORITY", "CPU");
    for entry in std::fs::read_dir("/proc/self/task")?.flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        // The thread may have ended in the meantime.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let name = head.split_once('(').map_or("", |(_, name)| name);
        // Fields after the name: processor is the 37th, real-time priority the 38th, policy the 39th.
        let words: Vec<&str> = rest.split_whitespace().collect();
        let word = |at: usize| words.get(at).copied().unwrap_or("?");
        let policy = match word(38) {
            "0" => "OTHER",
            "1" => "FIFO",
            "2" => "RR",
            "3" => "BATCH",
            "5" => "IDLE",
            "6" => "DEADLINE",
            other => other,
        };
        let _ = writeln!(out, "{name:>15} {id:>9} {policy:>8} {:>8} {:>4}", word(37), word(36));
    }
    Ok(out)
}

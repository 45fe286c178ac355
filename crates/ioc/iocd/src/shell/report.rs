//! Reports on the database, in the format of EPICS.

use super::values::{Tabs, held};
use crate::links::Servers;
use crate::scans::Scans;
use crate::shard_port::OwnerCounters;
use base::{FieldType, Quantile, Stamp};
use db::{Channel, Db, LinkChannel, PvaLink, RecId, Special};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// `dbl`: record names, of one type or all, sorted by type; with values of some fields.
pub(super) fn names(db: &mut Db, of_type: &str, fields: &str) -> String {
    let mut names: Vec<(String, RecId)> =
        by_type(db).into_iter().map(|(name, record)| (name.to_owned(), record)).collect();
    if !matches!(of_type, "" | "*") {
        if db.schema().type_index(of_type).is_none() {
            return "No record type\n".into();
        }
        names.retain(|(_, record)| db.type_name(*record) == of_type);
    }
    if !fields.is_empty() {
        // Each owner lists its own records, because it has the values.
        names.retain(|(_, record)| db.location_of(*record).is_none());
    }
    let mut out = String::new();
    for (name, record) in names {
        out.push_str(&name);
        for field in fields.split_whitespace() {
            let value = match db.find(&format!("{name}.{field}")) {
                _ if field == "recordType" => Some(db.type_name(record).to_owned()),
                Ok(channel) => {
                    let hex = db.fields(record).iter().any(|def| def.name == field && def.hex);
                    let kind = db.info(&channel).kind;
                    Some(held(db, &channel, Some(kind), hex).unwrap_or_default())
                }
                Err(_) => None,
            };
            match value {
                Some(value) => drop(write!(out, ", \"{value}\"")),
                None => out.push_str(", "),
            }
        }
        out.push('\n');
    }
    out
}

/// `dbnr`: number of records per type. `verbose` includes types without records.
pub(super) fn counts(db: &Db, verbose: bool) -> String {
    let known = db.schema().types.iter().filter(|_| verbose);
    let mut types: Vec<(String, usize, usize)> = known.map(|kind| (kind.name.clone(), 0, 0)).collect();
    let mut count = |name: &str, records: usize, aliases: usize| match types.iter_mut().find(|entry| entry.0 == name) {
        Some(entry) => {
            entry.1 += records;
            entry.2 += aliases;
        }
        None => types.push((name.to_owned(), records, aliases)),
    };
    db.records().for_each(|record| count(db.type_name(record), 1, 0));
    db.aliases().for_each(|(_, record)| count(db.type_name(record), 0, 1));
    types.sort();
    let mut out = String::from("Records  Aliases  Record Type\n");
    for (name, records, aliases) in &types {
        let _ = writeln!(out, " {records:5}    {aliases:5}    {name}");
    }
    let (records, aliases) = types.iter().fold((0, 0), |sum, entry| (sum.0 + entry.1, sum.1 + entry.2));
    let _ = writeln!(out, "Total {records} records, {aliases} aliases");
    out
}

/// `dbgrep`: names that match a pattern.
pub(super) fn matching(db: &Db, pattern: &str) -> String {
    let mut out = String::new();
    for (name, _) in by_type(db).into_iter().filter(|(name, _)| base::glob(pattern, name)) {
        let _ = writeln!(out, "{name}");
    }
    out
}

/// A link that uses a channel.
pub(super) struct ChannelLink {
    holder: String,
    field: String,
    input: bool,
    pub(super) channel: LinkChannel,
}

/// Links of one owner's records that use a channel, and the number of lost remote writes.
pub(super) fn channel_links(db: &mut Db, record: &str) -> (Vec<ChannelLink>, u64) {
    let all = matches!(record, "" | "*");
    let records =
        by_type(db).into_iter().filter(|(name, of)| db.location_of(*of).is_none() && *name == db.name_of(*of));
    let records = records.filter(|(name, _)| all || *name == record);
    let records: Vec<(String, RecId)> = records.map(|(name, of)| (name.to_owned(), of)).collect();
    let mut links = Vec::new();
    for (holder, of) in records {
        for link in db.links_of(of) {
            let (field, input) = (link.field, link.dbf == "INLINK");
            let holder = holder.clone();
            links.extend(link.channel.map(|channel| ChannelLink { holder, field, input, channel }));
        }
    }
    (links, db.remote_lost())
}

/// `dbpvar`: links over PVAccess of all owners' records, in the format of C. Level 1 lists the disconnected channels, 2 all,
/// 5 their links.
pub(super) fn pvaccess_links(record: &str, level: u64, links: &[ChannelLink]) -> String {
    let mut out = match record {
        "" | "*" => "PVA links in all records\n\n".into(),
        record => format!("PVA links in record named '{record}'\n\n"),
    };
    // Links with the same queue share a channel.
    let mut channels: BTreeMap<_, Vec<(&ChannelLink, &PvaLink)>> = BTreeMap::new();
    for (link, pva) in links.iter().filter_map(|link| Some((link, link.channel.pva.as_deref()?))) {
        channels.entry((pva.pv.as_str(), pva.pipeline, pva.queue)).or_default().push((link, pva));
    }
    let (mut connected, mut count) = (0, 0);
    for ((name, ..), links) in &channels {
        let [(first, _), ..] = links[..] else { continue };
        let LinkChannel { connected: is_connected, disconnects, .. } = first.channel;
        connected += usize::from(is_connected);
        count += links.len();
        if level < 2 && (level == 0 || is_connected) {
            continue;
        }
        let letter = if is_connected { 'T' } else { 'F' };
        let changes = disconnects + u32::from(is_connected);
        let _ = writeln!(out, "{name:>28} conn={letter} {disconnects} disconnects, {changes} type changes");
        if level < 5 {
            continue;
        }
        for (link, pva) in links {
            let _ = writeln!(out, "{:30}{}.{}{}", "", link.holder, link.field, pva.options(true));
        }
        out.push('\n');
    }
    let _ = writeln!(out, "  {connected}/{} channels connected used by {count} links", channels.len());
    out
}

/// `dbcar`: links of all owners' records, in the format of C. Level 1 lists the disconnected ones, 2 all.
pub(super) fn remote_links(record: &str, level: u64, links: &[ChannelLink], lost: u64, servers: &Servers) -> String {
    let links: Vec<&ChannelLink> = links.iter().filter(|link| link.channel.pva.is_none()).collect();
    let mut out = match record {
        "" | "*" => "CA links in all records\n\n".into(),
        record => format!("CA links in record named '{record}'\n\n"),
    };
    let (mut connected, mut disconnects, mut unreadable, mut unwritable) = (0, 0, 0, 0);
    for ChannelLink { holder, field, input, channel } in &links {
        let LinkChannel { name, connected: is_connected, disconnects: times, .. } = channel;
        let arrow = if *is_connected { "==>" } else { "-->" };
        if level > 1 || (level == 1 && !is_connected) {
            let _ = writeln!(out, "{holder:>28}.{field:<4} {arrow} {name:<28}  ({times}, 0)");
        }
        if !is_connected {
            continue;
        }
        connected += 1;
        disconnects += times;
        let Some((host, access)) = servers.get(name) else { continue };
        unreadable += u32::from(!access.read);
        unwritable += u32::from(!access.write);
        if level > 1 {
            let rights = match (access.read, access.write) {
                (false, false) => "No Access",
                (true, false) => "Read Only",
                (false, true) => "Write Only",
                (true, true) => "Read/Write",
            };
            let kind = if *input { "IN" } else { "  " };
            let _ = writeln!(out, "{:21} [{kind}      ] host {host}, {rights}", "");
        }
    }
    let open = links.len() - connected;
    if (level > 1 && connected > 0) || (level > 0 && open > 0) {
        out.push('\n');
    }
    let plural = if links.len() == 1 { "" } else { "s" };
    let _ = writeln!(out, "Total {} CA link{plural}; {connected} connected, {open} not connected.", links.len());
    let _ = writeln!(
        out,
        "    {unreadable} can't read, {unwritable} can't write.  ({disconnects} disconnects, {lost} writes prohibited)\n"
    );
    out
}

/// Names of records and aliases, sorted by type in the order of EPICS.
pub(super) fn by_type(db: &Db) -> Vec<(&str, RecId)> {
    let mut names: Vec<(&str, RecId)> = db.all_names().collect();
    names.sort_by_key(|(_, record)| db.type_name(*record));
    names
}

/// `dbla`: aliases.
pub(super) fn aliases(db: &Db, pattern: &str) -> String {
    let mut out = String::new();
    for (alias, record) in by_type(db).into_iter().filter(|(name, record)| *name != db.name_of(*record)) {
        if pattern.is_empty() || base::glob(pattern, alias) {
            let _ = writeln!(out, "{alias} -> {}", db.name_of(record));
        }
    }
    out
}

/// Time at which a record was processed last.
pub(super) fn stamp(db: &Db, record: RecId) -> String {
    match db.stamp(record).0 {
        Stamp::EPOCH => "<undefined>".to_owned(),
        stamp => stamp.to_string(),
    }
}

/// Number of a field's special in C.
pub(super) const fn special_number(special: Special) -> u8 {
    match special {
        Special::None => 0,
        Special::NoMod => 1,
        Special::DbAddr => 2,
        Special::Scan => 3,
        Special::AlarmAck => 5,
        Special::As => 6,
        Special::Attribute => 7,
        Special::Mod => 100,
        Special::Reset => 101,
        Special::LinConv => 102,
        Special::Calc => 103,
    }
}

/// `dbpr`: fields of a record up to an interest level.
pub(super) fn record(db: &mut Db, name: &str, interest: u8) -> String {
    let base = name.split('.').next().unwrap_or_default();
    let Ok(channel) = db.find(base) else {
        return format!("PV '{name}' not found\n");
    };
    let mut fields: Vec<(String, FieldType, bool)> = db
        .fields(channel.record)
        .iter()
        .filter(|def| def.interest <= interest)
        .filter_map(|def| Some((def.name.clone(), def.kind?, def.hex)))
        .collect();
    if interest >= 1 {
        fields.push(("BKPT".into(), FieldType::U8, false));
    }
    if interest >= 2 {
        fields.push(("TIME".into(), FieldType::U64, false));
    }
    fields.sort();
    let mut tabs = Tabs::new(20);
    for (field, kind, hex) in fields {
        let text = match (field.as_str(), db.find(&format!("{base}.{field}"))) {
            ("TIME", _) => Some(stamp(db, channel.record)),
            ("BKPT", _) => Some(format!("{:02x}", db.break_marks(channel.record))),
            (_, Ok(channel)) if kind == FieldType::Link => Some(link(db, &channel)),
            (_, Ok(channel)) => held(db, &channel, Some(kind), hex),
            (_, Err(_)) => None,
        };
        if let Some(text) = text {
            tabs.put(&format!("{field:<4}: {text}"));
        }
    }
    tabs.finish()
}

fn link(db: &mut Db, channel: &Channel) -> String {
    let text = String::from_utf8_lossy(&db.get_long_text(channel)).into_owned();
    let mut words = text.split_whitespace();
    let target = words.next().unwrap_or_default();
    let kind = match text.bytes().next() {
        None => return "CONSTANT".into(),
        Some(b'{') => "JSON_LINK",
        Some(b'@') => "INST_IO",
        _ if base::text::parse_double(text.as_bytes()).is_some_and(|(_, len)| len == text.trim_end().len()) => {
            "CONSTANT"
        }
        _ if words.any(|word| matches!(word, "CA" | "CP" | "CPP")) => "CA_LINK",
        _ if db.find(target).is_ok() => "DB_LINK",
        _ => "CA_LINK",
    };
    format!("{kind} {text}")
}

/// Choices of menuScan, each with its record names.
pub(super) type ScanLists = Vec<(u16, Vec<String>)>;

/// Records of each periodic scan, by number in menuScan.
pub(super) fn scan_lists(db: &Db) -> ScanLists {
    let lists = db.scans().into_iter().filter(|scan| scan.records > 0);
    lists
        .map(|scan| {
            let records = db.scan_list(scan.index);
            (scan.index, records.into_iter().map(|record| db.name_of(record).to_owned()).collect())
        })
        .collect()
}

/// Merges the scan lists of each owner's shards. `owners` has the owner of each shard; the result is in order of first
/// occurrence.
pub(super) fn by_owner(lists: Vec<ScanLists>, owners: &[usize]) -> Vec<ScanLists> {
    let mut all: Vec<ScanLists> = Vec::new();
    for (lists, owner) in lists.into_iter().zip(owners) {
        let Some(known) = all.get_mut(*owner) else {
            all.push(lists);
            continue;
        };
        for (index, records) in lists {
            match known.iter_mut().find(|(known, _)| *known == index) {
                Some((_, all)) => all.extend(records),
                None => known.push((index, records)),
            }
        }
    }
    all
}

/// `scanppl`: periodic scans with their records and measurements, for each shard by name.
pub(super) fn scans(measured: &[(String, Scans, Option<OwnerCounters>)], lists: &[ScanLists]) -> String {
    let mut out = String::new();
    for ((owner, scans, _), lists) in measured.iter().zip(lists) {
        let owner = if owner.is_empty() { String::new() } else { format!(", owner {owner}") };
        for clock in scans.clocks() {
            let Some((_, records)) = lists.iter().find(|(index, _)| *index == clock.index) else { continue };
            let overruns = clock.stats.overruns();
            let _ = writeln!(out, "Records with SCAN = '{}' ({overruns} over-runs{owner}):", clock.name);
            for record in records {
                let _ = writeln!(out, "    {record:<28}");
            }
        }
    }
    for ((owner, scans, counters), lists) in measured.iter().zip(lists) {
        let of = if owner.is_empty() { String::new() } else { format!(" of {owner}") };
        let listed = |index: u16| lists.iter().any(|(known, _)| *known == index);
        for clock in scans.clocks().iter().filter(|clock| listed(clock.index) && clock.stats.passes() > 0) {
            let (lateness, duration) = (spread(&clock.stats.lateness()), spread(&clock.stats.duration()));
            let _ = writeln!(out, "scan '{}'{of}: lateness {lateness} duration {duration}", clock.name);
        }
        if let Some(counters) = counters {
            let _ = writeln!(
                out,
                "owner {owner}: {} records processed, {} jobs done, {} posts replaced, ring full {} times, {} allocations",
                counters.processed, counters.jobs, counters.replaced, counters.no_room, counters.allocations
            );
        }
    }
    out
}

fn spread(times: &base::Histogram) -> String {
    let at = |num, den| match times.quantile(num, den) {
        Quantile::At(time) => time.to_string(),
        Quantile::Beyond(time) => format!("over {time}"),
        Quantile::Empty => "-".into(),
    };
    format!("p50 {} p99 {} max {}", at(1, 2), at(99, 100), times.max().unwrap_or_default())
}

/// `scanpiol`: the I/O Intr lists.
pub(super) fn interrupts(db: &Db) -> String {
    let mut out = String::new();
    for (name, records) in db.source_lists() {
        let _ = writeln!(out, "Source \"{name}\"");
        for record in records {
            let _ = writeln!(out, "    {:<28}", db.name_of(record));
        }
    }
    out
}

/// `scanpel`: the event lists.
pub(super) fn events(db: &Db, wanted: &str) -> String {
    let mut out = String::new();
    for (name, records) in db.event_lists().filter(|(name, _)| wanted.is_empty() || base::glob(wanted, name)) {
        let _ = writeln!(out, "Event \"{name}\"");
        for record in records {
            let _ = writeln!(out, "    {:<28}", db.name_of(record));
        }
    }
    out
}

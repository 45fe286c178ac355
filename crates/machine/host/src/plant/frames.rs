//! Reads `[[frame]]`, and creates the process that runs a frame.

use super::model::*;
use super::process::{self, PlacedProcess};
use super::{Surroundings, keys};
use crate::guard::{BUDGET, LADDER};
use base::{CpuSet, DurNs, Policy, Priority, ResultDeadline, Size};
use frame::{Activity, Config, Discipline, MINORS_MAX, Mode, PRIORITY_MIN, Plan, Recovery, Spec, TimeBase, minors_of};
use std::collections::BTreeMap;
use std::ops::Range;
use table::{Diagnostics, Section, clipped, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The environment variable that contains the [`Config`] of a frame's process, as JSON.
pub const FRAME: &str = "TAHTI_FRAME";

/// Maximum number of frames in a plant.
const FRAMES_MAX: usize = 64;
const HOUR: DurNs = DurNs::from_secs(3600);

/// Reads all frames. Frames that cannot be read are omitted and have findings.
pub(crate) fn read_all(
    root: &DeTable<'_>,
    isolated: Option<CpuSet>,
    reads: &[PlacedProcess],
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) -> Vec<(Config, Option<MissRatio>)> {
    let mut frames: Vec<(Config, Range<usize>)> = Vec::new();
    let mut ratios = Vec::new();
    for (table, span) in tables(root, "frame", true, found).into_iter().take(FRAMES_MAX) {
        let named =
            table.iter().find(|(key, _)| *key.get_ref() == "name").and_then(|(_, value)| value.get_ref().as_str());
        let called = named.map_or("a frame".to_owned(), |name| format!("frame {:?}", clipped(name)));
        let section = Section::open(table, span.clone(), &keys::FRAME, &called, found);
        let Some(config) = read(&section, &called, isolated, around, found) else { continue };
        let name = config.spec.name.as_str();
        if reads.iter().any(|read| read.process.name == name) || frames.iter().any(|(other, _)| other.spec.name == name)
        {
            let message = format!("frame {name:?} has the same name as a previous process or frame");
            found.error(span.clone(), message, "a unique name", "rename one");
        }
        frames.push((config, span));
        process::profiles(&section, found);
        ratios.push(section.parsed::<MissRatio>("miss_ratio_max", found).map(|(ratio, _)| ratio));
    }
    follow(&mut frames, found);
    for (index, refusal) in frame::share(&frames.iter().map(|(config, _)| config).collect::<Vec<_>>()) {
        found.error(frames[index].1.clone(), refusal.what, refusal.expected, "");
    }
    frames.into_iter().map(|(config, _)| config).zip(ratios).collect()
}

/// Sets the followers of each frame.
fn follow(frames: &mut [(Config, Range<usize>)], found: &mut Diagnostics<'_>) {
    for index in 0..frames.len() {
        let TimeBase::Frame(leader) = frames[index].0.spec.base.clone() else { continue };
        let (name, span) = (frames[index].0.spec.name.clone(), frames[index].1.clone());
        let cpu = frames[index].0.cpu;
        let minors = frames[index].0.spec.minors.clone();
        match frames.iter_mut().find(|(config, _)| config.spec.name == leader && config.spec.name != name) {
            None => found.error(
                span,
                format!("frame {name:?} follows {leader:?}, which does not exist"),
                "another frame of the plant",
                "",
            ),
            Some((config, _)) if config.spec.minors != minors => {
                let message = format!("frame {name:?} has other minors than {leader:?}, which it follows");
                found.error(span, message, "the same minors in both", "");
            }
            Some((config, _)) if matches!(config.spec.base, TimeBase::Frame(_)) => {
                let message = format!("frame {name:?} follows {leader:?}, which follows another frame");
                found.error(span, message, "one leader for all", "");
            }
            Some((config, _)) if cpu.is_some() && config.cpu == cpu => {
                let shown = cpu.unwrap_or_default();
                let message = format!("frame {name:?} follows {leader:?} on the same CPU {shown}");
                found.error(span, message, "another CPU: its minors begin when the leader's do", "");
            }
            Some((config, _)) => config.followers.push(name),
        }
    }
}

fn read(
    section: &Section<'_>,
    called: &str,
    isolated: Option<CpuSet>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) -> Option<Config> {
    let name = process::name(section, found);
    let cpu = cpu(section, isolated, around, found);
    let priority = match section.parsed::<Policy>("class", found) {
        None => Some(Priority(80)),
        Some((Policy::Fifo(priority), _)) if priority >= PRIORITY_MIN => Some(priority),
        Some((class, span)) => {
            found.error(
                span,
                format!("`class` of {called} cannot be {class}"),
                "fifo:5 to fifo:99: it needs four priorities below",
                "",
            );
            None
        }
    };
    let base = section.parsed::<TimeBase>("base", found).map_or(TimeBase::Timer, |(base, _)| base);
    let minors = minors(section, called, found);
    let reserve = section.time("reserve", DurNs::ZERO, HOUR, found).map_or(DurNs::ZERO, |(time, _)| time);
    let join_within = section.time("join_within", DurNs::ZERO, HOUR, found);
    let join_within = join_within.map_or(DurNs::from_secs(10), |(time, _)| time);
    let count = minors.as_ref().map_or(MINORS_MAX, Vec::len);
    let tables = list(section, "activity", found);
    let activities: Vec<_> = tables
        .into_iter()
        .filter_map(|(table, span)| {
            let called =
                table.iter().find(|(key, _)| *key.get_ref() == "name").and_then(|(_, name)| name.get_ref().as_str());
            let called = called.map_or("an activity".to_owned(), |name| format!("activity {:?}", clipped(name)));
            let section = Section::open(table, span, &keys::ACTIVITY, &called, found);
            let budget = section.value("budget").map_or(section.range(), Spanned::span);
            activity(&section, count, found).map(|read| (read, (section.range(), budget)))
        })
        .collect();
    let mut modes = Vec::new();
    for (table, span) in list(section, "mode", found) {
        let section = Section::open(table, span, &keys::MODE, "a mode", found);
        let names = section.texts("activities", found).unwrap_or_default();
        if section.value("activities").is_none() {
            section.missing("activities", found);
        }
        let activities = names.into_iter().map(|(name, _)| name.to_owned()).collect();
        modes.extend(process::name(&section, found).map(|(name, _)| Mode { name, activities }));
    }
    // The budget of an incomplete activity is unknown, so errors about sums are not reported.
    let whole = activities.iter().all(|((_, whole), _)| *whole);
    let (activities, places): (Vec<Activity>, Vec<_>) =
        activities.into_iter().map(|((activity, _), place)| (activity, place)).unzip();
    let spec = Spec { name: name?.0, base, minors: minors?, activities, modes, reserve };
    // One budget that is too long exceeds several sums; the first one is reported.
    let mut exceeded = Vec::new();
    for refusal in Plan::admit(&spec).err().into_iter().flatten() {
        let place = refusal.activity.and_then(|activity| places.get(activity));
        let (table, budget) = place.cloned().unwrap_or_else(|| (section.range(), section.range()));
        if !refusal.is_sum && (whole || place.is_some()) {
            found.error(table, refusal.what, refusal.expected, "");
        } else if refusal.is_sum && whole && !exceeded.contains(&budget) {
            found.error(budget.clone(), refusal.what, refusal.expected, "");
            exceeded.push(budget);
        }
    }
    if !whole {
        return None;
    }
    Some(Config { spec, cpu: cpu?, priority: priority?, join_within, followers: Vec::new() })
}

/// The tables of a list in a frame.
fn list<'t>(section: &Section<'t>, name: &str, found: &mut Diagnostics<'_>) -> Vec<(&'t DeTable<'t>, Range<usize>)> {
    let Some(value) = section.value(name) else { return Vec::new() };
    let table = |value: &'t Spanned<DeValue<'t>>| match value.get_ref() {
        DeValue::Table(table) => Some((table, value.span())),
        _ => None,
    };
    let read: Option<Vec<_>> = value.get_ref().as_array().and_then(|items| items.iter().map(table).collect());
    read.unwrap_or_else(|| {
        section.wrong(name, value, "a list of tables", found);
        Vec::new()
    })
}

/// The frame's CPU: `Some(None)` if it has none.
fn cpu(
    section: &Section<'_>,
    isolated: Option<CpuSet>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) -> Option<Option<base::CpuId>> {
    let Some(value) = section.value("cpu") else { return Some(None) };
    if value.get_ref().as_str() == Some("shield") {
        let first = isolated.as_ref().and_then(CpuSet::lowest);
        if first.is_none() {
            found.error(
                value.span(),
                "`cpu` is the shield's, but there is no shield",
                "a [shield]",
                "or give a number",
            );
        }
        return first.map(Some);
    }
    let (cpus, span) = section.cpu_list("cpu", found)?;
    match (cpus.lowest(), around.online()) {
        (Some(cpu), online) if cpus.count() == 1 && online.is_none_or(|online| online.contains(cpu)) => Some(Some(cpu)),
        (_, online) => {
            let expected = online.map_or("one CPU".to_owned(), |online| format!("one of CPUs {online}"));
            found.error(span, format!("`cpu` cannot be {cpus}"), expected, "");
            None
        }
    }
}

/// Lengths of the minor frames.
fn minors(section: &Section<'_>, called: &str, found: &mut Diagnostics<'_>) -> Option<Vec<DurNs>> {
    let count = section.number("minors", 1, MINORS_MAX as u64, found);
    let period = section.time("period", DurNs::from_us(50), HOUR, found);
    let lengths = section.texts("lengths", found);
    match (count, period, lengths) {
        (Some((count, _)), Some((period, _)), None) => Some(vec![period; count as usize]),
        (None, None, Some(texts)) => {
            let length = |(text, span): (&str, Range<usize>)| match text.parse::<DurNs>() {
                Ok(length) => Some(length),
                Err(why) => {
                    found.error(span, format!("`lengths` cannot hold {:?}", clipped(text)), why.to_string(), "");
                    None
                }
            };
            texts.into_iter().map(length).collect()
        }
        _ => {
            // Invalid values have been reported already. Here only the combination of keys is checked.
            let given = ["minors", "period", "lengths"].map(|name| section.value(name).is_some());
            if !matches!(given, [true, true, false] | [false, false, true]) {
                let message = format!("{called} has no length for its minor frames");
                found.error(
                    section.range(),
                    message,
                    "`minors` and `period`, or `lengths`",
                    "add `minors = 10` and `period = \"1ms\"`",
                );
            }
            None
        }
    }
}

/// Reads an activity; `None` without a name. The flag is false if a key could not be read. Such keys get values that
/// cause no further errors.
fn activity(section: &Section<'_>, minors: usize, found: &mut Diagnostics<'_>) -> Option<(Activity, bool)> {
    let name = process::name(section, found);
    let budget = section.time("budget", DurNs::ZERO, HOUR, found).map(|(time, _)| time);
    let discipline = section.parsed::<Discipline>("discipline", found).map(|(read, _)| read);
    let recovery = section.parsed("recovery", found).map_or(Recovery::None, |(recovery, _)| recovery);
    let tolerate = section.number("tolerate", 0, 1_000_000, found).map(|(number, _)| number as u32);
    let given = |key: &str| section.value(key).is_some();
    let mut whole = discipline.is_some() == given("discipline") && budget.is_some() == given("budget");
    let texts = match section.value("minors").map(Spanned::get_ref) {
        None => Some(vec![("all", 0..0)]),
        Some(DeValue::Array(_)) => section.texts("minors", found),
        Some(_) => section.text("minors", found).map(|text| vec![text]),
    };
    whole &= texts.is_some();
    let mut queue = Vec::new();
    for (text, span) in texts.unwrap_or_default() {
        // The discipline is the text after the last blank, if it begins with a letter.
        let (which, how) = match text.rsplit_once(' ') {
            Some((which, how)) if how.starts_with(|c: char| c.is_ascii_alphabetic()) => (which, how.parse()),
            _ => (text, Ok(discipline.unwrap_or_default())),
        };
        match (minors_of(which, minors), how) {
            (Ok(read), Ok(how)) => queue.extend(read.into_iter().map(|minor| (minor, how))),
            (Err(why), _) => {
                let why = why.to_string();
                let expected = why.strip_prefix("expected ").unwrap_or(&why).to_owned();
                found.error(span, format!("`minors` cannot be {:?}", clipped(text)), expected, "");
                whole = false;
            }
            (_, Err(why)) => {
                let expected = why.strip_prefix("expected ").unwrap_or(why).to_owned();
                found.error(span, format!("`minors` cannot be {:?}", clipped(text)), expected, "");
                whole = false;
            }
        }
    }
    queue.sort_by_key(|(minor, _)| *minor);
    let budget = if whole { budget } else { budget.or(Some(DurNs(1))) };
    if !whole {
        queue = vec![(0, Discipline::REAL_TIME)];
    }
    let (recovery, deadline) = deadline(section, recovery, tolerate, found);
    Some((Activity { name: name?.0, budget, queue, recovery, tolerate, deadline }, whole))
}

/// Reads the deadline of an activity's results, and its recovery. A hard deadline implies recovery by safe values.
fn deadline(
    section: &Section<'_>,
    recovery: Recovery,
    tolerate: Option<u32>,
    found: &mut Diagnostics<'_>,
) -> (Recovery, Option<ResultDeadline>) {
    let Some(rule) = super::deadline::read(section, found) else { return (recovery, None) };
    let place = section.value("deadline").map_or(section.range(), Spanned::span);
    if rule.least.is_some() {
        let message = "`least` in the `deadline` of an activity";
        found.error(place.clone(), message, "no `least`: it applies to a whole process", "remove it");
    }
    if !rule.is_hard() {
        return (recovery, Some(rule.result));
    }
    if !matches!(recovery, Recovery::None | Recovery::SafeValue) || tolerate.is_some_and(|errors| errors > 0) {
        found.error(
            place,
            "a hard `deadline` together with a recovery that tolerates its error",
            "`recovery = \"safe-value\"` without `tolerate`, or none",
            "make the deadline `firm`, or remove `recovery` and `tolerate`",
        );
    }
    (Recovery::SafeValue, Some(rule.result))
}

/// Creates the process that runs a frame. If the frame's CPU is shielded, the process is in the shield's cpuset,
/// because its threads cannot run on that CPU from another cpuset.
pub(crate) fn process(config: &Config, miss_ratio_max: Option<MissRatio>, isolated: Option<&CpuSet>) -> Process {
    let name = config.spec.name.clone();
    let shielded = config.cpu.is_some_and(|cpu| isolated.is_some_and(|isolated| isolated.contains(cpu)));
    // Serialisation of plain data with text keys cannot fail.
    let text = serde_json::to_string(config).unwrap_or_default();
    Process {
        command: vec!["tahti".to_owned(), "frames".to_owned(), "run".to_owned()],
        class: Policy::OTHER,
        cpus: if shielded { Cpus::Shield } else { Cpus::Housekeeping },
        numa: None,
        mlock: false,
        limits: Limits::default(),
        bounds: Bounds::default(),
        partition: None,
        user: None,
        capabilities: None,
        env: BTreeMap::from([(FRAME.to_owned(), text)]),
        automatic: BTreeMap::new(),
        dir: None,
        after: Vec::new(),
        ready: Ready {
            when: ReadyCondition::Line(format!("frame {name} runs")),
            within: DurNs(config.join_within.0 + DurNs::from_secs(10).0),
        },
        restart: Restart {
            policy: RestartPolicy::OnFailure,
            backoff: DurNs::from_ms(200),
            backoff_max: DurNs::from_secs(10),
            window: DurNs::from_secs(60),
            limit: 5,
        },
        stop: vec![StopStep { signal: Signal::TERM, wait: DurNs::from_secs(5) }],
        hygiene: Hygiene::default(),
        on_fault: None,
        log: Log { size: Size(1 << 20), keep: 3 },
        heartbeat: None,
        budget: BUDGET,
        ladder: LADDER.to_vec(),
        threads: Vec::new(),
        own_threads: Vec::new(),
        miss_ratio_max,
        deadline: None,
        // The dispatcher has a fixed priority.
        has_own_priorities: true,
        optional: false,
        name,
    }
}

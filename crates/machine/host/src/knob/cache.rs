//! Exclusive ways of the last-level cache for the shielded CPUs (`resctrl`).

use super::{Doc, Knob};
use crate::partition::DIR_BEGINS;
use crate::plan::{Context, Draft};
use crate::snapshot::{Cache, Form, Target, Value};
use base::CpuSet;
use std::collections::BTreeMap;

/// Ways of the last-level cache that only the shielded CPUs may fill.
#[derive(Debug)]
pub(super) struct CacheWays;

/// The shield's group.
pub(crate) const GROUP: &str = "/sys/fs/resctrl/tahti.shield";

const TOP: &str = "/sys/fs/resctrl";
const INFO: &str = "/sys/fs/resctrl/info/L3";

/// The shield gets one of this many parts of the ways.
const SHARE: u32 = 4;

/// Possible reason for a refusal.
const REFUSES: &str = "another program may use the last group or have locked ways";

impl Knob for CacheWays {
    fn name(&self) -> &'static str {
        "cache ways"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "ways of the last-level cache that only the shielded CPUs fill; a separate group, if resctrl is mounted and no other program uses it",
            why: "work on other CPUs would evict the loop's data from the shared cache",
            good: "the lowest quarter of the ways; other CPUs lose them",
            since: "4.10",
            source: "Documentation/filesystems/resctrl.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/fs/resctrl/schemata"]
    }

    fn form(&self) -> Form {
        Form::Cache
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[
            ("/sys/fs/resctrl/*/schemata", Form::Cache),
            ("/sys/fs/resctrl/*/cpus_list", Form::List),
            ("/sys/fs/resctrl/info/L3/*", Form::Text),
            ("/sys/devices/system/cpu/cpu{cpu}/cache/index*/level", Form::Text),
            ("/sys/devices/system/cpu/cpu{cpu}/cache/index*/id", Form::Text),
            ("/sys/devices/system/cpu/cpu{cpu}/cache/index*/shared_cpu_list", Form::List),
        ]
    }

    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        if context.snapshot.files.contains_key(&format!("{GROUP}/cpus_list")) {
            return;
        }
        let ways = match Ways::of(context) {
            Ok(Some(ways)) => ways,
            Ok(None) => return,
            Err(why) => return draft.note("cache ways", why.to_string()),
        };
        let (shield, others) = (ways.assigned(true), ways.assigned(false));
        let why = self.doc().why;
        let dir = Target::Dir { path: GROUP.to_owned() };
        if let Some(step) = draft.step(context, dir, Value::Present, GROUP, why) {
            step.may_refuse = Some(REFUSES.into());
        }
        let mut write = |path: String, form: Form, from: Value, to: Value| {
            draft.step_from(Target::File { path: path.clone(), form }, from, to, &path, why);
        };
        let cpus = format!("{GROUP}/cpus_list");
        write(cpus, Form::List, Value::Cpus(CpuSet::EMPTY), Value::Cpus(context.want.cpus));
        let full = Value::Text(ways.now.to_string());
        write(format!("{GROUP}/schemata"), Form::Cache, full.clone(), Value::Text(shield.to_string()));
        write(format!("{TOP}/schemata"), Form::Cache, full, Value::Text(others.to_string()));
    }
}

/// Another use of resctrl leaves no separate ways for the shield.
#[derive(Debug, thiserror::Error)]
enum Divided {
    #[error(
        "another program already divides the last-level cache (resctrl, {0}): the cache stays unchanged; remove that group, then apply again"
    )]
    Foreign(String),
    #[error(
        "a partition fills ways that the shield needs ({0}): the cache stays unchanged; lower the partition's `cache`, or apply the shield before it starts"
    )]
    Partition(String),
}

/// The ways of the cache and their division.
struct Ways {
    /// Ways that all tasks may fill now, per cache.
    now: Cache,
    /// The caches that both shielded and other CPUs use.
    shared: Vec<u32>,
    /// The shield's ways.
    own: u64,
}

impl Ways {
    /// `None` if there is nothing to divide. An error if another program already divides the cache, or if a partition
    /// has the ways that the shield needs.
    fn of(context: &Context<'_>) -> Result<Option<Self>, Divided> {
        let text = |name: &str| context.snapshot.file_text(&format!("{INFO}/{name}"));
        let all = text("cbm_mask").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let number = |name: &str| text(name).and_then(|text| text.parse::<u32>().ok());
        let (Some(all), Some(least), Some(groups_max)) = (all, number("min_cbm_bits"), number("num_closids")) else {
            return Ok(None);
        };
        let count = (all.count_ones() / SHARE).max(least).max(1);
        let shared = shared_caches(context);
        if shared.is_empty() || count >= all.count_ones() {
            return Ok(None);
        }
        // Devices also fill the highest ways, so the shield gets the lowest.
        let own = (1 << count) - 1;
        let groups: Vec<&str> = context.snapshot.files.keys().filter_map(|path| group(path)).collect();
        for group in &groups {
            let path = format!("{TOP}/{group}/schemata");
            let ways = context.snapshot.file_text(&path).and_then(Cache::parse);
            let Some(ways) = ways.filter(|_| group.starts_with(DIR_BEGINS)) else { return Err(Divided::Foreign(path)) };
            if shared.iter().any(|id| ways.ways.get(id).is_none_or(|mask| mask & own != 0)) {
                return Err(Divided::Partition(path));
            }
        }
        let path = format!("{TOP}/schemata");
        let now = context.snapshot.file_text(&path).and_then(Cache::parse);
        let Some(now) = now.filter(|now| now.ways.values().all(|mask| *mask == all)) else {
            return Err(Divided::Foreign(path));
        };
        if groups_max < 2 || shared.iter().any(|id| !now.ways.contains_key(id)) {
            return Ok(None);
        }
        Ok(Some(Self { now, shared, own }))
    }

    /// The ways of the shield, or those of all other tasks.
    fn assigned(&self, shield: bool) -> Cache {
        let mask = |id: &u32, all: u64| match self.shared.contains(id) {
            true if shield => all & self.own,
            true => all & !self.own,
            false => all,
        };
        Cache { ways: self.now.ways.iter().map(|(id, all)| (*id, mask(id, *all))).collect() }
    }
}

/// The group of a `cpus_list` file.
fn group(path: &str) -> Option<&str> {
    let name = path.strip_prefix(TOP)?.strip_prefix('/')?.strip_suffix("/cpus_list")?;
    (!name.contains('/')).then_some(name)
}

/// The last-level caches that shielded and housekeeping CPUs share.
fn shared_caches(context: &Context<'_>) -> Vec<u32> {
    let mut caches = BTreeMap::new();
    for cpu in &context.want.cpus {
        for index in 0..8 {
            let file = |name: &str| format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            let users = context.snapshot.file_cpus(&file("shared_cpu_list"));
            if let ("3", Some(users)) = (context.snapshot.file_text(&file("level")).unwrap_or_default(), users)
                && users.intersects(&context.housekeeping)
                && let Some(id) = context.snapshot.file_text(&file("id")).and_then(|id| id.parse().ok())
            {
                caches.insert(id, ());
            }
        }
    }
    caches.into_keys().collect()
}

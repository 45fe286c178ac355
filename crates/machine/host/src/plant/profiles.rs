//! Profiles: members that are part of a plant only on request.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use table::Diagnostics;
use toml::de::{DeArray, DeTable, DeValue};

/// Tables that are members, each with the tables that belong to it.
const MEMBERS: [(&str, &[&str]); 10] = [
    ("process", &[]),
    ("ioc", &[]),
    ("equipment", &[]),
    ("guest", &[]),
    ("frame", &[]),
    ("messages", &[]),
    ("recorder", &[]),
    ("alarms", &["area", "alarm"]),
    ("archive", &["signal"]),
    ("dashboard", &[]),
];

/// The active profiles of a plant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Profiles(BTreeSet<String>);

impl Profiles {
    /// Creates a set of profiles; `*` means all.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(names.into_iter().map(Into::into).filter(|name| !name.is_empty()).collect())
    }

    /// All profiles of the plant.
    #[must_use]
    pub fn all() -> Self {
        Self::of(["*"])
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains("*") || self.0.contains(name)
    }
}

/// Members that are not part of the plant, and profiles of the plant file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inactive {
    /// Members that are not part of the plant, with their profiles.
    pub members: BTreeMap<String, Vec<String>>,
    /// Active profiles that no member has.
    pub unknown: Vec<String>,
    /// Profiles of the members.
    pub known: BTreeSet<String>,
}

/// Removes the members that have profiles, none of which is active.
pub(super) fn remove_inactive(root: &mut DeTable<'_>, active: &Profiles, found: &mut Diagnostics<'_>) -> Inactive {
    let mut inactive = Inactive::default();
    let mut present = Vec::new();
    for (table, rows) in MEMBERS {
        let Some(value) = root.get_mut(table) else { continue };
        let mut is_removed = false;
        match value.get_mut() {
            DeValue::Table(one) => is_removed = !inactive.keeps(one, table, active, &mut present),
            DeValue::Array(all) => {
                let count = all.len();
                let kept: DeArray<'_> = std::mem::replace(all, DeArray::new())
                    .into_iter()
                    .filter(|one| {
                        let one = one.get_ref().as_table();
                        one.is_none_or(|one| inactive.keeps(one, table, active, &mut present))
                    })
                    .collect();
                is_removed = kept.is_empty() && count > 0;
                *all = kept;
            }
            _ => {}
        }
        for removed in std::iter::once(&table).chain(rows).filter(|_| is_removed) {
            root.remove(*removed);
        }
    }
    for (name, span) in present {
        // Names of members that are all present are compared later.
        if inactive.members.contains_key(&name) {
            let message = format!("a second process {name:?}, in another profile");
            found.error(span, message, "a unique name", "rename one");
        }
    }
    let is_unknown = |name: &&str| *name != "*" && !inactive.known.contains(*name);
    inactive.unknown = active.names().filter(is_unknown).map(str::to_owned).collect();
    inactive
}

impl Inactive {
    /// Whether a member is part of the plant; if not, its name is noted.
    fn keeps(
        &mut self,
        member: &DeTable<'_>,
        table: &str,
        active: &Profiles,
        present: &mut Vec<(String, std::ops::Range<usize>)>,
    ) -> bool {
        let items = member.get("profiles").and_then(|value| value.get_ref().as_array());
        let profiles: Vec<String> = items
            .into_iter()
            .flat_map(|items| items.iter())
            .filter_map(|item| item.get_ref().as_str().map(str::to_owned))
            .collect();
        self.known.extend(profiles.iter().cloned());
        let keeps = profiles.is_empty() || profiles.iter().any(|name| active.has(name));
        let name = member.get("name").and_then(|name| Some((name.get_ref().as_str()?.to_owned(), name.span())));
        if !keeps {
            self.members.insert(name.map_or_else(|| table.to_owned(), |(name, _)| name), profiles);
        } else {
            present.extend(name);
        }
        keeps
    }

    /// The error for a member that waits for one of another profile; `None` if it is none of those.
    pub(super) fn waited_for(&self, waits: &str, name: &str) -> Option<(String, String)> {
        let profiles = self.members.get(name)?;
        let message = format!("`after` of {waits:?} names {name:?}, which is only in profile {}", profiles.join(", "));
        let words: Vec<String> = profiles.iter().map(|profile| format!("{profile:?}")).collect();
        let profile = profiles.first().map_or("", String::as_str);
        let remedy =
            format!("use `--profile {profile}`, or give {waits:?} the same `profiles = [{}]`", words.join(", "));
        Some((message, remedy))
    }
}

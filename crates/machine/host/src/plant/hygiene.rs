//! Reads the settings that a process inherits and its restrictions: `umask`, `sandbox` and similar keys.

use super::keys;
use super::model::{Hygiene, Operators, ProtectHome, ProtectSystem, Sandbox};
use std::ops::RangeInclusive;
use table::{Diagnostics, Section, clipped};
use toml::de::DeValue;

/// Reads all keys. A key that cannot be read gets its default and a finding.
pub(super) fn read(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Hygiene {
    let passed = section.texts("pass_environment", found);
    Hygiene {
        pass_environment: passed.map(|names| names.into_iter().map(|(name, _)| name.to_owned()).collect()),
        nice: nice(section, found),
        umask: umask(section, found),
        oom_score_adjust: whole(section, "oom_score_adjust", -1000..=1000, found),
        no_new_privileges: section.flag("no_new_privileges", found).unwrap_or(true),
        sandbox: sandbox(section, found),
    }
}

/// The group whose members may view the plant.
pub(super) fn operators(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Operators> {
    let group = section.words("operators", found).map(|(group, _)| group.to_owned());
    let may_type = section.flag("operators_may_type", found);
    if let (None, Some(true), Some(value)) = (&group, may_type, section.value("operators_may_type")) {
        found.error(value.span(), "`operators_may_type` without operators", "also `operators`", "name their group");
    }
    Some(Operators { group: group?, may_type: may_type.unwrap_or(false) })
}

fn umask(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<u32> {
    let (text, span) = section.text("umask", found)?;
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| digits && *mask <= 0o777);
    if mask.is_none() {
        let message = format!("`umask` cannot be {:?}", clipped(text));
        found.error(span, message, "an octal number from 0000 to 0777, as text", "for example `umask = \"0027\"`");
    }
    mask
}

/// Reads `nice`. It is an error if the class already has a nice value or does not use one.
fn nice(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<i8> {
    let nice = whole(section, "nice", -20..=19, found)?;
    if let (Some(DeValue::String(class)), Some(value)) =
        (section.value("class").map(|class| class.get_ref()), section.value("nice"))
    {
        let class = class.trim();
        let why = match class.split_once(':') {
            Some(("other" | "batch", _)) => "which already has a nice value",
            None if class == "idle" => "which does not use it",
            _ => return Some(nice as i8),
        };
        let message = format!("`nice` together with class {class}, {why}");
        found.error(value.span(), message, "one of the two", "remove `nice`, or the value after the class");
    }
    Some(nice as i8)
}

/// Reads a whole number within `bounds`.
fn whole(section: &Section<'_>, key: &str, bounds: RangeInclusive<i16>, found: &mut Diagnostics<'_>) -> Option<i16> {
    let value = section.value(key)?;
    let number = match value.get_ref() {
        DeValue::Integer(number) => i16::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    let number = number.filter(|number| bounds.contains(number));
    if number.is_none() {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        section.wrong(key, value, &expected, found);
    }
    number
}

fn sandbox(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Sandbox> {
    let table = section.section("sandbox", &keys::SANDBOX, "sandbox", found)?;
    let system = [("full", ProtectSystem::Full), ("strict", ProtectSystem::Strict)];
    let home = [("read-only", ProtectHome::ReadOnly)];
    Some(Sandbox {
        private_tmp: table.flag("private_tmp", found).unwrap_or(false),
        protect_system: choice(&table, "protect_system", ProtectSystem::Yes, &system, found),
        protect_home: choice(&table, "protect_home", ProtectHome::Yes, &home, found),
        read_write_paths: paths(&table, "read_write_paths", found),
        inaccessible_paths: paths(&table, "inaccessible_paths", found),
    })
}

/// Reads a key that is true, false, or one of these words.
fn choice<T: Copy + Default>(
    table: &Section<'_>,
    name: &str,
    yes: T,
    words: &[(&str, T)],
    found: &mut Diagnostics<'_>,
) -> T {
    let Some(value) = table.value(name) else { return T::default() };
    let read = match value.get_ref() {
        DeValue::Boolean(flag) => Some(if *flag { yes } else { T::default() }),
        DeValue::String(text) => words.iter().find(|(word, _)| *word == &**text).map(|(_, read)| *read),
        _ => None,
    };
    read.unwrap_or_else(|| {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        table.wrong(name, value, &format!("true, false or {}", words.join(" or ")), found);
        T::default()
    })
}

fn paths(table: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    for (path, span) in table.texts(name, found).unwrap_or_default() {
        if path.starts_with('/') && path.len() <= 4096 && !path.contains('\0') {
            paths.push(path.to_owned());
        } else {
            found.error(span, format!("`{name}` cannot hold {:?}", clipped(path)), "an absolute path", "");
        }
    }
    paths
}

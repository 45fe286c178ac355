//! Reads `[[device]]`.

use super::{At, DEVICES_MAX, DeviceLocation, HOUR, Location, POLLED_NAME_BYTES_MAX, Reader, Source, Wrong, real};
use crate::agent;
use crate::device::{DEVICE, Driver};
use crate::tables::{DeviceSpec, Setting, Settings};
use base::{DurNs, nearest};
use std::ops::Range;
use table::{Diagnostics, Section, Table, clipped};
use toml::de::{DeTable, DeValue};

impl Reader<'_> {
    /// Reads one device.
    pub(super) fn device(
        &mut self,
        table: &DeTable<'_>,
        span: Range<usize>,
        source: Source<'_>,
        found: &mut Diagnostics<'_>,
    ) {
        let get = |key: &str| table.iter().find(|(name, _)| *name.get_ref() == key).map(|(_, value)| value);
        let word = get("driver").and_then(|value| value.get_ref().as_str());
        let Some(driver) = word.and_then(|word| self.drivers.iter().find(|driver| driver.word == word)) else {
            let section = Section::open(table, span.clone(), driver_free(), "a device", found);
            let words = || self.drivers.iter().map(|driver| driver.word);
            match (get("driver"), word) {
                (None, _) => section.missing("driver", found),
                (Some(value), None) => section.wrong("driver", value, "a text in quotes", found),
                (Some(value), Some(word)) => {
                    let remedy =
                        nearest(word, words()).map_or(String::new(), |meant| format!("did you mean `{meant}`?"));
                    let known = words().collect::<Vec<_>>().join(", ");
                    found.error(value.span(), format!("unknown driver {:?}", clipped(word)), known, remedy);
                }
            }
            // Rows that refer to this device cause no further error.
            self.unknown.extend(device_name(&section, found));
            return;
        };
        let driver: &'static Driver = driver;
        let called = match get("name").and_then(|value| value.get_ref().as_str()) {
            Some(name) => format!("device {:?}", clipped(name)),
            None => "a device".to_owned(),
        };
        let section = Section::open(table, span.clone(), driver.table, &called, found);
        let settings = settings(&section, driver.table, &called, found);
        let Some(name) = device_name(&section, found) else { return };
        if self.tables.devices.iter().any(|other| other.name == name) {
            found.error(span, format!("device {name:?} is defined twice"), "a unique name", "rename one");
            return;
        }
        if self.tables.devices.len() == DEVICES_MAX {
            found.error(span, format!("more than {DEVICES_MAX} devices"), "fewer", "make several managers");
            return;
        }
        for key in ["input", "output"].into_iter().filter(|_| agent::is_agent(driver)) {
            if let Some(value) = get(key) {
                self.other.push((self.tables.devices.len(), key, Location { file: source.at, span: value.span() }));
            }
        }
        let keys = driver.table.keys.iter().filter_map(|key| Some((key.name, section.value(key.name)?.span())));
        let keys = keys.collect();
        let place = source.line(&span);
        self.places.push(DeviceLocation { whole: Location { file: source.at, span }, keys, points: Vec::new() });
        self.tables.devices.push(DeviceSpec { name, driver, settings, points: Vec::new(), place });
    }

    /// Checks for contradictions in the keys of the device, or with other devices.
    fn own(&self, spec: &DeviceSpec) -> Option<Wrong> {
        let wrong =
            |key, message, expected: &str| Some(Wrong { at: At::Key(key), message, expected: expected.to_owned() });
        let (number, exported) =
            (|key| spec.settings.number(key), |spec: &DeviceSpec| spec.settings.text("as").map(str::to_owned));
        if let (Some(low), Some(high)) = (number("low"), number("high"))
            && low >= high
        {
            return wrong("low", format!("`low` is {low} and `high` is {high}"), "the lowest output below the highest");
        }
        let name = exported(spec)?;
        if name.len() > POLLED_NAME_BYTES_MAX {
            return wrong("as", format!("`as` has {} bytes", name.len()), "at most 64");
        }
        let before = self.tables.devices.iter().take_while(|other| other.name != spec.name);
        let taken = before.filter_map(exported).chain(self.tables.polls.iter().map(|poll| poll.name.clone()));
        let taken = taken.into_iter().any(|other| other == name);
        taken.then(|| wrong("as", format!("{name:?} is exported twice"), "a unique name"))?
    }

    /// Reports the errors of devices: contradictions in their keys, and conflicts with the machine.
    pub(super) fn look(&self, all: &mut [Diagnostics<'_>]) {
        for (spec, places) in self.tables.devices.iter().zip(&self.places) {
            for Wrong { at, message, expected } in self.own(spec).into_iter().chain(self.machine.look(spec)) {
                let key = |key| places.keys.iter().find(|(known, _)| *known == key).map(|(_, span)| span.clone());
                let (file, span) = match at {
                    At::Key(name) => (places.whole.file, key(name).unwrap_or_else(|| places.whole.span.clone())),
                    At::Point(point) => {
                        let place = places.points.get(point).unwrap_or(&places.whole);
                        (place.file, place.span.clone())
                    }
                };
                all[file].error(span, format!("device {:?}: {message}", spec.name), expected, "");
            }
        }
    }
}

/// The keys of a device with an unknown driver. Further keys cannot be checked.
fn driver_free() -> &'static Table {
    &DEVICE
}

/// Reads the settings in a driver's table. The example of each key defines its type.
fn settings(section: &Section<'_>, shape: &'static Table, called: &str, found: &mut Diagnostics<'_>) -> Settings {
    let mut settings = Settings::default();
    for key in shape.keys.iter().filter(|key| !matches!(key.name, "name" | "driver")) {
        if section.value(key.name).is_none() {
            if key.default.is_empty() {
                section.missing(key.name, found);
            }
            continue;
        }
        let example = key.example.trim_matches('"');
        let value = if matches!(key.example, "true" | "false") {
            section.flag(key.name, found).map(Setting::Flag)
        } else if key.example.starts_with('[') {
            section.command(key.name, found).map(|(words, _)| Setting::Texts(words))
        } else if !key.example.starts_with('"') {
            real(section, key.name, found).map(|(value, span)| {
                let limits = key.value.split_once(" to ");
                let limits = limits.and_then(|(low, high)| Some((low.parse::<f64>().ok()?, high.parse::<f64>().ok()?)));
                if let Some((low, high)) =
                    limits.filter(|(low, high)| value.fract() != 0.0 || !(*low..=*high).contains(&value))
                {
                    let message = format!("`{}` in {called} cannot be {value}", key.name);
                    found.error(span, message, format!("a whole number, {low} to {high}"), "");
                }
                Setting::Number(value)
            })
        } else if example.parse::<DurNs>().is_ok() {
            let limits = key.value.strip_prefix("time, ").and_then(|limits| limits.split_once(" to "));
            let limits = limits.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            let (low, high) = limits.unwrap_or((DurNs::ZERO, HOUR));
            section.time(key.name, low, high, found).map(|(time, _)| Setting::Time(time))
        } else {
            section.words(key.name, found).map(|(text, _)| Setting::Text(text.to_owned()))
        };
        settings.0.extend(value.map(|value| (key.name, value)));
    }
    settings
}

/// Reads the name of a device.
fn device_name(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<String> {
    // In a CSV cell a number is also a valid name.
    let value = section.value("name");
    if value.is_none() {
        section.missing("name", found);
    }
    let (text, span) = match value?.get_ref() {
        DeValue::Integer(number) => (number.as_str().to_owned(), value?.span()),
        _ => section.words("name", found).map(|(text, span)| (text.to_owned(), span))?,
    };
    let fits = text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c));
    if !fits {
        let message = format!("`name` cannot be {:?}", clipped(&text));
        found.error(span, message, "letters, digits, `_`, `-`, `.`, `:`, at most 64", "");
        return None;
    }
    Some(text)
}

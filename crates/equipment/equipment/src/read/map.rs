//! Reads `[[map]]`: rows and their expansion to objects.

use super::{Location, Reader, Source, items, pair, pattern, real, step};
use crate::convert::Convert;
use crate::datum::Datum;
use crate::device::{Access, Pace};
use crate::keys;
use crate::pattern::{Bound, Pattern};
use crate::tables::{ENTRIES_MAX, Entry, Reached, Row};
use base::{DurNs, nearest};
use msg::Verb;
use std::ops::Range;
use table::{Diagnostics, Section, clipped};
use toml::de::{DeTable, DeValue};

impl Reader<'_> {
    /// Reads one row.
    pub(super) fn row(
        &mut self,
        table: &DeTable<'_>,
        span: Range<usize>,
        source: Source<'_>,
        found: &mut Diagnostics<'_>,
    ) {
        let section = Section::open(table, span.clone(), &keys::MAP, "a row", found);
        for key in ["verb", "object", "device", "point"] {
            if section.value(key).is_none() {
                section.missing(key, found);
            }
        }
        let verbs = verbs(&section, found);
        let writes = verbs.iter().any(|verb| verb.writes());
        let object = pattern(&section, "object", found);
        let complement = pattern(&section, "complement", found);
        let device = pattern(&section, "device", found);
        let point = pattern(&section, "point", found);
        let free = free(&section, found);
        let convert = step::read(&section, writes, found);
        let unit = section.text("unit", found).map_or(String::new(), |(unit, _)| unit.to_owned());
        let limits = pair(&section, "limits", found);
        let precision = section.number("precision", 0, 15, found).map(|(digits, _)| digits as usize);
        let write = constant(&section, found);
        let reached = reached(&section, found);
        let about = section.text("about", found).map_or(String::new(), |(about, _)| about.to_owned());
        let lane = section.text("lane", found);
        if let Some((word, span)) = lane.clone().filter(|(word, _)| !matches!(*word, "real-time" | "worker")) {
            let message = format!("`lane` cannot be {:?}", clipped(word));
            found.error(span, message, "`real-time` or `worker`", "");
        }
        let complement = match complement {
            Some(complement) => Some(complement),
            None if section.value("complement").is_some() => None,
            None if writes && !verbs.contains(&Verb::Call) => {
                Pattern::parse("{value}").ok().map(|all| (all, span.clone()))
            }
            None => {
                section.missing("complement", found);
                None
            }
        };
        let (Some(device), Some(point)) = (device, point) else { return };
        let row = Row {
            place: source.line(&span),
            verbs,
            object: object.as_ref().map_or_else(Pattern::default, |(object, _)| object.clone()),
            convert,
            unit,
            limits,
            precision,
            write,
            reached,
            about,
        };
        if let Some(complement) = &complement {
            agree(&section, &row, complement, writes, found);
        }
        let forms = Forms { object, complement, device, point };
        let pace = |word: &str| if word == "real-time" { Pace::RtSafe } else { Pace::MayBlock };
        let wanted = lane.map(|(word, span)| (pace(word), span));
        self.multiply(&section, row, &forms, &free, wanted, Location { file: source.at, span }, found);
    }

    /// Expands a row to its objects.
    #[expect(clippy::too_many_arguments, reason = "one row's parts, used once")]
    fn multiply(
        &mut self,
        section: &Section<'_>,
        row: Row,
        forms: &Forms,
        free: &[(String, Vec<String>)],
        wanted: Option<(Pace, Range<usize>)>,
        place: Location,
        found: &mut Diagnostics<'_>,
    ) {
        let mut matched = 0;
        let mut made: Vec<Entry> = Vec::new();
        for device in 0..self.tables.devices.len() {
            let spec = &self.tables.devices[device];
            let Some(bound) = forms.device.0.matches(&spec.name) else { continue };
            matched += 1;
            if let Some((pace, span)) = wanted.as_ref().filter(|(pace, _)| *pace != spec.driver.pace) {
                let (device, word) = (&spec.name, spec.driver.word);
                let (message, remedy) = match pace {
                    Pace::RtSafe => (
                        format!("device {device:?} ({word}) may block and cannot run on the real-time lane"),
                        "an rt-safe device",
                    ),
                    Pace::MayBlock => (
                        format!("device {device:?} ({word}) is rt-safe and runs on the real-time lane"),
                        "a device that may block",
                    ),
                };
                found.error(span.clone(), message, remedy, "remove `lane`");
                return;
            }
            for bound in combinations(bound, free) {
                if self.tables.entries.len() + made.len() >= ENTRIES_MAX {
                    found.error(
                        section.range(),
                        format!("more than {ENTRIES_MAX} objects"),
                        "fewer",
                        "make several managers",
                    );
                    return;
                }
                let Some(entry) = self.entry(device, &bound, forms, &row, &place, found) else { return };
                made.push(entry);
            }
        }
        if matched == 0 && self.unknown.iter().all(|name| forms.device.0.matches(name).is_none()) {
            let known = self.tables.devices.iter().map(|device| device.name.as_str());
            let text = forms.device.0.to_string();
            let remedy = match nearest(&text, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "add a [[device]]".to_owned(),
            };
            found.error(forms.device.1.clone(), format!("no device matches {text:?}"), "the name of a device", remedy);
        }
        let index = self.tables.rows.len();
        self.tables.entries.extend(made.into_iter().map(|entry| Entry { row: index, ..entry }));
        self.tables.rows.push(row);
        self.rows.push(place);
    }

    /// Creates one object of a row. Returns `None` after an error in the object or its row, which has been reported.
    fn entry(
        &mut self,
        device: usize,
        bound: &Bound,
        forms: &Forms,
        row: &Row,
        place: &Location,
        found: &mut Diagnostics<'_>,
    ) -> Option<Entry> {
        let mut fill = |form: &(Pattern, Range<usize>), with: &Bound| match form.0.fill(with) {
            Ok(text) => Some(text),
            Err(undefined) => {
                let message = undefined.to_string();
                let expected = "a capture of the device's name, or of `for`";
                found.error(form.1.clone(), message, expected, "");
                None
            }
        };
        let object = forms.object.as_ref().and_then(|form| Some((fill(form, bound)?, form.1.clone())));
        // A point may contain `{value}`. The driver interprets it.
        let mut kept = bound.clone();
        kept.push(("value".to_owned(), "{value}".to_owned()));
        let point = fill(&forms.point, &kept);
        // The position of the value is marked.
        const HOLE: &str = "\u{0}";
        let mut with = bound.clone();
        with.push(("value".to_owned(), HOLE.to_owned()));
        let complement = forms.complement.as_ref().and_then(|form| fill(form, &with));
        let object = object.and_then(|(object, span)| match msg::Object::new(&object) {
            Ok(_) => Some(object),
            Err(why) => {
                let message = format!("`object` cannot be {:?}: {why}", clipped(&object));
                let expected = "words of lower-case letters and digits, joined by single underscores";
                found.error(span, message, expected, "");
                None
            }
        });
        let at = point.and_then(|point| self.point(device, point, &forms.point.1, row, place, found));
        let (object, complement) = (object?, complement?);
        let form = match complement.split_once(HOLE) {
            Some((before, after)) => (before.to_owned(), Some(after.to_owned())),
            None => (complement, None),
        };
        Some(Entry { object, row: 0, device, point: at?, form, bound: bound.clone() })
    }

    /// The index of the device's point that a row refers to.
    fn point(
        &mut self,
        device: usize,
        point: String,
        span: &Range<usize>,
        row: &Row,
        place: &Location,
        found: &mut Diagnostics<'_>,
    ) -> Option<usize> {
        let (spec, places) = (&mut self.tables.devices[device], &mut self.places[device]);
        let (name, word) = (&spec.name, spec.driver.word);
        let writes = row.verbs.iter().find(|verb| verb.writes());
        match ((spec.driver.point)(&point), writes) {
            (Err(expected), _) => {
                let message = format!("device {name:?} ({word}) has no point {:?}", clipped(&point));
                found.error(span.clone(), message, expected.0, "");
                return None;
            }
            (Ok(Access::ReadOnly), Some(verb)) => {
                let message = format!("`{verb}` would write point {:?} of device {name:?} ({word})", clipped(&point));
                found.error(span.clone(), message, "a point that can be written: this one is read only", "");
                return None;
            }
            _ => {}
        }
        Some(spec.points.iter().position(|known| *known == point).unwrap_or_else(|| {
            spec.points.push(point);
            places.points.push(Location { file: place.file, span: span.clone() });
            spec.points.len() - 1
        }))
    }
}

/// The patterns of a row, with their positions.
struct Forms {
    /// `None` after an error, which has been reported. The rest of the row is still checked.
    object: Option<(Pattern, Range<usize>)>,
    /// `None` after an error, as for `object`.
    complement: Option<(Pattern, Range<usize>)>,
    device: (Pattern, Range<usize>),
    point: (Pattern, Range<usize>),
}

/// Checks the consistency of the row.
fn agree(
    section: &Section<'_>,
    row: &Row,
    complement: &(Pattern, Range<usize>),
    writes: bool,
    found: &mut Diagnostics<'_>,
) {
    let has_value = complement.0.captures().any(|capture| capture == "value");
    let reads = row.verbs.contains(&Verb::Get);
    let span = |key: &str| section.value(key).map_or(section.range(), toml::Spanned::span);
    if reads && has_value {
        found.error(complement.1.clone(), "a `get` row brings no value", "a complement without `{value}`", "");
    }
    if reads && writes {
        found.error(span("verb"), "`get` together with verbs that write", "separate rows", "make two rows");
    }
    if writes && !has_value && row.write.is_none() {
        let remedy = "add `write = …`, or `{value}` to the complement";
        found.error(complement.1.clone(), "no value to write", "`write`, or a complement with `{value}`", remedy);
    }
    if row.write.is_some() && (has_value || reads) {
        found.error(
            span("write"),
            "`write` where the complement brings the value or nothing is written",
            "only one",
            "",
        );
    }
    if row.verbs.contains(&Verb::Set) && row.reached.is_none() {
        found.error(span("verb"), "`set` without `reached`", "when the value is reached", "add `reached = { … }`");
    }
    if row.reached.is_some() && !row.verbs.contains(&Verb::Set) {
        found.error(span("reached"), "`reached` without `set`", "the verb `set`", "");
    }
    if matches!(row.convert.last(), Some(Convert::Labels(_)))
        && (!row.unit.is_empty() || row.limits.is_some() || row.precision.is_some())
    {
        found.error(span("convert"), "labels with unit, limits or precision", "one or the other", "");
    }
}

fn verbs(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<Verb> {
    let Some(value) = section.value("verb") else { return Vec::new() };
    let mut verbs = Vec::new();
    for item in items(value) {
        let word = item.get_ref().as_str().unwrap_or_default();
        // One cell of a CSV file may contain several verbs.
        for word in word.split('|').map(str::trim) {
            match Verb::of_devices().find(|verb| verb.word() == word) {
                Some(verb) if !verbs.contains(&verb) => verbs.push(verb),
                Some(_) => {}
                None => {
                    let meant = nearest(word, Verb::of_devices().map(Verb::word));
                    let remedy = meant.map_or(String::new(), |meant| format!("did you mean `{meant}`?"));
                    let message = format!("`verb` cannot be {:?}", clipped(word));
                    found.error(item.span(), message, Verb::words(Verb::of_devices()).to_string(), remedy);
                }
            }
        }
    }
    verbs
}

/// `for = {…}`
fn free(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Vec<(String, Vec<String>)> {
    let Some(value) = section.value("for") else { return Vec::new() };
    let texts = |value: &DeValue<'_>| -> Option<Vec<String>> {
        let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => Some(number.as_str().to_owned()),
            _ => None,
        };
        value.as_array()?.iter().map(text).collect()
    };
    let all: Option<Vec<(String, Vec<String>)>> = value.get_ref().as_table().and_then(|table| {
        table.iter().map(|(key, value)| Some((key.get_ref().to_string(), texts(value.get_ref())?))).collect()
    });
    if all.is_none() {
        section.wrong("for", value, "a table of lists of texts", found);
    }
    all.unwrap_or_default()
}

/// All combinations of the free captures, added to the captures in `bound`.
fn combinations(bound: Bound, free: &[(String, Vec<String>)]) -> Vec<Bound> {
    let mut all = vec![bound];
    for (name, choices) in free {
        let more = |bound: &Bound| -> Vec<Bound> {
            let with = |choice: &String| {
                let mut bound = bound.clone();
                bound.push((name.clone(), choice.clone()));
                bound
            };
            choices.iter().map(with).collect()
        };
        // One more than the limit, so that the caller detects the excess.
        all = all.iter().flat_map(more).take(ENTRIES_MAX + 1).collect();
    }
    all
}

fn constant(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Datum<'static>> {
    let value = section.value("write")?;
    match value.get_ref() {
        DeValue::String(text) => Some(Datum::Text(text.to_string().into())),
        _ => real(section, "write", found).map(|(number, _)| Datum::Number(number)),
    }
}

fn reached(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Reached> {
    let section = section.section("reached", &keys::REACHED, "reached", found)?;
    for key in ["complement", "within"] {
        if section.value(key).is_none() {
            section.missing(key, found);
        }
    }
    let complement = section.words("complement", found)?.0.to_owned();
    let (within, span) = real(&section, "within", found)?;
    if within < 0.0 {
        found.error(span, "`within` is negative", "0 or more", "");
    }
    let timeout = section.time("timeout", DurNs::from_ms(1), DurNs::from_secs(3600), found);
    Some(Reached { complement, within, timeout: timeout.map_or(DurNs::from_secs(10), |(time, _)| time) })
}

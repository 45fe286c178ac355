//! Reads `convert`.

use super::{items, number, pair, real};
use crate::convert::{Convert, is_monotone};
use crate::keys::CONVERT;
use std::ops::Range;
use table::{Diagnostics, Section, clipped};
use toml::de::DeValue;

/// Maximum number of steps in a row, and of points in a table.
const STEPS_MAX: usize = 16;
const POINTS_MAX: usize = 10_000;

/// Reads the steps of a row. `writes`: the steps must be invertible.
pub(super) fn read(row: &Section<'_>, writes: bool, found: &mut Diagnostics<'_>) -> Vec<Convert> {
    let Some(value) = row.value("convert") else { return Vec::new() };
    let all = items(value);
    if all.len() > STEPS_MAX {
        found.error(value.span(), format!("{} steps", all.len()), format!("at most {STEPS_MAX}"), "");
        return Vec::new();
    }
    let last = all.len().saturating_sub(1);
    let mut steps = Vec::new();
    for (at, item) in all.into_iter().enumerate() {
        let DeValue::Table(table) = item.get_ref() else {
            row.wrong("convert", item, "a list of tables", found);
            continue;
        };
        let section = Section::open(table, item.span(), &CONVERT, "a convert step", found);
        let given: Vec<&str> = CONVERT
            .keys
            .iter()
            .map(|key| key.name)
            .filter(|key| *key != "over" && section.value(key).is_some())
            .collect();
        let [kind] = given[..] else {
            let kinds = CONVERT.keys.iter().map(|key| key.name).filter(|key| *key != "over").collect::<Vec<_>>();
            let message = format!("a convert step with {} of the keys that define it", given.len());
            found.error(item.span(), message, format!("exactly one of {}", kinds.join(", ")), "make several steps");
            continue;
        };
        if kind != "poly" && section.value("over").is_some() {
            found.error(section.range(), format!("`over` with `{kind}`"), "`over` with `poly` only", "remove it");
        }
        let (wrong_place, rule) = match kind {
            "bits" | "text" => (at != 0, "first"),
            "enum" => (at != last, "last"),
            _ => (false, ""),
        };
        if wrong_place {
            found.error(
                item.span(),
                format!("`{kind}` is not the {rule} step"),
                format!("`{kind}` as the {rule} step"),
                "",
            );
        }
        steps.extend(step(&section, kind, writes, found));
    }
    steps
}

fn step(section: &Section<'_>, kind: &str, writes: bool, found: &mut Diagnostics<'_>) -> Option<Convert> {
    match kind {
        "scale" => {
            let (factor, span) = real(section, kind, found)?;
            if factor == 0.0 || !(1.0 / factor).is_finite() {
                found.error(span, "`scale` is 0", "a number that can be divided by", "");
                return None;
            }
            Some(Convert::Scale { factor, offset: 0.0 })
        }
        "offset" => real(section, kind, found).map(|(offset, _)| Convert::Scale { factor: 1.0, offset }),
        "poly" => {
            let (coefficients, span) = numbers(section, kind, found)?;
            if section.value("over").is_none() {
                section.missing("over", found);
            }
            let over = pair(section, "over", found)?;
            if coefficients.is_empty() || coefficients.len() > 16 {
                found.error(span, "`poly` has no or too many coefficients", "1 to 16 numbers", "");
                return None;
            }
            if writes && !is_monotone(&coefficients, over) {
                let expected = "a polynomial that only rises or only falls over `over`";
                found.error(span, "`poly` cannot be run backwards", expected, "narrow `over`, or read only");
                return None;
            }
            Some(Convert::Poly { coefficients, over })
        }
        "table" => curve(section, writes, found),
        "bits" => bits(section, found),
        "enum" => labels(section, found),
        _ => {
            let (form, span) = section.words("text", found)?;
            let Some((before, after)) = form.split_once("{value}").filter(|(_, after)| !after.contains("{value}"))
            else {
                let message = format!("`text` cannot be {:?}", clipped(form));
                found.error(span, message, "a text with `{value}` once", "");
                return None;
            };
            Some(Convert::Text { before: before.to_owned(), after: after.to_owned() })
        }
    }
}

fn numbers(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<(Vec<f64>, Range<usize>)> {
    let value = section.value(name)?;
    let numbers: Option<Vec<f64>> =
        value.get_ref().as_array().and_then(|items| items.iter().map(|item| number(item.get_ref())).collect());
    if numbers.is_none() {
        section.wrong(name, value, "a list of numbers", found);
    }
    Some((numbers?, value.span()))
}

fn curve(section: &Section<'_>, writes: bool, found: &mut Diagnostics<'_>) -> Option<Convert> {
    let value = section.value("table")?;
    let point = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref().as_array()?.iter().collect::<Vec<_>>()[..] {
        [raw, value] => Some((number(raw.get_ref())?, number(value.get_ref())?)),
        _ => None,
    };
    let points: Option<Vec<(f64, f64)>> =
        value.get_ref().as_array().and_then(|items| items.iter().map(point).collect());
    let Some(points) = points.filter(|points| (2..=POINTS_MAX).contains(&points.len())) else {
        section.wrong("table", value, "a list of at least two points [raw, value]", found);
        return None;
    };
    if let Some(at) = points.windows(2).position(|two| two[0].0 >= two[1].0) {
        let message = format!("raw value {} of `table` follows {}", points[at + 1].0, points[at].0);
        found.error(value.span(), message, "raw values that only rise", "sort the points");
        return None;
    }
    let rises = points[0].1 < points[1].1;
    let turns = points.windows(2).any(|two| if rises { two[0].1 >= two[1].1 } else { two[0].1 <= two[1].1 });
    if writes && turns {
        let expected = "values that only rise or only fall";
        found.error(value.span(), "`table` cannot be run backwards", expected, "or use it in a `get` row only");
        return None;
    }
    Some(Convert::Curve(points))
}

fn bits(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Convert> {
    let value = section.value("bits")?;
    let text = match value.get_ref() {
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::String(text) => text.to_string(),
        _ => String::new(),
    };
    let (low, high) = text.split_once('-').unwrap_or((&text, &text));
    match (low.trim().parse::<u32>(), high.trim().parse::<u32>()) {
        (Ok(low), Ok(high)) if low <= high && high < 53 => Some(Convert::Bits { low, count: high - low + 1 }),
        _ => {
            let message = format!("`bits` cannot be {:?}", clipped(&text));
            found.error(value.span(), message, "a bit or a range of bits from 0 to 52, such as \"4-7\"", "");
            None
        }
    }
}

fn labels(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Convert> {
    let value = section.value("enum")?;
    let DeValue::Table(table) = value.get_ref() else {
        section.wrong("enum", value, "a table of whole numbers", found);
        return None;
    };
    let mut labels: Vec<(String, f64)> = Vec::new();
    for (label, number_of) in table {
        let word = label.get_ref().as_ref();
        let number = number(number_of.get_ref()).filter(|number| number.fract() == 0.0);
        let Some(number) = number else {
            section.wrong("enum", number_of, "a whole number", found);
            continue;
        };
        if word.is_empty() || word.len() > 40 || labels.iter().any(|(_, known)| *known == number) {
            let message = format!("label {:?} is too long, empty, or a second label of the same number", clipped(word));
            found.error(label.span(), message, "1 to 40 bytes, and a unique number", "");
            continue;
        }
        labels.push((word.to_owned(), number));
    }
    labels.sort_by(|a, b| a.1.total_cmp(&b.1));
    (!labels.is_empty()).then_some(Convert::Labels(labels))
}

//! The panes in the lower part of the screen.

use super::super::seen::PlantSample;
use super::{coloured, faint, head, severity_colour, text};
use crate::ps::more;
use base::{DurNs, MonoNs};
use keep::supervisor::control::{LoopHistogram, ProcessStatus};
use keep::supervisor::logs::{Level, Line as LogLine};
use keep::supervisor::short;
use ratatui_core::style::Color;
use ratatui_core::text::Line;
use serde_json::Value;
use std::collections::VecDeque;

/// Histogram of the wake-up latency of a process's loop. The classes are powers of two; the bar length is the logarithm
/// of the count.
pub(super) fn latency(seen: &PlantSample, chosen: Option<&ProcessStatus>, room: u16, width: u16) -> Vec<Line<'static>> {
    let Some(one) = chosen else { return Vec::new() };
    let (Some(page), Some(all)) = (&one.loop_page, seen.histograms.iter().find(|all| all.name == one.name)) else {
        return vec![head(&format!("Wake-up latency: {} has no running loop", one.name)).into()];
    };
    let time = |time: Option<DurNs>| time.map_or_else(|| "?".to_owned(), short);
    let (p50, p99, max) = (time(page.wake.p50), time(page.wake.p99), time(page.wake.max));
    let title = format!(
        "Wake-up latency of {}: p50 {p50}, p99 {p99}, max {max}; {} of {} missed",
        one.name, page.misses, page.cycles
    );
    let classes = classes(all, usize::from(room.saturating_sub(1)));
    let most = classes.iter().map(|class| class.2).max().unwrap_or(0);
    let bars = usize::from(width).saturating_sub(36);
    let bar = |count: u64| "#".repeat(((count as f64).ln_1p() / (most as f64).ln_1p() * bars as f64).ceil() as usize);
    let row = |(from, to, count): &(i64, i64, u64)| {
        let to = if *to == i64::MAX { "beyond".to_owned() } else { short(DurNs(*to)) };
        text(&format!("{:>10} .. {to:>9} {count:>10} {}", short(DurNs(*from)), bar(*count))).into()
    };
    [head(&title).into()].into_iter().chain(classes.iter().map(row)).collect()
}

/// Merges the buckets into classes of a factor of 2, or of 4, 8 and so on until they fit into `room` lines.
fn classes(all: &LoopHistogram, room: usize) -> Vec<(i64, i64, u64)> {
    for step in 1..=64 {
        let mut classes: Vec<(u32, (i64, i64, u64))> = Vec::new();
        for (from, to, count) in &all.buckets {
            let class = (*to).max(1).ilog2() / step;
            match classes.last_mut() {
                Some((last, (_, end, sum))) if *last == class => (*end, *sum) = (*to, *sum + count),
                _ => classes.push((class, (*from, *to, *count))),
            }
        }
        let mut found: Vec<_> = classes.into_iter().map(|class| class.1).collect();
        if all.beyond > 0 {
            found.push((found.last().map_or(0, |last| last.1), i64::MAX, all.beyond));
        }
        if found.len() <= room {
            return found;
        }
    }
    Vec::new()
}

pub(super) fn late(seen: &PlantSample, now: MonoNs) -> Vec<Line<'static>> {
    let Some(late) = &seen.late else {
        return vec![head("Late wake-ups: no flight recorder runs; add [recorder] to the plant file").into()];
    };
    let age = short(now - late.now);
    let title = format!("Wake-ups later than {} (as of {age} ago), newest first:", late.above);
    [head(&title).into()]
        .into_iter()
        .chain(late.shortfall.iter().map(|shortfall| coloured(Color::Yellow, shortfall).into()))
        .chain(late.last.iter().map(|one| text(&crate::trace::late(one, now)).into()))
        .collect()
}

pub(super) fn frames(all: &Value) -> Vec<Line<'static>> {
    let none = Vec::new();
    let all = all.as_array().unwrap_or(&none);
    let mut lines =
        vec![head(if all.is_empty() { "Frames: the plant has none" } else { "Frames: use of their minors" }).into()];
    for frame in all {
        let word = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        if frame["error"].is_string() {
            lines.push(coloured(Color::Yellow, &format!("  {}: {}", word("name"), word("error"))).into());
            continue;
        }
        let (counts, minors) = (&frame["counts"], frame["minors"].as_array().unwrap_or(&none));
        let (overruns, of) = (counts["overruns"].as_u64().unwrap_or(0), counts["minors"].as_u64().unwrap_or(0));
        let line = format!("  {}: {}, {overruns} overruns in {of} minors", word("name"), word("state"));
        lines.push(if overruns > 0 { coloured(Color::Red, &line) } else { text(&line) }.into());
        for (at, minor) in minors.iter().enumerate() {
            let length = minor["length_ns"].as_i64().unwrap_or(0);
            let percent = |key: &str| {
                minor[key].as_i64().map_or_else(
                    || "?".to_owned(),
                    |used| format!("{:.1} %", 100.0 * used as f64 / length.max(1) as f64),
                )
            };
            let (p50, p99, max) = (percent("p50"), percent("p99"), percent("max"));
            lines.push(
                text(&format!("    minor {at} of {}: used p50 {p50}, p99 {p99}, max {max}", short(DurNs(length))))
                    .into(),
            );
        }
    }
    lines
}

pub(super) fn details(one: &ProcessStatus, now: MonoNs) -> Vec<Line<'static>> {
    let up = one.started.map_or_else(|| "does not run".to_owned(), |at| format!("up for {}", short(now - at)));
    let mut lines = vec![
        head(&format!(
            "{}: {}, {up}, {} threads, class {}, CPUs {}",
            one.name,
            one.state,
            one.family_threads(),
            one.class,
            one.cpus
        ))
        .into(),
    ];
    lines.extend(one.last_end(now).map(|end| text(&format!("  last end: {end}")).into()));
    lines.extend(one.shortfalls.iter().map(|what| coloured(Color::Yellow, &format!("  unavailable: {what}")).into()));
    lines.extend(more(one).iter().map(|line| text(&format!("  {}", line.trim_start())).into()));
    lines
}

/// The newest log lines of a process, the newest last.
pub(super) fn log(name: &str, lines: Option<&VecDeque<LogLine>>, room: u16) -> Vec<Line<'static>> {
    let room = usize::from(room.saturating_sub(1));
    let lines = lines.into_iter().flatten().collect::<Vec<_>>();
    let title = if lines.is_empty() { format!("Log of {name}: no line") } else { format!("Log of {name}") };
    let newest = &lines[lines.len().saturating_sub(room)..];
    let row = |line: &&LogLine| {
        let time = line.stamp.get(11..19).unwrap_or_default();
        let words = match line.level {
            Level::Info => text(&line.text),
            Level::Warning => coloured(Color::Yellow, &line.text),
            Level::Error => coloured(Color::Red, &line.text),
        };
        Line::from(vec![faint(&format!("  {time} ")), words])
    };
    [head(&title).into()].into_iter().chain(newest.iter().map(row)).collect()
}

/// The alarms, the most severe first.
pub(super) fn alarms(seen: &PlantSample) -> Vec<Line<'static>> {
    let all = match &seen.alarms {
        Ok(all) => all,
        Err(why) => return vec![head(&format!("Alarms: {}", why.brief())).into()],
    };
    let row = |alarm: &super::super::seen::ActiveAlarm| {
        let colour = severity_colour(alarm.severity);
        Line::from(vec![
            coloured(colour, &format!("  {:<13}", alarm.severity.name())),
            text(&format!("{} for {}: {}", alarm.path, short(alarm.age), alarm.message)),
        ])
    };
    let title = if all.rows.is_empty() { "Alarms: none" } else { "Alarms" };
    [head(title).into()].into_iter().chain(all.rows.iter().map(row)).collect()
}

//! Draws the screen from the last sample, the view settings and the present time.

use super::Sort;
use super::seen::{NoLook, PlantSample};
use super::view::{Pane, Then, View, keys};
use crate::out::Colour;
use crate::ps::{megabytes, more, state_colour};
use base::{DurNs, MonoNs, Visible};
use keep::supervisor::control::{LoopHistogram, ProcessStatus};
use keep::supervisor::{phase_word, short};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};
use serde_json::Value;
use std::iter::successors;

/// Preferred height of a pane in rows.
const PANE_ROWS: u16 = 9;
const KEYS: &str = "q quit  ? help  / filter  t threads  p pause  tab pane  cmdrno sort";

/// Everything that the screen depends on.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) plant: String,
    pub(super) view: View,
    /// The last sample that was received.
    pub(super) seen: Option<Box<PlantSample>>,
    /// Why the latest attempt failed; `None` if it succeeded.
    pub(super) trouble: Option<NoLook>,
    /// Age from which a sample is marked as stale.
    pub(super) stale: DurNs,
}

impl Model {
    /// The displayed processes, filtered and sorted.
    pub(super) fn processes(&self) -> Vec<&ProcessStatus> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let all = seen.plant.processes.iter().filter(|one| one.name.contains(&self.view.filter));
        let mut all: Vec<&ProcessStatus> = all.collect();
        let burnt = |one: &ProcessStatus| one.pid.and_then(|pid| seen.percents.get(&pid)).copied().unwrap_or(0.0);
        super::sort(&mut all, self.view.sort, burnt);
        all
    }

    /// Handles keyboard input. Returns the action of each key.
    pub(super) fn press(&mut self, bytes: &[u8]) -> Vec<Then> {
        let press = |key| {
            let names: Vec<String> = self.processes().iter().map(|one| one.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.view.press(key, &names)
        };
        keys(bytes).into_iter().map(press).collect()
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, now: MonoNs) {
        let area = frame.area();
        let above_keys = area.height.saturating_sub(1);
        let mut lines = self.heads(now);
        if self.view.help {
            lines.extend(help());
        } else if self.trouble != Some(NoLook::Down) {
            self.body(&mut lines, above_keys, area.width, now);
        }
        lines.resize(above_keys.into(), Line::default());
        lines.push(self.keys());
        for (y, line) in (0..area.height).zip(&lines) {
            frame.buffer_mut().set_line(area.x, area.y + y, line, area.width);
        }
    }

    /// Draws the process table, and below it as many panes as fit.
    fn body(&self, lines: &mut Vec<Line<'static>>, above_keys: u16, width: u16, now: MonoNs) {
        let rest = above_keys.saturating_sub(2);
        let panes = (rest / 2 / PANE_ROWS).clamp(u16::from(rest >= 12), Pane::ALL.len() as u16);
        let lower = if panes == 0 { 0 } else { rest / 2 };
        let processes = self.processes();
        let names: Vec<&str> = processes.iter().map(|one| one.name.as_str()).collect();
        let chosen = self.view.at(&names);
        lines.extend(self.table(&processes, chosen, rest - lower, width));
        lines.resize((above_keys - lower).into(), Line::default());
        let begin = lines.len();
        for (at, pane) in (1..=usize::from(panes)).zip(successors(Some(self.view.pane), |pane| Some(pane.next()))) {
            let room = lower / panes;
            lines.extend(self.pane(pane, processes.get(chosen).copied(), room, width, now));
            lines.resize(begin + at * usize::from(room), Line::default());
        }
    }

    /// The two lines at the top.
    fn heads(&self, now: MonoNs) -> Vec<Line<'static>> {
        let seen = match (&self.seen, &self.trouble) {
            (seen, Some(NoLook::Down)) => return self.down(seen.as_deref(), now),
            (seen, _) => seen,
        };
        let Some(seen) = seen else {
            let why = self.silence().unwrap_or_else(|| "reading".to_owned());
            return vec![Line::from(vec![head(&self.plant), text(&format!(": {why}"))]), Line::default()];
        };
        let (plant, age) = (&seen.plant, now - seen.plant.now);
        let first = format!(
            ": {} for {}, {}, supervisor {}",
            phase_word(plant.phase),
            short(plant.now - plant.since),
            plant.shield,
            plant.supervisor
        );
        let mut second = Vec::new();
        if self.view.paused {
            second.push(coloured(Color::Yellow, &format!("PAUSED {} ago  ", short(age))));
        } else if age > self.stale || self.trouble.is_some() {
            let why = self.silence().map_or(String::new(), |why| format!(" ({why})"));
            second.push(coloured(Color::Red, &format!("STALE: this is {} old{why}  ", short(age))));
        }
        second.push(match &seen.alarms {
            Ok((0, acknowledged)) => text(&format!("alarms: none active, {acknowledged} acknowledged")),
            Ok((active, acknowledged)) => {
                coloured(Color::Red, &format!("alarms: {active} active, {acknowledged} acknowledged"))
            }
            Err(why) => faint(&format!("alarms: {}", why.brief())),
        });
        if let Some(late) = &seen.late {
            second.push(text(&format!("; late {} of {}", late.late, late.wakeups)));
        }
        second.push(faint(&format!("; top itself {:.1} %", seen.own)));
        vec![Line::from(vec![head(&plant.name), text(&first)]), Line::from(second)]
    }

    /// Why the supervisor does not answer.
    fn silence(&self) -> Option<String> {
        match &self.trouble {
            Some(NoLook::Silent(why)) => Some(why.clone()),
            Some(NoLook::Down) | None => None,
        }
    }

    /// The two lines about a plant that is down.
    fn down(&self, seen: Option<&PlantSample>, now: MonoNs) -> Vec<Line<'static>> {
        let age = seen.map_or(String::new(), |seen| format!("; last seen {} ago", short(now - seen.plant.now)));
        let first = coloured(Color::Red, &format!(": DOWN: the plant went down{age}"));
        let name = &self.plant;
        let second = format!("`tahti up` starts it again and appears here; `tahti logs -P {name}` has the reason");
        vec![Line::from(vec![head(name), first]), Line::from(text(&second))]
    }

    /// The table of processes and, if enabled, their threads.
    fn table(&self, processes: &[&ProcessStatus], chosen: usize, room: u16, width: u16) -> Vec<Line<'static>> {
        let heads = format!(
            "  {:<15} {:>7} {:<9} {:<9} {:<6} {:>6} {:>8} {:>6} {:>4}",
            "process", "pid", "state", "class", "cpus", "cpu %", "memory", "missed", "rst"
        );
        let mut rows = Vec::new();
        let mut chosen_row = 0;
        for (at, process) in processes.iter().enumerate() {
            if at == chosen {
                chosen_row = rows.len();
            }
            rows.push(self.row(process, at == chosen, width));
            if self.view.threads {
                rows.extend(self.threads(process));
            }
        }
        let room = usize::from(room.saturating_sub(1));
        let skipped = (chosen_row + 1).saturating_sub(room.saturating_sub(usize::from(rows.len() > room)));
        let left = rows.len().saturating_sub(skipped + room);
        let mut shown: Vec<Line<'static>> = rows.into_iter().skip(skipped).take(room).collect();
        if left > 0 {
            shown.pop();
            shown.push(faint(&format!("  and {} lines more", left + 1)).into());
        }
        let nothing = (processes.is_empty() && self.seen.is_some())
            .then(|| faint(&format!("  no process has {:?} in its name; Esc shows all", self.view.filter)).into());
        [faint(&heads).into()].into_iter().chain(shown).chain(nothing).collect()
    }

    fn row(&self, one: &ProcessStatus, chosen: bool, width: u16) -> Line<'static> {
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let percent = one.pid.and_then(|pid| self.seen.as_ref()?.percents.get(&pid).copied());
        let state = match state_colour(&one.state) {
            Colour::Good => Color::Green,
            Colour::Bad => Color::Red,
            Colour::Doubtful => Color::Yellow,
            Colour::Head | Colour::Faint => Color::Reset,
        };
        let misses = one.loop_page.as_ref().map(|page| page.misses);
        let missed = format!("{:>6}", or(misses.map(|misses| misses.to_string())));
        let before = format!(
            "{} {:<15.15} {:>7} ",
            if chosen { '>' } else { ' ' },
            visible(&one.name),
            or(one.pid.map(|pid| pid.to_string()))
        );
        let after = format!(
            " {:<9.9} {:<6.6} {:>6} {:>8} ",
            one.class.to_string(),
            one.cpus.to_string(),
            or(percent.map(|percent| format!("{percent:.1}"))),
            or(one.pid.map(|_| format!("{:.1} M", megabytes(one.family_memory().0)))),
        );
        let missed = if misses > Some(0) { coloured(Color::Red, &missed) } else { text(&missed) };
        let state = coloured(state, &format!("{:<9.9}", one.state));
        let mut line =
            Line::from(vec![text(&before), state, text(&after), missed, text(&format!(" {:>4}", one.restarts))]);
        if chosen {
            line.spans.push(text(&" ".repeat(usize::from(width).saturating_sub(line.width()))));
            line.style = Style::new().add_modifier(Modifier::REVERSED);
        }
        line
    }

    fn threads(&self, one: &ProcessStatus) -> Vec<Line<'static>> {
        let Some((seen, pid)) = self.seen.as_ref().zip(one.pid) else { return Vec::new() };
        let all = seen.threads.get(&pid).map(Vec::as_slice).unwrap_or_default();
        let line = |thread: &keep::supervisor::Thread| {
            let percent = seen.percents.get(&-thread.tid).copied().unwrap_or(0.0);
            let (class, cpus) = (thread.class.to_string(), thread.cpus.to_string());
            let name = visible(&thread.name);
            text(&format!("    {name:<13.13} {:>7} {:<9} {class:<9.9} {cpus:<6.6} {percent:>6.1}", thread.tid, ""))
                .into()
        };
        all.iter().filter(|_| all.len() > 1).map(line).collect()
    }

    fn pane(
        &self,
        pane: Pane,
        chosen: Option<&ProcessStatus>,
        room: u16,
        width: u16,
        now: MonoNs,
    ) -> Vec<Line<'static>> {
        let Some(seen) = &self.seen else { return Vec::new() };
        match pane {
            Pane::Latency => latency(seen, chosen, room, width),
            Pane::Late => late(seen, now),
            Pane::Frames => frames(&seen.frames),
            Pane::Details => chosen.map_or_else(Vec::new, |one| details(one, seen.plant.now)),
        }
    }

    fn keys(&self) -> Line<'static> {
        if self.view.typing {
            return head(&format!("names that contain: {}_  (Enter, Esc)", self.view.filter)).into();
        }
        let by = match self.view.sort {
            Sort::Order => "plant",
            Sort::Cpu => "cpu",
            Sort::Memory => "memory",
            Sort::Misses => "missed",
            Sort::Restarts => "restarts",
            Sort::Name => "name",
        };
        let filter = if self.view.filter.is_empty() { String::new() } else { format!(" /{}", self.view.filter) };
        faint(&format!("by {by}{filter}  {KEYS}")).into()
    }
}

/// Text from other programs. Control characters are escaped, so that it cannot control the terminal.
fn text(words: &str) -> Span<'static> {
    Span::raw(visible(words))
}

fn visible(words: &str) -> String {
    Visible { text: words, colours: false }.to_string()
}

fn coloured(colour: Color, words: &str) -> Span<'static> {
    text(words).style(Style::new().fg(colour))
}

fn head(words: &str) -> Span<'static> {
    text(words).style(Style::new().add_modifier(Modifier::BOLD))
}

fn faint(words: &str) -> Span<'static> {
    text(words).style(Style::new().add_modifier(Modifier::DIM))
}

/// Histogram of the wake-up latency of a process's loop. The classes are powers of two; the bar length is the logarithm
/// of the count.
fn latency(seen: &PlantSample, chosen: Option<&ProcessStatus>, room: u16, width: u16) -> Vec<Line<'static>> {
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

fn late(seen: &PlantSample, now: MonoNs) -> Vec<Line<'static>> {
    let Some(late) = &seen.late else {
        return vec![head("Late wake-ups: no flight recorder runs; add [recorder] to the plant file").into()];
    };
    let age = short(now - late.now);
    let title = format!("Wake-ups later than {} (as of {age} ago), newest first:", late.above);
    [head(&title).into()]
        .into_iter()
        .chain(late.last.iter().map(|one| text(&crate::trace::late(one, now)).into()))
        .collect()
}

fn frames(all: &Value) -> Vec<Line<'static>> {
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

fn details(one: &ProcessStatus, now: MonoNs) -> Vec<Line<'static>> {
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

fn help() -> Vec<Line<'static>> {
    const ROWS: [(&str, &str); 13] = [
        ("q, ^C", "quit"),
        ("? h", "this help, and back"),
        ("up down j k", "choose a process; PgUp, PgDn, Home, End"),
        ("/", "only names that contain ...; Esc shows all"),
        ("c m d", "order by processor time, memory, deadlines missed"),
        ("r n o", "order by restarts, name, as in the plant file"),
        ("t", "threads of each process"),
        ("Tab, 1 2 3 4", "latency, late wake-ups, frames, details"),
        ("Enter", "details of the chosen process"),
        ("p", "pause"),
        ("^Z", "suspend; `fg` continues"),
        ("", "cpu: percent of one CPU since the last update; rst: restarts"),
        ("", "Bars are logarithmic. STALE: the plant has not answered."),
    ];
    ROWS.iter().map(|(key, what)| Line::from(vec![head(&format!("  {key:<14}")), text(what)])).collect()
}

#[cfg(test)]
mod tests;

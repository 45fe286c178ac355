//! Draws the screen from the last sample, the view settings and the present time.

mod panes;

use super::Sort;
use super::seen::{NoLook, PlantSample};
use super::view::{Pane, Then, View, keys};
use crate::control::outcome_colour;
use crate::out::Colour;
use crate::ps::{megabytes, state_colour};
use alarm::Severity;
use base::{DurNs, MonoNs, Visible};
use keep::supervisor::control::{Outcome, ProcessStatus};
use keep::supervisor::logs::Line as LogLine;
use keep::supervisor::{phase_word, short};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};
use std::collections::{BTreeMap, VecDeque};
use std::iter::successors;

/// Preferred height of a pane in rows.
const PANE_ROWS: u16 = 9;
const KEYS: &str = "? help  q quit  / filter  Tab panes  s start  x stop  R restart";
/// Samples kept of each figure that is drawn over time.
const HISTORY: usize = 60;
/// Log lines kept of each process.
const LOG_LINES: usize = 200;
/// Height of a bar in eighths.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

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
    /// CPU usage of each process in percent of one CPU, oldest first.
    pub(super) history: BTreeMap<String, VecDeque<f64>>,
    /// The newest log lines of each process, oldest first.
    pub(super) logs: BTreeMap<String, VecDeque<LogLine>>,
    /// What the last action did.
    pub(super) answer: Option<Result<String, String>>,
}

/// Appends to a list of bounded length.
fn append<T>(list: &mut VecDeque<T>, one: T, most: usize) {
    list.push_back(one);
    while list.len() > most {
        list.pop_front();
    }
}

impl Model {
    pub(super) fn new(plant: &str, view: View, stale: DurNs) -> Self {
        let (history, logs) = (BTreeMap::new(), BTreeMap::new());
        Self { plant: plant.to_owned(), view, seen: None, trouble: None, stale, history, logs, answer: None }
    }

    /// Takes a sample.
    pub(super) fn take(&mut self, mut seen: Box<PlantSample>) {
        let lives = |name: &String| seen.plant.processes.iter().any(|one| one.name == *name);
        self.history.retain(|name, _| lives(name));
        self.logs.retain(|name, _| lives(name));
        for one in &seen.plant.processes {
            let percent = one.pid.and_then(|pid| seen.percents.get(&pid)).copied().unwrap_or(0.0);
            append(self.history.entry(one.name.clone()).or_default(), percent, HISTORY);
        }
        for line in seen.log.drain(..) {
            append(self.logs.entry(line.process.clone()).or_default(), line, LOG_LINES);
        }
        (self.seen, self.trouble) = (Some(seen), None);
    }

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
        let rest = above_keys.saturating_sub(lines.len() as u16);
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
        let outcome = &plant.outcome;
        let colour = screen_colour(outcome_colour(outcome));
        let sign = match outcome {
            Outcome::Good => "●",
            Outcome::Degraded(_) => "▲",
            Outcome::Failed(_) => "◆",
        };
        let first = vec![
            head(&plant.name),
            text(&format!(": {} for {}, ", phase_word(plant.phase), short(plant.now - plant.since))),
            coloured(colour, &format!("{sign} {}", outcome.word())),
            text(&format!(", {}, supervisor {}", plant.shield, plant.supervisor)),
        ];
        let reason = match outcome.summary().as_slice() {
            [] => text("all promises are kept"),
            [first, rest @ ..] => {
                let more =
                    if rest.is_empty() { String::new() } else { format!(" (and {} more: `tahti ps`)", rest.len()) };
                coloured(colour, &format!("{}{more}", first.words(short)))
            }
        };
        let mut second = Vec::new();
        if self.view.paused {
            second.push(coloured(Color::Yellow, &format!("PAUSED {} ago  ", short(age))));
        } else if age > self.stale || self.trouble.is_some() {
            let why = self.silence().map_or(String::new(), |why| format!(" ({why})"));
            second.push(coloured(Color::Red, &format!("STALE: this is {} old{why}  ", short(age))));
        }
        second.push(match &seen.alarms {
            Ok(all) => {
                let mut active = all.rows.iter().filter(|alarm| alarm.severity.is_active()).peekable();
                let colour = active.peek().map_or(Color::Reset, |worst| severity_colour(worst.severity));
                let names: Vec<&str> = active.by_ref().take(2).map(|alarm| alarm.path.as_str()).collect();
                let more = match active.count() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                match names.is_empty() {
                    true => text(&format!("alarms: none active, {} acknowledged", all.acknowledged)),
                    false => coloured(colour, &format!("alarms: {}{more}", names.join(", "))),
                }
            }
            Err(why) => faint(&format!("alarms: {}", why.brief())),
        });
        if let Some(late) = &seen.late {
            second.push(text(&format!("; late {} of {}", late.late, late.wakeups)));
        }
        let cpus = seen.cpus.iter().map(|(cpu, percent)| format!("{cpu} {}", bar(*percent, 100.0)));
        let third = format!("CPUs  {}   top itself {:.1} %", cpus.collect::<Vec<_>>().join("  "), seen.own);
        vec![Line::from(first), reason.into(), Line::from(second), faint(&third).into()]
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
            "  {:<15} {:>7} {:<9} {:<9} {:<6} {:>6} {:>8} {:>6} {:>4}  {}",
            "process", "pid", "state", "class", "cpus", "cpu %", "memory", "missed", "rst", "cpu over time"
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
        let state = screen_colour(state_colour(&one.state));
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
            Line::from(vec![text(&before), state, text(&after), missed, text(&format!(" {:>4}  ", one.restarts))]);
        line.spans.extend(self.history.get(&one.name).map(|history| text(&sparkline(history, room_after(width)))));
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
            let percent = seen.percents.get(&-thread.tid).map_or_else(|| "-".to_owned(), |one| format!("{one:.1}"));
            let (class, cpus) = (thread.class.to_string(), thread.cpus.to_string());
            let name = visible(&thread.name);
            text(&format!("    {name:<13.13} {:>7} {:<9} {class:<9.9} {cpus:<6.6} {percent:>6}", thread.tid, "")).into()
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
            Pane::Latency => panes::latency(seen, chosen, room, width),
            Pane::Late => panes::late(seen, now),
            Pane::Frames => panes::frames(&seen.frames),
            Pane::Details => chosen.map_or_else(Vec::new, |one| panes::details(one, seen.plant.now)),
            Pane::Log => chosen.map_or_else(Vec::new, |one| panes::log(&one.name, self.logs.get(&one.name), room)),
            Pane::Alarms => panes::alarms(seen),
        }
    }

    fn keys(&self) -> Line<'static> {
        if let Some((action, name)) = &self.view.confirm {
            return head(&format!("{} {name}?  y yes, any other key no", action.word())).into();
        }
        match &self.answer {
            Some(Ok(done)) => return text(done).into(),
            Some(Err(why)) => return coloured(Color::Red, why).into(),
            None => {}
        }
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
        faint(&format!("{KEYS}  by {by}{filter}")).into()
    }
}

/// The terminal's colour.
fn screen_colour(colour: Colour) -> Color {
    match colour {
        Colour::Good => Color::Green,
        Colour::Bad => Color::Red,
        Colour::Doubtful => Color::Yellow,
        Colour::Head | Colour::Faint => Color::Reset,
    }
}

fn severity_colour(severity: Severity) -> Color {
    match severity {
        _ if !severity.is_active() => Color::Reset,
        Severity::Minor => Color::Yellow,
        Severity::Invalid | Severity::Undefined => Color::Magenta,
        _ => Color::Red,
    }
}

/// Columns for a sparkline after the table's other columns.
fn room_after(width: u16) -> usize {
    usize::from(width).saturating_sub(84).min(HISTORY)
}

/// The newest values as bars, relative to their maximum, but at least to 10.
fn sparkline(values: &VecDeque<f64>, room: usize) -> String {
    let newest = values.iter().skip(values.len().saturating_sub(room));
    let most = newest.clone().copied().fold(10.0, f64::max);
    newest.map(|value| bar(*value, most)).collect()
}

/// A bar of one character.
fn bar(value: f64, most: f64) -> char {
    BARS[((value / most * 7.0).round() as usize).min(7)]
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

fn help() -> Vec<Line<'static>> {
    const ROWS: [(&str, &str); 14] = [
        ("q, ^C", "quit"),
        ("? h", "this help, and back"),
        ("up down j k", "choose a process; PgUp, PgDn, Home, End"),
        ("/", "only names that contain ...; Esc shows all"),
        ("c m d", "order by processor time, memory, deadlines missed"),
        ("r n o", "order by restarts, name, as in the plant file"),
        ("t", "threads of each process"),
        ("Tab, 1 to 6", "latency, late wake-ups, frames, details, log, alarms"),
        ("Enter", "details of the chosen process"),
        ("s x R", "start, stop or restart the chosen process, after y"),
        ("p", "pause"),
        ("^Z", "suspend; `fg` continues"),
        ("", "cpu: percent of one CPU since the last update; rst: restarts"),
        ("", "Bars are logarithmic. STALE: the plant has not answered."),
    ];
    ROWS.iter().map(|(key, what)| Line::from(vec![head(&format!("  {key:<14}")), text(what)])).collect()
}

#[cfg(test)]
mod tests;

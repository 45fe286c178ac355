//! Alarm statistics for a period, according to ISA-18.2 (IEC 62682), computed from the journal.

use crate::{Entry, EntryContent, Severity, State, Wall};
use base::DurNs;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

const SECOND: i64 = 1_000_000_000;
/// A flood starts with more than this many alarms in ten minutes, and ends with fewer than the second limit.
const FLOOD_TIME: i64 = 600 * SECOND;
const FLOOD_BEGINS: usize = 10;
const FLOOD_ENDS: usize = 5;
/// Chattering: at least this many alarms of a channel within a minute.
const CHATTER_TIME: i64 = 60 * SECOND;
const CHATTER_COUNT: usize = 3;
/// An alarm active for this long is stale.
const STALE_AFTER: i64 = 24 * 3600 * SECOND;
/// Maximum alarms in a list.
const LIST_MAX: usize = 20;

/// Statistics of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Start.
    pub from: Wall,
    /// End.
    pub to: Wall,
    /// Time within the period during which a server evaluated alarms, in seconds. Rates refer to it.
    pub evaluated_secs: f64,
    /// Number of alarms presented to operators: rises, alarms that became visible while active, and repetitions (`realarm`).
    pub alarms: usize,
    /// Alarms per hour of evaluation. ISA-18.2: about 6 per operator are good, 12 the maximum.
    pub per_hour: f64,
    /// Maximum number within ten minutes.
    pub ten_minutes_max: usize,
    /// Number of floods: from more than ten alarms within ten minutes until fewer than five.
    pub floods: usize,
    /// Share of the evaluated time in a flood, in percent. ISA-18.2: below 1.
    pub flooded_percent: f64,
    /// Number of alarms by severity. ISA-18.2: about 80 % minor, 15 % major, 5 % more severe.
    pub by_severity: BTreeMap<String, usize>,
    /// Number of acknowledgements.
    pub acknowledged: usize,
    /// Median time until acknowledgement, in seconds; `None` if there was none.
    pub acknowledged_after_secs: Option<f64>,
    /// The most frequent alarms with their shares. ISA-18.2: the first ten below 5 % together.
    pub top: Vec<FrequentAlarm>,
    /// Chattering alarms: at least three times within a minute, with a suggested remedy.
    pub chattering: Vec<Chatter>,
    /// Alarms active for more than a day.
    pub stale: Vec<StaleAlarm>,
    /// Alarms hidden at the end of the period.
    pub aside: Vec<HiddenAlarm>,
}

/// Frequency of an alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrequentAlarm {
    /// Its path.
    pub path: String,
    /// Number of times.
    pub count: usize,
    /// Share of all alarms, in percent.
    pub percent: f64,
}

/// A chattering alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chatter {
    /// Its path.
    pub path: String,
    /// Maximum number within a minute.
    pub per_minute: usize,
    /// An `off_delay` that would have merged them into one alarm: the maximum time without alarm between two, rounded up.
    pub off_delay: String,
}

/// A stale alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StaleAlarm {
    /// Its path.
    pub path: String,
    /// Its severity.
    pub severity: Severity,
    /// Start.
    pub since: Wall,
}

/// A hidden alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HiddenAlarm {
    /// Its path.
    pub path: String,
    /// The way of hiding: shelved, suppressed, out of service or disabled.
    pub how: String,
    /// The user, or the filter if it is suppressed.
    pub by: String,
}

/// State of an alarm during the computation.
#[derive(Clone, Debug, Default)]
struct One {
    state: State,
    /// Time since when the channel has been in alarm.
    since: Option<Wall>,
    /// Time of the last rise, until it is acknowledged.
    rose: Option<Wall>,
    count: usize,
    /// Times within the last minute when the channel went into alarm.
    comes: VecDeque<Wall>,
    went: Option<Wall>,
    per_minute: usize,
    /// Maximum time without alarm before the next one within a minute.
    well: DurNs,
}

/// Computes statistics from entries.
#[derive(Clone, Debug, Default)]
pub struct Reckoner {
    all: BTreeMap<String, One>,
    rises: VecDeque<Wall>,
    figures: Figures,
    flood: Option<Wall>,
    flooded: i64,
    until_acknowledged: Vec<i64>,
    server: Server,
    /// Time of the last entry.
    last: Option<Wall>,
    /// Total run time of servers that have ended, in nanoseconds. A server that ran at the beginning is added at the end, from
    /// its stop time.
    evaluated: i64,
    ended_first: Option<Wall>,
}

/// Whether a server is evaluating alarms.
#[derive(Clone, Copy, Debug, Default)]
enum Server {
    /// Yes, since before the period.
    #[default]
    RunsFromTheBeginning,
    /// Yes, since this time.
    RunsSince(Wall),
    /// No.
    Ended,
}

impl Reckoner {
    /// Tracks starts and ends of servers. A killed server is assumed to have ended with its last entry.
    fn server(&mut self, entry: &Entry) {
        match &entry.what {
            EntryContent::Begins { started: true, .. } => {
                self.end_server(self.last);
                self.server = Server::RunsSince(entry.at);
            }
            EntryContent::Stopped => {
                self.end_server(Some(entry.at));
                self.server = Server::Ended;
            }
            _ => {}
        }
        self.last = Some(entry.at);
    }

    fn end_server(&mut self, at: Option<Wall>) {
        match (self.server, at) {
            (Server::RunsSince(since), Some(at)) => self.evaluated += (at.0 - since.0).max(0),
            (Server::RunsFromTheBeginning, at) => self.ended_first = at,
            _ => {}
        }
    }

    /// Processes the next entry. `is_snapshot`: it is part of the state at the start of a file.
    pub fn take(&mut self, entry: &Entry, is_snapshot: bool) {
        self.server(entry);
        let EntryContent::State { state, announce } = &entry.what else { return };
        let (at, one) = (entry.at, self.all.entry(entry.path.clone()).or_default());
        let before = std::mem::replace(&mut one.state, state.clone());
        let (was, is) = (before.alarm.severity, state.alarm.severity);
        if is == Severity::Ok && state.current_severity == Severity::Ok {
            one.since = None;
        } else {
            one.since.get_or_insert(if is_snapshot { state.alarm.time } else { at });
        }
        if is_snapshot {
            return;
        }
        match (before.current_severity, state.current_severity) {
            (Severity::Ok, now) if now != Severity::Ok => one.came(at),
            (then, Severity::Ok) if then != Severity::Ok => one.went = Some(at),
            _ => {}
        }
        let is_new = is.update_rank() > was.update_rank() || before.hidden().is_some();
        if is.is_active() && state.hidden().is_none() && (is_new || announce.is_some()) {
            one.count += 1;
            // An alarm that is announced again has waited for its acknowledgement since the first time.
            one.rose = one.rose.filter(|_| !is_new).or(Some(at));
            *self.figures.by_severity.entry(is.name().to_owned()).or_default() += 1;
            self.rose(at);
        } else if was.is_active() && !is.is_active() && (is != Severity::Ok || before.current_severity == Severity::Ok)
        {
            // Acknowledged while active or after it ended.
            self.until_acknowledged.extend(one.rose.take().map(|rose| at.0 - rose.0));
        }
    }

    fn rose(&mut self, at: Wall) {
        self.calm(at);
        self.figures.alarms += 1;
        self.rises.push_back(at);
        self.figures.ten_minutes_max = self.figures.ten_minutes_max.max(self.rises.len());
        if self.rises.len() > FLOOD_BEGINS && self.flood.is_none() {
            self.flood = Some(at);
            self.figures.floods += 1;
        }
    }

    /// Drops rises older than ten minutes, and ends a flood if few enough remain.
    fn calm(&mut self, now: Wall) {
        while let Some(first) = self.rises.front().copied().filter(|first| first.0 + FLOOD_TIME <= now.0) {
            self.rises.pop_front();
            if self.rises.len() < FLOOD_ENDS
                && let Some(began) = self.flood.take()
            {
                self.flooded += (first.0 + FLOOD_TIME - began.0).max(0);
            }
        }
    }

    /// Statistics from `from` to `to`. `is_running`: a server was running at the end, unless the journal records its stop.
    #[must_use]
    pub fn finish(mut self, from: Wall, to: Wall, is_running: bool) -> Figures {
        let end = if is_running { Some(to) } else { self.last };
        self.end_server(end);
        let first = self.ended_first.map_or(0, |ended| (ended.0 - from.0).max(0));
        let evaluated = self.evaluated + first;
        self.calm(to);
        if let Some(began) = self.flood.take() {
            self.flooded += (end.unwrap_or(to).0 - began.0).max(0);
        }
        let span = evaluated.max(1) as f64;
        let mut figures = self.figures;
        (figures.from, figures.to, figures.evaluated_secs) = (from, to, evaluated as f64 / SECOND as f64);
        // Without evaluation there are no alarms either.
        figures.per_hour = figures.alarms as f64 * 3600.0 * SECOND as f64 / span;
        figures.flooded_percent = 100.0 * self.flooded as f64 / span;
        self.until_acknowledged.sort_unstable();
        figures.acknowledged = self.until_acknowledged.len();
        figures.acknowledged_after_secs =
            self.until_acknowledged.get(figures.acknowledged / 2).map(|ns| *ns as f64 / SECOND as f64);
        let percent = |count: usize| 100.0 * count as f64 / figures.alarms.max(1) as f64;
        for (path, one) in self.all {
            let severity = one.state.alarm.severity;
            if one.count > 0 {
                figures.top.push(FrequentAlarm { path: path.clone(), count: one.count, percent: percent(one.count) });
            }
            if one.per_minute >= CHATTER_COUNT {
                let off_delay = DurNs::from_secs((one.well.0 / SECOND) + 1).to_string();
                figures.chattering.push(Chatter { path: path.clone(), per_minute: one.per_minute, off_delay });
            }
            if let Some(how) = one.state.hidden() {
                let state = &one.state;
                let mark = state.disabled.as_ref().or(state.out_of_service.as_ref()).map(|mark| mark.by.clone());
                let by = mark.or(state.shelved.as_ref().map(|shelf| shelf.by.clone()));
                let by = by.unwrap_or_else(|| "its filter".to_owned());
                figures.aside.push(HiddenAlarm { path, how: how.to_owned(), by });
            } else if let Some(since) = one.since.filter(|since| to.0 - since.0 > STALE_AFTER) {
                figures.stale.push(StaleAlarm { path, severity, since });
            }
        }
        figures.top.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.path.cmp(&other.path)));
        figures.top.truncate(LIST_MAX);
        figures.chattering.sort_by_key(|one| std::cmp::Reverse(one.per_minute));
        figures.stale.sort_by_key(|one| one.since);
        figures
    }
}

impl One {
    /// The channel went into alarm.
    fn came(&mut self, at: Wall) {
        while self.comes.front().is_some_and(|first| first.0 + CHATTER_TIME <= at.0) {
            self.comes.pop_front();
        }
        if let (Some(went), false) = (self.went, self.comes.is_empty()) {
            self.well = self.well.max(DurNs((at.0 - went.0).max(0)));
        }
        self.comes.push_back(at);
        self.per_minute = self.per_minute.max(self.comes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    fn at(secs: i64) -> Wall {
        Wall(secs * SECOND)
    }

    fn entry(secs: i64, path: &str, alarm: Severity, current: Severity) -> Entry {
        let moment = Moment { severity: alarm, message: String::new(), value: String::new(), time: at(secs) };
        let state = State { alarm: moment, current_severity: current, ..State::default() };
        Entry { at: at(secs), path: path.to_owned(), what: EntryContent::State { state, announce: None } }
    }

    use Severity::{Major, MajorAck, Minor, Ok as Well};

    #[test]
    fn a_flood_is_more_than_ten_in_ten_minutes_until_fewer_than_five() {
        let mut reckoner = Reckoner::default();
        for minute in 0..11 {
            let secs = 1000 + minute * 30;
            reckoner.take(&entry(secs, &format!("/a/{minute}"), Major, Major), false);
        }
        // The eleventh alarm is at 1300 s. The seventh is dropped at 1780 s, leaving four.
        let figures = reckoner.finish(at(0), at(7200), true);
        assert_eq!((figures.alarms, figures.floods, figures.ten_minutes_max), (11, 1, 11));
        assert!((figures.per_hour - 5.5).abs() < 1e-9, "{figures:?}");
        assert!((figures.flooded_percent - 100.0 * 480.0 / 7200.0).abs() < 1e-9, "{figures:?}");
        assert_eq!(figures.top.len(), 11);
    }

    /// Entry for a server's start or stop.
    fn server(secs: i64, is_start: bool) -> Entry {
        let begins = EntryContent::Begins { started: true, maintenance: false, states: 0 };
        Entry { at: at(secs), path: String::new(), what: if is_start { begins } else { EntryContent::Stopped } }
    }

    #[test]
    fn rates_are_relative_to_the_time_in_which_a_server_evaluated_alarms() {
        let of = |entries: &[Entry], is_running| {
            let mut reckoner = Reckoner::default();
            entries.iter().for_each(|entry| reckoner.take(entry, false));
            let figures = reckoner.finish(at(0), at(86_400), is_running);
            (figures.evaluated_secs as i64, (figures.per_hour * 10.0).round() / 10.0)
        };
        let rise = entry(1000, "/a/x", Major, Major);
        assert_eq!(of(std::slice::from_ref(&rise), true), (86_400, 0.0), "an alarm of the whole span");
        assert_eq!(of(&[rise.clone(), server(3600, false)], false), (3600, 1.0), "it ended");
        assert_eq!(of(&[server(400, true), rise.clone(), server(2200, false)], false), (1800, 2.0));
        // A killed server ended with its last entry; the next one is still running.
        let killed = [server(400, true), rise.clone(), server(86_400 - 1200, true)];
        assert_eq!(of(&killed, true), (600 + 1200, 2.0));
        assert_eq!(of(&killed[..2], false), (600, 6.0));
        assert_eq!(of(&[server(86_000, true)], true), (400, 0.0));
        assert_eq!((of(&[], true), of(&[], false)), ((86_400, 0.0), (0, 0.0)));
    }

    #[test]
    fn a_repeated_alarm_is_reported_as_chattering_with_a_suitable_off_delay() {
        let mut reckoner = Reckoner::default();
        for (secs, current) in [(0, Minor), (5, Well), (12, Minor), (15, Well), (24, Minor)] {
            reckoner.take(&entry(secs, "/a/x", Minor, current), false);
        }
        for (secs, current) in [(0, Minor), (5, Well), (70, Minor)] {
            reckoner.take(&entry(secs, "/a/slow", Minor, current), false);
        }
        let figures = reckoner.finish(at(0), at(3600), true);
        let expected = Chatter { path: "/a/x".into(), per_minute: 3, off_delay: "10s".into() };
        assert_eq!(figures.chattering, [expected]);
        assert_eq!(figures.alarms, 2, "latched: one alarm each");
    }

    #[test]
    fn stale_and_shelved_alarms_and_the_time_to_acknowledge_are_reported() {
        let mut reckoner = Reckoner::default();
        reckoner.take(&entry(0, "/a/old", Major, Major), true);
        reckoner.take(&entry(100, "/a/new", Major, Major), false);
        reckoner.take(&entry(130, "/a/new", MajorAck, Major), false);
        reckoner.take(&entry(200, "/a/over", Minor, Minor), false);
        reckoner.take(&entry(210, "/a/over", Minor, Well), false);
        reckoner.take(&entry(290, "/a/over", Well, Well), false);
        let mut shelved = entry(300, "/a/shelf", Minor, Minor);
        let EntryContent::State { state, .. } = &mut shelved.what else { unreachable!() };
        state.shelved = Some(crate::Shelf { until: at(9), once: false, by: "bob".into(), why: String::new() });
        reckoner.take(&shelved, false);
        let figures = reckoner.finish(at(0), at(90_000), true);
        assert_eq!((figures.alarms, figures.acknowledged, figures.acknowledged_after_secs), (2, 2, Some(90.0)));
        let stale: Vec<&str> = figures.stale.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(stale, ["/a/old", "/a/new"]);
        assert_eq!(figures.aside, [HiddenAlarm { path: "/a/shelf".into(), how: "shelved".into(), by: "bob".into() }]);
        assert_eq!(figures.by_severity, [("MAJOR".to_owned(), 1), ("MINOR".to_owned(), 1)].into());
    }
}

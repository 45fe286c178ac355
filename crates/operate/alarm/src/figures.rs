//! How the alarms of a time did, in the figures of ISA-18.2 (IEC 62682), from the entries of their journal.

use crate::{Entry, Severity, State, Wall, What};
use base::DurNs;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

const SECOND: i64 = 1_000_000_000;
/// A flood begins with more than so many alarms in ten minutes, and ends with fewer than so many.
const FLOOD_TIME: i64 = 600 * SECOND;
const FLOOD_BEGINS: usize = 10;
const FLOOD_ENDS: usize = 5;
/// So many returns into alarm within a minute are chattering.
const CHATTER_TIME: i64 = 60 * SECOND;
const CHATTER_COUNT: usize = 3;
/// An alarm that has lasted for so long is stale.
const STALE_AFTER: i64 = 24 * 3600 * SECOND;
/// Most alarms in a list.
const LIST_MAX: usize = 20;

/// The figures of a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// When it begins.
    pub from: Wall,
    /// When it ends.
    pub to: Wall,
    /// How long alarms were evaluated within it, seconds: rates are of that time.
    pub evaluated_secs: f64,
    /// Alarms that were announced or would have been: rises of what is not put aside.
    pub alarms: usize,
    /// As many in an hour in which alarms were evaluated. ISA-18.2: about 6 for an operator are good, 12 the most.
    pub per_hour: f64,
    /// Most within ten minutes.
    pub ten_minutes_max: usize,
    /// Floods: more than ten within ten minutes, until fewer than five.
    pub floods: usize,
    /// Which share of the time in which alarms were evaluated was flooded, percent. ISA-18.2: below 1.
    pub flooded_percent: f64,
    /// How many of which severity. ISA-18.2: about 80 % minor, 15 % major, 5 % what is worse.
    pub by_severity: BTreeMap<String, usize>,
    /// What was acknowledged, and after how long in the middle, seconds.
    pub acknowledged: usize,
    /// The median; none where nothing was acknowledged.
    pub acknowledged_after_secs: Option<f64>,
    /// Those that came most often, with their share of all. ISA-18.2: the first ten below 5 % together.
    pub top: Vec<Often>,
    /// Those that came and went at least three times within a minute, with what would help.
    pub chattering: Vec<Chatter>,
    /// Those that have lasted for more than a day.
    pub stale: Vec<Standing>,
    /// Those that are put aside at the end, with how.
    pub aside: Vec<Aside>,
}

/// How often an alarm came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Often {
    /// Its path.
    pub path: String,
    /// How often.
    pub count: usize,
    /// Share of all, percent.
    pub percent: f64,
}

/// An alarm that comes and goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chatter {
    /// Its path.
    pub path: String,
    /// Most times within a minute.
    pub per_minute: usize,
    /// An `off_delay` that would have made one alarm of them: the longest time that it was well between two, rounded up.
    pub off_delay: String,
}

/// An alarm that lasts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Its path.
    pub path: String,
    /// Its severity.
    pub severity: Severity,
    /// Since when.
    pub since: Wall,
}

/// An alarm that is put aside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aside {
    /// Its path.
    pub path: String,
    /// How: shelved, suppressed, out of service or disabled.
    pub how: String,
    /// By whom; the filter itself where it is suppressed.
    pub by: String,
}

/// What is known of one alarm while entries come.
#[derive(Clone, Debug, Default)]
struct One {
    state: State,
    /// Since when the channel is in alarm.
    since: Option<Wall>,
    /// When it rose last, for the time until it is acknowledged.
    rose: Option<Wall>,
    count: usize,
    /// When its channel came into alarm within the last minute.
    comes: VecDeque<Wall>,
    went: Option<Wall>,
    per_minute: usize,
    /// Longest time that it was well before it came again within a minute.
    well: DurNs,
}

/// Reckons figures, an entry at a time.
#[derive(Clone, Debug, Default)]
pub struct Reckoner {
    all: BTreeMap<String, One>,
    rises: VecDeque<Wall>,
    figures: Figures,
    flood: Option<Wall>,
    flooded: i64,
    until_acknowledged: Vec<i64>,
    server: Server,
    /// When the last entry was written.
    last: Option<Wall>,
    /// How long servers ran that have ended, nanoseconds; of one that ran at the beginning up to its end, which is put off.
    evaluated: i64,
    ended_first: Option<Wall>,
}

/// Whether a server evaluates alarms.
#[derive(Clone, Copy, Debug, Default)]
enum Server {
    /// One did when the time began.
    #[default]
    RunsFromTheBeginning,
    /// One does since then.
    RunsSince(Wall),
    /// None does.
    Ended,
}

impl Reckoner {
    /// Notes starts and ends of servers. One that was killed ended with its last entry, as far as is known.
    fn server(&mut self, entry: &Entry) {
        match &entry.what {
            What::Begins { started: true, .. } => {
                self.end_server(self.last);
                self.server = Server::RunsSince(entry.at);
            }
            What::Stopped => {
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

    /// Takes the next entry; `is_snapshot`: it is only the state in which things were when a file began.
    pub fn take(&mut self, entry: &Entry, is_snapshot: bool) {
        self.server(entry);
        let What::State { state, .. } = &entry.what else { return };
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
        if is.is_active() && is.update_rank() > was.update_rank() && state.hidden().is_none() {
            one.count += 1;
            one.rose = Some(at);
            *self.figures.by_severity.entry(is.name().to_owned()).or_default() += 1;
            self.rose(at);
        } else if was.is_active() && !is.is_active() && (is != Severity::Ok || before.current_severity == Severity::Ok)
        {
            // Acknowledged, while it lasts or after it was over.
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

    /// Forgets what is ten minutes old; a flood ends when few enough are left.
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

    /// The figures of the time from `from` to `to`; `is_running`: a server evaluates alarms at its end, if the journal does not know of
    /// the server's end.
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
        // Where nothing was evaluated there is no alarm, either.
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
                figures.top.push(Often { path: path.clone(), count: one.count, percent: percent(one.count) });
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
                figures.aside.push(Aside { path, how: how.to_owned(), by });
            } else if let Some(since) = one.since.filter(|since| to.0 - since.0 > STALE_AFTER) {
                figures.stale.push(Standing { path, severity, since });
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
    /// The channel has come into alarm.
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
        Entry { at: at(secs), path: path.to_owned(), what: What::State { state, announce: None } }
    }

    use Severity::{Major, MajorAck, Minor, Ok as Well};

    #[test]
    fn a_flood_is_more_than_ten_in_ten_minutes_until_fewer_than_five() {
        let mut reckoner = Reckoner::default();
        for minute in 0..11 {
            let secs = 1000 + minute * 30;
            reckoner.take(&entry(secs, &format!("/a/{minute}"), Major, Major), false);
        }
        // The eleventh came at 1300, the seventh is forgotten at 1780: four are left.
        let figures = reckoner.finish(at(0), at(7200), true);
        assert_eq!((figures.alarms, figures.floods, figures.ten_minutes_max), (11, 1, 11));
        assert!((figures.per_hour - 5.5).abs() < 1e-9, "{figures:?}");
        assert!((figures.flooded_percent - 100.0 * 480.0 / 7200.0).abs() < 1e-9, "{figures:?}");
        assert_eq!(figures.top.len(), 11);
    }

    /// A server's start or end.
    fn server(secs: i64, is_start: bool) -> Entry {
        let begins = What::Begins { started: true, maintenance: false, states: 0 };
        Entry { at: at(secs), path: String::new(), what: if is_start { begins } else { What::Stopped } }
    }

    #[test]
    fn rates_are_of_the_time_in_which_a_server_evaluated_alarms() {
        let of = |entries: &[Entry], is_running| {
            let mut reckoner = Reckoner::default();
            entries.iter().for_each(|entry| reckoner.take(entry, false));
            let figures = reckoner.finish(at(0), at(86_400), is_running);
            (figures.evaluated_secs as i64, (figures.per_hour * 10.0).round() / 10.0)
        };
        let rise = entry(1000, "/a/x", Major, Major);
        assert_eq!(of(std::slice::from_ref(&rise), true), (86_400, 0.0), "one that ran all the time");
        assert_eq!(of(&[rise.clone(), server(3600, false)], false), (3600, 1.0), "it ended");
        assert_eq!(of(&[server(400, true), rise.clone(), server(2200, false)], false), (1800, 2.0));
        // One that was killed ended with its last entry; the next runs on.
        let killed = [server(400, true), rise.clone(), server(86_400 - 1200, true)];
        assert_eq!(of(&killed, true), (600 + 1200, 2.0));
        assert_eq!(of(&killed[..2], false), (600, 6.0));
        assert_eq!(of(&[server(86_000, true)], true), (400, 0.0));
        assert_eq!((of(&[], true), of(&[], false)), ((86_400, 0.0), (0, 0.0)));
    }

    #[test]
    fn what_comes_and_goes_is_chattering_also_while_it_is_latched_and_what_helps_is_told() {
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
    fn what_stands_long_what_is_aside_and_how_soon_is_acknowledged_are_told() {
        let mut reckoner = Reckoner::default();
        reckoner.take(&entry(0, "/a/old", Major, Major), true);
        reckoner.take(&entry(100, "/a/new", Major, Major), false);
        reckoner.take(&entry(130, "/a/new", MajorAck, Major), false);
        reckoner.take(&entry(200, "/a/over", Minor, Minor), false);
        reckoner.take(&entry(210, "/a/over", Minor, Well), false);
        reckoner.take(&entry(290, "/a/over", Well, Well), false);
        let mut shelved = entry(300, "/a/shelf", Minor, Minor);
        let What::State { state, .. } = &mut shelved.what else { unreachable!() };
        state.shelved = Some(crate::Shelf { until: at(9), once: false, by: "bob".into(), why: String::new() });
        reckoner.take(&shelved, false);
        let figures = reckoner.finish(at(0), at(90_000), true);
        assert_eq!((figures.alarms, figures.acknowledged, figures.acknowledged_after_secs), (2, 2, Some(90.0)));
        let stale: Vec<&str> = figures.stale.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(stale, ["/a/old", "/a/new"]);
        assert_eq!(figures.aside, [Aside { path: "/a/shelf".into(), how: "shelved".into(), by: "bob".into() }]);
        assert_eq!(figures.by_severity, [("MAJOR".to_owned(), 1), ("MINOR".to_owned(), 1)].into());
    }
}

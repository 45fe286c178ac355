//! All alarms of a plant: takes updates of channels and actions of users, produces journal entries.

use crate::config::{joined, split};
use crate::{
    Alarm, Area, Config, Filter, Guide, Mark, Moment, Now, Severity, Shelf, Spec, State, StateChange, Update, Wall,
};
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Message of an alarm whose channel is disconnected, as in Phoebus.
const DISCONNECTED: &str = "Disconnected";

/// Author of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Name of the user on this machine; the user number if there is no name.
    pub user: String,
    /// User number, from the kernel.
    pub uid: u32,
    /// Process id of the client.
    pub pid: i32,
    /// Name given by the client, unverified.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on_behalf_of: String,
}

/// Actions on alarms. Names are of channels or paths; `*` and `?` match as in a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// Acknowledge.
    Acknowledge {
        /// Names of the alarms.
        names: Vec<String>,
    },
    /// Revert an acknowledgement.
    Unacknowledge {
        /// Names of the alarms.
        names: Vec<String>,
    },
    /// Shelve for some time: evaluate and log, but do not display.
    Shelve {
        /// Names of the alarms.
        names: Vec<String>,
        /// Duration, such as `"1h"`.
        time: String,
        /// Also unshelve as soon as the alarm has returned to normal.
        #[serde(default)]
        once: bool,
        /// The reason.
        #[serde(default)]
        why: String,
    },
    /// Unshelve.
    Unshelve {
        /// Names of the alarms.
        names: Vec<String>,
    },
    /// Disable evaluation.
    Disable {
        /// Names of the alarms.
        names: Vec<String>,
        /// Duration; default: until enabled.
        #[serde(default)]
        time: Option<String>,
        /// The reason.
        #[serde(default)]
        why: String,
    },
    /// Enable evaluation.
    Enable {
        /// Names of the alarms.
        names: Vec<String>,
    },
    /// Take out of service for maintenance: evaluate and log, but do not display, until put back into service.
    OutOfService {
        /// Names of the alarms.
        names: Vec<String>,
        /// The reason.
        #[serde(default)]
        why: String,
    },
    /// Put back into service.
    InService {
        /// Names of the alarms.
        names: Vec<String>,
    },
    /// Maintenance mode: acknowledge invalid and undefined states automatically, without announcing them.
    Maintenance {
        /// On or off.
        on: bool,
    },
}

impl Act {
    /// Names of the alarms; empty if the action affects all.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Maintenance { .. } => &[],
            Self::Acknowledge { names }
            | Self::Unacknowledge { names }
            | Self::Unshelve { names }
            | Self::Enable { names }
            | Self::InService { names }
            | Self::Shelve { names, .. }
            | Self::Disable { names, .. }
            | Self::OutOfService { names, .. } => names,
        }
    }
}

/// Reason why an action is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// No alarm has this name.
    #[error("no alarm has the name {name:?}{}", meant(.nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// No names given.
    #[error("no alarm given; expected names of channels or paths, with * and ?")]
    NoNames,
    /// Invalid duration.
    #[error("the time {found:?} cannot be used; expected 1s to {most}, such as 1h")]
    Time {
        /// The text given.
        found: String,
        /// Maximum duration.
        most: DurNs,
    },
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `tahti alarm list --all` shows them".to_owned(),
        |nearest| format!("; did you mean {nearest:?}?"),
    )
}

/// Content of a journal entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryContent {
    /// Start of a journal file; the following states are those at that time.
    Begins {
        /// Whether the server was started too.
        started: bool,
        /// Whether maintenance mode is on.
        maintenance: bool,
        /// Number of states that follow; all other alarms are normal.
        states: usize,
    },
    /// The server was stopped.
    Stopped,
    /// Complete state of an alarm after a change.
    State {
        /// The state.
        #[serde(flatten)]
        state: State,
        /// Severity that is announced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        announce: Option<Severity>,
    },
    /// A user action; its results follow as states.
    Act {
        /// The author.
        by: Actor,
        /// The action.
        act: Act,
    },
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Time of writing.
    pub at: Wall,
    /// Path of the alarm; empty if the entry concerns all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The content.
    #[serde(flatten)]
    pub what: EntryContent,
}

/// Identifies a channel that the panel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelUse(usize);

/// An alarm with its configuration.
#[derive(Clone, Debug)]
struct Item {
    spec: Spec,
    path: String,
    filter: Option<Filter>,
    /// Whether the filter has had a value since the start.
    is_filtered: bool,
    alarm: Alarm,
    is_connected: bool,
    /// Its time in the timer queue.
    due: Option<MonoNs>,
}

/// All alarms.
#[derive(Clone, Debug)]
pub struct Panel {
    items: Vec<Item>,
    areas: Vec<Area>,
    by_path: HashMap<String, usize>,
    /// Channels, with their alarm and the filters that use them.
    channels: Vec<Channel>,
    by_channel: HashMap<String, usize>,
    entries: VecDeque<Entry>,
    /// Timer queue of the alarms.
    dues: BTreeSet<(MonoNs, usize)>,
    maintenance: bool,
    shelve_max: DurNs,
    connect_within: Option<(MonoNs, DurNs)>,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    name: String,
    number: Option<f64>,
    alarm: Option<usize>,
    filters: Vec<usize>,
}

impl Panel {
    /// Creates the alarms of a configuration in the normal state. Call [`restore`](Self::restore) afterwards to restore earlier
    /// states.
    #[must_use]
    pub fn new(config: &Config, now: Now) -> Self {
        let mut panel = Self {
            items: Vec::new(),
            areas: config.areas.clone(),
            by_path: HashMap::new(),
            channels: Vec::new(),
            by_channel: HashMap::new(),
            entries: VecDeque::new(),
            dues: BTreeSet::new(),
            maintenance: false,
            shelve_max: config.shelve_max,
            connect_within: Some((now.mono + config.connect_within, config.connect_within)),
        };
        for spec in &config.alarms {
            let (index, path) = (panel.items.len(), config.path(spec));
            let channel = panel.channel(&spec.channel);
            panel.channels[channel].alarm = Some(index);
            for name in spec.filter.iter().flat_map(Filter::channels) {
                let channel = panel.channel(name);
                panel.channels[channel].filters.push(index);
            }
            let mut alarm = Alarm::new(spec.rules.clone());
            if !spec.enabled {
                let mark = Mark { by: "the configuration".to_owned(), why: String::new(), until: None };
                alarm.disable(mark, now);
            }
            let filter = spec.filter.clone();
            // Until its channels are connected it keeps its state; initially it is suppressed.
            if filter.is_some() {
                alarm.suppress(true, now);
            }
            panel.by_path.insert(path.clone(), index);
            let (spec, is_connected, is_filtered) = (spec.clone(), false, false);
            panel.items.push(Item { spec, path, filter, is_filtered, alarm, is_connected, due: None });
        }
        panel
    }

    fn channel(&mut self, name: &str) -> usize {
        *self.by_channel.entry(name.to_owned()).or_insert_with(|| {
            self.channels.push(Channel { name: name.to_owned(), ..Channel::default() });
            self.channels.len() - 1
        })
    }

    /// The channels that the panel needs, each once.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelUse, &str)> {
        self.channels.iter().enumerate().map(|(index, channel)| (ChannelUse(index), channel.name.as_str()))
    }

    /// Restores an entry of an earlier journal. Call this with the oldest entry first. Ignores alarms that are no longer
    /// configured.
    pub fn restore(&mut self, entry: Entry, now: Now) {
        match entry.what {
            EntryContent::State { mut state, .. } => {
                let Some(item) = self.by_path.get(&entry.path).map(|index| &mut self.items[*index]) else { return };
                // The configuration determines whether an alarm is enabled, unless a user has changed it.
                let by_configuration =
                    |state: &State| state.disabled.as_ref().is_some_and(|mark| mark.by == "the configuration");
                if by_configuration(&state) && item.spec.enabled {
                    state = State::default();
                    state.alarm.message = Severity::Ok.name().to_owned();
                    state.current_message.clone_from(&state.alarm.message);
                }
                item.alarm.restore(state, now);
                self.schedule(self.by_path[&entry.path]);
            }
            EntryContent::Act { act: Act::Maintenance { on }, .. } => self.maintenance = on,
            EntryContent::Begins { maintenance, .. } => self.maintenance = maintenance,
            EntryContent::Stopped | EntryContent::Act { .. } => {}
        }
    }

    /// The state of all alarms for the start of a journal file; sufficient for [`restore`](Self::restore).
    #[must_use]
    pub fn snapshot(&self, started: bool, now: Now) -> Vec<Entry> {
        let states = self.items.iter().map(|item| (&item.path, item.alarm.state()));
        let entry = |path: &str, what| Entry { at: now.wall, path: path.to_owned(), what };
        let states = states.filter(|(_, state)| !state.is_normal());
        let states: Vec<Entry> =
            states.map(|(path, state)| entry(path, EntryContent::State { state, announce: None })).collect();
        let begins = EntryContent::Begins { started, maintenance: self.maintenance, states: states.len() };
        std::iter::once(entry("", begins)).chain(states).collect()
    }

    /// The next journal entry, oldest first.
    pub fn poll_entry(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Handles an update of a channel.
    pub fn update(&mut self, channel: ChannelUse, update: Update, now: Now) {
        let Some(known) = self.channels.get_mut(channel.0) else { return };
        // Invalid values must not affect filters.
        known.number = update.number.filter(|_| update.moment.severity.level() < Severity::Invalid.level());
        let (alarm, filters) = (known.alarm, known.filters.clone());
        self.filtered(&filters, now);
        if let Some(index) = alarm {
            self.items[index].is_connected = true;
            let change = self.items[index].alarm.update(update, self.maintenance, now);
            self.note(index, change, now);
        }
    }

    /// Handles the disconnection of a channel.
    pub fn disconnected(&mut self, channel: ChannelUse, now: Now) {
        let Some(known) = self.channels.get_mut(channel.0) else { return };
        known.number = None;
        let (alarm, filters) = (known.alarm, known.filters.clone());
        self.filtered(&filters, now);
        if let Some(index) = alarm {
            self.lost(index, now);
        }
    }

    fn lost(&mut self, index: usize, now: Now) {
        let item = &mut self.items[index];
        item.is_connected = false;
        let value = item.alarm.state().alarm.value;
        let moment = Moment { severity: Severity::Undefined, message: DISCONNECTED.to_owned(), value, time: now.wall };
        let change = item.alarm.update(Update { moment, number: None }, self.maintenance, now);
        self.note(index, change, now);
    }

    /// Evaluates filters again. After the start, a filter without a value changes nothing until its channels have had time to
    /// connect. Later it does not suppress.
    fn filtered(&mut self, alarms: &[usize], now: Now) {
        for &index in alarms {
            let Some(filter) = &self.items[index].filter else { continue };
            let numbers: Vec<Option<f64>> =
                filter.channels().iter().map(|name| self.channels[*self.by_channel.get(name)?].number).collect();
            let means = filter.is_true(&|at| numbers.get(at).copied().flatten());
            let item = &mut self.items[index];
            item.is_filtered |= means.is_some();
            if means.is_none() && !item.is_filtered && self.connect_within.is_some() {
                continue;
            }
            let change = item.alarm.suppress(means == Some(false), now);
            self.note(index, change, now);
        }
    }

    /// Handles timers that have expired.
    pub fn tick(&mut self, now: Now) {
        if self.connect_within.is_some_and(|(until, _)| until <= now.mono) {
            self.connect_within = None;
            for index in 0..self.items.len() {
                if !self.items[index].is_filtered {
                    self.filtered(&[index], now);
                }
                if !self.items[index].is_connected {
                    self.lost(index, now);
                }
            }
        }
        let due: Vec<usize> = self.dues.range(..=(now.mono, usize::MAX)).map(|(_, index)| *index).collect();
        for index in due {
            let change = self.items[index].alarm.tick(self.maintenance, now);
            self.note(index, change, now);
        }
    }

    /// Time of the next [`tick`](Self::tick).
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        let first = self.dues.first().map(|(due, _)| *due);
        first.into_iter().chain(self.connect_within.map(|(until, _)| until)).min()
    }

    /// Updates an alarm's time in the timer queue.
    fn schedule(&mut self, index: usize) {
        let (before, due) = (self.items[index].due, self.items[index].alarm.due());
        if before != due {
            before.map(|before| self.dues.remove(&(before, index)));
            self.dues.extend(due.map(|due| (due, index)));
            self.items[index].due = due;
        }
    }

    fn note(&mut self, index: usize, change: StateChange, now: Now) {
        self.schedule(index);
        if change.changed || change.announce.is_some() {
            let item = &self.items[index];
            let what = EntryContent::State { state: item.alarm.state(), announce: change.announce };
            self.entries.push_back(Entry { at: now.wall, path: item.path.clone(), what });
        }
    }

    /// Checks an action without executing it, because the journal records it first. Returns the indices of its alarms.
    ///
    /// # Errors
    /// If the action is invalid.
    pub fn check(&self, act: &Act) -> Result<Vec<usize>, ActError> {
        if let Act::Shelve { time, .. } | Act::Disable { time: Some(time), .. } = act {
            self.span(act, time)?;
        }
        if matches!(act, Act::Maintenance { .. }) {
            return Ok(Vec::new());
        }
        self.find(act.names())
    }

    fn span(&self, act: &Act, time: &str) -> Result<DurNs, ActError> {
        let most = if matches!(act, Act::Shelve { .. }) { self.shelve_max } else { DurNs::from_secs(366 * 86_400) };
        let within = |span: &DurNs| (DurNs::from_secs(1)..=most).contains(span);
        let wrong = || ActError::Time { found: time.to_owned(), most };
        time.parse().ok().filter(within).ok_or_else(wrong)
    }

    /// The alarms that match these names.
    fn find(&self, names: &[String]) -> Result<Vec<usize>, ActError> {
        if names.is_empty() {
            return Err(ActError::NoNames);
        }
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for name in names {
            let fits = |item: &Item| is_meant(name, &item.path);
            let before = found.len();
            let all = self.items.iter().enumerate().filter(|(_, item)| fits(item)).map(|(index, _)| index);
            let all: Vec<usize> = all.collect();
            found.extend(all.iter().filter(|index| seen.insert(**index)));
            if all.is_empty() && found.len() == before {
                let known = self.items.iter().map(|item| item.spec.channel.as_str());
                let nearest = base::nearest(name, known).map(str::to_owned);
                return Err(ActError::Unknown { name: name.clone(), nearest });
            }
        }
        Ok(found)
    }

    /// Executes an action. Returns the number of changed alarms. The caller writes the action's journal entry.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn act(&mut self, act: &Act, by: &Actor, now: Now) -> Result<usize, ActError> {
        let alarms = self.check(act)?;
        let until = |panel: &Self, time: &str| Ok(Wall(now.wall.0.saturating_add(panel.span(act, time)?.0)));
        let by =
            if by.on_behalf_of.is_empty() { by.user.clone() } else { format!("{} for {}", by.user, by.on_behalf_of) };
        let maintenance = self.maintenance;
        let mut changed = 0;
        for index in alarms {
            let end = match act {
                Act::Shelve { time, .. } | Act::Disable { time: Some(time), .. } => Some(until(self, time)?),
                _ => None,
            };
            let mark = |why: &str| Mark { by: by.clone(), why: why.to_owned(), until: end };
            let alarm = &mut self.items[index].alarm;
            let change = match act {
                Act::Acknowledge { .. } => alarm.acknowledge(now),
                Act::Unacknowledge { .. } => alarm.unacknowledge(now),
                Act::Shelve { once, why, .. } => {
                    let until = end.unwrap_or(now.wall);
                    alarm.shelve(Shelf { until, once: *once, by: by.clone(), why: why.clone() }, now)
                }
                Act::Unshelve { .. } => alarm.unshelve(),
                Act::Disable { why, .. } => alarm.disable(mark(why), now),
                Act::Enable { .. } => alarm.enable(maintenance, now),
                Act::OutOfService { why, .. } => alarm.out_of_service(Some(mark(why))),
                Act::InService { .. } => alarm.out_of_service(None),
                Act::Maintenance { .. } => StateChange::default(),
            };
            changed += usize::from(change.changed);
            self.note(index, change, now);
        }
        if let Act::Maintenance { on } = act {
            changed = usize::from(self.maintenance != *on);
            self.maintenance = *on;
        }
        Ok(changed)
    }

    /// Whether maintenance mode is on.
    #[must_use]
    pub const fn maintenance(&self) -> bool {
        self.maintenance
    }

    /// The alarms as displayed to clients; with `all`, including normal ones.
    pub fn rows<'p>(&'p self, names: &'p [String], all: bool) -> impl Iterator<Item = crate::wire::Row> + 'p {
        let is_meant = move |item: &Item| names.is_empty() || names.iter().any(|name| is_meant(name, &item.path));
        let items = self.items.iter().filter(move |item| is_meant(item));
        items.map(row).filter(move |row| all || !row.state.is_normal())
    }

    /// The row of one alarm, by path.
    #[must_use]
    pub fn row(&self, path: &str) -> Option<crate::wire::Row> {
        self.by_path.get(path).map(|index| row(&self.items[*index]))
    }

    /// Whether the alarm at a path is announced.
    #[must_use]
    pub fn is_annunciating(&self, path: &str) -> bool {
        self.by_path.get(path).is_some_and(|index| self.items[*index].alarm.rules().annunciating)
    }

    /// Help for areas, by path.
    #[must_use]
    pub fn help(&self) -> BTreeMap<String, crate::Help> {
        self.areas.iter().map(|area| (joined(&area.path), area.help.clone())).collect()
    }
}

fn row(item: &Item) -> crate::wire::Row {
    let guidance: Vec<Guide> = item.spec.help.guidance.clone();
    crate::wire::Row {
        path: item.path.clone(),
        channel: item.spec.channel.clone(),
        description: item.spec.description.clone(),
        connected: item.is_connected,
        guidance,
        displays: item.spec.help.displays.clone(),
        state: item.alarm.state(),
    }
}

/// Whether a name or pattern matches the alarm at a path: by its channel (the last part), by the path, or by the path of an area
/// above it.
#[must_use]
pub fn is_meant(name: &str, path: &str) -> bool {
    let channel = split(path).pop().unwrap_or_default();
    let below = |area: &str| path.strip_prefix(area).is_some_and(|rest| rest.starts_with('/'));
    base::glob(name, &channel) || base::glob(name, path) || (name.starts_with('/') && below(name.trim_end_matches('/')))
}

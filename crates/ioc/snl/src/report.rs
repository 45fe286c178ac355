//! The state of a program, for users.

use crate::code::{ChannelDef, SetDef};
use crate::machine::{Channel, Machine, StateSet};
use crate::values;
use base::{MonoNs, Stamp, Value};

/// State of a state set, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetStatus {
    /// Its name.
    pub name: String,
    /// The current state.
    pub state: String,
    /// The state before; empty for the first.
    pub previous: String,
    /// The first state.
    pub first: String,
    /// When the current state was entered.
    pub entered: MonoNs,
    /// Its next delay.
    pub wake: Option<MonoNs>,
    /// Whether it waits for a read or write within its code.
    pub waits: bool,
    /// Pending reads and writes.
    pub pending: (usize, usize),
}

/// State of a channel, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelStatus {
    /// Variable of the program.
    pub variable: String,
    /// Process variable; empty if none is assigned.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Whether it is monitored.
    pub monitored: bool,
    /// Elements of the variable and of the process variable.
    pub count: (u32, u32),
    /// Event flag; empty if none.
    pub flag: String,
    /// Entries and length of the queue, if it has one.
    pub queue: Option<(usize, u32)>,
    /// Alarm status and severity, as `pvStatus` and `pvSeverity` return them.
    pub alarm: (i64, i64),
    /// The variable's shared value.
    pub value: Value,
    /// Time stamp of the last value.
    pub stamp: Stamp,
}

impl Machine {
    /// The numbers of channels that are assigned, connected, monitored and have a first monitor.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let named = || self.channels.iter().filter(|channel| !channel.name.is_empty());
        let monitored = || named().filter(|channel| channel.monitored);
        (
            named().count(),
            named().filter(|channel| channel.connected).count(),
            monitored().count(),
            monitored().filter(|channel| channel.has_monitor).count(),
        )
    }

    /// The state sets.
    #[must_use]
    pub fn sets(&self) -> Vec<SetStatus> {
        let one = |(set, def): (&StateSet, &SetDef)| SetStatus {
            name: def.name.clone(),
            state: def.states[set.state].name.clone(),
            previous: set.previous.map_or_else(String::new, |state| def.states[state].name.clone()),
            first: def.states[0].name.clone(),
            entered: set.entered,
            wake: set.wake,
            waits: set.wait.is_some(),
            pending: (set.reads.len(), set.writes.len()),
        };
        self.sets.iter().zip(&self.program.sets).map(one).collect()
    }

    /// The channels.
    #[must_use]
    pub fn channels(&self) -> Vec<ChannelStatus> {
        let shared = &self.views[self.shared()];
        let one = |(channel, def): (&Channel, &ChannelDef)| ChannelStatus {
            variable: def.variable.clone(),
            name: channel.name.clone(),
            connected: channel.connected,
            monitored: channel.monitored,
            count: (def.count, channel.count),
            flag: self.program.flags.get((channel.flag as usize).wrapping_sub(1)).cloned().unwrap_or_default(),
            queue: def.queue.map(|queue| (self.queues[queue].len(), self.program.queues[queue])),
            alarm: (channel.status, channel.severity),
            value: values::load(def, &shared[values::range(def)], def.count.min(10)),
            stamp: channel.stamp,
        };
        self.channels.iter().zip(&self.program.channels).map(one).collect()
    }

    /// Options that are on.
    #[must_use]
    pub fn options(&self) -> String {
        self.program.options.iter().collect()
    }
}

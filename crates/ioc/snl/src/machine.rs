//! A running program as a state machine: events and the time go in, actions and the next wake-up come out.
//!
//! State sets run alternately, each until its conditions are false or a read or write must complete. Their code never runs
//! at the same time, so that variables need no lock.

use crate::builtin::{STAT_DISCONNECTED, STAT_OK};
use crate::code::Program;
use crate::error::Pos;
use crate::memory::{CONSTANTS, Trap};
use crate::run::Phase;
use crate::values;
use crate::vm::{Outcome, Task};
use base::{Alarm, DurNs, Meta, MonoNs, Stamp, Value};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Bytes for texts and time stamps that functions return.
const SCRATCH: usize = 256;
/// Maximum number of instructions for the initial values.
const INIT_MAX: u32 = 20_000_000;
/// Maximum number of bytes of a process variable's name.
const NAME_MAX: usize = 1_000;

/// The time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For delays.
    pub mono: MonoNs,
    /// For the program.
    pub wall: Stamp,
}

/// An event of a channel. Channels have numbers from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The process variable is connected and has this many elements.
    Connected(u32, u32),
    /// The process variable is disconnected.
    Disconnected(u32),
    /// Units, precision and state names.
    Properties(u32, Box<Meta>),
    /// Answer to [`Action::Read`].
    Read(u32, Value, Alarm, Stamp),
    /// A read that failed.
    Unread(u32),
    /// A monitor.
    Monitor(u32, Value, Alarm, Stamp),
    /// Answer to [`Action::Write`] with completion, and whether it succeeded.
    Written(u32, bool),
}

/// A request of the program to its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect a channel to a process variable.
    Connect(u32, String),
    /// Disconnect a channel, also from monitors. No event of the connection may follow.
    Disconnect(u32),
    /// Start or stop a monitor of a connected or connecting channel.
    Monitor(u32, bool),
    /// Read the process variable of a connected channel.
    Read(u32),
    /// Write; with `true` the completion must be reported.
    Write(u32, Value, bool),
    /// Output of the program.
    Print(Vec<u8>),
    /// A message about the program, for the log.
    Log(String),
}

/// Stage of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waits for the connections.
    Connecting,
    /// The entry block of the program runs.
    Entry,
    /// The state sets run.
    Running,
    /// The exit block of the program runs.
    Exit,
    /// It has ended.
    Ended,
}

/// Reason why the code of a state set waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Read(u32, MonoNs),
    Write(u32, MonoNs),
    /// A pending read (`true`) or write, before the call is repeated.
    Pending(bool, u32, MonoNs),
    Sleep(MonoNs),
}

impl Wait {
    pub(crate) const fn until(self) -> MonoNs {
        match self {
            Self::Read(_, until) | Self::Write(_, until) | Self::Pending(_, _, until) | Self::Sleep(until) => until,
        }
    }
}

pub(crate) struct StateSet {
    pub(crate) task: Task,
    pub(crate) resume: Option<u64>,
    pub(crate) wait: Option<Wait>,
    /// Channels with a pending asynchronous read or write.
    pub(crate) reads: HashSet<u32>,
    pub(crate) writes: HashSet<u32>,
    /// In safe mode: channels whose shared value is newer than this state set's.
    pub(crate) dirty: HashSet<u32>,
    pub(crate) entered: MonoNs,
    /// The next delay of the conditions.
    pub(crate) wake: Option<MonoNs>,
    pub(crate) phase: Phase,
    pub(crate) state: usize,
    pub(crate) previous: Option<usize>,
    /// An event has arrived, so that the conditions must be evaluated.
    pub(crate) poked: bool,
}

#[derive(Default)]
pub(crate) struct Channel {
    /// Name of the process variable; empty if none is assigned.
    pub(crate) name: String,
    pub(crate) connected: bool,
    pub(crate) monitored: bool,
    pub(crate) has_monitor: bool,
    pub(crate) count: u32,
    pub(crate) status: i64,
    pub(crate) severity: i64,
    pub(crate) message: &'static str,
    pub(crate) stamp: Stamp,
    pub(crate) meta: Option<Box<Meta>>,
    /// The state set that waits for each read or write in progress; `None` if it no longer does.
    pub(crate) readers: VecDeque<Option<usize>>,
    pub(crate) writers: VecDeque<Option<usize>>,
    /// A request during a pending one was logged, and nothing was answered since.
    pub(crate) is_reported: bool,
    pub(crate) flag: u32,
}

/// An instance of a program.
pub struct Machine {
    pub(crate) program: Arc<Program>,
    pub(crate) constants: Vec<u8>,
    pub(crate) scratch: u32,
    /// Addresses of the program parameters.
    pub(crate) params: BTreeMap<String, (String, u32)>,
    /// Values of the variables: one view for all state sets; in safe mode one for each, and the shared one as the last.
    pub(crate) views: Vec<Vec<u8>>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) queues: Vec<VecDeque<(Value, Alarm, Stamp)>>,
    /// Event flags; the first is unused.
    pub(crate) flags: Vec<bool>,
    pub(crate) sets: Vec<StateSet>,
    pub(crate) actions: Vec<Action>,
    pub(crate) share: u32,
    pub(crate) now: Now,
    pub(crate) random: u64,
    pub(crate) is_safe: bool,
    pub(crate) stage: Stage,
    pub(crate) stopping: bool,
    /// When the missing connections are reported, and the next pause.
    pub(crate) report_at: Option<(MonoNs, i64)>,
    pub(crate) started: MonoNs,
}

/// Parameters of a program: `NAME=VALUE,…`.
fn parameters(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, value)| {
        let value = value.trim().trim_matches('"');
        (name.trim().to_owned(), value.to_owned())
    })
}

impl Machine {
    /// Creates an instance. `params` are program parameters as of `seq`, which override the program's.
    #[must_use]
    pub fn new(program: Arc<Program>, params: &str, now: Now) -> Self {
        let mut constants = program.constants.clone();
        let mut known = BTreeMap::new();
        for (name, value) in parameters(&program.params).chain(parameters(params)) {
            let address = CONSTANTS + constants.len() as u32;
            constants.extend_from_slice(&base::raw::encode(&value));
            constants.push(0);
            known.insert(name, (value, address));
        }
        let scratch = CONSTANTS + constants.len() as u32;
        constants.resize(constants.len() + SCRATCH, 0);
        let is_safe = program.has_option('s');
        let channel =
            |def: &crate::code::ChannelDef| Channel { monitored: def.monitored, flag: def.flag, ..Channel::default() };
        let set = |_| StateSet {
            task: Task::default(),
            resume: None,
            wait: None,
            reads: HashSet::new(),
            writes: HashSet::new(),
            dirty: HashSet::new(),
            entered: now.mono,
            wake: None,
            phase: Phase::Enter,
            state: 0,
            previous: None,
            poked: true,
        };
        Self {
            views: vec![vec![0; program.data_len as usize]],
            channels: program.channels.iter().map(channel).collect(),
            queues: program.queues.iter().map(|_| VecDeque::new()).collect(),
            flags: vec![false; program.flags.len() + 1],
            sets: (0..program.sets.len()).map(set).collect(),
            actions: Vec::new(),
            share: 0,
            now,
            random: 0x9e37_79b9_7f4a_7c15,
            is_safe,
            stage: Stage::Connecting,
            stopping: false,
            report_at: None,
            started: now.mono,
            program,
            constants,
            scratch,
            params: known,
        }
    }

    /// The stage.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// A program parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(|(value, _)| value.as_str())
    }

    /// Ends the program after the actions in progress, with its exit block.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes the pending actions.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Initialises the variables and connects the channels. Called once.
    pub fn start(&mut self, now: Now) {
        (self.now, self.started) = (now, now.mono);
        self.share = INIT_MAX;
        let (program, init) = (Arc::clone(&self.program), self.program.init);
        let started = self.sets[0].task.start(&program, init).map_err(|trap| (trap, Pos::default()));
        match started.and_then(|()| self.run(0)) {
            Ok(Outcome::Value(_)) => {}
            Ok(_) => return self.fail(0, &Trap::Argument("found an initial value that does not end"), Pos::default()),
            Err((trap, pos)) => return self.fail(0, &trap, pos),
        }
        if self.is_safe {
            let first = self.views[0].clone();
            self.views.extend(std::iter::repeat_n(first, self.sets.len()));
        }
        for (number, def) in program.channels.iter().enumerate() {
            let name = self.expanded(&def.pv);
            self.assign(number as u32, &name);
        }
        if program.has_option('c') {
            self.report_at = Some((now.mono + DurNs::from_secs(2), 2));
        }
    }

    /// A name with the program's parameters.
    pub(crate) fn expanded(&self, name: &str) -> String {
        let mut out = String::new();
        let mut rest = name;
        while let Some((before, after)) = rest.split_once('{')
            && out.len() <= NAME_MAX
        {
            out.push_str(before);
            match after.split_once('}').map(|(param, after)| (self.params.get(param.trim()), after)) {
                Some((Some((value, _)), after)) => {
                    out.push_str(value);
                    rest = after;
                }
                _ => {
                    out.push('{');
                    rest = after;
                }
            }
        }
        out + rest
    }

    /// Connects a channel to another process variable; to none if the name is empty.
    pub(crate) fn assign(&mut self, number: u32, name: &str) {
        let name = if name.len() > NAME_MAX {
            let variable = &self.program.channels[number as usize].variable;
            let text = format!(
                "{variable}: found the name of a process variable with more than {NAME_MAX} bytes, expected a shorter one; \
                 nothing is assigned"
            );
            self.log(text);
            ""
        } else {
            name
        };
        if !self.channels[number as usize].name.is_empty() {
            self.actions.push(Action::Disconnect(number));
            self.disconnected(number, "not assigned");
        }
        let anonymous = self.is_safe && name.is_empty();
        let channel = &mut self.channels[number as usize];
        name.clone_into(&mut channel.name);
        (channel.connected, channel.has_monitor, channel.status, channel.message) =
            (false, false, STAT_DISCONNECTED, "");
        (channel.meta, channel.count) = (None, 0);
        if anonymous {
            (channel.connected, channel.status) = (true, STAT_OK);
            channel.count = self.program.channels[number as usize].count;
            let flag = channel.flag;
            return self.set_flag(flag);
        }
        if name.is_empty() {
            return;
        }
        self.actions.push(Action::Connect(number, name.to_owned()));
        if channel.monitored {
            self.actions.push(Action::Monitor(number, true));
        }
    }

    pub(crate) const fn view(&self, set: usize) -> usize {
        if self.is_safe { set } else { 0 }
    }

    /// The view that process variables read and write.
    pub(crate) const fn shared(&self) -> usize {
        self.views.len() - 1
    }

    /// Lets every state set evaluate its conditions.
    pub(crate) fn poke(&mut self) {
        self.sets.iter_mut().for_each(|set| set.poked = true);
    }

    pub(crate) fn set_flag(&mut self, flag: u32) {
        if flag != 0 && !std::mem::replace(&mut self.flags[flag as usize], true) {
            self.poke();
        }
    }

    pub(crate) fn clear_flag(&mut self, flag: u32) -> bool {
        let was = flag != 0 && std::mem::take(&mut self.flags[flag as usize]);
        if was {
            self.poke();
        }
        was
    }

    /// Counts work on memory like instructions.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.share = self.share.saturating_sub(u32::try_from(bytes / 16).unwrap_or(u32::MAX));
    }

    /// Copies a channel's shared value to the view of a state set.
    pub(crate) fn refresh(&mut self, set: usize, number: u32) {
        self.sets[set].dirty.remove(&number);
        if self.is_safe {
            let range = values::range(&self.program.channels[number as usize]);
            self.charge(range.len());
            let bytes = self.views[self.shared()][range.clone()].to_vec();
            self.views[set][range].copy_from_slice(&bytes);
        }
    }

    pub(crate) fn refresh_all(&mut self, set: usize) {
        for number in self.sets[set].dirty.iter().copied().collect::<Vec<_>>() {
            self.refresh(set, number);
        }
    }

    pub(crate) fn refresh_synced(&mut self, set: usize, flag: u32) {
        for number in self.sets[set].dirty.iter().copied().collect::<Vec<_>>() {
            if self.channels[number as usize].flag == flag {
                self.refresh(set, number);
            }
        }
    }

    /// Takes a value of a channel.
    pub(crate) fn store(&mut self, number: u32, value: &Value, alarm: Alarm, stamp: Stamp) {
        let program = Arc::clone(&self.program);
        let def = &program.channels[number as usize];
        let shared = self.shared();
        let channel = &mut self.channels[number as usize];
        values::store(def, &mut self.views[shared][values::range(def)], value, channel.meta.as_deref());
        (channel.status, channel.severity) = (alarm.status as u16 as i64, alarm.severity as u16 as i64);
        channel.message = if channel.severity == 0 { "" } else { "alarm" };
        channel.stamp = stamp;
    }

    pub(crate) fn mark_dirty(&mut self, number: u32) {
        if self.is_safe {
            for set in &mut self.sets {
                set.dirty.insert(number);
            }
        }
    }

    fn disconnected(&mut self, number: u32, message: &'static str) {
        let channel = &mut self.channels[number as usize];
        (channel.connected, channel.has_monitor) = (false, false);
        (channel.status, channel.severity, channel.message) = (STAT_DISCONNECTED, 3, message);
        channel.readers.clear();
        channel.writers.clear();
        channel.is_reported = false;
        for set in &mut self.sets {
            set.reads.remove(&number);
            set.writes.remove(&number);
            match set.wait {
                Some(Wait::Read(waits, _) | Wait::Write(waits, _)) if waits == number => {
                    (set.wait, set.resume) = (None, Some(STAT_DISCONNECTED as u64));
                }
                Some(Wait::Pending(_, waits, _)) if waits == number => set.wait = None,
                _ => {}
            }
        }
        self.poke();
    }

    /// Handles an event. Call [`step`](Self::step) next.
    pub fn handle(&mut self, event: Event) {
        let (Event::Connected(number, _)
        | Event::Disconnected(number)
        | Event::Properties(number, _)
        | Event::Read(number, ..)
        | Event::Unread(number)
        | Event::Monitor(number, ..)
        | Event::Written(number, _)) = event;
        let Some(channel) = self.channels.get_mut(number as usize) else { return };
        channel.is_reported &= !matches!(event, Event::Read(..) | Event::Unread(_) | Event::Written(..));
        match event {
            Event::Connected(_, count) => {
                channel.count = count;
                if !std::mem::replace(&mut channel.connected, true) {
                    (channel.status, channel.severity, channel.message) = (STAT_OK, 0, "");
                }
                self.poke();
            }
            Event::Disconnected(_) if channel.connected => self.disconnected(number, "disconnected"),
            Event::Disconnected(_) => {}
            Event::Properties(_, meta) => channel.meta = Some(meta),
            Event::Read(_, value, alarm, stamp) => {
                let (reader, flag) = (channel.readers.pop_front().flatten(), channel.flag);
                let Some(set) = reader else { return };
                self.store(number, &value, alarm, stamp);
                self.answered(set, true, number, STAT_OK);
                self.set_flag(flag);
            }
            Event::Unread(_) => {
                (channel.status, channel.message) = (1, "the read failed");
                if let Some(set) = channel.readers.pop_front().flatten() {
                    self.answered(set, true, number, 1);
                }
            }
            Event::Monitor(_, value, alarm, stamp) => {
                (channel.has_monitor, channel.connected) = (true, true);
                self.monitored(number, value, alarm, stamp);
            }
            Event::Written(_, ok) => {
                let (writer, flag) = (channel.writers.pop_front().flatten(), channel.flag);
                if !ok {
                    (channel.status, channel.message) = (2, "the write failed");
                }
                if let Some(set) = writer {
                    self.answered(set, false, number, if ok { STAT_OK } else { 2 });
                }
                self.set_flag(flag);
            }
        }
    }

    /// Takes a new value of a monitored channel.
    pub(crate) fn monitored(&mut self, number: u32, value: Value, alarm: Alarm, stamp: Stamp) {
        match self.program.channels[number as usize].queue {
            Some(queue) => {
                let room = self.program.queues[queue] as usize;
                // The program has no use for more elements than the variable has.
                let elements = self.program.channels[number as usize].count as usize;
                let value = match value {
                    Value::Array(mut array) if array.len() > elements => {
                        array.truncate(elements);
                        // The copy has no unused memory.
                        Value::Array(array.clone())
                    }
                    value => value,
                };
                // As in the sequencer, the newest entry is replaced.
                if self.queues[queue].len() >= room {
                    self.queues[queue].pop_back();
                }
                self.queues[queue].push_back((value, alarm, stamp));
            }
            None => {
                self.store(number, &value, alarm, stamp);
                self.mark_dirty(number);
            }
        }
        self.set_flag(self.channels[number as usize].flag);
        self.poke();
    }

    /// A read or write of a state set has ended.
    fn answered(&mut self, set: usize, read: bool, number: u32, status: i64) {
        let set = &mut self.sets[set];
        set.poked = true;
        match set.wait {
            Some(Wait::Read(waits, _)) if read && waits == number => {
                (set.wait, set.resume) = (None, Some(status as u64));
                // In safe mode, the read is complete with the call.
                set.dirty.insert(number);
            }
            Some(Wait::Write(waits, _)) if !read && waits == number => {
                (set.wait, set.resume) = (None, Some(status as u64));
            }
            wait => {
                if read { &mut set.reads } else { &mut set.writes }.remove(&number);
                if matches!(wait, Some(Wait::Pending(kind, waits, _)) if kind == read && waits == number) {
                    set.wait = None;
                }
            }
        }
        if !self.is_safe {
            self.poke();
        }
    }
}

//! Logic of one alarm: how it is raised, latched and cleared.

use crate::{Mark, Moment, Severity, Shelf, State, Wall};
use base::{DurNs, MonoNs};
use std::collections::VecDeque;

/// Message of a disabled alarm, as in Phoebus.
const DISABLED: &str = "Disabled";

/// The present time. Delays use the monotonic clock; times displayed to users are wall clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the machine's start.
    pub mono: MonoNs,
    /// Time since 1970.
    pub wall: Wall,
}

/// Rules of an alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Keep the alarm until it is acknowledged (ISA: returns to normal unacknowledged).
    pub latching: bool,
    /// Announce when the severity rises.
    pub annunciating: bool,
    /// Minimum time in alarm before the alarm is raised (ISA: on-delay).
    pub delay: DurNs,
    /// Raise at once after this many updates in alarm within `delay`; 0: disabled.
    pub count: u32,
    /// Minimum time without alarm before the alarm is cleared (ISA: off-delay).
    pub off_delay: DurNs,
    /// Minimum distance from the last value in alarm for a lower severity to take effect.
    pub deadband: f64,
    /// Time after which an active alarm is announced again, acknowledged or not; 0: never.
    pub realarm: DurNs,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            latching: true,
            annunciating: true,
            delay: DurNs(0),
            count: 0,
            off_delay: DurNs(0),
            deadband: 0.0,
            realarm: DurNs(0),
        }
    }
}

/// An update of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Its severity, message, value and time.
    pub moment: Moment,
    /// Its value as a number, if numeric.
    pub number: Option<f64>,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// Whether the [`State`] changed.
    pub changed: bool,
    /// Severity to announce: for a rise or a re-alarm.
    pub announce: Option<Severity>,
}

/// An alarm.
#[derive(Clone, Debug)]
pub struct Alarm {
    rules: Rules,
    /// State of the channel after deadband and off-delay.
    current: Moment,
    alarm: Moment,
    /// A rise waiting for its delay.
    rising: Option<(MonoNs, Moment)>,
    /// A return to normal waiting for its delay.
    falling: Option<(MonoNs, Update)>,
    /// Times of updates in alarm, for the count.
    rises: VecDeque<MonoNs>,
    /// The last number with the present severity.
    held: Option<f64>,
    /// The last update while disabled.
    unseen: Option<Update>,
    /// Time of the last change of severity or announcement.
    since: MonoNs,
    shelved: Option<(MonoNs, Shelf)>,
    suppressed: bool,
    out_of_service: Option<Mark>,
    disabled: Option<(Option<MonoNs>, Mark)>,
}

impl Alarm {
    /// A new alarm in the normal state.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let clear = Moment::clear("", Wall(0));
        Self {
            rules,
            current: clear.clone(),
            alarm: clear,
            rising: None,
            falling: None,
            rises: VecDeque::new(),
            held: None,
            unseen: None,
            since: MonoNs(0),
            shelved: None,
            suppressed: false,
            out_of_service: None,
            disabled: None,
        }
    }

    /// Restores a previous state.
    pub fn restore(&mut self, state: State, now: Now) {
        let State { alarm, current_severity, current_message, shelved, suppressed, out_of_service, disabled } = state;
        let moment = Moment { severity: current_severity.active(), message: current_message, ..alarm.clone() };
        (self.current, self.alarm, self.since) = (moment, alarm, now.mono);
        self.shelved = shelved.map(|shelf| (in_mono(now, shelf.until), shelf));
        self.disabled = disabled.map(|mark| (mark.until.map(|until| in_mono(now, until)), mark));
        (self.suppressed, self.out_of_service) = (suppressed, out_of_service);
    }

    /// Its present state.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            alarm: self.alarm.clone(),
            current_severity: self.current.severity,
            current_message: self.current.message.clone(),
            shelved: self.shelved.as_ref().map(|(_, shelf)| shelf.clone()),
            suppressed: self.suppressed,
            out_of_service: self.out_of_service.clone(),
            disabled: self.disabled.as_ref().map(|(_, mark)| mark.clone()),
        }
    }

    /// Its rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Handles an update of the channel. In `maintenance` mode, invalid and undefined states are acknowledged automatically.
    pub fn update(&mut self, update: Update, maintenance: bool, now: Now) -> StateChange {
        self.observe(|alarm| alarm.take(update, maintenance, now))
    }

    /// Handles timers that have expired.
    pub fn tick(&mut self, maintenance: bool, now: Now) -> StateChange {
        self.observe(|alarm| {
            let mut announce = None;
            if alarm.shelved.as_ref().is_some_and(|(until, _)| *until <= now.mono) {
                alarm.shelved = None;
            }
            if alarm.disabled.as_ref().is_some_and(|(until, _)| until.is_some_and(|until| until <= now.mono)) {
                announce = announce.max(alarm.enabled(maintenance, now));
            }
            if let Some((_, update)) = alarm.falling.take_if(|(due, _)| *due <= now.mono) {
                announce = announce.max(alarm.evaluate(update.moment, maintenance, now));
            }
            if let Some((_, moment)) = alarm.rising.take_if(|(due, _)| *due <= now.mono) {
                announce = announce.max(alarm.follow(moment, false, maintenance, now));
            }
            announce.max(alarm.forgotten(now))
        })
    }

    /// Time of the next [`tick`](Self::tick).
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        let shelved = self.shelved.as_ref().map(|(until, _)| *until);
        let disabled = self.disabled.as_ref().and_then(|(until, _)| *until);
        let falling = self.falling.as_ref().map(|(due, _)| *due);
        let rising = self.rising.as_ref().map(|(due, _)| *due);
        let realarm = self.stands_long().then(|| self.since + self.rules.realarm);
        [shelved, disabled, falling, rising, realarm].into_iter().flatten().min()
    }

    /// Acknowledges the alarm, at the channel's present severity if that is lower than the latched one.
    pub fn acknowledge(&mut self, now: Now) -> StateChange {
        self.observe(|alarm| {
            if alarm.disabled.is_some() || alarm.alarm.severity == Severity::Ok {
                return None;
            }
            if alarm.current.severity == Severity::Ok {
                alarm.alarm = Moment::clear(&alarm.current.value, alarm.current.time);
            } else {
                if alarm.current.severity.level() < alarm.alarm.severity.level() {
                    alarm.alarm = alarm.current.clone();
                }
                alarm.alarm.severity = alarm.alarm.severity.acknowledged();
            }
            alarm.since = now.mono;
            None
        })
    }

    /// Reverts an acknowledgement: the channel's present state becomes the alarm.
    pub fn unacknowledge(&mut self, now: Now) -> StateChange {
        self.observe(|alarm| {
            if alarm.disabled.is_none() && alarm.alarm.severity != Severity::Ok && !alarm.alarm.severity.is_active() {
                alarm.alarm = alarm.current.clone();
                alarm.since = now.mono;
            }
            None
        })
    }

    /// Shelves the alarm: it is evaluated and logged, but not displayed or announced.
    pub fn shelve(&mut self, shelf: Shelf, now: Now) -> StateChange {
        self.observe(|alarm| {
            alarm.shelved = Some((in_mono(now, shelf.until), shelf));
            None
        })
    }

    /// Unshelves the alarm. If it is active, it is announced.
    pub fn unshelve(&mut self) -> StateChange {
        self.observe(|alarm| {
            alarm.shelved = None;
            None
        })
    }

    /// Sets whether the filter suppresses the alarm. When the suppression ends, the delay starts again, as if the channel had
    /// just gone into alarm. An acknowledged alarm is unchanged.
    pub fn suppress(&mut self, suppressed: bool, now: Now) -> StateChange {
        self.observe(|alarm| {
            let is_over = std::mem::replace(&mut alarm.suppressed, suppressed) && !suppressed;
            let is_alarm = alarm.current.severity != Severity::Ok;
            if is_over && is_alarm && alarm.rules.delay.0 > 0 {
                if alarm.alarm.severity.is_active() {
                    alarm.alarm = Moment::clear(&alarm.current.value, alarm.current.time);
                    alarm.rising = Some((now.mono + alarm.rules.delay, alarm.current.clone()));
                } else if let Some((due, _)) = &mut alarm.rising {
                    *due = now.mono + alarm.rules.delay;
                }
                alarm.rises.clear();
            }
            None
        })
    }

    /// Takes the alarm out of service, or back into service.
    pub fn out_of_service(&mut self, mark: Option<Mark>) -> StateChange {
        self.observe(|alarm| {
            alarm.out_of_service = mark;
            None
        })
    }

    /// Disables evaluation until the alarm is enabled or the time is over.
    pub fn disable(&mut self, mark: Mark, now: Now) -> StateChange {
        self.observe(|alarm| {
            if alarm.disabled.is_none() {
                let (value, time) = (alarm.current.value.clone(), now.wall);
                alarm.unseen = Some(Update { moment: alarm.current.clone(), number: alarm.held });
                alarm.current = Moment::clear(&value, time);
                alarm.alarm = Moment { message: DISABLED.to_owned(), ..Moment::clear("", time) };
                (alarm.rising, alarm.falling, alarm.held) = (None, None, None);
                alarm.rises.clear();
            }
            alarm.disabled = Some((mark.until.map(|until| in_mono(now, until)), mark));
            None
        })
    }

    /// Enables evaluation, with the channel's last update.
    pub fn enable(&mut self, maintenance: bool, now: Now) -> StateChange {
        self.observe(|alarm| if alarm.disabled.is_some() { alarm.enabled(maintenance, now) } else { None })
    }

    /// Executes `what` and returns its result. A hidden alarm is not announced; an active one is announced when it becomes
    /// visible again.
    fn observe(&mut self, what: impl FnOnce(&mut Self) -> Option<Severity>) -> StateChange {
        let before = self.state();
        let mut announce = what(self);
        if self.shelved.as_ref().is_some_and(|(_, shelf)| shelf.once) && self.is_well() && !is_well(&before) {
            self.shelved = None;
        }
        let after = self.state();
        if before.hidden().is_some() && self.alarm.severity.is_active() {
            announce = announce.max(Some(self.alarm.severity));
        }
        announce = announce.filter(|_| after.hidden().is_none() && self.rules.annunciating);
        StateChange { changed: before != after, announce }
    }

    fn is_well(&self) -> bool {
        self.alarm.severity == Severity::Ok && self.current.severity == Severity::Ok
    }

    fn enabled(&mut self, maintenance: bool, now: Now) -> Option<Severity> {
        self.disabled = None;
        self.alarm = Moment::clear("", now.wall);
        self.unseen.take().and_then(|update| self.take(update, maintenance, now))
    }

    /// Applies deadband and off-delay before the other rules.
    fn take(&mut self, update: Update, maintenance: bool, now: Now) -> Option<Severity> {
        if self.disabled.is_some() {
            self.unseen = Some(update);
            return None;
        }
        let (level, before) = (update.moment.severity.level(), self.current.severity.level());
        if level < before && self.is_near(update.number) {
            return None;
        }
        if level == 0 && before > 0 && self.rules.off_delay.0 > 0 {
            let due = self.falling.as_ref().map_or(now.mono + self.rules.off_delay, |(due, _)| *due);
            self.falling = Some((due, update));
            return None;
        }
        self.falling = None;
        self.held = update.number.filter(|number| number.is_finite());
        self.evaluate(update.moment, maintenance, now)
    }

    /// Whether a value is within the deadband around the last value in alarm.
    fn is_near(&self, number: Option<f64>) -> bool {
        let moved = self.held.zip(number).map(|(held, number)| (number - held).abs());
        moved.is_some_and(|moved| moved < self.rules.deadband)
    }

    fn evaluate(&mut self, received: Moment, maintenance: bool, now: Now) -> Option<Severity> {
        let same = received.severity == self.current.severity && received.message == self.current.message;
        self.current = received.clone();
        if same {
            return None;
        }
        if received.severity == Severity::Ok {
            self.rising = None;
        }
        let over = received.severity == Severity::Ok && !self.alarm.severity.is_active();
        // An invalid state in maintenance mode does not count: the next alarm is a new one.
        let invalid = Severity::Invalid.level();
        let anew = maintenance && received.severity.level() < invalid && self.alarm.severity.level() >= invalid;
        if over || anew {
            self.rising = None;
            self.alarm = Moment::clear(&received.value, received.time);
        }
        self.follow(received, self.rules.delay.0 > 0, maintenance, now)
    }

    /// Adjusts the alarm to its channel, within the rules.
    fn follow(&mut self, received: Moment, with_delay: bool, maintenance: bool, now: Now) -> Option<Severity> {
        let base = self.rising.as_ref().map_or(&self.alarm, |(_, moment)| moment);
        let rises = received.severity.update_rank() > base.severity.update_rank();
        let follows = rises || (!self.rules.latching && base.severity.is_active());
        let is_alarm = received.severity != Severity::Ok;
        let mut announce = None;
        if with_delay && is_alarm {
            let due = self.rising.as_ref().map_or(now.mono + self.rules.delay, |(due, _)| *due);
            if follows {
                self.rising = Some((due, received));
            }
            if self.is_often(now)
                && let Some((_, moment)) = self.rising.take()
            {
                announce = self.becomes(moment, now);
            }
        } else if follows {
            announce = self.becomes(received, now);
        }
        if maintenance && self.alarm.severity.is_active() && self.alarm.severity >= Severity::Invalid {
            self.alarm.severity = self.alarm.severity.acknowledged();
            return None;
        }
        announce
    }

    /// Sets the alarm. Returns the severity to announce.
    fn becomes(&mut self, moment: Moment, now: Now) -> Option<Severity> {
        let rises = moment.severity.update_rank() > self.alarm.severity.update_rank();
        if moment.severity != self.alarm.severity {
            self.since = now.mono;
        }
        self.alarm = moment;
        rises.then_some(self.alarm.severity)
    }

    /// Counts an update in alarm. Returns true if the configured count was reached within the delay.
    fn is_often(&mut self, now: Now) -> bool {
        let count = self.rules.count as usize;
        if count == 0 {
            return false;
        }
        if self.rises.len() == count {
            self.rises.pop_front();
        }
        self.rises.push_back(now.mono);
        let is_often =
            self.rises.len() == count && self.rises.front().is_some_and(|first| now.mono - *first <= self.rules.delay);
        if is_often {
            self.rises.clear();
        }
        is_often
    }

    /// Whether a re-alarm is pending.
    fn stands_long(&self) -> bool {
        self.rules.realarm.0 > 0 && self.alarm.severity != Severity::Ok && self.current.severity != Severity::Ok
    }

    /// Announces a long-lasting alarm again. Its acknowledgement expires.
    fn forgotten(&mut self, now: Now) -> Option<Severity> {
        if !self.stands_long() || now.mono < self.since + self.rules.realarm {
            return None;
        }
        self.since = now.mono;
        self.alarm.severity = self.alarm.severity.active();
        Some(self.alarm.severity)
    }
}

fn is_well(state: &State) -> bool {
    state.alarm.severity == Severity::Ok && state.current_severity == Severity::Ok
}

/// Converts a wall clock time to monotonic time, with the clocks' present offset.
fn in_mono(now: Now, until: Wall) -> MonoNs {
    let left = until.0.saturating_sub(now.wall.0);
    MonoNs(now.mono.0.saturating_add_signed(left))
}

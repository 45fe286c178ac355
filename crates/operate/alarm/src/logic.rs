//! One alarm: the rules by which it rises, stays and goes.

use crate::{Mark, Moment, Severity, Shelf, State, Wall};
use base::{DurNs, MonoNs};
use std::collections::VecDeque;

/// What a channel is called that nobody evaluates, in Phoebus' word.
const DISABLED: &str = "Disabled";

/// What time it is: delays go by the one clock, which nobody sets, instants that people know by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since the machine's start.
    pub mono: MonoNs,
    /// Since 1970.
    pub wall: Wall,
}

/// How an alarm behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Whether it stays until somebody has acknowledged it (ISA: returns to normal unacknowledged).
    pub latching: bool,
    /// Whether a rise is announced.
    pub annunciating: bool,
    /// How long the channel must be in alarm until it counts (ISA: on-delay).
    pub delay: DurNs,
    /// So many updates in alarm within `delay` count at once; 0: none do.
    pub count: u32,
    /// How long the channel must be well until it counts (ISA: off-delay).
    pub off_delay: DurNs,
    /// How far a value must be from the last one in alarm until it counts as better.
    pub deadband: f64,
    /// After this time an alarm that is still there is announced again, acknowledged or not; 0: never.
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

/// What a channel has reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// What it is.
    pub moment: Moment,
    /// Its value as a number, where it is one.
    pub number: Option<f64>,
}

/// What came of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Whether the [`State`] is another one.
    pub changed: bool,
    /// What is to be announced: a rise, or an alarm that was forgotten.
    pub announce: Option<Severity>,
}

/// One alarm.
#[derive(Clone, Debug)]
pub struct Alarm {
    rules: Rules,
    /// What the channel is, after deadband and off-delay.
    current: Moment,
    alarm: Moment,
    /// A rise that waits for its delay.
    rising: Option<(MonoNs, Moment)>,
    /// A return to normal that waits for its delay.
    falling: Option<(MonoNs, Update)>,
    /// When the channel was in alarm, for the count.
    rises: VecDeque<MonoNs>,
    /// The last number with the present severity.
    held: Option<f64>,
    /// What came while it was disabled.
    unseen: Option<Update>,
    /// Since when the alarm is as it is, or was announced last.
    since: MonoNs,
    shelved: Option<(MonoNs, Shelf)>,
    suppressed: bool,
    out_of_service: Option<Mark>,
    disabled: Option<(Option<MonoNs>, Mark)>,
}

impl Alarm {
    /// One that is well.
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

    /// Goes on where an earlier life was.
    pub fn restore(&mut self, state: State, now: Now) {
        let State { alarm, current_severity, current_message, shelved, suppressed, out_of_service, disabled } = state;
        let moment = Moment { severity: current_severity.active(), message: current_message, ..alarm.clone() };
        (self.current, self.alarm, self.since) = (moment, alarm, now.mono);
        self.shelved = shelved.map(|shelf| (in_mono(now, shelf.until), shelf));
        self.disabled = disabled.map(|mark| (mark.until.map(|until| in_mono(now, until)), mark));
        (self.suppressed, self.out_of_service) = (suppressed, out_of_service);
    }

    /// Its state.
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

    /// The channel has reported something; `maintenance`: what is invalid or unknown is acknowledged by itself.
    pub fn update(&mut self, update: Update, maintenance: bool, now: Now) -> Happened {
        self.observe(|alarm| alarm.take(update, maintenance, now))
    }

    /// Does what is due.
    pub fn tick(&mut self, maintenance: bool, now: Now) -> Happened {
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

    /// When [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        let shelved = self.shelved.as_ref().map(|(until, _)| *until);
        let disabled = self.disabled.as_ref().and_then(|(until, _)| *until);
        let falling = self.falling.as_ref().map(|(due, _)| *due);
        let rising = self.rising.as_ref().map(|(due, _)| *due);
        let realarm = self.stands_long().then(|| self.since + self.rules.realarm);
        [shelved, disabled, falling, rising, realarm].into_iter().flatten().min()
    }

    /// Somebody has seen it. What is acknowledged is what the channel is now, where that is less than what was latched.
    pub fn acknowledge(&mut self, now: Now) -> Happened {
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

    /// It is as if nobody had seen it: what the channel is now is the alarm.
    pub fn unacknowledge(&mut self, now: Now) -> Happened {
        self.observe(|alarm| {
            if alarm.disabled.is_none() && alarm.alarm.severity != Severity::Ok && !alarm.alarm.severity.is_active() {
                alarm.alarm = alarm.current.clone();
                alarm.since = now.mono;
            }
            None
        })
    }

    /// Puts it on the shelf: it is evaluated and logged, but not shown, nor announced.
    pub fn shelve(&mut self, shelf: Shelf, now: Now) -> Happened {
        self.observe(|alarm| {
            alarm.shelved = Some((in_mono(now, shelf.until), shelf));
            None
        })
    }

    /// Takes it off the shelf. An alarm that rose there is announced.
    pub fn unshelve(&mut self) -> Happened {
        self.observe(|alarm| {
            alarm.shelved = None;
            None
        })
    }

    /// Whether its filter suppresses it. An alarm that its filter no longer suppresses counts again only after its delay, as if the
    /// channel had come into alarm now; one that was acknowledged stays as it is.
    pub fn suppress(&mut self, suppressed: bool, now: Now) -> Happened {
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

    /// Puts it out of service, or back.
    pub fn out_of_service(&mut self, mark: Option<Mark>) -> Happened {
        self.observe(|alarm| {
            alarm.out_of_service = mark;
            None
        })
    }

    /// Has it not be evaluated, until somebody enables it or the time is over.
    pub fn disable(&mut self, mark: Mark, now: Now) -> Happened {
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

    /// Has it be evaluated again, with what the channel has reported last.
    pub fn enable(&mut self, maintenance: bool, now: Now) -> Happened {
        self.observe(|alarm| if alarm.disabled.is_some() { alarm.enabled(maintenance, now) } else { None })
    }

    /// What came of `what`. What is hidden is not announced; what was hidden, and is an alarm, is when it comes back.
    fn observe(&mut self, what: impl FnOnce(&mut Self) -> Option<Severity>) -> Happened {
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
        Happened { changed: before != after, announce }
    }

    fn is_well(&self) -> bool {
        self.alarm.severity == Severity::Ok && self.current.severity == Severity::Ok
    }

    fn enabled(&mut self, maintenance: bool, now: Now) -> Option<Severity> {
        self.disabled = None;
        self.alarm = Moment::clear("", now.wall);
        self.unseen.take().and_then(|update| self.take(update, maintenance, now))
    }

    /// Deadband and off-delay come before all else.
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

    /// Whether a value is too near to the last one in alarm to count as better.
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
        // What was invalid did not really count: the next alarm is a new one.
        let invalid = Severity::Invalid.level();
        let anew = maintenance && received.severity.level() < invalid && self.alarm.severity.level() >= invalid;
        if over || anew {
            self.rising = None;
            self.alarm = Moment::clear(&received.value, received.time);
        }
        self.follow(received, self.rules.delay.0 > 0, maintenance, now)
    }

    /// The alarm goes where its channel went, as far as the rules let it.
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

    /// The alarm is this now; what is announced.
    fn becomes(&mut self, moment: Moment, now: Now) -> Option<Severity> {
        let rises = moment.severity.update_rank() > self.alarm.severity.update_rank();
        if moment.severity != self.alarm.severity {
            self.since = now.mono;
        }
        self.alarm = moment;
        rises.then_some(self.alarm.severity)
    }

    /// Counts an update in alarm; whether there were as many within the delay as the rules say.
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

    /// Whether it is an alarm that will be announced again some time.
    fn stands_long(&self) -> bool {
        self.rules.realarm.0 > 0 && self.alarm.severity != Severity::Ok && self.current.severity != Severity::Ok
    }

    /// Announces again what has lasted for long; an acknowledgement that old is none any more.
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

/// An instant that people know on the clock that nobody sets, as both go now.
fn in_mono(now: Now, until: Wall) -> MonoNs {
    let left = until.0.saturating_sub(now.wall.0);
    MonoNs(now.mono.0.saturating_add_signed(left))
}

//! The state machine of captures: decides in each cycle of the loop whether a capture begins or ends. It uses neither memory
//! outside itself nor a clock. A step costs a few comparisons.

use ring::marks;

/// Trigger condition: when a capture begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Condition {
    /// Only on request, or in mode auto after a time.
    #[default]
    Never,
    /// The variable reaches the level from below, after it was below it by more than the hysteresis.
    Rising {
        /// The level.
        level: f64,
        /// Minimum distance below the level before the crossing; 0 or more.
        hysteresis: f64,
    },
    /// The variable reaches the level from above, after it was above it by more than the hysteresis.
    Falling {
        /// The level.
        level: f64,
        /// Minimum distance above the level before the crossing; 0 or more.
        hysteresis: f64,
    },
    /// Rising or falling.
    Crossing {
        /// The level.
        level: f64,
        /// Minimum distance from the level before the crossing; 0 or more.
        hysteresis: f64,
    },
    /// The variable is above the level.
    Above {
        /// The level.
        level: f64,
    },
    /// The variable is below the level.
    Below {
        /// The level.
        level: f64,
    },
    /// The variable enters the window, which includes its limits.
    Enters {
        /// Lower limit.
        low: f64,
        /// Upper limit.
        high: f64,
    },
    /// The variable leaves the window. NaN is outside.
    Leaves {
        /// Lower limit.
        low: f64,
        /// Upper limit.
        high: f64,
    },
    /// The variable has another value than in the previous cycle.
    Changes,
    /// A cycle ended after its deadline.
    Miss,
    /// Pulses were skipped, or a call took longer than its budget.
    Overrun,
    /// The first cycle with this or a higher pulse number.
    Pulse {
        /// Pulse number.
        number: u64,
    },
    /// Every pulse whose number has the remainder `phase` when divided by `period`.
    EachPulse {
        /// Divisor; 1 or more.
        period: u64,
        /// Remainder; less than `period`.
        phase: u64,
    },
}

/// Cause of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The condition held.
    Condition,
    /// The condition did not hold for the set time in mode auto.
    Auto,
    /// A client requested it.
    Forced,
    /// A client requested it because of an alarm.
    Alarm,
    /// A client requested it because of a message.
    Message,
}

impl Cause {
    /// All causes. The index of a cause is its code in shared memory.
    pub const ALL: [Self; 5] = [Self::Condition, Self::Auto, Self::Forced, Self::Alarm, Self::Message];

    /// Code in shared memory.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The cause with this code.
    #[must_use]
    pub fn of(code: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// The word for it in messages and requests.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Condition => "trigger",
            Self::Auto => "auto",
            Self::Forced => "forced",
            Self::Alarm => "alarm",
            Self::Message => "message",
        }
    }
}

/// Capture mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No captures; the newest rows are always available.
    #[default]
    Roll,
    /// As normal, but a capture begins without a trigger if none comes for a time.
    Auto,
    /// A capture for each trigger.
    Normal,
}

/// Start and length of captures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Capture mode.
    pub mode: Mode,
    /// Number of rows before the trigger's row.
    pub pre: u64,
    /// Number of rows of a capture; more than `pre`.
    pub length: u64,
    /// Cycles per row; 1 or more.
    pub every: u64,
    /// Number of cycles after a trigger in which further triggers are ignored.
    pub holdoff: u64,
    /// Mode auto: number of cycles until a capture begins without a trigger.
    pub patience: u64,
    /// Number of captures after which sampling stops; 0: unlimited.
    pub captures: u64,
}

/// A cycle as input of the state machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct CycleInput {
    /// Pulse number.
    pub pulse: u64,
    /// Bits of [`marks`].
    pub marks: u64,
    /// Value of the trigger's variable.
    pub value: f64,
    /// The same value, as bits.
    pub bits: u64,
}

/// Phase of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The loop does not sample.
    #[default]
    Stopped,
    /// The loop records the rows before a trigger. All triggers but forced ones are ignored.
    Filling,
    /// The loop waits for the trigger.
    Armed,
    /// The loop records the rows after the trigger.
    Triggered,
    /// The loop samples without a trigger.
    Rolling,
}

impl Phase {
    /// All phases. The index of a phase is its number in shared memory.
    pub const ALL: [Self; 5] = [Self::Stopped, Self::Filling, Self::Armed, Self::Triggered, Self::Rolling];

    /// The word for it in messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Filling => "filling",
            Self::Armed => "armed",
            Self::Triggered => "triggered",
            Self::Rolling => "rolling",
        }
    }
}

/// Result of a step: the sampler's work in this cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Write a row.
    pub row: bool,
    /// Mark that row as the trigger's, with this cause.
    pub trigger: Option<Cause>,
    /// Mark that row as the last of its capture.
    pub complete: bool,
}

/// Evaluates a condition, cycle by cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    condition: Condition,
    /// Whether the variable was below (above) the level by more than the hysteresis.
    below: bool,
    above: bool,
    inside: Option<bool>,
    before: Option<CycleInput>,
}

impl Watch {
    /// Starts to evaluate a condition.
    #[must_use]
    pub fn new(condition: Condition) -> Self {
        Self { condition, ..Self::default() }
    }

    /// Whether the condition holds in this cycle.
    pub fn holds(&mut self, seen: &CycleInput) -> bool {
        let before = self.before.replace(*seen);
        let value = seen.value;
        match self.condition {
            Condition::Never => false,
            Condition::Rising { level, hysteresis } => self.rises(value, level, hysteresis),
            Condition::Falling { level, hysteresis } => self.falls(value, level, hysteresis),
            Condition::Crossing { level, hysteresis } => {
                self.rises(value, level, hysteresis) | self.falls(value, level, hysteresis)
            }
            Condition::Above { level } => value > level,
            Condition::Below { level } => value < level,
            Condition::Enters { low, high } => self.comes(value, low, high) == Some(true),
            Condition::Leaves { low, high } => self.comes(value, low, high) == Some(false),
            Condition::Changes => before.is_some_and(|before| before.bits != seen.bits),
            Condition::Miss => seen.marks & marks::MISS != 0,
            Condition::Overrun => seen.marks & marks::OVERRUN != 0,
            Condition::Pulse { number } => seen.pulse >= number && before.is_none_or(|before| before.pulse < number),
            Condition::EachPulse { period, phase } => before.is_some_and(|before| {
                let turns = |pulse: u64| pulse.wrapping_sub(phase) / period.max(1);
                turns(seen.pulse) != turns(before.pulse)
            }),
        }
    }

    fn rises(&mut self, value: f64, level: f64, hysteresis: f64) -> bool {
        let rises = self.below && value >= level;
        self.below = (self.below && !rises) || value < level - hysteresis;
        rises
    }

    fn falls(&mut self, value: f64, level: f64, hysteresis: f64) -> bool {
        let falls = self.above && value <= level;
        self.above = (self.above && !falls) || value > level + hysteresis;
        falls
    }

    /// Whether the value has just entered the window (`true`) or left it (`false`).
    fn comes(&mut self, value: f64, low: f64, high: f64) -> Option<bool> {
        let inside = (low..=high).contains(&value);
        let before = self.inside.replace(inside);
        before.filter(|before| *before != inside).map(|_| inside)
    }
}

/// The state machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    timing: Timing,
    watch: Watch,
    phase: Phase,
    /// Number of rows in the present segment.
    rows: u64,
    /// Number of rows missing from the present capture.
    left: u64,
    /// Cycles since the last trigger, and since the machine was armed.
    since_trigger: u64,
    waited: u64,
    /// Cycles until the next row.
    until_row: u64,
    /// A trigger from a cycle without a row.
    pending: Option<Cause>,
    held: bool,
    captures: u64,
    ignored: u64,
}

impl Machine {
    /// A machine that starts with the next cycle.
    #[must_use]
    pub fn new(timing: Timing, condition: Condition) -> Self {
        let phase = if timing.mode == Mode::Roll { Phase::Rolling } else { Phase::Filling };
        Self { timing, phase, watch: Watch::new(condition), since_trigger: timing.holdoff, ..Self::default() }
    }

    /// Present phase.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Number of complete captures.
    #[must_use]
    pub const fn captures(&self) -> u64 {
        self.captures
    }

    /// Triggers that were ignored: before enough rows were recorded, during a capture, or during the holdoff.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Stops sampling. Complete captures remain.
    pub fn stop(&mut self) {
        self.phase = Phase::Stopped;
    }

    /// Processes one cycle. `force` begins a capture at once, even if there are too few rows before it.
    ///
    /// Real-time: about twenty comparisons.
    pub fn step(&mut self, seen: &CycleInput, force: Option<Cause>) -> Step {
        if self.phase == Phase::Stopped {
            return Step::default();
        }
        let holds = self.watch.holds(seen);
        let row = self.until_row == 0;
        self.until_row = if row { self.timing.every.saturating_sub(1) } else { self.until_row - 1 };
        self.since_trigger = self.since_trigger.saturating_add(1);
        if self.phase == Phase::Rolling {
            return Step { row, ..Step::default() };
        }
        if self.phase == Phase::Filling && self.rows >= self.timing.pre && self.since_trigger > self.timing.holdoff {
            self.phase = Phase::Armed;
            self.waited = 0;
        }
        let trigger = self.triggers(holds, force);
        self.held = holds;
        if !row {
            self.pending = self.pending.or(trigger);
            return Step::default();
        }
        self.rows += 1;
        let trigger = self.pending.take().or(trigger);
        if trigger.is_some() {
            self.phase = Phase::Triggered;
            self.left = self.timing.length.saturating_sub(self.timing.pre);
        }
        let complete = self.phase == Phase::Triggered && {
            self.left = self.left.saturating_sub(1);
            self.left == 0
        };
        if complete {
            self.end();
        }
        Step { row, trigger, complete }
    }

    /// The cause, if this cycle triggers.
    fn triggers(&mut self, holds: bool, force: Option<Cause>) -> Option<Cause> {
        self.waited = self.waited.saturating_add(1);
        let may = self.pending.is_none();
        let auto = self.timing.mode == Mode::Auto && self.waited > self.timing.patience;
        let trigger = match self.phase {
            Phase::Armed if holds && may => Some(Cause::Condition),
            Phase::Armed | Phase::Filling if force.is_some() && may => force,
            Phase::Armed if auto && may => Some(Cause::Auto),
            _ => None,
        };
        // A condition that continues to hold counts as one trigger.
        if holds && !self.held && trigger != Some(Cause::Condition) {
            self.ignored += 1;
        }
        if trigger.is_some() {
            self.since_trigger = 0;
        }
        trigger
    }

    /// Continues with the next segment, or stops.
    fn end(&mut self) {
        self.captures += 1;
        self.rows = 0;
        let over = self.timing.captures != 0 && self.captures >= self.timing.captures;
        self.phase = if over { Phase::Stopped } else { Phase::Filling };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fired(condition: Condition, values: &[f64]) -> Vec<usize> {
        let mut watch = Watch::new(condition);
        let seen = |(pulse, value): (usize, &f64)| CycleInput {
            pulse: pulse as u64,
            value: *value,
            bits: value.to_bits(),
            marks: 0,
        };
        values.iter().enumerate().filter(|at| watch.holds(&seen(*at))).map(|(index, _)| index).collect()
    }

    #[test]
    fn an_edge_triggers_once_at_the_level_and_hysteresis_suppresses_noise() {
        let noisy = [0.0, 0.9, 1.0, 0.95, 1.1, 0.2, 1.5];
        assert_eq!(fired(Condition::Rising { level: 1.0, hysteresis: 0.0 }, &noisy), [2, 4, 6]);
        assert_eq!(fired(Condition::Rising { level: 1.0, hysteresis: 0.5 }, &noisy), [2, 6]);
        assert_eq!(fired(Condition::Falling { level: 1.0, hysteresis: 0.05 }, &noisy), [5]);
        assert_eq!(fired(Condition::Crossing { level: 1.0, hysteresis: 0.0 }, &noisy), [2, 4, 5, 6]);
        assert!(fired(Condition::Rising { level: 1.0, hysteresis: 0.0 }, &[2.0, 3.0]).is_empty(), "it was never below");
        assert_eq!(fired(Condition::Rising { level: 1.0, hysteresis: 0.0 }, &[0.0, f64::NAN, 2.0]), [2]);
    }

    #[test]
    fn levels_windows_and_changes_trigger_at_their_limits() {
        assert_eq!(fired(Condition::Above { level: 1.0 }, &[0.0, 2.0, 1.0, 3.0]), [1, 3]);
        assert_eq!(fired(Condition::Below { level: 1.0 }, &[0.0, 2.0, f64::NAN]), [0]);
        let path = [0.0, 1.0, 1.5, 3.0, f64::NAN, 2.0];
        assert_eq!(fired(Condition::Enters { low: 1.0, high: 2.0 }, &path), [1, 5]);
        assert_eq!(fired(Condition::Leaves { low: 1.0, high: 2.0 }, &path), [3]);
        assert_eq!(fired(Condition::Changes, &[1.0, 1.0, -1.0, -1.0]), [2]);
    }

    #[test]
    fn skipped_pulses_still_trigger() {
        let pulses = |condition, pulses: &[u64]| {
            let mut watch = Watch::new(condition);
            let seen = |pulse: u64| CycleInput { pulse, ..CycleInput::default() };
            pulses.iter().copied().filter(|pulse| watch.holds(&seen(*pulse))).collect::<Vec<_>>()
        };
        assert_eq!(pulses(Condition::Pulse { number: 5 }, &[3, 4, 7, 8]), [7]);
        assert_eq!(pulses(Condition::EachPulse { period: 10, phase: 3 }, &[3, 12, 13, 22, 24, 25]), [13, 24]);
    }

    /// Processes the values and returns the rows of each complete capture, with the index of its trigger.
    fn captured(timing: Timing, condition: Condition, values: &[f64]) -> (Vec<(Vec<u64>, usize)>, Machine) {
        let mut machine = Machine::new(timing, condition);
        let (mut rows, mut captures, mut at): (Vec<u64>, Vec<_>, _) = (Vec::new(), Vec::new(), None);
        for (pulse, value) in values.iter().enumerate() {
            let seen = CycleInput { pulse: pulse as u64, value: *value, bits: value.to_bits(), marks: 0 };
            let step = machine.step(&seen, None);
            if step.row {
                rows.push(pulse as u64);
            }
            if step.trigger.is_some() {
                at = Some(rows.len() - 1);
            }
            if step.complete {
                let trigger = at.take().expect("a capture has a trigger");
                let first = trigger.saturating_sub(timing.pre as usize);
                captures.push((rows.split_off(first), trigger - first));
                rows.clear();
            }
        }
        (captures, machine)
    }

    const NORMAL: Timing =
        Timing { mode: Mode::Normal, pre: 2, length: 4, every: 1, holdoff: 0, patience: 0, captures: 0 };
    const EDGE: Condition = Condition::Rising { level: 0.5, hysteresis: 0.0 };

    #[test]
    fn a_capture_has_its_rows_before_and_after_the_trigger() {
        let pulse = |at: &[usize]| (0..20).map(|k| f64::from(u8::from(at.contains(&k)))).collect::<Vec<_>>();
        let (captures, machine) = captured(NORMAL, EDGE, &pulse(&[1, 5, 7, 12]));
        assert_eq!(captures, [(vec![3, 4, 5, 6], 2), (vec![10, 11, 12, 13], 2)]);
        assert_eq!((machine.captures(), machine.ignored()), (2, 2), "triggers 1 and 7 precede the second row");
        let (captures, machine) = captured(Timing { captures: 1, ..NORMAL }, EDGE, &pulse(&[5, 12]));
        assert_eq!((captures.len(), machine.phase()), (1, Phase::Stopped));
        let (captures, _) = captured(Timing { holdoff: 8, ..NORMAL }, EDGE, &pulse(&[5, 12, 16]));
        assert_eq!(captures.iter().map(|(rows, _)| rows[2]).collect::<Vec<_>>(), [5, 16], "12 is within the holdoff");
        let (captures, _) = captured(Timing { every: 3, ..NORMAL }, EDGE, &pulse(&[10]));
        assert_eq!(captures, [(vec![6, 9, 12, 15], 2)], "a row each three cycles, the trigger at the next row");
    }

    #[test]
    fn auto_mode_triggers_without_a_condition_and_a_forced_trigger_acts_at_once() {
        let (captures, _) = captured(Timing { mode: Mode::Auto, patience: 5, ..NORMAL }, EDGE, &[0.0; 20]);
        assert_eq!(captures[0], (vec![5, 6, 7, 8], 2));
        let mut machine = Machine::new(NORMAL, Condition::Never);
        let step = machine.step(&CycleInput::default(), Some(Cause::Alarm));
        assert_eq!((step.trigger, machine.phase()), (Some(Cause::Alarm), Phase::Triggered));
        let (captures, machine) = captured(Timing { mode: Mode::Roll, ..NORMAL }, EDGE, &[0.0, 1.0, 0.0]);
        assert_eq!((captures.len(), machine.phase()), (0, Phase::Rolling));
    }

    proptest! {
        #[test]
        fn captures_have_the_requested_length_and_share_no_row(
            (pre, post, every, holdoff) in (0u64..6, 1u64..6, 1u64..4, 0u64..20),
            values in proptest::collection::vec(0u8..3, 0..300),
        ) {
            let timing = Timing { pre, length: pre + post, every, holdoff, ..NORMAL };
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let (captures, machine) = captured(timing, EDGE, &values);
            prop_assert_eq!(captures.len() as u64, machine.captures());
            for (rows, trigger) in &captures {
                prop_assert_eq!((rows.len() as u64, *trigger as u64), (pre + post, pre));
                prop_assert!(rows.windows(2).all(|pair| pair[1] == pair[0] + every));
            }
            prop_assert!(captures.windows(2).all(|pair| pair[0].0.last() < pair[1].0.first()));
        }
    }
}

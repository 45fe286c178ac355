//! From exported variables to the archive: every sample that the writer's ring still has when it is looked at.
//!
//! The writer neither waits nor knows of it: a look is a few loads of memory that it shares with everybody.

use crate::gate::Gate;
use crate::kept;
use base::{MonoNs, Severity, Status};
use host::plant::archive::{Policy, Signal};
use ring::{Cursor, Number, Variables};
use rt::{Imports, LOOK_AFTER};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use store::{Folder, Logger, SignalId, StoreError};

/// How far the wall clock may go away from what stamps are made with, before they follow it.
const CLOCK_STEP_NS: i64 = 1_000_000;

/// Samples of a ring that are not later than the archive's newest by more than this were archived before: the clocks were
/// compared anew since.
const SAME_NS: i64 = 2 * CLOCK_STEP_NS;

/// What is told of while variables are read.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&str);

/// The wall clock's time at an instant of the monotonic one; steady while the wall clock is.
pub(crate) struct Clock {
    offset: i64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { offset: offset() }
    }

    /// Follows a wall clock that was set.
    fn follow(&mut self) {
        let now = offset();
        if (now - self.offset).abs() > CLOCK_STEP_NS {
            self.offset = now;
        }
    }

    fn wall(&self, at: MonoNs) -> i64 {
        i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(self.offset)
    }
}

/// Wall clock minus monotonic clock, by the reading that was disturbed least.
fn offset() -> i64 {
    let one = || {
        let before = crate::serve::mono();
        let wall = crate::serve::wall();
        let after = crate::serve::mono();
        (after - before, wall - before - (after - before) / 2)
    };
    (0..5).map(|_| one()).min_by_key(|(took, _)| *took).map_or(0, |(_, offset)| offset)
}

/// What one process exports.
pub(crate) struct Page {
    name: String,
    /// Patterns of names, the first that fits decides.
    wanted: Vec<(String, Policy)>,
    imports: Option<Imports>,
    /// By index; `None` for what is not wanted.
    variables: Vec<Option<Variable>>,
    /// When it is asked next whether somebody exports, or still does.
    ask_at: i64,
}

struct Variable {
    signal: SignalId,
    gate: Gate,
    cursor: Cursor,
    /// Samples that were lost so far because the ring went round.
    lost: u64,
    /// The newest sample that the archive had when the connection was made: stamp and pulse.
    had: Option<(i64, Option<u64>)>,
    is_safe: bool,
}

impl Page {
    /// The pages that signals name, each once.
    pub(crate) fn all(signals: &[Signal]) -> Vec<Self> {
        let mut pages: Vec<Self> = Vec::new();
        for signal in signals {
            let Some((name, pattern)) = signal.variables() else { continue };
            let wanted = (pattern.to_owned(), signal.policy);
            match pages.iter_mut().find(|page| page.name == name) {
                Some(page) => page.wanted.push(wanted),
                None => pages.push(Self {
                    name: name.to_owned(),
                    wanted: vec![wanted],
                    imports: None,
                    variables: Vec::new(),
                    ask_at: 0,
                }),
            }
        }
        pages
    }

    /// Takes what was written since the last look; whether a connection was made.
    pub(crate) fn look(
        &mut self,
        now: i64,
        clock: &mut Clock,
        logger: &mut Logger<Folder>,
        tell: Tell<'_>,
    ) -> Result<bool, StoreError> {
        let mut is_new = false;
        let is_asked = now >= self.ask_at;
        if is_asked {
            self.ask_at = now.saturating_add(LOOK_AFTER.0);
            clock.follow();
            if self.imports.is_none()
                && let Ok(imports) = Imports::open(&self.name)
            {
                tell(&format!("{}: variables are connected", self.name));
                self.imports = Some(imports);
                self.variables.clear();
                is_new = true;
            }
        }
        let Some(imports) = &self.imports else { return Ok(false) };
        // Asked before the last look, so that what a process wrote before it ended is not missed.
        let is_alive = !is_asked || imports.is_alive();
        if let Ok(segment) = imports.segment() {
            while self.variables.len() < segment.len() {
                let index = self.variables.len();
                let variable = Variable::new(&self.name, &self.wanted, &segment, index, now, clock, logger)?;
                self.variables.push(variable);
            }
            for (index, variable) in self.variables.iter_mut().enumerate() {
                if let Some(variable) = variable {
                    variable.take(&segment, index, clock, logger);
                }
            }
        }
        if !is_alive {
            tell(&format!("{}: the process that exports has ended", self.name));
            let at = crate::serve::wall();
            for variable in self.variables.iter_mut().flatten() {
                kept::gap(&mut variable.gate, variable.signal, (at, Cause::Disconnected, 0), logger);
            }
            self.imports = None;
        }
        Ok(is_new)
    }

    /// Keeps the values that wait for a scan; when the next one is due.
    pub(crate) fn scan(&mut self, now: i64, logger: &mut Logger<Folder>) -> Option<i64> {
        let variables = self.variables.iter_mut().flatten();
        let due = |variable: &mut Variable| {
            kept::scan(&mut variable.gate, variable.signal, now, logger);
            variable.gate.due()
        };
        variables.filter_map(due).min()
    }

    /// Whether somebody exports.
    pub(crate) const fn is_connected(&self) -> bool {
        self.imports.is_some()
    }
}

impl Variable {
    fn new(
        page: &str,
        wanted: &[(String, Policy)],
        segment: &Variables<'_>,
        index: usize,
        now: i64,
        clock: &Clock,
        logger: &mut Logger<Folder>,
    ) -> Result<Option<Self>, StoreError> {
        let (Some(name), Some(cursor)) = (segment.name(index), segment.oldest(index)) else { return Ok(None) };
        let fits = |pattern: &str| pattern == name.as_str() || base::glob(pattern, name.as_str());
        let Some((_, policy)) = wanted.iter().find(|(pattern, _)| fits(pattern)) else { return Ok(None) };
        let units = segment.unit(index).map(|unit| unit.as_str().to_owned()).unwrap_or_default();
        let about = About { units, precision: None, labels: Vec::new() };
        let since = clock.wall(MonoNs(now.max(0) as u64));
        let signal = logger.signal(&format!("{page}/{}", name.as_str()), about, since)?;
        let had = logger.newest(signal);
        Ok(Some(Self { signal, gate: Gate::new(*policy, now), cursor, lost: 0, had, is_safe: false }))
    }

    fn take(&mut self, segment: &Variables<'_>, index: usize, clock: &Clock, logger: &mut Logger<Folder>) {
        let reading = segment.get(index);
        let is_safe = reading.is_some_and(|reading| reading.safe);
        let (severity, status) =
            if is_safe { (Severity::Major, Status::State) } else { (Severity::None, Status::default()) };
        let sample = |value: Number, pulse: u64, at: i64| Sample {
            severity: severity as u8,
            status: status as u16,
            pulse: (pulse != 0).then_some(pulse),
            ..Sample::new(at, datum(value))
        };
        // Not more than the ring holds: a writer that is faster than this look would keep it here.
        for _ in 0..segment.kept() {
            let Some(written) = segment.next(index, &mut self.cursor) else { break };
            let sample = sample(written.value, written.pulse, clock.wall(written.at));
            if self.was_archived(&sample) {
                continue;
            }
            if let Some(sample) = self.gate.update(sample) {
                logger.push(self.signal, &sample);
            }
        }
        let lost = self.cursor.lost();
        if lost > self.lost {
            logger.gap(Some(self.signal), crate::serve::wall(), Cause::Overflow, lost - self.lost);
            self.lost = lost;
        }
        if is_safe && !self.is_safe {
            kept::fault(&mut self.gate, self.signal, logger);
            if let Some(reading) = reading {
                let at = clock.wall(MonoNs(crate::serve::mono().max(0) as u64));
                logger.push(self.signal, &sample(reading.value, reading.pulse, at));
            }
        }
        self.is_safe = is_safe;
    }

    /// Whether the archive had a sample already when the connection was made.
    fn was_archived(&mut self, sample: &Sample) -> bool {
        let Some((at, pulse)) = self.had else { return false };
        let is_pulse = pulse.zip(sample.pulse).is_none_or(|(had, this)| this <= had);
        let was = sample.at <= at.saturating_add(SAME_NS) && is_pulse;
        if !was {
            self.had = None;
        }
        was
    }
}

const fn datum(value: Number) -> Datum {
    match value {
        Number::Float(value) => Datum::Number(base::Scalar::F64(value)),
        Number::Int(value) => Datum::Number(base::Scalar::I64(value)),
        Number::Bool(value) => Datum::Bool(value),
    }
}

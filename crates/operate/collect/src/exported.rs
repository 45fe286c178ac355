//! Exported variables as a source: every sample that is still in the writer's ring when it is polled.
//!
//! The writer does not wait for the logger and is not aware of it. Polling only reads shared memory.

use crate::clock::{Clock, SAME_NS};
use crate::gate::Gate;
use crate::kept;
use crate::unconnected::{Unconnected, fits};
use base::{DurNs, MonoNs, Severity, Status};
use host::plant::archive::{Policy, Signal};
use ring::{Cursor, Number, Variables};
use rt::{Imports, LOOK_AFTER, stale_after};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use store::{Folder, Logger, Newest, SignalId, StoreError};

/// Receives messages for the log.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&str);

/// Minimum age of the newest value of a process that has set its period before the process is frozen. Shorter delays lose nothing.
const FROZEN_AFTER: DurNs = DurNs::from_secs(2);

/// The exported variables of one process.
pub(crate) struct Page {
    name: String,
    /// Patterns of names; the first match decides.
    wanted: Vec<(String, Policy)>,
    imports: Option<Imports>,
    /// By index; `None` for variables that are not archived.
    variables: Vec<Option<Variable>>,
    /// Time of the next check whether the process exports, or still does.
    ask_at: i64,
    /// Time of the connection.
    connected_at: i64,
    /// The process is alive, but writes none of its variables.
    is_frozen: bool,
}

struct Variable {
    signal: SignalId,
    gate: Gate,
    cursor: Cursor,
    /// Samples lost so far because the ring was overwritten.
    lost: u64,
    is_safe: bool,
}

impl Page {
    /// One page per process that the signals name.
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
                    connected_at: 0,
                    is_frozen: false,
                }),
            }
        }
        pages
    }

    /// Reads everything written since the last poll. Returns true if a connection was made.
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
                (self.connected_at, self.is_frozen) = (now, false);
                is_new = true;
            }
        }
        let Some(imports) = &self.imports else { return Ok(false) };
        // Check before the last read, so that no sample written before the process ended is missed.
        let is_alive = !is_asked || imports.is_alive();
        if let Ok(segment) = imports.segment() {
            while self.variables.len() < segment.len() {
                let index = self.variables.len();
                let variable = Variable::new(&self.name, &self.wanted, (&segment, index), now, clock, logger, tell)?;
                self.variables.push(variable);
            }
            for (index, variable) in self.variables.iter_mut().enumerate() {
                if let Some(variable) = variable {
                    variable.take(&segment, index, clock, logger);
                }
            }
            let is_frozen = if is_asked { is_frozen(&segment, self.connected_at, now) } else { self.is_frozen };
            if std::mem::replace(&mut self.is_frozen, is_frozen) != is_frozen {
                let what = if is_frozen { "is alive but writes no values" } else { "writes values again" };
                tell(&format!("{}: the process that exports {what}", self.name));
                for variable in self.variables.iter_mut().flatten().filter(|_| is_frozen) {
                    let at = clock.wall(newest(&segment)).saturating_add(1);
                    kept::gap(&mut variable.gate, variable.signal, (at, Cause::Disconnected, 0), logger);
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

    /// Stores the values that are due for a scan. Returns the time of the next scan.
    pub(crate) fn scan(&mut self, now: i64, logger: &mut Logger<Folder>) -> Option<i64> {
        let variables = self.variables.iter_mut().flatten();
        let due = |variable: &mut Variable| {
            kept::scan(&mut variable.gate, variable.signal, now, logger);
            variable.gate.due()
        };
        variables.filter_map(due).min()
    }

    /// Adds the wanted patterns, each connected if the process exports a variable that fits and is not frozen.
    pub(crate) fn add_to(&self, list: &mut Unconnected) {
        let segment = self.imports.as_ref().and_then(|imports| imports.segment().ok());
        for (pattern, _) in &self.wanted {
            let has = |segment: &Variables<'_>| {
                let mut names = (0..segment.len()).filter_map(|index| segment.name(index));
                names.any(|name| fits(pattern, name.as_str()))
            };
            list.add(!self.is_frozen && segment.as_ref().is_some_and(has), || format!("{}/{pattern}", self.name));
        }
    }

    /// Whether a process exports.
    pub(crate) const fn is_connected(&self) -> bool {
        self.imports.is_some()
    }
}

/// Time of the newest value of all variables.
fn newest(segment: &Variables<'_>) -> MonoNs {
    (0..segment.len()).filter_map(|index| segment.get(index)).map(|reading| reading.at).max().unwrap_or(MonoNs(0))
}

/// Whether a process with a period has written none of its variables for too long.
fn is_frozen(segment: &Variables<'_>, connected_at: i64, now: i64) -> bool {
    let since = connected_at.max(i64::try_from(newest(segment).0).unwrap_or(i64::MAX));
    segment.period().is_some_and(|period| now.saturating_sub(since) > stale_after(period).max(FROZEN_AFTER).0)
}

impl Variable {
    fn new(
        page: &str,
        wanted: &[(String, Policy)],
        (segment, index): (&Variables<'_>, usize),
        now: i64,
        clock: &Clock,
        logger: &mut Logger<Folder>,
        tell: Tell<'_>,
    ) -> Result<Option<Self>, StoreError> {
        let (Some(name), Some(cursor)) = (segment.name(index), segment.oldest(index)) else { return Ok(None) };
        let Some((_, policy)) = wanted.iter().find(|(pattern, _)| fits(pattern, name.as_str())) else {
            return Ok(None);
        };
        let units = segment.unit(index).map(|unit| unit.as_str().to_owned()).unwrap_or_default();
        let about = About { units, precision: None, labels: Vec::new() };
        // The metadata also hold for the samples already in the ring.
        let mut oldest = cursor;
        let oldest = segment.next(index, &mut oldest).map(|written| written.at);
        let since = clock.wall(oldest.unwrap_or(MonoNs(now.max(0) as u64)));
        let name = format!("{page}/{}", name.as_str());
        let signal = match logger.signal(&name, about, since) {
            Ok(signal) => signal,
            // The exporter chose an invalid name. Archive its other variables.
            Err(error @ StoreError::Name { .. }) => {
                tell(&format!("{name}: not archived: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut variable = Self { signal, gate: Gate::new(*policy, now), cursor, lost: 0, is_safe: false };
        let keeps_all = *policy == Policy::Monitor { deadband: 0.0 };
        variable.join((segment, index), keeps_all, clock, logger);
        Ok(Some(variable))
    }

    /// Reads the samples in the ring on connection, except those already archived. If every sample is kept and the number lost in
    /// between can be determined, records it.
    fn join(
        &mut self,
        (segment, index): (&Variables<'_>, usize),
        keeps_all: bool,
        clock: &Clock,
        logger: &mut Logger<Folder>,
    ) {
        let before = self.cursor.position();
        let there: Vec<Sample> = std::iter::from_fn(|| segment.next(index, &mut self.cursor))
            .take(segment.kept())
            .map(|written| sample(written.value, (written.pulse, false), clock.wall(written.at)))
            .collect();
        self.lost = self.cursor.lost();
        let had = logger.newest(self.signal);
        let joint = had.map_or(Joint::Fresh, |had| Joint::of(&had, &there, before + self.lost));
        let new = match joint {
            Joint::Fresh => &there[..],
            Joint::LoopState(count) => &there[count..],
            Joint::Lost(count) => {
                if let Some(had) = had.filter(|_| keeps_all) {
                    logger.gap(Some(self.signal), had.at.saturating_add(1), Cause::Away, count);
                }
                &there[..]
            }
        };
        for sample in new {
            kept::update(&mut self.gate, self.signal, sample.clone(), logger);
        }
    }

    fn take(&mut self, segment: &Variables<'_>, index: usize, clock: &Clock, logger: &mut Logger<Folder>) {
        let reading = segment.get(index);
        let is_safe = reading.is_some_and(|reading| reading.safe);
        let mut last = logger.newest(self.signal).map(|newest| newest.at);
        // At most one ring: a writer faster than this loop would otherwise keep it busy.
        for _ in 0..segment.kept() {
            let Some(written) = segment.next(index, &mut self.cursor) else { break };
            let sample = sample(written.value, (written.pulse, is_safe), clock.wall(written.at));
            let lost = self.cursor.lost() - self.lost;
            if lost > 0 {
                self.lost += lost;
                // The gap starts after the last sample that was read.
                let at = last.map_or(sample.at, |last| last.saturating_add(1).min(sample.at));
                logger.gap(Some(self.signal), at, Cause::Overflow, lost);
            }
            last = Some(sample.at);
            if let Some(sample) = self.gate.update(sample) {
                logger.push(self.signal, &sample);
            }
        }
        if is_safe && !self.is_safe {
            kept::fault(&mut self.gate, self.signal, logger);
            if let Some(reading) = reading {
                let at = clock.wall(MonoNs(crate::serve::mono().max(0) as u64));
                logger.push(self.signal, &sample(reading.value, (reading.pulse, true), at));
            }
        }
        self.is_safe = is_safe;
    }
}

/// Relation of a ring's samples to the archived ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joint {
    /// None: another process wrote them, or the ring still has all samples of its process.
    Fresh,
    /// This many of the ring's samples are archived.
    LoopState(usize),
    /// This many samples in between are lost; 0 if the number is unknown.
    Lost(u64),
}

impl Joint {
    /// Compares the newest archived sample with those of a ring, of which `before` samples were overwritten.
    fn of(had: &Newest, there: &[Sample], before: u64) -> Self {
        let is_that = |sample: &&Sample| {
            let is_near = (sample.at - had.at).abs() <= SAME_NS;
            (if had.pulse.is_some() { sample.pulse == had.pulse } else { is_near }) && had.has(&sample.datum)
        };
        // Values without a pulse number may repeat within the time by which stamps may differ: take the last match.
        if let Some(last) = there.iter().rposition(|sample| is_that(&sample)) {
            return Self::LoopState(last + 1);
        }
        let Some(first) = there.first().filter(|_| before > 0) else { return Self::Fresh };
        let (Some(had), Some(pulse)) = (had.pulse, first.pulse) else {
            return if first.at > had.at { Self::Lost(0) } else { Self::Fresh };
        };
        if pulse <= had {
            return Self::Fresh;
        }
        let mut steps = there.windows(2).map(|two| two[1].pulse?.checked_sub(two[0].pulse?).filter(|step| *step > 0));
        let step = steps.next().flatten();
        match step.filter(|step| steps.all(|other| other == Some(*step)) && (pulse - had).is_multiple_of(*step)) {
            // A process that was restarted meanwhile cannot have overwritten more than it wrote.
            Some(step) => Self::Lost(((pulse - had) / step - 1).min(before)),
            None => Self::Lost(0),
        }
    }
}

/// Converts a value to a sample, with its pulse (0: none) and an alarm while a safe value is set.
fn sample(value: Number, (pulse, is_safe): (u64, bool), at: i64) -> Sample {
    let (severity, status) =
        if is_safe { (Severity::Major, Status::State) } else { (Severity::None, Status::default()) };
    Sample {
        severity: severity as u8,
        status: status as u16,
        pulse: (pulse != 0).then_some(pulse),
        ..Sample::new(at, datum(value))
    }
}

const fn datum(value: Number) -> Datum {
    match value {
        Number::Float(value) => Datum::Number(base::Scalar::F64(value)),
        Number::Int(value) => Datum::Number(base::Scalar::I64(value)),
        Number::Bool(value) => Datum::Bool(value),
    }
}

#[cfg(test)]
#[path = "exported_tests.rs"]
mod tests;

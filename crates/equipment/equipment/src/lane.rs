//! A lane: the devices of one thread, with the requests, loops and polls on them. It is a state machine with `now` as an
//! argument. The caller owns the thread and the devices.
//!
//! Each request gets exactly one answer. [`Lane::request`] answers immediately, or keeps a `set` until its value is reached,
//! its time is over, or its deadline passes.

use crate::agent::{Agent, is_agent};
use crate::convert::Convert;
use crate::datum::{Datum, DeviceFault, Fault};
use crate::device::{Device, Driver};
use crate::execute;
use crate::sim::{Bpm, BpmSpec, PowerSupply, PowerSupplySpec, RfStation, RfStationSpec};
use crate::tables::{Row, Settings, Tables, within};
use base::{DurNs, MonoNs, Schedule};
use msg::Verb;
use std::fmt;
use std::sync::Arc;

/// Maximum number of `set` requests that wait for their value on one lane. Further ones are refused as busy.
pub const PENDING_MAX: usize = 256;
/// Tolerance in nanoseconds between two clock readings of the same instant. A cycle due at a frame's border starts there.
const SAME: u64 = 1_000;
/// Interval at which a waiting `set` checks its value.
const LOOK: DurNs = DurNs::from_ms(10);

/// The successful answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<'a> {
    /// A value, its unit and the number of digits after the point.
    Value(Datum<'a>, &'a str, Option<usize>),
    /// Success without a value.
    Ok,
}

/// Receives the results of a lane.
pub trait Answers<Id> {
    /// Receives the only answer to a request.
    ///
    /// Called on the lane's thread, which may be real time.
    fn answer(&mut self, id: Id, answer: Result<Answer<'_>, Fault<'_>>);

    /// Receives a request whose deadline passed before its execution. It is the only answer.
    fn expired(&mut self, id: Id);

    /// Receives a polled value: index of the poll, index of its entry, number of the cycle. `None` if the read failed.
    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, now: MonoNs);
}

struct Pending<Id> {
    id: Id,
    /// The `get` entry whose value is compared.
    get: usize,
    target: f64,
    within: f64,
    begun: MonoNs,
    until: MonoNs,
    look: MonoNs,
}

enum DeviceSlot {
    /// On another lane, or still on the lane that this one replaces.
    Elsewhere,
    Device(Box<dyn Device + Send>),
    Agent(Box<Agent>),
}

/// The entries of a poll on this lane, and their schedule.
struct Cycle {
    poll: usize,
    entries: Vec<usize>,
    schedule: Schedule,
    /// The time of the first read: immediately, in the present cycle. The next cycle may be up to an hour away.
    first: Option<MonoNs>,
}

impl Cycle {
    fn due(&self) -> MonoNs {
        self.first.unwrap_or(self.schedule.due())
    }

    /// The number of the cycle at `now`, if it must be read now.
    fn begin(&mut self, now: MonoNs) -> Option<u64> {
        if now >= self.schedule.due() {
            self.schedule.advance(now);
        } else {
            self.first?;
        }
        self.first = None;
        Some(self.schedule.pulse().saturating_sub(1))
    }
}

/// A lane. See the module documentation.
pub struct Lane<Id> {
    tables: Arc<Tables>,
    number: usize,
    slots: Vec<DeviceSlot>,
    pending: Vec<Pending<Id>>,
    polls: Vec<Cycle>,
}

/// A device that could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneError<E> {
    /// The position in the tables.
    pub place: String,
    /// The name of the device.
    pub device: String,
    /// The driver's error: found and expected.
    pub why: E,
}

impl<E: fmt::Display> fmt::Display for LaneError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: device {:?}: {}", self.place, self.device, self.why)
    }
}

impl<E: std::error::Error> std::error::Error for LaneError<E> {}

impl<Id: Copy> Lane<Id> {
    /// Creates a lane of the tables, with its devices. The cycles of polls begin at whole multiples of their period on the time
    /// scale that reads `scale_ns` at `now` (TAI, as for the pulses of loops). All hosts therefore read at the same time and with
    /// the same cycle numbers. `make` creates the devices that are not in this crate. Devices that are unchanged from the tables
    /// `before` are not created; [`take_over`](Self::take_over) moves them.
    ///
    /// # Errors
    /// The device that could not be created, and the reason.
    pub fn new<E>(
        tables: Arc<Tables>,
        number: usize,
        (now, scale_ns): (MonoNs, u64),
        before: Option<&Tables>,
        make: &mut dyn FnMut(usize) -> Result<Box<dyn Device + Send>, E>,
    ) -> Result<Self, LaneError<E>> {
        let mut slots = Vec::new();
        for (index, spec) in tables.devices.iter().enumerate() {
            let kept = before.is_some_and(|before| tables.keeps(before, index).is_some());
            slots.push(if kept || tables.device_lane(index) != number {
                DeviceSlot::Elsewhere
            } else if is_agent(spec.driver) {
                DeviceSlot::Agent(Box::new(Agent::new(spec.driver, &spec.settings, &spec.points)))
            } else if let Some(device) = built_in(spec.driver, &spec.settings, &spec.points) {
                DeviceSlot::Device(device)
            } else {
                let place = || spec.place.to_string();
                DeviceSlot::Device(make(index).map_err(|why| LaneError {
                    place: place(),
                    device: spec.name.clone(),
                    why,
                })?)
            });
        }
        let mine = |(index, poll): (usize, &crate::Poll)| {
            let entries: Vec<usize> =
                (0..poll.entries.len()).filter(|at| tables.lane(poll.entries[*at]) == number).collect();
            let schedule = Schedule::aligned(now, scale_ns.saturating_add(SAME), poll.period, DurNs::ZERO);
            (!entries.is_empty()).then_some(Cycle { poll: index, entries, schedule, first: Some(now) })
        };
        let polls = tables.polls.iter().enumerate().filter_map(mine).collect();
        Ok(Self { tables: tables.clone(), number, slots, pending: Vec::with_capacity(PENDING_MAX), polls })
    }

    /// The tables of the lane.
    #[must_use]
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Takes over the state of a lane of previous tables: the unchanged devices and the waiting `set` requests. A waiting
    /// request is answered if its object no longer exists.
    ///
    /// Real-time: moves existing values, frees nothing.
    pub fn take_over(&mut self, old: &mut Self, now: MonoNs, out: &mut dyn Answers<Id>) {
        let tables = self.tables.clone();
        for device in (0..self.slots.len()).filter(|device| tables.device_lane(*device) == self.number) {
            if let Some(was) = tables.keeps(&old.tables, device)
                && !matches!(old.slots[was], DeviceSlot::Elsewhere)
            {
                std::mem::swap(&mut self.slots[device], &mut old.slots[was]);
            }
        }
        for pending in old.pending.drain(..) {
            let (object, complement) =
                (&old.tables.entries[pending.get].object, &old.tables.entries[pending.get].form.0);
            match tables.interpret(Verb::Get, object, complement) {
                Ok((get, _)) if tables.lane(get) == self.number => self.pending.push(Pending { get, ..pending }),
                _ => {
                    let after = now - pending.begun;
                    out.answer(pending.id, Err(Fault::NotReached { stood: f64::NAN, after, unit: "" }));
                }
            }
        }
    }

    /// Drops the waiting `set` requests. The message server has answered them when the connection ended.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    /// Executes a request, unless its deadline has passed.
    ///
    /// Real-time: takes as long as its device; allocates only for texts.
    #[expect(clippy::too_many_arguments, reason = "a request's parts, as the message has them")]
    pub fn request(
        &mut self,
        id: Id,
        verb: Verb,
        object: &str,
        complement: &str,
        deadline: Option<MonoNs>,
        now: MonoNs,
        out: &mut dyn Answers<Id>,
    ) {
        if deadline.is_some_and(|deadline| now >= deadline) {
            return out.expired(id);
        }
        let tables = self.tables.clone();
        let (entry, value) = match tables.interpret(verb, object, complement) {
            Ok(found) => found,
            Err(fault) => return out.answer(id, Err(fault)),
        };
        let row = &tables.rows[tables.entries[entry].row];
        if !verb.writes() {
            return out.answer(id, self.read(&tables, entry, now).map(|value| shown(row, value)));
        }
        let Some(value) = value else { return out.answer(id, Err(Fault::Form { expected: "a value" })) };
        let target = value.number();
        let reached = row.reached.as_ref().filter(|_| verb == Verb::Set);
        if reached.is_some() && self.pending.len() == PENDING_MAX {
            let busy = DeviceFault::Busy("256 sets wait for their values already".into());
            return out.answer(id, Err(Fault::Device(busy)));
        }
        if let Err(fault) = self.write(&tables, entry, value, now) {
            return out.answer(id, Err(fault));
        }
        let Some(reached) = reached else { return out.answer(id, Ok(Answer::Ok)) };
        let looked = tables.interpret(Verb::Get, object, &reached.complement);
        match (looked, target) {
            (Ok((get, _)), Some(target)) => {
                // Slightly before the deadline, so that the client still receives the present value.
                let last = deadline.map_or(MonoNs(u64::MAX), |deadline| deadline + DurNs(-LOOK.0));
                let until = (now + reached.timeout).min(last);
                let within = reached.within;
                self.pending.push(Pending { id, get, target, within, begun: now, until, look: now });
                self.look(now, out);
            }
            // A label is not a number to compare. The write completes the request.
            _ => out.answer(id, Ok(Answer::Ok)),
        }
    }

    /// The next time at which [`run`](Self::run) has work.
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        let agents = self.slots.iter().filter_map(|slot| match slot {
            DeviceSlot::Agent(agent) => Some(agent.due().unwrap_or(MonoNs(0))),
            _ => None,
        });
        let polls = self.polls.iter().map(Cycle::due);
        agents.chain(polls).chain(self.pending.iter().map(|pending| pending.look)).min()
    }

    /// Runs the loops, polls and checks of waiting requests that are due.
    ///
    /// Real-time: takes as long as the devices; bounded by their number.
    pub fn run(&mut self, now: MonoNs, out: &mut dyn Answers<Id>) {
        let tables = self.tables.clone();
        for index in 0..self.slots.len() {
            let DeviceSlot::Agent(agent) = &mut self.slots[index] else { continue };
            if agent.is_due(now)
                && let Some((input, output)) = tables.agent_entries(index)
            {
                self.cycle(&tables, index, input, output, now);
            }
        }
        for at in 0..self.polls.len() {
            let Some(pulse) = self.polls[at].begin(now) else { continue };
            let poll = self.polls[at].poll;
            for position in 0..self.polls[at].entries.len() {
                let entry = self.polls[at].entries[position];
                let value = match self.read(&tables, tables.polls[poll].entries[entry], now) {
                    Ok(value) => {
                        raw_number(&tables.rows[tables.entries[tables.polls[poll].entries[entry]].row], &value)
                    }
                    Err(_) => None,
                };
                out.polled(poll, entry, value, pulse, now);
            }
        }
        self.look(now, out);
    }

    /// Runs one cycle of an agent.
    fn cycle(&mut self, tables: &Tables, index: usize, input: usize, output: usize, now: MonoNs) {
        let measured = self.read(tables, input, now).ok().and_then(|value| value.number());
        let DeviceSlot::Agent(agent) = &mut self.slots[index] else { return };
        let Some(measured) = measured else { return agent.failed() };
        let wanted = agent.step(measured);
        let row = &tables.rows[tables.entries[output].row];
        let written = within(row, wanted).and_then(|()| self.write(tables, output, Datum::Number(wanted), now));
        if written.is_err()
            && let DeviceSlot::Agent(agent) = &mut self.slots[index]
        {
            agent.failed();
        }
    }

    /// Checks the waiting `set` requests, and answers those that have reached their value or whose time is over.
    fn look(&mut self, now: MonoNs, out: &mut dyn Answers<Id>) {
        let tables = self.tables.clone();
        let mut at = 0;
        while at < self.pending.len() {
            if now < self.pending[at].look {
                at += 1;
                continue;
            }
            let Pending { id, get, target, within, begun, until, .. } = self.pending[at];
            let row = &tables.rows[tables.entries[get].row];
            let stood = self.read(&tables, get, now).ok().and_then(|value| value.number());
            if stood.is_some_and(|stood| (stood - target).abs() <= within) {
                out.answer(id, Ok(Answer::Ok));
            } else if now >= until {
                let (stood, after) = (stood.unwrap_or(f64::NAN), now - begun);
                out.answer(id, Err(Fault::NotReached { stood, after, unit: &row.unit }));
            } else {
                self.pending[at].look = (now + LOOK).min(until);
                at += 1;
                continue;
            }
            self.pending.swap_remove(at);
        }
    }

    fn read<'a>(&'a mut self, tables: &'a Tables, entry: usize, now: MonoNs) -> Result<Datum<'a>, Fault<'a>> {
        let device = self.device(tables.entries[entry].device).map_err(Fault::Device)?;
        execute::read(tables, entry, device, now, &mut ())
    }

    fn write<'a>(&mut self, tables: &'a Tables, entry: usize, value: Datum<'a>, now: MonoNs) -> Result<(), Fault<'a>> {
        let device = self.device(tables.entries[entry].device).map_err(Fault::Device)?;
        execute::write(tables, entry, value, device, now, &mut ())
    }

    fn device(&mut self, device: usize) -> Result<&mut (dyn Device + Send), DeviceFault> {
        match self.slots.get_mut(device) {
            Some(DeviceSlot::Device(device)) => Ok(&mut **device),
            Some(DeviceSlot::Agent(agent)) => Ok(&mut **agent),
            _ => Err(DeviceFault::Refused("the device is on another lane".into())),
        }
    }
}

/// A value with the unit and precision of its row.
pub(crate) fn shown<'a>(row: &'a Row, value: Datum<'a>) -> Answer<'a> {
    Answer::Value(value, &row.unit, row.precision)
}

/// The number for a value in shared memory. A label is represented by its number.
fn raw_number(row: &Row, value: &Datum<'_>) -> Option<f64> {
    match (row.convert.last(), value) {
        (Some(Convert::Labels(labels)), Datum::Text(text)) => {
            labels.iter().find(|(label, _)| label == text).map(|(_, number)| *number)
        }
        _ => value.number(),
    }
}

/// Creates a device of this crate. Returns `None` for other drivers.
pub(crate) fn built_in(driver: &Driver, settings: &Settings, points: &[String]) -> Option<Box<dyn Device + Send>> {
    let number = |key: &str, default: f64| settings.number(key).unwrap_or(default);
    let seed = settings.number("seed").map_or(1, |seed| seed.max(0.0) as u64);
    let noise = number("noise", 0.0);
    let numbered = |known: &[&str], device: Box<dyn Device + Send>| -> Option<Box<dyn Device + Send>> {
        let places = points.iter().map(|point| known.iter().position(|known| known == point)).collect::<Option<_>>()?;
        Some(Box::new(Numbered { device, places }))
    };
    match driver.word {
        "power-supply" => {
            let default = PowerSupplySpec::default();
            let spec = PowerSupplySpec {
                current_max: number("current_max", default.current_max),
                ramp: number("ramp", default.ramp),
                lag: settings.time("lag").unwrap_or(default.lag),
                on: settings.flag("on").unwrap_or(false),
                noise,
                seed,
            };
            numbered(PowerSupply::POINTS, Box::new(PowerSupply::new(spec)))
        }
        "bpm" => {
            let (x, y, drift, response) =
                (number("x", 0.0), number("y", 0.0), number("drift", 0.0), number("response", 1.0));
            numbered(Bpm::POINTS, Box::new(Bpm::new(BpmSpec { x, y, drift, response, noise, seed })))
        }
        "rf-station" => {
            let default = RfStationSpec::default();
            let spec = RfStationSpec {
                amplitude_max: number("amplitude_max", default.amplitude_max),
                fill: settings.time("fill").unwrap_or(default.fill),
                frequency: number("frequency", default.frequency),
                noise,
                seed,
            };
            numbered(RfStation::POINTS, Box::new(RfStation::new(spec)))
        }
        "clock" => Some(Box::new(Clock)),
        "memory" => Some(Box::new(Memory(vec![0.0; points.len()]))),
        _ => None,
    }
}

/// A device whose point numbers differ from those of the table.
struct Numbered {
    device: Box<dyn Device + Send>,
    places: Vec<usize>,
}

impl Device for Numbered {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.device.read(self.places[point], now)
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, now: MonoNs) -> Result<(), DeviceFault> {
        self.device.write(self.places[point], value, now)
    }
}

struct Clock;

impl Device for Clock {
    fn read(&mut self, _: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        Ok(Datum::Number(now.0 as f64 / 1e9))
    }

    fn write(&mut self, _: usize, _: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        Err(DeviceFault::Refused("the time is read only".into()))
    }
}

struct Memory(Vec<f64>);

impl Device for Memory {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        Ok(Datum::Number(self.0[point]))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        self.0[point] = value.number().ok_or(DeviceFault::Refused("memory takes numbers".into()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

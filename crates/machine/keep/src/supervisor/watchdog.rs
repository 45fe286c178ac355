//! The hardware watchdog. It is petted only while every critical process runs and sends its heartbeat.
//!
//! If the supervisor ends or a critical process hangs, petting stops and the machine resets. Only an orderly shutdown of the
//! plant disarms the watchdog. Heartbeats are checked here as well as by the guard, because the watchdog must work without a
//! guard.

use super::logs::Level;
use super::processes::Processes;
use super::reporter::Reporter;
use crate::watchdog::Watchdog;
use base::{DurNs, MonoNs};
use host::guard::Silence;
use host::health::Observation;
use host::plant::{self, Plant};
use host::supervise::{Id, Phase, State};
use std::collections::BTreeMap;
use std::path::Path;
use sys::clock::mono_now;

/// The plant's hardware watchdog, if it has one.
#[derive(Debug, Default)]
pub(crate) struct HardwareWatchdog {
    armed: Option<Armed>,
    /// Whether opening it has failed.
    refused: bool,
}

/// An open watchdog, and the heartbeats on which it depends.
#[derive(Debug)]
struct Armed {
    device: Watchdog,
    every: DurNs,
    next: MonoNs,
    /// Whether all critical processes were alive at the last check.
    petting: bool,
    silences: BTreeMap<Id, Silence>,
}

impl HardwareWatchdog {
    /// Whether it is armed, as required while the plant is up.
    pub(crate) fn observation(&self, phase: Phase) -> Observation {
        match (&self.armed, self.refused, phase) {
            (_, true, _) => Observation::Absent("the watchdog's device cannot be used".to_owned()),
            (Some(armed), ..) if !armed.petting => {
                Observation::Broken("it is not petted: a critical process sends no heartbeat".to_owned())
            }
            (Some(_), ..) => Observation::Kept,
            (None, false, Phase::Up) => Observation::Broken("it is not armed".to_owned()),
            (None, ..) => Observation::NotDue("the plant is not up".to_owned()),
        }
    }

    /// Time of the next petting.
    pub(crate) fn due(&self) -> Option<MonoNs> {
        self.armed.as_ref().map(|armed| armed.next)
    }

    /// Opens the watchdog once the plant is up. Pets it when due, if all critical processes are alive.
    pub(crate) fn look(&mut self, now: MonoNs, plant: &Plant, processes: &Processes, tell: &mut Reporter) {
        if let Some(wanted) = &plant.watchdog
            && self.armed.is_none()
            && !self.refused
            && processes.all.phase() == Phase::Up
        {
            self.arm(now, wanted, tell);
        }
        if let Some(armed) = self.armed.as_mut().filter(|armed| now >= armed.next) {
            armed.next = now + armed.every;
            armed.pet_or_not(now, plant, processes, tell);
        }
    }

    fn arm(&mut self, now: MonoNs, wanted: &plant::Watchdog, tell: &mut Reporter) {
        match Watchdog::open(Path::new(&wanted.device), wanted.timeout) {
            Ok((device, shortfall)) => {
                tell.event(now, "watchdog", &format!("{} armed, timeout {}", wanted.device, device.timeout()));
                let every = DurNs(device.timeout().0 / 4);
                self.armed = Some(Armed { device, every, next: now, petting: true, silences: BTreeMap::new() });
                shortfall.into_iter().for_each(|lack| tell.shortfall("watchdog", lack.to_string()));
            }
            Err(lack) => {
                self.refused = true;
                tell.shortfall("watchdog", lack.to_string());
            }
        }
    }

    /// Applies a changed plant file. The same device continues with its new timeout. A device that is replaced or no longer
    /// configured is disarmed.
    pub(crate) fn rearm(
        &mut self,
        now: MonoNs,
        old: Option<&plant::Watchdog>,
        wanted: Option<&plant::Watchdog>,
        tell: &mut Reporter,
    ) {
        if let Some(armed) = &mut self.armed {
            // The heartbeat timeouts may have changed.
            armed.silences.clear();
        }
        if old == wanted {
            return;
        }
        self.refused = false;
        let same = old.zip(wanted).is_some_and(|(old, new)| old.device == new.device);
        if !same {
            self.disarm(tell);
        }
        if let (Some(armed), Some(wanted)) = (&mut self.armed, wanted) {
            let lack = armed.device.set_timeout(wanted.timeout);
            (armed.every, armed.next) = (DurNs(armed.device.timeout().0 / 4), now);
            let text = format!("{} continues, timeout {}", wanted.device, armed.device.timeout());
            tell.event(now, "watchdog", &text);
            lack.into_iter().for_each(|lack| tell.shortfall("watchdog", lack.to_string()));
        }
    }

    /// Disarms the watchdog after an orderly shutdown of the plant.
    pub(crate) fn disarm(&mut self, tell: &mut Reporter) {
        let Some(armed) = self.armed.take() else { return };
        match armed.device.disarm() {
            Ok(()) => tell.event(mono_now(), "watchdog", "disarmed"),
            Err(error) => tell.shortfall("watchdog", error.to_string()),
        }
    }
}

impl Armed {
    fn pet_or_not(&mut self, now: MonoNs, plant: &Plant, processes: &Processes, tell: &mut Reporter) {
        // During an orderly shutdown no process needs to be alive.
        let down = matches!(processes.all.phase(), Phase::Stopping(None));
        let silent = if down { Vec::new() } else { self.silent(now, plant, processes) };
        if silent.is_empty()
            && let Err(error) = self.device.pet()
        {
            return tell.shortfall("watchdog", error.to_string());
        }
        if std::mem::replace(&mut self.petting, silent.is_empty()) != silent.is_empty() {
            let text = match silent.is_empty() {
                true => "petted again".to_owned(),
                false => format!(
                    "NOT PETTED: no heartbeat from {}; the machine resets within {}",
                    silent.join(", "),
                    self.device.timeout()
                ),
            };
            tell.message(if silent.is_empty() { Level::Info } else { Level::Error }, now, "watchdog", &text);
        }
    }

    /// Critical processes that are not running or whose heartbeat is missing.
    fn silent<'a>(&mut self, now: MonoNs, plant: &'a Plant, processes: &Processes) -> Vec<&'a str> {
        let mut silent = Vec::new();
        for process in &plant.processes {
            let Some(heartbeat) = process.heartbeat.filter(|heartbeat| heartbeat.critical) else { continue };
            let Some(id) = processes.all.find(&process.name) else { continue };
            let is_fresh = processes.state(id) == State::Running && {
                let silence = self.silences.entry(id).or_insert_with(|| Silence::new(heartbeat.within));
                silence.change(processes[id].watch.within(heartbeat.within));
                silence.observe(now, processes[id].beats()()).is_none()
            };
            if !is_fresh {
                silent.push(process.name.as_str());
            }
        }
        silent
    }
}

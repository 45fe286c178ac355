//! The hardware watchdog: petted only while every critical process runs and gives its signs of life.
//!
//! A supervisor that dies stops petting, and so does one whose critical process hangs: the machine resets.
//! Only a plant that goes down in order disarms it. Heartbeats are looked at here as well as by the guard: it
//! must work where there is no guard.

use super::{Engine, guards};
use crate::watchdog::Watchdog;
use base::{DurNs, MonoNs};
use host::guard::Silence;
use host::supervise::{Id, Phase, State};
use std::collections::BTreeMap;
use std::path::Path;
use sys::clock::mono_now;

/// An open watchdog, and what is known of those on whom it depends.
#[derive(Debug)]
pub(super) struct Armed {
    device: Watchdog,
    every: DurNs,
    pub(super) next: MonoNs,
    /// Whether the last look found everybody alive.
    petting: bool,
    silences: BTreeMap<Id, Silence>,
}

impl Engine {
    /// Opens the watchdog once the plant is up, and pets it when that is due and deserved.
    pub(super) fn watchdog(&mut self, now: MonoNs) {
        self.arm_watchdog(now);
        let Some(mut armed) = self.watchdog.take() else { return };
        if now >= armed.next {
            armed.next = now + armed.every;
            self.pet_or_not(&mut armed, now);
        }
        self.watchdog = Some(armed);
    }

    fn arm_watchdog(&mut self, now: MonoNs) {
        let Some(wanted) = self.plant.watchdog.clone() else { return };
        if self.watchdog.is_some() || self.all.phase() != Phase::Up || self.watchdog_refused {
            return;
        }
        match Watchdog::open(Path::new(&wanted.device), wanted.timeout) {
            Ok((device, shortfall)) => {
                self.tell.event(now, "watchdog", &format!("{} armed, timeout {}", wanted.device, device.timeout()));
                let every = DurNs(device.timeout().0 / 4);
                let silences = BTreeMap::new();
                self.watchdog = Some(Armed { device, every, next: now, petting: true, silences });
                shortfall.into_iter().for_each(|lack| self.shortfall("watchdog", lack.to_string()));
            }
            Err(lack) => {
                self.watchdog_refused = true;
                self.shortfall("watchdog", lack.to_string());
            }
        }
    }

    /// Takes other words of the plant file over. The same device goes on, with its new timeout; one that the plant has
    /// no more is halted, and so is the old one of two.
    pub(super) fn rearm_watchdog(&mut self, now: MonoNs, old: Option<&host::plant::Watchdog>) {
        let wanted = self.plant.watchdog.clone();
        if let Some(armed) = &mut self.watchdog {
            // Their patience may be another one.
            armed.silences.clear();
        }
        if old == wanted.as_ref() {
            return;
        }
        self.watchdog_refused = false;
        let same = old.zip(wanted.as_ref()).is_some_and(|(old, new)| old.device == new.device);
        if !same {
            self.disarm_watchdog();
        }
        if let (Some(armed), Some(wanted)) = (&mut self.watchdog, &wanted) {
            let lack = armed.device.set_timeout(wanted.timeout);
            (armed.every, armed.next) = (DurNs(armed.device.timeout().0 / 4), now);
            let text = format!("{} goes on, timeout {}", wanted.device, armed.device.timeout());
            self.tell.event(now, "watchdog", &text);
            if let Some(lack) = lack {
                self.shortfall("watchdog", lack.to_string());
            }
        }
    }

    fn pet_or_not(&mut self, armed: &mut Armed, now: MonoNs) {
        // On its way down in order nobody need be alive any more.
        let down = matches!(self.all.phase(), Phase::Stopping(None));
        let silent = if down { Vec::new() } else { self.silent(armed, now) };
        if silent.is_empty()
            && let Err(error) = armed.device.pet()
        {
            self.shortfall("watchdog", error.to_string());
            return;
        }
        if std::mem::replace(&mut armed.petting, silent.is_empty()) != silent.is_empty() {
            let text = match silent.is_empty() {
                true => "petted again".to_owned(),
                false => format!(
                    "NOT PETTED: no sign of life from {}; the machine resets within {}",
                    silent.join(", "),
                    armed.device.timeout()
                ),
            };
            self.tell.event(now, "watchdog", &text);
        }
    }

    /// Critical processes that do not run, or give no sign of life.
    fn silent(&self, armed: &mut Armed, now: MonoNs) -> Vec<String> {
        let mut silent = Vec::new();
        for process in &self.plant.processes {
            let Some(heartbeat) = process.heartbeat.filter(|heartbeat| heartbeat.critical) else { continue };
            let Some(id) = self.all.find(&process.name) else { continue };
            let is_fresh = self.all.units()[id].state == State::Running && {
                let silence = armed.silences.entry(id).or_insert_with(|| Silence::new(heartbeat.within));
                silence.observe(now, guards::beats(&self.kids[id])()).is_none()
            };
            if !is_fresh {
                silent.push(process.name.clone());
            }
        }
        silent
    }

    /// Disarms the watchdog; the plant is down in order.
    pub(super) fn disarm_watchdog(&mut self) {
        let Some(armed) = self.watchdog.take() else { return };
        match armed.device.disarm() {
            Ok(()) => self.tell.event(mono_now(), "watchdog", "disarmed"),
            Err(error) => self.shortfall("watchdog", error.to_string()),
        }
    }
}

//! The hardware watchdog: petted only while every critical process runs and gives its signs of life.
//!
//! A supervisor that dies stops petting, and so does one whose critical process hangs: the machine resets.
//! Only a plant that goes down in order closes the device with the magic letter that disarms it.

use super::Engine;
use base::{DurNs, MonoNs};
use host::supervise::{Phase, State};
use std::fs::{File, OpenOptions};
use std::io::Write as _;

/// An open watchdog.
#[derive(Debug)]
pub(super) struct Watchdog {
    file: File,
    every: DurNs,
    pub(super) next: MonoNs,
    petting: bool,
}

impl Engine {
    /// Opens the watchdog once the plant is up, and pets it when that is due and deserved.
    pub(super) fn watchdog(&mut self, now: MonoNs) {
        let Some(wanted) = self.plant.watchdog.clone() else { return };
        if self.watchdog.is_none() && self.all.phase() == Phase::Up && !self.watchdog_refused {
            match OpenOptions::new().write(true).open(&wanted.device) {
                Ok(file) => {
                    self.watchdog =
                        Some(Watchdog { file, every: DurNs(wanted.timeout.0 / 4), next: now, petting: true });
                    self.tell.event(now, "watchdog", &format!("{} armed", wanted.device));
                    self.tell_timeout(&wanted.device, wanted.timeout);
                }
                Err(error) => {
                    self.watchdog_refused = true;
                    let text = format!(
                        "no hardware watchdog {}: {error}; remove [watchdog] or load its driver",
                        wanted.device
                    );
                    self.shortfall("watchdog", text);
                }
            }
        }
        let fresh =
            self.plant.processes.iter().filter(|process| process.heartbeat.is_some_and(|beat| beat.critical)).all(
                |process| self.all.find(&process.name).is_some_and(|id| self.all.units()[id].state == State::Running),
            );
        // On its way down in order it need not be fresh any more.
        let deserved = fresh || matches!(self.all.phase(), Phase::Stopping(None));
        let Some(dog) = self.watchdog.as_mut().filter(|dog| now >= dog.next) else { return };
        dog.next = now + dog.every;
        if deserved && let Err(error) = dog.file.write_all(b"\0") {
            self.shortfall("watchdog", format!("the hardware watchdog cannot be petted: {error}"));
            return;
        }
        if std::mem::replace(&mut dog.petting, deserved) != deserved {
            let text = if deserved { "petted again" } else { "NOT PETTED: a critical process gives no sign of life" };
            self.tell.event(now, "watchdog", text);
        }
    }

    /// The driver keeps its own timeout: one that differs is told, so that nobody counts on the plant's.
    fn tell_timeout(&mut self, device: &str, wanted: DurNs) {
        let name = device.rsplit('/').next().unwrap_or(device);
        let name = if name == "watchdog" { "watchdog0" } else { name };
        let found = std::fs::read_to_string(format!("/sys/class/watchdog/{name}/timeout"));
        let Some(seconds) = found.ok().and_then(|text| text.trim().parse::<i64>().ok()) else { return };
        if DurNs::from_secs(seconds) != wanted {
            let text =
                format!("the watchdog's timeout is {seconds}s, not {wanted}: set it with the driver's parameter");
            self.shortfall("watchdog", text);
        }
    }

    /// Disarms the watchdog; the plant is down in order.
    pub(super) fn disarm_watchdog(&mut self) {
        if let Some(mut dog) = self.watchdog.take()
            && let Err(error) = dog.file.write_all(b"V")
        {
            self.shortfall("watchdog", format!("the hardware watchdog cannot be disarmed: {error}"));
        }
    }
}

//! The hardware watchdog as a dead-man's handle: petted only while every critical heartbeat is fresh, so that
//! a machine whose control loops are dead is reset.
//!
//! Opening the device starts its clock: it is opened only where the plant asks. Only [`DeadMan::stop`] halts
//! it (magic close); a supervisor that dies, or drops this, leaves the clock running, and whoever takes over
//! in time opens the device again.

use crate::guard::Beats;
use crate::launch::Shortfall;
use base::{DurNs, MonoNs};
use host::guard::Silence;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};

/// Halts the clock at close, if the driver allows it.
const MAGIC: &[u8] = b"V";
/// Any other byte pets.
const PET: &[u8] = b"p";

/// What a round did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// All heartbeats are fresh: petted.
    Petted,
    /// These are silent: not petted; the machine resets within the device's timeout.
    Withheld(Vec<String>),
}

/// A watchdog device and the heartbeats on which it depends.
pub struct DeadMan {
    path: PathBuf,
    device: OwnedFd,
    timeout: DurNs,
    heartbeats: Vec<(String, Beats, Silence)>,
}

impl std::fmt::Debug for DeadMan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadMan").field("path", &self.path).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl DeadMan {
    /// Opens the device, which starts its clock. A device that does not take the timeout keeps its own: the
    /// shortfall tells.
    ///
    /// # Errors
    /// It cannot be opened: missing, busy (systemd's `RuntimeWatchdogSec`), no privilege.
    pub fn open(path: &Path, timeout: DurNs) -> Result<(Self, Option<Shortfall>), Shortfall> {
        let wanted = || format!("watchdog {}", path.display());
        let device = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let remedy = match errno {
                rustix::io::Errno::BUSY => "somebody else pets it: switch RuntimeWatchdogSec of systemd off",
                rustix::io::Errno::NOENT | rustix::io::Errno::NODEV => "load its driver (softdog has no hardware)",
                _ => "run as root",
            };
            Shortfall { wanted: wanted(), found: std::io::Error::from(errno).to_string(), remedy: remedy.to_owned() }
        })?;
        let seconds = (timeout.0.max(0) as u64).div_ceil(1_000_000_000).max(1) as u32;
        let (timeout, shortfall) = match sys::watchdog::set_timeout(device.as_fd(), seconds) {
            Ok(got) => (DurNs::from_secs(got.into()), None),
            Err(error) => {
                let remedy = "choose a timeout that it can have, or leave it at its driver's default".to_owned();
                (timeout, Some(Shortfall { wanted: wanted() + " timeout", found: error.to_string(), remedy }))
            }
        };
        Ok((Self { path: path.to_owned(), device, timeout, heartbeats: Vec::new() }, shortfall))
    }

    /// The device's timeout.
    #[must_use]
    pub fn timeout(&self) -> DurNs {
        self.timeout
    }

    /// Makes the device depend on one more heartbeat, from its first beat on.
    pub fn depend_on(&mut self, name: impl Into<String>, beats: Beats, within: DurNs) {
        self.heartbeats.push((name.into(), beats, Silence::new(within)));
    }

    /// No longer: the process was stopped on purpose.
    pub fn release(&mut self, name: &str) {
        self.heartbeats.retain(|(known, ..)| known != name);
    }

    /// Looks at every heartbeat, and pets if all are fresh. To be called several times per timeout.
    ///
    /// # Errors
    /// The device does not take the pet.
    pub fn round(&mut self, now: MonoNs) -> sys::Result<Round> {
        let silent: Vec<String> = self
            .heartbeats
            .iter_mut()
            .filter_map(|(name, beats, silence)| silence.observe(now, beats()).map(|_| name.clone()))
            .collect();
        if !silent.is_empty() {
            return Ok(Round::Withheld(silent));
        }
        self.write(PET, "pet")?;
        Ok(Round::Petted)
    }

    /// Halts the clock and closes the device: the plant was stopped on purpose.
    ///
    /// # Errors
    /// The device does not take it: the machine will reset.
    pub fn stop(self) -> sys::Result<()> {
        self.write(MAGIC, "halt")
    }

    fn write(&self, bytes: &[u8], doing: &str) -> sys::Result<()> {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&self.device, bytes));
        match written {
            Ok(_) => Ok(()),
            Err(errno) => Err(sys::Error { doing: format!("{doing} the watchdog {}", self.path.display()), errno }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    #[test]
    fn it_is_petted_while_all_hearts_beat_and_halted_only_on_purpose() {
        let path = std::env::temp_dir().join(format!("tahti-watchdog-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        // A file is no watchdog: its timeout cannot be set, which is told.
        let (mut man, shortfall) = DeadMan::open(&path, DurNs::from_secs(10)).unwrap();
        assert!(shortfall.unwrap().found.contains("ioctl"));
        let count = Arc::new(AtomicU64::new(0));
        let beats = count.clone();
        man.depend_on("llrf", Box::new(move || beats.load(Ordering::Relaxed)), DurNs::from_ms(50));
        man.depend_on("quiet yet", Box::new(|| 0), DurNs::from_ms(50));
        assert_eq!(man.round(at(0)), Ok(Round::Petted));
        count.store(1, Ordering::Relaxed);
        assert_eq!(man.round(at(40)), Ok(Round::Petted));
        assert_eq!(man.round(at(91)), Ok(Round::Withheld(vec!["llrf".into()])));
        count.store(2, Ordering::Relaxed);
        assert_eq!(man.round(at(92)), Ok(Round::Petted));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ppp");
        drop(man);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ppp", "no magic close without a stop");
        let (mut man, _) = DeadMan::open(&path, DurNs::from_secs(10)).unwrap();
        man.depend_on("gone", Box::new(|| 1), DurNs::from_ms(1));
        man.round(at(0)).unwrap();
        assert!(matches!(man.round(at(10)), Ok(Round::Withheld(_))));
        man.release("gone");
        man.stop().unwrap();
        assert!(
            std::fs::read_to_string(&path).unwrap().ends_with("Vpp") || std::fs::read(&path).unwrap().contains(&b'V')
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_device_is_named_with_its_remedy() {
        let refused = DeadMan::open(Path::new("/dev/no-such-watchdog"), DurNs::from_secs(10)).unwrap_err();
        assert!(refused.to_string().contains("/dev/no-such-watchdog") && refused.remedy.contains("driver"));
    }
}

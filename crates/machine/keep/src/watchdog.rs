//! The hardware watchdog as a device (`/dev/watchdog*`). Opening the device starts its timer; the machine resets when
//! the timer expires. The supervisor decides when to pet it.
//!
//! Only [`Watchdog::disarm`] stops the timer (magic close). If a supervisor dies or drops this value, the timer keeps
//! running, and the next supervisor must open the device in time.

use crate::launch::Shortfall;
use base::DurNs;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};

/// Written before close, stops the timer if the driver allows it.
const MAGIC: &[u8] = b"V";
/// Any other byte pets the watchdog.
const PET: &[u8] = b"p";

/// An open watchdog with a running timer.
#[derive(Debug)]
pub struct Watchdog {
    path: PathBuf,
    device: OwnedFd,
    timeout: DurNs,
}

impl Watchdog {
    /// Opens the device, which starts its timer. If the device refuses the timeout, it keeps its own and a shortfall is
    /// returned.
    ///
    /// # Errors
    /// The device cannot be opened: missing, busy (systemd's `RuntimeWatchdogSec`), or no privilege.
    pub fn open(path: &Path, timeout: DurNs) -> Result<(Self, Option<Shortfall>), Shortfall> {
        let wanted = || format!("hardware watchdog {}", path.display());
        let device = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let remedy = match errno {
                rustix::io::Errno::BUSY => "another process has it open: set RuntimeWatchdogSec=0 in systemd's system.conf, or end that process",
                rustix::io::Errno::NOENT | rustix::io::Errno::NODEV => {
                    "load its driver (softdog has no hardware), or remove [watchdog]"
                }
                _ => "run as root",
            };
            Shortfall { wanted: wanted(), found: std::io::Error::from(errno).to_string(), remedy: remedy.to_owned() }
        })?;
        let mut watchdog = Self { path: path.to_owned(), device, timeout };
        let shortfall = watchdog.set_timeout(timeout);
        Ok((watchdog, shortfall))
    }

    /// Sets another timeout. If the device refuses it, it keeps its own and a shortfall is returned.
    pub fn set_timeout(&mut self, timeout: DurNs) -> Option<Shortfall> {
        let seconds = (timeout.0.max(0) as u64).div_ceil(1_000_000_000).max(1) as u32;
        let differs = |found: String| Shortfall {
            wanted: format!("hardware watchdog {} with a timeout of {timeout}", self.path.display()),
            found,
            remedy: "choose a timeout that the device supports".to_owned(),
        };
        let (got, shortfall) = match sys::watchdog::set_timeout(self.device.as_fd(), seconds) {
            Ok(got) if got == seconds => (DurNs::from_secs(got.into()), None),
            Ok(got) => (DurNs::from_secs(got.into()), Some(differs(format!("the device set {got}s")))),
            Err(error) => (timeout, Some(differs(error.to_string()))),
        };
        self.timeout = got;
        shortfall
    }

    /// The device's timeout; the configured one if the device does not report it.
    #[must_use]
    pub fn timeout(&self) -> DurNs {
        self.timeout
    }

    /// Restarts the timer.
    ///
    /// # Errors
    /// The write failed.
    pub fn pet(&self) -> sys::Result<()> {
        self.write(PET, "pet")
    }

    /// Stops the timer and closes the device, for a plant that was stopped on purpose.
    ///
    /// # Errors
    /// The device refused; the machine will reset.
    pub fn disarm(self) -> sys::Result<()> {
        self.write(MAGIC, "disarm")
    }

    fn write(&self, bytes: &[u8], doing: &str) -> sys::Result<()> {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&self.device, bytes));
        let failed = |errno| sys::Error { doing: format!("{doing} the watchdog {}", self.path.display()), errno };
        written.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_disarmed_only_on_request() {
        let path = std::env::temp_dir().join(format!("tahti-watchdog-{}", std::process::id()));
        let written = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        // A file is not a watchdog: setting its timeout fails, which is reported.
        let (dog, shortfall) = Watchdog::open(&path, DurNs::from_secs(10)).unwrap();
        assert!(shortfall.unwrap().to_string().contains("with a timeout of 10s"));
        dog.pet().unwrap();
        dog.pet().unwrap();
        drop(dog);
        assert_eq!(written(), "pp", "no magic close without a request");
        Watchdog::open(&path, DurNs::from_secs(10)).unwrap().0.disarm().unwrap();
        assert_eq!(written(), "Vp");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_device_is_named_with_its_remedy() {
        let refused = Watchdog::open(Path::new("/dev/no-such-watchdog"), DurNs::from_secs(10)).unwrap_err();
        assert!(refused.to_string().contains("/dev/no-such-watchdog") && refused.remedy.contains("driver"));
    }
}

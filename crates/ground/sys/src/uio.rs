//! Devices through UIO (`Documentation/driver-api/uio-howto.rst`): a minimal kernel driver that counts interrupts and
//! provides memory to map.

use crate::error::{Doing, Error, Result};
use crate::registers::Region;
use crate::root::RootDir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A device bound to a UIO driver.
#[derive(Debug)]
pub struct Uio {
    file: OwnedFd,
    /// `uio0`.
    node: String,
    driver: String,
    /// Configuration space of devices of `uio_pci_generic`, whose interrupt is enabled there.
    config: Option<OwnedFd>,
}

/// `PCI_COMMAND` and its bit that disables the interrupt pin.
const PCI_COMMAND: u64 = 4;
const INTX_DISABLE: u16 = 1 << 10;

impl Uio {
    /// Opens a device by its node, such as `uio0`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(node: &str) -> Result<Self> {
        let doing = || format!("open /dev/{node}");
        let open =
            |path: &str| rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        let file = open(&format!("/dev/{node}")).doing(doing)?;
        let driver = RootDir::machine().read(&format!("/sys/class/uio/{node}/name"))?.trim().to_owned();
        let config = match driver.as_str() {
            "uio_pci_generic" => Some(open(&format!("/sys/class/uio/{node}/device/config")).doing(doing)?),
            _ => None,
        };
        Ok(Self { file, node: node.to_owned(), driver, config })
    }

    /// The node of the PCI device at `address` (`0000:00:03.0`), if a UIO driver is bound to it.
    ///
    /// # Errors
    /// `ENODEV` if none is.
    pub fn node_of(address: &str) -> Result<String> {
        let folder = format!("/sys/bus/pci/devices/{address}/uio");
        let held = RootDir::machine().subdirs(&folder).ok().and_then(|nodes| nodes.into_iter().next());
        held.ok_or_else(|| Error {
            doing: format!("find PCI device {address} under a UIO driver (bind it to uio_pci_generic first)"),
            errno: Errno::NODEV,
        })
    }

    /// Whether a descriptor belongs to a UIO device, whichever process opened it.
    #[must_use]
    pub fn is(fd: BorrowedFd<'_>) -> bool {
        let Ok(about) = rustix::fs::fstat(fd) else { return false };
        let (major, minor) = (rustix::fs::major(about.st_rdev), rustix::fs::minor(about.st_rdev));
        let class = rustix::fs::readlink(format!("/sys/dev/char/{major}:{minor}/subsystem"), Vec::new());
        class.is_ok_and(|class| class.as_bytes().ends_with(b"/uio"))
    }

    /// The driver's name for the device.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Maps a region provided by the driver.
    ///
    /// # Errors
    /// The kernel's.
    pub fn region(&self, index: usize) -> Result<Region> {
        let path = format!("/sys/class/uio/{}/maps/map{index}/size", self.node);
        let text = RootDir::machine().read(&path)?;
        let digits = text.trim().trim_start_matches("0x");
        let bytes = usize::from_str_radix(digits, 16)
            .map_err(|_| Error { doing: format!("read {path}: {text:?}"), errno: Errno::INVAL })?;
        // The offset selects the region: its index times the page size.
        Region::map(&self.file, (index * rustix::param::page_size()) as u64, bytes)
    }

    /// Maps a base address region of a PCI device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bar(&self, index: usize) -> Result<Region> {
        let path = format!("/sys/class/uio/{}/device/resource{index}", self.node);
        let doing = || format!("open {path}");
        let file =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::SYNC | OFlags::CLOEXEC, Mode::empty()).doing(doing)?;
        let bytes = rustix::fs::fstat(&file).doing(doing)?.st_size as usize;
        Region::map(&file, 0, bytes)
    }

    /// Enables the next interrupt. The driver disables it each time, until the handler here has cleared the device's
    /// interrupt.
    ///
    /// Real-time: one or two system calls that do not block; does not allocate.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> std::result::Result<(), Errno> {
        let Some(config) = &self.config else {
            return rustix::io::write(&self.file, &1u32.to_ne_bytes()).map(drop);
        };
        let mut bytes = [0; 2];
        rustix::io::pread(config, &mut bytes, PCI_COMMAND)?;
        let command = u16::from_le_bytes(bytes);
        if command & INTX_DISABLE != 0 {
            rustix::io::pwrite(config, &(command & !INTX_DISABLE).to_le_bytes(), PCI_COMMAND)?;
        }
        Ok(())
    }

    /// Number of interrupts since the device was first opened, if one has arrived since the last call.
    ///
    /// Real-time: one system call that does not block; does not allocate.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&self) -> std::result::Result<Option<u32>, Errno> {
        let mut bytes = [0; 4];
        match rustix::io::read(&self.file, &mut bytes) {
            Ok(4) => Ok(Some(u32::from_ne_bytes(bytes))),
            Ok(_) => Err(Errno::IO),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Uio {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

//! PCI devices through VFIO (`Documentation/driver-api/vfio.rst`, `linux/vfio.h`). An IOMMU restricts the device to the
//! memory provided for it ([`Vfio::memory`]). Its interrupts arrive as event descriptors.

use crate::error::{Doing, Error, Result};
use crate::registers::Region;
use crate::shm::SharedWords;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

/// `_IO(';', 100 + number)`.
const fn request(number: u32) -> libc::Ioctl {
    (0x3b64 + number) as libc::Ioctl
}

const GET_API_VERSION: libc::Ioctl = request(0);
const SET_IOMMU: libc::Ioctl = request(2);
const GROUP_GET_STATUS: libc::Ioctl = request(3);
const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
const GET_REGION_INFO: libc::Ioctl = request(8);
const GET_IRQ_INFO: libc::Ioctl = request(9);
const SET_IRQS: libc::Ioctl = request(10);
const MAP_DMA: libc::Ioctl = request(13);
const UNMAP_DMA: libc::Ioctl = request(14);

const API_VERSION: i32 = 0;
const TYPE1_IOMMU: libc::c_ulong = 1;
const GROUP_VIABLE: u32 = 1;
const REGION_MMAP: u32 = 4;
const CONFIG_REGION: u32 = 7;
const IRQ_NOTHING: u32 = 1;
const IRQ_EVENTFD: u32 = 4;
const IRQ_UNMASK: u32 = 16;
const IRQ_TRIGGER: u32 = 32;
const DMA_READ: u32 = 1;
const DMA_WRITE: u32 = 2;
const PCI_COMMAND: u64 = 4;
const BUS_MASTER: u16 = 4;

#[repr(C)]
#[derive(Default)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

#[repr(C)]
#[derive(Default)]
struct IrqInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    fd: i32,
}

#[repr(C)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    here: u64,
    there: u64,
    size: u64,
}

#[repr(C)]
struct DmaUnmap {
    argsz: u32,
    flags: u32,
    there: u64,
    size: u64,
}

/// Kind of interrupt, by its number in `linux/vfio.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Signal {
    /// The interrupt pin. It stays asserted until the device is cleared, so the kernel masks it each time: see
    /// [`Vfio::unmask`].
    Pin = 0,
    /// Message signalled interrupts.
    Msi = 1,
    /// Message signalled interrupts with a table (MSI-X).
    MsiX = 2,
}

/// A PCI device bound to `vfio-pci`.
#[derive(Debug)]
pub struct Vfio {
    device: OwnedFd,
    address: String,
    // Both stay open as long as the device is used.
    _group: OwnedFd,
    container: Arc<OwnedFd>,
}

/// Memory that a device can access. Dropping it revokes the access; wait until the device no longer uses it.
#[derive(Debug)]
pub struct DeviceMemory {
    region: Region,
    at: u64,
    container: Arc<OwnedFd>,
}

/// An interrupt of a device. Dropping it does not disable the interrupt: drop the device as well.
#[derive(Debug)]
pub struct Message {
    event: OwnedFd,
}

/// An ioctl with a structure, a number or a descriptor as its argument.
///
/// # Safety
/// `argument` is what the request expects, and stays valid for the call.
unsafe fn ioctl(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: libc::c_ulong) -> std::result::Result<i32, Errno> {
    // SAFETY: guaranteed by the caller.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    if answer < 0 { Err(errno()) } else { Ok(answer) }
}

/// Like [`ioctl`], with a structure that the kernel reads and writes.
fn exchange<T>(fd: BorrowedFd<'_>, number: libc::Ioctl, value: &mut T) -> std::result::Result<i32, Errno> {
    // SAFETY: only called with the structure of that request, which contains its size in the first field.
    unsafe { ioctl(fd, number, std::ptr::from_mut(value) as libc::c_ulong) }
}

impl Vfio {
    /// Opens the device at `address`, such as `0000:00:03.0`, in a separate IOMMU container.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` without an IOMMU group, `EBUSY` if another device of its group has another driver.
    pub fn open(address: &str) -> Result<Self> {
        let doing = |what: &str| format!("open PCI device {address} through VFIO: {what}");
        let link = rustix::fs::readlink(format!("/sys/bus/pci/devices/{address}/iommu_group"), Vec::new())
            .doing(|| doing("it has no IOMMU group (boot with intel_iommu=on or amd_iommu=on)"))?;
        let number = link.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
        let open = |path: &str| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let container = open("/dev/vfio/vfio").doing(|| doing("/dev/vfio/vfio"))?;
        let group = open(&format!("/dev/vfio/{number}"))
            .doing(|| doing(&format!("/dev/vfio/{number} (bind the device to vfio-pci first)")))?;
        // SAFETY: takes no argument.
        let version = unsafe { ioctl(container.as_fd(), GET_API_VERSION, 0) }.doing(|| doing("its version"))?;
        if version != API_VERSION {
            let doing = doing(&format!("its interface is version {version}, expected {API_VERSION}"));
            return Err(Error { doing, errno: Errno::PROTO });
        }
        let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
        exchange(group.as_fd(), GROUP_GET_STATUS, &mut status).doing(|| doing("its group"))?;
        if status.flags & GROUP_VIABLE == 0 {
            let doing = doing("another device of its IOMMU group is held by another driver");
            return Err(Error { doing, errno: Errno::BUSY });
        }
        let mut raw = container.as_raw_fd();
        exchange(group.as_fd(), GROUP_SET_CONTAINER, &mut raw).doing(|| doing("its container"))?;
        // SAFETY: the argument is a number.
        unsafe { ioctl(container.as_fd(), SET_IOMMU, TYPE1_IOMMU) }.doing(|| doing("its IOMMU"))?;
        let name = CString::new(address).map_err(|_| Error { doing: doing("its name"), errno: Errno::INVAL })?;
        // SAFETY: the argument is a zero-terminated string, which the kernel reads.
        let device = unsafe { ioctl(group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr() as libc::c_ulong) }
            .doing(|| doing("the device"))?;
        // SAFETY: a descriptor that the kernel has just created for this process.
        let device = unsafe { OwnedFd::from_raw_fd(device) };
        Ok(Self { device, address: address.to_owned(), _group: group, container: Arc::new(container) })
    }

    /// Maps a base address region.
    ///
    /// # Errors
    /// The kernel's; `ENXIO` for a region that does not exist or cannot be mapped.
    pub fn bar(&self, index: u32) -> Result<Region> {
        let info = self.region(index)?;
        if info.size == 0 || info.flags & REGION_MMAP == 0 {
            let doing = format!("map region {index} of {}: {} bytes, not mappable", self.address, info.size);
            return Err(Error { doing, errno: Errno::NXIO });
        }
        Region::map(&self.device, info.offset, info.size as usize)
    }

    /// Enables the device to send messages and access memory. Required for MSI interrupts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn master_bus(&self) -> Result<()> {
        let doing = || format!("make {} master of its bus", self.address);
        let at = self.region(CONFIG_REGION)?.offset + PCI_COMMAND;
        let mut bytes = [0; 2];
        rustix::io::pread(&self.device, &mut bytes, at).doing(doing)?;
        let command = u16::from_le_bytes(bytes) | BUS_MASTER;
        rustix::io::pwrite(&self.device, &command.to_le_bytes(), at).doing(doing).map(drop)
    }

    /// Allocates `bytes` of zeroed memory that the device can read and write at its address `at`: whole pages that do
    /// not overlap other memory of the device. The kernel keeps it in place; it counts as locked memory.
    ///
    /// The device must be [master of its bus](Self::master_bus). Its writes are complete when its interrupt has
    /// arrived.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for incomplete pages or an address not supported by the IOMMU, `EEXIST` if it overlaps
    /// other memory, `ENOMEM` above the limit of locked memory.
    pub fn memory(&self, at: u64, bytes: usize) -> Result<DeviceMemory> {
        let page = rustix::param::page_size();
        let doing = || format!("give {} {bytes} bytes at its address {at:#x} (whole pages of {page})", self.address);
        if bytes == 0 || !bytes.is_multiple_of(page) {
            return Err(Error { doing: doing(), errno: Errno::INVAL });
        }
        let region = Region::map(SharedWords::unmapped("tahti-device", bytes / 8)?, 0, bytes)?;
        let mut map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: DMA_READ | DMA_WRITE,
            here: region.address() as u64,
            there: at,
            size: bytes as u64,
        };
        exchange(self.container.as_fd(), MAP_DMA, &mut map).doing(doing)?;
        Ok(DeviceMemory { region, at, container: self.container.clone() })
    }

    /// Number of interrupts of a kind that the device has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn messages(&self, signal: Signal) -> Result<u32> {
        let mut info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, flags: 0, index: signal as u32, count: 0 };
        exchange(self.device.as_fd(), GET_IRQ_INFO, &mut info)
            .doing(|| format!("ask {} for its {signal:?} interrupts", self.address))?;
        Ok(info.count)
    }

    /// Enables interrupt `number` of a kind.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` if the device has no such interrupt, or if one of another kind is enabled.
    pub fn message(&self, signal: Signal, number: u32) -> Result<Message> {
        let doing = || format!("switch {signal:?} {number} of {} on", self.address);
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).doing(doing)?;
        let mut set = IrqSet {
            argsz: size_of::<IrqSet>() as u32,
            flags: IRQ_EVENTFD | IRQ_TRIGGER,
            index: signal as u32,
            start: number,
            count: 1,
            fd: event.as_raw_fd(),
        };
        exchange(self.device.as_fd(), SET_IRQS, &mut set).doing(doing)?;
        Ok(Message { event })
    }

    /// Unmasks the [pin](Signal::Pin) after the device's interrupt has been cleared.
    ///
    /// Real-time: one system call that does not block; does not allocate.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` if the pin is not enabled.
    pub fn unmask(&self) -> std::result::Result<(), Errno> {
        let mut set = IrqSet {
            argsz: size_of::<IrqSet>() as u32,
            flags: IRQ_NOTHING | IRQ_UNMASK,
            index: Signal::Pin as u32,
            start: 0,
            count: 1,
            fd: -1,
        };
        exchange(self.device.as_fd(), SET_IRQS, &mut set).map(drop)
    }

    fn region(&self, index: u32) -> Result<RegionInfo> {
        let argsz = size_of::<RegionInfo>() as u32;
        let mut info = RegionInfo { argsz, index, ..RegionInfo::default() };
        exchange(self.device.as_fd(), GET_REGION_INFO, &mut info)
            .doing(|| format!("ask {} for its region {index}", self.address))?;
        Ok(info)
    }
}

impl DeviceMemory {
    /// The memory in this process.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Its address for the device.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (there, size) = (self.at, self.region.bytes() as u64);
        let mut unmap = DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: 0, there, size };
        // Fails only if nothing is mapped.
        let _ = exchange(self.container.as_fd(), UNMAP_DMA, &mut unmap);
    }
}

impl Message {
    /// Number of interrupts since the last call; `None` if there was none.
    ///
    /// Real-time: one system call that does not block; does not allocate.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&self) -> std::result::Result<Option<u64>, Errno> {
        let mut bytes = [0; 8];
        match rustix::io::read(&self.event, &mut bytes) {
            Ok(8) => Ok(Some(u64::from_ne_bytes(bytes))),
            Ok(_) => Err(Errno::IO),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Message {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

//! A device that raises its interrupt when a register is written, through UIO or VFIO.

use super::stages::Event;
use crate::Failed;
use crate::measure::{Gate, handed_on};
use base::{DurNs, MonoNs};
use rt::device::{Interrupt, Message, Register, RegisterWrite, Signal, Uio, Vfio};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ChildStdout;
use sys::clock::{mono_now, sleep_until};
use sys::root::RootDir;

/// Time after which an interrupt is lost.
pub(super) const LIMIT: DurNs = DurNs::from_secs(10);

/// An open device.
pub(crate) struct Device {
    handle: Handle,
    raise: (Register<u32>, u32),
    clear: Option<(Register<u32>, u32)>,
    /// Part of its line in `/proc/interrupts`.
    pub(super) words: String,
}

enum Handle {
    /// The device and its node.
    Uio(Uio, String),
    Vfio {
        /// Open as long as its interrupt is used.
        _device: Vfio,
        interrupt: Message,
    },
}

impl Device {
    /// Opens a UIO device by its node (`uio0`), or a PCI device by its address, through the user-space driver that it has.
    pub(super) fn open(name: &str, raise: RegisterWrite, clear: Option<RegisterWrite>) -> Result<Self, Failed> {
        let node = if name.contains(':') { Uio::node_of(name).ok() } else { Some(name.to_owned()) };
        let (handle, registers, words) = match node {
            Some(node) => {
                let device = Uio::open(&node)?;
                let registers = device.bar(0).or_else(|_| device.region(0))?;
                let words = device.driver().to_owned();
                (Handle::Uio(device, node), registers, words)
            }
            None => {
                let device = Vfio::open(name)?;
                let has = |signal: &Signal| device.messages(*signal).is_ok_and(|count| count > 0);
                let signal = [Signal::Msi, Signal::MsiX].into_iter().find(has);
                let signal = signal.ok_or(Failed::Needs("a device with message interrupts, or one bound to UIO"))?;
                let interrupt = device.message(signal, 0)?;
                device.master_bus()?;
                let registers = device.bar(0)?;
                (Handle::Vfio { _device: device, interrupt }, registers, format!("({name})"))
            }
        };
        let write = |to: RegisterWrite| Ok::<_, Failed>((registers.register(to.at)?, to.value));
        Ok(Self { handle, raise: write(raise)?, clear: clear.map(write).transpose()?, words })
    }

    /// Number of its interrupt, if it is the only one with its words.
    pub(super) fn irq(&self) -> Option<i32> {
        let text = RootDir::machine().read("/proc/interrupts").ok()?;
        let table = proc::interrupts::Interrupts::parse(&text).ok()?;
        let is_ours = |row: &&proc::interrupts::Row<'_>| row.actions().any(|action| action.contains(&self.words));
        let mut rows = table.rows.iter().filter(is_ours);
        let number = rows.next()?.number()?;
        rows.next().is_none().then_some(number as i32)
    }

    /// A copy of the interrupt's descriptor for a child process, and the length of a reading.
    pub(super) fn handed(&self) -> Result<(OwnedFd, usize), Failed> {
        match &self.handle {
            Handle::Uio(device, _) => Ok((handed_on(device.as_fd())?, 4)),
            Handle::Vfio { interrupt, .. } => Ok((handed_on(interrupt.as_fd())?, 8)),
        }
    }

    /// Its UIO node, if it is bound to UIO.
    pub(crate) fn uio(&self) -> Option<&str> {
        match &self.handle {
            Handle::Uio(_, node) => Some(node),
            Handle::Vfio { .. } => None,
        }
    }

    /// Writes the register that raises the interrupt.
    pub(crate) fn ring(&self) {
        self.raise.0.write(self.raise.1);
    }

    /// Raises `count` interrupts, each after the answer to the previous one: the time at which it was read.
    pub(super) fn raise(&self, count: usize, period: DurNs, gate: &mut Gate) -> Result<Vec<Event>, Failed> {
        let mut answers = gate.results().ok_or_else(|| Failed::answer("the waiting thread", "a pipe", "none"))?;
        let mut events = Vec::with_capacity(count);
        let mut next = mono_now() + DurNs::from_ms(50);
        for _ in 0..count {
            self.enable()?;
            sleep_until(next);
            let sent = mono_now();
            next = sent + period;
            self.ring();
            let read = answer(&mut answers)?;
            if let Some((register, value)) = &self.clear {
                register.write(*value);
            }
            events.push(Event { read, late_ns: (read - sent).0.max(0) as u64 });
        }
        Ok(events)
    }

    fn enable(&self) -> Result<(), Failed> {
        let Handle::Uio(device, _) = &self.handle else { return Ok(()) };
        let doing = || "enable the device's interrupt".to_owned();
        Ok(device.enable().map_err(|errno| sys::Error { doing: doing(), errno })?)
    }
}

/// The time at which the waiting thread read an interrupt.
fn answer(answers: &mut ChildStdout) -> Result<MonoNs, Failed> {
    let mut time = [0; 8];
    if !sys::poll::is_readable(answers.as_fd(), LIMIT) {
        let found = format!("none for {LIMIT}: does the register raise it, and does --clear silence it?");
        return Err(Failed::answer("the device", "an interrupt", found));
    }
    answers.read_exact(&mut time).map_err(Failed::process("tahti bench responder"))?;
    Ok(MonoNs(u64::from_le_bytes(time)))
}

/// The interrupt of a device that another process has opened.
pub(super) struct Inherited {
    fd: OwnedFd,
    bytes: usize,
}

impl Inherited {
    /// Takes over the descriptor. A reading has `bytes` bytes.
    pub(super) fn take(fd: i32, bytes: usize) -> Result<Self, Failed> {
        Ok(Self { fd: sys::spawn::inherited(fd)?, bytes: bytes.min(8) })
    }
}

impl AsFd for Inherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Interrupt for Inherited {
    fn look(&self) -> Result<Option<u64>, sys::Errno> {
        let mut bytes = [0; 8];
        match rustix::io::read(&self.fd, &mut bytes[..self.bytes]) {
            Ok(_) => Ok(Some(u64::from_ne_bytes(bytes))),
            Err(sys::Errno::AGAIN | sys::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

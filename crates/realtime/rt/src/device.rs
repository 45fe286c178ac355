//! Device access from user space: registers and interrupts.
//!
//! [`Uio`] and [`Vfio`] open a device that the operator has bound to a user-space driver. [`Region`] and [`Register`] access
//! its registers. An interrupt wakes a thread; if the shield has placed the interrupt (`tahti shield apply --irq`), that
//! happens on the CPU on which it arrives. A spinning thread polls for it instead. This is the counterpart of SGI's
//! user-level interrupts on stock Linux.

use base::{DurNs, MonoNs};
use ring::Wait;
use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;
use sys::Errno;
use sys::clock::mono_now;

pub use sys::registers::{Region, Register, Word};
pub use sys::uio::Uio;
pub use sys::vfio::{DeviceMemory, Message, Signal, Vfio};

/// A value for a 32-bit register of a device: `OFFSET=VALUE` as text, each decimal or hexadecimal with `0x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterWrite {
    /// Offset of the register in bytes.
    pub at: usize,
    /// The value.
    pub value: u32,
}

/// A text that is no [`RegisterWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRegisterWrite;

impl fmt::Display for NoRegisterWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected OFFSET=VALUE, such as 0x60=1")
    }
}

impl std::error::Error for NoRegisterWrite {}

impl fmt::Display for RegisterWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}={:#x}", self.at, self.value)
    }
}

impl FromStr for RegisterWrite {
    type Err = NoRegisterWrite;

    fn from_str(text: &str) -> Result<Self, NoRegisterWrite> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let parsed = text.split_once('=').and_then(|(at, value)| Some((number(at)? as usize, number(value)?)));
        parsed.map(|(at, value)| Self { at, value }).ok_or(NoRegisterWrite)
    }
}

/// A source of interrupts.
pub trait Interrupt: AsFd {
    /// Checks for interrupts since the last check. Returns a number that depends on the source, or `None` if there was no
    /// interrupt. Neither blocks nor allocates.
    ///
    /// # Errors
    /// The kernel's error number. The device is gone.
    fn look(&self) -> Result<Option<u64>, Errno>;
}

impl Interrupt for Uio {
    fn look(&self) -> Result<Option<u64>, Errno> {
        Ok(self.look()?.map(u64::from))
    }
}

impl Interrupt for Message {
    fn look(&self) -> Result<Option<u64>, Errno> {
        self.look()
    }
}

/// Waits for an interrupt, at most for `limit`. Returns `None` if there was none. For [`Uio`] the result is the count of all
/// interrupts so far; [`enable`](Uio::enable) the interrupt again once the device no longer asserts it. For a [`Message`]
/// the result is the number of new interrupts; the interrupt of a [pin](Signal::Pin) stays masked until [`Vfio::unmask`].
///
/// Real-time: spins with non-blocking system calls, or sleeps in one. Does not allocate.
///
/// # Errors
/// The kernel's error. The device is gone.
pub fn await_interrupt(source: &impl Interrupt, how: Wait, limit: DurNs) -> Result<Option<u64>, Errno> {
    let from = mono_now();
    let until = from + limit;
    let spin_until = match how {
        Wait::Sleep => from,
        Wait::Spin => until,
        Wait::Both { spin } => from + spin.min(limit),
    };
    loop {
        if let Some(came) = source.look()? {
            return Ok(Some(came));
        }
        let now = mono_now();
        if now >= until {
            return Ok(None);
        }
        if now >= spin_until {
            // The result does not matter (ready, interrupted or timed out), because the next iteration checks again.
            let _ = sys::poll::is_readable(source.as_fd(), rest(until, now));
        }
    }
}

fn rest(until: MonoNs, now: MonoNs) -> DurNs {
    until - now
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixDatagram;

    /// A source that uses datagrams as interrupts.
    struct Datagrams(UnixDatagram);

    impl AsFd for Datagrams {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Interrupt for Datagrams {
        fn look(&self) -> Result<Option<u64>, Errno> {
            let mut bytes = [0; 8];
            Ok(self.0.recv(&mut bytes).ok().map(|length| length as u64))
        }
    }

    #[test]
    fn a_register_write_is_an_offset_and_a_value() {
        assert_eq!("0x60=1".parse(), Ok(RegisterWrite { at: 0x60, value: 1 }));
        assert_eq!("96=0x10".parse(), Ok(RegisterWrite { at: 96, value: 16 }));
        assert_eq!(RegisterWrite { at: 96, value: 16 }.to_string(), "0x60=0x10");
        for wrong in ["", "0x60", "0x60=", "=1", "-1=1", "0x100000000=1"] {
            assert!(wrong.parse::<RegisterWrite>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interrupt_is_awaited_by_spinning_and_sleeping_and_the_wait_times_out_without_one() {
        let (device, here) = UnixDatagram::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let source = Datagrams(here);
        for how in [Wait::Sleep, Wait::Spin, Wait::Both { spin: DurNs::from_us(200) }] {
            assert_eq!(await_interrupt(&source, how, DurNs::from_ms(2)), Ok(None), "{how:?}");
            device.send(b"abc").unwrap();
            assert_eq!(await_interrupt(&source, how, DurNs::from_secs(60)), Ok(Some(3)), "{how:?}");
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| await_interrupt(&source, how, DurNs::from_secs(60)));
                std::thread::yield_now();
                device.send(b"ab").unwrap();
                assert_eq!(waiter.join().unwrap(), Ok(Some(2)), "{how:?}");
            });
        }
    }
}

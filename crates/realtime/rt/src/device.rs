//! Devices from user space: their registers, and a thread that waits for their interrupts.
//!
//! [`Uio`] and [`Vfio`] open a device that the operator has bound to a driver for user space; [`Region`] and [`Register`] are
//! its registers. What remains of SGI's user-level interrupts on stock Linux: the interrupt wakes a thread here, on the CPU
//! on which it arrives if the shield has placed it there (`tahti shield apply --irq`), or is found by one that spins.

use base::{DurNs, MonoNs};
use ring::Wait;
use std::os::fd::AsFd;
use sys::Errno;
use sys::clock::mono_now;

pub use sys::registers::{Region, Register, Word};
pub use sys::uio::Uio;
pub use sys::vfio::{DeviceMemory, Message, Signal, Vfio};

/// What interrupts come from.
pub trait Interrupt: AsFd {
    /// A number that tells what has come since the last look, if anything has. Neither blocks nor allocates.
    ///
    /// # Errors
    /// The kernel's number of the error; the device is gone.
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

/// Waits for an interrupt, at most for `limit`; `None` if none came. For [`Uio`] what comes is the count of all interrupts
/// so far: [`enable`](Uio::enable) it again once the device is quiet. For a [`Message`] it is how many came; that of a
/// [pin](Signal::Pin) is masked until [`Vfio::unmask`].
///
/// Real-time: spins with system calls that do not block, or sleeps in one; does not allocate.
///
/// # Errors
/// The kernel's: the device is gone.
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
            // Whether it was ready, interrupted, or the time is over: the next look tells.
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

    /// A source whose interrupts are datagrams.
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
    fn an_interrupt_is_found_by_spinning_and_by_sleeping_and_none_ends_with_the_limit() {
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

//! "tahti Interrupt": interrupts of a UIO device, `@uio0 clear=0x64=1 class=fifo:85 cpu=1`.
//!
//! A thread of the record waits for the interrupt, reads the clock, writes the register that silences the device, delivers
//! the number of interrupts, and enables the next one. With SCAN `I/O Intr` each delivery processes the record, on its owner's
//! thread. With TSE −2 the stamp is the time of the interrupt. UTAG is the number of interrupts.
//!
//! Alarms: COMM INVALID if the device cannot be opened or is gone (retried once a second).

use super::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{CpuId, CpuSet, DurNs, Policy, Status, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use rt::Wait;
use rt::device::{Register, RegisterWrite, Uio, await_interrupt};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::rounds::Rounds;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The device support.
pub(super) struct DeviceInterrupt;

/// Time between two checks for the end, and two attempts to open the device.
const CHECK: DurNs = DurNs::from_secs(1);

/// The parsed address.
#[derive(Clone, Debug, PartialEq)]
struct Address {
    /// UIO node, or address of a PCI device bound to UIO.
    device: String,
    /// Register of the first region and value that silence the device.
    clear: Option<RegisterWrite>,
    class: Policy,
    cpu: Option<CpuId>,
}

impl Address {
    fn parse(text: &str) -> Result<Self, AttachError> {
        let mut options = Options::parse(text);
        let device = options.needed("a UIO device, such as uio0")?.to_owned();
        let register_write = |text: &str| {
            let expected = || "clear=OFFSET=VALUE, such as clear=0x64=1".to_owned();
            let wrong = |_| AttachError::Unexpected { found: format!("clear={text}"), expected: expected() };
            text.parse::<RegisterWrite>().map_err(wrong)
        };
        let clear = options.text("clear").map(register_write).transpose()?;
        let class = options.value("class", Policy::OTHER)?;
        let cpu = match options.text("cpu") {
            Some(_) => Some(options.value("cpu", 0)?),
            None => None,
        };
        options.finish()?;
        Ok(Self { device, clear, class, cpu })
    }
}

impl DeviceSupport for DeviceInterrupt {
    fn name(&self) -> &'static str {
        "tahti Interrupt"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["longin", "int64in"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        let address = Address::parse(place.address)?;
        let line =
            Line { record: place.name.to_owned(), address, state: Arc::default(), interrupt: None, failed: None };
        Ok(Served { device: Some(Box::new(line)), interrupts: true, ..Served::default() })
    }
}

/// Shared by the record and its thread.
#[derive(Default)]
struct State {
    count: AtomicU64,
    /// Whether the thread runs.
    runs: AtomicBool,
    /// The record has another address, or the IOC stops.
    ends: AtomicBool,
}

/// The interrupt of one record.
struct Line {
    record: String,
    address: Address,
    state: Arc<State>,
    interrupt: Option<Interrupt>,
    /// The last reported error.
    failed: Option<String>,
}

impl RecordDevice for Line {
    fn start(&mut self, now: Now, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
        self.poll(now);
    }

    fn request(&mut self, now: Now, _: Option<Output>, reply: Reply) {
        reply.send(match self.failed {
            Some(_) => DeviceSample::failed(Status::Comm),
            None => sample(self.state.count.load(Ordering::Relaxed), now),
        });
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn period(&self) -> Option<DurNs> {
        Some(CHECK)
    }

    /// Starts the thread if it does not run.
    fn poll(&mut self, _: Now) {
        let Some(interrupt) = self.interrupt.clone().filter(|_| !self.state.runs.load(Ordering::Acquire)) else {
            return;
        };
        match self.open(interrupt) {
            Ok(()) => self.failed = None,
            Err(error) => {
                let why = error.to_string();
                if self.failed.as_ref() == Some(&why) {
                    return;
                }
                eprintln!("{}: {why}", self.record);
                self.failed = Some(why);
                if let Some(interrupt) = &self.interrupt {
                    // If the owner has no room, the next error is reported.
                    interrupt.feed_or_refuse(DeviceSample::failed(Status::Comm));
                }
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Release);
    }
}

/// The reason why a record cannot wait for an interrupt.
#[derive(Debug, thiserror::Error)]
enum NoInterrupt {
    #[error("{0}: another record has this device; use its FLNK")]
    Taken(String),
    #[error("class= needs a record that is loaded before iocInit")]
    Late,
    #[error("a thread for {node}: {error}")]
    Thread { node: String, error: std::io::Error },
    #[error(transparent)]
    Device(#[from] sys::Error),
}

/// A device of this process. Two threads must not wait for the same interrupt: each would enable it for the other.
struct Claim(String);

static CLAIMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Claim {
    fn take(node: &str) -> Result<Self, NoInterrupt> {
        // A panic while the lock is held cannot leave the set inconsistent.
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        match claimed.insert(node.to_owned()) {
            true => Ok(Self(node.to_owned())),
            false => Err(NoInterrupt::Taken(node.to_owned())),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

impl Line {
    fn open(&self, interrupt: Interrupt) -> Result<(), NoInterrupt> {
        let Address { device, clear, class, cpu } = &self.address;
        if class.is_real_time() && !interrupt.is_own() {
            return Err(NoInterrupt::Late);
        }
        let node = if device.contains(':') { Uio::node_of(device)? } else { device.clone() };
        let claim = Claim::take(&node)?;
        let uio = Uio::open(&node)?;
        let clear = match clear {
            Some(RegisterWrite { at, value }) => {
                let region = uio.bar(0).or_else(|_| uio.region(0))?;
                Some((region.register(*at)?, *value))
            }
            None => None,
        };
        let (class, cpu, state) = (*class, *cpu, self.state.clone());
        let rounds = Rounds::watch(&node, crate::HANGS_AFTER);
        let work = move || {
            wait(&uio, clear.as_ref(), &interrupt, (&*state, &rounds));
            drop(claim);
            state.runs.store(false, Ordering::Release);
        };
        let (record, ready) = (self.record.clone(), std::sync::mpsc::channel());
        self.state.runs.store(true, Ordering::Release);
        let started = std::thread::Builder::new().name(node.clone()).spawn(move || {
            // The thread "devices" waits for the answer.
            let _ = ready.0.send(settle(class, cpu));
            work();
        });
        if let Err(error) = started {
            self.state.runs.store(false, Ordering::Release);
            return Err(NoInterrupt::Thread { node, error });
        }
        if let Ok(Err(why)) = ready.1.recv() {
            eprintln!("{record}: {why}; waits without it");
        }
        Ok(())
    }
}

/// Class and CPU of this thread.
fn settle(class: Policy, cpu: Option<CpuId>) -> sys::Result<()> {
    cpu.map_or(Ok(()), |cpu| set_affinity(0, &CpuSet::single(cpu)))?;
    set_scheduling(0, Scheduling { policy: class, reset_on_fork: true })
}

/// Waits for interrupts until the record ends or the device is gone.
///
/// Real-time: neither allocates nor waits for a lock that another thread holds, if the record has its own ring.
fn wait(uio: &Uio, clear: Option<&(Register<u32>, u32)>, interrupt: &Interrupt, (state, rounds): (&State, &Rounds)) {
    let next = || -> Result<(), sys::Errno> {
        rounds.count();
        if let Some(count) = await_interrupt(uio, Wait::Sleep, CHECK)? {
            let now = now();
            if let Some((register, value)) = clear {
                register.write(*value);
            }
            state.count.store(count, Ordering::Relaxed);
            // A refused delivery is counted.
            interrupt.feed_or_refuse(sample(count, now));
            uio.enable()?;
        }
        Ok(())
    };
    let mut result = uio.enable();
    while result.is_ok() && !state.ends.load(Ordering::Acquire) {
        result = next();
    }
    if result.is_err() {
        interrupt.feed_or_refuse(DeviceSample::failed(Status::Comm));
    }
}

fn sample(count: u64, now: Now) -> DeviceSample {
    let value = Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    DeviceSample { tag: count, ..DeviceSample::good(value, now.wall) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Priority;

    #[test]
    fn an_address_has_a_device_and_options() {
        let parsed = Address::parse("0000:00:03.0 clear=0x64=1 class=fifo:85 cpu=1").unwrap();
        let class = Policy::Fifo(Priority(85));
        let expected = Address {
            device: "0000:00:03.0".into(),
            clear: Some(RegisterWrite { at: 0x64, value: 1 }),
            class,
            cpu: Some(1),
        };
        assert_eq!(parsed, expected);
        assert_eq!(Address::parse("uio0").unwrap().class, Policy::OTHER);
        let refused = |text: &str| Address::parse(text).unwrap_err().to_string();
        assert!(refused("").contains("expected a UIO device"));
        for text in ["uio0 clear=0x64", "uio0 clear=", "uio0 clear=x=1"] {
            assert!(refused(text).contains("expected clear=OFFSET=VALUE"), "{text}");
        }
        assert!(refused("uio0 cpus=1").contains("expected clear=, class=, cpu="));
    }

    #[test]
    fn a_device_belongs_to_one_record_at_a_time() {
        let claim = Claim::take("uio-test").unwrap();
        assert!(Claim::take("uio-test").err().unwrap().to_string().contains("another record has this device"));
        drop(claim);
        assert!(Claim::take("uio-test").is_ok());
    }
}

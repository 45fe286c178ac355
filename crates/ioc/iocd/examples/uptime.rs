//! An IOC with an additional device support: `field(DTYP, "uptime") field(INP, "@")` reads the uptime of the machine.

use base::{DurNs, Status, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use iocd::devices::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Reply, Served};
use iocd::shell::Shell;
use std::sync::Arc;

struct Uptime;

impl DeviceSupport for Uptime {
    fn name(&self) -> &'static str {
        "uptime"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["ai"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        let mut options = Options::parse(place.address);
        let every = options.time("every", DurNs::from_secs(1))?;
        options.finish()?;
        let reading = Reading { every, interrupt: None };
        Ok(Served { device: Some(Box::new(reading)), interrupts: true, ..Served::default() })
    }
}

/// Device of one record.
struct Reading {
    every: DurNs,
    interrupt: Option<Interrupt>,
}

impl Reading {
    fn read(now: Now) -> DeviceSample {
        let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        match text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()) {
            Some(seconds) => DeviceSample::good(Value::from(seconds), now.wall),
            None => DeviceSample::failed(Status::Read),
        }
    }
}

impl RecordDevice for Reading {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
    }

    fn request(&mut self, now: Now, _: Option<Output>, reply: Reply) {
        reply.send(Self::read(now));
    }

    fn period(&self) -> Option<DurNs> {
        Some(self.every)
    }

    fn poll(&mut self, now: Now) {
        if let Some(interrupt) = &self.interrupt {
            // If the records are too slow, the value is refused and counted.
            interrupt.feed_or_refuse(Self::read(now));
        }
    }
}

fn main() {
    let mut shell = Shell::new(false, std::env::vars());
    shell.add_support(Arc::new(Uptime));
    let ran = shell.run_stdin();
    if let Err(error) = ran.and(shell.shut_down()) {
        eprintln!("{}", error.0);
    }
}

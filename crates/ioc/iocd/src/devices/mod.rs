//! Device supports: the equipment that a DTYP selects.
//!
//! Each is one file: it lists the record types it serves, parses an address, and answers requests. See
//! `docs/how-to/add-a-device-support.md`.
//!
//! The thread "devices" has all records with devices. A request reaches it through a ring from the thread that owns the
//! record. The answer returns through the owner's feeder. Ports have separate threads. A device support that can answer
//! without waiting does so on the owner's thread ([`db::Direct`]).

pub(crate) mod asyn;
mod fields;
mod hub;
mod options;
mod ports;
mod server;
mod stream_address;
mod watch;

pub use hub::{Hub, Interrupt, Reply};
pub(crate) use hub::{OwnerEnds, Requests};
pub use options::Options;
pub use ports::{Configured, PortError, Ports};

use crate::links::Reports;
use crate::recsync::{self, RecCaster};
use base::DurNs;
use db::{Answers, AttachError, Attached, Attaching, Db, Direct, Now, Output, Support};
use fieldbus::modbus::Framing;
use std::sync::Arc;
use sys::rounds::Rounds;

/// Declares a module for each line, with its device supports. (`cargo fmt` does not find these files, `cargo xtask test fmt`
/// does.)
macro_rules! supports {
    ($($module:ident: $($support:expr),+;)*) => {
        $(mod $module;)*

        /// The device supports built into tahti.
        fn built_in() -> Vec<Arc<dyn DeviceSupport>> {
            let mut all: Vec<Arc<dyn DeviceSupport>> = Vec::new();
            $({
                use $module::*;
                $(all.push(Arc::new($support));)+
            })*
            all
        }
    };
}
supports! {
    frame: Frame;
    interrupt: DeviceInterrupt;
    message: Message;
    modbus: Modbus(Framing::Tcp), Modbus(Framing::Rtu), Modbus(Framing::Ascii);
    simulation: Simulation;
    stream: Stream;
    variable: Variable;
}

/// A device support.
pub trait DeviceSupport: Send + Sync {
    /// Name in DTYP.
    fn name(&self) -> &'static str;

    /// Record types that it serves.
    fn record_types(&self) -> &'static [&'static str];

    /// A record gets this address.
    ///
    /// # Errors
    /// The fault in the address.
    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError>;
}

/// Interfaces through which a device support serves a record.
#[derive(Default)]
pub struct Served {
    /// Answers immediately, on the thread that owns the record. It must neither allocate nor block.
    pub direct: Option<Box<dyn Direct>>,
    /// Answers later, or delivers values on its own initiative.
    pub device: Option<Box<dyn RecordDevice>>,
    /// Whether SCAN may be `I/O Intr`.
    pub interrupts: bool,
    /// Lowest and highest raw value. With LINR `LINEAR` they become EGUL and EGUF.
    pub raw_range: Option<(f64, f64)>,
    /// A waveform or aai is written to the device instead of read.
    pub writes: bool,
}

/// The device of one record. Called on the thread "devices", so it must not block.
pub trait RecordDevice: Send {
    /// The record is in service. `interrupt` delivers values that the record did not request.
    fn start(&mut self, now: Now, interrupt: Interrupt) {
        let _ = (now, interrupt);
    }

    /// The record makes a request: `output` is the value to write, `None` reads.
    fn request(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        let _ = (now, output, reply);
    }

    /// The record requests the initial value of its device, as after a connect ([`db::Request::initial`]). A device without
    /// initial values treats it as any other request.
    fn request_initial(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        self.request(now, output, reply);
    }

    /// Whether it delivers from a thread of its own, which may be real-time.
    fn has_thread(&self) -> bool {
        false
    }

    /// Period of calls to [`poll`](Self::poll).
    fn period(&self) -> Option<DurNs> {
        None
    }

    /// Called once per period.
    fn poll(&mut self, now: Now) {
        let _ = now;
    }
}

/// All device supports, their thread and their ports.
#[derive(Clone)]
pub struct Devices {
    hub: Arc<Hub>,
    /// Connections to equipment, by name.
    pub ports: Ports,
    /// State of the client of RecCeiver.
    pub(crate) caster: recsync::Status,
}

impl Default for Devices {
    fn default() -> Self {
        Self { hub: Arc::new(Hub::new()), ports: Ports::default(), caster: recsync::Status::default() }
    }
}

impl Devices {
    /// Registers the device supports with a database. Call it before records are loaded.
    pub fn register(&self, db: &mut Db) {
        let caster: Arc<dyn DeviceSupport> = Arc::new(RecCaster(self.caster.clone()));
        built_in().into_iter().chain(asyn::all()).chain([caster]).for_each(|support| self.add(db, support));
    }

    /// Registers one more device support.
    pub fn add(&self, db: &mut Db, support: Arc<dyn DeviceSupport>) {
        db.add_support(Arc::new(Adapter { support, devices: self.clone() }));
    }

    /// Ring ends for the owner of a shard.
    pub(crate) fn ends(&self, shard: usize) -> OwnerEnds {
        self.hub.ends(shard)
    }

    /// Creates the rings of a shard that is loaded at run time, before its records start.
    pub(crate) fn open(&self, shard: usize, records: usize) {
        self.hub.open(shard, records);
    }

    /// Removes a shard that has no records left.
    pub(crate) fn close(&self, shard: usize) {
        self.hub.close(shard);
    }

    /// Starts the thread "devices". It logs lost ports, and reports them to the supervisor.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(&self, reports: Reports) -> std::io::Result<()> {
        let (hub, ports) = (self.hub.clone(), self.ports.clone());
        let rounds = Rounds::watch("devices", crate::HANGS_AFTER);
        let watch = move |now| {
            let Some((log, text)) = ports.watch() else { return false };
            log.iter().for_each(|line| eprintln!("{line}"));
            reports.report(now, "ports", text);
            true
        };
        std::thread::Builder::new()
            .name("devices".into())
            .stack_size(512 << 10)
            .spawn(move || hub.run(&rounds, watch))?;
        Ok(())
    }

    /// Ends the thread "devices" and closes the ports. Waiting records get an error.
    pub fn stop(&self) {
        self.hub.stop();
        self.ports.close();
    }
}

/// Adapts a device support to the interface of the database.
struct Adapter {
    support: Arc<dyn DeviceSupport>,
    devices: Devices,
}

impl Support for Adapter {
    fn name(&self) -> &str {
        self.support.name()
    }

    fn record_types(&self) -> &[&'static str] {
        self.support.record_types()
    }

    fn attach(&self, place: &Attaching<'_>) -> Result<Attached, AttachError> {
        let Served { direct, device, interrupts, raw_range, writes } =
            self.support.attach(place, &self.devices.ports)?;
        match device {
            Some(device) => self.devices.hub.attach(place.shard, place.record, device),
            None => self.devices.hub.detach(place.shard, place.record),
        }
        Ok(Attached { answers: direct.map_or(Answers::Later, Answers::Now), interrupts, raw_range, writes })
    }

    fn detach(&self, shard: usize, record: db::RecId) {
        self.devices.hub.detach(shard, record);
    }
}

//! Device supports: what stands behind a DTYP.
//!
//! Each is one file: it says which record types it serves, reads an address, and answers. See
//! `docs/how-to/add-a-device-support.md`.
//!
//! The thread "devices" knows all records with equipment behind them. A request reaches it over a ring from the thread
//! that owns the record, the answer goes back by the owner's feeder. Ports have threads of their own. A device support
//! that can answer without waiting does so on the owner's thread ([`db::Direct`]).

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

use base::DurNs;
use db::{Answers, AttachError, Attached, Attaching, Db, Direct, Now, Output, Support};
use fieldbus::modbus::Framing;
use std::sync::Arc;

/// Declares a module for each line, and what it has: one device support or several. (`cargo fmt` does not see these files,
/// `cargo xtask test fmt` does.)
macro_rules! supports {
    ($($module:ident: $($support:expr),+;)*) => {
        $(mod $module;)*

        /// The device supports of tahti's own.
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
    message: Message;
    modbus: Modbus(Framing::Tcp), Modbus(Framing::Rtu);
    simulation: Simulation;
    stream: Stream;
    variable: Variable;
}

/// A device support.
pub trait DeviceSupport: Send + Sync {
    /// Its name in DTYP.
    fn name(&self) -> &'static str;

    /// Types of the records that it serves.
    fn record_types(&self) -> &'static [&'static str];

    /// A record is given an address.
    ///
    /// # Errors
    /// What is wrong with it.
    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError>;
}

/// How a record is served.
#[derive(Default)]
pub struct Served {
    /// Answers at once, on the thread that owns the record: neither allocates nor blocks.
    pub direct: Option<Box<dyn Direct>>,
    /// Answers later, or interrupts.
    pub device: Option<Box<dyn RecordDevice>>,
    /// Whether SCAN may be `I/O Intr`.
    pub interrupts: bool,
}

/// What stands behind one record. Called on the thread "devices": it must not block.
pub trait RecordDevice: Send {
    /// The record comes into service; `interrupt` gives it values that it did not ask for.
    fn start(&mut self, now: Now, interrupt: Interrupt) {
        let _ = (now, interrupt);
    }

    /// The record asks. `output` is what it writes; without, it reads.
    fn request(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        let _ = (now, output, reply);
    }

    /// How often [`poll`](Self::poll) is called.
    fn period(&self) -> Option<DurNs> {
        None
    }

    /// A period has passed.
    fn poll(&mut self, now: Now) {
        let _ = now;
    }
}

/// All device supports with their thread, and the ports that they use.
#[derive(Clone)]
pub struct Devices {
    hub: Arc<Hub>,
    /// Connections to equipment, by name.
    pub ports: Ports,
}

impl Default for Devices {
    fn default() -> Self {
        Self { hub: Arc::new(Hub::new()), ports: Ports::default() }
    }
}

impl Devices {
    /// Makes the device supports known to a database, before records are loaded.
    pub fn register(&self, db: &mut Db) {
        built_in().into_iter().for_each(|support| self.add(db, support));
    }

    /// Makes one more device support known.
    pub fn add(&self, db: &mut Db, support: Arc<dyn DeviceSupport>) {
        db.add_support(Arc::new(Adapter { support, devices: self.clone() }));
    }

    /// The ends of the rings that the owner of a shard needs.
    pub(crate) fn ends(&self, shard: usize) -> OwnerEnds {
        self.hub.ends(shard)
    }

    /// Makes the rings of a shard that is loaded while the IOC runs, before its records start.
    pub(crate) fn open(&self, shard: usize, records: usize) {
        self.hub.open(shard, records);
    }

    /// Forgets a shard that has no records any more.
    pub(crate) fn close(&self, shard: usize) {
        self.hub.close(shard);
    }

    /// Starts the thread "devices".
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(&self) -> std::io::Result<()> {
        let hub = self.hub.clone();
        std::thread::Builder::new().name("devices".into()).stack_size(512 << 10).spawn(move || hub.run())?;
        Ok(())
    }

    /// Ends the thread "devices" and closes the ports; records that wait are told.
    pub fn stop(&self) {
        self.hub.stop();
        self.ports.close();
    }
}

/// A device support as the database sees it.
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
        let Served { direct, device, interrupts } = self.support.attach(place, &self.devices.ports)?;
        match device {
            Some(device) => self.devices.hub.attach(place.shard, place.record, device),
            None => self.devices.hub.detach(place.shard, place.record),
        }
        Ok(Attached { answers: direct.map_or(Answers::Later, Answers::Now), interrupts })
    }

    fn detach(&self, shard: usize, record: db::RecId) {
        self.devices.hub.detach(shard, record);
    }
}

//! "RecCaster": records of reccaster's `reccaster.db`, with the state of the client (mbbi) and its last message (stringin).

use super::caster::State;
use crate::devices::{DeviceSupport, Interrupt, Ports, RecordDevice, Reply, Served};
use crate::engine::wall;
use base::{Scalar, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// State of the client, shared with the records that show it.
#[derive(Clone, Default)]
pub(crate) struct Status(Arc<Mutex<Inside>>);

struct Inside {
    state: u16,
    message: Str40,
    records: Vec<Weak<Shown>>,
    is_used: bool,
}

impl Default for Inside {
    fn default() -> Self {
        Self { state: State::Init as u16, message: "Initializing".into(), records: Vec::new(), is_used: false }
    }
}

/// A record with SCAN `I/O Intr`.
struct Shown {
    part: Part,
    interrupt: Interrupt,
}

/// What a record shows.
#[derive(Clone, Copy)]
enum Part {
    State,
    Message,
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic while the lock is held cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a record shows it.
    pub(crate) fn is_used(&self) -> bool {
        self.lock().is_used
    }

    /// Sets the state and the message, and processes the records if one differs. A message of more than 39 bytes is cut, as in C.
    pub(super) fn set(&self, state: u16, message: &str) {
        let message = Str40::new(message.as_bytes());
        let mut inside = self.lock();
        if (inside.state, inside.message) == (state, message) {
            return;
        }
        (inside.state, inside.message) = (state, message);
        inside.records.retain(|record| record.strong_count() > 0);
        for record in inside.records.iter().filter_map(Weak::upgrade) {
            // Without room the next change updates the record.
            let _ = record.interrupt.feed_or_refuse(inside.sample(record.part));
        }
    }
}

impl Inside {
    fn sample(&self, part: Part) -> DeviceSample {
        let value = match part {
            Part::State => Scalar::I64(self.state.into()),
            Part::Message => Scalar::String(self.message),
        };
        DeviceSample::good(Value::Scalar(value), wall())
    }
}

/// The device support.
pub(crate) struct RecCaster(pub(crate) Status);

impl DeviceSupport for RecCaster {
    fn name(&self) -> &'static str {
        "RecCaster"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["mbbi", "stringin"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        self.0.lock().is_used = true;
        let part = if place.record_type == "mbbi" { Part::State } else { Part::Message };
        let device = Device { status: self.0.clone(), part, shown: None };
        Ok(Served { device: Some(Box::new(device)), interrupts: true, ..Served::default() })
    }
}

struct Device {
    status: Status,
    part: Part,
    shown: Option<Arc<Shown>>,
}

impl RecordDevice for Device {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        let shown = Arc::new(Shown { part: self.part, interrupt });
        self.status.lock().records.push(Arc::downgrade(&shown));
        self.shown = Some(shown);
    }

    fn request(&mut self, _: Now, _: Option<Output>, reply: Reply) {
        let sample = self.status.lock().sample(self.part);
        reply.send(sample);
    }
}

//! "tahti Variable": variables that real-time loops and frames export, `@PAGE/NAME every=100ms`.
//!
//! Reading is a look into shared memory: the loop is not disturbed, and the record is processed with the newest value, on
//! its owner's thread. With SCAN `I/O Intr` a record is processed when the number of the pulse has changed, looked at
//! each `every`. UTAG is the number of the pulse; with TSE −2 the stamp is when the loop wrote. The alarm is COMM INVALID
//! while nobody exports (again tried twice a second), STATE MAJOR while the safe value stands for the value, UDF INVALID
//! before the first write. Variables are the loop's own: nothing can be written to them.

use super::{DeviceSupport, Equipment, Interrupt, Options, Ports, Served};
use base::{Alarm, DurNs, Scalar, Severity, Stamp, Status, Value};
use db::{Attaching, Direct, Fed, Now, Output};
use ring::{Number, Reading};
use rt::Imports;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How often a page is looked after: whether its process lives, whether there is a new one.
const LOOK_AFTER: DurNs = DurNs::from_ms(500);

/// The device support.
pub(super) struct Variable;

impl DeviceSupport for Variable {
    fn name(&self) -> &'static str {
        "tahti Variable"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["ai", "bi", "mbbi", "mbbiDirect", "longin", "int64in", "stringin", "ao", "bo", "longout", "int64out"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, String> {
        if place.output {
            return Err("variables belong to the loop that exports them: they can be read, not written".to_owned());
        }
        let mut options = Options::parse(place.address);
        let path = options.needed("PAGE/NAME")?;
        let every = options.time("every", DurNs::from_ms(100))?;
        options.finish()?;
        let (page, name) = path.split_once('/').unwrap_or_default();
        if page.is_empty() || name.is_empty() {
            return Err(format!("\"{path}\"; expected PAGE/NAME, such as llrf/cavity:voltage"));
        }
        let page = page_of(page);
        let view = || View { page: page.clone(), name: name.to_owned(), generation: 0, imports: None, index: None };
        let poll = Poll { view: view(), every, interrupt: None, told: None };
        Ok(Served { direct: Some(Box::new(view())), equipment: Some(Box::new(poll)), interrupts: true })
    }
}

/// The variables that somebody exports under one name; shared by all records that read them.
struct Page {
    name: String,
    /// Changes with each connection.
    generation: AtomicU64,
    alive: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    now: Option<Arc<Imports>>,
    /// Pages of before stay mapped: unmapping would interrupt every CPU of this process, the real-time ones too.
    before: Vec<Arc<Imports>>,
    looked: Option<base::MonoNs>,
}

/// The page of a name: one for the whole IOC.
fn page_of(name: &str) -> Arc<Page> {
    static PAGES: OnceLock<Mutex<HashMap<String, Arc<Page>>>> = OnceLock::new();
    // Only whole entries are ever in the map.
    let mut pages = PAGES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let new = || {
        let (generation, alive) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Page { name: name.to_owned(), generation, alive, held: Mutex::default() })
    };
    pages.entry(name.to_owned()).or_insert_with(new).clone()
}

impl Page {
    /// Connects where nobody is connected, and notices where the process has died. On the thread "devices".
    fn look_after(&self, now: Now) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.looked.is_some_and(|looked| now.mono - looked < LOOK_AFTER) {
            return;
        }
        held.looked = Some(now.mono);
        if held.now.as_ref().is_some_and(|imports| imports.is_alive()) {
            return;
        }
        self.alive.store(false, Ordering::Release);
        if let Ok(imports) = Imports::open(&self.name) {
            let before = held.now.replace(Arc::new(imports));
            held.before.extend(before);
            self.generation.fetch_add(1, Ordering::Release);
            self.alive.store(true, Ordering::Release);
        }
    }
}

/// One variable, as one reader sees it.
struct View {
    page: Arc<Page>,
    name: String,
    generation: u64,
    imports: Option<Arc<Imports>>,
    index: Option<usize>,
}

impl View {
    fn reading(&mut self) -> Option<Reading> {
        let generation = self.page.generation.load(Ordering::Acquire);
        // Never waits: while the page is being looked after, the connection of before is read once more.
        if generation != self.generation
            && let Ok(held) = self.page.held.try_lock()
        {
            self.imports.clone_from(&held.now);
            (self.generation, self.index) = (generation, None);
        }
        let segment = self.imports.as_ref()?.segment().ok()?;
        if self.index.is_none() {
            self.index = segment.find(&self.name);
        }
        segment.get(self.index?)
    }

    fn fed(&self, reading: Option<Reading>, now: Now) -> Fed {
        let alive = self.page.alive.load(Ordering::Acquire);
        let Some(reading) = reading else { return Fed::failed(if alive { Status::Read } else { Status::Comm }) };
        if reading.writes == 0 {
            return Fed::failed(if alive { Status::Udf } else { Status::Comm });
        }
        let value = Value::Scalar(match reading.value {
            Number::Float(value) => Scalar::F64(value),
            Number::Int(value) => Scalar::I64(value),
            Number::Bool(value) => Scalar::Enum(value.into()),
        });
        let alarm = match (alive, reading.safe) {
            (false, _) => Alarm { status: Status::Comm, severity: Severity::Invalid },
            (true, true) => Alarm { status: Status::State, severity: Severity::Major },
            (true, false) => Alarm::NONE,
        };
        Fed { value: Some(value), alarm, stamp: earlier(now, reading.at), tag: reading.pulse }
    }
}

/// The wall clock's time at an instant of before.
fn earlier(now: Now, at: base::MonoNs) -> Stamp {
    let wall = u64::from(now.wall.secs) * 1_000_000_000 + u64::from(now.wall.nanos);
    let then = wall.saturating_sub((now.mono - at).0.max(0) as u64);
    Stamp { secs: (then / 1_000_000_000) as u32, nanos: (then % 1_000_000_000) as u32 }
}

impl Direct for View {
    fn read(&mut self, now: Now) -> Fed {
        let reading = self.reading();
        self.fed(reading, now)
    }

    fn write(&mut self, _: Now, _: &Output) -> Fed {
        Fed::failed(Status::Write)
    }
}

/// Looks for new pulses.
struct Poll {
    view: View,
    every: DurNs,
    interrupt: Option<Interrupt>,
    /// What was told last: pulse, number of writes, whether somebody exports, whether the safe value stands.
    told: Option<(u64, u64, bool, bool)>,
}

impl Equipment for Poll {
    fn start(&mut self, now: Now, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
        self.view.page.look_after(now);
    }

    fn period(&self) -> Option<DurNs> {
        Some(self.every.min(LOOK_AFTER))
    }

    fn poll(&mut self, now: Now) {
        self.view.page.look_after(now);
        let reading = self.view.reading();
        let seen = reading.map_or((0, 0, false, false), |reading| {
            (reading.pulse, reading.writes, self.view.page.alive.load(Ordering::Acquire), reading.safe)
        });
        if self.told == Some(seen) {
            return;
        }
        if let Some(interrupt) = &self.interrupt
            && interrupt.feed_or_refuse(self.view.fed(reading, now))
        {
            self.told = Some(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::now;
    use base::{FieldType, MonoNs};
    use db::RecId;
    use ring::VariableSpec;
    use rt::Exports;

    fn attach(address: &str, output: bool) -> Result<Served, String> {
        let place = Attaching {
            part: 0,
            record: RecId(1),
            name: "r",
            record_type: if output { "ao" } else { "ai" },
            output,
            address,
            elements: FieldType::F64,
            count: 1,
        };
        Variable.attach(&place, &Ports::default())
    }

    #[test]
    fn a_variable_is_read_with_its_pulse_and_its_time_and_its_loss_is_seen() {
        let name = format!("devices-{}", std::process::id());
        let served = attach(&format!("{name}/voltage every=20ms"), false).unwrap();
        let (mut direct, mut poll) = (served.direct.unwrap(), served.equipment.unwrap());
        assert_eq!(direct.read(now()).alarm.status, Status::Comm, "nobody exports yet");
        let exports = Exports::open(&name, 2).unwrap();
        let spec = |name| VariableSpec { name, unit: "MV", first: Number::Float(0.0), safe: None };
        let index = exports.add(&spec("voltage")).unwrap();
        poll.poll(now());
        assert_eq!(direct.read(now()).alarm.status, Status::Udf, "it was not written yet");
        let written = now();
        exports.set(index, Number::Float(2.5), 9, written.mono);
        let fed = direct.read(Now { wall: written.wall, mono: written.mono + DurNs(5) });
        let expected = Fed {
            value: Some(Value::from(2.5)),
            alarm: Alarm::NONE,
            stamp: earlier(written, MonoNs(written.mono.0 - 5)),
            tag: 9,
        };
        assert_eq!(fed, expected);
        assert_eq!(poll.period(), Some(DurNs::from_ms(20)));
    }

    #[test]
    fn a_bad_address_is_refused_with_what_was_expected() {
        let refused = |address: &str| attach(address, false).err().unwrap();
        assert!(refused("voltage").contains("expected PAGE/NAME"));
        assert!(refused("llrf/v evry=1s").contains("expected every="));
        assert!(attach("llrf/v", true).err().unwrap().contains("can be read, not written"));
    }
}

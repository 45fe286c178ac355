//! "tahti Variable": variables exported by real-time loops, frames and polls, `@PAGE/NAME every=100ms stale=TIME`.
//!
//! Reading accesses shared memory and does not disturb the loop. The record is processed with the newest value, on its
//! owner's thread. With SCAN `I/O Intr`, the pulse number is checked once per `every`, and the record is processed when it
//! has changed. UTAG is the pulse number. With TSE −2 the stamp is the time of the loop's write. Variables belong to the
//! loop: records cannot write them.
//!
//! Alarms:
//!
//! - COMM INVALID: the page is not exported (retried twice a second)
//! - TIMEOUT INVALID: the value is older than `stale` (by default two cycles, if the exporter reports its cycle time)
//! - STATE MAJOR: the safe value replaces the value
//! - UDF INVALID: not written yet

use super::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Served};
use base::{Alarm, DurNs, Scalar, Severity, Stamp, Status, Value};
use db::{AttachError, Attaching, DeviceSample, Direct, Now, Output};
use ring::{Number, Reading};
use rt::{LOOK_AFTER, Source, SourceView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The device support.
pub(super) struct Variable;

impl DeviceSupport for Variable {
    fn name(&self) -> &'static str {
        "tahti Variable"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["ai", "bi", "mbbi", "mbbiDirect", "longin", "int64in", "stringin", "ao", "bo", "longout", "int64out"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        if place.output {
            let why = "variables belong to the loop that exports them: they can be read, not written".to_owned();
            return Err(AttachError::Unsuited { why });
        }
        let mut options = Options::parse(place.address);
        let path = options.needed("PAGE/NAME")?;
        let every = options.time("every", DurNs::from_ms(100))?;
        let limits = options.text("stale").is_some();
        let stale = if limits { Some(options.time("stale", DurNs::ZERO)?) } else { None };
        options.finish()?;
        let (page, name) = path.split_once('/').unwrap_or_default();
        if page.is_empty() || name.is_empty() {
            let expected = "PAGE/NAME, such as llrf/cavity:voltage".to_owned();
            return Err(AttachError::Unexpected { found: format!("\"{path}\""), expected });
        }
        let page = page_of(page);
        let view = || View { view: SourceView::new(&page, name), stale };
        let poll = Poll { view: view(), every, interrupt: None, last: None };
        let (direct, device) = (Some(Box::new(view()) as _), Some(Box::new(poll) as _));
        Ok(Served { direct, device, interrupts: true, ..Served::default() })
    }
}

/// The exporter page with a name, shared by the whole IOC. The thread "devices" reconnects it.
fn page_of(name: &str) -> Arc<Source> {
    static PAGES: OnceLock<Mutex<HashMap<String, Arc<Source>>>> = OnceLock::new();
    // A panic while the lock is held cannot leave the map inconsistent.
    let mut pages = PAGES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    pages.entry(name.to_owned()).or_insert_with(|| Source::new(name)).clone()
}

/// One record's view of a variable.
struct View {
    view: SourceView,
    /// Maximum age of a value. It overrides the exporter's cycle time.
    stale: Option<DurNs>,
}

impl View {
    fn is_alive(&self) -> bool {
        self.view.source().is_alive()
    }

    fn is_stale(&self, reading: &Reading, now: Now) -> bool {
        self.stale.or_else(|| self.view.stale_after()).is_some_and(|limit| now.mono - reading.at > limit)
    }

    fn fed(&self, reading: Option<Reading>, now: Now) -> DeviceSample {
        let alive = self.is_alive();
        let Some(reading) = reading else {
            return DeviceSample::failed(if alive { Status::Read } else { Status::Comm });
        };
        if reading.writes == 0 {
            return DeviceSample::failed(if alive { Status::Udf } else { Status::Comm });
        }
        let value = Value::Scalar(match reading.value {
            Number::Float(value) => Scalar::F64(value),
            Number::Int(value) => Scalar::I64(value),
            Number::Bool(value) => Scalar::Enum(value.into()),
        });
        let alarm = match (alive, reading.safe) {
            (false, _) => Alarm { status: Status::Comm, severity: Severity::Invalid },
            (true, _) if self.is_stale(&reading, now) => Alarm { status: Status::Timeout, severity: Severity::Invalid },
            (true, true) => Alarm { status: Status::State, severity: Severity::Major },
            (true, false) => Alarm::NONE,
        };
        DeviceSample { alarm, tag: reading.pulse, ..DeviceSample::good(value, earlier(now, reading.at)) }
    }
}

/// Wall-clock time of a past instant.
fn earlier(now: Now, at: base::MonoNs) -> Stamp {
    let wall = u64::from(now.wall.secs) * 1_000_000_000 + u64::from(now.wall.nanos);
    let then = wall.saturating_sub((now.mono - at).0.max(0) as u64);
    Stamp { secs: (then / 1_000_000_000) as u32, nanos: (then % 1_000_000_000) as u32 }
}

impl Direct for View {
    fn read(&mut self, now: Now) -> DeviceSample {
        let reading = self.view.read();
        self.fed(reading, now)
    }

    fn write(&mut self, _: Now, _: &Output) -> DeviceSample {
        DeviceSample::failed(Status::Write)
    }
}

/// Checks for new pulses.
struct Poll {
    view: View,
    every: DurNs,
    interrupt: Option<Interrupt>,
    /// Last reported state: pulse, number of writes, and whether the page is exported, the value is stale, the safe value is
    /// used.
    last: Option<(u64, u64, [bool; 3])>,
}

impl RecordDevice for Poll {
    fn start(&mut self, now: Now, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
        self.view.view.source().look_after(now.mono);
    }

    fn period(&self) -> Option<DurNs> {
        Some(self.every.min(LOOK_AFTER))
    }

    fn poll(&mut self, now: Now) {
        self.view.view.source().look_after(now.mono);
        let reading = self.view.view.read();
        let seen = reading.map_or((0, 0, [false; 3]), |reading| {
            let states = [self.view.is_alive(), self.view.is_stale(&reading, now), reading.safe];
            (reading.pulse, reading.writes, states)
        });
        if self.last == Some(seen) {
            return;
        }
        if let Some(interrupt) = &self.interrupt
            && interrupt.feed_or_refuse(self.view.fed(reading, now))
        {
            self.last = Some(seen);
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

    fn attach(address: &str, output: bool) -> Result<Served, AttachError> {
        let place = Attaching {
            shard: 0,
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
    fn a_variable_is_read_with_its_pulse_and_time_and_its_loss_is_detected() {
        let name = format!("devices-{}", std::process::id());
        let served = attach(&format!("{name}/voltage every=20ms"), false).unwrap();
        let (mut direct, mut poll) = (served.direct.unwrap(), served.device.unwrap());
        assert_eq!(direct.read(now()).alarm.status, Status::Comm, "no exporter yet");
        let exports = Exports::open(&name, 2).unwrap();
        let spec = |name| VariableSpec { name, unit: "MV", first: Number::Float(0.0), safe: None };
        let index = exports.add(&spec("voltage")).unwrap();
        poll.poll(now());
        assert_eq!(direct.read(now()).alarm.status, Status::Udf, "it was not written yet");
        let written = now();
        exports.set(index, Number::Float(2.5), 9, written.mono);
        let fed = direct.read(Now { wall: written.wall, mono: written.mono + DurNs(5) });
        let stamp = earlier(written, MonoNs(written.mono.0 - 5));
        let expected = DeviceSample { tag: 9, ..DeviceSample::good(Value::from(2.5), stamp) };
        assert_eq!(fed, expected);
        assert_eq!(poll.period(), Some(DurNs::from_ms(20)));
    }

    #[test]
    fn a_value_that_is_not_renewed_has_a_timeout_alarm() {
        let name = format!("stale-{}", std::process::id());
        let exports = Exports::open(&name, 1).unwrap();
        let spec = |name, first| VariableSpec { name, unit: "", first, safe: None };
        exports.set_period(DurNs::from_ms(100));
        let index = exports.add(&spec("voltage", Number::Float(0.0))).unwrap();
        let loops = format!("silent-{}", std::process::id());
        let of_loop = Exports::open(&loops, 1).unwrap();
        let silent = of_loop.add(&spec("voltage", Number::Float(0.0))).unwrap();
        let start = now();
        exports.set(index, Number::Float(2.5), 0, start.mono);
        of_loop.set(silent, Number::Float(2.5), 0, start.mono);
        let status = |address: &str, ms| {
            let served = attach(address, false).unwrap();
            let (mut direct, mut poll) = (served.direct.unwrap(), served.device.unwrap());
            poll.poll(start);
            let fed = direct.read(Now { mono: start.mono + DurNs::from_ms(ms), ..start });
            assert_eq!(fed.value, Some(Value::from(2.5)));
            (fed.alarm.status, fed.alarm.severity)
        };
        let timeout = (Status::Timeout, Severity::Invalid);
        let good = (Status::None, Severity::None);
        let polled = format!("{name}/voltage");
        assert_eq!([status(&polled, 200), status(&polled, 220)], [good, timeout]);
        assert_eq!(status(&format!("{polled} stale=5s"), 3_000), good);
        assert_eq!(status(&format!("{loops}/voltage"), 60_000), good);
        assert_eq!(status(&format!("{loops}/voltage stale=50ms"), 51), timeout);
    }

    #[test]
    fn a_malformed_address_is_refused_with_the_expected_form() {
        let refused = |address: &str| attach(address, false).err().unwrap().to_string();
        assert!(refused("voltage").contains("expected PAGE/NAME"));
        assert!(refused("llrf/v evry=1s").contains("expected every="));
        assert!(attach("llrf/v", true).err().unwrap().to_string().contains("can be read, not written"));
    }
}

//! Variables in shared memory: imported from other processes and exported by this one.

use base::{DurNs, MonoNs};
use equipment::{Datum, Device, DeviceFault, DeviceSpec};
use rt::{Exports, Number, Source, SourceView, VariableSpec};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::mono_now;

/// All sources that a manager's devices import, by name. The manager's main thread maintains them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Arc<Mutex<Vec<Arc<Source>>>>);

impl Sources {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Source>>> {
        // The list contains only complete entries at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source with this name. A new source is checked once.
    fn get(&self, name: &str) -> Arc<Source> {
        let mut all = self.lock();
        if let Some(known) = all.iter().find(|source| source.name() == name) {
            return known.clone();
        }
        let source = Source::new(name);
        source.look_after(mono_now());
        all.push(source.clone());
        source
    }

    /// Detects processes that have started or ended. Contacts them, so it must never run on a real-time thread.
    pub(crate) fn look_after(&self) {
        let all = self.lock().clone();
        all.iter().for_each(|source| source.look_after(mono_now()));
    }
}

/// Variables exported by another process.
///
/// Real-time: a read accesses shared memory only and contacts no process.
pub(super) struct Import {
    stale: Option<DurNs>,
    points: Vec<SourceView>,
}

impl Import {
    pub(super) fn new(spec: &DeviceSpec, sources: &Sources) -> Self {
        let source = sources.get(spec.settings.text("from").unwrap_or_default());
        let points = spec.points.iter().map(|point| SourceView::new(&source, point)).collect();
        Self { stale: spec.settings.time("stale"), points }
    }
}

impl Device for Import {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        let view = &mut self.points[point];
        let read = view.read();
        if !view.source().is_alive() {
            return Err(DeviceFault::Silent("no process exports these variables at present".into()));
        }
        let read = read.ok_or(DeviceFault::Silent("the process that exports has no such variable".into()))?;
        if read.writes == 0 || self.stale.or_else(|| view.stale_after()).is_some_and(|stale| now - read.at > stale) {
            return Err(DeviceFault::Silent("the variable is stale: its process has not written it".into()));
        }
        Ok(Datum::Number(match read.value {
            Number::Float(value) => value,
            Number::Int(value) => value as f64,
            Number::Bool(value) => f64::from(u8::from(value)),
        }))
    }

    fn write(&mut self, _: usize, _: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        Err(DeviceFault::Refused(
            "variables of another process are read only; export a variable here and import it there".into(),
        ))
    }
}

/// Variables exported by this manager.
pub(super) struct Export {
    exports: Exports,
    /// Index and value of each point.
    points: Vec<(usize, f64)>,
}

impl Export {
    pub(super) fn new(spec: &DeviceSpec) -> Result<Self, rt::ShareError> {
        let exports = Exports::open(spec.settings.text("as").unwrap_or_default(), spec.points.len().max(1))?;
        let add = |name: &String| {
            let variable = VariableSpec { name, unit: "", first: Number::Float(0.0), safe: None };
            exports.add(&variable).map(|index| (index, 0.0))
        };
        let points = spec.points.iter().map(add).collect::<Result<_, rt::ShareError>>();
        Ok(Self { exports, points: points? })
    }
}

impl Device for Export {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        Ok(Datum::Number(self.points[point].1))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, now: MonoNs) -> Result<(), DeviceFault> {
        let number = value.number().ok_or(DeviceFault::Refused("variables take numbers".into()))?;
        self.points[point].1 = number;
        self.exports.set(self.points[point].0, Number::Float(number), 0, now);
        Ok(())
    }
}

//! Variables in shared memory: those of others, and our own.

use base::{DurNs, MonoNs};
use equipment::{Datum, Device, DeviceFault, DeviceSpec};
use rt::{Exports, Imports, Number, VariableSpec};

/// How often a table that is not there is looked for.
const AGAIN: DurNs = DurNs::from_secs(1);

/// What another process exports.
///
/// Real-time: reading neither blocks nor allocates while the exporter is there; connecting anew, at most once a second,
/// makes a few system calls.
pub(super) struct Import {
    from: String,
    stale: Option<DurNs>,
    points: Vec<(String, Option<usize>)>,
    imports: Option<Imports>,
    again: MonoNs,
}

impl Import {
    pub(super) fn new(spec: &DeviceSpec) -> Self {
        let points = spec.points.iter().map(|point| (point.clone(), None)).collect();
        let from = spec.settings.text("from").unwrap_or_default().to_owned();
        Self { from, stale: spec.settings.time("stale"), points, imports: None, again: MonoNs(0) }
    }

    fn connect(&mut self, now: MonoNs) {
        if self.imports.as_ref().is_some_and(Imports::is_alive) || now < self.again {
            return;
        }
        self.again = now + AGAIN;
        self.imports = Imports::open(&self.from).ok();
        self.points.iter_mut().for_each(|(_, index)| *index = None);
    }
}

impl Device for Import {
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.connect(now);
        let gone = DeviceFault::Silent("nobody exports these variables at present".into());
        let Some(imports) = self.imports.as_ref().filter(|imports| imports.is_alive()) else { return Err(gone) };
        let Ok(segment) = imports.segment() else { return Err(gone) };
        let (name, index) = &mut self.points[point];
        if index.is_none() {
            *index = segment.find(name);
        }
        let read = index.and_then(|index| segment.get(index));
        let read = read.ok_or(DeviceFault::Silent("the process that exports has no such variable".into()))?;
        if read.writes == 0 || self.stale.is_some_and(|stale| now - read.at > stale) {
            return Err(DeviceFault::Silent("the variable is stale: its process has not written it".into()));
        }
        Ok(Datum::Number(match read.value {
            Number::Float(value) => value,
            Number::Int(value) => value as f64,
            Number::Bool(value) => f64::from(u8::from(value)),
        }))
    }

    fn write(&mut self, _: usize, _: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        Err(DeviceFault::Refused("variables of another process are read only; let it import yours".into()))
    }
}

/// What this manager exports.
pub(super) struct Export {
    exports: Exports,
    /// Index and value of each point.
    points: Vec<(usize, f64)>,
}

impl Export {
    pub(super) fn new(spec: &DeviceSpec) -> Result<Self, String> {
        let exports = Exports::open(spec.settings.text("as").unwrap_or_default(), spec.points.len().max(1))?;
        let add = |name: &String| {
            let variable = VariableSpec { name, unit: "", first: Number::Float(0.0), safe: None };
            exports.add(&variable).map(|index| (index, 0.0))
        };
        let points = spec.points.iter().map(add).collect::<Result<_, _>>()?;
        Ok(Self { exports, points })
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

//! Line protocols over TCP or a serial line, described by protocol files compatible with StreamDevice.

use crate::error::DeviceError;
use base::{Array, MonoNs, Scalar, Value as Base};
use equipment::{At, Datum, Device, DeviceFault, DeviceSpec, ExpectedPoint, Wrong};
use fieldbus::stream::{File, Protocol, RunInputs, Session, Trouble, Value, Zone};
use port::{Address, Connection};
use std::path::Path;
use std::sync::Arc;

/// Parses a point: `PROTOCOL` or `PROTOCOL(ARGUMENT,…)`.
pub(super) fn point(text: &str) -> Result<(String, Vec<String>), ExpectedPoint> {
    let bad = || ExpectedPoint("PROTOCOL or PROTOCOL(ARGUMENT,…), of the device's protocol file".to_owned());
    let (name, arguments) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').ok_or_else(bad)?.split(',').collect()),
        None => (text, Vec::new()),
    };
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let arguments = arguments.into_iter().map(|argument| argument.trim().to_owned()).collect();
    if fits { Ok((name.to_owned(), arguments)) } else { Err(bad()) }
}

fn file(spec: &DeviceSpec, folder: &Path) -> Result<File, DeviceError> {
    let place = folder.join(spec.settings.text("file").unwrap_or_default());
    let name = place.display().to_string();
    let text = std::fs::read(&place).map_err(|source| DeviceError::File { file: place, source })?;
    Ok(File::parse(&text, &name)?)
}

fn protocol(file: &File, text: &str) -> Result<Arc<Protocol>, DeviceError> {
    let (name, arguments) = point(text).map_err(DeviceError::Point)?;
    let protocol = file.protocol(&name, &arguments)?;
    match protocol.fields().first() {
        Some((field, _)) => Err(DeviceError::Field { protocol: name, field: field.to_string() }),
        None => Ok(Arc::new(protocol)),
    }
}

/// The address, with the options of a serial line.
fn address(spec: &DeviceSpec) -> Result<Address, DeviceError> {
    let settings = &spec.settings;
    let text = settings.text("address").unwrap_or_default();
    let mut address: Address = text.parse()?;
    let numbers = ["baud", "bits", "stop"].map(|key| (key, settings.number(key).map(|value| value.to_string())));
    for (key, value) in numbers.into_iter().chain([("parity", settings.text("parity").map(str::to_owned))]) {
        if let Some(value) = value {
            address.set(key, &value).map_err(|source| DeviceError::Serial { option: key, source })?;
        }
    }
    Ok(address)
}

/// Errors in the address, the file, and the protocols of the points.
pub(super) fn check(spec: &DeviceSpec, folder: &Path) -> Vec<Wrong> {
    let wrong = |at, why: DeviceError| Wrong { at, message: why.to_string(), expected: String::new() };
    // Missing keys are reported elsewhere.
    let given = |key: &str| spec.settings.text(key).is_some();
    let mut all = Vec::new();
    if given("address")
        && let Err(why) = address(spec)
    {
        let key = if let DeviceError::Serial { option, .. } = why { option } else { "address" };
        all.push(wrong(At::Key(key), why));
    }
    if given("file") {
        match file(spec, folder) {
            Err(why) => all.push(wrong(At::Key("file"), why)),
            Ok(file) => all.extend(
                spec.points
                    .iter()
                    .enumerate()
                    .filter_map(|(at, text)| protocol(&file, text).err().map(|why| wrong(At::Point(at), why))),
            ),
        }
    }
    all
}

pub(super) struct Stream {
    line: Connection,
    points: Vec<Arc<Protocol>>,
}

impl Stream {
    pub(super) fn new(spec: &DeviceSpec, folder: &Path) -> Result<Self, DeviceError> {
        let address = address(spec)?;
        let file = file(spec, folder)?;
        let points = spec.points.iter().map(|text| protocol(&file, text)).collect::<Result<_, _>>()?;
        Ok(Self { line: Connection::new(address), points })
    }

    fn run(&mut self, point: usize, value: Option<Base>) -> Result<Vec<Value>, DeviceFault> {
        let given = RunInputs { value, zone: Zone(sys::clock::local_offset_secs), ..RunInputs::default() };
        let mut session = Session::new(self.points[point].clone(), given);
        self.line.run(&mut session);
        match session.result() {
            Some(Ok(taken)) => Ok(taken.values.clone()),
            Some(Err(trouble @ Trouble::Output)) => Err(DeviceFault::Refused(trouble.to_string().into())),
            Some(Err(trouble)) => Err(DeviceFault::Silent(trouble.to_string().into())),
            None => Err(DeviceFault::Silent("the exchange ended without a result".into())),
        }
    }
}

impl Device for Stream {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        match self.run(point, None)?.into_iter().next() {
            Some(Value::Float(value)) => Ok(Datum::Number(value)),
            Some(Value::Int(value) | Value::Enum(value)) => Ok(Datum::Number(value as f64)),
            Some(Value::Text(text)) => Ok(Datum::Text(String::from_utf8_lossy(&text).into_owned().into())),
            None => {
                Err(DeviceFault::Refused("this protocol takes no value; expected a conversion in its \"in\"".into()))
            }
        }
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        let value = match value {
            Datum::Number(number) => Base::Scalar(Scalar::F64(*number)),
            Datum::Text(text) => Base::Array(Array::U8(text.as_bytes().to_vec())),
        };
        self.run(point, Some(value)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_name_protocols_and_their_arguments() {
        assert_eq!(point("get").unwrap(), ("get".to_owned(), vec![]));
        assert_eq!(point("get(1, B)").unwrap(), ("get".to_owned(), vec!["1".to_owned(), "B".to_owned()]));
        for wrong in ["", "(1)", "get(1", "get current", "get(1)x"] {
            assert!(point(wrong).is_err(), "{wrong}");
        }
    }
}

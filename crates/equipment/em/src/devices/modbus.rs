//! Modbus TCP.

use crate::error::DeviceError;
use base::{DurNs, MonoNs};
use equipment::{Access, At, Datum, Device, DeviceFault, DeviceSpec, ExpectedPoint, Wrong};
use fieldbus::modbus::{DataType, Failure, Framing, Number, Request, Response, Table, Transaction};
use port::{Address, Connection};

/// The meaning of a point name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    table: Table,
    address: u16,
    kind: DataType,
}

impl Point {
    /// Parses `TABLE:ADDRESS[:TYPE]`.
    pub(super) fn parse(text: &str) -> Result<Self, ExpectedPoint> {
        const EXPECTED: &str =
            "TABLE:ADDRESS[:TYPE], such as holding:100:FLOAT32_BE; tables coil, discrete, holding, input";
        let expected = |more: &str| ExpectedPoint(format!("{EXPECTED}{more}"));
        let mut parts = text.splitn(3, ':');
        let table = match parts.next() {
            Some("coil") => Table::Coils,
            Some("discrete") => Table::Discrete,
            Some("holding") => Table::Holding,
            Some("input") => Table::Input,
            _ => return Err(expected("")),
        };
        let address = parts.next().and_then(|address| address.parse().ok()).ok_or_else(|| expected(""))?;
        let kind = match parts.next() {
            None => DataType::Uint16,
            Some(_) if table.is_bits() => return Err(expected("; coils and discrete inputs have no type")),
            Some(kind) => kind.parse().map_err(|error| expected(&format!("; {error}")))?,
        };
        Ok(Self { table, address, kind })
    }

    /// The access rights of the point.
    pub(super) fn access(self) -> Access {
        match self.table {
            Table::Coils | Table::Holding => Access::ReadWrite,
            Table::Discrete | Table::Input => Access::ReadOnly,
        }
    }

    fn cells(&self) -> u16 {
        if self.table.is_bits() { 1 } else { self.kind.registers() as u16 }
    }
}

fn address(spec: &DeviceSpec) -> Result<Address, port::BadAddress> {
    spec.settings.text("address").unwrap_or_default().parse()
}

/// The error in the address. A missing address is reported elsewhere.
pub(super) fn check(spec: &DeviceSpec) -> Option<Wrong> {
    spec.settings.text("address")?;
    let why = address(spec).err()?;
    Some(Wrong { at: At::Key("address"), message: why.to_string(), expected: String::new() })
}

pub(super) struct Modbus {
    line: Connection,
    unit: u8,
    timeout: DurNs,
    points: Vec<Point>,
    number: u16,
}

impl Modbus {
    pub(super) fn new(spec: &DeviceSpec) -> Result<Self, DeviceError> {
        let line = Connection::new(address(spec)?);
        let points = spec
            .points
            .iter()
            .map(|point| Point::parse(point).map_err(DeviceError::Point))
            .collect::<Result<_, _>>()?;
        let unit = spec.settings.number("unit").map_or(1, |unit| unit.clamp(0.0, 255.0) as u8);
        let timeout = spec.settings.time("timeout").unwrap_or(DurNs::from_secs(1));
        Ok(Self { line, unit, timeout, points, number: 0 })
    }

    fn ask(&mut self, request: Request) -> Result<Response, DeviceFault> {
        self.number = self.number.wrapping_add(1);
        let transaction = Transaction::new(Framing::Tcp, self.number, self.unit, request, self.timeout);
        let mut transaction = transaction.map_err(|error| DeviceFault::Refused(error.to_string().into()))?;
        self.line.run(&mut transaction);
        match transaction.result() {
            Some(Ok(response)) => Ok(response),
            Some(Err(failure @ Failure::Exception(_))) => Err(DeviceFault::Refused(failure.to_string().into())),
            Some(Err(failure)) => Err(DeviceFault::Silent(failure.to_string().into())),
            None => Err(DeviceFault::Silent("the exchange ended without a result".into())),
        }
    }
}

impl Device for Modbus {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        let point = self.points[point];
        let asked = self.ask(Request::Read { table: point.table, address: point.address, count: point.cells() })?;
        let number = match asked {
            Response::Bits(bits) => bits.first().map(|bit| f64::from(u8::from(*bit))),
            Response::Registers(registers) => point.kind.decode(&registers).map(|number| match number {
                Number::Int(value) => value as f64,
                Number::Float(value) => value,
            }),
            Response::Written | Response::Exception(_) => None,
        };
        number.map(Datum::Number).ok_or(DeviceFault::Refused("the device's answer holds no such number".into()))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        let point = self.points[point];
        let value = value.number().ok_or(DeviceFault::Refused("Modbus takes numbers".into()))?;
        let address = point.address;
        let request = match point.table {
            Table::Coils => Request::WriteCoil { address, on: value != 0.0 },
            Table::Holding => {
                let mut values = Vec::new();
                if !point.kind.encode(Number::Float(value), &mut values) {
                    return Err(DeviceFault::Refused(format!("{value} does not fit into {}", point.kind).into()));
                }
                match values[..] {
                    [value] => Request::WriteRegister { address, value },
                    _ => Request::WriteRegisters { address, values },
                }
            }
            Table::Discrete | Table::Input => {
                return Err(DeviceFault::Refused("this table of a Modbus device is read only".into()));
            }
        };
        self.ask(request).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_name_table_address_and_type() {
        let point = Point::parse("holding:100:FLOAT32_BE").unwrap();
        assert_eq!((point.table, point.address, point.cells()), (Table::Holding, 100, 2));
        assert_eq!(Point::parse("coil:3").unwrap().cells(), 1);
        for wrong in ["", "holding", "holding:x", "register:1", "holding:70000", "coil:1:INT16", "holding:1:REAL"] {
            assert!(Point::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! Devices that need more than arithmetic: shared memory, programs and connections.

mod message;
mod modbus;
mod pv;
mod script;
mod stream;
mod variables;

pub(crate) use variables::Sources;

use crate::error::DeviceError;
use equipment::{Access, Device, DeviceSpec, Driver, ExpectedPoint, Pace, Wrong};
use std::path::Path;
use table::{Key, Table, key};

const NAME: Key =
    key("name", r#""plc""#, "letters, digits, `_`, `-`, `.`, `:`", "", "Name of the device, unique in the file.");
const DRIVER: Key = key("driver", r#""modbus""#, "one of the drivers", "", "The driver.");
const TIMEOUT: Key = key("timeout", r#""500ms""#, "time, 1ms to 1min", "`1s`", "Maximum time for an answer.");

/// The drivers of this crate, in addition to [`equipment::DRIVERS`].
pub const DRIVERS: &[Driver] = &[
    Driver {
        word: "modbus",
        pace: Pace::MayBlock,
        table: &Table {
            header: "modbus",
            doc: "A Modbus TCP device. Points: `TABLE:ADDRESS[:TYPE]`; tables `coil`, `discrete`, `holding`, `input`; addresses from 0, as on \
                  the wire; types as in the [Modbus support](devices.md#modbus-tcp-modbus-rtu-modbus-ascii), `UINT16` without one.",
            keys: &[
                NAME,
                DRIVER,
                key("address", r#""10.0.0.7:502""#, "HOST:PORT", "", "Address of the device."),
                key("unit", "1", "0 to 255", "`1`", "Unit at that address."),
                TIMEOUT,
            ],
        },
        point: |point| modbus::Point::parse(point).map(|point| point.access()),
    },
    Driver {
        word: "stream",
        pace: Pace::MayBlock,
        table: &Table {
            header: "stream",
            doc: "A device with a line protocol, over TCP or a serial line. Points: `PROTOCOL` or `PROTOCOL(ARGUMENT,…)` of a \
                  protocol file as in StreamDevice (see [devices](devices.md)). The first value that the protocol receives is read, the \
                  value that it sends is written. Timeouts are in the protocol.",
            keys: &[
                NAME,
                DRIVER,
                key(
                    "address",
                    r#""10.0.0.8:4001""#,
                    "HOST:PORT, or a serial line such as `/dev/ttyS0`",
                    "",
                    "Address of the device.",
                ),
                key("file", r#""supply.proto""#, "file", "", "Protocol file, relative to the manager's folder."),
                key("baud", "19200", "50 to 4000000", "`9600`", "Bits per second of a serial line."),
                key("bits", "7", "5 to 8", "`8`", "Bits of a character."),
                key("parity", r#""even""#, "`none`, `even` or `odd`", "`none`", "Parity."),
                key("stop", "2", "1 to 2", "`1`", "Stop bits."),
            ],
        },
        point: |point| stream::point(point).map(|_| Access::ReadWrite),
    },
    Driver {
        word: "pv",
        pace: Pace::MayBlock,
        table: &Table {
            header: "pv",
            doc: "Process variables of EPICS IOCs over Channel Access, read and write. Points: their names. The usual `EPICS_CA_…` \
                  environment variables apply.",
            keys: &[NAME, DRIVER, TIMEOUT],
        },
        point: any,
    },
    Driver {
        word: "message",
        pace: Pace::MayBlock,
        table: &Table {
            header: "message",
            doc: "Objects of other managers, by messages. Points: `OBJECT/COMPLEMENT`, read with `get` and written with `put`. The \
                  value replaces `{value}`; without `{value}`, it is the whole complement.",
            keys: &[
                NAME,
                DRIVER,
                key("server", r#""main""#, "text", "the manager's own server", "The message server."),
                TIMEOUT,
            ],
        },
        point: |point| {
            let object = point.split('/').next().unwrap_or_default();
            msg::Object::new(object)
                .map(|_| Access::ReadWrite)
                .map_err(|why| ExpectedPoint(format!("OBJECT or OBJECT/COMPLEMENT ({why})")))
        },
    },
];

/// Errors in the files, programs and addresses of a device that would make [`make`] fail.
pub(crate) fn check(spec: &DeviceSpec, folder: &Path) -> Vec<Wrong> {
    match spec.driver.word {
        "script" => script::check(spec, folder).into_iter().collect(),
        "modbus" => modbus::check(spec).into_iter().collect(),
        "stream" => stream::check(spec, folder),
        _ => Vec::new(),
    }
}

fn any(point: &str) -> Result<Access, ExpectedPoint> {
    let fits = !point.is_empty() && point.len() <= 127 && point.chars().all(|c| c.is_ascii_graphic());
    let expected = || ExpectedPoint("1 to 127 printable characters without blanks".to_owned());
    fits.then_some(Access::ReadWrite).ok_or_else(expected)
}

/// Creates a device of a driver that is not in tahti. Returns `None` for other drivers.
pub type Maker = dyn Fn(&DeviceSpec) -> Option<Result<Box<dyn Device + Send>, DeviceError>> + Send + Sync;

/// The maker for programs without additional drivers.
#[must_use]
pub fn plug_in() -> Box<Maker> {
    Box::new(|_| None)
}

/// The environment of a device.
pub(crate) struct DeviceContext<'a> {
    /// The message server.
    pub(crate) server: &'a str,
    /// Relative programs are resolved against this folder.
    pub(crate) folder: &'a Path,
    pub(crate) sources: &'a Sources,
    pub(crate) plug_in: &'a Maker,
}

/// Makes a device.
pub(crate) fn make(spec: &DeviceSpec, around: &DeviceContext<'_>) -> Result<Box<dyn Device + Send>, DeviceError> {
    if let Some(made) = (around.plug_in)(spec) {
        return made;
    }
    Ok(match spec.driver.word {
        "import" => Box::new(variables::Import::new(spec, around.sources)),
        "export" => Box::new(variables::Export::new(spec)?),
        "script" => Box::new(script::Script::new(spec, around.folder)),
        "modbus" => Box::new(modbus::Modbus::new(spec)?),
        "stream" => Box::new(stream::Stream::new(spec, around.folder)?),
        "pv" => Box::new(pv::Pvs::new(spec)?),
        "message" => Box::new(message::Messages::new(spec, around.server)),
        other => return Err(DeviceError::Driver(other.to_owned())),
    })
}

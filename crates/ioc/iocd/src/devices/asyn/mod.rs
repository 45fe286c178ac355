//! DTYPs of the EPICS asyn module on tahti's ports: `@asyn(PORT,ADDRESS,TIMEOUT)PARAMETER` and
//! `@asynMask(PORT,ADDRESS,MASK,TIMEOUT)PARAMETER`.
//!
//! On ports of `drvModbusAsynConfigure` they read and write registers and coils: see [`modbus`]. On other ports, the octet
//! DTYPs send and receive messages: see [`octet`]. Other DTYPs there, and parameters of compiled drivers, are refused.

mod block;
mod inbox;
mod link;
mod modbus;
mod octet;
mod parm;
mod poller;
mod record;

pub(crate) use block::{Block, Interpose, ModbusSpec};
pub(crate) use inbox::{Inbox, Message, Talk, latest};
pub(crate) use link::whole;
pub(crate) use poller::Poller;

use super::{DeviceSupport, Ports, Served};
use db::{AttachError, Attaching};
use link::AsynLink;
use std::sync::Arc;

/// Kind of values that a DTYP transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interface {
    Int32,
    Int64,
    UInt32Digital,
    Float64,
    Int32Array,
    Float64Array,
    OctetRead,
    OctetWrite,
    OctetWriteBinary,
    OctetCommand,
    OctetAsk,
    Parm,
}

/// Device support of one DTYP.
struct Asyn {
    name: &'static str,
    interface: Interface,
    record_types: &'static [&'static str],
}

/// DTYPs with their record types, as in asyn's devEpics.dbd. busy is the type of the busy module.
const SUPPORTS: &[Asyn] = &[
    Asyn {
        name: "asynInt32",
        interface: Interface::Int32,
        record_types: &["ai", "ao", "bi", "bo", "busy", "mbbi", "mbbo", "longin", "longout"],
    },
    Asyn {
        name: "asynInt64",
        interface: Interface::Int64,
        record_types: &["ai", "ao", "longin", "longout", "int64in", "int64out"],
    },
    Asyn {
        name: "asynUInt32Digital",
        interface: Interface::UInt32Digital,
        record_types: &["bi", "bo", "mbbi", "mbbo", "mbbiDirect", "mbboDirect", "longin", "longout"],
    },
    Asyn { name: "asynFloat64", interface: Interface::Float64, record_types: &["ai", "ao"] },
    Asyn { name: "asynInt32ArrayIn", interface: Interface::Int32Array, record_types: &["waveform", "aai"] },
    Asyn { name: "asynInt32ArrayOut", interface: Interface::Int32Array, record_types: WRITES },
    Asyn { name: "asynFloat64ArrayIn", interface: Interface::Float64Array, record_types: &["waveform", "aai"] },
    Asyn { name: "asynFloat64ArrayOut", interface: Interface::Float64Array, record_types: WRITES },
    Asyn { name: "asynOctetRead", interface: Interface::OctetRead, record_types: TEXT_INPUTS },
    Asyn { name: "asynOctetWrite", interface: Interface::OctetWrite, record_types: &["stringout", "lso", "waveform"] },
    Asyn { name: "asynOctetWriteBinary", interface: Interface::OctetWriteBinary, record_types: &["waveform"] },
    Asyn { name: "asynOctetCmdResponse", interface: Interface::OctetCommand, record_types: TEXT_INPUTS },
    Asyn { name: "asynOctetWriteRead", interface: Interface::OctetAsk, record_types: TEXT_INPUTS },
    Asyn { name: "asyn si stringParm", interface: Interface::Parm, record_types: &["stringin"] },
    Asyn { name: "asyn so stringParm", interface: Interface::Parm, record_types: &["stringout"] },
    Asyn { name: "asyn ai stringParm", interface: Interface::Parm, record_types: &["ai"] },
    Asyn { name: "asyn li stringParm", interface: Interface::Parm, record_types: &["longin"] },
];
const TEXT_INPUTS: &[&str] = &["stringin", "lsi", "waveform"];
/// Array records that write. A waveform writes through its INP.
const WRITES: &[&str] = &["waveform", "aao"];

/// The device supports of this module.
pub(super) fn all() -> impl Iterator<Item = Arc<dyn DeviceSupport>> {
    let record: Arc<dyn DeviceSupport> = Arc::new(record::AsynRecord);
    SUPPORTS.iter().map(|support| Arc::new(support) as Arc<dyn DeviceSupport>).chain([record])
}

/// Whether a link with one of asyn's DTYPs belongs to a driver that tahti has; `None` for other DTYPs. `is_open` tells
/// whether the value of a parameter depends on the site.
pub(crate) fn has_driver(dtyp: &str, link: &str, is_open: impl Fn(&str) -> bool) -> Option<bool> {
    let support = SUPPORTS.iter().find(|support| support.name == dtyp)?;
    // The arguments may be macros of a template.
    let info = link.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(_, info)| info.trim());
    let Some(info) = info.filter(|_| link.trim_start_matches(['@', ' ']).starts_with("asyn")) else {
        return Some(false);
    };
    use Interface::{OctetAsk, OctetCommand, OctetRead, OctetWrite, OctetWriteBinary, Parm};
    Some(match info {
        _ if matches!(support.interface, OctetAsk | OctetCommand | OctetWriteBinary | Parm) => true,
        // Without a parameter, numbers may belong to any driver.
        "" => matches!(support.interface, OctetRead | OctetWrite),
        info => is_open(info) || modbus::is_parameter(info),
    })
}

impl DeviceSupport for &'static Asyn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn record_types(&self) -> &'static [&'static str] {
        self.record_types
    }

    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError> {
        let link = AsynLink::parse(place.address)?;
        let writes = matches!(self.interface, Interface::OctetWrite | Interface::OctetWriteBinary);
        let output = place.output || self.name.ends_with("Out") || writes;
        if let Some(block) = ports.block(&link.port) {
            return modbus::attach(self.interface, output, &link, place, &block);
        }
        ports.find(&link.port).map_err(|error| AttachError::Unusable { what: error.to_string() })?;
        let way = match (self.interface, link.info.as_str()) {
            (Interface::Parm, info) => octet::Transfer::Parm(parm::Parm::parse(info, output)?),
            (Interface::OctetCommand, info) => octet::Transfer::Command(db::unescape(info).into_owned()),
            (Interface::OctetAsk, "") => {
                return Err(AttachError::Ends { expected: "the name of a record with the command".to_owned() });
            }
            (Interface::OctetAsk, info) => octet::Transfer::Ask(info.to_owned()),
            (Interface::OctetRead, "") => octet::Transfer::Read,
            (Interface::OctetWrite, "") => octet::Transfer::Write,
            (Interface::OctetWriteBinary, "") => octet::Transfer::WriteBinary,
            (Interface::OctetRead | Interface::OctetWrite | Interface::OctetWriteBinary, info) => {
                let (found, expected) = (format!("parameter \"{info}\""), "none: the port transfers bytes".to_owned());
                return Err(AttachError::Unexpected { found, expected });
            }
            _ => {
                let why = format!(
                    "port \"{}\" transfers bytes; {} needs a port of drvModbusAsynConfigure, or use DTYP stream",
                    link.port, self.name
                );
                return Err(AttachError::Unsuited { why });
            }
        };
        octet::attach(way, output, &link, place, ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::FieldType;
    use db::RecId;

    #[test]
    fn a_record_that_does_not_fit_a_port_of_bytes_is_refused_with_the_reason() {
        let ports = Ports::default();
        ports.add("dev", "127.0.0.1:1".parse().unwrap()).unwrap();
        let refused = |name: &str, record_type: &str, address: &str| {
            let support = SUPPORTS.iter().find(|support| support.name == name).unwrap();
            let output = record_type.ends_with("out");
            let (shard, record, elements) = (0, RecId(1), FieldType::F64);
            let place = Attaching { shard, record, name: "r", record_type, output, address, elements, count: 1 };
            support.attach(&place, &ports).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(refused("asynOctetRead", "stringin", "asyn(dev,0,1)"), "");
        assert!(refused("asynInt32", "longin", "asyn(dev)").contains("needs a port of drvModbusAsynConfigure"));
        assert!(
            refused("asynOctetRead", "stringin", "asyn(dev)FILE_PATH").contains("expected none: the port transfers")
        );
        assert!(
            refused("asynOctetWriteRead", "stringin", "asyn(dev)").contains("the name of a record with the command")
        );
        assert!(refused("asynInt32", "longin", "asyn(CAM1,0)GAIN").contains("no port \"CAM1\"; there are dev"));
    }
}

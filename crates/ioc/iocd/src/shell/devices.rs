//! Commands for ports to equipment, with the names of asyn.

use super::commands::{Command, arg, command, needed, said};
use super::{Failed, IocState, Shell};
use crate::devices::DeviceSupport;
use crate::devices::asyn::{Interpose, ModbusSpec};
use port::Address;
use std::sync::Arc;

/// The commands.
pub(super) const COMMANDS: &[Command] = &[
    command!(
        "asynOctetSetInputEos",
        "port address terminator",
        "default terminator of received messages, if the protocol file sets none",
        |shell, args| {
            let end = unescape(arg(args, 2));
            let name = needed(args, "asynOctetSetInputEos port 0 terminator")?;
            shell.devices.ports.set_end(name, true, end)?;
            Ok(None)
        }
    ),
    command!(
        "asynOctetSetOutputEos",
        "port address terminator",
        "default terminator of sent messages, if the protocol file sets none",
        |shell, args| {
            let end = unescape(arg(args, 2));
            let name = needed(args, "asynOctetSetOutputEos port 0 terminator")?;
            shell.devices.ports.set_end(name, false, end)?;
            Ok(None)
        }
    ),
    command!("asynReport", "", "ports with their addresses and states", |shell, _| {
        let text = shell.devices.ports.report().join("\n");
        said(shell, &text)
    }),
    command!(
        "asynSetOption",
        "port address key value",
        "a serial line's baud, bits, parity, stop, crtscts, ixon",
        |shell, args| {
            let name = needed(args, "asynSetOption port 0 key value")?;
            let (key, value) = (arg(args, 2), arg(args, 3));
            shell.devices.ports.change(name, |port| port.address.set(key, value))?;
            Ok(None)
        }
    ),
    command!("asynShowOption", "port address key", "value of an option of asynSetOption", |shell, args| {
        let name = needed(args, "asynShowOption port 0 key")?;
        let (key, port) = (arg(args, 2), shell.devices.ports.find(name)?);
        let value = port.address.option(key);
        let none = || Failed(format!("port \"{name}\" ({}) has no option \"{key}\"", port.address));
        said(shell, &format!("{key}={}", value.ok_or_else(none)?))
    }),
    command!("devIocStatsInit", "", "accepted; dbLoadBuiltin iocAdminSoft.db IOC=X loads its records", |_, _| Ok(None)),
    command!(
        "drvAsynIPPortConfigure",
        "port \"host:port[:local] [UDP|COM]\"",
        "a port to a TCP server, for datagrams, or to a line of a terminal server (RFC 2217)",
        |shell, args| {
            let name = needed(args, "drvAsynIPPortConfigure port host:port")?;
            let address: Address = arg(args, 1).parse()?;
            if matches!(address, Address::Serial(_)) {
                return Err(Failed(format!(
                    "address \"{address}\"; expected HOST:PORT (drvAsynSerialPortConfigure for lines)"
                )));
            }
            shell.devices.ports.add(name, address)?;
            Ok(None)
        }
    ),
    command!(
        "drvModbusAsynConfigure",
        "port line unit function start length type poll [plc]",
        "a block of registers or coils of a Modbus device behind a port",
        |shell, args| {
            let name = needed(args, "drvModbusAsynConfigure port line unit function start length type poll [plc]")?;
            let spec = ModbusSpec::parse(&args[1..]).map_err(|why| Failed(format!("{name}: {why}")))?;
            shell.devices.ports.add_block(name, spec)?;
            Ok(None)
        }
    ),
    command!(
        "modbusInterposeConfig",
        "port link timeout delay",
        "framing (0 TCP, 1 RTU, 2 ASCII, 3 UDP), time limit and pause in ms of Modbus devices on a port",
        |shell, args| {
            let name = needed(args, "modbusInterposeConfig port link timeout delay")?;
            let interpose = Interpose::parse(&args[1..]).map_err(|why| Failed(format!("{name}: {why}")))?;
            shell.devices.ports.change(name, |port| {
                port.interpose = interpose;
                Ok(())
            })?;
            Ok(None)
        }
    ),
    command!("streamReinit", "port [address]", "runs @init of the records on a port again", |shell, args| {
        let name = needed(args, "streamReinit port")?;
        shell.devices.ports.greet_again(Some(name))?;
        Ok(None)
    }),
    command!(
        "streamReload",
        "[record]",
        "reads the protocol files of records again and runs @init; the name may be a pattern",
        |shell, args| {
            let pattern = arg(args, 0).to_owned();
            let wanted = move |name: &str| pattern.is_empty() || base::glob(&pattern, name);
            let counts = shell.with_each(move |db, _| db.attach_again("stream", &wanted))?;
            shell.print_notices()?;
            match (counts.iter().sum::<usize>(), arg(args, 0)) {
                (0, name) if !name.is_empty() => {
                    Err(Failed(format!("streamReload: no record with DTYP stream matches \"{name}\"")))
                }
                _ => Ok(None),
            }
        }
    ),
    command!(
        "streamSetLogfile",
        "file",
        "accepted; streamDebug prints nothing, asynSetTraceMask traces a port",
        |_, _| { Ok(None) }
    ),
    command!("drvAsynSerialPortConfigure", "port device", "a port to a serial line", |shell, args| {
        let name = needed(args, "drvAsynSerialPortConfigure port device")?;
        let address: Address = arg(args, 1).parse()?;
        if !matches!(address, Address::Serial(_)) {
            return Err(Failed(format!("address \"{address}\"; expected a device such as /dev/ttyS0")));
        }
        shell.devices.ports.add(name, address)?;
        Ok(None)
    }),
];

impl Shell {
    /// Registers a device support. Call it before `iocInit` and before records that use it are loaded; later it has no
    /// effect.
    pub fn add_support(&mut self, support: Arc<dyn DeviceSupport>) {
        if let IocState::Building(db) = &mut self.state {
            self.devices.add(db, support);
        }
    }

    /// Sets the folders with protocol files, separated by colons, like `STREAM_PROTOCOL_PATH`.
    pub fn set_protocol_path(&mut self, path: &str) {
        self.env.insert("STREAM_PROTOCOL_PATH".to_owned(), path.to_owned());
    }

    /// Configures a port to equipment, like `drvAsynIPPortConfigure` and similar commands.
    ///
    /// # Errors
    /// If the address or an option is invalid.
    pub fn add_port(&mut self, name: &str, address: &str, options: &[(String, String)]) -> Result<(), Failed> {
        let mut address: Address = address.parse()?;
        for (key, value) in options {
            address.set(key, value)?;
        }
        self.devices.ports.add(name, address)?;
        Ok(())
    }
}

/// Replaces `\r`, `
/// `, `\t`, `\0`, `\xHH`, `\\` by their bytes.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'x') => {
                let mut value = 0;
                while let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16)) {
                    value = value << 4 | digit;
                    bytes.next();
                }
                value as u8
            }
            Some(other) => other,
            None => b'\\',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminators_are_written_as_in_c() {
        assert_eq!(unescape(r"\r\n"), b"\r\n");
        assert_eq!(unescape(r"a\x03\\"), b"a\x03\\");
    }
}

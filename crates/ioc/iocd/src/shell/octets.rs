//! Commands that exchange messages with a port and trace its traffic, with the names of asyn.

use super::commands::{Command, CommandResult, arg, command, needed, said};
use super::{Failed, Shell};
use crate::devices::asyn::{Inbox, Message, Talk, latest, whole};
use crate::engine::now;
use base::DurNs;
use fieldbus::octet::{MESSAGE_MAX, OctetFailure, Received, Until};
use port::{Port, Trace};
use std::sync::mpsc::sync_channel;

/// A name of `asynOctetConnect`.
#[derive(Clone, Debug)]
pub(super) struct OctetEntry {
    port: String,
    limit: DurNs,
    max: usize,
}

/// Names of the bits of the masks, without their prefixes.
const MASK: &[(&str, u32)] =
    &[("ERROR", 1), ("DEVICE", 2), ("FILTER", 4), ("DRIVER", 8), ("FLOW", 0x10), ("WARNING", 0x20)];
const IO_MASK: &[(&str, u32)] = &[("NODATA", 0), ("ASCII", 1), ("ESCAPE", 2), ("HEX", 4)];
const INFO_MASK: &[(&str, u32)] = &[("TIME", 1), ("PORT", 2), ("SOURCE", 4), ("THREAD", 8)];
/// Prefixes of these names.
const PREFIXES: [&str; 6] = ["ASYN_TRACEINFO_", "ASYN_TRACEIO_", "ASYN_TRACE_", "TRACEINFO_", "TRACEIO_", "TRACE_"];

/// The commands.
pub(super) const COMMANDS: &[Command] = &[
    command!("afterInit", "command", "runs a command after iocInit", after_init),
    command!("doAfterIocInit", "command", "runs a command after iocInit", after_init),
    command!("asynAutoConnect", "port address yes", "accepted; ports connect by themselves", |_, args| {
        match whole(arg(args, 2)) {
            Some(0) => Err("asynAutoConnect: ports always connect by themselves".into()),
            _ => Ok(None),
        }
    }),
    command!("asynEnable", "port address yes", "accepted; ports are always enabled", |_, args| {
        match whole(arg(args, 2)) {
            Some(0) => Err("asynEnable: a port cannot be disabled; SDIS or DISA disables a record".into()),
            _ => Ok(None),
        }
    }),
    command!("asynInterposeEosConfig", "port address in out", "accepted; ports have terminators", |_, _| Ok(None)),
    command!(
        "asynInterposeFlushConfig",
        "port address timeout",
        "accepted; received bytes are discarded before a request",
        |_, _| Ok(None)
    ),
    command!(
        "asynOctetConnect",
        "name port [address [timeout [size]]]",
        "a name for asynOctetRead and related commands; timeout in seconds",
        |shell, args| {
            let name = needed(args, "asynOctetConnect name port")?.to_owned();
            let port = arg(args, 1).to_owned();
            shell.devices.ports.find(&port)?;
            let seconds = arg(args, 3).parse::<f64>().ok().filter(|seconds| (0.001..=3_600.0).contains(seconds));
            let limit = DurNs((seconds.unwrap_or(1.0) * 1e9) as i64);
            let size = whole(arg(args, 4)).and_then(|size| usize::try_from(size).ok());
            let max = size.filter(|size| (1..=MESSAGE_MAX).contains(size)).unwrap_or(80);
            shell.octets.insert(name, OctetEntry { port, limit, max });
            Ok(None)
        }
    ),
    command!("asynOctetDisconnect", "name", "removes a name of asynOctetConnect", |shell, args| {
        entry(shell, args)?;
        shell.octets.remove(arg(args, 0));
        Ok(None)
    }),
    command!("asynOctetFlush", "name", "discards received bytes", |shell, args| {
        let entry = entry(shell, args)?;
        shell.devices.ports.inbox(&entry.port)?.1.flush();
        Ok(None)
    }),
    command!("asynOctetGetInputEos", "port address", "terminator of received messages", |shell, args| {
        let end = shell.devices.ports.find(needed(args, "asynOctetGetInputEos port 0")?)?.input_end;
        said(shell, &format!("\"{}\"", end.escape_ascii()))
    }),
    command!("asynOctetGetOutputEos", "port address", "terminator of sent messages", |shell, args| {
        let end = shell.devices.ports.find(needed(args, "asynOctetGetOutputEos port 0")?)?.output_end;
        said(shell, &format!("\"{}\"", end.escape_ascii()))
    }),
    command!("asynOctetRead", "name [bytes]", "reads a message and prints it with escapes", |shell, args| {
        let entry = entry(shell, args)?;
        let max = whole(arg(args, 1)).and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0);
        read(shell, &entry, Vec::new(), max.unwrap_or(entry.max), false)
    }),
    command!("asynOctetWrite", "name text", "sends a message; the text may have escapes", |shell, args| {
        let entry = entry(shell, args)?;
        let out = outgoing(shell, &entry, args)?;
        talk(shell, &entry, Message { out, ..Message::default() })?;
        Ok(None)
    }),
    command!("asynOctetWriteRead", "name text", "sends a message and prints the answer with escapes", |shell, args| {
        let entry = entry(shell, args)?;
        let out = outgoing(shell, &entry, args)?;
        read(shell, &entry, out, entry.max, true)
    }),
    command!("asynSetAutoConnectTimeout", "seconds", "accepted; an attempt to connect takes at most 2 s", |_, _| {
        Ok(None)
    }),
    command!(
        "asynSetQueueLockPortTimeout",
        "port seconds",
        "accepted; LockTimeout of a protocol limits the wait for its port",
        |_, _| Ok(None)
    ),
    command!("asynSetTraceFile", "port address file", "output of a trace: a file, stdout or stderr", |shell, args| {
        let path = arg(args, 2).to_owned();
        trace(shell, args, |trace| trace.set_file(&path).map_err(|error| Failed(format!("{path}: {error}"))))
    }),
    command!(
        "asynSetTraceIOMask",
        "port address mask",
        "form of traced bytes: 1 or ASCII, 2 or ESCAPE, 4 or HEX; 0: none",
        |shell, args| {
            let mask = mask(arg(args, 2), IO_MASK)?;
            trace(shell, args, |trace| {
                trace.set_io(mask);
                Ok(())
            })
        }
    ),
    command!("asynSetTraceIOTruncateSize", "port address bytes", "maximum number of traced bytes", |shell, args| {
        let wrong = || Failed(format!("size \"{}\"; expected a number of bytes", arg(args, 2)));
        let bytes = whole(arg(args, 2)).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(wrong)?;
        trace(shell, args, |trace| {
            trace.set_truncate(bytes);
            Ok(())
        })
    }),
    command!(
        "asynSetTraceInfoMask",
        "port address mask",
        "begin of a line of a trace: 1 or TIME, 2 or PORT, 8 or THREAD",
        |shell, args| {
            let mask = mask(arg(args, 2), INFO_MASK)?;
            trace(shell, args, |trace| {
                trace.set_info(mask);
                Ok(())
            })
        }
    ),
    command!(
        "asynSetTraceMask",
        "port address mask",
        "sum of subjects: 1 or ERROR, 4 or FILTER, 8 or DRIVER; of a block also 2 or DEVICE",
        |shell, args| {
            let mask = mask(arg(args, 2), MASK)?;
            trace(shell, args, |trace| {
                trace.set_mask(mask);
                Ok(())
            })
        }
    ),
    command!("asynWaitConnect", "port [timeout]", "accepted; ports connect by themselves", |shell, args| {
        shell.devices.ports.find(needed(args, "asynWaitConnect port")?)?;
        Ok(None)
    }),
];

fn after_init(shell: &mut Shell, args: &[String]) -> CommandResult {
    let line = args.join(" ");
    if line.is_empty() {
        return Err("usage: afterInit \"command\"".into());
    }
    if shell.is_running() {
        return Err("afterInit: the IOC is running; run the command itself".into());
    }
    shell.after_init.push(line);
    Ok(None)
}

/// A mask: a number, or names joined by `+` or `|`.
fn mask(text: &str, names: &[(&str, u32)]) -> Result<u32, Failed> {
    let wrong = |word: &str| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Failed(format!("mask \"{word}\"; expected a number or {}, joined by +", known.join(", ")))
    };
    text.split(['+', '|']).map(str::trim).try_fold(0, |mask, word| {
        let upper = word.to_ascii_uppercase();
        let name = PREFIXES.iter().find_map(|prefix| upper.strip_prefix(prefix)).unwrap_or(&upper);
        let name = name.strip_prefix("IO_").unwrap_or(name);
        let found = names.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
        let number = || whole(word).and_then(|number| u32::try_from(number).ok());
        Ok(mask | found.or_else(number).ok_or_else(|| wrong(word))?)
    })
}

/// Changes the trace of a port, or of all ports.
fn trace(shell: &Shell, args: &[String], change: impl Fn(&Trace) -> Result<(), Failed>) -> CommandResult {
    shell.devices.ports.traces(arg(args, 0))?.iter().try_for_each(|trace| change(trace))?;
    Ok(None)
}

/// The name of `asynOctetConnect`, or the port with this name.
fn entry(shell: &Shell, args: &[String]) -> Result<OctetEntry, Failed> {
    let name = needed(args, "the command needs a name of asynOctetConnect")?;
    match shell.octets.get(name) {
        Some(entry) => Ok(entry.clone()),
        None => Err(Failed(format!("no name \"{name}\"; expected one of asynOctetConnect"))),
    }
}

/// The bytes of a command's text, with the port's terminator.
fn outgoing(shell: &Shell, entry: &OctetEntry, args: &[String]) -> Result<Vec<u8>, Failed> {
    let mut out = db::unescape(arg(args, 1)).into_owned();
    out.extend(shell.devices.ports.find(&entry.port)?.output_end);
    Ok(out)
}

fn read(shell: &mut Shell, entry: &OctetEntry, out: Vec<u8>, max: usize, flush: bool) -> CommandResult {
    let terminator = shell.devices.ports.find(&entry.port)?.input_end;
    let until = Some(Until { terminator, max, limit: entry.limit });
    let received = talk(shell, entry, Message { out, until, flush })?;
    said(shell, &format!("{}\n", received.bytes.escape_ascii()))
}

/// Exchanges a message and waits for the answer.
fn talk(shell: &Shell, entry: &OctetEntry, message: Message) -> Result<Received, Failed> {
    let (port, inbox): (Port, Inbox) = shell.devices.ports.inbox(&entry.port)?;
    let (send, answer) = sync_channel(1);
    // If nothing waits for the answer, it is not needed.
    let then = move |answer| drop(send.try_send(answer));
    let talk = Talk::new(message, inbox, latest(now().mono, entry.limit), then);
    if port.submit_or_refuse(Box::new(talk)).is_err() {
        return Err(Failed(format!("port \"{}\": too many exchanges wait", entry.port)));
    }
    let failed = |error: OctetFailure| match error {
        OctetFailure::Timeout(bytes) if !bytes.is_empty() => {
            Failed(format!("port \"{}\": no end of the answer in time: {}", entry.port, bytes.escape_ascii()))
        }
        error => Failed(format!("port \"{}\": {error}", entry.port)),
    };
    answer.recv().map_err(|_| Failed(format!("port \"{}\" is closed", entry.port)))?.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forms of asyn's documentation, "asynSetTraceMask".
    #[test]
    fn masks_are_numbers_or_names() {
        assert_eq!(mask("9", MASK), Ok(9));
        assert_eq!(mask("0x1F", MASK), Ok(0x1f));
        assert_eq!(mask("ERROR|DRIVER", MASK), Ok(9));
        assert_eq!(mask("ASYN_TRACE_ERROR + TRACEIO_DRIVER", MASK), Ok(9));
        assert_eq!(mask("ESCAPE", IO_MASK), Ok(2));
        assert_eq!(mask("ASYN_TRACEIO_HEX", IO_MASK), Ok(4));
        assert_eq!(mask("time+port", INFO_MASK), Ok(3));
        assert!(mask("LOUD", MASK).unwrap_err().0.contains("expected a number or ERROR, DEVICE"));
    }
}

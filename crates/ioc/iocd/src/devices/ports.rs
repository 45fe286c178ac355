//! Ports by name, as configured by `drvAsynIPPortConfigure` and similar commands, and connections to message servers. Their
//! threads start at first use.

use super::asyn::{Block, Inbox, Interpose, ModbusSpec, Poller};
use super::server::{PendingRequest, RequestOutcome, ServerConnection};
use crate::engine::Mailbox;
use msg::Band;
use port::{Address, BadOption, Port, Trace};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of exchanges waiting for a port.
const WAITING_MAX: usize = 1_024;

/// Error of a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The name is not allowed in an address.
    #[error("port name \"{name}\"; expected one word")]
    BadName {
        /// The given name.
        name: String,
    },
    /// A port with this name exists already.
    #[error("port \"{name}\" exists already")]
    Taken {
        /// The name.
        name: String,
    },
    /// The port's thread is running, so its settings cannot change.
    #[error("port \"{name}\" is in use; change its settings before iocInit")]
    InUse {
        /// The name.
        name: String,
    },
    /// No port has this name.
    #[error(
        "no port \"{name}\"; {} (drvAsynIPPortConfigure, drvAsynSerialPortConfigure or drvModbusAsynConfigure, before iocInit)",
        listed(known)
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing ports.
        known: Vec<String>,
    },
    /// The setting is not valid for this address.
    #[error(transparent)]
    Setting(#[from] BadOption),
    /// The kernel cannot create its thread.
    #[error("port \"{name}\": {source}")]
    System {
        /// The name.
        name: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none is configured".to_owned() } else { format!("there are {}", known.join(", ")) }
}

/// A configured port.
#[derive(Clone)]
pub struct Configured {
    /// Address of the equipment.
    pub address: Address,
    /// Default terminator of received messages, if the protocol sets none (asynOctetSetInputEos).
    pub input_end: Vec<u8>,
    /// Default terminator of sent messages, if the protocol sets none.
    pub output_end: Vec<u8>,
    /// Framing and times of Modbus devices on it.
    pub(crate) interpose: Interpose,
    trace: Arc<Trace>,
    /// Received bytes for messages without a protocol, once they are used.
    inbox: Option<Inbox>,
    port: Option<Port>,
    /// Whether it was logged that the port is not connected.
    logged: bool,
}

/// All ports of an IOC. Clones share them.
#[derive(Clone, Default)]
pub struct Ports(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    ports: BTreeMap<String, Configured>,
    /// Blocks of Modbus devices (`drvModbusAsynConfigure`).
    blocks: BTreeMap<String, Arc<Block>>,
    poller: Arc<Poller>,
    /// Trace settings of ports that are added.
    trace: Arc<Trace>,
    /// Connections to message servers, by server and band.
    servers: BTreeMap<(String, u8), ServerConnection>,
    /// Folders with protocol files.
    protocol_path: Vec<String>,
    /// Message server of records that name none.
    message_server: Option<String>,
    /// The IOC, for fields used in protocols; empty until it runs.
    ioc: Arc<OnceLock<Mailbox>>,
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic while the lock is held cannot leave the table inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Configures a port.
    ///
    /// # Errors
    /// If the name exists already or is empty.
    pub fn add(&self, name: &str, address: Address) -> Result<(), PortError> {
        let mut inside = self.lock();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(PortError::BadName { name: name.to_owned() });
        }
        if inside.ports.contains_key(name) || inside.blocks.contains_key(name) {
            return Err(PortError::Taken { name: name.to_owned() });
        }
        let configured = Configured {
            address,
            input_end: Vec::new(),
            output_end: Vec::new(),
            interpose: Interpose::default(),
            trace: Arc::new(inside.trace.copied()),
            inbox: None,
            port: None,
            logged: false,
        };
        inside.ports.insert(name.to_owned(), configured);
        Ok(())
    }

    /// Adds a block of registers or coils of a Modbus device.
    ///
    /// # Errors
    /// If the name is taken, or the port for its bytes does not exist.
    pub(crate) fn add_block(&self, name: &str, spec: ModbusSpec) -> Result<(), PortError> {
        self.find(spec.line())?;
        let mut inside = self.lock();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(PortError::BadName { name: name.to_owned() });
        }
        if inside.ports.contains_key(name) || inside.blocks.contains_key(name) {
            return Err(PortError::Taken { name: name.to_owned() });
        }
        let trace = Arc::new(inside.trace.copied());
        let block = Block::new(name, spec, self.clone(), inside.poller.clone(), trace);
        inside.blocks.insert(name.to_owned(), Arc::new(block));
        Ok(())
    }

    /// A block of a Modbus device.
    pub(super) fn block(&self, name: &str) -> Option<Arc<Block>> {
        self.lock().blocks.get(name).cloned()
    }

    /// Framing and times of the Modbus devices on a port.
    pub(super) fn interpose(&self, name: &str) -> Interpose {
        self.lock().ports.get(name).map_or_else(Interpose::default, |configured| configured.interpose)
    }

    /// Changes the settings of a port that is not in use yet.
    ///
    /// # Errors
    /// If the port does not exist or is in use, or `change` fails.
    pub fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Configured) -> Result<(), BadOption>,
    ) -> Result<(), PortError> {
        let mut inside = self.lock();
        let known = no_port(name, &inside);
        let configured = inside.ports.get_mut(name).ok_or(known)?;
        if configured.port.is_some() {
            return Err(PortError::InUse { name: name.to_owned() });
        }
        Ok(change(configured)?)
    }

    /// Settings of a port.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn find(&self, name: &str) -> Result<Configured, PortError> {
        let inside = self.lock();
        inside.ports.get(name).cloned().ok_or_else(|| no_port(name, &inside))
    }

    /// Returns a port. Starts its thread if necessary.
    ///
    /// # Errors
    /// If the port does not exist, or the thread cannot be started.
    pub fn open(&self, name: &str) -> Result<Port, PortError> {
        let mut inside = self.lock();
        let known = no_port(name, &inside);
        let configured = inside.ports.get_mut(name).ok_or(known)?;
        if let Some(port) = &configured.port {
            return Ok(port.clone());
        }
        let trace = configured.trace.clone();
        let port = Port::open_traced(name, configured.address.clone(), WAITING_MAX, trace)
            .map_err(|source| PortError::System { name: name.to_owned(), source })?;
        configured.port = Some(port.clone());
        Ok(port)
    }

    /// A port and its unread bytes. From the first call on, the port stays connected and keeps what it receives.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn inbox(&self, name: &str) -> Result<(Port, Inbox), PortError> {
        let port = self.open(name)?;
        let mut inside = self.lock();
        let known = no_port(name, &inside);
        let configured = inside.ports.get_mut(name).ok_or(known)?;
        let fresh = || {
            let inbox = Inbox::default();
            port.listen(Box::new(inbox.clone()));
            inbox
        };
        let inbox = configured.inbox.get_or_insert_with(fresh).clone();
        Ok((port, inbox))
    }

    /// Runs `@init` of the records on a port again, or of all records without a name: now, or once the port is connected.
    ///
    /// # Errors
    /// If the port does not exist.
    pub(crate) fn greet_again(&self, name: Option<&str>) -> Result<(), PortError> {
        let inside = self.lock();
        if let Some(name) = name.filter(|name| !inside.ports.contains_key(*name)) {
            return Err(no_port(name, &inside));
        }
        let meant = inside.ports.iter().filter(|(known, _)| name.is_none_or(|name| name == *known));
        meant.filter_map(|(_, configured)| configured.port.as_ref()).for_each(Port::greet_again);
        Ok(())
    }

    /// Sets the terminator of received or sent messages. Records with DTYP stream keep the one they started with.
    ///
    /// # Errors
    /// If the port does not exist.
    pub(crate) fn set_end(&self, name: &str, input: bool, end: Vec<u8>) -> Result<(), PortError> {
        let mut inside = self.lock();
        let known = no_port(name, &inside);
        let configured = inside.ports.get_mut(name).ok_or(known)?;
        *(if input { &mut configured.input_end } else { &mut configured.output_end }) = end;
        Ok(())
    }

    /// The trace of a port or block. Without a name: those of all, also of ports that are added later.
    ///
    /// # Errors
    /// If the port does not exist.
    pub(crate) fn traces(&self, name: &str) -> Result<Vec<Arc<Trace>>, PortError> {
        let inside = self.lock();
        let ports = inside.ports.iter().map(|(known, port)| (known, &port.trace));
        let blocks = inside.blocks.iter().map(|(known, block)| (known, &block.trace));
        let mut found: Vec<_> = ports
            .chain(blocks)
            .filter(|(known, _)| name.is_empty() || *known == name)
            .map(|(_, trace)| trace.clone())
            .collect();
        if name.is_empty() {
            found.push(inside.trace.clone());
        }
        if found.is_empty() { Err(no_port(name, &inside)) } else { Ok(found) }
    }

    /// Reads the environment: `STREAM_PROTOCOL_PATH`, `TAHTI_MESSAGES`. Call it before records start.
    pub fn set_environment(&self, get: impl Fn(&str) -> Option<String>) {
        let mut inside = self.lock();
        if let Some(path) = get("STREAM_PROTOCOL_PATH") {
            inside.protocol_path = path.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect();
        }
        inside.message_server = get("TAHTI_MESSAGES").filter(|name| !name.is_empty());
    }

    /// Sets the IOC that records and ports belong to. Call it before records start.
    pub(crate) fn set_ioc(&self, ioc: Arc<OnceLock<Mailbox>>) {
        self.lock().ioc = ioc;
    }

    /// The IOC; empty until it runs.
    pub(super) fn ioc(&self) -> Arc<OnceLock<Mailbox>> {
        self.lock().ioc.clone()
    }

    /// Message server of records that name none (`TAHTI_MESSAGES`, default `main`).
    #[must_use]
    pub fn message_server(&self) -> String {
        self.lock().message_server.clone().unwrap_or_else(|| "main".to_owned())
    }

    /// Sends a request to a message server. Its outcome is reported on another thread, or immediately if the request cannot
    /// be sent.
    pub(super) fn send_or_refuse(&self, server: &str, band: Band, pending: PendingRequest) {
        let mut inside = self.lock();
        let key = (server.to_owned(), band.number());
        if !inside.servers.contains_key(&key) {
            match ServerConnection::open(server, band) {
                Ok(connection) => drop(inside.servers.insert(key.clone(), connection)),
                Err(error) => {
                    drop(inside);
                    eprintln!("message server {server:?}: no thread for its connection: {error}");
                    return (pending.then)(RequestOutcome::Lost);
                }
            }
        }
        let sent = inside.servers.get(&key).map_or(Ok(()), |connection| connection.send_or_refuse(pending));
        drop(inside);
        if let Err(pending) = sent {
            (pending.then)(RequestOutcome::Timeout);
        }
    }

    /// Folders with protocol files; default is the working folder.
    #[must_use]
    pub fn protocol_path(&self) -> Vec<String> {
        let path = self.lock().protocol_path.clone();
        if path.is_empty() { vec![".".to_owned()] } else { path }
    }

    /// Report with one line per port: its address and state (asynReport).
    #[must_use]
    pub fn report(&self) -> Vec<String> {
        let inside = self.lock();
        let line = |(name, configured): (&String, &Configured)| {
            let place = format!("{name} {}", configured.address);
            let Some(port) = &configured.port else { return format!("{place} not used yet") };
            let status = port.status();
            let state =
                if status.connected { "connected".to_owned() } else { format!("not connected: {}", status.trouble) };
            format!(
                "{place} {state}; exchanges {}, connects {}, failed connects {}, refused {}, bytes in {}, out {}",
                status.exchanges,
                status.connects,
                status.refused,
                port.refused(),
                status.received,
                status.sent
            )
        };
        inside.ports.iter().map(line).chain(inside.blocks.values().map(|block| block.report())).collect()
    }

    /// Lines for the log about ports that were lost or are connected again since the last call, and a text about those that
    /// are not connected; empty if all are. `None` if there are no ports.
    pub(super) fn watch(&self) -> Option<(Vec<String>, String)> {
        let mut inside = self.lock();
        if inside.ports.is_empty() {
            return None;
        }
        let (mut log, mut used, mut lost) = (Vec::new(), 0, Vec::new());
        for (name, configured) in &mut inside.ports {
            let Some(port) = &configured.port else { continue };
            let status = port.status();
            used += 1;
            match (status.unreachable, std::mem::replace(&mut configured.logged, status.unreachable)) {
                (true, false) => {
                    log.push(format!("port {name}: cannot connect to {}; it is tried again", status.trouble))
                }
                (false, true) => log.push(format!("port {name}: connected to {}", configured.address)),
                _ => {}
            }
            if status.unreachable {
                lost.push(format!("{name} ({})", status.trouble));
            }
        }
        let text = if lost.is_empty() {
            String::new()
        } else {
            format!("{} of {used} ports not connected: {}", lost.len(), lost.join(", "))
        };
        Some((log, text))
    }

    /// Drops the ports, which ends their threads.
    pub(super) fn close(&self) {
        let mut inside = self.lock();
        inside.ports.values_mut().for_each(|configured| configured.port = None);
        inside.servers.clear();
        inside.blocks.clear();
        inside.poller.stop();
    }
}

fn no_port(name: &str, inside: &Inside) -> PortError {
    PortError::Unknown {
        name: name.to_owned(),
        known: inside.ports.keys().chain(inside.blocks.keys()).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Lines for the log, once there are any, and the text about ports that are not connected.
    fn next(ports: &Ports) -> (String, String) {
        loop {
            let (log, text) = ports.watch().unwrap();
            if !log.is_empty() {
                return (log.join("|"), text);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_lost_port_is_logged_once_and_reported_until_it_is_connected() {
        let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ports = Ports::default();
        assert_eq!(ports.watch(), None);
        ports.add("psu", place.to_string().parse().unwrap()).unwrap();
        ports.add("unused", "127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(ports.watch(), Some((Vec::new(), String::new())));
        // A port with a listener stays connected.
        ports.inbox("psu").unwrap();
        let (log, text) = next(&ports);
        let why = format!("{place}: Connection refused (os error 111)");
        assert_eq!(log, format!("port psu: cannot connect to {why}; it is tried again"));
        assert_eq!(text, format!("1 of 1 ports not connected: psu ({why})"));
        assert_eq!(ports.watch(), Some((Vec::new(), text)));
        let listener = TcpListener::bind(place).unwrap();
        assert_eq!(next(&ports), (format!("port psu: connected to {place}"), String::new()));
        drop(listener);
        ports.close();
    }
}

//! Ports by name, as `drvAsynIPPortConfigure` and its kin set them up, and connections to message servers; their threads
//! start when they are first used.

use super::server::{PendingRequest, RequestOutcome, ServerConnection};
use crate::engine::Mailbox;
use msg::Band;
use port::{Address, BadOption, Port};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Exchanges that may wait for a port.
const WAITING_MAX: usize = 1_024;

/// Why a port cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// A name that cannot stand in an address.
    #[error("port name \"{name}\"; expected one word")]
    BadName {
        /// The name.
        name: String,
    },
    /// The name has a port already.
    #[error("port \"{name}\" is there already")]
    Taken {
        /// The name.
        name: String,
    },
    /// Its thread runs: settings are over.
    #[error("port \"{name}\" is in use; its settings come before iocInit")]
    InUse {
        /// The name.
        name: String,
    },
    /// No port of this name.
    #[error(
        "no port \"{name}\"; {} (drvAsynIPPortConfigure or drvAsynSerialPortConfigure, before iocInit)",
        listed(known)
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A setting that its address cannot have.
    #[error(transparent)]
    Setting(#[from] BadOption),
    /// The kernel refuses its thread.
    #[error("port \"{name}\": {source}")]
    System {
        /// The name.
        name: String,
        /// What the kernel says.
        source: std::io::Error,
    },
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none is configured".to_owned() } else { format!("there are {}", known.join(", ")) }
}

/// A port that was configured.
#[derive(Clone)]
pub struct Configured {
    /// Where it leads.
    pub address: Address,
    /// What ends a message that comes, where a protocol says nothing (asynOctetSetInputEos).
    pub input_end: Vec<u8>,
    /// What ends a message that goes, where a protocol says nothing.
    pub output_end: Vec<u8>,
    port: Option<Port>,
}

/// All ports of an IOC. Clones share them.
#[derive(Clone, Default)]
pub struct Ports(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    ports: BTreeMap<String, Configured>,
    /// Connections to message servers, by server and band.
    servers: BTreeMap<(String, u8), ServerConnection>,
    /// Folders with protocol files.
    protocol_path: Vec<String>,
    /// The message server of records that name none.
    message_server: Option<String>,
    /// The IOC, for fields that protocols name; empty until it runs.
    ioc: Arc<OnceLock<Mailbox>>,
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic elsewhere leaves nothing half done in the table.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Configures a port.
    ///
    /// # Errors
    /// A name that is taken or empty.
    pub fn add(&self, name: &str, address: Address) -> Result<(), PortError> {
        let mut inside = self.lock();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(PortError::BadName { name: name.to_owned() });
        }
        if inside.ports.contains_key(name) {
            return Err(PortError::Taken { name: name.to_owned() });
        }
        let configured = Configured { address, input_end: Vec::new(), output_end: Vec::new(), port: None };
        inside.ports.insert(name.to_owned(), configured);
        Ok(())
    }

    /// Changes a port that is not in use yet.
    ///
    /// # Errors
    /// No such port, a port in use, or what `change` says.
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

    /// A port's settings.
    ///
    /// # Errors
    /// No such port.
    pub fn find(&self, name: &str) -> Result<Configured, PortError> {
        let inside = self.lock();
        inside.ports.get(name).cloned().ok_or_else(|| no_port(name, &inside))
    }

    /// A port, with its thread started.
    ///
    /// # Errors
    /// No such port, or the kernel's.
    pub fn open(&self, name: &str) -> Result<Port, PortError> {
        let mut inside = self.lock();
        let known = no_port(name, &inside);
        let configured = inside.ports.get_mut(name).ok_or(known)?;
        if let Some(port) = &configured.port {
            return Ok(port.clone());
        }
        let port = Port::open(name, configured.address.clone(), WAITING_MAX)
            .map_err(|source| PortError::System { name: name.to_owned(), source })?;
        configured.port = Some(port.clone());
        Ok(port)
    }

    /// Takes what the environment says: `STREAM_PROTOCOL_PATH`, `TAHTI_MESSAGES`. Before records start.
    pub fn set_environment(&self, get: impl Fn(&str) -> Option<String>) {
        let mut inside = self.lock();
        if let Some(path) = get("STREAM_PROTOCOL_PATH") {
            inside.protocol_path = path.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect();
        }
        inside.message_server = get("TAHTI_MESSAGES").filter(|name| !name.is_empty());
    }

    /// Names the IOC that records and ports belong to. Before records start.
    pub(crate) fn set_ioc(&self, ioc: Arc<OnceLock<Mailbox>>) {
        self.lock().ioc = ioc;
    }

    /// The IOC, once it runs.
    pub(super) fn ioc(&self) -> Arc<OnceLock<Mailbox>> {
        self.lock().ioc.clone()
    }

    /// The message server of records that name none (`TAHTI_MESSAGES`, else `main`).
    #[must_use]
    pub fn message_server(&self) -> String {
        self.lock().message_server.clone().unwrap_or_else(|| "main".to_owned())
    }

    /// Sends a request to a message server; its outcome comes on another thread, or at once where it cannot be sent.
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

    /// Folders with protocol files; the working folder if none was named.
    #[must_use]
    pub fn protocol_path(&self) -> Vec<String> {
        let path = self.lock().protocol_path.clone();
        if path.is_empty() { vec![".".to_owned()] } else { path }
    }

    /// A line for each port: where it leads, how it does (asynReport).
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
        inside.ports.iter().map(line).collect()
    }

    /// Gives up the ports' threads.
    pub(super) fn close(&self) {
        let mut inside = self.lock();
        inside.ports.values_mut().for_each(|configured| configured.port = None);
        inside.servers.clear();
    }
}

fn no_port(name: &str, inside: &Inside) -> PortError {
    PortError::Unknown { name: name.to_owned(), known: inside.ports.keys().cloned().collect() }
}

//! The dashboard: a page that displays a plant and lets operators act on it.
//!
//! It is a separate process without data of its own. It reads what the plant's other processes publish, like `tahti ps`,
//! `tahti scope`, `tahti shield status`, `tahti trace status`, `tahti frames show`, `tahti alarm list`, `tahti msg` and `caget`.
//! Watching threads put the data into the [`hub`]; each client takes the newest from there when its connection can send
//! ([`client`]). Operations that may block (actions on processes and alarms, messages, the archive) are done by [`work`], never
//! by the connection thread.
//!
//! It must never block a real-time thread, and never change anything for a client whose role does not allow it.
#![forbid(unsafe_code)]

mod access;
mod alarms;
mod client;
mod files;
mod history;
mod hub;
mod logs;
pub mod manual;
mod messages;
mod metrics;
mod protocol;
mod pvs;
mod refused;
mod scopes;
mod settings;
mod shares;
mod signals;
mod site;
mod watch;
mod work;

pub use crate::settings::Act as SettingsAct;
pub use access::Role;
pub use alarms::{Alarms, AlarmsError};
pub use logs::{Filter as LogFilter, Level as LogLevel};
pub use messages::WatchError;
pub use protocol::{Ask, Tick, tick};
pub use scopes::{Act as ScopeAct, Arm as ScopeArm, Forcing, ForcingError, Servers, View as ScopeView};
pub use watch::Frames;

use access::Access;
use base::DurNs;
use hub::Hub;
use keep::supervisor::control::{Client, Request};
use keep::supervisor::rundir::RunDir;
use retrieval::Retrieval;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::clock::mono_now;
use sys::notify::{Supervisor, WORKS_EVERY};
use sys::signal::{SignalFd, end_signals};
use web::{IdentityFiles, Limits, Server};

/// Settings of a dashboard.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the plant.
    pub plant: String,
    /// Address to listen on; by default [`PORT`] on loopback, or the first free one of [`PORTS`].
    pub listen: Option<SocketAddr>,
    /// Additional host names of this machine.
    pub names: Vec<String>,
    /// TLS certificate.
    pub identity: Option<IdentityFiles>,
    /// Whether operators may make changes.
    pub write: bool,
    /// Folder of the archive.
    pub archive: Option<PathBuf>,
    /// Whether the archive can be read without a token.
    pub retrieval: bool,
    /// Whether the plant's tables are served over PVAccess, to every client that reaches it.
    pub pvaccess: bool,
    /// Folder of the settings.
    pub settings: Option<PathBuf>,
    /// Name of the message server.
    pub messages: String,
}

/// Default port.
pub const PORT: u16 = 8765;
/// Number of ports to try by default, from [`PORT`] up; other plants use some of them.
pub const PORTS: u16 = 20;
/// File with the token of viewers alone, for programs such as Prometheus that read it for each request.
const TOKEN: &str = "token";
/// Delay before a port in use is tried again.
const AGAIN: DurNs = DurNs::from_secs(10);

/// Folder of a dashboard's addresses, in its plant's run folder.
fn folder(plant: &str) -> PathBuf {
    RunDir::find(plant).dashboard()
}

/// The address with the token of `role`. Only the plant's user and root can read it.
///
/// # Errors
/// If no dashboard is running, or it does not have this role.
pub fn address(plant: &str, role: Role) -> io::Result<String> {
    Ok(std::fs::read_to_string(folder(plant).join(role.word()))?.trim_end().to_owned())
}

/// Binds the first free address.
///
/// # Errors
/// The error of the first address.
fn bind(options: &Options) -> io::Result<Server> {
    let ports = match options.listen {
        Some(listen) => vec![listen],
        None => (PORT..PORT + PORTS).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect(),
    };
    let mut refused = None;
    for listen in ports {
        match Server::bind(listen, options.names.clone(), Limits::default()) {
            Ok(server) => return Ok(server),
            Err(error) if refused.is_none() => {
                let why = if error.kind() == io::ErrorKind::AddrInUse { "taken by another program" } else { "refused" };
                refused = Some(io::Error::new(error.kind(), format!("{listen} is {why}: {error}")));
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// Serves until SIGINT, SIGTERM or SIGHUP. If the port is in use, reports that and retries: a plant can be up without a dashboard.
///
/// # Errors
/// The kernel's error, or if the plant's folder cannot be written.
pub fn serve(options: &Options) -> io::Result<()> {
    let signals = SignalFd::new(&end_signals()).map_err(io::Error::other)?;
    let (mut reported, mut next, mut supervisor) = (String::new(), mono_now(), Supervisor::from_env());
    let server = loop {
        let now = mono_now();
        if now >= next {
            next = now + AGAIN;
            match bind(options) {
                Ok(server) => break server,
                // The other program may end; the network may come up.
                Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
                    if reported.is_empty() {
                        let text = format!("no dashboard: {error}; it is tried again");
                        println!("tahti dash: {text}");
                        say(&options.plant, &text);
                    }
                    reported = format!("it cannot listen: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        supervisor.works(now, Some(&reported));
        if sys::poll::is_readable(signals.as_fd(), WORKS_EVERY) {
            return Ok(());
        }
    };
    let server = server.with_identity(options.identity.clone()).map_err(io::Error::other)?;
    let folder = folder(&options.plant);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let access = Access::open(&folder.join("access.json"), server.address().port(), options.write, mono_now())?;
    publish(&folder, &access, &server.url())?;
    let hub = Arc::new(Hub::default());
    watch::start(&options.plant, options.archive.clone(), &options.messages, &hub)?;
    if options.pvaccess {
        pvs::start(options, hub.clone())?;
    }
    let server = server.with_rounds(move || {
        supervisor.works(mono_now(), None);
    });
    let signal_hub = signals::Signals::start()?;
    let worker = Arc::new(work::Worker::start(options, signal_hub.clone())?);
    let scopes = Arc::new(scopes::Scopes::start(&options.plant, &options.messages)?);
    let (plant, passing) = (options.plant.clone(), (options.messages.clone(), messages::watches()));
    let archive = options.archive.clone().map(|folder| Retrieval::new(retrieval::folder(folder), false));
    let archive = (archive, options.retrieval);
    let site = site::Dashboard { plant, access, hub, signals: signal_hub, worker, scopes, passing, archive };
    println!("tahti dash: serves at {}", server.url());
    if let Ok(address) = address(&options.plant, Role::Viewer) {
        say(&options.plant, &address);
    }
    let ended = server.run(Arc::new(site), signals.as_fd().try_clone_to_owned()?);
    for file in Role::ALL.map(Role::word).into_iter().chain([TOKEN]) {
        // The supervisor removes the whole folder when the plant is down.
        let _ = std::fs::remove_file(folder.join(file));
    }
    ended
}

/// Writes the addresses to files that only this user can read.
fn publish(folder: &Path, access: &Access, url: &str) -> io::Result<()> {
    for role in Role::ALL {
        let file = folder.join(role.word());
        let Some(token) = access.token(role) else {
            // Remove the address of an earlier dashboard: it is no longer valid.
            let _ = std::fs::remove_file(&file);
            continue;
        };
        write(&file, &format!("{url}/#token={token}"))?;
    }
    write(&folder.join(TOKEN), access.token(Role::Viewer).unwrap_or_default())
}

fn write(file: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    writeln!(file, "{line}")
}

/// Asks the supervisor to print a line where the plant was started.
fn say(plant: &str, text: &str) {
    let asked = Client::connect(&RunDir::find(plant).socket())
        .and_then(|mut client| client.ask(&Request::Say { who: "dashboard".into(), what: text.into() }));
    if let Err(error) = asked {
        // `tahti dash url` prints the address too.
        eprintln!("tahti dash: the supervisor does not show the address: {error}");
    }
}

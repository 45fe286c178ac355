//! The server's main loop: from channels to alarms, journal and clients.

use crate::client::socket;
use crate::clients::{ClientRequest, Clients};
use crate::journal::{Journal, JournalError, JournalReport, Retention};
use crate::notify::{self, Notify};
use crate::plant::{self, Answer, Part};
use crate::pvaccess::{self, Change};
use alarm::wire::{List, Look, Reply, Request};
use alarm::{ChannelUse, Config, Entry, EntryContent, Moment, Now, Panel, Severity, Target, Update, Wall};
use base::{EventMask, MonoNs, Scalar, Stamp};
use ca::client::{ChannelId, Event};
use ca::encode::Reading;
use ca::server::Access;
use ca::{Basic, Class, Dbr};
use canet::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Receiver;
use sys::notify::Supervisor;
use sys::signal::{SignalFd, end_signals};

/// Maximum interval between checks for the end signals, and between syncs of the journal.
const LOOK_NS: u64 = 200_000_000;

/// Reason why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Error of the journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Error of the socket.
    #[error("socket @{0}: {1}{hint}", hint = taken(.1))]
    Socket(String, std::io::Error),
    /// A thread could not be started.
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
    /// A destination of notifications needs TLS, which this build does not have.
    #[error(
        "{to} of the destination {name:?} in `notify` needs TLS, and this build has none; expected one with `cargo build --features tls`, or \
             http:// or smtp:// to a server in a trusted network"
    )]
    NoTls {
        /// Name of the destination.
        name: String,
        /// The key and its scheme.
        to: &'static str,
    },
    /// Error of the network.
    #[error("Channel Access: {0}")]
    Network(std::io::Error),
    /// Error of the network.
    #[error("PVAccess: {0}")]
    PvAccess(std::io::Error),
    /// Error of the kernel.
    #[error("{0}")]
    Kernel(sys::Error),
}

fn taken(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another set of alarms has this name: set `name` in [alarms], or end that one"
        }
        _ => "",
    }
}

/// A Channel Access channel.
struct Source {
    channel: ChannelUse,
    /// Names of its states, once known.
    labels: Vec<String>,
    is_subscribed: bool,
    is_connected: bool,
}

/// Alarms of the plant's parts.
struct Parts {
    said: Receiver<Answer>,
    all: Vec<(Part, ChannelUse)>,
    before: BTreeMap<String, plant::Before>,
}

/// Alarms of PVAccess channels.
struct PvAccess {
    changes: Receiver<Change>,
    /// The channels that are not connected, for users.
    unconnected: String,
}

struct Server<'a> {
    config: Config,
    panel: Panel,
    journal: Journal,
    clients: Clients,
    session: Session,
    sources: HashMap<ChannelId, Source>,
    parts: Option<Parts>,
    /// Why the journal cannot be written.
    unwritten: Option<String>,
    pvaccess: Option<PvAccess>,
    notify: Notify,
    synced: MonoNs,
    supervisor: Supervisor,
    report: &'a mut dyn FnMut(&str),
}

/// Serves the alarms until SIGINT, SIGTERM or SIGHUP, including those of `plant`, if given. `report` receives log lines.
///
/// # Errors
/// If the journal, the socket or the network cannot be used.
pub fn serve(config: &Config, plant: Option<&str>, report: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
    if let Some(destination) = notify::unavailable(config) {
        let to =
            if matches!(destination.to, Target::Web { .. }) { "`to` with https://" } else { "`relay` with smtps://" };
        return Err(ServeError::NoTls { name: destination.name.clone(), to });
    }
    let ended = SignalFd::new(&end_signals()).map_err(ServeError::Kernel)?;
    let (name, mut config) = (socket(config.served_as(plant)), config.clone());
    let said = plant.map(plant::watch).transpose().map_err(ServeError::Thread)?;
    if let Some(said) = &said {
        let own = plant::specs(said, &config.alarms);
        if own.is_empty() {
            report(
                "the plant's supervisor does not report processes that the file does not name: restart this process when it does",
            );
        }
        config.alarms.extend(own);
    }
    let mut panel = Panel::new(&config, now());
    let keep = Retention { days: config.keep_days, bytes: config.keep_size.0 };
    let (journal, JournalReport { unread, unwritten }) = Journal::open(&config.folder, keep, &mut panel, now())?;
    if unread > 0 {
        report(&format!(
            "{unread} lines of the last journal cannot be read: truncated by a kill or power failure, or damaged"
        ));
    }
    let clients = Clients::listen(&name, &config.operators, &config.viewers)
        .map_err(|error| ServeError::Socket(name.clone(), error))?;
    if let Some(shortfall) = clients.shortfall() {
        report(shortfall);
    }
    let mut session = Session::open(|name| std::env::var(name).ok()).map_err(ServeError::Network)?;
    session.complaints.iter().for_each(|complaint| report(&complaint.0));
    session.look_beside(clients.ready().map_err(|error| ServeError::Socket(name.clone(), error))?);
    let (mut sources, mut all, mut others) = (HashMap::new(), Vec::new(), Vec::new());
    for (channel, name) in panel.channels() {
        if let Some(part) = Part::of(name) {
            all.push((part, channel));
            continue;
        }
        if let Some(name) = name.strip_prefix(alarm::PVACCESS) {
            others.push((channel, name.to_owned()));
            continue;
        }
        let id = session.client.channel(Session::now(), name, 0);
        let source = Source { channel, labels: Vec::new(), is_subscribed: false, is_connected: false };
        sources.insert(id, source);
    }
    let alarms = config.alarms.len();
    report(&format!("serves {alarms} alarms at @{name}, journal in {}", config.folder.display()));
    let pvaccess = if others.is_empty() {
        None
    } else {
        let bell = canet::Waker::new().map_err(ServeError::PvAccess)?;
        session.listen_to(bell.clone());
        let (changes, complaints) = pvaccess::watch(&others, bell).map_err(ServeError::PvAccess)?;
        complaints.iter().for_each(|complaint| report(&complaint.0));
        Some(PvAccess { changes, unconnected: String::new() })
    };
    let parts = said.map(|said| Parts { said, all, before: BTreeMap::new() });
    let notify = Notify::start(&config, &panel, now()).map_err(ServeError::Thread)?;
    let (synced, supervisor) = (Session::now(), Supervisor::from_env());
    let first = unwritten.map_or(Ok(()), Err);
    let unwritten = None;
    let mut server = Server {
        config,
        panel,
        journal,
        clients,
        session,
        sources,
        parts,
        pvaccess,
        notify,
        unwritten,
        synced,
        supervisor,
        report,
    };
    server.wrote(first);
    while ended.read().map_err(ServeError::Kernel)?.is_none() {
        server.step()?;
    }
    server.end()
}

impl Server<'_> {
    /// Waits for the next event and does everything that is due.
    fn step(&mut self) -> Result<(), ServeError> {
        let until = Session::now() + base::DurNs(LOOK_NS as i64);
        let until = self.panel.due().map_or(until, |due| due.min(until));
        if let Some(event) = self.session.step(until).map_err(ServeError::Network)? {
            self.event(event);
        }
        for asked in self.clients.serve() {
            self.asked(asked);
        }
        self.look_at_parts();
        self.look_at_pvaccess()?;
        self.panel.tick(now());
        self.publish();
        self.notify.step(now(), self.report);
        let at = Session::now();
        if (at - self.synced).0 >= LOOK_NS as i64 {
            self.synced = at;
            self.keep();
        }
        self.supervisor.works(at, self.unwritten.as_deref());
        self.supervisor.status(at, || {
            let others = self.pvaccess.as_ref().map_or("", |pvaccess| &pvaccess.unconnected);
            let faults = self.notify.faults(now());
            let all = [faults.as_str(), &self.session.client.unusable(|_| Access::READ), others];
            all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
        });
        Ok(())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => self.connected(id),
            Event::Disconnected(id) => {
                if let Some(source) = self.sources.get_mut(&id) {
                    source.is_connected = false;
                    self.panel.disconnected(source.channel, now());
                }
            }
            Event::Read { channel, result: Ok((_, reading)), .. } => {
                if let Some(source) = self.sources.get_mut(&channel) {
                    source.labels = reading.meta.labels.iter().map(|label| label.readable().into_owned()).collect();
                    self.subscribe(channel);
                }
            }
            // If reading the state names is denied, subscribing may be too; the answer to the subscription reports that.
            Event::Read { channel, .. } => self.subscribe(channel),
            Event::Update { channel, result, .. } => {
                let Some(source) = self.sources.get(&channel) else { return };
                match result {
                    Ok((_, reading)) => self.panel.update(source.channel, update(&reading, &source.labels), now()),
                    Err(why) => {
                        let moment = moment(Severity::Undefined, &why.to_string(), None, &[], Stamp::EPOCH);
                        self.panel.update(source.channel, Update { moment, number: None }, now());
                    }
                }
            }
            _ => {}
        }
    }

    /// Processes the supervisor's answers.
    fn look_at_parts(&mut self) {
        let Some(Parts { said, all, before }) = &mut self.parts else { return };
        while let Ok(said) = said.try_recv() {
            let at = now();
            for (part, channel) in &*all {
                match said.as_ref().and_then(|told| part.judge(told, before, at.wall)) {
                    Some(update) => self.panel.update(*channel, update, at),
                    None => self.panel.disconnected(*channel, at),
                }
            }
        }
    }

    /// Processes changes of PVAccess channels, at most as many as may wait.
    fn look_at_pvaccess(&mut self) -> Result<(), ServeError> {
        let Some(pvaccess) = &mut self.pvaccess else { return Ok(()) };
        for change in pvaccess.changes.try_iter().take(pvaccess::CHANGES_MAX) {
            match change {
                Change::Updated(channel, update) => self.panel.update(channel, update, now()),
                Change::Disconnected(channel) => self.panel.disconnected(channel, now()),
                Change::Unconnected(names) => {
                    if names.is_empty() {
                        (self.report)("all PVAccess channels are connected");
                    }
                    pvaccess.unconnected = names;
                }
                Change::Ended(error) => return Err(ServeError::PvAccess(error)),
            }
        }
        Ok(())
    }

    /// For an enumeration, reads the names of its states first.
    fn connected(&mut self, id: ChannelId) {
        let Some(info) = self.session.client.info(id) else { return };
        let Some(source) = self.sources.get_mut(&id) else { return };
        source.is_connected = true;
        let connected = self.sources.values().filter(|source| source.is_connected).count();
        if connected == self.sources.len() {
            (self.report)(&format!("all {connected} channels are connected"));
        }
        if info.native != Basic::Enum || self.session.client.read(id, Dbr::new(Class::Gr, info.native), 1).is_err() {
            self.subscribe(id);
        }
    }

    fn subscribe(&mut self, id: ChannelId) {
        let Some(source) = self.sources.get_mut(&id).filter(|source| !source.is_subscribed) else { return };
        let Some(info) = self.session.client.info(id) else { return };
        source.is_subscribed = true;
        let mask = EventMask(EventMask::VALUE.0 | EventMask::ALARM.0);
        self.session.client.subscribe(id, Dbr::new(Class::Time, info.native), 1, mask);
    }

    fn asked(&mut self, asked: ClientRequest) {
        let ClientRequest { client, by, request, may_act } = asked;
        let reply = match request {
            Err(why) => Reply::Refused(why.to_string()),
            Ok(Request::Look(Look::List { names, all })) => Reply::List(Box::new(self.list(&names, all))),
            Ok(Request::Look(Look::Watch)) => Reply::List(Box::new(self.list(&[], true))),
            Ok(Request::Act(_)) if !may_act => {
                let who = format!("{} (user {})", by.user, by.uid);
                Reply::Refused(format!("{who} may only read: add the user to `operators` of [alarms]"))
            }
            Ok(Request::Act(act)) => match self.panel.check(&act) {
                Err(why) => Reply::Refused(why.to_string()),
                Ok(_) => {
                    let what = EntryContent::Act { by: by.clone(), act: act.clone() };
                    let entry = Entry { at: now().wall, path: String::new(), what };
                    // The action is on the disk before it is executed.
                    match self.journal.add(&entry, true) {
                        Err(why) => {
                            let refused = format!("not done, because the journal cannot be written: {why}");
                            self.wrote(Err(why));
                            Reply::Refused(refused)
                        }
                        Ok(()) => match self.panel.act(&act, &by, now()) {
                            Ok(changed) => Reply::Done { changed },
                            Err(why) => Reply::Refused(why.to_string()),
                        },
                    }
                }
            },
        };
        // Its consequences are in the journal before the answer is sent.
        self.publish();
        if matches!(reply, Reply::Done { .. }) {
            let synced = self.journal.sync();
            self.wrote(synced);
        }
        self.clients.answer(client, &reply);
    }

    fn list(&self, names: &[String], all: bool) -> List {
        let disconnected = self.panel.rows(&[], true).filter(|row| !row.connected).count();
        List {
            name: self.config.name.clone(),
            folder: self
                .config
                .folder
                .canonicalize()
                .unwrap_or_else(|_| self.config.folder.clone())
                .display()
                .to_string(),
            maintenance: self.panel.maintenance(),
            alarms: self.config.alarms.len(),
            disconnected,
            areas: self.panel.help(),
            rows: self.panel.rows(names, all).collect(),
        }
    }

    /// Writes new entries to the journal, and sends changes to clients that watch.
    fn publish(&mut self) {
        while let Some(entry) = self.panel.poll_entry() {
            let written = self.journal.add(&entry, false);
            self.wrote(written);
            let EntryContent::State { state, announce } = &entry.what else { continue };
            if let Some(severity) = announce {
                let alarm = &state.alarm;
                (self.report)(&format!("{severity} {} {} {}", entry.path, alarm.message, alarm.value));
            }
            if let Some(row) = self.panel.row(&entry.path) {
                self.notify.observe(&row, &self.panel, now());
                self.clients.broadcast(&Reply::Change(Box::new(row)));
            }
        }
    }

    /// Reports once that the journal cannot be written.
    fn wrote(&mut self, written: Result<(), JournalError>) {
        if let Err(why) = written
            && self.unwritten.is_none()
        {
            self.unwritten = Some(format!("the journal cannot be written: {why}"));
            (self.report)(&format!(
                "{why}; alarms continue, but cannot be acknowledged until the journal can be written"
            ));
        }
    }

    /// Syncs the journal. After a failure, starts a new file with the state of all alarms.
    fn keep(&mut self) {
        if self.unwritten.is_none() {
            let synced = self.journal.sync().and_then(|()| self.journal.turn(&self.panel, now()));
            self.wrote(synced);
        } else if self.journal.renew(&self.panel, now()).is_ok() {
            self.unwritten = None;
            (self.report)(
                "the journal can be written again, in a new file that begins with the present state and the events since the failure",
            );
        }
    }

    fn end(mut self) -> Result<(), ServeError> {
        self.publish();
        self.notify.end(self.report);
        self.journal.add(&Entry { at: now().wall, path: String::new(), what: EntryContent::Stopped }, true)?;
        Ok(())
    }
}

/// Converts a reading to an update of an alarm.
fn update(reading: &Reading, labels: &[String]) -> Update {
    let scalar = reading.value.get(0);
    let severity = Severity::of(reading.alarm.severity);
    let message = if severity == Severity::Ok { severity.name() } else { reading.alarm.status.name() };
    Update { moment: moment(severity, message, scalar, labels, reading.stamp), number: scalar.and_then(number) }
}

/// The state of a channel, with its value in words. A record that was never processed has no time stamp: the time of arrival
/// is used.
pub(crate) fn moment(
    severity: Severity,
    message: &str,
    scalar: Option<Scalar>,
    labels: &[String],
    stamp: Stamp,
) -> Moment {
    let time = if stamp == Stamp::EPOCH {
        now().wall
    } else {
        let (secs, nanos) = stamp.to_unix();
        Wall((secs as i64).saturating_mul(1_000_000_000).saturating_add(nanos.into()))
    };
    let value = match scalar {
        None => String::new(),
        Some(Scalar::F64(number)) => base::text::general(number, 6),
        Some(Scalar::F32(number)) => base::text::general(number.into(), 6),
        Some(Scalar::Enum(index)) if usize::from(index) < labels.len() => labels[usize::from(index)].clone(),
        Some(scalar) => base::text::scalar(scalar, 6).readable().into_owned(),
    };
    Moment { severity, message: message.to_owned(), value, time }
}

pub(crate) fn number(scalar: Scalar) -> Option<f64> {
    Some(match scalar {
        Scalar::String(_) => return None,
        Scalar::I8(v) => v.into(),
        Scalar::U8(v) => v.into(),
        Scalar::I16(v) => v.into(),
        Scalar::U16(v) | Scalar::Enum(v) => v.into(),
        Scalar::I32(v) => v.into(),
        Scalar::U32(v) => v.into(),
        Scalar::I64(v) => v as f64,
        Scalar::U64(v) => v as f64,
        Scalar::F32(v) => v.into(),
        Scalar::F64(v) => v,
    })
}

fn now() -> Now {
    Now { mono: Session::now(), wall: Wall(i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX)) }
}

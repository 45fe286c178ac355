//! Client of RecCeiver, the server of recsync (ChannelFinder): sends the names, types, aliases, info tags and descriptions of all
//! records, and variables of the environment. In C's IOC it is the module reccaster.
//!
//! A thread has the sockets; the rules are in `caster`. It runs only if a script uses the module, and by default accepts only
//! RecCeivers of this host.

mod caster;
mod status;
mod wire;

pub(crate) use caster::{Servers, Settings};
pub(crate) use status::{RecCaster, Status};

use crate::engine::Mailbox;
use base::raw::{encode, readable};
use base::{DurNs, MonoNs};
use canet::Waker;
use canet::net::shared_udp;
use canet::streams::Streams;
use caster::{Caster, State};
use db::{Db, RecId};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub(crate) const ANNOUNCE_PORT: u16 = wire::ANNOUNCE_PORT;

/// Broadcast address of the loopback interface: all programs of this host receive what is sent to it.
const HOST_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
/// Records that the engine lists in one turn.
const RECORDS_MAX: usize = 256;
/// Maximum number of datagrams taken from one socket in a row.
const DATAGRAMS_MAX: usize = 64;
/// Wait without a deadline.
const IDLE: DurNs = DurNs::from_secs(3_600);

/// Contents of an upload besides the records.
pub(crate) struct Contents {
    /// Properties of the IOC.
    pub(crate) properties: Vec<(String, String)>,
    /// Patterns of names that are not sent.
    pub(crate) excluded: Vec<String>,
}

/// The client's thread.
pub(crate) struct Running {
    bell: Waker,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(mailbox: Mailbox, settings: Settings, contents: Contents, status: Status) -> io::Result<Self> {
        let (bell, stop) = (Waker::new()?, Arc::<AtomicBool>::default());
        let client = Client {
            caster: Caster::new(settings.clone(), sys::clock::mono_now()),
            settings,
            streams: Streams::default(),
            sockets: Vec::new(),
            upload: None,
            contents: Arc::new(contents),
            mailbox,
            status,
            printed: String::new(),
        };
        let (waited, stopped) = (bell.clone(), Arc::clone(&stop));
        let run = move || {
            if let Err(error) = client.run(&waited, &stopped) {
                eprintln!("reccaster: records are no longer announced: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("reccaster".into()).spawn(run)?;
        Ok(Self { bell, stop, thread })
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.bell.wake();
        let _ = self.thread.join();
    }
}

/// An upload in progress.
struct Upload {
    /// Number of the first record of the next part.
    next: u32,
    aliases: Arc<HashMap<RecId, Vec<String>>>,
}

struct Client {
    caster: Caster,
    settings: Settings,
    streams: Streams<u32>,
    /// Sockets of announcements, while they are awaited.
    sockets: Vec<UdpSocket>,
    upload: Option<Upload>,
    contents: Arc<Contents>,
    mailbox: Mailbox,
    status: Status,
    /// The last line of the log.
    printed: String,
}

impl Client {
    fn run(mut self, bell: &Waker, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let now = sys::clock::mono_now();
            self.caster.handle_timeout(now);
            self.listen(now);
            self.streams.pump(&mut self.caster, now);
            self.report();
            if self.caster.wants_records() {
                if self.send_part(now).is_none() {
                    // The IOC has ended.
                    return Ok(());
                }
                continue;
            }
            self.wait(bell, now)?;
        }
        Ok(())
    }

    /// Opens or closes the sockets of announcements.
    fn listen(&mut self, now: MonoNs) {
        if !self.caster.searches() {
            self.sockets.clear();
        } else if self.sockets.is_empty() {
            let addresses = match self.settings.servers {
                Servers::ThisHost => vec![Ipv4Addr::LOCALHOST, HOST_BROADCAST],
                Servers::Listed(_) | Servers::Any => vec![Ipv4Addr::UNSPECIFIED],
            };
            match addresses.into_iter().map(|address| shared_udp(address.into(), self.settings.port)).collect() {
                Ok(sockets) => self.sockets = sockets,
                Err(error) => self.caster.search_failed(now, &error.to_string()),
            }
        }
    }

    fn wait(&mut self, bell: &Waker, now: MonoNs) -> io::Result<()> {
        let others: Vec<_> = std::iter::once(bell.fd()).chain(self.sockets.iter().map(AsFd::as_fd)).collect();
        let deadlines = [self.caster.poll_timeout(), self.streams.poll_timeout()];
        let until = deadlines.into_iter().flatten().fold(now + IDLE, MonoNs::min);
        let ready = self.streams.wait(&self.caster, &others, now, until)?;
        bell.answer();
        let now = sys::clock::mono_now();
        let mut buffer = [0; 64];
        for (socket, _) in self.sockets.iter().zip(&ready.others[1..]).filter(|(_, ready)| **ready) {
            for _ in 0..DATAGRAMS_MAX {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { break };
                if let SocketAddr::V4(from) = from {
                    self.caster.handle_datagram(now, *from.ip(), &buffer[..len], chance());
                }
            }
        }
        self.streams.serve(&mut self.caster, now, &ready);
        Ok(())
    }

    /// Uploads the next records; `None` if the IOC has ended.
    fn send_part(&mut self, now: MonoNs) -> Option<()> {
        let mut out = Vec::new();
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => {
                self.contents.properties.iter().for_each(|(name, value)| wire::info(&mut out, 0, name, value));
                let aliases = Arc::new(self.mailbox.ask(|engine| aliases(&engine.store.db))?);
                Upload { next: 0, aliases }
            }
        };
        let (next, aliases, contents) = (upload.next, Arc::clone(&upload.aliases), Arc::clone(&self.contents));
        let part = move |db: &Db| records(db, next, &aliases, &contents.excluded);
        let (messages, next) = self.mailbox.ask(move |engine| part(&engine.store.db))?;
        out.extend(messages);
        self.caster.upload(now, &out, next.is_none());
        self.upload = next.map(|next| Upload { next, ..upload });
        Some(())
    }

    /// Updates the records that show the state, and logs the end of an upload and errors.
    fn report(&mut self) {
        let (state, message) = self.caster.status();
        if state != State::Uploading {
            self.upload = None;
        }
        self.status.set(state as u16, message);
        if (state == State::Done || self.caster.is_pausing()) && self.printed != message {
            eprintln!("reccaster: {message}");
            message.clone_into(&mut self.printed);
        }
    }
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

/// Further names of records.
fn aliases(db: &Db) -> HashMap<RecId, Vec<String>> {
    let mut all: HashMap<RecId, Vec<String>> = HashMap::new();
    db.aliases().for_each(|(name, record)| all.entry(record).or_default().push(name.to_owned()));
    all
}

/// Messages about records from a number on, and the number at which to continue; `None` at the end. Texts that are not UTF-8 are
/// read as Latin-1.
fn records(db: &Db, from: u32, aliases: &HashMap<RecId, Vec<String>>, excluded: &[String]) -> (Vec<u8>, Option<u32>) {
    let mut out = Vec::new();
    let mut rest = db.records().filter(|record| record.0 >= from);
    for record in rest.by_ref().take(RECORDS_MAX) {
        let (name, number) = (db.name_of(record), record.0 + 1);
        if excluded.iter().any(|pattern| base::glob(pattern, name)) {
            continue;
        }
        wire::record(&mut out, number, db.type_name(record), &readable(&encode(name)));
        for alias in aliases.get(&record).into_iter().flatten() {
            wire::alias(&mut out, number, &readable(&encode(alias)));
        }
        for (key, value) in db.info_tags(record) {
            wire::info(&mut out, number, &readable(&encode(key)), &readable(&encode(value)));
        }
        wire::info(&mut out, number, "recordDesc", &db.description(record).readable());
    }
    let next = rest.next().map(|record| record.0);
    (out, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_sent_with_its_aliases_info_tags_and_description() {
        let mut db = Db::new();
        let text = "record(ai, \"X:a\") { field(DESC, \"20 \u{b0}C\") info(archive, \"1 s\") info(empty, \"\") }\n\
                    alias(\"X:a\", \"X:b\")\nrecord(ao, \"X:TEST:c\") {}\nrecord(bo, \"X:d\") {}\n";
        db.load_records(text, "a.db", &db::Macros::default(), &mut |_| None).unwrap();
        let (out, next) = records(&db, 0, &aliases(&db), &["*:TEST:*".into()]);
        let mut expected = Vec::new();
        let first = db.records().next().unwrap().0 + 1;
        wire::record(&mut expected, first, "ai", "X:a");
        wire::alias(&mut expected, first, "X:b");
        wire::info(&mut expected, first, "archive", "1 s");
        wire::info(&mut expected, first, "recordDesc", "20 \u{b0}C");
        wire::record(&mut expected, first + 2, "bo", "X:d");
        assert_eq!((readable(&out), next), (readable(&expected), None));
    }

    #[test]
    fn a_large_database_is_sent_in_parts_without_a_gap() {
        let text: String = (0..1_000).map(|nth| format!("record(ai, \"r{nth}\") {{}}\n")).collect();
        let mut db = Db::new();
        db.load_records(&text, "a.db", &db::Macros::default(), &mut |_| None).unwrap();
        let (mut all, mut next, mut parts) = (Vec::new(), Some(0), 0);
        while let Some(from) = next {
            let (part, then) = records(&db, from, &HashMap::new(), &[]);
            all.extend(part);
            (next, parts) = (then, parts + 1);
        }
        let mut expected = Vec::new();
        let first = db.records().next().unwrap().0 + 1;
        (0..1_000).for_each(|nth| wire::record(&mut expected, first + nth, "ai", &format!("r{nth}")));
        assert_eq!((all == expected, parts), (true, 4));
    }
}

//! What other hosts ask, as the message server of this host sees it: a client for each host and band.

use crate::key::{self, HostName};
use crate::link::Event;
use crate::wire;
use base::DurNs;
use broker::{Client, ClientError, Received, Sending, Waker};
use msg::{Band, Code, Failure, Header, Hop};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use zenoh::query::Query;
use zenoh::{Session, Wait};

/// How often a thread looks whether it is still wanted.
const LOOK: DurNs = DurNs::from_ms(100);
/// Requests of one host on one band that may wait to be given to the message server.
const QUEUE_MAX: usize = 256;
/// Most hosts that may ask. Each has threads of its own, one for each band that it uses.
const HOSTS_MAX: usize = 64;

/// What all threads of this side share.
pub(crate) struct Shared {
    pub(crate) server: String,
    pub(crate) here: HostName,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) events: Sender<Event>,
    /// The number of each host, in the order in which they asked first.
    numbers: Mutex<Vec<HostName>>,
}

impl Shared {
    pub(crate) fn new(server: &str, here: &HostName, stop: &Arc<AtomicBool>, events: &Sender<Event>) -> Arc<Self> {
        let (server, here) = (server.to_owned(), here.clone());
        Arc::new(Self { server, here, stop: stop.clone(), events: events.clone(), numbers: Mutex::default() })
    }

    /// The host's number; `None` when too many have asked.
    fn number(&self, host: &HostName) -> Option<u16> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = numbers.iter().position(|known| known == host) {
            return Some(at as u16 + 1);
        }
        if numbers.len() >= HOSTS_MAX {
            return None;
        }
        numbers.push(host.clone());
        let number = numbers.len() as u16;
        // Nobody listens only while the link ends.
        let _ = self.events.send(Event::Numbered(host.clone(), number));
        Some(number)
    }
}

/// Where the requests of one host on one band go.
struct Way {
    queue: SyncSender<Query>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// Takes requests of a band until the queryable that it returns is dropped.
pub(crate) fn listen(
    session: &Session,
    shared: &Arc<Shared>,
    band: Band,
) -> Result<zenoh::query::Queryable<()>, String> {
    let ways: Mutex<HashMap<HostName, Way>> = Mutex::default();
    let here = shared.clone();
    let queryable =
        session.declare_queryable(key::requests(&shared.here, band, None)).complete(true).callback(move |query| {
            let Some(host) = key::asker(query.key_expr().as_str()) else {
                return refuse(&query, Code::Malformed, "no name of a host stands behind the band");
            };
            let mut ways = ways.lock().unwrap_or_else(PoisonError::into_inner);
            let way = match ways.get(&host) {
                Some(way) => way,
                None => match Way::open(&here, band, &host) {
                    Ok(way) => ways.entry(host).or_insert(way),
                    Err(why) => return refuse(&query, Code::Overload, &why),
                },
            };
            match way.queue.try_send(query) {
                Ok(()) => {
                    if let Some(waker) = way.waker.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                        waker.wake();
                    }
                }
                Err(TrySendError::Full(query)) => {
                    refuse(&query, Code::Overload, &format!("{QUEUE_MAX} requests of this host and band wait already"));
                }
                Err(TrySendError::Disconnected(query)) => refuse(&query, Code::Internal, "the link is ending"),
            }
        });
    queryable.wait().map_err(|error| error.to_string())
}

/// Answers what was not passed on. A request that cannot be read has no id: its reply's is 0.
fn refuse(query: &Query, code: Code, why: &str) {
    let bytes = query.payload().map(|payload| payload.to_bytes());
    let header = bytes.as_deref().and_then(|bytes| wire::parse_request(bytes).ok()).map(|read| read.header);
    respond(query, &header.unwrap_or(Header::request(Band::DEFAULT, 0)), code, why, &[]);
}

fn respond(query: &Query, asked: &Header, code: Code, complement: &str, body: &[u8]) {
    // A reply of the message server fits between hosts; ours are short.
    let Ok(bytes) = wire::reply(asked, code, complement, body) else { return };
    // Who asked and has gone is told by Zenoh's own time limit.
    let _ = query.reply(query.key_expr().clone(), bytes).wait();
}

impl Way {
    fn open(shared: &Arc<Shared>, band: Band, host: &HostName) -> Result<Self, String> {
        let number = shared.number(host).ok_or_else(|| format!("{HOSTS_MAX} hosts have asked already"))?;
        let (queue, queries) = sync_channel(QUEUE_MAX);
        let waker = Arc::new(Mutex::new(None));
        let passing = Passing {
            name: format!("host:{host}"),
            shared: shared.clone(),
            band,
            number,
            waker: waker.clone(),
            queries,
            pending: HashMap::new(),
        };
        std::thread::spawn(move || passing.run());
        Ok(Self { queue, waker })
    }
}

/// The thread that asks the message server for one host on one band.
struct Passing {
    name: String,
    shared: Arc<Shared>,
    band: Band,
    number: u16,
    waker: Arc<Mutex<Option<Waker>>>,
    queries: Receiver<Query>,
    pending: HashMap<u64, (Query, Header)>,
}

impl Passing {
    fn run(mut self) {
        let mut client = None;
        while !self.shared.stop.load(Ordering::Relaxed) {
            match &mut client {
                Some(connected) => {
                    if self.round(connected).is_err() {
                        client = None;
                        self.lost();
                    }
                }
                None => match Client::for_host(&self.shared.server, &self.name, self.band, self.number) {
                    Ok(connected) => client = Some(connected),
                    Err(error) => self.refuse_next(&error),
                },
            }
        }
    }

    /// Gives the server what came, and hears one answer.
    fn round(&mut self, client: &mut Client) -> Result<(), ClientError> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = client.waker();
        while let Ok(query) = self.queries.try_recv() {
            self.pass(query, client);
        }
        match client.next(LOOK)? {
            Some(received) if !received.event => self.answer(&received),
            _ => {}
        }
        Ok(())
    }

    fn pass(&mut self, query: Query, client: &mut Client) {
        let bytes = query.payload().map(|payload| payload.to_bytes().into_owned()).unwrap_or_default();
        let read = match wire::parse_request(&bytes) {
            Ok(read) => read,
            Err(why) => return respond(&query, &Header::request(self.band, 0), Code::Malformed, &why, &[]),
        };
        let header = read.header;
        let Header { flags, pulse, subject, .. } = header;
        match client.send(read.line, &Sending { limit: read.limit, flags, pulse, body: read.body, subject }) {
            Ok(id) => {
                self.pending.insert(id, (query, header));
            }
            Err(ClientError::Full) => respond(&query, &header, Code::Overload, &ClientError::Full.to_string(), &[]),
            Err(error) => respond(&query, &header, Code::NoObject, &error.to_string(), &[]),
        }
    }

    fn answer(&mut self, received: &Received) {
        if let Some((query, header)) = self.pending.remove(&received.id) {
            respond(&query, &header, received.code, &received.text, &received.body);
        }
    }

    /// The server is gone with what it was given.
    fn lost(&mut self) {
        for (query, header) in std::mem::take(&mut self.pending).into_values() {
            let died = Failure::Died { hop: Hop::Server, after: DurNs::ZERO };
            respond(&query, &header, died.code(), &died.to_string(), &[]);
        }
    }

    /// No server: what waits is told, nothing was executed.
    fn refuse_next(&mut self, why: &ClientError) {
        let wait = std::time::Duration::from_nanos(LOOK.0.unsigned_abs());
        if let Ok(query) = self.queries.recv_timeout(wait) {
            refuse(&query, Code::NoObject, &why.to_string());
        }
    }
}

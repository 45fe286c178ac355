//! The side of the link that handles requests of other hosts: a client of this host's message server for each host and
//! band.

use crate::key::{self, HostName};
use crate::link::Event;
use crate::wire;
use broker::relay::{Passed, QUEUE_MAX, Relay};
use msg::{Band, Code, Header};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use sys::clock::mono_now;
use zenoh::query::Query;
use zenoh::{Session, Wait};

/// Maximum number of requesting hosts. Each has one thread for each band that it uses.
const HOSTS_MAX: usize = 64;

/// State shared by all threads of this side.
pub(crate) struct Shared {
    pub(crate) server: String,
    pub(crate) here: HostName,
    pub(crate) bodies: u64,
    pub(crate) events: Sender<Event>,
    /// Hosts that have sent requests.
    asking: Mutex<Vec<HostName>>,
}

impl Shared {
    pub(crate) fn new(server: &str, here: &HostName, bodies: u64, events: &Sender<Event>) -> Arc<Self> {
        let (server, here) = (server.to_owned(), here.clone());
        Arc::new(Self { server, here, bodies, events: events.clone(), asking: Mutex::default() })
    }

    /// Admits a host, unless too many others have sent requests.
    fn admit(&self, host: &HostName) -> bool {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.contains(host) {
            return true;
        }
        let room = asking.len() < HOSTS_MAX;
        if room {
            asking.push(host.clone());
            // Fails only while the link ends.
            let _ = self.events.send(Event::Asks(host.clone()));
        }
        room
    }
}

/// Handles requests of a band until the returned queryable is dropped.
pub(crate) fn listen(
    session: &Session,
    shared: &Arc<Shared>,
    band: Band,
) -> zenoh::Result<zenoh::query::Queryable<()>> {
    let ways: Mutex<HashMap<HostName, HostRelay>> = Mutex::default();
    let here = shared.clone();
    let queryable =
        session.declare_queryable(key::requests(&shared.here, band, None)).complete(true).callback(move |query| {
            let Some(host) = key::asker(query.key_expr().as_str()) else {
                return refuse(&query, Code::Malformed, "the name of a host is missing after the band");
            };
            let mut ways = ways.lock().unwrap_or_else(PoisonError::into_inner);
            let way = match ways.get(&host) {
                Some(way) => way,
                None => match way(&here, band, &host) {
                    Ok(way) => ways.entry(host).or_insert(way),
                    Err(why) => return refuse(&query, Code::Overload, &why.to_string()),
                },
            };
            let bytes = query.payload().map(|payload| payload.to_bytes()).unwrap_or_default();
            let read = match wire::parse_request(&bytes) {
                Ok(read) => read,
                Err(why) => return refuse(&query, Code::Malformed, &why.to_string()),
            };
            let header = read.header;
            let passed = Passed {
                line: read.line.to_owned(),
                until: mono_now() + read.limit,
                flags: header.flags,
                pulse: header.pulse,
                body: read.body.to_vec(),
                answer: read.answer,
                subject: header.subject,
                token: (query.clone(), header),
            };
            if way.pass(passed).is_err() {
                refuse(&query, Code::Overload, &format!("{QUEUE_MAX} requests of this host and band wait already"));
            }
        });
    queryable.wait()
}

/// Answers a request that was not forwarded. If the request cannot be parsed, the reply has the id 0.
fn refuse(query: &Query, code: Code, why: &str) {
    let bytes = query.payload().map(|payload| payload.to_bytes());
    let header = bytes.as_deref().and_then(|bytes| wire::parse_request(bytes).ok()).map(|read| read.header);
    respond(query, &header.unwrap_or(Header::request(Band::DEFAULT, 0)), code, why, &[]);
}

fn respond(query: &Query, asked: &Header, code: Code, complement: &str, body: &[u8]) {
    // Cannot fail: replies of the message server are within the limits, and replies made here are short.
    let Ok(bytes) = wire::reply(asked, code, complement, body) else { return };
    // If this fails, the remote host has gone, or reports Zenoh's timeout.
    let _ = query.reply(query.key_expr().clone(), bytes).wait();
}

/// Too many hosts have sent requests.
#[derive(Debug, thiserror::Error)]
#[error("{HOSTS_MAX} hosts already send requests")]
struct HostsError;

/// Forwards requests of one host on one band. Dropping it ends its thread.
type HostRelay = Relay<(Query, Header)>;

fn way(shared: &Shared, band: Band, host: &HostName) -> Result<HostRelay, HostsError> {
    if !shared.admit(host) {
        return Err(HostsError);
    }
    Ok(Relay::start(
        &shared.server,
        &format!("host:{host}"),
        band,
        host.text(),
        shared.bodies,
        |(query, header): (Query, Header), code, text, body| {
            respond(&query, &header, code, text, body);
        },
    ))
}

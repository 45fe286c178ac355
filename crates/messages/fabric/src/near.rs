//! The side of the link that serves local clients: each remote host is a manager at this host's message server.

use crate::key::{self, HostName};
use crate::link::Config;
use crate::wire;
use base::DurNs;
use broker::{ClientError, Manager, ManagerLane, Replies, Waker};
use msg::{Answer, Band, Code, Failure, Hop, ManagerRequest, Ticket};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use zenoh::Session;
use zenoh::Wait;
use zenoh::handlers::CallbackDrop;
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, QueryTarget, Reply};

/// Time between two checks of a thread whether it must end.
const LOOK: DurNs = DurNs::from_ms(100);
/// Maximum number of outstanding requests per band and host.
const WAITING_MAX: usize = 4096;

/// A remote host, registered as a manager at this host's message server. When this value is dropped, the server answers
/// the outstanding requests.
pub(crate) struct Neighbour {
    pub(crate) serves: BTreeSet<String>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbour {
    /// Registers the objects of `host` at the message server of this host.
    pub(crate) fn new(
        session: &Session,
        config: &Config,
        host: &HostName,
        serves: BTreeSet<String>,
    ) -> Result<Self, ClientError> {
        let Config { server, host: here, bodies, .. } = config;
        let prefixes: Vec<&str> = serves.iter().map(String::as_str).collect();
        let bands: Vec<Band> = Band::all().collect();
        let lanes = Manager::with_bodies(server, &format!("host:{host}"), &prefixes, &bands, *bodies)?;
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |lane: ManagerLane| {
            let key = key::requests(host, lane.band(), Some(here));
            let (session, host, stop) = (session.clone(), host.clone(), stop.clone());
            std::thread::spawn(move || Crossing::new(session, key, host, lane.waker()).run(lane, &stop))
        };
        let threads = lanes.into_iter().map(spawn).collect();
        Ok(Self { serves, stop, threads })
    }

    /// Whether it is still connected to the message server.
    pub(crate) fn is_alive(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed so. Its connection is closed like those of the others.
            let _ = thread.join();
        }
    }
}

/// Progress of a request.
enum News {
    /// The remote host has answered.
    Answered(Vec<u8>),
    /// The Zenoh query has ended.
    Over,
}

/// Forwards the requests of one band to one host.
struct Crossing {
    session: Session,
    key: String,
    host: HostName,
    waker: Waker,
    tell: Sender<(u64, News)>,
    news: Receiver<(u64, News)>,
    waiting: HashMap<u64, (Ticket, base::MonoNs)>,
}

impl Crossing {
    fn new(session: Session, key: String, host: HostName, waker: Waker) -> Self {
        let (tell, news) = channel();
        Self { session, key, host, waker, tell, news, waiting: HashMap::new() }
    }

    fn run(mut self, mut lane: ManagerLane, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            // The server has gone. The link creates a new neighbour when it is back.
            let Ok(_) = lane.serve(LOOK, |asked, replies| self.send(asked, replies)) else { return };
            lane.replies(|replies| {
                while let Ok((id, news)) = self.news.try_recv() {
                    self.hear(id, news, replies);
                }
            });
        }
    }

    fn send(&mut self, asked: &ManagerRequest<'_>, replies: &mut Replies<'_>) {
        if let Err((code, why)) = self.try_send(asked) {
            replies.answer(asked.ticket, &Answer::failed(code, &why));
        }
    }

    fn try_send(&mut self, asked: &ManagerRequest<'_>) -> Result<(), (Code, String)> {
        let host = &self.host;
        if asked.subject.host != 0 {
            return Err((Code::NoObject, format!("host {host} is one hop further; hosts ask each other directly")));
        }
        let verb = asked.request.verb;
        if verb.is_servers() {
            return Err((Code::NoVerb, format!("{verb} does not reach over to host {host}; ask its own server")));
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err((Code::Overload, format!("{WAITING_MAX} requests wait for host {host} already")));
        }
        let (now, id) = (mono_now(), asked.ticket.id);
        let limit = wire::limit(asked.deadline - now);
        let bytes = wire::request(asked, wire::limit(limit)).map_err(|error| (Code::Malformed, error.to_string()))?;
        let (answers, over) = (self.tell.clone(), self.tell.clone());
        let (answered, done) = (self.waker.clone(), self.waker.clone());
        // The receiver lives as long as this thread, so a failed send can be ignored.
        let callback = move |reply: Reply| {
            // An error comes from Zenoh itself, usually a timeout. The end of the query reports it too.
            if let Ok(sample) = reply.result() {
                let _ = answers.send((id, News::Answered(sample.payload().to_bytes().into_owned())));
                answered.wake();
            }
        };
        let drop = move || {
            let _ = over.send((id, News::Over));
            done.wake();
        };
        let get = self
            .session
            .get(self.key.as_str())
            .payload(bytes)
            .target(QueryTarget::BestMatching)
            .consolidation(ConsolidationMode::None)
            .priority(wire::priority(asked.band()))
            .congestion_control(CongestionControl::Block)
            .express(true)
            .timeout(std::time::Duration::from_nanos(limit.0.unsigned_abs()));
        self.waiting.insert(id, (asked.ticket, now));
        get.with(CallbackDrop { callback, drop }).wait().map_err(|error| {
            self.waiting.remove(&id);
            (Code::Internal, format!("host {}: {error}", self.host))
        })
    }

    /// Answers a request with its first result. Later ones are ignored.
    fn hear(&mut self, id: u64, news: News, replies: &mut Replies<'_>) {
        let Some((ticket, since)) = self.waiting.remove(&id) else { return };
        let (hop, after) = (Hop::Host(self.host.text()), mono_now() - since);
        match news {
            News::Answered(bytes) => match wire::parse_reply(&bytes) {
                Ok((code, complement, body)) => {
                    replies.answer(ticket, &Answer { code, complement: &complement, body: &body });
                }
                Err(why) => {
                    replies.answer(
                        ticket,
                        &Answer::failed(Code::Internal, &format!("{hop} sent an invalid reply: {why}")),
                    );
                }
            },
            News::Over => {
                let silent = Failure::NoAnswer { hop, after };
                replies.answer(ticket, &Answer::failed(silent.code(), &silent.to_string()));
            }
        }
    }
}

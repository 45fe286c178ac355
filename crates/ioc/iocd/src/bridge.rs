//! Links between records of different owners in the same IOC. Values and writes travel as jobs, with the behaviour of Channel
//! Access but without a network.

use crate::guard::GUARD;
use crate::job::OwnerRequest;
use crate::sequencer::SEQUENCER;
use crate::store::Store;
use base::{Alarm, EventMask, Meta, Stamp, Value};
use ca::encode::{Needs, Reading};
use ca::server::{Backend, Get, Opened, Peer, Post, PutOutcome, Token, Write};
use db::{RemoteId, RemoteRequest};
use std::collections::HashMap;

/// Holder of a link: a shard by number, the housekeeping shard (`None`), access security, or the programs.
pub(crate) type Holder = Option<usize>;

/// Token of a write without completion.
const NOBODY: Token = Token(u64::MAX);
/// Tokens from here up belong to writes of links or the interpreter with completion. Lower ones belong to circuits.
const AWAITED: u64 = 1 << 63;
const _: () = assert!(Token::END <= AWAITED);

const SELF: Peer<'_> = Peer { user: "", host: "", address: "" };

struct Bridge {
    opened: Opened,
    name: String,
    monitor: bool,
}

/// Called on the network thread when a write has ended, with whether it succeeded.
pub(crate) type WriteCallback = Box<dyn FnOnce(bool) + Send>;

/// Requester of a write with completion.
enum Waits {
    Link(Holder, RemoteId),
    /// A link that reads once.
    Read(Holder, RemoteId),
    /// The interpreter, with the handle of the field.
    Shell(u64, WriteCallback),
}

/// All links between owners.
#[derive(Default)]
pub(crate) struct Bridges {
    links: HashMap<(Holder, RemoteId), Bridge>,
    /// Links to names that are not in this IOC. Records with these names may be loaded later.
    elsewhere: HashMap<(Holder, RemoteId), (String, bool)>,
    /// Links that monitor a field, by the number of the field.
    watched: HashMap<u64, Vec<(Holder, RemoteId)>>,
    /// Requester of each write in progress, by token.
    awaited: HashMap<u64, Waits>,
    tokens: u64,
}

impl Bridges {
    /// Handles a link's request if its target is in this IOC; otherwise returns the request.
    pub(crate) fn take(&mut self, holder: Holder, request: RemoteRequest, store: &mut Store) -> Option<RemoteRequest> {
        match request {
            RemoteRequest::Connect { pva: Some(_), .. } => Some(request),
            RemoteRequest::Connect { id, ref name, monitor, pva: None } => {
                let Some(opened) = store.open(name.as_bytes(), SELF) else {
                    // Access security updates its own links to new records.
                    if holder != GUARD {
                        self.elsewhere.insert((holder, id), (name.clone(), monitor));
                    }
                    return Some(request);
                };
                let count = opened.count;
                self.links.insert((holder, id), Bridge { opened, name: name.clone(), monitor });
                if let Some(meta) = store.ask_properties(opened.handle, holder, id) {
                    properties(store, holder, id, meta);
                }
                if !monitor {
                    tell(store, holder, OwnerRequest::Connect { id, connected: true, count });
                    return None;
                }
                self.watched.entry(opened.handle).or_default().push((holder, id));
                if !store.watch(opened.handle) {
                    return None;
                }
                let mut reading = Reading::default();
                match store.read(opened.handle, Needs::Value, &mut reading, None) {
                    Ok(Get::Done) => update(store, holder, id, reading.value, reading.alarm, reading.stamp),
                    // The first value arrives as a post.
                    _ => store.fetch(opened.handle),
                }
                None
            }
            RemoteRequest::Put { id, value, notify } => match self.links.get(&(holder, id)) {
                Some(bridge) => {
                    let handle = bridge.opened.handle;
                    let token = if notify { self.wait(Waits::Link(holder, id)) } else { NOBODY };
                    let put = store.write(handle, SELF, Write::Value(value), token, notify);
                    self.answered(token, put, store);
                    None
                }
                None => Some(RemoteRequest::Put { id, value, notify }),
            },
            RemoteRequest::Get { id } => {
                let Some(bridge) = self.links.get(&(holder, id)) else { return Some(request) };
                let (handle, monitor) = (bridge.opened.handle, bridge.monitor);
                let token = self.wait(Waits::Read(holder, id));
                let mut reading = Reading::default();
                // The newest value of a monitored field of another owner has arrived before the end of the write that it
                // belongs to.
                let read = store.read(handle, Needs::Value, &mut reading, (!monitor).then_some(token));
                if !matches!(read, Ok(Get::Sent)) {
                    self.has_read(token, read.is_ok().then_some(reading), store);
                }
                None
            }
            RemoteRequest::Process { id } => {
                let Some(bridge) = self.links.get(&(holder, id)) else { return Some(request) };
                store.process_if_passive(bridge.opened.handle);
                None
            }
            RemoteRequest::Disconnect { id } => {
                let Some(bridge) = self.links.remove(&(holder, id)) else {
                    self.elsewhere.remove(&(holder, id));
                    return Some(request);
                };
                let handle = bridge.opened.handle;
                if bridge.monitor {
                    if let Some(list) = self.watched.get_mut(&handle) {
                        list.retain(|link| *link != (holder, id));
                    }
                    store.unwatch(handle);
                }
                store.close(handle);
                None
            }
        }
    }

    /// Whether a token belongs to a link or the interpreter.
    pub(crate) const fn is_own(token: Token) -> bool {
        token.0 >= AWAITED
    }

    fn wait(&mut self, waits: Waits) -> Token {
        self.tokens = (self.tokens + 1) % (AWAITED - 1);
        let token = Token(AWAITED + self.tokens);
        self.awaited.insert(token.0, waits);
        token
    }

    /// Writes a field for the interpreter. Returns whether the field exists.
    pub(crate) fn write(&mut self, name: &str, value: Value, told: WriteCallback, store: &mut Store) -> bool {
        let Some(Opened { handle, .. }) = store.open(name.as_bytes(), SELF) else { return false };
        let token = self.wait(Waits::Shell(handle, told));
        let put = store.write(handle, SELF, Write::Value(value), token, true);
        self.answered(token, put, store);
        true
    }

    /// Handles the result of starting a write. Returns whether the token belongs to a link or the interpreter. As over
    /// Channel Access, a write without completion gets no answer.
    pub(crate) fn answered(&mut self, token: Token, put: PutOutcome, store: &mut Store) -> bool {
        match put {
            PutOutcome::Done => self.done(token, true, store),
            PutOutcome::Failed => self.done(token, false, store),
            PutOutcome::Later | PutOutcome::Sent => token.0 >= AWAITED,
        }
    }

    /// Handles the end of a write. Returns whether the token belongs to a link or the interpreter.
    pub(crate) fn done(&mut self, token: Token, ok: bool, store: &mut Store) -> bool {
        match self.awaited.remove(&token.0) {
            Some(Waits::Link(holder, id)) => tell(store, holder, OwnerRequest::Written { id, ok }),
            Some(Waits::Read(..)) => {}
            Some(Waits::Shell(handle, told)) => {
                store.close(handle);
                told(ok);
            }
            None => {}
        }
        token.0 >= AWAITED
    }

    /// Forwards the answer to a read of a link; `None` if it failed.
    pub(crate) fn has_read(&mut self, token: Token, reading: Option<Reading>, store: &mut Store) {
        if let Some(Waits::Read(holder, id)) = self.awaited.remove(&token.0) {
            let (alarm, stamp) =
                reading.as_ref().map_or_else(Default::default, |reading| (reading.alarm, reading.stamp));
            let value = reading.map(|reading| reading.value);
            tell(store, holder, OwnerRequest::Got { id, value, alarm, stamp });
        }
    }

    /// Forwards a post of a field to the links that monitor it, if value or alarm changed.
    pub(crate) fn post(&self, post: &Post, store: &mut Store) {
        if !post.mask.meets(EventMask::VALUE | EventMask::ALARM) {
            return;
        }
        for (holder, id) in self.watched.get(&post.watch).into_iter().flatten() {
            update(store, *holder, *id, post.value.clone(), post.alarm, post.stamp);
        }
    }

    /// Disconnects the links to removed fields. Returns requests to connect them elsewhere, because the names may exist in
    /// another IOC or be loaded later.
    pub(crate) fn drop_handles(&mut self, gone: &[u64], store: &mut Store) -> Vec<(Holder, RemoteRequest)> {
        let links: Vec<(Holder, RemoteId)> = self
            .links
            .iter()
            .filter(|(_, bridge)| gone.contains(&bridge.opened.handle))
            .map(|(link, _)| *link)
            .collect();
        let mut asked = Vec::new();
        for (holder, id) in links {
            let Some(bridge) = self.links.get(&(holder, id)) else { continue };
            let name = bridge.name.clone();
            let connect = RemoteRequest::Connect { id, name, monitor: bridge.monitor, pva: None };
            if holder != GUARD {
                asked.push((holder, connect));
            }
            tell(store, holder, OwnerRequest::Connect { id, connected: false, count: 0 });
            self.take(holder, RemoteRequest::Disconnect { id }, store);
        }
        asked
    }

    /// Links to other IOCs whose name now exists in this one. They must be disconnected there and connected here.
    pub(crate) fn found(&mut self, store: &Store) -> Vec<(Holder, RemoteRequest)> {
        let here = self.elsewhere.extract_if(|_, (name, _)| store.db.find(name).is_ok());
        let connect =
            |((holder, id), (name, monitor))| (holder, RemoteRequest::Connect { id, name, monitor, pva: None });
        here.map(connect).collect()
    }
}

fn update(store: &mut Store, holder: Holder, id: RemoteId, value: Value, alarm: Alarm, stamp: Stamp) {
    tell(store, holder, OwnerRequest::Update { id, value: Some(value), alarm, stamp });
}

/// Sends the properties of a link's target to the link's holder.
pub(crate) fn properties(store: &mut Store, holder: Holder, id: RemoteId, meta: Meta) {
    tell(store, holder, OwnerRequest::Meta { id, meta: Some(Box::new(meta)) });
}

/// Sends a change of a link to its holder.
pub(crate) fn tell(store: &mut Store, holder: Holder, request: OwnerRequest) {
    match (holder, request) {
        (GUARD, OwnerRequest::Update { id, value, alarm, .. }) => {
            store.guard.update(id, value.as_ref().map(|value| (value, alarm)));
        }
        (GUARD, OwnerRequest::Connect { id, connected: false, .. }) => store.guard.update(id, None),
        (GUARD, _) => {}
        (SEQUENCER, request) => store.programs.tell(request),
        (owner, request) => store.ask(owner, request),
    }
}

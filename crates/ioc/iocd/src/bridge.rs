//! Links from one owner's records to another owner's, in the same IOC: values and writes go as jobs, as over Channel
//! Access, without a network.

use crate::guard::GUARD;
use crate::job::OwnerRequest;
use crate::store::Store;
use base::{Alarm, EventMask, Meta, Stamp, Value};
use ca::encode::{Needs, Reading};
use ca::server::{Backend, Get, Opened, Peer, Post, Put, Token, Write};
use db::{RemoteId, RemoteRequest};
use std::collections::HashMap;

/// Who holds a link: records of a shard, or of the housekeeping shard, or access security.
pub(crate) type Holder = Option<usize>;

/// Nobody waits for the answer to a link's write.
const NOBODY: Token = Token(u64::MAX);
/// Tokens from here up are of links, or the interpreter, that wait for the end of their write; circuits have others.
const AWAITED: u64 = 1 << 63;

const SELF: Peer<'_> = Peer { user: "", host: "", address: "" };

struct Bridge {
    opened: Opened,
    name: String,
    monitor: bool,
}

/// Is told, on the network's thread, that a write has ended and whether it went well.
pub(crate) type WriteDone = Box<dyn FnOnce(bool) + Send>;

/// Who waits for the end of a write.
enum Waits {
    Link(Holder, RemoteId),
    /// The interpreter, with the field's handle.
    Shell(u64, WriteDone),
}

/// All links between owners.
#[derive(Default)]
pub(crate) struct Bridges {
    links: HashMap<(Holder, RemoteId), Bridge>,
    /// Links to names that no record of this IOC has: a later one may.
    elsewhere: HashMap<(Holder, RemoteId), (String, bool)>,
    /// Who wants the posts of a field.
    watched: HashMap<u64, Vec<(Holder, RemoteId)>>,
    /// Who waits for the end of a write, by its token.
    awaited: HashMap<u64, Waits>,
    tokens: u64,
}

impl Bridges {
    /// Does what a link asks for, if it leads to a record of this IOC; hands the request back if not.
    pub(crate) fn take(&mut self, holder: Holder, request: RemoteRequest, store: &mut Store) -> Option<RemoteRequest> {
        match request {
            RemoteRequest::Connect { id, ref name, monitor } => {
                let Some(opened) = store.open(name.as_bytes(), SELF) else {
                    // Access security follows its inputs anew by itself.
                    if holder != GUARD {
                        self.elsewhere.insert((holder, id), (name.clone(), monitor));
                    }
                    return Some(request);
                };
                self.links.insert((holder, id), Bridge { opened, name: name.clone(), monitor });
                if let Some(meta) = store.ask_properties(opened.handle, holder, id) {
                    properties(store, holder, id, meta);
                }
                if !monitor {
                    tell(store, holder, OwnerRequest::Connect { id, connected: true });
                    return None;
                }
                self.watched.entry(opened.handle).or_default().push((holder, id));
                if !store.watch(opened.handle) {
                    return None;
                }
                let mut reading = Reading::default();
                match store.read(opened.handle, Needs::Value, &mut reading, None) {
                    Ok(Get::Done) => update(store, holder, id, reading.value, reading.alarm, reading.stamp),
                    // It comes as a post.
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
            RemoteRequest::Process { id } => {
                if let Some(bridge) = self.links.get(&(holder, id)) {
                    store.process_if_passive(bridge.opened.handle);
                }
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

    fn wait(&mut self, waits: Waits) -> Token {
        self.tokens = (self.tokens + 1) % (AWAITED - 1);
        let token = Token(AWAITED + self.tokens);
        self.awaited.insert(token.0, waits);
        token
    }

    /// Writes a field for the interpreter; whether there is such a field.
    pub(crate) fn write(&mut self, name: &str, value: Value, told: WriteDone, store: &mut Store) -> bool {
        let Some(Opened { handle, .. }) = store.open(name.as_bytes(), SELF) else { return false };
        let token = self.wait(Waits::Shell(handle, told));
        let put = store.write(handle, SELF, Write::Value(value), token, true);
        self.answered(token, put, store);
        true
    }

    /// What became of a link's write; whether the token is one of a link's. As over Channel Access, a link that does not
    /// wait does not hear of it.
    pub(crate) fn answered(&mut self, token: Token, put: Put, store: &mut Store) -> bool {
        match put {
            Put::Done => self.done(token, true, store),
            Put::Failed => self.done(token, false, store),
            Put::Later | Put::Sent => token.0 >= AWAITED,
        }
    }

    /// A link's write has ended; whether the token is one of a link's.
    pub(crate) fn done(&mut self, token: Token, ok: bool, store: &mut Store) -> bool {
        match self.awaited.remove(&token.0) {
            Some(Waits::Link(holder, id)) => tell(store, holder, OwnerRequest::Written { id, ok }),
            Some(Waits::Shell(handle, told)) => {
                store.close(handle);
                told(ok);
            }
            None => {}
        }
        token.0 >= AWAITED
    }

    /// A field was posted: links to it get the value, unless only what they do not follow has changed.
    pub(crate) fn post(&self, post: &Post, store: &mut Store) {
        if !post.mask.meets(EventMask::VALUE | EventMask::ALARM) {
            return;
        }
        for (holder, id) in self.watched.get(&post.watch).into_iter().flatten() {
            update(store, *holder, *id, post.value.clone(), post.alarm, post.stamp);
        }
    }

    /// Fields that are there no more: links to them are disconnected. What they ask for then: there may be such a name
    /// elsewhere, or later.
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
            let connect = RemoteRequest::Connect { id, name: bridge.name.clone(), monitor: bridge.monitor };
            if holder != GUARD {
                asked.push((holder, connect));
            }
            tell(store, holder, OwnerRequest::Connect { id, connected: false });
            self.take(holder, RemoteRequest::Disconnect { id }, store);
        }
        asked
    }

    /// Links to elsewhere whose name is one of this IOC by now: they are to be disconnected there, and connected here.
    pub(crate) fn found(&mut self, store: &Store) -> Vec<(Holder, RemoteRequest)> {
        let here = self.elsewhere.extract_if(|_, (name, _)| store.db.find(name).is_ok());
        here.map(|((holder, id), (name, monitor))| (holder, RemoteRequest::Connect { id, name, monitor })).collect()
    }
}

fn update(store: &mut Store, holder: Holder, id: RemoteId, value: Value, alarm: Alarm, stamp: Stamp) {
    tell(store, holder, OwnerRequest::Update { id, value: Some(value), alarm, stamp });
}

/// Tells who holds a link the properties of what it leads to.
pub(crate) fn properties(store: &mut Store, holder: Holder, id: RemoteId, meta: Meta) {
    tell(store, holder, OwnerRequest::Meta { id, meta: Some(Box::new(meta)) });
}

/// Tells the records of `holder` what has become of a link.
pub(crate) fn tell(store: &mut Store, holder: Holder, request: OwnerRequest) {
    match (holder, request) {
        (GUARD, OwnerRequest::Update { id, value, alarm, .. }) => {
            store.guard.update(id, value.as_ref().map(|value| (value, alarm)));
        }
        (GUARD, OwnerRequest::Connect { id, connected: false }) => store.guard.update(id, None),
        (GUARD, _) => {}
        (owner, request) => store.ask(owner, request),
    }
}

//! Events from the owners of other shards, and from links between owners and to other IOCs.

use super::{Engine, now};
use crate::bridge::{self, Bridges, Holder, WriteCallback};
use crate::job::{Job, JobResult, OwnerEvent, OwnerRequest, Requester};
use crate::links::{Links, Servers};
use crate::store;
use crate::store::groups::GroupResult;
use base::Value;
use ca::server::{Access, Answer, Post, Token};
use db::{RecordLocation, RemoteRequest, Signal};

impl Engine {
    /// Takes the events of the other shards, a bounded number from each.
    pub(super) fn take_parts(&mut self) {
        self.store.now = now();
        let mut more = false;
        let mut taken = std::mem::take(&mut self.taken);
        for shard in 0..self.store.shards.len() {
            more |= self.store.shards[shard].take(&mut taken);
            for out in taken.drain(..) {
                self.take_out(shard, out);
            }
        }
        self.taken = taken;
        self.free_retired();
        self.settle();
        if more {
            self.net.waker().wake();
        }
    }

    pub(super) fn take_out(&mut self, shard: usize, out: OwnerEvent) {
        match out {
            OwnerEvent::Done(mut job) => {
                self.store.log_done(&mut job);
                self.take_done(job);
            }
            OwnerEvent::Post { key, value, alarm, stamp, note, mask } => {
                if let Some(post) = self.store.posted(key, mask, value, (alarm, stamp, note)) {
                    self.post(&post);
                }
            }
            OwnerEvent::Completed(done) => self.completed(&done),
            OwnerEvent::Remote(request) => self.remote(Some(shard), request),
            OwnerEvent::Regrouped(record, group) => {
                self.store.db.regroup_remote(RecordLocation { shard, record }, group)
            }
            OwnerEvent::Signal(signal) => self.signal(Some(shard), signal),
            OwnerEvent::Retired(shard) => self.retiring.push(shard),
        }
    }

    /// Routes the answer of a finished job to its requester.
    fn take_done(&mut self, mut job: Box<Job>) {
        let mono = self.store.now.mono;
        if let Requester::Group(call) = job.requester {
            self.store.group_done(call, *job);
            return self.deliver_groups();
        }
        match (job.requester, &job.outcome) {
            (Requester::Client(token), outcome) if let Some(request) = store::pva::request_of(token) => {
                let Some(pvaccess) = &mut self.pvaccess else { return };
                match outcome {
                    JobResult::Read(read) => {
                        let view = read.is_ok().then(|| store::pva::view(&job.reading));
                        pvaccess.server.answer(request, view, &mut self.store);
                    }
                    JobResult::Write(put) => {
                        pvaccess.server.written(request, store::pva::put(*put), &mut self.store);
                    }
                    JobResult::Nothing => {}
                }
            }
            (Requester::Client(token), JobResult::Read(read)) if Bridges::is_own(token) => {
                let reading = read.is_ok().then(|| std::mem::take(&mut job.reading));
                self.bridges.has_read(token, reading, &mut self.store);
            }
            (Requester::Client(token), JobResult::Read(read)) => {
                let answer = Answer::Read(read.map(|()| &job.reading));
                self.server.answer(mono, token, answer, &mut self.store);
            }
            (Requester::Client(token), JobResult::Write(put))
                if !self.bridges.answered(token, *put, &mut self.store) =>
            {
                self.server.answer(mono, token, Answer::Write(*put), &mut self.store);
            }
            (Requester::Watch { key, mask }, JobResult::Read(_)) => {
                if let Some(post) = self.store.fetched(key, mask, job) {
                    self.post(&post);
                }
            }
            (Requester::Link(holder, id), JobResult::Read(_)) => {
                bridge::properties(&mut self.store, holder, id, job.reading.meta);
            }
            _ => {}
        }
    }

    /// Routes the completion of a put callback: to a client or a link.
    pub(super) fn completed(&mut self, done: &db::Completed) {
        let (token, ok) = (Token(done.token), done.error.is_none());
        if let Some(completion) = store::groups::completion_of(token) {
            self.store.group_completed(completion, ok);
            self.deliver_groups();
        } else if let (Some(request), Some(pvaccess)) = (store::pva::request_of(token), &mut self.pvaccess) {
            pvaccess.server.put_done(request, ok, &mut self.store);
        } else if !self.bridges.done(token, ok, &mut self.store) {
            self.server.put_done(self.store.now.mono, token, ok, &mut self.store);
        }
    }

    /// Servers of the process variables that links use, with access rights. Those of this IOC have this host, as in C.
    pub(crate) fn servers(&self, names: impl IntoIterator<Item = String>) -> Servers {
        let elsewhere = self.links.as_ref().map(Links::servers).unwrap_or_default();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let here = Access { read: true, write: true };
        let server = |name: &str| match self.store.db.find(name) {
            Ok(_) => Some((host.clone(), here)),
            Err(_) => elsewhere.get(name).cloned(),
        };
        names.into_iter().filter_map(|name| server(&name).map(|server| (name, server))).collect()
    }

    /// Writes a field and reports completion, with whether it succeeded. Returns the record's name, if the field exists.
    pub(crate) fn write(&mut self, name: &str, value: Value, told: WriteCallback) -> Option<String> {
        let channel = self.store.db.find(name).ok()?;
        let record = self.store.db.name_of(channel.record).to_owned();
        self.bridges.write(name, value, told, &mut self.store).then_some(record)
    }

    /// Forwards a post to clients and links.
    pub(super) fn post(&mut self, post: &Post) {
        self.server.post(post, &mut self.store);
        self.bridges.post(post, &mut self.store);
        if let Some(pvaccess) = &mut self.pvaccess {
            let Post { watch, mask, alarm, stamp, note, ref value } = *post;
            pvaccess.server.post(&pva::server::Post { watch, mask, alarm, stamp, note, value }, &mut self.store);
            self.store.posted_to_groups(post);
            self.deliver_groups();
        }
    }

    /// Forwards the results of requests on groups.
    pub(super) fn deliver_groups(&mut self) {
        while let Some(result) = self.store.groups.next_result() {
            let Some(pvaccess) = &mut self.pvaccess else { continue };
            match result {
                GroupResult::Answer(token, answer) => {
                    pvaccess.server.answer_structure(token, answer, &mut self.store);
                }
                GroupResult::Written(token, put) => pvaccess.server.written(token, put, &mut self.store),
                GroupResult::Post(watch, snapshot) => pvaccess.server.post_structure(watch, &snapshot),
            }
        }
    }

    /// Handles requests of links to other IOCs.
    pub(crate) fn remote(&mut self, holder: Holder, request: RemoteRequest) {
        if let RemoteRequest::Connect { pva: Some(link), .. } = &request
            && link.local
            && self.store.db.find(&link.pv).is_err()
        {
            eprintln!(
                "link with local:true to {}: no record of this IOC has this name; it stays disconnected",
                link.pv
            );
            return;
        }
        if let Some(request) = self.bridges.take(holder, request, &mut self.store)
            && let Some(links) = &mut self.links
        {
            links.ask(holder, request);
        }
    }

    /// Sends a signal to all shards except those of the owner that it comes from.
    pub(super) fn signal(&mut self, from: Option<usize>, signal: Signal) {
        if from.is_some() {
            self.store.ask(None, OwnerRequest::Signal(signal));
        }
        let shards = &mut self.store.shards;
        let from = from.and_then(|shard| shards.get(shard)).map(|shard| shard.owner);
        let others = shards.iter_mut().filter(|shard| Some(shard.owner) != from);
        others.for_each(|shard| shard.ask(OwnerRequest::Signal(signal)));
    }
}

//! What travels between the network's thread and the owners of the database's shards.
//!
//! Jobs go to an owner and come back done, in the same box: memory is taken and freed on the network's side only.

use crate::bridge::Holder;
use crate::feed::Feed;
use crate::shard::Shard;
use base::{Alarm, EventMask, Meta, Scalar, Stamp, Str40, Value};
use ca::Eca;
use ca::encode::{Needs, Reading};
use ca::server::{Peer, Put, Write};
use db::{Channel, Completed, Db, Now, RecId, RemoteId, RemoteRequest, Signal, Token};

/// Something for an owner to do.
pub(crate) struct Job {
    pub(crate) requester: Requester,
    pub(crate) request: OwnerRequest,
    /// What was read; the network's side gives it the memory that it needs.
    pub(crate) reading: Reading,
    pub(crate) outcome: JobResult,
}

/// Who waits for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Nobody,
    /// A request on a circuit.
    Client(ca::server::Token),
    /// The properties, or the elements, of a field that is watched.
    Watch {
        key: u64,
        mask: EventMask,
    },
    /// A link that leads to the field, for its properties.
    Link(Holder, RemoteId),
}

/// Work with a database.
pub(crate) type Work = Box<dyn FnMut(&mut Db, Now) + Send>;

pub(crate) enum OwnerRequest {
    Read {
        channel: Channel,
        needs: Needs,
    },
    Write {
        channel: Channel,
        write: Write,
        /// The end is to be told, by this number.
        notify: Option<u64>,
        /// For the put log: the owner reads the field before, into the job's reading, and after.
        log: Option<Box<Logged>>,
    },
    /// Process the record if it is passive.
    Process(RecId),
    /// The end of a write is no longer awaited.
    Forget(u64),
    Watch {
        channel: Channel,
        key: u64,
    },
    Unwatch {
        key: u64,
    },
    /// A value for a link to elsewhere; the one before comes back.
    Update {
        id: RemoteId,
        value: Option<Value>,
        alarm: Alarm,
        stamp: Stamp,
    },
    /// Units, limits and names of states of a link's source; those before come back.
    Meta {
        id: RemoteId,
        meta: Option<Box<Meta>>,
    },
    Connect {
        id: RemoteId,
        connected: bool,
    },
    /// A link's write that was to be told of has ended.
    Written {
        id: RemoteId,
        ok: bool,
    },
    Signal(Signal),
    /// A function's call that was to end later has ended.
    Finish(Token),
    /// Periodic scans hold, or go on.
    Pause(bool),
    Feed(Option<Feed>),
    Call(Work),
    /// Further records, for the owner of this shard.
    Adopt(Option<Box<Shard>>),
    /// The shard has no records any more: it is given back.
    Retire,
}

pub(crate) enum JobResult {
    Nothing,
    Read(Result<(), Eca>),
    Write(Put),
}

/// What an owner sends.
pub(crate) enum OwnerEvent {
    Done(Box<Job>),
    /// A field was posted; `None` where its elements are to be asked for.
    Post {
        key: u64,
        value: Option<Scalar>,
        alarm: Alarm,
        stamp: Stamp,
        mask: EventMask,
    },
    Completed(Completed),
    Remote(RemoteRequest),
    /// A record's access security group was written.
    Regrouped(RecId, Str40),
    Signal(Signal),
    /// What an owner gives back.
    Retired(Box<Shard>),
}

/// Who wrote what, for the put log.
pub(crate) struct Logged {
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) channel: String,
    /// The value after it.
    pub(crate) new: Value,
}

impl Logged {
    /// `room` has memory for the field's value.
    pub(crate) fn new(peer: Peer<'_>, channel: String, room: Value) -> Self {
        let Peer { user, host, address } = peer;
        Self { user: user.to_owned(), host: host.to_owned(), address: address.to_owned(), channel, new: room }
    }
}

impl Job {
    pub(crate) fn new(requester: Requester, request: OwnerRequest) -> Box<Self> {
        Box::new(Self { requester, request, reading: Reading::default(), outcome: JobResult::Nothing })
    }
}

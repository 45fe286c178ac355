//! Messages between the network thread and the owners of the database's shards.
//!
//! A job goes to an owner and returns in the same box, so that memory is allocated and freed only on the network side.

use crate::bridge::Holder;
use crate::feed::Feed;
use crate::shard::Shard;
use base::{Alarm, Annotation, EventMask, Meta, Scalar, Stamp, Str40, Value};
use ca::Eca;
use ca::encode::{Needs, Reading};
use ca::server::{Peer, PutOutcome, Write};
use db::{Channel, Completed, Db, Now, PutError, RecId, RemoteId, RemoteRequest, RemoteUpdate, Signal, Token};

/// A job for an owner.
pub(crate) struct Job {
    pub(crate) requester: Requester,
    pub(crate) request: OwnerRequest,
    /// Result of reading. The network side allocates its memory.
    pub(crate) reading: Reading,
    pub(crate) outcome: JobResult,
}

/// Requester of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Nobody,
    /// A request on a circuit.
    Client(ca::server::Token),
    /// The properties or elements of a monitored field.
    Watch {
        key: u64,
        mask: EventMask,
    },
    /// A link to the field, for its properties.
    Link(Holder, RemoteId),
    /// A request on a group of PVAccess, by the number of the call.
    Group(u64),
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
        /// Number under which completion is reported, if requested.
        notify: Option<u64>,
        /// For the put log: the owner reads the field before the write into the job's reading, and after it into this.
        log: Option<Box<Logged>>,
    },
    /// Several fields of a group, without a scan in between.
    Members {
        parts: Vec<MemberPart>,
        step: MemberStep,
    },
    /// Process the record if it is passive.
    Process(RecId),
    /// Completion of a write is no longer needed.
    Forget(u64),
    Watch {
        channel: Channel,
        key: u64,
    },
    Unwatch {
        key: u64,
    },
    /// New value of a remote link. The job returns the previous one.
    Update {
        id: RemoteId,
        value: Option<Value>,
        alarm: Alarm,
        stamp: Stamp,
    },
    /// New values of links over PVAccess to one channel. The job returns the previous ones.
    Updates {
        updates: Vec<RemoteUpdate>,
        /// The holders are processed together.
        atomic: bool,
    },
    /// Units, limits and state names of a link's source. The job returns the previous ones.
    Meta {
        id: RemoteId,
        meta: Option<Box<Meta>>,
    },
    Connect {
        id: RemoteId,
        connected: bool,
        /// Maximum number of elements of a connected channel.
        count: u32,
    },
    /// A link's write with completion has ended.
    Written {
        id: RemoteId,
        ok: bool,
    },
    /// A link's read has ended; without a value if it failed.
    Got {
        id: RemoteId,
        value: Option<Value>,
        alarm: Alarm,
        stamp: Stamp,
    },
    Signal(Signal),
    /// A deferred function call has ended.
    Finish(Token),
    /// Pause or resume periodic scans.
    Pause(bool),
    Feed(Option<Feed>),
    Call(Work),
    /// Further records for the owner of this shard.
    Adopt(Option<Box<Shard>>),
    /// The shard has no records left and must be returned.
    Retire,
}

/// Operation on members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberStep {
    Read,
    /// Checks whether the writes would fail.
    Check,
    /// Checks all writes, and makes them if none would fail.
    Write,
}

/// A field of a group in a job.
pub(crate) struct MemberPart {
    /// Index of the member in its group.
    pub(crate) member: usize,
    /// Parts of the member that are read, as bits of its layout.
    pub(crate) bits: u64,
    pub(crate) channel: Channel,
    pub(crate) needs: Needs,
    /// The value that was read, or the one before a logged write.
    pub(crate) reading: Reading,
    pub(crate) write: Option<MemberAction>,
    /// Number under which completion is reported, if requested.
    pub(crate) notify: Option<u64>,
    pub(crate) log: Option<Box<Logged>>,
    pub(crate) outcome: Result<PutOutcome, PutError>,
    /// It was written.
    pub(crate) written: bool,
}

/// A write to a member of a group.
pub(crate) enum MemberAction {
    Value(Value),
    /// Write to PROC, if the record is passive or if `always` is set.
    Process {
        always: bool,
    },
    /// The field does not process its record.
    Nothing,
}

pub(crate) enum JobResult {
    Nothing,
    Read(Result<(), Eca>),
    Write(PutOutcome),
}

/// An event from an owner.
pub(crate) enum OwnerEvent {
    Done(Box<Job>),
    /// A field was posted; `None` if its elements must be requested.
    Post {
        key: u64,
        value: Option<Scalar>,
        alarm: Alarm,
        stamp: Stamp,
        note: Annotation,
        mask: EventMask,
    },
    Completed(Completed),
    Remote(RemoteRequest),
    /// A record's access security group was written.
    Regrouped(RecId, Str40),
    Signal(Signal),
    /// A shard returned by its owner.
    Retired(Box<Shard>),
}

/// Entry of the put log: the client, the channel and the values.
pub(crate) struct Logged {
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) channel: String,
    /// Value after the write.
    pub(crate) new: Value,
}

impl Logged {
    /// `room` provides memory for the field's value.
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

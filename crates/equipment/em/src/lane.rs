//! The thread of the real-time lane. It lives as long as the manager: connections to the message server come and go, and
//! loops and polls keep their class, their CPU or their frame meanwhile.

use crate::error::Error;
use crate::front::{self, Connection, Own};
use crate::polls::Polls;
use crate::work::Id;
use base::{CpuSet, DurNs, Policy, RtLevel};
use equipment::{Lane, Tables};
use rt::frames::Member;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// How long a frame may take to appear.
const JOIN_WITHIN: DurNs = DurNs::from_secs(10);
/// Tables and lanes that may be on their way to a thread.
pub(crate) const CHANGES_MAX: usize = 4;

/// The thread, as the manager's first thread sees it.
pub(crate) struct LaneThread {
    thread: JoinHandle<()>,
    /// New lanes for it.
    pub(crate) changes: Producer<Box<Lane<Id>>>,
    /// Those of before, to be freed here.
    over: Consumer<Box<Lane<Id>>>,
    connections: Producer<Box<Connection>>,
    /// Connections that it has given back.
    back: Consumer<Box<Connection>>,
    /// What it did not obtain; then, why it has ended by itself.
    reports: Receiver<Result<String, Error>>,
    stop: Arc<AtomicBool>,
}

impl LaneThread {
    /// Starts the thread, in the class and on the CPU or in the frame that the tables name; with it, what could not be
    /// had, or nothing.
    ///
    /// # Errors
    /// The kernel's; a frame that cannot be joined.
    pub(crate) fn start(lane: Box<Lane<Id>>, polls: Polls) -> Result<(Self, String), Error> {
        let tables = lane.tables().clone();
        let (changes, changes_out) = RingBuffer::new(CHANGES_MAX);
        let (over_in, over) = RingBuffer::new(CHANGES_MAX);
        let (connections, connections_out) = RingBuffer::new(1);
        let (back_in, back) = RingBuffer::new(1);
        let (say, reports) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let own = Own { lane, polls, changes: changes_out, over: over_in, connections: connections_out, back: back_in };
        let stopped = stop.clone();
        let run = move || {
            // The receiver lives as long as the thread.
            let member = match prepare(&tables) {
                Ok((member, missing)) => {
                    let _ = say.send(Ok(missing));
                    member
                }
                Err(why) => return drop(say.send(Err(why))),
            };
            if !front::run_lane(own, member, &stopped)
                && let Some((frame, activity)) = &tables.frame
            {
                let ended = Error::FrameEnded { frame: frame.clone(), activity: activity.clone() };
                let _ = say.send(Err(ended));
            }
        };
        let thread = std::thread::Builder::new().name("lane".to_owned()).spawn(run);
        let thread = thread.map_err(Error::Thread)?;
        let missing = reports.recv().map_err(|_| Error::ThreadEnded)??;
        Ok((Self { thread, changes, over, connections, back, reports, stop }, missing))
    }

    /// Lets it serve a connection. The one of before has been taken back.
    pub(crate) fn serve(&mut self, connection: Box<Connection>) {
        // There is room: one connection at a time.
        let _ = self.connections.push(connection);
        self.thread.thread().unpark();
    }

    /// Takes the connection back, whose flag to hang up is set; waits until the thread has seen that.
    pub(crate) fn take_back(&mut self) {
        while self.back.pop().is_err() && !self.thread.is_finished() {
            self.thread.thread().unpark();
            sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(1));
        }
    }

    /// Frees what is over; why the thread has ended by itself, if it has.
    ///
    /// # Errors
    /// That.
    pub(crate) fn look_after(&mut self) -> Result<(), Error> {
        while self.over.pop().is_ok() {}
        match self.reports.try_recv() {
            Ok(Err(why)) => Err(why),
            _ if self.thread.is_finished() => Err(Error::ThreadEnded),
            _ => Ok(()),
        }
    }

    /// Ends the thread.
    pub(crate) fn end(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().map_err(|_| Error::ThreadEnded)
    }
}

/// Makes the calling thread what the tables say: an activity of a frame, which gives it class and CPU, or what class and
/// CPU say. With it, what could not be had, or nothing.
fn prepare(tables: &Tables) -> Result<(Option<Member>, String), Error> {
    let mut missing = Vec::new();
    let lock = |missing: &mut Vec<String>| {
        if let Err(error) = sys::mem::lock_all() {
            missing.push(format!("locked memory: {error}"));
        }
    };
    let mut member = None;
    if let Some((frame, activity)) = &tables.frame {
        let joined = Member::join(frame, activity, None, JOIN_WITHIN);
        let why = |source| Error::Frame { frame: frame.clone(), activity: activity.clone(), source };
        member = Some(joined.map_err(why)?);
        lock(&mut missing);
    }
    if let Some(cpu) = tables.cpu
        && let Err(error) = sys::sched::set_affinity(0, &CpuSet::single(cpu))
    {
        missing.push(format!("CPU {cpu}: {error}"));
    }
    let class: Policy = tables.class;
    if class.level() != RtLevel::None {
        lock(&mut missing);
        let wanted = sys::sched::Scheduling { policy: class, reset_on_fork: true };
        if let Err(error) = sys::sched::set_scheduling(0, wanted) {
            missing.push(format!("class {class}: {error}; run as root, or raise RLIMIT_RTPRIO (see `tahti doctor`)"));
        }
    }
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!("the lane did not obtain {}", missing.join("; ")),
    };
    Ok((member, missing))
}

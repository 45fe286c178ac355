//! The thread of the real-time lane. It runs as long as the manager. Loops and polls keep their class, CPU or frame when the
//! connection to the message server is lost.

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
use sys::rounds::Rounds;

/// Maximum time to wait for a frame to appear.
const JOIN_WITHIN: DurNs = DurNs::from_secs(10);
/// A thread of a band that finishes no round of its loop for longer than this hangs. It sleeps at most 0.2 s.
pub(crate) const HANGS_AFTER: DurNs = DurNs::from_secs(4);
/// Name of the thread.
const NAME: &str = "lane";
/// Maximum number of tables or lanes that a thread has not yet received.
pub(crate) const CHANGES_MAX: usize = 4;

/// The lane's thread, as seen from the manager's main thread.
pub(crate) struct LaneThread {
    thread: JoinHandle<()>,
    /// New lanes for it.
    pub(crate) changes: Producer<Box<Lane<Id>>>,
    /// Replaced lanes, freed by the main thread.
    over: Consumer<Box<Lane<Id>>>,
    connections: Producer<Box<Connection>>,
    /// Connections that the thread has returned.
    back: Consumer<Box<Connection>>,
    /// First the resources that the thread did not obtain, then the reason of an unexpected end.
    reports: Receiver<Result<String, Error>>,
    stop: Arc<AtomicBool>,
}

impl LaneThread {
    /// Starts the thread in the class and on the CPU, or in the frame, of the tables. Also returns the resources that were not
    /// obtained; empty if all were.
    ///
    /// # Errors
    /// An error from the kernel, or a frame that cannot be joined.
    pub(crate) fn start(lane: Box<Lane<Id>>, polls: Polls) -> Result<(Self, String), Error> {
        let tables = lane.tables().clone();
        let (changes, changes_out) = RingBuffer::new(CHANGES_MAX);
        let (over_in, over) = RingBuffer::new(CHANGES_MAX);
        let (connections, connections_out) = RingBuffer::new(1);
        let (back_in, back) = RingBuffer::new(1);
        let (say, reports) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        // A frame observes its activities itself.
        let rounds = match tables.frame {
            Some(_) => Rounds::default(),
            None => Rounds::watch(NAME, HANGS_AFTER),
        };
        let own = Own {
            lane,
            polls,
            changes: changes_out,
            over: over_in,
            connections: connections_out,
            back: back_in,
            rounds,
        };
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
        let thread = std::thread::Builder::new().name(NAME.to_owned()).spawn(run);
        let thread = thread.map_err(Error::Thread)?;
        let missing = reports.recv().map_err(|_| Error::ThreadEnded)??;
        Ok((Self { thread, changes, over, connections, back, reports, stop }, missing))
    }

    /// Passes a connection to the thread. The previous one must have been taken back.
    pub(crate) fn serve(&mut self, connection: Box<Connection>) {
        // There is room: only one connection exists at a time.
        let _ = self.connections.push(connection);
        self.thread.thread().unpark();
    }

    /// Takes the connection back after its `hang_up` flag was set. Waits until the thread has returned it.
    pub(crate) fn take_back(&mut self) {
        while self.back.pop().is_err() && !self.thread.is_finished() {
            self.thread.thread().unpark();
            sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(1));
        }
    }

    /// Frees replaced lanes, and checks that the thread is running.
    ///
    /// # Errors
    /// The reason why the thread has ended unexpectedly.
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

/// Configures the calling thread: joins the frame of the tables, which sets class and CPU, or sets both from the tables. Also
/// returns the resources that were not obtained; empty if all were.
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

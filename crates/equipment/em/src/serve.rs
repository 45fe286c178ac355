//! The process of a manager: reads tables, starts threads, reconnects to the server, reloads tables.

use crate::batch::Batches;
use crate::devices::{DeviceContext, Maker, Sources, make};
use crate::error::Error;
use crate::front::{self, Call, Connection, Front, LaneLink, Nobody};
use crate::job::{Job, JobResult};
use crate::lane::{CHANGES_MAX, HANGS_AFTER, LaneThread};
use crate::polls::Polls;
use crate::read;
use crate::values::Watched;
use crate::work::{self, Id, JOBS_MAX, OUTSTANDING_MAX, Rings};
use base::DurNs;
use broker::{Manager, ManagerLane, Waker};
use equipment::{Driver, Lane, Tables};
use msg::Band;
use rtrb::{Consumer, Producer, RingBuffer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use sys::rounds::Rounds;
use sys::signal::{SIGHUP, SIGINT, SIGTERM, SignalFd};

/// Maximum number of names that a manager claims, and of their bytes. More names are replaced by common prefixes.
const CLAIMS_MAX: usize = 200;
const CLAIM_BYTES_MAX: usize = 3000;
/// Interval of attempts to reconnect to the server.
const AGAIN: DurNs = DurNs::from_ms(200);

/// The options of a manager.
pub struct Options<'a> {
    /// The equipment file.
    pub file: PathBuf,
    /// Name of the message server.
    pub server: String,
    /// Drivers in addition to those of tahti.
    pub drivers: &'a [&'static Driver],
    /// Creates the devices of these drivers.
    pub plug_in: Box<Maker>,
    /// The manager ends if the lane does not obtain its class, CPU or locked memory.
    pub require_rt: bool,
}

type BoxedLane = Box<Lane<Id>>;

/// The result of a thread: number of the lane, and the lane.
type LaneResult = (usize, Option<BoxedLane>);

/// Serves until SIGTERM or SIGINT. SIGHUP reloads the tables. `say` receives messages for the log. `trouble` is called
/// repeatedly with the present fault, or `None`. Tables that a reload refused are a fault until a reload succeeds.
///
/// # Errors
/// The tables have errors, a device or thread is unavailable, the frame ended, or a required class was not obtained.
pub fn serve(
    options: &Options<'_>,
    say: &mut dyn FnMut(String),
    trouble: &mut dyn FnMut(Option<&str>),
) -> Result<(), Error> {
    let checked = read(&options.file, options.drivers)?;
    let Some(tables) = checked.tables.clone() else { return Err(Error::Tables(checked.render())) };
    let tables = Arc::new(tables);
    let signals = SignalFd::new(&[SIGTERM, SIGINT, SIGHUP])?;
    let polls = Polls::open(&tables)?;
    let mut manager = Running {
        options,
        polls,
        watched: Watched::open(&tables).map_err(Error::Values)?,
        sources: Sources::default(),
        lanes: Vec::new(),
        hup: false,
        refused: None,
        tables,
    };
    let mut lanes = manager.build(&manager.tables, None)?;
    manager.lanes = lanes.split_off(1);
    let first = lanes.pop().expect("tables have a lane");
    let (mut lane, missing) = LaneThread::start(first, manager.polls.clone())?;
    if !missing.is_empty() {
        say(missing.clone());
        if options.require_rt {
            lane.end()?;
            return Err(Error::RealTime { missing });
        }
    }
    let ended = manager.run(&mut lane, &signals, (say, trouble));
    let joined = lane.end();
    ended.and(joined)
}

/// The receivers of log messages and of the present fault.
type Tell<'a> = (&'a mut dyn FnMut(String), &'a mut dyn FnMut(Option<&str>));

/// The reason of the end of a connection.
enum End {
    Asked,
    Lost,
}

struct Running<'o> {
    options: &'o Options<'o>,
    tables: Arc<Tables>,
    polls: Polls,
    watched: Watched,
    sources: Sources,
    /// The lanes of devices that may block. During a connection its threads own them.
    lanes: Vec<BoxedLane>,
    /// The tables must be reloaded when a server is available again.
    hup: bool,
    /// Why the last reload was refused. The running tables differ from the file until a reload succeeds.
    refused: Option<String>,
}

impl Running<'_> {
    /// Runs until a signal requests the end.
    fn run(&mut self, lane: &mut LaneThread, signals: &SignalFd, (say, trouble): Tell<'_>) -> Result<(), Error> {
        let server = &self.options.server;
        let mut announced = false;
        loop {
            let claims = claims(&self.tables);
            let names: Vec<&str> = claims.iter().map(String::as_str).collect();
            let bands: Vec<Band> = Band::all().collect();
            match Manager::connect(server, &self.tables.name, &names, &bands) {
                Ok(requests) => {
                    announced = false;
                    match self.session(lane, requests, signals, (say, trouble))? {
                        End::Asked => return Ok(()),
                        End::Lost => say(format!("lost message server {server:?}; reconnecting")),
                    }
                }
                Err(error) => {
                    if !announced {
                        announced = true;
                        say(format!("no message server yet: {error}"));
                    }
                    lane.look_after()?;
                    trouble(self.fault());
                    if self.alone(signals)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The present fault: stale values, or refused tables.
    fn fault(&mut self) -> Option<&str> {
        self.watched.trouble().or(self.refused.as_deref())
    }

    /// Creates the lanes of `tables`. Devices that are unchanged from `before` are not created.
    fn build(&self, tables: &Arc<Tables>, before: Option<&Tables>) -> Result<Vec<BoxedLane>, Error> {
        let folder = self.options.file.parent().unwrap_or(Path::new(""));
        let plug_in = &*self.options.plug_in;
        let around = DeviceContext { server: &self.options.server, folder, sources: &self.sources, plug_in };
        let mut make = |device: usize| make(&tables.devices[device], &around).map_err(Box::new);
        (0..tables.lanes())
            .map(|number| Lane::new(tables.clone(), number, sys::clock::mono_and_scale(), before, &mut make))
            .map(|lane| Ok(Box::new(lane?)))
            .collect()
    }

    /// Without a server, runs the polls of devices that may block, for [`AGAIN`]. Returns whether a signal requested the end.
    fn alone(&mut self, signals: &SignalFd) -> Result<bool, Error> {
        self.sources.look_after();
        let until = mono_now() + AGAIN;
        let mut nobody = Nobody(&self.polls);
        while mono_now() < until {
            let mut next = until;
            for lane in &mut self.lanes {
                let now = mono_now();
                if lane.due().is_some_and(|due| due <= now) {
                    lane.run(now, &mut nobody);
                }
                next = lane.due().map_or(next, |due| next.min(due));
            }
            sys::poll::is_readable(std::os::fd::AsFd::as_fd(signals), next - mono_now());
            match signals.read()? {
                Some(arrived) if arrived.signal == SIGHUP => self.hup = true,
                Some(_) => return Ok(true),
                None => {}
            }
        }
        Ok(false)
    }

    /// One connection to the server, with its threads.
    fn session(
        &mut self,
        lane: &mut LaneThread,
        requests: Vec<ManagerLane>,
        signals: &SignalFd,
        (say, trouble): Tell<'_>,
    ) -> Result<End, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Threads::start(self, lane, requests, &stop)?;
        say(format!("{} serves {} objects", self.tables.name, self.tables.objects().len()));
        let end = loop {
            if !self.hup {
                sys::poll::is_readable(std::os::fd::AsFd::as_fd(signals), AGAIN);
            }
            match signals.read() {
                Ok(Some(arrived)) if arrived.signal == SIGHUP => self.hup = true,
                Ok(Some(_)) => break Ok(End::Asked),
                Ok(None) => {}
                Err(error) => break Err(error.into()),
            }
            if std::mem::take(&mut self.hup) {
                let reloaded = self.reload(lane, &mut threads);
                self.refused =
                    reloaded.err().map(|why| format!("tables not reloaded, the old ones stay in use: {why}"));
                let done = || format!("tables reloaded: {} objects", self.tables.objects().len());
                say(self.refused.clone().unwrap_or_else(done));
            }
            self.sources.look_after();
            trouble(self.fault());
            if let Err(why) = lane.look_after() {
                break Err(why);
            }
            if threads.all.iter().any(JoinHandle::is_finished) {
                break Ok(End::Lost);
            }
        };
        threads.end(self, lane, &stop)?;
        end
    }

    /// Reloads the tables and passes them to the threads. After any error nothing is changed.
    fn reload(&mut self, lane: &mut LaneThread, threads: &mut Threads) -> Result<(), Error> {
        let checked = read(&self.options.file, self.options.drivers)?;
        let Some(tables) = checked.tables.clone() else { return Err(Error::Tables(checked.render())) };
        let (new, old) = (Arc::new(tables), &self.tables);
        let blocking = |tables: &Tables| -> Vec<String> {
            let all = (0..tables.devices.len()).filter(|device| tables.device_lane(*device) > 0);
            all.map(|device| tables.devices[device].name.clone()).collect()
        };
        let polls = |tables: &Tables| -> Vec<(String, DurNs, Vec<String>)> {
            let name =
                |entry: &usize| format!("{}/{}", tables.entries[*entry].object, tables.entries[*entry].complement());
            tables
                .polls
                .iter()
                .map(|poll| (poll.name.clone(), poll.period, poll.entries.iter().map(name).collect()))
                .collect()
        };
        let claimed = claims(old);
        let covered = |object: &&str| {
            let starts = |claim: &String| {
                object.strip_prefix(claim.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            };
            claimed.iter().any(starts)
        };
        let what = if (&new.name, new.class, new.cpu, &new.frame) != (&old.name, old.class, old.cpu, &old.frame) {
            "[manager]"
        } else if blocking(&new) != blocking(old) {
            "the devices that may block"
        } else if polls(&new) != polls(old) {
            "[[poll]]"
        } else if !new.objects().iter().all(covered) {
            "objects with names that the manager has not claimed"
        } else {
            ""
        };
        if !what.is_empty() {
            return Err(Error::Restart { what });
        }
        // All threads receive the change, or none.
        let lanes_full = lane.changes.is_full() || threads.changes.iter().any(Producer::is_full);
        if lanes_full || threads.tables.iter().any(Producer::is_full) {
            return Err(Error::Changing);
        }
        let lanes = self.build(&new, Some(old))?;
        for (lane, changes) in lanes.into_iter().zip([&mut lane.changes].into_iter().chain(&mut threads.changes)) {
            // There is room.
            let _ = changes.push(lane);
        }
        for tables in &mut threads.tables {
            let _ = tables.push(new.clone());
        }
        self.tables = new;
        Ok(())
    }
}

/// The ends of the rings from a band to a lane.
type Ends = (Producer<Job>, Consumer<JobResult>);

/// The threads of one connection.
struct Threads {
    all: Vec<JoinHandle<LaneResult>>,
    /// New lanes, for each thread of a device that may block.
    changes: Vec<Producer<BoxedLane>>,
    /// New tables, for the thread of each band except the real-time one.
    tables: Vec<Producer<Arc<Tables>>>,
    /// Wakes the lane's thread while it waits for the server.
    top_waker: Waker,
}

impl Threads {
    fn start(
        manager: &mut Running<'_>,
        lane: &mut LaneThread,
        mut requests: Vec<ManagerLane>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let (bands, lanes) = (requests.len(), 1 + manager.lanes.len());
        let top = requests.pop().ok_or(Error::NoBand)?;
        let top_waker = top.waker();
        // Each pair of a band and a lane has two rings, except the top band and the real-time lane, which share a thread.
        let mut rings: Vec<Rings> = (0..lanes).map(|_| Rings { jobs: Vec::new(), done: Vec::new() }).collect();
        let mut to: Vec<Vec<Option<Ends>>> = Vec::new();
        for band in 0..bands {
            let mut ways = Vec::new();
            for (lane, rings) in rings.iter_mut().enumerate() {
                if band == bands - 1 && lane == 0 {
                    ways.push(None);
                    continue;
                }
                let (jobs, jobs_out) = RingBuffer::new(JOBS_MAX);
                let (done_in, done) = RingBuffer::new(OUTSTANDING_MAX);
                rings.jobs.push(jobs_out);
                rings.done.push((done_in, requests.get(band).map_or_else(|| top_waker.clone(), ManagerLane::waker)));
                ways.push(Some((jobs, done)));
            }
            to.push(ways);
        }
        let mut all = Vec::new();
        let mut changes = Vec::new();
        let mut calls = Vec::new();
        let lanes = std::mem::take(&mut manager.lanes).into_iter();
        let mut rings = rings.into_iter();
        let first_rings = rings.next().expect("one for each lane");
        for (number, (lane, rings)) in lanes.zip(rings).enumerate() {
            let (change, changes_out) = RingBuffer::new(CHANGES_MAX);
            let (polls, stop) = (manager.polls.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("device-{number}"));
            let run = move || (number + 1, Some(work::run(lane, rings, &polls, changes_out, &stop)));
            let thread = thread.spawn(run).map_err(Error::Thread)?;
            calls.push(thread.thread().clone());
            changes.push(change);
            all.push(thread);
        }
        let call = |lane: usize| match lane {
            0 => Call::Band(top_waker.clone()),
            lane => Call::Parked(calls[lane - 1].clone()),
        };
        let mut fronts = to.into_iter().map(|ways| -> Vec<Option<LaneLink>> {
            let way = |(lane, rings): (usize, Option<Ends>)| {
                rings.map(|(jobs, done)| LaneLink { jobs, done, call: call(lane), outstanding: 0 })
            };
            ways.into_iter().enumerate().map(way).collect()
        });
        let mut tables = Vec::new();
        for (band, requests) in requests.into_iter().enumerate() {
            let ways = fronts.next().expect("ways for each band");
            let name = format!("band-{band}");
            let rounds = Rounds::watch(&name, HANGS_AFTER);
            let front = Front { requests, tables: manager.tables.clone(), ways, batches: Batches::new(), rounds };
            let (new, mut new_out) = RingBuffer::new(CHANGES_MAX);
            let stop = stop.clone();
            let run = move || {
                // The thread ends if the server is gone. The main thread detects this.
                let _ = front::serve(front, &mut new_out, &stop);
                (usize::MAX, None)
            };
            all.push(std::thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)?);
            tables.push(new);
        }
        let ways = fronts.next().expect("ways for each band");
        // The lane's thread serves this band, and counts its own rounds.
        let rounds = Rounds::default();
        let front = Front { requests: top, tables: manager.tables.clone(), ways, batches: Batches::new(), rounds };
        lane.serve(Box::new(Connection { front, rings: first_rings, hang_up: stop.clone() }));
        Ok(Self { all, changes, tables, top_waker })
    }

    /// Ends the threads. The lanes return to the manager, without waiting `set` requests.
    fn end(self, manager: &mut Running<'_>, lane: &mut LaneThread, stop: &Arc<AtomicBool>) -> Result<(), Error> {
        stop.store(true, Ordering::Release);
        self.top_waker.wake();
        lane.take_back();
        let mut lanes: Vec<(usize, BoxedLane)> = Vec::new();
        for thread in self.all {
            thread.thread().unpark();
            let (number, lane) = thread.join().map_err(|_| Error::ThreadEnded)?;
            lanes.extend(lane.map(|lane| (number, lane)));
        }
        lanes.sort_by_key(|(number, _)| *number);
        manager.lanes = lanes.into_iter().map(|(_, lane)| lane).collect();
        manager.lanes.iter_mut().for_each(|lane| lane.forget());
        Ok(())
    }
}

/// The names that the manager claims: its objects, or common prefixes if there are too many.
fn claims(tables: &Tables) -> Vec<String> {
    let mut claims: Vec<String> = tables.objects().iter().map(|object| (*object).to_owned()).collect();
    let fits = |claims: &[String]| {
        claims.len() <= CLAIMS_MAX && claims.iter().map(|claim| claim.len() + 3).sum::<usize>() <= CLAIM_BYTES_MAX
    };
    while !fits(&claims) {
        // The names with the most words lose their last word first.
        let words = |claim: &String| claim.matches('_').count();
        let most = claims.iter().map(words).max().unwrap_or(0);
        if most == 0 {
            break;
        }
        for claim in claims.iter_mut().filter(|claim| words(claim) == most) {
            let end = claim.rfind('_').unwrap_or(claim.len());
            claim.truncate(end);
        }
        claims.sort_unstable();
        claims.dedup();
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_of_many_objects_claims_their_common_prefix() {
        let devices: String =
            (0..400).map(|n| format!("[[device]]\nname = \"ps_{n}\"\ndriver = \"memory\"\n")).collect();
        let text = format!(
            "[manager]\nname = \"m\"\n{devices}[[map]]\nverb = \"get\"\nobject = \"sr_mag_ps_{{n}}\"\n\
             complement = \"i\"\ndevice = \"ps_{{n}}\"\npoint = \"i\"\n"
        );
        let drivers: Vec<&'static Driver> = equipment::DRIVERS.iter().collect();
        let checked =
            equipment::check("m.toml", &text, &drivers, &mut |_| Err(std::io::ErrorKind::NotFound.into()), &());
        assert_eq!(claims(&checked.tables.unwrap()), ["sr_mag_ps"]);
    }
}

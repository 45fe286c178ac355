//! A manager's process: tables read, threads started, the server lost and found again, tables read anew.

use crate::batch::Batches;
use crate::devices::{Around, Maker, Sources, make};
use crate::front::{self, Call, Front, Own, Way};
use crate::job::{Done, Job};
use crate::polls::Polls;
use crate::read;
use crate::work::{self, Id, JOBS_MAX, OUTSTANDING_MAX, Rings};
use base::{CpuSet, DurNs, Policy, RtLevel};
use broker::{Manager, ManagerLane};
use equipment::{Driver, Lane, Tables};
use msg::Band;
use rt::frames::Member;
use rtrb::{Consumer, Producer, RingBuffer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use sys::signal::SignalFd;

/// Names that a manager claims, and their bytes; more are joined to what they begin with.
const CLAIMS_MAX: usize = 200;
const CLAIM_BYTES_MAX: usize = 3000;
/// How long a frame may take to appear.
const JOIN_WITHIN: DurNs = DurNs::from_secs(10);
/// How often a server that is gone is looked for.
const AGAIN: DurNs = DurNs::from_ms(200);

/// How a manager is run.
pub struct Options<'a> {
    /// Its file.
    pub file: PathBuf,
    /// The message server.
    pub server: String,
    /// Drivers beside those of tahti.
    pub drivers: &'a [&'static Driver],
    /// Makes their devices.
    pub plug_in: Box<Maker>,
    /// Whether it ends where the lane does not get its class, CPU or locked memory.
    pub require_rt: bool,
}

type BoxedLane = Box<Lane<Id>>;

/// What the threads give back when they end.
type Ended = (usize, Option<BoxedLane>);

/// Serves until SIGTERM or SIGINT; SIGHUP reads the tables anew. `say` gets what people are told.
///
/// # Errors
/// The tables have errors, a device cannot be had, nobody serves, or a required class was not obtained.
pub fn serve(options: &Options<'_>, say: &mut dyn FnMut(String)) -> Result<(), String> {
    let checked = read(&options.file, options.drivers)?;
    let Some(tables) = checked.tables.clone() else { return Err(checked.render()) };
    let tables = Arc::new(tables);
    let signals =
        SignalFd::new(&[libc_signals::TERM, libc_signals::INT, libc_signals::HUP]).map_err(|e| e.to_string())?;
    let mut manager =
        Running { options, polls: Polls::open(&tables)?, sources: Sources::default(), lanes: Vec::new(), tables };
    manager.lanes = manager.build(&manager.tables, None)?;
    let mut announced = false;
    loop {
        let claims = claims(&manager.tables);
        let names: Vec<&str> = claims.iter().map(String::as_str).collect();
        let bands: Vec<Band> = Band::all().collect();
        match Manager::connect(&options.server, &manager.tables.name, &names, &bands) {
            Ok(requests) => {
                announced = false;
                let objects = manager.tables.objects().len();
                match manager.session(
                    requests,
                    &signals,
                    say,
                    &format!("{} serves {objects} objects", manager.tables.name),
                )? {
                    End::Asked => return Ok(()),
                    End::Lost => say(format!("message server {:?} is gone; looking for it", options.server)),
                }
            }
            Err(error) => {
                if !announced {
                    announced = true;
                    say(format!("no message server yet: {error}"));
                }
                if manager.alone(&signals)? {
                    return Ok(());
                }
            }
        }
    }
}

/// The numbers of `signal(7)`.
mod libc_signals {
    pub(super) const HUP: i32 = 1;
    pub(super) const INT: i32 = 2;
    pub(super) const TERM: i32 = 15;
}

/// How a connection ended.
enum End {
    Asked,
    Lost,
}

struct Running<'o> {
    options: &'o Options<'o>,
    tables: Arc<Tables>,
    polls: Polls,
    sources: Sources,
    /// Between two connections; while one lasts, its threads have them.
    lanes: Vec<BoxedLane>,
}

impl Running<'_> {
    /// The lanes of tables; what the tables of before have unchanged is left out.
    fn build(&self, tables: &Arc<Tables>, before: Option<&Tables>) -> Result<Vec<BoxedLane>, String> {
        let folder = self.options.file.parent().unwrap_or(Path::new(""));
        let plug_in = &*self.options.plug_in;
        let around = Around { server: &self.options.server, folder, sources: &self.sources, plug_in };
        let mut make = |device: usize| make(&tables.devices[device], &around);
        (0..tables.lanes())
            .map(|number| Lane::new(tables.clone(), number, mono_now(), before, &mut make).map(Box::new))
            .collect()
    }

    /// Runs loops and polls without a server for a moment; whether a signal asked to end.
    fn alone(&mut self, signals: &SignalFd) -> Result<bool, String> {
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
            if let Some(arrived) = signals.read().map_err(|error| error.to_string())?
                && arrived.signal != libc_signals::HUP
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One connection to the server, with its threads.
    fn session(
        &mut self,
        requests: Vec<ManagerLane>,
        signals: &SignalFd,
        say: &mut dyn FnMut(String),
        ready: &str,
    ) -> Result<End, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Threads::start(self, requests, &stop)?;
        // The lane's thread has said what it obtained before it serves.
        match threads.obtained.recv() {
            Ok(Ok(line)) if line.is_empty() => {}
            Ok(Ok(missing)) => {
                say(missing.clone());
                if self.options.require_rt {
                    threads.end(self, &stop)?;
                    return Err(format!("--require-rt: {missing}"));
                }
            }
            Ok(Err(why)) => {
                threads.end(self, &stop)?;
                return Err(why);
            }
            Err(_) => {}
        }
        say(ready.to_owned());
        let end = loop {
            sys::poll::is_readable(std::os::fd::AsFd::as_fd(signals), AGAIN);
            match signals.read().map_err(|error| error.to_string())? {
                Some(arrived) if arrived.signal == libc_signals::HUP => match self.reload(&mut threads) {
                    Ok(()) => say(format!("tables read anew: {} objects", self.tables.objects().len())),
                    Err(why) => say(format!("tables not taken over, the old ones stay: {why}")),
                },
                Some(_) => break End::Asked,
                None => {}
            }
            while threads.over.pop().is_ok() {}
            self.sources.look_after();
            if threads.all.iter().any(JoinHandle::is_finished) {
                if let Ok(Err(why)) = threads.obtained.try_recv() {
                    threads.end(self, &stop)?;
                    return Err(why);
                }
                break End::Lost;
            }
        };
        threads.end(self, &stop)?;
        Ok(end)
    }

    /// Reads the tables anew and hands them to the threads; on any error nothing changes.
    fn reload(&mut self, threads: &mut Threads) -> Result<(), String> {
        let checked = read(&self.options.file, self.options.drivers)?;
        let Some(tables) = checked.tables.clone() else { return Err(checked.render()) };
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
            return Err(format!("{what} changed; restart the manager to take that over"));
        }
        for (lane, changes) in self.build(&new, Some(old))?.into_iter().zip(&mut threads.changes) {
            changes.push(lane).map_err(|_| "the change of before is not over yet; try again".to_owned())?;
        }
        for tables in &mut threads.tables {
            // One that is full takes the next change over; what a lane cannot do it refuses.
            let _ = tables.push(new.clone());
        }
        self.tables = new;
        Ok(())
    }
}

/// Answers to nobody: there is no server.
struct Nobody<'a>(&'a Polls);

impl equipment::Answers<Id> for Nobody<'_> {
    fn answer(&mut self, _: Id, _: Result<equipment::Answer<'_>, equipment::Fault<'_>>) {}
    fn expired(&mut self, _: Id) {}
    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, now: base::MonoNs) {
        self.0.set(poll, entry, value, now);
    }
}

/// A band's ends of the rings to a lane.
type Ends = (Producer<Job>, Consumer<Done>);

/// The threads of one connection.
struct Threads {
    all: Vec<JoinHandle<Ended>>,
    /// New lanes for each lane's thread, the real-time one first.
    changes: Vec<Producer<BoxedLane>>,
    /// Lanes of the real-time thread that are over.
    over: Consumer<BoxedLane>,
    /// New tables for each band's thread but the real-time one.
    tables: Vec<Producer<Arc<Tables>>>,
    /// What the real-time lane did not obtain: empty if everything; or why it cannot be at all.
    obtained: std::sync::mpsc::Receiver<Result<String, String>>,
}

/// Tables and lanes that may be on their way to a thread.
const CHANGES_MAX: usize = 4;

impl Threads {
    fn start(
        manager: &mut Running<'_>,
        mut requests: Vec<ManagerLane>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a thread cannot be started: {error}");
        let (bands, lanes) = (requests.len(), manager.lanes.len());
        let top = requests.pop().ok_or("the message server gave no band")?;
        let top_waker = top.waker();
        // Every pair of a band and a lane has two rings; the top band and the real-time lane are one thread.
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
        let mut lanes = std::mem::take(&mut manager.lanes).into_iter();
        let mut rings = rings.into_iter();
        let (first_lane, first_rings) = lanes.next().zip(rings.next()).ok_or("there is no lane")?;
        let (first_changes, first_changes_out) = RingBuffer::new(CHANGES_MAX);
        let (over_in, over) = RingBuffer::new(CHANGES_MAX);
        changes.push(first_changes);
        for (number, (lane, rings)) in lanes.zip(rings).enumerate() {
            let (change, changes_out) = RingBuffer::new(CHANGES_MAX);
            let (polls, stop) = (manager.polls.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("device-{number}"));
            let run = move || (number + 1, Some(work::run(lane, rings, &polls, changes_out, &stop)));
            let thread = thread.spawn(run).map_err(failed)?;
            calls.push(thread.thread().clone());
            changes.push(change);
            all.push(thread);
        }
        let call = |lane: usize| match lane {
            0 => Call::Band(top_waker.clone()),
            lane => Call::Parked(calls[lane - 1].clone()),
        };
        let mut fronts = to.into_iter().map(|ways| -> Vec<Option<Way>> {
            let way = |(lane, rings): (usize, Option<Ends>)| {
                rings.map(|(jobs, done)| Way { jobs, done, call: call(lane), outstanding: 0 })
            };
            ways.into_iter().enumerate().map(way).collect()
        });
        let mut tables = Vec::new();
        for (band, requests) in requests.into_iter().enumerate() {
            let ways = fronts.next().ok_or("a band without ways")?;
            let front = Front { requests, tables: manager.tables.clone(), ways, batches: Batches::new() };
            let (new, mut new_out) = RingBuffer::new(CHANGES_MAX);
            let stop = stop.clone();
            let run = move || {
                // A server that is gone ends the thread, and that is seen.
                let _ = front::serve(front, &mut new_out, &stop);
                (usize::MAX, None)
            };
            all.push(std::thread::Builder::new().name(format!("band-{band}")).spawn(run).map_err(failed)?);
            tables.push(new);
        }
        let ways = fronts.next().ok_or("a band without ways")?;
        let front = Front { requests: top, tables: manager.tables.clone(), ways, batches: Batches::new() };
        let own = Own {
            lane: first_lane,
            rings: first_rings,
            polls: manager.polls.clone(),
            changes: first_changes_out,
            over: over_in,
        };
        let (class, cpu, frame) = (manager.tables.class, manager.tables.cpu, manager.tables.frame.clone());
        let stop = stop.clone();
        let (say, obtained) = std::sync::mpsc::sync_channel(1);
        let run = move || {
            let joined = match &frame {
                Some((frame, activity)) => join(frame, activity),
                None => Ok((None, prepare(class, cpu))),
            };
            // The receiver waits for exactly this.
            let (member, missing) = match joined {
                Ok((member, missing)) => (member, Ok(missing)),
                Err(why) => {
                    let _ = say.send(Err(why));
                    return (0, Some(own.lane));
                }
            };
            let _ = say.send(missing);
            let (lane, goes_on) = front::serve_lane(front, own, member, &stop);
            if let (false, Some((frame, activity))) = (goes_on, &frame) {
                let why = format!("frame {frame:?}, of which the lane was activity {activity:?}, has ended");
                let _ = say.send(Err(why));
            }
            (0, Some(lane))
        };
        all.push(std::thread::Builder::new().name("lane".to_owned()).spawn(run).map_err(failed)?);
        Ok(Self { all, changes, over, tables, obtained })
    }

    /// Ends the threads; the lanes go back to the manager, without the sets that waited.
    fn end(self, manager: &mut Running<'_>, stop: &Arc<AtomicBool>) -> Result<(), String> {
        stop.store(true, Ordering::Release);
        let mut lanes: Vec<(usize, BoxedLane)> = Vec::new();
        for thread in self.all {
            thread.thread().unpark();
            let (number, lane) = thread.join().map_err(|_| "a thread of the manager has panicked".to_owned())?;
            lanes.extend(lane.map(|lane| (number, lane)));
        }
        lanes.sort_by_key(|(number, _)| *number);
        manager.lanes = lanes.into_iter().map(|(_, lane)| lane).collect();
        manager.lanes.iter_mut().for_each(|lane| lane.forget());
        Ok(())
    }
}

/// Makes the calling thread an activity of a frame, which gives it class and CPU; with it, what could not be had.
fn join(frame: &str, activity: &str) -> Result<(Option<Member>, String), String> {
    let joined = Member::join(frame, activity, None, JOIN_WITHIN);
    let member =
        joined.map_err(|why| format!("the lane cannot run as activity {activity:?} of frame {frame:?}: {why}"))?;
    let locked = sys::mem::lock_all();
    Ok((
        Some(member),
        locked.err().map_or(String::new(), |error| format!("the lane did not obtain locked memory: {error}")),
    ))
}

/// Makes the calling thread what the tables say; what could not be had, or nothing.
fn prepare(class: Policy, cpu: Option<base::CpuId>) -> String {
    let mut missing = Vec::new();
    if let Some(cpu) = cpu
        && let Err(error) = sys::sched::set_affinity(0, &CpuSet::single(cpu))
    {
        missing.push(format!("CPU {cpu}: {error}"));
    }
    if class.level() != RtLevel::None {
        if let Err(error) = sys::mem::lock_all() {
            missing.push(format!("locked memory: {error}"));
        }
        let wanted = sys::sched::Scheduling { policy: class, reset_on_fork: true };
        if let Err(error) = sys::sched::set_scheduling(0, wanted) {
            missing.push(format!("class {class}: {error}; run as root, or raise RLIMIT_RTPRIO (see `tahti doctor`)"));
        }
    }
    match missing.is_empty() {
        true => String::new(),
        false => format!("the lane did not obtain {}", missing.join("; ")),
    }
}

/// What the manager claims: its objects, or where there are too many, what they begin with.
fn claims(tables: &Tables) -> Vec<String> {
    let mut claims: Vec<String> = tables.objects().iter().map(|object| (*object).to_owned()).collect();
    let fits = |claims: &[String]| {
        claims.len() <= CLAIMS_MAX && claims.iter().map(|claim| claim.len() + 3).sum::<usize>() <= CLAIM_BYTES_MAX
    };
    while !fits(&claims) {
        // The longest names lose their last word first.
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
    fn a_manager_of_many_objects_claims_what_they_begin_with() {
        let devices: String =
            (0..400).map(|n| format!("[[device]]\nname = \"ps_{n}\"\ndriver = \"memory\"\n")).collect();
        let text = format!(
            "[manager]\nname = \"m\"\n{devices}[[map]]\nverb = \"get\"\nobject = \"sr_mag_ps_{{n}}\"\n\
             complement = \"i\"\ndevice = \"ps_{{n}}\"\npoint = \"i\"\n"
        );
        let drivers: Vec<&'static Driver> = equipment::DRIVERS.iter().collect();
        let checked = equipment::check("m.toml", &text, &drivers, &mut |_| Err("none".into()));
        assert_eq!(claims(&checked.tables.unwrap()), ["sr_mag_ps"]);
    }
}

//! The process of the flight recorder.

use super::watched::WatchedThreads;
use super::{LOCK, Serve, folder};
use crate::explain::reported::Reported;
use crate::failure::{Failure, in_file};
use base::{CpuSet, DurNs, Policy};
use recorder::request::{Request, Requests};
use recorder::{Flight, Options};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions, set_permissions};
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use sys::clock::mono_now;
use sys::lock::FileLock;
use sys::notify::Supervisor;
use sys::root::RootDir;
use sys::sched::Scheduling;
use sys::signal::SignalFd;
use trace::stored::Thread;

/// Interval between reads of the recording. The buffer holds several times as much.
const LOOK: DurNs = DurNs::from_ms(20);
/// Interval between searches for threads, and between writes of the status.
const SEARCH: DurNs = DurNs::from_secs(1);

/// Creates the folder of a recorder. It contains the names of threads of all users, so only its owner can read it. If
/// the plant's operators may read its logs, they may also read this folder.
pub(super) fn make(folder: &Path, plant: bool) -> Result<(), Failure> {
    let said = in_file(folder);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(said)?;
    let logs = folder.with_file_name("log").metadata().ok().filter(|logs| plant && logs.mode() & 0o050 == 0o050);
    if let Some(logs) = logs {
        chown(folder, None, Some(logs.gid())).map_err(said)?;
        // Setgid: files created in the folder belong to the same group.
        set_permissions(folder, Permissions::from_mode(0o2750)).map_err(said)?;
    }
    Ok(())
}

pub(super) fn run(args: &Serve) -> Result<(), Failure> {
    let folder = folder(args.plant.as_deref());
    let said = in_file(&folder);
    make(&folder, args.plant.is_some())?;
    let lock = File::create(folder.join(LOCK)).map_err(said)?;
    let _lock = FileLock::try_take(lock).map_err(|(error, _)| match error.kind() {
        ErrorKind::WouldBlock => format!("a recorder already runs, in {}", folder.display()),
        _ => format!("{}: {error}", folder.join(LOCK).display()),
    })?;
    let signals = SignalFd::new(&sys::signal::end_signals())?;
    let requests = Requests::listen(&folder).map_err(said)?;
    let mut who = WatchedThreads::of(args)?;
    let (threads, shortfall) = who.threads();
    let options = options(args, &folder, &threads)?;
    stand_aside(&options);
    let mut flight = Flight::start(options)?;
    let mut reported = Reported::since(mono_now());
    reported.search(&processes(&threads));
    flight.name_processes(&who.names);
    flight.watch(threads, shortfall)?;
    flight.tell()?;
    println!("tahti trace: records");
    let (mut searched, mut supervisor) = (mono_now(), Supervisor::from_env());
    loop {
        flight.look(|| reported.read())?;
        let ended = signals.read()?.is_some();
        let mut stop = false;
        while let Some(request) = requests.next() {
            match request {
                Request::Stop => stop = true,
                Request::Explain(call) => flight.explain(call),
                Request::Freeze { label, reason } => flight.freeze(&label, &reason, mono_now()),
            }
        }
        let now = mono_now();
        supervisor.works(now, None);
        supervisor.status(now, || flight.shortfall().unwrap_or_default().to_owned());
        if now - searched >= SEARCH {
            searched = now;
            let (threads, shortfall) = who.threads();
            reported.search(&processes(&threads));
            flight.name_processes(&who.names);
            flight.watch(threads, shortfall)?;
            for (label, reason) in who.skips.drain(..) {
                flight.freeze(&label, &reason, now);
            }
            flight.tell()?;
        }
        if ended || stop {
            return Ok(flight.tell()?);
        }
        sys::poll::is_readable(signals.as_fd(), LOOK);
    }
}

/// The processes of threads.
fn processes(threads: &[Thread]) -> BTreeSet<i32> {
    threads.iter().map(|thread| thread.pid).collect()
}

fn options(args: &Serve, folder: &Path, threads: &[Thread]) -> Result<Options, Failure> {
    let online = sys::kernel::online(&RootDir::machine()).ok_or("the online CPUs cannot be read")?;
    let how = &args.how;
    let theirs = threads.iter().filter_map(|thread| sys::sched::affinity(thread.tid).ok());
    let theirs = theirs.fold(CpuSet::EMPTY, |all, cpus| all.or(&cpus)).and(&online);
    let cpus = how.cpus.unwrap_or(if theirs.is_empty() || args.plant.is_some() { online } else { theirs });
    if !cpus.is_subset(&online) || cpus.is_empty() {
        return Err(format!("--cpus {cpus}: some are not online; online are {online}").into());
    }
    Ok(Options {
        folder: folder.to_owned(),
        cpus,
        online,
        buffer_kb: how.buffer_kb,
        window_bytes: how.window_kb as usize * 1024,
        above: how.above,
        cycle_above: how.cycle_above,
        before: how.before,
        after: how.after,
        every: how.every,
        keep: how.keep as usize,
    })
}

/// Moves this process off the watched CPUs if another CPU is available, and raises its priority: events that are not
/// read in time are lost.
fn stand_aside(options: &Options) {
    let aside = sys::sched::affinity(0).unwrap_or(options.online).minus(&options.cpus);
    if !aside.is_empty() {
        let _ = sys::sched::set_affinity(0, &aside);
    }
    let policy = Policy::Other { nice: -20 };
    let _ = sys::sched::set_scheduling(0, Scheduling { policy, reset_on_fork: true });
}

//! The other processes of the measurement.

use crate::Failed;
use crate::failed::joined;
use crate::measure::own_program;
use base::{DurNs, Policy};
use broker::{Client, ClientError, Manager, ManagerLane, Replies, Sending};
use msg::{Answer, Band, Code, Lines, ManagerRequest, Verb, write_lines};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::sched::{Scheduling, set_scheduling};
use sys::shm::SharedWords;

/// The most urgent band, and the band of bulk messages.
pub(super) const TOP: u8 = 7;
pub(super) const BULK: u8 = 0;
/// Size of a bulk message, and how many are outstanding.
const BULK_BYTES: u64 = 64 << 10;
const BULK_WINDOW: usize = 2;
/// Maximum body that the manager copies.
pub(super) const BODY_BYTES: usize = 1 << 20;
/// Timeout of the start of the other processes.
pub(super) const BEGIN: DurNs = DurNs::from_secs(20);

/// A process of the measurement.
#[derive(clap::Args)]
pub(super) struct PartArgs {
    /// `manager`, `bulk`, `direct` or `futex`
    role: String,
    /// The server's name, or the descriptor of shared memory
    what: String,
    /// The class of a manager's most urgent band
    #[arg(long)]
    top: Option<Policy>,
}

/// Ends with its owner.
pub(super) struct Process(pub(super) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = reap(&mut self.0);
    }
}

/// Waits for the end of a process at time-sharing priority: the kernel spins until no reader has the process open in
/// /proc, and spins forever if the caller's class keeps such a reader from running on this CPU.
pub(super) fn reap(child: &mut Child) -> std::io::Result<ExitStatus> {
    let before = sys::sched::scheduling(0);
    // Without a class there is nothing to restore.
    let sharing = become_class(Policy::Other { nice: 0 });
    let ended = child.wait();
    if let (Ok(before), Ok(())) = (before, sharing) {
        become_class(before.policy).map_err(std::io::Error::other)?;
    }
    ended
}

pub(super) fn part(words: &[&str]) -> Result<Process, Failed> {
    let child = Command::new(own_program()?).args(words).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    child.map(Process).map_err(Failed::process(&format!("tahti {}", words.join(" "))))
}

/// Retries until it succeeds or the other processes' timeout ends.
pub(super) fn retry<T>(mut attempt: impl FnMut() -> Result<T, ClientError>) -> Result<T, Failed> {
    let until = mono_now() + BEGIN;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if mono_now() > until => return Err(error.into()),
            Err(_) => sys::clock::sleep_until(mono_now() + DurNs::from_ms(10)),
        }
    }
}

/// Gives the calling thread a class.
pub(super) fn become_class(policy: Policy) -> sys::Result<()> {
    set_scheduling(0, Scheduling { policy, reset_on_fork: false })
}

/// The hidden processes.
pub(super) fn run_part(args: &PartArgs) -> Result<(), Failed> {
    match args.role.as_str() {
        "manager" => manager(&args.what, args.top),
        "bulk" => bulk(&args.what),
        "direct" => super::direct::serve(&args.what),
        _ => echo(&args.what),
    }
}

fn manager(server: &str, top: Option<Policy>) -> Result<(), Failed> {
    let bands = [TOP, Band::DEFAULT.number(), BULK].map(|band| Band::new(band).unwrap_or_default());
    let lanes = Manager::with_rooms(server, "bench", &["bench"], &bands)?;
    let threads: Vec<_> = lanes.into_iter().map(|lane| std::thread::spawn(move || serve(lane, top))).collect();
    threads.into_iter().try_for_each(|thread| joined(thread.join()))
}

fn serve(mut lane: ManagerLane, top: Option<Policy>) -> Result<(), Failed> {
    if let Some(top) = top.filter(|_| lane.band().number() == TOP) {
        become_class(top)?;
    }
    let (mut copy, mut body) = (vec![0; BODY_BYTES], Vec::new());
    loop {
        let served = lane.serve(DurNs::from_secs(1), |asked, replies| answer(asked, replies, &mut copy, &mut body));
        served?;
    }
}

fn answer(asked: &ManagerRequest<'_>, replies: &mut Replies<'_>, copy: &mut [u8], body: &mut Vec<u8>) {
    if let Some(room) = replies.room() {
        // The one copy, made by the receiver.
        std::hint::black_box(room.copy_to(copy));
    }
    body.clear();
    if asked.request.verb == Verb::Batch {
        let lines = Lines::read(asked.body).map_or(0, Iterator::count);
        write_lines((0..lines).map(|_| "OK/1A"), body);
    }
    replies.answer(asked.ticket, &Answer { code: Code::Ok, complement: "1794000000.123456789", body });
}

/// A client that sends large bodies as fast as they are taken.
fn bulk(server: &str) -> Result<(), Failed> {
    let band = Band::new(BULK).unwrap_or_default();
    let name = format!("bulk-{}", std::process::id());
    let mut client = Client::with_pool(server, &name, band, 2 * BULK_BYTES * BULK_WINDOW as u64)?;
    let sending = Sending::default();
    loop {
        while client.outstanding() < BULK_WINDOW
            && let Ok(mut room) = client.room(BULK_BYTES)
        {
            room.filled(BULK_BYTES as usize);
            client.send_room("put/bench_image/now", &sending, room)?;
        }
        client.next(BEGIN)?;
    }
}

/// The other side of the futex round trips: the client wakes word 0, this side wakes word 8.
fn echo(memory: &str) -> Result<(), Failed> {
    let fd: i32 = memory.parse().map_err(|_| Failed::argument(memory, "the number of a descriptor"))?;
    let memory = SharedWords::inherited(fd)?;
    let words = memory.words();
    let mut seen = 0;
    loop {
        while words[0].load(Ordering::Acquire) == seen {
            sys::futex::wait(&words[0], seen, Some(DurNs::from_secs(1)));
            if rustix::process::getppid().is_none_or(rustix::process::Pid::is_init) {
                return Ok(());
            }
        }
        seen = words[0].load(Ordering::Acquire);
        sys::futex::count_up(&words[8], 1);
    }
}

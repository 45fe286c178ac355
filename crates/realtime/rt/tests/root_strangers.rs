//! Names of variables, frames and shared memory that another user has opened first: no process trusts that user.

use base::{DurNs, MonoNs};
use rt::frames::{JoinError, Member, Watcher, hand_trigger};
use rt::{Barrier, Exports, Imports, Lock, Number, VariableSpec};
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use sys::Errno;
use sys::handover::Counter;
use sys::peer::PEERS;
use sys::shm::SharedWords;

/// Any user but root.
const STRANGER: u32 = 65534;
/// The name under which the stranger offers everything. If set, the test binary is the stranger or a process that trusts it.
const SQUAT: &str = "TAHTI_TEST_SQUAT";
const BELIEVE: &str = "TAHTI_TEST_BELIEVE";

/// The stranger. It answers clients as the true owner would, and prints how many descriptors it received.
#[test]
fn be_the_stranger() {
    let Ok(name) = std::env::var(SQUAT) else { return };
    let variables = Exports::open(&format!("{name}-own"), 1).unwrap();
    let spec = VariableSpec { name: "voltage", unit: "MV", first: Number::Float(99.0), safe: None };
    assert!(variables.set(variables.add(&spec).unwrap(), Number::Float(99.0), 1, MonoNs(1)));
    let page = SharedWords::create("page", 1 << 16).unwrap();
    let barrier = Barrier::new(1).unwrap();
    let rows: [(String, &str, BorrowedFd<'_>); 3] = [
        (format!("tahti-variables-{name}"), "1", variables.fd()),
        (format!("tahti-frame--{name}"), "ok 0", page.fd()),
        (format!("tahti-shared-{name}"), "1", barrier.fd()),
    ];
    let counters: Vec<Counter> = rows.iter().map(|(address, ..)| Counter::open(address).unwrap()).collect();
    println!("squats");
    let mut callers: Vec<(usize, OwnedFd)> = Vec::new();
    loop {
        let fds: Vec<BorrowedFd<'_>> =
            counters.iter().map(|counter| counter.as_fd()).chain(callers.iter().map(|(_, fd)| fd.as_fd())).collect();
        let ready = sys::poll::readable(&fds, DurNs::from_secs(1));
        for (at, counter) in counters.iter().enumerate() {
            while let Some(caller) = counter.accept_anyone().unwrap() {
                let (_, answer, fd) = &rows[at];
                let _ = sys::handover::send(caller.connection.as_fd(), answer.as_bytes(), &[*fd]);
                callers.push((at, caller.connection));
            }
        }
        let mut heard = ready[counters.len()..].iter();
        callers.retain(|(_, caller)| {
            if !heard.next().is_some_and(|heard| *heard) {
                return true;
            }
            match sys::handover::receive(caller.as_fd(), &mut [0; 256]) {
                Ok(Some((_, fds))) => {
                    println!("was given {} descriptors", fds.len());
                    true
                }
                _ => false,
            }
        });
    }
}

/// A process of root whose plant configuration trusts the stranger.
#[test]
fn be_a_process_that_trusts_the_stranger() {
    let Ok(name) = std::env::var(BELIEVE) else { return };
    let imports = Imports::open(&name).unwrap();
    println!("believes {:?}", imports.get("voltage").map(|read| read.value));
    // A barrier may be shared with a trusted user.
    rt::ask(&name).and_then(Barrier::attach).unwrap();
}

/// A copy of this test binary that every user may execute.
struct Own(PathBuf);

impl Own {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("tahti-strangers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), folder.join("test")).unwrap();
        Self(folder)
    }

    fn run(&self, what: &str) -> Command {
        let mut command = Command::new(self.0.join("test"));
        command.args(["--exact", what, "--nocapture"]).current_dir(Path::new("/"));
        command
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

struct Stranger {
    child: Child,
    name: String,
    said: BufReader<std::process::ChildStdout>,
}

impl Stranger {
    fn start(own: &Own) -> Self {
        // An exported name stays exported by its process, so each needs a new name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("squatted-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = own.run("be_the_stranger");
        command.env(SQUAT, &name).uid(STRANGER).gid(STRANGER).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with("squats\n") {
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended: {line}");
        }
        Self { child, name, said }
    }

    /// Kills it and returns its remaining output.
    fn end(&mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.said, &mut rest).unwrap();
        rest
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_name_that_another_user_opened_first_is_refused_and_gets_nothing() {
    let own = Own::new();
    let mut stranger = Stranger::start(&own);
    let name = stranger.name.as_str();
    let who = format!("which belongs to user {STRANGER}, process {} (", stranger.child.id());
    let told = |why: &str, socket: &str| {
        assert!(
            why.contains(&format!("@tahti-{socket}")) && why.contains(&who) && why.contains("expected root"),
            "{why}"
        );
    };
    told(&Imports::open(name).unwrap_err().to_string(), "variables");
    told(&rt::ask(name).unwrap_err().to_string(), "shared");
    let frame = format!("/{name}");
    let exports = Exports::open(&format!("{name}-mine"), 1).unwrap();
    let refused: [JoinError; 3] = [
        Member::join(&frame, "control", Some(&exports), DurNs::from_secs(60)).unwrap_err(),
        Watcher::open(&frame).unwrap_err(),
        hand_trigger(&frame, exports.fd()).unwrap_err(),
    ];
    refused.iter().for_each(|why| told(&why.to_string(), "frame"));
    // The stranger cannot block these names for root: they are in the run folder, where clients search first.
    let own_exports = Exports::open(name, 1).unwrap();
    let spec = VariableSpec { name: "voltage", unit: "MV", first: Number::Float(1.5), safe: None };
    own_exports.add(&spec).unwrap();
    let imports = Imports::open(name).unwrap();
    assert_eq!(imports.get("voltage").map(|read| read.value), Some(Number::Float(1.5)));
    let barrier = Barrier::new(1).unwrap();
    rt::offer(name, barrier.fd()).unwrap();
    rt::ask(name).and_then(Barrier::attach).unwrap();
    let said = stranger.end();
    assert!(!said.contains("was given"), "{said}");
}

#[test]
fn a_listed_user_is_trusted_but_its_mutex_is_refused() {
    let own = Own::new();
    let mut stranger = Stranger::start(&own);
    let mut believer = own.run("be_a_process_that_trusts_the_stranger");
    let said = believer.env(BELIEVE, &stranger.name).env(PEERS, format!("7,{STRANGER}")).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("believes Some(Float(99.0))"), "{said}");
    stranger.end();
    let lock = Lock::create(0).unwrap();
    Lock::attach(lock.fd().try_clone_to_owned().unwrap()).unwrap();
    let strangers = rustix::process::Uid::from_raw(STRANGER);
    // The file's flags forbid a change of its owner, so the test removes them first.
    rustix::fs::ioctl_setflags(lock.fd(), rustix::fs::IFlags::empty()).unwrap();
    rustix::fs::fchown(lock.fd(), Some(strangers), None).unwrap();
    let why = Lock::attach(lock.fd().try_clone_to_owned().unwrap()).unwrap_err();
    assert_eq!((why.errno, why.to_string().contains("user 65534")), (Errno::PERM, true), "{why}");
}

//! The process of a guest: starts its QEMU, places its threads, passes its console on, watches it, and stops it in order.

use crate::console::Console;
use crate::model::{Accel, Guest, Network, Places, arguments};
use crate::net;
use crate::place::{PlaceError, place};
use crate::qmp::codec::Message;
use crate::qmp::{ANSWER_WITHIN, Client, QmpError};
use crate::stop::{Step, Stop};
use crate::usage::Usage;
use base::{DurNs, MonoNs};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use sys::clock::mono_now;
use sys::program::{Missing, find};
use sys::signal::{END_SIGNALS, SIGCHLD, SignalFd};

/// How long QEMU may take until it answers: it loads images, and locks its memory where it is told to.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(20);
/// Between two looks whether it has begun.
const LOOK: DurNs = DurNs::from_ms(5);
/// Between two looks at QEMU while it runs.
const WATCH: DurNs = DurNs::from_secs(10);
/// The kernel's limit for the path of a socket, less the longest name of one.
const FOLDER_BYTES_MAX: usize = 95;
/// Answers and events of QEMU that are taken between two looks at everything else.
const MESSAGES: usize = 64;
/// The file whose lock says that somebody serves the guest; it has the process's number.
pub const LOCK: &str = "lock";
/// The file with its CPU use.
pub const USAGE: &str = "usage";

/// The signal that nothing survives.
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
/// Who kills a QEMU, but for us, and what helps.
const KILLED: &str = "somebody killed it, or the kernel did for memory: raise `memory_max`, its own or its partition's (it bounds the guest and QEMU together; \
     with `mlock` an emulated guest's code, 1 GiB, is locked, too)";

/// Where the reason stands that a QEMU ended so.
fn why(status: ExitStatus) -> &'static str {
    if status.signal() == Some(SIGKILL) { KILLED } else { "its own words stand above" }
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It shut down by itself.
    ByItself,
    /// It shut down when it was asked to.
    Asked,
    /// It was to stop before its first instruction.
    Unstarted,
}

/// Why a guest is not served, or did not end in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// QEMU is not installed.
    #[error("{0}: install QEMU (Debian: qemu-system-x86), or name it with `program`")]
    Program(#[from] Missing),
    /// A file of the guest is missing.
    #[error("{what} {}: {error}; does the path begin at the plant file's folder?", .path.display())]
    File {
        /// Which of them.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The processor was wanted.
    #[error(
        "accel = \"kvm\": /dev/kvm: {0}; load the module kvm_intel or kvm_amd and give access to /dev/kvm, or say accel = \"auto\""
    )]
    Kvm(io::Error),
    /// There is one of this name.
    #[error(
        "a guest {name:?} is served already, by process {pid}; stop it (`tahti guest stop`) or give this one another name"
    )]
    Running {
        /// Its name.
        name: String,
        /// Who serves it.
        pid: String,
    },
    /// The sockets' path.
    #[error("the path {} is too long for a Unix socket (at most {FOLDER_BYTES_MAX} bytes); set TAHTI_RUN to a shorter one", .0.display())]
    TooLong(PathBuf),
    /// The guest's folder, or its process.
    #[error("{}: {error}; check its owner, its mode and the room there", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// No network.
    #[error("the guest's network: {0}; are there too many open files or threads?")]
    Network(io::Error),
    /// The kernel's answer about signals.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// It ended before it ran.
    #[error("QEMU ended with {} before the guest ran; {}", .0, why(*.0))]
    Began(ExitStatus),
    /// It never answered.
    #[error("QEMU did not begin to answer within {BEGIN_WITHIN}: {0}; it was killed")]
    Silent(QmpError),
    /// Its threads are not where they should be.
    #[error("{0}; the guest was not started")]
    Place(#[from] PlaceError),
    /// QEMU refuses to run it.
    #[error("{0}; the guest was not started")]
    Qmp(#[from] QmpError),
    /// QEMU failed while the guest ran.
    #[error("QEMU ended with {} while the guest ran; {}", .0, why(*.0))]
    Lost(ExitStatus),
    /// The guest did not shut down in time.
    #[error("the guest did not shut down within {within}: {}; look at its console (does it listen to the power button?), or raise `stop_within`",
        if *.killed { "QEMU did not quit either and was killed" } else { "QEMU was told to quit" })]
    Hung {
        /// What it had.
        within: DurNs,
        /// Whether QEMU hung, too.
        killed: bool,
    },
}

/// Serves a guest in a folder until it ends or SIGTERM comes; a second SIGTERM takes the next step at once. What happens is told in
/// lines, what the guest says on its console goes to stdout.
///
/// Blocks, and allocates.
///
/// # Errors
/// What is missing or refused, and how QEMU or the guest failed. Nothing is left behind then either.
pub fn serve(guest: &Guest, folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Ended, ServeError> {
    let signals = SignalFd::new(&[END_SIGNALS[0], END_SIGNALS[1], SIGCHLD])?;
    files(guest)?;
    let kvm = kvm(guest.accel)?;
    let held = Held::take(guest, folder)?;
    let wire = match guest.network {
        Network::User => Some(net::wire().map_err(ServeError::Network)?),
        Network::None => None,
    };
    let (theirs, ours) = wire.unzip();
    let (mut kvm, theirs) = (kvm, theirs.as_ref());
    let mut qemu = Qemu::start(guest, &held.places, kvm.is_ok(), theirs)?;
    let network = ours.map(|ours| net::start(&guest.allow, guest.network_rate, ours));
    let network = network.transpose().map_err(ServeError::Network)?;
    let mut connected = qemu.connect(&held.places.control, &signals);
    if let (Err(ServeError::Began(status)), Accel::Auto, true) = (&connected, guest.accel, kvm.is_ok()) {
        // A processor that KVM has, but not as QEMU needs it.
        kvm = Err(format!("QEMU ended with {status} under KVM; its own words stand above"));
        qemu = Qemu::start(guest, &held.places, false, theirs)?;
        connected = qemu.connect(&held.places.control, &signals);
    }
    let Some(mut qmp) = connected? else { return Ok(Ended::Unstarted) };
    // Before the first byte comes.
    let mut console = Console::connect(&held.places.console)
        .map_err(|error| ServeError::Io { path: held.places.console.clone(), error })?;
    let vcpus = place(guest, &mut qmp, qemu.pid())?;
    for vcpu in &vcpus {
        tell(&format!("virtual CPU {} is thread {}, CPUs {}, {}", vcpu.index, vcpu.tid, vcpu.cpus, vcpu.class));
    }
    let by = match (is_accelerated(&mut qmp)?, kvm) {
        (true, _) => "by the processor (KVM)".to_owned(),
        (false, Err(why)) => format!("EMULATED, many times slower than the processor: {why}"),
        (false, Ok(())) => "EMULATED, many times slower than the processor: QEMU did not get KVM".to_owned(),
    };
    if wishes_to_end(&signals)? > 0 {
        return Ok(Ended::Unstarted);
    }
    qmp.call("cont")?;
    tell(&format!("{} runs, {by}", guest.name));
    let mut usage = Usage::begin(qemu.pid(), &vcpus, folder.join(USAGE), mono_now());
    let mut watched = Watched {
        qmp: Some(qmp),
        path: held.places.control.clone(),
        asked: None,
        lost: false,
        next: mono_now() + WATCH,
    };
    let mut stop: Option<Stop> = None;
    loop {
        let mut fds = vec![signals.as_fd()];
        fds.extend(console.fds());
        fds.extend(watched.qmp.as_ref().map(|qmp| qmp.as_fd()));
        let soon = stop.is_some() || watched.asked.is_some() || console.is_stuck();
        let limit = if soon { DurNs::from_ms(20) } else { DurNs::from_secs(1) };
        sys::poll::readable(&fds, limit);
        console.pass_on();
        let wishes = wishes_to_end(&signals)? + usize::from(console.wants_to_end());
        for _ in 0..wishes {
            let now = mono_now();
            match &mut stop {
                Some(stop) => stop.hurry(now),
                None => stop = Some(Stop::begin(now, guest.stop_within)),
            }
        }
        if let Some(status) = qemu.ended(&held.places.control)? {
            console.pass_on();
            return outcome(status, stop.as_ref(), guest.stop_within);
        }
        let now = mono_now();
        usage.look(now);
        let tell = &mut |line: &str| {
            if console.leaves_line() {
                println!();
            }
            tell(line);
        };
        network.iter().flat_map(net::Running::told).for_each(|line| tell(&line));
        let is_refused = !watched.go_on(now, tell);
        match &mut stop {
            Some(stop) => {
                if is_refused {
                    stop.hurry(now);
                }
                let before = stop.taken();
                if let Some(step) = stop.due(now)
                    && !watched.step(step, before == Some(step), &mut qemu, now, tell)
                {
                    stop.hurry(now);
                }
            }
            None => watched.look(now),
        }
    }
}

/// How often it was told to end since the last look.
fn wishes_to_end(signals: &SignalFd) -> Result<usize, ServeError> {
    let mut count = 0;
    while let Some(arrived) = signals.read()? {
        count += usize::from(arrived.signal != SIGCHLD);
    }
    Ok(count)
}

/// What the end of QEMU means.
fn outcome(status: ExitStatus, stop: Option<&Stop>, within: DurNs) -> Result<Ended, ServeError> {
    match stop.and_then(Stop::taken) {
        None if status.success() => Ok(Ended::ByItself),
        Some(Step::Powerdown) if status.success() => Ok(Ended::Asked),
        None | Some(Step::Powerdown) => Err(ServeError::Lost(status)),
        Some(step) => Err(ServeError::Hung { within, killed: step == Step::Kill || status.signal().is_some() }),
    }
}

/// Whether all files of a guest can be read, and QEMU and the processor be had; QEMU would tell it less well.
///
/// # Errors
/// The first that is missing.
pub fn files(guest: &Guest) -> Result<(), ServeError> {
    find(&guest.program, Path::new("."), None)?;
    let check = |what: &'static str, path: &Path, write: bool| {
        let opened = OpenOptions::new().read(true).write(write).open(path);
        opened.map(drop).map_err(|error| ServeError::File { what, path: path.to_owned(), error })
    };
    guest.kernel.iter().try_for_each(|path| check("the kernel", path, false))?;
    guest.initrd.iter().try_for_each(|path| check("the initial RAM disk", path, false))?;
    guest.firmware.iter().try_for_each(|path| check("the firmware", path, false))?;
    guest.firmware_variables.iter().try_for_each(|path| check("the firmware's variables", path, true))?;
    guest.disks.iter().try_for_each(|path| check("the disk image", path, true))?;
    kvm(guest.accel).map(drop)
}

/// Whether the processor is to run the guest; `Err` says why not.
fn kvm(wanted: Accel) -> Result<Result<(), String>, ServeError> {
    let open = || OpenOptions::new().read(true).write(true).open("/dev/kvm").map(drop);
    match wanted {
        Accel::Emulated => Ok(Err("accel = \"emulated\"".into())),
        Accel::Auto => Ok(open().map_err(|error| format!("/dev/kvm: {error}"))),
        Accel::Kvm => open().map(Ok).map_err(ServeError::Kvm),
    }
}

/// Whether QEMU says that it has KVM.
///
/// # Errors
/// It does not answer.
pub fn is_accelerated(qmp: &mut Client) -> Result<bool, QmpError> {
    Ok(qmp.call("query-kvm")?["enabled"] == true)
}

/// A guest's folder, which is this process's for as long as it lives.
struct Held {
    folder: PathBuf,
    places: Places,
    /// Locked.
    _lock: File,
}

impl Held {
    fn take(guest: &Guest, folder: &Path) -> Result<Self, ServeError> {
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            return Err(ServeError::TooLong(folder.to_owned()));
        }
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| ServeError::Io { path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
        let path = folder.join(LOCK);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut lock = open.map_err(io(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = lock.read_to_string(&mut pid);
                return Err(ServeError::Running { name: guest.name.clone(), pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(io(&path)(error)),
        }
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(io(&path))?;
        let places = Places::of(folder);
        // A QEMU whose process was killed while nobody looked after it.
        if let Ok(mut left) = Client::connect(&places.status, ANSWER_WITHIN) {
            let _ = left.call("quit");
        }
        let held = Self { folder: folder.to_owned(), places, _lock: lock };
        held.clear();
        Ok(held)
    }

    fn clear(&self) {
        // One that is not there is as good.
        self.places.all().into_iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
        let _ = fs::remove_file(self.folder.join(USAGE));
        let _ = fs::remove_file(self.folder.join(LOCK));
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A QEMU that ends with who serves it.
struct Qemu {
    child: Child,
    ended: bool,
}

impl Qemu {
    /// Its end of the wire is the only descriptor that it gets.
    fn start(guest: &Guest, places: &Places, kvm: bool, wire: Option<&OwnedFd>) -> Result<Self, ServeError> {
        let mut command = Command::new(&guest.program);
        let wire = wire.map(AsRawFd::as_raw_fd);
        command.args(arguments(guest, places, kvm, wire)).stdin(Stdio::null());
        // What is sent to a terminal's programs would have it end without asking the guest.
        let failed = |error| ServeError::Io { path: PathBuf::from(&guest.program), error };
        let child = command.process_group(0).spawn().map_err(failed)?;
        Ok(Self { child, ended: false })
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it answers; `None`: it is not to run any more.
    fn connect(&mut self, socket: &Path, signals: &SignalFd) -> Result<Option<Client>, ServeError> {
        let end = mono_now() + BEGIN_WITHIN;
        let mut begun: Option<Client> = None;
        loop {
            if let Some(status) = self.ended(socket)? {
                return Err(ServeError::Began(status));
            }
            if wishes_to_end(signals)? > 0 {
                return Ok(None);
            }
            match &mut begun {
                None => match Client::begin(socket, ANSWER_WITHIN) {
                    Ok(client) => begun = Some(client),
                    Err(QmpError::Io(_)) if mono_now() < end => {}
                    Err(error) => return Err(ServeError::Silent(error)),
                },
                Some(client) => {
                    match client.take() {
                        // It ends: how, the next look says.
                        Err(QmpError::Closed) if mono_now() < end => begun = None,
                        Err(error) => return Err(ServeError::Silent(error)),
                        Ok(_) if client.is_ready() => return Ok(begun),
                        Ok(_) if mono_now() >= end => return Err(ServeError::Silent(client.silent("a connection"))),
                        Ok(_) => {}
                    }
                }
            }
            let mut fds = vec![signals.as_fd()];
            fds.extend(begun.as_ref().map(|client| client.as_fd()));
            sys::poll::readable(&fds, LOOK);
        }
    }

    fn ended(&mut self, place: &Path) -> Result<Option<ExitStatus>, ServeError> {
        let status = self.child.try_wait().map_err(|error| ServeError::Io { path: place.to_owned(), error })?;
        self.ended |= status.is_some();
        Ok(status)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        if !self.ended {
            // Both fail only if it has ended, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A running QEMU, as far as it answers. Nothing here waits for it.
struct Watched {
    qmp: Option<Client>,
    path: PathBuf,
    asked: Option<Asked>,
    /// Whether it was told that QEMU does not answer.
    lost: bool,
    next: MonoNs,
}

/// What QEMU is told.
struct Asked {
    command: &'static str,
    /// Its number, once it was sent.
    id: Option<u64>,
    end: MonoNs,
}

impl Watched {
    /// Takes what QEMU has said, and sends what waits; whether QEMU does what it is told.
    fn go_on(&mut self, now: MonoNs, tell: &mut dyn FnMut(&str)) -> bool {
        for _ in 0..MESSAGES {
            match self.qmp.as_mut().map(Client::take) {
                Some(Ok(Some(Message::Event(name)))) => happened(&name, tell),
                Some(Ok(Some(Message::Answer { id, result }))) => {
                    let Some(asked) = self.asked.take_if(|asked| asked.id.is_some() && asked.id == id) else {
                        continue;
                    };
                    if std::mem::take(&mut self.lost) {
                        tell("QEMU answers again");
                    }
                    if let Err(why) = result {
                        tell(&QmpError::Refused { command: asked.command.to_owned(), why }.to_string());
                        return false;
                    }
                }
                Some(Ok(Some(Message::Greeting))) => {}
                Some(Ok(None)) | None => break,
                // It ends, mostly; if not, the next look says so.
                Some(Err(QmpError::Closed)) => (self.qmp, self.asked) = (None, None),
                Some(Err(error)) => return self.lose(&error, tell),
            }
        }
        let (Some(qmp), Some(asked)) = (&mut self.qmp, &mut self.asked) else { return true };
        if qmp.is_ready() && asked.id.is_none() {
            match qmp.send(asked.command, None) {
                Ok(id) => asked.id = Some(id),
                Err(error) => return self.lose(&error, tell),
            }
        }
        if now >= asked.end {
            let error = qmp.silent(asked.command);
            return self.lose(&error, tell);
        }
        true
    }

    fn lose(&mut self, error: &QmpError, tell: &mut dyn FnMut(&str)) -> bool {
        (self.qmp, self.asked) = (None, None);
        if !std::mem::replace(&mut self.lost, true) {
            tell(&format!("{error}; the guest is left alone, QEMU is tried again every {WATCH}"));
        }
        false
    }

    /// Has QEMU told something as soon as it listens; whether there is anybody to be told.
    fn ask(&mut self, command: &'static str, now: MonoNs) -> bool {
        if self.qmp.is_none() {
            self.qmp = Client::begin(&self.path, ANSWER_WITHIN).ok();
        }
        self.asked = self.qmp.is_some().then_some(Asked { command, id: None, end: now + ANSWER_WITHIN });
        self.qmp.is_some()
    }

    /// Asks QEMU now and then whether it is still there.
    fn look(&mut self, now: MonoNs) {
        if now >= self.next && self.asked.is_none() {
            self.ask("query-status", now);
            self.next = now + WATCH;
        }
    }

    /// Takes a step of a stop, for the first time or `again`; whether it can be.
    fn step(&mut self, step: Step, again: bool, qemu: &mut Qemu, now: MonoNs, tell: &mut dyn FnMut(&str)) -> bool {
        let (command, said) = match step {
            Step::Powerdown => ("system_powerdown", "the guest is asked to shut down"),
            Step::Quit => ("quit", "QEMU is told to quit"),
            Step::Kill => {
                tell("QEMU is killed");
                return qemu.child.kill().is_ok();
            }
        };
        if again {
            // One that has not answered yet is waited for as before; who does not listen any more ends, mostly.
            if self.asked.is_none() {
                self.ask(command, now);
            }
            return true;
        }
        tell(said);
        // It shall be told in any case.
        self.lost = false;
        self.ask(command, now)
    }
}

/// What the guest does with its power is worth a line; presses of its button, each an event, and hundreds of others are not.
fn happened(event: &str, tell: &mut dyn FnMut(&str)) {
    let worth = ["SHUTDOWN", "RESET", "GUEST_PANICKED", "WATCHDOG", "STOP", "RESUME", "BLOCK_IO_ERROR"];
    if worth.contains(&event) {
        tell(&format!("event {event}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::guest;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tahti-guest-{name}-{}", std::process::id())))
        }

        fn fails(&self, guest: &Guest) -> String {
            let found = serve(guest, &self.0, &mut |_| ()).unwrap_err().to_string();
            assert!(!self.0.exists(), "{} was left behind", self.0.display());
            found
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_missing_is_named_with_a_remedy_and_nothing_is_left() {
        let place = Place::new("missing");
        let guest = Guest { accel: Accel::Emulated, ..guest() };
        let found = place.fails(&Guest { program: "no-such-qemu".into(), ..guest.clone() });
        assert!(found.contains("no-such-qemu") && found.contains("install QEMU"), "{found}");
        let found = place.fails(&Guest { disks: vec!["/nowhere/hmi.img".into()], ..guest.clone() });
        assert!(found.contains("the disk image /nowhere/hmi.img: No such file"), "{found}");
        let found = place.fails(&Guest { program: "/bin/false".into(), ..guest });
        assert!(found.contains("before the guest ran"), "{found}");
    }

    #[test]
    fn a_name_that_is_taken_is_refused_with_its_owner() {
        let place = Place::new("taken");
        let held = Held::take(&guest(), &place.0).unwrap();
        let error = Held::take(&guest(), &place.0).err().unwrap().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        assert!(!place.0.exists());
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let error = Held::take(&guest(), &Path::new("/tmp").join("x".repeat(100))).err().unwrap();
        assert!(matches!(error, ServeError::TooLong(_)));
    }

    #[test]
    fn the_end_of_qemu_means_what_was_asked_of_it() {
        let (good, bad) = (ExitStatus::from_raw(0), ExitStatus::from_raw(9));
        let within = DurNs::from_secs(1);
        let mut stop = Stop::begin(MonoNs(0), within);
        assert_eq!(outcome(good, None, within).unwrap(), Ended::ByItself);
        assert!(matches!(outcome(bad, None, within), Err(ServeError::Lost(_))));
        stop.due(MonoNs(0));
        assert_eq!(outcome(good, Some(&stop), within).unwrap(), Ended::Asked);
        stop.hurry(MonoNs(1));
        stop.due(MonoNs(1));
        assert!(matches!(outcome(good, Some(&stop), within), Err(ServeError::Hung { killed: false, .. })));
    }
}

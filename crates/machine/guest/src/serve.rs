//! The process of a guest: starts its QEMU, places its threads, forwards its console, watches it, and stops it in
//! order.

use crate::console::Console;
use crate::model::{Accel, Guest, Network};
use crate::net;
use crate::place::{PlaceError, place};
use crate::qemu::{LockedFolder, Qemu};
use crate::qmp::{Client, QmpError};
use crate::state::{INTERNAL_ERROR, Still};
use crate::stop::{Step, Stop};
use crate::usage::Usage;
use crate::watch::{Watched, said};
use base::{DurNs, Visible};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use sys::clock::mono_now;
use sys::notify::Supervisor;
use sys::program::{Missing, find};
use sys::signal::{SIGCHLD, SignalFd, end_signals};

/// Time QEMU has until its first answer. It loads images, and locks its memory if configured.
pub(crate) const BEGIN_WITHIN: DurNs = DurNs::from_secs(20);
/// After the guest has run under KVM for this time, a failure no longer causes a restart with emulation.
const KVM_PROVEN: DurNs = DurNs::from_secs(300);
/// The kernel's limit for a socket path, minus the longest socket name.
pub(crate) const FOLDER_BYTES_MAX: usize = 95;
/// The file that is locked while a process serves the guest. It contains the process ID.
pub const LOCK: &str = "lock";
/// The file with its CPU usage.
pub const USAGE: &str = "usage";
/// The file with one line about a fault: the guest is emulated although the processor was requested, or does not run.
pub const NOTE: &str = "note";

/// The signal that no process survives.
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
/// Signal that ends a QEMU whose KVM lacks something that it needs.
const SIGABRT: i32 = rustix::process::Signal::ABORT.as_raw();
/// Explanation of a SIGKILL that tahti did not send.
const KILLED: &str = "a user killed it, or the kernel because of its memory limit: raise `memory_max`, its own or its partition's (it bounds the guest and QEMU together; \
     with `mlock` an emulated guest's code, 1 GiB, is locked, too)";

/// Explanation of QEMU's exit status.
fn why(status: ExitStatus) -> &'static str {
    if status.signal() == Some(SIGKILL) { KILLED } else { "see its messages above" }
}

/// Makes the text safe for a terminal.
const fn visible(text: &str) -> Visible<'_> {
    Visible { text, colours: false }
}

/// Normal end of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEnd {
    /// It shut down by itself.
    ByItself,
    /// The guest shut down after a request.
    Asked,
    /// A request to stop came before its first instruction.
    Unstarted,
}

/// Reason why a guest is not served, or did not end normally.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// QEMU is not installed.
    #[error("{0}: install QEMU (Debian: qemu-system-x86), or name it with `program`")]
    Program(#[from] Missing),
    /// A file of the guest is missing.
    #[error("{what} {}: {error}; does the path begin at the plant file's folder?", .path.display())]
    File {
        /// Kind of file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// KVM was requested, but is unavailable.
    #[error(
        "accel = \"kvm\": /dev/kvm: {0}; load the module kvm_intel or kvm_amd and give access to /dev/kvm, or set accel = \"auto\""
    )]
    Kvm(io::Error),
    /// Another process serves a guest of this name.
    #[error(
        "a guest {name:?} is served already, by process {pid}; stop it (`tahti guest stop`) or give this one another name"
    )]
    Running {
        /// Its name.
        name: String,
        /// ID of the process.
        pid: String,
    },
    /// The path of the sockets is too long.
    #[error("the path {} is too long for a Unix socket (at most {FOLDER_BYTES_MAX} bytes); set TAHTI_RUN to a shorter one", .0.display())]
    TooLong(PathBuf),
    /// Error on the guest's folder or on starting QEMU.
    #[error("{}: {error}; check its owner, its mode and the room there", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The network could not be started.
    #[error("the guest's network: {0}; are there too many open files or threads?")]
    Network(io::Error),
    /// The kernel's error on signals.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// QEMU ended before the guest ran.
    #[error("QEMU ended with {} before the guest ran; {}", .0, why(*.0))]
    Began(ExitStatus),
    /// QEMU never answered.
    #[error("QEMU did not begin to answer within {BEGIN_WITHIN}: {0}; it was killed")]
    Silent(QmpError),
    /// The threads could not be placed.
    #[error("{0}; the guest was not started")]
    Place(#[from] PlaceError),
    /// QEMU refused to run the guest.
    #[error("{0}; the guest was not started")]
    Qmp(#[from] QmpError),
    /// QEMU failed while the guest ran.
    #[error("QEMU ended with {} while the guest ran; {}", .0, why(*.0))]
    Lost(ExitStatus),
    /// The guest does not run and can only be restarted.
    #[error("the guest cannot continue ({}): {}; {}", visible(.state), .still.what, .still.remedy)]
    Over {
        /// QEMU's run state.
        state: String,
        /// Its meaning.
        still: Still,
    },
    /// The guest did not shut down in time.
    #[error("the guest did not shut down within {within}: {}; check on its console that it handles the power button, or raise `stop_within`",
        if *.killed { "QEMU did not quit either and was killed" } else { "QEMU received the request to quit" })]
    Hung {
        /// The time limit.
        within: DurNs,
        /// Whether QEMU also hung.
        killed: bool,
    },
}

/// Serves a guest in a folder until it ends or SIGTERM arrives. A second SIGTERM takes the next step of the stop at
/// once. `tell` gets a line for each event. The guest's console goes to stdout.
///
/// Blocks and allocates.
///
/// # Errors
/// A missing or refused resource, or a failure of QEMU or the guest. Nothing is left behind in any case.
pub fn serve(guest: &Guest, folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<GuestEnd, ServeError> {
    files(guest)?;
    serve_by(kvm(guest.accel)?, guest, folder, tell)
}

/// Serves a guest with KVM, or without it for the given reason. If `accel` is "auto" and KVM fails early, the guest is
/// restarted with emulation.
fn serve_by(
    mut kvm: Result<(), NoKvm>,
    guest: &Guest,
    folder: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<GuestEnd, ServeError> {
    let signals = SignalFd::new(&[&end_signals()[..], &[SIGCHLD]].concat())?;
    let held = LockedFolder::take(guest, folder)?;
    loop {
        let mut lived = DurNs::ZERO;
        let ended = run(&kvm, guest, &held, &signals, &mut lived, tell);
        match ended {
            Err(error) if guest.accel == Accel::Auto && kvm.is_ok() && lived < KVM_PROVEN && error.is_of_kvm() => {
                tell(&format!("under KVM: {error}; it starts again, emulated"));
                kvm = Err(NoKvm::Failed(error.in_short()));
                held.clear();
            }
            ended => return ended,
        }
    }
}

/// Runs a QEMU until it ends. Sets `lived` to the time that the guest ran.
fn run(
    kvm: &Result<(), NoKvm>,
    guest: &Guest,
    held: &LockedFolder,
    signals: &SignalFd,
    lived: &mut DurNs,
    tell: &mut dyn FnMut(&str),
) -> Result<GuestEnd, ServeError> {
    let wire = match guest.network {
        Network::User => Some(net::wire().map_err(ServeError::Network)?),
        Network::None => None,
    };
    let (theirs, ours) = wire.unzip();
    let mut qemu = Qemu::start(guest, &held.places, kvm.is_ok(), theirs.as_ref())?;
    let network = ours.map(|ours| net::start(&guest.allow, guest.network_rate, ours));
    let network = network.transpose().map_err(ServeError::Network)?;
    let Some(mut qmp) = qemu.connect(&held.places.control, signals)? else { return Ok(GuestEnd::Unstarted) };
    // Before the first byte arrives.
    let mut console = Console::connect(&held.places.console)
        .map_err(|error| ServeError::Io { path: held.places.console.clone(), error })?;
    let vcpus = place(guest, &mut qmp, qemu.pid())?;
    for vcpu in &vcpus {
        tell(&format!("virtual CPU {} is thread {}, CPUs {}, {}", vcpu.index, vcpu.tid, vcpu.cpus, vcpu.class));
    }
    let emulated = match (is_accelerated(&mut qmp)?, kvm) {
        (true, _) => None,
        (false, Err(why)) => Some(format!("EMULATED, many times slower than the processor: {why}")),
        (false, Ok(())) => Some("EMULATED, many times slower than the processor: QEMU did not get KVM".to_owned()),
    };
    // Not a fault if emulation was requested.
    let emulated_note = emulated.as_deref().filter(|_| guest.accel != Accel::Emulated);
    held.note(emulated_note);
    if wishes_to_end(signals)? > 0 {
        return Ok(GuestEnd::Unstarted);
    }
    qmp.call("cont")?;
    let begun = mono_now();
    tell(&format!("{} runs, {}", guest.name, emulated.as_deref().unwrap_or("by the processor (KVM)")));
    let mut usage = Usage::begin(qemu.pid(), &vcpus, held.folder.join(USAGE), begun);
    let mut watched = Watched::begin(qmp, held.places.control.clone(), begun);
    let (mut stop, mut supervisor): (Option<Stop>, _) = (None, Supervisor::from_env());
    loop {
        let mut fds = vec![signals.as_fd()];
        fds.extend(console.fds());
        fds.extend(watched.qmp.as_ref().map(|qmp| qmp.as_fd()));
        let soon = stop.is_some() || watched.awaits() || console.is_stuck();
        let limit = if soon { DurNs::from_ms(20) } else { DurNs::from_secs(1) };
        sys::poll::readable(&fds, limit);
        console.pass_on();
        let wishes = wishes_to_end(signals)? + usize::from(console.wants_to_end());
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
        *lived = now - begun;
        usage.look(now);
        let tell = &mut |line: &str| {
            if console.leaves_line() {
                println!();
            }
            tell(line);
        };
        network.iter().flat_map(net::Running::log).for_each(|line| tell(&line));
        supervisor.works(now, watched.is_lost().then_some("QEMU does not answer"));
        let before = watched.still().cloned();
        let is_refused = !watched.go_on(now, tell);
        let still = watched.still();
        if before.as_ref() != still {
            held.note(still.map(said).as_deref().or(emulated_note));
        }
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
            None => match still {
                Some((state, still)) if still.is_over => {
                    return Err(ServeError::Over { state: state.clone(), still: *still });
                }
                _ => watched.look(now),
            },
        }
    }
}

impl ServeError {
    /// Whether another KVM, or emulation, might help.
    fn is_of_kvm(&self) -> bool {
        match self {
            Self::Began(_) => true,
            Self::Lost(status) => status.signal() == Some(SIGABRT),
            Self::Over { state, .. } => state == INTERNAL_ERROR,
            _ => false,
        }
    }

    /// Short form for a line with little space.
    fn in_short(&self) -> String {
        match self {
            Self::Began(status) | Self::Lost(status) => format!("QEMU ended with {status}"),
            Self::Over { state, .. } => visible(state).to_string(),
            other => other.to_string(),
        }
    }
}

/// Number of requests to end since the last call.
pub(crate) fn wishes_to_end(signals: &SignalFd) -> Result<usize, ServeError> {
    let mut count = 0;
    while let Some(arrived) = signals.read()? {
        count += usize::from(arrived.signal != SIGCHLD);
    }
    Ok(count)
}

/// Meaning of QEMU's exit.
fn outcome(status: ExitStatus, stop: Option<&Stop>, within: DurNs) -> Result<GuestEnd, ServeError> {
    match stop.and_then(Stop::taken) {
        None if status.success() => Ok(GuestEnd::ByItself),
        Some(Step::Powerdown) if status.success() => Ok(GuestEnd::Asked),
        None | Some(Step::Powerdown) => Err(ServeError::Lost(status)),
        Some(step) => Err(ServeError::Hung { within, killed: step == Step::Kill || status.signal().is_some() }),
    }
}

/// Checks that all files of a guest can be opened and that QEMU and KVM are available. QEMU's own messages are less
/// clear.
///
/// # Errors
/// The first missing item.
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

/// Whether KVM is to run the guest; the inner `Err` has the reason why not.
fn kvm(wanted: Accel) -> Result<Result<(), NoKvm>, ServeError> {
    let open = || OpenOptions::new().read(true).write(true).open("/dev/kvm").map(drop);
    match wanted {
        Accel::Emulated => Ok(Err(NoKvm::Emulated)),
        Accel::Auto => Ok(open().map_err(NoKvm::Device).and_then(|()| {
            let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            if virtualizes(&text) { Ok(()) } else { Err(NoKvm::Software) }
        })),
        Accel::Kvm => open().map(Ok).map_err(ServeError::Kvm),
    }
}

/// Reason why KVM does not run a guest.
#[derive(Debug, thiserror::Error)]
enum NoKvm {
    #[error("accel = \"emulated\"")]
    Emulated,
    #[error("/dev/kvm: {0}")]
    Device(io::Error),
    #[error(
        "the processor has neither vmx nor svm (/proc/cpuinfo), so this KVM runs without its help, and little but systems made for it; \
         accel = \"kvm\" tries it all the same"
    )]
    Software,
    #[error("KVM failed: {0}")]
    Failed(String),
}

/// Whether the processor supports virtualization, from the kernel's CPU flags. Only Intel and AMD processors list such
/// flags; others pass.
fn virtualizes(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_none_or(|flags| flags.split_ascii_whitespace().any(|flag| ["vmx", "svm"].contains(&flag)))
}

/// Whether QEMU uses KVM.
///
/// # Errors
/// QEMU does not answer.
pub fn is_accelerated(qmp: &mut Client) -> Result<bool, QmpError> {
    Ok(qmp.call("query-kvm")?["enabled"] == true)
}

#[cfg(test)]
mod tests;

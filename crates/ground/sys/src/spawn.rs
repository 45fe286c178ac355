//! Starts a program, with all its settings applied between `fork` and `exec`.
//!
//! Between the two, the child may only make async-signal-safe calls. [`Prepared`] therefore allocates all memory before
//! the fork. Each [`Step`] is one or a few raw system calls, and failures are sent to the parent through a pipe as
//! numbers. Nothing here allocates, locks or panics in the child.

use crate::error::{Error, Result};
use crate::process::Process;
use crate::sched::{Scheduling, attributes};
use crate::trace::{Traced, Tracing};
use base::{CpuSet, DurNs, Policy};
use rustix::fd::AsFd as _;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ffi::{CStr, CString};

/// A step of the child before `exec`.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sets all signals to their default action and unblocks them.
    ResetSignals,
    /// Forks again. The first child exits with 0; its child continues the start. Its parent is init or the next
    /// subreaper.
    Detach,
    /// A new session without a terminal.
    NewSession,
    /// A new process group.
    NewGroup,
    /// Makes the terminal `fd` the session's controlling terminal.
    ControllingTerminal(RawFd),
    /// Writes bytes to an existing file, such as `0` to a control group's `tasks`.
    Write(CString, Vec<u8>),
    /// Sets the scheduling class. A time-sharing class with nice value 0 keeps the process's current nice value.
    Scheduling(Scheduling),
    /// Sets the nice value for time sharing. It also applies to threads that leave a real-time class.
    Nice(i8),
    /// Sets the CPU affinity.
    Affinity(CpuSet),
    /// Binds memory to the NUMA nodes of this mask.
    MemoryNodes(u64),
    /// Soft and hard resource limit by the kernel's number.
    Limit(u32, u64, u64),
    /// Waits for [`HeldChild::go`]. If the parent drops its [`HeldChild`] instead, or dies, the child exits here.
    Hold,
    /// Sets the working directory.
    Directory(CString),
    /// Sets the umask: the permissions that new files do not get.
    Umask(u32),
    /// Disables gaining privileges by `exec` for the process and its descendants: setuid bits and file capabilities
    /// have no effect.
    NoNewPrivileges,
    /// A separate mount namespace. Mounts of the machine appear in it; its own mounts are not visible outside.
    MountNamespace,
    /// Makes a path a separate mount, including everything mounted below it.
    BindHere(CString),
    /// Bind-mounts the first path at the second one.
    BindOver(CString, CString),
    /// Mounts an empty file system in memory at a path, with these options (`mode=…`).
    EmptyAt(CString, CString),
    /// Makes a mount read-only, optionally with those below it (Linux 5.12).
    ReadOnly {
        /// The mount point.
        path: CString,
        /// Whether to include the mounts below.
        below: bool,
    },
    /// Keeps permitted capabilities across the next change of user.
    KeepCapabilities,
    /// Sets the supplementary groups.
    Groups(Vec<u32>),
    /// Sets the real, effective and saved group.
    Group(u32),
    /// Sets the real, effective and saved user.
    User(u32),
    /// Removes a capability from the bounding set permanently.
    DropBounding(u8),
    /// Sets the permitted, effective and inheritable capabilities.
    Capabilities(u64),
    /// Adds a capability to the ambient set.
    RaiseAmbient(u8),
    /// Duplicates a descriptor to a fixed, inheritable number.
    Descriptor(RawFd, RawFd),
    /// Marks all descriptors from this number on close-on-exec.
    CloseFrom(RawFd),
    /// Sets the signal that the child receives when the thread that started it ends.
    DeathSignal(i32),
    /// Requests tracing by the parent: the child stops after `exec`, before its first instruction
    /// ([`Spawned::traced`]).
    TraceMe,
}

/// A step, and whether its failure aborts the start.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// The step.
    pub step: Step,
    /// Whether a failure aborts the start.
    pub required: bool,
}

/// A program start, prepared for `fork`.
#[derive(Debug)]
pub struct Prepared {
    program: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    steps: Vec<PlannedStep>,
    /// Name of the variable that is set to the child's process id.
    pid_variable: Option<CString>,
}

/// A failed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step's index; `None`: `exec` itself.
    pub step: Option<usize>,
    /// The kernel's error.
    pub errno: rustix::io::Errno,
}

/// Result of a start.
#[derive(Debug)]
pub struct Spawned {
    /// The child, to be reaped by the caller; `None` if a required step or `exec` failed.
    pub child: Option<Process>,
    /// The child stopped before its first instruction, with [`Step::TraceMe`]. Dropping it resumes the child.
    pub traced: Option<Traced>,
    /// A traced child ended before its first instruction. It is not reaped, so that its status is still available.
    pub ended: bool,
    /// All failed steps, in order. If `child` is `None`, the last one aborted the start.
    pub refused: Vec<Refusal>,
}

/// Time between two checks whether a signal has stopped a traced child that sends no report.
const STOP_CHECK_EVERY: DurNs = DurNs::from_ms(20);

/// Codes in the pipe for a failed `exec` and for [`Step::Hold`]. There are never that many steps.
const EXEC: u32 = u32::MAX;
const HELD: u32 = u32::MAX - 1;

impl Prepared {
    /// Stores the parameters of a start. `program` is a path.
    #[must_use]
    pub fn new(program: CString, argv: Vec<CString>, envp: Vec<CString>, steps: Vec<PlannedStep>) -> Self {
        Self { program, argv, envp, steps, pid_variable: None }
    }

    /// Adds a variable whose value is the program's process id.
    #[must_use]
    pub fn with_pid_variable(mut self, name: CString) -> Self {
        self.pid_variable = Some(name);
        self
    }

    /// Forks, performs the steps, executes the program. Returns when the program is about to run its first instruction,
    /// or is stopped there ([`Step::TraceMe`]), or when the start has failed and the child has been reaped.
    ///
    /// The calling thread is the child's parent and tracer.
    ///
    /// # Errors
    /// No pipe or process could be created.
    pub fn spawn(&self) -> Result<Spawned> {
        self.hold()?.go()
    }

    /// Forks and performs the steps before [`Step::Hold`], where the child waits. Without such a step, everything is
    /// complete on return, as with [`spawn`](Self::spawn).
    ///
    /// # Errors
    /// No pipe or process could be created.
    pub fn hold(&self) -> Result<HeldChild> {
        let (report, tells) = pipe()?;
        let (waits, gate) = pipe()?;
        let waits = above(waits.as_raw_fd())?;
        let argv: Vec<*const libc::c_char> = pointers(&self.argv);
        let mut envp: Vec<*const libc::c_char> = pointers(&self.envp);
        let mut pid_variable = self.pid_variable.as_deref().map(PidVariable::new);
        if let Some(variable) = &pid_variable {
            envp.insert(0, variable.text.as_ptr().cast());
        }
        // SAFETY: the child only runs `run_child`, which makes raw system calls on memory prepared above and ends in
        // exec or _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            run_child(
                self,
                &argv,
                &envp,
                pid_variable.as_mut(),
                Ends { report: tells.as_raw_fd(), waits: waits.as_raw_fd(), gate },
            );
        }
        if pid < 0 {
            return Err(Error::last(format!("fork for {:?}", self.program)));
        }
        drop((tells, waits));
        // The number is valid, because the child has not been reaped.
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                // The child waits for its parent, or would run without a handle. Dropping the gate closes it.
                // SAFETY: numbers only; the child belongs to this process and has not been reaped.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                reap(pid);
                return Err(error);
            }
        };
        let required = self.steps.iter().map(|wanted| wanted.required).collect();
        let trace_step = self.steps.iter().position(|wanted| matches!(wanted.step, Step::TraceMe));
        let tracing = trace_step.map(|step| (step, Tracing::default()));
        let mut held =
            HeldChild { process: Some(process), waits: false, report, gate, required, tracing, refused: Vec::new() };
        held.listen();
        Ok(held)
    }
}

/// A child that waits at [`Step::Hold`]. Dropping it kills and reaps the child.
#[derive(Debug)]
pub struct HeldChild {
    process: Option<Process>,
    /// Whether the child waits. Otherwise the start is already complete.
    waits: bool,
    report: OwnedFd,
    gate: OwnedFd,
    required: Vec<bool>,
    /// The index of [`Step::TraceMe`], and the state of the tracing before `exec`.
    tracing: Option<(usize, Tracing)>,
    refused: Vec<Refusal>,
}

impl HeldChild {
    /// The child; `None` if a required step before the wait failed.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Lets the child continue with its program, and returns like [`Prepared::spawn`].
    ///
    /// # Errors
    /// The child could not be traced up to its `exec`, although it had requested it. It was killed and reaped.
    pub fn go(mut self) -> Result<Spawned> {
        if std::mem::take(&mut self.waits) {
            // A child killed meanwhile does not read it. Its end is found when it is reaped.
            let _ = rustix::io::write(&self.gate, b"g");
            self.listen();
        }
        let refused = std::mem::take(&mut self.refused);
        let tracing = self.tracing.take().filter(|(step, _)| !refused.iter().any(|one| one.step == Some(*step)));
        let (Some(child), Some((_, tracing))) = (self.process.as_ref(), tracing) else {
            return Ok(Spawned { child: self.process.take(), traced: None, ended: false, refused });
        };
        match tracing.await_exec(child.pid()) {
            Ok(traced) => {
                let ended = traced.is_none();
                Ok(Spawned { child: self.process.take(), traced, ended, refused })
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    /// Call this if the child was killed while it waited, and the caller has reaped it. Then there is nothing left to
    /// kill.
    pub fn was_reaped(mut self) {
        self.waits = false;
    }

    /// Reads the child's reports until it waits, runs its program, or has ended.
    fn listen(&mut self) {
        let mut word = [0u8; 8];
        while self.has_report() && read_whole(&self.report, &mut word) {
            let code = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            if code == HELD {
                self.waits = true;
                return;
            }
            let errno = i32::from_ne_bytes([word[4], word[5], word[6], word[7]]);
            let step = (code != EXEC).then_some(code as usize);
            self.refused.push(Refusal { step, errno: rustix::io::Errno::from_raw_os_error(errno) });
        }
        if self.refused.last().is_some_and(|last| last.step.is_none_or(|step| self.required[step]))
            && let Some(process) = self.process.take()
        {
            reap(process.pid());
        }
    }

    /// Waits for a report or the end of all reports. If a signal stops a traced child before `exec`, delivers the
    /// signal and resumes the child, which would otherwise never report.
    fn has_report(&mut self) -> bool {
        let (Some((_, tracing)), Some(process)) = (&mut self.tracing, &self.process) else { return true };
        while !crate::poll::is_readable(self.report.as_fd(), STOP_CHECK_EVERY) {
            if tracing.pass_on(process.pid()).is_err() {
                // The wait for `exec` fails in the same way and reports it.
                return false;
            }
        }
        true
    }

    fn end(&mut self) {
        self.waits = false;
        if let Some(process) = self.process.take() {
            // If it has already ended, the result is the same.
            let _ = process.try_signal(libc::SIGKILL);
            reap(process.pid());
        }
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        if self.waits {
            self.end();
        }
    }
}

/// Reaps a child that is ending.
fn reap(pid: i32) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable; the child belongs to this process.
        match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
            -1 if interrupted() => {}
            // A traced child was stopped before SIGKILL arrived.
            1.. if libc::WIFSTOPPED(status) => {}
            _ => return,
        }
    }
}

fn interrupted() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// A pipe whose descriptors are above all numbers used by steps.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let doing = |_| Error::last("make a pipe for a program start");
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(doing)?;
    Ok((reader, above(writer.as_raw_fd())?))
}

/// A duplicate of `fd` with a number of 100 or more, closed at `exec`. Steps can then duplicate to small numbers
/// without overwriting a source.
///
/// # Errors
/// The kernel's (`EMFILE`, `EBADF`).
pub fn above(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: fcntl with a number; the kernel checks it.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) };
    if high < 0 {
        return Err(Error::last(format!("duplicate descriptor {fd}")));
    }
    // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(high) })
}

/// Takes ownership of a descriptor inherited at the start of this process.
///
/// # Errors
/// `EBADF` if it is not open, `EINVAL` for the standard streams, which belong to `std`.
pub fn inherited(fd: RawFd) -> Result<OwnedFd> {
    let doing = || format!("take over descriptor {fd}");
    if fd < 3 {
        return Err(Error { doing: doing(), errno: rustix::io::Errno::INVAL });
    }
    // SAFETY: fcntl with a number; the kernel checks it.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(Error::last(doing()));
    }
    // SAFETY: it is open, and its number was passed to the caller at the start: there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pointers(words: &[CString]) -> Vec<*const libc::c_char> {
    words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
}

fn read_whole(reader: &OwnedFd, word: &mut [u8; 8]) -> bool {
    // Eight bytes are below PIPE_BUF, so they arrive completely or not at all.
    loop {
        match rustix::io::read(reader, &mut word[..]) {
            Ok(got) => return got == word.len(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// `NAME=` and space for a number, which the child fills in, because only the child knows its number before the program
/// runs.
struct PidVariable {
    text: Vec<u8>,
    at: usize,
}

impl PidVariable {
    /// Maximum number of digits of a process id.
    const DIGITS: usize = 10;

    fn new(name: &CStr) -> Self {
        let mut text = name.to_bytes().to_vec();
        text.push(b'=');
        let at = text.len();
        // The text is zero-terminated, whatever is written before.
        text.resize(at + Self::DIGITS + 1, 0);
        Self { text, at }
    }

    /// Neither allocates nor panics.
    fn set(&mut self, pid: i32) {
        let mut digits = [0u8; Self::DIGITS];
        let (mut from, mut rest) = (Self::DIGITS, pid.unsigned_abs());
        while from > 0 && (rest > 0 || from == Self::DIGITS) {
            from -= 1;
            digits[from] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for (to, digit) in self.text.iter_mut().skip(self.at).zip(digits.iter().skip(from)) {
            *to = *digit;
        }
    }
}

/// The child's ends of the pipes to its parent, and its copy of the parent's end, which it must close.
struct Ends {
    report: RawFd,
    waits: RawFd,
    gate: OwnedFd,
}

/// Body of the child: never returns, never allocates.
fn run_child(
    prepared: &Prepared,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    pid_variable: Option<&mut PidVariable>,
    ends: Ends,
) -> ! {
    let report = ends.report;
    for (index, wanted) in prepared.steps.iter().enumerate() {
        if matches!(wanted.step, Step::Hold) {
            wait_at_gate(&ends);
            continue;
        }
        let errno = perform(&wanted.step);
        if errno != 0 {
            tell(report, index as u32, errno);
            if wanted.required {
                leave();
            }
        }
    }
    if let Some(variable) = pid_variable {
        // SAFETY: numbers only.
        variable.set(unsafe { libc::getpid() });
    }
    // SAFETY: program, argv and envp are null-terminated, in the child's copy of the parent's memory.
    unsafe { libc::execve(prepared.program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    tell(report, EXEC, errno());
    leave();
}

/// Returns when the parent lets the child continue. Exits if the parent has gone.
fn wait_at_gate(ends: &Ends) {
    // SAFETY: this process's copy of the parent's end, which has no other user here.
    unsafe { libc::close(ends.gate.as_raw_fd()) };
    tell(ends.report, HELD, 0);
    let mut byte = 0u8;
    loop {
        // SAFETY: one writable byte.
        match unsafe { libc::read(ends.waits, (&raw mut byte).cast(), 1) } {
            1 => return,
            -1 if errno() == libc::EINTR => {}
            _ => leave(),
        }
    }
}

fn leave() -> ! {
    // SAFETY: ends the process without running the parent's destructors.
    unsafe { libc::_exit(127) }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn tell(report: RawFd, code: u32, errno: i32) {
    let mut word = [0u8; 8];
    word[..4].copy_from_slice(&code.to_ne_bytes());
    word[4..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: eight readable bytes. If the write fails, the parent finds the pipe closed.
    unsafe { libc::write(report, word.as_ptr().cast(), word.len()) };
}

/// 0, or the errno of a call that returned -1.
fn checked(answer: libc::c_long) -> i32 {
    if answer < 0 { errno() } else { 0 }
}

/// Performs one step. Returns 0 or errno.
fn perform(step: &Step) -> i32 {
    match step {
        // Performed by `run_child`, which has the pipes.
        Step::Hold => 0,
        Step::ResetSignals => reset_signals(),
        Step::Detach => detach(),
        // SAFETY: no memory is passed.
        Step::NewSession => checked(unsafe { libc::setsid() }.into()),
        // SAFETY: no memory is passed.
        Step::NewGroup => checked(unsafe { libc::setpgid(0, 0) }.into()),
        // SAFETY: no memory is passed; 0 means not to steal the terminal.
        Step::ControllingTerminal(fd) => checked(unsafe { libc::ioctl(*fd, libc::TIOCSCTTY, 0) }.into()),
        Step::Write(path, bytes) => write_file(path, bytes),
        Step::Scheduling(scheduling) => {
            let mut attr = attributes(*scheduling);
            if matches!(scheduling.policy, Policy::Other { nice: 0 } | Policy::Batch { nice: 0 }) {
                // SAFETY: numbers only; 0 is the caller. The kernel answers 20 minus the nice value.
                let answer = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
                attr.sched_nice = if answer > 0 { 20 - answer as i32 } else { 0 };
            }
            // SAFETY: `attr` is a valid sched_attr, and its size field holds its length.
            checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0u32) })
        }
        Step::Affinity(cpus) => {
            let words = cpus.words();
            // SAFETY: the kernel reads `size_of_val(words)` bytes at the pointer.
            checked(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(words), words.as_ptr()) })
        }
        // The kernel reads one word: it rounds the count down, hence 65.
        Step::MemoryNodes(mask) => checked(
            // SAFETY: one readable word of 64 bits.
            unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, std::ptr::from_ref(mask), 65usize) },
        ),
        Step::Limit(resource, soft, hard) => {
            let limit = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
            // SAFETY: `limit` is readable, nothing is written.
            checked(unsafe {
                libc::syscall(libc::SYS_prlimit64, 0, *resource, &raw const limit, std::ptr::null::<libc::rlimit64>())
            })
        }
        // SAFETY: a null-terminated string.
        Step::Directory(dir) => checked(unsafe { libc::chdir(dir.as_ptr()) }.into()),
        // SAFETY: numbers only; 0 is the caller.
        Step::Nice(nice) => checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, (*nice).into()) }.into()),
        Step::Umask(mask) => {
            // SAFETY: numbers only; the call cannot fail.
            unsafe { libc::umask(*mask) };
            0
        }
        // SAFETY: numbers only.
        Step::NoNewPrivileges => checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into()),
        Step::MountNamespace => mount_namespace(),
        Step::BindHere(path) => mount(path, path, libc::MS_BIND | libc::MS_REC, None),
        Step::BindOver(from, to) => mount(from, to, libc::MS_BIND, None),
        Step::EmptyAt(path, options) => mount(c"tmpfs", path, libc::MS_NOSUID | libc::MS_NODEV, Some(options)),
        Step::ReadOnly { path, below } => read_only(path, *below),
        // SAFETY: numbers only.
        Step::KeepCapabilities => checked(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }.into()),
        // Raw calls: glibc's wrappers would signal all threads of the process, which has only one.
        Step::Groups(groups) => {
            // SAFETY: `groups` contains as many numbers as passed.
            checked(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
        }
        // SAFETY: numbers only.
        Step::Group(gid) => checked(unsafe { libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) }),
        // SAFETY: numbers only.
        Step::User(uid) => checked(unsafe { libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) }),
        Step::DropBounding(capability) => {
            // SAFETY: numbers only.
            let errno = checked(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, i32::from(*capability), 0, 0, 0) }.into());
            // A capability unknown to this kernel is not in the set either.
            if errno == libc::EINVAL { 0 } else { errno }
        }
        Step::Capabilities(mask) => capset(*mask),
        // SAFETY: numbers only.
        Step::RaiseAmbient(capability) => checked(
            unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, i32::from(*capability), 0, 0) }
                .into(),
        ),
        // SAFETY: numbers only.
        Step::Descriptor(from, to) => checked(unsafe { libc::dup2(*from, *to) }.into()),
        Step::CloseFrom(first) => {
            // SAFETY: numbers only.
            let range = unsafe { libc::syscall(libc::SYS_close_range, *first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
            match checked(range) {
                // The flag exists since Linux 5.11, the call since 5.9.
                libc::EINVAL | libc::ENOSYS => close_each_from(*first),
                errno => errno,
            }
        }
        // SAFETY: numbers only.
        Step::DeathSignal(signal) => checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, *signal, 0, 0, 0) }.into()),
        // SAFETY: no memory is passed.
        Step::TraceMe => checked(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }),
    }
}

/// Marks every open descriptor from `first` on close-on-exec, one by one. Returns 0 or errno. Neither allocates nor
/// locks.
fn close_each_from(first: RawFd) -> i32 {
    /// Offsets of the length and the name in a record of `getdents64(2)`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    // SAFETY: a null-terminated string.
    let folder = unsafe { libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if folder < 0 {
        return errno();
    }
    let mut records = [0u8; 1024];
    let outcome = loop {
        // SAFETY: as many writable bytes as passed.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, folder, records.as_mut_ptr(), records.len()) };
        if got <= 0 {
            break checked(got);
        }
        let mut rest = &records[..got as usize];
        while let [.., low, high] = rest.get(..LENGTH + 2).unwrap_or_default() {
            let length = usize::from(u16::from_ne_bytes([*low, *high])).clamp(NAME, rest.len().max(NAME));
            let name = rest.get(NAME..length).unwrap_or_default();
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(None, |sum: Option<RawFd>, byte| {
                sum.unwrap_or(0).checked_mul(10)?.checked_add(RawFd::from(byte - b'0'))
            });
            if let Some(fd) = number.filter(|fd| *fd >= first) {
                // SAFETY: numbers only.
                unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    };
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(folder) };
    outcome
}

fn detach() -> i32 {
    // SAFETY: clone with only a termination signal is fork without glibc's handlers. The child continues with raw
    // system calls.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => 0,
        // SAFETY: ends the process without running the parent's destructors.
        1.. => unsafe { libc::_exit(0) },
        _ => errno(),
    }
}

fn mount_namespace() -> i32 {
    // SAFETY: numbers only.
    let errno = checked(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into());
    if errno != 0 {
        return errno;
    }
    let flags = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: a null-terminated path; a change of propagation does not use source, type and data.
    let answer = unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    checked(answer.into())
}

fn mount(from: &CStr, to: &CStr, flags: libc::c_ulong, options: Option<&CStr>) -> i32 {
    let options = options.map_or(std::ptr::null(), |options| options.as_ptr().cast());
    // SAFETY: null-terminated strings; a bind mount does not use the type.
    checked(unsafe { libc::mount(from.as_ptr(), to.as_ptr(), c"tmpfs".as_ptr(), flags, options) }.into())
}

fn read_only(path: &CStr, below: bool) -> i32 {
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: a null-terminated path, and a readable structure of the size passed.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

fn write_file(path: &CString, bytes: &[u8]) -> i32 {
    // SAFETY: a null-terminated string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return errno();
    }
    // SAFETY: the bytes belong to the step.
    let answer = checked(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } as libc::c_long);
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(fd) };
    answer
}

fn reset_signals() -> i32 {
    // SAFETY: all zero is a valid sigaction: the default action, no flags, empty mask.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in 1..=64 {
        // Refused for SIGKILL, SIGSTOP and the two that glibc keeps for itself; their action is the default.
        // SAFETY: `default` is readable, nothing is written.
        unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
    }
    // SAFETY: all zero is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` is readable, nothing is written.
    checked(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) }.into())
}

/// `capset(2)` in version 3: sets permitted, effective and inheritable to `mask`.
fn capset(mask: u64) -> i32 {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let half = |bits: u32| Data { effective: bits, permitted: bits, inheritable: bits };
    let header = Header { version: 0x2008_0522, pid: 0 };
    let data = [half(mask as u32), half((mask >> 32) as u32)];
    // SAFETY: header and data have the layout of version 3: two data words sets.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RLIMIT_NOFILE`, whose type depends on the C library.
    const NOFILE: u32 = 7;

    fn words(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    fn wait(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    fn start(program: &str, argv: &[&str], steps: Vec<(Step, bool)>) -> Spawned {
        let steps = steps.into_iter().map(|(step, required)| PlannedStep { step, required }).collect();
        Prepared::new(CString::new(program).unwrap(), words(argv), words(&["A=b"]), steps).spawn().unwrap()
    }

    #[test]
    fn a_program_runs_with_the_settings_of_its_steps() {
        let script = "test \"$A\" = b && test \"$(pwd)\" = / && test \"$(ulimit -n)\" = 77 && exit 5";
        let steps = vec![
            (Step::ResetSignals, true),
            (Step::NewSession, true),
            (Step::Directory(c"/".to_owned()), true),
            (Step::Limit(NOFILE, 77, 77), true),
            (Step::CloseFrom(3), true),
        ];
        let spawned = start("/bin/sh", &["sh", "-c", script], steps);
        assert!(spawned.refused.is_empty());
        assert_eq!(libc::WEXITSTATUS(wait(spawned.child.unwrap().pid())), 5);
    }

    #[test]
    fn a_pid_variable_has_the_pid_of_the_program_also_after_a_second_fork() {
        for steps in [vec![], vec![Step::Detach]] {
            let file = std::env::temp_dir().join(format!("tahti-number-{}-{}", std::process::id(), steps.len()));
            let script = format!("echo $OWN = $$ > {0}.part; mv {0}.part {0}", file.display());
            let spawned =
                prepared("/bin/sh", &["sh", "-c", &script], steps).with_pid_variable(c"OWN".to_owned()).spawn();
            wait(spawned.unwrap().child.unwrap().pid());
            while !file.exists() {
                std::thread::yield_now();
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let (own, number) = text.trim().split_once(" = ").unwrap();
            assert_eq!(own, number);
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_class_without_a_nice_value_keeps_the_inherited_one() {
        std::thread::spawn(|| {
            crate::sched::set_scheduling(0, Scheduling { policy: Policy::Other { nice: 10 }, reset_on_fork: false })
                .unwrap();
            for (class, expected) in [("batch", 10), ("other", 10), ("batch:12", 12)] {
                let policy = class.parse().unwrap();
                let script = format!("test $(cut -d' ' -f19 /proc/self/stat) = {expected}");
                let steps = vec![(Step::Scheduling(Scheduling { policy, reset_on_fork: false }), true)];
                let spawned = Prepared::new(
                    c"/bin/sh".to_owned(),
                    words(&["sh", "-c", &script]),
                    words(&["PATH=/usr/bin:/bin"]),
                    steps.into_iter().map(|(step, required)| PlannedStep { step, required }).collect(),
                )
                .spawn()
                .unwrap();
                assert_eq!(libc::WEXITSTATUS(wait(spawned.child.unwrap().pid())), 0, "{class}");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_missing_program_is_reported_and_its_child_reaped() {
        let spawned = start("/no/such/program", &["x"], vec![]);
        assert!(spawned.child.is_none());
        assert_eq!(spawned.refused, [Refusal { step: None, errno: rustix::io::Errno::NOENT }]);
    }

    #[test]
    fn a_refused_step_ends_the_start_only_if_it_is_required() {
        let impossible = || Step::Directory(c"/no/such/dir".to_owned());
        let refusal = Refusal { step: Some(1), errno: rustix::io::Errno::NOENT };
        let spawned = start("/bin/true", &["true"], vec![(Step::ResetSignals, true), (impossible(), true)]);
        assert!(spawned.child.is_none());
        assert_eq!(spawned.refused, [refusal]);
        let spawned = start("/bin/true", &["true"], vec![(Step::ResetSignals, true), (impossible(), false)]);
        assert_eq!(spawned.refused, [refusal]);
        assert_eq!(libc::WEXITSTATUS(wait(spawned.child.unwrap().pid())), 0);
    }

    fn prepared(program: &str, argv: &[&str], steps: Vec<Step>) -> Prepared {
        let steps = steps.into_iter().map(|step| PlannedStep { step, required: true }).collect();
        Prepared::new(CString::new(program).unwrap(), words(argv), words(&[]), steps)
    }

    #[test]
    fn a_held_child_runs_nothing_until_it_is_released() {
        let file = std::env::temp_dir().join(format!("tahti-held-{}", std::process::id()));
        let script = format!("echo ran > {}", file.display());
        let held = prepared("/bin/sh", &["sh", "-c", &script], vec![Step::NewSession, Step::Hold]).hold().unwrap();
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        // The child waits: it still runs a copy of this program, and has performed the steps before.
        let pid = held.process().unwrap().pid();
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), own);
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::getsid(pid) }, pid);
        assert!(!file.exists());
        assert_eq!(libc::WEXITSTATUS(wait(held.go().unwrap().child.unwrap().pid())), 0);
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_held_child_ends_when_its_handle_is_dropped() {
        let held = prepared("/bin/true", &["true"], vec![Step::Hold]).hold().unwrap();
        let pid = held.process().unwrap().pid();
        drop(held);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        // For a child that was killed while it waited, `go` reports no error.
        let held = prepared("/bin/true", &["true"], vec![Step::Hold]).hold().unwrap();
        let pid = held.process().unwrap().pid();
        // SAFETY: numbers only.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(held.go().unwrap().child.unwrap().pid(), pid);
        assert_eq!(libc::WTERMSIG(wait(pid)), libc::SIGKILL);
    }

    #[test]
    fn a_step_refused_before_the_hold_ends_the_start() {
        let steps = vec![Step::Directory(c"/no/such/dir".to_owned()), Step::Hold];
        let held = prepared("/bin/true", &["true"], steps).hold().unwrap();
        assert!(held.process().is_none());
        assert_eq!(held.go().unwrap().refused, [Refusal { step: Some(0), errno: rustix::io::Errno::NOENT }]);
    }

    #[test]
    fn without_close_range_each_open_descriptor_is_closed_at_exec_and_those_below_stay() {
        // High enough not to affect descriptors of other tests in this process.
        let open = |at: RawFd| {
            let file = std::fs::File::open("/proc/self/stat").unwrap();
            // SAFETY: the kernel checks the numbers.
            let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, at) };
            assert!(copy >= at);
            // SAFETY: a new descriptor without another owner.
            unsafe { OwnedFd::from_raw_fd(copy) }
        };
        let (below, above): (Vec<_>, Vec<_>) = ((700..705).map(open).collect(), (750..810).map(open).collect());
        assert_eq!(close_each_from(750), 0);
        // SAFETY: numbers only.
        let closes = |fd: &OwnedFd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) } == libc::FD_CLOEXEC;
        assert!(above.iter().all(closes) && !below.iter().any(closes));
    }

    #[test]
    fn descriptors_are_passed_under_the_requested_number() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let high = above(file.as_raw_fd()).unwrap();
        assert!(high.as_raw_fd() >= 100);
        let steps = vec![(Step::CloseFrom(3), true), (Step::Descriptor(high.as_raw_fd(), 3), true)];
        let spawned = start("/bin/sh", &["sh", "-c", "read a <&3 && test ! -e /proc/self/fd/100"], steps);
        assert_eq!(libc::WEXITSTATUS(wait(spawned.child.unwrap().pid())), 0);
    }
}

//! A system call executed in another process between its `exec` and its first instruction (`ptrace(2)`).
//!
//! It is used only for `mlockall`, which does not survive `exec`: the new program itself must call it. The program's
//! memory is not modified. The call uses a `syscall` instruction of the vDSO, and all registers are restored.
//!
//! Three rules. A traced child that ends is left to be reaped (`WNOWAIT`), so that its parent gets its status like that
//! of any other child. A signal that arrives meanwhile is not lost: before `exec` it is passed on; at the stop it stays
//! blocked, with its sender, until the child runs. [`Traced`] resumes the child on every path, with its original
//! registers and signal mask.

use crate::error::{Error, Result};
use rustix::io::Errno;

/// Result of waiting for a traced child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// No change.
    None,
    /// It is stopped before the delivery of this signal.
    Stopped(i32),
    /// It has ended and is still a zombie.
    Ended,
}

/// State of a child that requested tracing, until its `exec`.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// A stop signal received before `exec`. It is delivered when the child is resumed.
    stop: Option<i32>,
}

impl Tracing {
    /// Resumes a child stopped by a signal before its `exec`, and delivers the signal. Does not wait.
    pub(crate) fn pass_on(&mut self, pid: i32) -> Result<()> {
        match wait(pid, false)? {
            Change::Stopped(signal) if !is_exec_stop(pid, signal) => self.go_on(pid, signal),
            // It reached its `exec` between the end of its reports and this check. The wait for `exec` finds that stop
            // again.
            Change::Stopped(_) | Change::None | Change::Ended => Ok(()),
        }
    }

    /// Waits until the child stops at its `exec`; `None` if it ended before.
    pub(crate) fn await_exec(mut self, pid: i32) -> Result<Option<Traced>> {
        loop {
            match wait(pid, true)? {
                Change::Ended => return Ok(None),
                Change::Stopped(signal) if is_exec_stop(pid, signal) => {
                    take(pid);
                    return Ok(Some(Traced { pid, stop: self.stop, released: false }));
                }
                Change::Stopped(signal) => self.go_on(pid, signal)?,
                Change::None => {}
            }
        }
    }

    /// Resumes the child and delivers the signal that stopped it.
    fn go_on(&mut self, pid: i32, signal: i32) -> Result<()> {
        take(pid);
        let mut delivered = signal;
        if is_stop(signal) {
            // A traced child would stop for its tracer again and again.
            (self.stop, delivered) = (Some(signal), 0);
        } else if signal == libc::SIGCONT {
            self.stop = None;
        }
        match request(libc::PTRACE_CONT, pid, delivered as usize, "continue") {
            // It was killed meanwhile. The next wait reports its end.
            Err(error) if error.errno == Errno::SRCH => Ok(()),
            outcome => outcome,
        }
    }
}

/// A child stopped between its `exec` and its first instruction. Dropping it resumes the child. Use it only on the
/// thread that started the child.
#[derive(Debug)]
pub struct Traced {
    pid: i32,
    stop: Option<i32>,
    released: bool,
}

impl Traced {
    /// Makes the child execute system call `number`. Returns the kernel's result (`-errno` on failure), or `None` if
    /// the child ended meanwhile. Its registers and signal mask are restored in any case.
    ///
    /// # Errors
    /// Tracing itself failed, or the process has no vDSO with the instruction for a system call.
    pub fn inject(&mut self, number: i64, args: [u64; 3]) -> Result<Option<i64>> {
        let outcome = self.call(number, args);
        match outcome {
            Err(error) if self.has_ended() => {
                // The child is dying, so the error is expected.
                drop(error);
                Ok(None)
            }
            outcome => outcome,
        }
    }

    fn call(&mut self, number: i64, args: [u64; 3]) -> Result<Option<i64>> {
        let at = syscall_instruction(self.pid)?;
        let (saved, mask) = (registers(self.pid)?, signal_mask(self.pid)?);
        let mut call = saved;
        set_call(&mut call, at, number, args);
        // Signals stay pending, with their senders, until the child runs. Only SIGSTOP cannot be blocked.
        set_signal_mask(self.pid, u64::MAX)?;
        let answer = set_registers(self.pid, &call).and_then(|()| self.step());
        if answer == Ok(None) {
            return Ok(None);
        }
        if let Err(error) = set_registers(self.pid, &saved).and_then(|()| set_signal_mask(self.pid, mask)) {
            // The child must not run with the registers of the call.
            self.let_go(libc::SIGKILL)?;
            return Err(error);
        }
        answer
    }

    /// Executes one instruction of the child. Returns its result register, or `None` if the child ended.
    fn step(&mut self) -> Result<Option<i64>> {
        loop {
            request(libc::PTRACE_SINGLESTEP, self.pid, 0, "step")?;
            let change = wait(self.pid, true)?;
            match change {
                Change::Ended => return Ok(None),
                Change::None => continue,
                Change::Stopped(_) => take(self.pid),
            }
            match change {
                Change::Stopped(libc::SIGTRAP) => return Ok(Some(result_of(&registers(self.pid)?))),
                // The stop came before the instruction, which must still be executed.
                Change::Stopped(signal) if is_stop(signal) => self.stop = Some(signal),
                other => {
                    let doing = format!("step process {} ({other:?})", self.pid);
                    return Err(Error { doing, errno: Errno::INTR });
                }
            }
        }
    }

    /// Makes the child lock its memory, also what it maps later: `mlockall`. Results as of [`inject`](Self::inject).
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub fn lock_memory(&mut self) -> Result<Option<i64>> {
        self.inject(libc::SYS_mlockall, [(libc::MCL_CURRENT | libc::MCL_FUTURE) as u64, 0, 0])
    }

    /// Resumes the child untraced, and delivers a stop signal received meanwhile. Returns whether it runs; `false` if
    /// it has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn release(mut self) -> Result<bool> {
        self.let_go(self.stop.unwrap_or(0))
    }

    fn let_go(&mut self, signal: i32) -> Result<bool> {
        self.released = true;
        match request(libc::PTRACE_DETACH, self.pid, signal as usize, "let run") {
            Ok(()) => Ok(true),
            Err(error) if error.errno == Errno::SRCH && self.has_ended() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the child was killed while stopped. If so, waits for its end.
    fn has_ended(&self) -> bool {
        // A living child is stopped, so that its signal information can be read.
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: `info` is writable and of the size that the kernel fills.
        let answer = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0, info.as_mut_ptr()) };
        let is_dying = answer < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        is_dying && matches!(wait(self.pid, true), Ok(Change::Ended))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.released {
            // It now runs, or is ending.
            let _ = self.let_go(self.stop.unwrap_or(0));
        }
    }
}

/// Waits for the next stop or end of a child, without consuming it.
fn wait(pid: i32, block: bool) -> Result<Change> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    let flags = flags | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: a struct of integers; all zero is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is writable.
        if unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) } < 0 {
            let error = Error::last(format!("wait for traced process {pid}"));
            if error.errno == Errno::INTR {
                continue;
            }
            return Err(error);
        }
        // SAFETY: waitid has filled the fields for children, or left zeros.
        let who = unsafe { info.si_pid() };
        // SAFETY: as above.
        let status = unsafe { info.si_status() };
        return Ok(match info.si_code {
            _ if who == 0 => Change::None,
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => Change::Ended,
            libc::CLD_TRAPPED => Change::Stopped(status & 0xff),
            // Stopped without being traced: ptrace could not resume it.
            _ => Change::None,
        });
    }
}

/// Consumes the stop found by a wait. A child that was killed meanwhile has none.
fn take(pid: i32) {
    // SAFETY: a struct of integers; all zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: `info` is writable.
    unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) };
}

/// Whether a stop is that of `exec`: the kernel sends SIGTRAP in the child's name. A SIGTRAP of another process has
/// another sender.
fn is_exec_stop(pid: i32, signal: i32) -> bool {
    if signal != libc::SIGTRAP {
        return false;
    }
    // SAFETY: a struct of integers; all zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is writable and of the size that the kernel fills.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0, &raw mut info) };
    // SAFETY: SI_USER carries its sender.
    answer == 0 && info.si_code == libc::SI_USER && unsafe { info.si_pid() } == pid
}

fn is_stop(signal: i32) -> bool {
    [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
}

/// The type of ptrace's requests.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`, whose type in the crate `libc` differs from that of other requests.
const GETSIGMASK: Request = 0x420a;
const SETSIGMASK: Request = 0x420b;

/// A request of ptrace(2) without memory arguments.
fn request(what: Request, pid: i32, data: usize, doing: &str) -> Result<()> {
    // SAFETY: no memory is passed.
    let answer = unsafe { libc::ptrace(what, pid, 0, data) };
    if answer < 0 { Err(Error::last(format!("{doing} process {pid}"))) } else { Ok(()) }
}

fn signal_mask(pid: i32) -> Result<u64> {
    let mut mask = 0u64;
    // SAFETY: `mask` is writable for the eight bytes passed to the kernel.
    let answer = unsafe { libc::ptrace(GETSIGMASK, pid, size_of::<u64>(), &raw mut mask) };
    if answer < 0 { Err(Error::last(format!("read the signal mask of process {pid}"))) } else { Ok(mask) }
}

fn set_signal_mask(pid: i32, mask: u64) -> Result<()> {
    // SAFETY: `mask` is readable for the eight bytes passed to the kernel.
    let answer = unsafe { libc::ptrace(SETSIGMASK, pid, size_of::<u64>(), &raw const mask) };
    if answer < 0 { Err(Error::last(format!("set the signal mask of process {pid}"))) } else { Ok(()) }
}

/// The user registers of thread `tid`, named as in gdb. The thread is stopped briefly.
///
/// # Errors
/// The kernel's: `EPERM`, `ESRCH`; `ETIMEDOUT` if it did not stop `within` this time (frozen, or starved of CPU time).
pub fn user_registers(tid: i32, within: std::time::Duration) -> Result<Vec<(&'static str, u64)>> {
    // A separate tracer thread: when it ends, the kernel releases the traced thread in any case.
    let tracer = std::thread::spawn(move || {
        let failed = |errno| Error { doing: format!("read the registers of thread {tid}"), errno };
        // SAFETY: no memory is passed.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) } < 0 {
            return Err(Error::last(format!("trace thread {tid}")));
        }
        // SAFETY: no memory is passed.
        if unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) } < 0 {
            return Err(Error::last(format!("interrupt thread {tid}")));
        }
        let until = std::time::Instant::now() + within;
        let mut status = 0;
        // SAFETY: `status` is writable.
        while unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } != tid {
            if std::time::Instant::now() >= until {
                return Err(failed(Errno::TIMEDOUT));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if !libc::WIFSTOPPED(status) {
            return Err(failed(Errno::SRCH));
        }
        let found = registers(tid)?;
        request(libc::PTRACE_DETACH, tid, 0, "let run")?;
        Ok(named(&found))
    });
    tracer.join().unwrap_or_else(|_| Err(Error { doing: format!("trace thread {tid}"), errno: Errno::IO }))
}

/// Makes the next instruction a system call. No call is in progress that the kernel might restart.
#[cfg(target_arch = "x86_64")]
fn set_call(registers: &mut libc::user_regs_struct, at: u64, number: i64, args: [u64; 3]) {
    (registers.rip, registers.rax, registers.orig_rax) = (at, number as u64, u64::MAX);
    [registers.rdi, registers.rsi, registers.rdx] = args;
}

#[cfg(target_arch = "aarch64")]
fn set_call(registers: &mut libc::user_regs_struct, at: u64, number: i64, args: [u64; 3]) {
    (registers.pc, registers.regs[8]) = (at, number as u64);
    registers.regs[..3].copy_from_slice(&args);
}

/// Result of a system call.
#[cfg(target_arch = "x86_64")]
fn result_of(registers: &libc::user_regs_struct) -> i64 {
    registers.rax as i64
}

#[cfg(target_arch = "aarch64")]
fn result_of(registers: &libc::user_regs_struct) -> i64 {
    registers.regs[0] as i64
}

/// The registers with gdb's names.
#[cfg(target_arch = "x86_64")]
fn named(found: &libc::user_regs_struct) -> Vec<(&'static str, u64)> {
    vec![
        ("rip", found.rip),
        ("rsp", found.rsp),
        ("rbp", found.rbp),
        ("rax", found.rax),
        ("rbx", found.rbx),
        ("rcx", found.rcx),
        ("rdx", found.rdx),
        ("rsi", found.rsi),
        ("rdi", found.rdi),
        ("r8", found.r8),
        ("r9", found.r9),
        ("r10", found.r10),
        ("r11", found.r11),
        ("r12", found.r12),
        ("r13", found.r13),
        ("r14", found.r14),
        ("r15", found.r15),
        ("eflags", found.eflags),
        ("orig_rax", found.orig_rax),
    ]
}

#[cfg(target_arch = "aarch64")]
fn named(found: &libc::user_regs_struct) -> Vec<(&'static str, u64)> {
    const NAMES: [&str; 31] = [
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    ];
    let general = NAMES.into_iter().zip(found.regs);
    [("pc", found.pc), ("sp", found.sp), ("cpsr", found.pstate)].into_iter().chain(general).collect()
}

/// ELF's number for the set of the general registers.
const NT_PRSTATUS: usize = 1;

fn registers(pid: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: a struct of integers; all zero is valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut place = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<libc::user_regs_struct>() };
    // SAFETY: `registers` is writable, of the length in `place`, and has the layout that the kernel fills.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut place) };
    if answer < 0 { Err(Error::last(format!("read the registers of process {pid}"))) } else { Ok(registers) }
}

fn set_registers(pid: i32, registers: &libc::user_regs_struct) -> Result<()> {
    let mut place = libc::iovec {
        iov_base: std::ptr::from_ref(registers).cast_mut().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: `registers` is readable, of the length in `place`, and has the layout that the kernel reads.
    let answer = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid, NT_PRSTATUS, &raw mut place) };
    if answer < 0 { Err(Error::last(format!("set the registers of process {pid}"))) } else { Ok(()) }
}

/// The instruction for a system call.
const SYSCALL: &[u8] = if cfg!(target_arch = "aarch64") { &[0x01, 0x00, 0x00, 0xd4] } else { &[0x0f, 0x05] };

/// The address of an instruction for a system call in the process's vDSO.
fn syscall_instruction(pid: i32) -> Result<u64> {
    use std::os::unix::fs::FileExt;
    let failed = |errno| Error { doing: format!("find a syscall instruction in the vDSO of process {pid}"), errno };
    let io = |error: std::io::Error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(io)?;
    let range = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    });
    let (start, end) = range.ok_or_else(|| failed(Errno::NOENT))?;
    let mut code = vec![0u8; (end.saturating_sub(start)).min(1 << 20) as usize];
    std::fs::File::open(format!("/proc/{pid}/mem")).and_then(|mem| mem.read_exact_at(&mut code, start)).map_err(io)?;
    let mut starts = (0..code.len()).step_by(if cfg!(target_arch = "aarch64") { 4 } else { 1 });
    match starts.find(|offset| code[*offset..].starts_with(SYSCALL)) {
        Some(offset) => Ok(start + offset as u64),
        None => Err(failed(Errno::NOENT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::spawn::{HeldChild, PlannedStep, Prepared, Spawned, Step};
    use std::ffi::CString;

    fn prepared(program: &str, argv: &[&str], steps: Vec<Step>) -> Prepared {
        let words = argv.iter().map(|word| CString::new(*word).unwrap()).collect();
        let steps = steps.into_iter().map(|step| PlannedStep { step, required: true }).collect();
        Prepared::new(CString::new(program).unwrap(), words, vec![], steps)
    }

    /// A shell stopped before its first instruction.
    fn shell(script: &str) -> (Process, Traced) {
        let steps = vec![Step::ResetSignals, Step::TraceMe];
        let Spawned { child, traced, .. } = prepared("/bin/sh", &["sh", "-c", script], steps).spawn().unwrap();
        (child.unwrap(), traced.unwrap())
    }

    /// A traced shell that is held before its `exec`.
    fn held(script: &str) -> HeldChild {
        let steps = vec![Step::ResetSignals, Step::TraceMe, Step::Hold];
        prepared("/bin/sh", &["sh", "-c", script], steps).hold().unwrap()
    }

    fn reaped(process: &Process, flags: i32) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(process.pid(), &raw mut status, flags) }, process.pid());
        status
    }

    fn call(traced: &mut Traced) -> Option<i64> {
        traced.inject(libc::SYS_getpid, [0; 3]).unwrap()
    }

    #[test]
    fn an_injected_call_takes_effect_before_the_first_instruction_of_a_program() {
        let (process, mut traced) = shell("test $(umask) = 0027");
        assert_eq!(call(&mut traced), Some(i64::from(process.pid())));
        traced.inject(libc::SYS_umask, [0o027, 0, 0]).unwrap();
        let bad = traced.inject(libc::SYS_close, [1000, 0, 0]).unwrap();
        assert_eq!(bad, Some(-i64::from(libc::EBADF)));
        assert_eq!(traced.release(), Ok(true));
        let status = reaped(&process, 0);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    }

    #[test]
    fn a_signal_at_the_stop_is_ignored_handled_or_ends_the_child_as_without_tracing() {
        for (signal, ends) in [(libc::SIGWINCH, false), (libc::SIGCHLD, false), (libc::SIGTERM, true)] {
            let (process, mut traced) = shell("exit 7");
            process.signal(signal).unwrap();
            assert_eq!(call(&mut traced), Some(i64::from(process.pid())), "signal {signal} does not affect the call");
            process.signal(signal).unwrap();
            assert_eq!(traced.release(), Ok(true));
            let status = reaped(&process, 0);
            let expected = if ends { signal } else { 7 << 8 };
            assert_eq!(status, expected, "signal {signal}");
        }
    }

    #[test]
    fn a_stop_signal_at_the_stop_stops_the_child_once_it_is_released() {
        let (process, mut traced) = shell("exit 7");
        process.signal(libc::SIGSTOP).unwrap();
        assert_eq!(call(&mut traced), Some(i64::from(process.pid())));
        assert_eq!(traced.release(), Ok(true));
        let status = reaped(&process, libc::WUNTRACED);
        assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSTOP, "{status:#x}");
        process.signal(libc::SIGCONT).unwrap();
        assert_eq!(reaped(&process, 0), 7 << 8);
    }

    #[test]
    fn a_child_that_is_killed_at_the_stop_has_ended_and_keeps_its_status() {
        let (process, mut traced) = shell("exit 7");
        process.signal(libc::SIGKILL).unwrap();
        assert_eq!(call(&mut traced), None);
        assert_eq!(traced.release(), Ok(false));
        assert_eq!(reaped(&process, 0), libc::SIGKILL);
        // The same if it is killed after the call.
        let (process, mut traced) = shell("exit 7");
        call(&mut traced);
        process.signal(libc::SIGKILL).unwrap();
        drop(traced);
        assert_eq!(reaped(&process, 0), libc::SIGKILL);
    }

    #[test]
    fn a_signal_before_exec_is_passed_on() {
        for (signal, expected) in [(libc::SIGWINCH, 7 << 8), (libc::SIGTRAP, libc::SIGTRAP)] {
            let held = held("exit 7");
            held.process().unwrap().signal(signal).unwrap();
            let Spawned { child, traced, ended, .. } = held.go().unwrap();
            assert_eq!(ended, expected == signal, "signal {signal}");
            drop(traced);
            // SIGTRAP may leave a core file.
            assert_eq!(reaped(&child.unwrap(), 0) & !0x80, expected, "signal {signal}");
        }
    }

    #[test]
    fn a_stop_signal_before_exec_stops_the_child_once_it_is_released() {
        let held = held("exit 7");
        held.process().unwrap().signal(libc::SIGSTOP).unwrap();
        let Spawned { child, traced, .. } = held.go().unwrap();
        let process = child.unwrap();
        assert_eq!(traced.unwrap().release(), Ok(true));
        assert!(libc::WIFSTOPPED(reaped(&process, libc::WUNTRACED)));
        process.signal(libc::SIGCONT).unwrap();
        assert_eq!(reaped(&process, 0), 7 << 8);
    }

    #[test]
    fn a_child_that_ends_before_exec_has_ended_and_keeps_its_status() {
        let held = held("exit 7");
        held.process().unwrap().signal(libc::SIGTERM).unwrap();
        let spawned = held.go().unwrap();
        assert!(spawned.ended && spawned.traced.is_none());
        assert_eq!(reaped(&spawned.child.unwrap(), 0), libc::SIGTERM);
    }

    #[test]
    fn a_truncated_program_ends_by_the_signal_of_its_exec() {
        let file = std::env::temp_dir().join(format!("tahti-cut-off-{}", std::process::id()));
        let whole = std::fs::read("/bin/sleep").unwrap();
        std::fs::write(&file, &whole[..whole.len().min(32768)]).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = file.to_str().unwrap();
        let spawned = prepared(program, &[program, "100"], vec![Step::TraceMe]).spawn().unwrap();
        std::fs::remove_file(&file).unwrap();
        drop(spawned.traced);
        let status = reaped(&spawned.child.unwrap(), 0);
        assert!([libc::SIGSEGV, libc::SIGBUS].contains(&libc::WTERMSIG(status)), "{status:#x}");
    }

    #[test]
    fn a_missing_program_is_refused_also_with_tracing() {
        let spawned = prepared("/no/such/program", &["x"], vec![Step::TraceMe]).spawn().unwrap();
        assert!(spawned.child.is_none() && spawned.traced.is_none() && !spawned.ended);
        assert_eq!(spawned.refused.len(), 1);
    }
}

//! A system call made in another process's name, at the moment between its `exec` and its first
//! instruction (`ptrace(2)`).
//!
//! The one use is `mlockall`, which does not survive `exec`: only the new program itself can ask for it.
//! The program's memory is not touched: the call borrows a `syscall` instruction of the vDSO, and every
//! register is put back.

use crate::error::{Error, Result};
use rustix::io::Errno;

/// Waits until `pid`, which asked to be traced, is stopped by its `exec`.
///
/// # Errors
/// `ECHILD` if it is no child of this thread, `ESRCH` if it ended instead.
pub fn await_exec(pid: i32) -> Result<()> {
    stopped(pid, "wait for exec of")
}

fn stopped(pid: i32, doing: &str) -> Result<()> {
    let mut status = 0;
    // SAFETY: `status` is writable.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        let error = Error::last(format!("{doing} process {pid}"));
        if error.errno != Errno::INTR {
            return Err(error);
        }
    }
    if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP {
        return Ok(());
    }
    Err(Error { doing: format!("{doing} process {pid} (wait status {status:#x})"), errno: Errno::SRCH })
}

/// Lets the stopped `pid` run on, untraced.
///
/// # Errors
/// The kernel's.
pub fn detach(pid: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    let answer = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) };
    if answer < 0 { Err(Error::last(format!("let process {pid} go on"))) } else { Ok(()) }
}

/// Makes the stopped `pid` call system call `number`; returns the kernel's answer to it (`-errno` where it
/// failed).
///
/// # Errors
/// Tracing itself failed, or the process has no vDSO with a `syscall` instruction.
#[cfg(target_arch = "x86_64")]
pub fn inject(pid: i32, number: i64, args: [u64; 3]) -> Result<i64> {
    let at = syscall_instruction(pid)?;
    let saved = registers(pid)?;
    let mut call = saved;
    call.rip = at;
    call.rax = number as u64;
    // No system call is under way that the kernel might want to restart.
    call.orig_rax = u64::MAX;
    (call.rdi, call.rsi, call.rdx) = (args[0], args[1], args[2]);
    set_registers(pid, &call)?;
    // SAFETY: no memory is passed.
    if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) } < 0 {
        return Err(Error::last(format!("step process {pid}")));
    }
    stopped(pid, "step")?;
    let answer = registers(pid)?.rax as i64;
    set_registers(pid, &saved)?;
    Ok(answer)
}

/// As on x86_64, for which alone it is built.
///
/// # Errors
/// Always `ENOSYS`.
#[cfg(not(target_arch = "x86_64"))]
pub fn inject(pid: i32, number: i64, _: [u64; 3]) -> Result<i64> {
    let doing = format!("make process {pid} call system call {number}: built for x86_64 only");
    Err(Error { doing, errno: Errno::NOSYS })
}

/// The user registers of thread `tid`, which is stopped for that and goes on; names as gdb prints them.
///
/// # Errors
/// The kernel's: `EPERM`, `ESRCH`; `ETIMEDOUT` if it did not stop `within` (frozen, or starved of its CPU).
#[cfg(target_arch = "x86_64")]
pub fn user_registers(tid: i32, within: std::time::Duration) -> Result<Vec<(&'static str, u64)>> {
    // The tracer is a thread of its own: its end lets go of the traced thread whatever happened.
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
        detach(tid)?;
        Ok(vec![
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
        ])
    });
    tracer.join().unwrap_or_else(|_| Err(Error { doing: format!("trace thread {tid}"), errno: Errno::IO }))
}

/// As on x86_64, for which alone it is built.
///
/// # Errors
/// Always `ENOSYS`.
#[cfg(not(target_arch = "x86_64"))]
pub fn user_registers(tid: i32, _: std::time::Duration) -> Result<Vec<(&'static str, u64)>> {
    Err(Error { doing: format!("read the registers of thread {tid}: built for x86_64 only"), errno: Errno::NOSYS })
}

#[cfg(target_arch = "x86_64")]
fn registers(pid: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: a struct of integers; all zero is valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: `registers` is writable and has the layout that the kernel fills.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) };
    if answer < 0 { Err(Error::last(format!("read the registers of process {pid}"))) } else { Ok(registers) }
}

#[cfg(target_arch = "x86_64")]
fn set_registers(pid: i32, registers: &libc::user_regs_struct) -> Result<()> {
    // SAFETY: `registers` is readable and has the layout that the kernel reads.
    let answer = unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0, std::ptr::from_ref(registers)) };
    if answer < 0 { Err(Error::last(format!("set the registers of process {pid}"))) } else { Ok(()) }
}

/// The address of a `syscall` instruction in the process's vDSO.
#[cfg(target_arch = "x86_64")]
fn syscall_instruction(pid: i32) -> Result<u64> {
    use std::os::unix::fs::FileExt;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
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
    match code.windows(2).position(|pair| pair == SYSCALL) {
        Some(offset) => Ok(start + offset as u64),
        None => Err(failed(Errno::NOENT)),
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::spawn::{Prepared, Step, Wanted};

    #[test]
    fn a_program_calls_what_it_was_told_before_its_first_instruction() {
        let words = |words: &[&str]| words.iter().map(|word| std::ffi::CString::new(*word).unwrap()).collect();
        let steps = vec![Wanted { step: Step::TraceMe, required: true }];
        let prepared =
            Prepared::new(c"/bin/sh".to_owned(), words(&["sh", "-c", "test $(umask) = 0027"]), vec![], steps);
        let pid = prepared.spawn().unwrap().child.unwrap();
        await_exec(pid).unwrap();
        assert_eq!(inject(pid, libc::SYS_getpid, [0; 3]).unwrap(), i64::from(pid));
        inject(pid, libc::SYS_umask, [0o027, 0, 0]).unwrap();
        assert_eq!(inject(pid, libc::SYS_close, [1000, 0, 0]).unwrap(), -i64::from(libc::EBADF));
        detach(pid).unwrap();
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    }
}

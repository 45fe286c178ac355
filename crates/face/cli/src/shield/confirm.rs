//! `--confirm-within`: releases the shield unless a user who can still reach the machine confirms it.

use super::{Outcome, duration};
use crate::failure::{Failure, own_program};
use base::DurNs;
use keep::RunDir;
use keep::shield::confirm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{BufRead, IsTerminal};
use std::process::{Command, ExitCode, Stdio};
use sys::root::RootDir;

/// Starts the process that waits for the confirmation. Call before the first write to the machine.
pub(super) fn start(dir: &RunDir, within: DurNs) -> Result<(), Failure> {
    let token = format!("{}@{}", std::process::id(), sys::clock::mono_now().0);
    confirm::ask(dir, &token)?;
    let program = own_program()?;
    let mut command = Command::new(program);
    command.args(["shield", "await-confirmation", &token, &within.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(_) => Ok(()),
        Err(error) => {
            confirm::confirm(dir)?;
            Err(format!("failed to start the process that waits for the confirmation: {error}").into())
        }
    }
}

/// Asks for Enter on a terminal. Elsewhere prints which command confirms.
pub(super) fn prompt(dir: &RunDir, within: DurNs) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        println!("\nIt is released in {within} unless tahti shield confirm comes before");
        return Ok(());
    }
    println!("\nIt is released in {within}: press Enter to keep it (or tahti shield confirm)");
    let end = sys::clock::mono_now() + within;
    while sys::clock::mono_now() < end {
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let slice = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut fds, Some(&slice)).is_ok_and(|ready| ready > 0) {
            let mut line = String::new();
            if stdin.lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                confirm(dir)?;
                return Ok(());
            }
        }
        if !confirm::is_waited_for(dir)? {
            return Ok(());
        }
    }
    println!("not confirmed: it is being released");
    Ok(())
}

/// `tahti shield confirm`.
pub(super) fn confirm(dir: &RunDir) -> Outcome {
    let waited = confirm::confirm(dir)?;
    println!("{}", if waited { "confirmed: the shield stays" } else { "nothing waits for a confirmation" });
    Ok(ExitCode::SUCCESS)
}

/// The process that waits for the confirmation.
pub(super) fn wait(root: &RootDir, dir: &RunDir, token: &str, within: DurNs) -> Outcome {
    // A separate session, so that the end of the terminal does not end this process. Fails only if the process leads a
    // session already.
    let _ = rustix::process::setsid();
    let released = confirm::wait(root, dir, token, duration(within))?;
    Ok(ExitCode::from(u8::from(released.is_some_and(|released| !released.is_whole()))))
}

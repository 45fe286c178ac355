//! A guest of a measurement, served by a process that forwards its console.

use crate::Failed;
use crate::measure::ended;
use base::DurNs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use sys::clock::mono_now;

/// Timeout of the guest's first line.
const PATIENCE: DurNs = DurNs::from_secs(120);
/// Prefix of messages by `tahti guest serve` itself.
const OURS: &str = "tahti guest: ";

/// The process; terminated and reaped on drop.
pub(crate) struct Served(Child);

impl Served {
    /// Starts it and waits for the guest's first line; returns the time between the two in milliseconds.
    pub(crate) fn start(mut command: Command, name: &str) -> Result<(Self, f64), Failed> {
        let failed = Failed::process(name);
        let begun = mono_now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(&failed)?;
        let mut served = Self(child);
        let mut received = Vec::new();
        loop {
            let Some(output) = &mut served.0.stdout else { return Err(Failed::answer(name, "its output", "none")) };
            let left = begun + PATIENCE - mono_now();
            let mut bytes = [0; 4096];
            let came = match sys::poll::is_readable(output.as_fd(), left.max(DurNs::ZERO)) {
                true => output.read(&mut bytes).map_err(&failed)?,
                false => 0,
            };
            let now = mono_now();
            received.extend_from_slice(&bytes[..came]);
            let text = String::from_utf8_lossy(&received);
            let is_whole = |line: &&str| line.ends_with('\n') && !line.trim().is_empty() && !line.starts_with(OURS);
            if text.split_inclusive('\n').any(|line| is_whole(&line)) {
                return Ok((served, (now - begun).0 as f64 / 1e6));
            }
            if came == 0 {
                return Err(Failed::answer(name, format!("a line of the guest within {PATIENCE}"), text));
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        ended(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_contains_the_output_of_a_program_that_ends_without_a_guest() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo 'tahti guest: no'"]);
        let why = Served::start(command, "sh").err().unwrap().to_string();
        assert!(why.contains("a line of the guest") && why.contains("tahti guest: no"), "{why}");
    }
}

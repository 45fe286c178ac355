//! Runs another program with limits on time and output, for data that is available only from a vendor's tool.

use crate::clock::mono_now;
use base::DurNs;
use rustix::event::{PollFd, PollFlags, poll};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Maximum bytes of output: more than any expected output.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Folders of the system's programs. `PATH` is not used, because this may run as root.
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// A program gave no usable output.
#[derive(Debug)]
#[non_exhaustive]
pub enum ToolError {
    /// The program does not exist.
    NotInstalled {
        /// Its name.
        name: String,
    },
    /// The kernel could not start it, or could not report its exit status.
    System {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It did not finish in time, or its output was too long.
    NoAnswer {
        /// Its name.
        name: String,
        /// The time limit.
        limit: DurNs,
    },
    /// Its exit status was not success.
    Failed {
        /// Its name.
        name: String,
        /// The exit status.
        status: ExitStatus,
    },
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled { name } => write!(f, "{name} is not installed"),
            Self::System { name, source } => write!(f, "{name} could not be run: {source}"),
            Self::NoAnswer { name, limit } => write!(f, "{name} gave no answer within {limit}"),
            Self::Failed { name, status } => write!(f, "{name} failed ({status})"),
        }
    }
}

impl std::error::Error for ToolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::System { source, .. } = self { Some(source) } else { None }
    }
}

/// Standard output of program `name` when run with `args`.
///
/// # Errors
/// Not installed, not started, not finished within `limit` (it is then killed), or failed.
pub fn ask(name: &str, args: &[&str], limit: DurNs) -> Result<String, ToolError> {
    let called = || name.to_owned();
    let program = FOLDERS.map(|folder| format!("{folder}/{name}")).into_iter().find(|path| Path::new(path).exists());
    let program = program.ok_or_else(|| ToolError::NotInstalled { name: called() })?;
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ToolError::System { name: called(), source })?;
    let answer = read_all(&mut child, limit);
    if answer.is_none() {
        // It may just have ended by itself. In both cases it is reaped below.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|source| ToolError::System { name: called(), source })?;
    match answer {
        None => Err(ToolError::NoAnswer { name: called(), limit }),
        Some(_) if !status.success() => Err(ToolError::Failed { name: called(), status }),
        Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// The child's complete output; `None` if it does not end in time or is too long.
fn read_all(child: &mut Child, limit: DurNs) -> Option<Vec<u8>> {
    let mut pipe = child.stdout.take()?;
    let end = mono_now() + limit;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = end - mono_now();
        if left <= DurNs::ZERO || bytes.len() > ANSWER_BYTES_MAX {
            return None;
        }
        let timeout = rustix::time::Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => match pipe.read(&mut piece) {
                Ok(0) => return Some(bytes),
                Ok(got) => bytes.extend_from_slice(&piece[..got]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_tool_is_returned_and_its_failure_is_an_error() {
        let limit = DurNs::from_secs(30);
        assert_eq!(ask("echo", &["a", "b"], limit).unwrap(), "a b\n");
        let missing = ask("no-such-program", &[], limit).unwrap_err();
        assert_eq!(missing.to_string(), "no-such-program is not installed");
        assert!(ask("false", &[], limit).unwrap_err().to_string().starts_with("false failed"));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let answer = ask("sleep", &["1000"], DurNs::from_ms(20));
        assert_eq!(answer.unwrap_err().to_string(), "sleep gave no answer within 20ms");
    }

    #[test]
    fn a_program_with_endless_output_is_ended() {
        assert!(ask("yes", &[], DurNs::from_secs(30)).is_err());
    }
}

//! libzmq's broker, built here, for comparison.

use super::parts::reap;
use crate::Failed;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("zmq.c");

/// The program, removed on drop.
pub(super) struct Zmq {
    program: PathBuf,
    directory: PathBuf,
}

impl Zmq {
    /// # Errors
    /// It cannot be built.
    pub(super) fn build() -> Result<Self, Failed> {
        let directory = std::env::temp_dir().join(format!("tahti-rtt-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(Failed::file(&directory))?;
        let (source, program) = (directory.join("zmq.c"), directory.join("rtt_zmq"));
        let this = Self { program, directory };
        std::fs::write(&source, SOURCE).map_err(Failed::file(&source))?;
        let built = Command::new("cc").arg("-O2").arg("-o").arg(&this.program).arg(&source).arg("-lzmq").output();
        match built {
            Ok(output) if output.status.success() => Ok(this),
            Ok(_) => Err(Failed::UselessPeer {
                program: "libzmq",
                why: "it cannot be built here; apt install libzmq3-dev gcc",
            }),
            Err(source) => Err(Failed::NoPeer { program: "cc", package: "gcc", source }),
        }
    }

    /// Round trips in ns, with bulk clients.
    pub(super) fn rounds(&self, rounds: usize, bulk: usize, into: &mut Vec<u64>) -> Result<(), Failed> {
        let endpoint = format!("ipc://{}", self.directory.join("socket").display());
        let program = self.program.to_string_lossy();
        let failed = Failed::process(&program);
        let mut child = Command::new(&self.program)
            .args([endpoint, rounds.to_string(), bulk.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(&failed)?;
        for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let line = line.map_err(&failed)?;
            into.push(line.parse().map_err(|_| Failed::answer("libzmq's program", "a time in ns", &line))?);
        }
        reap(&mut child).map_err(&failed)?;
        Ok(())
    }
}

impl Drop for Zmq {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

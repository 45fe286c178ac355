//! libzmq's broker, built here, to compare with.

use super::parts::reap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("zmq.c");

/// The program; gone when this is dropped.
pub(super) struct Zmq {
    program: PathBuf,
    directory: PathBuf,
}

impl Zmq {
    /// # Errors
    /// Why it cannot be had.
    pub(super) fn build() -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("tahti-rtt-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let (source, program) = (directory.join("zmq.c"), directory.join("rtt_zmq"));
        let this = Self { program, directory };
        std::fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
        let built = Command::new("cc").arg("-O2").arg("-o").arg(&this.program).arg(&source).arg("-lzmq").output();
        match built {
            Ok(output) if output.status.success() => Ok(this),
            Ok(_) => Err("it does not build here; apt install libzmq3-dev gcc".into()),
            Err(error) => Err(format!("cc: {error}")),
        }
    }

    /// Round trips in ns, with so many bulk clients beside.
    pub(super) fn rounds(&self, rounds: usize, bulk: usize, into: &mut Vec<u64>) -> Result<(), String> {
        let endpoint = format!("ipc://{}", self.directory.join("socket").display());
        let mut child = Command::new(&self.program)
            .args([endpoint, rounds.to_string(), bulk.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let out = child.stdout.take().ok_or("no output")?;
        for line in BufReader::new(File::from(std::os::fd::OwnedFd::from(out))).lines() {
            let line = line.map_err(|error| error.to_string())?;
            into.push(line.parse().map_err(|_| format!("libzmq's program says {line:?}"))?);
        }
        reap(&mut child).map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Drop for Zmq {
    fn drop(&mut self) {
        // Ours alone; what cannot be removed stays in the directory for such things.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

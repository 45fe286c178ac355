//! A program for each access.

use base::{DurNs, MonoNs};
use equipment::{At, Datum, Device, DeviceFault, DeviceSpec, Wrong};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use sys::clock::mono_now;
use sys::signal::SIGKILL;

/// Maximum number of bytes read from a program. A program that writes more is killed.
const OUTPUT_BYTES_MAX: u64 = 4096;

pub(super) struct Script {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    points: Vec<String>,
    timeout: DurNs,
    /// User and group of the program.
    identity: Option<(u32, u32)>,
    /// The program may gain privileges, for example through sudo.
    gains: bool,
}

/// As in a shell: a name with a slash is a file, resolved against the manager's folder.
fn program(spec: &DeviceSpec, folder: &Path) -> PathBuf {
    let name = spec.settings.texts("command").first().map(String::as_str).unwrap_or_default();
    if name.contains('/') { folder.join(name) } else { PathBuf::from(name) }
}

/// The reason why the program cannot be run, as far as the checking user can see.
pub(super) fn check(spec: &DeviceSpec, folder: &Path) -> Option<Wrong> {
    let name = spec.settings.texts("command").first()?;
    let message = sys::program::find(name, folder, None).err()?.to_string();
    Some(Wrong { at: At::Key("command"), message, expected: "an executable program".to_owned() })
}

impl Script {
    pub(super) fn new(spec: &DeviceSpec, folder: &Path) -> Self {
        let words = spec.settings.texts("command");
        let number = |key: &str| spec.settings.number(key).map(|number| number.clamp(0.0, f64::from(u32::MAX)) as u32);
        Self {
            program: program(spec, folder),
            arguments: words.iter().skip(1).cloned().collect(),
            folder: folder.to_owned(),
            points: spec.points.clone(),
            timeout: spec.settings.time("timeout").unwrap_or(DurNs::from_secs(1)),
            gains: spec.settings.flag("gain_privileges").unwrap_or(false),
            identity: number("user").map(|user| (user, number("group").unwrap_or(user))),
        }
    }

    fn run(&self, words: &[&str]) -> Result<String, DeviceFault> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.folder.as_os_str().is_empty() {
            command.current_dir(&self.folder);
        }
        command.process_group(0);
        if let Some((user, group)) = self.identity {
            command.uid(user).gid(group);
        }
        if !self.gains {
            // Applies to this device's thread, which needs no privileges. The program inherits it.
            sys::thread::no_new_privileges().map_err(|error| DeviceFault::Silent(error.to_string().into()))?;
        }
        let mut child = command.spawn().map_err(|error| {
            DeviceFault::Silent(format!("{} cannot be started: {error}", self.program.display()).into())
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let reader = std::thread::spawn(move || text(out));
        let complaints = std::thread::spawn(move || text(err));
        // Children of the program may keep its outputs open after its end.
        let is_heard = || reader.is_finished() && complaints.is_finished();
        let ended = wait(&mut child, mono_now() + self.timeout, is_heard);
        // The readers are not joined after a kill, because processes outside the group may keep the outputs open.
        let said = |output: JoinHandle<String>| output.join().unwrap_or_default();
        match ended {
            Some(true) => Ok(said(reader).trim().to_owned()),
            Some(false) => {
                let err = said(complaints);
                let why = err.trim();
                let why = if why.is_empty() { "the program failed without output" } else { why };
                Err(DeviceFault::Refused(why.to_owned().into()))
            }
            None => {
                Err(DeviceFault::Silent(format!("{} took longer than {}", self.program.display(), self.timeout).into()))
            }
        }
    }
}

/// Reads at most `OUTPUT_BYTES_MAX` bytes of a program's output.
fn text(from: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // Output before a read error is used.
        let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end of the program and of its output. Returns whether it succeeded; `None` if it was killed.
fn wait(child: &mut Child, until: MonoNs, is_heard: impl Fn() -> bool) -> Option<bool> {
    loop {
        match if is_heard() { child.try_wait() } else { Ok(None) } {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if mono_now() < until => std::thread::sleep(std::time::Duration::from_millis(2)),
            _ => {
                // Kills the whole group, because children may keep the output open. The child is not reaped yet, so its pid
                // is still valid. If it has just ended, there is nothing to kill.
                let process = sys::process::Process::open(child.id() as i32);
                let _ = process.and_then(|process| process.signal_group(SIGKILL));
                let _ = child.wait();
                return None;
            }
        }
    }
}

impl Device for Script {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        let out = self.run(&["get", &self.points[point]])?;
        Ok(out.parse().map_or_else(|_| Datum::Text(out.into()), Datum::Number))
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        self.run(&["put", &self.points[point], &value.to_string()]).map(drop)
    }
}

//! Speaking to irqbalance through its abstract socket (irqbalance 1.9 and later).
//!
//! `setup` is answered with the CPUs that it keeps away from; `settings cpus LIST` sets them until it ends.
//! It asks for the sender's credentials and listens to root alone.

use base::CpuSet;
use host::snapshot::Irqbalance;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;
use sys::kernel::Kernel;

/// More than its longest answer: one line per banned interrupt.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Longer than an answer takes even while it scans; then it counts as not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// The running irqbalance, if one answers.
#[must_use]
pub(super) fn ask(root: &impl Kernel) -> Option<Irqbalance> {
    let names = root.read("/proc/net/unix").ok()?;
    let (name, pid) = names.lines().find_map(|line| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        let pid = name.strip_prefix("irqbalance")?.strip_suffix(".sock")?.parse().ok()?;
        Some((name, pid))
    })?;
    let answer = send(name, "setup").ok()?;
    let banned = banned(&answer)?;
    Some(Irqbalance { pid, banned })
}

/// Sets the CPUs that it keeps away from.
pub(super) fn ban(root: &impl Kernel, cpus: &CpuSet) -> Result<(), sys::Error> {
    let Some(irqbalance) = ask(root) else { return Ok(()) };
    let list = if cpus.is_empty() { "NULL".to_owned() } else { cpus.to_string() };
    send(&format!("irqbalance{}.sock", irqbalance.pid), &format!("settings cpus {list}")).map(drop).map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        sys::Error { doing: "tell irqbalance to keep away".to_owned(), errno }
    })
}

/// The mask behind `BANNED` in the answer to `setup`.
fn banned(answer: &str) -> Option<CpuSet> {
    let mut words = answer.split_whitespace();
    words.find(|word| *word == "BANNED")?;
    CpuSet::from_mask(words.next().unwrap_or("0")).ok()
}

/// Sends one line with this process's credentials and returns the whole answer.
fn send(name: &str, line: &str) -> std::io::Result<String> {
    let address = SocketAddr::from_abstract_name(name)?;
    let mut stream = UnixStream::connect_addr(&address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The kernel attaches the credentials for a receiver that asks for them (SO_PASSCRED).
    stream.write_all(line.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

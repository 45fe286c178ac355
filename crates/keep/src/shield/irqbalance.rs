//! Speaking to irqbalance through its socket (irqbalance 1.9 and later).
//!
//! `setup` is answered with the CPUs that it keeps away from; `settings cpus LIST` sets them, but only its next
//! scan obeys (every ten seconds by default), so setting waits until `setup` says so. It listens to root alone,
//! by the credentials that the kernel attaches.

use base::CpuSet;
use host::snapshot::Irqbalance;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};
use sys::kernel::Kernel;

/// More than its longest answer: one line per banned interrupt.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Longer than an answer takes even while it scans; then it counts as not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// Its scans are no further apart than this, or setting does not wait for them.
const SCAN_S_MAX: u64 = 60;

/// How often is asked whether it has obeyed.
const LOOK: Duration = Duration::from_millis(100);

/// The running irqbalance, if one answers.
#[must_use]
pub(super) fn ask(root: &impl Kernel) -> Option<Irqbalance> {
    let (pid, address) = find(root)?;
    let Setup { banned, .. } = setup(&address).ok()?;
    Some(Irqbalance { pid, banned })
}

/// Sets the CPUs that it keeps away from; none where there is no irqbalance any more.
pub(super) fn ban(root: &impl Kernel, cpus: &CpuSet) -> Result<(), sys::Error> {
    let Some((_, address)) = find(root) else { return Ok(()) };
    ban_at(&address, cpus).map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        sys::Error { doing: format!("tell irqbalance to keep away from CPUs {cpus}"), errno }
    })
}

/// Its process and its socket: a file below `/run/irqbalance`, or an abstract name.
fn find(root: &impl Kernel) -> Option<(i32, SocketAddr)> {
    let sockets = root.read("/proc/net/unix").ok()?;
    sockets.lines().find_map(|line| {
        let path = line.split_whitespace().nth(7)?;
        let pid = path.rsplit('/').next()?.trim_start_matches('@').strip_prefix("irqbalance")?.strip_suffix(".sock")?;
        let pid = pid.parse().ok()?;
        // Anybody may take a name; the process must be what it says.
        let comm = root.read(&format!("/proc/{pid}/comm")).ok()?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok()?,
            None => SocketAddr::from_pathname(path).ok()?,
        };
        (comm.trim() == "irqbalance").then_some((pid, address))
    })
}

/// The answer to `setup`.
struct Setup {
    /// Seconds between two scans.
    scan_s: u64,
    banned: CpuSet,
}

fn setup(address: &SocketAddr) -> io::Result<Setup> {
    let answer = send(address, "setup")?;
    let word = |name: &str| answer.split_whitespace().skip_while(|word| *word != name).nth(1);
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "irqbalance's answer holds no banned CPUs");
    let banned = word("BANNED").and_then(|mask| CpuSet::from_mask(mask).ok()).ok_or_else(wrong)?;
    Ok(Setup { scan_s: word("SLEEP").and_then(|seconds| seconds.parse().ok()).unwrap_or(10), banned })
}

fn ban_at(address: &SocketAddr, cpus: &CpuSet) -> io::Result<()> {
    let list = if cpus.is_empty() { "NULL".to_owned() } else { cpus.to_string() };
    send(address, &format!("settings cpus {list}"))?;
    let Setup { scan_s, banned } = setup(address)?;
    if banned == *cpus {
        return Ok(());
    }
    let end = Instant::now() + Duration::from_secs(scan_s.min(SCAN_S_MAX) + 2);
    while setup(address)?.banned != *cpus {
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Sends one line and returns the whole answer.
fn send(address: &SocketAddr, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect_addr(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(line.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use sys::root::RootDir;

    /// An irqbalance that obeys only after it was asked `scans` times more.
    fn peer(name: &str, answers: usize, scans: usize) -> (SocketAddr, std::thread::JoinHandle<Vec<String>>) {
        let address = SocketAddr::from_abstract_name(format!("{name}-{}", std::process::id())).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut heard, mut banned, mut waiting) = (Vec::new(), CpuSet::EMPTY, None);
            for _ in 0..answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 256];
                let got = stream.read(&mut buffer).unwrap();
                let line = String::from_utf8_lossy(&buffer[..got]).into_owned();
                if let Some(list) = line.strip_prefix("settings cpus ") {
                    waiting = Some((scans, if list == "NULL" { CpuSet::EMPTY } else { list.parse().unwrap() }));
                } else {
                    waiting = match waiting {
                        Some((0, cpus)) => {
                            banned = cpus;
                            None
                        }
                        Some((scans, cpus)) => Some((scans - 1, cpus)),
                        None => None,
                    };
                    let mut mask = String::new();
                    banned.write_mask(&mut mask).unwrap();
                    write!(stream, "SLEEP 10 IRQ 41 LOAD 0 DIFF 0 CLASS 1 BANNED 00000000,{mask:0>8}").unwrap();
                }
                heard.push(line);
            }
            heard
        });
        (address, thread)
    }

    #[test]
    fn it_is_asked_told_and_told_back() {
        let (address, peer) = peer("tahti-irqbalance", 7, 1);
        assert!(setup(&address).unwrap().banned.is_empty());
        ban_at(&address, &"2-3,6".parse().unwrap()).unwrap();
        ban_at(&address, &CpuSet::EMPTY).unwrap();
        let heard = peer.join().unwrap();
        assert_eq!(heard[..2], ["setup", "settings cpus 2-3,6"]);
        assert_eq!(heard[4..6], ["settings cpus NULL", "setup"]);
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        let address = SocketAddr::from_abstract_name(format!("tahti-no-irqbalance-{}", std::process::id())).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let thread = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"SLEEP BANNED").unwrap());
        assert!(setup(&address).is_err());
        thread.join().unwrap();
    }

    #[test]
    fn only_a_process_of_that_name_is_believed() {
        let dir = std::env::temp_dir().join(format!("tahti-irqbalance-{}", std::process::id()));
        let root = RootDir::at(&dir);
        for folder in ["proc/net", "proc/77", "proc/78"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let line = |path: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 12345 {path}\n");
        let sockets =
            line("/run/other.sock") + &line("@irqbalance77.sock") + &line("/run/irqbalance/irqbalance78.sock");
        std::fs::write(dir.join("proc/net/unix"), sockets).unwrap();
        std::fs::write(dir.join("proc/77/comm"), "impostor\n").unwrap();
        std::fs::write(dir.join("proc/78/comm"), "irqbalance\n").unwrap();
        let found = find(&root).map(|(pid, address)| (pid, address.as_pathname().map(std::path::Path::to_owned)));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, Some((78, Some("/run/irqbalance/irqbalance78.sock".into()))));
    }
}

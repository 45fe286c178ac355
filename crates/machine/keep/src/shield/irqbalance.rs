//! Client of irqbalance's socket (irqbalance 1.9 and later).
//!
//! `setup` returns the CPUs that irqbalance avoids. `settings cpus LIST` sets them, but takes effect only at the next
//! scan (every 10 s by default); setting therefore waits until `setup` returns the new list. irqbalance accepts only
//! root, by the credentials that the kernel attaches. In the same way this client accepts only a peer that root has
//! started. Every call has a deadline.

use base::CpuSet;
use host::snapshot::Irqbalance;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};
use sys::kernel::Kernel;

/// Larger than the longest answer, which has one line per banned interrupt.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longer than an answer takes, even during a scan. After that irqbalance counts as not running.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum scan interval that setting waits for.
const SCAN_S_MAX: u64 = 60;

/// Interval at which setting checks whether the list has taken effect.
const LOOK: Duration = Duration::from_millis(100);

/// Folders of its socket if the name is not abstract.
const FOLDERS: [&str; 2] = ["/run/irqbalance/", "/var/run/irqbalance/"];

/// Maximum names that are tried. Any user can create many such names.
const NAMES_MAX: usize = 16;

/// The peer that is trusted.
#[derive(Clone, Copy)]
struct Peer {
    uid: u32,
}

/// irqbalance runs as root.
const ROOT: Peer = Peer { uid: 0 };

/// The running irqbalance; `None` if none answers.
#[must_use]
pub(super) fn ask(root: &impl Kernel) -> Option<Irqbalance> {
    let until = Instant::now() + PATIENCE;
    found(root, until).map(|(pid, _, Setup { banned, .. })| Irqbalance { pid, banned })
}

/// Sets the CPUs that irqbalance avoids. Does nothing if irqbalance is not running.
pub(super) fn ban(root: &impl Kernel, cpus: &CpuSet) -> Result<(), sys::Error> {
    let Some((_, address, _)) = found(root, Instant::now() + PATIENCE) else { return Ok(()) };
    ban_at(&address, ROOT, cpus)
        .map_err(|errno| sys::Error { doing: format!("exclude CPUs {cpus} from irqbalance"), errno })
}

/// Process, socket and answer of irqbalance. Peers that do not run as root are skipped.
fn found(root: &impl Kernel, until: Instant) -> Option<(i32, SocketAddrUnix, Setup)> {
    let mut candidates = candidates(root).into_iter();
    candidates.find_map(|(pid, address)| Some((pid, address.clone(), setup(&address, ROOT, until).ok()?)))
}

/// Processes named irqbalance with sockets of that name: files below `/run/irqbalance`, and abstract names.
fn candidates(root: &impl Kernel) -> Vec<(i32, SocketAddrUnix)> {
    let sockets = root.read("/proc/net/unix").unwrap_or_default();
    let named = sockets.lines().filter_map(|line| {
        let path = line.split_whitespace().nth(7)?;
        let name = path.strip_prefix('@').or_else(|| FOLDERS.iter().find_map(|folder| path.strip_prefix(folder)))?;
        let pid: i32 = name.strip_prefix("irqbalance")?.strip_suffix(".sock")?.parse().ok()?;
        let comm = root.read(&format!("/proc/{pid}/comm")).ok()?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?,
            None => SocketAddrUnix::new(path).ok()?,
        };
        (comm.trim() == "irqbalance").then_some((pid, address))
    });
    named.take(NAMES_MAX).collect()
}

/// The answer to `setup`.
struct Setup {
    /// Seconds between two scans.
    scan_s: u64,
    banned: CpuSet,
}

fn setup(address: &SocketAddrUnix, peer: Peer, until: Instant) -> Result<Setup, Errno> {
    let answer = send(address, peer, "setup", until)?;
    let word = |name: &str| answer.split_whitespace().skip_while(|word| *word != name).nth(1);
    let banned = word("BANNED").and_then(|mask| CpuSet::from_mask(mask).ok()).ok_or(Errno::PROTO)?;
    Ok(Setup { scan_s: word("SLEEP").and_then(|seconds| seconds.parse().ok()).unwrap_or(10), banned })
}

fn ban_at(address: &SocketAddrUnix, peer: Peer, cpus: &CpuSet) -> Result<(), Errno> {
    let list = if cpus.is_empty() { "NULL".to_owned() } else { cpus.to_string() };
    let begin = Instant::now();
    send(address, peer, &format!("settings cpus {list}"), begin + PATIENCE)?;
    let Setup { scan_s, banned } = setup(address, peer, begin + PATIENCE)?;
    if banned == *cpus {
        return Ok(());
    }
    let end = begin + Duration::from_secs(scan_s.min(SCAN_S_MAX)) + PATIENCE;
    while setup(address, peer, end)?.banned != *cpus {
        if Instant::now() >= end {
            return Err(Errno::TIMEDOUT);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Sends one line and returns the complete answer. All of it must happen before `until`.
fn send(address: &SocketAddrUnix, peer: Peer, line: &str, until: Instant) -> Result<String, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // With a full backlog, connect fails with EAGAIN, and irqbalance counts as not running.
    rustix::net::connect(&socket, address)?;
    // Credentials of the moment when the peer began to listen. No other process can have the name since.
    if sys::peer::Peer::of(socket.as_fd()).map_err(|error| error.errno)?.uid != peer.uid {
        return Err(Errno::PERM);
    }
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match rustix::net::send(&socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::AGAIN | Errno::INTR) => wait(&socket, PollFlags::OUT, until)?,
            Err(errno) => return Err(errno),
        }
    }
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while answer.len() < ANSWER_BYTES_MAX {
        match rustix::net::recv(&socket, &mut piece[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((got, _)) => answer.extend_from_slice(&piece[..got]),
            Err(Errno::AGAIN | Errno::INTR) => wait(&socket, PollFlags::IN, until)?,
            Err(errno) => return Err(errno),
        }
        if Instant::now() >= until {
            return Err(Errno::TIMEDOUT);
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Waits until the socket is ready, at most until `until`.
fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> Result<(), Errno> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT);
    }
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, flags)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use sys::root::RootDir;

    /// This process as the trusted peer.
    fn this() -> Peer {
        Peer { uid: rustix::process::geteuid().as_raw() }
    }

    fn listen(name: &str) -> (SocketAddrUnix, UnixListener) {
        let name = format!("{name}-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        (SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(), listener)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// A model of irqbalance that applies a setting after `scans` further requests.
    fn peer(name: &str, answers: usize, scans: usize) -> (SocketAddrUnix, std::thread::JoinHandle<Vec<String>>) {
        let (address, listener) = listen(name);
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
    fn irqbalance_is_queried_and_its_banned_cpus_are_set_and_restored() {
        let (address, peer) = peer("tahti-irqbalance", 7, 1);
        assert!(setup(&address, this(), soon()).unwrap().banned.is_empty());
        ban_at(&address, this(), &"2-3,6".parse().unwrap()).unwrap();
        ban_at(&address, this(), &CpuSet::EMPTY).unwrap();
        let heard = peer.join().unwrap();
        assert_eq!(heard[..2], ["setup", "settings cpus 2-3,6"]);
        assert_eq!(heard[4..6], ["settings cpus NULL", "setup"]);
    }

    #[test]
    fn a_malformed_answer_of_irqbalance_is_an_error() {
        let (address, listener) = listen("tahti-no-irqbalance");
        let thread = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"SLEEP BANNED").unwrap());
        assert!(setup(&address, this(), soon()).is_err());
        thread.join().unwrap();
    }

    #[test]
    fn a_peer_of_another_user_gets_nothing_and_causes_no_wait() {
        let (address, listener) = listen("tahti-foreign-irqbalance");
        let other = Peer { uid: this().uid + 1 };
        assert_eq!(send(&address, other, "settings cpus 1", soon()), Err(Errno::PERM));
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "");
    }

    #[test]
    fn one_deadline_holds_for_a_peer_that_is_silent_slow_or_does_not_accept() {
        let (address, listener) = listen("tahti-silent-irqbalance");
        let until = || Instant::now() + Duration::from_millis(50);
        assert_eq!(send(&address, this(), "setup", until()), Err(Errno::TIMEDOUT));
        let (mut stream, _) = listener.accept().unwrap();
        // Sends one byte at a time without end; each arrives well within the deadline of one read.
        let dribbling = std::thread::spawn(move || {
            let (mut dribbled, _) = listener.accept().unwrap();
            while dribbled.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            listener
        });
        assert_eq!(send(&address, this(), "setup", until()), Err(Errno::TIMEDOUT));
        let listener = dribbling.join().unwrap();
        let _ = stream.write_all(b"");
        // No connection is accepted any longer: a blocking connect would wait forever.
        let mut waiting = Vec::new();
        let full = loop {
            match rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)
                .and_then(|socket| rustix::net::connect(&socket, &address).map(|()| socket))
            {
                Ok(socket) => waiting.push(socket),
                Err(errno) => break errno,
            }
        };
        assert_eq!((full, send(&address, this(), "setup", soon()).err()), (Errno::AGAIN, Some(Errno::AGAIN)));
        drop(listener);
    }

    #[test]
    fn only_a_process_named_irqbalance_with_a_socket_of_root_is_queried() {
        let dir = std::env::temp_dir().join(format!("tahti-irqbalance-{}", std::process::id()));
        let root = RootDir::at(&dir);
        for folder in ["proc/net", "proc/77", "proc/78"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let line = |path: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 12345 {path}\n");
        let many: String = (0..1000).map(|_| line("/run/irqbalance/irqbalance78.sock")).collect();
        let sockets = line("/run/other.sock")
            + &line("@irqbalance77.sock")
            + &line("/tmp/irqbalance78.sock")
            + &line("@x/irqbalance78.sock")
            + &many;
        std::fs::write(dir.join("proc/net/unix"), sockets).unwrap();
        std::fs::write(dir.join("proc/77/comm"), "impostor\n").unwrap();
        std::fs::write(dir.join("proc/78/comm"), "irqbalance\n").unwrap();
        let found = candidates(&root);
        std::fs::remove_dir_all(&dir).unwrap();
        let expected = SocketAddrUnix::new("/run/irqbalance/irqbalance78.sock").unwrap();
        assert!(found.len() == NAMES_MAX && found.iter().all(|one| *one == (78, expected.clone())), "{found:?}");
    }
}

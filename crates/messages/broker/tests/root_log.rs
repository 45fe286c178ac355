//! The message log on a full disk, and under a flood from another user.

mod server;

use broker::server::LogLimit;
use broker::server::{Config, Event};
use broker::{Client, Sending};
use msg::Code;
use server::{LONG, Server, ask, fresh};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small tmpfs that is unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(fresh());
        std::fs::create_dir(&folder).unwrap();
        let disk = Self(folder);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tahti-test"]).arg(&disk.0);
        assert!(mount.status().unwrap().success(), "this test mounts a disk and needs root");
        disk
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Number of log lines that were lost because they could not be written.
fn unwritten(client: &mut Client) -> usize {
    let counters = ask(client, "describe/server").1;
    let counter = counters.split_whitespace().find_map(|word| word.strip_prefix("unwritten="));
    counter.unwrap().parse().unwrap()
}

fn put(client: &mut Client, times: usize) -> usize {
    (0..times).for_each(|_| assert_eq!(ask(client, "put/absent/1A").0, Code::NoObject));
    times
}

/// Number of lines about a request, and number of lost lines that other lines report.
fn told(log: &Path) -> (usize, usize) {
    let text = std::fs::read_to_string(log).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let (mut written, mut lost) = (0, 0);
    for line in text.lines() {
        match line.split_once(" message-log lost=") {
            Some((_, rest)) => {
                assert!(
                    rest.contains(": the file could not be written for ") && rest.contains("No space left"),
                    "{line}"
                );
                lost += rest.split(':').next().unwrap().parse::<usize>().unwrap();
            }
            None => {
                assert!(line.contains(" put/absent/1A -> NO_OBJECT/") && line.ends_with("us"), "half a line: {line}");
                written += 1;
            }
        }
    }
    (written, lost)
}

#[test]
fn a_full_disk_costs_whole_log_lines_which_are_counted_when_there_is_room_again() {
    let disk = Disk::new();
    let (log, ballast) = (disk.file("log"), disk.file("ballast"));
    let server = Server::start(Config { name: fresh(), log: Some(log.clone()), ..Config::default() });
    let mut client = server.client("writer");
    let mut sent = put(&mut client, 10);
    std::fs::write(&ballast, vec![7; 56 << 10]).unwrap();
    while unwritten(&mut client) == 0 {
        sent += put(&mut client, 20);
    }
    let said = server.until(|event| matches!(event, Event::Trouble(_)));
    assert!(matches!(&said, Event::Trouble(why) if why.contains("No space left on device")), "{said:?}");
    sent += put(&mut client, 20);
    std::fs::remove_file(&ballast).unwrap();
    let said = server.until(|event| matches!(event, Event::Mended(_)));
    sent += put(&mut client, 20);
    let lost = unwritten(&mut client);
    drop((client, server));
    assert_eq!(told(&log), (sent - lost, lost), "{said:?}");
    assert!(lost > 20, "lines of that time are lost");
}

/// Runs `work` on a thread of another user, which the server learns from the kernel.
fn as_another_user(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            work();
        });
        thread.join().unwrap();
    });
}

#[test]
fn refused_requests_of_another_user_displace_no_write_in_the_log_and_are_summarised() {
    const FLOOD: usize = 20_000;
    let folder = std::env::temp_dir().join(fresh());
    std::fs::create_dir(&folder).unwrap();
    let log = folder.join("log");
    // Each file has space for 500 lines.
    let config = Config {
        name: fresh(),
        log: Some(log.clone()),
        log_limit: LogLimit { bytes: 64 << 10, keep: 1 },
        ..Config::default()
    };
    let server = Server::start(config);
    assert_eq!(ask(&mut server.client("owner"), "put/absent/1A").0, Code::NoObject);
    as_another_user(|| {
        let mut client = server.client("stranger");
        let sending = Sending { limit: LONG, ..Sending::default() };
        let (mut sent, mut answered) = (0, 0);
        while answered < FLOOD {
            while sent < FLOOD && client.outstanding() < 100 {
                client.send("put/absent/1A", &sending).unwrap();
                sent += 1;
            }
            let reply = client.next(LONG).unwrap().expect("an answer");
            assert_eq!(reply.code, Code::Denied);
            answered += 1;
        }
    });
    let counters = ask(&mut server.client("owner"), "describe/server").1;
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.lines().next().unwrap().contains(" owner uid="), "the owner's line is kept: {text}");
    let listed = text.lines().filter(|line| line.contains(" -> DENIED/")).count();
    let summed = |line: &str| line.split_once(" uid=65534 refused=")?.1.split(':').next()?.parse::<usize>().ok();
    let withheld: usize = text.lines().filter_map(summed).sum();
    assert!(listed >= 20 && listed + withheld == FLOOD, "{listed} lines and {withheld} in summaries: {text}");
    assert!(counters.contains(&format!(" withheld={withheld} ")), "{counters}");
}

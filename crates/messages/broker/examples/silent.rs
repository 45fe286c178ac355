//! How long a new client takes to connect beside connections that say nothing.
//!
//! `cargo run --release -p broker --example silent [-- CLIENTS]`; with root the silent ones are of other users. Each row is that many
//! clients which come one after the other, say who they are, and go.

use broker::server::{Config, Event, serve};
use broker::{Client, socket_name};
use msg::Band;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Connections that say nothing: as many as the server has places.
const SILENT: usize = 512;
/// Strangers, where this is root.
const STRANGERS: [u32; 3] = [65_531, 65_532, 65_533];

/// Keeps so many connections to the server open, and each time that it hangs up on one opens the next within a millisecond.
fn be_silent(socket: &str, count: usize) -> ! {
    let mut connections = Vec::new();
    loop {
        connections
            .retain(|connection: &std::os::fd::OwnedFd| sys::handover::is_alive(std::os::fd::AsFd::as_fd(connection)));
        while connections.len() < count {
            // The server may be busy with others.
            if let Ok(connection) = sys::handover::connect(socket) {
                connections.push(connection);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes with silent connections, until it is dropped.
struct Silent(Vec<Child>);

impl Silent {
    /// So many processes, of as many users if this is root, which have all connections together.
    fn new(name: &str, processes: usize) -> Self {
        let is_root = sys::handover::own_user() == 0;
        let start = |user: &u32| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["silent", name, &(SILENT / processes).to_string()]);
            if is_root {
                command.uid(*user);
            }
            command.spawn().expect("start this program again")
        };
        let silent = Self(STRANGERS.iter().take(processes).map(start).collect());
        // Until they are at it.
        std::thread::sleep(Duration::from_secs(3));
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn measure(name: &str, clients: usize, beside: &str) {
    let mut refused = 0;
    let mut took: Vec<Duration> = (0..clients)
        .map(|_| {
            let begun = Instant::now();
            refused += usize::from(Client::connect(name, "new", Band::DEFAULT).is_err());
            begun.elapsed()
        })
        .collect();
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!("{beside:<60} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {refused:>4}", at(0), at(50), at(99), at(100));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [silent, name, count] = &words[..]
        && silent == "silent"
    {
        be_silent(&socket_name(name), count.parse().expect("how many"));
    }
    let clients = words.first().map_or(1_000, |word| word.parse().expect("how many clients"));
    let (name, stop) = (format!("silent-{}", std::process::id()), Arc::new(AtomicBool::new(false)));
    let (config, stopped, (tell, ready)) =
        (Config { name: name.clone(), ..Config::default() }, stop.clone(), channel());
    let server = std::thread::spawn(move || {
        serve(config, &stopped, &mut |event| {
            if matches!(event, Event::Ready(_)) {
                let _ = tell.send(());
            }
        })
    });
    ready.recv().expect("the server begins");
    println!(
        "{:<60} {:>8} {:>8} {:>8} {:>8} {:>4}",
        "ms until a new client is there", "least", "median", "99 %", "most", "not"
    );
    measure(&name, clients, "alone");
    let idle: Vec<_> = (0..255).filter_map(|_| Client::connect(&name, "idle", Band::DEFAULT).ok()).collect();
    measure(&name, clients, &format!("beside {} clients that ask nothing", idle.len()));
    drop(idle);
    for processes in 1..=STRANGERS.len() {
        let silent = Silent::new(&name, processes);
        let whose = if sys::handover::own_user() == 0 { "other users" } else { "processes of this user" };
        measure(&name, clients, &format!("beside {SILENT} silent connections of {processes} {whose}"));
        drop(silent);
    }
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server").expect("serves");
}

//! Measures how long a new client takes to connect while the server has silent connections.
//!
//! `cargo run --release -p broker --example silent [-- CLIENTS]`. As root, the silent connections belong to other users. For each row of
//! the output, CLIENTS clients connect one after the other and disconnect.

use broker::server::{Config, Event, serve};
use broker::{Client, socket_name};
use msg::Band;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Number of connections that send nothing: as many as the server has places.
const SILENT: usize = 512;
/// Users of the silent connections, if this runs as root.
const STRANGERS: [u32; 3] = [65_531, 65_532, 65_533];

/// Keeps `count` connections to the server open. Replaces a closed connection within a millisecond.
fn be_silent(socket: &str, count: usize) -> ! {
    let mut connections = Vec::new();
    loop {
        connections
            .retain(|connection: &std::os::fd::OwnedFd| sys::handover::is_alive(std::os::fd::AsFd::as_fd(connection)));
        while connections.len() < count {
            // The server may be busy with other connections.
            if let Ok(connection) = sys::handover::connect(socket) {
                connections.push(connection);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes with silent connections, which are killed on drop.
struct Silent(Vec<Child>);

impl Silent {
    /// Starts this many processes, which share all connections. As root, each runs as another user.
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
        // Wait until they have connected.
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
        "ms until a new client is connected", "min", "median", "99 %", "max", "refused"
    );
    measure(&name, clients, "alone");
    let idle: Vec<_> = (0..255).filter_map(|_| Client::connect(&name, "idle", Band::DEFAULT).ok()).collect();
    measure(&name, clients, &format!("with {} idle clients", idle.len()));
    drop(idle);
    for processes in 1..=STRANGERS.len() {
        let silent = Silent::new(&name, processes);
        let whose = if sys::handover::own_user() == 0 { "other users" } else { "processes of this user" };
        measure(&name, clients, &format!("with {SILENT} silent connections of {processes} {whose}"));
        drop(silent);
    }
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server").expect("serves");
}

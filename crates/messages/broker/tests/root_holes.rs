//! A client that removes pages from its own queue, which the band's thread reads.

mod server;

use base::DurNs;
use broker::{Client, socket_name};
use msg::{Band, Code};
use rustix::fs::FallocateFlags;
use server::{LONG, ask, come, server};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::handover::{connect, receive, send};

/// A connection on the default band without the client library: its socket and the memory of its queues.
fn stranger(name: &str) -> (OwnedFd, OwnedFd) {
    let connection = come(|| connect(&socket_name(name)).map_err(Into::into));
    let band = Band::DEFAULT.number();
    let hello = format!("{{\"version\":3,\"name\":\"stranger\",\"bands\":[{band}]}}");
    send(connection.as_fd(), hello.as_bytes(), &[]).unwrap();
    let mut bytes = [0; 4096];
    let (_, fds) = receive(connection.as_fd(), &mut bytes).unwrap().unwrap();
    let memory = fds.into_iter().next().expect("the memory of the band");
    (connection, memory)
}

/// Number of page faults of the default band's thread.
fn faults() -> u64 {
    let name = format!("band-{}\n", Band::DEFAULT.number());
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let mut band = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == name));
    let stat = std::fs::read_to_string(band.next().expect("the band's thread").join("stat")).unwrap();
    // After the name in parentheses: the state is field 3, minor faults are field 10, major faults field 12.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[7].parse::<u64>().unwrap() + fields[9].parse::<u64>().unwrap()
}

#[test]
fn a_client_that_punches_holes_into_its_queue_gives_the_band_no_page_fault() {
    let server = server();
    let (_connection, memory) = stranger(&server.name);
    let mut other: Client = server.client("other");
    let (stop, punched, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let length = rustix::fs::fstat(&memory).unwrap().st_size as u64;
    let punch = || rustix::fs::fallocate(&memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length);
    let first = punch();
    let mut ping = || {
        assert_eq!(ask(&mut other, "ping/server").0, Code::Ok);
        sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_us(100));
    };
    // The band's first accesses, also those of its wait for a request, fault here, before the count starts.
    (0..100).for_each(|_| ping());
    let before = faults();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let count = if punch().is_ok() { &punched } else { &refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = sys::clock::mono_now() + LONG;
        while punched.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed) < 1_000 && sys::clock::mono_now() < end
        {
            ping();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (after, punched) = (faults(), punched.into_inner());
    assert_eq!(first, Err(rustix::io::Errno::PERM), "a hole was punched");
    assert_eq!((punched, after - before), (0, 0), "holes, and page faults of the band's thread");
    assert!(refused.into_inner() >= 1_000, "the stranger has tried");
}

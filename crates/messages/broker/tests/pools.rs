//! Bodies in pools, and pool memory that passes from client to client.

mod server;

use base::DurNs;
use broker::server::Event;
use broker::{Client, ClientError, Manager, Sending};
use msg::{Answer, Band, Code, Flags, Verb};
use server::{LONG, ask, come, manager, server};
use std::collections::BTreeSet;

#[test]
fn a_large_body_passes_both_ways_through_the_clients_pool_if_the_manager_has_rooms() {
    const BYTES: usize = 1 << 20;
    let server = server();
    let mut early = come(|| Client::with_pool(&server.name, "early", Band::DEFAULT, 4 << 20));
    let mut lanes = come(|| Manager::with_rooms(&server.name, "camera", &["camera"], &[Band::DEFAULT]));
    let _plain = manager(&server.name, "sr");
    let mut late = come(|| Client::with_pool(&server.name, "late", Band::DEFAULT, 2 << 20));
    std::thread::spawn(move || {
        let mut image = vec![0; BYTES];
        // Until the server has stopped.
        while lanes[0]
            .serve(LONG, |asked, replies| {
                let Some(mut room) = replies.room() else {
                    replies.answer(asked.ticket, &Answer::ok("no room"));
                    return;
                };
                let length = room.copy_to(&mut image);
                image[..length].reverse();
                assert!(room.write(&image[..length]) && asked.body.is_empty());
                replies.answer_room(asked.ticket, "reversed", &room);
            })
            .is_ok()
        {}
    });
    let sending = Sending { limit: LONG, ..Sending::default() };
    for client in [&mut early, &mut late] {
        for round in 0..5u8 {
            let mut room = client.room(BYTES as u64).unwrap();
            let body: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8 ^ round).collect();
            assert!(room.write(&body));
            let id = client.send_room("put/camera/image", &sending, room).unwrap();
            let reply = client.next(LONG).unwrap().unwrap();
            assert_eq!((reply.id, reply.code, &*reply.text), (id, Code::Ok, "reversed"));
            let mut back = vec![0; BYTES];
            assert_eq!(reply.room.unwrap().copy_to(&mut back), BYTES);
            assert!(back.iter().eq(body.iter().rev()));
        }
        assert_eq!(ask(client, "get/camera/image"), (Code::Ok, "no room".into()));
    }
    let held: Vec<_> = (0..2).map(|_| late.room(BYTES as u64).unwrap()).collect();
    assert_eq!(late.room(1).unwrap_err(), ClientError::NoRoom(1));
    drop(held);
    let room = late.room(1).unwrap();
    late.send_room("put/sr/image", &sending, room).unwrap();
    let reply = late.next(LONG).unwrap().unwrap();
    assert_eq!(
        (reply.code, &*reply.text),
        (Code::Malformed, "this manager takes no bodies above 16 KiB; nothing was done")
    );
}

#[test]
fn a_manager_of_large_bodies_answers_them_at_once_or_later() {
    const BYTES: usize = 100_000;
    let server = server();
    let lanes = come(|| Manager::with_bodies(&server.name, "camera", &["camera"], &[Band::DEFAULT], BYTES as u64));
    let [mut lane] = <[_; 1]>::try_from(lanes).ok().unwrap();
    std::thread::spawn(move || {
        let mut later = None;
        // Until the server has stopped.
        while lane
            .serve(LONG, |asked, replies| {
                assert!(!asked.flags.has(Flags::POOLED));
                match asked.request.verb {
                    Verb::Call => later = Some((asked.ticket, asked.body.to_vec())),
                    _ => {
                        let text = asked.answer_bytes_max.to_string();
                        let body: Vec<u8> = asked.body.iter().rev().copied().collect();
                        replies.answer(asked.ticket, &Answer { code: Code::Ok, complement: &text, body: &body });
                        if let Some((ticket, body)) = later.take() {
                            replies.answer(ticket, &Answer { code: Code::Range, complement: "later", body: &body });
                        }
                    }
                }
            })
            .is_ok()
        {}
    });
    let mut client = come(|| Client::with_pool(&server.name, "client", Band::DEFAULT, 256 << 10));
    let body: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
    let sending = Sending { limit: LONG, body: &body, ..Sending::default() };
    let first = client.send("call/camera/x", &sending).unwrap();
    let second = client.ask("put/camera/x", &sending).unwrap();
    // The size of a room is a multiple of the cache line.
    assert_eq!((second.code, &*second.text), (Code::Ok, "100032"));
    assert!(second.room.is_none() && second.body.iter().eq(body.iter().rev()));
    let later = client.next(LONG).unwrap().unwrap();
    assert_eq!((later.id, later.code, &*later.text, &later.body), (first, Code::Range, "later", &body));
    // Small bodies are sent without the pool. Bodies too large for the manager or the pool are refused.
    let small = client.ask("put/camera/x", &Sending { limit: LONG, body: b"abc", ..Sending::default() }).unwrap();
    assert_eq!((&*small.text, &*small.body), ("16384", &b"cba"[..]));
    let large = [0; BYTES + 1];
    let refused = client.ask("put/camera/x", &Sending { body: &large, ..sending }).unwrap();
    assert_eq!((refused.code, &refused.text[..26]), (Code::Malformed, "the body is larger than th"));
    let huge = client.ask("put/camera/x", &Sending { answer: 1 << 20, ..sending }).unwrap_err();
    assert_eq!(huge, ClientError::NoRoom(1 << 20));
    // Rooms are lost if their answer may still arrive. A new connection makes them available again.
    let mut lost = 0;
    while lost < 4 {
        let hung = client.ask("call/camera/x", &Sending { limit: DurNs::from_ms(50), ..sending }).unwrap();
        // On a busy machine the limit may pass before the server has the request.
        assert!(matches!(hung.code, Code::Timeout | Code::Expired), "{}", hung.text);
        lost += usize::from(hung.code == Code::Timeout);
    }
    assert_eq!(client.ask("put/camera/x", &sending).unwrap().code, Code::Ok);
}

#[test]
fn memory_of_clients_that_left_is_reused_and_never_unmapped() {
    let server = server();
    let mut watching = server.client("watching");
    for _ in 0..300 {
        let mut client = server.client("fleeting");
        assert_eq!(ask(&mut client, "ping/server").0, Code::Ok);
        drop(client);
        server.until(|event| *event == Event::Left("fleeting".into()));
    }
    assert!(ask(&mut watching, "describe/server").1.contains(" unmapped=0"));
}

/// The mapped pools of this size in this process.
fn mapped(bytes: u64) -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_pool = |line: &&str| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        line.contains("memfd:tahti-pool") && to - from == bytes
    };
    maps.lines().filter(is_pool).map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect()
}

#[test]
fn pools_are_reused_for_new_clients_and_stay_mapped_in_managers() {
    // A size that no other test of this process uses.
    const POOL: u64 = 5 << 20;
    let server = server();
    let lanes = come(|| Manager::with_bodies(&server.name, "camera", &["camera"], &[Band::DEFAULT], 1 << 20));
    let [mut lane] = <[_; 1]>::try_from(lanes).ok().unwrap();
    // Until the server has stopped. The request `hang` hangs.
    std::thread::spawn(move || {
        let echo = |asked: &msg::ManagerRequest<'_>, replies: &mut broker::Replies<'_>| {
            if asked.request.verb != Verb::Call {
                assert!(replies.answer(asked.ticket, &Answer { code: Code::Ok, complement: "", body: asked.body }));
            }
        };
        while lane.serve(LONG, echo).is_ok() {}
    });
    let body = vec![7; 100_000];
    let sending = Sending { limit: LONG, body: &body, ..Sending::default() };
    let come_and_go = |line: &str, limit: DurNs| {
        let mut client = come(|| Client::with_pool(&server.name, "fleeting", Band::DEFAULT, POOL));
        let reply = client.ask(line, &Sending { limit, ..sending }).unwrap();
        drop(client);
        server.until(|event| *event == Event::Left("fleeting".into()));
        reply
    };
    for _ in 0..50 {
        let reply = come_and_go("put/camera/x", LONG);
        assert!(reply.code == Code::Ok && reply.body == body);
    }
    let first = mapped(POOL);
    assert_eq!(first.len(), 1, "{first:?}");

    // If a manager may still write into a room, no other client gets it: the server does not reuse that pool.
    while come_and_go("call/camera/x", DurNs::from_ms(50)).code != Code::Timeout {}
    assert_eq!(come_and_go("put/camera/x", LONG).code, Code::Ok);
    assert!(!mapped(POOL).is_subset(&first));

    // The server also does not reuse a pool whose client still holds a room.
    let mut client = come(|| Client::with_pool(&server.name, "fleeting", Band::DEFAULT, POOL));
    let mut room = client.room(100_000).unwrap();
    assert!(room.write(&body));
    let id = client.send_room("put/camera/x", &sending, room).unwrap();
    let reply = client.next(LONG).unwrap().unwrap();
    assert_eq!((reply.id, reply.code), (id, Code::Ok));
    drop(client);
    let mut other = come(|| Client::with_pool(&server.name, "other", Band::DEFAULT, POOL));
    let zeros = vec![0; 100_000];
    assert_eq!(other.ask("put/camera/x", &Sending { body: &zeros, ..sending }).unwrap().code, Code::Ok);
    let mut still = vec![0; 100_000];
    reply.room.unwrap().copy_to(&mut still);
    assert_eq!(still, body);
}

#[test]
fn a_manager_without_large_bodies_for_long_maps_the_pool_of_a_new_client() {
    // More than a socket holds unread.
    const CLIENTS: u64 = 400;
    let server = server();
    let lanes = come(|| Manager::with_bodies(&server.name, "camera", &["camera"], &[Band::DEFAULT], 1 << 20));
    let [mut lane] = <[_; 1]>::try_from(lanes).ok().unwrap();
    std::thread::spawn(move || {
        let answer = |asked: &msg::ManagerRequest<'_>, replies: &mut broker::Replies<'_>| {
            assert!(replies.answer(asked.ticket, &Answer::ok(&asked.body.len().to_string())));
        };
        while lane.serve(LONG, answer).is_ok() {}
    });
    let client = |at: u64| come(|| Client::with_pool(&server.name, "fleeting", Band::DEFAULT, (at + 1) << 12));
    (0..CLIENTS).for_each(|at| drop(client(at)));
    let mut last = client(CLIENTS);
    let body = vec![7; 100_000];
    let begun = std::time::Instant::now();
    // A manager that was starved for that long receives the pool a moment later.
    while last.ask("put/camera/x", &Sending { limit: LONG, body: &body, ..Sending::default() }).unwrap().code
        != Code::Ok
    {
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "no report arrives");
    }
}

//! Limits of one client, and of all clients of one user, on shared resources.

mod server;

use base::DurNs;
use broker::server::{Config, Event, LogLimit, serve};
use broker::{Client, ClientError, Manager, Sending};
use msg::{Answer, Band, Code, Limits};
use server::{LONG, Server, ask, come, fresh, refused, server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

/// Number of refusals because of a share.
fn refusals(client: &mut Client) -> u64 {
    let counters = ask(client, "describe/server").1;
    let counter = counters.split_whitespace().find_map(|word| word.strip_prefix("over_share="));
    counter.unwrap().parse().unwrap()
}

/// Waits for this number of refusals. Each is counted a moment after its answer.
fn are_refused(count: u64, asking: &mut Client) {
    let end = sys::clock::mono_now() + LONG;
    while refusals(asking) < count {
        assert!(sys::clock::mono_now() < end, "fewer than {count} are refused after {LONG}");
    }
}

#[test]
fn one_user_has_half_of_the_places_and_a_refusal_has_its_reason() {
    let limits = Limits { conns: 8, ..Limits::default() };
    let server = Server::start(Config { name: fresh(), limits, ..Config::default() });
    let mut clients: Vec<Client> = (0..4).map(|_| server.client("one")).collect();
    let why = refused(|| Client::connect(&server.name, "more", Band::DEFAULT));
    let expected =
        "has 4 of 8 places for connections and 1 more are requested, expected at most 4; close unused clients";
    assert!(matches!(&why, ClientError::Refused(why) if why.contains(expected)), "{why}");
    assert_eq!(refusals(&mut clients[0]), 1);
    // Connected clients keep their places. A place that one releases goes to another.
    drop(clients.pop());
    server.until(|event| matches!(event, Event::Left(_)));
    clients.push(server.client("next"));
    clients.iter_mut().for_each(|client| assert_eq!(ask(client, "ping/server").0, Code::Ok));
}

#[test]
fn one_user_has_half_of_the_bytes_of_pools() {
    let server = server();
    let pool = || Client::with_pool(&server.name, "pool", Band::DEFAULT, 256 << 20);
    let mut clients: Vec<Client> = (0..2).map(|_| come(pool)).collect();
    let why = refused(pool).to_string();
    let expected =
        "has 536870912 of 1073741824 bytes of pools and 268435456 more are requested, expected at most 536870912";
    assert!(why.contains(expected), "{why}");
    assert_eq!(refusals(&mut clients[0]), 1);
}

#[test]
fn locks_and_watches_of_a_client_are_bounded() {
    let server = server();
    let mut holders: Vec<Client> = (0..3).map(|_| server.client("holder")).collect();
    for (at, holder) in holders.iter_mut().enumerate() {
        let locked = (0..33).filter(|number| {
            let (code, why) = ask(holder, &format!("lock/o{at}_{number}"));
            assert!(code == Code::Ok || code == Code::Overload && why.contains("end some with unlock"), "{why}");
            code == Code::Ok
        });
        assert_eq!(locked.count(), if at < 2 { 32 } else { 0 });
    }
    assert_eq!(ask(&mut holders[0], "unlock/o0_0").0, Code::Ok);
    assert_eq!(ask(&mut holders[2], "lock/o2_0").0, Code::Ok);
    let before = refusals(&mut holders[0]);
    let watched = (0..17).filter(|number| ask(&mut holders[0], &format!("watch/w{number}")).0 == Code::Ok);
    assert_eq!((watched.count(), refusals(&mut holders[1])), (16, before + 1));
}

#[test]
fn one_user_with_many_clients_has_half_of_the_outstanding_requests() {
    let limits = Limits { outstanding: 16, ..Limits::default() };
    let server = Server::start(Config { name: fresh(), limits, ..Config::default() });
    // This manager takes no request.
    let _lanes = come(|| Manager::connect(&server.name, "hung", &["sr"], &[Band::DEFAULT]));
    let mut clients: Vec<Client> = (0..5).map(|_| server.client("one-of-many")).collect();
    let sending = Sending { limit: LONG, ..Sending::default() };
    for client in &mut clients {
        for _ in 0..2 {
            client.send("get/sr/x", &sending).unwrap();
        }
        client.flush();
    }
    let mut other = come(|| Client::connect(&server.name, "counting", Band::new(7).unwrap()));
    are_refused(2, &mut other);
    let why = ask(&mut clients[0], "get/sr/x");
    assert_eq!(why.0, Code::Overload);
    let said = "has 8 of 16 requests outstanding on this band and 1 more are requested, expected at most 8; take replies first";
    assert!(why.1.contains(said), "{}", why.1);
    are_refused(3, &mut other);
    assert_eq!(refusals(&mut other), 3);
}

#[test]
fn one_user_with_many_clients_has_half_of_a_managers_queue() {
    let server = server();
    let mut lanes = come(|| Manager::connect(&server.name, "slow", &["sr"], &[Band::DEFAULT]));
    let mut clients: Vec<Client> = (0..2).map(|_| server.client("one-of-many")).collect();
    let sending = Sending { limit: DurNs::from_secs(120), body: &[7; 16_000], ..Sending::default() };
    for client in &mut clients {
        for _ in 0..5 {
            client.send("put/sr/x", &sending).unwrap();
        }
        client.flush();
    }
    let mut other = come(|| Client::connect(&server.name, "counting", Band::new(7).unwrap()));
    are_refused(2, &mut other);
    let mut taken = 0;
    while taken < 8 {
        let take = lanes[0].serve(LONG, |asked, replies| {
            taken += 1;
            assert!(replies.answer(asked.ticket, &Answer::ok("1")));
        });
        take.unwrap();
    }
    let replies: Vec<_> =
        clients.iter_mut().flat_map(|client| [(); 5].map(|()| client.next(LONG).unwrap().unwrap())).collect();
    let said_no: Vec<_> =
        replies.iter().filter(|reply| reply.code == Code::Overload).map(|reply| &*reply.text).collect();
    let said = "of 262144 bytes of its queue and 16080 more are requested, expected at most 131072; take replies first";
    assert!(
        said_no.len() == 2 && said_no[0].starts_with("manager slow: user ") && said_no[0].contains(said),
        "{said_no:?}"
    );
    assert_eq!(replies.iter().filter(|reply| reply.code == Code::Ok).count(), 8);
    // Requests that the manager has taken free their space.
    clients[0].send("put/sr/x", &sending).unwrap();
    clients[0].flush();
    lanes[0].serve(LONG, |asked, replies| assert!(replies.answer(asked.ticket, &Answer::ok("1")))).unwrap();
    assert_eq!((clients[0].next(LONG).unwrap().unwrap().code, refusals(&mut other)), (Code::Ok, 2));
}

#[test]
fn the_log_is_bounded_and_each_of_its_files_has_whole_lines() {
    const BYTES: u64 = 4096;
    let dir = std::env::temp_dir().join(fresh());
    std::fs::create_dir(&dir).unwrap();
    let log_limit = LogLimit { bytes: BYTES, keep: 2 };
    let server = Server::start(Config { name: fresh(), log: Some(dir.join("log")), log_limit, ..Config::default() });
    let mut client = server.client("writer");
    let counters = loop {
        (0..40).for_each(|_| assert_eq!(ask(&mut client, "put/absent/1A").0, Code::NoObject));
        let counters = ask(&mut client, "describe/server").1;
        if (0..4).all(|moved| !counters.ends_with(&format!(" logs_moved={moved}"))) {
            break counters;
        }
    };
    assert!(counters.contains(" unlogged_by_band=0,0,0,0,0,0,0,0 "), "{counters}");
    drop(server);
    let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names, ["log", "log.1", "log.2"].map(|name| dir.join(name)));
    for name in &names {
        let text = std::fs::read_to_string(name).unwrap();
        // A single write holds at most the records between two checks.
        assert!(!text.is_empty() && text.lines().all(|line| line.contains(" put/absent/1A -> NO_OBJECT/")), "{text}");
        assert!(text.ends_with('\n'));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_list_that_is_too_long_for_a_reply_is_sent_in_parts() {
    let server = server();
    let claims: Vec<String> = (0..3000).map(|at| format!("storage_ring_magnet_power_supply_{at:04}")).collect();
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    let _lanes = come(|| Manager::connect(&server.name, "many", &claims, &[Band::DEFAULT]));
    let mut client = server.client("asking");
    let sending = Sending { limit: LONG, ..Sending::default() };
    let (lines, last) = client.list("*", &sending).unwrap();
    let served = lines.iter().flat_map(|line| line.split_whitespace()).map(|word| word.strip_suffix("=many").unwrap());
    assert!(served.eq(claims.iter().copied()), "{} {}", last.code, last.text);
    // A single reply contains the position at which to continue.
    let (code, told) = ask(&mut client, "list/*");
    let next: usize = told.split(' ').next().unwrap().parse().unwrap();
    assert_eq!((code, told), (Code::Ok, format!("{next} of 3000: continue with the complement {next}")));
    assert_eq!(ask(&mut client, "list/*/2999").1, "storage_ring_magnet_power_supply_2999=many");
    assert_eq!(ask(&mut client, "list/*/3000"), (Code::Ok, String::new()));
    assert_eq!(ask(&mut client, "list/*/all").0, Code::Malformed);
}

#[test]
fn a_manager_with_too_many_claims_is_refused_with_a_remedy() {
    let server = server();
    let why_not = |claims: &[String]| {
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        refused(|| Manager::connect(&server.name, "greedy", &claims, &[Band::DEFAULT])).to_string()
    };
    let many: Vec<String> = (0..4097).map(|at| format!("o{at}")).collect();
    let (why, remedy) = (why_not(&many), "claim fewer or shorter names, or serve them by several managers");
    assert!(why.ends_with(&format!("4097 objects to serve, expected at most 4096; {remedy}")), "{why}");
    let long: Vec<String> = (0..2000).map(|at| format!("{}{at}", "o".repeat(100))).collect();
    let why = why_not(&long);
    assert!(why.contains("with 2000 objects to serve, expected at most 131072") && why.ends_with(remedy), "{why}");
}

#[test]
fn silent_connections_do_not_keep_other_clients_out() {
    let server = server();
    let mut client = server.client("counting");
    let mut silent = Vec::new();
    // More connections than may be in the handshake, until the server disconnects one in favour of the next.
    while refusals(&mut client) == 0 {
        // A connection that timed out while the machine stopped does not count.
        silent.extend((0..100).filter_map(|_| sys::handover::connect(&broker::socket_name(&server.name)).ok()));
    }
    assert_eq!(ask(&mut server.client("late"), "ping/server").0, Code::Ok);
}

#[test]
fn one_user_has_half_of_the_memory_of_queues() {
    let server = server();
    let all: Vec<Band> = Band::all().collect();
    let name = |at: usize| format!("m{at}");
    let come = |at: usize| Manager::connect(&server.name, &name(at), &[&name(at)], &all);
    let mut managers = Vec::new();
    let why = loop {
        match come(managers.len()) {
            Ok(lanes) => managers.push(lanes),
            Err(why) => break why.to_string(),
        }
    };
    assert!(why.contains(" bytes of memory for queues and ") && why.contains("request fewer bands"), "{why}");
    assert!((8..=128).contains(&managers.len()), "{} managers of 4 MiB each", managers.len());
}

#[test]
fn a_server_that_is_stopped_while_many_clients_leave_ends_after_they_have_left() {
    // Each leaving client makes two changes in every lane: together more than an ended lane's queue holds.
    const MANY: usize = 40;
    let config = Config { name: fresh(), ..Config::default() };
    let (name, stop) = (config.name.clone(), Arc::new(AtomicBool::new(false)));
    let ((ready, is_ready), (drop_all, dropped), (tell, told)) = (channel(), channel(), channel());
    let server = std::thread::spawn(move || {
        let (mut joined, mut left) = (0, 0);
        let served = serve(config, &stop, &mut |event| match event {
            Event::Ready(_) => ready.send(()).unwrap(),
            Event::Joined(_) => {
                joined += 1;
                if joined == MANY {
                    // The server's next round finds all of them gone. The stop request arrives during that round.
                    dropped.recv().unwrap();
                }
            }
            Event::Left(_) => {
                left += 1;
                stop.store(true, Ordering::Relaxed);
            }
            _ => {}
        });
        tell.send((served.is_ok(), left)).unwrap();
    });
    is_ready.recv().unwrap();
    let all: Vec<Band> = Band::all().collect();
    let manager = |at: usize| Manager::connect(&name, &format!("m{at}"), &[&format!("m{at}")], &all);
    let managers: Vec<_> = (0..MANY).map(|at| come(|| manager(at))).collect();
    drop(managers);
    drop_all.send(()).unwrap();
    // The server does not wait for an ended lane.
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(120)), Ok((true, MANY)));
    server.join().unwrap();
}

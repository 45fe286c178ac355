//! Messages through a message server, between managers and clients.

mod server;

use base::DurNs;
use broker::server::{Config, Event};
use broker::{Client, ClientError, Manager, Sending};
use msg::{Access, Answer, Band, Code, Flags, Lines, Pattern, Rule, Verb, write_lines};
use server::{LONG, Server, ask, come, fresh, manager, refused, server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_request_is_answered_by_the_manager_with_the_longest_claim() {
    let server = server();
    let _managers = [manager(&server.name, "sr"), manager(&server.name, "sr_mag")];
    let mut client = server.client("test");
    assert_eq!(ask(&mut client, "put/sr_mag_ps_b/123.45A"), (Code::Ok, "123.45A".into()));
    assert_eq!(ask(&mut client, "get/sr_mag_ps_b/current_adc"), (Code::Ok, "123.45A".into()));
    assert_eq!(ask(&mut client, "get/sr_rf/current"), (Code::Ok, "0A".into()));
    assert_eq!(ask(&mut client, "put/sr_mag/a%2Fb"), (Code::Ok, "a/b".into()));
    let (code, why) = ask(&mut client, "get/sx_mag/a");
    assert_eq!((code, why.as_str()), (Code::NoObject, "no manager serves sx_mag; did you mean sr_mag?"));
    assert_eq!(ask(&mut client, "list/*").1, "sr=manager-of-sr sr_mag=manager-of-sr_mag");
    assert_eq!(ask(&mut client, "ping/server"), (Code::Ok, server.name.clone()));
    assert!(ask(&mut client, "list/server").1.contains(&format!("test uid={}", 0)) || !am_root());
}

fn am_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t")
}

#[test]
fn the_subject_of_a_request_is_taken_from_the_kernel() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let (_, who) = ask(&mut server.client("root-pretender"), "get/sr/who");
    assert!(who.ends_with(&format!(" {}", std::process::id())), "{who}");
}

#[test]
fn the_server_replies_for_a_manager_that_hangs_or_dies() {
    let server = server();
    let manager = manager(&server.name, "sr");
    let mut client = server.client("test");
    // On a busy machine the limit may pass before the server or the manager has the request, or before the server's reply.
    let reply = (1..100)
        .map(|turn| Sending { limit: DurNs::from_ms(30 * turn), ..Sending::default() })
        .map(|short| client.ask("call/sr/hang", &short).unwrap())
        .find(|reply| reply.code != Code::Expired && !reply.text.starts_with("message server: "))
        .unwrap();
    assert_eq!(reply.code, Code::Timeout);
    assert!(reply.text.starts_with("manager manager-of-sr: no answer within "), "{}", reply.text);
    let (code, why) = ask(&mut client, "call/sr/die");
    assert_eq!(code, Code::Unknown, "{why}");
    assert!(why.starts_with("manager manager-of-sr: lost "), "{why}");
    manager.join().unwrap();
    server.until(|event| *event == Event::Left("manager-of-sr".into()));
    assert_eq!(ask(&mut client, "get/sr/a").0, Code::NoObject);
}

#[test]
fn replies_to_a_client_that_left_do_not_reach_its_successor() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let sending = Sending { limit: LONG, ..Sending::default() };
    let mut gone = server.client("gone");
    for _ in 0..10 {
        gone.send("call/sr/hang", &sending).unwrap();
    }
    assert_eq!(ask(&mut gone, "get/sr/a").0, Code::Ok, "the manager has all of them");
    drop(gone);
    server.until(|event| *event == Event::Left("gone".into()));
    // The next client gets the free slot, but no reply to its predecessor.
    let mut next = server.client("next");
    assert_eq!(ask(&mut next, "put/sr/1A"), (Code::Ok, "1A".into()));
    assert!(ask(&mut next, "describe/server").1.contains("orphaned=10 "));
    assert_eq!(next.next(DurNs::ZERO), Ok(None));
}

#[test]
fn an_oversized_request_is_refused_by_the_sender_and_an_oversized_answer_is_reported() {
    let server = server();
    let mut lanes = come(|| Manager::connect(&server.name, "large", &["sr"], &[Band::DEFAULT]));
    let answering = std::thread::spawn(move || {
        lanes[0].serve(LONG, |asked, replies| {
            assert!(replies.answer(asked.ticket, &Answer { code: Code::Ok, complement: "", body: &[0; 16_385] }));
        })
    });
    let mut client = server.client("test");
    let large = Sending { limit: LONG, body: &[0; 16_385], ..Sending::default() };
    for (line, sending) in [("put/sr/1", &large), (&*format!("put/sr/{}", "1".repeat(2048)), &Sending::default())] {
        let refused = client.send(line, sending);
        assert!(
            matches!(refused, Err(ClientError::Message(_) | ClientError::NoRoom(16_385))),
            "{line:.20} {refused:?}"
        );
    }
    let (code, why) = ask(&mut client, "get/sr/a");
    assert_eq!((code, &*why), (Code::Unknown, "the reply with a body of 16385 bytes found no room; ask with get"));
    answering.join().unwrap().unwrap();
}

#[test]
fn a_second_answer_is_counted_and_discarded() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let mut client = server.client("test");
    assert_eq!(ask(&mut client, "call/sr/twice"), (Code::Ok, "first".into()));
    assert_eq!(ask(&mut client, "get/sr/a"), (Code::Ok, "0A".into()));
    let counted = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        ask(&mut client, "describe/server").1.contains("strays=1 ")
    });
    assert!(counted);
}

#[test]
fn bodies_are_delivered_and_a_batch_has_a_result_for_each_line() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let mut client = server.client("test");
    let body: Vec<u8> = (0..16_000u32).map(|at| at as u8).collect();
    let reply = client.ask("get/sr/body", &Sending { limit: LONG, body: &body, ..Sending::default() }).unwrap();
    assert_eq!((reply.code, reply.body == body), (Code::Ok, true));
    let mut batch = Vec::new();
    write_lines(["put/sr_a/1", "get/sr_b/x"].into_iter(), &mut batch);
    let reply = client.ask("batch/sr", &Sending { limit: LONG, body: &batch, ..Sending::default() }).unwrap();
    let lines: Result<Vec<_>, _> = Lines::read(&reply.body).unwrap().collect();
    assert_eq!(lines.unwrap(), ["OK/10", "OK/10"]);
    batch.clear();
    write_lines(["put/sr_a/1", "get/li_b/x"].into_iter(), &mut batch);
    let reply = client.ask("batch/sr", &Sending { limit: LONG, body: &batch, ..Sending::default() }).unwrap();
    assert_eq!(reply.code, Code::NoObject, "{}", reply.text);
}

#[test]
fn locks_exclude_other_clients_until_their_holder_leaves() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let (mut holder, mut other) = (server.client("holder"), server.client("other"));
    assert_eq!(ask(&mut holder, "lock/sr_mag").0, Code::Ok);
    let (code, why) = ask(&mut other, "put/sr_mag_ps/1A");
    assert_eq!(code, Code::Locked, "{why}");
    assert_eq!(ask(&mut other, "get/sr_mag_ps/a").0, Code::Ok);
    assert_eq!(ask(&mut other, "put/sr_rf/1").0, Code::Ok);
    assert_eq!(ask(&mut holder, "put/sr_mag_ps/1A").0, Code::Ok);
    assert_eq!(ask(&mut other, "unlock/sr_mag").0, Code::Locked);
    drop(holder);
    server.until(|event| *event == Event::Left("holder".into()));
    assert_eq!(ask(&mut other, "put/sr_mag_ps/1A").0, Code::Ok);
}

#[test]
fn rules_are_obeyed_and_writes_and_errors_are_logged() {
    let log = std::env::temp_dir().join(fresh());
    let deny = Rule {
        bands: u8::MAX,
        access: Access::Deny,
        users: None,
        hosts: msg::Hosts::All,
        verbs: Some(vec![Verb::Call]),
        objects: Pattern::new("sr_*").unwrap(),
    };
    let server =
        Server::start(Config { name: fresh(), rules: vec![deny], log: Some(log.clone()), ..Config::default() });
    let _manager = manager(&server.name, "sr");
    let mut client = server.client("operator");
    assert_eq!(ask(&mut client, "call/sr_a/reset").0, Code::Denied);
    assert_eq!(ask(&mut client, "put/sr_a/7A").0, Code::Ok);
    assert_eq!(ask(&mut client, "get/sr_a/x").0, Code::Ok);
    let mut batch = Vec::new();
    write_lines(["put/sr_a/8A", "get/sr_b/x"].into_iter(), &mut batch);
    client.ask("batch/sr", &Sending { limit: LONG, body: &batch, ..Sending::default() }).unwrap();
    drop(client);
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains(" batch/sr: put/sr_a/8A get/sr_b/x\n") && text.contains(" batch/sr -> "), "{text}");
    assert!(text.contains(" call/sr_a/reset -> DENIED/") && text.contains(" put/sr_a/7A -> OK/7A "), "{text}");
    assert!(
        text.lines()
            .all(|line| line.contains("Z operator uid=") && line.contains(&format!(" pid={} ", std::process::id()))),
        "{text}"
    );
}

#[test]
fn a_watcher_sees_the_requests_that_match_its_pattern() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let (mut watcher, mut client) = (server.client("watcher"), server.client("test"));
    for (verbs, why) in
        [("gte", "\"gte\" fits no verb; did you mean \"get\"?"), ("x*", "\"x*\" fits no verb; expected one of get")]
    {
        let (code, said) = ask(&mut watcher, &format!("watch/sr_*/{verbs}"));
        assert!(code == Code::Malformed && said.starts_with(why), "{code} {said}");
    }
    assert_eq!(ask(&mut watcher, "watch/sr_*/put").0, Code::Ok);
    assert_eq!(ask(&mut client, "get/sr_a/x").0, Code::Ok);
    assert_eq!(ask(&mut client, "put/sr_a/9A").0, Code::Ok);
    let event = watcher.next(LONG).unwrap().unwrap();
    assert!(event.event && event.text.contains(" put/sr_a/9A -> OK/9A "), "{event:?}");
    assert_eq!(ask(&mut watcher, "unwatch/sr_*").0, Code::Ok);
}

#[test]
fn a_client_outlives_its_server_and_repeats_only_idempotent_requests() {
    let first = server();
    let name = first.name.clone();
    let hung = manager(&name, "sr");
    let mut client = first.client("test");
    let sending = Sending { limit: LONG, ..Sending::default() };
    // A hanging call delays only its own reply, not the manager's other replies.
    let write = client.send("call/sr/hang", &sending).unwrap();
    let body = client.send("get/sr/a", &sending).unwrap();
    assert_eq!(client.next(LONG).unwrap().unwrap().id, body);
    drop(first);
    hung.join().unwrap();
    let reply = client.next(LONG).unwrap().unwrap();
    assert_eq!((reply.id, reply.code), (write, Code::Unknown));
    let second = Server::start(Config { name, ..Config::default() });
    let _manager = manager(&second.name, "sr");
    assert!(!matches!(client.next(DurNs::from_ms(200)), Ok(Some(_))), "an extra reply");
    assert_eq!(ask(&mut client, "get/sr/a"), (Code::Ok, "0A".into()));
}

#[test]
fn requests_that_find_no_room_to_be_repeated_are_answered() {
    let first = server();
    let name = first.name.clone();
    let (hung, mut client) = (manager(&name, "sr"), first.client("test"));
    // More requests than a queue holds. All of them may be sent again.
    let sending = Sending { limit: LONG, flags: Flags::IDEMPOTENT, body: &[7; 16_000], ..Sending::default() };
    let mut sent = Vec::new();
    for _ in 0..60 {
        sent.push(client.send("call/sr/hang", &sending).unwrap());
        assert_eq!(ask(&mut client, "get/sr/a").0, Code::Ok, "the manager has it");
    }
    drop(first);
    hung.join().unwrap();
    let _second = Server::start(Config { name, ..Config::default() });
    for _ in 0..60 {
        let reply = client.next(LONG).unwrap().expect("each gets a reply");
        assert_eq!(reply.code, Code::Unknown, "{}", reply.text);
        sent.retain(|id| *id != reply.id);
    }
    assert!(sent.is_empty(), "two replies each: {sent:?}");
}

#[test]
fn a_request_waits_for_its_reply_despite_a_wake_up() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let mut client = server.client("test");
    for _ in 0..100 {
        client.waker().unwrap().wake();
        assert_eq!(ask(&mut client, "get/sr/a"), (Code::Ok, "0A".into()));
    }
}

/// Sends `line` until the server refuses further requests, although it had time to work, and counts the replies.
fn each_is_answered(server: &Server, line: &str, most: usize) {
    let (mut silent, mut other) = (server.client("silent"), server.client("other"));
    let sending = Sending { limit: LONG, ..Sending::default() };
    let (mut sent, mut unheard) = (Vec::new(), 0);
    while sent.len() < most && unheard < 100 {
        match silent.send(line, &sending) {
            Ok(id) => (sent.push(id), unheard = 0).0,
            Err(ClientError::Full) => {
                unheard += 1;
                assert_eq!(ask(&mut other, "ping/server").0, Code::Ok);
            }
            Err(error) => panic!("{error}"),
        }
    }
    silent.flush();
    let mut answered = Vec::new();
    while answered.len() < sent.len() {
        let reply = silent.next(LONG).unwrap();
        answered.push(reply.unwrap_or_else(|| panic!("{line}: {} replies to {}", answered.len(), sent.len())).id);
    }
    answered.sort_unstable();
    assert_eq!(answered, sent);
}

#[test]
fn requests_of_a_client_that_reads_no_replies_wait_and_are_all_answered() {
    let server = server();
    // More than the reply queue holds, and together with it more than the request queue.
    each_is_answered(&server, "get/absent/x", 10_000);
    let claims: Vec<String> = (0..200).map(|at| format!("{}_{at:03}", "x".repeat(100))).collect();
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    for (name, claims) in [("first", &claims[..30]), ("second", &claims[30..60]), ("third", &claims[60..90])] {
        std::mem::forget(come(|| Manager::connect(&server.name, name, claims, &[Band::DEFAULT])));
    }
    each_is_answered(&server, "list/*", 200);
}

#[test]
fn a_repeated_request_that_is_refused_is_reported_as_possibly_executed() {
    let first = server();
    let name = first.name.clone();
    let hung = manager(&name, "sr");
    let mut client = first.client("test");
    let sending = Sending { limit: LONG, flags: Flags::IDEMPOTENT, ..Sending::default() };
    let writes = [(); 2].map(|()| client.send("call/sr/hang", &sending).unwrap());
    assert_eq!(ask(&mut client, "ping/server").0, Code::Ok);
    drop(first);
    hung.join().unwrap();
    // The new server has no manager for these requests.
    let _second = Server::start(Config { name, ..Config::default() });
    for id in writes {
        let reply = client.next(LONG).unwrap().unwrap();
        assert_eq!((reply.id, reply.code), (id, Code::Unknown), "{}", reply.text);
        assert!(reply.text.contains("sent again then: NO_OBJECT: no manager serves sr"), "{}", reply.text);
    }
}

#[test]
fn claims_are_exclusive_and_greetings_are_checked() {
    let server = server();
    let _manager = manager(&server.name, "sr");
    let again = refused(|| Manager::connect(&server.name, "second", &["sr"], &[Band::DEFAULT]));
    assert_eq!(again.to_string(), "the message server refused: sr is served by manager manager-of-sr already");
    let own = refused(|| Manager::connect(&server.name, "second", &["server"], &[Band::DEFAULT]));
    assert!(own.to_string().contains("is the message server itself"), "{own}");
    let name = refused(|| Client::connect(&server.name, "two words", Band::DEFAULT));
    assert!(name.to_string().contains("without blanks"), "{name}");
    let error = Client::connect("no-such-server", "test", Band::DEFAULT).err().unwrap();
    assert!(error.to_string().contains("tahti msg serve"), "{error}");
}

#[test]
fn a_request_on_an_unserved_band_is_answered_with_the_served_bands() {
    let server = server();
    let bands = [2, 5].map(|band| Band::new(band).unwrap());
    let _lanes = come(|| Manager::connect(&server.name, "magnets", &["sr"], &bands));
    let mut client = server.client("client");
    let why = "no manager serves sr_mag on band 3; manager magnets does on band 2,5";
    assert_eq!(ask(&mut client, "get/sr_mag/x"), (Code::NoObject, why.into()));
    let mut body = Vec::new();
    write_lines(["get/sr_mag/x"].into_iter(), &mut body);
    let batch = client.ask("batch/sr", &Sending { limit: LONG, body: &body, ..Sending::default() }).unwrap();
    assert_eq!((batch.code, &*batch.text), (Code::NoObject, &*why.replace("sr_mag", "sr")));
}

#[test]
fn a_log_that_cannot_be_written_is_a_fault_of_the_server() {
    let log = std::env::temp_dir().join(fresh());
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let server = Server::start(Config { name: fresh(), log: Some(log.clone()), ..Config::default() });
    let mut client = server.client("a");
    assert_eq!(ask(&mut client, "put/nothing/on").0, Code::NoObject);
    let fault = server.until(|event| matches!(event, Event::Round(Some(_))));
    let why = "cannot be written: No space left on device (os error 28); 1 lines lost";
    assert_eq!(fault, Event::Round(Some(format!("the message log {} {why}", log.display()))));
    drop(server);
    std::fs::remove_file(&log).unwrap();
}

#[test]
fn a_flood_on_one_band_loses_log_records_of_that_band_only_and_they_are_counted() {
    // More than the queue of a band's log holds without a reader.
    const FLOOD: usize = 30_000;
    let dir = std::env::temp_dir().join(fresh());
    std::fs::create_dir(&dir).unwrap();
    let pipe = dir.join("log");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    // Opening for both reading and writing does not wait for another process.
    let mut reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let config = Config { name: fresh(), log: Some(pipe.clone()), ..Config::default() };
    let name = config.name.clone();
    let server = Server::start(config);
    let mut urgent = come(|| Client::connect(&name, "urgent", Band::new(7).unwrap()));
    let mut bulk = come(|| Client::connect(&name, "bulk", Band::new(0).unwrap()));
    let sending = Sending { limit: LONG, ..Sending::default() };
    for round in 0..FLOOD {
        while bulk.outstanding() >= 200 || bulk.send("put/absent/1A", &sending) == Err(ClientError::Full) {
            assert_eq!(bulk.next(LONG).unwrap().unwrap().code, Code::NoObject);
        }
        if round % 1_000 == 0 {
            assert_eq!(urgent.ask("put/absent/2A", &sending).unwrap().code, Code::NoObject);
        }
    }
    while bulk.outstanding() > 0 {
        bulk.next(LONG).unwrap();
    }
    let read = std::thread::spawn(move || {
        use std::io::Read;
        let (mut all, mut some) = (Vec::new(), [0; 1 << 16]);
        while !all.ends_with(b"the end\n") {
            let length = reader.read(&mut some).unwrap();
            all.extend_from_slice(&some[..length]);
        }
        String::from_utf8(all).unwrap()
    });
    drop(server);
    // The server has written all its lines.
    std::io::Write::write_all(&mut std::fs::File::options().append(true).open(&pipe).unwrap(), b"the end\n").unwrap();
    let log = read.join().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    let lost = |band: &str| -> usize {
        let lines = log
            .lines()
            .filter_map(|line| line.split_once(&format!("message-log band={band} lost="))?.1.split_once(':'));
        lines.map(|(lost, _)| lost.parse::<usize>().unwrap()).sum()
    };
    assert_eq!(count(" band=7 put/absent/2A -> NO_OBJECT/"), FLOOD / 1_000);
    assert_eq!((lost("7"), count(" band=0 put/absent/1A -> NO_OBJECT/") + lost("0")), (0, FLOOD));
    assert!(lost("0") > 0, "the flood must exceed the queue");
}

#[test]
fn a_manager_with_limited_time_leaves_the_rest_in_its_queue() {
    let server = server();
    let [mut lane] =
        <[_; 1]>::try_from(come(|| Manager::connect(&server.name, "framed", &["sr"], &[Band::DEFAULT]))).ok().unwrap();
    let mut client = server.client("client");
    let sending = Sending { limit: LONG, ..Sending::default() };
    for _ in 0..10 {
        client.send("get/sr/x", &sending).unwrap();
    }
    client.flush();
    let mut taken = 0;
    // The time limit has passed before the turn begins: the manager takes one request per turn, however many wait.
    for turn in 1..=5 {
        while taken < turn {
            let now = lane.serve_until(base::MonoNs(0), |asked, replies| {
                replies.answer(asked.ticket, &Answer::ok("1"));
            });
            let now = now.unwrap();
            assert!(now <= 1);
            taken += now;
        }
    }
    // The remaining requests have arrived by now, as they were sent together.
    let far = base::MonoNs(u64::MAX);
    while taken < 10 {
        taken += lane
            .serve_until(far, |asked, replies| {
                replies.answer(asked.ticket, &Answer::ok("1"));
            })
            .unwrap();
    }
    for _ in 0..10 {
        assert_eq!(client.next(LONG).unwrap().unwrap().code, Code::Ok);
    }
}

#[test]
fn a_batch_with_a_forbidden_line_executes_nothing_and_a_lock_holds_on_every_band() {
    let rules = vec!["deny verbs=call objects=sr_*".parse().unwrap()];
    let server = Server::start(Config { name: fresh(), rules, ..Config::default() });
    let _managers = ["sr", "li"].map(|serves| manager(&server.name, serves));
    let (mut holder, mut other) = (server.client("holder"), server.client("other"));
    assert_eq!(ask(&mut holder, "lock/sr_mag").0, Code::Ok);
    for (line, code) in
        [("put/sr_mag_1/9A", Code::Locked), ("call/sr_a/reset", Code::Denied), ("put/li_a/9A", Code::NoObject)]
    {
        let mut body = Vec::new();
        write_lines(["put/sr_a/9A", line].into_iter(), &mut body);
        let reply = other.ask("batch/sr", &Sending { limit: LONG, body: &body, ..Sending::default() }).unwrap();
        assert_eq!(reply.code, code, "{}", reply.text);
    }
    assert_eq!(ask(&mut other, "get/sr_a/x"), (Code::Ok, "0A".into()));
    for band in Band::all() {
        let mut client = come(|| Client::connect(&server.name, "anybody", band));
        assert_eq!(ask(&mut client, "put/sr_mag/1A").0, Code::Locked, "band {band}");
    }
}

#[test]
fn a_list_contains_all_served_objects_also_beyond_the_lines_of_a_body() {
    let server = server();
    let claims: Vec<String> = (0..600).map(|at| format!("o{at:03}")).collect();
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    let managers = ["a", "b", "c"].into_iter().zip(claims.chunks(200));
    let _lanes: Vec<_> = managers
        .map(|(name, claims)| come(|| Manager::connect(&server.name, name, claims, &[Band::DEFAULT])))
        .collect();
    let reply = server.client("test").ask("list/*", &Sending { limit: LONG, ..Sending::default() }).unwrap();
    let words = reply.words();
    assert_eq!((words.len(), words[0], words[599]), (600, "o000=a", "o599=c"));
}

#[test]
fn clients_that_flood_the_server_with_lists_do_not_keep_others_from_it() {
    let server = server();
    let over = Arc::new(AtomicBool::new(false));
    let flood = |band| {
        let (ends, mut client) = (over.clone(), come(|| Client::connect(&server.name, "flood", band)));
        std::thread::spawn(move || {
            let sending = Sending { limit: LONG, ..Sending::default() };
            while !ends.load(Ordering::Relaxed) {
                while client.outstanding() < 200 && client.send("list/*", &sending).is_ok() {}
                client.next(LONG).unwrap();
            }
        })
    };
    let claims: Vec<String> = (0..200).map(|at| format!("o{at:03}")).collect();
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    let _lanes = come(|| Manager::connect(&server.name, "many", &claims, &[Band::DEFAULT]));
    let floods = [0, 0, 0, 0].map(|band| flood(Band::new(band).unwrap()));
    // Without fair scheduling each of these would wait for ever.
    for _ in 0..20 {
        let mut other = come(|| Client::connect(&server.name, "other", Band::new(7).unwrap()));
        assert_eq!(ask(&mut other, "ping/server").0, Code::Ok);
    }
    over.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

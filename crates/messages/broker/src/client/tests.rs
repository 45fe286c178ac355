use super::*;
use crate::greeting::socket_name;
use crate::server::{Config, Event, serve};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

/// Reproducible pseudo-random numbers (xorshift).
fn noise(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn a_wake_up_before_a_wait_ends_it() {
    let name = format!("woken-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    events.recv_timeout(std::time::Duration::from_secs(20)).expect("the server reports that it is ready");
    let (woken, ended) = channel();
    std::thread::spawn(move || {
        let mut client = Client::connect(&name, "sleeper", Band::DEFAULT).unwrap();
        for _ in 0..3 {
            client.waker().unwrap().wake();
            woken.send(client.next(DurNs::from_secs(36_000))).unwrap();
        }
    });
    for _ in 0..3 {
        assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(Ok(None)), "it sleeps");
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn a_client_that_dies_during_its_greeting_frees_its_place() {
    let name = format!("fleeting-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    events.recv_timeout(std::time::Duration::from_secs(20)).expect("the server reports that it is ready");
    let hello = Hello {
        version: VERSION,
        name: "fleeting".into(),
        bands: Band::all().map(Band::number).collect(),
        serves: Vec::new(),
        host: String::new(),
        pool: 0,
    };
    for _ in 0..40 {
        let connection = sys::handover::connect(&socket_name(&name)).unwrap();
        sys::handover::send(connection.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
        drop(connection);
        let mut client = Client::connect(&name, "staying", Band::DEFAULT).unwrap();
        assert_eq!(client.ask("ping/server", &Sending::default()).unwrap().code, Code::Ok);
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn a_client_that_damages_its_queues_is_disconnected_and_others_are_served() {
    let name = format!("hostile-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    let wait = || events.recv_timeout(std::time::Duration::from_secs(20)).expect("the server reports an event");
    assert!(matches!(wait(), Event::Ready(_)));
    let mut honest = Client::connect(&name, "honest", Band::DEFAULT).unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..40usize {
        let hello = Hello {
            version: VERSION,
            name: format!("hostile{round}"),
            bands: vec![Band::DEFAULT.number()],
            serves: Vec::new(),
            host: String::new(),
            pool: 0,
        };
        let mut end = greet(&name, &hello).unwrap().pop().unwrap();
        let mut packing = Packing::new();
        let header = Header::request(Band::DEFAULT, 1);
        for _ in 0..3 {
            put(&mut end.up, &mut packing, header, "ping/server", &[]).unwrap();
        }
        // Overwrites the counters and the first words, or everything; then sets an impossible length, which must be
        // detected.
        let words = end.memory.words();
        let scribbled = if round % 2 == 0 { 64 } else { words.len() };
        for word in &words[..scribbled] {
            word.store(noise(&mut seed) >> (round % 60), Ordering::Relaxed);
        }
        words[8].store(u64::MAX / 3, Ordering::Relaxed);
        end.wake();
        loop {
            match wait() {
                Event::CutOff(who) => {
                    assert!(who.starts_with(&format!("hostile{round} ")), "{who}");
                    break;
                }
                Event::Joined(_) | Event::Left(_) | Event::Round(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let reply = honest.ask("ping/server", &Sending::default()).unwrap();
        assert_eq!((reply.code, &reply.text), (Code::Ok, &name));
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn no_wake_up_is_lost_in_thousands_of_round_trips() {
    const ROUNDS: u64 = 3_000;
    let (done, watchdog) = channel();
    std::thread::spawn(move || {
        let waited = watchdog.recv_timeout(std::time::Duration::from_secs(300));
        if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a waiting client was not woken");
            std::process::abort();
        }
    });
    let name = format!("bells-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    assert!(matches!(events.recv(), Ok(Event::Ready(_))));
    let mut lanes = crate::Manager::connect(&name, "manager", &["sr"], &[Band::DEFAULT]).unwrap();
    let (over, waker) = (Arc::new(AtomicBool::new(false)), lanes[0].waker());
    let ends = over.clone();
    let manager = std::thread::spawn(move || {
        let (mut served, hour) = (0, DurNs::from_secs(3600));
        while !ends.load(Ordering::Acquire) {
            let taken = lanes[0].serve(hour, |asked, replies| {
                replies.answer(asked.ticket, &msg::Answer::ok("1"));
            });
            served += taken.unwrap() as u64;
        }
        served
    });
    let mut client = Client::connect(&name, "client", Band::DEFAULT).unwrap();
    let sending = Sending { limit: DurNs::from_secs(3600), ..Sending::default() };
    for round in 0..ROUNDS {
        // Varying pauses, so that some messages meet a reader that is just falling asleep.
        for _ in 0..round % 7 * 50 {
            std::hint::spin_loop();
        }
        assert_eq!(client.ask("get/sr/x", &sending).unwrap().code, Code::Ok);
    }
    over.store(true, Ordering::Release);
    waker.wake();
    assert_eq!(manager.join().unwrap(), ROUNDS);
    done.send(()).unwrap();
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn a_client_that_names_a_place_outside_its_pool_is_disconnected() {
    let name = format!("outside-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    assert!(matches!(events.recv(), Ok(Event::Ready(_))));
    let good = Pooled { offset: 0, room: 4096, bytes: 4096, pool: 0 };
    let bad = [
        (4096, Pooled { offset: 64, ..good }),
        (4096, Pooled { offset: 8, room: 8, bytes: 8, ..good }),
        (4096, Pooled { bytes: 4097, ..good }),
        (4096, Pooled { offset: u64::MAX - 63, ..good }),
        (0, good),
    ];
    for (pool, place) in bad {
        let hello = Hello {
            version: VERSION,
            name: "hostile".into(),
            bands: vec![Band::DEFAULT.number()],
            serves: Vec::new(),
            host: String::new(),
            pool,
        };
        let mut end = greet(&name, &hello).unwrap().pop().unwrap();
        let header = Header { flags: Flags::POOLED, ..Header::request(Band::DEFAULT, 1) };
        put(&mut end.up, &mut Packing::new(), header, "put/sr/x", &place.to_bytes()).unwrap();
        end.wake();
        let why = loop {
            match events.recv_timeout(std::time::Duration::from_secs(20)).expect("the server reports an event") {
                Event::CutOff(why) => break why,
                Event::Joined(_) | Event::Left(_) | Event::Round(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(why.ends_with("a body is outside its sender's pool"), "{why} {place:?}");
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn a_client_rejects_a_place_in_a_reply_and_a_length_beyond_its_room() {
    let name = format!("places-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    assert!(matches!(events.recv(), Ok(Event::Ready(_))));
    let hello = Hello {
        version: VERSION,
        name: "hostile".into(),
        bands: vec![Band::DEFAULT.number()],
        serves: vec!["sr".into()],
        host: String::new(),
        pool: 1,
    };
    let mut manager = greet(&name, &hello).unwrap().pop().unwrap();
    let mut client = Client::with_pool(&name, "client", Band::DEFAULT, 1 << 16).unwrap();
    let sending = Sending { limit: DurNs::from_secs(60), ..Sending::default() };
    let [mut asked, mut secret] = [(); 2].map(|()| client.room(4096).unwrap());
    assert!(asked.write(&[1; 4096]) && secret.write(&[2; 4096]));
    let theirs = secret.place();
    let mut ids = vec![client.send_room("get/sr/a", &sending, asked).unwrap()];
    for _ in 0..2 {
        let mut room = client.room(4096).unwrap();
        assert!(room.write(&[1; 4096]));
        ids.push(client.send_room("get/sr/a", &sending, room).unwrap());
    }
    ids.push(client.send("get/sr/a", &sending).unwrap());
    client.flush();
    let places = [
        Pooled { bytes: 100, ..theirs },
        Pooled { bytes: 4097, ..theirs },
        Pooled { offset: u64::MAX, room: u64::MAX, bytes: u64::MAX, pool: u64::MAX },
        theirs,
    ];
    let mut buffer = MessageBuffer::new();
    for place in places {
        while !buffer.take(&mut manager.down).unwrap() {
            let bell = manager.bell();
            if manager.down.is_empty() {
                manager.wait(mono_now(), mono_now() + DurNs::from_ms(10), bell).unwrap();
            }
        }
        let header = Header { flags: Flags::POOLED, ..buffer.header().unwrap().reply() };
        assert!(put(&mut manager.up, &mut Packing::new(), header, "OK/", &place.to_bytes()).unwrap());
        manager.wake();
    }
    let replies: Vec<Received> = ids.iter().map(|_| client.next(DurNs::from_secs(60)).unwrap().unwrap()).collect();
    assert!(replies.iter().map(|reply| reply.id).eq(ids));
    let mut body = [0; 4096];
    assert_eq!((replies[0].code, replies[0].room.as_ref().unwrap().copy_to(&mut body)), (Code::Ok, 100));
    assert_eq!(body[..100], [1; 100], "its own room, not the place in the reply");
    for reply in &replies[1..] {
        assert_eq!(reply.code, Code::Internal, "{}", reply.text);
    }
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}

#[test]
fn no_client_forges_lines_of_the_log() {
    let name = format!("forger-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let log = std::env::temp_dir().join(&name);
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), log: Some(log.clone()), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    assert!(matches!(events.recv(), Ok(Event::Ready(_))));
    let mut client = Client::connect(&name, "forger", Band::DEFAULT).unwrap();
    let end = client.end.as_mut().unwrap();
    let header = Header::request(Band::DEFAULT, 7);
    let text = "put/sr/1\n2026-11-21T17:18:24.605299Z root uid=0 pid=1 band=3 put/sr/2 -> OK/2 1.0us\u{1b}[2J";
    assert!(put(&mut end.up, &mut Packing::new(), header, text, &[]).unwrap());
    assert_eq!(client.ask("ping/server", &Sending::default()).unwrap().code, Code::Ok);
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(logged.lines().count() == 1 && logged.contains(" band=3 put/sr/1%0A2026-11-21T17"), "{logged}");
    assert!(logged.contains(" 1.0us%1B[2J -> MALFORMED/"), "{logged}");
}

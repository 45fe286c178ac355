//! Cost of client requests without sockets and threads: puts, gets, and puts and gets alternating, through `ca` and
//! `db`; also puts to records that are all monitored.
//!
//! `cargo run --release -p iocd --example requests [-- BATCHES [put|get|both|monitored]]`. To get the instructions per
//! request, run it under callgrind with two numbers of batches, and divide the difference of the instructions by the
//! difference of the requests. The load of the machine does not affect this figure.

use ca::server::{Limits, Server};
use ca::wire::{Header, HeaderParse, command};
use db::{Db, Macros, Now};
use iocd::store::Store;
use std::fmt::Write;
use std::time::Instant;

const CHANNELS: u32 = 100;
const BATCH: u32 = 1_000;
/// Bytes per call, as many as the network thread reads at once.
const BURST: usize = 16 << 10;
const DOUBLE: u16 = 6;
const TIME_DOUBLE: u16 = 20;

fn ask(out: &mut Vec<u8>, header: Header, payload: &[u8]) {
    Header { size: payload.len() as u32, ..header }.write(out);
    out.extend_from_slice(payload);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let batches: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(2_000);
    let only = words.next();
    let mut text = String::new();
    (0..CHANNELS).for_each(|n| writeln!(text, "record(ao, \"x{n}\") {{ field(PREC, 3) }}").unwrap());
    let mut db = Db::new();
    db.load_records(&text, "requests.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(Now::default());
    let mut store = Store::new(db);
    let mut server = Server::new(Limits::default());
    let id = server.accept("client");
    let mut hello = Vec::new();
    ask(&mut hello, Header::bare(command::VERSION, 0, 13, 0, 0), &[]);
    for n in 0..CHANNELS {
        let mut name = format!("x{n}").into_bytes();
        name.resize(8, 0);
        ask(&mut hello, Header::bare(command::CREATE_CHAN, 0, 0, n, 13), &name);
    }
    let mono = store.now.mono;
    server.handle_bytes(mono, id, &hello, &mut store);
    let mut sids = Vec::new();
    let mut rest = server.output(id);
    while let HeaderParse::Header(header, head) = Header::read(rest) {
        if header.command == command::CREATE_CHAN {
            sids.push(header.p2);
        }
        rest = &rest[head + header.size as usize..];
    }
    assert_eq!(sids.len(), CHANNELS as usize);
    let sent = server.output(id).len();
    server.sent(mono, id, sent, &mut store);
    for what in ["put", "get", "both", "monitored"] {
        if only.as_deref().is_some_and(|only| only != what) {
            continue;
        }
        let mut bytes = Vec::new();
        if what == "monitored" {
            let mut mask = [0; 16];
            mask[13] = 1;
            let mut asks = Vec::new();
            sids.iter()
                .for_each(|sid| ask(&mut asks, Header::bare(command::EVENT_ADD, TIME_DOUBLE, 1, *sid, *sid), &mask));
            server.handle_bytes(mono, id, &asks, &mut store);
        }
        for n in 0..BATCH {
            let sid = sids[(n % CHANNELS) as usize];
            if what == "put" || what == "monitored" || (what == "both" && n % 2 == 0) {
                let header = Header::bare(command::WRITE, DOUBLE, 1, sid, 0);
                ask(&mut bytes, header, &f64::from(n).to_be_bytes());
            } else {
                ask(&mut bytes, Header::bare(command::READ_NOTIFY, DOUBLE, 1, sid, 0), &[]);
            }
        }
        let begin = Instant::now();
        for _ in 0..batches {
            for burst in bytes.chunks(BURST) {
                server.handle_bytes(mono, id, burst, &mut store);
                loop {
                    let posts = store.take_posts();
                    assert!(posts.is_empty() || what == "monitored", "nobody watches");
                    posts.iter().for_each(|post| server.post(post, &mut store));
                    let none = posts.is_empty();
                    store.recycle(posts);
                    if none {
                        break;
                    }
                }
                while server.poll_touched().is_some() {}
                let sent = server.output(id).len();
                server.sent(mono, id, sent, &mut store);
            }
        }
        let each = begin.elapsed().as_nanos() as f64 / f64::from(batches) / f64::from(BATCH);
        println!("{what}: {each:.1} ns each");
    }
}

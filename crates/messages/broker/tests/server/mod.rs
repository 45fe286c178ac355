//! A message server with managers and clients in one process, over real sockets and shared memory.
#![allow(dead_code, reason = "each test binary uses its part")]

use base::DurNs;
use broker::server::{Config, Event, ServeError, serve};
use broker::{Client, ClientError, Manager, Received, Sending};
use msg::{Answer, Band, Code, Lines, Verb, write_lines};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Timeout, longer than any machine stops. No test takes that long.
pub(crate) const LONG: DurNs = DurNs::from_secs(120);

/// Connects to a server. If the machine stopped for so long that one side timed out, tries again, a limited number of
/// times.
fn outcome<T>(connect: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut outcome = connect();
    for _ in 0..20 {
        match outcome {
            Err(ClientError::System(_) | ClientError::Lost) => outcome = connect(),
            _ => break,
        }
    }
    outcome
}

/// Connects a client or a manager.
pub(crate) fn come<T>(connect: impl Fn() -> Result<T, ClientError>) -> T {
    outcome(connect).unwrap()
}

/// Why the server refuses a client or a manager.
pub(crate) fn refused<T>(connect: impl Fn() -> Result<T, ClientError>) -> ClientError {
    outcome(connect).err().unwrap()
}

/// A unique name.
pub(crate) fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) struct Server {
    pub(crate) name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    events: Mutex<Receiver<Event>>,
}

impl Server {
    pub(crate) fn start(config: Config) -> Self {
        let (tell, events) = channel();
        let (stop, name) = (Arc::new(AtomicBool::new(false)), config.name.clone());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            serve(config, &stopped, &mut |event| {
                let _ = tell.send(event);
            })
        });
        let server = Self { name, stop, thread: Some(thread), events: Mutex::new(events) };
        assert!(matches!(server.event(), Event::Ready(_)));
        server
    }

    fn event(&self) -> Event {
        self.events
            .lock()
            .unwrap()
            .recv_timeout(std::time::Duration::from_secs(120))
            .expect("the server reports an event")
    }

    pub(crate) fn until(&self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.event();
            if wanted(&event) {
                return event;
            }
        }
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        come(|| Client::connect(&self.name, name, Band::DEFAULT))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

/// A manager with one value. `hang` makes it never answer, `die` makes it end during a request.
pub(crate) fn manager(server: &str, serves: &str) -> JoinHandle<()> {
    let mut lanes = come(|| Manager::connect(server, &format!("manager-of-{serves}"), &[serves], &[Band::DEFAULT]));
    std::thread::spawn(move || {
        let mut value = String::from("0A");
        let mut died = false;
        while !died
            && lanes[0]
                .serve(LONG, |asked, replies| {
                    let complement = asked.request.complement.text();
                    let ticket = asked.ticket;
                    let fine = match (asked.request.verb, &*complement) {
                        (Verb::Call, "hang") => true,
                        (Verb::Call, "die") => {
                            died = true;
                            true
                        }
                        (Verb::Call, "twice") => {
                            replies.answer(ticket, &Answer::ok("first"));
                            replies.answer(ticket, &Answer::ok("second"))
                        }
                        (Verb::Put | Verb::Set, new) => {
                            value = new.to_owned();
                            replies.answer(ticket, &Answer::ok(&value))
                        }
                        (Verb::Get, "who") => {
                            replies.answer(ticket, &Answer::ok(&format!("{} {}", asked.subject.uid, asked.subject.pid)))
                        }
                        (Verb::Get, "body") => {
                            replies.answer(ticket, &Answer { code: Code::Ok, complement: "", body: asked.body })
                        }
                        (Verb::Get, _) => replies.answer(ticket, &Answer::ok(&value)),
                        (Verb::Batch, _) => {
                            let lines: Vec<_> = Lines::read(asked.body)
                                .unwrap()
                                .map(|line| format!("OK/{}", line.unwrap().len()))
                                .collect();
                            let mut body = Vec::new();
                            write_lines(lines.iter().map(String::as_str), &mut body);
                            replies.answer(ticket, &Answer { code: Code::Ok, complement: "", body: &body })
                        }
                        _ => replies.answer(ticket, &Answer::failed(Code::NoVerb, "get, put, call")),
                    };
                    assert!(fine);
                })
                .is_ok()
        {}
    })
}

pub(crate) fn server() -> Server {
    Server::start(Config { name: fresh(), ..Config::default() })
}

pub(crate) fn ask(client: &mut Client, line: &str) -> (Code, String) {
    let Received { code, text, .. } = client.ask(line, &Sending { limit: LONG, ..Sending::default() }).unwrap();
    (code, text)
}

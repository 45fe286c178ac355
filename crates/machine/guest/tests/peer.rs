//! The client of QMP with faulty peers, over real sockets.

use base::DurNs;
use guest::place::{PlaceError, vcpus};
use guest::qmp::codec::{LINE_BYTES_MAX, Message};
use guest::qmp::{Client, QmpError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use sys::clock::mono_now;

const GREETING: &str = "{\"QMP\":{\"version\":{},\"capabilities\":[]}}\r\n";
/// Time limit for tests in which the peer never answers.
const SHORT: DurNs = DurNs::from_ms(50);
const LONG: DurNs = DurNs::from_secs(60);

struct Peer {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// A peer that serves one connection of a socket.
    fn new(name: &str, serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-qmp-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { path, thread: Some(thread) }
    }

    /// A peer that sends a greeting and answers the first commands with these lines. `ID` in a line is replaced by the
    /// number of the command.
    fn answers(name: &str, lines: &'static [&'static str]) -> Self {
        Self::new(name, move |mut stream| {
            stream.write_all(GREETING.as_bytes()).unwrap();
            let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
            for (id, line) in ["{\"return\":{},\"id\":ID}\n"].iter().chain(lines).enumerate() {
                asked.next().unwrap().unwrap();
                stream.write_all(line.replace("ID", &(id + 1).to_string()).as_bytes()).unwrap();
            }
            // Until the client disconnects.
            asked.for_each(drop);
        })
    }

    fn connect(&self, within: DurNs) -> Result<Client, QmpError> {
        Client::connect(&self.path, within)
    }

    /// A client that waits for each answer for at most `within`. Only the greeting may last longer.
    fn greets(&self, within: DurNs) -> Client {
        let mut client = Client::begin(&self.path, within).unwrap();
        until("it is greeted", || {
            assert_eq!(client.take().unwrap(), None);
            client.is_ready().then_some(())
        });
        client
    }
}

/// Waits until `found` returns a value.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = mono_now() + LONG;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(mono_now() < end, "{what} did not happen");
        std::thread::yield_now();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ends the thread of a peer to which a failed test never connected.
        drop(UnixStream::connect(&self.path));
        let _ = std::fs::remove_file(&self.path);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn an_answer_is_found_after_events_and_late_answers() {
    let lines = &["{\"event\":\"STOP\"}\n{\"return\":1,\"id\":1}\n{\"return\":{\"status\":\"running\"},\"id\":ID}\n"];
    let peer = Peer::answers("good", lines);
    let mut client = peer.connect(LONG).unwrap();
    assert_eq!(client.call("query-status").unwrap()["status"], "running");
    assert_eq!(client.take().unwrap(), Some(Message::Event("STOP".into())));
    assert_eq!(client.take().unwrap(), None);
}

#[test]
fn a_command_is_sent_and_its_answer_taken_without_waiting_for_either() {
    let peer = Peer::answers("later", &["{\"return\":7,\"id\":ID}\n"]);
    let mut client = Client::begin(&peer.path, LONG).unwrap();
    let mut asked = None;
    let answer = until("it is answered", || {
        if client.is_ready() && asked.is_none() {
            asked = Some(client.send("query-status", None).unwrap());
        }
        client.take().unwrap()
    });
    assert_eq!(answer, Message::Answer { id: asked, result: Ok(7.into()) });
}

#[test]
fn a_refusal_has_its_reason() {
    let peer = Peer::answers(
        "refuses",
        &["{\"error\":{\"class\":\"CommandNotFound\",\"desc\":\"no\\u001b[2J\"},\"id\":ID}\n"],
    );
    let error = peer.connect(LONG).unwrap().call("quit").unwrap_err();
    assert!(matches!(error, QmpError::Refused { .. }));
    assert_eq!(error.to_string(), "QMP: quit was refused: no\\x1b[2J");
}

#[test]
fn a_silent_peer_is_reported_after_its_time_limit() {
    let peer = Peer::new("silent", |stream| BufReader::new(stream).lines().for_each(drop));
    assert!(matches!(peer.connect(SHORT), Err(QmpError::Silent { .. })));
}

#[test]
fn a_command_that_qemu_does_not_answer_times_out_with_its_name() {
    let peer = Peer::answers("stops", &[""]);
    let mut client = peer.greets(SHORT);
    let error = client.call("query-status").unwrap_err();
    assert!(error.to_string().contains("no answer to query-status within 50ms"), "{error}");
}

#[test]
fn a_peer_that_sends_without_end_is_disconnected() {
    let flood = Peer::new("flood", |mut stream| while stream.write_all(b"{\"event\":\"X\"}\n").is_ok() {});
    let error = flood.connect(SHORT).unwrap_err();
    assert!(matches!(error, QmpError::Silent { .. }), "{error}");
    let line = Peer::new("line", |mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
    let error = line.connect(LONG).unwrap_err();
    assert!(error.to_string().contains(&LINE_BYTES_MAX.to_string()), "{error}");
}

#[test]
fn a_peer_that_is_not_qemu_is_recognised() {
    let peer = Peer::new("web", |mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    assert!(matches!(peer.connect(LONG), Err(QmpError::Malformed(_))));
    let peer = Peer::new("gone", drop);
    assert!(matches!(peer.connect(LONG), Err(QmpError::Closed | QmpError::Io(_))));
    assert!(matches!(Client::connect("/nowhere/qmp".as_ref(), LONG), Err(QmpError::Io(_))));
}

#[test]
fn a_virtual_cpu_without_a_thread_or_with_a_foreign_one_is_refused_with_its_number() {
    let own = std::process::id() as i32;
    // No thread, an impossible one, and one of another process.
    for (name, answer) in [
        ("vcpu-none", "{\"return\":[{\"cpu-index\":3}],\"id\":ID}\n"),
        ("vcpu-zero", "{\"return\":[{\"cpu-index\":3,\"thread-id\":0}],\"id\":ID}\n"),
        ("vcpu-huge", "{\"return\":[{\"cpu-index\":3,\"thread-id\":99999999999}],\"id\":ID}\n"),
        ("vcpu-other", "{\"return\":[{\"cpu-index\":3,\"thread-id\":1}],\"id\":ID}\n"),
    ] {
        let lines: &'static [&'static str] = Box::leak(Box::new([answer]));
        let peer = Peer::answers(name, lines);
        let found = vcpus(&mut peer.connect(LONG).unwrap(), own);
        assert!(matches!(found, Err(PlaceError::Foreign { index: 3, .. })), "{name}: {found:?}");
    }
}

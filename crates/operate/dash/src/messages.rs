//! The message console: requests with structured replies, completion, and watching messages.

use crate::refused::Refused;
use crate::shares::{Shares, Unit};
use crate::signals::Outcome;
use crate::work::audit;
use base::DurNs;
use broker::{Client, ClientError, Received, Sending};
use msg::{Band, Code, Request, Verb};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::{mono_now, sleep_until};

/// Maximum clients that watch at a time: the message server limits watches per user.
const WATCHING_MAX: usize = 8;
/// Maximum lines queued for a client. Newer lines replace the oldest ones, which are counted.
const LINES_MAX: usize = 200;
/// Interval at which a thread checks whether its client still watches, and retries a lost server.
const LOOK: DurNs = DurNs::from_ms(300);
/// Maximum names found.
const FOUND_MAX: usize = 200;

/// Whether a request changes something, according to the table of verbs.
///
/// # Errors
/// If the line is not a request, or only makes sense on a separate connection.
pub(crate) fn writes(line: &str) -> Result<bool, Refused> {
    let request = Request::parse(line).map_err(|error| Refused::Line(error.to_string()))?;
    if matches!(request.verb, Verb::Watch | Verb::Unwatch) {
        return Err(Refused::Watch(request.verb));
    }
    Ok(request.verb.row().effect != base::verb::Effect::Reads)
}

/// The verbs allowed in the console: word, whether it changes something, description.
pub(crate) fn verbs() -> Value {
    let sent = |verb: &&Verb| !matches!(verb, Verb::Watch | Verb::Unwatch | Verb::Batch);
    let row = |verb: &Verb| {
        let writes = verb.row().effect != base::verb::Effect::Reads;
        json!({ "word": verb.word(), "writes": writes, "meaning": verb.meaning() })
    };
    Verb::ALL.iter().filter(sent).map(row).collect()
}

/// A connection to the message server, opened on demand.
pub(crate) struct Console {
    server: String,
    client: Option<Client>,
}

impl Console {
    pub(crate) const fn new(server: String) -> Self {
        Self { server, client: None }
    }

    fn with<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(&self.server)?,
        };
        let asked = ask(&mut client);
        // An invalid line does not affect the connection.
        if matches!(asked, Ok(_) | Err(ClientError::Message(_))) {
            self.client = Some(client);
        }
        asked
    }

    /// Sends a request. `who` is set if it changes something, and is logged. A negative reply is also a reply.
    pub(crate) fn send(&mut self, who: Option<&str>, line: &str) -> Outcome {
        let begun = mono_now();
        let received = self.with(|client| client.ask(line, &Sending::default()));
        let took = mono_now() - begun;
        if let Some(who) = who {
            let failed = match &received {
                Ok(received) if received.code == Code::Ok => None,
                Ok(received) => Some(format!("{}: {}", received.code, received.text)),
                Err(error) => Some(error.to_string()),
            };
            audit(who, &format!("message {line}"), failed.as_ref());
        }
        received.map(|received| parts(&received, took)).map_err(|error| error.to_string())
    }

    /// Counters of the message server by name.
    pub(crate) fn counters(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        let sending = Sending { limit: DurNs::from_secs(2), ..Sending::default() };
        let received = self.with(|client| client.ask("describe/server", &sending))?;
        let pairs = received.text.split_whitespace().filter_map(|word| word.split_once('='));
        Ok(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// Names of all objects that match `pattern`.
    pub(crate) fn all(&mut self, pattern: &str) -> Result<Vec<String>, ClientError> {
        let sending = Sending { limit: DurNs::from_secs(2), ..Sending::default() };
        let mut objects = self.with(|client| client.served(&sending))?.objects;
        objects.retain(|object| base::glob(pattern, object));
        Ok(objects)
    }

    /// Objects that match `pattern`, connected clients, and managers that did not list their objects.
    pub(crate) fn known(&mut self, pattern: &str) -> Outcome {
        let sending = Sending { limit: DurNs::from_secs(2), ..Sending::default() };
        let listed = self.with(|client| {
            let served = client.served(&sending)?;
            Ok((served, client.list("server", &sending)?.0))
        });
        let (served, clients) = listed.map_err(|error| error.to_string())?;
        let like = served.objects.iter().filter(|object| base::glob(pattern, object));
        let objects: Vec<_> = like.take(FOUND_MAX).collect();
        let mut subjects: Vec<_> = clients.iter().filter_map(|line| line.split_whitespace().next()).collect();
        subjects.sort_unstable();
        subjects.dedup();
        subjects.truncate(FOUND_MAX);
        let lacking = served.lacking.iter().map(|(manager, code, why)| format!("{manager}: {code}: {why}"));
        Ok(json!({ "found": objects, "subjects": subjects, "lacking": lacking.collect::<Vec<_>>() }))
    }
}

fn connect(server: &str) -> Result<Client, ClientError> {
    Client::connect(server, "dashboard", Band::DEFAULT)
}

/// A reply by parts. `lines` are those of its body; for a body of another form, only the length is given.
fn parts(received: &Received, took: DurNs) -> Value {
    let lines = received.lines().filter(|lines| !lines.is_empty());
    let bytes = if lines.is_some() { 0 } else { received.body.len() };
    json!({
        "code": received.code.word(), "text": received.text, "lines": lines, "bytes": bytes, "pulse": received.pulse,
        "took_ns": took.0, "good": received.code == Code::Ok, "perhaps": received.code.may_have_happened(),
        "timed_out": matches!(received.code, Code::Timeout | Code::Expired),
    })
}

/// The shares of clients that watch messages.
pub(crate) fn watches() -> Shares {
    Shares::new("watches of messages", "end another one", WATCHING_MAX)
}

/// A client's watch: a separate thread, which ends shortly after this is dropped.
pub(crate) struct Watching {
    shared: Arc<Passing>,
}

/// State shared by the thread and its client.
#[derive(Default)]
struct Passing {
    over: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    lines: VecDeque<String>,
    /// Lines replaced by newer ones.
    dropped: u64,
    state: String,
    is_new: bool,
}

impl Passing {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, state: String) {
        let mut slot = self.slot();
        if slot.state != state {
            (slot.state, slot.is_new) = (state, true);
        }
    }

    fn push(&self, line: String) {
        let mut slot = self.slot();
        if slot.lines.len() == LINES_MAX {
            slot.lines.pop_front();
            slot.dropped += 1;
        }
        slot.lines.push_back(line);
        slot.is_new = true;
    }
}

impl Watching {
    /// Starts watching `pattern`, `VERB/OBJECT` or `OBJECT`, for a client with the share `taken` of the [`watches`].
    ///
    /// # Errors
    /// If the thread cannot be started. The server's answer is reported as the state.
    pub(crate) fn begin(server: &str, pattern: &str, taken: Unit) -> Result<Self, Refused> {
        let (server, pattern) = (server.to_owned(), pattern.to_owned());
        let shared = Arc::<Passing>::default();
        let inside = shared.clone();
        let started = std::thread::Builder::new().name("dash-passing".to_owned()).spawn(move || {
            watch(&server, &pattern, &inside);
            drop(taken);
        });
        started.map(|_| Self { shared }).map_err(Refused::Thread)
    }

    /// New lines since the last call, if any.
    pub(crate) fn news(&self) -> Option<Value> {
        let mut slot = self.shared.slot();
        if !std::mem::take(&mut slot.is_new) {
            return None;
        }
        let lines: Vec<String> = slot.lines.drain(..).collect();
        Some(json!({ "topic": "passing", "data": { "lines": lines, "dropped": slot.dropped, "state": slot.state } }))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

/// Watches until the client ends; reconnects if the server was lost.
fn watch(server: &str, pattern: &str, shared: &Passing) {
    while !shared.over.load(Ordering::Relaxed) {
        match watch_once(server, pattern, shared) {
            Ok(()) => shared.state("the message server was lost: what passed meanwhile is not known".to_owned()),
            Err(why) => shared.state(format!("not watching: {why}")),
        }
        sleep_until(mono_now() + LOOK);
    }
}

/// Reason why messages cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The server cannot be reached.
    #[error("{0}")]
    Client(String),
    /// The server refuses.
    #[error("{code}: {text}")]
    Refused {
        /// Its reply code.
        code: Code,
        /// Its message.
        text: String,
    },
}

/// Opens a connection that receives the messages that match `pattern`.
pub(crate) fn watched(server: &str, pattern: &str) -> Result<Client, WatchError> {
    let lost = |error: ClientError| WatchError::Client(error.to_string());
    let mut client = connect(server).map_err(lost)?;
    let answer = client.watch(pattern, &Sending::default()).map_err(lost)?;
    match answer.code {
        Code::Ok => Ok(client),
        code => Err(WatchError::Refused { code, text: answer.text }),
    }
}

/// Watches over one connection. Returns `Ok` if it was lost or the client ended.
fn watch_once(server: &str, pattern: &str, shared: &Passing) -> Result<(), WatchError> {
    let mut client = watched(server, pattern)?;
    shared.state("watching".to_owned());
    while !shared.over.load(Ordering::Relaxed) {
        match client.next(LOOK) {
            Ok(Some(event)) if event.event => shared.push(event.text),
            Ok(_) if client.reconnections() == 0 => {}
            // The watch ended with the old connection.
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;
    use crate::shares::tests::party;

    #[test]
    fn verbs_are_classified_as_reads_or_writes_and_watch_is_refused() {
        for (line, is_write) in
            [("get/x/y", false), ("list/*", false), ("put/x/1A", true), ("lock/x", true), ("batch/x", true)]
        {
            assert_eq!(writes(line).unwrap(), is_write, "{line}");
        }
        for line in ["watch/*/*", "unwatch/*", "", "puts/x/1", "get"] {
            assert!(writes(line).is_err(), "{line}");
        }
        let words = |verb: &Value| verb["word"].as_str().map(str::to_owned);
        let listed: Vec<_> = verbs().as_array().unwrap().iter().filter_map(words).collect();
        assert!(listed.contains(&"put".to_owned()) && !listed.contains(&"watch".to_owned()), "{listed:?}");
    }

    #[test]
    fn a_late_reply_is_marked_and_whether_its_request_may_have_been_executed() {
        let reply = |code, body: &[u8]| Received {
            id: 1,
            event: false,
            code,
            text: "manager rf: no answer after 5s".to_owned(),
            body: body.to_vec(),
            room: None,
            pulse: 7,
        };
        let told = |code| {
            let parts = parts(&reply(code, &[0xc1, 0xc1]), DurNs::from_secs(5));
            ["good", "timed_out", "perhaps"].map(|key| parts[key] == true)
        };
        assert_eq!(told(Code::Ok), [true, false, false]);
        assert_eq!(told(Code::Timeout), [false, true, true]);
        assert_eq!(told(Code::Expired), [false, true, false]);
        assert_eq!(told(Code::Denied), [false, false, false]);
        let parts = parts(&reply(Code::Timeout, &[0xc1, 0xc1]), DurNs::from_secs(5));
        assert_eq!(
            (&parts["bytes"], &parts["took_ns"], &parts["pulse"]),
            (&json!(2), &json!(5_000_000_000u64), &json!(7))
        );
    }

    #[test]
    fn the_newest_lines_are_kept_and_dropped_ones_are_counted() {
        let watching = Watching { shared: Arc::default() };
        assert_eq!(watching.news(), None);
        for number in 0..LINES_MAX + 3 {
            watching.shared.push(number.to_string());
        }
        let news = watching.news().unwrap();
        assert_eq!((news["data"]["dropped"].as_u64(), &news["data"]["lines"][0]), (Some(3), &json!("3")));
        assert_eq!(news["data"]["lines"].as_array().unwrap().len(), LINES_MAX);
        assert_eq!(watching.news(), None);
    }

    #[test]
    fn watches_of_viewers_leave_room_for_those_of_operators() {
        let (watches, viewer) = (watches(), party(Role::Viewer, 1000));
        let _taken: Vec<_> = std::iter::from_fn(|| watches.take(viewer).ok()).take(WATCHING_MAX).collect();
        assert!(watches.take(viewer).unwrap_err().to_string().contains("watches of messages"));
        assert!(watches.take(party(Role::Operator, 1000)).is_ok());
    }
}

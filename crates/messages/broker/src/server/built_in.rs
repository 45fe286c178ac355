//! Requests answered by the server itself: connected processes, served objects, locks, watches.

use super::log::Record;
use super::{Control, Watcher, lane};
use crate::message_buffer::{MessageBuffer, prefix};
use base::glob;
use msg::{
    BATCH_LINES_MAX, BODY_BYTES_MAX, Code, Conn, Frame, Header, Kind, Object, Request, Share, TextBuffer, Verb,
    write_lines,
};
use std::fmt::Write as _;

/// Maximum number of watches. Each costs every message a comparison.
const WATCHERS: Share = Share { what: "watches", all: 32, remedy: "end some with unwatch" };
/// Maximum number of locks in total and per client. Each costs every write a comparison, on the thread of its band.
const LOCKS: Share = Share { what: "locks", all: 128, remedy: "end some with unlock" };
const LOCKS_EACH_MAX: usize = 32;
/// Requests answered per band in one round of the control thread.
const TURN: usize = 64;

/// An answer of the control thread.
struct Answer {
    code: Code,
    text: String,
    lines: Vec<String>,
    /// Number of lines already sent, before these.
    from: usize,
}

impl Answer {
    fn ok(text: impl Into<String>) -> Self {
        Self { code: Code::Ok, text: text.into(), lines: Vec::new(), from: 0 }
    }

    fn no(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), lines: Vec::new(), from: 0 }
    }

    /// Answer to `list`: the lines from the index given by the complement, from 0 if it is empty.
    fn list(mut lines: Vec<String>, request: &Request<'_>) -> Self {
        let complement = request.complement.text();
        let from = if complement.is_empty() { Ok(0) } else { complement.parse::<usize>() };
        let Ok(from) = from else {
            let why =
                format!("complement {complement:?} of a list, expected none, or the number of lines already received");
            return Self::no(Code::Malformed, why);
        };
        lines.drain(..from.min(lines.len()));
        Self { code: Code::Ok, text: lines.join(" "), lines, from }
    }
}

impl Control<'_> {
    /// Answers the requests that the lanes forwarded, the most urgent band first. Returns whether more are waiting.
    pub(super) fn requests(&mut self, buffer: &mut MessageBuffer) -> bool {
        for at in (0..self.lanes.len()).rev() {
            for _ in 0..TURN {
                let Ok(Some((conn, id))) = buffer.take_prefixed(&mut self.lanes[at].to_control) else { break };
                let Ok(frame) = buffer.frame() else { continue };
                let answer = self.answer(conn, id, &frame);
                self.reply(at, &frame.header, &answer);
            }
        }
        self.lanes.iter().any(|lane| !lane.to_control.is_empty())
    }

    fn reply(&mut self, at: usize, header: &Header, answer: &Answer) {
        let mut body = Vec::new();
        // A body has at most `BATCH_LINES_MAX` lines. If there are more single words, each line holds several,
        // separated by blanks.
        let all = answer.lines.len();
        let words = !answer.lines.iter().any(|line| line.contains(' '));
        let each = if words { all.div_ceil(BATCH_LINES_MAX).max(1) } else { 1 };
        let lines: Vec<String> = answer.lines.chunks(each).map(|some| some.join(" ")).collect();
        let mut count = lines.len().min(BATCH_LINES_MAX);
        loop {
            body.clear();
            if count > 0 {
                write_lines(lines[..count].iter().map(String::as_str), &mut body);
            }
            if body.len() <= BODY_BYTES_MAX {
                break;
            }
            count -= count.div_ceil(8);
        }
        let mut line = TextBuffer::new();
        match count < lines.len() {
            true => {
                let (next, all) = (answer.from + count * each, answer.from + all);
                line.reply(answer.code, format_args!("{next} of {all}: continue with the complement {next}"));
            }
            false => line.reply(answer.code, &answer.text),
        }
        self.send(at, Conn::SERVER, header.reply(), line.text(), &body);
    }

    /// Sends a reply or an event through a lane. If the queue is full, it is refused and counted; a request then times
    /// out at its deadline.
    fn send(&mut self, at: usize, conn: Conn, header: Header, text: &str, body: &[u8]) -> bool {
        let lane = &mut self.lanes[at];
        let Ok((head, rest)) = self.packing.pack(header, text, body) else { return false };
        let sent = lane.from_control.push_or_refuse(&[&prefix(conn, 0), &head, rest]);
        lane.gate.wake();
        sent
    }

    fn answer(&mut self, conn: Conn, id: u64, frame: &Frame<'_>) -> Answer {
        let Ok(request) = Request::parse(frame.text) else { return Answer::no(Code::Malformed, "no request") };
        let object = request.object;
        match (request.verb, object.text()) {
            (Verb::Ping, "server") => Answer::ok(&*self.name),
            (Verb::List, "server") => Answer::list(self.processes(), &request),
            (Verb::Describe, "server") => self.counters(),
            (Verb::List, pattern) => Answer::list(self.served(pattern), &request),
            (Verb::Lock, _) => self.lock(conn, &frame.header, object),
            (Verb::Unlock, name) => match self.tables.unlock(conn, object) {
                true => self.changed(),
                false => Answer::no(Code::Locked, format!("this client holds no lock on {name}")),
            },
            (Verb::Watch, _) => self.watch(conn, id, &frame.header, &request),
            (Verb::Unwatch, pattern) => {
                let before = self.watchers.len();
                self.watchers.retain(|watcher| watcher.conn != conn || watcher.objects != pattern);
                match self.watchers.len() < before {
                    true => self.changed(),
                    false => Answer::no(Code::NoObject, format!("this client does not watch {pattern}")),
                }
            }
            (verb, _) => Answer::no(
                Code::NoVerb,
                format!("the message server has no verb {verb}; it has ping, list and describe"),
            ),
        }
    }

    /// One line per connected process.
    fn processes(&self) -> Vec<String> {
        let now = sys::clock::mono_now();
        let peers = self.peers.iter().flatten();
        peers
            .map(|peer| {
                let bands: Vec<String> = peer.bands.iter().map(ToString::to_string).collect();
                let served = self.tables.routes().iter().filter(|route| route.to == peer.conn);
                let serves: Vec<&str> = served.map(|route| route.prefix.as_str()).collect();
                let since = base::DurNs((now - peer.since).0 / 1_000_000_000 * 1_000_000_000);
                let mut text = format!(
                    "{} uid={} pid={} since={since} bands={}",
                    peer.name,
                    peer.caller.uid,
                    peer.caller.pid,
                    bands.join(",")
                );
                if !serves.is_empty() {
                    // Writing into a `String` cannot fail.
                    let _ = write!(text, " serves={}", serves.join(","));
                }
                text
            })
            .collect()
    }

    /// Claimed prefixes that can contain objects matching the pattern.
    fn served(&self, pattern: &str) -> Vec<String> {
        let literal = pattern.find(['*', '?']).map_or(pattern, |at| &pattern[..at]);
        let near = |prefix: &str| glob(pattern, prefix) || prefix.starts_with(literal) || literal.starts_with(prefix);
        let routes = self.tables.routes().iter().filter(|route| near(&route.prefix));
        routes.map(|route| format!("{}={}", route.prefix, route.manager)).collect()
    }

    fn counters(&self) -> Answer {
        let mut sums = [0u64; lane::COUNTER_NAMES.len()];
        for lane in &self.lanes {
            sums.iter_mut().zip(lane.seen.read()).for_each(|(sum, value)| *sum += value);
        }
        let up = (sys::clock::mono_now() - self.began).0 / 1_000_000_000;
        let mut text = format!("up={up}s clients={}", self.peers.iter().flatten().count());
        for (name, value) in lane::COUNTER_NAMES.iter().zip(sums) {
            let _ = write!(text, " {name}={value}");
        }
        let unlogged: Vec<String> = self.lanes.iter().map(|lane| lane.log.stream().refused().to_string()).collect();
        let (unlogged, unmapped) = (unlogged.join(","), self.spares.unmapped());
        let unseen_events = self.unseen_events;
        let over_share = self.over_share + self.lanes.iter().map(|lane| lane.seen.over_share()).sum::<u64>();
        let naps = self.lanes.iter().map(|lane| lane.seen.naps.count()).sum::<u64>();
        let (logs, unwritten) = self.log.as_ref().map_or((0, 0), |log| (log.moved(), log.unwritten()));
        let _ = write!(
            text,
            " unseen_events={unseen_events} unlogged_by_band={unlogged} unwritten={unwritten} unmapped={unmapped} over_share={over_share} naps={naps} logs_moved={logs}"
        );
        if !self.tables.deadlines.is_empty() {
            let (tally, missed) = self.value();
            let share = tally.share().unwrap_or(base::Worth::WHOLE).0;
            let _ = write!(
                text,
                " answers_due={} answers_late={} value_millionths={share} hard_missed={missed}",
                tally.due, tally.late
            );
        }
        Answer::ok(text)
    }

    fn lock(&mut self, conn: Conn, header: &Header, object: Object<'_>) -> Answer {
        let locks = &self.tables.locks;
        if locks.iter().filter(|lock| lock.holder == conn).count() >= LOCKS_EACH_MAX {
            let most =
                format!("this client holds {LOCKS_EACH_MAX} locks, more than that it may not; end some with unlock");
            return Answer::no(Code::Overload, most);
        }
        let held = locks.iter().map(|lock| (lock.subject.uid, 1));
        if let Err(excess) = LOCKS.admit(held, header.subject.uid, 1, sys::handover::is_ours) {
            self.over_share += 1;
            return Answer::no(Code::Overload, excess.to_string());
        }
        match self.tables.lock(conn, header.subject, object) {
            Ok(()) => self.changed(),
            Err(lock) => Answer::no(Code::Locked, format!("{} holds a lock on {}", lock.subject, lock.object)),
        }
    }

    /// Sends changed tables to all lanes and waits until they apply. An `OK` answer means that every band uses them.
    fn changed(&mut self) -> Answer {
        self.tables.watched = [!self.watchers.is_empty(); msg::BANDS];
        self.spread();
        match self.settle() {
            true => Answer::ok(""),
            false => Answer::no(Code::Unknown, "not every band has taken it over within 1s; ask again"),
        }
    }

    fn watch(&mut self, conn: Conn, id: u64, header: &Header, request: &Request<'_>) -> Answer {
        let (user, watch) = (header.subject.uid, self.watchers.iter().map(|watcher| (watcher.user, 1)));
        if let Err(excess) = WATCHERS.admit(watch, user, 1, sys::handover::is_ours) {
            self.over_share += 1;
            return Answer::no(Code::Overload, excess.to_string());
        }
        let verbs = match request.complement.text() {
            verbs if verbs.is_empty() => "*".to_owned(),
            verbs => verbs.into_owned(),
        };
        if let (false, Err(why)) = (Verb::ALL.iter().any(|verb| glob(&verbs, verb.word())), verbs.parse::<Verb>()) {
            return Answer::no(Code::Malformed, format!("{verbs:?} fits no verb; {why}"));
        }
        let objects = request.object.text().to_owned();
        self.watchers.push(Watcher { conn, band: header.band, id, user, objects, verbs });
        self.changed()
    }

    /// Sends an event to every client with a matching watch. An event that does not fit into the queue is lost and
    /// counted.
    pub(super) fn tell_watchers(&mut self, record: &Record<'_>, line: &str) {
        let Ok(request) = Request::parse(&record.asked) else { return };
        for at in 0..self.watchers.len() {
            let Watcher { conn, band, id, objects, verbs, .. } = &self.watchers[at];
            if !glob(objects, request.object.text()) || !glob(verbs, request.verb.word()) {
                continue;
            }
            let header = Header { kind: Kind::Event, ..Header::request(*band, *id) };
            let (conn, lane) = (*conn, usize::from(band.number()));
            let fits = line.len() <= msg::TEXT_BYTES_MAX;
            if !fits || !self.send(lane, conn, header, line, &[]) {
                self.unseen_events += 1;
            }
        }
    }
}

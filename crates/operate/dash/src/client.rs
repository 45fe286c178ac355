//! A WebSocket client: its subscriptions, and the newest data for each whenever the connection can send.

use crate::access::Role;
use crate::hub::{Hub, Topic};
use crate::messages::{self, Watching};
use crate::protocol::{Ask, Question, Tick, tick, topic};
use crate::scopes::Scope;
use crate::shares::{Party, Shares};
use crate::signals::{Callback, Outcome, Series, Signals};
use crate::work::{Job, Worker, audit};
use base::{DurNs, MonoNs};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use store::Span;
use sys::clock::mono_now;
use web::{Message, Next, Now, Socket};

/// Interval of heartbeats.
const BEAT: DurNs = DurNs::from_secs(1);
/// Maximum signals per client.
const STREAMS_MAX: usize = 500;
/// Maximum answers queued for a client; beyond that it is disconnected.
const ANSWERS_MAX: usize = 256;
/// Maximum length of a signal's name, a message or a value, in bytes.
const TEXT_MAX: usize = 4096;
/// Maximum duration and time (since 1970) of an archive query, in seconds: the range of nanoseconds in an `i64`.
const SECONDS_MAX: f64 = 9e9;
/// Default update rate.
const RATE_HZ: u8 = 10;

/// State shared by all clients.
pub(crate) struct Shared {
    pub(crate) plant: String,
    pub(crate) hub: Arc<Hub>,
    pub(crate) signals: Signals,
    pub(crate) worker: Arc<Worker>,
    /// Name of the message server, and the shares of clients that watch its messages.
    pub(crate) passing: (String, Shares),
}

/// Queue of answers from other threads.
type Answers = Arc<Mutex<VecDeque<String>>>;

pub(crate) struct Client {
    shared: Shared,
    scope: Scope,
    party: Party,
    /// Description of the client for the log.
    who: String,
    /// Name for the alarm journal: a user of this machine, or an address.
    user: String,
    greeted: bool,
    answers: Answers,
    /// Subscribed topics, with the number of the last version sent.
    topics: BTreeMap<Topic, u64>,
    streams: BTreeMap<u16, Stream>,
    watching: Option<Watching>,
    passing_at: MonoNs,
    every: DurNs,
    beat_at: MonoNs,
    tick_at: MonoNs,
    /// Updates and samples replaced by newer ones.
    left_out: u64,
    too_much: bool,
}

/// Only the id of a question, so that a question with any other error gets an answer.
#[derive(serde::Deserialize)]
struct QuestionId {
    id: Option<u32>,
}

struct Stream {
    name: String,
    series: Arc<Series>,
    next: u64,
    seen: u64,
}

impl Client {
    pub(crate) fn new(shared: Shared, scope: Scope, party: Party, who: String, user: String) -> Self {
        Self {
            shared,
            scope,
            party,
            who,
            user,
            greeted: false,
            answers: Arc::default(),
            topics: BTreeMap::new(),
            streams: BTreeMap::new(),
            watching: None,
            passing_at: MonoNs(0),
            every: DurNs(1_000_000_000 / i64::from(RATE_HZ)),
            beat_at: MonoNs(0),
            tick_at: MonoNs(0),
            left_out: 0,
            too_much: false,
        }
    }

    /// Callback for the outcome of a question.
    fn done(&self, id: Option<u32>) -> Callback {
        let answers = self.answers.clone();
        Box::new(move |outcome| answer(&answers, id, outcome))
    }

    fn ask(&mut self, asked: Question, now: Now) {
        let id = asked.id;
        if let Err(why) = self.begin(id, asked.ask, now) {
            answer(&self.answers, id, Err(why));
        }
    }

    /// Answers at once or passes the question to another thread.
    fn begin(&mut self, id: Option<u32>, ask: Ask, now: Now) -> Result<(), String> {
        let writes = match &ask {
            Ask::Process { .. } | Ask::Put { .. } | Ask::Alarm { .. } => true,
            Ask::Message { line } => messages::writes(line)?,
            Ask::Settings { act } => act.writes(),
            _ => false,
        };
        if writes && self.party.role != Role::Operator {
            let why = "viewers may only read; `tahti dash url --operator` prints the address for operators".to_owned();
            audit(&self.who, &format!("{ask:?}"), Some(&why));
            return Err(why);
        }
        let who = self.who.clone();
        match ask {
            Ask::Want { topics } => self.want(&topics, now.mono),
            Ask::Rate { hz } => self.every = DurNs(1_000_000_000 / i64::from(hz.clamp(1, 60))),
            Ask::Subscribe { stream, name } => return self.subscribe(stream, name),
            Ask::Unsubscribe { stream } => self.unsubscribe(stream),
            Ask::Process { what, name } => return self.give(id, Job::Process { who, what, name: short(name)? }),
            Ask::Alarm { act } => {
                short(json!(act).to_string())?;
                return self.give(id, Job::Alarm { who, user: self.user.clone(), act });
            }
            Ask::AlarmFigures => return self.give(id, Job::AlarmFigures),
            Ask::Message { line } => {
                let who = writes.then_some(who);
                return self.give(id, Job::Message { who, line: short(line)? });
            }
            Ask::Verbs => {
                answer(&self.answers, id, Ok(messages::verbs()));
                return Ok(());
            }
            Ask::Watch { pattern } => {
                // Release the previous share first.
                self.watching = None;
                let (server, watches) = &self.shared.passing;
                self.watching = Some(Watching::begin(server, &short(pattern)?, watches.take(self.party)?)?);
            }
            Ask::Unwatch => self.watching = None,
            Ask::Objects { pattern } => return self.give(id, Job::Objects { pattern: short(pattern)? }),
            Ask::Search { pattern } => return self.give(id, Job::Search { pattern: short(pattern)? }),
            Ask::History { name, seconds, until, points } => {
                let span = span(seconds, until, now.wall_ns)?;
                return self.give(id, Job::History { name: short(name)?, span, points });
            }
            Ask::Describe { name } => {
                return self.shared.signals.describe(self.party, &short(name)?, self.done(id));
            }
            Ask::Settings { act } => {
                let who = writes.then_some(who);
                return self.give(id, Job::Settings { who, user: self.user.clone(), act });
            }
            Ask::Logs { filter } => {
                let texts = [Some(&filter.text), filter.process.as_ref()];
                if texts.into_iter().flatten().any(|text| text.len() > TEXT_MAX) {
                    return Err(format!("the filter is too long; expected at most {TEXT_MAX} bytes"));
                }
                return self.give(id, Job::Logs { filter });
            }
            Ask::Scope { act } => {
                let done = self.done(id);
                return Ok(self.scope.ask(act, done)?);
            }
            Ask::Put { name, value } => return self.put(id, short(name)?, short(value)?),
        }
        answer(&self.answers, id, Ok(json!({})));
        Ok(())
    }

    fn give(&self, id: Option<u32>, job: Job) -> Result<(), String> {
        self.shared.worker.give(self.party, job, self.done(id))
    }

    fn put(&self, id: Option<u32>, name: String, value: String) -> Result<(), String> {
        if value.len() > 39 && !name.starts_with(pva::SCHEME) {
            return Err(format!("the value has {} bytes; expected at most 39, as Channel Access has it", value.len()));
        }
        let (done, who, what) = (self.done(id), self.who.clone(), format!("set {name} to {value:?}"));
        let audited = move |outcome: Outcome| {
            audit(&who, &what, outcome.as_ref().err());
            done(outcome);
        };
        self.shared.signals.put(self.party, &name, &value, Box::new(audited))
    }

    fn want(&mut self, words: &[String], now: MonoNs) {
        let wanted: Vec<Topic> = words.iter().filter_map(|word| topic(word)).collect();
        for topic in Topic::ALL {
            match (wanted.contains(&topic), self.topics.contains_key(&topic)) {
                (true, false) => {
                    self.topics.insert(topic, 0);
                    self.shared.hub.watch(topic, true, now);
                }
                (false, true) => {
                    self.topics.remove(&topic);
                    self.shared.hub.watch(topic, false, now);
                }
                _ => {}
            }
        }
    }

    fn subscribe(&mut self, stream: u16, name: String) -> Result<(), String> {
        let name = short(name)?;
        self.unsubscribe(stream);
        if self.streams.len() >= STREAMS_MAX {
            return Err(format!("{STREAMS_MAX} signals are watched already; close some"));
        }
        let series = self.shared.signals.watch(self.party, &name)?;
        let next = series.last();
        self.streams.insert(stream, Stream { name, series, next, seen: 0 });
        Ok(())
    }

    fn unsubscribe(&mut self, stream: u16) {
        if let Some(stream) = self.streams.remove(&stream) {
            self.shared.signals.leave(&stream.name);
        }
    }

    fn hello(&self, now: Now) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let (role, now) = (self.party.role.word(), seconds(now));
        json!({ "hello": { "plant": self.shared.plant, "role": role, "version": version, "now": now } }).to_string()
    }

    fn beat(&mut self, now: Now) -> String {
        self.left_out += self.scope.replaced();
        let topics = self.topics.keys().filter(|topic| self.shared.hub.is_stale(**topic, now.mono));
        let mut stale: Vec<Value> = topics.map(|topic| json!(topic)).collect();
        stale.extend(self.scope.is_stale(now.mono).then(|| "scope".into()));
        json!({ "beat": { "dropped": self.left_out, "stale": stale, "now": seconds(now) } }).to_string()
    }

    /// The next topic with a newer version.
    fn newer(&mut self) -> Option<String> {
        for (topic, has) in &mut self.topics {
            if let Some((number, text)) = self.shared.hub.newer(*topic, *has) {
                if *has > 0 {
                    self.left_out += number - *has - 1;
                }
                *has = number;
                return Some(text.to_string());
            }
        }
        None
    }

    /// Changes of streams' non-numeric properties.
    fn changed(&mut self) -> Option<String> {
        self.streams.iter_mut().find_map(|(number, stream)| {
            let data = stream.series.changed(&mut stream.seen, *number)?;
            Some(json!({ "topic": "signal", "data": data }).to_string())
        })
    }

    /// Summary of the streams' samples since the last tick; `None` if there are none.
    fn ticks(&mut self) -> Option<Vec<u8>> {
        let mut rows = Vec::new();
        for (number, stream) in &mut self.streams {
            let mut row: Option<Tick> = None;
            self.left_out += stream.series.read(&mut stream.next, |sample| {
                let (least, most) = row.map_or((sample.value, sample.value), |row| (row.least, row.most));
                row = Some(Tick {
                    stream: *number,
                    at_ns: sample.at_ns,
                    least: least.min(sample.value),
                    most: most.max(sample.value),
                    last: sample.value,
                    severity: sample.severity,
                });
            });
            rows.extend(row);
        }
        (!rows.is_empty()).then(|| tick(&rows, self.left_out))
    }
}

impl Socket for Client {
    fn receive(&mut self, message: Message<'_>, now: Now) {
        let text = match message {
            Message::Text(text) => text,
            Message::Bytes(part) => {
                if let Err(refused) = self.scope.bytes(part) {
                    answer(&self.answers, None, Err(refused.to_string()));
                }
                return;
            }
        };
        match serde_json::from_str(text) {
            Ok(asked) => self.ask(asked, now),
            Err(error) => {
                let id = serde_json::from_str::<QuestionId>(text).ok().and_then(|question| question.id);
                answer(&self.answers, id, Err(format!("not understood: {error}")));
            }
        }
        self.too_much |= self.answers.lock().unwrap_or_else(PoisonError::into_inner).len() > ANSWERS_MAX;
    }

    fn next(&mut self, now: Now) -> Next {
        if self.too_much {
            return Next::Close("too many questions".to_owned());
        }
        if !std::mem::replace(&mut self.greeted, true) {
            return Next::Text(self.hello(now));
        }
        if now.mono >= self.beat_at {
            self.beat_at = now.mono + BEAT;
            return Next::Text(self.beat(now));
        }
        let waiting = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if let Some(text) = waiting.or_else(|| self.newer()).or_else(|| self.changed()).or_else(|| self.scope.changed())
        {
            return Next::Text(text);
        }
        if now.mono >= self.tick_at {
            self.tick_at = now.mono + self.every;
            if let Some(bytes) = self.ticks() {
                return Next::Bytes(bytes);
            }
        }
        if let Some(bytes) = self.scope.next() {
            return Next::Bytes(bytes);
        }
        if now.mono >= self.passing_at
            && let Some(news) = self.watching.as_ref().and_then(Watching::news)
        {
            self.passing_at = now.mono + self.every;
            return Next::Text(news.to_string());
        }
        Next::Wait((self.tick_at.min(self.beat_at) - now.mono).min(DurNs::from_ms(100)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.want(&[], mono_now());
        std::mem::take(&mut self.streams).into_values().for_each(|stream| self.shared.signals.leave(&stream.name));
    }
}

/// Queues an answer. Without an id, only failures are reported.
fn answer(answers: &Answers, id: Option<u32>, outcome: Outcome) {
    let text = match (id, outcome) {
        (None, Ok(_)) => return,
        (id, Ok(value)) => json!({ "answer": id, "ok": value }),
        (id, Err(why)) => json!({ "answer": id.map_or(Value::from(0), Value::from), "error": why }),
    };
    answers.lock().unwrap_or_else(PoisonError::into_inner).push_back(text.to_string());
}

/// Time of this machine in seconds since 1970; the browser's clock may be wrong.
fn seconds(now: Now) -> f64 {
    now.wall_ns as f64 / 1e9
}

/// Time span of an archive query: `seconds` before `until`, or before now.
fn span(seconds: f64, until: Option<f64>, now_ns: i64) -> Result<Span, String> {
    let is_time = |at: f64| (0.0..=SECONDS_MAX).contains(&at);
    if !is_time(seconds) || seconds < 1e-3 {
        return Err(format!("seconds is {seconds}; expected 0.001 to {SECONDS_MAX}"));
    }
    if let Some(until) = until.filter(|until| !is_time(*until)) {
        return Err(format!("until is {until}; expected seconds since 1970, 0 to {SECONDS_MAX}"));
    }
    let to = until.map_or(now_ns, |until| (until * 1e9) as i64);
    Ok(Span { from: to.saturating_sub((seconds * 1e9) as i64), to })
}

fn short(text: String) -> Result<String, String> {
    match text.len() {
        0 => Err("the name is empty".to_owned()),
        1..=TEXT_MAX => Ok(text),
        length => Err(format!("the text has {length} bytes; expected at most {TEXT_MAX}")),
    }
}

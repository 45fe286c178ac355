//! Sources with a separate thread each, because a request to them may block: see [`Origin`].

use crate::gate::Gate;
use crate::kept;
use crate::origins::{Alarms, Frames, Loops, Messages, PvAccess, Streams};
use crate::unconnected::{Unconnected, fits};
use base::DurNs;
use host::plant::archive::{Policy, Signal, Source};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use store::{Folder, Logger, SignalId, StoreError};
use sys::rounds::Rounds;

/// Capacity of the queue to the logger; the source's thread waits when it is full. The logger polls the queue, so it must hold a
/// burst.
const WAITING_MAX: usize = 4_096;
/// The same for streams, whose entries are batches of images of several megabytes.
const IMAGES_WAITING_MAX: usize = 16;
/// Delay before a source that is away is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// A thread that finishes no round of its loop for longer than this hangs. A request may take 10 s, and a write to a slow disk
/// delays the logger.
const HANGS_AFTER: DurNs = DurNs::from_secs(30);

/// Patterns of names with their policies; the first match decides.
type Patterns = Vec<(String, Policy)>;

/// An item from a source.
pub(crate) enum Item {
    /// A value of a signal. `name` is the part after `SOURCE/OWNER/`.
    Sample { name: String, about: About, sample: Sample },
    /// No values of a signal from now on. If `prefix` is empty or ends with a slash, this applies to all signals whose names
    /// start with it.
    Gap { prefix: String, cause: Cause, lost: u64 },
    /// An event of a signal at a past instant: values were missed, or its source restarted.
    Behind { name: String, at: i64, cause: Cause, lost: u64 },
    /// A message for the log; it starts with the signal's name.
    Told(String),
    /// The patterns to which nothing fits at present, for a source whose signals have rare values.
    Missing(Vec<String>),
}

impl Item {
    /// A number at an instant.
    pub(crate) fn number(name: String, units: &str, at: i64, value: i64) -> Self {
        Self::value(name, units, Sample::new(at, value))
    }

    /// A value with a unit.
    pub(crate) fn value(name: String, units: &str, sample: Sample) -> Self {
        Self::Sample { name, about: About { units: units.to_owned(), precision: None, labels: Vec::new() }, sample }
    }
}

/// A source of signals. Names, types and units arrive with the values.
pub(crate) trait Origin: Send {
    /// Waits for new items and adds them to `found`. An error means that the source is away. It is logged once, the source is
    /// tried again a second later, and the implementation must discard its previous state.
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String>;

    /// Whether [`look`](Self::look) also returns if there are no new items, in about a second.
    fn goes_round(&self) -> bool {
        true
    }
}

/// Result of polling a source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourcePoll {
    /// The source had items, so more may follow soon.
    pub(crate) has_data: bool,
    /// Time of the next scan; [`i64::MAX`] if no signal is scanned.
    pub(crate) due: i64,
}

enum Message {
    Items(Vec<Item>),
    Away(String),
}

/// Evidence that a pattern of names is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Its source, which reports [`Item::Missing`] itself. Values may be rare.
    Source,
    /// A value of the same process or frame: the first part of the name.
    Owner,
    /// A value of a signal that fits.
    Signal,
}

/// A source as the logger sees it.
pub(crate) struct Follower {
    /// Prefix of its signals' names: `SOURCE/OWNER/`. Empty for PVAccess, whose signals have the names of their channels.
    name: String,
    said: Receiver<Message>,
    /// Patterns of names; the first match decides.
    wanted: Patterns,
    /// By the name without prefix; `None` for signals that are not archived.
    signals: HashMap<String, Option<(SignalId, Gate)>>,
    is_there: Option<bool>,
    sign: Sign,
    /// Patterns that the source reports as missing.
    missing: Vec<String>,
    /// Signals without values since a disconnection or refusal, by the name without prefix.
    gone: HashSet<String>,
}

impl Follower {
    /// Starts one source, with its thread, per owner that the signals name.
    pub(crate) fn all(signals: &[Signal]) -> std::io::Result<Vec<Self>> {
        let mut wanted: Vec<(Source, String, Patterns)> = Vec::new();
        for signal in signals {
            let parts = match signal.source {
                Source::PvAccess => Some(("", signal.name.as_str())),
                _ => signal.streams().or_else(|| signal.name.split_once('/')),
            };
            let Some((owner, pattern)) = parts else { continue };
            // For messages, each pattern is a signal. The server filters by it.
            let key = if signal.source == Source::Messages { &signal.name } else { owner };
            let pattern = (pattern.to_owned(), signal.policy);
            match wanted.iter_mut().find(|(source, known, _)| *source == signal.source && *known == key) {
                Some((.., patterns)) => patterns.push(pattern),
                None => wanted.push((signal.source, key.to_owned(), vec![pattern])),
            }
        }
        let begin = |(source, key, wanted): (Source, String, Patterns)| {
            if source == Source::Streams {
                let origin = Box::new(Streams::new(&key, wanted));
                // The source already applies the policies, except those that depend on values.
                let wanted = origin.passed();
                let limits = (wanted, IMAGES_WAITING_MAX);
                return Some(Self::begin("streams/".to_owned(), "streams", origin, Sign::Source, limits));
            }
            let owner = key.split_once('/').map_or(key.as_str(), |(owner, _)| owner);
            let (kind, sign, origin): (_, _, Box<dyn Origin>) = match source {
                Source::ChannelAccess | Source::Variables | Source::Streams => return None,
                Source::PvAccess => {
                    let origin = PvAccess::new(wanted.iter().map(|(name, _)| name.clone()).collect());
                    let limits = (wanted, WAITING_MAX);
                    return Some(Self::begin(String::new(), "pvaccess", Box::new(origin), Sign::Signal, limits));
                }
                Source::Loops => ("loops", Sign::Owner, Box::new(Loops::new(owner))),
                Source::Frames => ("frames", Sign::Owner, Box::new(Frames::new(owner))),
                Source::Messages => ("messages", Sign::Source, Box::new(Messages::new(&key))),
                Source::Alarms => ("alarms", Sign::Signal, Box::new(Alarms::new(owner))),
            };
            Some(Self::begin(format!("{kind}/{owner}/"), kind, origin, sign, (wanted, WAITING_MAX)))
        };
        wanted.into_iter().filter_map(begin).collect()
    }

    fn begin(
        name: String,
        kind: &str,
        mut origin: Box<dyn Origin>,
        sign: Sign,
        (wanted, waiting): (Patterns, usize),
    ) -> std::io::Result<Self> {
        let (say, said) = sync_channel(waiting);
        let rounds = if origin.goes_round() { Rounds::watch(kind, HANGS_AFTER) } else { Rounds::default() };
        std::thread::Builder::new().name(kind.to_owned()).spawn(move || follow(origin.as_mut(), &say, &rounds))?;
        Ok(Self::new(name, said, wanted, sign))
    }

    fn new(name: String, said: Receiver<Message>, wanted: Patterns, sign: Sign) -> Self {
        let (signals, missing, gone) = (HashMap::new(), Vec::new(), HashSet::new());
        Self { name, said, wanted, signals, is_there: None, sign, missing, gone }
    }

    /// Adds the wanted patterns, each connected if the source has a signal that fits.
    pub(crate) fn add_to(&self, list: &mut Unconnected) {
        let owner = |name: &str| name.split('/').next().map(str::to_owned).unwrap_or_default();
        let has = |pattern: &String| match self.sign {
            Sign::Source => !self.missing.contains(pattern),
            Sign::Owner => {
                let pattern = owner(pattern);
                self.signals.keys().any(|name| !self.gone.contains(name) && fits(&pattern, &owner(name)))
            }
            // The exact name first: PVAccess may have thousands.
            Sign::Signal if self.signals.contains_key(pattern) => !self.gone.contains(pattern),
            Sign::Signal if !pattern.contains(['*', '?']) => false,
            Sign::Signal => self.signals.keys().any(|name| !self.gone.contains(name) && base::glob(pattern, name)),
        };
        for (pattern, _) in &self.wanted {
            list.add(self.is_there == Some(true) && has(pattern), || format!("{}{pattern}", self.name));
        }
    }

    /// The name in log lines.
    fn shown(&self) -> &str {
        if self.name.is_empty() { "PVAccess" } else { self.name.trim_end_matches('/') }
    }

    /// Takes the items queued since the last poll.
    pub(crate) fn look(
        &mut self,
        now: i64,
        logger: &mut Logger<Folder>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<SourcePoll, StoreError> {
        let mut has_data = false;
        // At most one queue: a source faster than the logger would otherwise keep it in this loop.
        for _ in 0..WAITING_MAX {
            match self.said.try_recv() {
                Ok(Message::Items(found)) => {
                    has_data = true;
                    // An error message alone does not mean that the source is connected.
                    let is_there = found.is_empty() || found.iter().any(|one| matches!(one, Item::Sample { .. }));
                    if is_there && self.is_there != Some(true) {
                        self.is_there = Some(true);
                        tell(&format!("{}: connected", self.shown()));
                    }
                    for one in found {
                        self.take(one, now, logger, tell)?;
                    }
                }
                Ok(Message::Away(why)) => {
                    if self.is_there != Some(false) {
                        self.is_there = Some(false);
                        tell(&format!("{}: away: {why}", self.shown()));
                        self.gap("", Cause::Disconnected, 0, logger);
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let mut due = i64::MAX;
        for (signal, gate) in self.signals.values_mut().flatten() {
            kept::scan(gate, *signal, now, logger);
            due = due.min(gate.due().unwrap_or(i64::MAX));
        }
        Ok(SourcePoll { has_data, due })
    }

    fn take(
        &mut self,
        found: Item,
        now: i64,
        logger: &mut Logger<Folder>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), StoreError> {
        let (name, about, sample) = match found {
            Item::Sample { name, about, sample } => (name, about, sample),
            Item::Gap { prefix, cause, lost } => {
                self.gap(&prefix, cause, lost, logger);
                return Ok(());
            }
            Item::Behind { name, at, cause, lost } => {
                match self.signals.get_mut(&name) {
                    // Not a fault: the source continues.
                    Some(Some((signal, _))) if cause == Cause::Overflow => logger.gap(Some(*signal), at, cause, lost),
                    Some(Some((signal, gate))) => kept::gap(gate, *signal, (at, cause, lost), logger),
                    Some(None) | None => {}
                }
                return Ok(());
            }
            Item::Told(what) => {
                tell(&format!("{}{what}", self.name));
                return Ok(());
            }
            Item::Missing(patterns) => {
                self.missing = patterns;
                return Ok(());
            }
        };
        if !self.gone.is_empty() {
            self.gone.remove(&name);
        }
        if !self.signals.contains_key(&name) {
            let known = match self.wanted.iter().find(|(pattern, _)| fits(pattern, &name)) {
                Some((_, policy)) => match logger.signal(&format!("{}{name}", self.name), about, sample.at) {
                    Ok(signal) => Some((signal, Gate::new(*policy, now))),
                    // The source reported an invalid name. Archive its other signals.
                    Err(error @ StoreError::Name { .. }) => {
                        tell(&format!("{}{name}: not archived: {error}", self.name));
                        None
                    }
                    Err(error) => return Err(error),
                },
                None => None,
            };
            self.signals.insert(name.clone(), known);
        }
        if let Some(Some((signal, gate))) = self.signals.get_mut(&name) {
            kept::update(gate, *signal, sample, logger);
        }
        Ok(())
    }

    fn gap(&mut self, prefix: &str, cause: Cause, lost: u64, logger: &mut Logger<Folder>) {
        let at = crate::serve::wall();
        let is_of_all = prefix.is_empty() || prefix.ends_with('/');
        let is_meant = |name: &str| if is_of_all { name.starts_with(prefix) } else { name == prefix };
        for (name, known) in self.signals.iter_mut().filter(|(name, _)| is_meant(name)) {
            if matches!(cause, Cause::Disconnected | Cause::Refused) {
                self.gone.insert(name.clone());
            }
            let Some((signal, gate)) = known else { continue };
            kept::gap(gate, *signal, (at, cause, lost), logger);
        }
    }
}

/// Thread of a source: polls until the logger drops the receiver.
fn follow(origin: &mut dyn Origin, say: &SyncSender<Message>, rounds: &Rounds) {
    loop {
        rounds.count();
        let mut found = Vec::new();
        let looked = origin.look(&mut found);
        // An empty list means connected, so it is not sent with an error.
        if (looked.is_ok() || !found.is_empty()) && say.send(Message::Items(found)).is_err() {
            return;
        }
        if let Err(why) = looked {
            if say.send(Message::Away(why)).is_err() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// A histogram as an archived array.
pub(crate) fn array(values: Vec<i64>) -> Datum {
    Datum::Array(base::Array::I64(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_reports_only_faults_is_not_connected() {
        let folder = harness::Folder::new();
        let mut logger = Logger::open(Folder::new(&folder.0), store::Config::default(), 0).unwrap();
        let (say, said) = sync_channel(8);
        let wanted = vec![("*".to_owned(), Policy::Monitor { deadband: 0.0 })];
        let mut followed = Follower::new("streams/".into(), said, wanted, Sign::Source);
        let gap = || Item::Gap { prefix: "x".into(), cause: Cause::Disconnected, lost: 0 };
        for said in [
            Message::Away("none".into()),
            Message::Items(vec![Item::Told("x: not archived: a link".into()), gap()]),
            Message::Away("none that can be read".into()),
            Message::Items(vec![Item::number("y".into(), "", 1, 7)]),
        ] {
            assert!(say.send(said).is_ok());
        }
        let mut told = Vec::new();
        followed.look(0, &mut logger, &mut |line| told.push(line.to_owned())).unwrap();
        assert_eq!(told, ["streams: away: none", "streams/x: not archived: a link", "streams: connected"]);
    }

    #[test]
    fn a_pattern_is_unconnected_until_its_source_has_a_signal_that_fits_and_while_that_is_away() {
        let folder = harness::Folder::new();
        let mut logger = Logger::open(Folder::new(&folder.0), store::Config::default(), 0).unwrap();
        let follower = |name: &str, patterns: &[&str], sign| {
            let (say, said) = sync_channel(8);
            let all = Policy::Monitor { deadband: 0.0 };
            let wanted = patterns.iter().map(|pattern| ((*pattern).to_owned(), all)).collect();
            (say, Follower::new(name.into(), said, wanted, sign))
        };
        let mut text = |followed: &mut Follower| {
            followed.look(0, &mut logger, &mut |_| ()).unwrap();
            let mut list = Unconnected::default();
            followed.add_to(&mut list);
            list.text()
        };
        let of = |name: &str| Item::number(name.into(), "", 1, 7);
        let gap = |prefix: &str| Item::Gap { prefix: prefix.into(), cause: Cause::Disconnected, lost: 0 };
        let say = |to: &SyncSender<Message>, items: Vec<Item>| assert!(to.send(Message::Items(items)).is_ok());

        let (to, mut loops) = follower("loops/x/", &["a/p99", "b/*"], Sign::Owner);
        assert_eq!(text(&mut loops), "2 of 2 signals not connected: loops/x/a/p99, loops/x/b/*");
        say(&to, vec![of("a/count")]);
        assert_eq!(text(&mut loops), "1 of 2 signals not connected: loops/x/b/*", "a slow loop has few times");
        say(&to, vec![of("b/count"), gap("a/")]);
        assert_eq!(text(&mut loops), "1 of 2 signals not connected: loops/x/a/p99");
        say(&to, vec![of("a/count")]);
        assert_eq!(text(&mut loops), "");
        assert!(to.send(Message::Away("none".into())).is_ok());
        assert_eq!(text(&mut loops), "2 of 2 signals not connected: loops/x/a/p99, loops/x/b/*");

        let (to, mut pvaccess) = follower("", &["A", "B"], Sign::Signal);
        say(&to, vec![of("A")]);
        assert_eq!(text(&mut pvaccess), "1 of 2 signals not connected: B");
        say(&to, vec![of("B"), gap("A")]);
        assert_eq!(text(&mut pvaccess), "1 of 2 signals not connected: A");

        let (to, mut messages) = follower("messages/m/", &["put/*"], Sign::Source);
        assert_eq!(text(&mut messages), "1 of 1 signals not connected: messages/m/put/*");
        say(&to, vec![]);
        assert_eq!(text(&mut messages), "", "there may be no message for a long time");
        say(&to, vec![Item::Missing(vec!["put/*".into()])]);
        assert_eq!(text(&mut messages), "1 of 1 signals not connected: messages/m/put/*");
    }

    #[test]
    fn a_poll_returns_whether_data_arrived_and_when_a_scan_is_due() {
        let folder = harness::Folder::new();
        let mut logger = Logger::open(Folder::new(&folder.0), store::Config::default(), 0).unwrap();
        let (say, said) = sync_channel(4);
        let scan = Policy::Scan { period: DurNs::from_secs(10) };
        let wanted = vec![("slow".to_owned(), scan), ("*".to_owned(), Policy::Monitor { deadband: 0.0 })];
        let mut followed = Follower::new("loops/x/".into(), said, wanted, Sign::Owner);
        let mut look = |now| followed.look(now, &mut logger, &mut |_| ()).unwrap();
        assert_eq!(look(5), SourcePoll { has_data: false, due: i64::MAX });
        let of = |name: &str| Item::number(name.into(), "", 1, 7);
        assert!(say.send(Message::Items(vec![of("fast")])).is_ok());
        assert_eq!(look(6), SourcePoll { has_data: true, due: i64::MAX });
        assert!(say.send(Message::Items(vec![of("slow")])).is_ok());
        let first = look(7);
        assert!(first.has_data && first.due == 7 + 10_000_000_000, "{first:?}");
        assert_eq!(look(8), SourcePoll { has_data: false, due: first.due });
    }
}

//! The link of one host: announces the local objects to other hosts, and tracks theirs.

use crate::claims::Claims;
use crate::error::{LinkError, ListError};
use crate::far::{self, Shared};
use crate::key::{self, HostName};
use crate::near::Neighbour;
use base::{DurNs, MonoNs};
use broker::{Client, ClientError, Sending};
use msg::{Band, Code, Pattern};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use sys::clock::mono_now;
use zenoh::liveliness::LivelinessToken;
use zenoh::sample::{Sample, SampleKind};
use zenoh::{Session, Wait};

/// Time between two requests for the local objects to the message server.
const ASK: DurNs = DurNs::from_ms(250);
/// Time between two rounds of the link.
const LOOK: Duration = Duration::from_millis(50);

/// Default maximum bytes of a body.
pub const BODIES: u64 = 4 << 20;

/// Configuration of a link.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of this host for other hosts.
    pub host: HostName,
    /// Name of this host's message server.
    pub server: String,
    /// Addresses to listen on, such as `tcp/192.168.1.5:7447`. If empty, the link does not listen.
    pub listen: Vec<String>,
    /// Addresses to connect to. One host of each group is enough; it announces the others.
    pub connect: Vec<String>,
    /// Whether hosts in the same network are discovered by multicast.
    pub discover: bool,
    /// Local objects visible to other hosts; empty: all. Write access is decided by the message server's rules.
    pub serve: Vec<Pattern>,
    /// Maximum bytes of a body in either direction.
    pub bodies: u64,
    /// Configuration file of Zenoh, for certificates and access control. The settings above are added to it.
    pub zenoh: Option<PathBuf>,
}

/// Event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The link forwards requests.
    Ready,
    /// The objects of another host have changed. An empty list: it has gone.
    Serves(HostName, Vec<String>),
    /// First request of a host.
    Asks(HostName),
    /// A fault. The link retries.
    Trouble(String),
}

/// Forwards messages between this host's server and those of other hosts until `stop` is set.
///
/// # Errors
/// Zenoh's configuration or addresses are not usable.
pub fn run(config: &Config, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Event)) -> Result<(), LinkError> {
    let session = zenoh::open(zenoh_config(config)?).wait().map_err(LinkError::Zenoh)?;
    let (events, news) = channel();
    let (claims, claimed) = channel();
    let shared = Shared::new(&config.server, &config.host, config.bodies, &events);
    let listening: zenoh::Result<Vec<_>> = Band::all().map(|band| far::listen(&session, &shared, band)).collect();
    let _listening = listening.map_err(LinkError::Zenoh)?;
    let watching = session.liveliness().declare_subscriber(key::CLAIMS).history(true);
    let watching = watching.callback(move |sample: Sample| {
        // The link's thread holds the receiver until it ends.
        let _ = claims.send((sample.kind() == SampleKind::Put, sample.key_expr().as_str().to_owned()));
    });
    let _watching = watching.wait().map_err(LinkError::Zenoh)?;
    say(Event::Ready);
    let mut link = Link {
        config,
        session: session.clone(),
        client: None,
        announced: HashMap::new(),
        local: BTreeSet::new(),
        others: Claims::default(),
        left_out: None,
        neighbours: BTreeMap::new(),
        trouble: None,
        say,
    };
    let mut ask = MonoNs(0);
    while !stop.load(Ordering::Relaxed) {
        let mut changed = link.hear(&claimed);
        if mono_now() >= ask {
            changed |= link.ask();
            ask = mono_now() + ASK;
        }
        if changed || link.neighbours.values().any(|neighbour| !neighbour.is_alive()) {
            link.settle();
        }
        while let Ok(event) = news.try_recv() {
            (link.say)(event);
        }
        std::thread::sleep(LOOK);
    }
    drop(link);
    session.close().wait().map_err(LinkError::Zenoh)
}

fn zenoh_config(config: &Config) -> Result<zenoh::Config, LinkError> {
    let mut zenoh = match &config.zenoh {
        Some(file) => {
            zenoh::Config::from_file(file).map_err(|source| LinkError::File { file: file.clone(), source })?
        }
        None => zenoh::Config::default(),
    };
    let quoted = |addresses: &[String]| serde_json::to_string(addresses).unwrap_or_default();
    let mut settings = vec![("mode", "\"peer\"".to_owned())];
    // By default Zenoh listens on all interfaces. Here it listens only on the configured addresses.
    if !config.listen.is_empty() || config.zenoh.is_none() {
        settings.push(("listen/endpoints", quoted(&config.listen)));
    }
    if !config.connect.is_empty() {
        settings.push(("connect/endpoints", quoted(&config.connect)));
    }
    if config.discover || config.zenoh.is_none() {
        settings.push(("scouting/multicast/enabled", config.discover.to_string()));
    }
    for (name, value) in settings {
        zenoh.insert_json5(name, &value).map_err(|source| LinkError::Setting { name, value, source })?;
    }
    Ok(zenoh)
}

struct Link<'a> {
    config: &'a Config,
    session: Session,
    client: Option<Client>,
    /// Announced objects.
    announced: HashMap<String, LivelinessToken>,
    /// Objects served by managers of this host.
    local: BTreeSet<String>,
    /// Claims of other hosts.
    others: Claims,
    /// The last report about claims that were not accepted.
    left_out: Option<String>,
    neighbours: BTreeMap<HostName, Neighbour>,
    /// The last fault reported, so that it is reported once.
    trouble: Option<String>,
    say: &'a mut dyn FnMut(Event),
}

impl Link<'_> {
    /// Processes the claims of other hosts. Returns whether any accepted claim has changed.
    fn hear(&mut self, claimed: &Receiver<(bool, String)>) -> bool {
        let (mut touched, mut came) = (BTreeSet::new(), false);
        while let Ok((there, key)) = claimed.try_recv() {
            came = true;
            let Some((host, prefix)) = key::parse_claim(&key) else { continue };
            if host == self.config.host {
                continue;
            }
            match there {
                true if self.others.add(&host, prefix) => drop(touched.insert(host)),
                true => {}
                false => touched.extend(self.others.remove(&host, prefix)),
            }
        }
        for host in &touched {
            let serves =
                self.others.known().get(host).map(|serves| serves.iter().cloned().collect()).unwrap_or_default();
            (self.say)(Event::Serves(host.clone(), serves));
        }
        let left_out = self.others.left_out();
        // Reported only in a pass without new claims, because a host announces its objects one by one.
        if !came && left_out != self.left_out {
            let all_are_in = || "all objects of other hosts are available again".to_owned();
            (self.say)(Event::Trouble(left_out.clone().unwrap_or_else(all_are_in)));
            self.left_out = left_out;
        }
        !touched.is_empty()
    }

    /// Requests the local objects from the message server and announces them. Returns whether they have changed.
    fn ask(&mut self) -> bool {
        let local = match self.served() {
            Ok(local) => local,
            Err(why) => {
                self.client = None;
                self.trouble(why.to_string());
                BTreeSet::new()
            }
        };
        if local == self.local {
            return false;
        }
        let shown = |prefix: &&String| {
            self.config.serve.is_empty() || self.config.serve.iter().any(|pattern| pattern.fits(prefix))
        };
        let tell: BTreeSet<String> = local.iter().filter(shown).cloned().collect();
        self.announced.retain(|prefix, _| tell.contains(prefix));
        for prefix in tell {
            if self.announced.contains_key(&prefix) {
                continue;
            }
            match self.session.liveliness().declare_token(key::claim(&self.config.host, &prefix)).wait() {
                Ok(token) => {
                    self.announced.insert(prefix, token);
                }
                Err(error) => self.trouble(format!("announce {prefix}: {error}")),
            }
        }
        self.local = local;
        true
    }

    /// Objects served by managers of this host.
    fn served(&mut self) -> Result<BTreeSet<String>, ListError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&self.config.server, "link", Band::DEFAULT)?),
        };
        let sending = Sending { limit: DurNs::from_secs(1), ..Sending::default() };
        let (lines, last) = client.list("*", &sending)?;
        if last.code != Code::Ok {
            return Err(ListError::Failed { code: last.code, why: last.text });
        }
        let pairs = lines.iter().flat_map(|line| line.split_whitespace()).filter_map(|word| word.split_once('='));
        Ok(pairs.filter(|(_, manager)| !manager.starts_with("host:")).map(|(prefix, _)| prefix.to_owned()).collect())
    }

    /// Registers one manager per remote host at this host's message server. Objects that are served locally, or by a
    /// host earlier in alphabetical order, are omitted, so that all hosts agree.
    fn settle(&mut self) {
        let mut taken = self.local.clone();
        let mut wanted = BTreeMap::new();
        for (host, serves) in self.others.known() {
            let new: BTreeSet<String> = serves.difference(&taken).cloned().collect();
            taken.extend(new.iter().cloned());
            if !new.is_empty() {
                wanted.insert(host.clone(), new);
            }
        }
        self.neighbours.retain(|host, neighbour| wanted.get(host) == Some(&neighbour.serves) && neighbour.is_alive());
        for (host, serves) in wanted {
            if self.neighbours.contains_key(&host) {
                continue;
            }
            match Neighbour::new(&self.session, self.config, &host, serves) {
                Ok(neighbour) => {
                    self.neighbours.insert(host, neighbour);
                    self.trouble = None;
                }
                Err(why) => {
                    let fewer = match why {
                        ClientError::Message(_) => format!("; or serve fewer objects of host {host} (`--serve` there)"),
                        _ => String::new(),
                    };
                    self.trouble(format!("register what host {host} serves: {why}{fewer}"));
                    // Repeats the request for local objects, which leads to another attempt.
                    self.local.clear();
                }
            }
        }
    }

    fn trouble(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            self.trouble = Some(why.clone());
            (self.say)(Event::Trouble(why));
        }
    }
}

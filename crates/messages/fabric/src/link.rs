//! The link of one host: tells the others what is served here, and knows what they serve.

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

/// How often it asks the message server what is served here.
const ASK: DurNs = DurNs::from_ms(250);
/// How often it looks at everything else.
const LOOK: Duration = Duration::from_millis(50);

/// Largest body in bytes, unless somebody says otherwise.
pub const BODIES: u64 = 4 << 20;

/// A link.
#[derive(Clone, Debug)]
pub struct Config {
    /// What this host is called by the others.
    pub host: HostName,
    /// The message server of this host.
    pub server: String,
    /// Where others may connect: `tcp/192.168.1.5:7447`. None: nowhere.
    pub listen: Vec<String>,
    /// Whom to connect to; one host of each group is enough, it tells of the others.
    pub connect: Vec<String>,
    /// Whether hosts of the same network are found by multicast.
    pub discover: bool,
    /// What of this host's objects others may see; empty: all. Who may change them is for the message server's rules.
    pub serve: Vec<Pattern>,
    /// Largest body in bytes, either way.
    pub bodies: u64,
    /// A configuration file of Zenoh's own, for certificates and access control; what is given above is added.
    pub zenoh: Option<PathBuf>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Requests pass from now on.
    Ready,
    /// Another host serves these now; none: it has gone.
    Serves(HostName, Vec<String>),
    /// A host has asked for the first time.
    Asks(HostName),
    /// Something does not work; it is tried again.
    Trouble(String),
}

/// Passes messages between this host's server and the others' until `stop` is set.
///
/// # Errors
/// Zenoh's configuration or addresses cannot be used.
pub fn run(config: &Config, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Event)) -> Result<(), LinkError> {
    let session = zenoh::open(zenoh_config(config)?).wait().map_err(LinkError::Zenoh)?;
    let (events, news) = channel();
    let (claims, claimed) = channel();
    let shared = Shared::new(&config.server, &config.host, config.bodies, &events);
    let listening: zenoh::Result<Vec<_>> = Band::all().map(|band| far::listen(&session, &shared, band)).collect();
    let _listening = listening.map_err(LinkError::Zenoh)?;
    let watching = session.liveliness().declare_subscriber(key::CLAIMS).history(true);
    let watching = watching.callback(move |sample: Sample| {
        // The link's thread listens until it ends.
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
    // Zenoh listens on all interfaces unless it is told; here nothing is open that nobody asked for.
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
    /// What the others have been told.
    announced: HashMap<String, LivelinessToken>,
    /// What managers of this host serve.
    local: BTreeSet<String>,
    /// What other hosts say that they serve.
    others: Claims,
    /// What was said of what is left out.
    left_out: Option<String>,
    neighbours: BTreeMap<HostName, Neighbour>,
    /// What was said last, to say it once.
    trouble: Option<String>,
    say: &'a mut dyn FnMut(Event),
}

impl Link<'_> {
    /// Takes in what other hosts tell. Says whether anything changed.
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
        // Said when no more come: what a host serves comes one by one.
        if !came && left_out != self.left_out {
            let all_are_in = || "all objects of other hosts are available again".to_owned();
            (self.say)(Event::Trouble(left_out.clone().unwrap_or_else(all_are_in)));
            self.left_out = left_out;
        }
        !touched.is_empty()
    }

    /// Asks the message server what is served here, and tells the others. Says whether anything changed.
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

    /// What managers of this host serve.
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

    /// Lets the message server of this host have one manager for each other host. What is served here or by a host
    /// that comes before in the alphabet is left out, so that all hosts agree.
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
                        ClientError::Message(_) => format!("; or let host {host} show fewer objects (`--serve` there)"),
                        _ => String::new(),
                    };
                    self.trouble(format!("register what host {host} serves: {why}{fewer}"));
                    // Ask anew, and so come here again.
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

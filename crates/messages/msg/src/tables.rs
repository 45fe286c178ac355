//! Tables shared by all lanes of a message server: routes, access rules, deadlines, locks.

use crate::deadline::DeadlineRule;
use crate::header::{BANDS, Band, Subject};
use crate::object::{Object, Pattern};
use alloc::string::String;
use alloc::vec::Vec;
use base::verb::Effect;
use base::{ResultDeadline, Verb};
use core::fmt;
use core::str::FromStr;

/// A connection to a message server: a slot and its generation. The generation prevents a late message for an earlier
/// connection from reaching the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conn {
    /// The slot.
    pub slot: u32,
    /// Its generation.
    pub turn: u32,
}

/// Maximum number of remote hosts known by name.
const HOSTS_MAX: usize = 256;

/// A manager's claim. It covers the object of that name and all objects whose names extend it with an underscore. The
/// longest matching claim decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Prefix of the names of the claimed objects.
    pub prefix: String,
    /// The manager.
    pub to: Conn,
    /// The manager's name.
    pub manager: String,
    /// The bands on which it takes requests: a bit mask, 1 << band.
    pub bands: u8,
}

impl Route {
    /// Whether the manager takes requests on a band.
    #[must_use]
    pub fn is_on(&self, band: Band) -> bool {
        self.bands & 1 << band.number() != 0
    }
}

/// Effect of an access rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Permits the request.
    Allow,
    /// Forbids the request.
    Deny,
}

/// An access rule. The first matching rule decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its effect.
    pub access: Access,
    /// Users to which it applies; `None`: all.
    pub users: Option<Vec<u32>>,
    /// Hosts to which it applies.
    pub hosts: Hosts,
    /// Verbs to which it applies; `None`: all.
    pub verbs: Option<Vec<Verb>>,
    /// Bands to which it applies: a bit mask, 1 << band.
    pub bands: u8,
    /// Objects to which it applies.
    pub objects: Pattern,
}

/// Hosts to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All hosts.
    All,
    /// This host.
    Local,
    /// All hosts but this one.
    Other,
    /// Remote hosts by the names that links assign. `zmq` means ZeroMQ clients.
    Named(Vec<String>),
}

/// Maximum bytes of a host's name.
pub const HOST_BYTES_MAX: usize = 48;

/// Whether a text is a valid host name: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_host(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// A text that is not a valid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The invalid word.
    pub found: String,
    /// The expected words.
    pub expected: &'static str,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in a rule, expected {}", self.found, self.expected)
    }
}

impl core::error::Error for RuleError {}

impl FromStr for Rule {
    type Err = RuleError;

    /// Example: `deny objects=sr_rf_* verbs=put,call bands=6,7 users=1000 hosts=other`. All words but the first are
    /// optional. Hosts are `local`, `other`, or names such as `hosts=control-1,zmq`.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let error = |found: &str, expected| RuleError { found: found.into(), expected };
        let mut words = text.split_whitespace();
        let access = match words.next().unwrap_or_default() {
            "allow" => Access::Allow,
            "deny" => Access::Deny,
            other => return Err(error(other, "allow or deny first")),
        };
        let all = Pattern::new("*").map_err(|_| error("*", "a pattern"))?;
        let mut rule = Self { access, users: None, hosts: Hosts::All, verbs: None, bands: u8::MAX, objects: all };
        for word in words {
            match word.split_once('=') {
                Some(("objects", text)) => rule.objects = objects(text)?,
                Some(("verbs", text)) => rule.verbs = Some(verbs(text)?),
                Some(("bands", text)) => rule.bands = bands(text)?,
                Some(("users", users)) => {
                    let users: Result<_, _> =
                        users.split(',').map(|user| user.parse().map_err(|_| error(user, "a user's number"))).collect();
                    rule.users = Some(users?);
                }
                Some(("hosts", "local")) => rule.hosts = Hosts::Local,
                Some(("hosts", "other")) => rule.hosts = Hosts::Other,
                Some(("hosts", names)) => {
                    if let Some(wrong) =
                        names.split(',').find(|name| !is_host(name) || matches!(*name, "local" | "other"))
                    {
                        return Err(error(wrong, "local, other, or names of hosts"));
                    }
                    rule.hosts = Hosts::Named(names.split(',').map(String::from).collect());
                }
                _ => return Err(error(word, "objects=, verbs=, bands=, users= or hosts=")),
            }
        }
        Ok(rule)
    }
}

fn wrong(found: &str, expected: &'static str) -> RuleError {
    RuleError { found: found.into(), expected }
}

/// Parses the value of `objects=`.
pub(crate) fn objects(text: &str) -> Result<Pattern, RuleError> {
    Pattern::new(text).map_err(|_| wrong(text, "a name with * and ?"))
}

/// Parses the value of `verbs=`.
pub(crate) fn verbs(text: &str) -> Result<Vec<Verb>, RuleError> {
    text.split(',').map(|verb| verb.parse().map_err(|_| wrong(verb, "a verb"))).collect()
}

/// Parses the value of `bands=`: a bit mask, 1 << band.
pub(crate) fn bands(text: &str) -> Result<u8, RuleError> {
    text.split(',').try_fold(0, |bands, number| {
        let band = number.parse().ok().and_then(Band::new);
        Ok(bands | 1 << band.ok_or_else(|| wrong(number, "a band, 0 to 7"))?.number())
    })
}

impl Rule {
    /// `host` is the name of the subject's host; `None`: this one.
    fn fits(&self, subject: Subject, host: Option<&str>, band: Band, verb: Verb, object: &str) -> bool {
        let fits = match (&self.hosts, host) {
            (Hosts::All, _) | (Hosts::Local, None) | (Hosts::Other, Some(_)) => true,
            (Hosts::Named(names), Some(host)) => names.iter().any(|name| name == host),
            _ => false,
        };
        fits && self.bands & 1 << band.number() != 0 && self.fits_else(subject, verb, object)
    }

    fn fits_else(&self, subject: Subject, verb: Verb, object: &str) -> bool {
        self.users.as_ref().is_none_or(|users| users.contains(&subject.uid))
            && self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&verb))
            && self.objects.fits(object)
    }
}

/// A locked object. Only the holder may change it, and the objects whose names extend its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The object.
    pub object: String,
    /// The connection that holds it. The lock ends with the connection.
    pub holder: Conn,
    /// The holder's user and process.
    pub subject: Subject,
}

/// The tables. A change replaces them as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Sorted by prefix.
    routes: Vec<Route>,
    /// In order of evaluation.
    pub rules: Vec<Rule>,
    /// Deadlines of answers, in order of evaluation.
    pub deadlines: Vec<DeadlineRule>,
    /// Names of remote hosts. The first is that of `Subject::host` 1.
    hosts: Vec<String>,
    /// Unsorted, since there are few.
    pub locks: Vec<Lock>,
    /// For each band, whether it has a watch. If so all messages are logged, otherwise writes and errors.
    pub watched: [bool; BANDS],
}

/// Names under which `object` can be claimed or locked: itself, then each prefix without the last word.
fn claims(object: &str) -> impl Iterator<Item = &str> {
    core::iter::successors(Some(object), |name| name.bytes().rposition(|byte| byte == b'_').map(|at| &name[..at]))
}

impl Tables {
    /// All routes, sorted by prefix.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Adds a route.
    ///
    /// # Errors
    /// The existing route with this prefix.
    pub fn add_route(&mut self, route: Route) -> Result<(), Route> {
        match self.routes.binary_search_by(|known| known.prefix.cmp(&route.prefix)) {
            Ok(at) => Err(self.routes[at].clone()),
            Err(at) => {
                self.routes.insert(at, route);
                Ok(())
            }
        }
    }

    /// Removes the routes and locks of a connection.
    pub fn forget(&mut self, conn: Conn) {
        self.routes.retain(|route| route.to != conn);
        self.locks.retain(|lock| lock.holder != conn);
    }

    /// The route of an object: the longest matching claim.
    ///
    /// Real-time: does not allocate; one binary search for each word of the name.
    #[must_use]
    pub fn route(&self, object: &str) -> Option<&Route> {
        claims(object).find_map(|name| {
            let found = self.routes.binary_search_by(|route| route.prefix.as_str().cmp(name));
            found.ok().map(|at| &self.routes[at])
        })
    }

    /// The number of a remote host in subjects, assigned on first use; `None`: too many hosts are known.
    pub fn number(&mut self, host: &str) -> Option<u16> {
        let known = self.hosts.iter().position(|known| known == host);
        if known.is_none() && self.hosts.len() >= HOSTS_MAX {
            return None;
        }
        let at = known.unwrap_or_else(|| {
            self.hosts.push(host.into());
            self.hosts.len() - 1
        });
        Some(at as u16 + 1)
    }

    /// Name of a subject's host; `None`: this one.
    #[must_use]
    pub fn host(&self, subject: Subject) -> Option<&str> {
        let at = usize::from(subject.host).checked_sub(1)?;
        Some(self.hosts.get(at).map_or("?", String::as_str))
    }

    /// Text of a subject, with the name of its host.
    pub fn who(&self, subject: Subject) -> impl fmt::Display {
        let host = self.host(subject);
        fmt::from_fn(move |f| {
            write!(f, "{}", Subject { host: 0, ..subject })?;
            host.map_or(Ok(()), |host| write!(f, " host {host}"))
        })
    }

    /// Effect of the first rule that matches a request; `None`: no rule matches.
    #[must_use]
    pub fn rule(&self, subject: Subject, band: Band, verb: Verb, object: &str) -> Option<Access> {
        let host = self.host(subject);
        self.rules.iter().find(|rule| rule.fits(subject, host, band, verb, object)).map(|rule| rule.access)
    }

    /// Deadline of the answer to a request, and the value of a late answer; `None`: no rule matches.
    #[must_use]
    pub fn deadline(&self, band: Band, verb: Verb, object: &str) -> Option<ResultDeadline> {
        self.deadlines.iter().find(|rule| rule.fits(band, verb, object)).map(|rule| rule.result)
    }

    /// Access without a matching rule: root and the server's own user on this host may do everything, others may only
    /// read.
    #[must_use]
    pub fn without_rule(subject: Subject, verb: Verb, is_ours: bool) -> Access {
        match subject.host == 0 && is_ours || verb.row().effect == Effect::Reads {
            true => Access::Allow,
            false => Access::Deny,
        }
    }

    /// Another connection's lock that forbids this connection to change an object.
    #[must_use]
    pub fn lock_against(&self, conn: Conn, object: &str) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.holder != conn && claims(object).any(|name| name == lock.object))
    }

    /// Locks an object for a connection. Locking it twice has no further effect.
    ///
    /// # Errors
    /// The conflicting lock.
    pub fn lock(&mut self, conn: Conn, subject: Subject, object: Object<'_>) -> Result<(), Lock> {
        let name = object.text();
        let below = |lock: &&Lock| claims(&lock.object).any(|claim| claim == name);
        let others = self.locks.iter().filter(|lock| lock.holder != conn).find(below);
        if let Some(lock) = self.lock_against(conn, name).or(others) {
            return Err(lock.clone());
        }
        if !self.locks.iter().any(|lock| lock.object == name) {
            self.locks.push(Lock { object: name.into(), holder: conn, subject });
        }
        Ok(())
    }

    /// Releases a lock. Returns whether the connection held it.
    pub fn unlock(&mut self, conn: Conn, object: Object<'_>) -> bool {
        let before = self.locks.len();
        self.locks.retain(|lock| lock.holder != conn || lock.object != object.text());
        self.locks.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Conn = Conn { slot: 1, turn: 1 };
    const B: Conn = Conn { slot: 2, turn: 1 };

    fn route(prefix: &str, to: Conn) -> Route {
        Route { prefix: prefix.into(), to, manager: "m".into(), bands: 0xff }
    }

    #[test]
    fn the_longest_claim_is_the_route_and_it_ends_at_a_word() {
        let mut tables = Tables::default();
        tables.add_route(route("sr", A)).unwrap();
        tables.add_route(route("sr_mag", B)).unwrap();
        assert_eq!(tables.add_route(route("sr", B)), Err(route("sr", A)));
        for (object, to) in [("sr_mag_ps_b", Some(B)), ("sr_mag", Some(B)), ("sr_magnet", Some(A)), ("li_gun", None)] {
            assert_eq!(tables.route(object).map(|route| route.to), to, "{object}");
        }
        tables.forget(B);
        assert_eq!(tables.route("sr_mag_ps_b").map(|route| route.to), Some(A));
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_others_may_only_read_without_one() {
        let near = Subject { uid: 1000, pid: 7, host: 0 };
        let far = Subject { host: 1, ..near };
        let mut tables = Tables::default();
        let band = Band::DEFAULT;
        let access = |tables: &Tables, who: Subject, verb, object| {
            let without = || Tables::without_rule(who, verb, who.uid == 1000);
            tables.rule(who, band, verb, object).unwrap_or_else(without)
        };
        assert_eq!(access(&tables, near, Verb::Put, "sr_a"), Access::Allow);
        let neighbour = Subject { uid: 1001, ..near };
        for other in [far, neighbour] {
            for verb in [Verb::Get, Verb::Describe, Verb::Watch, Verb::List, Verb::Ping] {
                assert_eq!(access(&tables, other, verb, "sr_a"), Access::Allow, "{verb}");
            }
            for verb in [Verb::Put, Verb::Set, Verb::Call, Verb::Batch, Verb::Lock] {
                assert_eq!(access(&tables, other, verb, "sr_a"), Access::Deny, "{verb}");
            }
        }
        tables.rules =
            ["deny objects=sr_* users=1000 verbs=call", "allow hosts=other objects=sr_*", "allow users=1001"]
                .map(|rule| rule.parse().unwrap())
                .into();
        assert_eq!(access(&tables, near, Verb::Call, "sr_a"), Access::Deny);
        assert_eq!(access(&tables, far, Verb::Put, "sr_a"), Access::Allow);
        assert_eq!(access(&tables, far, Verb::Put, "li_a"), Access::Deny);
        assert_eq!(access(&tables, neighbour, Verb::Put, "li_a"), Access::Allow);
        tables.rules = ["allow hosts=b,zmq verbs=put", "deny hosts=local"].map(|rule| rule.parse().unwrap()).into();
        let [a, b, zmq] = ["a", "b", "zmq"].map(|name| Subject { host: tables.number(name).unwrap(), ..near });
        assert_eq!((a.host, b.host, tables.number("a"), tables.host(b)), (1, 2, Some(1), Some("b")));
        let found = [a, b, zmq, near].map(|who| access(&tables, who, Verb::Put, "sr_a"));
        assert_eq!(found, [Access::Deny, Access::Allow, Access::Allow, Access::Deny]);
        assert_eq!(
            access(&tables, Subject { host: 9, ..near }, Verb::Put, "sr_a"),
            Access::Deny,
            "a host that was never known"
        );
    }

    #[test]
    fn a_rule_may_be_limited_to_bands() {
        let tables = Tables { rules: [("deny bands=6,7 users=1001").parse().unwrap()].into(), ..Tables::default() };
        let rule =
            |band, uid| tables.rule(Subject { uid, ..Subject::default() }, Band::new(band).unwrap(), Verb::Get, "a");
        assert_eq!([5, 6, 7].map(|band| rule(band, 1001)), [None, Some(Access::Deny), Some(Access::Deny)]);
        assert_eq!(rule(7, 1000), None);
        for text in ["allow bands=8", "allow bands=", "allow bands=1,x"] {
            assert_eq!(text.parse::<Rule>().unwrap_err().expected, "a band, 0 to 7");
        }
    }

    #[test]
    fn a_malformed_rule_is_refused_with_the_wrong_word() {
        for (text, found) in [("forbid x", "forbid"), ("deny verbs=open", "open"), ("allow hosts=b,c/d", "c/d")] {
            assert_eq!(text.parse::<Rule>().unwrap_err().found, found);
        }
    }

    #[test]
    fn a_lock_covers_the_object_and_all_below_it_until_its_holder_leaves() {
        let mut tables = Tables::default();
        let who = Subject::default();
        let object = Object::new("sr_mag").unwrap();
        tables.lock(A, who, object).unwrap();
        tables.lock(A, who, object).unwrap();
        assert!(tables.lock_against(B, "sr_mag_ps_b").is_some() && tables.lock_against(A, "sr_mag").is_none());
        assert!(tables.lock_against(B, "sr_magnet").is_none());
        assert!(tables.lock(B, who, Object::new("sr_mag_ps_b").unwrap()).is_err(), "below a lock");
        assert!(tables.lock(B, who, Object::new("sr").unwrap()).is_err(), "above a lock");
        assert!(!tables.unlock(B, object) && tables.unlock(A, object));
        tables.lock(B, who, Object::new("sr").unwrap()).unwrap();
        tables.forget(B);
        assert!(tables.locks.is_empty());
    }
}

//! Objects claimed by other hosts, limited in number.

use crate::key::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of accepted claims of all other hosts together. The tables of a message server hold at most as
/// many for one link.
pub(crate) const CLAIMS_MAX: usize = 4096;
/// Maximum number of further claims that are remembered. They are accepted when others are withdrawn.
const WAITING_MAX: usize = 4 * CLAIMS_MAX;

type Hosts = BTreeMap<HostName, BTreeSet<String>>;

#[derive(Default)]
pub(crate) struct Claims {
    known: Hosts,
    /// Claims beyond `CLAIMS_MAX`.
    waiting: Hosts,
    /// Number of claims that were not even remembered.
    forgotten: u64,
}

fn count(hosts: &Hosts) -> usize {
    hosts.values().map(BTreeSet::len).sum()
}

fn remove(hosts: &mut Hosts, host: &HostName, prefix: &str) -> bool {
    let removed = hosts.get_mut(host).is_some_and(|serves| serves.remove(prefix));
    hosts.retain(|_, serves| !serves.is_empty());
    removed
}

impl Claims {
    /// The accepted claims, by host.
    pub(crate) fn known(&self) -> &Hosts {
        &self.known
    }

    /// Adds a claim of a host. Returns whether it is new and accepted.
    pub(crate) fn add(&mut self, host: &HostName, prefix: &str) -> bool {
        let is_known = |hosts: &Hosts| hosts.get(host).is_some_and(|serves| serves.contains(prefix));
        if is_known(&self.known) || is_known(&self.waiting) {
            return false;
        }
        let has_room = count(&self.known) < CLAIMS_MAX;
        let to = match has_room {
            true => &mut self.known,
            false if count(&self.waiting) < WAITING_MAX => &mut self.waiting,
            false => {
                self.forgotten += 1;
                return false;
            }
        };
        to.entry(host.clone()).or_default().insert(prefix.to_owned());
        has_room
    }

    /// Removes a claim of a host. Returns the hosts whose accepted claims have changed, including one whose waiting
    /// claim was accepted instead.
    pub(crate) fn remove(&mut self, host: &HostName, prefix: &str) -> BTreeSet<HostName> {
        let mut touched = BTreeSet::new();
        if remove(&mut self.waiting, host, prefix) || !remove(&mut self.known, host, prefix) {
            return touched;
        }
        touched.insert(host.clone());
        let next = self.waiting.iter().find_map(|(host, serves)| Some((host.clone(), serves.first()?.clone())));
        if let Some((host, prefix)) = next {
            remove(&mut self.waiting, &host, &prefix);
            self.known.entry(host.clone()).or_default().insert(prefix);
            touched.insert(host);
        }
        touched
    }

    /// Describes the claims that were not accepted, with their hosts and the remedy; `None` if there are none.
    pub(crate) fn left_out(&self) -> Option<String> {
        if self.waiting.is_empty() {
            return None;
        }
        let (mut all, mut of) = (0, String::new());
        for (host, serves) in &self.waiting {
            all += serves.len();
            of += &format!("{}{} of host {host}", if of.is_empty() { "" } else { ", " }, serves.len());
        }
        let forgotten = match self.forgotten {
            0 => String::new(),
            more => format!(" and {more} more, which are accepted only when this link restarts"),
        };
        Some(format!(
            "other hosts claim {} objects, expected at most {CLAIMS_MAX}; left out, and answered NO_OBJECT here: {of}{forgotten}; \
             serve fewer objects of the hosts (`--serve` there)",
            count(&self.known) + all,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> (Claims, HostName, HostName) {
        let (mut claims, [a, b]) = (Claims::default(), ["a", "b"].map(|host| host.parse().unwrap()));
        for number in 0..CLAIMS_MAX {
            assert!(claims.add(&a, &format!("o{number:04}")));
        }
        (claims, a, b)
    }

    #[test]
    fn claims_beyond_the_bound_are_counted_and_accepted_when_room_is_free() {
        let (mut claims, a, b) = full();
        assert_eq!(claims.left_out(), None);
        assert!(!claims.add(&b, "x1") && !claims.add(&b, "x2") && !claims.add(&a, "y") && !claims.add(&a, "y"));
        let why = "other hosts claim 4099 objects, expected at most 4096; left out, and answered NO_OBJECT here: 1 of host a, \
                   2 of host b; serve fewer objects of the hosts (`--serve` there)";
        assert_eq!(claims.left_out().as_deref(), Some(why));
        assert!(!claims.known().contains_key(&b));
        // Removing a waiting claim changes nothing. Removing an accepted one makes room.
        assert!(claims.remove(&a, "y").is_empty() && claims.remove(&a, "never").is_empty());
        assert_eq!(claims.remove(&a, "o0007"), BTreeSet::from([a.clone(), b.clone()]));
        assert_eq!((count(claims.known()), &claims.known()[&b]), (CLAIMS_MAX, &BTreeSet::from(["x1".to_owned()])));
        assert!(claims.left_out().unwrap().contains("here: 1 of host b; serve"));
        claims.remove(&a, "o0008");
        assert_eq!(claims.left_out(), None);
        assert!(claims.remove(&b, "x1").contains(&b) && claims.remove(&b, "x2").contains(&b));
        assert!(!claims.known().contains_key(&b));
    }

    #[test]
    fn claims_take_no_more_memory_than_the_bounds() {
        let (mut claims, _, b) = full();
        for number in 0..WAITING_MAX + 5 {
            assert!(!claims.add(&b, &format!("x{number:05}")));
        }
        let why = claims.left_out().unwrap();
        assert!(why.contains("16384 of host b and 5 more, which are accepted only when this link restarts"), "{why}");
    }
}

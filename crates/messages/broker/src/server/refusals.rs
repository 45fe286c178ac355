//! Rate limit for log records of refused requests. Records beyond a user's limit are counted and summarised in one
//! line.
//!
//! A user without write access therefore cannot push the writes of others out of the message log. Writes that were
//! executed, or may have been, are always logged; so is everything from the server's own user and from root.

use base::{DurNs, MonoNs};
use msg::{Code, Subject, Verb};

/// Burst limit of a user's records of refused requests.
const RECORDS_AT_ONCE: u32 = 20;
/// Time after which a user may have one more record.
const RECORD_EVERY: DurNs = DurNs::from_secs(1);
/// Minimum time between two summary lines of a user.
pub(super) const SUMMARY_EVERY: DurNs = DurNs::from_secs(10);
/// Maximum number of users tracked separately. All others share one entry.
const USERS_MAX: usize = 64;

/// Summary of a user's withheld records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Withheld {
    /// The user id, and the host (0: this one); `None`: users who share the last entry.
    pub(super) user: Option<(u32, u16)>,
    pub(super) records: u64,
    /// Time span of these records.
    pub(super) within: DurNs,
}

/// Rate limits of a lane's log records.
pub(super) struct Refusals {
    /// The server's own user.
    owner: u32,
    /// Never longer than its initial capacity.
    users: Vec<User>,
    /// Total number of withheld records.
    withheld: u64,
}

#[derive(Clone, Copy)]
struct User {
    user: Option<(u32, u16)>,
    /// Records that the user may have now, and the time when this number last grew.
    allowed: u32,
    at: MonoNs,
    withheld: u64,
    /// Time of the first withheld record.
    since: MonoNs,
}

impl Refusals {
    pub(super) fn new(owner: u32) -> Self {
        Self { owner, users: Vec::with_capacity(USERS_MAX), withheld: 0 }
    }

    /// Whether the record of a request with this reply is logged. A record that is not logged is counted.
    ///
    /// Real-time: does not allocate; checks at most 64 users.
    pub(super) fn is_logged(&mut self, subject: Subject, asked: &str, reply: &str, now: MonoNs) -> bool {
        let is_ours = subject.host == 0 && (subject.uid == 0 || subject.uid == self.owner);
        if is_ours || !is_refused(asked, reply) {
            return true;
        }
        let user = self.user((subject.uid, subject.host), now);
        let more = (now - user.at).0.max(0) / RECORD_EVERY.0;
        if more > 0 {
            user.allowed = user.allowed.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(RECORDS_AT_ONCE);
            user.at = user.at + DurNs(more * RECORD_EVERY.0);
        }
        if let Some(left) = user.allowed.checked_sub(1) {
            user.allowed = left;
            return true;
        }
        if user.withheld == 0 {
            user.since = now;
        }
        user.withheld += 1;
        self.withheld += 1;
        false
    }

    /// Entry of a user: an existing one, a free one, one with nothing to log, or the entry shared by all others.
    fn user(&mut self, user: (u32, u16), now: MonoNs) -> &mut User {
        let new = |user| User { user, allowed: RECORDS_AT_ONCE, at: now, withheld: 0, since: now };
        let known = self.users.iter().position(|one| one.user == Some(user));
        let at = known.or_else(|| {
            if self.users.len() < USERS_MAX - 1 {
                self.users.push(new(Some(user)));
                return Some(self.users.len() - 1);
            }
            // An entry with its full allowance can be replaced without effect.
            let is_idle = |one: &User| one.withheld == 0 && now - one.at > DurNs(RECORD_EVERY.0 * 20);
            let idle = self.users.iter().position(|one| one.user.is_some() && is_idle(one))?;
            self.users[idle] = new(Some(user));
            Some(idle)
        });
        let at = at.or_else(|| self.users.iter().position(|one| one.user.is_none())).unwrap_or_else(|| {
            self.users.push(new(None));
            self.users.len() - 1
        });
        &mut self.users[at]
    }

    /// Returns the next user whose summary is due. Call until it returns `None`. At the end of the server every summary
    /// is due.
    ///
    /// Real-time: does not allocate; checks at most 64 users.
    pub(super) fn due(&mut self, now: MonoNs, is_end: bool) -> Option<Withheld> {
        let is_due = |user: &&mut User| user.withheld > 0 && (is_end || now - user.since >= SUMMARY_EVERY);
        let user = self.users.iter_mut().find(is_due)?;
        let records = std::mem::take(&mut user.withheld);
        Some(Withheld { user: user.user, records, within: now - user.since })
    }

    /// Total number of withheld records.
    pub(super) fn withheld(&self) -> u64 {
        self.withheld
    }
}

/// Whether a request was refused in a way that excludes any effect.
fn is_refused(asked: &str, reply: &str) -> bool {
    let code = reply.split('/').next().and_then(|word| word.parse::<Code>().ok());
    let writes = || asked.split('/').next().and_then(|word| word.parse::<Verb>().ok()).is_none_or(Verb::writes);
    code.is_some_and(|code| code != Code::Ok && !(code.may_have_happened() && writes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonoNs = MonoNs(1_000_000_000_000);
    const DENIED: &str = "DENIED/a rule keeps it";

    const fn user(uid: u32) -> Subject {
        Subject { uid, pid: 1, host: 0 }
    }

    #[test]
    fn records_of_refused_requests_are_limited_to_a_burst_and_one_per_second_per_user() {
        let mut refusals = Refusals::new(1000);
        let mut logged = |uid, count, at| {
            (0..count).filter(|_| refusals.is_logged(user(uid), "put/a/1", DENIED, NOW + DurNs::from_ms(at))).count()
        };
        assert_eq!(logged(7, 5000, 0), 20);
        assert_eq!(logged(8, 1, 0), 1, "another user has another limit");
        assert_eq!(logged(7, 5000, 2_500), 2);
        assert_eq!(logged(7, 5000, 3_000), 1);
        assert_eq!((logged(0, 1000, 3_000), logged(1000, 1000, 3_000)), (1000, 1000), "root and the server's own user");
        assert_eq!(logged(7, 5000, 1_000_000), 20);
        assert_eq!(refusals.withheld(), 4980 + 4998 + 4999 + 4980);
    }

    #[test]
    fn writes_that_happened_or_may_have_happened_are_always_logged() {
        let mut refusals = Refusals::new(0);
        (0..100).for_each(|_| _ = refusals.is_logged(user(7), "put/a/1", DENIED, NOW));
        let mut is_logged = |asked: &str, reply: &str| refusals.is_logged(user(7), asked, reply, NOW);
        assert!(is_logged("put/a/1", "OK/1"));
        for code in Code::ALL.into_iter().filter(|code| code.may_have_happened()) {
            assert!(is_logged("put/a/1", &format!("{code}/why")), "{code}");
            assert!(!is_logged("get/a", &format!("{code}/why")), "a read changes no state: {code}");
        }
        assert!(!is_logged("get/absent", "NO_OBJECT/why") && !is_logged("nonsense", "MALFORMED/why"));
    }

    #[test]
    fn withheld_records_are_summarised_every_ten_seconds_and_at_the_end() {
        let mut refusals = Refusals::new(0);
        (0..120).for_each(|_| _ = refusals.is_logged(user(7), "put/a/1", DENIED, NOW));
        assert_eq!(refusals.due(NOW + DurNs::from_ms(9_999), false), None);
        let withheld = Withheld { user: Some((7, 0)), records: 100, within: SUMMARY_EVERY };
        assert_eq!(refusals.due(NOW + SUMMARY_EVERY, false), Some(withheld));
        assert_eq!(refusals.due(NOW + SUMMARY_EVERY, true), None, "one summary");
        let later = NOW + SUMMARY_EVERY;
        (0..13).for_each(|_| _ = refusals.is_logged(user(7), "put/a/1", DENIED, later));
        assert_eq!(refusals.due(later, true), Some(Withheld { records: 3, within: DurNs::ZERO, ..withheld }));
    }

    #[test]
    fn many_users_share_one_entry_and_allocate_nothing() {
        let mut refusals = Refusals::new(0);
        let capacity = refusals.users.capacity();
        for uid in 1..1000 {
            (0..30).for_each(|_| _ = refusals.is_logged(user(uid), "put/a/1", DENIED, NOW));
        }
        assert_eq!(refusals.users.capacity(), capacity);
        let due: Vec<_> = std::iter::from_fn(|| refusals.due(NOW, true)).collect();
        assert_eq!(due.iter().map(|one| one.records).sum::<u64>(), refusals.withheld());
        assert_eq!(due.iter().find(|one| one.user.is_none()).map(|one| one.records), Some((999 - 63) * 30 - 20));
        // After a quiet time, their entries can be reused.
        let later = NOW + DurNs::from_secs(21);
        assert!(refusals.is_logged(user(5000), "put/a/1", DENIED, later));
        assert!(refusals.users.iter().any(|one| one.user == Some((5000, 0))));
    }
}

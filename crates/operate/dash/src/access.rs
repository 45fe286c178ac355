//! Who may do what: tokens, the cookies that they are exchanged for, roles.

use base::{DurNs, MonoNs};
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions at once; the oldest goes for one more.
const SESSIONS_MAX: usize = 256;
/// A session that nobody used for so long is over.
const IDLE_MAX: DurNs = DurNs::from_secs(12 * 3600);
/// Tokens that were wrong, within [`TRIES_WITHIN`], before no more of them are told one by one. Right ones open all the same: 128
/// bits are not guessed, and whoever reaches the port could otherwise keep everybody out.
const TRIES_MAX: u32 = 20;
const TRIES_WITHIN: DurNs = DurNs::from_secs(60);

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Change, too.
    Operator,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Viewer, Self::Operator];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

/// Tokens and sessions.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Vec<(Role, String)>,
    /// The cookie's name: cookies of one host are shared by all its ports.
    pub(crate) cookie: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<String, Session>,
    wrong: u32,
    since: MonoNs,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    role: Role,
    /// The user of this machine who began it, where that is known: a browser sends a host's cookies to all of its ports, and behind
    /// another one may be somebody else.
    user: Option<u32>,
    used: MonoNs,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It is none.
    Wrong,
    /// It is none, as too many were just before.
    TooMany,
}

impl Access {
    /// New tokens; one for operators where there are any.
    pub(crate) fn new(port: u16, write: bool) -> io::Result<Self> {
        let mut tokens = vec![(Role::Viewer, secret()?)];
        if write {
            tokens.push((Role::Operator, secret()?));
        }
        Ok(Self { tokens, cookie: format!("tahti-{port}"), inner: Mutex::default() })
    }

    /// The token of a role.
    pub(crate) fn token(&self, role: Role) -> Option<&str> {
        self.tokens.iter().find(|(of, _)| *of == role).map(|(_, token)| token.as_str())
    }

    /// What a token allows.
    pub(crate) fn role(&self, token: &str, now: MonoNs) -> Result<Role, Closed> {
        let mut inner = self.inner();
        if now - inner.since > TRIES_WITHIN {
            (inner.wrong, inner.since) = (0, now);
        }
        // All are compared, each in the same time.
        let found = self.tokens.iter().filter(|(_, good)| same(good, token)).map(|(role, _)| *role).max();
        found.ok_or_else(|| {
            inner.wrong = inner.wrong.saturating_add(1);
            if inner.wrong > TRIES_MAX { Closed::TooMany } else { Closed::Wrong }
        })
    }

    /// Begins a session of a user, and says what its cookie holds.
    pub(crate) fn begin(&self, role: Role, user: Option<u32>, now: MonoNs) -> io::Result<String> {
        let id = secret()?;
        let mut inner = self.inner();
        if inner.sessions.len() >= SESSIONS_MAX
            && let Some(oldest) =
                inner.sessions.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
        {
            inner.sessions.remove(&oldest);
        }
        inner.sessions.insert(id.clone(), Session { role, user, used: now });
        Ok(id)
    }

    /// The role of a session that is not over and was begun by the same user.
    pub(crate) fn session(&self, id: &str, user: Option<u32>, now: MonoNs) -> Option<Role> {
        let mut inner = self.inner();
        let session = inner.sessions.get_mut(id)?;
        if now - session.used > IDLE_MAX {
            inner.sessions.remove(id);
            return None;
        }
        if session.user != user {
            return None;
        }
        session.used = now;
        Some(session.role)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 128 bits that nobody can guess.
fn secret() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that does not reveal how much is right.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonoNs = MonoNs(1_000_000_000_000);

    #[test]
    fn a_token_gives_its_role_and_without_operators_there_is_no_such_token() {
        let access = Access::new(8765, true).unwrap();
        for role in Role::ALL {
            assert_eq!(access.role(access.token(role).unwrap(), NOW), Ok(role));
        }
        assert_eq!(access.role("", NOW), Err(Closed::Wrong));
        let looking = Access::new(8765, false).unwrap();
        assert_eq!(looking.token(Role::Operator), None);
        assert_ne!(looking.token(Role::Viewer), access.token(Role::Viewer));
    }

    #[test]
    fn who_guesses_is_not_told_of_for_a_while_and_keeps_nobody_out() {
        let access = Access::new(8765, false).unwrap();
        let good = access.token(Role::Viewer).unwrap();
        for _ in 0..TRIES_MAX {
            assert_eq!(access.role("0123", NOW), Err(Closed::Wrong));
        }
        assert_eq!(access.role("0123", NOW), Err(Closed::TooMany));
        assert_eq!(access.role(good, NOW), Ok(Role::Viewer));
        assert_eq!(access.role("0123", NOW + TRIES_WITHIN + DurNs(1)), Err(Closed::Wrong));
    }

    #[test]
    fn a_cookie_is_good_only_for_the_user_who_got_it() {
        let access = Access::new(8765, true).unwrap();
        let id = access.begin(Role::Operator, Some(1000), NOW).unwrap();
        assert_eq!((access.session(&id, Some(1001), NOW), access.session(&id, None, NOW)), (None, None));
        assert_eq!(access.session(&id, Some(1000), NOW), Some(Role::Operator));
    }

    #[test]
    fn sessions_end_when_nobody_uses_them_and_are_bounded() {
        let access = Access::new(8765, true).unwrap();
        let id = access.begin(Role::Operator, None, NOW).unwrap();
        assert_eq!(access.session(&id, None, NOW + IDLE_MAX), Some(Role::Operator));
        assert_eq!(access.session(&id, None, NOW + IDLE_MAX + IDLE_MAX + DurNs(1)), None);
        assert_eq!(access.session("", None, NOW), None);
        let first = access.begin(Role::Viewer, None, NOW).unwrap();
        for at in 1..=SESSIONS_MAX as i64 {
            access.begin(Role::Viewer, None, NOW + DurNs(at)).unwrap();
        }
        assert_eq!(access.session(&first, None, NOW + DurNs::from_secs(1)), None);
        assert_eq!(access.inner().sessions.len(), SESSIONS_MAX);
    }
}

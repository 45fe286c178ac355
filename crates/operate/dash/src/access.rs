//! Access control: tokens, session cookies, roles.

use crate::shares::{Excess, Party};
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::whole::{Survives, replace};
use web::Owner;

/// Maximum sessions. If a party reaches its share, its oldest session ends, so logins of viewers never end an operator's session.
const SESSIONS_MAX: usize = 256;
/// A session ends after this time without use.
const IDLE_MAX: DurNs = DurNs::from_secs(12 * 3600);
/// Maximum wrong tokens within [`TRIES_WITHIN`] that are answered individually. Valid tokens are always accepted: 128 bits cannot
/// be guessed, and otherwise anyone who reaches the port could lock all users out.
const TRIES_MAX: u32 = 20;
const TRIES_WITHIN: DurNs = DurNs::from_secs(60);

/// Permissions of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Read only.
    Viewer,
    /// Read and change.
    Operator,
}

impl Role {
    /// Both roles.
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

/// Tokens and sessions. They are kept in a file while the plant is up. After a restart of the dashboard, open pages reconnect
/// without a new login.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: BTreeMap<Role, String>,
    file: PathBuf,
    /// Name of the cookie. It contains the port, because all ports of a host share cookies.
    pub(crate) cookie: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<String, Session>,
    wrong: u32,
    since: MonoNs,
}

/// Contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct AccessFile {
    tokens: BTreeMap<Role, String>,
    /// Session id (the cookie's value), role, and the user or address that logged in.
    sessions: Vec<(String, Role, Result<u32, IpAddr>)>,
}

impl Inner {
    /// Ends a session if `party` could not start another one.
    fn make_room(&mut self, party: Party) {
        let sessions = self.sessions.values().map(|session| session.party);
        let Some(excess) = Excess::of(sessions, party, SESSIONS_MAX) else { return };
        let ended = match excess {
            Excess::One => self.oldest(|of| of == party),
            Excess::Viewers | Excess::All => self.oldest(|of| of.role == Role::Viewer),
        };
        if let Some(id) = ended.or_else(|| self.oldest(|_| true)) {
            self.sessions.remove(&id);
        }
    }

    /// The least recently used session of the selected parties.
    fn oldest(&self, is_one: impl Fn(Party) -> bool) -> Option<String> {
        let sessions = self.sessions.iter().filter(|(_, session)| is_one(session.party));
        sessions.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Its role, and the owner of the connection that logged in. A browser sends a host's cookies to all of its ports, and
    /// another port may belong to another user.
    party: Party,
    used: MonoNs,
}

/// Reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Wrong token.
    Wrong,
    /// Wrong token, after too many others.
    TooMany,
}

impl Access {
    /// Reads the tokens and sessions of an earlier dashboard from `file`, and creates missing tokens. If there are no operators
    /// any longer, drops theirs. The idle time of restored sessions starts now.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the kernel provides no random bytes.
    pub(crate) fn open(file: &Path, port: u16, write: bool, now: MonoNs) -> io::Result<Self> {
        let AccessFile { mut tokens, sessions } = kept(file)?;
        let roles = if write { &Role::ALL[..] } else { &[Role::Viewer] };
        tokens.retain(|role, _| roles.contains(role));
        for role in roles {
            if !tokens.contains_key(role) {
                tokens.insert(*role, secret()?);
            }
        }
        let sessions = sessions.into_iter().filter(|(_, role, _)| roles.contains(role)).take(SESSIONS_MAX);
        let session = |(id, role, began): (String, Role, Result<u32, IpAddr>)| {
            let owner = began.map_or_else(Owner::address, Owner::User);
            (id, Session { party: Party { role, owner }, used: now })
        };
        let sessions = sessions.map(session).collect();
        let inner = Mutex::new(Inner { sessions, ..Inner::default() });
        let access = Self { tokens, file: file.to_owned(), cookie: format!("tahti-{port}"), inner };
        access.keep(&access.inner())?;
        Ok(access)
    }

    /// Writes tokens and sessions to the file, which only the plant's user and root can read.
    fn keep(&self, inner: &Inner) -> io::Result<()> {
        let began = |owner| match owner {
            Owner::User(user) => Ok(user),
            Owner::Address(address) => Err(address),
        };
        let sessions = inner.sessions.iter();
        let sessions = sessions.map(|(id, Session { party, .. })| (id.clone(), party.role, began(party.owner)));
        let kept = AccessFile { tokens: self.tokens.clone(), sessions: sessions.collect() };
        let written = replace(&self.file, &serde_json::to_vec(&kept)?, 0o600, Survives::Kill);
        written.map_err(|error| named(&self.file, error))
    }

    /// The token of a role.
    pub(crate) fn token(&self, role: Role) -> Option<&str> {
        self.tokens.get(&role).map(String::as_str)
    }

    /// The role of a token.
    pub(crate) fn role(&self, token: &str, now: MonoNs) -> Result<Role, Closed> {
        let mut inner = self.inner();
        if now - inner.since > TRIES_WITHIN {
            (inner.wrong, inner.since) = (0, now);
        }
        // Compare all tokens, each in constant time.
        let found = self.tokens.iter().filter(|(_, good)| same(good, token)).map(|(role, _)| *role).max();
        found.ok_or_else(|| {
            inner.wrong = inner.wrong.saturating_add(1);
            if inner.wrong > TRIES_MAX { Closed::TooMany } else { Closed::Wrong }
        })
    }

    /// Starts a session. Returns the value of its cookie. If a limit is reached, ends the oldest session of that party or of all
    /// viewers.
    pub(crate) fn begin(&self, party: Party, now: MonoNs) -> io::Result<String> {
        let id = secret()?;
        let mut inner = self.inner();
        inner.make_room(party);
        inner.sessions.insert(id.clone(), Session { party, used: now });
        if let Err(error) = self.keep(&inner) {
            // The session remains valid in this process.
            println!("tahti dash: {error}: new users must open the address again if the dashboard restarts");
        }
        Ok(id)
    }

    /// The role of an active session, if it was started by the same user, or by another machine.
    pub(crate) fn session(&self, id: &str, owner: Owner, now: MonoNs) -> Option<Role> {
        let mut inner = self.inner();
        let session = inner.sessions.get_mut(id)?;
        if now - session.used > IDLE_MAX {
            inner.sessions.remove(id);
            return None;
        }
        // Addresses may change; users do not.
        if session.party.owner.user() != owner.user() {
            return None;
        }
        session.used = now;
        Some(session.party.role)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the file of an earlier dashboard.
fn kept(file: &Path) -> io::Result<AccessFile> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AccessFile::default()),
        Err(error) => return Err(named(file, error)),
    };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        println!("tahti dash: {}: {error}: not as a dashboard writes it; tokens are new", file.display());
        AccessFile::default()
    }))
}

fn named(file: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

/// A random number of 128 bits, in hexadecimal.
fn secret() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in constant time.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::tests::party;

    const NOW: MonoNs = MonoNs(1_000_000_000_000);
    const ONE: Owner = Owner::User(1000);
    const OTHER: Owner = Owner::User(1001);

    /// File for one test.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tahti-access-{test}-{}.json", std::process::id())))
        }

        fn open(&self, write: bool) -> Access {
            Access::open(&self.0, 8765, write, NOW).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = sys::whole::remove(&self.0);
        }
    }

    #[test]
    fn a_restarted_dashboard_accepts_earlier_sessions_and_no_operators_if_disabled() {
        let place = Place::new("again");
        let first = place.open(true);
        let ids = Role::ALL.map(|role| first.begin(party(role, 1000), NOW).unwrap());
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&place.0).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let again = place.open(true);
        for (id, role) in ids.iter().zip(Role::ALL) {
            assert_eq!(again.token(role), first.token(role));
            assert_eq!((again.session(id, ONE, NOW), again.session(id, OTHER, NOW)), (Some(role), None));
        }
        let looking = place.open(false);
        assert_eq!((looking.token(Role::Operator), looking.session(&ids[1], ONE, NOW)), (None, None));
        assert_eq!(looking.session(&ids[0], ONE, NOW), Some(Role::Viewer));
        // When operators are allowed again, they get a new token.
        assert_ne!(place.open(true).token(Role::Operator), first.token(Role::Operator));
        std::fs::write(&place.0, "{").unwrap();
        assert_ne!(place.open(true).token(Role::Viewer), first.token(Role::Viewer));
    }

    #[test]
    fn a_token_gives_its_role_and_without_operators_no_operator_token_exists() {
        let place = Place::new("token");
        let access = place.open(true);
        for role in Role::ALL {
            assert_eq!(access.role(access.token(role).unwrap(), NOW), Ok(role));
        }
        assert_eq!(access.role("", NOW), Err(Closed::Wrong));
        let other = Place::new("looking");
        let looking = other.open(false);
        assert_eq!(looking.token(Role::Operator), None);
        assert_ne!(looking.token(Role::Viewer), access.token(Role::Viewer));
    }

    #[test]
    fn failed_logins_are_rate_limited_and_valid_tokens_are_still_accepted() {
        let place = Place::new("guesses");
        let access = place.open(false);
        let good = access.token(Role::Viewer).unwrap();
        for _ in 0..TRIES_MAX {
            assert_eq!(access.role("0123", NOW), Err(Closed::Wrong));
        }
        assert_eq!(access.role("0123", NOW), Err(Closed::TooMany));
        assert_eq!(access.role(good, NOW), Ok(Role::Viewer));
        assert_eq!(access.role("0123", NOW + TRIES_WITHIN + DurNs(1)), Err(Closed::Wrong));
    }

    #[test]
    fn a_cookie_is_valid_only_for_its_user_or_the_network_of_its_machine() {
        let place = Place::new("cookie");
        let access = place.open(true);
        let id = access.begin(party(Role::Operator, 1000), NOW).unwrap();
        let far = |last| Owner::address([192, 168, 0, last].into());
        assert_eq!((access.session(&id, OTHER, NOW), access.session(&id, far(1), NOW)), (None, None));
        assert_eq!(access.session(&id, ONE, NOW), Some(Role::Operator));
        let id = access.begin(Party { role: Role::Viewer, owner: far(1) }, NOW).unwrap();
        assert_eq!((access.session(&id, far(2), NOW), access.session(&id, ONE, NOW)), (Some(Role::Viewer), None));
        assert_eq!(place.open(true).session(&id, far(2), NOW), Some(Role::Viewer));
    }

    #[test]
    fn unused_sessions_expire() {
        let place = Place::new("sessions");
        let access = place.open(true);
        let id = access.begin(party(Role::Operator, 1000), NOW).unwrap();
        assert_eq!(access.session(&id, ONE, NOW + IDLE_MAX), Some(Role::Operator));
        assert_eq!(access.session(&id, ONE, NOW + IDLE_MAX + IDLE_MAX + DurNs(1)), None);
        assert_eq!(access.session("", ONE, NOW), None);
    }

    #[test]
    fn logins_of_a_viewer_end_only_its_oldest_sessions() {
        let place = Place::new("logins");
        let access = place.open(true);
        let begin = |role, user, at| access.begin(party(role, user), NOW + DurNs(at)).unwrap();
        let (operator, other) = (begin(Role::Operator, 1000, 0), begin(Role::Viewer, 1001, 0));
        let first = begin(Role::Viewer, 1000, 1);
        (2..260).for_each(|at| drop(begin(Role::Viewer, 1000, at)));
        let now = NOW + DurNs::from_secs(1);
        assert_eq!(access.session(&operator, ONE, now), Some(Role::Operator));
        assert_eq!(access.session(&other, OTHER, now), Some(Role::Viewer));
        assert_eq!(access.session(&first, ONE, now), None, "its own oldest session has ended");
        // Independent of the number of viewers.
        for user in 2000..2260 {
            (0..2).for_each(|at| drop(begin(Role::Viewer, user, at)));
        }
        assert_eq!(access.session(&operator, ONE, now), Some(Role::Operator));
        assert!(access.inner().sessions.len() <= SESSIONS_MAX);
        (0..SESSIONS_MAX as u32).for_each(|user| drop(begin(Role::Operator, user, 0)));
        assert_eq!(access.inner().sessions.len(), SESSIONS_MAX);
    }
}

//! Who may do what: tokens, the cookies that they are exchanged for, roles.

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

/// Sessions at once. For one more than a party may have, its oldest ends: logins of viewers end no session of an operator.
const SESSIONS_MAX: usize = 256;
/// A session that nobody used for so long is over.
const IDLE_MAX: DurNs = DurNs::from_secs(12 * 3600);
/// Tokens that were wrong, within [`TRIES_WITHIN`], before no more of them are told one by one. Right ones open all the same: 128
/// bits are not guessed, and whoever reaches the port could otherwise keep everybody out.
const TRIES_MAX: u32 = 20;
const TRIES_WITHIN: DurNs = DurNs::from_secs(60);

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

/// Tokens and sessions. They stand in a file for as long as the plant is up: a dashboard that is started again lets in whom it let in
/// before, so that open pages come back by themselves.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: BTreeMap<Role, String>,
    file: PathBuf,
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

/// What the file has.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    tokens: BTreeMap<Role, String>,
    /// What the cookie holds, its role, and the user or the address that began it.
    sessions: Vec<(String, Role, Result<u32, IpAddr>)>,
}

impl Inner {
    /// Ends one session where `party` could not begin another one.
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

    /// The session that was not used for longest, of some parties.
    fn oldest(&self, is_one: impl Fn(Party) -> bool) -> Option<String> {
        let sessions = self.sessions.iter().filter(|(_, session)| is_one(session.party));
        sessions.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Its role, and the owner of the connection that began it. A browser sends a host's cookies to all of its ports, and behind
    /// another port may be another user.
    party: Party,
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
    /// What `file` has of an earlier dashboard of the plant, and new tokens where it has none; nothing for operators where there
    /// are none any more. A session that was kept counts as used now.
    ///
    /// # Errors
    /// The file can be neither read nor written, or the kernel gives no random bytes.
    pub(crate) fn open(file: &Path, port: u16, write: bool, now: MonoNs) -> io::Result<Self> {
        let Kept { mut tokens, sessions } = kept(file)?;
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

    /// Writes tokens and sessions to the file, which only the plant's own user and root can read.
    fn keep(&self, inner: &Inner) -> io::Result<()> {
        let began = |owner| match owner {
            Owner::User(user) => Ok(user),
            Owner::Address(address) => Err(address),
        };
        let sessions = inner.sessions.iter();
        let sessions = sessions.map(|(id, Session { party, .. })| (id.clone(), party.role, began(party.owner)));
        let kept = Kept { tokens: self.tokens.clone(), sessions: sessions.collect() };
        let written = replace(&self.file, &serde_json::to_vec(&kept)?, 0o600, Survives::Kill);
        written.map_err(|error| named(&self.file, error))
    }

    /// The token of a role.
    pub(crate) fn token(&self, role: Role) -> Option<&str> {
        self.tokens.get(&role).map(String::as_str)
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

    /// Begins a session; what its cookie holds. Where there are as many as there may be, the oldest ends: of the party that has too
    /// many, or of all viewers.
    pub(crate) fn begin(&self, party: Party, now: MonoNs) -> io::Result<String> {
        let id = secret()?;
        let mut inner = self.inner();
        inner.make_room(party);
        inner.sessions.insert(id.clone(), Session { party, used: now });
        if let Err(error) = self.keep(&inner) {
            // The session is good all the same, as long as this process lives.
            println!("tahti dash: {error}: new users must open the address again if the dashboard restarts");
        }
        Ok(id)
    }

    /// The role of a session that is not over and was begun by the same user, or from elsewhere.
    pub(crate) fn session(&self, id: &str, owner: Owner, now: MonoNs) -> Option<Role> {
        let mut inner = self.inner();
        let session = inner.sessions.get_mut(id)?;
        if now - session.used > IDLE_MAX {
            inner.sessions.remove(id);
            return None;
        }
        // Addresses change; users do not.
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

/// What an earlier dashboard has kept.
fn kept(file: &Path) -> io::Result<Kept> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(named(file, error)),
    };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        println!("tahti dash: {}: {error}: not as a dashboard writes it; tokens are new", file.display());
        Kept::default()
    }))
}

fn named(file: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
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
    use crate::shares::tests::party;

    const NOW: MonoNs = MonoNs(1_000_000_000_000);
    const ONE: Owner = Owner::User(1000);
    const OTHER: Owner = Owner::User(1001);

    /// A place for the file of one test.
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
    fn a_dashboard_that_is_started_again_lets_in_whom_it_let_in_before_and_no_operators_where_there_are_none_any_more()
    {
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
        // Whoever may act again gets another token.
        assert_ne!(place.open(true).token(Role::Operator), first.token(Role::Operator));
        std::fs::write(&place.0, "{").unwrap();
        assert_ne!(place.open(true).token(Role::Viewer), first.token(Role::Viewer));
    }

    #[test]
    fn a_token_gives_its_role_and_without_operators_there_is_no_such_token() {
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
    fn who_guesses_is_not_told_of_for_a_while_and_keeps_nobody_out() {
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
    fn a_cookie_is_good_only_for_the_user_who_got_it_or_for_other_machines() {
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
    fn sessions_end_when_they_are_not_used() {
        let place = Place::new("sessions");
        let access = place.open(true);
        let id = access.begin(party(Role::Operator, 1000), NOW).unwrap();
        assert_eq!(access.session(&id, ONE, NOW + IDLE_MAX), Some(Role::Operator));
        assert_eq!(access.session(&id, ONE, NOW + IDLE_MAX + IDLE_MAX + DurNs(1)), None);
        assert_eq!(access.session("", ONE, NOW), None);
    }

    #[test]
    fn logins_of_viewers_end_no_session_of_an_operator_nor_of_another_viewer_below_its_share() {
        let place = Place::new("logins");
        let access = place.open(true);
        let begin = |role, user, at| access.begin(party(role, user), NOW + DurNs(at)).unwrap();
        let (operator, other) = (begin(Role::Operator, 1000, 0), begin(Role::Viewer, 1001, 0));
        let first = begin(Role::Viewer, 1000, 1);
        (2..260).for_each(|at| drop(begin(Role::Viewer, 1000, at)));
        let now = NOW + DurNs::from_secs(1);
        assert_eq!(access.session(&operator, ONE, now), Some(Role::Operator));
        assert_eq!(access.session(&other, OTHER, now), Some(Role::Viewer));
        assert_eq!(access.session(&first, ONE, now), None, "its own oldest has ended");
        // However many viewers there are.
        for user in 2000..2260 {
            (0..2).for_each(|at| drop(begin(Role::Viewer, user, at)));
        }
        assert_eq!(access.session(&operator, ONE, now), Some(Role::Operator));
        assert!(access.inner().sessions.len() <= SESSIONS_MAX);
        (0..SESSIONS_MAX as u32).for_each(|user| drop(begin(Role::Operator, user, 0)));
        assert_eq!(access.inner().sessions.len(), SESSIONS_MAX);
    }
}

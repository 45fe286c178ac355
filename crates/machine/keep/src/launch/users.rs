//! Users and groups by name, from `/etc/passwd` and `/etc/group`. Other name services are not used.

use sys::root::RootDir;

/// User and groups of a process; `None` keeps the starter's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Supplementary groups.
    pub(super) groups: Option<Vec<u32>>,
    /// Environment variables of the user; empty if no user is set.
    pub(super) variables: Vec<(&'static str, String)>,
}

/// Error of looking up a user or group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No such user.
    #[error("user {0:?} is not in /etc/passwd")]
    User(String),
    /// No such group.
    #[error("group {0:?} is not in /etc/group")]
    Group(String),
    /// The files cannot be read.
    #[error(transparent)]
    Unreadable(#[from] sys::Error),
}

/// UIDs of users, each once, separated by commas. Unknown users are omitted; their processes cannot be started either.
pub(crate) fn numbers<'a>(users: impl Iterator<Item = &'a str>) -> String {
    let mut numbers: Vec<u32> = users.filter_map(|user| identity(Some(user), None).ok()?.uid).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Looks up user and group, each a name or a number.
pub(super) fn identity(user: Option<&str>, group: Option<&str>) -> Result<Identity, IdentityError> {
    if user.is_none() && group.is_none() {
        return Ok(Identity::default());
    }
    let root = RootDir::machine();
    resolve(user, group, &root.read("/etc/passwd")?, &root.read("/etc/group")?)
}

/// UID and GIDs of a user, given by name or number; `None` if there is no such user.
pub(crate) fn rights_of(user: &str) -> Option<(u32, Vec<u32>)> {
    let identity = identity(Some(user), None).ok()?;
    Some((identity.uid?, identity.groups.unwrap_or_default()))
}

/// GID of a group, given by name or number.
///
/// # Errors
/// There is no group of this name.
pub(crate) fn group_number(group: &str) -> Result<u32, IdentityError> {
    identity(None, Some(group))?.gid.ok_or_else(|| IdentityError::Group(group.to_owned()))
}

fn resolve(user: Option<&str>, group: Option<&str>, passwd: &str, groups: &str) -> Result<Identity, IdentityError> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut identity = Identity::default();
    if let Some(user) = user {
        let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
            fields.first() == Some(&user) || number(Some(user)).is_some() && fields.get(2) == Some(&user)
        });
        identity.uid = number(entry.as_ref().and_then(|fields| fields.get(2).copied())).or(number(Some(user)));
        if identity.uid.is_none() {
            return Err(IdentityError::User(user.to_owned()));
        }
        identity.gid = number(entry.as_ref().and_then(|fields| fields.get(3).copied())).or(identity.uid);
        let name = entry.as_ref().and_then(|fields| fields.first().copied());
        let member =
            |line: &&str| line.rsplit(':').next().is_some_and(|list| list.split(',').any(|one| Some(one) == name));
        let theirs = groups.lines().filter(member).filter_map(|line| number(line.split(':').nth(2)));
        identity.groups = Some(identity.gid.into_iter().chain(theirs).collect());
        let field = |number: usize, without: &str| {
            let found = entry.as_ref().and_then(|fields| fields.get(number).copied());
            found.filter(|text| !text.is_empty()).unwrap_or(without).to_owned()
        };
        let called = field(0, user);
        identity.variables = vec![
            ("HOME", field(5, "/")),
            ("SHELL", field(6, "/bin/sh")),
            ("USER", called.clone()),
            ("LOGNAME", called),
        ];
    }
    if let Some(group) = group {
        let entry = groups.lines().find(|line| line.split(':').next() == Some(group));
        let gid = number(entry.and_then(|line| line.split(':').nth(2))).or(number(Some(group)));
        identity.gid = Some(gid.ok_or_else(|| IdentityError::Group(group.to_owned()))?);
        identity.groups.get_or_insert_default().extend(identity.gid);
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nllrf:x:1001:1002::/home/llrf:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nllrf:x:1002:\ndialout:x:20:llrf,other\naudio:x:29:other\n";

    #[test]
    fn a_user_is_resolved_with_its_groups_and_variables() {
        let found = resolve(Some("llrf"), None, PASSWD, GROUP).unwrap();
        assert_eq!((found.uid, found.gid, &found.groups), (Some(1001), Some(1002), &Some(vec![1002, 20])));
        let variables = [("HOME", "/home/llrf"), ("SHELL", "/bin/sh"), ("USER", "llrf"), ("LOGNAME", "llrf")];
        assert_eq!(found.variables, variables.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(resolve(Some("1001"), None, PASSWD, GROUP).unwrap(), found);
        let found = resolve(Some("llrf"), Some("audio"), PASSWD, GROUP).unwrap();
        assert_eq!((found.gid, found.groups), (Some(29), Some(vec![1002, 20, 29])));
        let found = resolve(Some("4242"), None, PASSWD, GROUP).unwrap();
        assert_eq!((found.uid, found.gid, found.groups), (Some(4242), Some(4242), Some(vec![4242])));
        assert_eq!(found.variables[0], ("HOME", "/".to_owned()));
    }

    #[test]
    fn unknown_names_are_refused() {
        let refused = |user, group| resolve(user, group, PASSWD, GROUP).unwrap_err().to_string();
        assert_eq!(refused(Some("lrf"), None), "user \"lrf\" is not in /etc/passwd");
        assert!(refused(None, Some("x")).contains("group"));
    }
}

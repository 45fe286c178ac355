//! Class and CPUs of each process of a round trip, as arguments.

use super::parts::{Process, become_class, part};
use crate::Failed;
use base::{CpuSet, Policy};
use std::fmt;
use std::str::FromStr;
use sys::sched::{affinity, scheduling, set_affinity};

/// Where a process may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cpus {
    /// On all CPUs that this process may use.
    Any,
    /// On the highest of them.
    Last,
    /// On these.
    These(CpuSet),
}

impl Cpus {
    /// The CPUs, of those that this process may use.
    pub(super) fn of(self, allowed: &CpuSet) -> CpuSet {
        match self {
            Self::Any => *allowed,
            Self::Last => allowed.iter().last().map_or(*allowed, CpuSet::single),
            Self::These(cpus) => cpus,
        }
    }
}

/// Class and CPUs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) class: Policy,
    pub(super) cpus: Cpus,
}

/// A role that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRole {
    #[error("class {0:?}: {1}")]
    Class(String, base::ParsePolicyError),
    #[error("CPUs {0:?}: {1}; or \"last\"")]
    Cpus(String, base::ParseCpuSetError),
}

impl FromStr for Role {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        let (class, cpus) = text.split_once('@').map_or((text, None), |(class, cpus)| (class, Some(cpus)));
        let class = class.parse().map_err(|error| BadRole::Class(class.to_owned(), error))?;
        let cpus = match cpus {
            None => Cpus::Any,
            Some("last") => Cpus::Last,
            Some(cpus) => Cpus::These(cpus.parse().map_err(|error| BadRole::Cpus(cpus.to_owned(), error))?),
        };
        Ok(Self { class, cpus })
    }
}

/// The three processes of a round trip, each with its CPUs.
pub(super) struct Roles {
    pub(super) server: (Policy, CpuSet),
    pub(super) manager: (Policy, CpuSet),
    pub(super) client: (Policy, CpuSet),
}

impl Roles {
    pub(super) fn new([server, manager, client]: [Role; 3], allowed: &CpuSet) -> Self {
        let placed = |role: Role| (role.class, role.cpus.of(allowed));
        Self { server: placed(server), manager: placed(manager), client: placed(client) }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = [("server", self.server), (", manager", self.manager), (", client", self.client)];
        roles.iter().try_for_each(|(name, (class, cpus))| write!(f, "{name} {class} on CPUs {cpus}"))
    }
}

/// Starts a process in its role, or like this thread without one. It inherits class and CPUs, which this thread sets
/// temporarily.
pub(super) fn start(role: Option<(Policy, CpuSet)>, words: &[&str]) -> Result<Process, Failed> {
    let Some((class, cpus)) = role else { return part(words) };
    let (before, class_before) = (affinity(0)?, scheduling(0)?.policy);
    set_affinity(0, &cpus)?;
    let started = become_class(class).map_err(Failed::from).and_then(|()| part(words));
    become_class(class_before)?;
    set_affinity(0, &before)?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_a_class_and_optionally_cpus() {
        let role = |text: &str| text.parse::<Role>();
        assert_eq!(role("other"), Ok(Role { class: Policy::OTHER, cpus: Cpus::Any }));
        assert_eq!(role("fifo:20@last").map(|role| role.cpus), Ok(Cpus::Last));
        assert_eq!(role("fifo:20@0-1").map(|role| role.cpus), Ok(Cpus::These("0-1".parse().unwrap())));
        assert!(role("fifo:20@none").is_err_and(|why| why.to_string().contains("CPUs \"none\"")));
        assert!(role("fast@1").is_err_and(|why| why.to_string().contains("class \"fast\"")));
    }
}

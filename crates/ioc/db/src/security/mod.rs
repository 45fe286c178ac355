//! Access security: read and write permissions of clients, as configured in an `.acf` file.
//!
//! [`Security::parse`] reads the file. [`Security::rights`] returns the rights of one client on one field.
//! [`Security::set_input`] sets the inputs of `CALC` rules. This module depends neither on records nor on clients: the
//! shell asks again when a record changes its group (`Db::take_regrouped`) or an input changes its value.

mod parse;

use crate::calc::{INPUTS, Program};
use std::fmt;

/// Group of records whose ASG is empty or not in the file.
pub const DEFAULT_GROUP: &str = "DEFAULT";

/// Access that a rule grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// No access.
    #[default]
    None,
    /// Read access.
    Read,
    /// Read and write access.
    Write,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "NONE",
            Self::Read => "READ",
            Self::Write => "WRITE",
        })
    }
}

/// Rights of a client on a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Granted access.
    pub grant: Grant,
    /// Whether the client's writes are logged.
    pub trap: bool,
}

/// A named group of users or hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Name of the group.
    pub name: String,
    /// Its members, in the order of the file.
    pub members: Vec<String>,
}

/// An input of `CALC` rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// 0 for `INPA`.
    pub letter: u8,
    /// The channel.
    pub channel: String,
}

/// The `CALC` condition of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The expression as written.
    pub text: String,
    /// Whether it was true when computed last.
    pub holds: bool,
    program: Program,
}

/// A rule of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Highest field security level that the rule covers.
    pub level: u32,
    /// Access it grants.
    pub grant: Grant,
    /// Whether writes under this rule are logged.
    pub trap: bool,
    /// Names of user groups; empty matches every user.
    pub users: Vec<String>,
    /// Names of host groups; empty matches every host.
    pub hosts: Vec<String>,
    /// Condition of the rule; `None` means always.
    pub condition: Option<Condition>,
    /// The rule requires something that Channel Access does not have (METHOD, AUTHORITY, PROTOCOL), so it never applies.
    pub never: bool,
}

/// An access security group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, as in the ASG field of records.
    pub name: String,
    /// Its inputs, in the order of the file.
    pub inputs: Vec<Input>,
    /// Its rules, in the order of the file.
    pub rules: Vec<Rule>,
    values: [f64; INPUTS],
    /// Bit mask of the inputs without a valid value.
    bad: u32,
}

/// Access rules of an IOC. Groups are sorted by name.
///
/// ```
/// use db::{Grant, Macros, Security};
/// let text = "UAG(operators) { $(WHO) }\nASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE) { UAG(operators) } }";
/// let rules = Security::parse(text, "ring.acf", &Macros::parse("WHO=ann"))?;
/// let group = rules.group_of("DEFAULT");
/// assert_eq!(rules.rights(group, 1, "ann", "console").grant, Grant::Write);
/// assert_eq!(rules.rights(group, 1, "bob", "console").grant, Grant::Read);
/// # Ok::<(), db::FileError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Security {
    users: Vec<Members>,
    hosts: Vec<Members>,
    groups: Vec<Group>,
    notices: Vec<String>,
}

impl Group {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), inputs: Vec::new(), rules: Vec::new(), values: [0.0; INPUTS], bad: 0 }
    }

    /// The value of an input, and whether it is valid.
    #[must_use]
    pub fn value(&self, letter: u8) -> (f64, bool) {
        (self.values.get(usize::from(letter)).copied().unwrap_or_default(), self.bad & (1 << letter) == 0)
    }

    fn holds(&self, rule: &Rule) -> bool {
        let condition = rule.condition.as_ref().is_none_or(|calc| calc.holds && self.bad & calc.program.inputs == 0);
        condition && !rule.never
    }

    /// Computes the conditions that use any input in `changed`. As in EPICS, a condition without inputs is never computed.
    fn compute(&mut self, changed: u32) {
        let mut values = self.values;
        for condition in self.rules.iter_mut().filter_map(|rule| rule.condition.as_mut()) {
            if condition.program.inputs & changed != 0 {
                let (mut result, mut seed) = (f64::from(u8::from(condition.holds)), 1);
                let done = condition.program.run(&mut values, &mut result, &mut seed);
                condition.holds = done.is_ok() && result > 0.99 && result < 1.01;
            }
        }
    }
}

impl Security {
    /// User groups.
    #[must_use]
    pub fn users(&self) -> &[Members] {
        &self.users
    }

    /// Host groups; host names in lower case.
    #[must_use]
    pub fn hosts(&self) -> &[Members] {
        &self.hosts
    }

    /// The groups, always including [`DEFAULT_GROUP`].
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Warnings about the file: rules that never apply, macros without a value.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Index of the group for an ASG.
    #[must_use]
    pub fn group_of(&self, name: &str) -> usize {
        let find = |name: &str| self.groups.binary_search_by(|group| group.name.as_str().cmp(name)).ok();
        find(name).or_else(|| find(DEFAULT_GROUP)).unwrap_or_default()
    }

    /// Rights of a client on a field of security level `level` (0 or 1) in the records of a group.
    ///
    /// `host` is compared case-insensitively. Does not allocate. Time is bounded by the size of the file.
    #[must_use]
    pub fn rights(&self, group: usize, level: u8, user: &str, host: &str) -> Rights {
        let mut rights = Rights::default();
        let Some(group) = self.groups.get(group) else { return rights };
        for rule in &group.rules {
            let better = rule.grant > rights.grant && u32::from(level) <= rule.level;
            if better
                && is_listed(&self.users, &rule.users, |name| name == user)
                && is_listed(&self.hosts, &rule.hosts, |name| name.eq_ignore_ascii_case(host))
                && group.holds(rule)
            {
                rights = Rights { grant: rule.grant, trap: rule.trap };
            }
        }
        rights
    }

    /// Whether any rule logs writes.
    #[must_use]
    pub fn traps(&self) -> bool {
        self.groups.iter().any(|group| group.rules.iter().any(|rule| rule.trap))
    }

    /// Sets the value of an input; `None` if it has no valid value. Returns whether rights may have changed.
    pub fn set_input(&mut self, group: usize, letter: u8, value: Option<f64>) -> bool {
        let Some(group) = self.groups.get_mut(group) else { return false };
        let Some(place) = group.values.get_mut(usize::from(letter)) else { return false };
        let holding = |group: &Group| -> u64 {
            let rules = group.rules.iter().take(64).enumerate();
            rules.fold(0, |bits, (index, rule)| bits | u64::from(group.holds(rule)) << index)
        };
        let bit = 1 << letter;
        if let Some(value) = value {
            *place = value;
        }
        let before = holding(group);
        if value.is_some() {
            group.bad &= !bit;
            group.compute(bit);
        } else {
            group.bad |= bit;
        }
        before != holding(group) || group.rules.len() > 64
    }

    /// Replaces the hosts of all groups, for sites that identify hosts by address.
    pub fn map_hosts(&mut self, mut address: impl FnMut(&str) -> String) {
        for host in self.hosts.iter_mut().flat_map(|group| &mut group.members) {
            *host = address(host);
        }
    }
}

/// Whether the groups of a rule contain a client; an empty list contains every client.
fn is_listed(all: &[Members], wanted: &[String], is: impl Fn(&str) -> bool) -> bool {
    wanted.is_empty()
        || wanted
            .iter()
            .any(|name| all.iter().any(|group| group.name == *name && group.members.iter().any(|member| is(member))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::macros::Macros;

    const FILE: &str = r#"
        UAG(ops) { root, anna }  HAG(control) { HostA, "$(EXTRA=hostb)" }
        ASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE, TRAPWRITE) { UAG(ops) } }
        ASG(locked) {
            INPA("X:lock") INPU("X:other")
            RULE(0, READ) RULE(1, WRITE) { UAG(ops) HAG(control) CALC("A=0") }
            RULE(1, WRITE) { CALC("1") } RULE(1, WRITE) { METHOD("x509") AUTHORITY("Site CA") }
        }"#;

    fn rules(text: &str) -> Security {
        Security::parse(text, "t.acf", &Macros::default()).unwrap()
    }

    #[test]
    fn the_best_rule_that_fits_user_host_and_level_wins() {
        let rules = rules(FILE);
        let (default, locked) = (rules.group_of("no such group"), rules.group_of("locked"));
        assert_eq!(rules.groups()[default].name, DEFAULT_GROUP);
        assert_eq!(rules.rights(default, 1, "guest", "x"), Rights { grant: Grant::Read, trap: false });
        assert_eq!(rules.rights(default, 0, "anna", "x"), Rights { grant: Grant::Write, trap: true });
        assert_eq!(rules.rights(locked, 1, "guest", "x").grant, Grant::None);
        assert_eq!(rules.rights(locked, 0, "guest", "x").grant, Grant::Read);
        assert_eq!(rules.rights(locked, 0, "anna", "HOSTa").grant, Grant::Read, "its input is not valid yet");
    }

    #[test]
    fn rules_follow_their_inputs() {
        let mut rules = rules(FILE);
        let locked = rules.group_of("locked");
        assert!(rules.set_input(locked, 0, Some(0.0)));
        assert_eq!(rules.rights(locked, 1, "anna", "HostB").grant, Grant::Write);
        assert_eq!(rules.rights(locked, 1, "anna", "hostc").grant, Grant::None);
        assert!(!rules.set_input(locked, 20, Some(5.0)), "no rule uses U");
        assert!(rules.set_input(locked, 0, Some(1.0)));
        assert_eq!(rules.rights(locked, 1, "anna", "hostb").grant, Grant::None);
        assert!(rules.set_input(locked, 0, Some(0.0)));
        assert!(rules.set_input(locked, 0, None));
        assert_eq!(rules.rights(locked, 1, "anna", "hostb").grant, Grant::None);
    }

    #[test]
    fn rules_that_channel_access_cannot_satisfy_never_apply_and_are_reported() {
        let mut rules = rules(FILE);
        let notices = rules.take_notices();
        assert!(notices.iter().any(|text| text.starts_with("t.acf:7:59: METHOD")), "{notices:?}");
        assert!(notices.iter().any(|text| text.contains("CALC \"1\" uses no input")), "{notices:?}");
        assert_eq!(rules.rights(rules.group_of("locked"), 1, "anna", "x").grant, Grant::None);
        // Every Channel Access client has the method "ca".
        let plain = self::rules("ASG(DEFAULT) { RULE(1, WRITE) { METHOD(\"ca\") } }");
        assert_eq!(plain.rights(0, 1, "anna", "x").grant, Grant::Write);
    }

    #[test]
    fn without_a_default_group_no_client_has_rights() {
        let rules = rules("ASG(a) { RULE(1, WRITE) }");
        assert_eq!(rules.rights(rules.group_of(""), 0, "anna", "x").grant, Grant::None);
    }
}

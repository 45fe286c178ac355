//! Limits per user of a shared resource, so that no user can exhaust it for others or for the server's own managers.

use core::fmt;

/// A limited resource shared by all users.
///
/// One user may have half of it. All users other than root and the server's own user may together have three quarters.
/// Managers and administrators therefore always find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the resource in the plural, with its unit.
    pub what: &'static str,
    /// Total amount.
    pub all: u64,
    /// Remedy for a user whose request was refused.
    pub remedy: &'static str,
}

/// A user's request exceeded its [`Share`]. The text has the user's amount, the total, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    share: Share,
    holder: Holder,
    have: u64,
    more: u64,
    most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    User(u32),
    Strangers,
    All,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share: Share { what, all, remedy }, holder, have, more, most } = self;
        match holder {
            Holder::User(user) => write!(f, "user {user} has")?,
            Holder::Strangers => f.write_str("users other than the server's own and root have")?,
            Holder::All => f.write_str("all users have")?,
        }
        write!(f, " {have} of {all} {what} and {more} more are requested, expected at most {most}; {remedy}")
    }
}

impl core::error::Error for Excess {}

impl Share {
    /// Whether any user may have `more`, however the total of `taken` is distributed. Then the amounts per user need
    /// not be summed.
    #[must_use]
    pub fn is_plenty(&self, taken: u64, more: u64) -> bool {
        more <= (self.all / 2).saturating_sub(taken)
    }

    /// Whether `user` may have `more`, given the amounts `taken` per user. `is_ours` identifies root and the server's
    /// own user.
    ///
    /// Real-time: does not allocate; visits each element of `taken` once.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub fn admit(
        &self,
        taken: impl Iterator<Item = (u32, u64)>,
        user: u32,
        more: u64,
        is_ours: impl Fn(u32) -> bool,
    ) -> Result<(), Excess> {
        let (mut own, mut others, mut sum) = (0, 0, 0);
        for (of, much) in taken {
            sum += much;
            own += if of == user { much } else { 0 };
            others += if is_ours(of) { 0 } else { much };
        }
        let all = self.all;
        let above = |have: u64, most: u64| more > most.saturating_sub(have);
        let (holder, have, most) = match () {
            () if above(own, all / 2) => (Holder::User(user), own, all / 2),
            () if !is_ours(user) && above(others, all / 4 * 3) => (Holder::Strangers, others, all / 4 * 3),
            () if above(sum, all) => (Holder::All, sum, all),
            () => return Ok(()),
        };
        Err(Excess { share: *self, holder, have, more, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn one_user_gets_half_and_all_foreign_users_three_quarters_of_a_share() {
        let share = Share { what: "places", all: 16, remedy: "close some" };
        let admit =
            |taken: &[(u32, u64)], user, more| share.admit(taken.iter().copied(), user, more, |user| user == 0).is_ok();
        assert!(admit(&[(7, 7)], 7, 1) && !admit(&[(7, 8)], 7, 1) && admit(&[(7, 8)], 8, 1));
        assert!(
            admit(&[(7, 8), (8, 3)], 8, 1) && !admit(&[(7, 8), (8, 4)], 9, 1),
            "foreign users have three quarters together"
        );
        assert!(admit(&[(7, 8), (8, 4)], 0, 4), "the rest is for the server's own user");
        assert!(!admit(&[(0, 8)], 0, 1), "its own user has half at most too");
        assert!(!admit(&[(0, 8), (7, 8)], 8, 1) && !admit(&[(7, 1)], 7, u64::MAX), "no overflow");
        assert!(share.is_plenty(7, 1) && !share.is_plenty(8, 1) && !share.is_plenty(u64::MAX, 1));
    }

    #[test]
    fn a_refusal_names_the_share_its_limit_and_the_remedy() {
        let share = Share { what: "places", all: 16, remedy: "close some" };
        let told = |taken: &[(u32, u64)], user| {
            share.admit(taken.iter().copied(), user, 1, |user| user == 0).unwrap_err().to_string()
        };
        let asked = "of 16 places and 1 more are requested, expected at most";
        assert_eq!(told(&[(7, 8)], 7), format!("user 7 has 8 {asked} 8; close some"));
        let strangers = "users other than the server's own and root have 12";
        assert_eq!(told(&[(7, 8), (8, 4)], 9), format!("{strangers} {asked} 12; close some"));
        assert_eq!(told(&[(0, 8), (7, 8)], 8), format!("all users have 16 {asked} 16; close some"));
    }
}

//! What one user may have of what all share, so that none keeps the others, or the server's own managers, out.

use std::fmt::Display;

/// Something of which there is so much for all users together.
///
/// One user may have half of it; all but the server's own user and root together three quarters, so that there is always
/// room for managers and for who puts things in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// What there is, in the plural, and in which unit.
    pub(super) what: &'static str,
    /// How much of it.
    pub(super) all: u64,
    /// What its user can do who was refused.
    pub(super) remedy: &'static str,
}

impl Share {
    /// Whether `user` may have `more`, where users have `taken` so far; else why not. `is_ours` tells the server's own user and
    /// root from others.
    pub(super) fn admit(
        &self,
        taken: impl Iterator<Item = (u32, u64)>,
        user: u32,
        more: u64,
        is_ours: impl Fn(u32) -> bool,
    ) -> Result<(), String> {
        let (mut own, mut others, mut sum) = (0, 0, 0);
        for (of, much) in taken {
            sum += much;
            own += if of == user { much } else { 0 };
            others += if is_ours(of) { 0 } else { much };
        }
        let Self { what, all, remedy } = self;
        let refused = |who: &dyn Display, have: u64, most: u64| {
            Err(format!(
                "{who} {have} of {all} {what} and {more} more are asked for, expected at most {most}; {remedy}"
            ))
        };
        let above = |have: u64, most: u64| more > most.saturating_sub(have);
        if above(own, all / 2) {
            return refused(&format_args!("user {user} has"), own, all / 2);
        }
        if !is_ours(user) && above(others, all / 4 * 3) {
            return refused(&"users other than the server's own and root have", others, all / 4 * 3);
        }
        if above(sum, *all) {
            return refused(&"all users have", sum, *all);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_half_all_strangers_three_quarters_and_ours_find_room() {
        let share = Share { what: "places", all: 16, remedy: "close some" };
        let admit =
            |taken: &[(u32, u64)], user, more| share.admit(taken.iter().copied(), user, more, |user| user == 0).is_ok();
        assert!(admit(&[(7, 7)], 7, 1) && !admit(&[(7, 8)], 7, 1) && admit(&[(7, 8)], 8, 1));
        assert!(admit(&[(7, 8), (8, 3)], 8, 1) && !admit(&[(7, 8), (8, 4)], 9, 1), "three quarters are theirs");
        assert!(admit(&[(7, 8), (8, 4)], 0, 4), "the rest is for the server's own user");
        assert!(!admit(&[(0, 8)], 0, 1), "which has half at most, too");
        assert!(!admit(&[(0, 8), (7, 8)], 8, 1) && !admit(&[(7, 1)], 7, u64::MAX), "nothing overflows");
    }

    #[test]
    fn who_is_refused_is_told_what_it_has_and_what_to_do() {
        let share = Share { what: "places", all: 16, remedy: "close some" };
        let told =
            |taken: &[(u32, u64)], user| share.admit(taken.iter().copied(), user, 1, |user| user == 0).unwrap_err();
        let asked = "of 16 places and 1 more are asked for, expected at most";
        assert_eq!(told(&[(7, 8)], 7), format!("user 7 has 8 {asked} 8; close some"));
        let strangers = "users other than the server's own and root have 12";
        assert_eq!(told(&[(7, 8), (8, 4)], 9), format!("{strangers} {asked} 12; close some"));
        assert_eq!(told(&[(0, 8), (7, 8)], 7), format!("user 7 has 8 {asked} 8; close some"));
    }
}

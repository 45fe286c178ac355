//! The limit of open files of this process.

use crate::error::{Doing, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to `wanted`, as far as possible without privileges. Returns the new limit.
///
/// # Errors
/// The kernel's.
pub fn raise_limit(wanted: u64) -> Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let all = u64::MAX;
    let to = wanted.min(maximum.unwrap_or(all)).max(current.unwrap_or(all));
    if current.is_none_or(|current| current < to) {
        let limit = Rlimit { current: Some(to), maximum };
        setrlimit(Resource::Nofile, limit).doing(|| format!("raise the limit of open files to {to}"))?;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_it_may_be_and_never_lowered() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let before = current.unwrap_or(u64::MAX);
        assert_eq!(raise_limit(1).unwrap(), before);
        let most = maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_limit(before.saturating_add(1)).unwrap(), before.saturating_add(1).min(most));
    }
}

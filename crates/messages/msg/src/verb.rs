//! What may be done with an object.

use base::nearest;
use core::fmt;
use core::str::FromStr;

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verb {
    /// Tells a value; changes nothing.
    Get,
    /// Changes a value and answers when it is reached.
    Set,
    /// Changes a value and answers when the equipment has accepted it.
    Put,
    /// Does something that is no value: `call/sr_rf_a/reset`.
    Call,
    /// Tells the objects that fit a pattern.
    List,
    /// Tells schema, unit, limits and access of an object.
    Describe,
    /// Asks for events until `unwatch`.
    Watch,
    /// Ends what `watch` began.
    Unwatch,
    /// Keeps everybody else from changing an object.
    Lock,
    /// Ends what `lock` began.
    Unlock,
    /// Many requests in one, with a result each; they are in the body, a line each.
    Batch,
    /// Asks whether somebody is there; changes nothing.
    Ping,
}

impl Verb {
    /// All verbs, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Get,
        Self::Set,
        Self::Put,
        Self::Call,
        Self::List,
        Self::Describe,
        Self::Watch,
        Self::Unwatch,
        Self::Lock,
        Self::Unlock,
        Self::Batch,
        Self::Ping,
    ];

    /// The word that is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Put => "put",
            Self::Call => "call",
            Self::List => "list",
            Self::Describe => "describe",
            Self::Watch => "watch",
            Self::Unwatch => "unwatch",
            Self::Lock => "lock",
            Self::Unlock => "unlock",
            Self::Batch => "batch",
            Self::Ping => "ping",
        }
    }

    /// Whether it may change the equipment: such requests are logged, and kept from locked objects.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Set | Self::Put | Self::Call | Self::Batch)
    }

    /// Whether doing it twice is the same as doing it once, so that it may be sent again when its fate is unknown.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Describe | Self::Ping)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is no verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbError {
    /// What was probably meant.
    pub nearest: Option<Verb>,
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some(verb) => write!(f, "did you mean \"{verb}\"?"),
            None => {
                f.write_str("expected one of")?;
                Verb::ALL
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, verb)| write!(f, "{} {verb}", if at == 0 { "" } else { "," }))
            }
        }
    }
}

impl core::error::Error for VerbError {}

impl FromStr for Verb {
    type Err = VerbError;

    /// Real-time: allocates for an error only.
    fn from_str(word: &str) -> Result<Self, VerbError> {
        Self::ALL.into_iter().find(|verb| verb.word() == word).ok_or_else(|| {
            let meant = nearest(word, Self::ALL.iter().map(|verb| verb.word()));
            VerbError { nearest: meant.and_then(|meant| Self::ALL.into_iter().find(|verb| verb.word() == meant)) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn each_verb_reads_back_and_a_mistyped_one_is_guessed() {
        for verb in Verb::ALL {
            assert_eq!(verb.word().parse(), Ok(verb));
        }
        assert_eq!("descibe".parse::<Verb>(), Err(VerbError { nearest: Some(Verb::Describe) }));
        let far = "open".parse::<Verb>().unwrap_err();
        assert!(far.to_string().starts_with("expected one of get, set, put"), "{far}");
    }

    #[test]
    fn what_writes_is_never_idempotent_by_itself() {
        assert!(Verb::ALL.iter().all(|verb| !(verb.writes() && verb.is_idempotent())));
    }
}

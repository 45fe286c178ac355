//! Verbs of messages: each is a row of [`Verb::ALL`].
//!
//! They are in this crate because plant files have rules about verbs, and `host` does not depend on `msg`.
//! To add a verb: `docs/how-to/add-a-verb.md`.

use crate::nearest;
use core::fmt;
use core::str::FromStr;

/// Effect of a verb on the equipment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None. Allowed for all users unless a rule forbids it.
    Reads,
    /// None, but it prevents changes by others. As for [`Writes`](Self::Writes), other users need a rule.
    Reserves,
    /// It may change the equipment. Such requests are logged and refused for locked objects; other users need a rule.
    Writes,
}

/// The process that answers a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The manager of the object, by a row of its tables.
    Device,
    /// The manager itself.
    Manager,
    /// The manager of the object, or the message server if the object has no manager.
    ManagerOrServer,
    /// The client's own message server: the request goes neither to managers nor to other hosts.
    Server,
}

/// Properties of a verb, for all processes on the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The word that is written.
    pub word: &'static str,
    /// Effect on the equipment.
    pub effect: Effect,
    /// The process that answers.
    pub served_by: ServedBy,
    /// Idempotent: may be sent again if the outcome is unknown.
    pub idempotent: bool,
    /// Allowed as a line of a batch.
    pub batchable: bool,
    /// Its object may be a pattern with `*` and `?`.
    pub patterns: bool,
}

/// Makes the enum, its list and the table of rows, with their comments as documentation.
macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident = $row:expr;)+) => {
        /// A verb.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Verb {
            $($(#[doc = $doc])+ $verb,)+
        }

        impl Verb {
            /// All verbs, in the order of the documentation.
            pub const ALL: [Self; [$(stringify!($verb)),+].len()] = [$(Self::$verb),+];
            const ROWS: [Row; Self::ALL.len()] = [$($row),+];
            const MEANINGS: [&str; Self::ALL.len()] = [$(concat!($($doc),+)),+];
        }
    };
}

use Effect::{Reads, Reserves, Writes};
use ServedBy::{Device, Manager, ManagerOrServer, Server};

#[rustfmt::skip]
verbs! {
    /// Reads a value.
    Get = Row { word: "get", effect: Reads, served_by: Device, idempotent: true, batchable: true, patterns: false };
    /// Changes a value; the reply comes when the equipment has accepted it.
    Put = Row { word: "put", effect: Writes, served_by: Device, idempotent: false, batchable: true, patterns: false };
    /// Changes a value; the reply comes when it is reached.
    Set = Row { word: "set", effect: Writes, served_by: Device, idempotent: false, batchable: true, patterns: false };
    /// Executes an action: `call/sr_rf_a/reset`.
    Call = Row { word: "call", effect: Writes, served_by: Device, idempotent: false, batchable: true, patterns: false };
    /// Lists the objects that match a pattern, in the lines of the reply's body.
    List = Row { word: "list", effect: Reads, served_by: ManagerOrServer, idempotent: true, batchable: false, patterns: true };
    /// Describes an object: schema, unit, limits, access.
    Describe = Row { word: "describe", effect: Reads, served_by: Manager, idempotent: true, batchable: true, patterns: false };
    /// Subscribes to events, until `unwatch`: `watch/sr_*/put` for messages with these objects and verbs as they pass.
    Watch = Row { word: "watch", effect: Reads, served_by: Server, idempotent: false, batchable: false, patterns: true };
    /// Ends a `watch`.
    Unwatch = Row { word: "unwatch", effect: Reads, served_by: Server, idempotent: false, batchable: false, patterns: true };
    /// Prevents other clients from changing an object, and objects whose names continue its name, until `unlock` or until its holder disconnects.
    Lock = Row { word: "lock", effect: Reserves, served_by: Server, idempotent: false, batchable: false, patterns: false };
    /// Ends a `lock`.
    Unlock = Row { word: "unlock", effect: Reserves, served_by: Server, idempotent: false, batchable: false, patterns: false };
    /// Sends many requests to objects of one manager as one message: lines in the body, with a result for each.
    Batch = Row { word: "batch", effect: Writes, served_by: Manager, idempotent: false, batchable: false, patterns: false };
    /// Returns the name of the manager or the server, to test the connection.
    Ping = Row { word: "ping", effect: Reads, served_by: Manager, idempotent: true, batchable: false, patterns: false };
}

impl Verb {
    /// Its row.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &Self::ROWS[self as usize]
    }

    /// The word that is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// Its description in the documentation.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        Self::MEANINGS[self as usize].trim_ascii()
    }

    /// Whether it may change the equipment.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self.row().effect, Writes)
    }

    /// Whether the client's own message server answers it, whatever its object is.
    #[must_use]
    pub const fn is_servers(self) -> bool {
        matches!(self.row().served_by, Server)
    }

    /// The verbs of devices, which rows of managers' tables may have.
    pub fn of_devices() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|verb| verb.row().served_by == Device)
    }

    /// The words of some verbs, separated by commas.
    pub fn words(verbs: impl Iterator<Item = Self> + Clone) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            verbs.clone().enumerate().try_for_each(|(at, verb)| write!(f, "{}{verb}", if at == 0 { "" } else { ", " }))
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is not a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbError {
    /// The most similar verb.
    pub nearest: Option<Verb>,
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some(verb) => write!(f, "did you mean \"{verb}\"?"),
            None => write!(f, "expected one of {}", Verb::words(Verb::ALL.into_iter())),
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
    fn each_verb_survives_a_round_trip_and_a_mistyped_one_names_the_nearest() {
        for verb in Verb::ALL {
            assert_eq!(verb.word().parse(), Ok(verb));
        }
        assert_eq!("descibe".parse::<Verb>(), Err(VerbError { nearest: Some(Verb::Describe) }));
        let far = "open".parse::<Verb>().unwrap_err();
        assert!(far.to_string().starts_with("expected one of get, put, set"), "{far}");
    }

    #[test]
    fn no_verb_that_writes_is_idempotent() {
        assert!(Verb::ALL.iter().all(|verb| !(verb.writes() && verb.row().idempotent)));
    }

    #[test]
    fn verbs_that_the_server_answers_are_not_allowed_in_a_batch() {
        assert!(Verb::ALL.iter().all(|verb| !(verb.is_servers() && verb.row().batchable)));
    }
}

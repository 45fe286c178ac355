//! What is wrong with a definition of groups.

use super::define::TYPES;
use super::tree::{ELEMENTS_MAX, PARTS_MAX};
use crate::codec;

/// A fault, which leaves its group out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("found {found}, expected {expected}")]
    Value { found: String, expected: &'static str },
    #[error("found +type \"{0}\", expected one of {TYPES}")]
    Kind(String),
    #[error("found no +const, expected a number, a text, true or false")]
    NoConstant,
    #[error("found no +channel, expected a field such as \"VAL\"")]
    NoChannel,
    #[error("found +channel \"{channel}\", expected a field of a record: {why}")]
    Channel { channel: String, why: String },
    #[error("found the name \"{0}\", expected parts like \"a.b\" or \"a[0].b\"")]
    Name(String),
    #[error("found a name with {0} parts, expected at most {PARTS_MAX}")]
    Parts(usize),
    #[error("found element {element} in \"{word}\", expected less than {ELEMENTS_MAX}")]
    Element { element: usize, word: String },
    #[error("\"{0}\" is in a field that is no structure")]
    NoStructure(String),
    #[error("\"{0}\" is an array, expected an element like [0]")]
    WholeArray(String),
    #[error("\"{0}\" is no array elsewhere in the group")]
    NoArray(String),
    #[error("it has another type elsewhere in the group")]
    OtherType,
    #[error("the field \"{0}\" has no place in its group")]
    Lost(String),
    #[error(transparent)]
    Type(#[from] codec::Fault),
}

/// A fault with its place in the definitions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {wrong}")]
pub(super) struct Fault {
    place: String,
    wrong: Wrong,
}

impl Wrong {
    pub(super) fn at(self, place: &str) -> Fault {
        Fault { place: place.to_owned(), wrong: self }
    }
}

//! What can go wrong, said so that the user knows what to change.

use std::fmt;

/// A place in a text file, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column, in bytes.
    pub column: u32,
}

/// A finding in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file as it was named.
    pub file: String,
    /// Where in it.
    pub place: Position,
    /// What was found, what was expected.
    pub what: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.place.line, self.place.column, self.what)
    }
}

impl std::error::Error for FileError {}

/// All findings in a file that was refused, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors(pub Vec<FileError>);

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        self.0.iter().try_for_each(|error| write!(f, "{}{error}", std::mem::replace(&mut between, "\n")))
    }
}

impl std::error::Error for FileErrors {}

/// Why a name denotes no field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindError {
    /// No record and no alias of this name.
    NoRecord {
        /// The name that was asked for.
        name: String,
    },
    /// The record has no such field.
    NoField {
        /// Name of the record.
        record: String,
        /// The field that was asked for.
        field: String,
        /// A field that is spelled nearly so.
        nearest: Option<String>,
    },
    /// A modifier or filter after the field that is not understood.
    BadModifier {
        /// The text after the field name.
        text: String,
        /// Why, where more can be said.
        what: String,
    },
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord { name } => write!(f, "no record \"{name}\""),
            Self::NoField { record, field, nearest } => {
                write!(f, "record \"{record}\" has no field \"{field}\"")?;
                match nearest {
                    Some(nearest) => write!(f, "; nearest is \"{nearest}\""),
                    None => Ok(()),
                }
            }
            Self::BadModifier { text, what } => {
                if what.is_empty() {
                    write!(f, "channel modifier \"{text}\" is not understood")
                } else {
                    write!(f, "channel modifier \"{text}\" is not understood: {what}")
                }
            }
        }
    }
}

impl std::error::Error for FindError {}

/// Why a database cannot be divided as its scan groups want it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// menuScan has no such choice.
    NoScan {
        /// The scan that a group claims.
        scan: String,
        /// The choices that there are.
        known: Vec<String>,
    },
    /// Two groups claim the same scan.
    ClaimedTwice {
        /// The scan.
        scan: String,
    },
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScan { scan, known } => {
                let known = known.join("\", \"");
                write!(f, "scan \"{scan}\" is not in menuScan; expected one of \"{known}\"")
            }
            Self::ClaimedTwice { scan } => write!(f, "scan \"{scan}\" is claimed twice"),
        }
    }
}

impl std::error::Error for SplitError {}

/// Why a value was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutError {
    /// The field is read only.
    NoModify,
    /// The record's DISP field forbids writing.
    Disabled,
    /// The text is no value of the field's type.
    BadValue {
        /// What was given and what was expected.
        what: String,
    },
    /// The text is no choice of the menu or state names.
    BadChoice {
        /// The text that was given.
        given: String,
    },
    /// The link text is malformed or does not fit the device support.
    BadLink {
        /// What is wrong with it.
        what: String,
    },
    /// An array where one element is expected, or out of the field's bounds.
    BadCount,
    /// The record's device support or function is missing.
    NoSupport,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModify => f.write_str("the field is read only"),
            Self::Disabled => f.write_str("the record's DISP field forbids writing; put 0 to DISP first"),
            Self::BadValue { what } | Self::BadLink { what } => f.write_str(what),
            Self::BadChoice { given } => write!(f, "\"{given}\" is none of the choices"),
            Self::BadCount => f.write_str("the number of elements does not fit the field"),
            Self::NoSupport => f.write_str("the record has no device support or function"),
        }
    }
}

impl std::error::Error for PutError {}

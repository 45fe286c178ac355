//! Errors, worded so that users know what to change.

use std::fmt;

/// A position in a text file, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column, in bytes.
    pub column: u32,
}

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Name of the file.
    pub file: String,
    /// Position in the file.
    pub place: Position,
    /// Message: the text that was found, and what was expected.
    pub what: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.place.line, self.place.column, self.what)
    }
}

impl std::error::Error for FileError {}

/// All errors in a rejected file, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors(pub Vec<FileError>);

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        self.0.iter().try_for_each(|error| write!(f, "{}{error}", std::mem::replace(&mut between, "\n")))
    }
}

impl std::error::Error for FileErrors {}

/// Error when resolving a channel name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindError {
    /// No record or alias has this name.
    NoRecord {
        /// The requested name.
        name: String,
    },
    /// The record has no such field.
    NoField {
        /// Name of the record.
        record: String,
        /// The requested field.
        field: String,
        /// The field with the most similar name.
        nearest: Option<String>,
    },
    /// Invalid modifier or filter after the field name.
    BadModifier {
        /// The text after the field name.
        text: String,
        /// Details, if available.
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

/// Error when dividing a database into scan groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// menuScan has no such choice.
    NoScan {
        /// The scan claimed by a group.
        scan: String,
        /// The available choices.
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

/// Error when writing a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutError {
    /// The field is read only.
    NoModify,
    /// The record's DISP field forbids writing.
    Disabled,
    /// The text is not a value of the field's type.
    BadValue {
        /// Given and expected text.
        what: String,
    },
    /// The text is neither a menu choice nor a state name.
    BadChoice {
        /// The given text.
        given: String,
    },
    /// The link text is malformed or does not fit the device support.
    BadLink {
        /// Description of the error.
        what: String,
    },
    /// An array where one element is expected, or more elements than the field holds.
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

//! Names of objects.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// Maximum bytes of an object's name.
pub const OBJECT_BYTES_MAX: usize = 127;

/// Name of an object: words of lower-case letters and digits, joined by single underscores, from the larger unit to the
/// smaller: `sr_mag_ps_b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object<'a>(&'a str);

/// A text that is not a valid object name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// The name is empty.
    Empty,
    /// Longer than [`OBJECT_BYTES_MAX`].
    Long {
        /// Its bytes.
        found: usize,
    },
    /// A character that names must not contain.
    Character {
        /// The character.
        found: char,
        /// Its byte offset.
        at: usize,
    },
    /// An underscore at an end, or two in a row.
    Underscore {
        /// Its byte offset.
        at: usize,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an object's name is missing"),
            Self::Long { found } => write!(f, "a name of {found} bytes, expected at most {OBJECT_BYTES_MAX}"),
            Self::Character { found, at } => write!(
                f,
                "{found:?} at byte {at} of an object's name, expected lower-case letters, digits and underscores"
            ),
            Self::Underscore { at } => {
                write!(f, "underscore at byte {at} of an object's name, expected a letter or digit on both sides of it")
            }
        }
    }
}

impl core::error::Error for ObjectError {}

/// Checks a name. `wild` permits `*` and `?` anywhere, and underscores next to any character.
fn check(text: &str, wild: bool) -> Result<(), ObjectError> {
    if text.is_empty() {
        return Err(ObjectError::Empty);
    }
    if text.len() > OBJECT_BYTES_MAX {
        return Err(ObjectError::Long { found: text.len() });
    }
    let mut letter_before = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => letter_before = true,
            b'_' if letter_before || wild => letter_before = false,
            b'_' => return Err(ObjectError::Underscore { at }),
            b'*' | b'?' if wild => {}
            // The byte before is ASCII, so a character starts here.
            _ => return Err(ObjectError::Character { found: text[at..].chars().next().unwrap_or_default(), at }),
        }
    }
    if letter_before || wild { Ok(()) } else { Err(ObjectError::Underscore { at: text.len() - 1 }) }
}

impl<'a> Object<'a> {
    /// Checks a name.
    ///
    /// # Errors
    /// The text is invalid; the error has the position.
    ///
    /// Real-time: does not allocate.
    pub fn new(text: &'a str) -> Result<Self, ObjectError> {
        check(text, false).map(|()| Self(text))
    }

    /// Checks a name with the shell wildcards `*` and `?`, as used by `list` and `watch`.
    ///
    /// # Errors
    /// The text is invalid; the error has the position.
    pub fn wild(text: &'a str) -> Result<Self, ObjectError> {
        check(text, true).map(|()| Self(text))
    }

    /// The name.
    #[must_use]
    pub const fn text(self) -> &'a str {
        self.0
    }
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Pattern for object names: `*` matches any text, `?` one character.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(String);

impl Pattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// The text is invalid; the error has the position.
    pub fn new(text: &str) -> Result<Self, ObjectError> {
        check(text, true).map(|()| Self(text.to_owned()))
    }

    /// Whether it matches a name.
    ///
    /// Real-time: does not allocate.
    #[must_use]
    pub fn fits(&self, object: &str) -> bool {
        base::glob(&self.0, object)
    }

    /// The pattern's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_joined_by_single_underscores() {
        for good in ["sr", "sr_mag_ps_b", "bl_35in_st1_motor_1"] {
            assert_eq!(Object::new(good).map(Object::text), Ok(good));
        }
        for (bad, why) in [
            ("", ObjectError::Empty),
            ("_sr", ObjectError::Underscore { at: 0 }),
            ("sr__b", ObjectError::Underscore { at: 3 }),
            ("sr_", ObjectError::Underscore { at: 2 }),
            ("srMag", ObjectError::Character { found: 'M', at: 2 }),
            ("sr_ä", ObjectError::Character { found: 'ä', at: 3 }),
            ("sr_*", ObjectError::Character { found: '*', at: 3 }),
        ] {
            assert_eq!(Object::new(bad), Err(why), "{bad}");
        }
        assert_eq!(Object::new(&"a".repeat(128)), Err(ObjectError::Long { found: 128 }));
    }

    #[test]
    fn a_pattern_may_end_anywhere() {
        let pattern = Pattern::new("sr_*_b").unwrap();
        assert!(pattern.fits("sr_mag_ps_b") && !pattern.fits("sr_mag_ps_c"));
        assert!(Pattern::new("sr_").is_ok());
        assert_eq!(Pattern::new("SR*"), Err(ObjectError::Character { found: 'S', at: 0 }));
    }
}

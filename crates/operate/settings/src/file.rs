//! One file: what the channels of a set held at one time.

use crate::channels::{Found, Unavailable};
use base::{Stamp, Utc};
use db::{FileError, Saved, SavedValue, parse_sav, write_sav};
use std::collections::HashMap;

/// How the first line begins.
const SIGN: &str = "tahti settings";
/// Letters of a note that are kept.
const NOTE_MAX: usize = 200;

/// Who saved which set, when, and what he said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The set.
    pub set: String,
    /// When, UTC.
    pub at: Stamp,
    /// Who.
    pub by: String,
    /// A note; may be empty.
    pub note: String,
}

/// What the channels of a set held at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who saved them; `None` in a file of somebody else's, as autosave.
    pub head: Option<Head>,
    /// Each channel, and what it held.
    pub values: Vec<Saved>,
}

/// A text without what would end the line or the field that it stands in.
fn tame(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(NOTE_MAX).collect::<String>().trim().to_owned()
}

impl Head {
    /// The same, in a form that a file can hold: at most 200 letters a text, none of them a control character.
    #[must_use]
    pub fn new(set: &str, at: Stamp, by: &str, note: &str) -> Self {
        Self { set: tame(set), at, by: tame(by), note: tame(note) }
    }

    /// `20261124T105000.250Z`: names of files sort by time.
    #[must_use]
    pub(crate) fn instant(&self) -> String {
        let (secs, nanos) = self.at.to_unix();
        let utc = Utc::of(secs);
        format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}Z",
            utc.year,
            utc.month,
            utc.day,
            utc.hour,
            utc.minute,
            utc.second,
            nanos / 1_000_000
        )
    }

    fn line(&self) -> String {
        let (secs, nanos) = self.at.to_unix();
        format!("{SIGN}\t{}\t{secs}.{nanos:09}\t{}\t{}", self.set, self.by, self.note)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix(SIGN)?.strip_prefix('\t')?.split('\t');
        let mut next = || parts.next();
        let (set, at, by, note) = (next()?, next()?, next()?, next()?);
        let (secs, nanos) = at.split_once('.')?;
        let at = Stamp::from_unix(secs.parse().ok()?, nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?);
        Some(Self::new(set, at, by, note))
    }
}

impl Settings {
    /// The channels that could not be read.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|one| one.value.is_none()).map(|one| one.name.as_str())
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        write_sav(&self.head.as_ref().map_or_else(|| SIGN.to_owned(), Head::line), &self.values)
    }

    /// What it holds of the channels of `other`, in their order, as if it were read now.
    #[must_use]
    pub fn found(&self, other: &Self) -> Vec<Result<Found, Unavailable>> {
        let own: HashMap<&str, &SavedValue> =
            self.values.iter().filter_map(|one| Some((one.name.as_str(), one.value.as_ref()?))).collect();
        let each = other.values.iter().map(|one| match own.get(one.name.as_str()) {
            Some(value) => Ok(Found::plain((*value).clone())),
            None => Err(Unavailable::NotSaved),
        });
        each.collect()
    }

    /// Reads one; `file` is for errors.
    ///
    /// # Errors
    /// It was not written to its end, or a line is malformed.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let head = text.lines().next().and_then(|line| Head::of_line(line.strip_prefix("# ")?));
        let mut values = parse_sav(text, file)?;
        // What could not be read stands as a comment: its name is known all the same where the file is ours.
        if head.is_some() {
            let missing = text.lines().skip(1).filter_map(|line| line.strip_prefix('#')?.strip_suffix(' '));
            values.extend(missing.map(|name| Saved { name: name.to_owned(), value: None }));
        }
        Ok(Self { head, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_file_reads_back_as_what_was_written(set in "[a-z]{1,8}", by in ".{0,20}", note in ".{0,40}", secs in 700_000_000u64..4_000_000_000, value in prop::collection::vec(any::<u8>(), 0..20)) {
            let head = Head::new(&set, Stamp::from_unix(secs, 250_000_000), &by, &note);
            let values = vec![
                Saved { name: "A:B".to_owned(), value: Some(SavedValue::Text(value.clone())) },
                Saved { name: "A:C.VAL$".to_owned(), value: Some(SavedValue::Array(vec![value, b"x y".to_vec()])) },
                Saved { name: "A:D".to_owned(), value: None },
            ];
            let settings = Settings { head: Some(head), values };
            prop_assert_eq!(Settings::parse(&settings.text(), "f").unwrap(), settings);
        }

        #[test]
        fn any_text_is_a_file_or_an_error(text in ".{0,200}") {
            let _ = Settings::parse(&text, "f");
            let _ = Settings::parse(&format!("# {SIGN}\t{text}\n<END>"), "f");
        }
    }

    #[test]
    fn a_file_of_autosave_has_no_head() {
        let settings = Settings::parse(
            "# save/restore V5.1\tAutomatically generated\n! 1 channel(s) not connected\nX:SET 2\n#X:GONE \n<END>\n",
            "auto.sav",
        )
        .unwrap();
        assert_eq!((settings.head, settings.values.len()), (None, 1));
    }
}

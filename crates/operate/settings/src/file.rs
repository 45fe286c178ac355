//! One file: the values of the channels of a set at one time.

use crate::channels::{ChannelValue, Unavailable};
use crate::value::{States, tame};
use base::{Stamp, Utc};
use db::{FileError, SavedValue, parse_sav, write_sav};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The start of the first line, and its start in files that contain states by name.
const SIGN: &str = "tahti settings 2";
const SIGN_OF_NAMES: &str = "tahti settings";
/// The start of a line with the name of a saved state. It is a comment, so that autosave can also read the file.
const STATE: &str = "#state ";
/// Maximum number of characters of a text in the first line.
const NOTE_MAX: usize = 200;

/// A channel and its saved value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The channel.
    pub name: String,
    /// The saved value; `None` if the channel could not be read.
    pub value: Option<SavedValue>,
    /// The meaning of the text of a state.
    pub states: States,
}

/// The set, time, author and note of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The set.
    pub set: String,
    /// Time of saving, UTC.
    pub at: Stamp,
    /// Author.
    pub by: String,
    /// A note; may be empty.
    pub note: String,
}

/// The values of the channels of a set at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The head; `None` in a file of another program, such as autosave.
    pub head: Option<Head>,
    /// The channels and their values.
    pub values: Vec<Saved>,
}

/// A text without characters that would end its line or field.
fn short(text: &str) -> String {
    tame(&text.chars().take(NOTE_MAX).collect::<String>())
}

impl Head {
    /// A head with texts that a file can contain: at most 200 characters each, without control characters.
    #[must_use]
    pub fn new(set: &str, at: Stamp, by: &str, note: &str) -> Self {
        Self { set: short(set), at, by: short(by), note: short(note) }
    }

    /// `20261124T105000.250Z`: file names sort by time.
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
        let rest = [SIGN, SIGN_OF_NAMES].iter().find_map(|sign| line.strip_prefix(sign)?.strip_prefix('\t'));
        let mut parts = rest?.split('\t');
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

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let mut head = self.head.as_ref().map_or_else(|| SIGN.to_owned(), Head::line);
        for one in &self.values {
            if let (Some(_), States::Number(Some(label))) = (&one.value, &one.states) {
                // Writing to a `String` cannot fail. The line ends with a quote, because a line that ends with a blank is a
                // channel without value.
                let _ = write!(head, "\n{STATE}{} \"{label}\"", one.name);
            }
        }
        let values = self.values.iter().map(|one| db::Saved { name: one.name.clone(), value: one.value.clone() });
        write_sav(&head, &values.collect::<Vec<_>>())
    }

    /// The saved values of the channels of `other`, in their order, in the form of a read.
    #[must_use]
    pub fn found(&self, other: &Self) -> Vec<Result<ChannelValue, Unavailable>> {
        let own: HashMap<&str, &Saved> = self.values.iter().map(|one| (one.name.as_str(), one)).collect();
        let of = |one: &Saved| Some(ChannelValue::of_file(one.value.clone()?, one.states.clone()));
        let each = other
            .values
            .iter()
            .map(|one| own.get(one.name.as_str()).and_then(|one| of(one)).ok_or(Unavailable::NotSaved));
        each.collect()
    }

    /// Parses a file. `file` is its name for errors.
    ///
    /// # Errors
    /// The file is incomplete, or a line is malformed.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let first = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let head = Head::of_line(first);
        let are_names = head.is_some() && !first.starts_with(SIGN);
        let labels: HashMap<&str, &str> = match head {
            Some(_) => text.lines().skip(1).filter_map(label_of_line).collect(),
            None => HashMap::new(),
        };
        let states = |name: &str| match are_names {
            true => States::Name,
            false => States::Number(labels.get(name).map(|label| (*label).to_owned())),
        };
        let read = parse_sav(text, file)?.into_iter();
        let mut values: Vec<Saved> =
            read.map(|one| Saved { states: states(&one.name), name: one.name, value: one.value }).collect();
        // Channels without value are comments. In our own files their names can be read.
        if head.is_some() {
            let missing = text.lines().skip(1).filter_map(|line| line.strip_prefix('#')?.strip_suffix(' '));
            values.extend(missing.map(|name| Saved { name: name.to_owned(), value: None, states: states(name) }));
        }
        Ok(Self { head, values })
    }
}

/// The channel and the name of its state in a `#state` line.
fn label_of_line(line: &str) -> Option<(&str, &str)> {
    let (name, label) = line.strip_prefix(STATE)?.split_once(' ')?;
    Some((name, label.strip_prefix('"')?.strip_suffix('"')?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saved(name: &str, value: Option<SavedValue>, label: Option<&str>) -> Saved {
        Saved { name: name.to_owned(), value, states: States::Number(label.map(str::to_owned)) }
    }

    proptest! {
        #[test]
        fn a_settings_file_survives_a_round_trip(set in "[a-z]{1,8}", by in ".{0,20}", note in ".{0,40}", secs in 700_000_000u64..4_000_000_000, value in prop::collection::vec(any::<u8>(), 0..20)) {
            let head = Head::new(&set, Stamp::from_unix(secs, 250_000_000), &by, &note);
            let values = vec![
                saved("A:B", Some(SavedValue::Text(value.clone())), None),
                saved("A:C.VAL$", Some(SavedValue::Array(vec![value, b"x y".to_vec()])), None),
                saved("A:MODE", Some(SavedValue::Text(b"1".to_vec())), Some(&short(&note))),
                saved("A:D", None, None),
            ];
            let settings = Settings { head: Some(head), values };
            prop_assert_eq!(Settings::parse(&settings.text(), "f").unwrap(), settings);
        }

        #[test]
        fn no_text_of_a_settings_file_panics(text in ".{0,200}") {
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
        assert_eq!(
            (settings.head, settings.values),
            (None, vec![saved("X:SET", Some(SavedValue::Text(b"2".to_vec())), None)])
        );
    }

    #[test]
    fn a_state_is_saved_as_its_number_for_autosave_with_its_name_in_a_comment() {
        let head = Some(Head::new("rf", Stamp::from_unix(1_800_000_000, 0), "me", ""));
        let values = vec![saved("X:MODE", Some(SavedValue::Text(b"1".to_vec())), Some("Beam on"))];
        let text = Settings { head, values }.text();
        assert!(text.contains("\n#state X:MODE \"Beam on\"\n") && text.contains("\nX:MODE 1\n"), "{text}");
        // Files of an earlier version contain names. A text that is a state name is not used as a number.
        let old = "# tahti settings\trf\t1800000000.000000000\tme\t\nX:MODE Beam on\n<END>\n";
        let settings = Settings::parse(old, "f").unwrap();
        assert_eq!((settings.head.is_some(), &settings.values[0].states), (true, &States::Name));
    }

    #[test]
    fn two_files_are_compared_by_the_names_of_states_if_present() {
        let file = |value: &str, states: States| Settings {
            head: None,
            values: vec![Saved { name: "X".into(), value: Some(SavedValue::Text(value.into())), states }],
        };
        let on = |number: &str| file(number, States::Number(Some("On".into())));
        let is_equal = |one: &Settings, other: &Settings| {
            let tolerance = "5".parse().unwrap();
            crate::compare(&one.values, &other.found(one), tolerance)[0].state == crate::State::Equal
        };
        assert!(is_equal(&on("1"), &on("1")) && is_equal(&on("1"), &on("2")), "renumbered");
        assert!(!is_equal(&on("1"), &file("1", States::Number(Some("Off".into())))));
        assert!(is_equal(&on("1"), &file("On", States::Name)) && is_equal(&file("On", States::Name), &on("1")));
        // A tolerance applies to numbers, not to states.
        assert!(
            is_equal(&on("1"), &file("1", States::Number(None)))
                && !is_equal(&on("1"), &file("2", States::Number(None)))
        );
    }
}

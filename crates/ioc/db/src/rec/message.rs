//! Alarm messages (AMSG) by number: two bytes per record, and raising one does not allocate, except for a new one of a function.

use crate::model::slot::{AnyText, Fields, Slot, Zero};
use std::sync::OnceLock;

/// Number of a message in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message(u16);

/// Messages that do not name a link, in numeric order.
const TEXTS: [&str; 10] = [
    "",
    "Async in progress",
    "No such ENV",
    "UDFS",
    "calcPerform",
    "OCAL calcPerform",
    "BPT Error",
    "post_major error",
    "post_minor error",
    "Disconn",
];

/// Messages of functions and devices: the number of the first, and their maximum number.
const OWN_FIRST: u16 = 60_000;
const OWN_MAX: usize = 1_000;

/// Messages of functions and devices, each set once.
static OWN: [OnceLock<Box<str>>; OWN_MAX] = [const { OnceLock::new() }; OWN_MAX];

impl Message {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ASYNC: Self = Self(1);
    pub(crate) const NO_ENV: Self = Self(2);
    pub(crate) const UDFS: Self = Self(3);
    pub(crate) const CALC: Self = Self(4);
    pub(crate) const OCAL: Self = Self(5);
    pub(crate) const BREAKS: Self = Self(6);
    pub(crate) const MAJOR: Self = Self(7);
    pub(crate) const MINOR: Self = Self(8);
    pub(crate) const DISCONNECTED: Self = Self(9);

    /// The text of the message.
    pub(crate) fn text(self) -> &'static str {
        if let Some(own) = self.0.checked_sub(OWN_FIRST) {
            return OWN.get(usize::from(own)).and_then(OnceLock::get).map_or("", |text| text);
        }
        table().get(usize::from(self.0)).map_or("", String::as_str)
    }

    /// The message of a function or device. None if there are too many different ones.
    pub(crate) fn of_text(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::NONE;
        }
        let text = String::from_utf8_lossy(text);
        let found = OWN.iter().position(|place| **place.get_or_init(|| Box::from(&*text)) == *text);
        found.map_or(Self::NONE, |at| Self(OWN_FIRST + at as u16))
    }

    /// The message `field NAME` of a LINK alarm.
    pub(crate) fn of_field(name: &str) -> Self {
        let fields = &table()[TEXTS.len()..];
        let fields = &fields[..fields.len() / 2];
        let found = fields.binary_search_by(|text| text["field ".len()..].cmp(name));
        found.map_or(Self::NONE, |at| Self((TEXTS.len() + at) as u16))
    }

    /// The message `NAME Disconn` of a link over PVAccess, from that of its LINK alarm.
    pub(crate) fn disconnected(self) -> Self {
        let fields = (table().len() - TEXTS.len()) / 2;
        if usize::from(self.0) < TEXTS.len() { Self::DISCONNECTED } else { Self(self.0 + fields as u16) }
    }
}

/// All messages: the texts above, then one per link field name, sorted, and as many for disconnected links. Built once.
fn table() -> &'static [String] {
    static TABLE: OnceLock<Vec<String>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let schema = crate::rec::builtin();
        let links = schema.types.iter().flat_map(|kind| &kind.fields).filter(|field| field.link_field().is_some());
        let mut fields: Vec<String> = links.map(|field| format!("field {}", field.name)).collect();
        fields.sort_unstable();
        fields.dedup();
        let lost: Vec<String> = fields.iter().map(|text| format!("{} Disconn", &text["field ".len()..])).collect();
        TEXTS.iter().map(|text| (*text).to_owned()).chain(fields).chain(lost).collect()
    })
}

/// Builds the table in advance, so that the first alarm on a real-time thread does not build it.
pub(crate) fn prepare() {
    table();
}

impl AnyText for Message {
    fn bytes(&self) -> &[u8] {
        self.text().as_bytes()
    }
    fn set(&mut self, _: &[u8]) {}
}

impl Fields for Message {
    const COUNT: usize = 1;
    fn slot(&mut self, _: usize) -> Slot<'_> {
        Slot::Text(self)
    }
}

impl Zero for Message {
    const ZERO: Self = Self::NONE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_field_has_a_message() {
        assert_eq!(Message::of_field("INPA").bytes(), b"field INPA");
        assert_eq!(Message::of_field("FLNK").bytes(), b"field FLNK");
        assert_eq!(Message::of_field("NONSENSE"), Message::NONE);
        assert_eq!(Message::of_field("INPA").disconnected().bytes(), b"INPA Disconn");
        assert_eq!(Message::NONE.disconnected().bytes(), b"Disconn");
    }
}

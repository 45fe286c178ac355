//! The channels that a plant file names for its archive and its alarms.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The Channel Access names in `names` of `[[signal]]` and `channels` of `[[alarm]]`, with their places.
#[must_use]
pub fn channels(text: &str) -> Vec<(String, Range<usize>)> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut all = Vec::new();
    for (table, key) in [("signal", "names"), ("alarm", "channels")] {
        let tables = root.get_ref().get(table).and_then(|tables| tables.get_ref().as_array());
        let lists = tables
            .into_iter()
            .flat_map(|tables| tables.iter())
            .filter_map(|table| table.get_ref().as_table()?.get(key)?.get_ref().as_array());
        for item in lists.flat_map(|list| list.iter()) {
            if let DeValue::String(name) = item.get_ref()
                && !name.contains("://")
            {
                all.push((name.to_string(), item.span()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_signals_and_alarms_have_their_places() {
        let text = "[[signal]]\nnames = [\"a:X\", \"pva://b\"]\n[[signal]]\nloops = [\"l/*\"]\n[[alarm]]\nchannels = [\"c\"]\n";
        let found: Vec<_> = channels(text).into_iter().map(|(name, place)| (name, &text[place])).collect();
        assert_eq!(found, [("a:X".to_owned(), "\"a:X\""), ("c".to_owned(), "\"c\"")]);
        assert!(channels("signal = 1\n[[alarm]]\nchannels = 2\n").is_empty());
    }
}

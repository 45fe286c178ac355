//! Lines of the plant file, for messages that name a promise long after it was read.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Lines by name: `loop` and `loop.class` for tables with a name, `[shield]` and `[shield].cpus` for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Places(BTreeMap<String, u32>);

/// Tables that are processes, or become one.
const PROCESSES: [&str; 10] =
    ["process", "ioc", "equipment", "guest", "frame", "messages", "recorder", "alarms", "archive", "dashboard"];

/// Other tables with promises.
const OTHERS: [&str; 4] = ["shield", "partition", "watchdog", "records"];

impl Places {
    /// The line of a table or key, counted from 1.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    pub(crate) fn of(root: &DeTable<'_>, text: &str) -> Self {
        let mut places = Self::default();
        let lines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |span: Range<usize>| lines.partition_point(|end| *end < span.start) as u32 + 1;
        for (word, value) in root {
            let word = word.get_ref().as_ref();
            let tables: Vec<(&DeTable<'_>, Range<usize>)> = match value.get_ref() {
                DeValue::Table(table) => vec![(table, value.span())],
                DeValue::Array(all) => {
                    all.iter().filter_map(|one| Some((one.get_ref().as_table()?, one.span()))).collect()
                }
                _ => Vec::new(),
            };
            for (table, span) in tables {
                let own = table
                    .iter()
                    .find(|(key, _)| *key.get_ref() == "name")
                    .and_then(|(_, name)| name.get_ref().as_str());
                let name = match own {
                    _ if OTHERS.contains(&word) => own.map_or(format!("[{word}]"), |own| format!("[{word} {own}]")),
                    _ if !PROCESSES.contains(&word) => continue,
                    own => own.unwrap_or(word).to_owned(),
                };
                for (key, _) in table {
                    places.0.insert(format!("{name}.{}", key.get_ref()), line(key.span()));
                }
                places.0.insert(name, line(span));
            }
        }
        places
    }
}

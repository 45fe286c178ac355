//! Lines of the plant file, for messages about a promise long after the file was read.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use table::Joined;
use toml::de::{DeTable, DeValue};

/// Lines by name: `loop` and `loop.class` for tables with a name, `[shield]` and `[shield].cpus` for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Places(BTreeMap<String, Place>);

/// A line of the plant file, or of a file that it includes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Place {
    Line(u32),
    Included(u32, String),
}

/// Tables that are processes or are converted to one.
const PROCESSES: [&str; 10] =
    ["process", "ioc", "equipment", "guest", "frame", "messages", "recorder", "alarms", "archive", "dashboard"];

/// Other tables with promises.
const OTHERS: [&str; 4] = ["shield", "partition", "watchdog", "records"];

impl Places {
    /// The line of a table or key, counted from 1.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<u32> {
        self.0.get(name).map(|place| match place {
            Place::Line(line) | Place::Included(line, _) => *line,
        })
    }

    /// The file of a table or key; `None` for the plant file itself.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Place::Included(_, file)) => Some(file),
            _ => None,
        }
    }

    pub(crate) fn of(root: &DeTable<'_>, joined: &Joined) -> Self {
        let mut places = Self::default();
        let folder = joined.names().next().and_then(|main| Path::new(main).parent());
        let line = |span: Range<usize>| match joined.line(span.start) {
            (line, None) => Place::Line(line as u32),
            (line, Some(file)) => {
                let short = folder.and_then(|folder| Path::new(file).strip_prefix(folder).ok());
                Place::Included(line as u32, short.map_or(file.to_owned(), |short| short.display().to_string()))
            }
        };
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

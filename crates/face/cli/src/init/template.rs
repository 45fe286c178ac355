//! Templates of `tahti init`: the parts of each kind of plant, and the text of its files.

/// Maximum length of a plant's name. Other names (`NAME-values`) are derived from it.
pub(super) const NAME_BYTES_MAX: usize = 24;

/// Kinds of new plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Template {
    /// A 1 kHz loop with its latency
    Loop,
    /// The same, and a simulated heater in EPICS records
    Ioc,
    /// The same as loop, and a message server with two simulated power supplies
    Equipment,
    /// A frame scheduler with two activities
    Frame,
    /// All of these
    Full,
}

/// One part of a template: its tables of the plant file, its records and its additional files.
struct Part {
    tables: &'static str,
    records: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The process that the IOC waits for.
    process: &'static str,
}

const LOOP: Part =
    Part { tables: include_str!("loop.toml"), records: include_str!("loop.db"), files: &[], process: "loop" };
const HEATER: Part = Part {
    tables: include_str!("heater.toml"),
    records: include_str!("heater.db"),
    files: &[],
    // The heater runs in the IOC itself.
    process: "",
};
const EQUIPMENT: Part = Part {
    tables: include_str!("equipment.toml"),
    records: include_str!("supplies.db"),
    files: &[("supplies.toml", include_str!("supplies.toml"))],
    process: "supplies",
};
const FRAME: Part =
    Part { tables: include_str!("frame.toml"), records: include_str!("frame.db"), files: &[], process: "sensor" };

/// Start and end of each plant file. Everything that needs root is commented out.
const HEAD: &str = include_str!("head.toml");
const TAIL: &str = include_str!("tail.toml");
const RECORDS: &str = include_str!("records.db");

impl Template {
    const fn parts(self) -> &'static [Part] {
        match self {
            Self::Loop => &[LOOP],
            Self::Ioc => &[LOOP, HEATER],
            Self::Equipment => &[LOOP, EQUIPMENT],
            Self::Frame => &[FRAME],
            Self::Full => &[LOOP, HEATER, EQUIPMENT, FRAME],
        }
    }

    /// The files of a plant with this name, the plant file first.
    pub(super) fn files(self, name: &str) -> Vec<(&'static str, String)> {
        let parts = self.parts();
        let after: Vec<String> =
            parts.iter().filter(|part| !part.process.is_empty()).map(|part| format!("{:?}", part.process)).collect();
        let fill = |text: &str| {
            let text = text.replace("@NAME@", name).replace("@OBJECT@", &object(name));
            text.replace("@AFTER@", &after.join(", "))
        };
        let joined = |first: &str, of: fn(&Part) -> &'static str, last: &str| {
            let texts: String = parts.iter().map(of).collect();
            fill(&format!("{first}{texts}{last}"))
        };
        let mut files = vec![
            ("plant.toml", joined(HEAD, |part| part.tables, TAIL)),
            ("records.db", joined(RECORDS, |part| part.records, "")),
        ];
        files.extend(parts.iter().flat_map(|part| part.files).map(|(file, text)| (*file, fill(text))));
        files
    }
}

/// Converts the name of a folder to a valid plant name.
pub(super) fn plain(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let name: String = letters.collect();
    let name = name.trim_matches('-');
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    if name.is_empty() { "plant".to_owned() } else { name.to_owned() }
}

/// Converts a plant's name to a valid start of an object name: `RF-7` becomes `rf_7`.
fn object(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    fn plant(template: Template, name: &str) -> String {
        template.files(name).swap_remove(0).1
    }

    #[test]
    fn the_name_of_any_folder_becomes_a_valid_plant_in_every_template() {
        for folder in ["rf", "RF station 7", "...", "µ", "a/b", "-x-", &"long-".repeat(20), ".hidden_x"] {
            for template in Template::value_variants() {
                let checked = host::plant::check(&plant(*template, &plain(folder)), &host::plant::Anywhere);
                assert!(checked.plant.is_some() && checked.found.is_empty(), "{folder}: {:?}", checked.found);
            }
        }
    }

    #[test]
    fn every_placeholder_is_replaced() {
        for template in Template::value_variants() {
            for (file, text) in template.files("RF-7") {
                assert!(!text.contains("@NAME") && !text.contains("@AFTER") && !text.contains("@OBJECT"), "{file}");
            }
        }
        assert_eq!(object("RF-7"), "rf_7");
    }

    #[test]
    fn commented_lines_of_templates_are_valid_when_enabled() {
        for template in Template::value_variants() {
            let uncommented: String = plant(*template, "p")
                .lines()
                .map(|line| match line.strip_prefix("#") {
                    Some(key) if key.starts_with(|first: char| first == '[' || first.is_ascii_lowercase()) => {
                        format!("{key}\n")
                    }
                    _ => format!("{line}\n"),
                })
                .collect();
            let checked = host::plant::check(&uncommented, &host::plant::Anywhere);
            assert!(
                uncommented.contains("\n[shield]") && checked.found.is_empty(),
                "{template:?}: {:?}",
                checked.found
            );
        }
    }

    #[test]
    fn every_key_of_a_new_plant_file_has_a_comment() {
        // The comment is above the key or above its table. A key that was explained before needs none.
        for template in Template::value_variants() {
            let text = plant(*template, "p");
            let mut explained_keys = std::collections::BTreeSet::new();
            let mut is_explained = false;
            for line in text.lines() {
                if line.starts_with("# ") {
                    is_explained = true;
                } else if let Some((key, _)) = line.split_once(" = ") {
                    let key = key.trim_start_matches('#');
                    assert!(!explained_keys.insert(key.to_owned()) || is_explained, "{template:?}: {line}");
                    is_explained = false;
                }
            }
        }
    }
}

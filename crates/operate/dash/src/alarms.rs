//! Who looks after the plant's alarms: found by what the plant's file says, asked at their own socket.

use crate::watch::PlantFile;
use alarm::wire::{List, Look, Reply};
use alarmd::Client;
use host::plant::Plant;
use std::io;
use std::path::{Path, PathBuf};

/// How the command begins that `[alarms]` makes; the file follows.
const COMMAND: [&str; 3] = ["tahti", "alarm", "serve"];

/// The alarms of a plant.
pub(crate) struct Alarms {
    plant: PlantFile,
    /// Their file, or why there is none.
    file: Result<PathBuf, String>,
    client: Option<Client>,
}

impl Alarms {
    pub(crate) fn new(plant: &str) -> Self {
        let file = Err("not known yet: the plant's supervisor does not answer".to_owned());
        Self { plant: PlantFile::new(plant), file, client: None }
    }

    /// Those that stand or are put aside, over a connection that is kept.
    ///
    /// # Errors
    /// The plant has no alarms, or they do not answer.
    pub(crate) fn list(&mut self) -> Result<List, String> {
        self.find();
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        match client.look(&Look::List { names: Vec::new(), all: false }).map_err(lost)? {
            Reply::List(list) => {
                self.client = Some(client);
                Ok(*list)
            }
            Reply::Refused(why) => Err(why),
            other => Err(format!("the alarms answer {other:?} to a question for their list")),
        }
    }

    /// Acts on them for `user`; how many stand otherwise for it.
    ///
    /// # Errors
    /// The plant has no alarms, they do not answer, or they refuse it.
    pub(crate) fn act(&mut self, act: &alarm::Act, user: &str) -> Result<usize, String> {
        self.find();
        // A connection of its own: one that was kept may have ended long ago, and an act is not sent twice.
        match self.connect()?.act(act, user).map_err(lost)? {
            Reply::Done { changed } => Ok(changed),
            Reply::Refused(why) => Err(why),
            other => Err(format!("the alarms answer {other:?} to an act")),
        }
    }

    fn find(&mut self) {
        if let Some((file, plant)) = self.plant.changed() {
            let none = || "this plant has no alarms: [alarms] in its file makes some".to_owned();
            self.file = alarms_file(&plant, &file).ok_or_else(none);
            self.client = None;
        }
    }

    fn connect(&self) -> Result<Client, String> {
        let file = self.file.as_ref().map_err(Clone::clone)?;
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (config, _) = alarm::read(&text);
        let config = config.ok_or_else(|| format!("{0} is wrong: `tahti alarm serve --check {0}`", file.display()))?;
        Client::connect(&config.name).map_err(lost)
    }
}

fn lost(error: io::Error) -> String {
    format!("the alarms do not answer: {error}")
}

/// The file of the alarms of the plant in `plant_file`.
fn alarms_file(plant: &Plant, plant_file: &Path) -> Option<PathBuf> {
    plant.processes.iter().find_map(|process| {
        let [begin @ .., file] = process.command.get(..=COMMAND.len())? else { return None };
        let folder = plant_file.parent()?.join(process.dir.as_deref().unwrap_or_default());
        (begin == COMMAND).then(|| folder.join(file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_alarms_is_the_one_that_the_plant_names() {
        let plant = |more: &str| {
            let text = format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n{more}");
            let around = keep::supervisor::Machine { folder: std::env::temp_dir() };
            let checked = host::plant::check(&text, &around);
            alarms_file(&checked.plant.unwrap(), Path::new("/plants/plant.toml"))
        };
        assert_eq!(plant(""), None);
        let table = "[alarms]\nname = \"alarms\"\nfile = \"b.toml\"\n";
        assert_eq!(plant(table), Some("/plants/b.toml".into()));
        assert_eq!(plant(&format!("{table}dir = \"/tmp\"\n")), Some("/tmp/b.toml".into()));
    }
}

//! Who looks after the plant's alarms: found by what the plant's file says, asked at their own socket.

use crate::watch::PlantFile;
use alarm::wire::{List, Look, Reply};
use alarmd::Client;
use host::plant::Plant;
use std::io;
use std::path::{Path, PathBuf};

/// How the command begins that `[alarms]` makes; the file follows.
const COMMAND: [&str; 3] = ["tahti", "alarm", "serve"];

/// Why the alarms of a plant gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlarmsError {
    /// The supervisor has not told the plant's file.
    #[error("not known yet: the plant's supervisor does not answer")]
    Unknown,
    /// The plant's file makes none.
    #[error("this plant has no alarms: [alarms] in its file makes some")]
    None,
    /// Their file cannot be read.
    #[error("{}: {why}", file.display())]
    File {
        /// It.
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Their file has mistakes.
    #[error("{0} is wrong: `tahti alarm serve --check {0}`", file.display())]
    Wrong {
        /// It.
        file: PathBuf,
    },
    /// Nobody answers at their socket.
    #[error("the alarms do not answer: {0}")]
    Lost(String),
    /// They refuse what was asked.
    #[error("{0}")]
    Refused(String),
    /// They answer something else.
    #[error("the alarms answer {0}, which was not asked")]
    Other(String),
}

/// The alarms of a plant.
#[derive(Debug)]
pub struct Alarms {
    plant: PlantFile,
    /// Their file, or why there is none.
    file: Result<PathBuf, AlarmsError>,
    client: Option<Client>,
}

impl Alarms {
    /// Those of the plant that is called so; nothing is asked yet.
    #[must_use]
    pub fn new(plant: &str) -> Self {
        Self { plant: PlantFile::new(plant), file: Err(AlarmsError::Unknown), client: None }
    }

    /// Those that stand or are put aside, over a connection that is kept.
    ///
    /// # Errors
    /// The plant has no alarms, or they do not answer.
    pub fn list(&mut self) -> Result<List, AlarmsError> {
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
            Reply::Refused(why) => Err(AlarmsError::Refused(why)),
            other => Err(AlarmsError::Other(format!("{other:?}"))),
        }
    }

    /// Acts on them for `user`; how many stand otherwise for it.
    ///
    /// # Errors
    /// The plant has no alarms, they do not answer, or they refuse it.
    pub(crate) fn act(&mut self, act: &alarm::Act, user: &str) -> Result<usize, AlarmsError> {
        self.find();
        // A connection of its own: one that was kept may have ended long ago, and an act is not sent twice.
        match self.connect()?.act(act, user).map_err(lost)? {
            Reply::Done { changed } => Ok(changed),
            Reply::Refused(why) => Err(AlarmsError::Refused(why)),
            other => Err(AlarmsError::Other(format!("{other:?}"))),
        }
    }

    fn find(&mut self) {
        if let Some((file, plant)) = self.plant.changed() {
            self.file = alarms_file(&plant, &file).ok_or(AlarmsError::None);
            self.client = None;
        }
    }

    /// What they are called, for who asks them without this.
    ///
    /// # Errors
    /// The plant has no alarms, or their file cannot be read.
    pub(crate) fn server(&mut self) -> Result<String, AlarmsError> {
        self.find();
        self.called()
    }

    fn called(&self) -> Result<String, AlarmsError> {
        let file = self.file.as_ref().map_err(Clone::clone)?;
        let unread = |error: io::Error| AlarmsError::File { file: file.clone(), why: error.to_string() };
        let text = std::fs::read_to_string(file).map_err(unread)?;
        let (config, _) = alarm::read(&text);
        Ok(config.ok_or_else(|| AlarmsError::Wrong { file: file.clone() })?.name)
    }

    fn connect(&self) -> Result<Client, AlarmsError> {
        Client::connect(&self.called()?).map_err(lost)
    }
}

fn lost(error: io::Error) -> AlarmsError {
    AlarmsError::Lost(error.to_string())
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

//! Access to the plant's alarm server, which is found through the plant's file.

use crate::watch::PlantFile;
use alarm::wire::{List, Look, Reply};
use alarm::{Figures, Reckoner, Wall};
use alarmd::Client;
use host::plant::Plant;
use std::io;
use std::path::{Path, PathBuf};

/// Start of the command that `[alarms]` generates; the file follows.
const COMMAND: [&str; 3] = ["tahti", "alarm", "serve"];

/// Period of the figures.
const DAY_NS: i64 = 86_400_000_000_000;

/// Location of the alarms' configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConfigPlace {
    /// A separate file.
    File(PathBuf),
    /// The plant file, whose tables are passed to the alarm server.
    Plant(String),
}

/// Reason why the alarms of a plant are unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlarmsError {
    /// The supervisor has not reported the plant's file.
    #[error("not known yet: the plant's supervisor does not answer")]
    Unknown,
    /// The plant file defines no alarms.
    #[error("this plant has no alarms: [alarms] in its file makes some")]
    None,
    /// Their file cannot be read.
    #[error("{}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        why: String,
    },
    /// Their file has errors.
    #[error("{0} is wrong: `tahti alarm serve --check {0}`", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
    },
    /// The alarm server does not answer.
    #[error("the alarms do not answer: {0}")]
    Lost(String),
    /// The alarm server refuses the request.
    #[error("{0}")]
    Refused(String),
    /// The alarm server sends an unexpected answer.
    #[error("the alarms answer {0}, which was not asked")]
    Other(String),
}

impl AlarmsError {
    /// Short form of the message.
    #[must_use]
    pub const fn brief(&self) -> &'static str {
        match self {
            Self::Unknown => "not known yet",
            Self::None => "this plant has none",
            Self::File { .. } => "their file cannot be read",
            Self::Wrong { .. } => "their file is wrong",
            Self::Lost(_) => "they do not answer",
            Self::Refused(_) => "the alarm server refuses to list them",
            Self::Other(_) => "they answer something else",
        }
    }
}

/// The alarms of a plant.
#[derive(Debug)]
pub struct Alarms {
    plant: PlantFile,
    /// Name of the plant.
    called: String,
    /// Location of the configuration, or the reason why there is none.
    said: Result<ConfigPlace, AlarmsError>,
    client: Option<Client>,
}

impl Alarms {
    /// For the plant of this name. Does not connect yet.
    #[must_use]
    pub fn new(plant: &str) -> Self {
        Self { plant: PlantFile::new(plant), called: plant.to_owned(), said: Err(AlarmsError::Unknown), client: None }
    }

    /// Lists the active and hidden alarms. Keeps the connection open.
    ///
    /// # Errors
    /// If the plant has no alarms, or the server does not answer.
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

    /// Performs an action for `user`. Returns the number of changed alarms.
    ///
    /// # Errors
    /// If the plant has no alarms, or the server does not answer or refuses.
    pub(crate) fn act(&mut self, act: &alarm::Act, user: &str) -> Result<usize, AlarmsError> {
        self.find();
        // Use a new connection: a kept one may have ended, and an action must not be sent twice.
        match self.connect()?.act(act, user).map_err(lost)? {
            Reply::Done { changed } => Ok(changed),
            Reply::Refused(why) => Err(AlarmsError::Refused(why)),
            other => Err(AlarmsError::Other(format!("{other:?}"))),
        }
    }

    /// Figures of the last day by ISA-18.2, from the journal. Reads at most one day of it.
    ///
    /// # Errors
    /// If the plant has no alarms, the server does not answer, or the journal cannot be read.
    pub(crate) fn figures(&mut self) -> Result<Figures, AlarmsError> {
        let folder = PathBuf::from(self.list()?.folder);
        let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
        let (from, to) = (Wall(now.saturating_sub(DAY_NS)), Wall(now));
        let mut reckoner = Reckoner::default();
        alarmd::read(&folder, from, &mut |entry, is_snapshot| reckoner.take(&entry, is_snapshot))
            .map_err(|error| AlarmsError::File { file: folder.clone(), why: error.to_string() })?;
        Ok(reckoner.finish(from, to, alarmd::is_written(&folder)))
    }

    fn find(&mut self) {
        if let Some((file, plant)) = self.plant.changed() {
            self.said = said(&plant, &file).ok_or(AlarmsError::None);
            self.client = None;
        }
    }

    /// Name of the alarm server.
    ///
    /// # Errors
    /// If the plant has no alarms, or their file cannot be read.
    pub(crate) fn server(&mut self) -> Result<String, AlarmsError> {
        self.find();
        self.called()
    }

    fn called(&self) -> Result<String, AlarmsError> {
        let (config, file) = match self.said.as_ref().map_err(Clone::clone)? {
            ConfigPlace::File(file) => {
                let unread = |error: io::Error| AlarmsError::File { file: file.clone(), why: error.to_string() };
                (alarm::read(&std::fs::read_to_string(file).map_err(unread)?).0, file.clone())
            }
            ConfigPlace::Plant(tables) => (alarm::read_told(tables).0, PathBuf::from("[alarms]")),
        };
        let config = config.ok_or(AlarmsError::Wrong { file })?;
        Ok(config.served_as(Some(&self.called)).to_owned())
    }

    fn connect(&self) -> Result<Client, AlarmsError> {
        Client::connect(&self.called()?).map_err(lost)
    }
}

fn lost(error: io::Error) -> AlarmsError {
    AlarmsError::Lost(error.to_string())
}

/// Finds the alarms' configuration in a plant file.
fn said(plant: &Plant, plant_file: &Path) -> Option<ConfigPlace> {
    plant.processes.iter().find_map(|process| {
        let (begin, rest) = process.command.split_at_checked(COMMAND.len())?;
        if begin != COMMAND {
            return None;
        }
        let mut told = rest.chunks(2).filter(|pair| pair[0] == "--table").map(|pair| pair[1].as_str()).peekable();
        if told.peek().is_some() {
            return Some(ConfigPlace::Plant(told.collect::<Vec<_>>().join("\n")));
        }
        let folder = plant_file.parent()?.join(process.dir.as_deref().unwrap_or_default());
        Some(ConfigPlace::File(folder.join(rest.first()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_file_or_the_alarm_tables_of_the_plant_are_used() {
        let plant = |more: &str| {
            let text = format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n{more}");
            let around = keep::supervisor::Machine { folder: std::env::temp_dir() };
            let checked = host::plant::check(&text, &around);
            said(&checked.plant.unwrap(), Path::new("/plants/plant.toml"))
        };
        assert_eq!(plant(""), None);
        let table = "[alarms]\nname = \"alarms\"\nfile = \"b.toml\"\n";
        assert_eq!(plant(table), Some(ConfigPlace::File("/plants/b.toml".into())));
        assert_eq!(plant(&format!("{table}dir = \"/tmp\"\n")), Some(ConfigPlace::File("/tmp/b.toml".into())));
        let rows = "[alarms]\nname = \"alarms\"\nfolder = \"j\"\ntree = \"ring\"\n[[alarm]]\nchannels = [\"A\"]\n";
        let Some(ConfigPlace::Plant(tables)) = plant(rows) else { panic!("the plant is read") };
        assert_eq!(alarm::read_told(&tables).0.map(|config| config.name).as_deref(), Some("ring"));
    }
}

//! The plants of this machine, each with its verdict, as far as their run folders permit.
//!
//! The run folders are the own one, root's, and those of other users at their standard places. `TAHTI_RUN` limits the search to its
//! folder. A supervisor of a user who is not believed (see [`sys::peer::is_believed`]) is not asked.

use super::control::{Client, Reply, Request};
use super::rundir::{RunDir, base};
use super::{phase_word, short};
use host::plant::is_name;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use sys::run_folder::{MACHINES, looks_everywhere};

/// Maximum number of plants.
const PLANTS_MAX: usize = 64;
/// Maximum number of users whose run folders are searched.
const USERS_MAX: usize = 256;

/// A plant that is up.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// Its run folder.
    pub run: RunDir,
    /// The user of its supervisor: the owner of the folder.
    pub user: u32,
}

/// A plant in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// The user of its supervisor.
    pub user: u32,
    /// `good`, `degraded`, `failed` or `unknown`.
    pub outcome: &'static str,
    /// Phase and time since its start; empty if unknown.
    pub state: String,
    /// The first reason of the outcome, or why it is unknown; empty if it is good.
    pub why: String,
}

/// The plants of this machine that are up, by name, each once.
#[must_use]
pub fn neighbors() -> Vec<Neighbor> {
    let mut folders = vec![base()];
    if looks_everywhere() {
        folders.push(PathBuf::from(MACHINES));
        let subfolders = |parent: &str| fs::read_dir(parent).into_iter().flatten().flatten().take(USERS_MAX);
        folders.extend(subfolders("/run/user").map(|entry| entry.path().join("tahti")));
        let own_name = |name: &str| name.strip_prefix("tahti-").is_some_and(|user| user.parse::<u32>().is_ok());
        let temporary = fs::read_dir("/tmp").into_iter().flatten().flatten();
        let temporary = temporary.filter(|entry| entry.file_name().to_str().is_some_and(own_name));
        folders.extend(temporary.take(USERS_MAX).map(|entry| entry.path()));
    }
    let mut all: Vec<Neighbor> = folders.iter().flat_map(|folder| plants_of(folder)).collect();
    all.sort_by(|one, other| (one.run.name(), one.run.path()).cmp(&(other.run.name(), other.run.path())));
    all.dedup_by(|one, other| one.run.path() == other.run.path());
    all.truncate(PLANTS_MAX);
    all
}

/// The plant that is up and releases the active shield when it goes down.
#[must_use]
pub fn shield_owner() -> Option<String> {
    owner_of_shield(&neighbors(), |plant| Client::connect(&plant.run.socket()).is_ok())
}

fn owner_of_shield(all: &[Neighbor], has_supervisor: impl Fn(&Neighbor) -> bool) -> Option<String> {
    let owner = all.iter().find(|plant| plant.run.has_shield() && has_supervisor(plant))?;
    Some(owner.run.name().to_owned())
}

/// The plants with a state file in a run folder. A folder that another user could have changed has none. A plant's name has no
/// `.`, unlike a process's.
fn plants_of(folder: &Path) -> Vec<Neighbor> {
    let Some(user) = owner(folder) else { return Vec::new() };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(PLANTS_MAX * 4);
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_name(name) && !name.contains('.'))?;
        let run = RunDir::at(folder, &name);
        let is_up = owner(run.path()) == Some(user) && run.path().join("state.json").exists();
        is_up.then_some(Neighbor { run, user })
    });
    found.collect()
}

/// The only user who can change a folder; `None` if others can, or if it is not a folder.
fn owner(folder: &Path) -> Option<u32> {
    let found = fs::symlink_metadata(folder).ok()?;
    (found.is_dir() && found.mode() & 0o022 == 0).then_some(found.uid())
}

impl Neighbor {
    /// Its verdict. Waits for its supervisor, at most for the time of an answer. Returns also whether it did not answer in time.
    #[must_use]
    pub fn summary(&self) -> (Summary, bool) {
        let unknown = |why: String| self.unknown(why);
        if !sys::peer::is_believed(self.user) {
            return (unknown("another user's plant, which is not asked".to_owned()), false);
        }
        match Client::connect(&self.run.socket()).and_then(|mut client| client.ask(&Request::Status)) {
            Ok(Reply::Status(status)) => {
                let state = format!("{} for {}", phase_word(status.phase), short(status.now - status.since));
                let why = status.outcome.reasons().first().map_or_else(String::new, |reason| reason.words(short));
                let (name, outcome) = (self.run.name().to_owned(), status.outcome.word());
                (Summary { name, user: self.user, outcome, state, why }, false)
            }
            Ok(Reply::Refused(why)) => (unknown(why), false),
            Ok(_) => (unknown("its supervisor sends another answer".to_owned()), false),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::PermissionDenied => "root, its user and its operators may ask".to_owned(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        format!("it has lost its supervisor; `{}` continues it", self.run.continued_by())
                    }
                    io::ErrorKind::WouldBlock => "its supervisor does not answer in time".to_owned(),
                    _ => error.to_string(),
                };
                (unknown(why), error.kind() == io::ErrorKind::WouldBlock)
            }
        }
    }

    /// A summary without an answer.
    #[must_use]
    pub fn unknown(&self, why: String) -> Summary {
        Summary { name: self.run.name().to_owned(), user: self.user, outcome: "unknown", state: String::new(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A run folder in a temporary folder, which is removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tahti-neighbors-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            let place = Self(path);
            place.mode("", 0o755);
            place
        }

        fn plant(&self, name: &str) {
            fs::create_dir(self.0.join(name)).unwrap();
            self.mode(name, 0o711);
            fs::write(self.0.join(name).join("state.json"), "{}").unwrap();
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = plants_of(&self.0).iter().map(|found| found.run.name().to_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_plant_is_found_while_it_is_up_unless_others_could_have_made_its_folder() {
        let place = Place::new("found");
        ["rf", "bpm", "rf.2", "open", "_sockets", "bad name"].iter().for_each(|name| place.plant(name));
        fs::create_dir(place.0.join("down")).unwrap();
        place.mode("open", 0o777);
        assert_eq!(place.names(), ["bpm", "rf"]);
        place.mode("", 0o777);
        assert!(place.names().is_empty(), "any user can create folders there");
    }

    #[test]
    fn a_shield_belongs_to_a_plant_that_marks_it_in_this_boot_while_it_has_a_supervisor() {
        let place = Place::new("shield");
        ["bpm", "old", "rf"].iter().for_each(|name| place.plant(name));
        let mark =
            |name: &str, boot: &str| std::os::unix::fs::symlink(boot, place.0.join(name).join("shield")).unwrap();
        mark("old", "another boot");
        let owner = |has_supervisor| owner_of_shield(&plants_of(&place.0), |_| has_supervisor);
        assert_eq!(owner(true), None);
        mark("rf", &super::super::rundir::boot());
        assert_eq!([owner(true), owner(false)], [Some("rf".to_owned()), None]);
    }

    #[test]
    fn a_plant_without_an_answer_is_unknown_with_the_reason() {
        let place = Place::new("unknown");
        place.plant("rf");
        let found = plants_of(&place.0).remove(0);
        let (summary, is_silent) = found.summary();
        assert_eq!((summary.name.as_str(), summary.outcome, is_silent), ("rf", "unknown", false));
        assert_eq!(summary.why, "it has lost its supervisor; `tahti up rf` continues it");
        let foreign = Neighbor { user: found.user + 77, ..found };
        assert_eq!(foreign.summary().0.why, "another user's plant, which is not asked");
    }
}

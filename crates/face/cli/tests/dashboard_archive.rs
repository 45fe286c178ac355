//! The archive at the dashboard's address: the same answers as from `tahti archive http`, for clients with access to
//! the dashboard.

#[path = "../../../operate/retrieval/tests/suite/mod.rs"]
mod suite;

use harness::epics::{program, pvaccess};
use harness::port::free_port;
use harness::process::{Running, text};
use harness::{Folder, fresh, tahti};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

/// A dashboard of a plant that is not running.
struct Dashboard {
    address: String,
    plant: String,
    run: Folder,
    _process: Running,
}

impl Dashboard {
    fn start(words: &[&str]) -> Self {
        Self::start_with(words, &[])
    }

    fn start_with(words: &[&str], variables: &[(&str, String)]) -> Self {
        let (port, plant, run) = (free_port(), fresh("page"), Folder::new());
        let address = format!("127.0.0.1:{port}");
        let mut command = Self::command(&plant, &run);
        command.args(["dash", "serve", "--plant", &plant, "--listen", &address]).args(words);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let process = Running::until(&mut command, "serves at");
        Self { address, plant, run, _process: process }
    }

    fn command(plant: &str, run: &Folder) -> Command {
        let mut command = tahti();
        command.env("TAHTI_RUN", &run.0).env("TAHTI_PLANT", plant);
        command
    }

    fn token(&self) -> String {
        let said = text(
            &Self::command(&self.plant, &self.run).args(["dash", "url", "--plant", &self.plant]).output().unwrap(),
        );
        said.trim().rsplit_once("#token=").unwrap_or_else(|| panic!("{said:?} has a token")).1.to_owned()
    }

    /// The answer to a client with a token, or without.
    fn asked(&self, target: &str, token: Option<&str>) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(harness::PATIENCE)).unwrap();
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{token}Connection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_public_archive_is_served_with_the_requests_of_appliance_clients() {
    let folder = suite::archive();
    let dashboard = Dashboard::start(&["--archive", folder.0.to_str().unwrap(), "--retrieval"]);
    suite::is_served_as_clients_ask_for_it(&dashboard.address);
    suite::refuses_what_is_not_there_changes_and_other_names(&dashboard.address);
    assert!(dashboard.asked("/who", None).starts_with("HTTP/1.1 401"), "only the archive is public");
}

#[test]
fn by_default_the_archive_is_served_only_with_a_token() {
    const NAMES: &str = "/retrieval/bpl/getMatchingPVs?pv=*";
    let folder = suite::archive();
    let dashboard = Dashboard::start(&["--archive", folder.0.to_str().unwrap()]);
    for target in [NAMES, "/retrieval/data/getData.json?pv=RF:TEMP", "/mgmt/bpl/getAllPVs", "/retrieval/"] {
        let answer = dashboard.asked(target, None);
        assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("RF:"), "{target}: {answer}");
        assert!(dashboard.asked(target, Some("0123")).starts_with("HTTP/1.1 401"), "{target}");
    }
    let answer = dashboard.asked(NAMES, Some(&dashboard.token()));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("RF:TEMP"), "{answer}");
}

#[test]
fn a_plant_without_an_archive_answers_with_an_error() {
    let dashboard = Dashboard::start(&[]);
    let answer = dashboard.asked("/retrieval/bpl/getVersion", None);
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("[archive]"), "{answer}");
}

#[test]
fn archived_samples_are_the_result_of_a_call_over_pvaccess() {
    let (folder, port) = (suite::archive(), free_port());
    let words = ["--archive", folder.0.to_str().unwrap(), "--pvaccess"];
    let dashboard = Dashboard::start_with(&words, &pvaccess(port));
    let call = |function: &str, words: &[&str]| {
        let mut command = program(true, "pvcall", port);
        text(&command.arg(format!("{}:{function}", dashboard.plant)).args(words).output().unwrap())
    };
    assert!(call("signals", &["pattern=RF:*"]).contains("RF:TEMP"));
    let span = ["pv=RF:TEMP", "from=2026-12-31T23:50:00Z", "to=2026-12-31T23:50:02Z"];
    let whole = call("archive", &span);
    for part in ["secondsPastEpoch", "1798761000", "0.25", "0.5"] {
        assert!(whole.contains(part), "{part} is missing in {whole}");
    }
    let mean = call("archive", &["pv=ca://RF:TEMP.VAL", "from=1798761000", "to=1798761059", "pp=mean_60"]);
    assert!(mean.contains("7.375"), "{mean}");
    let refused = call("archive", &["pv=RF:TEMP", "pp=meanest_60"]);
    assert!(refused.contains("is no post-processor"), "{refused}");
    let mut verdict = program(true, "pvget", port);
    let verdict =
        text(&verdict.args(["-r", "field(value)", &format!("{}:verdict", dashboard.plant)]).output().unwrap());
    assert!(verdict.contains("unknown"), "the plant is not running: {verdict}");
}

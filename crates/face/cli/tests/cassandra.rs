//! `tahti archive serve` with a Cassandra cluster: each sample is in the cluster exactly once, across kills of both.

use harness::epics::program;
use harness::ioc::Ioc;
use harness::process::Running;
use harness::{Folder, eventually};
use std::io::{Read as _, Write as _};
use std::process::{Command, Output};
use testkit::cassandra::Node;

const DATABASE: &str =
    r#"record(calc, "X:COUNT") { field(SCAN, ".1 second") field(INPA, "X:COUNT") field(CALC, "A+1") }"#;

struct Site {
    ioc: Ioc,
    folder: Folder,
    node: Node,
    file: String,
}

impl Site {
    fn new() -> Self {
        let ioc = Ioc::start(&[("a.db", DATABASE)], &["-d", "a.db"]);
        let folder = Folder::new();
        // Addresses that do not collide with nodes of other tests.
        let node = Node::start(&folder.0, 111, 111);
        let text = format!(
            "[archive]\nfolder = \"{}\"\nsync = \"50ms\"\nengine = \"cassandra://{}/plant\"\nttl = \"24h\"\n[[signal]]\nnames = [\"X:COUNT\"]\n",
            folder.0.join("archive").display(),
            node.address()
        );
        let file = folder.write("archive.toml", &text).display().to_string();
        Self { ioc, folder, node, file }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(true, "archive", self.ioc.port);
        command.args(words);
        command
    }

    fn ask(&self, verb: &str, words: &[&str]) -> Output {
        self.command(&[&[verb], words].concat()).output().unwrap()
    }

    fn log(&self) -> String {
        self.folder.0.join("archive").display().to_string()
    }

    fn cluster(&self) -> String {
        format!("cassandra://{}/plant", self.node.address())
    }

    /// Logged values of `X:COUNT` in an archive.
    fn counts(&self, archive: &str) -> Vec<u64> {
        let output = self.ask("get", &[archive, "X:COUNT", "--from", "-1h", "--format", "csv"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().skip(1).filter_map(|line| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64)).collect()
    }

    fn status(&self) -> serde_json::Value {
        let output = self.ask("status", &[&self.log(), "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

#[test]
fn logged_samples_are_in_the_cluster_once_although_logger_and_node_are_killed() {
    let mut site = Site::new();
    let mut logs = Running::until(&mut site.command(&["serve", &site.file]), "then sent to cassandra://");
    logs.hears("the cluster accepts the logged samples");
    eventually("samples are in the cluster", || site.counts(&site.cluster()).len() > 10);
    let refused = site.ask("upload", &[&site.log(), &site.cluster()]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("another process sends this log"), "{said}");

    logs.child.kill().unwrap();
    logs.child.wait().unwrap();
    site.node.kill();
    let logs = Running::until(&mut site.command(&["serve", &site.file]), "the cluster takes nothing");
    eventually("samples wait", || site.status()["cluster"]["waiting"].as_u64().is_some_and(|bytes| bytes > 2_000));
    let status = site.status();
    assert_eq!((&status["cluster"]["connected"], &status["cluster"]["sent"]), (&false.into(), &0.into()), "{status}");
    let text = String::from_utf8(site.ask("status", &[&site.log()]).stdout).unwrap();
    assert!(text.contains("cluster      unavailable, 0 samples sent"), "{text}");

    site.node.again();
    eventually("waiting samples are sent", || {
        let cluster = &site.status()["cluster"];
        cluster["connected"] == true && cluster["sent"].as_u64().is_some_and(|sent| sent > 20)
    });
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    logs.hears("samples sent; the cluster accepts the logged samples, 0B wait");
    let (here, there) = (site.counts(&site.log()), site.counts(&site.cluster()));
    assert!(here.is_sorted_by(|one, next| one < next), "no sample is duplicated: {here:?}");
    assert_eq!(there, here, "the cluster has the samples of the folder");

    // Also over HTTP in the Archiver Appliance's format: both give the same.
    let by_http = |archive: &str| {
        let mut command = site.command(&["http", archive, "--listen", "127.0.0.1:0"]);
        let serves = Running::follow(&mut command);
        let said = serves.hears("/retrieval");
        let host = harness::http::address_in(&said);
        [
            "/retrieval/data/getData.json?pv=X:COUNT&from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z",
            "/retrieval/bpl/getMatchingPVs?regex=X:.*",
        ]
        .map(|path| {
            let mut stream = std::net::TcpStream::connect(host).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            answer.split_once("\r\n\r\n").unwrap().1.to_owned()
        })
    };
    let (here, there) = (by_http(&site.log()), by_http(&site.cluster()));
    assert!(here[0].contains("\"val\"") && here[1].contains("X:COUNT"), "{here:?}");
    assert_eq!(there, here);
}

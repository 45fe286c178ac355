//! Reading `[dashboard]`: the dashboard is a process whose command line is made from what the table says.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyWhen};
use super::process::{self, Read};
use base::DurNs;
use core::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use table::{Diagnostics, Section};

/// What `tahti dash serve` prints once it serves, or has found that it cannot yet: a plant needs no dashboard to be up.
const SERVES: &str = "tahti dash: ";
/// How long that may take.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(30);

/// Where it listens, if nothing is said.
const LISTENS: &str = "127.0.0.1:8765";

const OWN: [Key; 8] = [
    key(
        "listen",
        r#""127.0.0.1:8765""#,
        "address and port",
        "`127.0.0.1:8765`",
        "Where browsers find it. Beyond loopback without `certificate` everything goes over the network unencrypted: a tunnel (`ssh -L`) is better.",
    ),
    key(
        "names",
        r#"["rf-host.example.org"]"#,
        "list of names",
        "none",
        "Further names of this machine in addresses; other names are refused.",
    ),
    key(
        "certificate",
        r#""rf-host.pem""#,
        "file",
        "none: HTTP",
        "Serve by TLS with this certificate (PEM, followed by those that lead to its authority), from the plant file's folder; read again when \
         it changes. Needs a build with `--features tls`.",
    ),
    key(
        "key",
        r#""rf-host.key""#,
        "file",
        "none",
        "The certificate's key (PEM), which only its user and root may read.",
    ),
    key(
        "write",
        "true",
        "true or false",
        "`false`",
        "Whether there is an address for operators, who may start and stop processes, set signals and send commands.",
    ),
    key(
        "archive",
        r#""archive""#,
        "folder",
        "that of `[archive]`",
        "The archive that strip charts begin with, from the plant file's folder.",
    ),
    key(
        "settings",
        r#""settings""#,
        "folder",
        "none",
        "The folder of settings ([dashboard.md](dashboard.md#settings)), from the plant file's folder: what channels held can be saved there, compared and restored.",
    ),
    key("messages", r#""main""#, "name", "`main`", "The message server of the console."),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 1] = with_process(&OWN, &["command"]);

/// `[dashboard]`, as the documentation shows it.
pub(crate) const DASHBOARD: Table = Table {
    header: "[dashboard]",
    doc: "A page that shows the plant in a browser (see docs/dashboard.md); `tahti up` and `tahti dash url` print its address. It is a \
          process: every key of `[[process]]` but `command` holds here too.",
    keys: &OWN,
};

const READ: Table = Table { header: "[dashboard]", doc: "", keys: &SHAPE };

/// Reads the dashboard as the process that it is; `plant` is the plant's name, `archive` where its archive is.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    (plant, archive, has_shield): (&str, Option<&Path>, bool),
    found: &mut Diagnostics<'_>,
) -> Read {
    let called = "[dashboard]";
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "dash", "serve", "--plant", plant].map(str::to_owned).into();
    if let Some((text, span)) = section.words("listen", found) {
        if text.parse::<SocketAddr>().is_err() {
            found.error(
                span,
                format!("`listen` cannot be {text:?}"),
                "address and port, such as \"127.0.0.1:8765\"",
                "",
            );
        }
        command.push(format!("--listen={text}"));
    }
    for (name, _) in section.texts("names", found).unwrap_or_default() {
        command.push(format!("--name={name}"));
    }
    if section.flag("write", found) == Some(true) {
        command.push("--write".to_owned());
    }
    let identity = ["certificate", "key"].map(|key| section.words(key, found));
    if let [Some((_, span)), None] | [None, Some((_, span))] = &identity {
        found.error(
            span.clone(),
            "one of `certificate` and `key` alone".to_owned(),
            "both, or none for HTTP",
            "give the other one, too",
        );
    }
    for (key, file) in ["certificate", "key"].into_iter().zip(identity) {
        if let Some((file, _)) = file {
            command.push(format!("--{key}={file}"));
        }
    }
    let named = section.words("archive", found).map(|(text, _)| Path::new(text));
    if let Some(folder) = named.or(archive) {
        command.push(format!("--archive={}", folder.display()));
    }
    if let Some((text, _)) = section.words("settings", found) {
        command.push(format!("--settings={text}"));
    }
    if let Some((text, _)) = section.words("messages", found) {
        command.push(format!("--messages={text}"));
    }
    let mut read = process::read(&section, called, has_shield, Some((command, section.range())), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyWhen::Line(SERVES.to_owned()), within: BEGIN_WITHIN };
    }
    read
}

/// Where the plant's dashboard listens; none where the plant has none, or says it wrong.
pub(crate) fn listens(root: &toml::de::DeTable<'_>) -> Option<SocketAddr> {
    fn value<'t>(table: &'t toml::de::DeTable<'t>, name: &str) -> Option<&'t toml::de::DeValue<'t>> {
        table.iter().find(|(key, _)| *key.get_ref() == name).map(|(_, value)| value.get_ref())
    }
    let table = value(root, "dashboard")?;
    let listen = value(table.as_table()?, "listen");
    listen.map_or(LISTENS, |listen| listen.as_str().unwrap_or_default()).parse().ok()
}

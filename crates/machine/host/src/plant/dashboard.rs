//! Reads `[dashboard]`. The dashboard is a process whose command line is generated from the table.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Process, Ready, ReadyCondition};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::DurNs;
use core::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use table::{Diagnostics, Section};
use toml::de::{DeTable, DeValue};

/// Output of `tahti dash serve` when it serves, or when it cannot serve yet: the plant counts as up without its
/// dashboard.
const SERVES: &str = "tahti dash: ";
/// Time limit for that output.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(30);

/// Default address.
const LISTENS: &str = "127.0.0.1:8765";
/// Default name.
const NAME: &str = "dashboard";

const OWN: [Key; 12] = [
    key("enabled", "false", "true or false", "`true`", "Start a dashboard; `tahti up --no-dashboard` skips it once."),
    key("name", r#""page""#, "as in `[[process]]`", "`dashboard`", "Name of its process."),
    key(
        "listen",
        r#""127.0.0.1:8765""#,
        "address and port",
        "`127.0.0.1:8765`, or the next port up to 8784 that is free",
        "Address and port. Beyond loopback without `certificate` all data is unencrypted; prefer a tunnel (`ssh -L`).",
    ),
    key(
        "names",
        r#"["rf-host.example.org"]"#,
        "list of names",
        "none",
        "Further host names of this machine; other names are refused.",
    ),
    key(
        "certificate",
        r#""rf-host.pem""#,
        "file",
        "none: HTTP",
        "Serve HTTPS with this certificate chain (PEM), relative to the plant file. It is read again when it changes. \
         Needs a build with `--features tls`.",
    ),
    key(
        "key",
        r#""rf-host.key""#,
        "file",
        "none",
        "Private key of the certificate (PEM), readable by its user and root only.",
    ),
    key(
        "write",
        "true",
        "true or false",
        "`false`",
        "Enable the address for operators, who may start and stop processes, set signals and send commands.",
    ),
    key(
        "archive",
        r#""archive""#,
        "folder",
        "that of `[archive]`",
        "Archive for the past of strip charts, relative to the plant file.",
    ),
    key(
        "retrieval",
        "true",
        "true or false",
        "`false`",
        "Serve the archive at `/retrieval` without a token, for clients of the EPICS Archiver Appliance.",
    ),
    key(
        "pvaccess",
        "true",
        "true or false",
        "`false`",
        "Serve health, loops, frames and the archive over [PVAccess](../pvaccess.md#tables-of-the-plant), read only, without a token.",
    ),
    key(
        "settings",
        r#""settings""#,
        "folder",
        "none",
        "Folder of saved [settings](../dashboard.md#settings), relative to the plant file.",
    ),
    key("messages", r#""main""#, "name", "that of `[messages]`, else `main`", "Message server of the console."),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 2] = with_process(&OWN, &["command", "name"]);

/// `[dashboard]`, for the documentation.
pub(crate) const DASHBOARD: Table = Table {
    header: "[dashboard]",
    doc: "A page that shows the plant in a browser ([dashboard](../dashboard.md)). `tahti up` and `tahti dash url` print \
          its address. Without this table every plant has a read-only page for this machine. It is a process: all keys \
          of `[[process]]` except `command` are valid here.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[dashboard]", doc: "", keys: &SHAPE };

/// Information about the plant that the dashboard uses without a key in its table.
pub(crate) struct PlantContext<'a> {
    /// The plant's name.
    pub(crate) plant: &'a str,
    /// Folder of the plant's archive.
    pub(crate) archive: Option<PathBuf>,
    /// Name of the plant's message server.
    pub(crate) messages: Option<&'a str>,
    /// Whether it must listen at the default address, because a guest connects to it there.
    pub(crate) is_fixed: bool,
    /// Whether the plant has a shield.
    pub(crate) has_shield: bool,
}

impl<'a> PlantContext<'a> {
    pub(crate) fn of(root: &'a DeTable<'_>, plant: &'a str, has_shield: bool) -> Self {
        let messages = value(root, "messages").and_then(|table| value(table.as_table()?, "name")?.as_str());
        let guests = value(root, "guest").and_then(DeValue::as_array);
        let allows = |guest: &DeValue<'_>| {
            let allowed = guest.as_table().and_then(|guest| value(guest, "allow")?.as_array());
            allowed.is_some_and(|words| words.iter().any(|word| word.get_ref().as_str() == Some("dashboard")))
        };
        Self {
            plant,
            archive: super::archive::folder(root),
            messages,
            is_fixed: guests.is_some_and(|guests| guests.iter().any(|guest| allows(guest.get_ref()))),
            has_shield,
        }
    }
}

/// The dashboard of a plant without `[dashboard]`. Its name differs from the names of all other processes.
pub(crate) fn by_default(around: &PlantContext<'_>, is_taken: impl Fn(&str) -> bool) -> Process {
    let names = std::iter::once(NAME.to_owned()).chain((2..).map(|nth| format!("{NAME}-{nth}")));
    let nothing = DeTable::new();
    let read = read_table(&nothing, 0..0, around, &mut Diagnostics::new(""));
    let mut process = read.process;
    process.name = names.into_iter().find(|name| !is_taken(name)).unwrap_or_default();
    process.optional = true;
    process
}

/// Reads the dashboard as a process; `None` if the table disables it.
pub(crate) fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    around: &PlantContext<'_>,
    found: &mut Diagnostics<'_>,
) -> Option<PlacedProcess> {
    let is_on = value(table, "enabled").is_none_or(|value| value.as_bool() != Some(false));
    // A disabled table is checked as well.
    Some(read_table(table, span, around, found)).filter(|_| is_on)
}

fn read_table(
    table: &DeTable<'_>,
    span: Range<usize>,
    around: &PlantContext<'_>,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let called = "[dashboard]";
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "dash", "serve", "--plant", around.plant].map(str::to_owned).into();
    section.flag("enabled", found);
    let is_open = section.flag("retrieval", found) == Some(true);
    if let Some((text, span)) = section.words("listen", found) {
        if text.parse::<SocketAddr>().is_err() {
            found.error(
                span.clone(),
                format!("`listen` cannot be {text:?}"),
                "address and port, such as \"127.0.0.1:8765\"",
                "",
            );
        }
        command.push(format!("--listen={text}"));
        let is_remote = text.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
        if is_remote && section.words("certificate", found).is_none() {
            let message = format!("data, tokens and commands are not encrypted on the network of {text}");
            let remedy = "add `certificate` and `key`, or listen on 127.0.0.1 and use a tunnel (`ssh -L`)";
            found.warning(span.clone(), message, remedy);
        }
        if is_open && is_remote {
            let message = format!(
                "with `retrieval = true` every client that reaches {text} can read the archive without a password"
            );
            found.warning(span, message, "listen on 127.0.0.1, or remove `retrieval`");
        }
    } else if around.is_fixed {
        command.push(format!("--listen={LISTENS}"));
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
            "`certificate` without `key`, or `key` without `certificate`".to_owned(),
            "both, or none for HTTP",
            "add the other one",
        );
    }
    for (key, file) in ["certificate", "key"].into_iter().zip(identity) {
        if let Some((file, _)) = file {
            command.push(format!("--{key}={file}"));
        }
    }
    let named = section.words("archive", found).map(|(text, _)| Path::new(text));
    if let Some(folder) = named.or(around.archive.as_deref()) {
        command.push(format!("--archive={}", folder.display()));
    }
    if is_open {
        command.push("--retrieval".to_owned());
        if named.or(around.archive.as_deref()).is_none() {
            let what = "`retrieval` in a plant without an archive".to_owned();
            found.error(section.range(), what, "[archive], or `archive` in [dashboard]", "");
        }
    }
    if section.flag("pvaccess", found) == Some(true) {
        command.push("--pvaccess".to_owned());
    }
    if let Some((text, _)) = section.words("settings", found) {
        command.push(format!("--settings={text}"));
    }
    if let Some(text) = section.words("messages", found).map(|(text, _)| text).or(around.messages) {
        command.push(format!("--messages={text}"));
    }
    let name = match section.value("name") {
        Some(_) => process::name(&section, found).unwrap_or_else(|| (String::new(), section.range())),
        None => (NAME.to_owned(), section.range()),
    };
    let made = GeneratedCommand { command, has_own_priorities: false };
    let mut read = process::read_as(&section, name, called, around.has_shield, Some(made), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(SERVES.to_owned()), within: BEGIN_WITHIN };
    }
    read
}

/// Address of the plant's dashboard; `None` if the plant has no `[dashboard]`, or if the table disables it or has an
/// invalid address.
pub(crate) fn listens(root: &DeTable<'_>) -> Option<SocketAddr> {
    let table = value(root, "dashboard")?.as_table()?;
    if value(table, "enabled").and_then(DeValue::as_bool) == Some(false) {
        return None;
    }
    let listen = value(table, "listen");
    listen.map_or(LISTENS, |listen| listen.as_str().unwrap_or_default()).parse().ok()
}

fn value<'t>(table: &'t DeTable<'_>, name: &str) -> Option<&'t DeValue<'t>> {
    table.iter().find(|(key, _)| *key.get_ref() == name).map(|(_, value)| value.get_ref())
}

#[cfg(test)]
mod tests {
    use crate::plant::{Anywhere, Plant, check};

    fn plant(tables: &str) -> Plant {
        let text = format!("[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\n{tables}\n");
        let checked = check(&text, &Anywhere);
        checked.plant.unwrap_or_else(|| panic!("{:?}", checked.found))
    }

    /// Names of the processes; for the dashboard also its command.
    fn with_dashboard(tables: &str) -> Vec<String> {
        let shown = |process: &crate::plant::Process| match process.command.get(1).map(String::as_str) {
            Some("dash") => format!("{}: {}", process.name, process.command[3..].join(" ")),
            _ => process.name.clone(),
        };
        plant(tables).with_dashboard().processes.iter().map(shown).collect()
    }

    #[test]
    fn a_plant_without_a_dashboard_table_gets_an_optional_dashboard_on_request() {
        assert_eq!(plant("").processes.len(), 1);
        assert_eq!(with_dashboard(""), ["loop", "dashboard: --plant rf"]);
        let all = plant("").with_dashboard();
        assert!(all.process("dashboard").is_some_and(|process| process.optional));
        assert_eq!(all.clone().with_dashboard(), all, "a second pass changes nothing");
        let another = "[[process]]\nname = \"dashboard\"\ncommand = \"x\"";
        assert_eq!(with_dashboard(another), ["loop", "dashboard", "dashboard-2: --plant rf"]);
    }

    #[test]
    fn a_dashboard_finds_the_archive_and_messages_of_its_plant_automatically() {
        let tables = "[messages]\nname = \"bus\"\n[archive]\nname = \"log\"\nfolder = \"kept\"\ndir = \"/data\"\n\
                      [[signal]]\nnames = [\"A\"]";
        let found = "dashboard: --plant rf --archive=/data/kept --messages=bus";
        assert_eq!(with_dashboard(tables).last().unwrap(), found);
        assert_eq!(with_dashboard(&format!("{tables}\n[dashboard]")).last().unwrap(), found);
        let other = format!("{tables}\n[dashboard]\nname = \"page\"\nmessages = \"other\"");
        assert!(with_dashboard(&other).last().unwrap().ends_with("--messages=other"));
    }

    #[test]
    fn a_disabled_dashboard_is_not_started_but_its_table_is_checked() {
        assert_eq!(with_dashboard("[dashboard]\nenabled = false"), ["loop"]);
        assert_eq!(with_dashboard("[dashboard]\nenabled = true").len(), 2);
        let text = "[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\n[dashboard]\nenabled = false\nlisten = 1\n";
        assert_eq!(check(text, &Anywhere).found.len(), 1);
        assert_eq!(check(&text.replace("false", "\"no\""), &Anywhere).found.len(), 2);
    }

    #[test]
    fn beyond_loopback_an_archive_without_a_password_and_a_page_without_encryption_are_warned_about() {
        let said = |keys: &str| {
            let text =
                format!("[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\n[dashboard]\n{keys}\n");
            let checked = check(&text, &Anywhere);
            let command =
                checked.plant.map(|plant| plant.with_dashboard().process("dashboard").unwrap().command.join(" "));
            let found: Vec<String> = checked.found.iter().map(|found| found.message.clone()).collect();
            (command, found.join("; "))
        };
        let (command, found) = said("archive = \"a\"\nretrieval = true");
        assert!(command.unwrap().ends_with("--archive=a --retrieval") && found.is_empty());
        let (command, found) = said("archive = \"a\"\nretrieval = true\nlisten = \"10.0.0.7:80\"");
        assert!(command.is_some() && found.contains("without a password"), "{found}");
        let plain = "data, tokens and commands are not encrypted on the network of 10.0.0.7:80";
        assert_eq!(said("archive = \"a\"\nlisten = \"10.0.0.7:80\"").1, plain);
        assert_eq!(said("listen = \"10.0.0.7:80\"\ncertificate = \"c\"\nkey = \"k\"").1, "");
        let (command, found) = said("pvaccess = true\nsettings = \"s\"");
        assert!(command.unwrap().ends_with("--pvaccess --settings=s") && found.is_empty());
        let (command, found) = said("retrieval = true");
        assert!(command.is_none() && found.contains("without an archive"));
    }

    #[test]
    fn a_guest_that_reaches_the_dashboard_finds_it_at_one_port() {
        let guest = "[[guest]]\nname = \"hmi\"\nkernel = \"k\"\nallow = [\"dashboard\"]\n[dashboard]";
        assert!(with_dashboard(guest).iter().any(|one| one == "dashboard: --plant rf --listen=127.0.0.1:8765"));
    }
}

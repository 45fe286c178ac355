//! Reads `[alarms]`, `[[area]]` and `[[alarm]]`. The alarm server is a process whose command line is generated from
//! these tables.
//!
//! The crate `alarm` checks the rows; `tahti check`, `tahti up` and `tahti alarm serve` call it.

use super::as_written::as_written;
use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyCondition};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::DurNs;
use table::{Diagnostics, Section, tables};
use toml::de::DeTable;

/// Output of `tahti alarm serve` when it is ready.
const SERVING: &str = " alarms at @";
/// Time limit for that output. The server waits until the supervisor has reported the processes.
const READY_WITHIN: DurNs = DurNs::from_secs(60);

/// The keys of `[alarms]` that the alarm server gets. In an alarm file, which the crate `alarm` reads, the first key is
/// called `name` and the second is required.
pub const ALARM_KEYS: [Key; 9] = [
    key(
        "tree",
        r#""ring""#,
        "name",
        "`alarms`",
        "First word of all paths, and the name for `--server` of the commands; Phoebus calls it a configuration. Without it, commands find the \
         alarms under the plant's name.",
    ),
    key(
        "folder",
        r#""alarms""#,
        "path",
        "`file` must be given",
        "Folder of the journal, relative to the working directory; created if missing.",
    ),
    key("keep_days", "90", "number, 1 to 36500", "`90`", "Number of days to keep the journal."),
    key(
        "keep_size",
        r#""4GiB""#,
        "size, 32MiB at least",
        "`1GiB`",
        "Maximum size of the journal. Above it the oldest files are deleted, also before `keep_days`.",
    ),
    key(
        "operators",
        r#"["alice", "1001"]"#,
        "list of users",
        "none",
        "Users who may view, acknowledge and shelve alarms, in addition to root and the user of the process.",
    ),
    key("viewers", r#"["bob"]"#, "list of users", "none", "Users who may only view alarms."),
    key("shelve_max", r#""24h""#, "time, 1s to 720h", "`24h`", "Maximum time for which an alarm can be shelved."),
    key(
        "connect_within",
        r#""30s""#,
        "time, 1s to 1h",
        "`30s`",
        "A channel that is still not connected this long after the start is an alarm.",
    ),
    key(
        "notify",
        r#"[{ name = "oncall", to = "https://alerts.example.org/tahti", severity = "MAJOR" }]"#,
        "list of tables, see *notify*",
        "none",
        "Destinations of notifications, at most 16. Only these receive messages.",
    ),
];

/// An entry of `notify`, which the crate `alarm` reads.
pub const NOTIFY: Table = Table {
    header: "notify",
    doc: "A destination of notifications: a webhook or mail addresses.",
    keys: &[
        key(
            "name",
            r#""oncall""#,
            "letters, digits, `-`, `_` and `.`, at most 32",
            "",
            "Its name in messages, logs and `tahti ps`.",
        ),
        key(
            "to",
            r#""https://alerts.example.org/tahti""#,
            "`http://…`, `https://…`, or `mailto:ADDRESS,…`",
            "",
            "Address of the webhook, or up to 16 mail addresses. `https` needs a build with `--features tls`.",
        ),
        key(
            "token_file",
            r#""/etc/tahti/oncall.token""#,
            "file",
            "none",
            "Its first line is sent to the webhook as `Authorization: Bearer`. No other user may read the file (mode 0600). Only with `https`, or to \
             this machine.",
        ),
        key("from", r#""tahti@example.org""#, "mail address", "must be given for `mailto`", "Sender of mails."),
        key(
            "relay",
            r#""smtps://mail.example.org""#,
            "`smtp://HOST[:PORT]` or `smtps://HOST[:PORT]`",
            "`smtp://localhost`",
            "Mail server that accepts mails without login. `smtp` is not encrypted, `smtps` is TLS from the start (port 465).",
        ),
        key(
            "ca",
            r#""/etc/tahti/ca.pem""#,
            "file",
            "`/etc/ssl/certs/ca-certificates.crt`",
            "Certificates of trusted authorities for `https` and `smtps`, in PEM.",
        ),
        key(
            "severity",
            r#""MAJOR""#,
            "`MINOR`, `MAJOR`, `INVALID` or `UNDEFINED`",
            "`MINOR`",
            "Lowest severity that is sent.",
        ),
        key(
            "paths",
            r#"["/ring/RF", "BPM:*"]"#,
            "list of names of channels, areas or paths, with `*` and `?`",
            "all",
            "Alarms that are sent.",
        ),
        key(
            "delay",
            r#""30s""#,
            "time, 0s to 24h",
            "`10s`",
            "An alarm is sent if it is active and not acknowledged for this long.",
        ),
        key(
            "repeat",
            r#""1h""#,
            "`0s`, or time, 1m to 720h",
            "`4h`",
            "An alarm that is still not acknowledged is sent again after this time. `0s`: never.",
        ),
    ],
};

const OWN: [Key; 11] = [
    key(
        "file",
        r#""alarms.toml""#,
        "file",
        "`folder` must be given",
        "File with the alarms, relative to `dir`. The keys of that file are then not allowed here.",
    ),
    ALARM_KEYS[0],
    ALARM_KEYS[1],
    ALARM_KEYS[2],
    ALARM_KEYS[3],
    ALARM_KEYS[4],
    ALARM_KEYS[5],
    ALARM_KEYS[6],
    ALARM_KEYS[7],
    ALARM_KEYS[8],
    key("ready", r#"{ line = "armed" }"#, "table, see *ready*", "it serves, within 60s", "As in `[[process]]`."),
];

/// `[alarms]`, for the documentation.
pub(crate) const ALARMS: Table = Table {
    header: "[alarms]",
    doc: "The alarm process ([alarms](../alarms.md)). It evaluates the `[[alarm]]` and `[[area]]` tables of the plant, or of a file. It adds one alarm \
          per process, active if the process fails, is restarted, runs away or misses deadlines. It also adds one for the shield and one per \
          partition, active while a setting differs from the value that tahti wrote. It is a process: all keys of `[[process]]` except `command` are \
          valid here.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[alarms]", doc: "", keys: &SHAPE };

// `command` is generated, and `ready` has a different default.
const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 2] = with_process(&OWN, &["command", "ready"]);

/// Tables with one row of the alarm tree each.
const ROWS: [(&str, &str); 2] = [("area", "[[area]]"), ("alarm", "[[alarm]]")];

/// The name of the plant's alarm server, if the plant file contains the alarms.
pub(crate) fn server<'t>(root: &'t DeTable<'_>, plant: Option<&'t str>) -> Option<&'t str> {
    let alarms = root.get("alarms")?.get_ref().as_table()?;
    let word = |key: &str| alarms.get(key).and_then(|value| value.get_ref().as_str());
    // `alarms` is the default name.
    let own = word("tree").filter(|name| *name != "alarms");
    if alarms.get("file").is_some() { None } else { own.or(plant) }
}

/// Reads the alarms as a process. `plant` is the plant's name. `None` if the plant has no alarms.
pub(crate) fn member(
    root: &DeTable<'_>,
    text: &str,
    (plant, has_shield): (&str, bool),
    found: &mut Diagnostics<'_>,
) -> Option<PlacedProcess> {
    let rows = || ROWS.iter().flat_map(|(name, _)| root.iter().filter(move |(key, _)| *key.get_ref() == *name));
    let Some((table, span)) = tables(root, "alarms", false, found).into_iter().next() else {
        if let Some((key, _)) = rows().next() {
            let message = format!("[[{}]] in a plant without alarms", key.get_ref());
            found.error(key.span(), message, "[alarms]", "add `[alarms]` with name and folder");
        }
        return None;
    };
    let called = "[alarms]";
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "alarm", "serve"].map(str::to_owned).into();
    let file = section.words("file", found);
    match (&file, section.value("file").or(section.value("folder"))) {
        (Some((file, span)), _) => {
            let beside = ALARM_KEYS.iter().find(|key| section.value(key.name).is_some());
            if let Some(key) = beside {
                let message = format!("`{}` of [alarms] together with `file`", key.name);
                found.error(span.clone(), message, "one of them", "move it to the file");
            }
            if let Some((key, _)) = rows().next() {
                let message = format!("[[{}]] together with `file` of [alarms]", key.get_ref());
                found.error(key.span(), message, "all alarms in one place", "move it to the file, or remove `file`");
            }
            command.push((*file).to_owned());
        }
        (None, None) => {
            let message = "[alarms] has neither `file` nor `folder`".to_owned();
            found.error(section.range(), message, "`file` or `folder`", "add `folder = \"alarms\"`");
        }
        (None, Some(_)) => {
            let own = |name: &str| ALARM_KEYS.iter().any(|key| key.name == name);
            // An alarm file calls this key `name`.
            let named = |key: &str| own(key).then(|| if key == "tree" { "name" } else { key }.to_owned());
            command.extend(["--table".to_owned(), as_written(called, table, text, named)]);
            for (name, header) in ROWS {
                for (row, _) in tables(root, name, true, found) {
                    command.extend(["--table".to_owned(), as_written(header, row, text, |key| Some(key.to_owned()))]);
                }
            }
        }
    }
    command.extend(["--plant".to_owned(), plant.to_owned()]);
    let made = GeneratedCommand { command, has_own_priorities: false };
    let mut read = process::read(&section, called, has_shield, Some(made), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(SERVING.to_owned()), within: READY_WITHIN };
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use crate::plant::{Anywhere, check};

    fn said(tables: &str) -> Result<Vec<String>, Vec<String>> {
        let text = format!("[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"x\"\n{tables}\n");
        let checked = check(&text, &Anywhere);
        let found = checked.found.iter().map(|found| found.message.clone()).collect();
        checked.plant.map(|plant| plant.process("alarms").unwrap().command.clone()).ok_or(found)
    }

    #[test]
    fn rows_of_alarms_in_a_plant_are_passed_to_the_alarm_server_in_any_form() {
        let tables = "[alarms]\nname = \"alarms\"\nfolder = \"kept\"\ntree = \"ring\"\nnice = 5\n[[area]]\npath = \"RF\"\n\
                      [[alarm]]\nchannels = [\"A\",\n  \"B\"]\n[[alarm.guidance]]\ntitle = 'call \"us\"'\ndetails = \"a\\nb\"\n";
        let expected = [
            "tahti",
            "alarm",
            "serve",
            "--table",
            "[alarms]\nfolder = \"kept\"\nname = \"ring\"",
            "--table",
            "[[area]]\npath = \"RF\"",
            "--table",
            "[[alarm]]\nchannels = [\"A\", \"B\"]\nguidance = [{ details = \"a\\nb\", title = 'call \"us\"' }]",
            "--plant",
            "rf",
        ];
        let said = said(tables).unwrap();
        assert_eq!(said[..4], expected[..4]);
        for (said, expected) in said.iter().zip(expected) {
            let sorted = |text: &str| {
                let mut parts: Vec<String> =
                    text.split(['{', '}', ',', '\n']).map(|part| part.trim().to_owned()).collect();
                parts.sort();
                parts
            };
            assert_eq!(sorted(said), sorted(expected));
        }
    }

    #[test]
    fn alarms_are_defined_in_one_place_and_have_a_journal() {
        let alarms = "[alarms]\nname = \"alarms\"\n";
        let row = "[[alarm]]\nchannels = [\"A\"]";
        assert!(said(&format!("{alarms}file = \"a.toml\"")).unwrap().contains(&"a.toml".to_owned()));
        for (tables, expected) in [
            (alarms.to_owned(), "neither `file` nor `folder`"),
            (format!("{alarms}file = \"a\"\nfolder = \"b\""), "`folder` of [alarms] together with `file`"),
            (format!("{alarms}file = \"a\"\n{row}"), "[[alarm]] together with `file`"),
            (row.to_owned(), "[[alarm]] in a plant without alarms"),
        ] {
            let found = said(&tables).unwrap_err();
            assert!(found.len() == 1 && found[0].contains(expected), "{tables}: {found:?}");
        }
    }
}

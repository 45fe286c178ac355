//! `tahti alarm` from a record to the acknowledging user, across kills.

use harness::epics::program;
use harness::ioc::Ioc;
use harness::process::Running;
use harness::{Folder, eventually, fresh, tahti};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

const DATABASE: &str = r#"
record(ao, "X:TEMP") { field(HIGH, "10") field(HSV, "MINOR") field(HIHI, "20") field(HHSV, "MAJOR") field(VAL, "1") field(PINI, "YES") }
record(bo, "X:DOOR") { field(ZNAM, "closed") field(ONAM, "open") field(OSV, "MAJOR") field(VAL, "0") field(PINI, "YES") }
record(ao, "X:POWER") { field(VAL, "0") field(PINI, "YES") }
"#;

struct Site {
    ioc: Ioc,
    folder: Folder,
    name: String,
    file: std::path::PathBuf,
}

const ALARMS: &str = r#"
[[alarm]]
channels = ["X:TEMP"]
area = "RF"
description = "Water"
guidance = [{ title = "Reset", details = "at the rack" }]
[[alarm]]
channels = ["X:DOOR"]
filter = "'X:POWER' > 5"
[[alarm]]
channels = ["X:NONE"]
"#;

impl Site {
    fn new() -> Self {
        Self::with(ALARMS)
    }

    fn with(alarms: &str) -> Self {
        let ioc = Ioc::start(&[("a.db", DATABASE)], &["-d", "a.db"]);
        let (folder, name) = (Folder::new(), fresh("test"));
        let journal = folder.0.join("journal");
        let text = format!(
            "[alarms]\nname = \"{name}\"\nfolder = \"{}\"\nconnect_within = \"10s\"\n{alarms}",
            journal.display()
        );
        let file = folder.write("alarms.toml", &text);
        Self { ioc, folder, name, file }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(true, words[0], self.ioc.port);
        command.args(&words[1..]).env("TAHTI_ALARMS", &self.name);
        command
    }

    fn serve(&self) -> Running {
        Running::until(&mut self.command(&["alarm", "serve", self.file.to_str().unwrap()]), "serves ")
    }

    fn ask(&self, words: &[&str]) -> Output {
        self.command(&[&["alarm"], words].concat()).output().unwrap()
    }

    fn good(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn put(&self, record: &str, value: &str) {
        assert!(self.command(&["caput", record, value]).output().unwrap().status.success());
    }

    /// The alarm's row, once `wanted` accepts it.
    fn row(&self, channel: &str, what: &str, wanted: &dyn Fn(&Value) -> bool) -> Value {
        let mut row = Value::Null;
        eventually(what, || {
            let list: Value = serde_json::from_str(&self.good(&["list", "--all", "--json", channel])).unwrap();
            row = list["rows"][0].clone();
            wanted(&row)
        });
        row
    }

    fn severity(&self, channel: &str, severity: &str) -> Value {
        self.row(channel, &format!("{channel} is {severity}"), &|row| row["severity"] == severity)
    }
}

#[test]
fn an_alarm_is_latched_and_acknowledged_and_the_journal_names_the_user() {
    let site = Site::new();
    let serves = site.serve();
    site.put("X:TEMP", "25");
    assert!(serves.hears("X:TEMP").contains("/RF/X:TEMP HIHI 25"));
    site.put("X:TEMP", "5");
    let row = site.row("X:TEMP", "well again", &|row| row["current_severity"] == "OK");
    assert_eq!(
        (&row["severity"], &row["message"], &row["value"]),
        (&"MAJOR".into(), &"HIHI".into(), &"25".into()),
        "{row}"
    );
    let list = site.good(&["list", "--guidance"]);
    assert!(list.contains("MAJOR") && list.contains("Water") && list.contains("Reset: at the rack"), "{list}");
    assert_eq!(site.good(&["ack", "X:TEMP"]), "1 alarm\n");
    assert_eq!(site.good(&["ack", "X:TEMP"]), "nothing changes\n");
    assert!(!site.good(&["list"]).contains("X:TEMP"));
    let history = site.good(&["history"]);
    let acknowledged = history.lines().find(|line| line.contains("acknowledged X:TEMP by ")).expect(&history);
    let (uid, name) = (sys_uid(), user());
    assert!(acknowledged.contains(&format!("by {name} (user {uid}, process ")), "{acknowledged}");
    assert!(history.contains("-- started") && history.contains("X:TEMP  25  HIHI  announced"), "{history}");
}

#[test]
fn an_alarm_of_a_pvaccess_channel_has_the_cause_and_the_state_name_and_ends_undefined_without_a_server() {
    let site = Site::with(
        "[[alarm]]\nchannels = [\"pva://X:DOOR\", \"pva://X:TEMP\"]\nlatching = false\nfilter = \"'pva://X:POWER' > 5\"\n",
    );
    let serves = site.serve();
    serves.hears("all PVAccess channels are connected");
    site.put("X:POWER", "9");
    site.put("X:DOOR", "1");
    let door = site.severity("X:DOOR", "MAJOR");
    assert_eq!((&door["message"], &door["value"]), (&"STATE".into(), &"open".into()), "{door}");
    assert!(door["path"].as_str().unwrap().ends_with("/X:DOOR") && door["channel"] == "pva://X:DOOR", "{door}");
    site.put("X:TEMP", "25");
    assert_eq!(site.severity("X:TEMP", "MAJOR")["message"], "HIHI");
    site.put("X:POWER", "0");
    site.row("X:DOOR", "suppressed by the filter", &|row| row["suppressed"] == true);
    site.put("X:POWER", "9");
    site.row("X:DOOR", "no longer suppressed", &|row| row["suppressed"].is_null());
    assert_eq!(site.ioc.exit(), Some(0));
    serves.hears("UNDEFINED");
}

/// The user id of the test process, from the kernel.
fn sys_uid() -> String {
    String::from_utf8(Command::new("id").arg("-u").output().unwrap().stdout).unwrap().trim().to_owned()
}

fn user() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn acknowledged_and_shelved_alarms_stay_so_after_a_kill() {
    let site = Site::new();
    let mut serves = site.serve();
    site.put("X:TEMP", "25");
    site.severity("X:TEMP", "MAJOR");
    site.severity("X:NONE", "UNDEFINED");
    site.good(&["ack", "X:TEMP"]);
    site.good(&["shelve", "X:NONE", "--for", "1h", "--why", "not built yet"]);
    serves.child.kill().unwrap();
    serves.child.wait().unwrap();
    // A kill can leave an incomplete line at the end of the journal.
    let journal = site.folder.0.join("journal/0000000001.journal");
    let mut text = std::fs::read(&journal).unwrap();
    text.extend(b"{\"at\":{\"sec");
    std::fs::write(&journal, text).unwrap();

    let serves = site.serve();
    let row = site.severity("X:TEMP", "MAJOR_ACK");
    assert_eq!(row["current_severity"], "MAJOR");
    let row = site.row("X:NONE", "still on the shelf", &|row| !row["shelved"].is_null());
    assert_eq!(row["shelved"]["why"], "not built yet");
    assert!(site.good(&["list"]).contains("shelved for "));
    // The same value raises no new alarm. A worse value or another channel does.
    site.put("X:TEMP", "26");
    site.put("X:TEMP", "5");
    site.severity("X:TEMP", "OK");
    site.put("X:TEMP", "15");
    site.severity("X:TEMP", "MINOR");
    serves.signal("-TERM");
    eventually("it has ended", || serves.has_ended());
    let history = site.good(&["history", "--folder", site.folder.0.join("journal").to_str().unwrap(), "X:TEMP"]);
    assert!(history.contains("MAJOR_ACK") && !history.contains("X:NONE"), "{history}");
}

#[test]
fn a_filter_suppresses_by_design_and_impossible_actions_are_refused_with_the_reason() {
    let site = Site::new();
    let _serves = site.serve();
    site.put("X:DOOR", "1");
    let row = site.severity("X:DOOR", "MAJOR");
    assert_eq!((&row["value"], &row["suppressed"]), (&"open".into(), &true.into()), "{row}");
    site.put("X:POWER", "7");
    site.row("X:DOOR", "it means something", &|row| row["suppressed"].is_null());
    for (words, why) in [
        (&["ack", "X:TMP"][..], "did you mean \"X:TEMP\""),
        (&["shelve", "*", "--for", "2h30"], "expected 1s to"),
        (&["list", "--server", "nobody-serves-this"], "no alarm server has the name"),
    ] {
        let output = site.ask(words);
        assert!(
            !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(why),
            "{words:?}: {output:?}"
        );
    }
    let second = site.command(&["alarm", "serve", site.file.to_str().unwrap()]).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("another process writes this journal"), "{second:?}");
}

#[test]
fn a_watcher_receives_changes_and_malformed_requests_are_refused() {
    use std::os::linux::net::SocketAddrExt as _;
    let site = Site::new();
    let _serves = site.serve();
    let watch = Running::until(&mut site.command(&["alarm", "watch", "--json"]), "\"list\"");
    site.put("X:TEMP", "12");
    let change: Value = serde_json::from_str(&watch.hears("X:TEMP")).unwrap();
    assert_eq!(change["change"]["severity"], "MINOR");
    let name = format!("tahti-alarms-{}", site.name);
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
    stream.write_all(b"hello\n{\"do\":\"burn\"}\n{\"do\":\"list\",\"x\":1}\n{\"do\":\"acknowledge\",\"names\":[\"X:TEMP\"],\"on_behalf_of\":\"eve\"}\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("{\"refused\":\"not a request: "), "{line}");
    }
    assert_eq!(lines.next().unwrap().unwrap(), "{\"done\":{\"changed\":1}}");
    assert!(site.good(&["history"]).contains(" for eve (user "));
    stream.write_all(&vec![b'x'; 100_000]).unwrap_or_default();
    assert!(lines.next().is_none_or(|line| line.is_err()), "a request without an end ends the connection");
    site.severity("X:TEMP", "MINOR_ACK");
}

/// Accepts one request, answers it and sends its body.
fn webhook(listener: TcpListener) -> Receiver<Value> {
    let (send, body) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let lines = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let length = lines.filter_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).last().unwrap_or(0);
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        send.send(serde_json::from_slice(&bytes).unwrap()).unwrap();
    });
    body
}

#[test]
fn an_alarm_is_posted_to_a_webhook_and_a_destination_that_cannot_be_used_is_refused_at_the_start() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = |scheme: &str| {
        format!(
            "notify = [{{ name = \"oncall\", to = \"{scheme}://127.0.0.1:{port}/hook\", paths = [\"X:TEMP\"], delay = \"0s\" }}]\n{ALARMS}"
        )
    };
    let site = Site::with(&to("https"));
    let refused = site.ask(&["serve", site.file.to_str().unwrap()]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("needs TLS, and this build has none"), "{why}");
    let body = webhook(listener);
    let site = Site::with(&to("http"));
    let _serves = site.serve();
    site.put("X:TEMP", "25");
    let json = body.recv_timeout(harness::PATIENCE).unwrap();
    let alert = &json["alerts"][0];
    assert_eq!((&json["receiver"], &alert["status"]), (&"oncall".into(), &"firing".into()), "{json}");
    assert_eq!(alert["annotations"]["summary"], format!("MAJOR /{}/RF/X:TEMP HIHI 25", site.name));
    assert_eq!(alert["annotations"]["guidance"], "Reset: at the rack");
}

#[test]
fn the_page_on_alarms_has_the_tables_of_its_file() {
    let page = include_str!("../../../../docs/reference/alarms.md");
    let output = tahti().args(["alarm", "serve", "--document"]).output().unwrap();
    let document = String::from_utf8(output.stdout).unwrap();
    let missing: Vec<&str> = document.lines().filter(|line| line.starts_with('|') && !page.contains(line)).collect();
    assert!(missing.is_empty() && document.lines().count() > 10, "cargo run -- alarm serve --document: {missing:#?}");
}

#[test]
fn the_archive_stores_the_states_of_an_alarm_with_its_acknowledgement() {
    let site = Site::new();
    let _serves = site.serve();
    let folder = site.folder.0.join("kept");
    let shown = folder.to_str().unwrap();
    let text =
        format!("[archive]\nfolder = \"{shown}\"\nsync = \"20ms\"\n[[signal]]\nalarms = [\"{}/RF/*\"]\n", site.name);
    let file = site.folder.write("archive.toml", &text);
    let logs = Running::until(&mut site.command(&["archive", "serve", file.to_str().unwrap()]), "connected");
    site.put("X:TEMP", "25");
    site.severity("X:TEMP", "MAJOR");
    site.good(&["ack", "X:TEMP"]);
    let signal = format!("alarms/{}/RF/X:TEMP/", site.name);
    let get = |what: &str| {
        let output = site.command(&["archive", "get", shown, &format!("{signal}{what}")]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    eventually("it is acknowledged in the archive", || get("state").contains("MAJOR_ACK"));
    let (states, values) = (get("state"), get("value"));
    assert!(states.contains("  MAJOR  ") && values.contains("25"), "{states}{values}");
    assert!(get("message").contains("HIHI") && !states.contains("DOOR"), "{states}");
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
}

//! Alarms on a full disk, and with users of other user ids.

use harness::disk::Disk;
use harness::epics::program;
use harness::ioc::Ioc;
use harness::plant::{Bench, sh};
use harness::process::{Running, text};
use harness::{Folder, eventually, fresh};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

const DATABASE: &str = r#"
record(ao, "X:A") { field(HIHI, "20") field(HHSV, "MAJOR") field(VAL, "1") field(PINI, "YES") }
record(ao, "X:B") { field(HIHI, "20") field(HHSV, "MAJOR") field(VAL, "1") field(PINI, "YES") }
"#;
const LOOKS: u32 = 61_235;
const ACTS: u32 = 61_236;
const NOBODY: u32 = 65_534;

struct Site {
    ioc: Ioc,
    folder: Folder,
    name: String,
    file: PathBuf,
}

impl Site {
    fn new(journal: impl FnOnce(&Folder) -> PathBuf) -> Self {
        let ioc = Ioc::start(&[("a.db", DATABASE)], &["-d", "a.db"]);
        let (folder, name) = (Folder::new(), fresh("root-alarm"));
        let text = format!(
            "[alarms]\nname = \"{name}\"\nfolder = \"{}\"\noperators = [\"{ACTS}\"]\nviewers = [\"{LOOKS}\"]\n\
             [[alarm]]\nchannels = [\"X:A\", \"X:B\"]\n",
            journal(&folder).display()
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
        Running::until(&mut self.command(&["alarm", "serve", self.file.to_str().unwrap()]), "serves 2 alarms")
    }

    fn ask(&self, words: &[&str]) -> (bool, String) {
        let output = self.command(&[&["alarm"], words].concat()).output().unwrap();
        (output.status.success(), text(&output))
    }

    fn put(&self, record: &str, value: &str) {
        assert!(self.command(&["caput", record, value]).output().unwrap().status.success());
    }

    fn severity(&self, channel: &str, severity: &str) {
        eventually(&format!("{channel} is {severity}"), || {
            let (_, list) = self.ask(&["list", "--all", "--json", channel]);
            let list: Value = serde_json::from_str(&list).unwrap_or_default();
            list["rows"][0]["severity"] == severity
        });
    }
}

/// Takes the plant down and checks that the verdict reports the temporary failure `why`.
fn fails_because(bench: &Bench, why: &str) {
    let ended = bench.run(&["down"]);
    let said = text(&ended);
    assert!(ended.status.code() == Some(3) && said.contains(why), "{why}: {said}");
}

#[test]
fn on_a_full_disk_alarms_continue_and_acknowledgements_are_refused_if_not_stored() {
    let mut disk = None;
    let site = Site::new(|folder| {
        let mounted = Disk::mount(folder.0.join("disk"), "64k");
        let journal = mounted.0.join("journal");
        disk = Some(mounted);
        journal
    });
    let disk = disk.unwrap();
    let mut serves = site.serve();
    site.put("X:A", "25");
    site.severity("X:A", "MAJOR");
    assert_eq!(site.ask(&["ack", "X:A"]), (true, "1 alarm\n".to_owned()));
    disk.fill("filler");
    // The last page of the journal still has room for some lines.
    for turn in 0..200 {
        site.put("X:B", if turn % 2 == 0 { "25" } else { "26" });
        let (good, said) = site.ask(&["unack", "X:A"]);
        if !good {
            assert!(
                said.contains("not done, because the journal cannot be written") && said.contains("No space"),
                "{said}"
            );
            break;
        }
        let (good, said) = site.ask(&["ack", "X:A"]);
        assert!(good || turn > 0 && said.contains("not done"), "the first acknowledgement is stored: {said}");
        assert!(turn < 199, "the disk is full");
    }
    let known = |channel: &str| site.ask(&["list", "--all", "--json", channel]).1.contains("MAJOR_ACK");
    let acknowledged = known("X:A");
    let said = serves.hears("alarms continue, but cannot be acknowledged until the journal can be written");
    assert!(said.contains("No space left on device"), "{said}");
    // Alarms are still evaluated, but cannot be acknowledged.
    site.put("X:B", "1");
    site.put("X:B", "30");
    site.severity("X:B", "MAJOR");
    let (good, said) = site.ask(&["ack", "X:B"]);
    assert!(!good && said.contains("not done"), "{said}");
    site.severity("X:B", "MAJOR");

    // After a kill it starts again on the full disk and serves the alarms that were stored.
    serves.child.kill().unwrap();
    serves.child.wait().unwrap();
    let serves = site.serve();
    serves.hears("alarms continue, but cannot be acknowledged until the journal can be written");
    assert_eq!(known("X:A"), acknowledged, "the acknowledgement is restored");
    site.severity("X:B", "MAJOR");
    assert!(!site.ask(&["ack", "X:B"]).0);

    std::fs::remove_file(disk.0.join("filler")).unwrap();
    serves.hears("the journal can be written again");
    assert_eq!(site.ask(&["ack", "X:B"]), (true, "1 alarm\n".to_owned()));
    drop(serves);
    let _serves = site.serve();
    site.severity("X:B", "MAJOR_ACK");
    assert_eq!(known("X:A"), acknowledged);
    let (_, history) = site.ask(&["history"]);
    assert_eq!(history.matches("acknowledged X:B by ").count(), 1, "{history}");
}

#[test]
fn listed_users_may_read_or_act_and_the_journal_names_them() {
    let site = Site::new(|folder| folder.0.join("journal"));
    let _serves = site.serve();
    site.put("X:A", "25");
    site.severity("X:A", "MAJOR");
    // A copy of the program in a folder where every user may run it.
    let program = site.folder.0.join("tahti");
    std::fs::copy(env!("CARGO_BIN_EXE_tahti"), &program).unwrap();
    let as_user = |uid: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("alarm").args(words).args(["--server", &site.name]).uid(uid).gid(uid).current_dir("/");
        let output = command.output().unwrap();
        (output.status.success(), text(&output))
    };
    for uid in [LOOKS, ACTS] {
        let (good, said) = as_user(uid, &["list"]);
        assert!(good && said.contains("X:A"), "{uid}: {said}");
    }
    for words in [
        &["ack", "X:A"][..],
        &["shelve", "X:A", "--for", "1h", "--why", "x"],
        &["disable", "*"],
        &["maintenance", "on"],
    ] {
        let (good, said) = as_user(LOOKS, words);
        assert!(!good && said.contains(&format!("(user {LOOKS}) may only read")), "{words:?}: {said}");
    }
    site.severity("X:A", "MAJOR");
    for words in [&["list"][..], &["ack", "X:A"]] {
        let (good, said) = as_user(NOBODY, words);
        assert!(!good && said.contains("may neither read nor act") && !said.contains("X:B"), "{words:?}: {said}");
    }
    assert_eq!(as_user(ACTS, &["ack", "X:A"]), (true, "1 alarm\n".to_owned()));
    site.severity("X:A", "MAJOR_ACK");
    let (_, history) = site.ask(&["history"]);
    let acts: Vec<&str> = history.lines().filter(|line| line.contains(" by ")).collect();
    assert!(
        acts.len() == 1 && acts[0].contains(&format!("acknowledged X:A by {ACTS} (user {ACTS}, process ")),
        "{acts:?}"
    );
}

#[test]
fn a_changed_setting_of_the_shield_is_an_alarm_until_it_is_restored() {
    const KNOB: &str = "/proc/irq/default_smp_affinity";
    let process = sh("steady", "echo up; exec sleep 1000", "");
    let keys = "[shield]\ncpus = \"1\"\nrequired = true\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\n";
    let tree = fresh("shield");
    let bench = Bench::new("root-alarm-shield", &format!("{keys}tree = \"{tree}\"\n{process}"));
    bench.ok(&["up", ".", "--detach"]);
    let listed = || text(&bench.run(&["alarm", "list", "--all", "--server", &tree]));
    let line = || listed().lines().find(|line| line.contains("plant shield")).unwrap_or_default().to_owned();
    bench.until("the shield is OK", || line().starts_with("OK"));
    let written = std::fs::read_to_string(KNOB).unwrap();
    std::fs::write(KNOB, "3").unwrap();
    bench.until("it is an alarm", || line().starts_with("MAJOR") && line().contains("found"));
    std::fs::write(KNOB, written.trim()).unwrap();
    bench.until("it is OK again", || line().split_whitespace().nth(1) == Some("OK"));
    assert!(line().starts_with("MAJOR"), "it is not acknowledged: {}", listed());
    fails_because(&bench, "failed: shield: ");
}

#[test]
fn an_overwritten_bound_of_a_partition_is_an_alarm_until_it_is_restored() {
    let process = sh("steady", "echo up; exec sleep 1000", "partition = \"hmi\"");
    let keys = "[[partition]]\nname = \"hmi\"\ntasks_max = 20\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\n";
    let tree = fresh("partition");
    let bench = Bench::new("root-alarm-partition", &format!("{keys}tree = \"{tree}\"\n{process}"));
    bench.ok(&["up", ".", "--detach"]);
    let listed = || text(&bench.run(&["alarm", "list", "--all", "--server", &tree]));
    let line = || listed().lines().find(|line| line.contains("partition hmi")).unwrap_or_default().to_owned();
    bench.until("the partition is OK", || line().starts_with("OK"));
    let journal = std::fs::read_to_string(bench.dir.join("run/p/partitions.json")).unwrap();
    let journal: Value = serde_json::from_str(&journal).unwrap();
    let bound = format!("{}/pids.max", journal["rounds"][0][0]["target"]["path"].as_str().unwrap());
    std::fs::write(&bound, "30").unwrap();
    bench.until("it is an alarm", || line().starts_with("MAJOR") && line().contains("pids.max reads 30, expected 20"));
    std::fs::write(&bound, "20").unwrap();
    bench.until("it is OK again", || line().split_whitespace().nth(1) == Some("OK"));
    assert!(line().starts_with("MAJOR"), "it is not acknowledged: {}", listed());
    fails_because(&bench, "failed: partition hmi: ");
}

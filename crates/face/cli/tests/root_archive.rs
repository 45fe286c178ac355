//! `tahti archive serve` on a disk that is full, on one that becomes read-only, and in a folder that somebody removes.

use harness::disk::{Disk, Failing};
use harness::epics::program;
use harness::ioc::Ioc;
use harness::process::Running;
use harness::{Folder, eventually};
use std::fmt::Write as _;
use std::process::Output;

/// Enough that a disk of half a megabyte is full soon.
const FILLERS: usize = 300;

struct Site {
    // In this order: the logger's server, the disk, the folder that it is mounted in.
    ioc: Ioc,
    disk: Disk,
    folder: Folder,
}

impl Site {
    fn new(size: &str) -> Self {
        let mut database =
            "record(calc, \"X:COUNT\") { field(SCAN, \".1 second\") field(INPA, \"X:COUNT\") field(CALC, \"A+1\") }\n"
                .to_owned();
        let mut names = "\"X:COUNT\"".to_owned();
        for filler in 0..FILLERS {
            let _ = writeln!(
                database,
                "record(calc, \"X:F{filler}\") {{ field(SCAN, \".1 second\") field(CALC, \"RNDM\") }}"
            );
            let _ = write!(names, ", \"X:F{filler}\"");
        }
        let ioc = Ioc::start(&[("a.db", &database)], &["-d", "a.db"]);
        let folder = Folder::new();
        let disk = Disk::mount(folder.0.join("disk"), size);
        let text = format!(
            "[archive]\nfolder = \"{}\"\nsync = \"50ms\"\nwhen_full = \"stop\"\n[[signal]]\nnames = [{names}]\n",
            disk.0.join("archive").display()
        );
        folder.write("archive.toml", &text);
        Self { ioc, disk, folder }
    }

    fn serve(&self) -> Running {
        let mut command = program(true, "archive", self.ioc.port);
        Running::until(command.arg("serve").arg(self.folder.0.join("archive.toml")), "variables are connected")
    }

    fn ask(&self, verb: &str, words: &[&str]) -> Output {
        program(true, "archive", self.ioc.port).arg(verb).arg(self.disk.0.join("archive")).args(words).output().unwrap()
    }

    fn counts(&self) -> Vec<u64> {
        let text = String::from_utf8(self.ask("get", &["X:COUNT", "--from", "-1h", "--format", "csv"]).stdout).unwrap();
        text.lines().skip(1).filter_map(|line| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64)).collect()
    }
}

#[test]
fn a_disk_that_was_full_for_a_while_leaves_one_gap_that_counts_and_nothing_damaged_or_twice() {
    let site = Site::new("512k");
    let logs = site.serve();
    let said = logs.hears("No space left on device");
    assert!(said.contains("samples lost"), "{said}");
    let before = site.counts();
    assert!(!before.is_empty());
    site.disk.resize("64m");
    let over = logs.hears("samples are safe again");
    eventually("samples come again", || site.counts().len() > before.len() + 3);
    logs.signal("-TERM");
    let last = logs.hears("samples safe");
    let lost = |line: &str| {
        line.split([';', ',']).find_map(|part| {
            part.trim().split_once(' ').filter(|(_, rest)| rest.contains("lost")).map(|(count, _)| count.to_owned())
        })
    };
    assert_eq!(lost(&over), lost(&last), "{over} / {last}");

    let all = site.counts();
    assert_eq!(all[..before.len()], before);
    assert!(all.is_sorted_by(|one, next| one < next), "none is twice: {all:?}");
    let jumps = all.windows(2).filter(|two| two[0] + 1 != two[1]).count();
    assert_eq!(jumps, 1, "{all:?}");
    let text = String::from_utf8(site.ask("get", &["X:COUNT", "--from", "-1h"]).stdout).unwrap();
    assert_eq!(text.matches("-- disk full, ").count(), 1, "{text}");
    let verified = String::from_utf8(site.ask("verify", &[]).stdout).unwrap();
    assert!(verified.contains("good: "), "{verified}");
}

#[test]
fn a_folder_that_somebody_removes_is_told_and_nothing_more_is_called_safe() {
    let site = Site::new("64m");
    let logs = site.serve();
    eventually("some samples are there", || site.counts().len() > 5);
    std::fs::remove_dir_all(site.disk.0.join("archive")).unwrap();
    let said = logs.hears("samples lost");
    assert!(said.contains("somebody has removed the file") || said.contains("No such file"), "{said}");
    logs.signal("-TERM");
    let last = logs.hears("samples safe");
    assert!(!last.contains(" 0 lost"), "{last}");
    assert!(!site.disk.0.join("archive").exists(), "what somebody removed is not made again");
}

#[test]
fn a_disk_that_becomes_read_only_costs_what_came_until_it_is_repaired_and_nothing_that_was_safe() {
    let database =
        "record(calc, \"X:COUNT\") { field(SCAN, \".1 second\") field(INPA, \"X:COUNT\") field(CALC, \"A+1\") }\n";
    let ioc = Ioc::start(&[("a.db", database)], &["-d", "a.db"]);
    let folder = Folder::new();
    let disk = Failing::mount(folder.0.join("disk"), 32 << 20);
    let archive = disk.at().join("archive");
    let text =
        format!("[archive]\nfolder = \"{}\"\nsync = \"50ms\"\n[[signal]]\nnames = [\"X:COUNT\"]\n", archive.display());
    let file = folder.write("archive.toml", &text);
    let ask = |words: &[&str]| {
        let output = program(true, "archive", ioc.port).arg(words[0]).arg(&archive).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let counts = || -> Vec<u64> {
        let text = ask(&["get", "X:COUNT", "--from", "-1h", "--format", "csv"]);
        text.lines().skip(1).filter_map(|line| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64)).collect()
    };
    let logs = Running::until(program(true, "archive", ioc.port).arg("serve").arg(file), "variables are connected");
    let samples = || -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&ask(&["status", "--json"])).unwrap()["samples"].clone()
    };
    eventually("samples are safe", || samples()["safe"].as_u64().unwrap() > 5);
    let safe = samples()["safe"].as_u64().unwrap() as usize;
    disk.fail();
    let said = logs.hears("samples lost");
    assert!(said.contains("Read-only file system"), "{said}");
    eventually("samples are lost, and counted", || samples()["lost_on_disk"].as_u64().unwrap() > 5);
    disk.repair();
    logs.hears("samples are safe again");
    let before = counts();
    assert!(
        before.len() >= safe && before.windows(2).filter(|two| two[0] + 1 != two[1]).count() <= 1,
        "{safe} {before:?}"
    );
    eventually("samples come again", || counts().len() > before.len() + 5);
    let told = samples();
    logs.signal("-TERM");
    let last = logs.hears("samples safe");

    let all = counts();
    assert_eq!(all[..before.len()], before);
    assert!(all.is_sorted_by(|one, next| one < next), "none is twice: {all:?}");
    assert_eq!(all.windows(2).filter(|two| two[0] + 1 != two[1]).count(), 1, "{all:?}");
    let safe: usize = last.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    let unsure = told["unsure"].as_u64().unwrap() as usize;
    assert!((safe..=safe + unsure).contains(&all.len()), "{last}; {unsure} unsure; {} there", all.len());
    let text = ask(&["get", "X:COUNT", "--from", "-1h"]);
    assert_eq!(text.matches("-- disk failed, ").count(), 1, "{text}");
    assert!(ask(&["verify"]).contains("good: "), "{}", ask(&["verify"]));
}

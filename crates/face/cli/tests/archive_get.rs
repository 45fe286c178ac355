//! `tahti archive get`: times with a zone, names that do not exist, pulses of hosts with different clocks.

use harness::process::text;
use harness::{Folder, tahti};
use std::process::Output;

/// 2026-11-26T09:00:00Z.
const NINE: i64 = 1_795_683_600;

/// An archive with a sample of `A` and `B` each minute from 09:00 to 10:59 UTC. The clock of `B` is two days ahead. Pulse numbers
/// count minutes.
fn archive() -> Folder {
    let mut table = "signal,time_ns,type,value,pulse\n".to_owned();
    for (name, ahead) in [("A", 0), ("B", 2 * 86_400)] {
        for minute in 0..120 {
            table += &format!("{name},{}000000000,f64,{minute},{minute}\n", NINE + ahead + 60 * minute);
        }
    }
    let folder = Folder::new();
    folder.write("a.csv", &table);
    let imported = run(&folder, &["import", "archive", "a.csv"]);
    assert!(imported.status.success(), "{imported:?}");
    folder
}

fn run(folder: &Folder, words: &[&str]) -> Output {
    tahti().arg("archive").args(words).current_dir(&folder.0).env("TZ", "Asia/Tokyo").output().unwrap()
}

fn good(folder: &Folder, words: &[&str]) -> String {
    let output = run(folder, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn from_and_to_are_utc_unless_they_have_a_time_zone() {
    let folder = archive();
    for (from, to) in [
        ("2026-11-26T10:00+01:00", "2026-11-26T10:02:30+01:00"),
        ("2026-11-26T09:00Z", "2026-11-26T09:02:30Z"),
        ("2026-11-26T09:00", "2026-11-26 09:02:30"),
        ("2026-11-26T04:00:00-0500", "2026-11-26T18:02:30+09"),
    ] {
        let span = ["--from", from, "--to", to];
        let get = good(&folder, &[&["get", "archive", "A", "--format", "csv"], &span[..]].concat());
        let values: Vec<_> = get.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
        assert_eq!(values, ["0.0", "1.0", "2.0"], "{span:?}");
        let export = good(&folder, &[&["export", "archive", "A"], &span[..]].concat());
        assert_eq!(export.lines().count(), 4, "{span:?}: {export}");
    }
    let refused = run(&folder, &["get", "archive", "A", "--from", "2026-11-26T10:00+25:00"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("in UTC unless it ends with a zone such as +01:00"), "{refused:?}");
}

#[test]
fn an_unknown_name_fails_the_request_also_together_with_a_known_one() {
    let folder = archive();
    for verb in ["get", "export"] {
        let refused = run(&folder, &[verb, "archive", "A", "NONE", "X:*"]);
        assert_eq!(refused.status.code(), Some(1), "{verb}");
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert!(errors.contains("no signal matches NONE X:*") && errors.contains("tahti archive list"), "{errors}");
        assert!(refused.stdout.is_empty(), "{verb}: no part of an answer");
    }
}

#[test]
fn samples_of_one_pulse_are_joined_although_the_clock_of_one_host_is_two_days_ahead() {
    let folder = archive();
    let span = ["--from", "2026-11-26T09:10Z", "--to", "2026-11-26T09:19:59Z"];
    let words = [&["get", "archive", "A", "B", "--join", "pulse", "--format", "csv"], &span[..]].concat();
    let rows = good(&folder, &words);
    let expected: Vec<String> =
        (10..20).map(|minute| format!("{minute},2026-11-26T09:{minute}:00.000000000Z,{minute}.0,{minute}.0")).collect();
    assert_eq!(rows.lines().skip(1).collect::<Vec<_>>(), expected);
}

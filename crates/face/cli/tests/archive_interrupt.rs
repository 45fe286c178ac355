//! Interrupts long archive commands with Ctrl-C: they stop at a boundary, report the work done, and leave no partial
//! file.

use harness::{Folder, eventually, tahti};
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use store::{Config, Logger};

/// Samples in the archive. Reading them takes longer than sending a signal.
const MANY: i64 = 400_000;

fn archive(folder: &Folder, segments: i64) {
    for segment in 0..segments {
        let files = store::Folder::make(folder.0.join("archive")).unwrap();
        let mut logger = Logger::open(files, Config::default(), 0).unwrap();
        let signal = logger.signal("A", segment::rows::About::default(), 0).unwrap();
        for k in 0..MANY / segments {
            logger.push(signal, &segment::Sample::new((segment * MANY + k) * 1_000_000, k as f64 * 0.37));
        }
        logger.finish(0);
    }
}

fn command(folder: &Folder, words: &[&str]) -> Command {
    let mut command = tahti();
    command.arg("archive").args(words).current_dir(&folder.0).stderr(Stdio::piped());
    command
}

fn interrupt(child: &Child) {
    harness::process::kill(child.id() as i32, "INT");
}

/// Checks that the command was interrupted, and reports the work done and how to continue.
fn is_interrupted(output: &Output, done: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(
        errors.contains("interrupted: ") && errors.contains(done) && errors.contains("try: run the command again"),
        "{errors}"
    );
}

fn good(folder: &Folder, words: &[&str]) -> String {
    let output = command(folder, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_interrupted_import_keeps_the_rows_read_and_the_next_one_continues() {
    let folder = Folder::new();
    let fifo = folder.0.join("a.csv");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = command(&folder, &["import", "archive", "a.csv"]).spawn().unwrap();
    let mut file = OpenOptions::new().write(true).open(&fifo).unwrap();
    let mut table = "signal,time_ns,type,value\n".to_owned();
    let row = |k: u64| format!("A,{k}000000000,f64,{k}\n");
    (0..10_000).for_each(|k| table += &row(k));
    // Once more has been written than a pipe holds, the process has started to read.
    file.write_all(table.as_bytes()).unwrap();
    interrupt(&child);
    let mut k = 10_000;
    // The write fails when the process exits, because no process reads the rows.
    while file.write_all(row(k).as_bytes()).is_ok() {
        table += &row(k);
        k += 1;
    }
    let output = child.wait_with_output().unwrap();
    is_interrupted(&output, " samples imported, 0 were there already");
    assert!(good(&folder, &["verify", "archive"]).contains("good: "));
    folder.write("all.csv", &table);
    let again = good(&folder, &["import", "archive", "all.csv"]);
    let there = again.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(there > 0, "{again}");
    let all = good(&folder, &["export", "archive", "A"]);
    assert_eq!(all.lines().count() as u64, k + 1, "each sample once");
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let folder = Folder::new();
    archive(&folder, 1);
    let child = command(&folder, &["export", "archive", "A", "-o", "a.csv"]).spawn().unwrap();
    let file = folder.0.join("a.csv");
    eventually("it has begun to write", || file.metadata().is_ok_and(|file| file.len() > 0));
    interrupt(&child);
    is_interrupted(&child.wait_with_output().unwrap(), "a file of --output is removed");
    assert!(!Path::new(&file).exists());
    // The same with output to a pipe.
    let mut child = command(&folder, &["export", "archive", "A"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    interrupt(&child);
    let mut rows = String::new();
    out.read_to_string(&mut rows).unwrap();
    assert!((rows.lines().count() as i64) < MANY && rows.ends_with('\n'), "whole rows");
    is_interrupted(&child.wait_with_output().unwrap(), "not complete");
}

#[test]
fn an_interrupted_pack_ends_between_two_packs_and_the_next_one_continues() {
    let folder = Folder::new();
    archive(&folder, 40);
    // A full pipe: printing the first pack's line blocks until the signal has been sent.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'.'; 65_536]).unwrap();
    let mut pack = command(&folder, &["pack", "archive"]);
    let child = pack.stdout(writer).spawn().unwrap();
    drop(pack);
    let names = || {
        std::fs::read_dir(folder.0.join("archive"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let packs = || names().filter(|name| name.ends_with("parquet") || name.ends_with("pack")).count();
    eventually("a pack", || packs() == 1);
    interrupt(&child);
    let mut lines = Vec::new();
    reader.read_to_end(&mut lines).unwrap();
    is_interrupted(&child.wait_with_output().unwrap(), "1 packs made; the other files are as they were");
    assert_eq!(packs(), 1, "{:?}", names().collect::<Vec<_>>());
    assert!(good(&folder, &["verify", "archive"]).contains(&format!("{MANY} samples")));
    good(&folder, &["pack", "archive"]);
    assert!(good(&folder, &["verify", "archive"]).contains(&format!("{MANY} samples")));
    assert!(
        !names().any(|name| name.contains("segment") && !name.contains("0000000041")),
        "{:?}",
        names().collect::<Vec<_>>()
    );
}

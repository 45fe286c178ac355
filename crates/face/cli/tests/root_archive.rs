//! `tahti archive serve` on a full disk, on a disk that becomes read-only, and in a folder that is removed.

use harness::archived::{Archived, COUNTER};
use harness::disk::{Disk, Failing};
use harness::ioc::Ioc;
use harness::plant::Bench;
use harness::process::Running;
use harness::{Folder, eventually, fresh, tahti};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Number of records that fills a disk of half a megabyte within a short time.
const FILLERS: usize = 300;

struct Site {
    // Dropped in this order: the disk before the folder that it is mounted in.
    disk: Disk,
    archived: Archived,
}

/// Records, one of which counts, and their names as a list for the plant file.
fn records() -> (String, String) {
    let (mut database, mut names) = (COUNTER.to_owned(), "\"X:COUNT\"".to_owned());
    for filler in 0..FILLERS {
        let _ =
            writeln!(database, "record(calc, \"X:F{filler}\") {{ field(SCAN, \".1 second\") field(CALC, \"RNDM\") }}");
        let _ = write!(names, ", \"X:F{filler}\"");
    }
    (database, names)
}

impl Site {
    fn new(size: &str) -> Self {
        let (database, names) = records();
        let says = format!("sync = \"50ms\"\nwhen_full = \"stop\"\n[[signal]]\nnames = [{names}]\n");
        let archived = Archived::new(&database, "disk/archive", &says);
        let disk = Disk::mount(archived.folder.0.join("disk"), size);
        Self { disk, archived }
    }
}

fn serve(archived: &Archived) -> Running {
    archived.serve("variables are connected")
}

#[test]
fn a_full_disk_leaves_one_counted_gap_and_nothing_damaged_or_duplicated() {
    let site = Site::new("512k");
    let logs = serve(&site.archived);
    let said = logs.hears("No space left on device");
    assert!(said.contains("samples lost"), "{said}");
    let before = site.archived.counts();
    assert!(!before.is_empty());
    site.disk.resize("64m");
    let over = logs.hears("samples are safe again");
    eventually("samples arrive again", || site.archived.counts().len() > before.len() + 3);
    logs.signal("-TERM");
    let last = logs.hears("samples safe");
    let lost = |line: &str| {
        line.split([';', ',']).find_map(|part| {
            part.trim().split_once(' ').filter(|(_, rest)| rest.contains("lost")).map(|(count, _)| count.to_owned())
        })
    };
    assert_eq!(lost(&over), lost(&last), "{over} / {last}");

    let all = site.archived.counts();
    assert_eq!(all[..before.len()], before);
    assert!(all.is_sorted_by(|one, next| one < next), "no sample is duplicated: {all:?}");
    let jumps = all.windows(2).filter(|two| two[0] + 1 != two[1]).count();
    assert_eq!(jumps, 1, "{all:?}");
    let text = site.archived.good("get", &["X:COUNT", "--from", "-1h"]);
    assert_eq!(text.matches("-- disk full, ").count(), 1, "{text}");
    let verified = site.archived.good("verify", &[]);
    assert!(verified.contains("good: "), "{verified}");
}

#[test]
fn an_archive_that_loses_samples_is_an_alarm_until_samples_are_safe_again() {
    let (database, names) = records();
    let ioc = Ioc::start(&[("a.db", &database)], &["-d", "a.db"]);
    let folder = Folder::new();
    let disk = Disk::mount(folder.0.join("disk"), "512k");
    let (tree, port, at) = (fresh("archive"), ioc.port, disk.0.join("archive"));
    let env = format!(
        "{{ EPICS_CA_ADDR_LIST = \"127.0.0.1\", EPICS_CA_AUTO_ADDR_LIST = \"NO\", EPICS_CA_SERVER_PORT = \"{port}\", \
         EPICS_CA_REPEATER_PORT = \"{}\" }}",
        port + 1
    );
    let bench = Bench::new(
        "root-archive-alarm",
        &format!(
            "[archive]\nname = \"archive\"\nfolder = \"{}\"\nsync = \"50ms\"\nwhen_full = \"stop\"\nenv = {env}\n\
             [[signal]]\nnames = [{names}]\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n",
            at.display()
        ),
    );
    bench.ok(&["up", ".", "--detach"]);
    let line = || {
        let output = bench.run(&["alarm", "list", "--all", "--server", &tree]);
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        listed.lines().find(|line| line.contains("process archive")).unwrap_or_default().to_owned()
    };
    bench.until("it is an alarm", || line().starts_with("MAJOR") && line().contains("No space left on device"));
    assert!(bench.ok(&["ps"]).contains("No space left on device"));
    disk.resize("64m");
    bench.until("it is OK again", || line().split_whitespace().nth(1) == Some("OK"));
    assert!(line().starts_with("MAJOR"), "it is not acknowledged: {}", line());
    let output = bench.run(&["down"]);
    let said = harness::process::text(&output);
    let is_named = said.contains(": failed: archive: failed to append: No space left on device");
    assert!(output.status.code() == Some(3) && is_named, "{said}");
}

/// Another user of this machine.
const OTHER: u32 = 4_711;

/// A command that runs as another user.
fn as_other(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]).uid(OTHER).gid(OTHER).current_dir("/");
    command
}

#[test]
fn another_user_cannot_stop_read_or_mislead_a_logger() {
    let archived = Archived::new(COUNTER, "archive", "sync = \"50ms\"\n[[signal]]\nnames = [\"X:COUNT\"]\n");
    let folder = archived.folder.0.join("archive");
    // An administrator may have created the folder like this: readable by others.
    std::fs::create_dir(&folder).unwrap();
    for open in [&archived.folder.0, &folder] {
        std::fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
    }
    let about = std::fs::metadata(&folder).unwrap();
    let name = format!("tahti-archive-{}-{}", about.dev(), about.ino());
    let takes = format!(
        "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0{name}')\ns.listen(0)\nprint('taken', flush=True)\ntime.sleep(1000)"
    );
    let mut taker = Running::until(&mut as_other(&takes), "taken");
    let logs = serve(&archived);
    eventually("samples are still logged", || archived.counts().len() > 5);
    // The name that the other user has taken is the second one. The first is in a folder of the logger's user.
    let status = archived.ask("status", &[]);
    assert!(status.status.success(), "{status:?}");
    // Logged data, and the lock that excludes a second logger, are readable by owner and group only.
    let file = |ending: &str| {
        let mut files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.to_str().unwrap().ends_with(ending)).unwrap()
    };
    for path in [file("lock"), file(".segment")] {
        let output = as_other(&format!("open({:?})", path.display().to_string())).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("PermissionError"), "{}: {output:?}", path.display());
    }
    taker.child.kill().unwrap();
    taker.child.wait().unwrap();
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");

    // In a folder where every user may create folders, a folder of another user is not used.
    let shared = archived.folder.0.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let theirs = shared.join("theirs");
    assert!(as_other(&format!("import os; os.mkdir({:?})", theirs.display().to_string())).status().unwrap().success());
    std::os::unix::fs::symlink(&folder, shared.join("link")).unwrap();
    std::os::unix::fs::lchown(shared.join("link"), Some(OTHER), Some(OTHER)).unwrap();
    for place in ["theirs", "link"] {
        let table = archived.folder.write("other.csv", "signal,time_ns,type,value\nA,1,f64,1\n");
        let output = tahti().args(["archive", "import"]).arg(shared.join(place)).arg(table).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // A link there is not followed, unless the kernel allows it (`fs.protected_symlinks`).
        let why = said.contains(&format!("user {OTHER} created it"));
        assert!(!output.status.success() && (why || place == "link"), "{place}: {said}");
    }
    assert_eq!(std::fs::read_dir(theirs).unwrap().count(), 0);
}

#[test]
fn a_removed_folder_is_reported_and_no_further_sample_counts_as_safe() {
    let site = Site::new("64m");
    let logs = serve(&site.archived);
    eventually("some samples are stored", || site.archived.counts().len() > 5);
    std::fs::remove_dir_all(site.disk.0.join("archive")).unwrap();
    let said = logs.hears("samples lost");
    assert!(said.contains("another program moved, removed or replaced the archive's folder"), "{said}");
    logs.signal("-TERM");
    let last = logs.hears("samples safe");
    assert!(!last.contains(" 0 lost"), "{last}");
    assert!(!site.disk.0.join("archive").exists(), "a removed folder is not recreated");
}

#[test]
fn a_read_only_disk_costs_samples_until_its_repair_and_no_safe_one() {
    let archived = Archived::new(COUNTER, "disk/archive", "sync = \"50ms\"\n[[signal]]\nnames = [\"X:COUNT\"]\n");
    let disk = Failing::mount(archived.folder.0.join("disk"), 32 << 20);
    let logs = serve(&archived);
    let counts = || archived.counts();
    let samples = || -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&archived.good("status", &["--json"])).unwrap()["samples"].clone()
    };
    eventually("samples are safe", || samples()["safe"].as_u64().unwrap() > 5);
    let safe = samples()["safe"].as_u64().unwrap() as usize;
    disk.fail();
    let said = logs.hears("samples lost");
    // A sync that runs while the disk fails ends with an input/output error.
    assert!(["Read-only file system", "Input/output error"].iter().any(|why| said.contains(why)), "{said}");
    eventually("samples are lost, and counted", || samples()["lost_on_disk"].as_u64().unwrap() > 5);
    disk.repair();
    logs.hears("samples are safe again");
    let before = counts();
    assert!(
        before.len() >= safe && before.windows(2).filter(|two| two[0] + 1 != two[1]).count() <= 1,
        "{safe} {before:?}"
    );
    eventually("samples arrive again", || counts().len() > before.len() + 5);
    let told = samples();
    logs.signal("-TERM");
    let last = logs.hears("samples safe");

    let all = counts();
    assert_eq!(all[..before.len()], before);
    assert!(all.is_sorted_by(|one, next| one < next), "no sample is duplicated: {all:?}");
    assert_eq!(all.windows(2).filter(|two| two[0] + 1 != two[1]).count(), 1, "{all:?}");
    let safe: usize = last.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    let unsure = told["unsure"].as_u64().unwrap() as usize;
    assert!((safe..=safe + unsure).contains(&all.len()), "{last}; {unsure} unsure; {} stored", all.len());
    let text = archived.good("get", &["X:COUNT", "--from", "-1h"]);
    assert_eq!(text.matches("-- disk failed, ").count(), 1, "{text}");
    let verified = archived.good("verify", &[]);
    assert!(verified.contains("good: "), "{verified}");
}

/// A stream with one image of four bytes, after a header of 384 bytes in the layout of ImageStreamIO.
fn stream(value: u8) -> Vec<u8> {
    let mut bytes = vec![0; 384];
    bytes[..4].copy_from_slice(b"2.00");
    // Image metadata: one axis, four numbers of 8 bits, in CPU memory, first image.
    for (at, byte) in [(112, 1), (116, 4), (128, 4), (136, 1), (240, 0xff), (264, 1)] {
        bytes[at] = byte;
    }
    bytes.extend([value; 4]);
    bytes
}

#[test]
fn a_stream_of_another_user_is_not_archived_unless_that_user_is_trusted() {
    let folder = Folder::new();
    let memory = folder.0.join("memory");
    std::fs::create_dir(&memory).unwrap();
    std::fs::set_permissions(&memory, Permissions::from_mode(0o1777)).unwrap();
    let at = |name: &str| memory.join(format!("{name}.im.shm"));
    std::fs::write(at("own"), stream(1)).unwrap();
    std::fs::write(at("theirs"), stream(2)).unwrap();
    std::os::unix::fs::chown(at("theirs"), Some(OTHER), Some(OTHER)).unwrap();
    let serve = |archive: &str, peers: &str, says: &str| {
        let streams = memory.join("*.im.shm");
        let text = format!(
            "[archive]\nfolder = \"{archive}\"\nsync = \"50ms\"\n[[signal]]\nstreams = [\"{}\"]\nevery = 1\n",
            streams.display()
        );
        let file = folder.write(&format!("{archive}.toml"), &text);
        let mut command = tahti();
        command.args(["archive", "serve"]).arg(file).current_dir(&folder.0).env("TAHTI_PEERS", peers);
        let logs = Running::until(&mut command, says);
        let kept = || {
            let output = tahti().args(["archive", "list"]).arg(folder.0.join(archive)).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        eventually("the signal of this host is archived", || kept().contains("streams/own"));
        let with_theirs = || kept().contains("streams/theirs");
        if peers.is_empty() {
            assert!(!with_theirs());
        } else {
            eventually("the peer's signal is archived", with_theirs);
        }
        logs.signal("-TERM");
        logs.hears("samples safe, 0 lost");
    };
    let why = "streams/theirs: not archived: it belongs to user 4711; expected our own or root: remove it, or set TAHTI_PEERS=4711";
    serve("strange", "", why);
    serve("believed", "4711", "streams: connected");
}

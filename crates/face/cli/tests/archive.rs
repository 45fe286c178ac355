//! `tahti archive` from a record to the printed samples, across a kill.

use harness::archived::Archived;
use harness::ioc::Ioc;
use harness::process::Running;
use harness::{Folder, eventually, tahti};

const DATABASE: &str = r#"
record(calc, "X:COUNT") { field(SCAN, ".1 second") field(INPA, "X:COUNT") field(CALC, "A+1") field(EGU, "turns") field(PREC, "0") }
record(ai, "X:SLOW") { field(SCAN, ".1 second") field(INP, "X:COUNT") field(EGU, "A") field(HIGH, "3") field(HSV, "MINOR") }
record(bi, "X:STATE") { field(ZNAM, "closed") field(ONAM, "open") field(VAL, "1") field(PINI, "YES") }
"#;

fn site() -> Archived {
    let says = "sync = \"50ms\"\n[[signal]]\nnames = [\"X:COUNT\", \"X:STATE\"]\n[[signal]]\nnames = [\"X:SLOW\"]\nscan = \"1s\"\n";
    Archived::new(DATABASE, "archive", says)
}

fn serve(site: &Archived) -> Running {
    site.serve("all 3 variables are connected")
}

#[test]
fn archived_samples_survive_a_kill_once_and_the_next_start_continues() {
    let site = site();
    let mut logs = serve(&site);
    eventually("some samples are stored", || site.counts().len() > 10);
    let before = site.counts();
    logs.child.kill().unwrap();
    logs.child.wait().unwrap();
    let verified = site.good("verify", &[]);
    assert!(verified.contains("good: 1 files"), "{verified}");
    let after = site.counts();
    assert_eq!(after[..before.len()], before, "earlier samples are kept");
    assert!(after.windows(2).all(|two| two[0] + 1 == two[1]), "no sample is missing or duplicated: {after:?}");

    let logs = serve(&site);
    eventually("more samples are stored", || site.counts().len() > after.len() + 5);
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    let all = site.counts();
    assert!(all.is_sorted_by(|one, next| one < next), "no sample is duplicated: {all:?}");
    let text = site.good("get", &["X:COUNT"]);
    assert_eq!(text.matches("-- logger started").count(), 2, "{text}");
    assert!(text.trim_end().ends_with("-- logger stopped"), "{text}");

    let packed = site.good("pack", &[]);
    assert!(packed.contains("2 files"), "{packed}");
    assert_eq!((site.counts(), site.good("get", &["X:COUNT"])), (all.clone(), text));
    assert!(site.good("verify", &[]).contains("good: 1 files"));
}

#[test]
fn a_logger_whose_terminal_is_closed_ends_in_order_and_keeps_every_sample() {
    let site = site();
    let logs = serve(&site);
    eventually("some samples are stored", || site.counts().len() > 10);
    logs.signal("-HUP");
    logs.hears("samples safe, 0 lost");
    let text = site.good("get", &["X:COUNT"]);
    assert!(text.trim_end().ends_with("-- logger stopped"), "{text}");
}

#[test]
fn signals_are_listed_with_their_metadata_and_shown_in_spans_of_time() {
    let site = site();
    let logs = serve(&site);
    eventually("some samples are stored", || site.counts().len() > 10);
    // The first scan happens within the scan period of one second.
    eventually("a sample of the scanned signal is stored", || site.ask("get", &["X:SLOW"]).status.success());
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    let list: serde_json::Value = serde_json::from_str(&site.good("list", &["--json"])).unwrap();
    let row = |index: usize| {
        (list[index]["name"].clone(), list[index]["rows"][0]["type"].clone(), list[index]["rows"][0]["units"].clone())
    };
    assert_eq!(row(0), ("X:COUNT".into(), "f64".into(), "turns".into()), "{list}");
    assert_eq!(row(1), ("X:SLOW".into(), "f64".into(), "A".into()), "{list}");
    assert_eq!(list[2]["rows"][0]["labels"], serde_json::json!(["closed", "open"]), "{list}");
    let counts = site.counts().len() as u64;
    let slow = list[1]["samples"].as_u64().unwrap();
    assert!((1..counts / 2).contains(&slow), "scanned once a second: {slow} of {counts}");
    let table = site.good("list", &[]);
    let end = table.find("samples").unwrap() + "samples".len();
    let is_in_line = |line: &str| line.as_bytes()[end - 1].is_ascii_digit() && line.as_bytes()[end] == b' ';
    assert!(table.lines().skip(1).all(is_in_line), "{table}");
    assert!(site.good("get", &["X:SLOW"]).contains("MINOR"));
    assert!(site.good("get", &["X:STATE"]).contains("  open"));

    let json = site.good("get", &["X:COUNT", "--every", "1h", "--from", "-2h", "--format", "json"]);
    let bins: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count: f64 = bins.iter().map(|bin| bin["count"].as_f64().unwrap()).sum();
    assert_eq!(count as u64, counts, "{json}");
    let text = site.good("get", &["X:C*", "--points", "1", "--show", "max"]);
    assert!(text.trim_end().ends_with(&site.counts().last().unwrap().to_string()), "{text}");
}

#[test]
fn the_status_of_a_logger_is_returned_for_its_folder_and_a_folder_without_one_is_reported() {
    let site = site();
    let logs = serve(&site);
    let status = || -> serde_json::Value { serde_json::from_str(&site.good("status", &["--json"])).unwrap() };
    eventually("samples are safe", || status()["samples"]["safe"].as_u64().unwrap() > 20);
    let told = status();
    assert_eq!(told["signals"], serde_json::json!({ "named": 3, "known": 3, "channels": 3, "connected": 3 }));
    assert_eq!((&told["samples"]["lost_on_disk"], &told["disk"]["segments"]), (&0.into(), &1.into()), "{told}");
    assert!(told["samples_per_s"].as_f64().unwrap() > 0.0 && told["disk"]["free"].as_u64().unwrap() > 0, "{told}");
    // Counts and measured values are JSON numbers, so that programs can compare them.
    let told = status();
    let numbers = [&told["since"], &told["samples_per_s"], &told["last_sync"]];
    let tables = ["signals", "samples", "disk"].map(|table| told[table].as_object().unwrap().values());
    assert!(numbers.into_iter().chain(tables.into_iter().flatten()).all(serde_json::Value::is_number), "{told}");
    let text = site.good("status", &[]);
    assert!(text.contains("3 known, 3 of 3 channels connected") && text.contains("1 segments, 0 packs"), "{text}");
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    eventually("no process answers", || !site.ask("status", &[]).status.success());
    let said = String::from_utf8(site.ask("status", &[]).stderr).unwrap();
    assert!(said.contains("no process logs to") && said.contains("expected a running tahti archive serve"), "{said}");
}

#[cfg(not(feature = "cassandra"))]
#[test]
fn a_cluster_is_refused_by_a_build_without_its_feature() {
    let folder = Folder::new();
    let text = format!(
        "[archive]\nfolder = \"{}\"\nengine = \"cassandra://127.0.0.1/plant\"\n[[signal]]\nnames = [\"A\"]\n",
        folder.0.join("archive").display()
    );
    let file = folder.write("a.toml", &text);
    let output = tahti().args(["archive", "serve"]).arg(file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("build it with --features cassandra"), "{said}");
}

#[test]
fn impossible_requests_are_refused_with_the_expected_form() {
    let folder = Folder::new();
    let said = |words: &[&str]| {
        let output = tahti().arg("archive").args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let path = folder.0.to_str().unwrap();
    assert!(said(&["list", "/nowhere"]).contains("is no folder; expected"));
    assert!(said(&["get", path, "NONE"]).contains("no signal matches NONE"));
    assert!(said(&["get", path, "A", "--from", "yesterday"]).contains("expected now, a time before now"));
    assert!(said(&["get", path, "A", "--from", "now", "--to", "-1h"]).contains("expected the earlier one first"));
    let file = folder.write("a.toml", "[archive]\nfolder = 3\n[[signal]]\nnames = [\"A\"]\nscann = \"1s\"\n");
    let found = said(&["serve", file.to_str().unwrap()]);
    assert!(found.contains("a.toml:2") && found.contains("did you mean `scan`?"), "{found}");
    folder.write("0000000001.segment", "no segment");
    assert!(
        String::from_utf8(tahti().args(["archive", "verify", path]).output().unwrap().stdout)
            .unwrap()
            .contains("then 10 incomplete bytes")
    );
}

#[test]
fn a_missing_file_is_reported_by_every_reading_command_with_status_1() {
    let folder = Folder::new();
    let (path, out) = (folder.0.join("kept"), folder.0.join("out.parquet"));
    let config = store::Config { segment_size: base::Size(400), ..store::Config::default() };
    let mut logger = store::Logger::open(store::Folder::make(&path).unwrap(), config, 0).unwrap();
    let signal = logger.signal("A", segment::rows::About::default(), 0).unwrap();
    for k in 0..100 {
        logger.push(signal, &segment::Sample::new(k * 1_000_000_000, k as f64));
        if k % 10 == 9 {
            logger.sync(k);
        }
    }
    logger.close(100, 100_000_000_000);
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let get = ["get", path, "A", "--from", "1970-01-01T00:00:00Z"];
    let export = ["export", path, "A", "--format", "parquet", "--output", out];
    let span = ["--from", "1970-01-01T00:00:00Z", "--to", "1970-01-01T00:02:00Z"];
    let every = [&["get", path, "A", "--every", "10s"][..], &span].concat();
    let all = [&get[..], &["list", path], &every, &export];
    let ask = |words: &[&str]| tahti().arg("archive").args(words).output().unwrap();
    for words in all {
        let output = ask(words);
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    }
    std::fs::remove_file(out).unwrap();
    // A segment with samples, from the middle.
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|file| file.file_name().to_string_lossy().ends_with(".segment"));
    let mut files: Vec<_> = files.map(|file| (file.metadata().unwrap().len(), file.file_name())).collect();
    let largest = files.iter().map(|(length, _)| *length).max().unwrap();
    files.retain(|(length, _)| *length > largest / 2);
    files.sort_by(|(_, one), (_, other)| one.cmp(other));
    let missing = files[files.len() / 2].1.to_str().unwrap().to_owned();
    std::fs::remove_file(format!("{path}/{missing}")).unwrap();
    for words in all {
        let output = ask(words);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(
            told.contains(&format!("damaged: {missing}")) && told.contains("the file is missing"),
            "{words:?}: {told}"
        );
    }
    assert!(std::fs::metadata(out).is_ok(), "readable samples are exported");
    let text = String::from_utf8(ask(&get).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("-- damaged"));
    let at = at.unwrap_or_else(|| panic!("no gap in {text}"));
    let lost = lines[at].split(", ").find_map(|part| part.strip_suffix(" samples lost"));
    let lost: usize = lost.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {}", lines[at]));
    let printed = lines.iter().filter(|line| !line.contains("  -- ")).count();
    assert!(lost > 0 && printed + lost == 100, "every sample is printed or counted: {text}");
    assert!(at > 5, "the gap is where samples are missing: {text}");
    let early = ask(&["get", path, "A", "--from", "1970-01-01T00:00:00Z", "--to", "1970-01-01T00:00:02Z"]);
    assert!(early.status.success(), "no sample is missing then: {early:?}");
    let verified = ask(&["verify", path]);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(!verified.status.success() && text.contains(&missing) && text.contains("is missing"), "{text}");
}

#[test]
fn the_pages_on_the_archive_have_the_tables_of_its_file() {
    let page = concat!(
        include_str!("../../../../docs/reference/plant/archive.md"),
        include_str!("../../../../docs/reference/plant/signal.md")
    );
    let output = tahti().args(["archive", "serve", "--document"]).output().unwrap();
    let document = String::from_utf8(output.stdout).unwrap();
    let missing: Vec<&str> = document.lines().filter(|line| line.starts_with('|') && !page.contains(line)).collect();
    assert!(missing.is_empty() && document.lines().count() > 10, "cargo run -- archive serve --document: {missing:#?}");
}

#[test]
fn a_killed_logger_of_a_plant_is_restarted_and_no_safe_sample_is_lost_or_duplicated() {
    let ioc = Ioc::start(&[("a.db", DATABASE)], &["-d", "a.db"]);
    let (port, repeater) = (ioc.port, ioc.port + 1);
    let bench = harness::plant::Bench::new(
        "archive",
        &format!(
            "[archive]\nname = \"archive\"\nfolder = \"kept\"\nsync = \"50ms\"\nrestart = {{ backoff = \"10ms\" }}\n\
             env = {{ EPICS_CA_ADDR_LIST = \"127.0.0.1\", EPICS_CA_AUTO_ADDR_LIST = \"NO\", \
             EPICS_CA_SERVER_PORT = \"{port}\", EPICS_CA_REPEATER_PORT = \"{repeater}\" }}\n\
             [[signal]]\nnames = [\n  \"X:COUNT\", # each turn\n]\n"
        ),
    );
    let counts = || {
        let output = bench.run(&["archive", "get", "kept", "X:COUNT", "--format", "csv"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let count = |line: &str| Some(line.split(',').nth(2)?.parse::<f64>().ok()? as u64);
        text.lines().skip(1).filter_map(count).collect::<Vec<u64>>()
    };
    bench.ok(&["up", ".", "--detach"]);
    let mut known: Vec<u64> = Vec::new();
    for _ in 0..3 {
        let wanted = known.len() + 5;
        bench.until("more samples", || counts().len() > wanted);
        let safe = counts();
        assert_eq!(safe[..known.len()], known, "earlier samples are kept");
        let pid = bench.pid("archive");
        harness::process::kill(pid, "KILL");
        bench.until("restarted", || {
            let process = bench.process("archive");
            process["pid"].as_i64().is_some_and(|new| new != i64::from(pid)) && process["state"] == "running"
        });
        known = counts();
        assert_eq!(known[..safe.len()], safe, "safe samples survive the kill");
    }
    bench.ok(&["down"]);
    let all = counts();
    assert_eq!(all[..known.len()], known);
    assert!(all.is_sorted_by(|one, next| one < next), "no sample is duplicated: {all:?}");
    let text = bench.ok(&["archive", "get", "kept", "X:COUNT"]);
    assert_eq!(text.matches("-- logger started").count(), 4, "{text}");
    assert!(bench.ok(&["archive", "verify", "kept"]).contains("good: 4 files"));
}

#[test]
fn samples_of_an_exported_variable_are_stored_once_or_counted_as_lost_when_the_logger_dies() {
    let page = format!("archive-{}", std::process::id());
    let exports = rt::Exports::open(&page, 3).unwrap();
    let add = |name, first| exports.add(&rt::VariableSpec { name, unit: "V", first, safe: None }).unwrap();
    let (each, second) = (add("each", rt::Number::Float(0.0)), add("second", rt::Number::Int(0)));
    add("other", rt::Number::Bool(false));
    let write = |pulses: std::ops::RangeInclusive<u64>| {
        for pulse in pulses {
            let now = sys::clock::mono_now();
            assert!(exports.set(each, rt::Number::Float(pulse as f64 / 8.0), pulse, now));
            assert!(pulse % 2 == 1 || exports.set(second, rt::Number::Int(pulse as i64), pulse, now));
        }
    };
    let bench = harness::plant::Bench::new(
        "archive-page",
        &format!(
            "[archive]\nname = \"archive\"\nfolder = \"kept\"\nsync = \"20ms\"\nrestart = {{ backoff = \"10ms\" }}\n\
             [[signal]]\nvariables = [\"{page}/e*\", \"{page}/second\"]\n"
        ),
    );
    let signal = format!("{page}/each");
    let pulses = || {
        let output = bench.run(&["archive", "get", "kept", &signal, "--format", "csv"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let pulse = |line: &str| line.split(',').nth(5)?.parse().ok();
        text.lines().skip(1).filter_map(pulse).collect::<Vec<u64>>()
    };
    write(1..=100);
    bench.ok(&["up", ".", "--detach"]);
    bench.until("pulses before the kill", || pulses().len() >= 100);
    harness::process::kill(bench.pid("archive"), "KILL");
    write(101..=200);
    bench.until("pulses after the kill", || pulses().len() >= 200);
    assert_eq!(pulses(), (1..=200).collect::<Vec<u64>>(), "each once");
    write(201..=1_000);
    bench.until("the last pulses", || pulses().last() == Some(&1_000));
    bench.ok(&["down"]);
    let text = bench.ok(&["archive", "get", "kept", &signal]);
    let lost = |line: &str| line.split("-- overflow, ").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    let lost: usize = text.lines().filter_map(lost).sum();
    assert_eq!(pulses().len() + lost, 1_000, "missing pulses are counted: {text}");
    let list = bench.ok(&["archive", "list", "kept"]);
    assert!(list.contains(" V ") && !list.contains("other"), "{list}");
    let joined = bench.ok(&["archive", "get", "kept", &format!("{page}/*"), "--join", "pulse", "--format", "csv"]);
    let rows: Vec<&str> = joined.lines().skip(1).filter(|line| line.contains("Z,")).collect();
    assert!(rows.len() >= 100 && rows[0].starts_with("2,") && rows[0].ends_with(",0.25,2"), "{joined}");
}

#[test]
fn exported_samples_are_imported_exactly_and_once() {
    let site = site();
    let logs = serve(&site);
    eventually("some samples are stored", || site.counts().len() > 10);
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    let (one, two) = (site.folder.0.join("one.csv"), site.folder.0.join("two.csv"));
    let run = |words: &[&str]| {
        let output = tahti().arg("archive").args(words).current_dir(&site.folder.0).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["export", "archive", "*", "--whole", "--output", "one.csv"]);
    let imported = run(&["import", "elsewhere", "one.csv"]);
    assert!(imported.contains(" 0 were there already"), "{imported}");
    run(&["export", "elsewhere", "*", "--whole", "--output", "two.csv"]);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&two), read(&one));
    let again = run(&["import", "elsewhere", "one.csv"]);
    assert!(again.starts_with("0 samples imported, "), "{again}");
    assert!(run(&["list", "elsewhere"]).contains("turns"), "units were imported");
    for line in run(&["export", "archive", "X:STATE", "--format", "jsonl"]).lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["signal"].as_str().unwrap_or("X:STATE"), "X:STATE", "{line}");
    }
    let words = ["archive", "export", "archive", "*", "--format", "parquet", "--output", "three.parquet"];
    let output = tahti().args(words).current_dir(&site.folder.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output =
        tahti().args(["archive", "import", "third", "three.parquet"]).current_dir(&site.folder.0).output().unwrap();
    if cfg!(feature = "parquet") || output.status.success() {
        assert!(output.status.success(), "{output:?}");
        run(&["export", "third", "*", "--whole", "--output", "three.csv"]);
        assert_eq!(read(&site.folder.0.join("three.csv")), read(&one));
    } else {
        assert!(String::from_utf8_lossy(&output.stderr).contains("build it with --features parquet"), "{output:?}");
    }
    let bad = site.folder.write("bad.csv", "signal,time_ns,type,value\nA,1,f64,x\n");
    let output =
        tahti().args(["archive", "import", "elsewhere"]).arg(bad).current_dir(&site.folder.0).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("line 2: value is \"x\"; expected a value of type f64; 0 samples imported"), "{said}");
}

/// Output of `archive get` for matching signals, once it contains all of these texts.
fn shows(bench: &harness::plant::Bench, pattern: &str, texts: &[&str]) -> String {
    let mut shown = String::new();
    bench.until(&format!("{pattern} has {texts:?}"), || {
        let output = bench.run(&["archive", "get", "kept", pattern]);
        shown = String::from_utf8_lossy(&output.stdout).into_owned();
        texts.iter().all(|text| shown.contains(text))
    });
    shown
}

#[test]
fn a_record_that_was_renamed_has_its_history_under_the_new_name_once() {
    let folder = Folder::new();
    let run = |words: &[&str]| {
        let output = tahti().arg("archive").args(words).current_dir(&folder.0).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    };
    folder.write("old.csv", "signal,time_ns,type,value\nOLD,1000,f64,1.5\nOLD,2000,f64,2.5\nOTHER,1000,f64,9\n");
    folder.write("new.csv", "signal,time_ns,type,value\nNEW,3000,f64,3.5\n");
    assert!(run(&["import", "archive", "old.csv", "new.csv"]).0);
    assert!(run(&["export", "archive", "OLD", "--whole", "--output", "history.csv"]).0);
    for there in [0, 2] {
        let (good, said) = run(&["import", "archive", "history.csv", "--rename", "OLD=NEW"]);
        assert!(good && said.contains(&format!("{there} were there already")), "{said}");
        let (_, shown) = run(&["get", "archive", "NEW", "--from", "1970-01-01T00:00:00Z"]);
        let values: Vec<&str> = shown.lines().filter_map(|line| line.rsplit("  ").next()).collect();
        assert_eq!(values, ["1.5", "2.5", "3.5"], "{shown}");
    }
    assert_eq!(
        run(&["get", "archive", "OLD", "--from", "1970-01-01T00:00:00Z"]).1.lines().count(),
        2,
        "existing samples are unchanged"
    );
    let (good, said) = run(&["import", "archive", "history.csv", "--rename", "GONE=NEW"]);
    assert!(!good && said.contains("no signal GONE"), "{said}");
    let (good, said) = run(&["import", "archive", "history.csv", "--rename", "OLD"]);
    assert!(!good && said.contains("expected OLD=NEW"), "{said}");
}

#[test]
fn figures_of_loops_and_frames_are_stored_each_second_and_a_restart_is_a_gap() {
    let frame = harness::fresh("archive-fast");
    let bench = harness::plant::Bench::new(
        "archive-figures",
        &format!(
            "[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"5ms\"\njoin_within = \"60s\"\n\
             [[process]]\nname = \"steady\"\ncommand = \"tahti demo activity {frame} steady --work 10us --exports {frame}-steady\"\n\
             [[frame.activity]]\nname = \"steady\"\nbudget = \"100us\"\n\
             [[process]]\nname = \"loop\"\ncommand = \"tahti demo llrf --period 10ms --channel {frame}-loop\"\n\
             restart = {{ backoff = \"10ms\" }}\nheartbeat = {{ within = \"60s\" }}\ndeadline = {{ at = \"1us\", kind = \"soft\", value = \"linear 60s\" }}\n\
             [archive]\nname = \"archive\"\nfolder = \"kept\"\nsync = \"20ms\"\n\
             [[signal]]\nloops = [\"p/*\"]\n[[signal]]\nframes = [\"p/{frame}/minors\", \"p/*/calls\", \"p/*p99\"]\n"
        ),
    );
    bench.ok(&["up", ".", "--detach"]);
    shows(&bench, "loops/p/loop/p99", &["loops/p/loop/p99  "]);
    shows(&bench, "loops/p/loop/histogram", &["["]);
    // No cycle ends within 1 µs of its pulse, and few take a second.
    shows(&bench, "loops/p/loop/worth", &["99."]);
    shows(&bench, "loops/p/loop/late", &["/late  "]);
    shows(&bench, &format!("frames/p/{frame}/minors"), &["/minors  "]);
    shows(&bench, &format!("frames/p/{frame}/steady/*"), &["/calls  ", "/work-p99  "]);
    harness::process::kill(bench.pid("loop"), "KILL");
    bench.until("a gap shows the restart and the supervisor's message of that second", || {
        let output = bench.run(&["archive", "get", "kept", "loops/p/loop/count"]);
        let text = String::from_utf8_lossy(&output.stdout);
        text.contains("-- source restarted") || text.contains("-- disconnected")
    });
    let list = bench.ok(&["archive", "list", "kept"]);
    assert!(list.contains(" ns ") && !list.contains("lost") && !list.contains("/late-p50"), "{list}");
    bench.ok(&["down"]);
}

#[test]
fn messages_are_stored_as_logged_and_the_loss_of_their_server_is_a_gap() {
    let server = harness::fresh("archive-messages");
    let bench = harness::plant::Bench::new(
        "archive-messages",
        &format!(
            "[archive]\nname = \"archive\"\nfolder = \"kept\"\nsync = \"20ms\"\n\
             [[signal]]\nmessages = [\"{server}/put/*\"]\n"
        ),
    );
    let serve = || Running::until(tahti().args(["msg", "serve", "--name", &server]), "serving as");
    let mut serves = serve();
    bench.ok(&["up", ".", "--detach"]);
    let log = || std::fs::read_to_string(bench.dir.join("run/p/log/archive.log")).unwrap_or_default();
    bench.until("it is connected", || log().contains(&format!("messages/{server}: connected")));
    let send = |line: &str| tahti().args(["msg", "send", line]).env("TAHTI_MESSAGES", &server).output().unwrap();
    send("put/absent/on");
    send("get/absent/on");
    let signal = format!("messages/{server}/put/*");
    let text = shows(&bench, &signal, &["put/absent/on -> NO_OBJECT", "MINOR"]);
    assert!(!text.contains("get/absent"), "{text}");
    serves.child.kill().unwrap();
    serves.child.wait().unwrap();
    shows(&bench, &signal, &["-- disconnected"]);
    let _again = serve();
    bench.until("it is connected again", || {
        send("put/absent/off");
        String::from_utf8_lossy(&bench.run(&["archive", "get", "kept", &signal]).stdout).contains("put/absent/off")
    });
    bench.ok(&["down"]);
}

//! `tahti archive` while logged records change, and when two loggers would write to the same archive.

use harness::archived::Archived;
use harness::epics::program;
use harness::process::Running;
use harness::{Folder, eventually, tahti};
use serde_json::{Value, json};

fn site(record: &str) -> Archived {
    Archived::new(record, "archive", "sync = \"20ms\"\n[[signal]]\nnames = [\"X:A\"]\n")
}

fn serve(site: &Archived) -> Running {
    site.serve("all 1 variables are connected")
}

/// Replaces the record by another one of the same name.
fn becomes(site: &mut Archived, logs: &Running, record: &str) {
    site.ioc.crash();
    logs.hears("X:A is disconnected");
    std::fs::write(site.ioc.folder.join("a.db"), record).unwrap();
    site.ioc.up();
    logs.hears("all 1 variables are connected");
}

/// The printed values, without gaps.
fn values(site: &Archived) -> Vec<String> {
    let text = String::from_utf8(site.ask("get", &["X:A"]).stdout).unwrap();
    let value = |line: &str| {
        let value = line.splitn(3, "  ").nth(2)?;
        (!value.starts_with("--")).then(|| value.split("  ").next().unwrap().to_owned())
    };
    text.lines().filter_map(value).collect()
}

/// All rows of the signal.
fn rows(site: &Archived) -> Vec<Value> {
    let list: Value = serde_json::from_str(&site.good("list", &["--json"])).unwrap();
    list[0]["rows"].as_array().unwrap().clone()
}

fn has(site: &Archived, count: usize) {
    eventually(&format!("{count} values"), || values(site).len() >= count);
}

#[test]
fn a_record_that_changes_its_type_keeps_its_history_everywhere() {
    let mut site = site("record(ao, \"X:A\") { field(EGU, \"V\") field(PREC, \"2\") }");
    let logs = serve(&site);
    has(&site, 1);
    site.ioc.say("dbpf X:A 1.5");
    has(&site, 2);
    // While the channel is connected.
    site.ioc.say("dbpf X:A.EGU mV");
    site.ioc.command("dbpf X:A 2.5");
    eventually("the new units", || rows(&site).len() == 2);
    has(&site, 3);
    for (record, put, count) in [
        ("record(waveform, \"X:A\") { field(FTVL, \"DOUBLE\") field(NELM, \"3\") }", "-a X:A 3 1 2 3", 5),
        ("record(stringin, \"X:A\") { field(VAL, \"first\") }", "X:A second", 7),
        ("record(bo, \"X:A\") { field(ZNAM, \"closed\") field(ONAM, \"open\") }", "X:A 1", 9),
        ("record(bo, \"X:A\") { field(ZNAM, \"shut\") field(ONAM, \"ajar\") }", "X:A 1", 11),
        ("record(longout, \"X:A\") { field(VAL, \"7\") field(EGU, \"turns\") }", "X:A 8", 13),
    ] {
        becomes(&mut site, &logs, record);
        has(&site, count - 1);
        site.ioc.run(true, "caput", &put.split(' ').collect::<Vec<_>>());
        has(&site, count);
    }
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    let expected =
        ["0.0", "1.5", "2.5", "[]", "[1.0, 2.0, 3.0]", "first", "second", "closed", "open", "shut", "ajar", "7", "8"];
    assert_eq!(values(&site), expected);

    let rows = rows(&site);
    let kinds: Vec<_> =
        rows.iter().map(|row| (row["type"].as_str().unwrap(), row["units"].as_str().unwrap())).collect();
    let wanted =
        [("f64", "V"), ("f64", "mV"), ("f64[]", ""), ("text", ""), ("enum", ""), ("enum", ""), ("i32", "turns")];
    assert_eq!(kinds, wanted, "{rows:#?}");
    assert_eq!(rows[5]["labels"], json!(["shut", "ajar"]));

    // The same from packs of both forms, from an exported and imported table, and over HTTP.
    let all = site.good("get", &["X:A"]);
    let answers = answers(&site.folder.0, "archive");
    let texts: Vec<String> = answers[0].iter().map(Value::to_string).collect();
    assert_eq!(texts[..3], ["0.0", "1.5", "2.5"]);
    assert_eq!(
        (&texts[4], &texts[6], &texts[8], &texts[12]),
        (&"[1.0,2.0,3.0]".into(), &"\"second\"".into(), &"1".into(), &"8".into())
    );
    site.good("pack", &[]);
    assert_eq!(site.good("get", &["X:A"]), all);
    assert_eq!(self::answers(&site.folder.0, "archive"), answers);
    site.good("export", &["*", "--whole", "--output", "all.csv"]);
    let copy = tahti().args(["archive", "import", "copy", "all.csv"]).current_dir(&site.folder.0).output();
    assert!(copy.unwrap().status.success());
    assert_eq!(self::answers(&site.folder.0, "copy"), answers);
}

/// Values over HTTP: all of them, and per hour the largest and the count of numbers.
fn answers(folder: &std::path::Path, archive: &str) -> [Vec<Value>; 3] {
    let mut command = tahti();
    command.current_dir(folder).args(["archive", "http", archive, "--listen", "127.0.0.1:0"]);
    let serves = Running::follow(&mut command);
    let said = serves.hears("/retrieval");
    let address = harness::http::address_in(&said);
    ["X:A", "maxSample_4000000000(X:A)", "countSample_4000000000(X:A)"].map(|pv| {
        let path = format!("/retrieval/data/getData.json?pv={pv}&from=2001-01-01T00:00:00Z&to=2100-01-01T00:00:00Z");
        let json = harness::http::json(address, &format!("GET {path}"));
        json[0]["data"].as_array().unwrap().iter().map(|row| row["val"].clone()).collect()
    })
}

#[test]
fn the_loss_of_a_server_is_a_disconnect_and_not_also_a_refusal() {
    let mut site = site("record(ao, \"X:A\") { field(VAL, \"1\") }");
    let mut command = program(true, "archive", site.ioc.port);
    let command = command.current_dir(&site.folder.0).arg("serve").arg(&site.file);
    let logs = Running::until(command, "all 1 variables are connected");
    has(&site, 1);
    // Three times: at the first value, at a later value, and after a reconnect.
    let mut lines = Vec::new();
    for round in 0..3 {
        if round > 0 {
            site.ioc.say(&format!("dbpf X:A {round}.5"));
        }
        site.ioc.crash();
        loop {
            let line = logs.lines.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
            lines.push(line);
            if lines.last().unwrap().contains("X:A is disconnected") {
                break;
            }
        }
        site.ioc.up();
        lines.push(logs.hears("all 1 variables are connected"));
    }
    logs.signal("-TERM");
    lines.push(logs.hears("samples safe, 0 lost"));
    lines.extend(logs.lines.iter());
    assert!(!lines.iter().any(|line| line.contains("access rules")), "{lines:#?}");
    let rows = site.good("get", &["X:A"]);
    assert_eq!(rows.matches("-- disconnected").count(), 3, "{rows}");
    assert!(!rows.contains("-- refused"), "{rows}");
}

#[test]
fn a_second_logger_on_the_same_folder_is_refused_and_the_first_continues() {
    let site = site("record(calc, \"X:A\") { field(SCAN, \".1 second\") field(INPA, \"X:A\") field(CALC, \"A+1\") }");
    let logs = serve(&site);
    let mut command = program(true, "archive", site.ioc.port);
    let second = command.current_dir(&site.folder.0).arg("serve").arg(&site.file).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("written by another process"), "{said}");
    for words in [&["pack", "archive"][..], &["import", "archive", "archive.toml"]] {
        let output = tahti().arg("archive").args(words).current_dir(&site.folder.0).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("written by another process"), "{output:?}");
    }
    let before = values(&site).len();
    has(&site, before + 5);
    logs.signal("-TERM");
    logs.hears("samples safe, 0 lost");
    let values: Vec<f64> = values(&site).iter().map(|value| value.parse().unwrap()).collect();
    assert!(values.windows(2).all(|two| two[0] + 1.0 == two[1]), "{values:?}");
}

#[test]
fn a_signal_that_matches_two_patterns_is_stored_once_with_the_policy_of_the_first() {
    let page = harness::fresh("archive-twice");
    let exports = rt::Exports::open(&page, 1).unwrap();
    let spec = rt::VariableSpec { name: "beam", unit: "", first: rt::Number::Int(0), safe: None };
    let beam = exports.add(&spec).unwrap();
    let folder = Folder::new();
    let text = format!(
        "[archive]\nfolder = \"archive\"\nsync = \"20ms\"\n[[signal]]\nvariables = [\"{page}/b*\"]\n\
         [[signal]]\nvariables = [\"{page}/beam\"]\ndeadband = 100\n"
    );
    let file = folder.write("archive.toml", &text);
    for value in 1..=20 {
        assert!(exports.set(beam, rt::Number::Int(value), value as u64, sys::clock::mono_now()));
    }
    let mut serve = tahti();
    serve.current_dir(&folder.0).args(["archive", "serve"]).arg(file);
    let logs = Running::until(&mut serve, "variables are connected");
    let list = || {
        String::from_utf8(tahti().current_dir(&folder.0).args(["archive", "list", "archive"]).output().unwrap().stdout)
            .unwrap()
    };
    eventually("all samples are stored", || list().contains(" 20 "));
    logs.signal("-TERM");
    logs.hears("20 samples safe, 0 lost");
    assert_eq!(list().matches("/beam").count(), 1, "{}", list());
}

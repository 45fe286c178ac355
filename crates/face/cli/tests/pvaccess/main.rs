//! PVAccess of `tahti ioc` compared with its peers: p4p as a client, and QSRV2 as another server of the same database.
//!
//! `cargo xtask test epics` installs both. Everything stays on loopback, on free ports.

mod links;

use harness::epics::pvaccess;
use harness::eventually;
use harness::ioc::Ioc;
use harness::port::free_port;
use harness::process::Running;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

const CLIENTS: &str = include_str!("clients.py");
const COMPARE: &str = concat!(include_str!("context.py"), include_str!("compare.py"));
const TYPES: &str = include_str!("types.db");
const GROUPS: &str = concat!(include_str!("context.py"), include_str!("groups.py"));
const GROUP_RECORDS: &str = include_str!("groups.db");
const UNIONS: &str = include_str!("unions.py");
const GROUP_FILE: &str = include_str!("groups.json");

/// Python with p4p and QSRV2, on the ports of an IOC.
fn python(port: u16) -> Command {
    let bin = std::env::var("TAHTI_PYTHON").expect("TAHTI_PYTHON is not set; run `cargo xtask test epics`");
    let mut python = Command::new(Path::new(&bin).join("python"));
    python.envs(pvaccess(port)).stdin(Stdio::null());
    python
}

/// Standard output of a script with arguments.
fn output(port: u16, script: &str, words: &[&str]) -> String {
    let output = python(port).args(["-c", script]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", harness::process::text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The example of an accelerator, served with its script.
fn ring() -> Ioc {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/ring");
    let entries = std::fs::read_dir(source).unwrap().flatten().filter(|entry| entry.path().is_file());
    let files: Vec<(String, String)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect();
    let mut files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("state/.keep", ""));
    Ioc::start(&files, &["st.cmd"])
}

#[test]
fn p4p_reads_writes_and_monitors_every_record_of_the_example() {
    let mut ioc = ring();
    let names = ioc.say("dbl");
    let names: Vec<&str> = names.lines().filter(|line| line.starts_with("SR:")).collect();
    assert!(names.len() > 20, "{names:?}");
    let lines = output(ioc.port, CLIENTS, &names);
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), names.len() + 1);
    for (line, name) in lines.iter().zip(&names) {
        let states = ["SR:Beam:Shutter", "SR:RF1:Enable", "SR:Beam:Inject"].contains(name);
        let id = if states { "epics:nt/NTEnum:1.0" } else { "epics:nt/NTScalar:1.0" };
        assert_eq!((&line["name"], &line["id"], &line["monitored"]), (&(*name).into(), &id.into(), &id.into()));
        let described = ioc.say(&format!("dbgf {name}.DESC"));
        assert!(described.contains(&format!("\"{}\"", line["description"].as_str().unwrap())), "{described}");
    }
    let enable = lines.iter().find(|line| line["name"] == "SR:RF1:Enable").unwrap();
    assert_eq!(enable["value"], "on");
    let puts = lines.last().unwrap();
    assert_eq!((&puts["set"], &puts["shutter"]), (&90.0.into(), &"open".into()), "{puts}");
    assert_eq!((&puts["marked"], &puts["locked"]), (&["value"].as_slice().into(), &"no write access".into()), "{puts}");
    let log = std::fs::read_to_string(ioc.folder.join("state/put.log")).unwrap();
    assert!(log.contains("SR:QF1:Set new=90"), "writes are in the put log: {log}");
}

#[test]
fn several_iocs_of_a_host_share_the_port_of_searches() {
    let port = free_port();
    let shared: Vec<(&str, String)> = pvaccess(port).into_iter().collect();
    let shared: Vec<(&str, &str)> = shared.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let start = |name: &str| {
        Ioc::start_with(&[("test.db", &format!("record(ao, \"{name}\") {{}}"))], &["-d", "test.db"], &shared)
    };
    let iocs = ["S:one", "S:two", "S:three"].map(start);
    let script = "import sys\nfrom p4p.client.thread import Context\n\
                  with Context('pva') as clients: print([float(value) for value in clients.get(sys.argv[1:], timeout=60)])";
    // Which of the servers receives a search is chance, so it is repeated.
    for _ in 0..4 {
        assert_eq!(output(port, script, &["S:one", "S:two", "S:three"]), "[0.0, 0.0, 0.0]\n");
    }
    assert!(iocs[1].started.contains("The TCP port of PVAccess is in use"), "{}", iocs[1].started);
}

/// Differences from QSRV2 that are intended: a text is a text also with `$`, and there are more device supports.
const INTENDED: [&str; 2] = ["T:ai.DESC$", "T:ai.DTYP value.choices"];

/// Starts QSRV2 in the folder of an IOC. Returns the process and its first port.
fn qsrv2(ours: &Ioc, words: &[&str]) -> (Running, u16) {
    let port = free_port();
    let mut theirs = python(port);
    theirs.args(words).current_dir(&ours.folder);
    theirs.env("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1").env("EPICS_CAS_SERVER_PORT", port.to_string());
    theirs
        .env("EPICS_PVAS_SERVER_PORT", (port + 4).to_string())
        .env("EPICS_PVAS_BROADCAST_PORT", (port + 5).to_string());
    theirs.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let theirs = Running::start(&mut theirs);
    eventually("QSRV2 serves", || TcpStream::connect(("127.0.0.1", port + 4)).is_ok());
    (theirs, port)
}

#[test]
fn all_record_types_have_the_structure_and_the_values_of_qsrv2() {
    let ours = Ioc::start(&[("types.db", TYPES)], &["-d", "types.db"]);
    let (_theirs, port) = qsrv2(&ours, &["-m", "pvxslibs.ioc", "-d", "types.db"]);
    let records = TYPES.lines().filter_map(|line| line.split('"').nth(1));
    let fields = ["DESC", "DESC$", "SCAN", "DTYP", "INP", "HIHI", "PREC", "NAME", "RTYP", "STAT", "PROC", "FLNK"];
    let names: Vec<String> = records.map(str::to_owned).chain(fields.map(|field| format!("T:ai.{field}"))).collect();
    let ports = [ours.port + 4, ours.port + 5, port + 4, port + 5].map(|port| port.to_string());
    let words: Vec<&str> = ports.iter().chain(&names).map(String::as_str).collect();
    let output = output(port, COMPARE, &words);
    // Properties that a record type does not have are sent as zero; QSRV2 does not send them.
    let wrong = output.lines().filter(|line| !line.ends_with(", theirs not marked"));
    let wrong: Vec<&str> = wrong.filter(|line| !INTENDED.iter().any(|known| line.starts_with(known))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(output.contains("T:ai.DESC$"), "the comparison sees differences: {output}");
}

#[test]
fn our_tools_print_what_cs_tools_print() {
    let ioc = Ioc::start(&[("types.db", TYPES)], &["-d", "types.db"]);
    let names = ["T:ai", "T:bi", "T:wf:long", "T:wf:string", "T:lso", "T:stringin", "T:mbbi", "T:int64in", "T:ai.DESC"];
    let all = |words: &[&'static str]| [words, &names[..]].concat();
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("pvget", all(&[])),
        ("pvget", all(&["-v"])),
        ("pvget", all(&["-r", "field(value,alarm)"])),
        ("pvget", vec!["-M", "json", "T:ai", "T:bi", "T:wf:long", "T:stringin"]),
        ("pvinfo", vec!["T:ai", "T:bi", "T:wf:string", "T:stringin"]),
    ];
    for (tool, args) in cases {
        // C prints channels in the order of their answers.
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let [theirs, ours] = [false, true].map(|ours| sorted(ioc.run(ours, tool, &args)));
        assert_eq!(theirs, ours, "{tool} {args:?}: EPICS left, tahti right");
    }
    for args in [
        vec!["T:ao", "3"],
        vec!["T:wf:double", "3", "1", "2.5", "3"],
        vec!["T:wf:double", "[4,5]"],
        vec!["T:mbbo", "one"],
        vec!["T:mbbo", "0"],
        vec!["T:stringout", "some text"],
        vec!["-r", "record[block=true]", "T:ao", "4"],
        vec!["T:longout", "value=5"],
    ] {
        // The second one finds the value of the first one.
        let [theirs, ours] = [false, true].map(|ours| ioc.run(ours, "pvput", &args));
        let new = |text: &str| {
            let line = text.lines().last().unwrap_or_default().split_whitespace().skip(4).collect::<Vec<_>>();
            line.join(" ")
        };
        assert_eq!(new(&theirs), new(&ours), "{args:?}: EPICS {theirs}, tahti {ours}");
        assert!(!new(&ours).is_empty(), "{ours}");
    }
}

/// QSRV2 with the file of groups: its own program loads only records.
const QSRV2_WITH_GROUPS: &str = include_str!("qsrv2.py");

/// The report of QSRV2 about a group of the test.
const REPORT: &str = "\
T:table
  Atomic Get/Put:yes Atomic Members:5
  /\t<meta> chan=T:b.VAL
  labels\t<plain> chan=T:labels.VAL
  value.B\t<plain> chan=T:b.VAL
  value.A\t<plain> chan=T:a.VAL
  _save\t<proc> chan=T:save.VAL has triggers
    /
    _save
    labels
    value.A
    value.B
";

#[test]
fn groups_have_the_structures_values_and_changes_of_qsrv2() {
    let script = "dbLoadRecords groups.db\ndbLoadGroup groups.json P=T:\niocInit\n";
    let files = [("groups.db", GROUP_RECORDS), ("groups.json", GROUP_FILE), ("st.cmd", script)];
    let mut ours = Ioc::start(&files, &["st.cmd"]);
    let (_theirs, port) = qsrv2(&ours, &["-c", QSRV2_WITH_GROUPS]);
    let ports = [ours.port + 4, ours.port + 5, port + 4, port + 5].map(|port| port.to_string());
    let words: Vec<&str> = ports.iter().map(String::as_str).collect();
    let output = output(port, GROUPS, &words);
    let (facts, differences): (Vec<&str>, Vec<&str>) = output.lines().partition(|line| line.starts_with('{'));
    // Properties that a record type does not have are sent as zero; QSRV2 does not send them.
    let wrong: Vec<&&str> = differences.iter().filter(|line| !line.ends_with(": '', theirs not marked")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let facts: Vec<serde_json::Value> = facts.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&facts[0]["result"], &facts[0]["half"]), (&"refused".into(), &false.into()), "{facts:?}");
    assert_eq!(facts[2]["result"], "written", "{facts:?}");
    assert!(ours.say("pvxgl 3 T:table").ends_with(REPORT), "{}", ours.say("pvxgl 3 T:table"));
    let names = ours.say("pvxsl");
    assert!(names.lines().any(|name| name == "T:file") && names.lines().any(|name| name == "T:loose"), "{names}");
}

#[test]
fn a_wrong_group_is_reported_at_start_and_by_the_check() {
    let records = "record(ao, \"T:a\") { info(Q:group, { \"T:bad\": { \"a\": {+channel:\"NONE\"} } }) }\n\
                   record(ao, \"T:b\") { info(Q:group, { \"T:good\": { \"b\": {+channel:\"VAL\"} } }) }\n";
    let files = [
        ("groups.db", records),
        ("groups.json", "{\n\"T:b\": {\"x\": {\"+channel\": \"T:b\"}}}"),
        ("st.cmd", "dbLoadRecords groups.db\ndbLoadGroup groups.json\niocInit\n"),
    ];
    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    let expected = [
        "record \"T:a\", info(Q:group): group \"T:bad\", field \"a\": found +channel \"T:a.NONE\", expected a field of a record",
        "group \"T:b\": found a record of this name, expected an unused name",
    ];
    for line in expected {
        assert!(ioc.started.contains(line), "{}", ioc.started);
    }
    assert_eq!(ioc.say("pvxgl").lines().last(), Some("T:good"));
    let checked = ioc.run(true, "ioc", &["--check", "st.cmd"]);
    for line in expected {
        assert!(checked.contains(line), "{checked}");
    }
}

/// A server of p4p with unions, and what our tools print of it.
#[test]
fn unions_and_variants_of_p4p_are_read_and_written() {
    let port = free_port();
    let mut server = python(port);
    server.args(["-c", UNIONS]).stdin(Stdio::piped());
    let server = Running::follow(&mut server);
    server.hears("serves");
    let run = |tool: &str, words: &[&str]| {
        harness::process::text(&harness::epics::program(true, tool, port).args(words).output().unwrap())
    };
    let whole = run("pvget", &["-v", "U:all"]);
    for part in ["union value number 1.5", "any any long 7"] {
        assert!(whole.contains(part), "{part} is missing in {whole}");
    }
    for (words, taken) in [
        (&["2.5"][..], r#"{"value": 2.5}"#),
        (&["[1,2]"], r#"{"value": [1, 2]}"#),
        (&["on"], r#"{"value": "on"}"#),
        (&["value={\"number\":4}"], r#"{"value": 4.0}"#),
        (&["any=1.5"], r#"{"any": 1.5}"#),
        (&["any=on"], r#"{"any": "on"}"#),
        (&["several=[1,{\"text\":\"on\"}]"], r#"{"several": [1.0, "on"]}"#),
        (&["anys=[\"on\",2]"], r#"{"anys": ["on", 2]}"#),
        (&["points=[{\"x\":1,\"y\":2}]"], r#"{"points": [{"x": 1, "y": 2}]}"#),
    ] {
        let put = run("pvput", &[&["U:all"], words].concat());
        assert_eq!(server.lines.recv_timeout(harness::PATIENCE).unwrap(), taken, "{words:?}: {put}");
    }
    let refused = run("pvput", &["U:all", "value={\"numbers\":1}"]);
    assert!(refused.contains("fits no member") || refused.contains("no JSON array"), "{refused}");
}

//! Links of records over PVAccess: ours to QSRV2, QSRV2 to ours, ours to ours. All must behave as QSRV2 to QSRV2.

use super::python;
use harness::epics::{any_two, program};
use harness::port::free_port;
use harness::process::Running;
use harness::{Folder, PATIENCE};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SOURCE: &str = r#"
record(ao, "S:ao") { field(PREC, "2") field(EGU, "mm") field(HOPR, "10") field(LOPR, "-10") field(HIHI, "5")
    field(HHSV, "MAJOR") field(VAL, "1.25") field(PINI, "YES") }
record(bo, "S:bo") { field(ZNAM, "off") field(ONAM, "on") field(VAL, "1") field(PINI, "YES") }
record(stringout, "S:text") { field(VAL, "words") field(PINI, "YES") }
record(waveform, "S:wave") { field(FTVL, "LONG") field(NELM, "5") field(INP, [5]) field(PINI, "YES") }
record(waveform, "S:texts") { field(FTVL, "STRING") field(NELM, "4") }

record(ao, "S:target") {}
record(stringout, "S:label") {}
record(stringout, "S:number") {}
record(bo, "S:switch") { field(ZNAM, "off") field(ONAM, "on") }
record(waveform, "S:taken") { field(FTVL, "SHORT") field(NELM, "5") }
record(ao, "S:scanned") { field(SCAN, "Event") field(EVNT, "never") field(FLNK, "S:processed") }
record(calc, "S:processed") { field(CALC, "VAL+1") }
record(ao, "S:quiet") { field(FLNK, "S:disturbed") }
record(calc, "S:disturbed") { field(CALC, "VAL+1") }
record(calc, "S:count") { field(CALC, "VAL+1") }
record(ao, "S:late") {}
"#;

const HOLDER: &str = r#"
record(ai, "H:ms") { field(INP, {pva:{pv:"S:ao", proc:"CP", sevr:"MS"}}) }
record(ai, "H:nms") { field(INP, {pva:{pv:"S:ao", proc:"CPP"}}) }
record(ai, "H:mss") { field(INP, {pva:{pv:"S:ao", proc:"CP", sevr:"MSS"}}) }
record(ai, "H:msi") { field(INP, {pva:{pv:"S:ao", proc:"CP", sevr:"MSI", Q:10, pipeline:true}}) }
record(ai, "H:plain") { field(INP, {pva:"S:ao"}) }
record(ai, "H:time") { field(INP, {pva:{pv:"S:ao", proc:"CP", time:true}}) field(TSE, "-2") }
record(calc, "H:calc") { field(CALC, "A*2+B") field(INPA, {pva:{pv:"S:ao", proc:"CP"}}) field(INPB, {pva:{pv:"S:bo", proc:"CP"}}) }
record(longin, "H:digits") { field(INP, {pva:{pv:"S:ao", field:"display.precision", proc:"CP"}}) }
record(longin, "H:alarm") { field(INP, {pva:{pv:"S:ao", field:"alarm.severity", proc:"CP"}}) }
record(stringin, "H:unit") { field(INP, {pva:{pv:"S:ao", field:"display.units", proc:"CP"}}) }
record(stringin, "H:text") { field(INP, {pva:{pv:"S:text", proc:"CP"}}) }
record(stringin, "H:state") { field(INP, {pva:{pv:"S:bo", proc:"CP"}}) }
record(longin, "H:index") { field(INP, {pva:{pv:"S:bo", proc:"CP"}}) }
record(waveform, "H:wave") { field(INP, {pva:{pv:"S:wave", proc:"CP", sevr:true}}) field(FTVL, "DOUBLE") field(NELM, "4") }
record(ai, "H:first") { field(INP, {pva:{pv:"S:wave", proc:"CP"}}) }
record(waveform, "H:texts") { field(INP, {pva:{pv:"S:texts", proc:"CP"}}) field(FTVL, "STRING") field(NELM, "4") }
record(ai, "H:nobody") { field(INP, {pva:{pv:"S:nobody", proc:"CP", sevr:"MS"}}) field(PINI, "YES") }
record(ao, "H:out") { field(OUT, {pva:"S:target"}) }
record(stringout, "H:say") { field(OUT, {pva:"S:label"}) }
record(longout, "H:number") { field(OUT, {pva:{pv:"S:number", field:"value"}}) }
record(longout, "H:switch") { field(OUT, {pva:"S:switch"}) }
record(aao, "H:array") { field(OUT, {pva:"S:taken"}) field(FTVL, "DOUBLE") field(NELM, "5") }
record(ao, "H:always") { field(OUT, {pva:{pv:"S:scanned", proc:"PP"}}) }
record(ao, "H:never") { field(OUT, {pva:{pv:"S:quiet", proc:"NPP"}}) }
record(ai, "H:forward") { field(FLNK, {pva:"S:count"}) }
record(ao, "H:retry") { field(OUT, {pva:{pv:"S:late", retry:true}}) }
"#;

const FIELDS: &[&str] = &[
    "H:ms",
    "H:ms.SEVR",
    "H:ms.STAT",
    "H:nms",
    "H:nms.SEVR",
    "H:mss.SEVR",
    "H:mss.STAT",
    "H:msi.SEVR",
    "H:plain",
    "H:plain.SEVR",
    "H:time",
    "H:calc",
    "H:calc.SEVR",
    "H:digits",
    "H:alarm",
    "H:unit",
    "H:text",
    "H:state",
    "H:index",
    "H:wave",
    "H:wave.SEVR",
    "H:first",
    "H:texts",
    "H:out.SEVR",
    "H:nobody.SEVR",
    "H:nobody.STAT",
];

/// An IOC of tahti or QSRV2 that is read and written over Channel Access.
struct Side {
    ours: bool,
    port: u16,
    /// Other servers of PVAccess that it searches.
    searched: Vec<u16>,
    file: PathBuf,
    process: Option<Running>,
}

impl Side {
    fn start(ours: bool, folder: &Folder, name: &str, database: &str, searched: &[u16]) -> Self {
        let file = folder.write(&format!("{name}.db"), database);
        let mut side = Self { ours, port: free_port(), searched: searched.to_vec(), file, process: None };
        side.up();
        side
    }

    fn up(&mut self) {
        let mut command = match self.ours {
            true => program(true, "softIoc", self.port),
            false => {
                let mut command = python(self.port);
                command.args(["-m", "pvxslibs.ioc"]).env("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1");
                command
                    .env("EPICS_CAS_SERVER_PORT", self.port.to_string())
                    .env("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1");
                command
            }
        };
        let searched = self.searched.iter().chain([&self.port]).map(|port| format!("127.0.0.1:{}", port + 5));
        command.env("EPICS_PVA_ADDR_LIST", searched.collect::<Vec<_>>().join(" "));
        command.args(["-d", self.file.to_str().unwrap()]).stdin(Stdio::piped());
        self.process = Some(Running::start(command.stdout(Stdio::null()).stderr(Stdio::null())));
    }

    fn put(&self, words: &[&str]) {
        let output = program(true, "caput", self.port).args(["-c", "-w", "60"]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", harness::process::text(&output));
    }

    fn read(&self, fields: &[&str]) -> Vec<String> {
        let output = program(true, "caget", self.port).args(["-t", "-w", "10"]).args(fields).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
    }

    fn read_until(&self, fields: &[&str], wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.read(fields);
            if now.len() == fields.len() && wanted(&now) {
                return now;
            }
            assert!(Instant::now() < end, "ours: {}, {fields:?} are still {now:?}", self.ours);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The time stamp of a record, as text.
    fn stamp(&self, record: &str) -> String {
        let output = program(true, "caget", self.port).args(["-a", "-w", "60", record]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ")
    }
}

/// Values of the holder's records while the source changes, goes and comes back, and the values that the source received.
fn story([source, holder]: [bool; 2]) -> Vec<Vec<String>> {
    let folder = Folder::new();
    let mut source = Side::start(source, &folder, "source", SOURCE, &[]);
    let holder = Side::start(holder, &folder, "holder", HOLDER, &[source.port]);
    let shown = |field: &str| FIELDS.iter().position(|name| *name == field).unwrap();
    let (ms, plain, state) = (shown("H:ms"), shown("H:plain"), shown("H:state"));
    let mut story = vec![holder.read_until(FIELDS, |now| {
        now[ms] == "1.25" && now[shown("H:calc")] == "3.5" && now[state] == "on" && now[shown("H:text")] == "words"
    })];
    source.put(&["S:ao", "7.5"]);
    source.put(&["-a", "S:wave", "3", "1", "2", "3"]);
    source.put(&["-a", "S:texts", "2", "one", "two words"]);
    holder.put(&["H:plain.PROC", "1"]);
    story.push(holder.read_until(FIELDS, |now| {
        let [severity, alarm] = ["H:ms.SEVR", "H:alarm"].map(shown);
        let arrays = now[shown("H:wave")].contains("1 2 3") && now[shown("H:texts")].contains("two words");
        if now[plain] != "7.5" {
            holder.put(&["H:plain.PROC", "1"]);
        }
        now[severity] == "MAJOR" && now[alarm] == "2" && arrays && now[plain] == "7.5" && now[shown("H:first")] == "1"
    }));
    let same = source.stamp("S:ao") == holder.stamp("H:time");
    story.push(vec![format!("the same time: {same}")]);
    for words in [
        ["H:out", "4.5"],
        ["H:say", "hello"],
        ["H:number", "42"],
        ["H:switch", "1"],
        ["H:always", "2"],
        ["H:never", "3"],
        ["H:forward.PROC", "1"],
        ["H:retry", "1"],
    ] {
        holder.put(&words);
    }
    holder.put(&["-a", "H:array", "3", "7", "8", "9.9"]);
    let got = [
        "S:target",
        "S:label",
        "S:number",
        "S:switch",
        "S:scanned",
        "S:processed",
        "S:quiet",
        "S:count",
        "S:taken",
        "S:late",
    ];
    let received = source.read_until(&got, |now| {
        now[..4] == ["4.5", "hello", "42", "on"] && now[4..8] == ["2", "1", "3", "1"] && now[9] == "1"
    });
    story.push(received);
    story.push(source.read(&["S:disturbed"]));
    drop(source.process.take());
    let lost =
        |now: &[String]| ["H:ms", "H:wave", "H:mss"].iter().all(|of| now[shown(&format!("{of}.SEVR"))] == "INVALID");
    story.push(holder.read_until(FIELDS, lost));
    story.push(holder.read(&["H:ms.AMSG", "H:calc.AMSG"]));
    holder.put(&["H:out", "5.5"]);
    holder.put(&["H:retry", "6.5"]);
    story.push(holder.read_until(&["H:out.SEVR", "H:out.STAT", "H:retry.SEVR"], |now| now[..2] == ["INVALID", "LINK"]));
    source.up();
    let back =
        ["H:ms", "H:ms.SEVR", "H:nms", "H:msi.SEVR", "H:calc", "H:digits", "H:unit", "H:text", "H:state", "H:index"];
    let back = back.map(shown);
    let first = story[0].clone();
    story.push(holder.read_until(FIELDS, |now| back.iter().all(|at| now[*at] == first[*at])));
    story.push(source.read_until(&["S:late", "S:target"], |now| now[0] == "6.5"));
    story
}

#[test]
fn links_between_any_two_iocs_behave_as_in_qsrv2() {
    any_two(story, "QSRV2", FIELDS);
}

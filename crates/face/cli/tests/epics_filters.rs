//! Channel filters on monitors: which events pass and what they contain, compared with C's IOC.
//!
//! `TAHTI_EPICS` as for the tests in `epics.rs`.

use harness::epics::{Monitor, normal};
use harness::ioc::Ioc;
use std::collections::BTreeMap;

const DATABASE: &str = r#"
record(ao, "$(P)ao") { field(PREC, "2") field(HIGH, "20") field(HSV, "MINOR") }
record(longout, "$(P)count") { field(HIGH, "8") field(HSV, "MAJOR") }
record(waveform, "$(P)wave") { field(FTVL, "LONG") field(NELM, "8") }
record(stringout, "$(P)text") { }
record(bo, "$(P)switch") { field(ZNAM, "off") field(ONAM, "on") }
record(longout, "$(P)end") { }
"#;

/// The watched channels. The state `red` is defined at start.
const CHANNELS: &[&str] = &[
    "X:ao",
    r#"X:ao.{"dbnd":{"abs":1.5}}"#,
    r#"X:ao.{"dbnd":{"d":0}}"#,
    r#"X:ao.{"dbnd":{"rel":50}}"#,
    r#"X:ao.{"dbnd":{"m":"abs","d":4}}"#,
    r#"X:ao.HIGH{"dbnd":{"abs":2}}"#,
    r#"X:ao.{"dec":{"n":3}}"#,
    r#"X:ao.{"dec":{"n":1}}"#,
    r#"X:ao.{"dbnd":{"abs":1.5},"dec":{"n":2}}"#,
    r#"X:ao.{"dec":{"n":2},"dbnd":{"abs":1.5}}"#,
    r#"X:count.{"sync":{"m":"while","s":"red"}}"#,
    r#"X:count.{"sync":{"m":"unless","s":"red"}}"#,
    r#"X:count.{"sync":{"m":"before","s":"red"}}"#,
    r#"X:count.{"sync":{"m":"first","s":"red"}}"#,
    r#"X:count.{"sync":{"m":"last","s":"red"}}"#,
    r#"X:count.{"sync":{"m":"after","s":"red"}}"#,
    r#"X:count.{"before":"red"}"#,
    r#"X:count.{"while":"red"}"#,
    r#"X:count.{"utag":{"M":1,"V":0}}"#,
    r#"X:count.{"utag":{"M":1,"V":1}}"#,
    r#"X:count.{"dbnd":{"abs":3}}"#,
    r#"X:wave.{"arr":{"s":1,"e":-2}}"#,
    r#"X:wave.{"arr":{"i":2}}"#,
    r#"X:wave.{"arr":{"s":2,"i":3,"e":7}}"#,
    r#"X:wave.{"arr":{"s":5,"e":2}}"#,
    r#"X:wave.{"arr":{"s":-3}}"#,
    "X:wave.[2:4]",
    "X:wave.[1:2:-1]",
    "X:wave.[-2:]",
    "X:wave.[3]",
    r#"X:wave.[1:2:-1]{"dec":{"n":2}}"#,
    r#"X:wave.{"arr":{"s":1},"arr":{"s":1}}"#,
    r#"X:text.{"dec":{"n":2}}"#,
    r#"X:text.VAL${"dec":{"n":2}}"#,
    r#"X:text.VAL${"arr":{"s":1,"e":3}}"#,
    r#"X:switch.{"dbnd":{"abs":0.5}}"#,
    // Both servers refuse these: they do not connect.
    r#"X:ao.{"dbnd":{"abs":"x"}}"#,
    r#"X:ao.{"dbnd":{}}"#,
    r#"X:ao.{"dec":{"n":0}}"#,
    r#"X:ao.{"dec":{}}"#,
    r#"X:ao.{"sync":{"m":"while"}}"#,
    r#"X:ao.{"sync":{"m":"never","s":"red"}}"#,
    r#"X:ao.{"nothing":{}}"#,
    r#"X:ao.{"dec":{"n":2}"#,
    r#"X:ao.{"dec":{"n":2}}x"#,
    "X:wave.[1:2",
    "X:wave.[a]",
    "X:wave.[1:2:3:4]",
];

/// The updates of each channel, in order.
fn watched(ours: bool) -> BTreeMap<String, Vec<String>> {
    let mut ioc = Ioc::serving(ours, DATABASE);
    ioc.say("dbStateCreate red\ndbStateShow red");
    let put = |ioc: &Ioc, args: &[&str]| {
        let args: Vec<&str> = ["-c"].into_iter().chain(args.iter().copied()).collect();
        ioc.run(false, "caput", &args);
    };
    put(&ioc, &["-a", "X:wave", "5", "10", "11", "12", "13", "14"]);
    let channels: Vec<&str> = CHANNELS.iter().copied().chain(["X:end"]).collect();
    let monitor = [Monitor::start(&ioc, false, &channels)];
    let mut lines = Monitor::settled(&monitor, &ioc);
    for value in ["1", "2", "2.4", "5", "6", "6.5", "20", "21", "30", "-1", "-1", "0.5"] {
        put(&ioc, &["X:ao", value]);
    }
    for high in ["21", "23.5", "0"] {
        put(&ioc, &["X:ao.HIGH", high]);
    }
    for text in ["a", "bc", "def", "ghij", "klmno"] {
        put(&ioc, &["X:text", text]);
        put(&ioc, &["X:switch", if text.len() % 2 == 0 { "on" } else { "off" }]);
    }
    for wave in [&["8", "1", "2", "3", "4", "5", "6", "7", "8"][..], &["1", "9"], &["3", "1", "2", "3"]] {
        let args: Vec<&str> = ["-a", "X:wave"].into_iter().chain(wave.iter().copied()).collect();
        put(&ioc, &args);
    }
    let mut count = 0;
    for state in [None, Some("dbStateSet"), Some("dbStateClear"), Some("dbStateSet"), None] {
        if let Some(command) = state {
            ioc.say(&format!("{command} red\ndbStateShow red"));
        }
        for _ in 0..3 {
            count += 1;
            put(&ioc, &["X:count", &count.to_string()]);
        }
    }
    put(&ioc, &["X:end", "1"]);
    Monitor::more(&monitor, &ioc, &mut lines);
    let mut channels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // camonitor reports unconnected channels after a timeout that this test may or may not reach.
    for line in lines.concat().iter().filter(|line| !line.contains("Not connected")) {
        let line = normal(line, ioc.port);
        let name = line.split_whitespace().next().unwrap_or_default().to_owned();
        channels.entry(name).or_default().push(line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    channels
}

#[test]
fn filtered_monitors_show_the_same_as_with_c() {
    let (theirs, ours) = (watched(false), watched(true));
    let mut different = String::new();
    for channel in theirs.keys().chain(ours.keys().filter(|channel| !theirs.contains_key(*channel))) {
        let (left, right) = (theirs.get(channel), ours.get(channel));
        if left != right {
            different += &format!("{channel}\n  EPICS {left:#?}\n  tahti {right:#?}\n");
        }
    }
    assert!(different.is_empty(), "{different}");
    assert!(theirs["X:end"].len() == 2 && theirs["X:ao"].len() > 10, "too few values to compare: {theirs:?}");
}

//! Links of records to other IOCs: ours to C's, C's to ours, ours to ours. All must behave as C's to C's.

use harness::epics::any_two;
use harness::ioc::Ioc;

const SOURCE: &str = r#"
record(ao, "$(P)ao") { field(PREC, "2") field(EGU, "mm") field(HOPR, "10") field(LOPR, "-10") field(HIHI, "5")
    field(HHSV, "MAJOR") field(VAL, "1.25") field(PINI, "YES") }
record(bo, "$(P)bo") { field(ZNAM, "off") field(ONAM, "on") field(VAL, "1") field(PINI, "YES") }
record(stringout, "$(P)text") { field(VAL, "words") field(PINI, "YES") }
record(waveform, "$(P)wave") { field(FTVL, "LONG") field(NELM, "5") }
record(ao, "$(P)target") {}
record(stringout, "$(P)label") {}
record(bo, "$(P)switch") { field(ZNAM, "off") field(ONAM, "on") }
record(calcout, "$(P)slow") { field(CALC, "A") field(ODLY, "0.5") field(OUT, "$(P)slowed PP") }
record(ao, "$(P)slowed") {}
record(calc, "$(P)count") { field(CALC, "VAL+1") }
"#;

const HOLDER: &str = r#"
record(ai, "H:ms") { field(INP, "X:ao CP MS") }
record(ai, "H:nms") { field(INP, "X:ao CPP NMS") }
record(ai, "H:mss") { field(INP, "X:ao CP MSS") }
record(ai, "H:msi") { field(INP, "X:ao CP MSI") }
record(ai, "H:plain") { field(INP, "X:ao CA") }
record(calc, "H:calc") { field(CALC, "A*2+B") field(INPA, "X:ao CP MS") field(INPB, "X:bo CP") }
record(stringin, "H:text") { field(INP, "X:text CP") }
record(stringin, "H:state") { field(INP, "X:bo CP") }
record(stringin, "H:number") { field(INP, "X:ao CP") }
record(longin, "H:index") { field(INP, "X:bo CP") }
record(waveform, "H:wave") { field(INP, "X:wave CP MS") field(FTVL, "DOUBLE") field(NELM, "5") }
record(ao, "H:out") { field(OUT, "X:target CA") }
record(stringout, "H:say") { field(OUT, "X:label CA") }
record(longout, "H:switch") { field(OUT, "X:switch CA") }
record(ai, "H:forward") { field(FLNK, "X:count.PROC CA") }
record(ao, "H:async") { field(DTYP, "Async Soft Channel") field(OUT, "X:slow.A CA") }
record(ai, "H:absent") { field(INP, "X:absent CP MS") field(PINI, "YES") }
"#;

const FIELDS: &[&str] = &[
    "H:ms",
    "H:ms.SEVR",
    "H:ms.STAT",
    "H:nms",
    "H:nms.SEVR",
    "H:mss",
    "H:mss.SEVR",
    "H:mss.STAT",
    "H:msi.SEVR",
    "H:plain",
    "H:plain.SEVR",
    "H:calc",
    "H:calc.A",
    "H:calc.SEVR",
    "H:text",
    "H:state",
    "H:number",
    "H:index",
    "H:wave",
    "H:wave.SEVR",
    "H:out.SEVR",
    "H:absent.SEVR",
    "H:absent.STAT",
];

/// Values of the holder's records while the source changes, goes and comes back, and the values that the source
/// received.
fn story(ours: [bool; 2]) -> Vec<Vec<String>> {
    let mut source = Ioc::serving(ours[0], SOURCE);
    let list = format!("127.0.0.1:{}", source.port);
    let holder = Ioc::serving_with(ours[1], HOLDER, &[("EPICS_CA_ADDR_LIST", &list)]);
    let mut story = Vec::new();
    story.push(holder.read_until(FIELDS, |now| {
        now.len() == FIELDS.len()
            && now[0] == "1.25"
            && now[11] == "3.5"
            && now[15] == "on"
            && now[16].starts_with("1.25")
    }));
    // Properties are read on connection, as in C.
    story.push(vec![holder.run(false, "caget", &["-d", "CTRL_DOUBLE", "H:calc.A"])]);
    source.run(false, "caput", &["-c", "X:ao", "7.5"]);
    source.run(false, "caput", &["-c", "-a", "X:wave", "3", "1", "2", "3"]);
    holder.run(false, "caput", &["-c", "H:plain.PROC", "1"]);
    story.push(holder.read_until(FIELDS, |now| {
        now.get(1) == Some(&"MAJOR") && now.get(18).is_some_and(|wave| wave.contains(" 1 2 3"))
    }));
    for args in [["H:out", "4.5"], ["H:say", "hello"], ["H:switch", "1"], ["H:forward.PROC", "1"]] {
        holder.run(false, "caput", &["-c", args[0], args[1]]);
    }
    let got = ["X:target", "X:label", "X:switch", "X:count"];
    story.push(source.read_until(&got, |now| now == ["4.5", "hello", "on", "1"]));
    // The put completes when the other IOC's processing does.
    holder.run(false, "caput", &["-c", "-w", "20", "H:async", "2.5"]);
    story.push(vec![
        source.run(false, "caget", &["-t", "X:slowed"]),
        holder.run(false, "caget", &["-t", "H:async.SEVR"]),
    ]);
    source.crash();
    story.push(holder.read_until(FIELDS, |now| now.get(1) == Some(&"INVALID") && now.get(19) == Some(&"INVALID")));
    holder.run(false, "caput", &["-c", "H:out", "5.5"]);
    story.push(holder.read_until(&["H:out.SEVR", "H:out.STAT"], |now| now == ["INVALID", "LINK"]));
    source.up();
    // The channels reconnect one after the other.
    let shown = |field: &str| FIELDS.iter().position(|name| *name == field).unwrap();
    let back = [
        "H:ms",
        "H:ms.SEVR",
        "H:nms",
        "H:mss",
        "H:msi.SEVR",
        "H:calc",
        "H:text",
        "H:state",
        "H:number",
        "H:index",
        "H:wave",
    ]
    .map(shown);
    let first = story[0].clone();
    story.push(
        holder.read_until(FIELDS, |now| now.len() == FIELDS.len() && back.iter().all(|at| now[*at] == first[*at])),
    );
    story
}

#[test]
fn links_between_any_two_iocs_behave_as_in_c() {
    any_two(story, "C", FIELDS);
}

#[test]
fn dbcar_counts_links_and_names_disconnected_ones() {
    let source = Ioc::serving(true, SOURCE);
    let list = format!("127.0.0.1:{}", source.port);
    let mut holder = Ioc::serving_with(true, HOLDER, &[("EPICS_CA_ADDR_LIST", &list)]);
    holder.read_until(&["H:ms"], |now| now == ["1.25"]);
    let report = holder.say("dbcar \"\" 1");
    assert!(report.contains("CA links; ") && report.contains("1 not connected."), "{report}");
    assert!(report.contains("H:absent.INP  --> X:absent"), "{report}");
}

const OWN: &str = r#"
record(ao, "$(P)src") { field(PREC, "3") field(EGU, "mm") field(HIGH, "4") field(HSV, "MAJOR") field(VAL, "5")
    field(MDEL, "10") field(PINI, "YES") }
record(calcout, "X:co") { field(CALC, "A+1") field(INPA, "X:co NPP") field(ODLY, "0.2") field(OUT, "X:co.PROC CA") }
record(calc, "X:looped") { field(CALC, "VAL+1") field(FLNK, "X:loop.PROC CA") }
record(seq, "X:loop") { field(DLY1, "0.1") field(DOL1, "1") field(LNK1, "X:looped.PROC CA") }
record(calc, "X:self") { field(CALC, "VAL+1") field(FLNK, "X:self.PROC CA") }
record(calc, "X:a") { field(CALC, "VAL+1") field(FLNK, "X:b.PROC CA") }
record(calc, "X:b") { field(CALC, "VAL+1") field(FLNK, "X:a.PROC CA") }
record(calcout, "X:slow") { field(CALC, "A+1") field(INPA, "X:slow") field(ODLY, "3600") }
record(bo, "X:bo") { field(FLNK, "X:slow.PROC CA") }
record(ai, "X:pini") { field(INP, "X:src CA MS") field(PINI, "YES") }
record(ao, "X:out") { field(OUT, "X:dst CA") field(VAL, "7") field(PINI, "YES") }
record(ao, "X:dst") {}
record(ai, "X:follows") { field(INP, "X:src CP MSS") }
record(calc, "X:later") { field(CALC, "A") field(INPA, "X:src CA") }
record(stringin, "X:text") { field(INP, "X:src CP") }
record(calcout, "X:says") { field(CALC, "A") field(INPA, "X:src CA") field(INPB, "X:src") field(INPC, "X:none CA")
    field(INPD, "X:src CP") field(OUT, "X:dst CA") }
record(ao, "X:refuses") { field(DISP, "1") }
record(ao, "X:asks") { field(OUT, "X:refuses CA") }
record(stringout, "X:words") { field(OUT, "X:number CA") }
record(longout, "X:number") {}
record(calc, "X:idle") { field(CALC, "VAL+1") field(FLNK, "X:number CA") }
record(ai, "X:notify") { field(DTYP, "Async Soft Channel") field(INP, "X:src CA") }
"#;

/// Values of an IOC's records that have channel links to each other.
fn own(ours: bool) -> Vec<Vec<String>> {
    let ioc = Ioc::serving(ours, OWN);
    let says = ["INAV", "INBV", "INCV", "INDV", "OUTV"].map(|field| format!("X:says.{field}"));
    let says = says.each_ref().map(String::as_str);
    let connected = |now: &[&str]| now[0] == "Ext PV OK" && now[4] == "Ext PV OK";
    let mut story = vec![ioc.read_until(&says, |now| now.len() == 5 && connected(now))];
    let put = |name: &str, value: &str| drop(ioc.run(false, "caput", &["-c", "-w", "20", name, value]));
    // Each of these processes itself for ever.
    for name in ["X:co", "X:looped", "X:self", "X:a"] {
        put(&format!("{name}.PROC"), "1");
    }
    let round = ["X:co", "X:looped", "X:self", "X:a", "X:b"];
    ioc.read_until(&round, |now| now.iter().all(|count| count.parse().is_ok_and(|count: f64| count > 4.0)));
    // A put that waited for the slow record would time out after 20 s.
    put("X:bo", "1");
    let fields = ["X:slow.PACT", "X:pini", "X:pini.STAT", "X:dst", "X:follows", "X:follows.STAT", "X:text"];
    story.push(ioc.read_until(&fields, |now| now.first() == Some(&"1") && now.get(4) == Some(&"5")));
    // One change within MDEL, one beyond it.
    for (value, shown) in [("12", "5"), ("30", "30")] {
        put("X:src", value);
        let seen = ioc.read_until(&["X:follows", "X:src"], |now| now == [shown, value]);
        put("X:later.PROC", "1");
        story.push([seen, ioc.read_until(&["X:later"], |now| now == [shown])].concat());
    }
    for (name, value) in [("X:asks", "4"), ("X:words", "12"), ("X:words", "x"), ("X:idle.PROC", "1"), ("X:out", "9")] {
        put(name, value);
    }
    put("X:notify.PROC", "1");
    let fields =
        ["X:number", "X:dst", "X:words.STAT", "X:refuses", "X:asks.SEVR", "X:idle", "X:notify", "X:notify.STAT"];
    story.push(ioc.read_until(&fields, |now| now.len() == 8 && now[0] == "12" && now[1] == "9" && now[6] == "30"));
    story.push(vec![ioc.run(false, "caget", &["-d", "CTRL_DOUBLE", "X:later.A"])]);
    story
}

#[test]
fn links_over_channels_into_the_same_ioc_behave_as_in_c() {
    let (c, tahti) = std::thread::scope(|scope| {
        let c = scope.spawn(|| own(false));
        (c.join().unwrap(), own(true))
    });
    assert_eq!(c, tahti, "C's left, ours right");
}

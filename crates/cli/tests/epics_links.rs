//! Links of records to other IOCs: ours to C's, C's to ours, ours to ours, all as C's to C's.

mod peer;

use peer::Ioc;

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
record(ai, "H:nobody") { field(INP, "X:nobody CP MS") field(PINI, "YES") }
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
    "H:nobody.SEVR",
    "H:nobody.STAT",
];

/// What the holder's records show while the source changes, goes and comes back; what the source got.
fn story(ours: [bool; 2]) -> Vec<Vec<String>> {
    let mut source = Ioc::start(ours[0], SOURCE);
    let list = format!("127.0.0.1:{}", source.port);
    let holder = Ioc::start_with(ours[1], HOLDER, &[("EPICS_CA_ADDR_LIST", &list)]);
    let mut story = Vec::new();
    story.push(holder.read_until(FIELDS, |now| {
        now.len() == FIELDS.len()
            && now[0] == "1.25"
            && now[11] == "3.5"
            && now[15] == "on"
            && now[16].starts_with("1.25")
    }));
    // Properties come with the connection, as those of C do.
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
    // The write ends when the other side has.
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
    // Its channels come back one after the other.
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
fn links_to_other_iocs_behave_as_those_of_c_between_any_two() {
    let pairs = [[false, false], [false, true], [true, false], [true, true]];
    // At the same time: most of it is waiting for clients to search again.
    let stories = std::thread::scope(|scope| {
        let threads = pairs.map(|ours| scope.spawn(move || story(ours)));
        threads.map(|thread| thread.join().unwrap())
    });
    for (ours, story) in pairs.iter().zip(&stories) {
        for (step, (a, b)) in stories[0].iter().zip(story).enumerate() {
            assert_eq!(a, b, "source and holder ours: {ours:?}, step {step}: C's left, ours right, of {FIELDS:?}");
        }
    }
}

#[test]
fn dbcar_counts_links_and_names_those_that_are_not_connected() {
    let source = Ioc::start(true, SOURCE);
    let list = format!("127.0.0.1:{}", source.port);
    let mut holder = Ioc::start_with(true, HOLDER, &[("EPICS_CA_ADDR_LIST", &list)]);
    holder.read_until(&["H:ms"], |now| now == ["1.25"]);
    let report = holder.command("dbcar \"\" 1");
    assert!(report.contains("CA links; ") && report.contains("1 not connected."), "{report}");
    assert!(report.contains("H:nobody.INP  --> X:nobody"), "{report}");
}

//! Requests as clients send them, and their answers.

use crate::model::{Model, NOON, SECOND, clock};
use appliance::{Method, Request};
use base::{Array, Scalar};
use segment::rows::{About, Cause, Gap};
use segment::{Datum, Sample};

const JSON: &str = "/retrieval/data/getData.json";

#[test]
fn the_newest_sample_before_the_start_comes_first_with_its_time_stamp() {
    let model = Model::counting("A", 10);
    assert_eq!(model.numbers("A", 3, 5), [(3.0, 3.0), (4.0, 4.0), (5.0, 5.0)]);
    let query = format!("pv=A&from={}&to={}", clock(3).replace("03.000", "03.500"), clock(5));
    let json = model.json(JSON, &query);
    let values: Vec<_> = json[0]["data"].as_array().unwrap().iter().map(|row| row["val"].as_f64().unwrap()).collect();
    assert_eq!(values, [3.0, 4.0, 5.0]);
    assert_eq!(model.numbers("A", 7, 7), [(7.0, 7.0)], "from = to is the value at that time");
    assert_eq!(model.numbers("A", 100, 200), [(9.0, 9.0)]);
    assert_eq!(model.numbers("A", -200, -100), []);
    assert_eq!(model.numbers("A", -200, 0), [(0.0, 0.0)]);
}

#[test]
fn a_signal_is_found_under_the_names_used_by_clients() {
    let mut model = Model::counting("X:BUILD.VALA", 1);
    model.add("A", About::default(), vec![Sample::new(NOON, 1.0)]);
    model.add("B.VAL", About::default(), vec![Sample::new(NOON, 2.0)]);
    model.add("A.HIHI", About::default(), vec![Sample::new(NOON, 3.0)]);
    model.add("mean_5(A)", About::default(), vec![Sample::new(NOON, 4.0)]);
    for (asked, value) in
        [("X:BUILD.VALA", 0.0), ("pva://A", 1.0), ("ca://A.VAL", 1.0), ("B", 2.0), ("A.HIHI", 3.0), ("mean_5(A)", 4.0)]
    {
        assert_eq!(model.numbers(asked, 0, 10)[0].1, value, "{asked}");
    }
    let said = String::from_utf8(model.body(&model.ask(JSON, "pv=NONE"))).unwrap();
    assert_eq!(model.ask(JSON, "pv=NONE").status, 404);
    assert!(said.contains("\"NONE\" is not in the archive"), "{said}");
}

#[test]
fn impossible_queries_are_refused_with_the_expected_form() {
    let mut model = Model::counting("A", 1);
    model.add("TEXT", About::default(), vec![Sample::new(NOON, "hello")]);
    for (path, query, status, said) in [
        (JSON, "", 400, "expected one, as pv=NAME"),
        (JSON, "pv=A&pv=B", 400, "getDataForPVs takes several"),
        (JSON, "pv=A&from=yesterday", 400, "is no instant; expected one such as"),
        (JSON, "pv=A&from=2026-11-23T00:00:00Z&to=2026-11-22T00:00:00Z", 400, "is before from="),
        (JSON, "pv=meany_60(A)", 400, "is no post-processor"),
        (JSON, "pv=A&pp=meany_60", 400, "is no post-processor"),
        (JSON, "pv=mean_60(TEXT)", 400, "values are text; expected numbers"),
        (JSON, "pv=mean_1(A)&from=1970-01-01T00:00:00Z", 400, "bins; expected at most"),
        (JSON, "pv=%zz", 400, "hexadecimal"),
        ("/retrieval/data/getData.svg", "pv=A", 400, "expected one of raw, json, qw, csv, txt"),
        ("/retrieval/data/getDataForPVs.csv", "pv=A", 400, "expected one of raw, json, qw"),
        ("/retrieval/data/getDataAtTime", "", 405, "expected a POST"),
        ("/retrieval/bpl/getMatchingPVs", "regex=(", 400, "is no regular expression"),
        ("/retrieval/bpl/getMatchingPVs", "limit=x", 400, "expected a number"),
        ("/retrieval/bpl/getMetadata", "", 400, "expected pv=NAME"),
        ("/retrieval/bpl/getMetadata", "pv=NONE", 404, "is not in the archive"),
        ("/retrieval/bpl/deletePV", "pv=A", 404, "there is nothing at"),
        ("/", "", 404, "there is nothing at"),
    ] {
        let answer = model.ask(path, query);
        let text = String::from_utf8(model.body(&answer)).unwrap();
        assert!(answer.status == status && text.contains(said), "{path}?{query}: {} {text}", answer.status);
    }
}

#[test]
fn json_has_the_metadata_of_the_signal_and_null_for_nan_and_infinity() {
    let mut model = Model::default();
    let about = About { units: "m\"m".into(), precision: Some(3), labels: vec![] };
    let sick = Sample { severity: 3, status: 17, ..Sample::new(NOON + 5, f64::NAN) };
    model.add("A", about, vec![Sample::new(NOON, 1.5), sick, Sample::new(NOON + SECOND, f64::INFINITY)]);
    let json = model.json(JSON, &format!("pv=A&from={}&to={}", clock(0), clock(1)));
    assert_eq!(json[0]["meta"], serde_json::json!({ "name": "A", "EGU": "m\"m", "PREC": "3" }));
    assert_eq!(json[0]["data"][0]["val"], 1.5);
    let second = serde_json::json!({ "secs": NOON / SECOND, "nanos": 5, "val": null, "severity": 3, "status": 17 });
    assert_eq!(json[0]["data"][1], second);
    assert_eq!(json[0]["data"][2]["val"], serde_json::Value::Null);
    let qw = model.json("/retrieval/data/getData.qw", &format!("pv=A&from={}&to={}", clock(0), clock(1)));
    assert_eq!((&qw[0]["meta"]["waveform"], &qw[0]["data"][0]["millis"]), (&false.into(), &(NOON / 1_000_000).into()));
}

#[test]
fn arrays_texts_and_states_have_their_form_in_every_format() {
    let mut model = Model::default();
    let array = Datum::Array(Array::F64(vec![1.0, 2.5]));
    model.add("WAVE", About::default(), vec![Sample::new(NOON, array)]);
    model.add("TEXT", About::default(), vec![Sample::new(NOON, "a,\"b\"\n")]);
    let about = About { labels: vec!["off".into(), "on".into()], ..About::default() };
    model.add("STATE", about, vec![Sample::new(NOON, Datum::Number(Scalar::Enum(1)))]);
    let value = |pv: &str| model.points(pv, 0, 0).remove(0).1;
    assert_eq!(value("WAVE"), serde_json::json!([1.0, 2.5]));
    assert_eq!((value("TEXT"), value("STATE")), ("a,\"b\"\n".into(), 1.into()));
    let text = |format: &str, pv: &str| {
        String::from_utf8(model.bytes(&format!("/retrieval/data/getData.{format}"), &format!("pv={pv}"))).unwrap()
    };
    let secs = NOON / SECOND;
    assert_eq!(text("csv", "WAVE"), format!("{secs},\"[1.0, 2.5]\",0,0,0\n\n"));
    assert_eq!(text("csv", "TEXT"), format!("{secs},\"a,\"\"b\"\"\n\",0,0,0\n\n"));
    assert!(text("txt", "TEXT").contains("2026-11-23T12:00:00.000000000Z\ta,\"b\" \t0\t0\t0\n"));
    let json = model.json("/retrieval/data/getDataForPVs.json", "pv=STATE&pv=WAVE");
    assert_eq!(json[0]["meta"]["ENUM_1"], "on");
    assert_eq!(json[1]["meta"]["name"], "WAVE");
}

#[test]
fn the_cause_of_a_gap_is_returned_with_the_next_sample_and_at_the_end() {
    let mut model = Model::counting("A", 10);
    let gap = |second: i64, cause: Cause, lost: u64| Gap { id: None, at: NOON + second * SECOND, cause, lost };
    model.gaps = vec![gap(2, Cause::Disconnected, 0), gap(3, Cause::Overflow, 7), gap(60, Cause::Stopped, 0)];
    model.signals.get_mut("A").unwrap().1.retain(|sample| !(NOON + 2 * SECOND..NOON + 5 * SECOND).contains(&sample.at));
    let json = model.json(JSON, &format!("pv=A&from={}&to={}", clock(0), clock(100)));
    let secs = NOON / SECOND;
    let fields = serde_json::json!({
        "cnxlostepsecs": (secs + 2).to_string(), "cnxregainedepsecs": (secs + 5).to_string(),
        "gap": "disconnected, overflow", "lost": "7",
    });
    assert_eq!(json[0]["data"][2]["fields"], fields, "{json:#}");
    assert_eq!(json[0]["data"][3]["fields"], serde_json::Value::Null);
    let last = serde_json::json!({ "secs": secs + 60, "nanos": 0, "lost": 0, "cause": "logger stopped" });
    assert_eq!(json[0]["gaps"][2], last);
    let bins = model.json(JSON, &format!("pv=meanSample_5(A)&from={}&to={}", clock(0), clock(100)));
    assert_eq!(bins[0]["data"][0]["fields"]["connectionChange"], "true", "{bins:#}");
    assert_eq!(bins[0]["data"][1]["fields"], serde_json::Value::Null, "{bins:#}");
    let status = model.json("/mgmt/bpl/getPVStatus", "pv=*,NONE");
    assert_eq!((&status[0]["status"], &status[1]["status"]), (&"Paused".into(), &"Not being archived".into()));
}

#[test]
fn names_are_found_by_patterns_and_by_expressions_of_the_whole_name() {
    let mut model = Model::counting("RF:A", 1);
    for name in ["RF:B", "MAG:A", "RF:AB"] {
        model.add(name, About::default(), vec![]);
    }
    let list = |query: &str| model.json("/retrieval/bpl/getMatchingPVs", query).as_array().unwrap().len();
    assert_eq!((list("pv=RF:*"), list("pv=RF:?"), list("regex=RF:."), list("regex=.*A"), list("")), (3, 2, 2, 2, 4));
    assert_eq!((list("limit=1"), list("limit=-1")), (1, 4));
    assert_eq!(model.bytes("/retrieval/bpl/searchForPVsRegex", "regex=MAG.*"), b"MAG:A\n");
    assert_eq!(model.json("/mgmt/bpl/getAllPVs", "pv=M*"), serde_json::json!(["MAG:A"]));
    assert_eq!(model.json("/retrieval/bpl/areWeArchivingPV", "pv=RF:A.VAL")["status"], "true");
    assert_eq!(model.json("/retrieval/bpl/areWeArchivingPV", "pv=NONE")["status"], "false");
    assert!(model.json("/retrieval/bpl/getVersion", "")["version"].as_str().unwrap().starts_with("tahti "));
    assert_eq!(model.json("/retrieval/bpl/getMetadata", "pv=RF:A")["DBRType"], "DBR_SCALAR_DOUBLE");
    let body = br#"["RF:A","NONE"]"#;
    let request = Request { method: Method::Post, path: "/retrieval/bpl/filterArchivedPVs", query: "", body };
    assert_eq!(model.body(&model.request(&request)), b"[\"RF:A\"]\n");
}

/// The reason of a refused request.
fn refusal(model: &Model, path: &str, query: &str) -> String {
    let answer = model.ask(path, query);
    let text = String::from_utf8(model.body(&answer)).unwrap();
    assert_eq!(answer.status, 400, "{query}: {text}");
    text
}

#[test]
fn an_exponential_regular_expression_is_evaluated_or_refused_at_once() {
    let model = Model::counting(&format!("RF:{}", "a".repeat(200)), 1);
    let path = "/retrieval/bpl/getMatchingPVs";
    for (expression, expected) in [
        (r"(a*)*\1z", "backreferences are not supported"),
        ("(?=(((.*)*)*)*)(.*)*!", "look-around, including look-ahead and look-behind, is not supported"),
    ] {
        let why = refusal(&model, path, &format!("regex={expression}"));
        assert!(why.contains(expected) && why.contains("without back-references and look-around"), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
    }
    let why = refusal(&model, path, "regex=(?:(?:a{1,100}){1,100}){1,100}");
    assert!(why.contains("more than 262144 bytes; expected fewer or smaller repetitions"), "{why}");
    let why = refusal(&model, path, &format!("regex={}{}", "(".repeat(300), ")".repeat(300)));
    assert!(why.contains("is no regular expression"), "{why}");
    // The matcher takes each step of these once per letter, so they end.
    for expression in ["RF:(a*)*z", "RF:(((.*)*)*)*!", "RF:(a|aa)*!"] {
        assert_eq!(model.bytes(path, &format!("regex={expression}")), b"[]\n", "{expression}");
    }
}

#[test]
fn a_request_has_a_limited_number_of_patterns_for_all_names() {
    let model = Model::counting("RF:A", 1);
    for path in ["/retrieval/bpl/getMatchingPVs", "/mgmt/bpl/getPVStatus"] {
        let patterns = |count: usize| format!("pv={}", vec!["RF:*"; count].join(","));
        assert_eq!(model.ask(path, &patterns(100)).status, 200, "{path}");
        let why = refusal(&model, path, &patterns(101));
        assert!(why.contains("101 patterns with * or ?; expected at most 100"), "{why}");
    }
    // Names are looked up directly, without a search.
    let names = format!("pv={}", vec!["RF:A"; 900].join(","));
    assert_eq!(model.ask("/mgmt/bpl/getPVStatus", &names).status, 200);
}

#[test]
fn the_value_at_a_time_is_that_of_the_newest_sample_within_the_search_period() {
    let mut model = Model::counting("A", 10);
    model.add("OLD", About::default(), vec![Sample::new(NOON - 40 * 3_600 * SECOND, 1.0)]);
    let ask = |query: &str| {
        let body = br#"["A", "OLD", "NONE"]"#;
        let request = Request { method: Method::Post, path: "/retrieval/data/getDataAtTime", query, body };
        let answer = model.request(&request);
        assert_eq!(answer.status, 200);
        serde_json::from_slice::<serde_json::Value>(&model.body(&answer)).unwrap()
    };
    let at = ask(&format!("at={}", clock(4)));
    let expected = serde_json::json!({
        "secs": NOON / SECOND + 4, "nanos": 0, "val": 4.0, "severity": 0, "status": 0, "meta": { "DBRType": "DBR_SCALAR_DOUBLE" },
    });
    assert_eq!(at, serde_json::json!({ "A": expected }));
    assert_eq!(ask("searchPeriod=P5D")["OLD"]["val"], 1.0);
}

//! Tests for each server of an archive over HTTP: `tahti archive http` and the dashboard.

use harness::Folder;
pub(crate) use harness::http::{ask, json};
use segment::Sample;
use segment::rows::{About, Cause};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use store::{Config, Logger};

const SECOND: i64 = 1_000_000_000;
/// 2026-12-31T23:50:00Z.
const BEGIN: i64 = 1_798_761_000 * SECOND;

/// An archive that begins ten minutes before a new year: 1,200 samples at 1 Hz with a gap in the middle.
pub(crate) fn archive() -> Folder {
    let folder = Folder::new();
    let files = store::Folder::make(&folder.0).unwrap();
    let mut logger = Logger::open(files, Config::default(), 0).unwrap();
    let about = About { units: "°C".into(), precision: Some(2), labels: vec![] };
    let signal = logger.signal("RF:TEMP", about, BEGIN).unwrap();
    for k in (0..1_200).filter(|k| !(300..400).contains(k)) {
        logger.push(signal, &Sample::new(BEGIN + k * SECOND, k as f64 / 4.0));
    }
    logger.gap(Some(signal), BEGIN + 300 * SECOND, Cause::Disconnected, 0);
    logger.close(0, BEGIN + 1_200 * SECOND);
    folder
}

/// Sends the requests of appliance clients.
pub(crate) fn is_served_as_clients_ask_for_it(address: &str) {
    let span = "from=2026-12-31T23:50:00.000Z&to=2027-01-01T00:10:00.000Z";
    let all = json(address, &format!("GET /retrieval/data/getData.json?pv=RF:TEMP&{span}"));
    let data = all[0]["data"].as_array().unwrap();
    assert_eq!((data.len(), &all[0]["meta"]["EGU"]), (1_100, &"°C".into()));
    assert_eq!(data[300]["fields"]["gap"], "disconnected");
    let (_, raw) = ask(address, &format!("GET /retrieval/data/getData.raw?pv=RF:TEMP&{span}"));
    assert_eq!(raw.windows(2).filter(|two| two == b"\n\n").count(), 1, "a chunk for each year");
    let mean = json(address, &format!("GET /retrieval/data/getData.json?pv=meanSample_60(RF:TEMP)&{span}"));
    // Five minutes, the last 20 seconds of the seventh, and thirteen minutes. The last instant has no sample.
    assert_eq!(mean[0]["data"].as_array().unwrap().len(), 5 + 1 + 13, "{mean:#}");
    assert_eq!(mean[0]["data"][0]["val"], 29.5 / 4.0);
    assert_eq!(json(address, "GET /retrieval/bpl/getMatchingPVs?pv=RF:*"), serde_json::json!(["RF:TEMP"]));
    let info = json(address, "GET /mgmt/bpl/getApplianceInfo");
    let url = info["dataRetrievalURL"].as_str().unwrap();
    assert!(url.starts_with("http://") && url.ends_with("/retrieval"), "{url}");
    let details = json(address, "GET /mgmt/bpl/getPVDetails?pv=RF:TEMP");
    let units = details.as_array().unwrap().iter().find(|row| row["name"] == "Units:").unwrap();
    assert_eq!(units["value"], "°C");
    let at = json(address, "POST /retrieval/data/getDataAtTime?at=2026-12-31T23:50:10Z\n[\"RF:TEMP\"]");
    assert_eq!(at["RF:TEMP"]["val"], 2.5);
}

/// Sends requests that must be refused.
pub(crate) fn refuses_what_is_not_there_changes_and_other_names(address: &str) {
    let (head, body) = ask(address, "GET /retrieval/data/getData.json?pv=NONE");
    assert!(head.starts_with("http/1.1 404") && body.starts_with(b"\"NONE\" is not in the archive"), "{head}");
    assert!(ask(address, "DELETE /retrieval/data/getData.json?pv=RF:TEMP").0.starts_with("http/1.1 405"));
    assert!(!ask(address, "GET /retrieval/bpl/getVersion").0.contains("access-control"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /retrieval/bpl/getVersion HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
}

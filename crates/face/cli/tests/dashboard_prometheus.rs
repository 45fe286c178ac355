//! The dashboard's metrics read by Prometheus: its checker, its server, and the queries of the Grafana dashboard.

use harness::ioc::Ioc;
use harness::page::http;
use harness::plant::Bench;
use harness::port::free_port;
use harness::process::Running;
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Queries whose data need a flight recorder, thus root.
const OF_A_RECORDER: &str = "tahti_recorder_";

/// A program of Debian's package.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("TAHTI_PROMETHEUS")
        .expect("TAHTI_PROMETHEUS names the folder of promtool; `cargo xtask test browser` sets it");
    PathBuf::from(folder).join(name)
}

/// A plant with a loop, a frame, alarms, messages and an archive.
fn plant(port: u16, ioc: &Ioc) -> Bench {
    let [segment, frame, activity, server] = ["prom", "prom-frame", "prom-work", "prom-msg"].map(harness::fresh);
    let processes = format!(
        "[[frame]]\nname = \"{frame}\"\nminors = 2\nperiod = \"10ms\"\njoin_within = \"60s\"\n\
         [[frame.activity]]\nname = \"{activity}\"\nbudget = \"3ms\"\n\
         [[process]]\nname = \"{activity}\"\ncommand = \"tahti demo activity {frame} {activity} --work 1ms\"\n\
         [[process]]\nname = \"loop\"\ncommand = [\"tahti\", \"demo\", \"llrf\", \"--channel\", \"{segment}\"]\n\
         ready = {{ line = \"armed:\", within = \"60s\" }}\nheartbeat = {{ within = \"60s\" }}\n\
         [alarms]\nname = \"alarms\"\nfile = \"alarms.toml\"\n\
         [messages]\nname = \"{server}\"\n\
         [archive]\nname = \"archive\"\nfolder = \"archive\"\nsync = \"100ms\"\n[[signal]]\nnames = [\"X:COUNT\"]\n\
         [dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\n"
    );
    let bench = Bench::new("prometheus", &processes);
    let alarms = format!(
        "[alarms]\nname = \"{}\"\nfolder = \"journal\"\n[[alarm]]\nchannels = [\"X:TEMP\"]\n",
        harness::fresh("prom")
    );
    std::fs::write(bench.dir.join("alarms.toml"), alarms).unwrap();
    let mut up = bench.tahti(&["up", ".", "--detach"]);
    up.envs([("EPICS_CA_ADDR_LIST", "127.0.0.1".to_owned()), ("EPICS_CA_AUTO_ADDR_LIST", "NO".to_owned())]);
    up.env("EPICS_CA_SERVER_PORT", ioc.port.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let up = harness::process::finish(up.spawn().unwrap());
    assert!(up.status.success(), "{up:?}\n{}", bench.log());
    bench
}

/// Result of a query of Prometheus' interface.
fn query(port: u16, path: &str, key: &str, text: &str) -> Value {
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = http(port, &format!("GET {path}?{key}={escaped} HTTP/1.1"), "");
    let (from, to) = (answer.find('{').unwrap_or(0), answer.rfind('}').map_or(0, |at| at + 1));
    let value: Value =
        serde_json::from_str(&answer[from..to]).unwrap_or_else(|error| panic!("{text}: {error}: {answer}"));
    assert_eq!(value["status"], "success", "{text}: {answer}");
    value["data"].clone()
}

/// The queries of the Grafana dashboard.
fn queries() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/grafana-tahti.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: std::collections::BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn prometheus_accepts_the_metrics_and_answers_the_queries_of_the_grafana_dashboard() {
    let database = "record(calc, \"X:COUNT\") { field(SCAN, \".1 second\") field(INPA, \"X:COUNT\") field(CALC, \"A+1\") }\n\
                    record(ao, \"X:TEMP\") { field(HIHI, \"20\") field(HHSV, \"MAJOR\") field(VAL, \"53\") field(PINI, \"YES\") }\n";
    let ioc = Ioc::start(&[("a.db", database)], &["-d", "a.db"]);
    let (port, own) = (free_port(), free_port());
    let bench = plant(port, &ioc);
    let token = bench.dir.join("run/p/dashboard/token");
    let bearer = std::fs::read_to_string(&token).unwrap();
    let scrape = || {
        let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {}", bearer.trim());
        http(port, &head, "").split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    for wanted in [
        "tahti_loop_cycles_total{",
        "tahti_frame_calls_total{",
        "tahti_messages_total{",
        "tahti_archive_samples_total ",
        "tahti_alarms{severity=\"major\",state=\"active\"} 1\n",
    ] {
        bench.until(wanted, || scrape().contains(wanted));
    }
    let mut check = Command::new(program("promtool"));
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(scrape().as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", harness::process::text(&checked));

    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: tahti\n    authorization: {{ credentials_file: {} }}\n    \
         static_configs: [{{ targets: ['127.0.0.1:{port}'] }}]\n",
        token.display()
    );
    std::fs::write(bench.dir.join("prometheus.yml"), config).unwrap();
    let mut prometheus = Command::new(program("prometheus"));
    prometheus.current_dir(&bench.dir).args(["--config.file=prometheus.yml", "--storage.tsdb.path=prometheus"]);
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{own}")).arg("--enable-feature=exemplar-storage");
    let prometheus = Running::until(&mut prometheus, "Server is ready to receive web requests");
    let instant = |text: &str| query(own, "/api/v1/query", "query", text)["result"].as_array().unwrap().clone();
    bench.until("the plant is scraped", || instant("up").iter().any(|one| one["value"][1] == "1"));
    // A rate needs two scrapes.
    bench.until("the loop runs", || {
        instant("rate(tahti_loop_cycles_total[10s])").iter().any(|one| one["value"][1] != "0")
    });
    let all = queries();
    assert!(all.len() >= 12, "{all:?}");
    for text in all {
        let text = text.replace("$__rate_interval", "10s").replace("$instance", &format!("127.0.0.1:{port}"));
        let found = instant(&text);
        assert!(!found.is_empty() || text.contains(OF_A_RECORDER), "no data for {text}");
    }
    drop(prometheus);
}

//! The dashboard's metrics and history, for clients with a token.

use harness::epics::{program, pvaccess};
use harness::page::{http, token};
use harness::plant::{Bench, sh};
use harness::port::free_port;
use std::os::unix::fs::PermissionsExt as _;

/// A plant with one running process and a dashboard.
fn plant(name: &str, port: u16) -> Bench {
    let dashboard = format!("[dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\n");
    let bench = Bench::new(name, &(sh("steady", "echo up; exec sleep 1000", "") + &dashboard));
    bench.ok(&["up", ".", "--detach"]);
    bench
}

/// A plant whose tables are served over PVAccess.
fn plant_over_pvaccess(port: u16) -> Bench {
    let tables =
        format!("[dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{}\"\npvaccess = true\n", free_port());
    let bench = Bench::new("dash-pvaccess", &(sh("steady", "echo up; exec sleep 1000", "") + &tables));
    let mut up = bench.tahti(&["up", ".", "--detach"]);
    let up = up.envs(pvaccess(port)).output().unwrap();
    assert!(up.status.success(), "{up:?}\n{}", bench.log());
    bench
}

/// The body of an answer to a client with a token.
fn read(port: u16, path: &str, token: &str, more: &str) -> String {
    let answer = http(port, &format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}{more}"), "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[test]
fn metrics_need_a_token_which_a_file_for_the_plants_user_has() {
    let port = free_port();
    let bench = plant("dash-metrics", port);
    let file = bench.dir.join("run/p/dashboard/token");
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(token, self::token(&bench.ok(&["dash", "url"])));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for path in ["/metrics", "/history"] {
        assert!(http(port, &format!("GET {path} HTTP/1.1"), "").starts_with("HTTP/1.1 401"), "{path}");
        let wrong = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer 0123");
        assert!(http(port, &wrong, "").starts_with("HTTP/1.1 401"), "{path}");
    }
    let mut text = String::new();
    bench.until("the process is in the metrics", || {
        text = read(port, "/metrics", &token, "");
        text.contains("\ntahti_process_up{process=\"steady\"} 1\n")
    });
    assert!(
        text.to_ascii_lowercase().contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{text}"
    );
    for line in [
        "# TYPE tahti_process_cpu_seconds_total counter",
        "tahti_plant_verdict{tahti_plant_verdict=\"failed\"} 0",
        "tahti_process_restarts_total{process=\"steady\"} 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
    }
    let open = read(port, "/metrics", &token, "\r\nAccept: application/openmetrics-text;version=1.0.0");
    assert!(open.ends_with("\n# EOF\n") && open.contains("application/openmetrics-text; version=1.0.0"), "{open}");
}

#[test]
fn the_history_begins_with_the_dashboard_not_with_its_first_client() {
    let port = free_port();
    let bench = plant("dash-history", port);
    let token = token(&bench.ok(&["dash", "url"]));
    let past = || -> serde_json::Value {
        let answer = read(port, "/history", &token, "");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    bench.until("there are three seconds of a figure", || {
        past()["values"]["process/steady/memory"]["values"].as_array().is_some_and(|values| values.len() >= 3)
    });
    let figure = past()["values"]["process/steady/cpu"].clone();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let second = figure["second"].as_u64().unwrap();
    assert!(second <= now && now < second + 60, "{figure}");
    let values = figure["values"].as_array().unwrap();
    assert!(values.iter().all(|value| value.is_null() || value.as_f64().is_some_and(|used| used >= 0.0)), "{figure}");
}

#[test]
fn tables_and_functions_of_a_plant_are_pvs() {
    let port = free_port();
    let bench = plant_over_pvaccess(port);
    let run =
        |tool: &str, words: &[&str]| harness::process::text(&program(true, tool, port).args(words).output().unwrap());
    bench.until("the verdict is served", || run("pvget", &["-r", "field(value)", "p:verdict"]).contains("good"));
    let health = run("pvget", &["-v", "p:health"]);
    for part in ["epics:nt/NTTable:1.0", "string[] subject", "steady", "runs", "kept", "severity 0"] {
        assert!(health.contains(part), "{part} is missing in {health}");
    }
    let mut monitor = program(true, "pvmonitor", port);
    let monitor = harness::process::Running::follow(monitor.args(["-r", "field(value)", "p:health"]));
    assert!(monitor.lines.recv_timeout(harness::PATIENCE).is_ok(), "the present value");
    bench.ok(&["stop", "steady"]);
    bench.until("the monitor receives a change", || {
        let lines: Vec<String> = monitor.lines.try_iter().collect();
        lines.iter().any(|line| line.contains("p:health") || line.contains("stopped"))
    });
    let refused = run("pvcall", &["p:archive", "pv=NOTHING"]);
    assert!(refused.contains("this plant has no archive"), "{refused}");
    let refused = run("pvcall", &["p:read", "request=put/x/1A"]);
    assert!(refused.contains("expected a request that only reads"), "{refused}");
    let refused = run("pvput", &["p:verdict", "good"]);
    assert!(refused.contains("no write access"), "{refused}");
}

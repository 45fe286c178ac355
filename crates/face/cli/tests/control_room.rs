//! The control room example: a dashboard with live data, and an archive that survives `kill -9` of its logger.

use harness::page::{Socket, http, token};
use harness::plant::Bench;
use harness::port::free_port;
use harness::process::{finish, kill, text};
use std::collections::HashSet;
use std::process::Stdio;

/// Number of kills of the logger.
const KILLS: usize = 3;

/// A running example.
struct Room {
    bench: Bench,
    /// Port of the dashboard.
    port: u16,
    token: String,
}

impl Room {
    fn up(name: &str, own: impl Fn(&str) -> String, env: &[(&str, String)]) -> Self {
        let port = free_port();
        let listens =
            |text: &str| own(text).replace("[dashboard]", &format!("[dashboard]\nlisten = \"127.0.0.1:{port}\""));
        let bench = Bench::of_example(&format!("room-{name}"), name, listens);
        let mut up = bench.tahti(&["up", ".", "--detach"]);
        up.envs(env.iter().map(|(name, value)| (name, value))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(up.spawn().unwrap());
        let said = text(&output);
        assert!(output.status.success(), "{said}{}", bench.log());
        let address = said.lines().find(|line| line.starts_with("dashboard: ")).unwrap_or_else(|| panic!("{said}"));
        Self { port, token: token(address), bench }
    }

    fn page(&self) -> Socket {
        Socket::open(self.port, &self.token)
    }

    /// The dashboard's answer to a request of an archive client.
    fn archive(&self, target: &str) -> String {
        http(self.port, &format!("GET /retrieval/{target} HTTP/1.1\r\nAuthorization: Bearer {}", self.token), "")
    }

    /// The rows of a signal, read from the folder.
    fn rows(&self, signal: &str) -> Vec<String> {
        let output = self.bench.run(&["archive", "get", "archive", signal, "--format", "csv"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().skip(1).filter(|line| line.contains(signal)).map(str::to_owned).collect()
    }

    /// Kills the logger repeatedly: synced samples are kept, none is duplicated, and logging continues. Returns all
    /// rows.
    fn logger_is_killed(&self, signal: &str) -> Vec<String> {
        let mut known: Vec<String> = Vec::new();
        for _ in 0..KILLS {
            self.bench.until("more rows", || self.rows(signal).len() > known.len() + 5);
            let safe = self.rows(signal);
            assert_eq!(safe[..known.len()], known, "earlier samples are kept");
            let pid = self.bench.pid("archive");
            kill(pid, "KILL");
            self.bench.until("restarted", || {
                let process = self.bench.process("archive");
                process["pid"].as_i64().is_some_and(|new| new != i64::from(pid)) && process["state"] == "running"
            });
            known = self.rows(signal);
            assert_eq!(known[..safe.len()], safe, "safe samples survive the kill");
        }
        self.bench.until("rows after the last kill", || self.rows(signal).len() > known.len());
        let names = self.archive("bpl/getMatchingPVs?pv=*");
        assert!(names.starts_with("HTTP/1.1 200") && names.contains(signal), "{names}");
        self.bench.ok(&["down"]);
        let all = self.rows(signal);
        assert_eq!(all[..known.len()], known);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "no pulse is duplicated");
        let verified = self.bench.ok(&["archive", "verify", "archive"]);
        assert!(verified.contains("good: "), "{verified}");
        all
    }
}

#[test]
fn llrf_shows_its_loop_live_and_archives_each_reading_over_kills_of_the_logger() {
    let channel = harness::fresh("room-llrf");
    // Without shield, priorities and the noise process, the example needs no privilege.
    let own = |text: &str| {
        if !text.contains("[plant]") {
            return text.to_owned();
        }
        let is_plain = |line: &&str| !["class =", "cpus =", "miss_ratio_max ="].iter().any(|key| line.starts_with(key));
        let blocks = text.split("\n\n").filter(|block| !block.contains("[shield]") && !block.contains("\"noise\""));
        let blocks: Vec<String> =
            blocks.map(|block| block.lines().filter(is_plain).collect::<Vec<_>>().join("\n")).collect();
        blocks
            .join("\n\n")
            .replace("\"llrf\"]", &format!("\"llrf\", \"--channel\", \"{channel}\"]"))
            .replace("\"logger\"]", &format!("\"logger\", \"--channel\", \"{channel}\"]"))
            .replace("llrf/*", &format!("{channel}/*"))
            .replace(", least = \"95%\"", "")
            .replace("within = \"100ms\"", "within = \"60s\"")
            .replace("within = \"5s\"", "within = \"60s\"")
    };
    let room = Room::up("llrf", own, &[]);
    let mut page = room.page();
    page.say(r#"{"do":"want","topics":["plant"]}"#);
    let mut more_than = |seen| {
        page.until(|message| {
            let processes = message["data"]["processes"].as_array()?;
            let looped = processes.iter().find(|process| process["name"] == "loop")?;
            looped["loop"]["cycles"].as_u64().filter(|cycles| *cycles > seen)
        })
    };
    let first = more_than(0);
    more_than(first);
    let rows = room.logger_is_killed(&format!("{channel}/amplitude"));
    let pulses: Vec<u64> = rows.iter().filter_map(|row| row.split(',').nth(5)?.parse().ok()).collect();
    assert_eq!(pulses.len(), rows.len(), "each with the number of its pulse");
    assert!(pulses.is_sorted_by(|one, next| one < next), "pulses are in order");
}

#[test]
fn madoca_shows_its_records_live_and_archives_polled_values_over_kills_of_the_logger() {
    let (server, port) = (harness::fresh("room-madoca"), free_port());
    let own = |text: &str| {
        let text = text.replace("madoca-kicks", &format!("{server}-kicks"));
        let text = text.replace("sr-values", &format!("{server}-values"));
        text.replace("\"madoca\"", &format!("\"{server}\""))
    };
    let env = [
        ("TAHTI_MESSAGES", server.clone()),
        ("EPICS_CA_SERVER_PORT", port.to_string()),
        ("EPICS_CA_ADDR_LIST", "127.0.0.1".to_owned()),
        ("EPICS_CA_AUTO_ADDR_LIST", "NO".to_owned()),
        ("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1".to_owned()),
        ("EPICS_CA_REPEATER_PORT", (port + 1).to_string()),
    ];
    let room = Room::up("madoca", own, &env);
    let mut page = room.page();
    // A record of the IOC, and a message through the plant's own server, which the dashboard discovers by itself.
    let described = (1..).find_map(|id| {
        page.say(&format!(r#"{{"id":{id},"do":"describe","name":"SR:BPM1:X"}}"#));
        let answer = page.answer(id);
        answer["ok"].is_object().then_some(answer)
    });
    assert!(described.unwrap().to_string().contains("mm"));
    page.say(r#"{"id":0,"do":"message","line":"get/sr_bpm_1/x"}"#);
    let answer = page.answer(0);
    assert_eq!(answer["ok"]["good"], true, "{answer}");
    let rows = room.logger_is_killed(&format!("{server}-values/sr_now_bpm_1/x"));
    assert!(rows.len() > 5 * KILLS, "{}", rows.len());
    // Samples of one cycle are joined, whichever process took them and whenever within the cycle.
    let both = ["sr_now_bpm_1/x", "sr_now_rf/voltage"].map(|object| format!("{server}-values/{object}"));
    let joined =
        room.bench.ok(&["archive", "get", "archive", &both[0], &both[1], "--join", "pulse", "--format", "csv"]);
    let pulses: Vec<u64> = joined.lines().filter_map(|line| line.split(',').next()?.parse().ok()).collect();
    assert!(pulses.len() > 5 * KILLS && pulses.is_sorted_by(|one, next| one < next), "{joined}");
}

//! `examples/madoca` end to end: a plant with a message server, managers, agents, a poller and an IOC.

use harness::plant::Bench;
use harness::process::{finish, kill, text};
use std::process::{Command, Stdio};

/// The example in a separate folder, with separate names and ports.
struct Sector {
    bench: Bench,
    server: String,
    port: u16,
}

impl Sector {
    fn up() -> Self {
        let server = format!("madoca-{}", std::process::id());
        let own = |text: &str| {
            let text = text.replace("madoca-kicks", &format!("{server}-kicks"));
            let text = text.replace("sr-values", &format!("{server}-values"));
            text.replace("\"madoca\"", &format!("\"{server}\""))
        };
        let bench = Bench::of_example("madoca", "madoca", own);
        let sector = Self { bench, server, port: harness::port::free_port() };
        let said = sector.ok(&["up", ".", "--detach"]);
        assert!(said.contains("plant p is up"), "{said}");
        sector
    }

    fn tahti(&self, words: &[&str]) -> Command {
        let mut command = self.bench.tahti(&words[..1]);
        // EPICS' tools wait for one second by default, which is too short on a busy machine.
        let patience: &[&str] = if matches!(words[0], "caget" | "caput") { &["-w", "30"] } else { &[] };
        command
            .args(patience)
            .args(&words[1..])
            .env("TAHTI_MESSAGES", &self.server)
            .env("EPICS_CA_SERVER_PORT", self.port.to_string())
            .env("EPICS_CA_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CA_AUTO_ADDR_LIST", "NO")
            .env("EPICS_CAS_BEACON_ADDR_LIST", "127.0.0.1")
            .env("EPICS_CA_REPEATER_PORT", (self.port + 1).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn say(&self, words: &[&str]) -> (bool, String) {
        let output = finish(self.tahti(words).spawn().unwrap());
        (output.status.success(), text(&output).trim().to_owned())
    }

    fn ok(&self, words: &[&str]) -> String {
        let (good, said) = self.say(words);
        assert!(good, "tahti {}: {said}\n{}", words.join(" "), self.bench.log());
        said
    }

    /// Waits until a command's answer satisfies `wanted`.
    fn until(&self, words: &[&str], wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let begun = std::time::Instant::now();
        while begun.elapsed() < harness::PATIENCE {
            last = self.say(words).1;
            if wanted(&last) {
                return;
            }
        }
        panic!("tahti {}: stays at {last}\n{}", words.join(" "), self.bench.log());
    }

    /// Waits until a process variable's value satisfies `wanted`.
    fn shows(&self, name: &str, wanted: impl Fn(&str) -> bool) {
        self.until(&["caget", "-t", name], wanted);
    }

    fn near(&self, name: &str, value: f64, within: f64) {
        self.shows(name, |said| said.parse::<f64>().is_ok_and(|said| (said - value).abs() < within));
    }
}

#[test]
fn a_sector_is_controlled_by_messages_and_process_variables_and_survives_its_managers() {
    let sector = Sector::up();

    // Messages change process variables; the second one through the poller's table.
    sector.ok(&["msg", "send", "put/sr_mag_ps_b/on", "set/sr_mag_ps_b/100A"]);
    sector.shows("SR:B:State", |said| said == "on");
    sector.near("SR:B:Current", 100.0, 1.0);

    // Process variables change the equipment, which messages show.
    sector.ok(&["caput", "-c", "SR:QF:On", "on"]);
    sector.ok(&["caput", "-c", "SR:QF:Set", "20"]);
    let near = |said: &str| {
        said.strip_suffix('A').and_then(|said| said.parse::<f64>().ok()).is_some_and(|a| (a - 20.0).abs() < 0.5)
    };
    sector.until(&["msg", "send", "get/sr_mag_ps_qf/current_adc"], near);

    // `set` answers when the value is reached, and so does a put with completion. A refused put raises an alarm.
    sector.ok(&["caput", "-c", "SR:RF:On", "on"]);
    sector.ok(&["caput", "-c", "SR:RF:Set", "2.5"]);
    let said = sector.ok(&["msg", "send", "get/sr_rf_acc/voltage"]);
    assert!(said.starts_with("2.4") || said.starts_with("2.5"), "{said}");
    sector.shows("SR:RF:FrequencyText", |said| said == "508.580000MHz");
    sector.near("SR:RF:Frequency", 508.58, 1e-6);
    sector.say(&["caput", "-c", "SR:RF:Set", "7"]);
    sector.shows("SR:RF:Set.STAT", |said| said == "WRITE");
    assert_eq!(sector.ok(&["caget", "-t", "SR:RF:Set.SEVR"]), "INVALID");

    // A hanging manager or message server raises alarms for as long as it hangs. No record stays busy.
    for hangs in ["rf", &sector.server] {
        let pid = sector.bench.pid(hangs);
        kill(pid, "STOP");
        sector.shows("SR:RF:Frequency.STAT", |said| said == "TIMEOUT");
        kill(pid, "CONT");
        sector.shows("SR:RF:Frequency.STAT", |said| said == "NO_ALARM");
    }

    // The agents are started and tuned by process variables. The beam moves to the middle; then each manager in
    // succession is lost.
    for monitor in ["1", "2"] {
        sector.ok(&["caput", "-c", &format!("SR:FB{monitor}:Ki"), "4"]);
        sector.ok(&["caput", "-c", &format!("SR:FB{monitor}:On"), "on"]);
    }
    sector.near("SR:BPM1:X", 0.0, 0.05);
    sector.near("SR:BPM2:X", 0.0, 0.05);
    assert!(sector.ok(&["em", "values", &format!("{}-values", sector.server)]).contains("sr_now_bpm_1/x"));

    // A manager dies during execution: the sender is notified at once, and the supervisor starts another manager.
    let ramp = sector.tahti(&["msg", "send", "--timeout", "60s", "set/sr_mag_ps_b/600A"]).spawn().unwrap();
    let moves = |said: &str| said.trim_end_matches('A').parse::<f64>().is_ok_and(|a| a > 110.0);
    sector.until(&["msg", "send", "get/sr_mag_ps_b/current_adc"], moves);
    let magnets = sector.bench.pid("magnets");
    kill(magnets, "KILL");
    let told = finish(ramp);
    assert!(!told.status.success() && text(&told).contains("UNKNOWN"), "{}", text(&told));
    sector.bench.until("magnets run again", || sector.bench.process("magnets")["restarts"] == 1);
    sector.until(&["msg", "send", "get/sr_mag_ps_b/state"], |said| said == "off");
    sector.shows("SR:B:State", |said| said == "off");
    // The correctors affect the simulated monitors again, and the feedback centres the beam again.
    sector.near("SR:BPM1:X", 0.0, 0.05);

    // The poller dies: its values raise alarms until it is back.
    kill(sector.bench.pid("poller"), "KILL");
    sector.bench.until("the poller runs again", || sector.bench.process("poller")["restarts"] == 1);
    sector.ok(&["msg", "send", "put/sr_mag_ps_b/on", "set/sr_mag_ps_b/50A"]);
    sector.near("SR:B:Current", 50.0, 1.0);
    sector.shows("SR:B:Current.STAT", |said| said == "NO_ALARM");

    // The message server dies: all clients find the new one.
    kill(sector.bench.pid(&sector.server), "KILL");
    sector.until(&["msg", "send", "get/sr_mag_ps_b/state"], |said| said == "on");
    // A put before the IOC has found the new server raises an alarm and is not executed.
    let put = || {
        sector.ok(&["caput", "-c", "SR:B:On", "off"]);
        sector.ok(&["caget", "-t", "SR:B:On.STAT"]) == "NO_ALARM"
    };
    sector.bench.until("the IOC has found the new server", put);
    sector.shows("SR:B:State", |said| said == "off");

    // Managers and the server were killed and stopped during the test.
    let (_, said) = sector.say(&["down"]);
    let last = said.lines().last().unwrap();
    assert!(last.contains(": failed: ") && last.contains("magnets: restarted once, last after SIGKILL"), "{said}");
}

//! Discovery, loss and reconnection of clients and servers: EPICS' environment variables, name servers, beacons and
//! repeaters. Every case runs with C's programs and with ours on either side, on loopback.

use base::{DurNs, Value};
use ca::client::Event;
use canet::session::Session;
use harness::epics::{program, repeater};
use harness::ioc::Ioc;
use harness::port::free_port;
use harness::process::{Running, by_lines};
use harness::{PATIENCE, eventually};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const DATABASE: &str = r#"
record(ao, "$(P)ao") { field(VAL, "1.5") field(PINI, "YES") }
record(waveform, "$(P)wave") { field(FTVL, "DOUBLE") field(NELM, "20000") }
"#;

/// Pairs of client and server: whether each is ours (or C's).
const PAIRS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Runs a scenario for all pairs at once. All results must equal C's with C's.
fn for_each_pair<T: Send + PartialEq + std::fmt::Debug>(story: impl Fn(bool, bool) -> T + Sync) -> T {
    let mut ends = std::thread::scope(|scope| {
        let story = &story;
        let threads = PAIRS.map(|(client, server)| scope.spawn(move || story(client, server)));
        threads.map(|thread| thread.join().unwrap()).into_iter()
    });
    let first = ends.next().unwrap();
    for ((client, server), end) in PAIRS[1..].iter().zip(ends) {
        assert_eq!(first, end, "C with C left; client ours: {client}, server ours: {server}");
    }
    first
}

/// Runs a tool with additional variables.
fn run(mut command: Command, variables: &[(&str, &str)], args: &[&str], port: u16) -> String {
    let output = command.envs(variables.iter().copied()).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    harness::epics::normal(&String::from_utf8_lossy(&text), port)
}

/// Waits for a wanted line and skips the lines before it.
fn wait_for(lines: &Receiver<String>, wanted: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) if wanted(&line) => return line,
            Ok(_) => {}
            Err(error) => panic!("the expected line did not arrive: {error}"),
        }
    }
}

#[test]
fn name_servers_are_queried_over_a_circuit() {
    let said = for_each_pair(|client, server| {
        let ioc = Ioc::serving(server, DATABASE);
        let (list, nowhere) = (format!("127.0.0.1:{}", ioc.port), format!("127.0.0.1:{}", free_port()));
        let ask = |servers: &str, wait: &str, name: &str| {
            let variables = [("EPICS_CA_NAME_SERVERS", servers), ("EPICS_CA_ADDR_LIST", "")];
            let said = run(program(client, "caget", ioc.port), &variables, &["-w", wait, name], ioc.port);
            // C reports each unreachable server.
            said.lines().filter(|line| !line.starts_with("CAC")).collect::<Vec<_>>().join("\n")
        };
        // Two servers, one of them unreachable; a name that no server has.
        [ask(&list, "60", "X:ao"), ask(&format!("{nowhere} {list}"), "60", "X:ao"), ask(&list, "3", "nobody")]
    });
    assert_eq!(said[0].split_whitespace().last(), Some("1.5"), "{said:?}");
}

#[test]
fn a_monitor_that_did_not_read_for_a_while_shows_rising_values_up_to_the_newest() {
    const LAST: u32 = 30_000;
    for_each_pair(|client, server| {
        let ioc = Ioc::serving(server, DATABASE);
        let mut likeness = program(client, "camonitor", ioc.port);
        likeness.args(["-tn", "-F,", "X:ao"]);
        // The output is not read until all values are written: the monitor blocks on a full pipe and throttles the
        // server.
        let mut monitor = Running::start(likeness.stdout(Stdio::piped()));
        eventually("the monitor is connected", || {
            let port = format!(":{:04X} ", ioc.port);
            let mut connected = 0;
            for line in std::fs::read_to_string("/proc/net/tcp").unwrap().lines() {
                connected += usize::from(line.contains(&port) && line.contains(" 01 "));
            }
            connected >= 2
        });
        let variables = program(true, "caput", ioc.port);
        let get = |name: &str| {
            let found = variables.get_envs().find(|(known, _)| *known == name)?;
            Some(found.1?.to_string_lossy().into_owned())
        };
        let mut session = Session::open(get).unwrap();
        let channel = session.client.channel(Session::now(), "X:ao", 0);
        let patience = || Session::now() + DurNs(PATIENCE.as_nanos() as i64);
        while session.client.info(channel).is_none() {
            session.step(patience()).unwrap().expect("the writer connects");
        }
        for value in 1..=LAST {
            // One write in a hundred is confirmed, which limits how far the writer can be ahead of the server.
            let awaited = value % 100 == 0;
            session.client.write(channel, &Value::from(f64::from(value)), awaited).unwrap();
            while awaited && !matches!(session.step(patience()).unwrap(), Some(Event::Written { result: Ok(()), .. })) {
            }
        }
        let lines = harness::process::lines_of(&mut monitor.child);
        let mut shown = Vec::new();
        while shown.last() != Some(&f64::from(LAST)) {
            let line = lines.recv_timeout(PATIENCE).expect("the newest value arrives");
            shown.extend(line.split(',').skip(1).find_map(|word| word.trim().parse::<f64>().ok()));
        }
        // The first value is that of the database.
        assert!(shown[1..].windows(2).all(|two| two[0] < two[1]), "{shown:?}");
    });
}

#[test]
fn a_name_server_that_returns_is_queried_again() {
    let said = for_each_pair(|client, server| {
        let mut ioc = Ioc::serving(server, DATABASE);
        let mut likeness = program(client, "camonitor", ioc.port);
        likeness.args(["-tn", "X:ao"]).env("EPICS_CA_ADDR_LIST", "");
        likeness.env("EPICS_CA_NAME_SERVERS", format!("127.0.0.1:{}", ioc.port));
        let first = |lines: &Receiver<String>| wait_for(lines, |line| line.contains("1.5"));
        let monitor = Running::follow(&mut by_lines(&likeness));
        let lines = &monitor.lines;
        let mut seen = vec![first(lines)];
        ioc.crash();
        wait_for(lines, |line| line.contains("disconnected"));
        ioc.up();
        seen.push(first(lines));
        // A monitor that starts before its server.
        drop(monitor);
        ioc.crash();
        let monitor = Running::follow(&mut by_lines(&likeness));
        let lines = &monitor.lines;
        std::thread::sleep(Duration::from_millis(500));
        ioc.up();
        seen.push(first(lines));
        seen
    });
    assert_eq!(said.len(), 3);
}

#[test]
fn variables_set_in_a_script_take_effect() {
    for ours in [false, true] {
        let port = free_port();
        let script = std::env::temp_dir().join(format!("tahti-script-{}-{port}.cmd", std::process::id()));
        let set = format!("epicsEnvSet EPICS_CAS_SERVER_PORT {}\nepicsEnvSet EPICS_CAS_BEACON_PERIOD 20\n", port + 2);
        std::fs::write(&script, set + "iocInit\n").unwrap();
        let mut ioc = program(ours, "softIoc", port);
        ioc.arg("-D").arg(harness::epics::epics().join("dbd/softIoc.dbd")).arg("-S").arg(&script);
        let _ioc = Running::start(ioc.stdout(Stdio::null()).stderr(Stdio::null()));
        eventually("the server accepts circuits on the script's port", || {
            TcpStream::connect(("127.0.0.1", port + 2)).is_ok()
        });
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "ours: {ours}");
        std::fs::remove_file(&script).unwrap();
    }
}

#[test]
fn variables_of_a_server_take_effect() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let cases: [Case; 4] = [
        ("clients that are to be ignored", &[("EPICS_CAS_IGNORE_ADDR_LIST", "127.0.0.1")], &["-w", "1", "X:ao"]),
        ("another address that is to be ignored", &[("EPICS_CAS_IGNORE_ADDR_LIST", "10.9.8.7")], &["-w", "60", "X:ao"]),
        (
            "messages that may not be long",
            &[("EPICS_CA_AUTO_ARRAY_BYTES", "NO"), ("EPICS_CA_MAX_ARRAY_BYTES", "20000")],
            &["-w", "60", "-#", "2000", "X:wave"],
        ),
        (
            "messages that are too long",
            &[("EPICS_CA_AUTO_ARRAY_BYTES", "NO"), ("EPICS_CA_MAX_ARRAY_BYTES", "20000")],
            // Runs to the end. The timeout is long enough to connect on a busy machine: a failure to connect prints a
            // different message.
            &["-w", "20", "-#", "20000", "X:wave"],
        ),
    ];
    for (what, variables, args) in cases {
        let [theirs, ours] = [false, true].map(|server| {
            let port = free_port();
            let mut likeness = program(server, "softIoc", port);
            let file = std::env::temp_dir().join(format!("tahti-network-{}-{port}.db", std::process::id()));
            std::fs::write(&file, DATABASE).unwrap();
            likeness
                .arg("-D")
                .arg(harness::epics::epics().join("dbd/softIoc.dbd"))
                .args(["-m", "P=X:", "-d"])
                .arg(&file);
            // The server's own variable sets the port; the other variable is misleading on purpose.
            likeness.env("EPICS_CAS_SERVER_PORT", port.to_string()).env("EPICS_CA_SERVER_PORT", (port + 2).to_string());
            likeness.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ioc = Running::start(&mut likeness);
            eventually(what, || TcpStream::connect(("127.0.0.1", port)).is_ok());
            let said = run(program(false, "caget", port), &[], args, port);
            std::fs::remove_file(&file).unwrap();
            said
        });
        assert_eq!(theirs, ours, "{what}: C left, tahti right");
    }
}

/// Times of beacons at the configured port, with the server port and number that each contains.
fn beacons(server: bool, wanted: usize) -> Vec<(Instant, u16, u32)> {
    let heard = UdpSocket::bind("127.0.0.1:0").unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = heard.local_addr().unwrap().port().to_string();
    let variables = [("EPICS_CAS_BEACON_PORT", &*port), ("EPICS_CAS_BEACON_PERIOD", "0.3")];
    // The listener starts before the server, so that the arrival times are right.
    let seen = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < wanted {
            let mut buffer = [0; 64];
            let len = heard.recv(&mut buffer).expect("beacons arrive");
            assert_eq!(len, 16);
            let word = |at: usize| u16::from_be_bytes([buffer[at], buffer[at + 1]]);
            assert_eq!((word(0), word(2), word(4)), (13, 0, 13), "a beacon of 4.13 without payload");
            seen.push((Instant::now(), word(6), u32::from_be_bytes([buffer[8], buffer[9], buffer[10], buffer[11]])));
        }
        seen
    });
    let ioc = Ioc::serving_with(server, DATABASE, &variables);
    let seen = seen.join().unwrap();
    assert!(seen.iter().all(|(_, tcp, _)| *tcp == ioc.port), "{seen:?}");
    seen
}

#[test]
fn beacons_are_numbered_and_slow_down_to_their_period() {
    for server in [false, true] {
        let seen = beacons(server, 9);
        let counts: Vec<u32> = seen.iter().map(|(_, _, count)| *count).collect();
        // C starts with two beacons of number 0.
        assert!(
            counts.windows(2).all(|two| two[1] - two[0] <= 1) && counts[8] >= 7,
            "the next number each: {counts:?}"
        );
        // The first gaps are short, the last are as long as the period. A single beacon may be late, but not all of
        // them.
        let longest = seen[4..].windows(2).map(|two| two[1].0 - two[0].0).max().unwrap();
        assert!(longest > Duration::from_millis(250), "server ours: {server}, at most {longest:?} between two beacons");
    }
}

#[test]
fn casw_receives_beacons_of_new_servers_through_either_repeater() {
    for_each_pair(|ours_repeats, ours_serves| {
        // Everything that `program` starts uses the port above the server's for the repeater.
        let port = free_port();
        let _repeater = repeater(ours_repeats, port);
        let casw = Running::follow(&mut by_lines(&program(false, "casw", port)));
        let lines = &casw.lines;
        // casw reports servers whose beacons begin while it listens, and does not print when it starts to listen.
        // Servers are started until it reports one.
        eventually("casw reports a server", || {
            let ioc = Ioc::serving_with(ours_serves, DATABASE, &[("EPICS_CA_REPEATER_PORT", &*(port + 1).to_string())]);
            let name = format!(":{}", ioc.port);
            let until = Instant::now() + Duration::from_secs(5);
            let next = || lines.recv_timeout(until.saturating_duration_since(Instant::now()));
            std::iter::from_fn(|| next().ok()).any(|line| line.contains(&name))
        });
    });
}

#[test]
fn a_monitor_continues_after_its_server_was_absent_or_silent() {
    let said = for_each_pair(|client, server| {
        let mut ioc = Ioc::serving(server, DATABASE);
        let _repeater = repeater(client, ioc.port);
        let mut likeness = program(client, "camonitor", ioc.port);
        likeness.args(["-tn", "X:ao"]).env("EPICS_CA_CONN_TMO", "1");
        let monitor = Running::follow(&mut by_lines(&likeness));
        let lines = &monitor.lines;
        let mut seen = vec![wait_for(lines, |line| line.contains("1.5"))];
        ioc.crash();
        let lost = |line: &str| line.contains("disconnected");
        wait_for(lines, lost);
        ioc.up();
        seen.push(wait_for(lines, |line| line.contains("1.5")));
        // A stopped server sends no beacons. The client treats it as lost after six seconds.
        ioc.signal("STOP");
        wait_for(lines, lost);
        ioc.signal("CONT");
        seen.push(wait_for(lines, |line| line.contains("1.5")));
        seen
    });
    assert_eq!(said.len(), 3);
}

#[test]
fn the_user_of_a_client_is_its_process_user_and_not_that_of_its_environment() {
    let mut ioc = Ioc::serving(false, DATABASE);
    let users = [false, true].map(|ours| {
        let mut command = program(ours, "camonitor", ioc.port);
        let command = command.arg("X:ao").env("USER", "somebody").env_remove("LOGNAME").stderr(Stdio::null());
        let running = Running::follow(&mut by_lines(command));
        let lines = &running.lines;
        wait_for(lines, |line| line.contains("1.5"));
        let report = ioc.say("casr 2");
        report
            .split("User '")
            .nth(1)
            .unwrap_or_else(|| panic!("no user: {report}"))
            .split('\'')
            .next()
            .unwrap()
            .to_owned()
    });
    assert_eq!(users[0], users[1], "C left, tahti right");
    assert!(!users[0].is_empty() && users[0] != "somebody", "{users:?}");
}

//! PVAccess of `tahti ioc`, with the command-line tools as clients.

use harness::archived::Archived;
use harness::epics::program;
use harness::ioc::Ioc;
use harness::process::Running;
use harness::{PATIENCE, eventually};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Stdio;

const DATABASE: &str = r#"
record(ao, "X:ao") { field(DESC, "a set point") field(VAL, "1.5") field(PINI, "YES") field(EGU, "mm") }
record(bo, "X:bo") { field(ZNAM, "off") field(ONAM, "on") field(VAL, "0") field(PINI, "YES") }
record(waveform, "X:wave") { field(FTVL, "LONG") field(NELM, "4") }
record(calc, "X:count") { field(SCAN, ".1 second") field(INPA, "X:count.VAL") field(CALC, "A+1") }
record(ao, "X:scanned") { field(VAL, "7") field(FLNK, "X:linked") field(PREC, "3") }
record(calc, "X:linked") { field(INPA, "X:scanned") field(INPB, "X:count NPP") field(CALC, "A") }
"#;

fn ioc(options: &[&str]) -> Ioc {
    Ioc::start(&[("test.db", DATABASE)], &[&["-d", "test.db"], options].concat())
}

/// The output without times, which are those of the test.
fn timeless(text: &str) -> String {
    let is_time =
        |word: &str| word == "TIME" || word.starts_with("20") && word.len() == 10 || word.matches(':').count() == 2;
    let words = |line: &str| line.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn channels_are_read_and_written_by_the_tools() {
    let ioc = ioc(&[]);
    let run = |tool: &str, args: &[&str]| timeless(&ioc.run(true, tool, args));
    assert_eq!(run("pvget", &["X:ao"]), "X:ao 1.5");
    assert_eq!(run("pvput", &["X:ao", "2.5"]), "Old : 1.5\nNew : 2.5");
    assert_eq!(run("pvput", &["X:bo", "on"]), "Old : (0) off\nNew : (1) on");
    assert_eq!(run("pvget", &["-r", "field(value)", "X:bo"]), "X:bo <undefined> (1) on");
    let put = run("pvput", &["-r", "record[block=true]", "X:wave", "3", "1", "2", "3"]);
    assert!(put.ends_with("New : [1,2,3]"), "{put}");
    let refused = run("pvput", &["X:wave", "[1,2,3,4,5]"]);
    assert!(refused.contains("the value has 5 elements, the field holds 4"), "{refused}");
    let refused = run("pvput", &["X:bo", "broken"]);
    assert!(refused.contains("\"broken\" is no state, expected one of off, on"), "{refused}");
    let whole = run("pvget", &["-v", "X:ao"]);
    assert!(whole.contains("string description \"a set point\"\nstring units mm"), "{whole}");
    let json = run("pvget", &["-M", "json", "-r", "value,alarm", "X:ao"]);
    assert_eq!(json, "X:ao {value:2.5,alarm:{severity:0,status:0,message:\"\"}}");
    let info = run("pvinfo", &["X:bo"]);
    assert!(info.starts_with("X:bo\nServer: 127.0.0.1:") && info.contains("enum_t value\nint index\n"), "{info}");
    let missing = run("pvget", &["-w", "0.5", "missing"]);
    assert_eq!(missing, "missing: Timeout");
}

#[test]
fn servers_and_their_channels_are_listed() {
    let ioc = ioc(&[]);
    let server = format!("127.0.0.1:{}", ioc.port + 4);
    let listed = ioc.tool_text("pvlist", &["-w", "1"]);
    assert!(listed.contains(&format!("version 2: tcp@[ {server} ]")), "{listed}");
    let guid = listed.split_whitespace().nth(1).unwrap();
    for server in [&server, guid] {
        let names = ioc.tool_text("pvlist", &[server]);
        assert!(names.lines().any(|name| name == "X:ao") && names.lines().count() == 6, "{names}");
    }
    assert!(ioc.tool_text("pvlist", &["-i", &server]).contains("version: tahti"));
}

/// Waits until channels have values, as `pvget` prints them without time and alarm.
fn eventually_values(ioc: &Ioc, expected: &[(&str, &str)]) {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let now: Vec<String> =
            expected.iter().map(|(name, _)| ioc.run(true, "caget", &["-t", name]).trim().to_owned()).collect();
        if now.iter().zip(expected).all(|(now, (_, expected))| now == expected) {
            return;
        }
        assert!(std::time::Instant::now() < end, "{now:?}, expected {expected:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

const LINKED: &str = r#"
record(ai, "L:in") { field(INP, {pva:{pv:"X:ao", proc:"CP", sevr:"MS"}}) }
record(stringin, "L:state") { field(INP, {pva:{pv:"X:bo", proc:"CP"}}) }
record(waveform, "L:wave") { field(INP, {pva:{pv:"X:wave", proc:"CP"}}) field(FTVL, "DOUBLE") field(NELM, "4") }
record(ao, "L:out") { field(OUT, {pva:"X:ao"}) }
record(ao, "L:retry") { field(OUT, {pva:{pv:"X:scanned", retry:true, proc:true}}) }
record(calc, "L:forward") { field(FLNK, {pva:"L:counter"}) }
record(calc, "L:counter") { field(INPA, "L:counter") field(CALC, "A+1") }
record(ai, "L:mine") { field(INP, {pva:{pv:"L:out", local:true, proc:"CP"}}) }
record(ai, "L:never") { field(INP, {pva:{pv:"X:ao", local:true, proc:"CP"}}) }
"#;

#[test]
fn links_over_pvaccess_read_and_write_the_records_of_another_ioc() {
    let mut source = ioc(&[]);
    let own = |port: u16| format!("127.0.0.1:{}", port + 5);
    let searched = format!("{} 127.0.0.1", own(source.port));
    let mut holder = Ioc::start_with(&[("test.db", LINKED)], &["-d", "test.db"], &[("EPICS_PVA_ADDR_LIST", &searched)]);
    assert!(holder.started.contains("local:true to X:ao"), "{}", holder.started);
    eventually_values(&holder, &[("L:in", "1.5"), ("L:state", "off")]);
    source.run(true, "caput", &["-a", "X:wave", "2", "3", "4"]);
    eventually_values(&holder, &[("L:wave", "4 3 4 0 0")]);
    holder.until("dbpvar", |text| text.contains("6/6 channels connected used by 8 links"));
    holder.run(true, "caput", &["L:out", "6"]);
    eventually_values(&source, &[("X:ao", "6")]);
    eventually_values(&holder, &[("L:in", "6"), ("L:mine", "6"), ("L:never", "0")]);
    holder.run(true, "caput", &["L:forward.PROC", "1"]);
    eventually_values(&holder, &[("L:counter", "1")]);
    let report = holder.say("dbpvar \"\" 5");
    assert!(report.contains("L:retry.OUT PP NMS Q=4 pipe=F defer=F time=F retry=T atomic=F morder=0"), "{report}");
    assert!(holder.say("dbjlr L:in 1").contains("'pva': X:ao CP MS Q=4"), "{}", holder.say("dbjlr L:in 1"));
    assert!(holder.say("dbcar").contains("Total 0 CA links"));
    source.crash();
    eventually_values(&holder, &[("L:in.SEVR", "INVALID"), ("L:in.AMSG", "INP Disconn"), ("L:in", "6")]);
    holder.run(true, "caput", &["L:out", "7"]);
    holder.run(true, "caput", &["L:retry", "8"]);
    eventually_values(&holder, &[("L:out.STAT", "LINK"), ("L:retry.STAT", "NO_ALARM")]);
    source.up();
    eventually_values(&holder, &[("L:in.SEVR", "NO_ALARM")]);
    eventually_values(&source, &[("X:scanned", "8"), ("X:ao", "1.5")]);
}

#[test]
fn the_archive_stores_channels_over_pvaccess() {
    let says = "[[signal]]\nnames = [\"pva://X:count\", \"pva://X:ao\", \"X:bo\"]\n";
    let archived = Archived::of(ioc(&[]), "archive", says);
    let mut logger = archived.serve("PVAccess: connected");
    archived.ioc.run(true, "caput", &["X:ao", "2.5"]);
    let stored = |name: &str| {
        let output = archived.ask("get", &[name, "--from", "-1h", "--format", "csv"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let values = text.lines().skip(1).filter_map(|line| line.split(',').nth(2).map(str::to_owned));
        values.filter(|value| !value.is_empty()).collect::<Vec<_>>()
    };
    eventually("both values are stored", || stored("X:ao") == ["1.5", "2.5"]);
    eventually("ten updates are stored", || stored("X:count").len() >= 10);
    let counts: Vec<f64> = stored("X:count").iter().map(|value| value.parse().unwrap()).collect();
    assert!(counts.windows(2).all(|pair| pair[1] == pair[0] + 1.0), "none is missing: {counts:?}");
    assert!(archived.good("list", &[]).contains("mm"), "{}", archived.good("list", &[]));
    logger.signal("-TERM");
    logger.child.wait().unwrap();
}

#[test]
fn an_ioc_is_found_read_and_written_over_ipv6() {
    let options = ["-d", "test.db"];
    let ioc = Ioc::start_with(&[("test.db", DATABASE)], &options, &[("EPICS_PVAS_INTF_ADDR_LIST", "::1")]);
    let server = format!("[::1]:{}", ioc.port + 4);
    for (search, name_servers) in [("[::1]", ""), ("", server.as_str())] {
        let run = |tool: &str, args: &[&str]| {
            let mut command = program(true, tool, ioc.port);
            command.env("EPICS_PVA_ADDR_LIST", search).env("EPICS_PVA_NAME_SERVERS", name_servers);
            timeless(&harness::process::text(&command.args(args).output().unwrap()))
        };
        assert_eq!(run("pvput", &["X:ao", "1.5"]), "Old : 1.5\nNew : 1.5");
        let info = run("pvinfo", &["X:ao"]);
        assert!(info.contains(&format!("Server: {server}")), "{info}");
    }
    assert!(ioc.tool_text("pvlist", &[&server]).contains("X:ao"));
}

#[test]
fn channels_are_found_by_a_name_server_without_datagrams() {
    let ioc = ioc(&[]);
    let mut get = program(true, "pvget", ioc.port);
    get.env("EPICS_PVA_ADDR_LIST", "").env("EPICS_PVA_NAME_SERVERS", format!("127.0.0.1:{}", ioc.port + 4));
    let text = harness::process::text(&get.args(["X:ao", "X:bo"]).output().unwrap());
    assert_eq!(timeless(&text).lines().collect::<Vec<_>>(), ["X:ao 1.5", "X:bo (0) off"]);
}

#[test]
fn a_channel_is_called_with_arguments() {
    let ioc = ioc(&[]);
    let refused = ioc.tool_text("pvcall", &["X:ao", "a=1"]);
    assert!(refused.starts_with("Error: ") && refused.contains("not supported"), "{refused}");
    let missing = ioc.tool_text("pvcall", &["-w", "0.5", "missing"]);
    assert_eq!(missing, "Timeout\n");
    let wrong = ioc.tool_text("pvcall", &["X:ao", "a"]);
    assert_eq!(wrong, "Error: argument 'a': '=' is missing\n");
}

/// Standard output and errors of a tool, unchanged.
trait Tool {
    fn tool_text(&self, tool: &str, args: &[&str]) -> String;
}

impl Tool for Ioc {
    fn tool_text(&self, tool: &str, args: &[&str]) -> String {
        harness::process::text(&program(true, tool, self.port).args(args).output().unwrap())
    }
}

#[test]
fn records_of_a_scan_thread_are_served() {
    let ioc = ioc(&["--scan", ".1 second=other"]);
    let run = |tool: &str, args: &[&str]| timeless(&ioc.run(true, tool, args));
    let put = run("pvput", &["-r", "record[block=true]", "X:scanned", "8.25"]);
    assert!(put.ends_with("New : 8.25"), "{put}");
    assert_eq!(run("pvget", &["-r", "field(value)", "X:linked"]), "X:linked <undefined> 8.25");
    let mut monitor = program(true, "pvmonitor", ioc.port);
    let monitor = Running::follow(monitor.arg("X:count"));
    let mut last = -1.0;
    for _ in 0..4 {
        let line = monitor.lines.recv_timeout(PATIENCE).unwrap();
        // Before the first scan the value is 0, and its alarm UDF is behind it.
        let value: f64 = line.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!(value > last, "{line}");
        last = value;
    }
}

#[test]
fn a_monitor_continues_after_a_restart_of_the_ioc() {
    let mut ioc = ioc(&[]);
    let mut monitor = program(true, "pvmonitor", ioc.port);
    let monitor = Running::follow(monitor.arg("X:ao"));
    let next = || timeless(&monitor.lines.recv_timeout(PATIENCE).unwrap());
    assert_eq!(next(), "X:ao 1.5");
    ioc.run(true, "pvput", &["X:ao", "3"]);
    assert_eq!(next(), "X:ao 3");
    ioc.crash();
    assert_eq!(next(), "X:ao <Disconnect>");
    ioc.up();
    assert_eq!(next(), "X:ao 1.5");
}

#[test]
fn access_security_and_the_put_log_apply() {
    let rules = "HAG(here) { 127.0.0.1 }\nASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE, TRAPWRITE) { HAG(here) } }\n\
                 ASG(closed) { RULE(1, READ) }\nASG(hidden) { }\n";
    let files = [("test.db", DATABASE), ("rules.acf", rules)];
    let mut ioc = Ioc::start(&files, &["-a", "rules.acf", "-d", "test.db"]);
    ioc.say("caPutLogInit ./put.log");
    ioc.run(true, "pvput", &["X:ao", "2"]);
    let log = || std::fs::read_to_string(ioc.folder.join("put.log")).unwrap_or_default();
    eventually("the put log has the put", || log().contains("X:ao new=2"));
    assert!(log().contains("127.0.0.1"), "{}", log());
    let refused = |name: &str, group: &str, ioc: &mut Ioc, tool: &str, args: &[&str], reason: &str| {
        ioc.say(&format!("dbpf {name}.ASG {group}"));
        let said = ioc.run(true, tool, args);
        assert!(said.contains(reason), "{said}");
    };
    refused("X:ao", "closed", &mut ioc, "pvput", &["X:ao", "3"], "no write access");
    refused("X:ao", "hidden", &mut ioc, "pvget", &["X:ao"], "no read access");
    let monitor = |name: &str, until: &str| Running::until(program(true, "pvmonitor", ioc.port).arg(name), until);
    drop(monitor("X:ao", "no read access"));
    let running = monitor("X:bo", "off");
    ioc.say("dbpf X:bo.ASG hidden");
    running.hears("no read access");
}

#[test]
fn bytes_of_other_programs_do_not_disturb_other_clients() {
    let ioc = ioc(&[]);
    let (tcp, udp) = (ioc.port + 4, ioc.port + 5);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xCA; 64], &[0xCA, 2, 0, 7, 255, 255, 255, 127], &[]] {
        sender.send_to(bytes, ("127.0.0.1", udp)).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // The server closes the connection; a reset is possible.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(&[0xCA, 2, 0x41, 2]), "{answer:?}");
    }
    // A search that answers itself, as a shared one that came from another host.
    let mut forged = vec![0xCA, 2, 0, 22, 16, 0, 0, 0];
    forged.extend([0; 16]);
    sender.send_to(&forged, ("127.0.0.1", udp)).unwrap();
    assert_eq!(timeless(&ioc.run(true, "pvget", &["X:ao"])), "X:ao 1.5");
}

#[test]
fn pvaccess_can_be_turned_off() {
    for (options, variables) in [(&["--no-pvaccess"][..], &[][..]), (&[], &[("PVXS_QSRV_ENABLE", "NO")])] {
        let options = [&["-d", "test.db"], options].concat();
        let ioc = Ioc::start_with(&[("test.db", DATABASE)], &options, variables);
        assert!(TcpStream::connect(("127.0.0.1", ioc.port + 4)).is_err(), "{options:?}");
        assert!(ioc.run(true, "caget", &["X:ao"]).contains("1.5"));
    }
}

#[test]
fn the_tools_explain_their_options() {
    for tool in ["pvget", "pvput", "pvmonitor", "pvinfo", "pvlist"] {
        let output = harness::tahti().args([tool, "-h"]).stdin(Stdio::null()).output().unwrap();
        let text = harness::process::text(&output);
        assert!(output.status.success() && text.contains(&format!("Usage: tahti {tool}")), "{text}");
        let wrong = harness::tahti().args([tool, "-Z"]).stdin(Stdio::null()).output().unwrap();
        assert!(!wrong.status.success() && harness::process::text(&wrong).contains("Unrecognized option: '-Z'"));
    }
}

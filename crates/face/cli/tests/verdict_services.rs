//! Promises of tahti's own services: the main loop runs, the port is bound, files still exist; and the commands'
//! reports about a service that does not answer. Needs no privilege; each test has a separate folder.

use harness::fresh;
use harness::plant::{Bench, sh};
use harness::process::{self, kill, text};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Time after which a blocked service loop would have been detected.
const LONG_NS: u64 = 9_000_000_000;

/// Waits until a row has been kept for [`LONG_NS`].
fn is_kept(bench: &Bench, service: &str) {
    bench.until(&format!("{service} is kept"), || {
        let row = bench.row(service, "serves");
        let lasted = row["observed"].as_u64().unwrap() - row["since"].as_u64().unwrap();
        row["state"] == "kept" && lasted > LONG_NS
    });
}

const EQUIPMENT: &str = "[manager]\nname = \"magnets\"\n[[device]]\nname = \"b\"\ndriver = \"power-supply\"\n\
    [[map]]\nverb = \"get\"\nobject = \"sr_{name}\"\ncomplement = \"current\"\ndevice = \"{name}\"\npoint = \"current\"\n";

#[test]
fn each_service_that_works_keeps_its_promise() {
    let (messages, tree) = (fresh("msg"), fresh("tree"));
    let text = format!(
        "[messages]\nname = \"{messages}\"\n[[equipment]]\nname = \"em\"\nfile = \"em.toml\"\nserver = \"{messages}\"\n\
         [[ioc]]\nname = \"ioc\"\nload = [{{ file = \"t.db\" }}]\n[archive]\nname = \"archive\"\nfolder = \"archive\"\n[[signal]]\nalarms = [\"{tree}/*\"]\n\
         [alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n[dashboard]\nname = \"dashboard\"\n"
    );
    let bench = Bench::new("services-kept", &text);
    fs::write(bench.dir.join("em.toml"), EQUIPMENT).unwrap();
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(SCAN, \"10 second\") }").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    for service in [&*messages, "em", "ioc", "archive", "alarms", "dashboard"] {
        is_kept(&bench, service);
    }
    let (_, last) = bench.down();
    assert!(!last.contains("working loop"), "{last}");
}

#[test]
fn a_variable_that_is_not_connected_is_named_by_ps_and_degrades_the_plant() {
    let tree = fresh("tree");
    let text = format!(
        "env = {{ EPICS_CA_AUTO_ADDR_LIST = \"NO\", EPICS_CA_ADDR_LIST = \"127.0.0.1\" }}\n\
         [[ioc]]\nname = \"ioc\"\nload = [{{ file = \"t.db\" }}]\n[archive]\nname = \"archive\"\nfolder = \"archive\"\n\
         [[signal]]\nnames = [\"V:UNKNOWN:1\"]\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n\
         [[alarm]]\nchannels = [\"V:UNKNOWN:2\"]\n"
    );
    let bench = Bench::new("services-unconnected", &text);
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(INP, \"V:UNKNOWN:3 CPP\") }").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench.until("ps names all three", || {
        let shown = bench.ok(&["ps", "p"]);
        (1..=3).all(|number| shown.contains(&format!("1 of 1 variables not connected: V:UNKNOWN:{number}\n")))
    });
    for service in ["ioc", "archive", "alarms"] {
        let row = bench.until_row(service, "serves", "within");
        assert!(row["evidence"].as_str().unwrap().starts_with("1 of 1 variables not connected: V:UNKNOWN:"), "{row}");
    }
    assert_eq!(bench.down().0, Some(4));
}

#[test]
fn a_service_that_another_program_ends_fails_the_plant_and_one_that_is_stopped_on_request_does_not() {
    let server = fresh("ended");
    let bench = Bench::new("services-ended", &format!("[messages]\nname = \"{server}\"\n"));
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row(&server, "runs", "kept");
    kill(bench.pid(&server), "TERM");
    let found = bench.until_row(&server, "runs", "broken");
    assert!(found["evidence"].as_str().unwrap().contains("ended without `tahti stop`"), "{found}");
    assert_eq!(bench.down().0, Some(3));

    bench.ok(&["up", ".", "--detach"]);
    bench.until_row(&server, "runs", "kept");
    bench.ok(&["stop", &server]);
    bench.until_row(&server, "runs", "not-due");
    assert_eq!(bench.down().0, Some(0));
}

#[test]
fn an_ioc_with_a_failed_script_command_is_not_good_and_names_the_command() {
    let ioc = "[[process]]\nname = \"ioc\"\ncommand = [\"tahti\", \"ioc\", \"st.cmd\"]\n";
    let bench = Bench::new("services-script", ioc);
    fs::write(bench.dir.join("st.cmd"), "dbLoadRecords(\"t.db\")\nnoSuchCommand\niocInit\n").unwrap();
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(NOFIELD, \"1\") }\nrecord(ai, \"V:B\") {}").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let row = bench.until_row("ioc", "available", "absent");
    let expected = "2 script commands failed, the first at st.cmd line 1";
    assert!(row["evidence"].as_str().unwrap().starts_with(expected), "{row}");
    let (status, last) = bench.down();
    assert_eq!(status, Some(4), "{last}");
    assert!(last.contains(expected), "{last}");
}

/// A function of `sub` records that waits while the file `hang` exists.
const HANGS: &str = r#"
#include "tahti.h"
#include <unistd.h>
static int hangs(tahti_call *call) {
    (void)call;
    while (access("hang", F_OK) == 0)
        usleep(10000);
    return 0;
}
TAHTI_PLUGIN(host) {
    return host->add(host, "hangs", TAHTI_SUB, hangs);
}
"#;

#[test]
fn an_ioc_whose_loop_hangs_while_its_process_lives_fails_the_plant() {
    let bench = Bench::new("services-hang", "[[ioc]]\nname = \"ioc\"\nscript = \"st.cmd\"\n");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    fs::write(bench.dir.join("hangs.c"), HANGS).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-I"]).arg(root.join("crates/face/capi/include"));
    let built = cc
        .args(["-o", "hangs.so", "hangs.c"])
        .current_dir(&bench.dir)
        .output()
        .expect("cc, which building Rust needs too");
    assert!(built.status.success(), "{}", text(&built));
    fs::write(bench.dir.join("t.db"), "record(sub, \"V:S\") { field(SCAN, \".1 second\") field(SNAM, \"hangs\") }")
        .unwrap();
    fs::write(bench.dir.join("st.cmd"), "dlload ./hangs.so inside\ndbLoadRecords t.db\niocInit\n").unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench.until_row("ioc", "serves", "kept");
    fs::write(bench.dir.join("hang"), "").unwrap();
    let found = bench.until_row("ioc", "serves", "broken");
    assert!(found["evidence"].as_str().unwrap().starts_with("no answer from its working loop for "), "{found}");
    assert_eq!(bench.row("ioc", "runs")["state"], "kept", "its process lives");
    fs::remove_file(bench.dir.join("hang")).unwrap();
    bench.until_row("ioc", "serves", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("failed: ioc: no answer from its working loop"), "{last}");
}

#[test]
fn a_dashboard_of_the_plant_file_whose_port_is_taken_fails_the_plant() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let bench = Bench::new(
        "services-port",
        &(sh("a", "exec sleep 1000", "") + &format!("[dashboard]\nname = \"dashboard\"\nlisten = \"{address}\"\n")),
    );
    bench.ok(&["up", ".", "--detach"]);
    let found = bench.until_row("dashboard", "serves", "broken");
    let evidence = found["evidence"].as_str().unwrap();
    assert!(evidence.contains(&format!("cannot listen: {address} is taken by another program")), "{found}");
    drop(taken);
    bench.until_row("dashboard", "serves", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("failed: dashboard: it cannot listen"), "{last}");
}

#[test]
fn segments_removed_by_another_program_fail_the_plant() {
    let bench = Bench::new(
        "services-segments",
        "[archive]\nname = \"archive\"\nfolder = \"data\"\nsync = \"50ms\"\n[[signal]]\nnames = [\"V:NONE\"]\n",
    );
    bench.ok(&["up", ".", "--detach"]);
    let segments = || {
        let files = fs::read_dir(bench.dir.join("data")).unwrap().map(|file| file.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|ending| ending == "segment")).collect::<Vec<_>>()
    };
    // The first segment has the record of the start.
    bench.until("a segment exists", || segments().iter().any(|file| file.metadata().unwrap().len() > 0));
    is_kept(&bench, "archive");
    segments().iter().for_each(|file| fs::remove_file(file).unwrap());
    let found = bench.until_row("archive", "serves", "broken");
    let evidence = found["evidence"].as_str().unwrap();
    assert!(evidence.contains("another program removed or replaced it; restore it from a copy"), "{found}");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains("another program removed or replaced it"), "{last}");
}

#[test]
fn a_request_to_a_stopped_service_fails_with_its_process_and_the_remedy() {
    let (messages, tree) = (fresh("msg"), fresh("tree"));
    let tables = format!(
        "[messages]\nname = \"{messages}\"\n[archive]\nname = \"archive\"\nfolder = \"data\"\n[[signal]]\nnames = [\"V:NONE\"]\n\
         [alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n"
    );
    let bench = Bench::new("services-stopped", &tables);
    bench.ok(&["up", ".", "--detach"]);
    let requests: [(&str, Vec<&str>); 4] = [
        ("alarms", vec!["alarm", "list", "--server", &tree]),
        ("alarms", vec!["alarm", "ack", "X", "--server", &tree]),
        ("archive", vec!["archive", "status", "data"]),
        (&messages, vec!["msg", "list", "--server", &messages]),
    ];
    for (service, words) in requests {
        let pid = bench.pid(service);
        kill(pid, "STOP");
        let output = bench.run(&words);
        let said = text(&output);
        kill(pid, "CONT");
        assert!(!output.status.success(), "{words:?}: {said}");
        assert!(said.contains(&format!("process {pid} does not answer in time")), "{words:?}: {said}");
        assert!(said.contains(&format!("it is stopped: `kill -CONT {pid}`")), "{words:?}: {said}");
    }
}

/// A debugger that keeps one thread stopped while the other threads run. Dropping it lets the thread run.
struct Stopped(Child);

impl Stopped {
    fn thread(bench: &Bench, service: &str, thread: &str) -> Self {
        let program = bench.dir.join("debugger");
        if !program.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/tests/separate/debugger.c");
            let built = Command::new("cc").arg("-o").args([&program, &source]).output();
            let built = built.expect("cc, which building Rust needs too");
            assert!(built.status.success(), "{}", text(&built));
        }
        let found = process::thread(bench.pid(service), thread);
        let found = found.unwrap_or_else(|| panic!("{service} has a thread {thread}"));
        let mut command = Command::new(program);
        command.arg(found.file_name().unwrap()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut debugger = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(debugger.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "attached\n", "tracing needs root if kernel.yama.ptrace_scope is 1");
        Self(debugger)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its end lets the thread run in any case.
        let _ = self.0.wait();
    }
}

#[test]
fn a_service_one_of_whose_threads_hangs_names_the_thread_while_its_working_loop_goes_round() {
    let (messages, tree) = (fresh("msg"), fresh("tree"));
    let text = format!(
        "[messages]\nname = \"{messages}\"\n[[equipment]]\nname = \"em\"\nfile = \"em.toml\"\nserver = \"{messages}\"\n\
         [dashboard]\nname = \"dashboard\"\n[alarms]\nname = \"alarms\"\nfolder = \"journal\"\ntree = \"{tree}\"\n[[ioc]]\nname = \"ioc\"\nload = [{{ file = \"t.db\" }}]\n\
         scan = [{{ rates = [\".1 second\"], class = \"other\" }}]\n"
    );
    let bench = Bench::new("services-threads", &text);
    fs::write(bench.dir.join("t.db"), "record(ai, \"V:A\") { field(SCAN, \".1 second\") }").unwrap();
    fs::write(bench.dir.join("em.toml"), EQUIPMENT).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let threads = [
        (&*messages, "band-1"),
        ("em", "band-0"),
        ("em", "lane"),
        ("dashboard", "watch-frames"),
        ("dashboard", "dash-signals"),
        ("alarms", "plant"),
        ("ioc", "scan-0"),
        ("ioc", "devices"),
    ];
    for (service, thread) in threads {
        bench.until_row(service, "serves", "kept");
        let stopped = Stopped::thread(&bench, service, thread);
        let found = bench.until_row(service, "serves", "broken");
        let evidence = found["evidence"].as_str().unwrap();
        assert!(evidence.contains(&format!("thread {thread} hung: ")), "{found}");
        assert_eq!(bench.row(service, "runs")["state"], "kept", "its process lives");
        drop(stopped);
    }
    bench.until_row("dashboard", "serves", "kept");
    let (code, last) = bench.down();
    assert!(code == Some(3) && last.contains(&format!("{messages}: thread band-1 hung: ")), "{last}");
}

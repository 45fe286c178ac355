//! EPICS base's own test programs against its IOC and ours: `acctst`, `catime`, `caEventRate`, `caConnTest`.

use harness::epics::program;
use harness::ioc::Ioc;
use harness::process::{Running, by_lines};
use std::io::{BufRead as _, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Timeout for a hanging program. It is long because `acctst` subscribes and unsubscribes five million times.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Begins a line of a program whose assertion failed.
const ASSERTION: &str = "failed in the program: ";

const DATABASE: &str = r#"
record(ai, "$(P)ai") { field(PREC, "3") field(HOPR, "1000") field(LOPR, "-1000") field(PINI, "YES") }
record(calc, "$(P)tick") { field(SCAN, ".1 second") field(CALC, "VAL+1") }
record(ao, "$(P)ct000000") {}
record(ao, "$(P)ct000001") {}
record(ao, "$(P)ct000002") {}
"#;

/// Runs a program of EPICS base with an IOC until it ends or prints `enough`, and returns its output. From time to
/// time `seen` gets the output so far and the IOC.
fn said(ours: bool, name: &str, args: &[&str], enough: &str, mut seen: impl FnMut(&str, &mut Ioc)) -> String {
    let mut ioc = Ioc::serving(ours, DATABASE);
    let mut command = by_lines(program(false, name, ioc.port).args(args));
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    // `acctst` demands that its waits take at most 10 % longer than asked, also next to other work of this machine.
    let _ = rustix::process::setpriority_process(rustix::process::Pid::from_raw(running.child.id() as i32), -10);
    let (mut stdout, stderr) = (running.child.stdout.take().unwrap(), running.child.stderr.take().unwrap());
    let (sender, parts) = channel();
    let complaints = sender.clone();
    std::thread::spawn(move || {
        // A failed assertion suspends the thread, so that the program would never end.
        let failed = |line: &String| line.contains("assert");
        if let Some(line) = BufReader::new(stderr).lines().map_while(Result::ok).find(failed) {
            let _ = complaints.send(format!("{ASSERTION}{line}\n").into_bytes());
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stdout.read(&mut buffer) {
            if sender.send(buffer[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    let patience = Instant::now() + PATIENCE;
    let mut text = String::new();
    while let Ok(part) = parts.recv_timeout(patience.saturating_duration_since(Instant::now())) {
        text.push_str(&String::from_utf8_lossy(&part));
        assert!(!text.contains(ASSERTION), "{name}, ours: {ours}: {text}");
        seen(&text, &mut ioc);
        if text.contains(enough) {
            break;
        }
    }
    assert!(Instant::now() < patience, "{name} hangs; it printed {text}");
    text
}

/// Output of a program with C's server and with ours.
fn both<T: Send>(run: impl Fn(bool) -> T + Sync) -> [T; 2] {
    std::thread::scope(|scope| {
        let threads = [false, true].map(|ours| {
            let run = &run;
            scope.spawn(move || run(ours))
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

/// Up to `most` lines without their figures. The number of searches for each name depends on the network.
fn lines(text: &str, most: usize) -> Vec<String> {
    let words = |line: &str| {
        let words = line.split_whitespace().filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().filter(|line| !line.starts_with("Search tries")).take(most).map(words).collect()
}

#[test]
fn acctst_passes_with_our_ioc_as_with_cs() {
    let ends = both(|ours| {
        let mut up = true;
        let text = said(ours, "acctst", &["X:ai", "1", "100", "1"], "Test Complete", |text, ioc| {
            if std::mem::take(&mut up) {
                up = !text.contains("force test channel to disconnect");
                if !up {
                    ioc.crash();
                    ioc.up();
                }
            }
        });
        text.lines().last().unwrap_or_default().to_owned()
    });
    assert_eq!(ends, ["Test Complete", "Test Complete"], "C left, tahti right");
}

#[test]
fn catime_completes_all_its_tests() {
    let [theirs, ours] = both(|ours| lines(&said(ours, "catime", &["X:ct", "3", "1"], "\0", |_, _| {}), 100));
    assert_eq!(theirs, ours, "C left, tahti right");
    assert_eq!(ours.iter().filter(|line| line.starts_with("### async put test")).count(), 4, "{ours:?}");
    assert!(ours.iter().any(|line| line == "Free Channel Test"), "{ours:?}");
}

#[test]
fn ca_event_rate_sees_events() {
    let [theirs, ours] =
        both(|ours| said(ours, "caEventRate", &["X:tick", "3"], "std dev 0\nCA Event Rate", |_, _| {}));
    assert_eq!(lines(&theirs, 4), lines(&ours, 4), "C left, tahti right");
    let rates = ours.lines().filter_map(|line| line.strip_prefix("CA Event Rate (Hz): current ")?.split(' ').next());
    let rates: Vec<f64> = rates.map(|rate| rate.parse().unwrap()).collect();
    assert!(rates.iter().any(|rate| *rate > 0.0), "{rates:?}");
}

#[test]
fn ca_conn_test_connects_repeatedly() {
    let [theirs, ours] =
        both(|ours| said(ours, "caConnTest", &["X:ai", "100", "10"], "all channels are disconnected\n", |_, _| {}));
    assert_eq!(lines(&theirs, 7), lines(&ours, 7), "C left, tahti right");
    assert!(ours.contains("all channels connected after"), "{ours}");
}

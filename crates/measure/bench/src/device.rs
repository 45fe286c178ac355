//! `tahti bench device`: CPU time of an IOC whose device sends without end.

use crate::ioc::host::{Ioc, Kind};
use crate::scratch::Scratch;
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::DurNs;
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Target};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "device",
    experiment: "own: a device that sends without end",
    arguments: Args::augment_args,
    run,
    target: "whatever the device sends: at most half a CPU for its port and the records that it processes",
    quick: &["--rounds", "2", "--for", "1s"],
    shields: false,
};

/// CPU time of an IOC whose device, on one TCP connection, sends as fast as it can
///
/// The device is a thread of the measurement on this machine's loopback, so that nothing but the IOC limits it. Measures the
/// processor time of the IOC only.
#[derive(clap::Args)]
struct Args {
    /// Number of measurements of each case
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "3s")]
    for_: DurNs,
}

/// Name of the port in the IOC.
const PORT: &str = "device";
const PROTOCOLS: &str = r#"
Terminator = LF;
line { in "%f"; }
wait { out "V?"; wait 200; in "%f"; }
"#;
/// Maximum time until the IOC has connected.
const PATIENCE: Duration = Duration::from_secs(60);

/// One case.
struct Case {
    name: &'static str,
    /// The device's bytes, repeated without end; empty: it sends nothing.
    bytes: &'static [u8],
    /// Number of its records.
    records: usize,
    protocol: &'static str,
    scan: &'static str,
}

const CASES: [Case; 5] = [
    Case { name: "sends nothing, 1 record", bytes: b"", records: 1, protocol: "line", scan: "I/O Intr" },
    Case { name: "lines, 1 record", bytes: b"1.25\n", records: 1, protocol: "line", scan: "I/O Intr" },
    Case { name: "lines, 10 records", bytes: b"1.25\n", records: 10, protocol: "line", scan: "I/O Intr" },
    Case { name: "no end of a line, 1 record", bytes: b"xxxx", records: 1, protocol: "line", scan: "I/O Intr" },
    Case { name: "lines, exchanges that wait", bytes: b"1.25\n", records: 10, protocol: "wait", scan: ".1 second" },
];

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    if args.rounds == 0 || args.for_ < DurNs::from_ms(500) {
        let given = format!("--rounds {} --for {}", args.rounds, args.for_);
        return Err(Failed::Argument { given, expected: "1 round or more, and 500ms or more".into() });
    }
    let folder = Scratch::new("device")?;
    let file = folder.0.join("bench.proto");
    std::fs::write(&file, PROTOCOLS).map_err(Failed::file(&file))?;
    let title = format!("A device on the loopback that sends without end, {} rounds of {}", args.rounds, args.for_);
    let mut table = Table::new(title);
    for (number, case) in CASES.iter().enumerate() {
        let device = Device::start(case.bytes)?;
        let port = format!("{PORT}=127.0.0.1:{}", device.port);
        let protocols = folder.0.display().to_string();
        let options = ["--port".to_owned(), port, "--protocols".to_owned(), protocols];
        let mut ioc = Ioc::start(Kind::Tahti, &case.database(), "B:0", &options)?;
        device.wait()?;
        let (mut shares, mut rates) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            progress.at(number * args.rounds + round, CASES.len() * args.rounds, case.name);
            let before = received(&mut ioc)?;
            let (cpu, took) = ioc.measure(|| {
                std::thread::sleep(Duration::from_nanos(args.for_.0.max(0) as u64));
                Ok(())
            })?;
            shares.push(cpu / took * 100.0);
            rates.push((received(&mut ioc)? - before) * 1e3 / took);
        }
        let share = Row::samples(format!("{}: share of one CPU", case.name), "%", shares);
        table = table.row(share.good(Good::Low).target(Target::at_most(50.0)));
        if !case.bytes.is_empty() {
            table = table.row(Row::samples(format!("{}: bytes read", case.name), "MB/s", rates));
        }
    }
    Ok(table.into())
}

/// Bytes that the port has received, by the IOC's own count.
fn received(ioc: &mut Ioc) -> Result<f64, Failed> {
    let report = ioc.run_command("asynReport")?;
    let count = report.split_once("bytes in ").and_then(|(_, rest)| rest.split(',').next()?.trim().parse().ok());
    count.ok_or_else(|| Failed::answer("asynReport", "bytes in N", report))
}

impl Case {
    fn database(&self) -> String {
        let mut text = String::new();
        for number in 0..self.records {
            let _ = writeln!(
                text,
                "record(ai, \"B:{number}\") {{ field(DTYP, \"stream\") field(SCAN, \"{}\") field(INP, \"@bench.proto {} {PORT}\") }}",
                self.scan, self.protocol
            );
        }
        text
    }
}

/// A device with one connection at a time.
struct Device {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    connected: AtomicBool,
    ended: AtomicBool,
    stream: Mutex<Option<TcpStream>>,
}

impl Device {
    fn start(bytes: &'static [u8]) -> Result<Self, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Failed::Socket)?;
        let port = listener.local_addr().map_err(Failed::Socket)?.port();
        let shared = Arc::<Shared>::default();
        let inside = shared.clone();
        let thread = std::thread::Builder::new().name("bench-device".to_owned()).spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if inside.ended.load(Ordering::Acquire) {
                    return;
                }
                inside.serve(stream, bytes);
            }
        });
        let thread = thread.map_err(Failed::process("a device's thread"))?;
        Ok(Self { port, shared, thread: Some(thread) })
    }

    /// Waits for the IOC's connection.
    fn wait(&self) -> Result<(), Failed> {
        let begun = Instant::now();
        while !self.shared.connected.load(Ordering::Acquire) {
            if begun.elapsed() > PATIENCE {
                return Err(Failed::answer("the IOC", "a connection to the device", "none"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Shared {
    /// Sends until the connection is closed.
    fn serve(&self, mut stream: TcpStream, bytes: &'static [u8]) {
        let Ok(copy) = stream.try_clone() else { return };
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        self.connected.store(true, Ordering::Release);
        let block = bytes.repeat(if bytes.is_empty() { 0 } else { 65_536 / bytes.len() });
        while !block.is_empty() {
            if stream.write_all(&block).is_err() {
                return;
            }
        }
        // Nothing to send: it waits for the end of the connection.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(stream) = self.shared.stream.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // The thread may be waiting for the next connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! `tahti bench dashboard`: CPU time of the dashboard with connected browsers.

use crate::ioc::host::{Ioc, Kind, environment, free_port};
use crate::measure::{ended, own_program};
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::DurNs;
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Target};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "dashboard",
    experiment: "KEK: a display with 100 monitored channels",
    arguments: Args::augment_args,
    run,
    target: "20 clients, each with 100 signals at 10 Hz: less than 10 % of one CPU",
    quick: &["--rounds", "2", "--for", "2s"],
    shields: false,
};

/// CPU time of the dashboard with connected clients, each with 100 signals at 10 Hz
///
/// An IOC, the dashboard and its clients run as processes and threads on this machine's loopback. Measures the dashboard's processor time
/// only, not that of the clients.
#[derive(clap::Args)]
struct Args {
    /// Number of clients
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=60))]
    clients: u16,
    /// Signals of each client
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    signals: u16,
    /// Number of measurements
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    for_: DurNs,
}

/// Changes of each signal per second.
const HZ: f64 = 10.0;
/// Timeout of start and answer of a part.
const PATIENCE: Duration = Duration::from_secs(60);
/// Kind of the binary messages with samples in the dashboard's protocol.
const TICK: u8 = 1;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    if args.rounds == 0 || args.for_ < DurNs::from_ms(500) {
        let given = format!("--rounds {} --for {}", args.rounds, args.for_);
        return Err(Failed::Argument { given, expected: "1 round or more, and 500ms or more".into() });
    }
    let mut database = String::new();
    for signal in 0..args.signals {
        let _ = writeln!(
            database,
            "record(calc, \"B:{signal}\") {{ field(SCAN, \".1 second\") field(INPA, \"B:{signal}\") field(CALC, \"A+1\") field(EGU, \"mA\") }}"
        );
    }
    let ioc = Ioc::start(Kind::Tahti, &database, "B:0", &[])?;
    let dashboard = Dashboard::start(ioc.port)?;

    let steps = 2 * args.rounds;
    let mut idle = Vec::new();
    for round in 0..args.rounds {
        progress.at(round, steps, "no clients");
        idle.push(dashboard.share(args.for_)?);
    }
    let clients: Result<Vec<Client>, Failed> =
        (0..args.clients).map(|_| Client::open(&dashboard, args.signals)).collect();
    let clients = clients?;
    // Every client has received each signal before the measurement starts.
    let begun = Instant::now();
    while clients.iter().any(|client| client.seen.rows.load(Ordering::Relaxed) < u64::from(args.signals) * 5) {
        clients.iter().try_for_each(Client::check)?;
        if begun.elapsed() > PATIENCE {
            let expected = format!("samples of {} signals within {} s", args.signals, PATIENCE.as_secs());
            return Err(Failed::answer("the dashboard", expected, "fewer"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let sum = |pick: fn(&ClientCounters) -> &AtomicU64| {
        clients.iter().map(|client| pick(&client.seen).load(Ordering::Relaxed)).sum::<u64>() as f64
    };
    let (mut shares, mut bytes, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        progress.at(args.rounds + round, steps, "with clients");
        let (rows, read, begun) = (sum(|seen| &seen.rows), sum(|seen| &seen.bytes), Instant::now());
        shares.push(dashboard.share(args.for_)?);
        let (took, each) = (begun.elapsed().as_secs_f64(), f64::from(args.clients));
        received.push((sum(|seen| &seen.rows) - rows) / took / each / f64::from(args.signals));
        bytes.push((sum(|seen| &seen.bytes) - read) * 8.0 / took / each / 1e6);
        clients.iter().try_for_each(Client::check)?;
    }
    let title = format!(
        "{} clients, {} signals each at {HZ} Hz, {} rounds of {}",
        args.clients, args.signals, args.rounds, args.for_
    );
    let limit = if args.clients == 20 && args.signals == 100 { Some(10.0) } else { None };
    let share = Row::samples("the dashboard's share of one CPU", "%", shares).good(Good::Low);
    let table = Table::new(title)
        .row(match limit {
            Some(limit) => share.target(Target::at_most(limit)),
            None => share,
        })
        .row(Row::samples("the same without clients", "%", idle).good(Good::Low))
        .row(Row::samples("samples of a signal received by a client", "/s", received))
        .row(Row::samples("traffic of a client's connection", "Mbit/s", bytes).good(Good::Low))
        .row(Row::figure("samples replaced by newer ones, all clients", "", sum(|seen| &seen.dropped)));
    Ok(BenchResult::from(table))
}

/// A dashboard for a plant that does not exist.
struct Dashboard {
    child: Child,
    port: u16,
    token: String,
}

impl Dashboard {
    fn start(ioc: u16) -> Result<Self, Failed> {
        let (port, plant) = (free_port()?, format!("bench-dashboard-{}", std::process::id()));
        let mut command = Command::new(own_program()?);
        command.args(["dash", "serve", "--plant", &plant, &format!("--listen=127.0.0.1:{port}")]);
        command.envs(environment(ioc)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(Failed::process("tahti dash serve"))?;
        let mut dashboard = Self { child, port, token: String::new() };
        let begun = Instant::now();
        loop {
            let asked = Command::new(own_program()?).args(["dash", "url", "--plant", &plant]).output();
            let asked = asked.map_err(Failed::process("tahti dash url"))?;
            let text = String::from_utf8_lossy(&asked.stdout).into_owned();
            if let Some((_, token)) = text.trim().rsplit_once("#token=").filter(|_| asked.status.success()) {
                dashboard.token = token.to_owned();
                return Ok(dashboard);
            }
            let ended = dashboard.child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let found = ended.map_or_else(|| "none".to_owned(), |status| format!("its end ({status})"));
                return Err(Failed::answer("tahti dash serve", "an address", found));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Share of one CPU that its process uses over a time, in percent.
    fn share(&self, time: DurNs) -> Result<f64, Failed> {
        let cpu = || sys::clock::process_cpu(self.child.id() as i32);
        let (used, begun) = (cpu()?, Instant::now());
        std::thread::sleep(Duration::from_nanos(time.0.max(0) as u64));
        Ok((cpu()?.0 - used.0) as f64 / begun.elapsed().as_nanos() as f64 * 100.0)
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        ended(&mut self.child);
    }
}

/// Data received by a client.
#[derive(Default)]
struct ClientCounters {
    rows: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    /// The reason of the connection's end.
    ended: Mutex<Option<std::io::Error>>,
}

/// A connection like a browser's, with a reading thread.
struct Client {
    seen: Arc<ClientCounters>,
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn open(dashboard: &Dashboard, signals: u16) -> Result<Self, Failed> {
        let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).map_err(Failed::Socket)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(Failed::Socket)?;
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {}\r\n\r\n",
            dashboard.port, dashboard.token
        );
        stream.write_all(head.as_bytes()).map_err(Failed::Socket)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(Failed::Socket)?;
            answer.push(byte[0]);
        }
        if !answer.starts_with(b"HTTP/1.1 101") {
            let found = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
            return Err(Failed::answer("the dashboard", "a WebSocket", found));
        }
        for signal in 0..signals {
            let text = format!("{{\"do\":\"subscribe\",\"stream\":{signal},\"name\":\"B:{signal}\"}}");
            // A text of less than 126 bytes, masked with zeros.
            let mut message = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
            message.extend(text.as_bytes());
            stream.write_all(&message).map_err(Failed::Socket)?;
        }
        let (seen, mut reads) = (Arc::<ClientCounters>::default(), stream.try_clone().map_err(Failed::Socket)?);
        let inside = seen.clone();
        let thread = std::thread::Builder::new().name("bench-client".to_owned()).spawn(move || {
            if let Err(why) = hear(&mut reads, &inside) {
                *inside.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        let thread = thread.map_err(Failed::process("a client's thread"))?;
        Ok(Self { seen, stream, thread: Some(thread) })
    }

    /// Whether it is still connected.
    fn check(&self) -> Result<(), Failed> {
        match self.seen.ended.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(why) => Err(Failed::Socket(why)),
            None => Ok(()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads messages until the connection ends.
fn hear(stream: &mut TcpStream, seen: &ClientCounters) -> std::io::Result<()> {
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut more = [0; 2];
                stream.read_exact(&mut more)?;
                u64::from(u16::from_be_bytes(more))
            }
            127 => {
                let mut more = [0; 8];
                stream.read_exact(&mut more)?;
                u64::from_be_bytes(more)
            }
            short => short.into(),
        };
        payload.resize(usize::try_from(length).unwrap_or(0).min(1 << 24), 0);
        stream.read_exact(&mut payload)?;
        seen.bytes.fetch_add(length + 4, Ordering::Relaxed);
        // A binary message of samples: kind and three zeros, the base stamp, the number of dropped samples, then the rows.
        if head[0] == 0x82
            && payload.first() == Some(&TICK)
            && let Some((rows, rest)) = payload.get(4..).and_then(<[u8]>::split_first_chunk)
            && let Some((dropped, _)) = rest.get(8..).and_then(<[u8]>::split_first_chunk)
        {
            seen.rows.fetch_add(u32::from_le_bytes(*rows).into(), Ordering::Relaxed);
            seen.dropped.store(u64::from_le_bytes(*dropped), Ordering::Relaxed);
        }
    }
}

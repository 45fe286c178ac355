//! A link of 100 Mbit/s between two network namespaces of our own, and streams over it.

use super::{Computing, REAL_TIME, iperf3, primes_take};
use crate::failed::joined;
use crate::measure::{installed, own_program};
use crate::{Failed, Helper, read};
use base::{CpuId, CpuSet, DurNs, Policy, Priority};
use clap::Args as _;
use report::{Figure, Good, Row, Table, Wanted};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_scheduling};

/// One end of a stream.
pub(crate) const STREAM: Helper =
    Helper { name: "stream", arguments: StreamArgs::augment_args, run: |matches| stream(&read(matches)?) };

/// An end's own command line.
#[derive(clap::Args)]
struct StreamArgs {
    /// Send to the other end; without it, receive
    #[arg(long)]
    send: bool,
    #[arg(long)]
    udp: bool,
}

/// The receiver's address, and the sender's.
const ADDRESSES: [&str; 2] = ["10.94.1.1", "10.94.1.2"];
const PORT: u16 = 5201;
/// How long each run sends.
const SENDS: DurNs = DurNs::from_ms(300);
/// What is offered by datagrams, in bits a second: a little less than the link takes.
const OFFERED: f64 = 90e6;
const DATAGRAM: usize = 1400;
/// A receiver that hears nothing for so long is done.
const SILENCE: Duration = Duration::from_millis(200);
/// The first may take so long to come.
const FIRST: Duration = Duration::from_secs(10);
/// The stream's class: above all that computes.
pub(super) const CLASS: Policy = Policy::Fifo(Priority(10));

/// Two namespaces with a link; gone with this.
struct Link([String; 2]);

impl Link {
    fn make() -> Result<Self, Failed> {
        let name = |end: &str| format!("tahti-bench-{}-{end}", std::process::id());
        let link = Self([name("a"), name("b")]);
        let [a, b] = &link.0;
        tool("ip", &format!("netns add {a}"))?;
        tool("ip", &format!("netns add {b}"))?;
        tool("ip", &format!("-n {a} link add wire type veth peer name wire netns {b}"))?;
        for (name, address) in link.0.iter().zip(ADDRESSES) {
            tool("ip", &format!("-n {name} addr add {address}/24 dev wire"))?;
            tool("ip", &format!("-n {name} link set wire up"))?;
            tool("tc", &format!("-n {name} qdisc add dev wire root tbf rate 100mbit burst 32kbit latency 20ms"))?;
        }
        Ok(link)
    }

    fn end(&self, which: usize, words: &[&str]) -> Result<Child, Failed> {
        let program = own_program()?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[which]]).arg(program).args(["bench", "stream"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map_err(Failed::process("ip netns exec"))
    }

    /// One run: Mbit/s that came, and the share of what was sent that did not, in percent.
    fn run(&self, udp: bool) -> Result<(f64, f64), Failed> {
        let kind: &[&str] = if udp { &["--udp"] } else { &[] };
        let mut receiver = Running(self.end(0, kind)?);
        let mut lines = receiver.0.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
        let mut line =
            || lines.next().and_then(Result::ok).ok_or_else(|| Failed::answer("the receiver", "a line", "its end"));
        line()?;
        let mut sender = Running(self.end(1, &[kind, &["--send"]].concat())?);
        let mut sent = String::new();
        if let Some(mut output) = sender.0.stdout.take() {
            output.read_to_string(&mut sent).map_err(Failed::process("tahti bench stream"))?;
        }
        let came = line()?;
        let numbers: Option<Vec<f64>> = came.split(' ').map(|word| word.parse().ok()).collect();
        let (Some([bytes, ns]), Ok(sent)) = (numbers.as_deref(), sent.trim().parse::<f64>()) else {
            return Err(Failed::answer("a stream", "numbers", format!("{came:?} and {sent:?}")));
        };
        Ok((bytes * 8e3 / ns.max(1.0), 100.0 * (1.0 - bytes / sent.max(1.0)).max(0.0)))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.0 {
            // One that was not made is not there.
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

/// A process that ends with this.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tool(program: &'static str, words: &str) -> Result<(), Failed> {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.map_err(|source| Failed::NoPeer { program, package: "iproute2", source })?;
    let (status, printed) = (output.status, String::from_utf8_lossy(&output.stderr).trim().to_owned());
    match status.success() {
        true => Ok(()),
        false => Err(Failed::Ended { command: format!("{program} {words}"), status, output: printed }),
    }
}

/// Streams alone and beside computation, in turn; and the prime task alone and beside a stream.
pub(super) fn measure(
    rounds: u32,
    (cpu, below): (CpuId, u32),
    online: &CpuSet,
    mut each: impl FnMut(usize) -> Result<(), Failed>,
) -> Result<(Vec<Table>, Option<Failed>), Failed> {
    let link = Link::make()?;
    let mut rates: [[Vec<f64>; 2]; 2] = Default::default();
    let (peer, mut theirs) =
        (installed("iperf3", "--version", "iperf3"), [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]]);
    let (mut losses, mut primes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..rounds as usize {
        each(round)?;
        for beside in 0..2 {
            let computing: Vec<Computing> = match beside {
                0 => Vec::new(),
                _ => online.iter().map(|cpu| Computing::start(100, 1, &CpuSet::single(cpu), 19)).collect(),
            };
            for (udp, (rates, theirs)) in [false, true].into_iter().zip(rates.iter_mut().zip(&mut theirs)) {
                let (rate, lost) = link.run(udp)?;
                rates[beside].push(rate);
                if peer.is_ok() {
                    theirs[beside].push(iperf3::run(&link.0, ADDRESSES[0], udp)?);
                }
                if udp {
                    losses[beside].push(lost);
                }
            }
            drop(computing);
        }
        primes[0].push(primes_take(cpu, REAL_TIME, below)?);
        let beside = std::thread::scope(|scope| {
            let stream = scope.spawn(|| link.run(false));
            // The stream has begun, and goes on for longer than the task takes.
            sleep_until(mono_now() + DurNs(SENDS.0 / 3));
            let took = primes_take(cpu, REAL_TIME, below);
            joined(stream.join())?;
            took
        });
        primes[1].push(beside?);
    }
    let [tcp, udp] = rates;
    let row = |name: &str, unit: &str, [alone, beside]: [Vec<f64>; 2]| {
        Row::samples(name, unit, beside).good(Good::Low).against(Figure::median(alone))
    };
    let rate = |name: &str, rates| {
        row(name, "Mbit/s", rates).wanted(Wanted { of: report::Of::Ratio, ..Wanted::at_least(0.97) })
    };
    let streams =
        Table::new("a stream of FIFO 10 over a link of 100 Mbit/s, beside computation of nice 19 on every CPU")
            .columns("beside", "alone")
            .row(rate("TCP", tcp))
            .row(rate("UDP, 90 Mbit/s offered", udp))
            .row(row("UDP, lost", "%", losses));
    let streams = match theirs {
        _ if peer.is_err() => streams,
        [tcp, udp] => {
            streams.row(row("TCP, iperf3", "Mbit/s", tcp)).row(row("UDP, 90 Mbit/s offered, iperf3", "Mbit/s", udp))
        }
    };
    let computing = Table::new("the prime task (FIFO 50) beside a TCP stream").columns("beside", "alone");
    Ok((vec![streams, computing.row(row("time", "ms", primes))], peer.err()))
}

fn stream(args: &StreamArgs) -> Result<(), Failed> {
    let failed = Failed::process("tahti bench stream");
    set_scheduling(0, Scheduling { policy: CLASS, reset_on_fork: false })?;
    match (args.send, args.udp) {
        (false, false) => receive_tcp(),
        (false, true) => receive_udp(),
        (true, false) => send_tcp(),
        (true, true) => send_udp(),
    }
    .map_err(failed)
}

fn receive_tcp() -> std::io::Result<()> {
    let listener = TcpListener::bind((ADDRESSES[0], PORT))?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    let (mut room, mut bytes, begun) = (vec![0; 1 << 16], 0, mono_now());
    loop {
        match stream.read(&mut room)? {
            0 => break,
            got => bytes += got,
        }
    }
    println!("{bytes} {}", (mono_now() - begun).0);
    Ok(())
}

fn send_tcp() -> std::io::Result<()> {
    let mut stream = TcpStream::connect((ADDRESSES[0], PORT))?;
    let (block, mut bytes, end) = (vec![0xa5; 1 << 16], 0, mono_now() + SENDS);
    while mono_now() < end {
        bytes += stream.write(&block)?;
    }
    println!("{bytes}");
    Ok(())
}

fn receive_udp() -> std::io::Result<()> {
    let socket = UdpSocket::bind((ADDRESSES[0], PORT))?;
    println!("ready");
    let (mut room, mut bytes, mut ends) = ([0; 2048], 0, None);
    socket.set_read_timeout(Some(FIRST))?;
    while let Ok(got) = socket.recv(&mut room) {
        let now = mono_now();
        let (first, _) = ends.unwrap_or((now, now));
        (bytes, ends) = (bytes + got, Some((first, now)));
        socket.set_read_timeout(Some(SILENCE))?;
    }
    let span = ends.map_or(DurNs(1), |(first, last)| last - first);
    println!("{bytes} {}", span.0);
    Ok(())
}

fn send_udp() -> std::io::Result<()> {
    let socket = UdpSocket::bind((ADDRESSES[1], 0))?;
    socket.connect((ADDRESSES[0], PORT))?;
    let each = DurNs((DATAGRAM as f64 * 8e9 / OFFERED) as i64);
    let (block, mut bytes, begun) = ([0x5a; DATAGRAM], 0, mono_now());
    for nth in 0..SENDS.0 / each.0 {
        sleep_until(begun + DurNs(each.0 * nth));
        bytes += socket.send(&block)?;
    }
    println!("{bytes}");
    Ok(())
}

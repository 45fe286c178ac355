//! A link of limited rate between two temporary network namespaces, and streams over it.

use super::computation::Computation;
use super::setting::{Ground, Setting};
use super::{REAL_TIME, iperf3, primes};
use crate::failed::joined;
use crate::measure::{Gate, TaskPlacement, installed, own_program};
use crate::wire::{ADDRESSES, Wire};
use crate::{Failed, Helper, read};
use base::{DurNs, Policy, Priority};
use clap::Args as _;
use report::{Figure, Good, Row, Table, Target};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Child;
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_scheduling};

/// One end of a stream.
pub(crate) const STREAM: Helper =
    Helper { name: "stream", arguments: StreamArgs::augment_args, run: |matches| stream(&read(matches)?) };

/// An end's command line.
#[derive(clap::Args)]
struct StreamArgs {
    /// Send to the other end; without it, receive
    #[arg(long)]
    send: bool,
    #[arg(long)]
    udp: bool,
    #[arg(long)]
    class: Policy,
    /// Rate of the datagrams in Mbit/s
    #[arg(long, default_value_t = 1)]
    offered: u32,
}

const PORT: u16 = 5201;
/// Sending time of each run.
const SENDS: DurNs = DurNs::from_ms(300);
/// Rate of the datagrams: slightly below that of the link, in percent.
const OFFERED_PERCENT: u32 = 90;
/// Burst of the link's filter in kbit for each Mbit/s: more than a packet at any rate.
const BURST: f64 = 0.32;
const DATAGRAM: usize = 1400;
/// Idle time after which a receiver ends.
const SILENCE: Duration = Duration::from_millis(200);
/// Timeout of the first data.
const FIRST: Duration = Duration::from_secs(10);
/// The stream's real-time class: above all computing tasks.
pub(super) const CLASS: Policy = Policy::Fifo(Priority(10));

/// The two namespaces with their link.
struct Link {
    wire: Wire,
    /// Rate of the datagrams in Mbit/s.
    offered: u32,
}

impl Link {
    fn make(mbit: u32) -> Result<Self, Failed> {
        let wire = Wire::make()?;
        let burst = (f64::from(mbit) * BURST).max(32.0);
        let limit = format!("qdisc add dev wire root tbf rate {mbit}mbit burst {burst:.0}kbit latency 20ms");
        for end in 0..2 {
            wire.tool(end, "tc", &limit)?;
        }
        Ok(Self { wire, offered: (mbit * OFFERED_PERCENT / 100).max(1) })
    }

    fn end(&self, which: usize, place: &TaskPlacement, words: &[&str]) -> Result<Gate, Failed> {
        let program = own_program()?.display().to_string();
        let own = [&program, "bench", "stream"].into_iter().chain(words.iter().copied()).map(str::to_owned);
        let command: Vec<String> = self.wire.words(which).into_iter().chain(own).collect();
        Gate::start(&command, place, None)
    }

    /// One run: received Mbit/s, and the lost share of the sent data, in percent.
    fn run(&self, place: &TaskPlacement, class: Policy, udp: bool) -> Result<(f64, f64), Failed> {
        let class = format!("--class={class}");
        let offered = format!("--offered={}", self.offered);
        let kind = if udp { vec![class.as_str(), "--udp", &offered] } else { vec![class.as_str()] };
        let mut receiver = self.end(0, place, &kind)?;
        receiver.ready()?;
        let sender = self.end(1, place, &[&kind[..], &["--send"]].concat())?;
        let sent = sender.output()?;
        let came = receiver.output()?;
        let numbers: Option<Vec<f64>> = came.split_whitespace().map(|word| word.parse().ok()).collect();
        let (Some([bytes, ns]), Ok(sent)) = (numbers.as_deref(), sent.trim().parse::<f64>()) else {
            return Err(Failed::answer("a stream", "numbers", format!("{came:?} and {sent:?}")));
        };
        Ok((bytes * 8e3 / ns.max(1.0), 100.0 * (1.0 - bytes / sent.max(1.0)).max(0.0)))
    }
}

/// A process, ended on drop.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Results of the stream in a setting, alone and under interference.
#[derive(Default)]
struct Streams {
    tcp: [Vec<f64>; 2],
    udp: [Vec<f64>; 2],
    lost: [Vec<f64>; 2],
}

/// Minimum bandwidth under interference, as a share of that alone.
const KEPT: f64 = 0.98;

/// Streams alone and under interference, alternating, in each setting; and the prime task alone and with a stream.
pub(super) fn measure(
    (mbit, rounds): (u32, usize),
    ground: &mut Ground<'_>,
    settings: &[Setting],
    below: u32,
    mut next: impl FnMut() -> Result<(), Failed>,
) -> Result<(Vec<Table>, Option<Failed>), Failed> {
    let link = Link::make(mbit)?;
    let mut all: Vec<(Setting, Streams)> = settings.iter().map(|setting| (*setting, Streams::default())).collect();
    let (peer, mut theirs) = (installed("iperf3", "--version", "iperf3"), Streams::default());
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        next()?;
        for (setting, found) in &mut all {
            ground.enter(*setting)?;
            let (place, class) = (ground.place(), setting.class(CLASS));
            for (loaded, percent) in [0, 100].into_iter().enumerate() {
                let _computation = Computation::start(ground, *setting, percent)?;
                found.tcp[loaded].push(link.run(&place, class, false)?.0);
                let (rate, lost) = link.run(&place, class, true)?;
                found.udp[loaded].push(rate);
                found.lost[loaded].push(lost);
                if *setting == Setting::Priorities && peer.is_ok() {
                    theirs.tcp[loaded].push(iperf3::run(&link.wire, ADDRESSES[0], link.offered, false)?);
                    theirs.udp[loaded].push(iperf3::run(&link.wire, ADDRESSES[0], link.offered, true)?);
                }
            }
            if *setting == Setting::Priorities {
                times[0].push(primes::take(ground.cpu, REAL_TIME, below)?);
                times[1].push(with_stream(&link, ground, below)?);
            }
        }
        ground.leave()?;
    }
    let row = |name: String, unit: &str, [alone, loaded]: [Vec<f64>; 2]| {
        Row::samples(name, unit, loaded).good(Good::Low).against(Figure::median(alone))
    };
    let mut streams = Table::new(format!("a stream over a link of {mbit} Mbit/s, under 100 % interference"))
        .columns("loaded", "alone");
    let datagrams = format!("UDP, {} Mbit/s offered", link.offered);
    for (setting, found) in all {
        let word = setting.word();
        streams.notes.extend(runs(word, &found.tcp));
        for (kind, rates) in [("TCP", found.tcp), (&datagrams, found.udp)] {
            let row = row(format!("{kind}, {word}"), "Mbit/s", rates).good(Good::High);
            streams = streams.row(match setting {
                Setting::Plain => row,
                _ => row.target(Target { of: report::TargetSubject::Ratio, ..Target::at_least(KEPT) }),
            });
        }
        streams = streams.row(row(format!("UDP, lost, {word}"), "%", found.lost));
    }
    if !theirs.tcp[0].is_empty() {
        let word = Setting::Priorities.word();
        for (kind, rates) in [("TCP", theirs.tcp), (&datagrams, theirs.udp)] {
            streams = streams.row(row(format!("{kind}, {word}, iperf3"), "Mbit/s", rates).good(Good::High));
        }
    }
    let mut tables = vec![streams];
    if !times[0].is_empty() {
        let table = Table::new("the prime task (FIFO 50) with a TCP stream").columns("with stream", "alone");
        tables.push(table.row(row("time".into(), "ms", times)));
    }
    Ok((tables, peer.err()))
}

/// The TCP bandwidth of each run, as the published diagram shows it.
fn runs(setting: &str, [alone, loaded]: &[Vec<f64>; 2]) -> [String; 2] {
    let line = |name: &str, rates: &[f64]| {
        let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        format!("TCP, {setting}, {name}, each run [Mbit/s]: {}", each.join(" "))
    };
    [line("alone", alone), line("loaded", loaded)]
}

/// Time of the prime task during a stream.
fn with_stream(link: &Link, ground: &Ground<'_>, below: u32) -> Result<f64, Failed> {
    let (place, cpu) = (ground.place(), ground.cpu);
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| link.run(&place, CLASS, false));
        // The stream has started, and lasts longer than the task.
        sleep_until(mono_now() + DurNs(SENDS.0 / 3));
        let took = primes::take(cpu, REAL_TIME, below);
        joined(stream.join())?;
        took
    })
}

fn stream(args: &StreamArgs) -> Result<(), Failed> {
    let failed = Failed::process("tahti bench stream");
    set_scheduling(0, Scheduling { policy: args.class, reset_on_fork: false })?;
    match (args.send, args.udp) {
        (false, false) => receive_tcp(),
        (false, true) => receive_udp(),
        (true, false) => send_tcp(),
        (true, true) => send_udp(args.offered),
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

fn send_udp(offered_mbit: u32) -> std::io::Result<()> {
    let socket = UdpSocket::bind((ADDRESSES[1], 0))?;
    socket.connect((ADDRESSES[0], PORT))?;
    let each = DurNs((DATAGRAM as f64 * 8e3 / f64::from(offered_mbit.max(1))) as i64);
    let (block, mut bytes, begun) = ([0x5a; DATAGRAM], 0, mono_now());
    for nth in 0..SENDS.0 / each.0 {
        sleep_until(begun + DurNs(each.0 * nth));
        bytes += match socket.send(&block) {
            // Delayed so long that the receiver has ended: sent, and lost.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => DATAGRAM,
            sent => sent?,
        };
    }
    println!("{bytes}");
    Ok(())
}

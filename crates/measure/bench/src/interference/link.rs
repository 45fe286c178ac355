//! A link of limited rate between two temporary network namespaces, and streams over it.

use super::computation::Computation;
use super::setting::{Ground, Setting};
use super::{REAL_TIME, iperf3, primes};
use crate::failed::joined;
use crate::measure::{Gate, TaskPlacement, installed, own_program};
use crate::wire::{ADDRESSES, ADDRESSES_V6, Wire};
use crate::{Failed, Helper, read};
use base::{DurNs, MonoNs, Policy, Priority};
use clap::Args as _;
use report::{Figure, Good, Row, Table, Target};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
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
    #[arg(long, value_enum)]
    protocol: Protocol,
    /// Address of the receiver
    #[arg(long)]
    to: IpAddr,
    #[arg(long)]
    class: Policy,
    /// Rate of the datagrams in Mbit/s
    #[arg(long, default_value_t = 1)]
    offered: u32,
}

/// The protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
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

/// Time after which a datagram is late.
const DEADLINE: DurNs = DurNs::from_ms(1);

/// The two namespaces with their link.
pub(super) struct Link {
    wire: Wire,
    mbit: u32,
    /// Rate of the datagrams in Mbit/s.
    offered: u32,
    /// Address of the receiver.
    to: &'static str,
}

/// One run of a stream.
struct Run {
    /// Received Mbit/s.
    mbit: f64,
    /// Lost share of the sent data, in percent.
    lost: f64,
    /// Share that was lost or late, in percent.
    missed: f64,
}

impl Link {
    pub(super) fn make(args: &super::Args) -> Result<Self, Failed> {
        let mbit = args.link;
        let wire = match args.between.as_deref() {
            Some([a, b]) => Wire::between([a.clone(), b.clone()])?,
            _ => {
                let wire = Wire::make()?;
                let burst = (f64::from(mbit) * BURST).max(32.0);
                let limit = format!("qdisc add dev wire root tbf rate {mbit}mbit burst {burst:.0}kbit latency 20ms");
                (0..2).try_for_each(|end| wire.tool(end, "tc", &limit))?;
                wire
            }
        };
        if args.ipv6 {
            wire.add_ipv6()?;
        }
        let to = if args.ipv6 { ADDRESSES_V6[0] } else { ADDRESSES[0] };
        Ok(Self { wire, mbit, offered: (mbit * OFFERED_PERCENT / 100).max(1), to })
    }

    /// The end of the title of its table. That of the usual link is empty.
    fn kind(&self) -> String {
        let interfaces = if self.wire.is_lent() { " between real interfaces" } else { "" };
        let family = if self.to == ADDRESSES_V6[0] { ", IPv6" } else { "" };
        format!("{interfaces}{family}")
    }

    fn end(&self, which: usize, place: &TaskPlacement, words: &[&str]) -> Result<Gate, Failed> {
        let program = own_program()?.display().to_string();
        let own = [&program, "bench", "stream"].into_iter().chain(words.iter().copied()).map(str::to_owned);
        let command: Vec<String> = self.wire.words(which).into_iter().chain(own).collect();
        Gate::start(&command, place, None)
    }

    fn run(&self, place: &TaskPlacement, class: Policy, protocol: Protocol) -> Result<Run, Failed> {
        let class = format!("--class={class}");
        let offered = format!("--offered={}", self.offered);
        let kind = [&class, "--protocol", protocol.word(), "--to", self.to, &offered];
        let mut receiver = self.end(0, place, &kind)?;
        receiver.ready()?;
        let sender = self.end(1, place, &[&kind[..], &["--send"]].concat())?;
        let sent = sender.output()?;
        let came = receiver.output()?;
        let numbers: Option<Vec<f64>> = came.split_whitespace().map(|word| word.parse().ok()).collect();
        let (Some([bytes, ns, in_time]), Ok(sent)) = (numbers.as_deref(), sent.trim().parse::<f64>()) else {
            return Err(Failed::answer("a stream", "numbers", format!("{came:?} and {sent:?}")));
        };
        let without = |part: &f64| 100.0 * (1.0 - part / sent.max(1.0)).max(0.0);
        Ok(Run { mbit: bytes * 8e3 / ns.max(1.0), lost: without(bytes), missed: without(in_time) })
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
    sctp: [Vec<f64>; 2],
    lost: [Vec<f64>; 2],
    missed: [Vec<f64>; 2],
}

/// Minimum bandwidth under interference, as a share of that alone.
const KEPT: f64 = 0.98;

/// Streams alone and under interference, alternating, in each setting; and the prime task alone and with a stream.
pub(super) fn measure(
    (link, rounds): (&Link, usize),
    ground: &mut Ground<'_>,
    settings: &[Setting],
    below: u32,
    mut next: impl FnMut() -> Result<(), Failed>,
) -> Result<(Vec<Table>, Option<Failed>), Failed> {
    let sctp = has_sctp();
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
                found.tcp[loaded].push(link.run(&place, class, Protocol::Tcp)?.mbit);
                if sctp {
                    found.sctp[loaded].push(link.run(&place, class, Protocol::Sctp)?.mbit);
                }
                let datagrams = link.run(&place, class, Protocol::Udp)?;
                found.udp[loaded].push(datagrams.mbit);
                found.lost[loaded].push(datagrams.lost);
                found.missed[loaded].push(datagrams.missed);
                if *setting == Setting::Priorities && peer.is_ok() {
                    theirs.tcp[loaded].push(iperf3::run(&link.wire, link.to, link.offered, false)?);
                    theirs.udp[loaded].push(iperf3::run(&link.wire, link.to, link.offered, true)?);
                }
            }
            if *setting == Setting::Priorities {
                times[0].push(primes::take(ground.cpu, REAL_TIME, below)?);
                times[1].push(with_stream(link, ground, below)?);
            }
        }
        ground.leave()?;
    }
    let row = |name: String, unit: &str, [alone, loaded]: [Vec<f64>; 2]| {
        Row::samples(name, unit, loaded).good(Good::Low).against(Figure::median(alone))
    };
    let title = format!("a stream over a link of {} Mbit/s{}, under 100 % interference", link.mbit, link.kind());
    let mut streams = Table::new(title).columns("loaded", "alone");
    streams.notes.extend((!sctp).then(|| "SCTP: the kernel has no SCTP".to_owned()));
    let datagrams = format!("UDP, {} Mbit/s offered", link.offered);
    for (setting, found) in all {
        let word = setting.word();
        streams.notes.extend(runs(word, &found.tcp));
        let kinds = [("TCP", found.tcp), ("SCTP", found.sctp), (&datagrams, found.udp)];
        for (kind, rates) in kinds.into_iter().filter(|(_, rates)| !rates[0].is_empty()) {
            let row = row(format!("{kind}, {word}"), "Mbit/s", rates).good(Good::High);
            streams = streams.row(match setting {
                Setting::Plain => row,
                _ => row.target(Target { of: report::TargetSubject::Ratio, ..Target::at_least(KEPT) }),
            });
        }
        streams = streams.row(row(format!("UDP, lost, {word}"), "%", found.lost));
        streams = streams.row(row(format!("UDP, deadline of {DEADLINE} missed, {word}"), "%", found.missed));
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
        let stream = scope.spawn(|| link.run(&place, CLASS, Protocol::Tcp));
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
    let to = SocketAddr::new(args.to, PORT);
    match (args.send, args.protocol) {
        (false, Protocol::Udp) => receive_datagrams(to),
        (false, kind) => receive_stream(to, kind),
        (true, Protocol::Udp) => send_datagrams(to, args.offered),
        (true, kind) => send_stream(to, kind),
    }
    .map_err(failed)
}

/// Whether the kernel has SCTP.
fn has_sctp() -> bool {
    socket(SocketAddr::from(([127, 0, 0, 1], 0)), Protocol::Sctp).is_ok()
}

/// A stream socket of a protocol other than UDP.
fn socket(to: SocketAddr, protocol: Protocol) -> std::io::Result<OwnedFd> {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = (protocol == Protocol::Sctp).then_some(ipproto::SCTP);
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, protocol)?)
}

fn receive_stream(at: SocketAddr, protocol: Protocol) -> std::io::Result<()> {
    let listener = socket(at, protocol)?;
    rustix::net::sockopt::set_socket_reuseaddr(&listener, true)?;
    rustix::net::bind(&listener, &at)?;
    rustix::net::listen(&listener, 1)?;
    println!("ready");
    let (mut stream, _) = TcpListener::from(listener).accept()?;
    let (mut room, mut bytes, begun) = (vec![0; 1 << 16], 0, mono_now());
    loop {
        match stream.read(&mut room)? {
            0 => break,
            got => bytes += got,
        }
    }
    println!("{bytes} {} {bytes}", (mono_now() - begun).0);
    Ok(())
}

fn send_stream(to: SocketAddr, protocol: Protocol) -> std::io::Result<()> {
    let socket = socket(to, protocol)?;
    rustix::net::connect(&socket, &to)?;
    let mut stream = TcpStream::from(socket);
    let (block, mut bytes, end) = (vec![0xa5; 1 << 16], 0, mono_now() + SENDS);
    while mono_now() < end {
        bytes += stream.write(&block)?;
    }
    println!("{bytes}");
    Ok(())
}

/// Prints the received bytes, the time between the first and the last, and the bytes that met their deadline.
fn receive_datagrams(at: SocketAddr) -> std::io::Result<()> {
    let socket = UdpSocket::bind(at)?;
    println!("ready");
    let (mut room, mut bytes, mut in_time, mut ends) = ([0; 2048], 0, 0, None);
    socket.set_read_timeout(Some(FIRST))?;
    while let Ok(got) = socket.recv(&mut room) {
        let now = mono_now();
        let (first, _) = ends.unwrap_or((now, now));
        (bytes, ends) = (bytes + got, Some((first, now)));
        // Both ends have the same clock.
        let due = room.first_chunk().map_or(0, |due| u64::from_le_bytes(*due));
        in_time += if now - MonoNs(due) <= DEADLINE { got } else { 0 };
        socket.set_read_timeout(Some(SILENCE))?;
    }
    let span = ends.map_or(DurNs(1), |(first, last)| last - first);
    println!("{bytes} {} {in_time}", span.0);
    Ok(())
}

fn send_datagrams(to: SocketAddr, offered_mbit: u32) -> std::io::Result<()> {
    let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let each = DurNs((DATAGRAM as f64 * 8e3 / f64::from(offered_mbit.max(1))) as i64);
    let (mut block, mut bytes, begun) = ([0x5a; DATAGRAM], 0, mono_now());
    for nth in 0..SENDS.0 / each.0 {
        let due = begun + DurNs(each.0 * nth);
        sleep_until(due);
        block[..8].copy_from_slice(&due.0.to_le_bytes());
        bytes += match socket.send(&block) {
            // Delayed so long that the receiver has ended: sent, and lost.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => DATAGRAM,
            sent => sent?,
        };
    }
    println!("{bytes}");
    Ok(())
}

//! `tahti bench ao`: a whole frame of adaptive optics, from pixels in a socket to the command, on one CPU and on two.

use crate::failed::joined;
use crate::measure::settle;
use crate::{Bench, BenchResult, Failed, Progress, read};
use adaptive::{Calibrated, Chosen, Control, Desk, Input, Pixels, Shown, Spec, SpotWork, sender};
use base::{CpuId, CpuSet, DurNs, Policy};
use clap::{ArgMatches, Args as _};
use kernels::{Level, Light};
use optics::gvsp::{Content, HEADER, Packet};
use optics::{Geometry, Settings, Sky, Stored, Telescope};
use report::{Figure, Good, Latency, Row, Table, Target};
use rt::team::TeamSpec;
use rt::{EventLoop as _, Flow, Pulse, Source, Wait};
use std::net::UdpSocket;
use sys::clock::{mono_now, thread_cpu};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "ao",
    experiment: "an adaptive-optics computer: pixels to commands, on one CPU and on two",
    arguments: Args::augment_args,
    run,
    target: "a frame of 40 x 40 sub-apertures and 1,332 actuators in at most 200 us on one CPU, 110 us on two; p99.9 at most 1.1 times the \
             median, without the host's share",
    quick: &["--frames", "300"],
    shields: false,
};

/// A whole frame of adaptive optics: pixels from a socket, spots, reconstructor, command, on one CPU and on two
///
/// Replays frames of a simulated telescope through the loopback on the measuring thread. When a frame's time begins, all its datagrams are in the
/// socket: no other CPU is needed, and no detector delays it. The time ends when the command has been sent. A frame's own time is the CPU time
/// of its thread until the end of the cycle, without time that a hypervisor took.
#[derive(clap::Args)]
struct Args {
    /// Frames of each measurement
    #[arg(long, default_value_t = 5000)]
    frames: u64,
    /// Number of sub-apertures across the pupil
    #[arg(long, default_value_t = 40)]
    across: usize,
    /// CPUs to measure on, the loop's first [default: all of this process]
    #[arg(long)]
    cpus: Option<CpuSet>,
    /// Scheduling class of the threads [default: this program's]
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
}

/// Number of different frames.
const REPLAYED: usize = 8;
/// Frames of one piece; cases alternate because the machine's speed changes within seconds.
const PIECE: u64 = 100;
/// Unmeasured frames at the start of a piece, which fill caches and wake workers.
const WARM: u64 = 20;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let ours = sys::sched::affinity(0)?;
    let cpus = args.cpus.unwrap_or(ours);
    if cpus.is_empty() || !cpus.is_subset(&ours) {
        return Err(Failed::argument(format!("--cpus {cpus}"), format!("CPUs that this process may use ({ours})")));
    }
    if args.frames == 0 {
        return Err(Failed::argument("--frames 0", "1 or more"));
    }
    let geometry = Geometry::new(args.across)
        .map_err(|error| Failed::argument(format!("--across {}", args.across), error.to_string()))?;
    let cpus: Vec<CpuId> = cpus.iter().collect();
    let datagrams = record(&geometry);
    let mut found = BenchResult::default();
    let class = args.class.map_or("this program's".into(), |class| class.to_string());
    found.setup.push(format!(
        "{} frames, class {class}, {}, reconstructor of {:.1} MB in 8 bits, {:.1} MB in half precision, datagrams of {} bytes",
        args.frames,
        Level::best(),
        bytes(&geometry, Stored::Byte) as f64 * 1e-6,
        bytes(&geometry, Stored::Half) as f64 * 1e-6,
        geometry.row_bytes() + HEADER,
    ));
    let title = format!(
        "a frame of {0} x {0} sub-apertures, {1} slopes, {2} actuators, from pixels in the socket to the command",
        args.across,
        2 * geometry.apertures().len(),
        geometry.actuators().len()
    );
    let last = "from the last received rows to the end of the cycle";
    let (mut whole, mut last) = (Table::new(title), Table::new(last));
    let mut own = Table::new("own time: without time that a hypervisor took, with the rest of the cycle");
    let mut medians = Table::new("targets");
    let mut tails = Table::new("p99.9 / median of own times").columns("a frame", "reading alone");
    let mut spreads = Vec::new();
    let mut within = Table::new("parts of a frame, on one CPU");
    let mut pieces = Table::new(format!("medians of pieces of {PIECE} frames, all cases alternating"));
    let cases = Case::all(cpus.len());
    // On a separate thread: CPUs and class of this one do not change.
    let measured = || replayed(&args, &geometry, &cpus, &cases, &datagrams, progress);
    let (measured, alone) = std::thread::scope(|scope| joined(scope.spawn(measured).join()))?;
    if cpus.len() > 1 {
        found.tables.push(compared(args.across, &cases, &measured));
    }
    for (case, Times { frames, rest, owns }) in cases.into_iter().zip(measured) {
        let (Case { many, stored, .. }, name) = (case, case.name());
        let row = Row::reference(&name, Latency::of_times(&mut frames.concat()));
        if args.across == 40 && stored == Stored::default() && case.spots == SpotWork::default() {
            let limit = if many == 1 { 200.0 } else { 110.0 };
            let median = row
                .latency
                .as_ref()
                .and_then(|latency| latency.percentile(50.0))
                .map_or(f64::NAN, |at| at.ns as f64 * 1e-3);
            let name = format!("a whole frame, median, {name}");
            medians = medians.row(Row::figure(name, "us", median).good(Good::Low).target(Target::at_most(limit)));
        }
        whole = whole.row(row);
        pieces = pieces.row(Row::reference(&name, Latency::of_times(&mut of_pieces(&frames))));
        let row = Row::reference(&name, Latency::of_times(&mut owns.concat()));
        spreads.push((name.clone(), stored, spread(&row)));
        own = own.row(row);
        last = last.row(Row::reference(&name, Latency::of_times(&mut rest.concat())));
    }
    let mut reading = Vec::new();
    for (name, times) in alone {
        let row = Row::reference(&name, Latency::of_times(&mut times.concat()));
        reading.push(spread(&row));
        within = within.row(row);
        pieces = pieces.row(Row::reference(name, Latency::of_times(&mut of_pieces(&times))));
    }
    for (name, stored, spread) in spreads {
        // After the datagrams', in the order of sizes.
        let alone = reading.get(if stored == Stored::Byte { 1 } else { 2 }).copied().unwrap_or(f64::NAN);
        let row = Row::figure(name, "times", spread).good(Good::Low).against(Figure::median(vec![alone]));
        tails = tails.row(if stored == Stored::default() { row.target(Target::at_most(1.1)) } else { row });
    }
    if cpus.len() == 1 {
        found.notes.push("two CPUs: not measured, this process has one (--cpus)".into());
    }
    if cpus.len() > 1 {
        found.tables.push(moved(&geometry));
    }
    found.notes.push("without detector and network card, which add to these times".into());
    found.tables.extend([whole, pieces, own, within, last, tails]);
    if !medians.rows.is_empty() {
        found.tables.push(medians);
    }
    Ok(found)
}

/// A case of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    /// Number of CPUs.
    many: usize,
    stored: Stored,
    spots: SpotWork,
}

impl Case {
    /// The cases on at most two of `cpus` CPUs.
    fn all(cpus: usize) -> Vec<Self> {
        let usual =
            |many| [Stored::Byte, Stored::Half].map(move |stored| Self { many, stored, spots: SpotWork::default() });
        let alone = (cpus > 1).then_some(Self { many: 2, stored: Stored::default(), spots: SpotWork::Leader });
        (1..=cpus.min(2)).flat_map(usual).chain(alone).collect()
    }

    fn name(&self) -> String {
        let spots = if self.spots == SpotWork::Leader { ", spots by the loop's CPU alone" } else { "" };
        format!("{}, {}{spots}", if self.many == 1 { "one CPU" } else { "two CPUs" }, words(self.stored))
    }
}

/// Whether two CPUs are faster than one: the medians of the pieces, which alternate.
fn compared(across: usize, cases: &[Case], measured: &[Times]) -> Table {
    let medians = |times: &Times| of_pieces(&times.frames).into_iter().map(|ns| ns as f64 * 1e-3).collect::<Vec<_>>();
    let mut table = Table::new("two CPUs compared with one: medians of the pieces").columns("two CPUs", "one CPU");
    for (case, times) in cases.iter().zip(measured).filter(|(case, _)| case.many == 2) {
        let one = cases.iter().position(|other| other.many == 1 && other.stored == case.stored);
        let other = one.and_then(|place| Figure::median(medians(&measured[place])));
        let row = Row::samples(case.name(), "us", medians(times)).good(Good::Low).against(other);
        // Distributing a small telescope's frame takes longer than its work.
        table = table.row(if across == 40 { row.target(Target::ratio_at_most(1.0)) } else { row });
    }
    table
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Cache lines that a frame moves between two CPUs by the two ways to find the spots, computed from its layout.
fn moved(geometry: &Geometry) -> Table {
    let bytes_of = |floats: usize| floats * size_of::<f32>();
    let lines = |bytes: usize| bytes.div_ceil(LINE);
    // The second CPU has half of the rows, and seven of 13 parts of the actuators.
    let rows = geometry.across() / 2..geometry.across();
    let slopes: usize = rows.clone().map(|row| optics::slopes_of(geometry, row).len()).sum();
    let error = lines(bytes_of(geometry.actuators().len() * 7 / 13));
    let all = lines(bytes_of(2 * geometry.apertures().len()));
    let shared = [("pixels", rows.len() * lines(geometry.row_bytes())), ("slopes", lines(bytes_of(slopes)) + all)];
    let alone = [("pixels", 0), ("slopes", all)];
    let mut table = Table::new("cache lines that move between two CPUs in a frame, computed from its layout")
        .columns("spots by both", "spots by the loop's CPU");
    let both = shared
        .iter()
        .zip(&alone)
        .map(|(shared, alone)| (shared.0, shared.1, alone.1))
        .chain([("errors", error, error)]);
    for (name, shared, alone) in both {
        table = table.row(Row::figure(name, "lines", shared as f64).against(Figure::once(alone as f64)));
    }
    table
}

/// p99.9 divided by the median.
fn spread(row: &Row) -> f64 {
    let at = |percent| row.latency.as_ref().and_then(|latency| latency.percentile(percent)).map(|at| at.ns as f64);
    at(99.9).zip(at(50.0)).map_or(f64::NAN, |(tail, median)| tail / median)
}

/// The rows of frames as datagrams.
fn record(geometry: &Geometry) -> Vec<Vec<Vec<u8>>> {
    let mut telescope = Telescope::new(geometry.clone(), Sky { frames: REPLAYED, ..Sky::default() });
    let mut row = vec![0; geometry.row_bytes()];
    let mut frame = || {
        telescope.expose();
        let datagram = |index| {
            telescope.row(index, &mut row);
            let mut packet = vec![0; geometry.row_bytes() + HEADER];
            let content = Content::Payload { index: index as u32, pixels: &row };
            Packet { block: 0, content }.write(&mut packet).expect("room for header and row");
            packet
        };
        (0..geometry.across()).map(datagram).collect()
    };
    (0..REPLAYED).map(|_| frame()).collect()
}

fn words(stored: Stored) -> &'static str {
    match stored {
        Stored::Byte => "8 bits",
        Stored::Half => "half precision",
        Stored::Single => "single precision",
    }
}

/// Bytes of a reconstructor, without its scales.
fn bytes(geometry: &Geometry, stored: Stored) -> usize {
    let each = match stored {
        Stored::Byte => 1,
        Stored::Half => 2,
        Stored::Single => 4,
    };
    geometry.actuators().len() * 2 * geometry.apertures().len() * each
}

/// The socket of a frame's pixels, and its sender.
fn opened(geometry: &Geometry) -> Result<(Pixels, UdpSocket), Failed> {
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let wait = Wait::Both { spin: DurNs::from_us(50) };
    let input = Input::open(local, None, geometry, DurNs::from_ms(100))?;
    let to = sender(input.address().map_err(Failed::Socket)?)?;
    Ok((Pixels::new(input, geometry, 0, wait), to))
}

/// Nanoseconds of each frame, piece by piece.
#[derive(Default)]
struct Times {
    /// The whole frame, until its command was sent.
    frames: Vec<Vec<u64>>,
    /// From its last rows to the end of the cycle.
    rest: Vec<Vec<u64>>,
    /// Its own time.
    owns: Vec<Vec<u64>>,
}

/// The median of each piece.
fn of_pieces(pieces: &[Vec<u64>]) -> Vec<u64> {
    let median = |piece: &Vec<u64>| {
        let mut piece = piece.clone();
        piece.sort_unstable();
        piece.get(piece.len() / 2).copied()
    };
    pieces.iter().filter_map(median).collect()
}

/// Lower bounds of a frame by name, piece by piece.
type Alone = Vec<(String, Vec<Vec<u64>>)>;

/// All cases and their lower bounds, in alternating pieces, on the first of the CPUs.
fn replayed(
    args: &Args,
    geometry: &Geometry,
    cpus: &[CpuId],
    cases: &[Case],
    datagrams: &[Vec<Vec<u8>>],
    progress: &mut Progress,
) -> Result<(Vec<Times>, Alone), Failed> {
    settle(cpus[0], args.class)?;
    let replay = |case: &Case| Replay::new(args, geometry, &cpus[..case.many], *case);
    let mut all = cases.iter().map(replay).collect::<Result<Vec<_>, Failed>>()?;
    let (mut pixels, to) = opened(geometry)?;
    let memory = |stored| {
        let mut memory = vec![0.5f32; bytes(geometry, stored).div_ceil(4)];
        sys::mem::on_huge_pages(&mut memory);
        (format!("reading as many bytes as the reconstructor has in {}", words(stored)), memory)
    };
    let memories = [Stored::Byte, Stored::Half].map(memory);
    let mut taken = Vec::new();
    let mut read = memories.each_ref().map(|_| Vec::new());
    for first in (0..args.frames).step_by(PIECE as usize) {
        progress.at(first as usize, args.frames as usize, "frames replayed");
        let piece = PIECE.min(args.frames - first);
        all.iter_mut().try_for_each(|replay| replay.piece(datagrams, piece))?;
        let mut times = Vec::new();
        for number in 0..WARM + piece {
            for datagram in &datagrams[number as usize % REPLAYED] {
                to.send(datagram).map_err(Failed::Socket)?;
            }
            let begun = mono_now();
            pixels.discard();
            if number >= WARM {
                times.push((mono_now() - begun).0 as u64);
            }
        }
        taken.push(times);
        for ((_, memory), read) in memories.iter().zip(&mut read) {
            let once = |_| {
                let begun = thread_cpu();
                std::hint::black_box(kernels::read(Level::best(), std::hint::black_box(memory), true));
                (thread_cpu().0 - begun.0) as u64
            };
            read.push((0..WARM + piece).map(once).skip(WARM as usize).collect::<Vec<_>>());
        }
    }
    let mut alone = vec![("receiving its datagrams only".to_owned(), taken)];
    alone.extend(memories.into_iter().map(|(name, _)| name).zip(read));
    Ok((all.into_iter().map(|replay| replay.times).collect(), alone))
}

/// The loop that receives the replayed frames.
struct Replay {
    control: Control,
    _desk: Desk,
    /// The sender of its pixels, and the receiver of its commands.
    to: UdpSocket,
    mirror: UdpSocket,
    /// The number of the newest frame.
    number: u64,
    packet: Vec<u8>,
    command: Vec<u8>,
    times: Times,
}

impl Replay {
    /// On the first of these CPUs, the one of this thread.
    fn new(args: &Args, geometry: &Geometry, cpus: &[CpuId], case: Case) -> Result<Self, Failed> {
        let spec = Spec {
            geometry: geometry.clone(),
            period: DurNs::from_ms(1),
            level: Level::best(),
            light: Light { threshold: 15.0, flux_min: 300.0 },
            stroke: 4000.0,
            regularise: 3e-3,
            stored: case.stored,
            spots: case.spots,
            begun: Settings { closed: true, gain: 0.5, leak: 0.99 },
        };
        let (pixels, to) = opened(geometry)?;
        let mirror = UdpSocket::bind("127.0.0.1:0").map_err(Failed::Socket)?;
        mirror.set_nonblocking(true).map_err(Failed::Socket)?;
        let commands = sender(mirror.local_addr().map_err(Failed::Socket)?)?;
        let count = geometry.width() * geometry.width();
        let (slopes, actuators) = (2 * geometry.apertures().len(), geometry.actuators().len());
        let calibrated = Calibrated {
            dark: vec![100.0; count],
            gain: vec![1.0; count],
            zeros: vec![0.0; slopes],
            // Small numbers of both signs for all elements.
            inverse: (0..actuators * slopes).map(|place| ((place * 7919) % 1001) as f32 * 1e-4 - 0.05).collect(),
            said: String::new(),
        };
        let name = format!("bench-ao-{}-{}-{:?}-{:?}", std::process::id(), cpus.len(), case.stored, case.spots);
        let chosen = Chosen::new(&Source::new(&name), spec.begun);
        let shown = Shown::open(&name, spec.period)?;
        let team = TeamSpec {
            class: args.class,
            leader: Some(cpus[0]),
            spin: DurNs::from_ms(10),
            ..TeamSpec::new("ao", cpus[1..].iter().map(|cpu| Some(*cpu)).collect())
        };
        let (mut control, _desk) = Control::new(&spec, team, pixels, commands, calibrated, chosen, shown, None)?;
        // The loop's first read discards earlier data: there must be none yet.
        let _ = control.await_event();
        let (packet, command) = (vec![0; geometry.row_bytes() + HEADER], vec![0; 1 << 16]);
        Ok(Self { control, _desk, to, mirror, number: 0, packet, command, times: Times::default() })
    }

    /// A piece of frames, after some unmeasured ones.
    fn piece(&mut self, datagrams: &[Vec<Vec<u8>>], frames: u64) -> Result<(), Failed> {
        let [mut all, mut rest, mut own] = [const { Vec::new() }; 3];
        for frame in 0..WARM + frames {
            let [frame_ns, rest_ns, own_ns] = self.frame(datagrams)?;
            if frame >= WARM {
                all.push(frame_ns);
                rest.push(rest_ns);
                own.push(own_ns);
            }
        }
        self.times.frames.push(all);
        self.times.rest.push(rest);
        self.times.owns.push(own);
        Ok(())
    }

    /// Nanoseconds of a frame: the whole, from its last rows, and its own time.
    fn frame(&mut self, datagrams: &[Vec<Vec<u8>>]) -> Result<[u64; 3], Failed> {
        self.number += 1;
        let number = self.number;
        // The block's number, then the pixels as they were.
        for datagram in &datagrams[number as usize % REPLAYED] {
            self.packet.copy_from_slice(datagram);
            self.packet[8..16].copy_from_slice(&number.to_be_bytes());
            self.to.send(&self.packet).map_err(Failed::Socket)?;
        }
        let burnt = thread_cpu();
        let begun = mono_now();
        let event = self.control.await_event();
        let woke = mono_now();
        let Some(event) = event else {
            let rows = datagrams[0].len();
            return Err(Failed::Answer {
                peer: "the loop".into(),
                found: format!("frame {number} without some rows"),
                expected: format!("all of its {rows} datagrams (net.core.rmem_max too small?)"),
            });
        };
        let pulse = Pulse { number: event.number, due: event.at, woke, skipped: 0, deadline: None };
        let flow = self.control.cycle(&pulse);
        let done = mono_now();
        let burnt = thread_cpu().0 - burnt.0;
        // After the command the cycle continues with figures for other programs.
        let sent = event.at.0 + (self.control.figures().latency_us * 1e3) as u64;
        if flow != Flow::Continue {
            return Err(Failed::Answer {
                peer: "the loop".into(),
                found: format!("{flow:?} after frame {number}"),
                expected: "to go on".into(),
            });
        }
        while self.mirror.recv(&mut self.command).is_ok() {}
        Ok([sent.saturating_sub(begun.0), (done - woke).0 as u64, burnt as u64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spots_move_more_cache_lines_between_two_cpus_than_their_slopes() {
        let rows = moved(&Geometry::new(40).unwrap()).rows;
        let all: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), [&row.ours, &row.other].map(|of| of.as_ref().unwrap().value)))
            .collect();
        // 20 rows of 8 lines of 320 pixels with 2 bytes; 2,480 slopes of 4 bytes, and half of them back; 717 of 1,332 actuators.
        assert_eq!(all, [("pixels", [1600.0, 0.0]), ("slopes", [233.0, 155.0]), ("errors", [45.0, 45.0])]);
    }

    #[test]
    fn frames_are_replayed_on_one_cpu_and_on_two_if_available() {
        let words = ["ao", "--across", "8", "--frames", "20"];
        let found = run(&BENCH.command().get_matches_from(words), &mut Progress::of("ao")).unwrap();
        let cpus = sys::sched::affinity(0).unwrap().count().min(2);
        let rows: Vec<usize> = found.tables.iter().map(|table| table.rows.len()).collect();
        // Two numbers of bits on each number of CPUs, and the spots by the loop's CPU alone.
        let expected: &[usize] = if cpus == 1 { &[2, 5, 2, 3, 2, 2] } else { &[3, 3, 5, 8, 5, 3, 5, 5] };
        assert_eq!(rows, expected);
        let whole = found.tables.iter().find(|table| table.title.starts_with("a frame of")).unwrap();
        assert!(whole.rows.iter().all(|row| row.latency.as_ref().is_some_and(|latency| latency.count == 20)));
        let refused = run(&BENCH.command().get_matches_from(["ao", "--across", "3"]), &mut Progress::of("ao"));
        assert!(refused.unwrap_err().to_string().contains("expected 4 to 128"));
    }
}

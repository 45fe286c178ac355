//! `tahti bench input`: a camera's datagrams from a socket and from a network card's queue.

use crate::failed::joined;
use crate::measure::{Interrupt, settle, usable};
use crate::wire::{ADDRESSES, Wire};
use crate::{Bench, BenchResult, Failed, Progress, read};
use adaptive::{Card, Input, sender};
use base::{CpuId, CpuSet, DurNs, MonoNs, Policy};
use clap::{ArgMatches, Args as _};
use optics::Geometry;
use optics::gvsp::{Content, HEADER, Packet};
use report::{Figure, Good, Latency, Row, Table, Target};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};
use sys::datagrams::Waits;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "input",
    experiment: "own: pixels by recvmmsg and by AF_XDP, sleeping and spinning",
    arguments: Args::augment_args,
    run,
    target: "a row takes less of the loop's CPU from a card's queue than from a socket",
    quick: &["--frames", "100", "--rounds", "2"],
    shields: false,
};

/// A camera's datagrams from a socket (recvmmsg) and from a network card's queue (AF_XDP): CPU time and latency
///
/// Creates two network namespaces with a wire between them, and removes them afterwards. A thread on one CPU sends a camera's rows; a thread on
/// another CPU receives them and writes them into an image. Socket and queue, sleeping and spinning, alternate. Needs root.
#[derive(clap::Args)]
struct Args {
    /// Frames of each method in each round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    frames: u64,
    /// Rounds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Sub-apertures across the pupil, which set the number of rows; each row is a datagram
    #[arg(long, default_value_t = 40)]
    across: usize,
    /// Frame period; the rows are sent during 60 % of it
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// CPUs of the camera and of the loop [default: the first two of this process]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Scheduling class of both threads [default: this program's]
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// Use two unused interfaces of this host, connected by a cable, instead of virtual ones; the second is the camera's. Afterwards they are
    /// down and without addresses
    #[arg(long, value_name = "IFACE", num_args = 2)]
    between: Option<Vec<String>>,
}

/// The UDP port of the rows.
const PORT: u16 = 51511;
/// A row that takes longer is lost.
const PATIENCE: DurNs = DurNs::from_ms(20);
/// The camera wakes up this long before a frame, in ns: rows follow each other faster than it could wake up.
const BEFORE: u64 = 100_000;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;

/// The receiving method and its waiting mode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReceivePath {
    queue: bool,
    waits: Waits,
}

impl ReceivePath {
    const ALL: [Self; 4] = {
        let [socket, queue] = [false, true];
        [
            Self { queue: socket, waits: Waits::ForOne },
            Self { queue, waits: Waits::ForOne },
            Self { queue: socket, waits: Waits::Not },
            Self { queue, waits: Waits::Not },
        ]
    };

    fn name(self) -> String {
        let by = if self.queue { "queue (AF_XDP)" } else { "socket (recvmmsg)" };
        format!("{by}, {}", if self.waits == Waits::Not { "spinning" } else { "sleeping" })
    }
}

/// Of one method: nanoseconds of each frame's last row, CPU time of each row, lost rows.
#[derive(Default)]
struct Streamed {
    last: Vec<u64>,
    burnt: Vec<f64>,
    lost: u64,
}

/// Nanoseconds for each row of waiting frames: sending, including the kernel's work; receiving and writing into the image.
#[derive(Default)]
struct Waited {
    sent: Vec<f64>,
    received: Vec<f64>,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let geometry = Geometry::new(args.across)
        .map_err(|error| Failed::argument(format!("--across {}", args.across), error.to_string()))?;
    if args.period < DurNs::from_us(100) || args.period > DurNs::from_secs(1) {
        return Err(Failed::argument(format!("--period {}", args.period), "100us to 1s"));
    }
    let ours = sys::sched::affinity(0)?;
    let cpus = args.cpus.unwrap_or(ours);
    let [Some(camera), Some(own)] = [0, 1].map(|nth| cpus.iter().nth(nth)) else {
        return Err(Failed::Needs("two CPUs: one for the camera, one for the receiver"));
    };
    usable(&cpus, &format!("--cpus {cpus}"))?;
    let interrupt = Interrupt::watch()?;
    let wire = match args.between.as_deref() {
        Some([a, b]) => Wire::between([a.clone(), b.clone()])?,
        _ => Wire::make()?,
    };
    wire.carry((geometry.row_bytes() + HEADER + HEADERS).max(1500))?;
    let bench = Ground { args: &args, geometry, wire: &wire, cpus: [camera, own] };
    let mut streamed: [Streamed; 4] = Default::default();
    let mut waited: [Waited; 2] = Default::default();
    let mut queue_mode = None;
    let steps = args.rounds as usize * 6;
    for round in 0..args.rounds as usize {
        interrupt.check()?;
        // The order alternates. Two spinning methods never follow each other, or real-time throttling would stop the second.
        let order = if round % 2 == 0 { [0, 2, 1, 3] } else { [1, 3, 0, 2] };
        for (nth, which) in order.into_iter().enumerate() {
            progress.at(round * 6 + nth, steps, "a camera's stream");
            bench.stream(ReceivePath::ALL[which], &mut streamed[which])?;
        }
        for (queue, found) in [false, true].into_iter().zip(&mut waited) {
            progress.at(round * 6 + 4 + usize::from(queue), steps, "waiting frames");
            queue_mode = bench.wait(queue, found)?.or(queue_mode);
        }
    }
    Ok(bench.found(queue_mode, streamed, waited))
}

/// The setup of the measurement.
struct Ground<'a> {
    args: &'a Args,
    geometry: Geometry,
    wire: &'a Wire,
    /// CPUs of the camera and of the receiver.
    cpus: [CpuId; 2],
}

/// The image that received rows are written into.
struct Image<'a> {
    geometry: &'a Geometry,
    pixels: Vec<u16>,
}

impl<'a> Image<'a> {
    fn new(geometry: &'a Geometry) -> Self {
        Self { geometry, pixels: vec![0; geometry.width() * geometry.width()] }
    }

    /// Writes a row; returns frame, row number and the send time from its first bytes.
    fn write(&mut self, datagram: &[u8]) -> Option<(u64, usize, u64)> {
        let Ok(Packet { block, content: Content::Payload { index, pixels } }) = Packet::read(datagram) else {
            return None;
        };
        let (row, each) = (index as usize, self.geometry.row_bytes() / 2);
        let to = self.pixels.get_mut(row * each..)?.get_mut(..each)?;
        optics::unpack(pixels, to);
        Some((block, row, u64::from_le_bytes(*pixels.first_chunk()?)))
    }
}

/// A camera.
struct Camera {
    socket: UdpSocket,
    packet: Vec<u8>,
    row: Vec<u8>,
}

impl Camera {
    fn send(&mut self, block: u64, index: usize) -> Result<(), Failed> {
        self.row[..8].copy_from_slice(&mono_now().0.to_le_bytes());
        let content = Content::Payload { index: index as u32, pixels: &self.row };
        let length = Packet { block, content }.write(&mut self.packet).expect("room for header and row");
        self.socket.send(&self.packet[..length]).map_err(Failed::Socket).map(drop)
    }
}

impl Ground<'_> {
    fn rows(&self) -> usize {
        self.geometry.across()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(ADDRESSES[0].parse().expect("an address"), PORT)
    }

    fn open(&self, queue: bool) -> Result<Input, Failed> {
        let card = queue.then(|| Card { interface: self.wire.interfaces[0].clone(), queue: 0 });
        self.wire.at(0, || Ok(Input::open(self.address(), card.as_ref(), &self.geometry, PATIENCE)?))
    }

    fn camera(&self) -> Result<Camera, Failed> {
        let socket = self.wire.at(1, || Ok(sender(self.address())?))?;
        let bytes = self.geometry.row_bytes();
        Ok(Camera { socket, packet: vec![0; bytes + HEADER], row: vec![0; bytes] })
    }

    /// Frames sent as a camera does, received by one method.
    fn stream(&self, way: ReceivePath, found: &mut Streamed) -> Result<(), Failed> {
        let (mut input, mut camera) = (self.open(way.queue)?, self.camera()?);
        let (frames, rows, args) = (self.args.frames, self.rows(), self.args);
        let over = AtomicU64::new(0);
        let receiving = || {
            settle(self.cpus[1], args.class)?;
            let (mut image, mut came, mut last) = (Image::new(&self.geometry), 0, Vec::new());
            let (mut quiet, mut burnt) = (mono_now(), thread_cpu());
            while last.len() < frames as usize {
                match input.take(way.waits) {
                    Ok(there) => {
                        for index in 0..there {
                            let Some((block, row, sent)) = image.write(input.get(index)) else { continue };
                            came += 1;
                            // Frame 0 warms the caches.
                            if row + 1 == rows {
                                match block {
                                    0 => (burnt, came) = (thread_cpu(), 0),
                                    _ => last.push(mono_now().0.saturating_sub(sent)),
                                }
                            }
                        }
                        quiet = mono_now();
                    }
                    Err(_) if over.load(Ordering::Acquire) > 0 && mono_now() - quiet > PATIENCE => break,
                    Err(_) => std::hint::spin_loop(),
                }
            }
            Ok((last, came, thread_cpu().0 - burnt.0))
        };
        let sending = || {
            settle(self.cpus[0], self.args.class)?;
            let sent = self.frames(&mut camera);
            over.store(1, Ordering::Release);
            sent
        };
        let (last, came, burnt) = std::thread::scope(|scope| {
            let receiving = scope.spawn(receiving);
            let sent = joined(scope.spawn(sending).join());
            let received = joined(receiving.join());
            sent.and(received)
        })?;
        found.burnt.push(burnt as f64 / (came as f64).max(1.0));
        found.lost += (frames * rows as u64).saturating_sub(came);
        found.last.extend(last);
        Ok(())
    }

    /// Sends frame 0 and `frames` more, each row at its time.
    fn frames(&self, camera: &mut Camera) -> Result<(), Failed> {
        // Gives the other thread time to start waiting.
        let begun = mono_now() + DurNs::from_ms(5);
        let each = DurNs(self.args.period.0 * 6 / 10 / self.rows() as i64);
        for block in 0..=self.args.frames {
            let frame = begun + DurNs(self.args.period.0.saturating_mul(block as i64));
            sleep_until(MonoNs(frame.0.saturating_sub(BEFORE)));
            for row in 0..self.rows() {
                let at = frame + DurNs(each.0 * row as i64);
                while mono_now() < at {
                    std::hint::spin_loop();
                }
                camera.send(block, row)?;
            }
        }
        Ok(())
    }

    /// Frames that have arrived completely before they are received; also returns the mode of a queue.
    fn wait(&self, queue: bool, found: &mut Waited) -> Result<Option<String>, Failed> {
        let (mut input, mut camera) = (self.open(queue)?, self.camera()?);
        let queue_mode = input.said();
        let (frames, rows, args) = (self.args.frames, self.rows(), self.args);
        // The last sent frame, and the last received one.
        let [sent, received] = [AtomicU64::new(0), AtomicU64::new(0)];
        let until = |word: &AtomicU64, number: u64| {
            let begun = mono_now();
            while word.load(Ordering::Acquire) < number && mono_now() - begun < DurNs::from_secs(1) {
                std::hint::spin_loop();
            }
        };
        let receiving = || {
            settle(self.cpus[1], args.class)?;
            let (mut image, mut times) = (Image::new(&self.geometry), Vec::new());
            for block in 1..=frames {
                until(&sent, block);
                let (begun, mut came) = (mono_now(), 0);
                while came < rows && mono_now() - begun < PATIENCE {
                    for index in 0..input.take(Waits::Not).unwrap_or_default() {
                        came += usize::from(image.write(input.get(index)).is_some());
                    }
                }
                if came == rows {
                    times.push((mono_now() - begun).0 as f64 / rows as f64);
                }
                received.store(block, Ordering::Release);
            }
            Ok(times)
        };
        let sending = || {
            settle(self.cpus[0], self.args.class)?;
            let mut times = Vec::new();
            for block in 1..=frames {
                let begun = mono_now();
                (0..rows).try_for_each(|row| camera.send(block, row))?;
                times.push((mono_now() - begun).0 as f64 / rows as f64);
                sent.store(block, Ordering::Release);
                until(&received, block);
            }
            Ok(times)
        };
        let (times, theirs) = std::thread::scope(|scope| {
            let (receiving, sending) = (scope.spawn(receiving), scope.spawn(sending));
            let (received, sent) = (joined(receiving.join()), joined(sending.join()));
            Ok::<_, Failed>((received?, sent?))
        })?;
        found.received.extend(Figure::median(times).map(|figure| figure.value));
        found.sent.extend(Figure::median(theirs).map(|figure| figure.value));
        Ok(queue_mode)
    }

    fn found(&self, queue_mode: Option<String>, streamed: [Streamed; 4], [socket, queue]: [Waited; 2]) -> BenchResult {
        let (args, mut found) = (self.args, BenchResult::default());
        let class = args.class.map_or("this program's".into(), |class| class.to_string());
        found.setup.push(format!(
            "{} frames in each of {} rounds, {} rows of {} bytes each {}; camera on CPU {}, loop on CPU {}, class {class}",
            args.frames,
            args.rounds,
            self.rows(),
            self.geometry.row_bytes() + HEADER,
            args.period,
            self.cpus[0],
            self.cpus[1],
        ));
        found.setup.extend(queue_mode);
        let row = |name: &str, queue: Vec<f64>, socket: Vec<f64>| {
            Row::samples(name, "ns", queue).good(Good::Low).against(Figure::median(socket))
        };
        let both = |of: &Waited| of.sent.iter().zip(&of.received).map(|(sent, received)| sent + received).collect();
        let (queue_both, socket_both) = (both(&queue), both(&socket));
        let mut each = Table::new("one row of a waiting frame, medians of rounds").columns("queue", "socket");
        each = each.row(
            row("received and written into the image", queue.received, socket.received)
                .target(Target::ratio_at_most(1.0)),
        );
        each = each.row(row("sent, including the kernel's work on that CPU", queue.sent, socket.sent));
        each = each.row(row("both", queue_both, socket_both));
        let mut last = Table::new("from the camera's call until the frame's last row is in the image");
        let lost: u64 = streamed.iter().map(|way| way.lost).sum();
        let mut burnt = Vec::new();
        for (way, Streamed { last: mut times, burnt: of, .. }) in ReceivePath::ALL.into_iter().zip(streamed) {
            last = last.row(Row::reference(way.name(), Latency::of_times(&mut times)));
            burnt.push(of);
        }
        let [socket, queue] = [0, 1].map(|asleep| std::mem::take(&mut burnt[asleep]));
        let cpu = Table::new("the loop's CPU time per row of a camera's stream").columns("queue", "socket");
        let cpu = cpu.row(row("sleeping, wake-up included", queue, socket));
        found.tables.extend([each, last, cpu]);
        found.notes.push(format!("{lost} rows were lost; spinning uses the whole CPU with both methods"));
        found
    }
}

//! `tahti demo telescope`: the camera of an adaptive-optics loop, with the telescope, the mirror and the atmosphere in
//! front of it.

use super::RunArgs;
use crate::failure::Failure;
use base::DurNs;
use bench::looprun;
use optics::gvsp::{Content, HEADER, LEADER, Packet};
use optics::{Command, Geometry, Sky, Telescope};
use rt::{Exports, Flow, LoopSpec, Number, SharedPage, VariableSpec};
use std::net::{SocketAddr, UdpSocket};
use sys::clock::{mono_now, sleep_until};

/// Simulated telescope: sends wavefront sensor pixels by UDP, receives mirror commands
///
/// 8 m for 40 sub-apertures: moving air, a deformable mirror, a Shack-Hartmann sensor with noise, dark values and gains
/// per pixel. The residual wavefront is exported as variables for comparison.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Target of the pixels
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51511")]
    to: SocketAddr,
    /// Address for commands
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:51512")]
    listen: SocketAddr,
    /// Sub-apertures across the pupil
    #[arg(long, default_value_t = 40)]
    across: usize,
    /// Period of the frames
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    period: DurNs,
    /// Readout time of the detector [default: 0.6 of the period]
    #[arg(long, value_name = "TIME")]
    readout: Option<DurNs>,
    /// Fried parameter of the air at 500 nm, cm
    #[arg(long, value_name = "CM", default_value_t = 15.0)]
    r0: f64,
    /// Wind, m/s; one frame is 1 ms of wind, independent of the period
    #[arg(long, value_name = "M/S", default_value_t = 10.0)]
    wind: f64,
    /// Lost datagrams per thousand
    #[arg(long, value_name = "N", default_value_t = 0)]
    lose: u64,
    /// Reordered datagrams per thousand
    #[arg(long, value_name = "N", default_value_t = 0)]
    reorder: u64,
    /// Datagrams per thousand that arrive with the next frame
    #[arg(long, value_name = "N", default_value_t = 0)]
    late: u64,
    #[command(flatten)]
    run: RunArgs,
    /// Name of the exported segment
    #[arg(long, default_value = "telescope")]
    exports: String,
}

/// Maximum number of commands read per frame. Only the last one takes effect.
const COMMANDS_MAX: usize = 8;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.period < DurNs::from_us(100) || args.period > DurNs::from_secs(1) {
        return Err(format!("--period {}: expected 100us to 1s", args.period).into());
    }
    if !(1.0..=1000.0).contains(&args.r0) || !(0.0..=200.0).contains(&args.wind) {
        return Err(format!("--r0 {} --wind {}: expected 1 to 1000 cm, 0 to 200 m/s", args.r0, args.wind).into());
    }
    if args.lose.saturating_add(args.reorder).saturating_add(args.late) > 1000 {
        let Args { lose, reorder, late, .. } = args;
        return Err(format!(
            "--lose {lose} --reorder {reorder} --late {late}: expected a sum of at most 1000 (per thousand)"
        )
        .into());
    }
    let readout = args.readout.unwrap_or(DurNs(args.period.0 / 10 * 6));
    if readout < DurNs::ZERO || readout >= args.period {
        return Err(format!("--readout {readout}: expected less than the period, {}", args.period).into());
    }
    let geometry = Geometry::new(args.across).map_err(|error| format!("--across: {error}"))?;
    let page = SharedPage::from_env_or_own("telescope")?;
    let commands = adaptive::receiver(args.listen)?;
    commands.set_nonblocking(true).map_err(|error| format!("--listen {}: {error}", args.listen))?;
    let any = if args.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let pixels = UdpSocket::bind(any).map_err(|error| format!("--to {}: {error}", args.to))?;
    let shown = Shown::open(&args.exports, args.period)?;
    let exports = Some(shown.exports.clone());
    let sky = Sky { r0: args.r0 / 100.0, wind: args.wind, ..Sky::default() };
    let mut camera = Camera {
        wire: Wire {
            pixels,
            to: args.to,
            faults: [args.lose, args.reorder, args.late],
            chance: 88_172_645_463_325_252,
            held: 0,
            wait: HoldBack::No,
            kept: vec![0; geometry.row_bytes() + HEADER],
            lost: 0,
        },
        commands,
        actuators: geometry.actuators().len(),
        telescope: super::unhurried(|| Telescope::new(geometry.clone(), sky)),
        row: vec![0; geometry.row_bytes()],
        packet: vec![0; geometry.row_bytes() + HEADER + LEADER],
        command: vec![0; Command::bytes(geometry.actuators().len()) + 1],
        geometry,
        shown,
        squares: None,
        counts: [0; 3],
        readout,
    };
    let spec = LoopSpec { class: args.run.class, cpu: args.run.cpu, exports, ..LoopSpec::new("camera", args.period) };
    let across = args.across;
    let finished = looprun::run(
        spec,
        &page,
        args.run.for_,
        move |pulse| camera.frame(pulse),
        |armed| {
            armed.missing().for_each(|missing| println!("{missing}"));
            println!("armed: {} Hz, {across} sub-apertures across", 1_000_000_000 / args.period.0.max(1));
        },
        |_| {},
    )?;
    println!("{}", looprun::verdict(&page.read(), &finished).join("\n"));
    Ok(())
}

/// State of the telescope as exported variables.
struct Shown {
    exports: Exports,
    indices: Vec<usize>,
}

impl Shown {
    fn open(name: &str, period: DurNs) -> Result<Self, Failure> {
        let exports = Exports::open(name, 8)?;
        exports.set_period(period);
        let add = |(name, unit)| exports.add(&VariableSpec { name, unit, first: Number::Float(0.0), safe: None });
        let all = [("residual", "nm"), ("air", "nm"), ("commands", ""), ("without", ""), ("refused", ""), ("lost", "")];
        let indices = all.into_iter().map(add).collect::<Result<_, _>>()?;
        Ok(Self { exports, indices })
    }

    fn set(&self, values: [f64; 6], pulse: u64) {
        let now = mono_now();
        for (index, value) in self.indices.iter().zip(values) {
            self.exports.set(*index, Number::Float(value), pulse, now);
        }
    }
}

/// When the held-back datagram is sent: none is held, after the next datagram, with the next frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldBack {
    No,
    Next,
    Frame,
}

/// The simulated network path of the datagrams, with its faults.
struct Wire {
    pixels: UdpSocket,
    to: SocketAddr,
    /// Faults per thousand datagrams: lost, delayed until after the next datagram, delayed until the next frame.
    faults: [u64; 3],
    chance: u64,
    kept: Vec<u8>,
    held: usize,
    wait: HoldBack,
    lost: u64,
}

impl Wire {
    /// Errors are ignored: if no process listens yet or its buffer is full, the datagram is lost, as on any network.
    /// The receiver counts losses.
    fn send(&self, bytes: &[u8]) {
        let _ = self.pixels.send_to(bytes, self.to);
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let (drawn, [lose, reorder, late]) = (self.chance % 1000, self.faults);
        if drawn < lose {
            self.lost += 1;
        } else if drawn < lose + reorder + late && self.wait == HoldBack::No && bytes.len() <= self.kept.len() {
            self.kept[..bytes.len()].copy_from_slice(bytes);
            self.held = bytes.len();
            self.wait = if drawn < lose + reorder { HoldBack::Next } else { HoldBack::Frame };
        } else {
            self.send(bytes);
            self.let_go(HoldBack::Next);
        }
    }

    fn let_go(&mut self, of: HoldBack) {
        if self.wait == of {
            self.send(&self.kept[..self.held]);
            self.wait = HoldBack::No;
        }
    }
}

struct Camera {
    wire: Wire,
    commands: UdpSocket,
    actuators: usize,
    geometry: Geometry,
    telescope: Telescope,
    row: Vec<u8>,
    packet: Vec<u8>,
    command: Vec<u8>,
    shown: Shown,
    /// Mean squares of the residual and of the atmosphere, averaged over some hundred frames.
    squares: Option<(f64, f64)>,
    /// Counters: commands, frames without a new command, and invalid datagrams.
    counts: [u64; 3],
    readout: DurNs,
}

impl Camera {
    fn frame(&mut self, pulse: &rt::Pulse) -> Flow {
        let mut newest = 0;
        for _ in 0..COMMANDS_MAX {
            let Ok(length) = self.commands.recv(&mut self.command) else { break };
            match Command::read(&self.command[..length], self.actuators) {
                Ok(command) => {
                    self.telescope.command(&command);
                    newest += 1;
                }
                Err(_) => self.counts[2] += 1,
            }
        }
        self.counts[0] += newest;
        self.counts[1] += u64::from(newest == 0);
        self.telescope.expose();
        let side = self.geometry.width() as u32;
        let (block, mut packet) = (pulse.number, std::mem::take(&mut self.packet));
        let begin = Content::Leader { at_ns: pulse.due.0, width: side, height: side };
        self.write(block, begin, &mut packet);
        for index in 0..self.geometry.across() {
            self.telescope.row(index, &mut self.row);
            let read = pulse.due + DurNs(self.readout.0 * (index as i64 + 1) / self.geometry.across() as i64);
            if read > mono_now() {
                sleep_until(read);
            }
            let content = Content::Payload { index: index as u32, pixels: &self.row };
            if let Ok(length) = (Packet { block, content }).write(&mut packet) {
                self.wire.pass(&packet[..length]);
            }
            if index == 0 {
                self.wire.let_go(HoldBack::Frame);
            }
        }
        self.wire.let_go(HoldBack::Next);
        self.write(block, Content::Trailer { height: side }, &mut packet);
        self.packet = packet;
        self.show(pulse.number);
        Flow::Continue
    }

    fn write(&self, block: u64, content: Content<'_>, packet: &mut [u8]) {
        if let Ok(length) = (Packet { block, content }).write(packet) {
            self.wire.send(&packet[..length]);
        }
    }

    fn show(&mut self, pulse: u64) {
        let (residual, air) = self.telescope.residual();
        let (residual, air) = (residual * residual, air * air);
        let squares = self.squares.get_or_insert((residual, air));
        squares.0 += (residual - squares.0) / 100.0;
        squares.1 += (air - squares.1) / 100.0;
        let [commands, without, refused] = self.counts.map(|count| count as f64);
        let (residual, air) = (squares.0.sqrt(), squares.1.sqrt());
        self.shown.set([residual, air, commands, without, refused, self.wire.lost as f64], pulse);
    }
}

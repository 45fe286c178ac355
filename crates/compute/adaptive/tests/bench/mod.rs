//! A loop on a small simulated telescope over loopback.
#![allow(dead_code, reason = "each test program uses a part of it")]

use adaptive::{Before, Chosen, Control, Desk, Input, Pixels, Shown, Spec, Streams, calibrate, sender};
use base::{CpuSet, DurNs, Lateness, MonoNs, ResultDeadline};
use kernels::{Level, Light};
use optics::gvsp::{Content, HEADER, Packet};
use optics::{Command, Geometry, Settings, Sky, Stored, Telescope};
use rt::team::TeamSpec;
use rt::{EventLoop as _, Flow, Imports, Number, Pulse, Source, Wait};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Faults of the simulated camera. A test changes them while the loop runs.
#[derive(Default)]
pub(crate) struct Wrong {
    /// Rows whose datagrams are not sent, one bit per row.
    pub(crate) missing: AtomicU64,
    /// The camera announces and sends images whose lines have half the length.
    pub(crate) half: AtomicBool,
    /// Frames whose command did not arrive in time.
    pub(crate) unanswered: AtomicU64,
}

/// Sends frames, and receives the command of each.
fn camera(geometry: Geometry, to: SocketAddr, mirror: &UdpSocket, (wrong, stop): (&Wrong, &AtomicBool)) {
    let pixels = sender(to).unwrap();
    let mut telescope = Telescope::new(geometry.clone(), Sky { frames: 50, ..Sky::default() });
    let (mut row, mut packet) = (vec![0; geometry.row_bytes()], vec![0; geometry.row_bytes() + HEADER]);
    let mut command = vec![0; Command::bytes(geometry.actuators().len())];
    mirror.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for block in 1.. {
        telescope.expose();
        let (missing, half) = (wrong.missing.load(Ordering::Relaxed), wrong.half.load(Ordering::Relaxed));
        let side = geometry.width() as u32;
        let leader = Content::Leader { at_ns: 0, width: if half { side / 2 } else { side }, height: side };
        let length = Packet { block, content: leader }.write(&mut packet).unwrap();
        let _ = pixels.send(&packet[..length]);
        for index in (0..geometry.across()).filter(|index| missing & (1 << index) == 0) {
            telescope.row(index, &mut row);
            let length = if half { row.len() / 2 } else { row.len() };
            let content = Content::Payload { index: index as u32, pixels: &row[..length] };
            let length = Packet { block, content }.write(&mut packet).unwrap();
            // The loop may not have bound its socket yet.
            let _ = pixels.send(&packet[..length]);
        }
        match mirror.recv(&mut command) {
            Ok(length) => telescope.command(&Command::read(&command[..length], geometry.actuators().len()).unwrap()),
            Err(_) => _ = wrong.unanswered.fetch_add(1, Ordering::Relaxed),
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

pub(crate) struct Running<'a> {
    pub(crate) desk: Desk,
    shown: Imports,
    pub(crate) folder: PathBuf,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) wrong: &'a Wrong,
    /// Frame number and result of each cycle.
    pub(crate) cycles: &'a Mutex<Vec<(u64, Flow)>>,
    /// Deadline of a command in nanoseconds after the event of its frame. 0 means none.
    pub(crate) deadline: &'a AtomicI64,
}

impl Running<'_> {
    pub(crate) fn value(&self, name: &str) -> f64 {
        // The read fails while the writer, which is another thread, is preempted in the middle of a write.
        match self.awaited(name, || self.shown.get(name)).value {
            Number::Float(value) => value,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn until(&self, what: &str, is: impl Fn() -> bool) {
        self.awaited(what, || is().then_some(()));
    }

    fn awaited<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }
}

/// The specification of a small loop.
pub(crate) fn spec() -> Spec {
    Spec {
        geometry: Geometry::new(8).unwrap(),
        period: DurNs::from_ms(10),
        level: Level::best(),
        light: Light { threshold: 15.0, flux_min: 300.0 },
        stroke: 4000.0,
        regularise: 3e-3,
        stored: Stored::Byte,
        spots: adaptive::SpotWork::default(),
        begun: Settings { closed: true, gain: 0.5, leak: 0.9 },
    }
}

/// Runs a loop during `then`.
pub(crate) fn running(name: &str, workers: usize, then: impl FnOnce(&mut Running<'_>)) {
    running_with(name, (workers, adaptive::SpotWork::default()), None, then);
}

/// The same with a socket for the commands that follow calibration.
pub(crate) fn running_with(
    name: &str,
    (workers, spots): (usize, adaptive::SpotWork),
    instead: Option<UdpSocket>,
    then: impl FnOnce(&mut Running<'_>),
) {
    let spec = Spec { spots, ..spec() };
    let geometry = spec.geometry.clone();
    let name = format!("asks-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    let wait = Wait::Both { spin: DurNs::from_us(20) };
    let local = "127.0.0.1:0".parse().unwrap();
    let input = Input::open(local, None, &geometry, DurNs::from_ms(50)).unwrap();
    let mut pixels = Pixels::new(input, &geometry, 1, wait);
    let (to, mirror) = (pixels.input().address().unwrap(), UdpSocket::bind(local).unwrap());
    let commands = sender(mirror.local_addr().unwrap()).unwrap();
    let (stop, wrong, cycles, deadline) =
        (AtomicBool::new(false), Wrong::default(), Mutex::new(Vec::new()), AtomicI64::new(0));
    std::thread::scope(|scope| {
        let (geometry, mirror, stop, wrong) = (&geometry, &mirror, &stop, &wrong);
        let (cycles, deadline) = (&cycles, &deadline);
        scope.spawn(move || camera(geometry.clone(), to, mirror, (wrong, stop)));
        // Ends the threads if a test fails as well.
        let _end = End(stop);
        let calibrated = calibrate(&spec, &mut Before { pixels: &mut pixels, commands: &commands }).unwrap();
        let commands = instead.unwrap_or(commands);
        let chosen = Chosen::new(&Source::new("nobody"), spec.begun);
        let (shown, streams) = (
            Shown::open(&name, spec.period).unwrap(),
            Streams::open(&folder, "t_", geometry, &CpuSet::default()).unwrap(),
        );
        let team = TeamSpec { limit: DurNs::from_secs(60), ..TeamSpec::new("asks", vec![None; workers]) };
        let (mut control, desk) =
            Control::new(&spec, team, pixels, commands, calibrated, chosen, shown, Some(streams)).unwrap();
        let shown = Imports::open(&name).unwrap();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Some(event) = control.await_event() else { continue };
                let at = DurNs(deadline.load(Ordering::Relaxed));
                let deadline = (at > DurNs::ZERO).then_some(ResultDeadline { at, late: Lateness::Firm });
                let pulse = Pulse { number: event.number, due: event.at, woke: MonoNs(0), skipped: 0, deadline };
                let flow = control.cycle(&pulse);
                cycles.lock().unwrap().push((event.number, flow));
            }
        });
        then(&mut Running { desk, shown, folder: folder.clone(), stop, wrong, cycles, deadline });
    });
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "streams are removed with their loop");
    std::fs::remove_dir(folder).unwrap();
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

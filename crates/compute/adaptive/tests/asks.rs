//! A loop on a small simulated telescope over loopback, and what others ask of it while it runs.

use adaptive::{Before, Chosen, Control, Desk, Error, Pixels, Shown, Spec, Streams, calibrate, sender};
use base::{DurNs, MonoNs};
use kernels::{Level, Light};
use optics::gvsp::{Content, HEADER, Packet};
use optics::{Command, Geometry, Settings, Sky, Stored, Telescope};
use rt::team::TeamSpec;
use rt::{EventLoop as _, Flow, Imports, Number, Pulse, Source, Wait};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sends a frame, and takes the command that was made from it.
fn camera(geometry: Geometry, to: SocketAddr, mirror: &UdpSocket, stop: &AtomicBool) {
    let pixels = sender(to).unwrap();
    let mut telescope = Telescope::new(geometry.clone(), Sky { frames: 50, ..Sky::default() });
    let (mut row, mut packet) = (vec![0; geometry.row_bytes()], vec![0; geometry.row_bytes() + HEADER]);
    let mut command = vec![0; Command::bytes(geometry.actuators().len())];
    mirror.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for block in 1.. {
        telescope.expose();
        for index in 0..geometry.across() {
            telescope.row(index, &mut row);
            let content = Content::Payload { index: index as u32, pixels: &row };
            let length = Packet { block, content }.write(&mut packet).unwrap();
            // Nobody may listen yet.
            let _ = pixels.send(&packet[..length]);
        }
        if let Ok(length) = mirror.recv(&mut command) {
            telescope.command(&Command::read(&command[..length], geometry.actuators().len()).unwrap());
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

struct Running<'a> {
    desk: Desk,
    shown: Imports,
    folder: PathBuf,
    stop: &'a AtomicBool,
}

impl Running<'_> {
    fn value(&self, name: &str) -> f64 {
        match self.shown.get(name).unwrap().value {
            Number::Float(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }
}

/// Runs a loop while `then` asks it.
fn running(name: &str, workers: usize, then: impl FnOnce(&mut Running<'_>)) {
    let geometry = Geometry::new(8).unwrap();
    let spec = Spec {
        geometry: geometry.clone(),
        period: DurNs::from_ms(10),
        level: Level::best(),
        light: Light { threshold: 15.0, flux_min: 300.0 },
        stroke: 4000.0,
        regularise: 3e-3,
        stored: Stored::Half,
        begun: Settings { closed: true, gain: 0.5, leak: 0.99 },
    };
    let name = format!("asks-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    let wait = Wait::Both { spin: DurNs::from_us(20) };
    let local = "127.0.0.1:0".parse().unwrap();
    let mut pixels = Pixels::open(local, &geometry, 0, DurNs::from_ms(50), wait).unwrap();
    let (to, mirror) = (pixels.address().unwrap(), UdpSocket::bind(local).unwrap());
    let commands = sender(mirror.local_addr().unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (geometry, mirror, stop) = (&geometry, &mirror, &stop);
        scope.spawn(move || camera(geometry.clone(), to, mirror, stop));
        // Whatever fails, the threads end.
        let _end = End(stop);
        let calibrated = calibrate(&spec, &mut Before { pixels: &mut pixels, commands: &commands }).unwrap();
        let chosen = Chosen::new(&Source::new("nobody"), spec.begun);
        let (shown, streams) =
            (Shown::open(&name, spec.period).unwrap(), Streams::open(&folder, "t_", geometry).unwrap());
        let team = TeamSpec { limit: DurNs::from_secs(60), ..TeamSpec::new("asks", vec![None; workers]) };
        let (mut control, desk) =
            Control::new(&spec, team, pixels, commands, calibrated, chosen, shown, Some(streams)).unwrap();
        let shown = Imports::open(&name).unwrap();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Some(event) = control.await_event() else { continue };
                let pulse = Pulse { number: event.number, due: event.at, woke: MonoNs(0), skipped: 0, deadline: None };
                assert_eq!(control.cycle(&pulse), Flow::Continue);
            }
        });
        then(&mut Running { desk, shown, folder: folder.clone(), stop });
    });
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "streams go with their loop");
    std::fs::remove_dir(folder).unwrap();
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reconstructor_is_exchanged_between_two_frames_and_one_that_does_not_fit_is_refused() {
    running("exchange", 1, |running| {
        running.until("closed", || running.value("whole") > 50.0 && running.value("command") > 1.0);
        let known = running.desk.known().clone();
        let nothing = adaptive::Calibrated { inverse: vec![0.0; known.inverse.len()], ..known.clone() };
        running.desk.exchange(nothing).unwrap();
        // Without a reconstructor nothing is corrected: what there is leaks away.
        running.until("leaked", || running.value("command") < 0.01);
        running.desk.exchange(known.clone()).unwrap();
        running.until("closed again", || running.value("command") > 1.0);
        assert_eq!((running.value("exchanged"), running.value("held")), (2.0, 0.0));
        let short = adaptive::Calibrated { inverse: vec![0.0; 7], ..known.clone() };
        let refused = running.desk.exchange(short).unwrap_err();
        assert!(matches!(refused, Error::Size { found: 7, .. }), "{refused}");
        let few = adaptive::Calibrated { zeros: vec![0.0; 7], ..known };
        assert!(matches!(running.desk.exchange(few), Err(Error::Misfit(_))));
        assert_eq!(running.value("exchanged"), 2.0);
        assert!(!running.stop.load(Ordering::Relaxed));
    });
}

#[test]
fn a_loop_is_calibrated_anew_and_its_hardware_measured_while_it_runs() {
    running("calibrate", 0, |running| {
        let before = running.desk.known().clone();
        let said = running.desk.calibrate().unwrap();
        assert!(said.contains("actuators poked in 16 patterns"), "{said}");
        let after = running.desk.known();
        // The same sensor, but for noise. (Inverses differ more: what no spot shows is noise in them.)
        let far = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32;
        let all = [far(&before.dark, &after.dark), far(&before.gain, &after.gain), far(&before.zeros, &after.zeros)];
        assert!(all[0] < 1.0 && all[1] < 0.05 && all[2] < 0.1, "{all:?}");
        assert!(before.inverse != after.inverse && before.zeros != after.zeros);
        running.until("taken over", || running.value("exchanged") == 1.0);
        // The camera takes each command before it exposes the next frame.
        let latency = running.desk.latency().unwrap();
        assert!((1.0..3.0).contains(&latency.frames) && latency.us[1] > 0.0 && latency.pokes > 0, "{latency:?}");
        running.until("shown", || running.value("hardware-frames") == latency.frames);
        running.until("closed again", || running.value("closed") == 1.0 && running.value("slopes") < 0.2);
        running.desk.flatten();
    });
}

#[test]
fn each_stage_is_a_stream_in_the_layout_of_imagestreamio() {
    running("streams", 0, |running| {
        let read = |name: &str| std::fs::read(running.folder.join(format!("t_{name}.im.shm"))).unwrap();
        running.until("streamed", || read("dm")[264] > 3);
        // Kind, width, height, bytes of a number.
        let geometry = &running.desk.spec().geometry;
        let (width, points) = (geometry.width(), geometry.points());
        let all = [
            ("wfs", 3, (width, width), 2),
            ("slopes", 9, (2, geometry.apertures().len()), 4),
            ("dm", 9, (points, points), 4),
            ("telemetry", 10, (24, 1), 8),
        ];
        for (name, kind, (columns, lines), bytes) in all {
            let file = read(name);
            let long = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
            let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
            assert_eq!(&file[..5], b"2.00\0");
            assert_eq!(file[32..].split(|byte| *byte == 0).next().unwrap(), format!("t_{name}").as_bytes());
            assert_eq!((file[112], number(116), number(120), file[136]), (2, columns, lines, kind));
            let data = columns * lines * bytes;
            assert_eq!((long(128), long(312)), ((columns * lines) as u64, data as u64));
            assert_eq!((file[258], file[240] as i8), (10, -1));
            // 384 bytes, the data, 11 semaphores, four words for each of ten, ten traces.
            assert_eq!(file.len(), 384 + data.next_multiple_of(8) + 11 * 32 + 4 * 40 + 10 * 64);
            // Nobody waits: each semaphore is posted ten times at most.
            let semaphore = 384 + data.next_multiple_of(8);
            assert!((1..=10).contains(&long(semaphore)) && long(semaphore + 8) == 128, "{}", long(semaphore));
            assert!(file[384..384 + data].iter().any(|byte| *byte != 0), "{name}");
        }
    });
}

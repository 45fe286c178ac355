//! Requests from other threads to a running loop: reconstructors, calibration, latency, streams.

mod bench;

use adaptive::Error;
use bench::{running, running_with};
use rt::Flow;
use std::sync::atomic::Ordering;

#[test]
fn a_reconstructor_is_exchanged_between_two_frames_and_one_of_another_size_is_refused() {
    running("exchange", 1, |running| {
        running.until("closed", || running.value("whole") > 50.0 && running.value("command") > 1.0);
        let before = running.wrong.unanswered.load(Ordering::Relaxed);
        running.cycles.lock().unwrap().clear();
        let known = running.desk.known().clone();
        let nothing = adaptive::Calibrated { inverse: vec![0.0; known.inverse.len()], ..known.clone() };
        running.desk.exchange(nothing).unwrap();
        // Without a reconstructor the loop corrects no error, and the command decays.
        running.until("leaked", || running.value("command") < 0.01);
        running.desk.exchange(known.clone()).unwrap();
        // The figures of a frame are exported one after another.
        running.until("closed again", || running.value("command") > 1.0 && running.value("exchanged") == 2.0);
        assert_eq!(running.value("held"), 0.0);
        let short = adaptive::Calibrated { inverse: vec![0.0; 7], ..known.clone() };
        let refused = running.desk.exchange(short).unwrap_err();
        assert!(matches!(refused, Error::Size { found: 7, .. }), "{refused}");
        let few = adaptive::Calibrated { zeros: vec![0.0; 7], ..known };
        assert!(matches!(running.desk.exchange(few), Err(Error::Misfit(_))));
        assert_eq!(running.value("exchanged"), 2.0);
        // An exchange costs no frame: a frame without a cycle is one that this machine was too slow to answer.
        let cycles = running.cycles.lock().unwrap();
        let gaps: u64 = cycles.windows(2).map(|two| two[1].0 - two[0].0 - 1).sum();
        let unanswered = running.wrong.unanswered.load(Ordering::Relaxed) - before;
        assert!(gaps <= unanswered, "{gaps} frames have no command, {unanswered} had no answer in time");
        assert!(cycles.iter().all(|(_, flow)| *flow == Flow::Continue));
        drop(cycles);
        assert!(!running.stop.load(Ordering::Relaxed));
    });
}

#[test]
fn a_loop_is_recalibrated_and_its_hardware_latency_measured_while_it_runs() {
    running("calibrate", 0, |running| {
        let before = running.desk.known().clone();
        let said = running.desk.calibrate().unwrap();
        assert!(said.contains("actuators poked in 16 patterns"), "{said}");
        let after = running.desk.known();
        // The sensor is the same except for noise. Inverses differ more: components that no spot shows are noise in
        // them.
        let far = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32;
        let all = [far(&before.dark, &after.dark), far(&before.gain, &after.gain), far(&before.zeros, &after.zeros)];
        assert!(all[0] < 1.0 && all[1] < 0.05 && all[2] < 0.1, "{all:?}");
        assert!(before.inverse != after.inverse && before.zeros != after.zeros);
        running.until("taken over", || running.value("exchanged") == 1.0);
        // The camera applies each command before it exposes the next frame.
        let latency = running.desk.latency().unwrap();
        assert!((1.0..3.0).contains(&latency.frames) && latency.us[1] > 0.0 && latency.pokes > 0, "{latency:?}");
        running.until("shown", || running.value("hardware-frames") == latency.frames);
        running.until("closed again", || running.value("closed") == 1.0 && running.value("slopes") < 0.2);
        running.desk.flatten();
    });
}

#[test]
fn a_loop_whose_leader_finds_all_spots_closes_with_a_worker() {
    running_with("leader", (1, adaptive::SpotWork::Leader), None, |running| {
        running.until("closed", || running.value("closed") == 1.0 && running.value("slopes") < 0.2);
        running.until("whole", || running.value("whole") > 50.0 && running.value("dark") == 0.0);
    });
}

#[test]
fn each_stage_is_a_stream_in_the_layout_of_imagestreamio() {
    running("streams", 0, |running| {
        let read = |name: &str| std::fs::read(running.folder.join(format!("t_{name}.im.shm"))).unwrap();
        running.until("streamed", || read("dm")[264] > 3);
        // Kind, width, height, and bytes of an element.
        let geometry = &running.desk.spec().geometry;
        let (width, points) = (geometry.width(), geometry.points());
        let all = [
            ("wfs", 3, (width, width), 2),
            ("slopes", 9, (2, geometry.apertures().len()), 4),
            ("dm", 9, (points, points), 4),
            ("telemetry", 10, (28, 1), 8),
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
            // A header of 384 bytes, the data, 11 semaphores, four words per semaphore for ten of them, and ten traces.
            assert_eq!(file.len(), 384 + data.next_multiple_of(8) + 11 * 32 + 4 * 40 + 10 * 64);
            // No program waits, so the count of a semaphore stops at ten.
            let semaphore = 384 + data.next_multiple_of(8);
            assert!((1..=10).contains(&long(semaphore)) && long(semaphore + 8) == 128, "{}", long(semaphore));
            assert!(file[384..384 + data].iter().any(|byte| *byte != 0), "{name}");
        }
    });
}

//! A loop with faulty images, calibrations and deadlines.

mod bench;

use bench::{Running, running};
use optics::gvsp::{Content, Packet};
use rt::Flow;
use std::sync::atomic::{AtomicBool, Ordering};

fn closed(running: &Running<'_>) {
    let whole = running.value("whole");
    running.until("closed", || running.value("whole") > whole + 20.0 && running.value("command") > 1.0);
}

#[test]
fn frames_of_another_region_are_counted_and_the_loop_recovers_with_the_whole_image() {
    running("region", 0, |running| {
        closed(running);
        running.wrong.half.store(true, Ordering::Relaxed);
        let begun = running.wrong.unanswered.load(Ordering::Relaxed);
        running.until("unanswered", || running.wrong.unanswered.load(Ordering::Relaxed) > begun + 1);
        // The loop computes no command from such pixels. Figures are those of the last usable frame.
        let cycles = || running.cycles.lock().unwrap().len();
        let (before, unanswered) = (cycles(), running.wrong.unanswered.load(Ordering::Relaxed));
        running.until("more of them", || running.wrong.unanswered.load(Ordering::Relaxed) > unanswered + 3);
        assert!(cycles() <= before + 1);
        running.wrong.half.store(false, Ordering::Relaxed);
        closed(running);
        let counted = [running.value("resized"), running.value("foreign")];
        assert!(counted[0] >= 3.0 && counted[1] >= 3.0 * 8.0, "{counted:?}");
        assert_eq!((running.value("held"), running.value("unbounded")), (0.0, 0.0));
    });
}

#[test]
fn a_frame_without_one_row_is_completed_and_one_without_two_rows_is_discarded_and_counted() {
    running("rows", 0, |running| {
        closed(running);
        assert_eq!(running.value("lost"), 0.0);
        running.wrong.missing.store(0b100, Ordering::Relaxed);
        running.until("completed", || running.value("patched") > 3.0);
        assert_eq!(running.value("given-up"), 0.0);
        running.wrong.missing.store(0b101, Ordering::Relaxed);
        let before = running.wrong.unanswered.load(Ordering::Relaxed);
        running.until("discarded", || running.wrong.unanswered.load(Ordering::Relaxed) > before + 3);
        running.wrong.missing.store(0, Ordering::Relaxed);
        closed(running);
        assert!(running.value("given-up") >= 3.0 && running.value("lost") >= 3.0 + 2.0 * 3.0);
        assert!(running.cycles.lock().unwrap().iter().all(|(_, flow)| *flow == Flow::Continue));
    });
}

#[test]
fn a_non_finite_reconstructor_holds_the_command_and_is_a_fault_of_each_frame() {
    running("nan", 1, |running| {
        closed(running);
        let known = running.desk.known().clone();
        let bad = adaptive::Calibrated { inverse: vec![f32::NAN; known.inverse.len()], ..known.clone() };
        running.desk.exchange(bad).unwrap();
        running.until("held", || running.value("held") > 3.0);
        let held = running.value("command");
        assert!(held.is_finite() && held > 0.0);
        assert_eq!(running.cycles.lock().unwrap().last().map(|(_, flow)| *flow), Some(Flow::Fault));
        running.desk.exchange(known.clone()).unwrap();
        closed(running);
        assert_eq!(running.cycles.lock().unwrap().last().map(|(_, flow)| *flow), Some(Flow::Continue));
        // A dark value that is not finite is refused before it reaches the loop.
        let dark = adaptive::Calibrated { dark: vec![f32::INFINITY; known.dark.len()], ..known };
        let refused = running.desk.exchange(dark).unwrap_err().to_string();
        assert!(refused.contains("expected finite numbers"), "{refused}");
    });
}

#[test]
fn a_command_after_its_deadline_is_not_sent_and_counted() {
    running("void", 0, |running| {
        closed(running);
        let unanswered = running.wrong.unanswered.load(Ordering::Relaxed);
        // One nanosecond after the last pixel.
        running.deadline.store(1, Ordering::Relaxed);
        running.until("void", || running.value("void") > 3.0);
        running.until("missed", || running.wrong.unanswered.load(Ordering::Relaxed) > unanswered + 2);
        running.deadline.store(0, Ordering::Relaxed);
        let void = running.value("void");
        closed(running);
        assert!(running.value("void") <= void + 1.0);
        assert_eq!(running.value("unsent"), 0.0);
    });
}

#[test]
fn a_taken_address_is_refused_with_a_command_that_finds_its_owner() {
    let first = adaptive::receiver("127.0.0.1:0".parse().unwrap()).unwrap();
    let taken = first.local_addr().unwrap();
    let geometry = optics::Geometry::new(8).unwrap();
    for said in [
        adaptive::receiver(taken).unwrap_err().to_string(),
        adaptive::Input::open(taken, None, &geometry, base::DurNs::from_ms(1)).unwrap_err().to_string(),
    ] {
        assert!(said.starts_with(&taken.to_string()) && said.contains("ss -ulpn"), "{said}");
    }
}

#[test]
fn a_camera_of_another_size_is_reported_as_such() {
    let (spec, local) = (bench::spec(), "127.0.0.1:0".parse().unwrap());
    let input = adaptive::Input::open(local, None, &spec.geometry, spec.period).unwrap();
    let mut pixels = adaptive::Pixels::new(input, &spec.geometry, 1, rt::Wait::Sleep);
    let camera = adaptive::sender(pixels.input().address().unwrap()).unwrap();
    let commands = adaptive::sender(camera.local_addr().unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 200];
            for block in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let length =
                    Packet { block, content: Content::Leader { at_ns: 0, width: 320, height: 320 } }.write(&mut packet);
                // A larger image than the loop accepts.
                let _ = camera.send(&packet[..length.unwrap()]);
            }
        });
        let found = adaptive::calibrate(&spec, &mut adaptive::Before { pixels: &mut pixels, commands: &commands });
        stop.store(true, Ordering::Relaxed);
        found.unwrap_err().to_string()
    });
    assert!(said.contains("of another size than 64 x 64 pixels") && said.contains("--across"), "{said}");
}

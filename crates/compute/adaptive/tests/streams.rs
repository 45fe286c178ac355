//! Other programs truncate or remove the streams of a running loop.

mod bench;

use bench::running;
use std::fs::OpenOptions;

#[test]
fn a_program_that_truncates_and_removes_the_streams_of_a_loop_does_not_stop_it() {
    running("cut", 0, |running| {
        let paths = ["wfs", "slopes", "dm", "telemetry"].map(|name| running.folder.join(format!("t_{name}.im.shm")));
        for round in 1..=3u32 {
            let (restored, whole) = (running.value("restored"), running.value("whole"));
            for path in &paths {
                // The first rounds truncate the streams, as ImageStreamIO does when it creates them. The last round
                // removes them.
                match round {
                    3 => std::fs::remove_file(path).unwrap(),
                    _ => drop(OpenOptions::new().write(true).truncate(true).open(path).unwrap()),
                }
            }
            running.until("the streams are restored", || running.value("restored") >= restored + 4.0);
            running.until("the loop continues", || running.value("whole") > whole + 20.0);
            for path in &paths {
                running.until("the stream shows images", || {
                    let bytes = std::fs::read(path).unwrap();
                    ring::image::Head::read(&bytes).is_ok_and(|head| head.images > 0)
                });
            }
        }
        assert!(running.value("unwritten") >= 1.0, "images that could not be written are counted");
    });
}

//! NumPy reads the loop's streams by their published layout, as another program would.

mod bench;

use bench::running;
use std::process::Command;

/// Frame, kind, lines, columns and sum of a stream, as the example prints them.
fn read(running: &bench::Running<'_>, name: &str) -> (u64, String, [usize; 2], f64) {
    let python = std::env::var("TAHTI_PYTHON").expect("TAHTI_PYTHON: expected a Python that has numpy");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/ao/read_stream.py");
    let file = running.folder.join(format!("t_{name}.im.shm"));
    let output = Command::new(python).arg(script).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let &[found, frame, kind, lines, columns, sum] = &words[..] else { panic!("{text}") };
    assert_eq!(found, format!("t_{name}"));
    (frame.parse().unwrap(), kind.into(), [lines, columns].map(|size| size.parse().unwrap()), sum.parse().unwrap())
}

#[test]
fn numpy_reads_each_stage_of_a_running_loop_by_the_published_layout() {
    running("numpy", 0, |running| {
        running.until("closed", || running.value("whole") > 50.0 && running.value("command") > 1.0);
        let geometry = running.desk.spec().geometry.clone();
        let (width, points) = (geometry.width(), geometry.points());
        let all = [
            ("wfs", "uint16", [width, width]),
            ("slopes", "float32", [geometry.apertures().len(), 2]),
            ("dm", "float32", [points, points]),
            ("telemetry", "float64", [1, 28]),
        ];
        for (name, kind, size) in all {
            let (frame, found, shape, sum) = read(running, name);
            assert_eq!((found.as_str(), shape), (kind, size), "{name}");
            assert!(frame > 0 && sum.is_finite() && sum != 0.0, "{name}: frame {frame}, sum {sum}");
            // The loop runs, so a later read finds a later frame.
            running.until("later frame", || read(running, name).0 > frame);
        }
    });
}

//! An equipment manager in real time: its loops run in a frame of the plant, with a separate CPU and class.

use harness::machine::last_cpu;
use harness::plant::Bench;
use harness::process::{finish, kill, text, thread};
use std::process::{Output, Stdio};

const TABLES: &str = r#"
[manager]
name = "feedback"
frame = { name = "FRAME", activity = "feedback" }

[[device]]
name = "bpm_1"
driver = "bpm"
x = 0.5

[[device]]
name = "orbit_1"
driver = "feedback"
period = "20ms"
input = "sr_bpm_1/x"
output = "sr_bpm_1/kick={value}"
ki = 5
low = -1
high = 1

[[map]]
verb = "get"
object = "sr_bpm_{n}"
complement = "x"
device = "bpm_{n}"
point = "x"

[[map]]
verb = "put"
object = "sr_bpm_{n}"
complement = "kick={value}"
device = "bpm_{n}"
point = "kick"
limits = [-1, 1]

[[map]]
verb = "put"
object = "sr_fb_orbit_{n}"
device = "orbit_{n}"
point = "on"
convert = [{ enum = { off = 0, on = 1 } }]

[[map]]
verb = "get"
object = "sr_fb_orbit_{n}"
complement = "{what}"
for = { what = ["faults", "cycles"] }
device = "orbit_{n}"
point = "{what}"
"#;

#[test]
fn a_feedback_runs_in_a_frame_of_its_plant_and_returns_after_the_loss_of_the_frame() {
    let name = format!("fb{}", std::process::id());
    let plant = format!(
        "[messages]\nname = \"{name}\"\n\
         [[frame]]\nname = \"{name}-frame\"\ncpu = {}\nclass = \"fifo:40\"\nminors = 10\nperiod = \"2ms\"\n\
         [[frame.activity]]\nname = \"feedback\"\nbudget = \"500us\"\n\
         [[equipment]]\nname = \"feedback\"\nfile = \"feedback.toml\"\nserver = \"{name}\"\nafter = [\"{name}\"]\n",
        last_cpu()
    );
    let bench = Bench::new("root-equipment", &plant);
    std::fs::write(bench.dir.join("feedback.toml"), TABLES.replace("FRAME", &format!("{name}-frame"))).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let send = |line: &str| -> Output {
        let mut command = bench.tahti(&["msg", "send", "--server", &name, line]);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let says = |line: &str, wanted: &dyn Fn(&str) -> bool| bench.until(line, || wanted(text(&send(line)).trim()));
    says("put/sr_fb_orbit_1/on", &|said| said == "OK");
    says("get/sr_bpm_1/x", &|said| said.parse::<f64>().is_ok_and(|x| x.abs() < 0.01));
    assert_eq!(text(&send("get/sr_fb_orbit_1/faults")).trim(), "0");

    // The lane has the class and the CPU that the frame assigns to its activities.
    let lane = thread(bench.pid("feedback"), "lane").expect("a thread lane");
    let status = std::fs::read_to_string(lane.join("status")).unwrap();
    let cpus = format!("Cpus_allowed_list:\t{}", last_cpu());
    assert!(status.lines().any(|line| line == cpus), "{status}");

    kill(bench.pid(&format!("{name}-frame")), "KILL");
    bench.until("the manager runs again", || bench.process("feedback")["restarts"].as_u64() >= Some(1));
    says("put/sr_fb_orbit_1/on", &|said| said == "OK");
    says("get/sr_bpm_1/x", &|said| said.parse::<f64>().is_ok_and(|x| x.abs() < 0.01));
    bench.ok(&["down"]);
}

//! The page on a machine with a shield: disturbances of the shielded CPU, and the causes of late threads.

#[path = "dashboard_page/tour.rs"]
mod tour;

use harness::machine::last_cpu;
use harness::plant::Bench;
use harness::port::free_port;
use serde_json::json;

/// On the shielded CPU a loop and a more urgent process, which is sometimes busy for three of the loop's periods.
fn processes(port: u16, cpu: &str) -> String {
    let hog = "import time\nopen('/proc/self/comm', 'w').write('hog')\nprint('armed', flush=True)\nwhile True:\n  time.sleep(0.2)\n  \
               end = time.monotonic() + 0.003\n  while time.monotonic() < end: pass";
    format!(
        "[shield]\ncpus = \"{cpu}\"\nrequired = true\n\
         [recorder]\nname = \"recorder\"\nabove = \"500us\"\nwindow_after = \"10ms\"\nrecord = \"{cpu}\"\n\
         [[process]]\nname = \"loop\"\ncommand = \"tahti demo llrf --channel {}\"\nclass = \"fifo:40\"\ncpus = \"shield\"\n\
         ready = {{ line = \"armed:\", within = \"60s\" }}\n\
         [[process]]\nname = \"hog\"\ncommand = [\"python3\", \"-c\", {hog:?}]\nclass = \"fifo:60\"\ncpus = \"shield\"\nready = {{ line = \"armed\" }}\n\
         [dashboard]\nname = \"dashboard\"\nlisten = \"127.0.0.1:{port}\"\nwrite = true\n",
        harness::fresh("page-shield")
    )
}

#[test]
fn the_page_shows_the_shield_its_changes_and_the_culprits_of_late_wake_ups() {
    let cpu = last_cpu();
    let bench = Bench::new("root-page", &processes(free_port(), &cpu));
    bench.ok(&["up", ".", "--detach"]);
    tour::go(&bench, &["machine"], &json!({ "cpu": cpu }));
    let ended = bench.run(&["down"]);
    // The tour overwrites a mask that the shield has set.
    let said = harness::process::text(&ended);
    assert!(ended.status.code() == Some(3) && said.contains("shield: new interrupts: wrote "), "{said}");
}

//! Tours through a plant's page in a real browser; `cargo xtask test` sets it up.

use harness::PATIENCE;
use harness::plant::Bench;
use harness::process::{Running, text};
use serde_json::{Value, json};
use std::process::Command;

/// Runs these tours, each in a separate browser. `more` holds arguments in addition to the addresses.
pub(crate) fn go(bench: &Bench, tours: &[&str], more: &Value) {
    let modules = std::env::var("TAHTI_BROWSER")
        .expect("TAHTI_BROWSER names the folder of node_modules; `cargo xtask test browser` sets it");
    let tahti = bench.tahti(&[]);
    let mut plant = json!({
        "viewer": bench.ok(&["dash", "url"]).trim(), "operator": bench.ok(&["dash", "url", "--operator"]).trim(),
        "folder": bench.dir, "tahti": tahti.get_program().to_string_lossy(),
    });
    plant.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    for tour in tours {
        let mut node = Command::new("node");
        node.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dashboard_page/tour.mjs"), tour]).arg(plant.to_string());
        node.env("NODE_MODULES", &modules).env("TAHTI_RUN", bench.dir.join("run"));
        // Each step prints a line: on a busy machine a tour takes minutes.
        let (node, mut said) = (Running::follow(&mut node), Vec::new());
        loop {
            match node.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == "all good" => break,
                Ok(line) => said.push(line),
                Err(error) => {
                    let state = [&["ps"][..], &["logs", "alarms"], &["logs", "dashboard"]];
                    let state = state.map(|words| text(&bench.run(words))).join("\n");
                    panic!("tour {tour} did not end well ({error}):\n{}\n{state}", said.join("\n"));
                }
            }
        }
    }
}

//! Motor, scaler and sscan records, operated by classes that others wrote for them: ophyd's and pyepics'. EPICS base lacks
//! these records, so there is nothing to compare: each step of a client must succeed.
//!
//! `cargo xtask test epics` installs the clients. Everything stays on loopback, on free ports.

use harness::epics::{program, repeater};
use harness::ioc::Ioc;
use harness::process::Running;
use std::path::PathBuf;
use std::process::Command;

/// Runs the steps of a client until the last one has succeeded.
fn operate(client: &str) {
    let folder = std::env::var("TAHTI_PYTHON").expect("TAHTI_PYTHON is not set; run `cargo xtask test epics`");
    let records = [("records.db", include_str!("synapps/records.db"))];
    let ioc = Ioc::start(&records, &["-m", "P=X:", "-d", "records.db"]);
    // A client that finds no repeater starts one, which keeps running.
    let _repeater = repeater(true, ioc.port);
    let tool = program(true, "caget", ioc.port);
    let mut python = Command::new(PathBuf::from(folder).join("python"));
    python.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    python.arg("-u").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/synapps/clients.py")).arg(client);
    Running::until(&mut python, "all steps succeeded");
}

#[test]
fn ophyd_operates_a_motor_and_a_scaler() {
    operate("ophyd");
}

#[test]
fn pyepics_operates_a_motor_a_scaler_and_a_scan() {
    operate("pyepics");
}

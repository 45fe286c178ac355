//! Interrupts of QEMU's teaching device, measured to the thread that waits for them.

use harness::plant::Bench;
use serde_json::Value;
use testkit::guest::Bound;

/// Runs `tahti bench response` with the device. Returns its report.
fn response(bench: &Bench, device: &str) -> Value {
    let words = ["bench", "response", "--device", device, "--raise", "0x60=1", "--clear", "0x64=1", "--cpus", "2"];
    let few = ["--events", "800", "--period", "1ms", "--load", "none", "--json"];
    // Without the usual limit for a command: the emulator takes a minute.
    let output = bench.tahti(&[&words[..], &few].concat()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// Names and numbers of samples of a table's latencies.
fn samples(report: &Value, title: &str) -> Vec<(String, u64)> {
    let mut tables = report["tables"].as_array().unwrap().iter();
    let table = tables.find(|table| table["title"].as_str().unwrap().contains(title));
    let rows = table.unwrap_or_else(|| panic!("{title}: {report:#}"))["rows"].as_array().unwrap();
    let count = |row: &Value| row["latency"]["count"].as_u64().unwrap_or_else(|| panic!("{row:#}"));
    rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), count(row))).collect()
}

fn answered(report: &Value, conditions: &[&str]) {
    let all = samples(report, "from a device's interrupt");
    let measured: Vec<_> = all.iter().filter(|(name, _)| conditions.contains(&name.as_str())).collect();
    assert!(measured.len() == conditions.len() && measured.iter().all(|(_, count)| *count == 800), "{all:?}");
    let stages = samples(report, "stages of the response");
    for condition in conditions {
        let of: Vec<_> = stages.iter().filter(|(name, _)| name.starts_with(condition)).collect();
        // Events that the recorder loses have no stages.
        assert!(of.len() == 4 && of.iter().all(|(_, count)| (400..=800).contains(count)), "{stages:?}");
        assert!(of[0].0.ends_with("until the handler is entered"), "{of:?}");
    }
}

#[test]
fn the_response_to_a_pin_interrupt_is_measured() {
    let bound = Bound::edu("uio_pci_generic");
    let bench = Bench::new("interrupts-uio", "");
    let report = response(&bench, &bound.address);
    answered(&report, &["CPU 2 unloaded, open", "CPU 2 loaded, open"]);
    // This register raises no interrupt.
    let words = ["bench", "response", "--device", &bound.address, "--raise", "0x8=1", "--events", "800"];
    let output = bench.run(&words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("expected an interrupt, found none"), "{errors}");
}

#[test]
fn the_response_to_a_message_interrupt_is_measured() {
    let bound = Bound::edu("vfio-pci");
    let bench = Bench::new("interrupts-vfio", "");
    let report = response(&bench, &bound.address);
    answered(&report, &["CPU 2 unloaded, open", "CPU 2 loaded, open"]);
}

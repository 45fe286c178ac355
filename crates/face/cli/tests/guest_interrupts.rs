//! Interrupts of QEMU's teaching device, measured to the thread that waits for them.

use harness::ioc::Ioc;
use harness::plant::Bench;
use serde_json::Value;
use std::process::Command;
use sys::uio::Uio;
use testkit::guest::Bound;

/// Runs `tahti bench response` with the device. Returns its report.
fn response(bench: &Bench, device: &str, more: &[&str]) -> Value {
    let words = ["bench", "response", "--device", device, "--raise", "0x60=1", "--clear", "0x64=1", "--cpus", "2"];
    let few = ["--events", "800", "--period", "1ms", "--load", "none", "--json"];
    // Without the usual limit for a command: the emulator takes a minute.
    let output = bench.tahti(&[&words[..], &few, more].concat()).output().unwrap();
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
    let report = response(&bench, &bound.address, &[]);
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
    let report = response(&bench, &bound.address, &[]);
    answered(&report, &["CPU 2 unloaded, open", "CPU 2 loaded, open"]);
}

/// The last word that a command of the IOC's interpreter prints.
fn last(text: &str) -> &str {
    text.split_whitespace().last().unwrap_or_default()
}

#[test]
fn an_interrupt_processes_the_records_of_an_ioc_in_a_real_time_scan() {
    let bound = Bound::edu("uio_pci_generic");
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let address = format!("@{} clear=0x64=1 class=fifo:85 cpu=2", bound.address);
    let by_event = "field(SCAN, \"Event\") field(EVNT, \"pulse\") field(CALC, \"VAL+1\")";
    let database = format!(
        "record(longin, \"irq\") {{ field(DTYP, \"tahti Interrupt\") field(INP, \"{address}\") field(SCAN, \"I/O Intr\") \
         field(TSE, \"-2\") field(FLNK, \"post\") }}\n\
         record(event, \"post\") {{ field(VAL, \"pulse\") }}\n\
         record(calc, \"first\") {{ {by_event} field(PHAS, \"1\") }}\n\
         record(calc, \"second\") {{ {by_event} field(PHAS, \"2\") field(INPA, \"first\") field(CALC, \"A\") }}\n\
         record(longin, \"other\") {{ field(DTYP, \"tahti Interrupt\") field(INP, \"{address}\") field(SCAN, \"I/O Intr\") }}\n"
    );
    let mut ioc = Ioc::start(&[("edu.db", &database)], &["--scan", "I/O Intr,Event=fifo:80@2", "-d", "edu.db"]);
    let raise =
        Uio::open(&Uio::node_of(&bound.address).unwrap()).unwrap().bar(0).unwrap().register::<u32>(0x60).unwrap();
    for time in 1..=20 {
        raise.write(1);
        ioc.until("dbgf second", |said| last(said) == time.to_string());
    }
    assert_eq!(last(&ioc.say("dbgf first")), "20");
    let (count, tag) = (ioc.say("dbgf irq"), ioc.say("dbgf irq.UTAG"));
    assert!(last(&count) == last(&tag) && last(&count) != "0", "{count} {tag}");
    // A device belongs to one record.
    let other = ioc.say("dbgf other.STAT") + &ioc.say("dbgf other.SEVR");
    assert!(other.contains("COMM") && other.contains("INVALID"), "{other}");
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn the_time_from_an_interrupt_to_the_records_of_an_ioc_is_measured() {
    let bound = Bound::edu("uio_pci_generic");
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let bench = Bench::new("interrupts-ioc", "");
    let report = response(&bench, &bound.address, &["--ioc"]);
    let rows = samples(&report, "to the records of the IOC");
    assert!(rows.len() == 3 && rows.iter().all(|(_, count)| *count == 800), "{rows:?}");
    // Each step is later than the one before.
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let mean = |row: &Value| row["latency"]["mean_ns"].as_i64().unwrap();
    assert!(mean(&rows[0]) > 0 && mean(&rows[0]) < mean(&rows[1]) && mean(&rows[1]) < mean(&rows[2]), "{report:#}");
}

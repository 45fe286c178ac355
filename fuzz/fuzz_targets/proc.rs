//! Texts of `/proc` and `/sys`: no text makes a parser, a capture or a check panic.
#![no_main]

use host::doctor::{Facts, Files, Probes, FileContent, Use, examine, gzip, reads};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let line = proc::boot_line::BootLine::parse(text);
    let _ = (line.isolcpus(7), line.cpus("nohz_full", 7));
    proc::cgroup::memberships(text).for_each(drop);
    if let Ok(table) = proc::interrupts::Interrupts::parse(text) {
        table.rows.iter().for_each(|row| row.actions().for_each(drop));
    }
    let _ = (proc::chrony::Tracking::parse(text), proc::ptp::CurrentDataSet::parse(text));
    let _ = gzip::unpack(text.as_bytes(), 1 << 20);
    let _ = proc::limits::limit(text, "Max");
    proc::mountinfo::mounts(text).for_each(drop);
    let _ = proc::stat::cpu_times(text);
    let _ = proc::status::cpus_allowed(text);
    let _ = proc::task_stat::Stat::parse(text);
    let _ = proc::kconfig::Kconfig::new(text).get("PREEMPT");
    let _ = text.parse::<proc::version::Version>();

    if let Ok(files) = Files::from_capture(text) {
        let _ = Files::from_capture(&files.to_capture()).expect("what was written is read back");
        let _ = examine(&Facts { files, probes: Probes::none("not tried") }, &Use::ALL);
    }
    // The same text in every file that a check reads.
    let mut files = Files::new(true);
    for pattern in reads() {
        files.insert(pattern.replace('#', "1").replace('*', "x"), FileContent::Text(text.to_owned()));
    }
    let _ = examine(&Facts { files, probes: Probes::none("not tried") }, &Use::ALL);
});

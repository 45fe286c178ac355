//! Cost of processing records: the benchmark database of ANL/APS, by puts and by scans, with and without monitors.

use super::Scale;
use super::host::Ioc;
use super::kraimer::{RECORDS_PER_PASS, Reading, kraimer, monitored};
use super::wire::Circuit;
use crate::Failed;
use ca::wire::{Header, command};
use std::time::{Duration, Instant};

/// Outstanding puts: few, so that monitors get processed.
const PUTS: usize = 16;
/// Passes of a turn: 10 to 50 ms of an IOC's time.
const PASSES_PER_TURN: usize = 40 * PUTS;
/// Name of the record that counts the scans.
const PASSES: &str = "passes";

/// One copy, which stays in the caches.
pub(super) fn put_database(reading: Reading, _: &Scale) -> String {
    kraimer(1, reading, "Passive")
}

/// CPU per record when each pass is started by a put: ns without monitors.
pub(super) fn put(ioc: &mut Ioc, _: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let main = circuit.channel("c0:main.PROC")?;
    let mut work = |passes: usize| -> Result<(), Failed> {
        for _ in 0..passes / PUTS {
            (0..PUTS).for_each(|_| circuit.put(main, 1.0));
            circuit.get(main)?;
        }
        Ok(())
    };
    work(PUTS * 10)?;
    let (cpu, _) = ioc.measure(|| work(PASSES_PER_TURN))?;
    Ok(vec![cpu / (PASSES_PER_TURN as f64 * RECORDS_PER_PASS)])
}

/// Many copies, ten times a second.
pub(super) fn periodic_database(reading: Reading, scale: &Scale) -> String {
    format!("{}{}", kraimer(scale.of(1_000), reading, ".1 second"), pass_counter())
}

/// CPU per record when the copies are scanned: ns.
pub(super) fn periodic(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let mut circuit = Circuit::open(ioc.port)?;
    let passes = circuit.channel(PASSES)?;
    std::thread::sleep(Duration::from_millis(500));
    let (cpu, done) = window(ioc, &mut circuit, passes, scale.window)?;
    Ok(vec![cpu / (done * scale.of(1_000) as f64 * RECORDS_PER_PASS)])
}

/// A tenth of the copies, so that one circuit can carry the updates of all monitors.
pub(super) fn monitored_database(reading: Reading, scale: &Scale) -> String {
    format!("{}{}", kraimer(scale.of(100), reading, ".1 second"), pass_counter())
}

/// With all calc and ai monitored: CPU per record, CPU per update without that of records (ns), and the share of
/// received updates, in percent.
pub(super) fn monitors(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let copies = scale.of(100);
    let mut circuit = Circuit::open(ioc.port)?;
    let passes = circuit.channel(PASSES)?;
    std::thread::sleep(Duration::from_millis(300));
    let (alone, done) = window(ioc, &mut circuit, passes, scale.window)?;
    let alone = alone / done;
    let names: Vec<String> = (0..copies).flat_map(monitored).collect();
    let mut display = Circuit::open(ioc.port)?;
    let sids = display.channels(&names)?;
    display.subscribe(&sids)?;
    count_updates(&mut display, Duration::from_millis(500))?;
    let before = circuit.get(passes)?;
    let mut came = 0;
    let (cpu, _) = ioc.measure(|| {
        came = count_updates(&mut display, scale.window)?;
        Ok(())
    })?;
    let done = circuit.get(passes)? - before;
    let posted = done * copies as f64 * 300.0;
    Ok(vec![
        cpu / (done * copies as f64 * RECORDS_PER_PASS),
        (cpu - alone * done) / came as f64,
        100.0 * came as f64 / posted,
    ])
}

/// CPU load of scanning one copy with its 100 monitors at each published period, in percent of one CPU.
pub(super) fn load_by_period(ioc: &mut Ioc, scale: &Scale) -> Result<Vec<f64>, Failed> {
    let mut display = Circuit::open(ioc.port)?;
    let sids = display.channels(&monitored(0))?;
    display.subscribe(&sids)?;
    let scan = display.channel("c0:main.SCAN")?;
    let mut loads = Vec::new();
    for choice in ["1 second", ".5 second", ".2 second", ".1 second"] {
        let mut text = choice.as_bytes().to_vec();
        text.push(0);
        display.queue(Header::bare(command::WRITE, 0, 1, scan, 0), &text);
        display.flush()?;
        count_updates(&mut display, Duration::from_millis(300))?;
        let whole = scale.window.max(Duration::from_secs(2)).as_secs();
        let (cpu, wall) = ioc.measure(|| count_updates(&mut display, Duration::from_secs(whole)).map(|_| ()))?;
        loads.push(100.0 * cpu / wall);
    }
    Ok(loads)
}

fn pass_counter() -> String {
    format!("record(calc,\"{PASSES}\"){{field(SCAN,\".1 second\")field(CALC,\"VAL+1\")}}\n")
}

/// CPU time of an interval in ns, and its number of scans.
fn window(ioc: &Ioc, circuit: &mut Circuit, passes: u32, time: Duration) -> Result<(f64, f64), Failed> {
    let before = circuit.get(passes)?;
    let (cpu, _) = ioc.measure(|| {
        std::thread::sleep(time);
        Ok(())
    })?;
    let done = circuit.get(passes)? - before;
    if done < 1.0 { Err(Failed::answer("the IOC", "scans", "none")) } else { Ok((cpu, done)) }
}

/// Receives and counts updates for a time.
pub(crate) fn count_updates(circuit: &mut Circuit, time: Duration) -> Result<u64, Failed> {
    let begin = Instant::now();
    let mut count = 0;
    circuit.impatient(Some(Duration::from_millis(20)))?;
    while begin.elapsed() < time {
        circuit.fill()?;
        while let Some((header, _)) = circuit.message() {
            count += u64::from(header.command == command::EVENT_ADD);
        }
    }
    circuit.patient()?;
    Ok(count)
}

//! Time from a device's interrupt to the first and the second record that it processes: KEK's post-event experiment.

use super::host::{Ioc, Kind};
use super::wire::{Circuit, stamped};
use crate::measure::Interrupt;
use crate::response::device::Device;
use crate::{BenchResult, Failed, Progress};
use base::{CpuId, DurNs, Policy};
use ca::wire::command;
use report::{Good, Latency, Row, Table};
use sys::clock::{mono_now, sleep_until, wall_ns};

/// The IOC's records: the device's interrupt posts an event, which processes two records.
const NAMES: [&str; 3] = ["irq", "first", "second"];

/// The measurement.
pub(crate) struct PostEvent<'a> {
    pub(crate) device: &'a Device,
    /// The words of the record's address after the device.
    pub(crate) clear: String,
    /// Class of the thread that waits for the interrupt and of the scan.
    pub(crate) policy: Policy,
    /// Their CPU.
    pub(crate) cpu: CpuId,
    pub(crate) events: usize,
    pub(crate) period: DurNs,
}

impl PostEvent<'_> {
    fn database(&self) -> Result<String, Failed> {
        let node = self.device.uio().ok_or(Failed::Needs("a device bound to UIO: the IOC takes no other"))?;
        let (clear, policy, cpu) = (&self.clear, self.policy, self.cpu);
        let address = format!("@{node} {clear} class={policy} cpu={cpu}");
        let waits =
            format!("field(DTYP,\"tahti Interrupt\")field(INP,\"{address}\")field(SCAN,\"I/O Intr\")field(TSE,\"-2\")");
        let by_event = |name: &str, phase: u8| {
            let scan = "field(SCAN,\"Event\")field(EVNT,\"pulse\")field(PRIO,\"HIGH\")";
            format!("record(calc,\"{name}\"){{{scan}field(PHAS,\"{phase}\")field(CALC,\"VAL+1\")}}\n")
        };
        let [irq, first, second] = NAMES;
        let post = "record(event,\"post\"){field(VAL,\"pulse\")}\n";
        Ok(format!("record(longin,\"{irq}\"){{{waits}field(FLNK,\"post\")}}\n{post}")
            + &by_event(first, 1)
            + &by_event(second, 2))
    }

    pub(crate) fn measure(&self, progress: &mut Progress) -> Result<BenchResult, Failed> {
        let signals = Interrupt::watch()?;
        let scan = ["--scan".to_owned(), format!("I/O Intr,Event={}@{}", self.policy, self.cpu)];
        let ioc = Ioc::start(Kind::Stamped, &self.database()?, NAMES[1], &scan)?;
        let mut circuit = Circuit::open(ioc.port)?;
        let sids = circuit.channels(&NAMES.map(str::to_owned))?;
        circuit.subscribe(&sids)?;
        let mut times = [const { Vec::new() }; 3];
        let mut next = mono_now();
        for event in 0..self.events {
            if event % 1000 == 0 {
                progress.at(event, self.events, "interrupts of the device");
                signals.check()?;
            }
            sleep_until(next);
            next = mono_now() + self.period;
            let sent = wall_ns();
            self.device.ring();
            let mut stamps = [0; 3];
            circuit.expect(command::EVENT_ADD, 3, |header, payload| {
                if let Some(stamp) = stamps.get_mut(header.p2 as usize) {
                    *stamp = stamped(payload).0;
                }
            })?;
            let epics = sent.saturating_sub(EPOCH_NS);
            times.iter_mut().zip(stamps).for_each(|(times, stamp)| times.push(stamp.saturating_sub(epics)));
        }
        let mut table = Table::new("from a device's interrupt to the records of the IOC");
        let names = ["until its time stamp", "until the first record", "until the second record"];
        for (name, times) in names.into_iter().zip(&mut times) {
            table = table.row(Row::reference(name, Latency::of_times(times)).good(Good::Low));
        }
        let setup = vec![format!(
            "{} interrupts, at least {} apart; interrupt and scan in {} on CPU {}",
            self.events, self.period, self.policy, self.cpu
        )];
        Ok(BenchResult { setup, ..table.into() })
    }
}

/// Start of EPICS' time in Unix time.
const EPOCH_NS: u64 = 631_152_000 * 1_000_000_000;

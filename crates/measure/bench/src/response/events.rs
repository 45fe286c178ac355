//! The waiting thread, in a process of its own, and the events that another CPU sends to it.

use super::Measurement;
use super::device::{Device, Inherited, LIMIT};
use super::stages::Event;
use crate::explained::Explained;
use crate::failed::joined;
use crate::measure::{Gate, TaskPlacement, own_program, settle};
use crate::{Failed, Helper, read};
use base::{CpuId, DurNs, MonoNs, Policy};
use clap::Args as _;
use rt::Wait;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::ChildStdin;
use sys::clock::{mono_now, sleep_until};
use sys::sched::{Scheduling, set_affinity, set_scheduling};

/// The waiting process.
pub(crate) const RESPONDER: Helper =
    Helper { name: "responder", arguments: ResponderArgs::augment_args, run: |matches| responder(&read(matches)?) };

/// Maximum wait for an interrupt: longer than that of the thread that raises it, which reports a lost one.
const PATIENCE: DurNs = DurNs(2 * LIMIT.0);

/// Its command line.
#[derive(clap::Args)]
struct ResponderArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long)]
    class: Policy,
    #[arg(long)]
    events: usize,
    /// Descriptor of a device's interrupt, inherited
    #[arg(long)]
    interrupt: Option<i32>,
    /// Length of a reading of that descriptor
    #[arg(long, default_value_t = 8)]
    bytes: usize,
}

/// One piece: `count` events of the measurement's source.
pub(super) fn piece(
    with: &Measurement<'_>,
    place: &TaskPlacement,
    count: usize,
    explained: Option<&Explained>,
) -> Result<Vec<Event>, Failed> {
    let (period, policy) = (with.args.period, with.args.policy);
    let mut words = vec![
        own_program()?.display().to_string(),
        "bench".into(),
        "responder".into(),
        format!("--cpu={}", place.cpu),
        format!("--class={policy}"),
        format!("--events={count}"),
    ];
    let handed = with.device.map(Device::handed).transpose()?;
    if let Some((fd, bytes)) = &handed {
        words.extend([format!("--interrupt={}", fd.as_raw_fd()), format!("--bytes={bytes}")]);
    }
    let mut gate = Gate::start(&words, place, None)?;
    drop(handed);
    explained.inspect(|explained| explained.watch(gate.pid(), policy, "tahti"));
    gate.ready()?;
    let input = gate.input().ok_or_else(|| Failed::answer("the waiting thread", "a pipe", "none"))?;
    let others = with.others(place.cpu);
    let settled = move || {
        set_affinity(0, &others)?;
        // Otherwise delays of the sender between clock and event would count.
        Ok::<_, Failed>(set_scheduling(0, Scheduling { policy, reset_on_fork: true })?)
    };
    if let Some(device) = with.device {
        let events = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                settled()?;
                device.raise(count, period, &mut gate)
            });
            joined(sender.join())
        })?;
        gate.output()?;
        return Ok(events);
    }
    let sender = std::thread::spawn(move || {
        settled()?;
        send(count, period, input)
    });
    let output = gate.output()?;
    joined(sender.join())?;
    let times: Option<Vec<u64>> = output.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let times = times
        .filter(|times| times.len() == 2 * count)
        .ok_or_else(|| Failed::answer("the waiting thread", format!("{count} pairs of times"), &output))?;
    Ok(times.chunks_exact(2).map(|pair| Event { read: MonoNs(pair[0]), late_ns: pair[1] }).collect())
}

/// Writes the time into the pipe, once in a period.
fn send(count: usize, period: DurNs, mut input: ChildStdin) -> Result<(), Failed> {
    let mut next = mono_now() + DurNs::from_ms(50);
    for _ in 0..count {
        sleep_until(next);
        // A late event delays the next: each finds the thread waiting.
        next = mono_now() + period;
        input.write_all(&mono_now().0.to_le_bytes()).map_err(Failed::process("tahti bench responder"))?;
    }
    Ok(())
}

/// Prints that it is ready, and waits for each event.
fn responder(args: &ResponderArgs) -> Result<(), Failed> {
    settle(args.cpu, Some(args.class))?;
    match args.interrupt {
        Some(fd) => interrupts(args.events, &Inherited::take(fd, args.bytes)?),
        None => messages(args.events),
    }
}

/// Prints the time of each event in nanoseconds, at the end.
fn messages(events: usize) -> Result<(), Failed> {
    let mut times = vec![[1u64; 2]; events];
    let mut input = std::io::stdin().lock();
    println!("ready");
    for time in &mut times {
        let mut sent = [0; 8];
        input.read_exact(&mut sent).map_err(Failed::process("events"))?;
        let now = mono_now();
        *time = [now.0, (now - MonoNs(u64::from_le_bytes(sent))).0.max(0) as u64];
    }
    let times: Vec<String> = times.iter().flatten().map(ToString::to_string).collect();
    println!("{}", times.join(" "));
    Ok(())
}

/// Answers each interrupt with its time: the next one is raised afterwards.
fn interrupts(events: usize, source: &Inherited) -> Result<(), Failed> {
    println!("ready");
    let mut output = std::io::stdout().lock();
    for _ in 0..events {
        let came = rt::device::await_interrupt(source, Wait::Sleep, PATIENCE);
        let now = mono_now();
        let came = came.map_err(|errno| sys::Error { doing: "wait for an interrupt".into(), errno })?;
        came.ok_or_else(|| Failed::answer("the device", "an interrupt", format!("none for {PATIENCE}")))?;
        let sent = output.write_all(&now.0.to_le_bytes()).and_then(|()| output.flush());
        sent.map_err(Failed::process("tahti bench response"))?;
    }
    Ok(())
}

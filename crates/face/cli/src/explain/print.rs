//! Prints the result as text or as JSON.

use super::{Args, Recording};
use crate::failure::Failure;
use crate::out::{Colour, Painted};
use base::{DurNs, Quantile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use trace::{Culprit, Late, Occasion};

/// Maximum number of culprits in the table.
const ROWS_MAX: usize = 20;
/// Maximum number of parts that are printed for one delay.
const PARTS_MAX: usize = 8;

/// A time span with three significant digits.
pub(crate) fn span(ns: u64) -> String {
    let (scale, unit) = match ns {
        0..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / scale;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

fn quantile(found: &Recording, num: u64, den: u64) -> String {
    let delays = &found.summary().delays;
    match delays.quantile(num, den) {
        Quantile::At(DurNs(ns)) => span(ns.max(0) as u64),
        Quantile::Beyond(DurNs(ns)) => format!("> {}", span(ns.max(0) as u64)),
        Quantile::Empty => "-".into(),
    }
}

/// The percentiles that this number of values supports.
fn quantiles(count: u64) -> Vec<(&'static str, u64, u64)> {
    let all = [("p50", 50, 100), ("p99", 99, 100), ("p99.9", 999, 1000), ("p99.99", 9999, 10000)];
    all.into_iter().filter(|(_, num, den)| count * (den - num) >= *den || *num == 50).collect()
}

pub(super) fn text(args: &Args, found: &Recording) -> Result<(), Failure> {
    let summary = found.summary();
    println!("{}: CPU {}, {}", found.who, found.cpus, span(found.span.0 as u64));
    let count = summary.delays.count();
    if count == 0 {
        println!("no wake-up was recorded: the threads slept, or ran on other CPUs (--cpus)");
    } else {
        let shown =
            quantiles(count).into_iter().map(|(name, num, den)| format!("{name} {}", quantile(found, num, den)));
        let max = summary.delays.max().map_or(0, |max| max.0.max(0) as u64);
        println!("{count} wake-ups, late by: {}, max {}", shown.collect::<Vec<_>>().join(", "), span(max));
    }
    let ordinary = found.explainer.ordinary();
    if !std::ptr::eq(summary, ordinary) && ordinary.delays.count() > 0 {
        println!("excluded {} of time-sharing threads (--name or --tid includes them)", ordinary.delays.count());
    }
    println!();
    if count > 0 && summary.late == 0 {
        println!("none was later than {}", args.above);
    } else if summary.late > 0 {
        culprits(args, found);
        worst(found);
    }
    println!();
    notes(found);
    Ok(())
}

/// The table of culprits: the tasks, interrupts and kernel work that caused delays.
fn culprits(args: &Args, found: &Recording) {
    let summary = found.summary();
    println!("{} later than {}, together {}:", summary.late, args.above, span(summary.late_ns));
    println!("{}", Painted(Colour::Head, format!("{:>8}  {:>6}  {:>9}  culprit", "share", "delays", "longest")));
    let ranked = summary.ranked();
    for (culprit, tally) in ranked.iter().take(ROWS_MAX) {
        let share = 100.0 * tally.total_ns as f64 / summary.late_ns as f64;
        println!("{share:>6.1} %  {:>6}  {:>9}  {culprit}", tally.delays, span(tally.longest_ns));
    }
    if ranked.len() > ROWS_MAX {
        let rest: u64 = ranked[ROWS_MAX..].iter().map(|(_, tally)| tally.total_ns).sum();
        let share = 100.0 * rest as f64 / summary.late_ns as f64;
        println!("{share:>6.1} %  {:>6}  {:>9}  {} others", "", "", ranked.len() - ROWS_MAX);
    }
    let host = summary.share(Culprit::is_host);
    let either = summary.share(Culprit::may_be_host);
    println!("certainly the host: {host:.1} %; either the host or this kernel: {either:.1} %");
}

/// The longest delays, each with its parts.
fn worst(found: &Recording) {
    let worst = &found.summary().worst;
    println!();
    println!("{}", Painted(Colour::Head, format!("the worst {}:", worst.len())));
    for late in worst {
        println!("{}", headline(late));
        breakdown(late);
        if !late.program_events.is_empty() {
            println!("    {}", Painted(Colour::Faint, format!("it reported: {}", reported(late).join(", "))));
        }
        if !late.stack.is_empty() {
            println!("    {}", Painted(Colour::Faint, format!("found the kernel in: {}", late.stack.join(" < "))));
        }
    }
}

/// The parts of a delay in chronological order. If there are more than [`PARTS_MAX`], the sum for each culprit.
fn breakdown(late: &Late) {
    if late.parts.len() <= PARTS_MAX {
        late.parts.iter().for_each(|part| println!("    {:>9}  {}", span(part.ns), part.culprit));
        return;
    }
    let all = late.by_culprit();
    for (culprit, ns) in all.iter().take(PARTS_MAX) {
        let times = late.parts.iter().filter(|part| part.culprit == **culprit).count();
        println!(
            "    {:>9}  {culprit}{}",
            span(*ns),
            if times > 1 { format!(", {times} times") } else { String::new() }
        );
    }
    if all.len() > PARTS_MAX {
        let rest = all[PARTS_MAX..].iter().map(|(_, ns)| ns).sum();
        println!("    {:>9}  {} others", span(rest), all.len() - PARTS_MAX);
    }
}

/// The events that the thread reported before it ran, as text.
fn reported(late: &Late) -> Vec<String> {
    let before = |event: &trace::ProgramEvent| span(late.ran.0.saturating_sub(event.at.0));
    let shown =
        |event: &trace::ProgramEvent| format!("{} {} ({} before it ran)", event.name, event.value, before(event));
    late.program_events.iter().map(shown).collect()
}

fn headline(late: &Late) -> String {
    let due = late.due.0 as f64 / 1e9;
    let occasion = match late.occasion {
        Occasion::Timer => format!("due at {due:.6}"),
        Occasion::Event => format!("woken at {due:.6}"),
        Occasion::Cycle => format!("a cycle that began at {due:.6}"),
    };
    let faults = if late.faults > 0 { format!(", {} own page faults", late.faults) } else { String::new() };
    format!("{:>10}  {} ({}), CPU {}, {occasion}{faults}", span(late.delay_ns()), late.name, late.tid, late.cpu)
}

/// Limits of the result (lost or undecoded events), and the cost of recording.
fn notes(found: &Recording) {
    let lost = found.lost;
    if lost.times > 0 {
        println!(
            "lost: {} events in {} places: delays in them are unexplained (--buffer-kb sets a larger buffer)",
            lost.events, lost.times
        );
    }
    if lost.broken > 0 {
        println!("not decoded: {} pages or records", lost.broken);
    }
    found.changed.iter().for_each(|line| println!("{}", Painted(Colour::Bad, line)));
    for without in &found.lacks {
        println!("this kernel does not record {without}");
    }
    let reported: Vec<String> =
        found.explainer.program_events().iter().map(|(name, count)| format!("{name} {count} times")).collect();
    if !reported.is_empty() {
        println!("the threads reported: {}", reported.join(", "));
    }
    if found.reported_lost > 0 {
        println!("{} events of programs were overwritten before they were read", found.reported_lost);
    }
    match found.steal {
        Some(DurNs(0)) => {
            println!("the hypervisor's steal clock of these CPUs did not advance (it counts steps of 10 ms)")
        }
        Some(steal) => {
            println!("the hypervisor's steal clock of these CPUs advanced by {}", span(steal.0.max(0) as u64))
        }
        None => {}
    }
    let seconds = found.span.0.max(1) as f64 / 1e9;
    println!(
        "recorded {} events ({:.0} a second); reading and explaining them took {:.2} % of one CPU",
        found.events,
        found.events as f64 / seconds,
        100.0 * found.burnt.0 as f64 / 1e9 / seconds,
    );
}

pub(super) fn json(args: &Args, found: &Recording) -> Result<(), Failure> {
    let summary = found.summary();
    let quantile_ns = |num, den| match summary.delays.quantile(num, den) {
        Quantile::At(at) => json!(at.0),
        Quantile::Beyond(_) | Quantile::Empty => Value::Null,
    };
    let percentiles: serde_json::Map<String, Value> = quantiles(summary.delays.count())
        .into_iter()
        .map(|(name, num, den)| (format!("{name}_ns"), quantile_ns(num, den)))
        .collect();
    let culprits: Vec<Value> = summary
        .ranked()
        .iter()
        .map(|(culprit, tally)| json!({ "culprit": culprit, "text": culprit.to_string(), "delays": tally.delays, "total_ns": tally.total_ns, "longest_ns": tally.longest_ns }))
        .collect();
    let whole = json!({
        "cpus": found.cpus.to_string(),
        "span_ns": found.span.0,
        "above_ns": args.above.0,
        "wakeups": summary.delays.count(),
        "percentiles": percentiles,
        "max_ns": summary.delays.max().map(|max| max.0),
        "late": summary.late,
        "late_ns": summary.late_ns,
        "culprits": culprits,
        "worst": summary.worst,
        "lost": found.lost,
        "not_recorded": found.lacks,
        "changed": found.changed,
        "steal_ns": found.steal.map(|steal| steal.0),
        "events": found.events,
        "program_events": found.explainer.program_events().iter().map(|(name, count)| (name.to_string(), *count)).collect::<BTreeMap<_, _>>(),
        "program_events_lost": found.reported_lost,
        "reader_burnt_ns": found.burnt.0,
    });
    let text = serde_json::to_string_pretty(&whole)?;
    println!("{text}");
    Ok(())
}

//! Prints a profile as tables, and writes it as folded stacks, a drawing or a page.

use super::{Args, Sampled};
use crate::explain::span;
use crate::failure::{Failure, in_file};
use profile::{ProfileData, Row};
use std::fmt::Write as _;
use std::path::Path;
use sys::perf::Source;

/// Maximum number of functions printed in each list of an object.
const LISTED: usize = 40;

pub(super) fn shown(args: &Args, sampled: &Sampled) -> Result<(), Failure> {
    if sampled.found.samples == 0 {
        let took = span(sampled.span.0.max(0) as u64);
        let why = match sampled.how.source {
            Source::PageFaults => "used no new memory",
            _ => "took no processor time",
        };
        println!("no sample within {took}: these threads {why} ({})", sampled.who);
        print!("{}", growth(sampled));
        return Ok(());
    }
    let text = tables(args, sampled);
    print!("{text}");
    let Some(file) = &args.output else { return Ok(()) };
    let made = match file.extension().and_then(|end| end.to_str()) {
        Some("folded") => sampled.found.folded(),
        Some("svg") => report::flame(&title(sampled), &sampled.found.folded()),
        _ => report::flame_page(&title(sampled), &sampled.found.folded(), &text),
    };
    std::fs::write(file, made).map_err(in_file(file))?;
    println!("\nwrote {}", Path::display(file));
    Ok(())
}

fn title(sampled: &Sampled) -> String {
    format!("{}: {} samples in {}", sampled.who, sampled.found.samples, span(sampled.span.0.max(0) as u64))
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}

fn tables(args: &Args, sampled: &Sampled) -> String {
    let mut out = String::new();
    head(&mut out, sampled);
    let found = &sampled.found;
    let _ = writeln!(out, "\n   share  samples  thread");
    for (thread, samples) in found.by_thread().into_iter().take(args.top) {
        let name = if thread.name.is_empty() { "(ended before its name was known)" } else { &thread.name };
        let _ = writeln!(
            out,
            "{:>6.1} %  {samples:>7}  {} ({}, process {})",
            percent(samples, found.samples),
            name,
            thread.tid,
            thread.pid
        );
    }
    match args.by_thread {
        true => found.by_thread().into_iter().take(args.top).for_each(|(thread, samples)| {
            let _ = writeln!(out, "\n{} ({}, process {})", thread.name, thread.tid, thread.pid);
            functions(&mut out, &found.rows(Some(thread.tid)), samples, args.top);
        }),
        false => {
            out.push('\n');
            functions(&mut out, &found.rows(None), found.samples, args.top);
        }
    }
    if args.coverage {
        coverage(&mut out, found);
    }
    out
}

fn head(out: &mut String, sampled: &Sampled) {
    let (found, how) = (&sampled.found, &sampled.how);
    let took = span(sampled.span.0.max(0) as u64);
    let rate = |by: &str| format!("{} samples a second of processor time {by}", how.hz);
    let when = match how.source {
        Source::Cycles => rate("by the CPU's counter of cycles"),
        Source::CpuClock => rate(
            "by the kernel's timer (no cycle counter here: code that masks interrupts appears at the point where it unmasks them)",
        ),
        Source::PageFaults => "a sample at the first use of each page of memory".into(),
    };
    let _ = writeln!(out, "{}: {took}, {when}", sampled.who);
    out.push_str(&growth(sampled));
    let weight: u64 = found.stacks.iter().map(|stack| stack.weight).sum();
    let of = match how.source {
        Source::Cycles => format!("{weight} of {} cycles", sampled.counted),
        Source::CpuClock => format!("{} of {} processor time", span(weight), span(sampled.counted)),
        Source::PageFaults => format!("{weight} of {} page faults", sampled.counted),
    };
    let _ = writeln!(
        out,
        "{} samples represent {of}; {} lost{}",
        found.samples,
        sampled.lost,
        if found.throttled > 0 {
            format!(
                "; the kernel stopped sampling {} times for its cost (kernel.perf_cpu_time_max_percent)",
                found.throttled
            )
        } else {
            String::new()
        }
    );
    if !how.kernel {
        out.push_str("kernel functions are not included: this needs root, CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less\n");
    }
    if how.stack_bytes == 0 {
        out.push_str("callers by frame pointers: callers of code built without them are missing\n");
    }
    for (cut, samples) in &found.cut {
        let name = cut.frame();
        let _ = writeln!(out, "{name} in {samples} samples ({:.2} %)", percent(*samples, found.samples));
    }
    if found.merged > 0 {
        let _ = writeln!(out, "{} samples without their callers: more different stacks than are kept", found.merged);
    }
    let cost = sampled.cost.map_or(String::new(), |cost| {
        let each = span(cost.0.max(0) as u64);
        let share = cost.0 as f64 * f64::from(how.hz) / 1e7;
        format!("; each sample takes {each} of the thread, {share:.2} % at this rate")
    });
    let _ = writeln!(
        out,
        "reading and decoding them took {:.2} % of a CPU{cost}; rings of {} KiB",
        percent(sampled.burnt.0.max(0) as u64, sampled.span.0.max(1) as u64),
        sampled.rings_bytes >> 10
    );
}

/// The growth of the processes, a line each.
fn growth(sampled: &Sampled) -> String {
    let size = |kib: u64| crate::out::bytes(kib << 10);
    let line = |process: &super::watch::Growth| match process.kib {
        [Some(before), Some(after)] => {
            format!("{} ({}): {} resident before, {} after\n", process.name, process.pid, size(before), size(after))
        }
        [Some(before), None] => {
            format!("{} ({}): {} resident before; it has ended\n", process.name, process.pid, size(before))
        }
        [None, _] => String::new(),
    };
    sampled.growth.iter().map(line).collect()
}

fn functions(out: &mut String, rows: &[Row], samples: u64, top: usize) {
    let _ = writeln!(out, "    self    total  function");
    let line = |out: &mut String, row: &Row| {
        let short = row.object.rsplit('/').next().unwrap_or_default();
        let has_no_place = short.is_empty() || row.name == format!("[{short}]") || row.name == row.object;
        let place = if has_no_place { String::new() } else { format!("  ({short})") };
        let _ = writeln!(
            out,
            "{:>6.2} % {:>6.2} %  {}{place}",
            percent(row.own, samples),
            percent(row.total, samples),
            row.name
        );
    };
    rows.iter().take(top).for_each(|row| line(out, row));
    let rest: u64 = rows.iter().skip(top).map(|row| row.own).sum();
    if rows.len() > top {
        let _ = writeln!(out, "{:>6.2} %           {} others", percent(rest, samples), rows.len() - top);
    }
}

fn coverage(out: &mut String, found: &ProfileData) {
    let _ = writeln!(out, "\nfunctions seen on any stack; a function not seen may have run between two samples");
    for of in found.coverage() {
        let (seen, all) = (of.seen.len(), of.seen.len() + of.not_seen.len());
        let _ = writeln!(out, "{:.1} % ({seen} of {all}) {}", percent(seen as u64, all as u64), of.object);
        for (mark, names) in [("+", &of.seen), ("-", &of.not_seen)] {
            names.iter().take(LISTED).for_each(|name| {
                let _ = writeln!(out, "  {mark} {}", name);
            });
            if names.len() > LISTED {
                let _ = writeln!(out, "  {mark} … {} more", names.len() - LISTED);
            }
        }
    }
}

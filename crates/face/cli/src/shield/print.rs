//! Prints the results of `tahti shield`.

use crate::failure::Failure;
use base::CpuSet;
use base::text::Counted;
use host::plan::{Drift, ForeignValue, Note, Plan, ShieldParts, Step, Want};
use host::snapshot::Target;
use host::suggest::Rated;
use keep::shield::journal::{Journal, Refused};
use keep::shield::watch::{Look, Status, Unmoved};
use keep::shield::{Applied, Released};
use serde::Serialize;

/// Maximum number of names in one line. The rest is only counted.
const NAMES_MAX: usize = 6;

/// Prints a value as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints the suggested CPUs, and what stays on each CPU.
pub(super) fn suggested(cpus: &CpuSet, ranked: &[Rated]) {
    println!("shield CPUs {cpus} (--cpus {cpus}, or auto:{})\n", cpus.count());
    println!("{:>4} {:>12}   what a shield cannot move away", "CPU", "events/s");
    for one in ranked {
        let mark = if cpus.contains(one.cpu) { "*" } else { " " };
        let isolated = one.isolated.then(|| "isolated at boot".to_owned());
        let reasons: Vec<String> = isolated.into_iter().chain(one.reasons.iter().map(ToString::to_string)).collect();
        let reasons = if reasons.is_empty() { "nothing".to_owned() } else { reasons.join("; ") };
        println!("{mark}{:>3} {:>12.3}   {reasons}", one.cpu, one.per_1000_s as f64 / 1e3);
    }
    println!("* suggested; the best first; events are those since boot, on average");
}

/// Prints a plan. Similar steps on tasks are combined in one line; other steps are printed one by one.
pub(super) fn plan(want: &Want, plan: &Plan) {
    println!("Shield of CPUs {} (profile {}{}) by {}:", want.cpus, want.profile, partly(want), plan.backend);
    let (remembered, steps): (Vec<Step>, Vec<Step>) = plan.steps.iter().cloned().partition(Step::remembers);
    if steps.is_empty() {
        println!("  nothing to do: it is active");
    }
    let mut steps = steps.as_slice();
    while let Some(step) = steps.first() {
        let alike = steps.iter().take_while(|next| is_like(step, next)).count();
        if alike > 1 {
            println!("  {} tasks -> {}", alike, step.to);
            println!("      {}", some(steps[..alike].iter().map(|step| step.label.trim_start_matches("task "))));
        } else {
            println!("  {}: {} -> {}", step.label, step.from, step.to);
        }
        println!("      {}", step.why);
        steps = &steps[alike..];
    }
    if !remembered.is_empty() {
        let masks = Counted(remembered.len(), "mask");
        println!("\n{masks} of tasks that stay as they are will be noted: the kernel may forget them on the way");
    }
    notes(&plan.notes);
    boot(&plan.boot);
}

/// The parts of the shield, if it does not include all of them.
fn partly(want: &Want) -> String {
    if want.parts == ShieldParts::default() { String::new() } else { format!(", {} only", want.parts) }
}

/// Whether two steps make the same change to two tasks.
fn is_like(a: &Step, b: &Step) -> bool {
    let task = |step: &Step| matches!(step.target, Target::Task { .. });
    a.target == b.target || (task(a) && task(b) && a.to == b.to && a.from == b.from && a.why == b.why)
}

/// The first names, and the number of the others.
fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(NAMES_MAX) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMES_MAX].join(", ")),
    }
}

fn notes(notes: &[Note]) {
    if !notes.is_empty() {
        println!("\nNotes:");
    }
    for note in notes {
        println!("  {}: {}", note.about, note.text);
    }
}

fn boot(notes: &[Note]) {
    if !notes.is_empty() {
        println!("\nOnly boot parameters can do more:");
    }
    for note in notes {
        println!("  {:<32} {}", note.about, note.text);
    }
}

fn refused(refused: &[Refused]) {
    if !refused.is_empty() {
        println!("\nRefused by the kernel:");
    }
    for refused in refused {
        println!("  {}: {}", refused.label, refused.answer);
        if !refused.why.is_empty() {
            println!("      {}", refused.why);
        }
    }
}

fn drifted(drift: &[Drift]) {
    for drift in drift {
        println!("  {drift}");
    }
}

/// Prints the result of `apply`.
pub(super) fn applied(applied: &Applied) {
    if let Some(found) = &applied.found {
        println!("{found}");
    }
    let Want { cpus, profile, .. } = &applied.want;
    let parts = partly(&applied.want);
    if applied.rounds == 0 {
        println!("CPUs {cpus} are shielded already (profile {profile}{parts}): nothing to do");
    } else {
        let Applied { writes, rounds, backend, .. } = applied;
        let (writes, rounds) = (Counted(*writes, "write"), Counted(*rounds, "round"));
        println!("CPUs {cpus} are shielded (profile {profile}{parts}) by {backend}: {writes} in {rounds}");
    }
    refused(&applied.refused);
    notes(&applied.notes);
    boot(&applied.boot);
    if !applied.drift.is_empty() {
        println!("\nNot as written:");
        drifted(&applied.drift);
    }
}

/// Prints the values that differ from those written.
pub(super) fn drift(journal: &Journal, drift: &[Drift]) {
    let steps = journal.rounds.iter().flatten().filter(|step| !step.remembers()).count();
    if drift.is_empty() {
        println!("CPUs {}: all {steps} values are as they were written", journal.want.cpus);
    } else {
        println!("CPUs {}: {} of {steps} values are not as they were written", journal.want.cpus, drift.len());
        drifted(drift);
        println!("tahti shield apply writes them again");
    }
    refused(&journal.refused);
}

/// Maximum lines of names below a shielded CPU. The rest is only counted.
const REACHERS_MAX: usize = 12;

/// Prints what reaches each CPU as a table, with the names for the shielded CPUs.
pub(super) fn status(status: &Status) {
    match &status.want {
        Some(want) => println!("CPUs {} are shielded (profile {}{})", want.cpus, want.profile, partly(want)),
        None => println!("no shield is active"),
    }
    if let Some((state, cpus)) = &status.leftover {
        println!("{}", state.leftover(cpus));
    }
    for orphan in &status.orphans {
        println!("{orphan}: of a shield that no journal describes; `tahti shield release` removes it if it is empty");
    }
    kept(&status.kept);
    let seconds = status.window_ms as f64 / 1e3;
    println!(
        "\n{:>4} {:>8} {:>10} {:>10} {:>10} {:>10} {:>8}   in {seconds} s",
        "CPU", "tasks", "interrupts", "ticks", "softirqs", "kthreads", "IPIs"
    );
    for cpu in &status.cpus {
        let mark = match (cpu.shielded, cpu.beside.is_empty()) {
            (true, _) => "*",
            (false, false) => "+",
            (false, true) => " ",
        };
        println!(
            "{mark}{:>3} {:>8} {:>10} {:>10} {:>10} {:>10} {:>8}",
            cpu.cpu, cpu.tasks, cpu.interrupts, cpu.ticks, cpu.softirqs, cpu.kernel_threads, cpu.ipis
        );
    }
    println!("* shielded; tasks and kernel threads (kthreads) are those that may run there, all else was counted");
    if status.cpus.iter().any(|cpu| !cpu.beside.is_empty()) {
        println!(
            "+ shares its core with a shielded CPU, which it slows down when it works: shield it too, and leave it idle"
        );
    }
    for cpu in status.cpus.iter().filter(|cpu| cpu.shielded || !cpu.beside.is_empty()) {
        match cpu.shielded {
            true => println!("\nActivity on CPU {}:", cpu.cpu),
            false => println!("\nWhat ran on CPU {}, on the core of CPU {}:", cpu.cpu, cpu.beside),
        }
        if cpu.names.is_empty() {
            println!("  nothing");
        }
        for named in cpu.names.iter().take(REACHERS_MAX) {
            println!("  {:>8}  {:<15} {}", named.count, named.kind.word(), named.name);
        }
        if let Some(more) = cpu.names.len().checked_sub(REACHERS_MAX).filter(|more| *more > 0) {
            println!("  and {more} more (--json lists them)");
        }
    }
    if !status.unmoved.is_empty() {
        println!("\nNot moved, and why:");
    }
    for Unmoved { cpu, what, reason } in &status.unmoved {
        println!("  {}{what}: {reason}", cpu.map_or(String::new(), |cpu| format!("CPU {cpu}, ")));
    }
    if !status.drift.is_empty() {
        println!("\nNot as written:");
        drifted(&status.drift);
    }
    if !status.newcomers.is_empty() {
        println!("\nCome since (tahti shield apply sends them away):");
        for step in &status.newcomers {
            println!("  {}: {} -> {}", step.label, step.from, step.to);
        }
    }
}

/// Prints the result of one check; nothing if all is well.
pub(super) fn look(look: &Look) {
    for drift in &look.drift {
        println!("{drift}");
    }
    for step in &look.newcomers {
        println!("{}: {}, should be {}", step.label, step.from, step.to);
    }
    if let Some(repaired) = &look.repaired {
        println!("repaired: {}", Counted(repaired.writes, "write"));
    }
}

/// Prints the result of `release`.
pub(super) fn released(released: &Released) {
    if released.other_boot {
        println!("a journal from another boot was removed: the reboot has undone its changes");
    }
    match &released.want {
        None => println!("no shield is active: nothing to do"),
        Some(want) => println!("CPUs {} are released: {}", want.cpus, Counted(released.writes, "write")),
    }
    kept(&released.kept);
    refused(&released.refused);
}

/// Prints the values that another program changed.
fn kept(kept: &[ForeignValue]) {
    if !kept.is_empty() {
        println!(
            "\nChanged by another program and left as they are (tahti shield release --force restores the old values):"
        );
    }
    for kept in kept {
        println!("  {}: was {}, we wrote {}, found {}", kept.label, kept.before, kept.ours, kept.found);
    }
}

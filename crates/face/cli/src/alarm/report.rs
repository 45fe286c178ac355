//! `tahti alarm report`: performance figures of the alarm system, as defined by ISA-18.2.

use super::history::JournalArgs;
use super::visible;
use crate::archive::time;
use crate::failure::Failure;
use alarm::{Figures, Reckoner, Wall};

/// Report the alarm figures of ISA-18.2: rate, floods, chattering, stale and shelved alarms
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti alarm report --from -168h
  tahti alarm report --folder /var/lib/tahti/alarms --json")]
pub(super) struct Args {
    #[command(flatten)]
    of: JournalArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut reckoner = Reckoner::default();
    let (from, to, is_running) = args.of.read(&mut |entry, is_snapshot| reckoner.take(&entry, is_snapshot))?;
    let figures = reckoner.finish(Wall(from), Wall(to), is_running);
    if args.json {
        println!("{}", serde_json::json!(figures));
    } else {
        print!("{}", text(&figures));
    }
    Ok(())
}

fn text(figures: &Figures) -> String {
    let span = keep::supervisor::short(base::DurNs(figures.to.0.saturating_sub(figures.from.0)));
    let evaluated = keep::supervisor::short(base::DurNs((figures.evaluated_secs * 1e9) as i64));
    let mut lines = vec![
        format!("from {}, {span}", time::show(figures.from.0)),
        format!("alarms were evaluated for {evaluated} of it; rates are of that time"),
        format!("{:<44} target", ""),
        format!(
            "{:<28} {:<15} 6 an hour, 12 at most",
            "alarms",
            format!("{}, {:.1} an hour", figures.alarms, figures.per_hour)
        ),
        format!("{:<28} {:<15} 10 at most", "most in ten minutes", figures.ten_minutes_max),
        format!(
            "{:<28} {:<15} less than 1 %",
            "time in floods",
            format!("{}, {:.2} %", figures.floods, figures.flooded_percent)
        ),
    ];
    for (severity, count) in &figures.by_severity {
        let percent = 100.0 * *count as f64 / figures.alarms.max(1) as f64;
        let wanted = match severity.as_str() {
            "MINOR" => "80 %",
            "MAJOR" => "15 %",
            _ => "5 %",
        };
        lines.push(format!("{:<28} {:<15} {wanted}", format!("  {severity}"), format!("{count}, {percent:.0} %")));
    }
    let after = figures.acknowledged_after_secs.map_or_else(String::new, |secs| format!(", after {secs:.0} s"));
    lines.push(format!("{:<28} {}{after}", "acknowledged", figures.acknowledged));
    let mut list = |title: &str, all: Vec<String>| {
        if !all.is_empty() {
            lines.push(format!("\n{title}"));
            lines.extend(all);
        }
    };
    let top =
        figures.top.iter().map(|one| format!("  {:>6}  {:>4.0} %  {}", one.count, one.percent, visible(&one.path)));
    list("most often", top.collect());
    let chattering = figures.chattering.iter();
    let chattering = chattering.map(|one| {
        format!(
            "  {:>6} a minute  {}  (off_delay = \"{}\" would make one of them)",
            one.per_minute,
            visible(&one.path),
            one.off_delay
        )
    });
    list("chattering", chattering.collect());
    let stale = figures
        .stale
        .iter()
        .map(|one| format!("  {:<13} {}  since {}", one.severity, visible(&one.path), time::show(one.since.0)));
    list("active for more than a day", stale.collect());
    let aside =
        figures.aside.iter().map(|one| format!("  {:<15} {}  by {}", one.how, visible(&one.path), visible(&one.by)));
    list("shelved or disabled", aside.collect());
    lines.join("\n") + "\n"
}

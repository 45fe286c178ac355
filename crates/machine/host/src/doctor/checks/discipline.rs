//! Checks the synchronisation of the system clock: by which program, and how well.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Timex, Unknown, Use};

/// Programs that adjust `CLOCK_REALTIME`: names as in `/proc/PID/comm`, at most 15 characters.
pub(in crate::doctor) const STEERING: &[&str] =
    &["chronyd", "ntpd", "systemd-timesyn", "phc2sys", "ntpd-rs", "openntpd"];

/// Whether the clock is synchronised, by which program, and how well.
pub struct Synchronised;

impl Check for Synchronised {
    fn about(&self) -> &'static About {
        &About {
            id: "clock-sync",
            title: "clock discipline",
            what: "The state of CLOCK_REALTIME from adjtimex, the programs that steer it (chronyd, ntpd, systemd-timesyncd, phc2sys with ptp4l), and \
                   the offsets from chronyc and pmc.",
            why: "A loop uses CLOCK_MONOTONIC, which is never set, but whose rate follows the steering. Timestamps and pulse numbers shared between \
                  machines need a synchronised clock. Two programs that steer the same clock work against each other.",
            source: "adjtimex(2); chrony.conf(5); phc2sys(8)",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let mut steering: Vec<_> = facts.running(STEERING).into_iter().map(|(_, name)| name).collect();
        steering.sort_unstable();
        steering.dedup();
        let by = match &steering[..] {
            [] if facts.running(&["ptp4l"]).is_empty() => "no known program".into(),
            // With time stamps of a network card, ptp4l steers only that card's clock.
            [] => "ptp4l, which steers this clock if it uses software timestamps".into(),
            some => some.join(", "),
        };
        if steering.len() > 1 {
            let finding = Finding::note(format!("{by} run, and each can steer the clock")).reserve(&Use::LOOPS);
            return Ok(details(facts).into_iter().fold(finding, Finding::and).remedy(
                RemedyKind::Change,
                "use only one of them: give chrony the PTP clock as refclock, or stop the other program",
            ));
        }
        let timex = facts.probes.timex.clone()?;
        let finding = if timex.synchronised { synchronised(&timex, &by) } else { unsynchronised(&by) };
        Ok(details(facts).into_iter().fold(finding, Finding::and))
    }
}

fn unsynchronised(by: &str) -> Finding {
    Finding::note(format!("not synchronised; steered by {by}"))
        .remedy(RemedyKind::Change, "start chronyd, or ptp4l with phc2sys if there is a PTP grandmaster")
}

fn synchronised(timex: &Timex, by: &str) -> Finding {
    let frequency_ppb = timex.frequency_ppb.unsigned_abs();
    let evidence = format!(
        "synchronised by {by}: error {} us estimated, {} us maximum; frequency {}{}.{:03} ppm",
        timex.estimated_error_us,
        timex.maximum_error_us,
        if timex.frequency_ppb < 0 { '-' } else { '+' },
        frequency_ppb / 1000,
        frequency_ppb % 1000
    );
    if frequency_ppb < 400_000 {
        return Finding::fine(evidence);
    }
    Finding::note(evidence)
        .and("the frequency is near its limit of 500 ppm")
        .remedy(RemedyKind::Machine, "the clock source is inaccurate: compare it with another one")
}

/// Reports of the running synchronisation programs, or why a query failed.
fn details(facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    if !facts.running(&["chronyd"]).is_empty() {
        lines.push(match &facts.probes.chrony {
            Ok(tracking) => format!(
                "chrony: stratum {}, offset {}, {} on average; leap status {}",
                tracking.stratum, tracking.offset, tracking.rms_offset, tracking.leap
            ),
            Err(why) => format!("cannot query chrony: {why}"),
        });
    }
    if !facts.running(&["ptp4l"]).is_empty() {
        lines.push(match &facts.probes.ptp {
            Ok(set) if set.steps_removed == 0 => "ptp4l: this clock is the grandmaster".to_owned(),
            Ok(set) => format!("ptp4l: {} from its master, {} steps removed", set.offset, set.steps_removed),
            Err(why) => format!("cannot query ptp4l: {why}"),
        });
    }
    lines
}

/// Whether the offset between TAI and UTC is set in the kernel.
pub struct TaiOffset;

impl Check for TaiOffset {
    fn about(&self) -> &'static About {
        &About {
            id: "tai-offset",
            title: "TAI offset",
            what: "The offset between TAI and UTC that adjtimex reports.",
            why: "CLOCK_TAI has no leap seconds; PTP and time-aware network cards use TAI. With an offset of 0 it equals UTC, and schedules aligned \
                  to it differ by 37 s from those of other machines.",
            source: "adjtimex(2); chrony.conf(5), leapsectz and leapseclist",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let offset_s = facts.probes.timex.clone()?.tai_offset_s;
        if offset_s != 0 {
            return Ok(Finding::fine(format!("{offset_s} s")));
        }
        Ok(Finding::note("not set (0 s)").remedy(
            RemedyKind::Change,
            "add \"leapsectz right/UTC\" or \"leapseclist /usr/share/zoneinfo/leap-seconds.list\" to chrony.conf, or let \
             ptp4l and phc2sys set it",
        ))
    }
}

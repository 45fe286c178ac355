//! Who steers the clock of the day, and how well.

use crate::doctor::{About, Check, Facts, Finding, How, Unknown, Use};

/// Programs that steer `CLOCK_REALTIME`; names as in `/proc/PID/comm`, 15 characters at most.
const STEERING: &[&str] = &["chronyd", "ntpd", "systemd-timesyn", "phc2sys", "ntpd-rs", "openntpd"];

/// Whether the clock is synchronised, by whom, and how well.
pub struct Synchronised;

impl Check for Synchronised {
    fn about(&self) -> &'static About {
        &About {
            id: "clock-sync",
            title: "clock discipline",
            what: "What adjtimex says of CLOCK_REALTIME, and which programs steer it (chronyd, ntpd, systemd-timesyncd, \
                   phc2sys with ptp4l).",
            why: "A loop runs on CLOCK_MONOTONIC, which is never set but does run faster and slower with the steering. \
                  Time stamps and pulse numbers that several machines share need a synchronised clock. Two programs that \
                  steer one clock pull it to and fro.",
            source: "adjtimex(2); chrony.conf(5); phc2sys(8)",
            reads: &[],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let mut steering: Vec<_> = facts.running(STEERING).into_iter().map(|(_, name)| name).collect();
        steering.sort_unstable();
        steering.dedup();
        let by = if steering.is_empty() { "no program that is known to steer it".into() } else { steering.join(", ") };
        if steering.len() > 1 {
            return Ok(Finding::note(format!("steered by {by} at the same time")).reserve(&Use::LOOPS).remedy(
                How::Change,
                "let one of them steer: give chrony the PTP clock as refclock, or stop the other program",
            ));
        }
        let timex = facts.probes.timex.clone()?;
        if !timex.synchronised {
            return Ok(Finding::note(format!("not synchronised; {by}"))
                .remedy(How::Change, "start chronyd, or ptp4l with phc2sys where there is a PTP grandmaster"));
        }
        let evidence = format!(
            "synchronised by {by}: error {} us estimated, {} us at most; frequency {:+}.{:03} ppm",
            timex.estimated_error_us,
            timex.maximum_error_us,
            timex.frequency_ppb / 1000,
            timex.frequency_ppb.unsigned_abs() % 1000
        );
        Ok(if timex.frequency_ppb.unsigned_abs() >= 400_000 {
            Finding::note(evidence)
                .and("the frequency is near its bound of 500 ppm")
                .remedy(How::Machine, "the clock source itself is off: compare it with another one")
        } else {
            Finding::fine(evidence)
        })
    }
}

/// Whether the kernel knows the offset between TAI and UTC.
pub struct TaiOffset;

impl Check for TaiOffset {
    fn about(&self) -> &'static About {
        &About {
            id: "tai-offset",
            title: "TAI offset",
            what: "The offset between TAI and UTC that adjtimex reports.",
            why: "CLOCK_TAI has no leap seconds and is what PTP and time-aware network cards count in. With an offset of 0 \
                  it is UTC under another name, and schedules aligned to it are 37 s away from those of other machines.",
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
            How::Change,
            "add \"leapsectz right/UTC\" or \"leapseclist /usr/share/zoneinfo/leap-seconds.list\" to chrony.conf, or let \
             ptp4l and phc2sys set it",
        ))
    }
}

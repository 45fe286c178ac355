//! Checks how soon the kernel can run a real-time thread.

use super::isolation::isolated;
use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use, named};

const REALTIME: &str = "/sys/kernel/realtime";
const DEBUG_PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// Whether the kernel is built with `PREEMPT_RT`.
pub struct PreemptRt;

impl Check for PreemptRt {
    fn about(&self) -> &'static About {
        &About {
            id: "preempt-rt",
            title: "PREEMPT_RT",
            what: "Whether the kernel is built with PREEMPT_RT: /sys/kernel/realtime contains 1.",
            why: "Without it, interrupt handlers, softirqs and spinlock sections cannot be preempted. A wake-up on the same CPU waits until they \
                  end: usually tens, at worst thousands of microseconds. A shielded CPU has few of them, so this is a reservation for a 10 kHz loop \
                  only.",
            source: "Documentation/core-api/real-time/kernel-configuration.rst; in the mainline kernel since 6.12",
            reads: &[REALTIME, "/sys/kernel/mm/ksm/run"],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if is_rt(facts)? {
            return Ok(Finding::fine("/sys/kernel/realtime is 1"));
        }
        let version = facts.files.text("/proc/sys/kernel/version").map_or("not known", str::trim);
        Ok(Finding::note(format!("not PREEMPT_RT: no {REALTIME}, version is \"{version}\""))
            .reserve(&[Use::Loop10kHz])
            .remedy(
                RemedyKind::Kernel,
                "boot a PREEMPT_RT kernel (Debian: linux-image-rt-amd64; Ubuntu: pro enable realtime-kernel; \
                 else build one with CONFIG_PREEMPT_RT=y)",
            ))
    }
}

/// The active preemption model of a kernel without `PREEMPT_RT`.
pub struct Model;

impl Check for Model {
    fn about(&self) -> &'static About {
        &About {
            id: "preemption",
            title: "preemption model",
            what: "The active preemption model: debugfs sched/preempt, else preempt= on the boot line, else the model that the kernel was built with.",
            why: "With \"none\" and \"voluntary\" a real-time thread waits until a system call of another program ends or reaches a preemption \
                  point: milliseconds. With \"full\" and \"lazy\" a real-time thread gets the CPU at once unless the kernel holds a lock.",
            source: "Documentation/admin-guide/kernel-parameters.txt, preempt=; kernel/Kconfig.preempt",
            reads: &[REALTIME, DEBUG_PREEMPT, "/sys/devices/system/cpu/isolated"],
            decides: &[Use::Loop10kHz],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        if is_rt(facts)? {
            return Ok(Finding::fine("full: PREEMPT_RT"));
        }
        let (model, evidence, at_run_time) = model(facts)?;
        if matches!(model.as_str(), "full" | "lazy") {
            return Ok(Finding::fine(evidence));
        }
        let dynamic = facts.config().is_ok_and(|config| config.is_set("PREEMPT_DYNAMIC"));
        // On isolated CPUs no other program's system calls delay a real-time thread.
        let finding = match isolated(facts).unwrap_or_default() {
            cpus if cpus.is_empty() => Finding::note(evidence)
                .and("system calls of every program delay real-time tasks; on an isolated CPU only kernel threads do")
                .reserve(&[Use::Loop1kHz])
                .unfit(&[Use::Loop10kHz]),
            cpus => Finding::note(format!("{evidence}; isolated: {}", named(&cpus))).reserve(&[Use::Loop10kHz]),
        };
        Ok(match (at_run_time, dynamic) {
            (true, _) => finding.remedy(
                RemedyKind::Change,
                format!("echo full > {DEBUG_PREEMPT}, and for the next boot add preempt=full"),
            ),
            (false, true) => finding.remedy(RemedyKind::Boot, "add preempt=full to the boot line"),
            _ => finding
                .remedy(RemedyKind::Kernel, "boot a kernel built with CONFIG_PREEMPT or, better, CONFIG_PREEMPT_RT"),
        })
    }
}

fn is_rt(facts: &Facts) -> Result<bool, Unknown> {
    Ok(facts.files.optional_number(REALTIME)? == Some(1))
}

/// The model, the source of this information, and whether the model can be changed at run time.
fn model(facts: &Facts) -> Result<(String, String, bool), Unknown> {
    // "none voluntary (full) lazy"
    let active = |text: &str| Some(text.split_once('(')?.1.split_once(')')?.0.to_owned());
    if let Some(model) = facts.files.text(DEBUG_PREEMPT).ok().and_then(active) {
        let evidence = format!("{model}: {DEBUG_PREEMPT}");
        return Ok((model, evidence, true));
    }
    let config = facts.config();
    let dynamic = config.as_ref().is_ok_and(|config| config.is_set("PREEMPT_DYNAMIC"));
    if let Some(model) = facts.boot_line()?.value("preempt").filter(|_| dynamic) {
        return Ok((model.to_owned(), format!("{model}: preempt={model} on the boot line"), false));
    }
    let config = config?;
    let built =
        [("PREEMPT_NONE", "none"), ("PREEMPT_VOLUNTARY", "voluntary"), ("PREEMPT", "full"), ("PREEMPT_LAZY", "lazy")];
    match built.into_iter().find(|(option, _)| config.is_set(option)) {
        Some((option, model)) => Ok((
            model.to_owned(),
            format!("{model}: built with CONFIG_{option}=y, no preempt= on the boot line"),
            false,
        )),
        None => Err(Unknown("the kernel's configuration names no preemption model".into())),
    }
}

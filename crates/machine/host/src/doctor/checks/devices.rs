//! Checks devices that disturb real-time threads.

use crate::doctor::{About, Check, Facts, Finding, RemedyKind, Unknown, Use};
use base::DurNs;
use std::collections::BTreeMap;

const KINDS: &str = "/sys/bus/usb/devices/*/ep_*/type";
const INTERVALS: &str = "/sys/bus/usb/devices/*/ep_*/interval";
const PRODUCTS: &str = "/sys/bus/usb/devices/*/product";
const PRINTK: &str = "/proc/sys/kernel/printk";
const CONSOLES: &str = "/proc/consoles";

/// USB devices that the kernel polls periodically.
pub struct UsbPolling;

impl Check for UsbPolling {
    fn about(&self) -> &'static About {
        &About {
            id: "usb-polling",
            title: "USB polling",
            what: "The interrupt endpoints of USB devices and their polling intervals, without root hubs.",
            why: "The controller polls such devices (keyboards, mice, adapters) continuously and raises an interrupt for each answer. Firmware that \
                  emulates keyboards through USB stops all CPUs for it (see smi).",
            source: "ESO, VxWorks on Intel for real-time HPC: no USB; Documentation/ABI/stable/sysfs-bus-usb",
            reads: &[KINDS, INTERVALS, PRODUCTS],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let mut polled: BTreeMap<&str, (u64, String)> = BTreeMap::new();
        for endpoint in facts.files.some(KINDS)?.iter().filter(|endpoint| endpoint.text == "Interrupt") {
            let folder = endpoint.path.trim_end_matches("/type");
            // ".../1-4:1.0/ep_81": the part before the colon names the device.
            let interface = folder.rsplit('/').nth(1).unwrap_or_default();
            let device = interface.split(':').next().unwrap_or_default();
            if device.is_empty() || device.ends_with("-0") || device.starts_with("usb") {
                continue;
            }
            let Ok(text) = facts.files.text(&format!("{folder}/interval")) else { continue };
            let Some(interval_us) = interval_us(text) else { continue };
            let product = facts.files.text(&format!("/sys/bus/usb/devices/{device}/product")).map_or(device, str::trim);
            let slot = polled.entry(device).or_insert((interval_us, product.to_owned()));
            slot.0 = slot.0.min(interval_us);
        }
        if polled.is_empty() {
            return Ok(Finding::fine("no USB device is polled"));
        }
        let fastest_us = polled.values().map(|(interval_us, _)| *interval_us).min().unwrap_or(u64::MAX);
        let interval = |us: u64| DurNs::from_us(i64::try_from(us.min(1 << 40)).unwrap_or_default());
        let list = polled.values().take(4).map(|(us, name)| format!("{name} every {}", interval(*us)));
        let more = if polled.len() > 4 { format!(" and {} more", polled.len() - 4) } else { String::new() };
        let evidence = format!("polled: {}{more}", list.collect::<Vec<_>>().join(", "));
        let finding = Finding::note(evidence);
        let finding = if fastest_us <= 1000 { finding.reserve(&[Use::Loop10kHz]) } else { finding };
        Ok(finding.remedy(
            RemedyKind::Change,
            "unplug what is not needed while the plant runs, and keep the controller's interrupt off the isolated CPUs",
        ))
    }
}

/// A serial line that receives kernel messages.
pub struct SerialConsole;

impl Check for SerialConsole {
    fn about(&self) -> &'static About {
        &About {
            id: "serial-console",
            title: "serial console",
            what: "Whether a console in /proc/consoles is a serial line, and which messages it prints (kernel.printk).",
            why: "The kernel writes a message to a serial console character by character, about 90 us each at 115200 baud, often with interrupts \
                  disabled and on the CPU that logged it.",
            source: "Documentation/core-api/printk-basics.rst; Documentation/admin-guide/serial-console.rst",
            reads: &[PRINTK, CONSOLES],
            decides: &[],
        }
    }

    fn look(&self, facts: &Facts) -> Result<Finding, Unknown> {
        let consoles = facts.files.text(CONSOLES)?;
        let mut serial = consoles
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| ["ttyS", "ttyAMA", "ttyUSB", "ttyPS", "ttymxc"].iter().any(|kind| name.starts_with(kind)));
        let Some(name) = serial.next() else { return Ok(Finding::fine("none")) };
        let level = facts.files.parse(PRINTK, |text| {
            text.split_whitespace().next().and_then(|word| word.parse::<i64>().ok()).ok_or("expected four numbers")
        })?;
        let evidence = format!("{name} prints kernel messages more urgent than level {level}");
        // Level 4 and below prints only errors and worse, which a healthy machine does not write.
        if level <= 4 {
            return Ok(Finding::fine(evidence));
        }
        Ok(Finding::note(evidence).reserve(&[Use::Loop10kHz]).remedy(RemedyKind::Change, "sysctl kernel.printk=3"))
    }
}

/// `8ms`, `125us` as sysfs writes them.
fn interval_us(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_suffix("us") {
        Some(us) => us.parse().ok(),
        None => text.strip_suffix("ms")?.parse::<u64>().ok()?.checked_mul(1000),
    }
}

//! `/proc/interrupts`: counts of each interrupt on each CPU; `/proc/softirqs` has the same form.

use crate::FormatError;
use base::CpuId;

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupts<'a> {
    /// The CPUs of the columns: those online.
    pub cpus: Vec<CpuId>,
    /// The rows in the file's order.
    pub rows: Vec<Row<'a>>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// A number of a device's interrupt, or a name such as `LOC`.
    pub name: &'a str,
    /// Counts by column; fewer than columns for rows that are not kept per CPU (`ERR`).
    pub counts: Vec<u64>,
    /// Chip, hardware number and actions, or the meaning of `name`.
    pub description: &'a str,
}

impl<'a> Interrupts<'a> {
    /// Reads the table.
    ///
    /// # Errors
    /// If its first line names no CPUs.
    pub fn parse(text: &'a str) -> Result<Self, FormatError> {
        let mut lines = text.lines();
        let heading = lines.next().unwrap_or_default();
        let cpus: Vec<CpuId> = heading
            .split_whitespace()
            .map(|word| word.strip_prefix("CPU").and_then(|number| number.parse().ok()))
            .collect::<Option<_>>()
            .filter(|cpus: &Vec<_>| !cpus.is_empty())
            .ok_or_else(|| FormatError::value("line 1", "CPU0 CPU1 ...", heading))?;
        let rows = lines
            .filter_map(|line| {
                let (name, rest) = line.split_once(':')?;
                let (counts, description) = counts(rest, cpus.len());
                Some(Row { name: name.trim(), counts, description })
            })
            .collect();
        Ok(Self { cpus, rows })
    }

    /// A row's count on a CPU; 0 for one that has no column.
    #[must_use]
    pub fn count(&self, row: &Row<'_>, cpu: CpuId) -> u64 {
        let column = self.cpus.iter().position(|&column| column == cpu);
        column.and_then(|column| row.counts.get(column)).copied().unwrap_or(0)
    }

    /// The row of that name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&Row<'a>> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl<'a> Row<'a> {
    /// Whether each CPU has this interrupt for itself, so that it cannot be moved: on Arm, the numbers 16 to 31 of its controller
    /// (*private peripheral interrupts*), such as the CPU's timer.
    #[must_use]
    pub fn is_private(&self) -> bool {
        let mut words = self.description.split_whitespace();
        let is_gic = words.next().is_some_and(|chip| chip.starts_with("GIC"));
        is_gic
            && words
                .next()
                .and_then(|number| number.parse::<u32>().ok())
                .is_some_and(|number| (16..32).contains(&number))
    }

    /// The number of a device's interrupt.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.name.parse().ok()
    }

    /// The names of the actions of a device's interrupt: the text after the last wide gap.
    pub fn actions(&self) -> impl Iterator<Item = &'a str> {
        let names = match self.number().and_then(|_| self.description.rsplit_once("  ")) {
            Some((_, names)) => names,
            None => "",
        };
        names.split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// Device and action in one text with single blanks: it stays when the number moves.
    #[must_use]
    pub fn device_and_action(&self) -> String {
        self.description.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Its driver lets the kernel spread its interrupts, which then cannot be moved.
    #[must_use]
    pub fn is_known_to_be_managed(&self) -> bool {
        self.actions().any(is_known_to_be_managed)
    }

    /// The sum over all CPUs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

fn counts(mut rest: &str, columns: usize) -> (Vec<u64>, &str) {
    let mut counts = Vec::new();
    while counts.len() < columns {
        rest = rest.trim_start();
        let (word, tail) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let Ok(count) = word.parse() else { break };
        counts.push(count);
        rest = tail;
    }
    (counts, rest.trim())
}

/// Drivers that let the kernel spread their queues' interrupts (`PCI_IRQ_AFFINITY`).
fn is_known_to_be_managed(action: &str) -> bool {
    let queue = |rest: &str, mark: &str| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
            .strip_prefix(mark)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // Queue 0 of an NVMe device is its administration queue, which stays movable.
    action.strip_prefix("nvme").is_some_and(|rest| queue(rest, "q") && !rest.ends_with("q0"))
        || action.strip_prefix("virtio").is_some_and(|rest| queue(rest, "-req."))
        || ["megasas", "mpt3sas", "mpt2sas", "hpsa", "smartpqi", "aacraid"].iter().any(|name| action.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "           CPU0       CPU2\n\
        24:          1          0  IO-APIC   5-edge      ACPI:Ged\n\
        36:          0     124322 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
        40:          7          7   IR-IO-APIC   18-fasteoi   i801_smbus, ehci_hcd:usb1\n\
        LOC:      89108      93209   Local timer interrupts\n\
        ERR:          3\n";

    #[test]
    fn interrupts_that_each_cpu_has_for_itself_are_recognised_on_arm() {
        let table = "           CPU0       CPU1\n\
            11:      89108      93209     GICv3  27 Level     arch_timer\n\
            19:          0          0     GICv3  23 Level     arm-pmu\n\
            21:          5          0     GICv3  33 Level     uart-pl011\n\
            31:          0          7   ITS-PCI-MSIX-0000:00:01.0   4 Edge      virtio0-req.3\n\
            24:          1          0  IO-APIC  18-edge      ACPI:Ged\n";
        let table = Interrupts::parse(table).unwrap();
        let private: Vec<&str> = table.rows.iter().filter(|row| row.is_private()).map(|row| row.name).collect();
        assert_eq!(private, ["11", "19"]);
    }

    #[test]
    fn rows_have_counts_by_cpu_and_actions() {
        let table = Interrupts::parse(TABLE).unwrap();
        assert_eq!(table.cpus, [0, 2]);
        let actions = |name: &str| table.row(name).unwrap().actions().collect::<Vec<_>>();
        assert_eq!(actions("24"), ["ACPI:Ged"]);
        assert_eq!(actions("36"), ["virtio1-req.0"]);
        assert_eq!(actions("40"), ["i801_smbus", "ehci_hcd:usb1"]);
        assert!(actions("LOC").is_empty());
        assert_eq!(table.row("LOC").unwrap().total(), 182_317);
        assert_eq!(table.row("ERR").unwrap().counts, [3]);
        assert!(Interrupts::parse("").is_err());
    }

    #[test]
    fn interrupts_of_queues_are_distinguished_from_administrative_ones() {
        for (action, expected) in [
            ("nvme0q1", true),
            ("nvme0q0", false),
            ("nvme12q31", true),
            ("virtio1-req.0", true),
            ("virtio2-input.0", false),
            ("virtio1-config", false),
            ("mpt3sas0-msix3", true),
            ("eth0-TxRx-1", false),
            ("nvme", false),
        ] {
            assert_eq!(is_known_to_be_managed(action), expected, "{action}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ 0-9:CPU,a-z\n]{0,120}") {
            if let Ok(table) = Interrupts::parse(&text) {
                table.rows.iter().for_each(|row| row.actions().for_each(drop));
            }
        }
    }
}

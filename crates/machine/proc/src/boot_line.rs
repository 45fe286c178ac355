//! `/proc/cmdline`: the boot line.

use base::{CpuId, CpuSet};

/// One parameter of the boot line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, with `-` written as `_`: the kernel treats them alike.
    pub name: String,
    /// The text after `=`, without quotes.
    pub value: Option<String>,
    /// As it was written.
    pub text: String,
}

/// The parameters for the kernel, in order; what follows `--` belongs to the first program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootLine {
    parameters: Vec<Parameter>,
}

/// `isolcpus=` taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolcpus {
    /// Out of load balancing (the meaning of a list without flags).
    pub domain: bool,
    /// Managed interrupts stay away while another CPU can serve them.
    pub managed_irq: bool,
    /// No tick.
    pub nohz: bool,
    /// The CPUs; `None` where the kernel would not read the list.
    pub cpus: Option<CpuSet>,
}

impl BootLine {
    /// Splits a boot line as the kernel does: at blanks outside double quotes.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parameters = Vec::new();
        for word in words(text) {
            if word == "--" {
                break;
            }
            let plain = word.replace('"', "");
            let (name, value) = match plain.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (plain.as_str(), None),
            };
            if !name.is_empty() {
                parameters.push(Parameter { name: name.replace('-', "_"), value, text: word.to_owned() });
            }
        }
        Self { parameters }
    }

    /// All parameters.
    #[must_use]
    pub fn all(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The last parameter of that name (written with `_`): the one that counts.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().rev().find(|parameter| parameter.name == name)
    }

    /// The value of the last parameter of that name; empty without `=`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.last(name).map(|parameter| parameter.value.as_deref().unwrap_or_default())
    }

    /// The line has a parameter of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }

    /// A parameter whose value is a list of CPUs, `last` being the machine's last; `Some(None)` where
    /// the kernel would not read it.
    #[must_use]
    pub fn cpus(&self, name: &str, last: CpuId) -> Option<Option<CpuSet>> {
        self.value(name).map(|text| cpu_list(text, last))
    }

    /// `isolcpus=[flag,…]list`, `last` being the machine's last CPU.
    #[must_use]
    pub fn isolcpus(&self, last: CpuId) -> Option<Isolcpus> {
        let value = self.value("isolcpus")?;
        let mut found = Isolcpus { domain: false, managed_irq: false, nohz: false, cpus: None };
        let mut rest = value;
        loop {
            let (head, tail) = rest.split_once(',').unwrap_or((rest, ""));
            match head {
                "domain" => found.domain = true,
                "managed_irq" => found.managed_irq = true,
                "nohz" => found.nohz = true,
                _ => break,
            }
            rest = tail;
        }
        if !found.managed_irq && !found.nohz {
            found.domain = true;
        }
        found.cpus = cpu_list(rest, last);
        Some(found)
    }
}

/// A list as boot parameters take it: `all` is every CPU and `N` the last one.
fn cpu_list(text: &str, last: CpuId) -> Option<CpuSet> {
    let text = text.replace("all", "0-N").replace('N', &last.to_string());
    text.parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        !quoted && c.is_whitespace()
    })
    .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_of_a_name_counts_and_the_init_programs_arguments_do_not() {
        let line = BootLine::parse("quiet isolcpus=1 dyndbg=\"file a.c +p\" isolcpus=2-3 -- nohz_full=1\n");
        assert_eq!(line.value("isolcpus"), Some("2-3"));
        assert_eq!(line.value("dyndbg"), Some("file a.c +p"));
        assert!(line.has("quiet"));
        assert!(!line.has("nohz_full"));
        assert_eq!(BootLine::parse("skew-tick=1").value("skew_tick"), Some("1"));
    }

    #[test]
    fn isolcpus_is_parsed() {
        let check = |text: &str, domain, managed_irq, cpus: Option<&str>| {
            let found = BootLine::parse(text).isolcpus(7).unwrap();
            assert_eq!((found.domain, found.managed_irq), (domain, managed_irq), "{text}");
            assert_eq!(found.cpus, cpus.map(|cpus| cpus.parse().unwrap()), "{text}");
        };
        check("isolcpus=2-3", true, false, Some("2-3"));
        check("isolcpus=managed_irq,domain,2,3", true, true, Some("2-3"));
        check("isolcpus=managed_irq,1", false, true, Some("1"));
        check("isolcpus=4-N", true, false, Some("4-7"));
        check("isolcpus=nohz,all", false, false, Some("0-7"));
        check("isolcpus=2-x", true, false, None);
        check("isolcpus=", true, false, None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let line = BootLine::parse(&text);
            let _ = (line.isolcpus(3), line.cpus("nohz_full", 3));
        }
    }
}

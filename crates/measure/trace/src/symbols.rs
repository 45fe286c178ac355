//! Names of kernel code addresses (`/proc/kallsyms`).

/// Maximum symbols; a kernel with all modules has a quarter of that.
const SYMBOLS_MAX: usize = 1 << 20;

/// The kernel's functions by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Start address of each function with the range of its name in `names`, sorted by address.
    starts: Vec<(u64, u32, u32)>,
    names: String,
}

impl Symbols {
    /// Parses `/proc/kallsyms`; skips lines that are not functions. For users other than root all addresses are 0, so the result
    /// is empty.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut symbols = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") || symbols.starts.len() >= SYMBOLS_MAX {
                continue;
            }
            let from = symbols.names.len() as u32;
            symbols.names.push_str(name);
            symbols.starts.push((address, from, symbols.names.len() as u32));
        }
        symbols.starts.sort_by_key(|&(address, ..)| address);
        symbols
    }

    /// Contains only these addresses and names.
    #[must_use]
    pub fn exact<'a>(names: impl Iterator<Item = (u64, &'a str)>) -> Self {
        let mut symbols = Self::default();
        for (address, name) in names.take(SYMBOLS_MAX) {
            let from = symbols.names.len() as u32;
            symbols.names.push_str(name);
            symbols.starts.push((address, from, symbols.names.len() as u32));
        }
        symbols.starts.sort_by_key(|&(address, ..)| address);
        symbols
    }

    /// The function that contains `address`.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let behind = self.starts.partition_point(|&(start, ..)| start <= address);
        let &(_, from, to) = self.starts.get(behind.checked_sub(1)?)?;
        self.names.get(from as usize..to as usize)
    }

    /// Its name, or the address in hexadecimal if unknown.
    #[must_use]
    pub fn show(&self, address: u64) -> String {
        self.name(address).map_or_else(|| format!("{address:#x}"), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_within_a_function_has_its_name() {
        let text = "ffff000000000200 T second\nffff000000000100 t first\t[module]\nffff000000000300 D data\nbroken\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.name(0xffff_0000_0000_0110), Some("first"));
        assert_eq!(symbols.name(0xffff_0000_0000_0200), Some("second"));
        assert_eq!(symbols.name(0x10), None);
        assert_eq!(symbols.show(0x10), "0x10");
        assert_eq!(Symbols::parse("0000000000000000 T hidden").name(5), None);
    }
}

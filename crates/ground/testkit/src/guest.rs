//! The guest of `cargo xtask test-vm` that runs a test.
//!
//! Tests in a guest own its machine: they may isolate, unplug and overload CPUs. Outside of a guest these tests refuse to run.

use std::fs;

/// Name of the guest that runs this test.
///
/// # Panics
/// Outside of a guest. The message has the command that runs the test in one.
#[must_use]
pub fn name() -> String {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    match boot_word(&line, "tahti.guest") {
        Some(name) => name.to_owned(),
        None => panic!("this test changes its whole machine and runs only in a guest: use `cargo xtask test-vm`"),
    }
}

/// Requires that this test runs in a guest.
///
/// # Panics
/// Outside of a guest. The message has the command that runs the test in one.
pub fn required() {
    drop(name());
}

/// Announces that the machine is about to shut down by itself, before the test ends. For the last test of a guest this counts as success.
///
/// # Panics
/// The announcement cannot be written.
pub fn ends_here() {
    write("/out/ends", "");
}

/// Value of `key=value` in the kernel's command line.
fn boot_word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Reads a file of the kernel, without its last newline.
///
/// # Panics
/// The file cannot be read. The message has its path.
#[must_use]
pub fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim_end().to_owned()
}

/// Writes a file of the kernel.
///
/// # Panics
/// The kernel refuses. The message has path, value and error.
pub fn write(path: &str, value: &str) {
    try_write(path, value).unwrap_or_else(|error| panic!("{path} <- {value:?}: {error}"));
}

/// Writes a file of the kernel, and returns a refusal as an error.
///
/// # Errors
/// The error of the kernel.
pub fn try_write(path: &str, value: &str) -> std::io::Result<()> {
    fs::write(path, value)
}

/// A PCI device bound to a user-space driver until it is dropped.
pub struct Bound {
    /// Its PCI address.
    pub address: String,
    driver: &'static str,
    id: String,
}

impl Bound {
    /// QEMU's teaching device (`docs/specs/edu.rst` of QEMU): its register 0x60 raises interrupts, 0x64 acknowledges them.
    ///
    /// # Panics
    /// Outside of a guest, or if the guest does not have it.
    #[must_use]
    pub fn edu(driver: &'static str) -> Self {
        Self::to(driver, "1234", "11e8")
    }

    /// The device with these ids.
    ///
    /// # Panics
    /// Outside of a guest, or if the guest does not have it.
    #[must_use]
    pub fn to(driver: &'static str, vendor: &str, device: &str) -> Self {
        required();
        let id = format!("{vendor} {device}");
        let is = |folder: &str, file: &str, expected: &str| {
            fs::read_to_string(format!("{folder}/{file}")).is_ok_and(|text| text.trim() == format!("0x{expected}"))
        };
        let devices = fs::read_dir("/sys/bus/pci/devices").unwrap_or_else(|error| panic!("PCI devices: {error}"));
        let mut names = devices.flatten().map(|entry| entry.file_name().display().to_string());
        let found = names.find(|address| {
            let folder = format!("/sys/bus/pci/devices/{address}");
            is(&folder, "vendor", vendor) && is(&folder, "device", device)
        });
        let address = found.unwrap_or_else(|| panic!("the guest has no device {id}"));
        write(&format!("/sys/bus/pci/drivers/{driver}/new_id"), &id);
        Self { address, driver, id }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let driver = format!("/sys/bus/pci/drivers/{}", self.driver);
        write(&format!("{driver}/remove_id"), &self.id);
        write(&format!("{driver}/unbind"), &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_found_by_their_whole_name() {
        let line = "quiet tahti.guest=rt tahti.guests=no\n";
        assert_eq!(boot_word(line, "tahti.guest"), Some("rt"));
        assert_eq!(boot_word(line, "quiet"), None);
        assert_eq!(boot_word("", "tahti.guest"), None);
    }
}

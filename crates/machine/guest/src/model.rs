//! A guest as the plant file says it, and QEMU's command line made from it.

use base::{CpuSet, DurNs, Policy, Size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The program that emulates this machine's own kind.
pub const PROGRAM: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };

/// The kind of board.
const BOARD: &str = if cfg!(target_arch = "aarch64") { "virt" } else { "q35" };

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// QEMU: a path, or a name that is searched in `PATH`.
    pub program: String,
    /// Virtual CPUs.
    pub vcpus: u16,
    /// Its memory.
    pub memory: Size,
    /// Whether all of QEMU's memory is locked.
    pub mlock: bool,
    /// A kernel that is started directly.
    pub kernel: Option<PathBuf>,
    /// Its initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// Its command line.
    pub append: Option<String>,
    /// Disk images.
    pub disks: Vec<PathBuf>,
    /// What it reaches.
    pub network: Network,
    /// What runs its instructions.
    pub accel: Accel,
    /// CPUs of the virtual CPUs' threads; QEMU's own where missing.
    pub vcpu_cpus: Option<CpuSet>,
    /// Class of the virtual CPUs' threads; QEMU's own where missing.
    pub vcpu_class: Option<Policy>,
    /// How long it may take to shut down when it is asked to.
    pub stop_within: DurNs,
}

/// What a guest reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing: it has no network card.
    #[default]
    None,
    /// A card behind QEMU's own network, which leads nowhere.
    User,
}

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accel {
    /// The processor where `/dev/kvm` can be opened, else the emulator.
    #[default]
    Auto,
    /// The processor.
    Kvm,
    /// The emulator.
    Emulated,
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "user" => Ok(Self::User),
            _ => Err("`none` or `user`"),
        }
    }
}

impl FromStr for Accel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "emulated" => Ok(Self::Emulated),
            _ => Err("`auto`, `kvm` or `emulated`"),
        }
    }
}

/// The sockets of a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// QMP, for who serves the guest.
    pub control: PathBuf,
    /// QMP, for who looks.
    pub status: PathBuf,
    /// The first serial line.
    pub console: PathBuf,
}

impl Places {
    /// Those in a guest's folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let [control, status, console] = ["control", "status", "console"].map(|name| folder.join(name));
        Self { control, status, console }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> [&Path; 3] {
        [&self.control, &self.status, &self.console]
    }
}

/// QEMU's arguments. The guest stands still until it is told to run, so that its threads are placed before its first instruction.
#[must_use]
pub fn arguments(guest: &Guest, places: &Places, kvm: bool) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
    say("-name", format!("guest={},debug-threads=on", guest.name));
    say("-machine", BOARD.to_owned());
    say("-accel", if kvm { "kvm" } else { "tcg" }.to_owned());
    say("-cpu", if kvm { "host" } else { "max" }.to_owned());
    say("-smp", guest.vcpus.to_string());
    say("-m", format!("{}M", guest.memory.0 >> 20));
    if guest.mlock {
        say("-overcommit", "mem-lock=on".to_owned());
    }
    // What breaks out of the emulator finds no way to start programs, gain rights or move threads.
    say("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".to_owned());
    for (id, path) in [("control", &places.control), ("status", &places.status), ("console", &places.console)] {
        say("-chardev", format!("socket,id={id},path={},server=on,wait=off", value(path)));
    }
    say("-mon", "chardev=control,mode=control".to_owned());
    say("-mon", "chardev=status,mode=control".to_owned());
    say("-serial", "chardev:console".to_owned());
    if let Some(kernel) = &guest.kernel {
        say("-kernel", kernel.display().to_string());
    }
    if let Some(initrd) = &guest.initrd {
        say("-initrd", initrd.display().to_string());
    }
    if let Some(append) = &guest.append {
        say("-append", append.clone());
    }
    for (index, disk) in guest.disks.iter().enumerate() {
        let form = form(disk);
        let file = value(disk);
        say("-blockdev", format!("driver={form},node-name=disk{index},file.driver=file,file.filename={file}"));
        say("-device", format!("virtio-blk-pci,drive=disk{index}"));
    }
    match guest.network {
        Network::None => say("-nic", "none".to_owned()),
        Network::User => {
            say("-netdev", "user,id=net,restrict=on".to_owned());
            say("-device", "virtio-net-pci,netdev=net,romfile=".to_owned());
        }
    }
    say("-display", "none".to_owned());
    words.extend(["-nodefaults", "-no-user-config", "-S"].map(str::to_owned));
    words
}

/// The form of a disk image, by its name alone: what QEMU would find out by looking, a guest could change.
fn form(disk: &Path) -> &'static str {
    if disk.extension().is_some_and(|extension| extension == "qcow2") { "qcow2" } else { "raw" }
}

/// A path as the value of a key, where QEMU takes a comma for the next key.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn guest() -> Guest {
        Guest {
            name: "hmi".into(),
            program: PROGRAM.into(),
            vcpus: 2,
            memory: Size(256 << 20),
            mlock: false,
            kernel: None,
            initrd: None,
            append: None,
            disks: Vec::new(),
            network: Network::None,
            accel: Accel::Auto,
            vcpu_cpus: None,
            vcpu_class: None,
            stop_within: DurNs::from_secs(30),
        }
    }

    fn line(guest: &Guest, kvm: bool) -> String {
        arguments(guest, &Places::of(Path::new("/r,n")), kvm).join(" ")
    }

    #[test]
    fn a_guest_has_no_network_and_nothing_that_was_not_asked_for() {
        let line = line(&guest(), false);
        for part in ["-nic none", "-nodefaults", "-no-user-config", "-accel tcg", "-smp 2", "-m 256M", " -S"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("-netdev") && !line.contains("-kernel") && !line.contains("mem-lock"), "{line}");
    }

    #[test]
    fn a_network_leads_nowhere() {
        let line = line(&Guest { network: Network::User, ..guest() }, true);
        assert!(line.contains("-netdev user,id=net,restrict=on") && !line.contains("-nic"), "{line}");
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
    }

    #[test]
    fn a_name_with_commas_adds_no_key() {
        let line = line(&Guest { disks: vec!["a,snapshot=on.qcow2".into(), "b.img".into()], ..guest() }, false);
        assert!(line.contains("driver=qcow2,node-name=disk0,file.driver=file,file.filename=a,,snapshot=on.qcow2"));
        assert!(line.contains("driver=raw,node-name=disk1,"), "{line}");
        assert!(line.contains("path=/r,,n/console,server=on"), "{line}");
    }
}

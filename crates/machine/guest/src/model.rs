//! A guest as the plant file says it, and QEMU's command line made from it.

use crate::net::Rule;
use base::{CpuSet, DurNs, Policy, Size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The program that emulates this machine's own kind.
pub const PROGRAM: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };

/// The kind of board.
pub(crate) const BOARD: &str = if cfg!(target_arch = "aarch64") { "virt" } else { "q35" };

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
    /// Bytes a second that it may read and write, all disks together.
    pub disk_rate: Option<Size>,
    /// Reads and writes a second, all disks together.
    pub disk_operations: Option<u32>,
    /// Whether it has a network card.
    pub network: Network,
    /// What it reaches by it.
    pub allow: Vec<Rule>,
    /// Bytes a second that pass its network card, both ways together.
    pub network_rate: Option<Size>,
    /// What its devices are.
    pub profile: Profile,
    /// UEFI's program; the board's BIOS where missing.
    pub firmware: Option<PathBuf>,
    /// UEFI's variables, which it writes.
    pub firmware_variables: Option<PathBuf>,
    /// Whether it has a screen, which VNC shows at a socket.
    pub screen: bool,
    /// What runs its instructions.
    pub accel: Accel,
    /// QEMU's name of the processor that the guest sees; all that it can have where missing.
    pub processor: Option<String>,
    /// CPUs of the virtual CPUs' threads; QEMU's own where missing.
    pub vcpu_cpus: Option<CpuSet>,
    /// A shield that stands: threads of virtual CPUs that are for its CPUs become its members, and the rest of QEMU stays outside.
    pub home: Option<Home>,
    /// Class of the virtual CPUs' threads; QEMU's own where missing.
    pub vcpu_class: Option<Policy>,
    /// How long it may take to shut down when it is asked to.
    pub stop_within: DurNs,
}

/// A shield: CPUs that only members of its control group get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The file into which a thread's number is written to make it a member.
    pub entry: PathBuf,
}

impl Guest {
    /// One virtual CPU, 512 MiB, and nothing to start: what `tahti guest serve` has before its arguments.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            program: PROGRAM.into(),
            vcpus: 1,
            memory: Size(512 << 20),
            mlock: false,
            kernel: None,
            initrd: None,
            append: None,
            disks: Vec::new(),
            disk_rate: None,
            disk_operations: None,
            network: Network::None,
            allow: Vec::new(),
            network_rate: None,
            profile: Profile::Linux,
            firmware: None,
            firmware_variables: None,
            screen: false,
            accel: Accel::Auto,
            processor: None,
            vcpu_cpus: None,
            home: None,
            vcpu_class: None,
            stop_within: DurNs::from_secs(30),
        }
    }
}

/// Whether a guest has a network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// It has none.
    #[default]
    None,
    /// A card in a network of its own, which leads to what rules name.
    User,
}

/// Devices and clock as a system expects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// virtio devices, a clock in UTC.
    #[default]
    Linux,
    /// SATA disks and an Intel network card, for which Windows has drivers; a clock in local time; Hyper-V's interfaces where KVM runs it.
    Windows,
}

impl FromStr for Profile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "linux" => Ok(Self::Linux),
            "windows" => Ok(Self::Windows),
            _ => Err("`linux` or `windows`"),
        }
    }
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
    /// VNC.
    pub screen: PathBuf,
}

impl Places {
    /// Those in a guest's folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let [control, status, console, screen] =
            ["control", "status", "console", "screen"].map(|name| folder.join(name));
        Self { control, status, console, screen }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> [&Path; 4] {
        [&self.control, &self.status, &self.console, &self.screen]
    }
}

/// QEMU's arguments. The guest stands still until it is told to run, so that its threads are placed before its first instruction. `wire` is
/// the descriptor that QEMU has of its network card's wire.
#[must_use]
pub fn arguments(guest: &Guest, places: &Places, kvm: bool, wire: Option<i32>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
    let windows = guest.profile == Profile::Windows;
    say("-name", format!("guest={},debug-threads=on", guest.name));
    let firmware = [("code", &guest.firmware, ",read-only=on"), ("variables", &guest.firmware_variables, "")];
    let mut board = BOARD.to_owned();
    for (index, (id, path, more)) in firmware.into_iter().enumerate() {
        if let Some(path) = path {
            say("-blockdev", format!("driver=raw,node-name={id}{more},file.driver=file,file.filename={}", value(path)));
            board += &format!(",pflash{index}={id}");
        }
    }
    say("-machine", board);
    say("-accel", if kvm { "kvm" } else { "tcg" }.to_owned());
    let mut processor = guest.processor.clone().unwrap_or_else(|| if kvm { "host" } else { "max" }.to_owned());
    if kvm && windows {
        processor += ",hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_time,hv_vpindex,hv_synic,hv_stimer,hv_frequencies";
    }
    say("-cpu", processor);
    if windows {
        say("-rtc", "base=localtime".to_owned());
    }
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
    let bounds =
        [("bps-total", guest.disk_rate.map(|rate| rate.0)), ("iops-total", guest.disk_operations.map(u64::from))];
    let bounds: serde_json::Map<_, _> =
        bounds.into_iter().filter_map(|(key, most)| Some((key.to_owned(), most?.into()))).collect();
    let bounded = !bounds.is_empty();
    if bounded {
        say(
            "-object",
            serde_json::json!({ "qom-type": "throttle-group", "id": "bounds", "limits": bounds }).to_string(),
        );
    }
    if windows && !guest.disks.is_empty() {
        say("-device", "ich9-ahci,id=sata".to_owned());
    }
    for (index, disk) in guest.disks.iter().enumerate() {
        let form = form(disk);
        let file = value(disk);
        say("-blockdev", format!("driver={form},node-name=disk{index},file.driver=file,file.filename={file}"));
        let mut drive = format!("disk{index}");
        if bounded {
            say(
                "-blockdev",
                format!("driver=throttle,node-name=bounded{index},throttle-group=bounds,file=disk{index}"),
            );
            drive = format!("bounded{index}");
        }
        let device = if windows { format!("ide-hd,bus=sata.{index}") } else { "virtio-blk-pci".to_owned() };
        say("-device", format!("{device},drive={drive}"));
    }
    let card = if windows { "e1000e" } else { "virtio-net-pci" };
    match (guest.network, wire) {
        (Network::User, Some(wire)) => {
            say("-netdev", format!("socket,id=net,fd={wire}"));
            say("-device", format!("{card},netdev=net,romfile="));
        }
        _ => say("-nic", "none".to_owned()),
    }
    say("-display", "none".to_owned());
    if guest.screen {
        say("-vnc", format!("unix:{}", value(&places.screen)));
        say("-device", "VGA".to_owned());
        say("-device", "qemu-xhci".to_owned());
        say("-device", "usb-tablet".to_owned());
        say("-device", "usb-kbd".to_owned());
    }
    words.extend(["-nodefaults", "-no-user-config", "-S"].map(str::to_owned));
    words
}

/// The form of a disk image, by its name alone: what QEMU would find out by looking, a guest could change.
pub(crate) fn form(disk: &Path) -> &'static str {
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
        Guest { vcpus: 2, memory: Size(256 << 20), ..Guest::new("hmi") }
    }

    fn line(guest: &Guest, kvm: bool) -> String {
        arguments(guest, &Places::of(Path::new("/r,n")), kvm, Some(7)).join(" ")
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
    fn a_network_leads_to_the_process_that_serves_the_guest() {
        let line = line(&Guest { network: Network::User, ..guest() }, true);
        assert!(line.contains("-netdev socket,id=net,fd=7 -device virtio-net-pci") && !line.contains("-nic"), "{line}");
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
    }

    #[test]
    fn bounds_on_disks_hold_for_all_of_them_together() {
        let disks: Vec<PathBuf> = vec!["a.img".into(), "b.img".into()];
        let line = line(&Guest { disks, disk_rate: Some(Size(1 << 20)), disk_operations: Some(100), ..guest() }, false);
        let object = r#"{"id":"bounds","limits":{"bps-total":1048576,"iops-total":100},"qom-type":"throttle-group"}"#;
        assert!(line.contains(object), "{line}");
        assert_eq!(line.matches("throttle-group=bounds,file=disk").count(), 2, "{line}");
        assert!(line.contains("virtio-blk-pci,drive=bounded1"), "{line}");
    }

    #[test]
    fn windows_has_devices_that_it_knows_and_the_clock_that_it_expects() {
        let guest = Guest {
            profile: Profile::Windows,
            disks: vec!["c.qcow2".into()],
            network: Network::User,
            firmware: Some("code.fd".into()),
            firmware_variables: Some("variables.fd".into()),
            screen: true,
            ..guest()
        };
        let found = line(&guest, true);
        for part in [
            "q35,pflash0=code,pflash1=variables",
            "node-name=code,read-only=on,",
            "host,hv_relaxed",
            "base=localtime",
            "ide-hd,bus=sata.0,drive=disk0",
            "e1000e,netdev=net",
            "-vnc unix:/r,,n/screen",
        ] {
            assert!(found.contains(part), "{part} in {found}");
        }
        assert!(line(&guest, false).contains("-cpu max"), "Hyper-V's interfaces are KVM's");
    }

    #[test]
    fn a_name_with_commas_adds_no_key() {
        let line = line(&Guest { disks: vec!["a,snapshot=on.qcow2".into(), "b.img".into()], ..guest() }, false);
        assert!(line.contains("driver=qcow2,node-name=disk0,file.driver=file,file.filename=a,,snapshot=on.qcow2"));
        assert!(line.contains("driver=raw,node-name=disk1,"), "{line}");
        assert!(line.contains("path=/r,,n/console,server=on"), "{line}");
    }
}

//! A guest as configured in the plant file, and the QEMU command line for it.

use crate::net::Rule;
use base::{CpuSet, DurNs, Policy, Size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The emulator of this machine's architecture.
pub const PROGRAM: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };

/// The board type.
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
    /// Maximum bytes per second read and written, all disks together.
    pub disk_rate: Option<Size>,
    /// Maximum reads and writes per second, all disks together.
    pub disk_operations: Option<u32>,
    /// Whether it has a network card.
    pub network: Network,
    /// Destinations that the guest may reach.
    pub allow: Vec<Rule>,
    /// Maximum bytes per second through the network card, both directions together.
    pub network_rate: Option<Size>,
    /// Type of its devices and clock.
    pub profile: Profile,
    /// UEFI firmware; `None` uses the board's BIOS.
    pub firmware: Option<PathBuf>,
    /// UEFI variables. The guest writes to this file.
    pub firmware_variables: Option<PathBuf>,
    /// Whether it has a screen; VNC serves it on a socket.
    pub screen: bool,
    /// Execution of its instructions: processor or emulator.
    pub accel: Accel,
    /// QEMU's name of the guest's processor; `None` uses all available features.
    pub processor: Option<String>,
    /// CPUs of the virtual CPUs' threads; `None` uses those of QEMU.
    pub vcpu_cpus: Option<CpuSet>,
    /// The active shield. Threads of virtual CPUs on its CPUs become its members; the rest of QEMU stays outside.
    pub home: Option<Home>,
    /// Scheduling class of the virtual CPUs' threads; `None` uses that of QEMU.
    pub vcpu_class: Option<Policy>,
    /// Time the guest has to shut down after a request.
    pub stop_within: DurNs,
}

/// A shield: CPUs reserved for the members of its control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// File that accepts a thread ID to make the thread a member.
    pub entry: PathBuf,
}

impl Guest {
    /// A guest with one virtual CPU, 512 MiB and nothing to boot: the defaults of `tahti guest serve`.
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
    /// No network card.
    #[default]
    None,
    /// A card in a private network. It reaches only the destinations of the rules.
    User,
}

/// Devices and clock that an operating system expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// virtio devices, clock in UTC.
    #[default]
    Linux,
    /// SATA disks and an Intel network card, for which Windows has drivers; clock in local time; Hyper-V interfaces
    /// under KVM.
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

/// Execution of a guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accel {
    /// The processor if `/dev/kvm` can be opened, else the emulator.
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
    /// QMP socket of the serving process.
    pub control: PathBuf,
    /// QMP socket for status requests.
    pub status: PathBuf,
    /// First serial line.
    pub console: PathBuf,
    /// VNC.
    pub screen: PathBuf,
}

impl Places {
    /// The sockets in a guest's folder.
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

/// QEMU's arguments. The guest starts paused, so that its threads are placed before its first instruction. `wire` is
/// the descriptor of QEMU's end of the network.
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
    // Code that breaks out of the emulator must not be able to start programs, gain privileges or move threads.
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

/// Format of a disk image, from its name only. QEMU would probe the content, which a guest could change.
pub(crate) fn form(disk: &Path) -> &'static str {
    if disk.extension().is_some_and(|extension| extension == "qcow2") { "qcow2" } else { "raw" }
}

/// A path as an option value. QEMU ends a value at a single comma, so commas are doubled.
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
    fn a_guest_has_no_network_and_no_device_that_is_not_configured() {
        let line = line(&guest(), false);
        for part in ["-nic none", "-nodefaults", "-no-user-config", "-accel tcg", "-smp 2", "-m 256M", " -S"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("-netdev") && !line.contains("-kernel") && !line.contains("mem-lock"), "{line}");
    }

    #[test]
    fn a_network_is_connected_to_the_process_that_serves_the_guest() {
        let line = line(&Guest { network: Network::User, ..guest() }, true);
        assert!(line.contains("-netdev socket,id=net,fd=7 -device virtio-net-pci") && !line.contains("-nic"), "{line}");
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
    }

    #[test]
    fn bounds_on_disks_apply_to_all_of_them_together() {
        let disks: Vec<PathBuf> = vec!["a.img".into(), "b.img".into()];
        let line = line(&Guest { disks, disk_rate: Some(Size(1 << 20)), disk_operations: Some(100), ..guest() }, false);
        let object = r#"{"id":"bounds","limits":{"bps-total":1048576,"iops-total":100},"qom-type":"throttle-group"}"#;
        assert!(line.contains(object), "{line}");
        assert_eq!(line.matches("throttle-group=bounds,file=disk").count(), 2, "{line}");
        assert!(line.contains("virtio-blk-pci,drive=bounded1"), "{line}");
    }

    #[test]
    fn a_windows_guest_has_devices_and_a_clock_that_windows_supports() {
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

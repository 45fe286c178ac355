//! The guests' kernels, from Debian's packages, and the initial RAM disks made from them.

use crate::peers;
use crate::run::{output, root, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel of the distribution, named by the package that depends on its newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// 6.12 with PREEMPT_RT. Has remote partitions, `cpuset.cpus.exclusive` and the fair server.
    Rt6_12,
    /// 6.1 with PREEMPT_RT. Has the first version of isolated partitions, and cgroup v1's cpuset.
    Rt6_1,
    /// Debian's default kernel 6.1, with dom0 support for Xen.
    Generic6_1,
    /// As `Rt6_12`, for 64-bit Arm.
    RtArm6_12,
}

impl Kernel {
    /// The package that always depends on the newest build.
    fn package(self) -> &'static str {
        match self {
            Self::Rt6_12 => "linux-image-6.12-rt-amd64",
            Self::Rt6_1 => "linux-image-rt-amd64",
            Self::Generic6_1 => "linux-image-amd64",
            Self::RtArm6_12 => "linux-image-6.12-rt-arm64",
        }
    }

    /// Short name for lists and folders.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rt6_12 => "6.12-rt",
            Self::Rt6_1 => "6.1-rt",
            Self::Generic6_1 => "6.1",
            Self::RtArm6_12 => "6.12-rt-arm64",
        }
    }

    /// The target of tests and program, if the processor is not that of the host.
    pub(crate) fn target(self) -> Option<&'static str> {
        (self == Self::RtArm6_12).then_some(crate::run::ARM)
    }

    /// Options of `apt-get` and `apt-cache` for this processor's packages.
    fn options(self) -> Result<Vec<String>, String> {
        self.target().map_or(Ok(Vec::new()), |_| peers::arm64())
    }
}

/// A kernel ready to boot.
#[derive(Clone)]
pub(crate) struct Bootable {
    /// The compressed kernel image.
    pub(crate) image: PathBuf,
    /// The initial RAM disk with the modules that guests need.
    pub(crate) disk: PathBuf,
}

/// Modules that a guest loads before it mounts its root, or that its devices need. A module that is built into the kernel
/// or missing is skipped. If a missing one matters, the guest's tests fail.
const MODULES: &[&str] = &[
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_net",
    "virtio_blk",
    "watchdog",
    "i6300esb",
    "softdog",
    "veth",
    "sch_htb",
    "sch_fq_codel",
    "sch_cake",
    "sch_taprio",
    "sch_etf",
    "sch_netem",
    "sctp",
    "uio_pci_generic",
    "vfio_iommu_type1",
    "vfio-pci",
    "parport_pc",
    "pps_parport",
    "uhid",
    "hid-cp2112",
    "xenfs",
    "xen-privcmd",
    "xen-evtchn",
    "xen-gntdev",
    "xen-gntalloc",
];

const INIT: &str = include_str!("init.sh");

/// Fetches and unpacks the kernel if it is not in the cache, and makes its initial RAM disk.
///
/// # Errors
/// Names the command that failed.
pub(crate) fn ready(kernel: Kernel) -> Result<Bootable, String> {
    let cache = root().join("target/vm").join(kernel.name());
    let unpacked = cache.join("unpacked");
    let release = match release(&unpacked) {
        Some(release) => release,
        None => {
            fetch(kernel, &cache)?;
            release(&unpacked).ok_or_else(|| format!("{} holds no kernel", unpacked.display()))?
        }
    };
    let busybox = match kernel.target() {
        None => program("busybox")?,
        Some(_) => peers::unpacked_arm64("busybox-static")?.join("bin/busybox"),
    };
    let disk = cache.join("initrd");
    fs::write(&disk, initial_disk(&busybox, &unpacked, &release)?)
        .map_err(|error| format!("{}: {error}", disk.display()))?;
    Ok(Bootable { image: unpacked.join(format!("boot/vmlinuz-{release}")), disk })
}

/// Debian's packages of Xen and its tools. They are only unpacked, so that no service starts.
const XEN: [&str; 15] = [
    "xen-hypervisor-4.17-amd64",
    "xen-utils-4.17",
    "xen-utils-common",
    "xenstore-utils",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    "libxenmisc4.17",
    "libxenstore4",
    "libxentoolcore1",
    "libxentoollog1",
    "libyajl2",
];

/// The Xen image, and one folder for each package of its tools.
///
/// # Errors
/// Names the command that failed.
pub(crate) fn xen() -> Result<(PathBuf, Vec<PathBuf>), String> {
    let folders: Vec<PathBuf> = XEN.iter().map(|package| peers::unpacked(package)).collect::<Result<_, _>>()?;
    let image = root().join("target/vm/xen");
    let (packed, failed) = (folders[0].join("boot/xen-4.17-amd64.gz"), |why| format!("{}: {why}", image.display()));
    let unpacked = Command::new("gzip").arg("-dc").arg(&packed).output();
    let unpacked = unpacked.ok().filter(|output| output.status.success());
    fs::create_dir_all(root().join("target/vm")).map_err(failed)?;
    fs::write(&image, unpacked.ok_or(format!("gzip cannot read {}", packed.display()))?.stdout).map_err(failed)?;
    Ok((image, folders))
}

/// The kernel release in `unpacked` whose `modules.dep` exists.
fn release(unpacked: &Path) -> Option<String> {
    let entries = fs::read_dir(unpacked.join("lib/modules")).ok()?;
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find(|name| unpacked.join("lib/modules").join(name).join("modules.dep").exists())
}

/// Downloads and unpacks the newest package. `depmod` writes the modules' dependencies last.
fn fetch(kernel: Kernel, cache: &Path) -> Result<(), String> {
    let options = kernel.options()?;
    let show = || output(Command::new("apt-cache").args(&options).args(["depends", "--important", kernel.package()]));
    let newest = |text: &str| text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned);
    let package = match show().ok().as_deref().and_then(newest) {
        Some(package) => package,
        None => {
            run(peers::apt().args(&options).arg("update"))?;
            let lacking =
                || format!("no package {}: the guests need Debian 12 with its security updates", kernel.package());
            newest(&show()?).ok_or_else(lacking)?
        }
    };
    println!("fetching {package}");
    peers::download(&package, cache, &options)?;
    let unpack = "cd \"$0\" && rm -rf unpacked && dpkg -x ./*.deb unpacked && rm -f ./*.deb && \
                  depmod -b unpacked \"$(ls unpacked/lib/modules)\"";
    output(Command::new("sh").args(["-c", unpack]).arg(cache)).map(drop)
}

/// The initial RAM disk: busybox, the init script, and modules in the order in which they must be loaded.
fn initial_disk(busybox: &Path, unpacked: &Path, release: &str) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for directory in ["bin", "proc", "sys", "dev", "modules"] {
        archive.entry(directory, 0o040_755, &[]);
    }
    archive.entry("bin/busybox", 0o100_755, &read(busybox)?);
    archive.entry("init", 0o100_755, INIT.as_bytes());
    let mut order = String::new();
    for file in load_order(unpacked, release)? {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let plain = name.trim_end_matches(".xz");
        let bytes = if plain == name {
            read(&file)?
        } else {
            let unpacked = Command::new("xz").arg("-dc").arg(&file).output();
            unpacked.ok().filter(|output| output.status.success()).ok_or(format!("xz cannot read {name}"))?.stdout
        };
        archive.entry(&format!("modules/{plain}"), 0o100_644, &bytes);
        order.push_str(plain);
        order.push('\n');
    }
    archive.entry("modules/order", 0o100_644, order.as_bytes());
    Ok(archive.finish())
}

/// The files of the modules and of all their dependencies, dependencies first.
fn load_order(unpacked: &Path, release: &str) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for module in MODULES {
        let words = ["--show-depends", "--set-version", release, "--dirname"];
        let program = program("modprobe")?;
        let Ok(text) = output(Command::new(program).args(words).arg(unpacked).arg(module)) else { continue };
        for line in text.lines() {
            let Some(path) = line.strip_prefix("insmod ").and_then(|rest| rest.split_whitespace().next()) else {
                continue;
            };
            let path = PathBuf::from(path);
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Path of a program. Some users do not have the system's directories in `PATH`.
fn program(name: &str) -> Result<PathBuf, String> {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
    places.into_iter().find(|file| file.is_file()).ok_or_else(|| format!("{name} is not in /usr/sbin or /usr/bin"))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A cpio archive in the "newc" format, which kernels unpack.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = 1 + u32::from(mode & 0o040_000 != 0);
        let size = u32::try_from(content.len()).expect("no file of an initial RAM disk has 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("short names");
        let header = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in header {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_has_the_format_of_cpio() {
        let mut archive = Archive::default();
        archive.entry("d", 0o040_755, &[]);
        archive.entry("d/file", 0o100_644, b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("d/file\0"));
        assert!(text.contains("hello\x00\x00\x00070701"));
        assert!(text.contains("TRAILER!!!"));
    }
}

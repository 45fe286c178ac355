//! Boots a guest in QEMU, runs a list of tests and reads their results.

use super::guests::{Guest, Hardware, Thread};
use super::kernel::Bootable;
use crate::record;
use crate::run::{Outcome, root};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// One test in a guest.
#[derive(Clone)]
pub(crate) struct Test {
    /// Crate, test binary and test, for messages.
    pub(crate) shown: String,
    /// The binary, at the same path in the guest.
    pub(crate) binary: PathBuf,
    /// The test's path in the binary.
    pub(crate) name: String,
}

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The test process's exit status; `None` if the guest ended before it did.
    pub(crate) status: Option<i32>,
    /// Duration in seconds of the guest's clock.
    pub(crate) seconds: f64,
}

impl Verdict {
    pub(crate) fn passed(&self) -> bool {
        self.status == Some(0)
    }
}

/// Maximum duration of a test in seconds of the guest's clock.
const TEST_SECONDS_MAX: u32 = 300;

/// Maximum duration of a guest in seconds.
const GUEST_SECONDS_MAX: u32 = 900;

/// QEMU's exit status if the guest reached the end of its script.
const DONE: i32 = 33;

/// A script for a guest, and the folder for its logs.
pub(crate) struct Job<'a> {
    pub(crate) guest: &'a Guest,
    pub(crate) kernel: &'a Bootable,
    /// The Xen image, if the guest runs under Xen.
    pub(crate) xen: Option<&'a Path>,
    /// The shell script that the guest runs.
    pub(crate) script: String,
    /// Number of results that the script reports.
    pub(crate) results: usize,
    /// The folder that the guest sees as `/out`. It is emptied first.
    pub(crate) place: &'a Path,
    /// Script of the guest at the other end of a wire. That guest lives as long as this one.
    pub(crate) other: Option<&'a str>,
}

/// Boots the guest, runs its script, and calls the callback with the index and verdict of each result as it arrives.
///
/// # Errors
/// The guest did not boot or did not reach the end of its script; the end of its console is quoted.
pub(crate) fn boot(job: &Job<'_>, mut told: impl FnMut(usize, &Verdict)) -> Outcome {
    match boot_once(job, &mut told) {
        Err(console) if job.guest.thread == Thread::Multi && console.contains("Oops: int3") => {
            println!("  the emulator lost the race for the kernel's code (Oops: int3): once more");
            record::again([format!("boot of guest {}: Oops: int3 in the emulator", job.guest.name)]);
            boot_once(job, &mut told)
        }
        outcome => outcome,
    }
}

fn boot_once(job: &Job<'_>, told: &mut impl FnMut(usize, &Verdict)) -> Outcome {
    let place = job.place;
    let failed = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place).map_err(|error| failed(place, error))?;
    let script = place.join("run.sh");
    fs::write(&script, &job.script).map_err(|error| failed(&script, error))?;
    let results = place.join("results");
    let mut seen = 0;
    let mut tell = |seen: &mut usize| {
        let text = fs::read_to_string(&results).unwrap_or_default();
        // A line without a newline is incomplete.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).skip(*seen) {
            *seen += 1;
            if let Some((index, verdict)) = result(line.trim()) {
                told(index, &verdict);
            }
        }
    };
    let complaints = place.join("qemu");
    let complaints = fs::File::create(&complaints).map_err(|error| failed(&complaints, error))?;
    let doorbell = match job.guest.hardware {
        Hardware::Devices => Some(Doorbell::open()?),
        Hardware::Plain | Hardware::Wire | Hardware::Xen | Hardware::Arm => None,
    };
    let other = match job.guest.hardware {
        Hardware::Wire => Some(Other::begin(job)?),
        Hardware::Plain | Hardware::Devices | Hardware::Xen | Hardware::Arm => None,
    };
    let mut command = command(job, place);
    if let Some(doorbell) = &doorbell {
        command.args(doorbell.words());
    }
    if let Some(other) = &other {
        command.args(other.wire.words(0));
    }
    let child = command.stderr(complaints).spawn();
    let mut child = Running(child.map_err(|error| format!("QEMU did not start: {error}"))?);
    let start = Instant::now();
    let status = loop {
        tell(&mut seen);
        if let Some(status) = child.0.try_wait().map_err(|error| format!("QEMU is lost: {error}"))? {
            break status;
        }
        stop_if_asked(place, child.0.id());
        std::thread::sleep(Duration::from_millis(100));
    };
    tell(&mut seen);
    let is_complete = match job.guest.hardware {
        Hardware::Arm => status.success() && place.join("complete").exists(),
        _ => status.code() == Some(DONE),
    };
    if is_complete && seen == job.results {
        return Ok(());
    }
    if status.success()
        && seen + 1 == job.results
        && let Some(seconds) = was_reset(place)
    {
        told(seen, &Verdict { status: Some(0), seconds });
        return Ok(());
    }
    Err(explain(status, start.elapsed(), place))
}

/// Seconds since the last test announced the reset. `None` if the kernel caused the reset, which its console shows.
fn was_reset(place: &Path) -> Option<f64> {
    let said = fs::metadata(place.join("ends")).ok()?.modified().ok()?;
    let console = fs::read(place.join("console")).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let by_kernel = ["Kernel panic", "reboot: "].iter().any(|words| console.contains(words));
    (!by_kernel).then(|| said.elapsed().unwrap_or_default().as_secs_f64())
}

/// Stops the whole guest for the number of milliseconds in `/out/stop`, as a busy host would. `/out/stopped` then holds the
/// minimum and maximum duration of the stop in microseconds. `timeout` and QEMU are a separate process group.
fn stop_if_asked(place: &Path, group: u32) {
    let asked = place.join("stop");
    let Some(ms) = fs::read_to_string(&asked).ok().and_then(|text| text.trim().parse::<u64>().ok()) else { return };
    let signal = |name: &str| {
        // The guest's test checks the effect.
        let _ = Command::new("kill").args([name, "--", &format!("-{group}")]).status();
    };
    let before = Instant::now();
    signal("-STOP");
    let stopped = Instant::now();
    std::thread::sleep(Duration::from_millis(ms.min(1000)));
    let least = stopped.elapsed();
    signal("-CONT");
    let text = format!("{} {}\n", least.as_micros(), before.elapsed().as_micros());
    let _ = fs::remove_file(&asked);
    let (new, told) = (place.join("stopped.new"), place.join("stopped"));
    let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, told));
}

/// A QEMU process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The machine at the other end of `ivshmem`, and its socket.
struct Doorbell {
    socket: PathBuf,
    machine: Running,
}

impl Doorbell {
    fn open() -> Result<Self, String> {
        let socket = std::env::temp_dir().join(format!("tahti-ivshmem-{}", std::process::id()));
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("ivshmem.py")]).arg(&socket).stdin(Stdio::null());
        let machine = command.spawn().map_err(|error| format!("python3 did not start: {error}"))?;
        let mut doorbell = Self { socket, machine: Running(machine) };
        while !doorbell.socket.exists() {
            if let Ok(Some(status)) = doorbell.machine.0.try_wait() {
                return Err(format!("the machine at the other end of ivshmem ended with {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(doorbell)
    }

    fn words(&self) -> Vec<String> {
        let chardev = format!("socket,path={},id=ivshmem", self.socket.display());
        let device = "ivshmem-doorbell,vectors=1,chardev=ivshmem";
        let printer = ["-chardev", "null,id=printer", "-device", "isa-parallel,chardev=printer"];
        let words = ["-device", "edu", "-chardev", &chardev, "-device", device];
        words.into_iter().chain(printer).map(str::to_owned).collect()
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // A failure leaves only an unused file.
        let _ = fs::remove_file(&self.socket);
    }
}

/// A wire between two guests, with a socket for each end.
struct Wire([PathBuf; 2]);

impl Wire {
    /// Options of the network card at one end: the guest's second card.
    fn words(&self, end: usize) -> [String; 4] {
        let [own, far] = [&self.0[end], &self.0[1 - end]].map(|path| path.display());
        let wire = format!("dgram,id=wire,local.type=unix,local.path={own},remote.type=unix,remote.path={far}");
        let card = format!("virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:00:00:0{}", end + 1);
        ["-netdev".to_owned(), wire, "-device".to_owned(), card]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A failure leaves only unused files.
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The guest at the other end of a wire. It lives as long as the guest under test.
struct Other {
    machine: Child,
    wire: Wire,
}

impl Other {
    fn begin(job: &Job<'_>) -> Result<Self, String> {
        let place = job.place.join("other");
        let failed = |error: std::io::Error| format!("{}: {error}", place.display());
        fs::create_dir_all(&place).map_err(failed)?;
        fs::write(place.join("run.sh"), job.other.unwrap_or_default()).map_err(failed)?;
        let end = |end: u8| std::env::temp_dir().join(format!("tahti-wire-{}-{end}", std::process::id()));
        let wire = Wire([end(1), end(2)]);
        // Remove the sockets of a run that was killed.
        wire.0.iter().for_each(|path| drop(fs::remove_file(path)));
        let complaints = fs::File::create(place.join("qemu")).map_err(failed)?;
        let mut command = command(job, &place);
        let machine = command.args(wire.words(1)).stderr(complaints).spawn();
        Ok(Self { machine: machine.map_err(|error| format!("QEMU did not start: {error}"))?, wire })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // `timeout` passes the signal on to QEMU. Both calls fail only if the process has already ended.
        let _ = Command::new("kill").arg(self.machine.id().to_string()).status();
        let _ = self.machine.wait();
    }
}

/// Why a guest gave no full result, with the end of its console.
fn explain(status: ExitStatus, lived: Duration, place: &Path) -> String {
    let tail = |name: &str| {
        let bytes = fs::read(place.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    };
    let why = match status.code() {
        Some(124 | 137) => format!("it still ran after {GUEST_SECONDS_MAX} s"),
        Some(DONE) => "it skipped a test".to_owned(),
        _ => format!("QEMU ended with {status}"),
    };
    let lived = lived.as_secs_f64();
    format!(
        "the guest gave no full result after {lived:.1} s: {why}\n--- QEMU\n{}\n--- its console\n{}\n--- its log\n{}",
        tail("qemu"),
        tail("console"),
        tail("log")
    )
}

/// The script that runs tests, each in a separate process, so that a test that hangs or dies does not affect the others.
pub(crate) fn run_script(tests: &[Test], environment: &[(&str, String)]) -> String {
    let mut script = String::from("cd /\nexport RUST_BACKTRACE=0\n");
    for (name, value) in environment {
        let _ = writeln!(script, "export {name}='{value}'");
    }
    let _ = write!(
        script,
        "now() {{ read -r up idle </proc/uptime; echo \"$up\"; }}\n\
         t() {{\n  from=$(now)\n  timeout -k 5 {TEST_SECONDS_MAX} \"$2\" --exact \"$3\" --test-threads=1 --nocapture \\\n    \
         >\"/out/$1.log\" 2>&1\n  echo \"$1 $? $from $(now)\" >>/out/results\n}}\n"
    );
    for (index, test) in tests.iter().enumerate() {
        let _ = writeln!(script, "t {index} '{}' '{}'", test.binary.display(), test.name);
    }
    script
}

/// Parses a line that `run_script`'s `t` wrote: index, status, start, end.
fn result(line: &str) -> Option<(usize, Verdict)> {
    let mut words = line.split(' ');
    let index = words.next()?.parse().ok()?;
    let status = words.next()?.parse().ok()?;
    let from: f64 = words.next()?.parse().ok()?;
    let to: f64 = words.next()?.parse().ok()?;
    Some((index, Verdict { status: Some(status), seconds: to - from }))
}

/// QEMU's command line.
fn command(job: &Job<'_>, place: &Path) -> Command {
    let (guest, kernel) = (job.guest, job.kernel);
    let mut command = Command::new("timeout");
    let (program, console) = match guest.hardware {
        Hardware::Arm => ("qemu-system-aarch64", "ttyAMA0"),
        _ => ("qemu-system-x86_64", "ttyS0"),
    };
    command.args(["-k", "5", &GUEST_SECONDS_MAX.to_string(), program]);
    let thread = match guest.thread {
        Thread::Single => "tcg,thread=single",
        Thread::Multi => "tcg,thread=multi",
    };
    let machine = match guest.hardware {
        Hardware::Plain | Hardware::Wire | Hardware::Xen => "q35",
        Hardware::Devices => "q35,kernel-irqchip=split",
        Hardware::Arm => "virt,gic-version=3",
    };
    let (processor, megabytes) = match guest.hardware {
        // With more CPU features of the emulator, dom0 and PV domains do not start.
        Hardware::Xen => ("max,-pku,-smap,-smep,-la57,-rdtscp", "3072"),
        Hardware::Plain | Hardware::Devices | Hardware::Wire => ("max", "2048"),
        Hardware::Arm => ("cortex-a72", "2048"),
    };
    command.args(["-M", machine, "-accel", thread, "-cpu", processor, "-m", megabytes, "-smp", guest.cpus]);
    if guest.hardware == Hardware::Devices {
        // The IOMMU must come before the devices behind it.
        command.args(["-device", "intel-iommu,intremap=on"]);
    }
    for (index, cpus) in guest.nodes.iter().enumerate() {
        let megabytes = 2048 / guest.nodes.len();
        command.args(["-object", &format!("memory-backend-ram,size={megabytes}M,id=m{index}")]);
        command.args(["-numa", &format!("node,nodeid={index},cpus={cpus},memdev=m{index}")]);
    }
    // A disk with one managed interrupt per CPU, and a network card whose interrupts can be moved.
    command.args(["-blockdev", "driver=null-co,node-name=disk,size=67108864", "-device", "virtio-blk-pci,drive=disk"]);
    command.args(["-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="]);
    command.args(["-device", "i6300esb"]);
    if guest.hardware != Hardware::Arm {
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-vga", "none"]);
    }
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.args(["-serial", &format!("file:{}", place.join("console").display())]);
    let folder = |tag: &str, path: &str, more: &str| {
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}")
    };
    command.args(["-virtfs", &folder("host", "/", ",readonly=on")]);
    command.args(["-virtfs", &folder("out", &place.display().to_string(), "")]);
    let boot = |console: &str| {
        let words = format!(
            "console={console} quiet panic=-1 tahti.guest={} {}{} {}",
            guest.name,
            guest.init.words(),
            guest.kernel.target().map(|_| format!(" tahti.tree={}", root().display())).unwrap_or_default(),
            guest.boot
        );
        words.trim_end().to_owned()
    };
    match job.xen {
        None => {
            command
                .arg("-kernel")
                .arg(&kernel.image)
                .arg("-initrd")
                .arg(&kernel.disk)
                .args(["-append", &boot(console)]);
        }
        Some(xen) => {
            // Xen takes the kernel and its disk as modules: files with arguments, separated by commas.
            let module = |words: String| words.replace(',', ",,");
            let image = module(format!("{} {}", kernel.image.display(), boot("hvc0")));
            let modules = format!("{image},{}", module(kernel.disk.display().to_string()));
            command.arg("-kernel").arg(xen).args(["-initrd", &modules]);
            command
                .args(["-append", "console=com1 com1=115200 dom0_mem=1536M dom0_max_vcpus=2 dom0_vcpus_pin noreboot"]);
        }
    }
    command.stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_parsed_and_others_skipped() {
        let verdict = Verdict { status: Some(101), seconds: 0.5 };
        assert_eq!(result("3 101 2.25 2.75"), Some((3, verdict)));
        for broken in ["", "3", "x 0 1 2", "3 0 1"] {
            assert_eq!(result(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_reset_counts_only_if_it_was_announced_and_not_done_by_the_kernel() {
        let place = std::env::temp_dir().join(format!("tahti-xtask-reset-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("console"), "Linux\n").unwrap();
        let unannounced = was_reset(&place);
        fs::write(place.join("ends"), "").unwrap();
        let announced = was_reset(&place);
        fs::write(place.join("console"), "Kernel panic - not syncing\n").unwrap();
        let panicked = was_reset(&place);
        fs::remove_dir_all(&place).unwrap();
        assert_eq!((unannounced.is_some(), announced.is_some(), panicked.is_some()), (false, true, false));
    }

    #[test]
    fn each_test_is_a_separate_process() {
        let test = Test { shown: String::new(), binary: "/b".into(), name: "m::n".into() };
        let script = run_script(&[test], &[("A", "b".to_owned())]);
        assert!(script.contains("export A='b'\n"), "{script}");
        assert!(script.ends_with("t 0 '/b' 'm::n'\n"), "{script}");
    }
}

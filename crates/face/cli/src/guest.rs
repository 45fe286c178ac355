//! `tahti guest`: virtual machines that belong to a plant.

use crate::control::plant_name;
use crate::failure::{Failure, end};
use crate::shield;
use ::guest::define::Definition;
use ::guest::model::{PROGRAM, Places};
use ::guest::place::vcpus;
use ::guest::qmp::{ANSWER_WITHIN, Client};
use ::guest::serve::{LOCK, USAGE, files, is_accelerated};
use ::guest::usage::{history, ran};
use ::guest::{Accel, Guest, GuestEnd, Home, Network, Profile, Rule};
use base::{CpuSet, DurNs, Policy, Size};
use clap::{Args as _, FromArgMatches as _};
use host::plant::{Cpus, NAME, Process, Profiles, is_name};
use keep::supervisor::rundir::{RunDir, base};
use keep::supervisor::{guest_note, plant_file, read_plant};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Folder name for guests outside of a plant. No plant can have this name.
const ALONE: &str = "_guest";

/// Run virtual machines next to the real-time processes
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: GuestCommand,
}

#[derive(clap::Subcommand)]
enum GuestCommand {
    Define(DefineArgs),
    /// Start a guest, as `tahti start`
    Start(crate::process::StartArgs),
    /// Connect to the console of a guest, as `tahti console`
    Console(crate::attach::Args),
    /// Run a virtual machine on this terminal; ^] or SIGTERM shuts it down
    Serve(Box<ServeArgs>),
    /// Show the state of a guest and the CPUs of its virtual CPUs
    Status(WhichArgs),
    /// Shut a guest down; QEMU is stopped after `stop_within`
    Stop(WhichArgs),
    /// Continue a paused guest; `status` shows why it is paused
    Resume(WhichArgs),
    /// Save, list or load snapshots in the disk images of a guest (.qcow2)
    Snapshot(SnapshotArgs),
}

/// Convert a guest of a plant to a libvirt domain or a Xen configuration
///
/// Prints warnings for keys without an equivalent, and adds them as comments.
#[derive(clap::Args)]
struct DefineArgs {
    /// Plant file or folder
    plant: PathBuf,
    /// Guest
    name: String,
    /// Target format
    #[arg(long = "for", value_name = "WHOM", value_parser = ["libvirt", "xen"])]
    whom: String,
}

#[derive(clap::Args)]
struct SnapshotArgs {
    /// Action
    #[arg(value_parser = ["save", "list", "load"])]
    act: String,
    #[command(flatten)]
    which: WhichArgs,
    /// Name of the snapshot; not for list
    #[arg(required_if_eq_any([("act", "save"), ("act", "load")]))]
    snapshot: Option<String>,
}

/// Timeout of a snapshot, which writes the whole memory of the guest to disk.
const SNAPSHOT_WITHIN: DurNs = DurNs::from_secs(300);

#[derive(clap::Args)]
struct WhichArgs {
    /// Guest
    name: String,
    /// Plant of the guest
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
}

#[derive(clap::Args)]
struct ServeArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Number of virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    vcpus: u16,
    /// Memory, whole MiB
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    memory: Size,
    /// Lock all memory
    #[arg(long)]
    mlock: bool,
    /// Linux kernel to boot directly
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Initial RAM disk of the kernel
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// Kernel command line
    #[arg(long, value_name = "TEXT", requires = "kernel", allow_hyphen_values = true)]
    append: Option<String>,
    /// Disk image, .qcow2 or raw by its suffix; repeatable
    #[arg(long = "disk", value_name = "FILE", required_unless_present = "kernel")]
    disks: Vec<PathBuf>,
    /// Maximum bytes per second of all disks together
    #[arg(long, value_name = "SIZE")]
    disk_rate: Option<Size>,
    /// Maximum reads and writes per second of all disks together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    disk_operations: Option<u32>,
    /// Network: none, or user (a private network that reaches only the --allow targets)
    #[arg(long, value_name = "KIND", default_value = "none")]
    network: Network,
    /// Target that the guest reaches at 10.0.2.2: `[udp:][PORT=]ADDRESS:PORT`; repeatable
    #[arg(long, value_name = "RULE")]
    allow: Vec<Rule>,
    /// Maximum bytes per second of the network card, both directions together
    #[arg(long, value_name = "SIZE")]
    network_rate: Option<Size>,
    /// Device set: linux or windows
    #[arg(long, value_name = "SYSTEM", default_value = "linux")]
    profile: Profile,
    /// UEFI firmware
    #[arg(long, value_name = "FILE")]
    firmware: Option<PathBuf>,
    /// UEFI variables, written by the guest
    #[arg(long, value_name = "FILE", requires = "firmware")]
    firmware_variables: Option<PathBuf>,
    /// Screen by VNC, at the socket `screen` in its folder
    #[arg(long)]
    screen: bool,
    /// Accelerator: auto, kvm or emulated
    #[arg(long, value_name = "HOW", default_value = "auto")]
    accel: Accel,
    /// CPU model, one of `qemu-system-x86_64 -cpu help`
    #[arg(long, value_name = "NAME")]
    processor: Option<String>,
    /// CPUs of the virtual CPU threads, or `shield`
    #[arg(long, value_name = "LIST")]
    vcpu_cpus: Option<VcpuCpus>,
    /// Scheduling class of the virtual CPU threads
    #[arg(long, value_name = "CLASS")]
    vcpu_class: Option<Policy>,
    /// Maximum time for a shutdown
    #[arg(long, value_name = "TIME", default_value = "30s")]
    stop_within: DurNs,
    /// QEMU program
    #[arg(long, value_name = "PROGRAM", default_value = PROGRAM)]
    program: String,
    /// Only report missing files, QEMU or KVM
    #[arg(long)]
    check: bool,
}

impl Args {
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(self.what, GuestCommand::Status(_) | GuestCommand::Define(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(match args.what {
        GuestCommand::Start(args) => return crate::process::start(args),
        GuestCommand::Console(args) => return crate::attach::run(args),
        GuestCommand::Define(args) => define(&args),
        GuestCommand::Serve(args) => serve(*args),
        GuestCommand::Status(args) => status(&args),
        GuestCommand::Stop(args) => stop(&args),
        GuestCommand::Resume(args) => resume(&args),
        GuestCommand::Snapshot(args) => snapshot(&args),
    })
}

impl WhichArgs {
    fn folder(&self) -> Result<PathBuf, Failure> {
        if !is_name(&self.name) {
            return Err(format!("{:?} is not a valid guest name: expected {NAME}", self.name).into());
        }
        Ok(match &self.plant {
            Some(plant) => RunDir::find(&plant_name(Some(plant))?).guest(&self.name),
            None => base().join(ALONE).join(&self.name),
        })
    }

    /// The folder of a running guest, and the pid of the process that serves it.
    fn living(&self) -> Result<(PathBuf, rustix::process::Pid), Failure> {
        let folder = self.folder()?;
        let lost = || {
            let which = if self.plant.is_some() { "" } else { "; one of a plant needs --plant NAME" };
            Failure::from(format!("no guest {:?} runs{which}", self.name))
        };
        server(&folder).map(|pid| (folder, pid)).ok_or_else(lost)
    }
}

/// The process that serves the guest of a folder; it holds the lock file.
fn server(folder: &Path) -> Option<rustix::process::Pid> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    if lock.try_lock_shared().is_ok() {
        return None;
    }
    let text = std::fs::read_to_string(folder.join(LOCK)).ok()?;
    rustix::process::Pid::from_raw(text.trim().parse().ok().filter(|pid: &i32| *pid > 0)?)
}

/// The CPUs of the virtual CPUs' threads.
#[derive(Clone, Copy)]
enum VcpuCpus {
    Shield,
    These(CpuSet),
}

impl std::str::FromStr for VcpuCpus {
    type Err = <CpuSet as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "shield" { Ok(Self::Shield) } else { text.parse().map(Self::These) }
    }
}

impl VcpuCpus {
    /// Sets these CPUs for the guest. With `shield`, the active shield must accept single threads.
    fn place(self, guest: &mut Guest) -> Result<(), Failure> {
        let home = match self {
            Self::Shield => {
                let home = shield::any_home()?.ok_or(
                    "--vcpu-cpus shield: there is no shield that accepts single threads; apply one, or if it is a partition of cgroup version 2, \
                     put the whole guest into it (`cpus = \"shield\"`)",
                )?;
                guest.vcpu_cpus = Some(home.cpus);
                Some(home)
            }
            Self::These(cpus) => {
                guest.vcpu_cpus = Some(cpus);
                shield::home(cpus)?
            }
        };
        guest.home = home.map(|home| Home { cpus: home.cpus, entry: home.entry.into() });
        Ok(())
    }
}

impl ServeArgs {
    fn guest(self) -> Result<Guest, Failure> {
        if self.memory.0 < 16 << 20 || !self.memory.0.is_multiple_of(1 << 20) {
            return Err(format!("--memory {}: expected at least 16MiB, in whole MiB", self.memory).into());
        }
        if matches!(self.vcpu_class, Some(Policy::Deadline(_))) {
            return Err("--vcpu-class deadline: expected fifo, rr, other, batch or idle".into());
        }
        Ok(Guest {
            name: self.which.name,
            program: self.program,
            vcpus: self.vcpus,
            memory: self.memory,
            mlock: self.mlock,
            kernel: self.kernel,
            initrd: self.initrd,
            append: self.append,
            disks: self.disks,
            disk_rate: self.disk_rate,
            disk_operations: self.disk_operations,
            network: if self.allow.is_empty() { self.network } else { Network::User },
            allow: self.allow,
            network_rate: self.network_rate,
            profile: self.profile,
            firmware: self.firmware,
            firmware_variables: self.firmware_variables,
            screen: self.screen,
            accel: self.accel,
            processor: self.processor,
            vcpu_cpus: match self.vcpu_cpus {
                Some(VcpuCpus::These(cpus)) => Some(cpus),
                // Known once the shield is active.
                Some(VcpuCpus::Shield) | None => None,
            },
            home: None,
            vcpu_class: self.vcpu_class,
            stop_within: self.stop_within,
        })
    }
}

fn serve(args: ServeArgs) -> Result<(), Failure> {
    let (folder, is_check, cpus) = (args.which.folder()?, args.check, args.vcpu_cpus);
    let mut guest = args.guest()?;
    if is_check {
        return Ok(files(&guest)?);
    }
    cpus.map_or(Ok(()), |cpus| cpus.place(&mut guest))?;
    let mut tell = |line: &str| println!("tahti guest: {line}");
    match ::guest::serve(&guest, &folder, &mut tell)? {
        GuestEnd::ByItself => tell("it shut down by itself"),
        GuestEnd::Asked => tell("it shut down on request"),
        GuestEnd::Unstarted => tell("it was stopped before it ran"),
    }
    Ok(())
}

fn define(args: &DefineArgs) -> Result<(), Failure> {
    let file = plant_file(&args.plant)?;
    let folder = std::path::absolute(file.parent().unwrap_or(Path::new(".")))?;
    let (plant, _) = read_plant(&file, &Profiles::all())?;
    let process = plant.processes.iter().find(|process| process.name == args.name);
    let words =
        process.and_then(|process| process.command.strip_prefix(&["tahti", "guest", "serve"].map(str::to_owned)));
    let Some((process, words)) = process.zip(words) else {
        let is_guest =
            |process: &&Process| process.command.starts_with(&["tahti", "guest", "serve"].map(str::to_owned));
        let guests: Vec<&str> = plant.processes.iter().filter(is_guest).map(|process| process.name.as_str()).collect();
        let has = if guests.is_empty() { "none".to_owned() } else { guests.join(", ") };
        return Err(format!("{}: no guest {:?}; it has {has}", file.display(), args.name).into());
    };
    // The plant file gives the guest as the command line of its process.
    let command = ServeArgs::augment_args(clap::Command::new("serve").no_binary_name(true));
    let said = ServeArgs::from_arg_matches(&command.try_get_matches_from(words)?)?;
    let in_shield = matches!(said.vcpu_cpus, Some(VcpuCpus::Shield));
    let guest = said.guest()?;
    let cpus = match &process.cpus {
        Cpus::List(cpus) => Some(cpus),
        Cpus::Shield | Cpus::Housekeeping => None,
    };
    let folder = process.dir.as_ref().map_or_else(|| folder.clone(), |dir| folder.join(dir));
    let definition = Definition { guest: &guest, folder: &folder, cpus, memory_max: process.bounds.memory_max };
    let defined = if args.whom == "libvirt" { definition.libvirt()? } else { definition.xen() };
    let in_shield =
        in_shield.then(|| "vcpu_cpus = \"shield\" cannot be expressed for other programs; set a CPU list".to_owned());
    for note in in_shield.iter().chain(&defined.notes) {
        eprintln!("tahti guest: {note}");
    }
    print!("{}", defined.text);
    Ok(())
}

fn status(args: &WhichArgs) -> Result<(), Failure> {
    let (folder, _) = args.living()?;
    let mut qmp = Client::connect(&Places::of(&folder).status, ANSWER_WITHIN)?;
    let state = qmp.call("query-status")?["status"].as_str().unwrap_or("unknown").to_owned();
    let by = if is_accelerated(&mut qmp)? { "by the processor (KVM)" } else { "emulated" };
    println!("{}: {}, {by}", args.name, base::Visible { text: &state, colours: false });
    if let Some(note) = guest_note(&folder) {
        println!("{}", base::Visible { text: &note, colours: false });
    }
    // The peer credentials of the socket give QEMU's pid reliably.
    let pid = rustix::net::sockopt::socket_peercred(qmp.as_fd())?.pid.as_raw_nonzero().get();
    println!("QEMU is process {pid}");
    for vcpu in vcpus(&mut qmp, pid)? {
        // In units of 10 ms.
        let seconds = ran(pid, vcpu.tid) / 10_000_000;
        println!(
            "virtual CPU {}: thread {}, CPUs {}, {}, has run {}.{:02} s",
            vcpu.index,
            vcpu.tid,
            vcpu.cpus,
            vcpu.class,
            seconds / 100,
            seconds % 100
        );
    }
    used(&history(&folder.join(USAGE)));
    Ok(())
}

/// Prints the CPU usage per minute, newest first, from samples at intervals of 10 s.
fn used(history: &[Vec<f64>]) {
    const MINUTE: usize = 6;
    const SHOWN: usize = 10;
    if history.len() < MINUTE {
        return;
    }
    let minutes: Vec<String> = history
        .rchunks_exact(MINUTE)
        .take(SHOWN)
        .map(|minute| format!("{:.0}", minute.iter().flatten().sum::<f64>() / MINUTE as f64))
        .collect();
    println!("percent of a CPU, QEMU and all, the last minute first: {}", minutes.join(" "));
}

fn snapshot(args: &SnapshotArgs) -> Result<(), Failure> {
    let (folder, _) = args.which.living()?;
    let name = args.snapshot.as_deref().unwrap_or_default();
    if args.act != "list" && !is_name(name) {
        return Err(format!("{name:?} is not a valid snapshot name: expected {NAME}").into());
    }
    let line = match args.act.as_str() {
        "save" => format!("savevm {name}"),
        "load" => format!("loadvm {name}"),
        _ => "info snapshots".to_owned(),
    };
    let mut qmp = Client::connect(&Places::of(&folder).status, SNAPSHOT_WITHIN)?;
    let said = qmp.call_with("human-monitor-command", Some(&serde_json::json!({ "command-line": line })))?;
    let said = said.as_str().unwrap_or_default().trim();
    let shown = base::Visible { text: said, colours: false };
    if args.act == "list" && !said.starts_with("Error") {
        println!("{shown}");
    } else if !said.is_empty() {
        if args.act == "load" {
            // QEMU leaves the guest stopped if the snapshot does not exist.
            qmp.call("cont")?;
        }
        let remedy = "each disk that the guest writes must be .qcow2, and `list` shows the snapshots";
        return Err(format!("snapshot {name:?} of {}: {shown}; {remedy}", args.which.name).into());
    }
    Ok(())
}

fn resume(args: &WhichArgs) -> Result<(), Failure> {
    let (folder, _) = args.living()?;
    let mut qmp = Client::connect(&Places::of(&folder).status, ANSWER_WITHIN)?;
    let sleeps = qmp.call("query-status")?["status"] == "suspended";
    qmp.call(if sleeps { "system_wakeup" } else { "cont" })?;
    Ok(())
}

fn stop(args: &WhichArgs) -> Result<(), Failure> {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let (folder, pid) = args.living()?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    // Check again that this process serves the guest. The open pidfd excludes a reused pid.
    if server(&folder) == Some(pid) {
        pidfd_send_signal(&process, Signal::TERM)?;
    }
    while !sys::poll::is_readable(process.as_fd(), DurNs::from_secs(1)) {}
    println!("{} has ended; see its log", args.name);
    Ok(())
}

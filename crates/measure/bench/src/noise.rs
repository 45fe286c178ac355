//! Load on the machine (`tahti demo noise`), bounded, in processes that end with the parent.

use crate::Failed;
use crate::measure::own_program;
use base::{DurNs, MonoNs};
use clap::ValueEnum;
use std::fs::File;
use std::io::{Read, Seek as _, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use sys::clock::{mono_now, sleep_until};
use sys::root::RootDir;
use sys::signal::{SignalFd, end_signals};

/// Put load on CPU, memory, disk or network, at time-sharing priority
///
/// Each kind is one process. Limits: cpu one thread; mem 64 MiB; disk an unnamed 16 MiB file, rewritten and synced; net
/// one TCP connection over the loopback.
#[derive(clap::Args)]
pub struct Args {
    /// Kind of load
    #[arg(long, value_enum, default_value = "all")]
    load: Load,
    /// Duration [default: until interrupted]
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
    /// Run one kind in this process
    #[arg(long, hide = true)]
    one: bool,
}

/// The kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// No load
    None,
    /// One computing thread
    Cpu,
    /// 64 MiB of memory, accessed with cache misses and freed from time to time
    Mem,
    /// A 16 MiB file, rewritten and synced
    Disk,
    /// One TCP connection over the loopback
    Net,
    /// All of them, one process each
    All,
}

impl Load {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Mem => "mem",
            Self::Disk => "disk",
            Self::Net => "net",
            Self::All => "all",
        }
    }

    /// Whether it includes network traffic.
    pub(crate) fn is_on_network(self) -> bool {
        self.kinds().contains(&Self::Net)
    }

    fn kinds(self) -> &'static [Self] {
        match self {
            Self::None => &[],
            Self::Cpu => &[Self::Cpu],
            Self::Mem => &[Self::Mem],
            Self::Disk => &[Self::Disk],
            Self::Net => &[Self::Net],
            Self::All => &[Self::Cpu, Self::Mem, Self::Disk, Self::Net],
        }
    }
}

const MEMORY_BYTES: usize = 64 << 20;
const FILE_BYTES: usize = 16 << 20;
const BLOCK: usize = 64 << 10;

/// Processes of a load; ended on drop.
pub struct Noise {
    children: Vec<Child>,
}

impl Noise {
    /// Starts the processes of a load, which end after `for_`.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub fn start(load: Load, for_: Option<DurNs>) -> Result<Self, Failed> {
        let mut noise = Self { children: Vec::new() };
        let program = own_program()?;
        for kind in load.kinds() {
            let mut command = Command::new(&program);
            command.args(["demo", "noise", "--one", "--load", kind.word()]);
            if let Some(limit) = for_ {
                command.args(["--for", &limit.to_string()]);
            }
            // The child ends when its standard input closes.
            let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
            noise.children.push(child.map_err(Failed::process(&format!("tahti demo noise --load {}", kind.word())))?);
        }
        Ok(noise)
    }

    /// A process that has ended, and its status.
    fn ended(&mut self) -> Option<Failed> {
        self.children.iter_mut().find_map(|child| match child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Some(Failed::Ended { command: "tahti demo noise --one".into(), status, output: String::new() })
            }
            _ => None,
        })
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The loopback's counter of sent bytes at a time.
pub(crate) struct Loopback(Option<u64>, MonoNs);

impl Loopback {
    pub(crate) fn read() -> Self {
        let text = RootDir::machine().read("/sys/class/net/lo/statistics/tx_bytes");
        Self(text.ok().and_then(|text| text.trim().parse().ok()), mono_now())
    }

    /// Mean rate since in Mbit/s, all processes' traffic; nothing if the kernel does not count it.
    pub(crate) fn mbit_since(&self) -> Option<f64> {
        let now = Self::read();
        let bytes = now.0?.saturating_sub(self.0?);
        Some(bytes as f64 * 8e3 / (now.1 - self.1).0.max(1) as f64)
    }
}

/// The command: runs until its time has passed or a signal arrives.
///
/// # Errors
/// One of the processes could not be started, or failed.
pub fn run(args: &Args) -> Result<(), Failed> {
    let end = args.for_.map_or(MonoNs(u64::MAX), |limit| mono_now() + limit);
    if args.one {
        std::thread::spawn(|| {
            // Ends with its parent.
            let _ = std::io::stdin().read(&mut [0u8; 1]);
            std::process::exit(0);
        });
        return one(args.load, end);
    }
    let signals = SignalFd::new(&end_signals())?;
    let mut noise = Noise::start(args.load, args.for_)?;
    println!("noise: {}", args.load.word());
    while mono_now() < end && signals.read()?.is_none() {
        sleep_until((mono_now() + DurNs::from_ms(100)).min(end));
        if let Some(why) = noise.ended() {
            return Err(why);
        }
    }
    Ok(())
}

fn one(load: Load, end: MonoNs) -> Result<(), Failed> {
    let command = format!("tahti demo noise --load {}", load.word());
    let failed = Failed::process(&command);
    match load {
        Load::Cpu => cpu(end),
        Load::Mem => memory(end),
        Load::Disk => disk(end).map_err(failed)?,
        Load::Net => network(end).map_err(failed)?,
        Load::None | Load::All => {}
    }
    Ok(())
}

fn cpu(end: MonoNs) {
    let mut value = 1u64;
    while mono_now() < end {
        for _ in 0..100_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Accesses memory with a stride that misses caches, and frees it from time to time.
fn memory(end: MonoNs) {
    while mono_now() < end {
        let mut room = vec![0u8; MEMORY_BYTES];
        for round in 0..8 {
            room.iter_mut().skip(round).step_by(4096 + 64).for_each(|byte| *byte = byte.wrapping_add(1));
            std::hint::black_box(&mut room);
        }
    }
}

fn disk(end: MonoNs) -> std::io::Result<()> {
    let mut file = nameless_file()?;
    let block = vec![0x5au8; BLOCK];
    while mono_now() < end {
        file.rewind()?;
        for _ in 0..FILE_BYTES / BLOCK {
            file.write_all(&block)?;
        }
        file.sync_data()?;
    }
    Ok(())
}

/// An unnamed file, removed on close.
fn nameless_file() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("tahti-noise-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn network(end: MonoNs) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    let (mut back, _) = listener.accept()?;
    std::thread::spawn(move || {
        let mut room = vec![0u8; BLOCK];
        while back.read(&mut room).is_ok_and(|got| got > 0) {}
    });
    let block = vec![0xa5u8; BLOCK];
    while mono_now() < end {
        out.write_all(&block)?;
    }
    Ok(())
}

//! `tahti bench guest-start`: overhead of serving a guest until its first line.

use crate::measure::{Interrupt, installed, own_program};
use crate::scratch::Scratch;
use crate::served::Served;
use crate::{Bench, BenchResult, Failed, Progress, read, sector};
use base::Size;
use base::text::Counted;
use clap::{ArgMatches, Args as _};
use guest::model::{PROGRAM, Places, arguments};
use guest::{Accel, Guest};
use report::{Figure, Good, Row, Table, Target};
use std::path::PathBuf;
use std::process::Command;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "guest-start",
    experiment: "own: start time of a virtual machine in a plant, compared with QEMU alone",
    arguments: Args::augment_args,
    run,
    target: "until the guest's first line, at most 100 ms more than QEMU with the same arguments",
    quick: &["--rounds", "8"],
    shields: false,
};

/// Time from the start of a guest to the first line on its console, compared with bare QEMU
///
/// Alternates between `tahti guest serve` and QEMU alone with the same arguments. `tahti guest serve` starts QEMU with a stopped guest, queries
/// its threads by QMP, places them and starts the guest. QEMU alone starts the guest at once, with its console on standard output. The guest is a
/// boot sector that prints a line, or the given kernel.
#[derive(clap::Args)]
struct Args {
    /// Number of starts of each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    /// Virtual CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    vcpus: u16,
    /// The guest's memory
    #[arg(long, default_value = "64MiB")]
    memory: Size,
    /// Linux kernel to start instead of the boot sector
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Initial RAM disk of the kernel
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// Command line of the kernel
    #[arg(
        long,
        value_name = "TEXT",
        requires = "kernel",
        default_value = "console=ttyS0 quiet",
        allow_hyphen_values = true
    )]
    append: String,
    /// Use KVM instead of emulation
    #[arg(long)]
    kvm: bool,
    /// QEMU program
    #[arg(long, value_name = "PROGRAM", default_value = PROGRAM)]
    program: String,
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let interrupt = Interrupt::watch()?;
    installed(PROGRAM, "--version", "qemu-system-x86")
        .or_else(|why| if args.program == PROGRAM { Err(why) } else { Ok(()) })?;
    let scratch = Scratch::new("guest-start")?;
    let guest = guest(&args, &scratch)?;
    let starts = Starts { guest, scratch, program: own_program()? };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..args.rounds as usize {
        progress.at(round, args.rounds as usize, "two starts");
        bare.push(starts.bare()?);
        ours.push(starts.ours()?);
        interrupt.check()?;
    }
    let what = match &starts.guest.kernel {
        Some(kernel) => kernel.display().to_string(),
        None => "a boot sector".to_owned(),
    };
    let by = if args.kvm { "KVM" } else { "emulated" };
    let title = format!(
        "{what}, {by}, {}, {}: from the start to the first line on its console",
        Counted(usize::from(args.vcpus), "virtual CPU"),
        args.memory
    );
    let over: Vec<f64> = ours.iter().zip(&bare).map(|(ours, bare)| ours - bare).collect();
    let mut table = Table::new(title).columns("tahti", "QEMU");
    for (name, part) in [("p90", 0.9), ("longest", 1.0)] {
        let row = Row::figure(name, "ms", at(&ours, part)).good(Good::Low).against(Figure::once(at(&bare, part)));
        table = table.row(row);
    }
    table.rows.insert(0, Row::samples("median", "ms", ours).good(Good::Low).against(Figure::median(bare)));
    Ok(table
        .row(
            Row::samples("overhead compared with the preceding start of QEMU", "ms", over)
                .target(Target::at_most(100.0)),
        )
        .into())
}

/// A quantile of the times.
fn at(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).ceil() as usize).copied().unwrap_or(f64::NAN)
}

fn guest(args: &Args, scratch: &Scratch) -> Result<Guest, Failed> {
    let mut guest = Guest {
        program: args.program.clone(),
        vcpus: args.vcpus,
        memory: args.memory,
        accel: if args.kvm { Accel::Kvm } else { Accel::Emulated },
        kernel: args.kernel.clone(),
        initrd: args.initrd.clone(),
        ..Guest::new("bench")
    };
    if guest.kernel.is_some() {
        guest.append = Some(args.append.clone());
    } else {
        let disk = scratch.0.join("guest.img");
        sector::write(&disk, "the guest is up", sector::IDLE)?;
        guest.disks.push(disk);
    }
    Ok(guest)
}

/// The guest of both methods.
struct Starts {
    guest: Guest,
    scratch: Scratch,
    program: PathBuf,
}

impl Starts {
    fn ours(&self) -> Result<f64, Failed> {
        let guest = &self.guest;
        let mut command = Command::new(&self.program);
        command.args(["guest", "serve", &guest.name, "--program", &guest.program]);
        command.args(["--accel", if guest.accel == Accel::Kvm { "kvm" } else { "emulated" }]);
        command.args(["--vcpus", &guest.vcpus.to_string(), "--memory", &guest.memory.to_string()]);
        // A kernel may ignore its power button.
        command.args(["--stop-within", "200ms"]);
        let files = [("--kernel", &guest.kernel), ("--initrd", &guest.initrd)];
        for (word, file) in files.into_iter().filter_map(|(word, file)| Some((word, file.as_ref()?))) {
            command.arg(word).arg(file);
        }
        for disk in &guest.disks {
            command.arg("--disk").arg(disk);
        }
        if let Some(text) = &guest.append {
            command.args(["--append", text]);
        }
        command.env("TAHTI_RUN", self.scratch.0.join("run"));
        Served::start(command, "tahti guest serve").map(|(_, took)| took)
    }

    fn bare(&self) -> Result<f64, Failed> {
        let folder = self.scratch.0.join("bare");
        std::fs::create_dir_all(&folder).map_err(Failed::file(&folder))?;
        let words = arguments(&self.guest, &Places::of(&folder), self.guest.accel == Accel::Kvm, None);
        // It starts at once, with this pipe as its console.
        let words =
            words.into_iter().filter(|word| word != "-S").map(|word| match word.starts_with("socket,id=console,") {
                true => "stdio,id=console,signal=off".to_owned(),
                false => word,
            });
        let mut command = Command::new(&self.guest.program);
        command.args(words);
        Served::start(command, &self.guest.program).map(|(_, took)| took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_times() {
        let times: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!((at(&times, 0.9), at(&times, 1.0)), (19.0, 20.0));
        assert!(at(&[], 0.5).is_nan());
    }
}

//! Commands for SNL programs: seq, seqShow, seqChanShow, seqQueueShow, seqcar, seqStop.

use super::commands::{Command, CommandResult, arg, command, needed, number, said};
use super::load::text_of;
use super::{Failed, IocState, Shell, values};
use crate::sequencer::Running;
use snl::{ChannelStatus, Machine, Program};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffixes of programs: with and without C's preprocessor, which is always used here.
const SUFFIXES: [&str; 2] = ["st", "stt"];
/// Maximum number of files that are searched for a program's name.
const FILES_MAX: usize = 1_000;

pub(super) const COMMANDS: &[Command] = &[
    command!("seq", "program [params]", "runs a program of the state notation language (.st, .stt)", |shell, args| {
        let name = needed(args, "seq program [\"NAME=VALUE,…\"]")?.to_owned();
        shell.run_program(&name, arg(args, 1))
    }),
    command!(
        "seqChanShow",
        "[program [[+|-]text]]",
        "channels of programs; + connected ones, - disconnected ones",
        |shell, args| {
            let wanted = arg(args, 1);
            let part = wanted.trim_start_matches(['+', '-']).to_owned();
            let connected = match wanted.chars().next() {
                Some('+') => Some(true),
                Some('-') => Some(false),
                _ => None,
            };
            let is_shown = |channel: &ChannelStatus| {
                connected.is_none_or(|connected| channel.connected == connected) && channel.name.contains(&part)
            };
            let text = shell.about_programs(arg(args, 0), |program, machine, out| {
                let _ = writeln!(out, "State Program: \"{}\"", program.thread);
                machine
                    .channels()
                    .iter()
                    .filter(|channel| is_shown(channel))
                    .for_each(|channel| describe(channel, out));
            })?;
            said(shell, &text)
        }
    ),
    command!("seqQueueShow", "[program]", "queues of programs", |shell, args| {
        let text = shell.about_programs(arg(args, 0), |program, machine, out| {
            let _ = writeln!(out, "State Program: \"{}\"", program.thread);
            for channel in machine.channels() {
                if let Some((used, len)) = channel.queue {
                    let _ = writeln!(out, "  {}: numElems={len}, used={used}", channel.variable);
                }
            }
        })?;
        said(shell, &text)
    }),
    command!("seqShow", "[program]", "programs and their state sets; of one program, in detail", |shell, args| {
        let name = arg(args, 0);
        let text = if name.is_empty() { shell.program_table() } else { shell.about_programs(name, detail)? };
        said(shell, &text)
    }),
    command!("seqStop", "program", "ends a program after its actions in progress", |shell, args| {
        let name = needed(args, "seqStop program")?.to_owned();
        shell.chosen(&name)?.into_iter().for_each(Running::stop);
        Ok(None)
    }),
    command!("seqcar", "[level]", "connections of all programs; 2: of each channel", |shell, args| {
        let level = number(args, 0);
        let (mut all, mut connected, mut list) = (0, 0, String::new());
        shell.programs.retain(Running::is_live);
        for program in &shell.programs {
            let _ = writeln!(list, "  Program \"{}\"", program.thread);
            for channel in program.with(Machine::channels).iter().filter(|channel| !channel.name.is_empty()) {
                all += 1;
                connected += usize::from(channel.connected);
                let how = if channel.connected { "connected" } else { "not connected" };
                let _ = writeln!(list, "    Variable \"{}\" {how} to PV \"{}\"", channel.variable, channel.name);
            }
        }
        let programs = shell.programs.len();
        let disconnected = all - connected;
        let text =
            format!("Total programs={programs}, channels={all}, connected={connected}, disconnected={disconnected}\n");
        said(shell, &(text + if level > 1 { &list } else { "" }))
    }),
];

impl Shell {
    /// Starts a program; before `iocInit`, when the IOC has started.
    fn run_program(&mut self, name: &str, params: &str) -> CommandResult {
        let (path, program) = self.read_program(name)?;
        if self.only_checks() {
            return Ok(None);
        }
        let mailbox = match &self.state {
            IocState::Running(mailbox, ..) => mailbox.clone(),
            IocState::Building(_) => {
                let quote = if params.contains('"') { '\'' } else { '"' };
                self.after_init.push(format!("seq \"{}\" {quote}{params}{quote}", path.display()));
                return Ok(None);
            }
            IocState::Gone => return Err("the IOC has ended".into()),
        };
        self.programs.retain(Running::is_live);
        let number = self.programs.last().map_or(1, |last| last.number + 1);
        let program = Running::start(number, Arc::new(program), params, mailbox)?;
        self.print(&format!("Spawning sequencer program \"{}\", number {number}: {}", program.thread, path.display()));
        self.programs.push(program);
        Ok(None)
    }

    fn program_folders(&self) -> Vec<PathBuf> {
        let folders =
            self.env.get("SNL_PATH").map_or("", String::as_str).split(':').filter(|folder| !folder.is_empty());
        std::iter::once(".").chain(folders).map(PathBuf::from).collect()
    }

    /// Finds, parses and checks a program: a file, or the name of a program in the current folder or those of `SNL_PATH`.
    fn read_program(&self, name: &str) -> Result<(PathBuf, Program), Failed> {
        let name = name.trim_start_matches('&');
        let folders = self.program_folders();
        let Some(path) = find_program(name, &folders) else {
            let names: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(Failed(format!(
                "seq: no program {name} in {}: found neither {name}.st nor {name}.stt nor a file with \"program {name}\"\n  \
                 try: seq \"PATH/FILE.st\", or epicsEnvSet SNL_PATH FOLDER:FOLDER",
                names.join(", ")
            )));
        };
        let text = text_of(&path).map_err(|error| Failed(format!("seq: {}: {error}", path.display())))?;
        let mut include = |from: &str, file: &str| {
            // C's build compiles in a folder below the source, so that "../FILE" is next to it.
            let names = [file, file.strip_prefix("../").unwrap_or(file)];
            let beside = Path::new(from).parent().map(Path::to_path_buf);
            let mut sought = beside.iter().chain(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
            let found = sought.find(|path| path.is_file())?;
            Some((found.display().to_string(), text_of(&found).ok()?))
        };
        let program = snl::parse(&text, &path.display().to_string(), &mut include)?;
        Ok((path, program))
    }

    /// The programs with a name or number; all without one.
    fn chosen(&mut self, name: &str) -> Result<Vec<&Running>, Failed> {
        self.programs.retain(Running::is_live);
        let is_chosen =
            |program: &&Running| name.is_empty() || program.thread == name || program.number.to_string() == name;
        let found: Vec<&Running> = self.programs.iter().filter(is_chosen).collect();
        if found.is_empty() && !name.is_empty() {
            return Err(Failed(format!(
                "no program \"{name}\" is running\n  try: seqShow, which lists names and numbers"
            )));
        }
        Ok(found)
    }

    fn about_programs(
        &mut self,
        name: &str,
        report: impl Fn(&Running, &Machine, &mut String),
    ) -> Result<String, Failed> {
        let mut out = String::new();
        for program in self.chosen(name)? {
            program.with(|machine| report(program, machine, &mut out));
        }
        Ok(out)
    }

    fn program_table(&mut self) -> String {
        let mut out = format!("{:<20}{:<20}{:<20}SS Name\n", "Program Name", "Number", "State");
        self.programs.retain(Running::is_live);
        for program in &self.programs {
            let _ = writeln!(out, "{:<20}{:<20}{:<20}-------", "------------", "---------", "-----------");
            let (mut name, mut number) = (program.thread.clone(), program.number.to_string());
            for set in program.with(Machine::sets) {
                let _ = writeln!(out, "{name:<20}{number:<20}{:<20}{}", set.state, set.name);
                (name, number) = (String::new(), String::new());
            }
        }
        out
    }
}

/// The file of a program.
fn find_program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let has_suffix = |path: &Path| path.extension().is_some_and(|suffix| SUFFIXES.iter().any(|known| suffix == *known));
    let files = match has_suffix(Path::new(name)) {
        true => vec![name.to_owned()],
        false => SUFFIXES.iter().map(|suffix| format!("{name}.{suffix}")).collect(),
    };
    let named = || folders.iter().flat_map(|folder| files.iter().map(move |file| folder.join(file)));
    if let Some(found) = named().find(|path| path.is_file()) {
        return Some(found);
    }
    let all = folders.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = all.filter(|path| has_suffix(path)).take(FILES_MAX).collect();
    all.sort();
    all.into_iter().find(|path| {
        let text = text_of(path).unwrap_or_default();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.any(|word| word == "program") && words.next() == Some(name)
    })
}

fn detail(program: &Running, machine: &Machine, out: &mut String) {
    let now = sys::clock::mono_now();
    let (assigned, connected, monitored, first) = machine.counts();
    let sets = machine.sets();
    let _ = writeln!(
        out,
        "State Program: \"{}\"\n  stage = {:?}\n  number of state sets = {}\n  number of channels = {}\n  \
         number of channels assigned = {assigned}\n  number of channels connected = {connected}\n  \
         number of channels monitored = {monitored}, with a first value = {first}\n  \
         monitors replaced by newer ones = {}\n  options: +{}",
        program.thread,
        machine.stage(),
        sets.len(),
        machine.channels().len(),
        program.replaced(),
        machine.options()
    );
    for set in sets {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        let _ = writeln!(
            out,
            "\n  State Set: \"{}\"\n    First state = \"{}\"\n    Current state = \"{}\"\n    Previous state = \"{}\"\n    \
             Elapsed time since state was entered = {:.1} seconds\n    Get in progress = {}, put in progress = {}{}",
            set.name,
            set.first,
            set.state,
            set.previous,
            seconds(set.entered.0, now.0),
            set.pending.0,
            set.pending.1,
            if set.waits { "\n    It waits for a read, a write or a pause within its code" } else { "" }
        );
        if let Some(wake) = set.wake {
            let _ = writeln!(out, "    Next delay ends in {:.1} seconds", seconds(now.0, wake.0));
        }
    }
}

fn describe(channel: &ChannelStatus, out: &mut String) {
    let how = match (channel.name.is_empty(), channel.connected) {
        (true, _) => "not assigned".to_owned(),
        (false, true) => format!("assigned to \"{}\", connected, {} elements", channel.name, channel.count.1),
        (false, false) => format!("assigned to \"{}\", not connected", channel.name),
    };
    let monitored = if channel.monitored { ", monitored" } else { "" };
    let flag = if channel.flag.is_empty() { String::new() } else { format!(", sync'ed to {}", channel.flag) };
    let _ = writeln!(
        out,
        "  {}[{}]: {how}{monitored}{flag}; status={} severity={} value={}",
        channel.variable,
        channel.count.0,
        channel.alarm.0,
        channel.alarm.1,
        values::printed(&channel.value)
    );
}

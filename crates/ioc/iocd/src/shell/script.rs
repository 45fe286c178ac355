//! Script execution: macros, echo, and reaction to failures.

use super::commands::CommandResult;
use super::{End, Failed, Shell, commands, look, modules, words};
use db::Macros;
use std::fs;

/// Maximum nesting depth of scripts.
const DEPTH_MAX: u32 = 20;

/// Action of a script after a failed command (`on error`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnError {
    Continue,
    Break,
    Halt,
    Wait(u64),
}

/// Commands of C's IOC whose failures are printed but do not trigger `on error`. It contains no commands of modules or of
/// tahti.
const FORGIVEN: &[&str] = &[
    "asSetFilename",
    "asSetSubstitutions",
    "ascar",
    "asdbdump",
    "asphag",
    "aspmem",
    "asprules",
    "aspuag",
    "astac",
    "callbackQueueShow",
    "casr",
    "date",
    "dbDump*",
    "dbState*",
    "dba",
    "dbap",
    "dbb",
    "dbc",
    "dbcar",
    "dbd",
    "dbgf",
    "dbgrep",
    "dbhcr",
    "dbior",
    "dbjlr",
    "dbl",
    "dbla",
    "dbli",
    "dblsr",
    "dbnr",
    "dbp",
    "dbpf",
    "dbpr",
    "dbpvar",
    "dbs",
    "dbsr",
    "dbstat",
    "dbtgf",
    "dbtpf",
    "dbtpn",
    "dbtr",
    "echo",
    "epicsEnv*",
    "epicsP*",
    "epicsThread*",
    "errlog*",
    "generalTimeReport",
    "gft",
    "help",
    "on",
    "pft",
    "postEvent",
    "pwd",
    "registryFunctionFind",
    "scan*",
    "tpn",
];

impl Shell {
    /// Runs a script file.
    ///
    /// # Errors
    /// If the file cannot be read, or if a command fails and `on error` stops the script.
    pub fn run_file(&mut self, path: &str) -> Result<End, Failed> {
        let text = self.read_file(path)?;
        if self.depth >= DEPTH_MAX {
            return Err(Failed(format!("{path}: scripts call each other more than {DEPTH_MAX} deep")));
        }
        if self.depth == 0 {
            self.env.insert("IOCSH_STARTUP_SCRIPT".into(), path.to_owned());
        }
        self.depth += 1;
        let outer = std::mem::replace(&mut self.on_error, OnError::Continue);
        let result = self.run_lines(path, &text);
        self.on_error = outer;
        self.depth -= 1;
        result
    }

    fn run_lines(&mut self, path: &str, text: &str) -> Result<End, Failed> {
        for (number, line) in text.lines().enumerate() {
            match self.run_aloud(line) {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                Err(failed) if self.fatal => return Err(failed),
                Err(Failed(error)) => {
                    self.note_failure(format!("{path} line {}", number + 1), error);
                    match self.on_error {
                        OnError::Continue => {}
                        _ if self.forgiven => {}
                        OnError::Break => {
                            return Err(Failed(format!("{path}: stopped at line {}", number + 1)));
                        }
                        OnError::Halt => loop {
                            std::thread::park();
                        },
                        OnError::Wait(seconds) => std::thread::sleep(std::time::Duration::from_secs(seconds)),
                    }
                }
            }
        }
        Ok(End::Input)
    }

    /// Runs a line of a script and echoes it as in C: comments unchanged, other lines after macro expansion.
    fn run_aloud(&mut self, line: &str) -> CommandResult {
        let quiet = |line: &str| line.trim_start().starts_with("#-");
        if line.trim_start().starts_with('#') {
            if !quiet(line) && !self.checking {
                self.print(line);
            }
            return Ok(None);
        }
        let line = self.expanded(line)?;
        if !line.is_empty() && !quiet(&line) && !self.checking {
            self.print(&line);
        }
        self.run_expanded(&line)
    }

    /// Runs one line.
    pub(super) fn run_line(&mut self, line: &str) -> CommandResult {
        if line.trim_start().starts_with('#') {
            return Ok(None);
        }
        let line = self.expanded(line)?;
        self.run_expanded(&line)
    }

    /// A line after macro expansion.
    fn expanded(&mut self, line: &str) -> Result<String, Failed> {
        self.forgiven = false;
        let mut macros = Macros::default();
        self.env.iter().for_each(|(name, value)| macros.set(name, value));
        let (expanded, missing) = macros.expand(line);
        match missing.first() {
            Some(name) => Err(Failed(format!("macro \"{name}\" is not defined (in: {})", line.trim()))),
            None => Ok(expanded.into_owned()),
        }
    }

    fn run_expanded(&mut self, line: &str) -> CommandResult {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let taken = words::split(line)?;
        if let Some(file) = &taken.input {
            let end = self.run_file(file);
            self.forgiven = false;
            return end.map(|end| (end == End::Exit).then_some(End::Exit));
        }
        let Some(name) = taken.words.first().cloned() else { return Ok(None) };
        if name == "exit" {
            return Ok(Some(End::Exit));
        }
        let wanted = modules::resolved(&name);
        let Some(command) = commands::all().find(|command| command.name == wanted) else {
            let Some(why) = look::absent(&name) else {
                let why = modules::absent(&name).map_or_else(String::new, |why| format!(" {why}."));
                return Err(Failed(format!("Command {name} not found.{why}")));
            };
            // As in C, so that a script for both IOCs continues.
            self.forgiven = true;
            return Err(Failed(format!("{name} of C's IOC is not available: {why}")));
        };
        if !self.runs(command.name) {
            return Ok(None);
        }
        if let Some((path, append)) = &taken.output {
            let file = fs::OpenOptions::new().create(true).write(true).append(*append).truncate(!append).open(path);
            self.output = Some(file.map_err(|error| Failed(format!("{path}: {error}")))?);
        }
        let result = (command.run)(self, &taken.words[1..]);
        self.output = None;
        self.forgiven = match command.name {
            // Depends on the command that they run.
            "iocshCmd" | "iocshRun" => self.forgiven,
            name => FORGIVEN.iter().any(|pattern| base::glob(pattern, name)),
        };
        result
    }
}

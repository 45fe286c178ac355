//! The command interpreter: the commonly used part of EPICS' `iocsh`.
//!
//! It runs on the thread that reads the commands. Before `iocInit` it holds the database. Afterwards it sends requests to the
//! engine thread.

#[cfg(test)]
mod asyn_tests;
mod autosave;
mod breaks;
mod check;
mod clients;
mod commands;
mod dbr;
mod devices;
mod dump;
mod exit;
#[cfg(test)]
mod faults_tests;
mod load;
mod look;
mod modules;
mod octets;
mod putlog;
mod pvaccess;
mod recsync;
#[cfg(test)]
mod recsync_tests;
mod report;
mod script;
mod security;
mod sequencer;
pub mod site;
mod terminal;
mod trial;
mod utilities;
mod values;
mod variables;
mod words;

use crate::devices::Devices;
use crate::engine::{self, Engine, Mailbox};
use crate::faults::Faults;
use crate::groups::{self, GroupSpec, Home, Threads};
use crate::job::OwnerRequest;
use crate::links::Links;
use crate::plugins;
use crate::publish::Publisher;
use crate::putlog::Metadata;
use crate::stamps;
use canet::config::ServerConfig;
use db::{Db, Function, Now};
use script::OnError;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use terminal::{Entered, Terminal};

/// Lines of history, unless `IOCSH_HISTSIZE` is set.
const HISTORY_LINES: usize = 50;

/// Location of the database.
enum IocState {
    Building(Box<Db>),
    Running(Mailbox, JoinHandle<io::Result<()>>, Option<Threads>),
    /// The engine could not be started, or has ended.
    Gone,
}

/// Status records that a thread must update.
enum StatusRecords {
    /// Health records, with their prefix.
    Health(String),
    /// Records of a scan: their prefix and the choice of menuScan.
    Scan(String, String),
}

/// Error message of a command, printed for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl<T: ToString> From<T> for Failed {
    fn from(error: T) -> Self {
        Self(error.to_string())
    }
}

/// Reason why reading commands ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// End of input.
    Input,
    /// The command `exit`.
    Exit,
}

/// The interpreter, with its variables and its IOC.
pub struct Shell {
    state: IocState,
    /// Whether the database is served over Channel Access.
    serves: bool,
    /// Whether a database that is served is also served over PVAccess.
    pvaccess: bool,
    env: BTreeMap<String, String>,
    vars: BTreeMap<String, f64>,
    on_error: OnError,
    /// Whether scripts continue after the current failure, as in C, whatever `on error` specifies.
    forgiven: bool,
    depth: u32,
    /// Access security file and its macros.
    acf: Option<String>,
    acf_macros: String,
    saves: autosave::State,
    /// Status records whose thread is not started yet, and the threads.
    wanted: Vec<StatusRecords>,
    publishers: Vec<Publisher>,
    devices: Devices,
    groups: Vec<GroupSpec>,
    home: Option<Home>,
    require_rt: bool,
    /// A required feature was not obtained, so nothing continues.
    fatal: bool,
    /// The IOC, for objects created before it that use it later; empty until it runs.
    ioc: Arc<OnceLock<Mailbox>>,
    /// Output file of the current command, if it is redirected.
    output: Option<fs::File>,
    /// Names and values added to each line of the JSON put log.
    put_metadata: Metadata,
    /// Number of the lock set with breakpoints that was continued last.
    last_stop: Option<u32>,
    /// Whether scripts are only checked.
    checking: bool,
    /// Commands to run after the start.
    after_init: Vec<String>,
    /// Names of asynOctetConnect.
    octets: BTreeMap<String, octets::OctetEntry>,
    /// Files with groups of PVAccess.
    group_files: Vec<pvaccess::GroupFile>,
    /// Programs that were started.
    programs: Vec<crate::sequencer::Running>,
    /// The client of RecCeiver.
    caster: recsync::Setup,
    /// Number of failed commands of scripts.
    failures: u64,
    /// The first failed command with its place, and the error.
    first_failure: Option<(String, String)>,
    /// The argument of `iocLogPrefix`; empty: none.
    log_prefix: String,
    faults: Faults,
}

impl Shell {
    /// Creates an interpreter with an empty database. `serves` selects whether the database is served over Channel Access
    /// once it is started, as configured by EPICS' variables. `env` is the initial environment.
    #[must_use]
    pub fn new(serves: bool, env: impl IntoIterator<Item = (String, String)>) -> Self {
        let (mut db, devices) = (Db::new(), Devices::default());
        devices.register(&mut db);
        let ioc = Arc::default();
        devices.ports.set_ioc(Arc::clone(&ioc));
        Self {
            state: IocState::Building(Box::new(db)),
            devices,
            serves,
            pvaccess: true,
            env: env.into_iter().collect(),
            vars: variables::at_start(),
            on_error: OnError::Continue,
            forgiven: false,
            depth: 0,
            acf: None,
            acf_macros: String::new(),
            saves: autosave::State::default(),
            wanted: Vec::new(),
            publishers: Vec::new(),
            groups: Vec::new(),
            home: None,
            require_rt: false,
            fatal: false,
            ioc,
            output: None,
            put_metadata: Metadata::default(),
            last_stop: None,
            checking: false,
            after_init: Vec::new(),
            octets: BTreeMap::new(),
            group_files: Vec::new(),
            programs: Vec::new(),
            caster: recsync::Setup::default(),
            failures: 0,
            first_failure: None,
            log_prefix: String::new(),
            faults: Faults::default(),
        }
    }

    /// Runs scans on separate threads. Threads on CPUs of `home` become its members. With `require_rt`, missing real-time
    /// features are a fatal error.
    pub fn scan_on(&mut self, groups: Vec<GroupSpec>, home: Option<Home>, require_rt: bool) {
        self.groups = groups;
        self.home = home;
        self.require_rt = require_rt;
    }

    /// Serves the database over Channel Access only.
    pub const fn without_pvaccess(&mut self) {
        self.pvaccess = false;
    }

    /// Whether the IOC is running.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, IocState::Running(..))
    }

    /// Registers a function for `sub` or `aSub` records.
    ///
    /// # Errors
    /// If the IOC has ended.
    pub fn register_function(&mut self, name: &str, function: Function) -> Result<(), Failed> {
        let name = name.to_owned();
        self.with_each(move |db, _| db.register_function(&name, function.clone())).map(drop)
    }

    /// Loads a plug-in with functions for `sub` and `aSub` records. It is never unloaded.
    ///
    /// # Errors
    /// If the plug-in cannot be loaded, or is not of this version.
    pub fn load_plugin(&mut self, path: &str, place: plugins::Place) -> Result<(), Failed> {
        // With a path without a folder, the loader would search the system's folders.
        let found = fs::canonicalize(path).map_err(|error| Failed(format!("{path}: {error}")))?;
        for (name, function) in plugins::load(&found, place, self.ioc.clone(), &self.faults)? {
            self.register_function(&name, function)?;
        }
        Ok(())
    }

    /// Sets the access security file and its macros. [`init`](Self::init) reads it.
    pub fn secure(&mut self, file: &str, macros: &str) {
        self.acf = Some(file.to_owned());
        macros.clone_into(&mut self.acf_macros);
    }

    /// Starts the IOC.
    ///
    /// # Errors
    /// If the IOC is already running, cannot listen, or has a malformed access security file. In the last case no client is
    /// admitted.
    pub fn init(&mut self) -> Result<(), Failed> {
        match self.state {
            IocState::Building(_) => {}
            IocState::Running(..) => {
                return Err("iocInit: IOC can only be initialized from uninitialized or stopped state".into());
            }
            IocState::Gone => return Err("iocInit: the IOC has ended".into()),
        }
        let rules = self.read_rules()?;
        let by_address = self.checks_addresses();
        // A partially started database cannot be used.
        let IocState::Building(mut db) = std::mem::replace(&mut self.state, IocState::Gone) else { return Ok(()) };
        eprintln!("Starting iocInit");
        eprintln!("############################################################################");
        eprintln!("## tahti {}", env!("CARGO_PKG_VERSION"));
        eprintln!("############################################################################");
        self.env
            .entry("EPICS_VERSION_FULL".into())
            .or_insert_with(|| concat!("tahti ", env!("CARGO_PKG_VERSION")).into());
        for (name, value) in &self.env {
            db.set_environment(name, value);
        }
        self.devices.ports.set_environment(|name| self.env.get(name).cloned());
        let ending = self.ending();
        db.register_function("exit", exit::function(ending.clone()));
        let signals = exit::Signals::hold()?;
        db.set_local_text(sys::clock::local_text);
        if self.vars.get("stampEachRecord").is_some_and(|on| *on != 0.0) {
            db.stamp_each_record(Some(stamps::clock()));
        }
        self.restore(&mut db);
        let definitions = self.definitions(&db);
        let shards = groups::divide(&mut db, &mut self.groups).map_err(|error| Failed(format!("--scan: {error}")))?;
        db.init(engine::now());
        let config = self.serves.then(|| ServerConfig::from_env(|name| self.env.get(name).cloned()));
        let (config, complaints) = config.unzip();
        complaints.into_iter().flatten().for_each(|complaint| eprintln!("{}", complaint.0));
        let (mut engine, mailbox) = Engine::new(*db, config)?;
        engine.faults = self.faults.clone();
        engine.net.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
        let other_pvaccess_port = self.serve_pvaccess(&mut engine)?;
        let links = Links::new(mailbox.clone(), self.env.clone());
        let reports = links.reports();
        engine.follow_links(links);
        let other_port = engine.net.port_taken.then_some(engine.net.tcp_port);
        let ports = recsync::TcpPorts {
            channel_access: engine.net.tcp_port,
            pvaccess: engine.pvaccess.as_ref().map(|pvaccess| pvaccess.net.tcp_port),
        };
        let mut threads = None;
        if !shards.is_empty() {
            // Armed first, so that the network thread inherits CPUs other than those of the scans, and a heap that keeps its
            // memory.
            let mut armed = Threads::arm(&mut engine, shards, &self.groups, self.home.as_ref(), &self.devices)?;
            armed.missing.iter().for_each(|missing| eprintln!("{missing}"));
            if self.require_rt && !armed.missing.is_empty() {
                engine.stop();
                self.fatal = true;
                return Err("--require-rt: not all that the scan groups ask for was obtained".into());
            }
            armed.start();
            threads = Some(armed);
        }
        if engine.pvaccess.is_some() {
            let wrong = engine.define_groups(definitions);
            wrong.iter().for_each(|fault| eprintln!("{fault}"));
            self.lack("groups of PVAccess", &wrong);
        }
        engine.use_devices(&self.devices);
        if let Some(rules) = rules {
            engine.secure(rules, by_address);
        }
        let thread = std::thread::Builder::new().name("ioc-engine".into()).spawn(move || engine.run())?;
        // This was empty, because an IOC is started once.
        let _ = self.ioc.set(mailbox.clone());
        self.devices.start(reports)?;
        signals.end(ending)?;
        self.state = IocState::Running(mailbox, thread, threads);
        if let Some(port) = other_port {
            eprintln!("The TCP port is in use by another server; circuits are taken on port {port} instead.");
        }
        if let Some(port) = other_pvaccess_port {
            eprintln!(
                "The TCP port of PVAccess is in use by another server; connections are taken on port {port} instead."
            );
        }
        self.start_saver()?;
        self.publish()?;
        if self.serves {
            self.start_caster(ports)?;
        }
        eprintln!("iocRun: All initialization complete");
        let wrong = self.print_notices()?;
        self.lack("records", &wrong);
        self.run_after_init()
    }

    /// Runs the commands that were given to `afterInit`.
    fn run_after_init(&mut self) -> Result<(), Failed> {
        for line in std::mem::take(&mut self.after_init) {
            match self.run_line(&line) {
                Ok(_) => {}
                Err(failed) if self.fatal => return Err(failed),
                Err(Failed(error)) => self.note_failure(format!("afterInit {line}"), error),
            }
        }
        Ok(())
    }

    /// Prints and counts a failed command of a script.
    fn note_failure(&mut self, place: String, error: String) {
        complain(&format!("{place}: {error}"));
        self.failures += 1;
        self.first_failure.get_or_insert((place, error));
    }

    /// Reports to the supervisor that `what` was loaded with errors, and works only in part.
    fn lack(&self, what: &str, errors: &[String]) {
        let text = match errors {
            [] => return,
            [error] => format!("an error in {what} at {error}"),
            [first, ..] => format!("{} errors in {what}, the first at {first}", errors.len()),
        };
        self.faults.lack(what, text);
    }

    /// Whether a command of a script failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.failures > 0
    }

    /// Reports failed commands of scripts to the supervisor. An IOC continues after a failed command, as in C, so
    /// its plant must report it.
    pub fn report_failures(&self) {
        let Some((place, error)) = &self.first_failure else { return };
        let text = match self.failures {
            1 => format!("a script command failed at {place}: {error}"),
            count => format!("{count} script commands failed, the first at {place}: {error}"),
        };
        self.faults.lack("scripts", text);
    }

    /// Opens the sockets of PVAccess, unless it is disabled. Returns the TCP port if the configured one is in use.
    fn serve_pvaccess(&self, engine: &mut Engine) -> Result<Option<u16>, Failed> {
        let get = |name: &str| self.env.get(name).cloned();
        if !self.serves || !self.pvaccess || pvanet::config::is_disabled(get) {
            return Ok(None);
        }
        let (config, limits, complaints) = pvanet::config::server(get);
        engine.serve_pvaccess(config, limits).map_err(|error| {
            Failed(format!(
                "PVAccess: {error}\n  try: set EPICS_PVAS_BROADCAST_PORT, or --no-pvaccess to serve without it"
            ))
        })?;
        let Some(pvaccess) = &engine.pvaccess else { return Ok(None) };
        complaints.iter().chain(&pvaccess.net.complaints).for_each(|complaint| eprintln!("{}", complaint.0));
        Ok(pvaccess.net.port_taken.then_some(pvaccess.net.tcp_port))
    }

    /// Reads commands from standard input until its end. A terminal has line editing, history (`IOCSH_HISTSIZE` lines) and
    /// completion, unless `IOCSH_HISTEDIT_DISABLE` is set.
    ///
    /// # Errors
    /// If a required real-time feature was not obtained.
    pub fn run_stdin(&mut self) -> Result<End, Failed> {
        let prompt = self.env.get("IOCSH_PS1").cloned().unwrap_or_else(|| "epics> ".into());
        let mut terminal = self.terminal();
        loop {
            let line = match &mut terminal {
                Some(terminal) => match terminal.read(&prompt) {
                    Entered::Line(line) => line,
                    Entered::Nothing => continue,
                    Entered::End => return Ok(End::Input),
                },
                None => match piped(&prompt) {
                    Some(line) => line,
                    None => return Ok(End::Input),
                },
            };
            match self.run_line(line.trim_end_matches(['\n', '\r'])) {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                Err(failed) if self.fatal => return Err(failed),
                Err(Failed(error)) => complain(&error),
            }
        }
    }

    /// The terminal, if standard input is one and line editing is enabled.
    fn terminal(&self) -> Option<Terminal> {
        let both = io::stdin().is_terminal() && io::stdout().is_terminal();
        if !both || self.env.contains_key("IOCSH_HISTEDIT_DISABLE") {
            return None;
        }
        let lines = self.env.get("IOCSH_HISTSIZE").and_then(|lines| lines.parse().ok()).unwrap_or(HISTORY_LINES);
        Terminal::open(lines, self.ioc.clone()).inspect_err(|error| eprintln!("no editing of lines: {error}")).ok()
    }

    /// Ends the IOC and waits for its thread.
    ///
    /// # Errors
    /// The error that ended the engine earlier.
    pub fn shut_down(&mut self) -> Result<(), Failed> {
        if let Some(saver) = self.saves.running.get() {
            saver.stop();
        }
        self.publishers.drain(..).for_each(Publisher::stop);
        self.programs.drain(..).for_each(|program| program.stop());
        self.caster.running.take().into_iter().for_each(crate::recsync::Running::stop);
        self.devices.stop();
        if let IocState::Running(mailbox, thread, threads) = std::mem::replace(&mut self.state, IocState::Gone) {
            let _ = mailbox.ask(Engine::stop);
            let ended = thread.join();
            if let Some(threads) = threads {
                threads.join();
            }
            ended.map_err(|_| Failed("the engine thread panicked".into()))??;
        }
        Ok(())
    }

    /// Data to be written before the IOC ends.
    fn ending(&self) -> exit::Ending {
        exit::Ending { ioc: self.ioc.clone(), saver: self.saves.running.clone() }
    }

    /// Runs `work` with the database, before or after the start.
    fn with_db<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Db, Now) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        match &mut self.state {
            IocState::Building(db) => Ok(work(db, engine::now())),
            IocState::Running(mailbox, ..) => mailbox
                .ask(move |engine| {
                    let now = engine.store.now;
                    let result = work(&mut engine.store.db, now);
                    engine.plan_scans();
                    result
                })
                .ok_or_else(|| Failed("the IOC has ended".into())),
            IocState::Gone => Err("the IOC has ended".into()),
        }
    }

    /// Runs `work` with the database that owns a record, on its owner's thread, and waits for the result.
    fn with_record<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Db, Now) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let IocState::Running(mailbox, ..) = &self.state else { return self.with_db(work) };
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        let mut work = Some(work);
        let name = name.to_owned();
        let asked = mailbox.ask(move |engine| {
            let work = Box::new(move |db: &mut Db, now: Now| {
                if let Some(work) = work.take() {
                    // If the caller has gone, the answer is not needed.
                    let _ = reply.try_send(work(db, now));
                }
            });
            engine.call(&name, work);
        });
        asked.and_then(|()| answer.recv().ok()).ok_or_else(|| Failed("the IOC has ended".into()))
    }

    /// Runs `work` with every shard of the database, the housekeeping shard first.
    fn with_each<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Db, Now) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Failed> {
        let mut all = vec![self.with_db(work.clone())?];
        let IocState::Running(mailbox, ..) = &self.state else { return Ok(all) };
        let live = mailbox.ask(|engine| engine.store.live().map(|(number, _)| number).collect::<Vec<_>>());
        for number in live.unwrap_or_default() {
            let (reply, answer) = std::sync::mpsc::sync_channel(1);
            let work = work.clone();
            let asked = mailbox.ask(move |engine| {
                let work = Box::new(move |db: &mut Db, now| drop(reply.try_send(work(db, now))));
                engine.ask(Some(number), OwnerRequest::Call(work));
            });
            all.extend(asked.and_then(|()| answer.recv().ok()));
        }
        Ok(all)
    }

    /// Runs `work` with the running engine.
    fn with_engine<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        match &self.state {
            IocState::Running(mailbox, ..) => mailbox.ask(work).ok_or_else(|| Failed("the IOC has ended".into())),
            _ => Err("the IOC is not running yet: call iocInit first".into()),
        }
    }

    /// Prints the notices of the database and returns them.
    fn print_notices(&mut self) -> Result<Vec<String>, Failed> {
        let mut all = Vec::new();
        for (notices, output) in self.with_each(|db, _| (db.take_notices(), db.take_output()))? {
            notices.iter().for_each(|notice| complain(&notice.0));
            all.extend(notices.into_iter().map(|notice| notice.0));
            for (_, text) in output {
                // Output errors are ignored: the reader may have closed the pipe.
                let _ = tell_raw(&text);
            }
        }
        Ok(all)
    }

    /// Prints a command's output, to a file if it is redirected.
    fn print(&mut self, text: &str) {
        let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
        let written = match &mut self.output {
            Some(file) => file.write_all(&base::raw::encode(&text)),
            None => tell_raw(&text),
        };
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            eprintln!("output: {error}");
        }
    }
}

/// Prints a message, which may quote any file, to standard error: control characters as `\x1b`, bytes that are not valid
/// UTF-8 as Latin-1.
pub fn complain(text: &str) {
    let latin = |letter: char| match base::raw::encode(letter.encode_utf8(&mut [0; 4]))[..] {
        [byte] => char::from(byte),
        _ => letter,
    };
    let text: String = text.chars().map(latin).collect();
    eprintln!("{}", base::Visible { text: &text, colours: false });
}

/// Prints a text. Bytes that are not valid UTF-8 are written unchanged to files and pipes, and as Latin-1 to a terminal.
fn tell_raw(text: &str) -> io::Result<()> {
    match base::raw::encode(text) {
        std::borrow::Cow::Borrowed(_) => sys::out::tell(format_args!("{text}")),
        raw if sys::out::is_terminal() => sys::out::tell(format_args!("{}", base::raw::readable(&raw))),
        raw => {
            let mut out = io::stdout().lock();
            out.write_all(&raw)?;
            out.flush()
        }
    }
}

/// Prints a prompt and reads a line of standard input.
fn piped(prompt: &str) -> Option<String> {
    print!("{prompt}");
    let mut line = Vec::new();
    match io::stdin().lock().read_until(b'\n', &mut line) {
        Ok(0) => None,
        Ok(_) => Some(base::raw::decode(&line).into_owned()),
        Err(error) => {
            eprintln!("standard input: {error}");
            None
        }
    }
}

//! The command interpreter: EPICS' `iocsh` as far as users type it.
//!
//! It runs on the thread that reads the commands. Before `iocInit` it holds the database, afterwards it asks
//! the engine thread.

mod autosave;
mod breaks;
mod check;
mod clients;
mod commands;
mod dbr;
mod devices;
mod dump;
mod exit;
mod load;
mod look;
mod modules;
mod putlog;
mod report;
mod script;
mod security;
pub mod site;
mod terminal;
mod trial;
mod values;
mod variables;
mod words;

use crate::devices::Devices;
use crate::engine::{self, Engine, Mailbox};
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

/// Lines of history, where `IOCSH_HISTSIZE` says nothing.
const HISTORY_LINES: usize = 50;

/// Where the database is.
enum IocState {
    Building(Box<Db>),
    Running(Mailbox, JoinHandle<io::Result<()>>, Option<Threads>),
    /// The engine could not be started, or has ended.
    Gone,
}

/// Records that a thread is to look after.
enum Wanted {
    /// Health, by the beginning of their names.
    Health(String),
    /// A scan: the beginning of their names, the choice of menuScan.
    Scan(String, String),
}

/// Why a command failed; printed for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl<T: ToString> From<T> for Failed {
    fn from(error: T) -> Self {
        Self(error.to_string())
    }
}

/// What reading commands came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There are no more.
    Input,
    /// `exit` was given.
    Exit,
}

/// The interpreter with its variables and its IOC.
pub struct Shell {
    state: IocState,
    /// Whether the database is served over Channel Access.
    serves: bool,
    env: BTreeMap<String, String>,
    vars: BTreeMap<String, f64>,
    on_error: OnError,
    /// The failure just met is one after which C's scripts go on, whatever `on error` says.
    forgiven: bool,
    depth: u32,
    /// Access security file and its macros.
    acf: Option<String>,
    acf_macros: String,
    saves: autosave::State,
    /// Records that show what the IOC knows of itself: those without a thread yet, and the threads.
    wanted: Vec<Wanted>,
    publishers: Vec<Publisher>,
    devices: Devices,
    groups: Vec<GroupSpec>,
    home: Option<Home>,
    require_rt: bool,
    /// What was required was not obtained: nothing goes on.
    fatal: bool,
    /// The IOC, for what is made before it and asks it later; empty until it runs.
    ioc: Arc<OnceLock<Mailbox>>,
    /// Output of the running command, when it goes to a file.
    output: Option<fs::File>,
    /// What stands in each line of the put log's JSON form.
    put_metadata: Metadata,
    /// The lock set with breakpoints that went on last.
    last_stop: Option<u32>,
    /// Whether scripts are checked alone.
    checking: bool,
    /// Commands that failed so far.
    pub failures: u64,
}

impl Shell {
    /// An interpreter with an empty database, which it may serve over Channel Access as EPICS' variables say when it is
    /// started; `env` is the environment until commands change it.
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
            failures: 0,
        }
    }

    /// Runs scans on threads of their own, those on CPUs of `home` as its members; with `require_rt`, not getting what
    /// was asked for is fatal.
    pub fn scan_on(&mut self, groups: Vec<GroupSpec>, home: Option<Home>, require_rt: bool) {
        self.groups = groups;
        self.home = home;
        self.require_rt = require_rt;
    }

    /// Whether the IOC runs.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, IocState::Running(..))
    }

    /// Makes a function known to `sub` and `aSub` records by its name.
    ///
    /// # Errors
    /// When the IOC has ended.
    pub fn register_function(&mut self, name: &str, function: Function) -> Result<(), Failed> {
        let name = name.to_owned();
        self.with_each(move |db, _| db.register_function(&name, function.clone())).map(drop)
    }

    /// Loads a plug-in with functions of `sub` and `aSub` records, for good.
    ///
    /// # Errors
    /// When it cannot be loaded, or is no plug-in of this version.
    pub fn load_plugin(&mut self, path: &str) -> Result<(), Failed> {
        // Without a folder the loader would look into the system's.
        let found = fs::canonicalize(path).map_err(|error| Failed(format!("{path}: {error}")))?;
        for (name, function) in plugins::load(&found, self.ioc.clone())? {
            self.register_function(&name, function)?;
        }
        Ok(())
    }

    /// Names the file of access security, read by [`init`](Self::init), with its macros.
    pub fn secure(&mut self, file: &str, macros: &str) {
        self.acf = Some(file.to_owned());
        macros.clone_into(&mut self.acf_macros);
    }

    /// Starts the IOC.
    ///
    /// # Errors
    /// When it runs already, cannot listen, or its access security file is malformed: then nobody is let in.
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
        // Nothing of a database that is half started can be used.
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
        let shards = groups::divide(&mut db, &mut self.groups).map_err(|error| Failed(format!("--scan: {error}")))?;
        db.init(engine::now());
        let config = self.serves.then(|| ServerConfig::from_env(|name| self.env.get(name).cloned()));
        let (config, complaints) = config.unzip();
        complaints.into_iter().flatten().for_each(|complaint| eprintln!("{}", complaint.0));
        let (mut engine, mailbox) = Engine::new(*db, config)?;
        engine.net.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
        engine.follow_links(Links::new(mailbox.clone(), self.env.clone()));
        let other_port = engine.net.port_taken.then_some(engine.net.tcp_port);
        let mut threads = None;
        if !shards.is_empty() {
            // Armed first: the network's thread then inherits CPUs that are not the scans', and a heap that is kept.
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
        engine.use_devices(&self.devices);
        if let Some(rules) = rules {
            engine.secure(rules, by_address);
        }
        let thread = std::thread::Builder::new().name("ioc-engine".into()).spawn(move || engine.run())?;
        // It was empty: one IOC is started once.
        let _ = self.ioc.set(mailbox.clone());
        self.devices.start()?;
        signals.end(ending)?;
        self.state = IocState::Running(mailbox, thread, threads);
        if let Some(port) = other_port {
            eprintln!("The TCP port is in use by another server; circuits are taken on port {port} instead.");
        }
        self.start_saver()?;
        self.publish()?;
        eprintln!("iocRun: All initialization complete");
        self.print_notices()
    }

    /// Reads commands from standard input until there are no more; on a terminal with editing, history
    /// (`IOCSH_HISTSIZE` lines) and completion, unless `IOCSH_HISTEDIT_DISABLE` is set.
    ///
    /// # Errors
    /// When what was required for real time was not obtained.
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
                Err(Failed(error)) => {
                    self.failures += 1;
                    eprintln!("{error}");
                }
            }
        }
    }

    /// The terminal, if standard input is one and is to be edited on.
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
    /// What ended the engine before.
    pub fn shut_down(&mut self) -> Result<(), Failed> {
        if let Some(saver) = self.saves.running.get() {
            saver.stop();
        }
        self.publishers.drain(..).for_each(Publisher::stop);
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

    /// What is to be written before the IOC ends.
    fn ending(&self) -> exit::Ending {
        exit::Ending { ioc: self.ioc.clone(), saver: self.saves.running.clone() }
    }

    /// Does something with the database, wherever it is.
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

    /// Does something with the database that owns a record, on its owner's thread, and waits for the result.
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
                    // Nobody waits any more: nobody needs the answer.
                    let _ = reply.try_send(work(db, now));
                }
            });
            engine.call(&name, work);
        });
        asked.and_then(|()| answer.recv().ok()).ok_or_else(|| Failed("the IOC has ended".into()))
    }

    /// Does something with every shard of the database, the housekeeping shard first.
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

    /// Does something with the running engine.
    fn with_engine<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        match &self.state {
            IocState::Running(mailbox, ..) => mailbox.ask(work).ok_or_else(|| Failed("the IOC has ended".into())),
            _ => Err("the IOC is not running yet: call iocInit first".into()),
        }
    }

    /// Prints what the database has to say.
    fn print_notices(&mut self) -> Result<(), Failed> {
        for (notices, output) in self.with_each(|db, _| (db.take_notices(), db.take_output()))? {
            notices.iter().for_each(|notice| eprintln!("{}", notice.0));
            for (_, text) in output {
                // A reader that went away needs no output.
                let _ = tell_raw(&text);
            }
        }
        Ok(())
    }

    /// Prints a command's output where it belongs.
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

/// Prints a text; bytes in it that are no UTF-8 go to files and pipes as they are, and to a terminal as Latin-1.
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

/// A line of standard input, behind a prompt.
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

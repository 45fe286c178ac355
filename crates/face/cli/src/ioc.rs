//! `tahti ioc`: an EPICS IOC with the command line of `softIoc`.

use crate::failure::Failure;
use crate::ioc_headers;
use crate::ioc_site;
use crate::shield;
use base::CpuSet;
use iocd::groups::{GroupSpec, Home};
use iocd::plugins::{Place, RUN_OPTION};
use iocd::shell::{End, Failed, Shell, complain};
use std::path::Path;
use std::process::ExitCode;

/// Run an EPICS IOC with the options of softIoc
///
///   -d FILE     load a database, or the templates of a .substitutions file; -m before it sets its macros
///   -m MACROS   macros for the following databases, such as P=X:,Q=1
///   -a FILE     access security file; -m before it sets its macros
///   -D FILE     load a .dbd file: its menus and breakpoint tables
///   -S          no interactive interpreter
///   -s          accepted and ignored (the interpreter is the default)
///   -v          print each loaded file
///   --scan RATE[,RATE...]=CLASS[@CPUS]
///               run these scans on a thread per CPU, such as
///               --scan ".1 second=fifo:80@1"; repeatable
///   --strict    refuse a database file with errors; default: load the valid part
///   --plugin FILE  load functions of sub and aSub records, written in C, into a
///               separate process
///   --plugin-inside FILE  load them into the IOC: for real-time scans
///   --headers DIR  write the headers to compile such functions of a site, and exit
///   --port NAME=ADDRESS[,KEY=VALUE...]
///               connection to equipment, such as --port plc=10.0.0.7:502 or
///               --port psu=/dev/ttyS0,baud=19200; repeatable
///   --protocols PATH  folders with protocol files, as STREAM_PROTOCOL_PATH
///   --check     report every error in the files to load and the scripts, and exit
///   --check-site DIR [--json]  report which databases, records and commands of a site's
///               folder work here, and why others do not; runs nothing
///   --no-pvaccess  serve Channel Access only
///   --require-rt  exit if the class, CPU or memory lock of a scan is unavailable
///   -x PREFIX   load the records PREFIX:exit, which ends the IOC, and PREFIX:BaseVersion
///   st.cmd      run this script, then iocInit if databases were given, then the interpreter
///
/// Serves Channel Access and PVAccess to this host only, unless EPICS_CAS_INTF_ADDR_LIST
/// and EPICS_PVAS_INTF_ADDR_LIST name addresses to listen on (0.0.0.0 for all).
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[allow(rustdoc::broken_intra_doc_links, reason = "in this help, brackets mark optional parts")]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Print help
    #[arg(short, long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// Options and scripts of softIoc, in their order
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    words: Vec<String>,
}

const USAGE: u8 = 64;

/// A port: name, address and options.
type PortSpec = (String, String, Vec<(String, String)>);

/// The files and scripts to load, in the order of the command line, and the options of the IOC.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    load: Vec<Load>,
    scripts: Vec<String>,
    interactive: bool,
    verbose: bool,
    scans: Vec<GroupSpec>,
    ports: Vec<PortSpec>,
    protocols: Option<String>,
    require_rt: bool,
    no_pvaccess: bool,
    strict: bool,
    check: bool,
    /// Only print the names of the records.
    names: bool,
    /// The site folder to survey.
    site: Option<String>,
    /// The folder to write headers into.
    headers: Option<String>,
    json: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Load {
    Definition(String),
    Records { file: String, macros: String },
    Security { file: String, macros: String },
    Templates { file: String, macros: String },
    Builtin { name: &'static str, macros: String },
    Plugin { file: String, place: Place },
}

pub(crate) fn run(args: Args) -> ExitCode {
    if let [word, file] = &args.words[..]
        && word == RUN_OPTION
    {
        return run_plugin(file);
    }
    let plan = match parse(&args.words) {
        Ok(plan) => plan,
        Err(message) => {
            complain(&format!("tahti ioc: {message}"));
            return ExitCode::from(USAGE);
        }
    };
    if let Some(folder) = &plan.site {
        return ioc_site::run(folder, plan.json);
    }
    if let Some(folder) = &plan.headers {
        return ioc_headers::run(folder);
    }
    let environment = std::env::vars_os().map(|(name, value)| (decoded(&name), decoded(&value)));
    let mut shell = Shell::new(true, environment);
    if plan.check {
        return check(&mut shell, &plan);
    }
    let home = match shield::home(plan.scans.iter().fold(CpuSet::EMPTY, |cpus, scan| cpus.or(&scan.cpus))) {
        Ok(home) => home.map(|home| Home { cpus: home.cpus, entry: home.entry }),
        Err(error) => {
            eprintln!("tahti ioc: the active shield is unreadable, so scans do not enter it: {error}");
            None
        }
    };
    shell.scan_on(plan.scans.clone(), home, plan.require_rt);
    if plan.no_pvaccess {
        shell.without_pvaccess();
    }
    let ports = plan.ports.iter().try_for_each(|(name, address, options)| shell.add_port(name, address, options));
    if let Some(path) = &plan.protocols {
        shell.set_protocol_path(path);
    }
    let result = ports.and_then(|()| go(&mut shell, &plan));
    let ended = shell.shut_down();
    match result.and(ended) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            complain(&format!("tahti ioc: {message}"));
            // The exit status of softIoc.
            ExitCode::from(2)
        }
    }
}

/// Runs the process of a plug-in, which another `tahti ioc` has started.
fn run_plugin(file: &str) -> ExitCode {
    match iocd::plugins::run(Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tahti ioc: {RUN_OPTION}: {error}; only another tahti ioc uses this option");
            ExitCode::FAILURE
        }
    }
}

/// A command-line word as text. Bytes that are not UTF-8 pass through unchanged.
fn decoded(text: &std::ffi::OsStr) -> String {
    base::raw::decode(std::os::unix::ffi::OsStrExt::as_bytes(text)).into_owned()
}

/// Loads everything without starting it, and prints all errors.
fn check(shell: &mut Shell, plan: &Plan) -> ExitCode {
    shell.only_check();
    shell.scan_on(plan.scans.clone(), None, false);
    let mut found = Vec::new();
    for (name, address, options) in &plan.ports {
        found.extend(shell.add_port(name, address, options).err());
    }
    if let Some(path) = &plan.protocols {
        shell.set_protocol_path(path);
    }
    for one in &plan.load {
        found.extend(load(shell, false, one).err());
    }
    for script in &plan.scripts {
        found.extend(shell.run_file(script).err());
    }
    if plan.names {
        print!("{}", shell.record_names());
        return ExitCode::SUCCESS;
    }
    // Errors in scripts were printed with their lines.
    let broken = !found.is_empty() || shell.has_failures();
    found.iter().for_each(|Failed(what)| complain(what));
    let started = shell.check();
    started.iter().for_each(|what| complain(what));
    if broken || !started.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Loads one file.
fn load(shell: &mut Shell, verbose: bool, load: &Load) -> Result<(), Failed> {
    let said = |line: String| {
        if verbose {
            println!("{line}");
        }
    };
    match load {
        Load::Definition(file) => {
            said(format!("dbLoadDatabase(\"{file}\")"));
            shell.load_dbd(file, "")
        }
        Load::Records { file, macros } => {
            said(format!("dbLoadRecords(\"{file}\", \"{macros}\")"));
            shell.load_records(file, macros)
        }
        Load::Templates { file, macros } => {
            said(format!("dbLoadTemplate(\"{file}\", \"{macros}\")"));
            shell.load_template(file, macros)
        }
        Load::Plugin { file, place } => {
            said(format!("dlload(\"{file}\")"));
            shell.load_plugin(file, *place)
        }
        Load::Security { file, macros } => {
            said(format!("asSetFilename(\"{file}\")"));
            shell.secure(file, macros);
            Ok(())
        }
        Load::Builtin { name, macros } => {
            said(format!("dbLoadBuiltin(\"{name}\", \"{macros}\")"));
            shell.load_builtin(name, macros)
        }
    }
}

fn go(shell: &mut Shell, plan: &Plan) -> Result<(), Failed> {
    shell.load_strictly(plan.strict)?;
    plan.load.iter().try_for_each(|one| load(shell, plan.verbose, one))?;
    // Same order as softIoc: scripts first. Databases of the command line start after them.
    for script in &plan.scripts {
        if shell.run_file(script)? == End::Exit {
            return Ok(());
        }
    }
    let records = |load: &Load| matches!(load, Load::Records { .. } | Load::Templates { .. } | Load::Builtin { .. });
    let loaded = plan.load.iter().any(records);
    if loaded && !shell.is_running() {
        if plan.verbose {
            println!("iocInit()");
        }
        shell.init()?;
    }
    shell.report_failures();
    if plan.interactive {
        shell.run_stdin()?;
        return Ok(());
    }
    if !shell.is_running() {
        return Err(Failed("nothing to do: give a database (-d) or a script that ends with iocInit".into()));
    }
    loop {
        std::thread::park();
    }
}

/// Parses `NAME=ADDRESS,KEY=VALUE,…`.
fn port(word: &str) -> Result<PortSpec, String> {
    let bad = || format!("--port {word}: expected NAME=ADDRESS or NAME=ADDRESS,KEY=VALUE,…");
    let (name, rest) = word.split_once('=').ok_or_else(bad)?;
    let mut parts = rest.split(',');
    let address = parts.next().unwrap_or_default().to_owned();
    let pair = |part: &str| part.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(bad);
    Ok((name.to_owned(), address, parts.map(pair).collect::<Result<_, _>>()?))
}

fn parse(words: &[String]) -> Result<Plan, Failure> {
    let mut plan = Plan { interactive: true, ..Plan::default() };
    let mut macros = String::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--scan" => {
                let group = words.next().ok_or("--scan needs a value")?;
                plan.scans.push(group.parse().map_err(|error| format!("--scan {error}"))?);
                continue;
            }
            "--plugin" | "--plugin-inside" => {
                let file = words.next().ok_or_else(|| format!("{word} needs a file"))?.clone();
                let place = if word == "--plugin" { Place::default() } else { Place::Inside };
                plan.load.push(Load::Plugin { file, place });
                continue;
            }
            "--check" => {
                plan.check = true;
                continue;
            }
            "--names" => {
                (plan.check, plan.names) = (true, true);
                continue;
            }
            "--check-site" => {
                plan.site = Some(words.next().ok_or("--check-site needs a folder")?.clone());
                continue;
            }
            "--headers" => {
                plan.headers = Some(words.next().ok_or("--headers needs a folder")?.clone());
                continue;
            }
            "--json" => {
                plan.json = true;
                continue;
            }
            "--require-rt" => {
                plan.require_rt = true;
                continue;
            }
            "--no-pvaccess" => {
                plan.no_pvaccess = true;
                continue;
            }
            "--strict" => {
                plan.strict = true;
                continue;
            }
            "--port" => {
                plan.ports.push(port(words.next().ok_or("--port needs a value")?)?);
                continue;
            }
            "--protocols" => {
                plan.protocols = Some(words.next().ok_or("--protocols needs a value")?.clone());
                continue;
            }
            _ => {}
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            plan.scripts.push(word.clone());
            continue;
        };
        // As in getopt: letters without a value may be combined, and a value may follow its letter directly.
        for (at, letter) in letters.char_indices() {
            let attached = &letters[at + letter.len_utf8()..];
            let mut value = || match attached {
                "" => words.next().cloned().ok_or_else(|| format!("-{letter} needs a value")),
                attached => Ok(attached.to_owned()),
            };
            match letter {
                'S' => plan.interactive = false,
                's' => {}
                'v' => plan.verbose = true,
                'm' => macros = value()?,
                'D' => plan.load.push(Load::Definition(value()?)),
                'd' => {
                    let (file, macros) = (value()?, macros.clone());
                    plan.load.push(match file.rsplit('.').next() {
                        Some("substitutions" | "subs") => Load::Templates { file, macros },
                        _ => Load::Records { file, macros },
                    });
                }
                'a' => plan.load.push(Load::Security { file: value()?, macros: macros.clone() }),
                'x' => plan.load.push(Load::Builtin { name: "exit.db", macros: format!("IOC={}", value()?) }),
                _ => {
                    return Err(format!(
                        "unknown option -{letter} (in {word}): expected one of -a -d -D -m -S -s -v -x --check --check-site --headers --scan --plugin --plugin-inside --no-pvaccess --require-rt --strict, see tahti ioc --help"
                    ).into());
                }
            }
            if matches!(letter, 'm' | 'D' | 'd' | 'a' | 'x') {
                break;
            }
        }
    }
    if plan.json && plan.site.is_none() {
        return Err("--json belongs to --check-site DIR".to_owned().into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, Failure> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn macros_apply_to_the_databases_after_them() {
        let plan = plan("-D x.dbd -m P=A: -d a.db -m P=B: -d b.db -S st.cmd").unwrap();
        assert_eq!(
            plan.load,
            [
                Load::Definition("x.dbd".into()),
                Load::Records { file: "a.db".into(), macros: "P=A:".into() },
                Load::Records { file: "b.db".into(), macros: "P=B:".into() },
            ]
        );
        assert_eq!((plan.interactive, plan.scripts), (false, vec!["st.cmd".to_owned()]));
    }

    #[test]
    fn templates_are_recognised_by_their_file_name_extension() {
        let plan = plan("--plugin f.so -m P=A: -d a.substitutions").unwrap();
        let templates = Load::Templates { file: "a.substitutions".into(), macros: "P=A:".into() };
        let plugin = Load::Plugin { file: "f.so".into(), place: Place::default() };
        assert_eq!(plan.load, [plugin, templates]);
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        assert!(plan("-q").unwrap_err().to_string().contains("-q"));
        assert!(plan("-d").unwrap_err().to_string().contains("needs a value"));
        assert!(plan("-Sq").unwrap_err().to_string().contains("-q (in -Sq)"));
    }

    #[test]
    fn a_port_has_a_name_an_address_and_options() {
        let plan = plan("--port psu=/dev/ttyS0,baud=19200 --protocols a:b -d x.db").unwrap();
        let options = vec![("baud".to_owned(), "19200".to_owned())];
        assert_eq!(plan.ports, [("psu".to_owned(), "/dev/ttyS0".to_owned(), options)]);
        assert_eq!(plan.protocols.as_deref(), Some("a:b"));
        assert!(port("psu").unwrap_err().to_string().contains("NAME=ADDRESS"));
    }

    #[test]
    fn options_may_be_clustered_as_with_getopt() {
        let plan = plan("-vSdx.db -xIOC1").unwrap();
        assert!(plan.verbose && !plan.interactive);
        assert_eq!(
            plan.load,
            [
                Load::Records { file: "x.db".into(), macros: String::new() },
                Load::Builtin { name: "exit.db", macros: "IOC=IOC1".into() },
            ]
        );
    }
}

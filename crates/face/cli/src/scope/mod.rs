//! `tahti scope`: an oscilloscope for exported variables.

mod options;
mod show;

use crate::failure::{self, Failure};
use ::scope::{Capture, CaptureSettings, Kind, Mode};
use base::DurNs;
use dash::{Forcing, Servers};
use rt::scope::{Cause, Oscilloscope, Phase};
use std::path::{Path, PathBuf};
use sys::clock::{mono_now, sleep_until};

pub(crate) use options::Args;

/// Maximum time for the loop to accept a setup. After that, the loop is assumed not to run.
const TAKING: DurNs = DurNs::from_secs(2);
/// Interval between checks for a new capture.
const LOOK: DurNs = DurNs::from_ms(10);
/// Interval between displays in mode roll.
const ROLL: DurNs = DurNs::from_ms(1000);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Check the file names before a capture can be lost.
    args.export.iter().try_for_each(|file| kind(file).map(drop))?;
    match (&args.open, args.variables.is_empty()) {
        (Some(file), _) => open(file).map(|capture| show::capture(args, &capture, &file.display().to_string())),
        (None, true) => list(),
        (None, false) => look(args),
    }
}

/// Prints the exported variables of this machine.
fn list() -> Result<(), Failure> {
    let exported = rt::scope::exported().map_err(failure::in_file(Path::new("/proc/net/unix")))?;
    if exported.is_empty() {
        println!("no process exports variables on this machine");
    }
    for (segment, sampled) in exported {
        let known = rt::Imports::open(&segment).map_err(|error| error.to_string());
        let variables =
            known.as_ref().map_err(Clone::clone).and_then(|known| known.segment().map_err(|e| e.to_string()));
        let variables = match variables {
            Ok(variables) => variables,
            Err(why) => {
                println!("{}  {why}", visible(&segment));
                continue;
            }
        };
        for index in 0..variables.len() {
            let (Some(name), Some(unit)) = (variables.name(index), variables.unit(index)) else { continue };
            let value = variables.get(index).map_or_else(|| "-".to_owned(), |read| show::number(read.value));
            let note = if sampled { "" } else { "  (no oscilloscope: its loop does not sample)" };
            println!("{}/{}  {value} {}{note}", visible(&segment), visible(name.as_str()), visible(unit.as_str()));
        }
    }
    Ok(())
}

/// Escapes control characters, so that names from other programs cannot control the terminal.
const fn visible(text: &str) -> base::Visible<'_> {
    base::Visible { text, colours: false }
}

/// The segment of the variables, and their names. A segment without a variable name selects all of its variables.
fn channels(args: &Args) -> Result<(String, Vec<String>), Failure> {
    let mut names = Vec::new();
    let mut segment: Option<&str> = None;
    for variable in &args.variables {
        let (of, name) = variable.split_once('/').map_or((variable.as_str(), None), |(of, name)| (of, Some(name)));
        if let Some(other) = segment.replace(of).filter(|other| *other != of) {
            return Err(format!(
                "variables of {other:?} and {of:?}: one loop samples those of one segment; look at each in a scope of its own \
                 and join them by their pulse numbers (--export)"
            ).into());
        }
        names.extend(name.map(str::to_owned));
    }
    Ok((segment.unwrap_or_default().to_owned(), names))
}

fn look(args: &Args) -> Result<(), Failure> {
    let (segment, mut names) = channels(args)?;
    let scope = Oscilloscope::open(&segment)?;
    if args.force {
        return Ok(scope.force(Cause::Forced)?);
    }
    if args.stop {
        return Ok(scope.stop()?);
    }
    if args.fetch {
        return fetch(args, &scope);
    }
    if names.is_empty() {
        let variables = scope.variables().segment()?;
        let all = (0..variables.len()).filter_map(|index| variables.name(index));
        names = all.take(rt::scope::CHANNELS_MAX).map(|name| name.as_str().to_owned()).collect();
    }
    let wanted = wanted(args, names);
    let request = wanted.request(&segment)?;
    let forcing = match wanted.beside()? {
        Some(_) if args.detach => {
            let why = "a trigger on an alarm or a message needs this command to run; remove --detach";
            return Err(why.into());
        }
        Some(beside) => {
            let servers = Servers { alarms: args.alarms.clone(), messages: args.messages.clone() };
            Some(Forcing::start(&beside, &segment, &servers)?)
        }
        None => None,
    };
    let id = scope.set_up(&request)?;
    let taken = scope.taken(id, TAKING);
    taken.ok_or_else(|| {
        format!("the loop of {segment:?} is not running, or another client has taken the oscilloscope over")
    })?;
    if args.detach {
        println!("started; `tahti scope {segment} --fetch` shows its captures, --stop stops it");
        return Ok(());
    }
    let until = args.within.map(|within| mono_now() + within);
    match args.mode() {
        Mode::Roll => roll(args, &scope, until),
        _ => follow(args, &scope, id, until, forcing.as_ref()),
    }
}

/// The requested setup.
fn wanted(args: &Args, channels: Vec<String>) -> CaptureSettings {
    CaptureSettings {
        channels,
        trigger: args.trigger.clone(),
        mode: args.mode(),
        pre: args.pre,
        length: args.length,
        every: args.every,
        holdoff: args.holdoff,
        captures: args.captures,
        keep: args.keep,
        detached: args.detach,
    }
}

/// Prints captures as they arrive.
fn follow(
    args: &Args,
    scope: &Oscilloscope,
    id: u64,
    until: Option<base::MonoNs>,
    forcing: Option<&Forcing>,
) -> Result<(), Failure> {
    let mut next = 0;
    loop {
        let status = scope.status().filter(|status| status.id == id);
        let status = status.ok_or("another client has taken the oscilloscope over")?;
        for (number, rows) in scope.captured(next) {
            if number > next {
                println!("{} captures were overwritten before they could be shown", number - next);
            }
            next = number + 1;
            let capture = Capture::of_imports(scope.variables(), &rows);
            show::capture(args, &capture, &format!("capture {next} of {}", visible(scope.name())));
            args.export.iter().try_for_each(|file| export(&capture, file, (status.captures > 1).then_some(next)))?;
        }
        if status.phase == Phase::Stopped && next >= status.captures {
            return Ok(());
        }
        if let Some(why) = forcing.and_then(Forcing::failed) {
            return Err(why.into());
        }
        if !scope.is_alive() {
            return Err(format!("the process that exported {:?} has ended", scope.name()).into());
        }
        if until.is_some_and(|until| mono_now() >= until) {
            let within = args.within.unwrap_or_default();
            let ignored = status.ignored;
            return Err(format!(
                "no trigger within {within}: {} ({ignored} during the hold-off); expected one, or --auto",
                status.phase.word()
            )
            .into());
        }
        sleep_until(mono_now() + LOOK);
    }
}

/// Prints the newest rows at regular intervals.
fn roll(args: &Args, scope: &Oscilloscope, until: Option<base::MonoNs>) -> Result<(), Failure> {
    let mut shown = 0;
    while scope.is_alive() {
        sleep_until(mono_now() + if shown == 0 { LOOK } else { ROLL });
        let whole = args.length as usize;
        let rows = scope.latest(whole).filter(|rows| shown > 0 || rows.words.len() == whole * rows.row_words);
        let Some(rows) = rows else { continue };
        shown += 1;
        let capture = Capture::of_imports(scope.variables(), &rows);
        show::capture(args, &capture, &format!("the newest rows of {}", visible(scope.name())));
        args.export.iter().try_for_each(|file| export(&capture, file, None))?;
        if args.captures.is_some_and(|captures| shown >= captures) || until.is_some_and(|until| mono_now() >= until) {
            return Ok(());
        }
    }
    Err(format!("the process that exported {:?} has ended", scope.name()).into())
}

/// Prints the captures of a detached setup.
fn fetch(args: &Args, scope: &Oscilloscope) -> Result<(), Failure> {
    let status = scope.status().ok_or_else(|| format!("the oscilloscope of {:?} is not set up", scope.name()))?;
    let (phase, captures, ignored) = (status.phase.word(), status.captures, status.ignored);
    println!("{}: {phase}, {captures} captures; {ignored} triggers during the hold-off", visible(scope.name()));
    for (number, rows) in scope.captured(0) {
        let (capture, number) = (Capture::of_imports(scope.variables(), &rows), number + 1);
        show::capture(args, &capture, &format!("capture {number} of {}", visible(scope.name())));
        args.export.iter().try_for_each(|file| export(&capture, file, Some(number)))?;
    }
    Ok(())
}

/// The file format, selected by the file name extension.
fn kind(file: &Path) -> Result<Kind, Failure> {
    let kind = file.extension().and_then(|kind| Kind::of_name(kind.to_str()?));
    Ok(kind.ok_or_else(|| format!("{}: expected a name that ends in .csv, .npy or .json", file.display()))?)
}

/// Writes a capture. `number`, for one of several captures, is inserted before the file name extension.
fn export(capture: &Capture, file: &Path, number: Option<u64>) -> Result<(), Failure> {
    let kind = kind(file)?;
    let file = match number {
        Some(number) => file.with_extension(format!("{number}.{}", kind.word())),
        None => PathBuf::from(file),
    };
    std::fs::write(&file, capture.to_bytes(kind)).map_err(failure::in_file(&file))?;
    println!("written to {}", file.display());
    Ok(())
}

fn open(file: &Path) -> Result<Capture, Failure> {
    let kind = kind(file)?;
    let bytes = std::fs::read(file).map_err(failure::in_file(file))?;
    let capture = Capture::from_bytes(kind, &bytes);
    Ok(capture.map_err(|error| format!("{}: {error}", file.display()))?)
}

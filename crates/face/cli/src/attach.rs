//! `tahti attach`: connects the terminal to the console of a process.

use crate::control::{PlantArgs, foreign, plant_name};
use crate::failure::{Failure, end};
use base::ConsoleFilter;
use keep::keeper::SOCKET_NAME;
use keep::keeper::protocol::{Reply, Request, Status, WindowSize, line};
use keep::supervisor::rundir::RunDir;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{Read, Write, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use sys::signal::{SIGWINCH, SignalFd};

/// The key that disconnects: `^]`, as in telnet.
const DETACH_KEY: u8 = 0x1d;

/// Connect this terminal to a process; ^] disconnects
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti console loop           ^] disconnects; the process keeps running
  tahti console loop -r        read only")]
pub(crate) struct Args {
    /// Process
    name: String,
    /// Read only: do not send input
    #[arg(long, short)]
    read_only: bool,
    /// Print all bytes unchanged, including sequences that change the terminal's title or clipboard
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    which: PlantArgs,
}

/// Raw mode of the user's terminal. Dropping it restores the previous modes; `None` if standard input is no terminal.
struct Raw(Option<Termios>);

impl Raw {
    fn enter() -> Result<Self, Failure> {
        if !isatty(stdin()) {
            return Ok(Self(None));
        }
        let before = modes()?;
        set_raw(&before)?;
        Ok(Self(Some(before)))
    }
}

/// The present modes of the user's terminal.
pub(crate) fn modes() -> Result<Termios, Failure> {
    Ok(tcgetattr(stdin()).map_err(unswitched)?)
}

/// Switches the user's terminal from these modes to raw mode.
pub(crate) fn set_raw(before: &Termios) -> Result<(), Failure> {
    let mut raw = before.clone();
    raw.make_raw();
    Ok(tcsetattr(stdin(), OptionalActions::Flush, &raw).map_err(unswitched)?)
}

fn unswitched(errno: rustix::io::Errno) -> String {
    format!("the terminal cannot be switched: {errno}")
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Fails if the terminal is gone, which then needs no restoring.
            let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
        }
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(attach(&args).map(|why| eprintln!("\n{why}")))
}

fn attach(args: &Args) -> Result<String, Failure> {
    let plant = plant_name(args.which.plant.as_deref())?;
    let socket = RunDir::find(&plant).keeper(&args.name).join(SOCKET_NAME);
    let stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => foreign(&plant, &error),
        _ => {
            format!(
                "process {:?} of plant {plant:?} has no console ({error}); `tahti ps` lists the processes",
                args.name
            )
        }
    })?;
    // Before the size is read, so that no change is missed.
    let resized = SignalFd::new(&[SIGWINCH])?;
    let request = Request::Attach { read_only: args.read_only, size: size() };
    (&stream).write_all(&line(&request))?;
    let status = answer(&stream)?;
    println!("attached to {} ({}); ^] disconnects", status.name, plant);
    let raw = Raw::enter()?;
    let resize = || -> Result<(), Failure> {
        let Some(size) = size().filter(|_| !args.read_only) else { return Ok(()) };
        // A second connection: this one carries the typed input.
        let mut beside = UnixStream::connect(&socket)?;
        beside.write_all(&line(&Request::Resize { size }))?;
        match reply(&beside)? {
            Reply::Refused(why) => Err(why.into()),
            _ => Ok(()),
        }
    };
    let why = converse(&stream, args, &resized, resize);
    drop(raw);
    why
}

/// The size of the user's terminal.
fn size() -> Option<WindowSize> {
    tcgetwinsize(stdout()).ok().map(|size| WindowSize { rows: size.ws_row, columns: size.ws_col })
}

fn answer(stream: &UnixStream) -> Result<Status, Failure> {
    match reply(stream)? {
        Reply::Status(status) => Ok(*status),
        Reply::Refused(why) => Err(why.into()),
        other => Err(format!("unexpected answer of the keeper: {other:?}").into()),
    }
}

/// Reads one line, the keeper's answer, byte by byte: the bytes after it belong to the console.
fn reply(mut stream: &UnixStream) -> Result<Reply, Failure> {
    let mut text = Vec::new();
    let mut byte = [0u8];
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        text.push(byte[0]);
    }
    Ok(keep::keeper::protocol::parse(&text)?)
}

/// Copies bytes in both directions until one side disconnects. Forwards each new size of the terminal.
fn converse(
    mut stream: &UnixStream,
    args: &Args,
    resized: &SignalFd,
    resize: impl Fn() -> Result<(), Failure>,
) -> Result<String, Failure> {
    let read_only = args.read_only;
    let mut typing = true;
    let mut filter = (!args.raw).then(ConsoleFilter::default);
    let mut bytes = [0u8; 4096];
    loop {
        let (input, output) = (stdin(), stream);
        let mut fds = vec![PollFd::new(output, PollFlags::IN), PollFd::new(resized, PollFlags::IN)];
        if typing {
            fds.push(PollFd::new(&input, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(format!("poll: {errno}").into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            while resized.read()?.is_some() {}
            resize()?;
        }
        if ready[0] {
            match stream.read(&mut bytes) {
                Ok(0) | Err(_) => return Ok("the keeper ended".to_owned()),
                Ok(got) => {
                    let got = &bytes[..got];
                    let shown = filter.as_mut().map_or_else(|| got.to_vec(), |filter| filter.pass(got));
                    let shown = stdout().write_all(&shown).and_then(|()| stdout().flush());
                    shown?;
                }
            }
        }
        if ready.get(2) == Some(&true) {
            let got = rustix::io::read(stdin(), &mut bytes)?;
            let typed = &bytes[..got];
            let leaves = typed.iter().position(|byte| *byte == DETACH_KEY);
            typing = got > 0;
            if !typing && !read_only {
                return Ok("the input ended; the process keeps running".to_owned());
            }
            if !read_only {
                stream.write_all(&typed[..leaves.unwrap_or(got)])?;
            }
            if leaves.is_some() {
                return Ok("detached; the process keeps running".to_owned());
            }
        }
    }
}

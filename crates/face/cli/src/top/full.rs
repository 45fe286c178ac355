//! Main loop of the full screen: handles keys, samples and signals, and draws.

use super::Args;
use super::draw::Model;
use super::seen::Looker;
use super::terminal::{Ansi, Screen};
use super::view::{Action, Then, View};
use crate::control::ask;
use crate::failure::Failure;
use base::DurNs;
use keep::supervisor::control::Request;
use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read as _, Write as _, stdin};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;
use sys::clock::mono_now;
use sys::signal::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH, SignalFd};

pub(super) fn watch(name: &str, args: &Args, every: Duration) -> Result<(), Failure> {
    // Before the sampling thread starts, so that it inherits the blocked signals.
    let signals = SignalFd::new(&[SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH])?;
    let looker = Looker::start(name, every)?;
    looker.bell.set_nonblocking(true)?;
    let screen = Screen::enter()?;
    let mut terminal = Terminal::new(Ansi::default())?;
    let stale = DurNs(2 * i64::try_from(every.as_nanos()).unwrap_or(i64::MAX / 2) + 1_000_000_000);
    let view = View::new(args.threads, args.sort);
    let mut model = Model::new(name, view, stale);
    let (answers, answered) = channel();
    let timeout = Timespec { tv_sec: every.as_secs() as i64, tv_nsec: every.subsec_nanos().into() };
    loop {
        if terminal.draw(|frame| model.draw(frame, mono_now())).is_err() {
            // The terminal is gone.
            return Ok(());
        }
        let input = stdin();
        let mut fds = [
            PollFd::new(&input, PollFlags::IN),
            PollFd::new(&looker.bell, PollFlags::IN),
            PollFd::new(&signals, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(format!("poll: {errno}").into()),
        }
        let typed = !fds[0].revents().is_empty();
        let mut then = Vec::new();
        if typed {
            let mut bytes = [0u8; 64];
            match rustix::io::read(&input, &mut bytes) {
                // End of input, or the terminal is gone.
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(()),
                Ok(got) => then.extend(model.press(&bytes[..got])),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(format!("the keyboard: {errno}").into()),
            }
        }
        while let Some(arrived) = signals.read()? {
            match arrived.signal {
                SIGWINCH => {}
                SIGTSTP => then.push(Then::Stop),
                SIGCONT => {
                    screen.take()?;
                    terminal.clear()?;
                }
                _ => return Ok(()),
            }
        }
        if typed {
            model.answer = None;
        }
        for then in then {
            match then {
                Then::Act(action, process) => {
                    model.answer = Some(Ok(format!("{} {process} ...", action.word())));
                    let (plant, answers, bell) = (name.to_owned(), answers.clone(), looker.ring()?);
                    // A supervisor that answers late must not delay keys and screen.
                    std::thread::Builder::new()
                        .name("top-acts".to_owned())
                        .spawn(move || act(&plant, action, process, &answers, bell))?;
                }
                Then::Go => {}
                Then::Quit => return Ok(()),
                Then::Pause(pause) => drop(looker.pauses.send(pause)),
                Then::Stop => {
                    screen.leave();
                    kill_process(getpid(), Signal::STOP).map_err(|errno| format!("stop: {errno}"))?;
                    // After SIGCONT, the loop above takes the terminal again.
                }
            }
        }
        hear(&looker, &mut model)?;
        model.answer = answered.try_iter().last().or(model.answer.take());
    }
}

/// Changes the state of a process, and rings when the supervisor has answered.
fn act(plant: &str, action: Action, process: String, answers: &Sender<Result<String, String>>, mut bell: UnixStream) {
    let request = match action {
        Action::Start => Request::Start { names: vec![process.clone()] },
        Action::Stop => Request::Stop { names: vec![process.clone()] },
        Action::Restart => Request::Restart { name: process.clone() },
    };
    let done = ask(plant, &request).map(|_| format!("{} {process}: accepted", action.word()));
    // Both fail only after the screen has ended.
    let _ = answers.send(done.map_err(|why| why.to_string()));
    let _ = bell.write_all(b"!");
}

/// Processes all samples that have arrived.
fn hear(looker: &Looker, model: &mut Model) -> Result<(), Failure> {
    // Discards the wake-up bytes. Their number does not matter: the samples themselves are in the channel.
    let _ = (&looker.bell).read(&mut [0u8; 64]);
    loop {
        match looker.looks.try_recv() {
            Ok(Ok(seen)) => model.take(seen),
            Ok(Err(why)) => model.trouble = Some(why),
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Disconnected) => return Err("the thread that reads the plant has ended".into()),
        }
    }
}

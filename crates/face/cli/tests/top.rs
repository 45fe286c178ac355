//! `tahti top` on a separate terminal: keys, resized windows, suspension, and the restored terminal.

use harness::plant::{Bench, sh};
use harness::process::kill;
use rustix::fs::OFlags;
use rustix::io::ioctl_fionbio;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::cell::RefCell;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus};

const TAHTI: &str = env!("CARGO_BIN_EXE_tahti");

/// A terminal with `tahti top` on it.
struct Top {
    /// The only open master of the terminal: closing it hangs up.
    keyboard: File,
    /// A separate descriptor to read the terminal's modes.
    line: File,
    shown: RefCell<Vec<u8>>,
    child: Child,
}

impl Top {
    /// Starts it in a separate session, which gets SIGHUP when its terminal hangs up.
    fn start(bench: &Bench, environment: &[(&str, &str)]) -> Self {
        // Starts a session with the terminal as its controlling terminal, then executes the program.
        let mut command = Command::new("setsid");
        command.args(["--ctty", TAHTI]).envs(environment.iter().copied());
        Self::of(bench, command)
    }

    fn of(bench: &Bench, mut command: Command) -> Self {
        // Close-on-exec: a copy in a child would keep the terminal open.
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        ioctl_fionbio(&master, true).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed()).open(&path).unwrap()
        };
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let line = open();
        tcsetwinsize(&line, size).unwrap();
        command.arg("top").current_dir(&bench.dir).stdin(open()).stdout(open()).stderr(open());
        command.env("TAHTI_RUN", bench.dir.join("run")).env("TERM", "xterm");
        let child = command.spawn().unwrap();
        Self { keyboard: File::from(master), line, shown: RefCell::default(), child }
    }

    /// Closes the master, as a lost connection does, and waits for the program's exit.
    fn hang_up(mut self, bench: &Bench) -> ExitStatus {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        drop(std::mem::replace(&mut self.keyboard, null));
        self.ends(bench)
    }

    fn ends(&mut self, bench: &Bench) -> ExitStatus {
        let mut status = None;
        bench.until("its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Output since the last text that was waited for.
    fn shown(&self) -> String {
        let (mut shown, mut bytes) = (self.shown.borrow_mut(), [0; 4096]);
        while let Ok(got @ 1..) = (&self.keyboard).read(&mut bytes) {
            shown.extend(&bytes[..got]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits for a text in the output from here on.
    fn shows(&self, bench: &Bench, what: &str) {
        bench.until(what, || self.shown().contains(what));
        self.shown.borrow_mut().clear();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.line).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    fn modes(&self) -> String {
        let modes = tcgetattr(&self.line).unwrap();
        format!("{:?} {:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn is_stopped(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).is_ok_and(|stat| stat.contains(") T "))
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

fn plant(name: &str) -> Bench {
    let bench = Bench::new(name, &(sh("sleeper", "sleep 1000", "") + &sh("other", "sleep 1000", "")));
    bench.ok(&["up", ".", "--detach"]);
    bench
}

#[test]
fn keys_and_the_window_size_change_the_screen_and_q_restores_the_terminal() {
    let bench = plant("keys");
    let mut top = Top::start(&bench, &[]);
    let before = top.modes();
    top.shows(&bench, "sleeper");
    assert!(top.is_raw());
    top.press("?");
    top.shows(&bench, "choose a process");
    top.press("?/oth\r");
    top.shows(&bench, "/oth");
    let size = Winsize { ws_row: 50, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&top.keyboard, size).unwrap();
    // The last line of the window.
    top.shows(&bench, "\x1b[50;1H");
    top.press("q");
    assert!(top.ends(&bench).success());
    bench.until("the terminal is restored", || top.shown().contains(LEAVE));
    assert_eq!(top.modes(), before);
    bench.ok(&["down"]);
}

#[test]
fn a_stopped_top_restores_the_terminal_until_it_continues() {
    let bench = plant("stops");
    let mut top = Top::start(&bench, &[]);
    let before = top.modes();
    top.shows(&bench, "sleeper");
    kill(top.pid(), "TSTP");
    bench.until("stopped", || top.is_stopped());
    top.shows(&bench, LEAVE);
    assert_eq!(top.modes(), before);
    kill(top.pid(), "CONT");
    top.shows(&bench, "sleeper");
    assert!(top.is_raw());
    top.press("\x1a");
    bench.until("stopped by its key", || top.is_stopped());
    kill(top.pid(), "CONT");
    bench.until("continued", || top.is_raw());
    kill(top.pid(), "TERM");
    assert!(top.ends(&bench).success());
    assert_eq!(top.modes(), before);
    bench.ok(&["down"]);
}

#[test]
fn top_ends_when_its_terminal_hangs_up_in_its_session_or_in_another() {
    let bench = plant("lost");
    let own = Top::start(&bench, &[]);
    own.shows(&bench, "sleeper");
    assert!(own.hang_up(&bench).success());
    // No signal is sent in this case: reading returns end of file, or writing fails.
    let another = Top::of(&bench, Command::new(TAHTI));
    another.shows(&bench, "sleeper");
    assert!(another.hang_up(&bench).success());
    bench.ok(&["down"]);
}

#[test]
fn colours_are_drawn_unless_disabled() {
    let bench = plant("shades");
    let green = ";32m";
    for (no_color, is_green) in [("", true), ("1", false)] {
        let mut top = Top::start(&bench, &[("NO_COLOR", no_color)]);
        bench.until("drawn", || top.shown().contains("other"));
        top.press("n");
        bench.until("sorted", || top.shown().contains("name"));
        let shown = top.shown();
        assert_eq!(shown.contains(green), is_green, "{shown:?}");
        assert!(is_green || !(shown.contains(";31m") || shown.contains(";33m")), "{shown:?}");
        top.press("q");
        assert!(top.ends(&bench).success());
    }
    bench.ok(&["down"]);
}

#[test]
fn a_plant_that_went_down_is_shown_as_such() {
    let bench = plant("gone");
    let top = Top::start(&bench, &[]);
    top.shows(&bench, "sleeper");
    bench.ok(&["down"]);
    top.shows(&bench, "went down");
}

//! The terminal: output of the screen, and restoring of the previous state.

use crate::attach::{modes, set_raw};
use crate::failure::Failure;
use crate::out;
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::termios::{OptionalActions, Termios, tcgetwinsize, tcsetattr};
use std::fmt::Write as _;
use std::io::{self, stdin, stdout};
use std::sync::{Mutex, Once, PoisonError};

/// Selects the alternate screen, hides the cursor, disables wrapping, clears the screen.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The previous terminal modes. `Some` only while the full screen is active.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The alternate screen of the terminal in raw mode. Restores the terminal when dropped and when a thread panics.
#[derive(Debug)]
pub(super) struct Screen(Termios);

impl Screen {
    pub(super) fn enter() -> Result<Self, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        let screen = Self(modes()?);
        screen.take()?;
        Ok(screen)
    }

    /// Restores the terminal for other programs, until [`Self::take`].
    pub(super) fn leave(&self) {
        give_back();
    }

    /// Takes the terminal, even if it is active already and another program has changed its modes.
    pub(super) fn take(&self) -> Result<(), Failure> {
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.0.clone());
        set_raw(&self.0)?;
        Ok(out::control(ENTER)?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Restores the terminal. Does not use the lock of standard output, which a panicking thread may hold. Errors are
/// ignored: a terminal that is gone needs no restoring.
fn give_back() {
    if let Some(before) = BEFORE.try_lock().ok().and_then(|mut before| before.take()) {
        let _ = rustix::io::write(stdout(), LEAVE.as_bytes());
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &before);
    }
}

/// Draws cells with the escape sequences that every terminal supports. Each picture is one write.
#[derive(Debug, Default)]
pub(super) struct Ansi {
    written: String,
}

impl Ansi {
    fn style(&mut self, cell: &Cell) {
        self.written.push_str("\x1b[0");
        let modifiers = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)];
        let mut codes: Vec<u8> =
            modifiers.iter().filter(|one| cell.modifier.contains(one.0)).map(|one| one.1).collect();
        let colour = match cell.fg {
            Color::Red => Some(31),
            Color::Green => Some(32),
            Color::Yellow => Some(33),
            _ => None,
        };
        codes.extend(colour.filter(|_| out::colours()));
        for code in codes {
            // Writing to a string does not fail.
            let _ = write!(self.written, ";{code}");
        }
        self.written.push('m');
    }
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                // Writing to a string does not fail.
                let _ = write!(self.written, "\x1b[{};{}H", y + 1, x + 1);
            }
            if style.replace((cell.fg, cell.modifier)) != Some((cell.fg, cell.modifier)) {
                self.style(cell);
            }
            self.written.push_str(cell.symbol());
            // Characters other than ASCII may be wider than one column.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.written.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(stdout())?;
        Ok(shown(size.ws_col, size.ws_row))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.written.is_empty() { Ok(()) } else { out::control(&std::mem::take(&mut self.written)) }
    }
}

/// The drawn size of a terminal. Terminals that do not know their size report 0, which becomes 80 x 24. An upper limit
/// saves memory for cells that are too many to read.
fn shown(columns: u16, rows: u16) -> Size {
    const COLUMNS_MAX: u16 = 1000;
    const ROWS_MAX: u16 = 500;
    let or = |given, usual| if given == 0 { usual } else { given };
    Size::new(or(columns, 80).min(COLUMNS_MAX), or(rows, 24).min(ROWS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Set in the child process of the test, which runs on a terminal and panics.
    const ON_TERMINAL: &str = "TAHTI_TEST_PANICS_ON_A_TERMINAL";

    #[test]
    fn a_terminal_of_any_size_is_drawn_within_bounds() {
        assert_eq!((shown(0, 0), shown(200, 60)), (Size::new(80, 24), Size::new(200, 60)));
        assert_eq!(shown(u16::MAX, u16::MAX), Size::new(1000, 500));
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            let _screen = Screen::enter().unwrap();
            panic!("on the other screen");
        }
        let own = std::env::current_exe().unwrap();
        let name = "top::terminal::tests::a_panic_restores_the_terminal_before_its_message";
        let line = format!("stty -g; {} --exact {name} --nocapture; stty -g", own.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env(ON_TERMINAL, "1").stdin(Stdio::null());
        let shown = String::from_utf8_lossy(&command.output().expect("script, of util-linux").stdout).into_owned();
        let lines: Vec<&str> = shown.lines().map(str::trim).filter(|line| line.contains(":")).collect();
        let modes: Vec<&&str> = lines.iter().filter(|line| line.matches(':').count() > 20).collect();
        assert!(modes.len() == 2 && modes[0] == modes[1], "{shown:?}");
        let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what:?} in {shown:?}"));
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at("on the other screen"), "{shown:?}");
    }
}

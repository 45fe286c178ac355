//! The view settings that the keys control.

use super::Sort;

/// A key of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Control(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Escape,
}

/// Decodes bytes into keys. Skips escape sequences that have no meaning here.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (0x1b, [b'[' | b'O', sequence @ ..]) => {
                let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte)).unwrap_or(sequence.len());
                rest = sequence.get(end + 1..).unwrap_or_default();
                match (&sequence[..end], sequence.get(end)) {
                    (_, Some(b'A')) => all.push(Key::Up),
                    (_, Some(b'B')) => all.push(Key::Down),
                    (_, Some(b'H')) => all.push(Key::Home),
                    (_, Some(b'F')) => all.push(Key::End),
                    (b"5", Some(b'~')) => all.push(Key::PageUp),
                    (b"6", Some(b'~')) => all.push(Key::PageDown),
                    _ => {}
                }
            }
            (0x1b, _) => all.push(Key::Escape),
            (0..0x20 | 0x7f, _) => all.push(Key::Control(*first)),
            (0x20..0x7f, _) => all.push(Key::Char(char::from(*first))),
            _ => {}
        }
    }
    all
}

/// The first pane in the lower part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Latency,
    Late,
    Frames,
    Details,
    Log,
    Alarms,
}

impl Pane {
    pub(super) const ALL: [Self; 6] = [Self::Latency, Self::Late, Self::Frames, Self::Details, Self::Log, Self::Alarms];

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|pane| *pane == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A change of a process's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Start,
    Stop,
    Restart,
}

impl Action {
    /// Its name, which is that of the command.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// The action after a key, in addition to drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Go,
    /// Change the state of this process.
    Act(Action, String),
    /// Pause (true) or continue (false) the sampling.
    Pause(bool),
    /// Give the terminal back until the process is continued.
    Stop,
    Quit,
}

/// Selection, order and layout of the display.
#[derive(Debug)]
pub(super) struct View {
    pub(super) threads: bool,
    pub(super) sort: Sort,
    /// Only processes whose names contain this text are displayed.
    pub(super) filter: String,
    /// Whether keys edit the filter.
    pub(super) typing: bool,
    /// The selected process. If it is not displayed, the first one is selected.
    pub(super) chosen: Option<String>,
    pub(super) pane: Pane,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The change that the next key confirms.
    pub(super) confirm: Option<(Action, String)>,
}

impl View {
    pub(super) fn new(threads: bool, sort: Sort) -> Self {
        let (filter, pane) = (String::new(), Pane::Latency);
        Self { threads, sort, filter, typing: false, chosen: None, pane, paused: false, help: false, confirm: None }
    }

    /// Handles a key. `names` are the displayed processes in their order.
    pub(super) fn press(&mut self, key: Key, names: &[&str]) -> Then {
        match key {
            Key::Control(3) => return Then::Quit,
            Key::Control(26) => return Then::Stop,
            _ if self.typing => self.type_filter(key),
            _ if self.confirm.is_some() => {
                let confirmed = self.confirm.take().filter(|_| matches!(key, Key::Char('y' | 'Y')));
                return confirmed.map_or(Then::Go, |(action, name)| Then::Act(action, name));
            }
            Key::Char('q' | 'Q') | Key::Control(4) => return Then::Quit,
            Key::Char('?' | 'h') => self.help = !self.help,
            Key::Escape if self.help => self.help = false,
            Key::Escape => self.filter.clear(),
            Key::Char('t') => self.threads = !self.threads,
            Key::Char('c') => self.sort = Sort::Cpu,
            Key::Char('m') => self.sort = Sort::Memory,
            Key::Char('d') => self.sort = Sort::Misses,
            Key::Char('r') => self.sort = Sort::Restarts,
            Key::Char('n') => self.sort = Sort::Name,
            Key::Char('o') => self.sort = Sort::Order,
            Key::Char('/') => self.typing = true,
            Key::Char('s') => self.confirm(Action::Start, names),
            Key::Char('x') => self.confirm(Action::Stop, names),
            Key::Char('R') => self.confirm(Action::Restart, names),
            Key::Char('p') => {
                self.paused = !self.paused;
                return Then::Pause(self.paused);
            }
            // Tab (9) and Enter (13).
            Key::Control(9) => self.pane = self.pane.next(),
            Key::Control(13) => self.pane = Pane::Details,
            Key::Char(number @ '1'..='6') => self.pane = Pane::ALL[number as usize - '1' as usize],
            Key::Up | Key::Char('k') => self.go(-1, names),
            Key::Down | Key::Char('j') => self.go(1, names),
            Key::PageUp => self.go(-10, names),
            Key::PageDown => self.go(10, names),
            Key::Home => self.go(isize::MIN, names),
            Key::End => self.go(isize::MAX, names),
            Key::Char(_) | Key::Control(_) => {}
        }
        Then::Go
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Control(8 | 0x7f) => drop(self.filter.pop()),
            Key::Control(13) => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.filter.clear();
            }
            _ => {}
        }
    }

    fn confirm(&mut self, action: Action, names: &[&str]) {
        self.confirm = names.get(self.at(names)).map(|name| (action, (*name).to_owned()));
    }

    fn go(&mut self, steps: isize, names: &[&str]) {
        let last = names.len().saturating_sub(1);
        let at = self.at(names).saturating_add_signed(steps).min(last);
        self.chosen = names.get(at).map(|name| (*name).to_owned());
    }

    /// The index of the selected process in `names`.
    pub(super) fn at(&self, names: &[&str]) -> usize {
        names.iter().position(|name| Some(*name) == self.chosen.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(pressed: &[u8]) -> (View, Vec<Then>) {
        let mut view = View::new(false, Sort::Order);
        let then = keys(pressed).into_iter().map(|key| view.press(key, &["a", "b", "c"])).collect();
        (view, then)
    }

    #[test]
    fn keys_sort_choose_and_quit() {
        assert_eq!(view(b"tc").0.sort, Sort::Cpu);
        assert!(view(b"t").0.threads && !view(b"tt").0.threads);
        for (key, sort) in [(b'm', Sort::Memory), (b'd', Sort::Misses), (b'r', Sort::Restarts), (b'n', Sort::Name)] {
            assert_eq!(view(&[key]).0.sort, sort);
        }
        assert_eq!(view(b"\x1b[B\x1b[B\x1b[A").0.chosen.as_deref(), Some("b"));
        assert_eq!(view(b"\x1bOB\x1b[6~\x1b[5~j").0.chosen.as_deref(), Some("b"));
        assert_eq!(view(b"\x1b[F").0.chosen.as_deref(), Some("c"));
        assert_eq!(view(b"\t").0.pane, Pane::Late);
        assert_eq!(view(b"\r").0.pane, Pane::Details);
        assert_eq!(view(b"pp").1, [Then::Pause(true), Then::Pause(false)]);
        for end in [b'q', 3, 4] {
            assert_eq!(view(&[end]).1, [Then::Quit]);
        }
        assert_eq!(view(&[26]).1, [Then::Stop]);
    }

    #[test]
    fn a_process_is_changed_only_after_a_confirmation() {
        let last = |pressed: &[u8]| view(pressed).1.pop().unwrap();
        assert_eq!(last(b"jxy"), Then::Act(Action::Stop, "b".to_owned()));
        assert_eq!(last(b"sY"), Then::Act(Action::Start, "a".to_owned()));
        assert_eq!(last(b"Ry"), Then::Act(Action::Restart, "a".to_owned()));
        for refused in [&b"xn"[..], b"x\x1b", b"x\r", b"xny", b"y"] {
            assert_eq!(last(refused), Then::Go, "{refused:?}");
        }
        assert_eq!(last(b"xq"), Then::Go, "the key answers the question");
        assert_eq!(view(b"x").0.confirm, Some((Action::Stop, "a".to_owned())));
    }

    #[test]
    fn a_filter_takes_all_letters_and_escape_clears_it() {
        let typed = view(b"/qcx\x7f\rn").0;
        assert_eq!((typed.filter.as_str(), typed.typing, typed.sort), ("qc", false, Sort::Name));
        assert_eq!(view(b"/q\x1b").0.filter, "");
        assert_eq!(view(b"/q\r\x1b").0.filter, "");
        assert_eq!(view(b"/q\x03").1.last(), Some(&Then::Quit));
    }

    #[test]
    fn unknown_key_sequences_are_ignored() {
        assert_eq!(keys(b"\x1b[1;5Cx\x1b[<0;1;1M\xff\xfe\x1b["), [Key::Char('x')]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
    }
}

//! The terminal: taken over, drawn on, and given back whatever happens.
//!
//! Signals stay signals: only echo and line editing are switched off, so that Ctrl-C ends a run even if this thread
//! hangs. Keys come from the controlling terminal and not from standard input, which may hold the targets. A terminal
//! backend of our own and not a crate's, because those take the signals and standard input for themselves. Escape
//! sequences: ECMA-48 and xterm's "Control Sequences".

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};

use super::keys::{self, ViewKey};

/// Longest time between two pictures: how soon a changed window size and a new second are seen.
const REFRESH: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// The controlling terminal, not yet taken over.
pub(super) struct Screen {
    loan: Arc<TerminalGuard>,
    terminal: Terminal<Tty>,
}

impl Screen {
    /// Opens the controlling terminal, if there is one and it is ours to draw on.
    pub(super) fn open() -> anyhow::Result<Self> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .context("standard error is not a terminal")?;
        // A background job would be stopped by the first change of the terminal's modes.
        anyhow::ensure!(tcgetpgrp(&tty)? == getpgrp(), "the terminal belongs to another job");
        Ok(Self::on(tty)?)
    }

    fn on(tty: File) -> io::Result<Self> {
        let modes = tcgetattr(&tty)?;
        let loan = Arc::new(TerminalGuard { tty, modes, is_entered: AtomicBool::new(false) });
        let tty =
            Tty { loan: Arc::clone(&loan), out: Vec::new(), colours: std::env::var_os("NO_COLOR").is_none() };
        Ok(Self { loan, terminal: Terminal::new(tty)? })
    }

    /// Takes the terminal over. It is given back when this is dropped, and before any panic is reported.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let loan = Arc::clone(&self.loan);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            loan.give_back();
            report(panic);
        }));
        self.loan.take()?;
        self.terminal.clear()
    }

    /// Draws what has changed.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture).map(|_| ())
    }

    /// Waits for keys, but not for long.
    pub(super) fn wait_for_keys(&mut self) -> io::Result<Vec<ViewKey>> {
        let mut ready = [PollFd::new(&self.loan.tty, PollFlags::IN)];
        match poll(&mut ready, Some(&REFRESH)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 256];
        match (&self.loan.tty).read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(keys::parse_keys(&bytes[..length])),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.loan.give_back();
    }
}

/// A terminal that is to be given back as it was.
struct TerminalGuard {
    tty: File,
    modes: Termios,
    is_entered: AtomicBool,
}

/// The other screen, cleared, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Plain letters, the cursor, the first screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

impl TerminalGuard {
    fn take(&self) -> io::Result<()> {
        let mut modes = self.modes.clone();
        modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        // Ctrl-S would stop the picture, and at its end the program.
        modes.input_modes &= !InputModes::IXON;
        // A load generator that sleeps or dumps core leaves the terminal to nobody.
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        modes.special_codes[SpecialCodeIndex::VQUIT] = 0;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        self.is_entered.store(true, Ordering::SeqCst);
        tcsetattr(self.tty.as_fd(), OptionalActions::Now, &modes)?;
        (&self.tty).write_all(ENTER)
    }

    /// Once, by whoever comes first. Keys that were typed for the view are not left to the shell.
    fn give_back(&self) {
        if self.is_entered.swap(false, Ordering::SeqCst) {
            // A terminal that is gone needs nothing back.
            let _ = (&self.tty).write_all(LEAVE);
            let _ = tcsetattr(self.tty.as_fd(), OptionalActions::Flush, &self.modes);
        }
    }
}

/// Cells to escape sequences, one write per picture.
struct Tty {
    loan: Arc<TerminalGuard>,
    out: Vec<u8>,
    colours: bool,
}

impl Tty {
    fn put(&mut self, sequence: &str) -> io::Result<()> {
        self.out.extend_from_slice(sequence.as_bytes());
        Ok(())
    }

    fn style(&mut self, (foreground, background, modifier): Style) {
        let mut codes = String::from("\x1b[0");
        let weights = [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")];
        weights.iter().filter(|(one, _)| modifier.contains(*one)).for_each(|(_, code)| codes += code);
        if self.colours {
            codes += &ansi(foreground).map(|code| format!(";{code}")).unwrap_or_default();
            codes += &ansi(background).map(|code| format!(";{}", code + 10)).unwrap_or_default();
        }
        self.out.extend_from_slice(codes.as_bytes());
        self.out.push(b'm');
    }
}

type Style = (Color, Color, Modifier);

/// The colours that every terminal has and its user has chosen; the view uses no others.
fn ansi(colour: Color) -> Option<u8> {
    Some(match colour {
        Color::Black => 30,
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::Gray => 37,
        Color::DarkGray => 90,
        _ => return None,
    })
}

impl Backend for Tty {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = None;
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.put(&format!("\x1b[{};{}H", y + 1, x + 1))?;
            }
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if style != Some(wanted) {
                self.style(wanted);
                style = Some(wanted);
            }
            self.put(cell.symbol())?;
            next = Some((x + 1, y));
        }
        self.put("\x1b[0m")
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25h")
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Asked only by views within a page of text; this one fills the screen.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.put(&format!("\x1b[{};{}H", y + 1, x + 1))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.put(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[0J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(&self.loan.tty)?;
        Ok(Size { width: size.ws_col, height: size.ws_row })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    /// Nothing is drawn on a terminal that was given back, such as after another thread's panic.
    fn flush(&mut self) -> io::Result<()> {
        let picture = std::mem::take(&mut self.out);
        if self.loan.is_entered.load(Ordering::SeqCst) {
            (&self.loan.tty).write_all(&picture)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use ratatui::text::Line;
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;

    /// A screen that is entered is given back when any thread of the process panics, and one test makes a thread panic: one at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A terminal of 20 by 5: the end of the person at it, and ours.
    fn terminal() -> (File, File) {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let tty = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&tty, Winsize { ws_row: 5, ws_col: 20, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        (File::from(person), File::from(tty))
    }

    /// All that was written before this mark.
    fn seen(mut person: &File, mut tty: &File) -> String {
        tty.write_all(b"MARK").unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"MARK") {
            let mut bytes = [0; 4096];
            let length = person.read(&mut bytes).unwrap();
            seen.extend_from_slice(&bytes[..length]);
        }
        String::from_utf8(seen).unwrap()
    }

    fn modes(tty: &File) -> (LocalModes, InputModes) {
        let modes = tcgetattr(tty).unwrap();
        (modes.local_modes, modes.input_modes)
    }

    fn hello(screen: &mut Screen) {
        screen.draw(|frame| frame.render_widget(Line::from("hello"), frame.area())).unwrap();
    }

    #[test]
    fn the_terminal_is_given_back_as_it_was() {
        let _alone = alone();
        let (person, tty) = terminal();
        let before = modes(&tty);
        let mut screen = Screen::on(tty.try_clone().unwrap()).unwrap();
        screen.enter().unwrap();
        hello(&mut screen);
        assert!(!modes(&tty).0.intersects(LocalModes::ICANON | LocalModes::ECHO));
        assert!(modes(&tty).0.contains(LocalModes::ISIG), "Ctrl-C must stay a signal");
        drop(screen);
        assert_eq!(modes(&tty), before);
        let seen = seen(&person, &tty);
        assert!(seen.starts_with("\x1b[?1049h") && seen.contains("hello"), "{seen:?}");
        assert!(seen.ends_with("\x1b[?25h\x1b[?1049lMARK"), "{seen:?}");
    }

    #[test]
    fn a_panic_of_any_thread_is_reported_on_a_terminal_that_was_given_back() {
        let _alone = alone();
        let (person, tty) = terminal();
        let before = modes(&tty);
        let mut screen = Screen::on(tty.try_clone().unwrap()).unwrap();
        screen.enter().unwrap();
        let panicked = std::thread::spawn(|| panic!("a sender that panics, for the test")).join();
        assert!(panicked.is_err());
        assert_eq!(modes(&tty), before);
        hello(&mut screen);
        drop(screen);
        let seen = seen(&person, &tty);
        assert!(seen.ends_with("\x1b[?1049lMARK"), "nothing is drawn after it: {seen:?}");
    }

    #[test]
    fn keys_come_one_by_one_without_an_end_of_line() {
        let _alone = alone();
        let (person, tty) = terminal();
        let mut screen = Screen::on(tty).unwrap();
        screen.enter().unwrap();
        (&person).write_all(b"q").unwrap();
        let keys = std::iter::repeat_with(|| screen.wait_for_keys().unwrap()).find(|keys| !keys.is_empty());
        assert_eq!(keys.unwrap(), [ViewKey::StopAttack]);
    }
}

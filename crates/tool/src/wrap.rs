//! Text in the columns of a terminal: for the screens of `find`, `isolate` and `doctor`.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// Columns of where a text goes, if that is a terminal that knows them.
pub(crate) fn columns(out: impl AsFd + IsTerminal) -> Option<usize> {
    let size = out.is_terminal().then(|| tcgetwinsize(out).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A text in lines: the first goes on behind what is there, the others behind so many spaces. What is beyond the columns is cut.
pub(crate) fn wrapped(begin: &str, text: &str, indent: usize, wide: usize) -> Vec<String> {
    broken(begin, text, indent, wide).iter().map(|line| cut(line, wide)).collect()
}

/// The same, and nothing cut: a word that is longer than a line (a role's name, a URL) stands whole.
pub(crate) fn broken(begin: &str, text: &str, indent: usize, wide: usize) -> Vec<String> {
    let clean: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let (mut lines, mut line, mut begun) = (Vec::new(), begin.to_owned(), false);
    for word in clean.split_whitespace() {
        if begun && line.chars().count() + 1 + word.chars().count() > wide {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            begun = false;
        }
        if begun || !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    lines.push(line);
    lines
}

/// The line without what is beyond the columns.
pub(crate) fn cut(line: &str, wide: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() <= wide {
        return line.to_owned();
    }
    line.chars().take(wide - 1).chain(['…']).collect()
}

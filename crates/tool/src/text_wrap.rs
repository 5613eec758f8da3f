//! Text in the columns of a terminal: for the screens of `find`, `isolate` and `doctor`.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;
pub(crate) use seawall_core::terminal_safe::sanitize as clean;

/// Returns the columns of an output, if it is a terminal that knows them.
pub(crate) fn terminal_columns(out: impl AsFd + IsTerminal) -> Option<usize> {
    let size = out.is_terminal().then(|| tcgetwinsize(out).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Wraps a text: the first line follows `begin`, the others are indented. Lines are cut at the last column.
pub(crate) fn wrap_and_truncate(begin: &str, text: &str, indent: usize, wide: usize) -> Vec<String> {
    wrap_without_truncating(begin, text, indent, wide).iter().map(|line| truncate_line(line, wide)).collect()
}

/// Wraps a text without cutting it: a word that is longer than a line (a role's name, a URL) stays whole.
pub(crate) fn wrap_without_truncating(begin: &str, text: &str, indent: usize, wide: usize) -> Vec<String> {
    let clean = clean(text);
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

/// Lines that somebody else wrote, without what a terminal obeys.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

/// Cuts a line at the last column.
pub(crate) fn truncate_line(line: &str, wide: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() <= wide {
        return line.to_owned();
    }
    line.chars().take(wide - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names from others went to the terminal with marks by which words stood in another order than was meant.
    #[test]
    fn what_a_terminal_obeys_is_no_part_of_a_text_and_letters_of_all_languages_are() {
        let text = "a\u{1b}[31m\u{9b}b \u{202e}c\u{2066}d\u{2069} e\u{200f}f\u{200e}\u{61c}\u{2028}g\r\nh";
        assert_eq!(wrap_without_truncating("", text, 0, 80), ["a [31m b c d e f g h"]);
        assert_eq!(wrap_without_truncating("", "größer 日本 שלום ✓", 0, 80), ["größer 日本 שלום ✓"]);
    }

    /// The last words of a pod that failed before its load began went to the terminal as they were.
    #[test]
    fn an_error_in_words_of_others_gives_a_terminal_no_commands_and_keeps_its_lines() {
        let error = anyhow::anyhow!("a\u{1b}]0;title\u{7}b\n--image: c\u{202e}d");
        assert_eq!(sanitize_lines(&format!("{error:#}")), "a ]0;title b\n--image: c d");
    }
}

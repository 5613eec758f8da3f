//! The destination of a report: standard output, or a file that is written anew each time.

use std::fs::File;
use std::io::{self, IsTerminal, Seek, Write};

use anyhow::Context as _;

/// An opened destination.
#[derive(Debug)]
pub(crate) enum ReportOutput {
    /// The screen or a pipe.
    Stdout,
    /// A file, with its name for messages.
    File(File, String),
}

impl ReportOutput {
    /// `stdout` is a keyword, as in vegeta; anything else is created, or emptied if it exists.
    pub(crate) fn open(name: &str) -> anyhow::Result<Self> {
        if is_stdout(name) {
            return Ok(Self::Stdout);
        }
        let file = File::create(name).with_context(|| format!("cannot write {name}"))?;
        Ok(Self::File(file, name.to_owned()))
    }

    /// Writes the whole report; `again` if it replaces one that is there already.
    pub(crate) fn write(&mut self, report: &str, again: bool) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                // Clear the screen and go to its top left corner: vegeta's two sequences.
                let clear = if again { "\x1b[2J\x1b[0;0H" } else { "" };
                write!(out, "{clear}{report}")
                    .and_then(|()| out.flush())
                    .context("cannot write to standard output")
            }
            Self::File(file, name) => rewrite(file, report).with_context(|| format!("cannot write {name}")),
        }
    }
}

fn is_stdout(name: &str) -> bool {
    matches!(name, "stdout" | "-")
}

/// Returns true if `name` is standard output and standard output is a terminal.
pub(crate) fn is_terminal(name: &str) -> bool {
    is_stdout(name) && io::stdout().is_terminal()
}

fn rewrite(file: &mut File, report: &str) -> io::Result<()> {
    // Pipes and devices have no length to cut, though some can be rewound; they get one report after the other.
    if file.metadata()?.is_file() {
        file.rewind()?;
        file.set_len(0)?;
    }
    file.write_all(report.as_bytes())
}

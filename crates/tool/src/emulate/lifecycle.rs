//! The life of an emulator's process: told by signals when to end, and telling scripts when it has begun.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{files, print_line};

/// The signals that end it.
pub(super) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    /// To be called before anyone can be told that it runs: a signal sent right after must not be lost.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Returns when one has come.
    pub(super) async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Says what runs: in a file if one is named, and on standard output as JSON or as these lines.
pub(super) fn announce_ready(
    statement: &Value,
    ready_file: Option<&Path>,
    as_json: bool,
    lines: &[String],
) -> anyhow::Result<()> {
    if let Some(file) = ready_file {
        files::write_file_atomically(file, &format!("{statement:#}\n"), files::PUBLIC_FILE_MODE)?;
    }
    if as_json {
        return print_line(&statement.to_string());
    }
    lines.iter().try_for_each(|line| print_line(line))
}

/// Takes back what an earlier run said, so that nobody believes it of this one.
pub(super) fn remove_ready_file(ready_file: Option<&Path>) -> anyhow::Result<()> {
    ready_file.map_or(Ok(()), files::remove_file_if_exists)
}

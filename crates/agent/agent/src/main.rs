//! `seawall-agent`, the node's metadata server. Here the word of the command line is given to whoever does what it says.

mod app;
mod cli;
mod config;
mod log;
mod reload;
mod sandbox;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use cli::args::{Command, command, help_of};
use cli::{check, import, probe, redirect, status, uninstall};
use log::{Log, Loudness, complain};
use reload::Loaded;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match command(args) {
        Ok(Command::Serve(path)) => match start(&path) {
            Ok((loaded, log, loudness)) => serve(loaded, &log, loudness),
            Err(error) => done(Err(error)),
        },
        Ok(Command::Check(path)) => done(check::check(&path).and_then(tell)),
        Ok(Command::Probe(path, asked)) => done(probe::probe(&path, asked)),
        Ok(Command::Status(path)) => done(status::status(&path).and_then(|text| say(&text))),
        Ok(Command::CheckOffline(path)) => done(check::check_offline(&path).and_then(tell)),
        Ok(Command::Import(request)) => done(import(&request)),
        Ok(Command::Redirect(request)) => done(redirect::run(&request).and_then(|text| say(&text))),
        Ok(Command::Retire(request)) => done(uninstall::run(&request).and_then(|text| say(&text))),
        Ok(Command::Print(text)) => done(say(&text)),
        Err((word, mistake)) => {
            complain(&format!("seawall-agent: {mistake}\n\n{}", help_of(&word)));
            ExitCode::from(2)
        }
    }
}

fn start(path: &Path) -> anyhow::Result<(Loaded, Log, Loudness)> {
    let loaded = Loaded::of(path)?;
    let (log, loudness) = Log::start(loaded.config.log_level).context("cannot start the log")?;
    Ok((loaded, log, loudness))
}

/// Serves until told to stop. The last lines are given a moment to be read, and nothing waits for a reader beyond it.
fn serve(loaded: Loaded, log: &Log, loudness: Loudness) -> ExitCode {
    let result = app::serve(loaded, log, loudness);
    if let Err(error) = &result {
        log.say(&format!("seawall-agent: {error:#}\n"));
    }
    log.end();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn import(request: &import::Request) -> anyhow::Result<()> {
    let imported = import::import(request)?;
    tell((imported.remarks, imported.yaml))
}

/// What was found, for standard error, and what was asked for.
fn tell((remarks, text): (String, String)) -> anyhow::Result<()> {
    complain(&remarks);
    say(&text)
}

fn say(text: &str) -> anyhow::Result<()> {
    // A closed pipe (`| head`) is the reader's choice and no failure.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn done(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("seawall-agent: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

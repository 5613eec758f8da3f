//! The main file of `seawall-agent`, the metadata server of a node. `main` parses the command line and runs the command.

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

use cli::command_line::{AgentCommand, help_text, parse_command};
use cli::{admin_query, check_config, import, redirect, status, uninstall};
use log::{AgentLog, LogLevelHandle, print_error};
use reload::LoadedConfig;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match parse_command(args) {
        Ok(AgentCommand::Serve(path)) => match start(&path) {
            Ok((loaded, log, loudness)) => serve(loaded, &log, loudness),
            Err(error) => done(Err(error)),
        },
        Ok(AgentCommand::Check(path)) => done(check_config::check(&path).and_then(tell)),
        Ok(AgentCommand::Probe(path, asked)) => done(admin_query::probe(&path, asked)),
        Ok(AgentCommand::Status(path)) => done(status::status(&path).and_then(|text| say(&text))),
        Ok(AgentCommand::CheckConfigOnly(path)) => {
            done(check_config::check_config_only(&path).and_then(tell))
        }
        Ok(AgentCommand::Import(request)) => done(import(&request)),
        Ok(AgentCommand::Redirect(request)) => done(redirect::run(&request).and_then(|text| say(&text))),
        Ok(AgentCommand::Uninstall(request)) => {
            done(uninstall::run_cluster_uninstall_step(&request).and_then(|text| say(&text)))
        }
        Ok(AgentCommand::PrintText(text)) => done(say(&text)),
        Ok(AgentCommand::PrintConfigSchema) => done(print_config_schema()),
        Err((word, mistake)) => {
            print_error(&format!("seawall-agent: {mistake}\n\n{}", help_text(&word)));
            ExitCode::from(2)
        }
    }
}

fn start(path: &Path) -> anyhow::Result<(LoadedConfig, AgentLog, LogLevelHandle)> {
    let loaded = LoadedConfig::from_file(path)?;
    let (log, loudness) = AgentLog::start(loaded.config.log_level).context("cannot start the log")?;
    Ok((loaded, log, loudness))
}

/// Runs the agent until a signal stops the agent. Then waits, for a limited time, until the log thread has written the last
/// lines.
fn serve(loaded: LoadedConfig, log: &AgentLog, loudness: LogLevelHandle) -> ExitCode {
    let result = app::serve(loaded, log, loudness);
    if let Err(error) = &result {
        log.write_text(&format!("seawall-agent: {error:#}\n"));
    }
    log.flush_with_timeout();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_config_schema() -> anyhow::Result<()> {
    say(&format!("{:#}\n", config::config_schema().context("a sample configuration has mistakes")?))
}

fn import(request: &import::ImportCommand) -> anyhow::Result<()> {
    let imported = import::import(request)?;
    tell((imported.remarks, imported.yaml))
}

/// Prints the remarks to standard error and the text to standard output.
fn tell((remarks, text): (String, String)) -> anyhow::Result<()> {
    print_error(&remarks);
    say(&text)
}

fn say(text: &str) -> anyhow::Result<()> {
    // A closed pipe (`| head`) is not a failure.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn done(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("seawall-agent: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

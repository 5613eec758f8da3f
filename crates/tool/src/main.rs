//! `seawall`, the load laboratory: one file per command, this one only chooses.

mod atomic_file;
mod attack;
mod brief_time;
mod distributed;
mod doctor;
mod emulate;
mod encode;
mod expectation_args;
mod find;
mod generator_state;
mod go_flags;
mod go_format;
mod help;
mod isolate;
mod live_page;
mod live_search_page;
mod misread_flags;
mod plot;
mod pod;
mod report;
mod text_wrap;

use std::ffi::OsString;
use std::io::{Write as _, stderr};
use std::num::NonZero;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// musl's own allocator costs a fifth of the requests per core over HTTP/2 (benches/builds).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sends load at an exact rate, shows what came back, and finds the rate at which a server breaks.
#[derive(Debug, Parser)]
#[command(
    name = "seawall",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    /// Maximum number of sending threads that `attack` starts without --threads [default: one per core]
    #[arg(long, value_name = "N")]
    cpus: Option<NonZero<usize>>,
    /// Not supported: vegeta's flag for a profile of vegeta itself; for load over time, see --stages of `attack`
    #[arg(long, value_name = "KIND", hide = true)]
    profile: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send requests at an exact rate or from a fixed number of clients
    Attack(Box<attack::AttackArgs>),
    /// Find the rate at which a target breaks, and why
    Find(Box<find::FindArgs>),
    /// Compare several paths to a target, and find out which paths are slower
    Isolate(Box<isolate::IsolateArgs>),
    /// Find what is wrong with this node or pod, without any load
    Doctor(doctor::DoctorArgs),
    /// Summarise results: text, json, histograms, or one offline HTML page
    Report(report::ReportArgs),
    /// Convert results between gob, JSON lines and CSV
    Encode(encode::EncodeArgs),
    /// Draw results as one offline HTML page or SVG
    Plot(plot::PlotArgs),
    /// Run one pod's part of a load that `--on` has started
    #[command(hide = true)]
    Pod(pod::PodArgs),
    /// Run a cloud on loopback (Google's or AWS's services), or a server that breaks at a known rate
    Emulate(emulate::EmulateArgs),
    /// Show help on a command or a topic
    Help(help::HelpArgs),
    /// Print completions for a shell
    Completions(help::CompletionsArgs),
}

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let done = match parse(&typed) {
        Ok(cli) => {
            for note in misread_flags::notes_on_flags(&typed) {
                // Standard error may be closed; the run goes on.
                let _ = writeln!(stderr(), "seawall: note: {note}");
            }
            run(cli)
        }
        Err(code) => return code,
    };
    done.unwrap_or_else(|error| {
        // An API server, a kubelet and a pod have words of their own in it.
        let text = text_wrap::sanitize_lines(&format!("{error:#}"));
        // Nobody may read it any more; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {text}");
        ExitCode::from(exit::ERROR)
    })
}

/// The command line; or the exit code once help, or what is wrong, has been shown.
fn parse(typed: &[OsString]) -> Result<Cli, ExitCode> {
    let words = go_flags::normalise_flags(typed.iter().cloned());
    let error = match matched(&words) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let command = Cli::command();
    let has_command = words.iter().any(|word| command.get_subcommands().any(|one| word == one.get_name()));
    let with_command = if has_command { None } else { error.with_command(typed) };
    let tip = match with_command {
        Some(words) => {
            let rest = matched(&go_flags::normalise_flags(words.iter().cloned()))
                .err()
                .and_then(|error| error.tip(&words));
            Some(misread_flags::describe_missing_command(&words, rest))
        }
        None => error.tip(&words),
    };
    match (tip, error) {
        (Some(tip), _) => Err(help::print_usage_error(&tip)),
        (None, UsageError::Mistake(_)) => Err(ExitCode::from(exit::USAGE_ERROR)),
        (None, UsageError::Clap(error)) => {
            // Nothing is lost if nobody can read it; the exit code says it, too.
            let _ = error.print();
            Err(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE_ERROR)))
        }
    }
}

/// An invalid command line.
enum UsageError {
    /// A value of another tool that clap would take.
    Mistake(String),
    Clap(clap::Error),
}

impl UsageError {
    fn tip(&self, words: &[OsString]) -> Option<String> {
        match self {
            Self::Mistake(mistake) => Some(mistake.clone()),
            Self::Clap(error) => misread_flags::suggest_replacement(error, words),
        }
    }

    fn with_command(&self, typed: &[OsString]) -> Option<Vec<OsString>> {
        match self {
            Self::Mistake(_) => None,
            Self::Clap(error) => misread_flags::insert_missing_command(error, typed),
        }
    }
}

/// The command line, from words that [`go_flags`] has spelled.
fn matched(words: &[OsString]) -> Result<Cli, UsageError> {
    if let Some(mistake) = misread_flags::find_mistake(words) {
        return Err(UsageError::Mistake(mistake));
    }
    let parsed = help::arrange_help(Cli::command()).try_get_matches_from(words);
    parsed.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(UsageError::Clap)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    ensure!(
        cli.profile.is_none(),
        "-profile (vegeta's profile of itself) is not supported: use perf record. For load over time, use seawall \
         attack --stages …"
    );
    match cli.command {
        Command::Attack(args) => attack::run(&args, cli.cpus),
        Command::Find(args) => find::run(&args, cli.cpus),
        Command::Isolate(args) => isolate::run(&args, cli.cpus),
        Command::Doctor(args) => doctor::run(&args),
        Command::Report(args) => report::run(args),
        Command::Encode(args) => encode::run(args),
        Command::Plot(args) => plot::run(args),
        Command::Pod(args) => Ok(pod::run(&args)),
        Command::Emulate(args) => emulate::run(args),
        Command::Help(args) => help::run(&args),
        Command::Completions(args) => help::print_completions(&args),
    }
}

/// Exit codes; `--help` of each command lists those it uses.
mod exit {
    /// `find` has found a cliff, `isolate` has told all variants apart or equal, a comparison of two runs found nothing worse, or
    /// `doctor` found no fault.
    pub(crate) const SUCCESS: u8 = 0;
    /// Bad flags, bad files, an unusable address: nothing was sent. Or what was sent could not be written down.
    pub(crate) const ERROR: u8 = 1;
    /// A flag, a command or a value that does not exist.
    pub(crate) const USAGE_ERROR: u8 = 2;
    /// The target missed an objective, spent its errors, or breaks at a lower rate than it did; of `isolate --a --b`, b is slower, has more errors or breaks at a lower rate.
    pub(crate) const SLO_MISSED: u8 = 3;
    /// The generator was the limit: nothing can be said about the target.
    pub(crate) const GENERATOR_LIMITED: u8 = 4;
    /// Nothing broke up to the highest rate that might be offered.
    pub(crate) const NO_LIMIT_FOUND: u8 = 5;
    /// The target fails with next to nothing to do.
    pub(crate) const UNSTABLE_BASELINE: u8 = 6;
    /// A cliff was found, and after overload the target does not recover by itself.
    pub(crate) const METASTABLE: u8 = 7;
    /// The measurement does not decide: the time ended before a limit was found, two runs overlap, `isolate` could not tell
    /// variants apart in time, or `doctor` could not see everything that it checks.
    pub(crate) const UNDECIDED: u8 = 8;
    /// `doctor` found what does harm, or is next to it.
    pub(crate) const DOCTOR_ERROR: u8 = 9;
    /// `doctor` found what will do harm under load.
    pub(crate) const DOCTOR_WARNING: u8 = 10;
    /// The target died during the run, and did not come back.
    pub(crate) const TARGET_DIED: u8 = 11;

    /// The shell's convention for a program that a signal ended.
    pub(crate) fn from_signal(signal: i32) -> u8 {
        u8::try_from(128 + signal).unwrap_or(u8::MAX)
    }
}

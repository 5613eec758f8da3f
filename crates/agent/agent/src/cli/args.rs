//! The command line, read by hand: a parser crate would be larger than what it parses. Knows the words and does nothing that they say.

use std::ffi::OsString;
use std::path::PathBuf;

use super::import::Request;
use super::probe::Asked;
use super::{import, redirect, uninstall};
use crate::config;

/// Each tool that can be left behind stands where `IMPORT` does.
const HELP: &str = "\
seawall-agent: answers the metadata addresses that cloud SDKs know, one per Kubernetes node.

Usage:
  seawall-agent [--config FILE]         serve until SIGTERM (default file: /etc/seawall/agent.yaml)
  seawall-agent check [--config FILE]   read the configuration and the identity file, name every
                                        mistake, print the effective configuration (remarks on
                                        standard error); exit 1 on mistakes
  seawall-agent check --offline [--config FILE]
                                        the same of the configuration alone, on any machine: no file that it names is
                                        opened, no credentials are looked for, and no variable need be set; exit 0 if
                                        it has no mistake
  seawall-agent probe [--live] [--config FILE]
                                        ask the agent of this pod whether it is ready, or with --live only whether it answers;
                                        exit 1 if it is not
  seawall-agent status [--config FILE]  print what the agent of this pod says: whether it is ready, each pod and what it holds
  seawall-agent config-default          print the documented default configuration
IMPORT                                        print the configuration that means what these flags of that tool mean,
                                        of all its programs together; remarks on standard error
  seawall-agent redirect attach|status|remove|print
                                        bring metadata addresses to the agent; `seawall-agent redirect help`
  seawall-agent retire agents|nodes|stay
                                        take the agent out of a cluster; `seawall-agent retire help`
  seawall-agent version
  seawall-agent help

The configuration is read again when its file changes, and applied without ending a connection; a bad one is refused and the one
in force stays, as the log, `status` and an event say. What only a restart changes is said there, too, and in `config-default`.

Signals: SIGTERM and SIGINT drain, the second one ends at once; SIGHUP reads the configuration again at once; SIGUSR1, SIGUSR2 and
SIGQUIT are ignored.
Exit codes: 0 stopped as asked; 1 bad configuration, a port in use, anything that stops the start; 2 bad usage.
Example:
  seawall-agent config-default > agent.yaml && seawall-agent check --config agent.yaml
";

fn help() -> String {
    HELP.replace("IMPORT", &import::usage())
}

/// Where the configuration is unless `--config` names another.
const CONFIG: &str = "/etc/seawall/agent.yaml";

pub(crate) enum Command {
    Serve(PathBuf),
    Check(PathBuf),
    Probe(PathBuf, Asked),
    Status(PathBuf),
    CheckOffline(PathBuf),
    Import(Request),
    Redirect(redirect::Request),
    Retire(uninstall::Request),
    Print(String),
}

/// Of a command that has one of its own, or of all.
pub(crate) fn help_of(word: &OsString) -> String {
    match word.to_str() {
        Some("redirect") => redirect::HELP.to_owned(),
        Some("retire") => uninstall::HELP.to_owned(),
        _ => help(),
    }
}

pub(crate) fn command(mut args: Vec<OsString>) -> Result<Command, String> {
    // They have a help of their own.
    match args.split_first().map(|(word, rest)| (word.to_str(), rest)) {
        Some((Some("redirect"), rest)) => {
            return redirect::Request::parse(rest).map(Command::Redirect);
        }
        Some((Some("retire"), rest)) => {
            return uninstall::Request::parse(rest).map(Command::Retire);
        }
        _ => {}
    }
    // With whatever word it comes; what stands behind `--` belongs to another program.
    if args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        return Ok(Command::Print(help()));
    }
    // Before any flag is taken, likewise.
    if let Some((_, rest)) = args.split_first().filter(|(word, _)| *word == "import") {
        return Request::parse(rest).map(Command::Import);
    }
    let path = config_flag(&mut args)?;
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or("?")).collect();
    let named = path.is_some();
    let path = path.unwrap_or_else(|| CONFIG.into());
    match words[..] {
        [] => Ok(Command::Serve(path)),
        ["check"] => Ok(Command::Check(path)),
        ["probe"] => Ok(Command::Probe(path, Asked::Ready)),
        ["probe", "--live"] | ["--live", "probe"] => Ok(Command::Probe(path, Asked::Live)),
        ["status"] => Ok(Command::Status(path)),
        ["check", "--offline"] | ["--offline", "check"] => Ok(Command::CheckOffline(path)),
        ["config-default"] if !named => Ok(Command::Print(config::DEFAULT.into())),
        ["version" | "--version" | "-V"] if !named => {
            Ok(Command::Print(concat!("seawall-agent ", env!("CARGO_PKG_VERSION"), "\n").into()))
        }
        ["help"] => Ok(Command::Print(help())),
        _ => Err(format!("seawall-agent: cannot make sense of: {}", words.join(" "))),
    }
}

/// Takes `--config FILE` or `--config=FILE` (one dash or two) out of the arguments.
fn config_flag(args: &mut Vec<OsString>) -> Result<Option<PathBuf>, String> {
    let is_flag = |arg: &OsString| arg == "--config" || arg == "-config";
    if let Some(at) = args.iter().position(is_flag) {
        args.remove(at);
        if at >= args.len() {
            return Err("seawall-agent: --config needs a file".into());
        }
        return Ok(Some(args.remove(at).into()));
    }
    let value =
        |arg: &OsString| Some(arg.to_str()?.trim_start_matches('-').strip_prefix("config=")?.to_owned());
    let found = args.iter().enumerate().find_map(|(i, arg)| Some((i, value(arg)?)));
    Ok(found.map(|(at, value)| {
        args.remove(at);
        value.into()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, String> {
        command(args.iter().map(OsString::from).collect())
    }

    #[test]
    fn words_and_flag_in_any_order() {
        for args in [
            &["--config", "a.yaml", "check"][..],
            &["check", "-config=a.yaml"],
            &["check", "--config", "a.yaml"],
        ] {
            assert!(
                matches!(parsed(args), Ok(Command::Check(path)) if path.as_os_str() == "a.yaml"),
                "{args:?}"
            );
        }
        assert!(matches!(parsed(&[]), Ok(Command::Serve(path)) if path.as_os_str() == CONFIG));
    }

    #[test]
    fn the_flags_of_another_program_are_not_taken_for_ones_of_this() {
        let args = ["import", "kiam", "--", "--config=x", "help"];
        assert!(matches!(parsed(&args), Ok(Command::Import(_))));
        assert!(parsed(&["import", "kiam"]).is_err());
    }

    #[test]
    fn a_check_of_the_file_alone_is_asked_for_by_name() {
        for args in
            [&["check", "--offline"][..], &["--offline", "check"], &["check", "--config=a", "--offline"]]
        {
            assert!(matches!(parsed(args), Ok(Command::CheckOffline(_))), "{args:?}");
        }
        for args in [&["--offline"][..], &["version", "--offline"], &["check", "--offline", "--offline"]] {
            assert!(parsed(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_probe_asks_for_readiness_unless_told_that_an_answer_is_enough() {
        assert!(matches!(parsed(&["probe"]), Ok(Command::Probe(_, Asked::Ready))));
        for args in [&["probe", "--live"][..], &["--live", "probe"], &["probe", "--config=a", "--live"]] {
            assert!(matches!(parsed(args), Ok(Command::Probe(_, Asked::Live))), "{args:?}");
        }
        assert!(parsed(&["status", "--live"]).is_err());
    }

    /// `check --help` used to be called nonsense.
    #[test]
    fn whoever_asks_for_help_gets_it_whatever_word_stands_beside() {
        for args in [
            &["help"][..],
            &["--help"],
            &["-h"],
            &["check", "--help"],
            &["import", "--help"],
            &["import", "kiam", "-h"],
            &["config-default", "-h"],
            &["check", "--config", "a.yaml", "--help"],
            &["nonsense", "--help"],
        ] {
            assert!(matches!(parsed(args), Ok(Command::Print(text)) if text == help()), "{args:?}");
        }
        let of_another = ["import", "kiam", "--", "--help"];
        assert!(matches!(parsed(&of_another), Ok(Command::Import(_))));
    }

    #[test]
    fn the_redirects_help_is_its_own_with_whatever_word() {
        for args in [&["redirect", "--help"][..], &["redirect", "attach", "-h"], &["redirect", "help"]] {
            assert!(matches!(parsed(args), Ok(Command::Redirect(redirect::Request::Help))), "{args:?}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for args in [
            &["serve"][..],
            &["--config"],
            &["check", "twice"],
            &["--verbose"],
            &["config-default", "--config=x"],
        ] {
            assert!(parsed(args).is_err(), "{args:?}");
        }
    }
}

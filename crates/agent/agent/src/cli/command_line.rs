//! Parses the command line: the command and the flags of each command. The module does not run commands.
//!
//! A command accepts only its own flags. Each flag is allowed once, unless the command declares it as repeatable. `--help` after
//! a command prints the help of that command.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg::{Long, Short, Value};
use lexopt::{Error, Parser};

use super::admin_query::ProbeKind;
use super::flag_parser::{self, Flags};
use super::{import, redirect, uninstall};
use crate::config;

const ABOUT: &str = "\
seawall-agent: answers the metadata requests of cloud SDKs for the pods of a Kubernetes node. Each node runs one agent.
";

/// The commands, each with its help lines. [`import::usage`] adds the usage lines of `import`.
const COMMANDS: [(&str, &str); 10] = [
    (
        "",
        "  seawall-agent [--config FILE]         serve until SIGTERM (default file: /etc/seawall/agent.yaml)
",
    ),
    (
        "check",
        "  seawall-agent check [--config FILE]   check the configuration and the identity file. Print the effective
                                        configuration, with warnings on standard error; or print every mistake and exit 1.
  seawall-agent check --offline [--config FILE]
                                        check the configuration only, on any machine. This needs no credentials, no environment variables
                                        and none of the files that the configuration names. Exit 0 if the configuration has no mistake.
",
    ),
    (
        "probe",
        "  seawall-agent probe [--live] [--config FILE]
                                        ask the agent in this pod whether the agent is ready; with --live, only whether the agent answers.
                                        Exit 1 if the agent is not ready or does not answer.
",
    ),
    (
        "status",
        "  seawall-agent status [--config FILE]  print the state of the agent in this pod: readiness, configuration, each pod with its credentials
",
    ),
    (
        "config-default",
        "  seawall-agent config-default          print the documented default configuration
",
    ),
    (
        "config-schema",
        "  seawall-agent config-schema           print the JSON schema of the configuration, for editors and for checks before a deployment
",
    ),
    (
        "import",
        "                                        translate the flags of all programs of that tool into one agent configuration; print warnings on
                                        standard error
",
    ),
    (
        "redirect",
        "  seawall-agent redirect attach|status|detach|print
                                        send pods' metadata requests to the agent; see `seawall-agent redirect help`
",
    ),
    (
        "uninstall",
        "  seawall-agent uninstall delete-agents|wait-for-nodes|idle
                                        remove the agent from a cluster; see `seawall-agent uninstall help`
",
    ),
    ("version", "  seawall-agent version\n  seawall-agent help [COMMAND]\n"),
];

const MORE: &str = "
The agent reads the configuration again when its file changes, and applies it without closing a connection. If the file has a mistake,
or changes a key that needs a restart, the agent keeps the old configuration; the log, `status` and a Kubernetes event give the reason.
`config-default` lists the keys that need a restart.

Signals: after SIGTERM or SIGINT, the agent answers open requests and then ends; a second such signal ends the agent at once. SIGHUP makes the agent
read the configuration again at once. The agent ignores SIGUSR1, SIGUSR2 and SIGQUIT.
Exit codes: 0 stopped by a signal; 1 a bad configuration, a port in use, or another failure; 2 bad usage.
Example:
  seawall-agent config-default > agent.yaml && seawall-agent check --offline --config agent.yaml
";

/// Returns the help of one command. If no command has this name, returns the help of all commands.
pub(crate) fn help_text(command: &str) -> String {
    match command {
        "redirect" => redirect::HELP.to_owned(),
        "uninstall" => uninstall::HELP.to_owned(),
        _ => {
            let lines = |(word, text): &(&str, &str)| {
                if *word == "import" { import::usage() + text } else { (*text).to_owned() }
            };
            match COMMANDS.iter().find(|(word, _)| *word == command && !word.is_empty()) {
                Some(known) => format!("Usage:\n{}", lines(known)),
                None => format!("{ABOUT}\nUsage:\n{}{MORE}", COMMANDS.iter().map(lines).collect::<String>()),
            }
        }
    }
}

/// The default path of the configuration file.
const CONFIG: &str = "/etc/seawall/agent.yaml";

pub(crate) enum AgentCommand {
    Serve(PathBuf),
    Check(PathBuf),
    Probe(PathBuf, ProbeKind),
    Status(PathBuf),
    CheckConfigOnly(PathBuf),
    Import(import::ImportCommand),
    Redirect(redirect::RedirectCommand),
    Uninstall(uninstall::UninstallCommand),
    PrintText(String),
    PrintConfigSchema,
}

/// Parses a command line. On failure, returns the name of the command and the error.
/// The name is empty if the command line has no command before the mistake.
pub(crate) fn parse_command(args: Vec<OsString>) -> Result<AgentCommand, (String, Error)> {
    let mut args = Parser::from_args(args);
    let mut before = Flags::default();
    let word = loop {
        match args.next().map_err(|error| (String::new(), error))? {
            Some(Long("config")) if !before.has("config") => {
                before.push("config", args.value().map_err(|error| (String::new(), error))?);
            }
            Some(Short('h') | Long("help")) => return Ok(AgentCommand::PrintText(help_text(""))),
            Some(Short('V') | Long("version")) => break "version".to_owned(),
            Some(Value(word)) => break word.to_string_lossy().into_owned(),
            Some(other) => return Err((String::new(), other.unexpected())),
            None => break String::new(),
        }
    };
    of_word(&word, args, before).map_err(|error| (word, error))
}

fn of_word(word: &str, mut args: Parser, before: Flags) -> Result<AgentCommand, Error> {
    let (takes, takes_config): (&[&str], _) = match word {
        "check" => (&["config=", "offline"], true),
        "probe" => (&["config=", "live"], true),
        "status" | "" => (&["config="], true),
        "config-default" | "config-schema" | "version" | "redirect" | "uninstall" | "import" | "help" => {
            (&[], false)
        }
        _ => return Err(Error::Custom(format!("unknown command {word:?}").into())),
    };
    if before.has("config") && !takes_config {
        return Err(Error::UnexpectedOption("--config".to_owned()));
    }
    match word {
        "redirect" => return redirect::RedirectCommand::parse(args).map(AgentCommand::Redirect),
        "uninstall" => return uninstall::UninstallCommand::parse(args).map(AgentCommand::Uninstall),
        "import" => {
            let request = import::ImportCommand::parse(&mut args)?;
            return Ok(request.map_or_else(|| AgentCommand::PrintText(help_text(word)), AgentCommand::Import));
        }
        "help" => {
            return Ok(AgentCommand::PrintText(help_text(
                &flag_parser::next_word(&mut args)?.unwrap_or_default(),
            )));
        }
        _ => {}
    }
    let Some(flags) = before.read_more(&mut args, takes)? else {
        return Ok(AgentCommand::PrintText(help_text(word)));
    };
    let path = flags.path("config").unwrap_or_else(|| CONFIG.into());
    Ok(match word {
        "" => AgentCommand::Serve(path),
        "check" if flags.has("offline") => AgentCommand::CheckConfigOnly(path),
        "check" => AgentCommand::Check(path),
        "probe" => {
            AgentCommand::Probe(path, if flags.has("live") { ProbeKind::Live } else { ProbeKind::Ready })
        }
        "status" => AgentCommand::Status(path),
        "config-default" => AgentCommand::PrintText(config::DEFAULT_CONFIG_YAML.into()),
        "config-schema" => AgentCommand::PrintConfigSchema,
        _ => AgentCommand::PrintText(concat!("seawall-agent ", env!("CARGO_PKG_VERSION"), "\n").into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<AgentCommand, (String, Error)> {
        parse_command(args.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_file_is_named_before_the_word_or_behind_it_once() {
        for args in [
            &["--config", "a.yaml", "check"][..],
            &["check", "--config=a.yaml"],
            &["check", "--config", "a.yaml"],
        ] {
            assert!(
                matches!(parsed(args), Ok(AgentCommand::Check(path)) if path.as_os_str() == "a.yaml"),
                "{args:?}"
            );
        }
        assert!(matches!(parsed(&[]), Ok(AgentCommand::Serve(path)) if path.as_os_str() == CONFIG));
        assert!(parsed(&["--config", "a", "check", "--config", "b"]).is_err());
        assert!(parsed(&["--config", "a", "--config", "b"]).is_err());
    }

    #[test]
    fn the_flags_of_another_program_are_not_taken_for_ones_of_this() {
        let args = ["import", "kiam", "--", "--config=x", "help"];
        assert!(matches!(parsed(&args), Ok(AgentCommand::Import(_))));
        assert!(parsed(&["import", "kiam"]).is_err());
    }

    #[test]
    fn a_check_of_the_file_alone_is_asked_for_by_name() {
        for args in [&["check", "--offline"][..], &["check", "--config=a", "--offline"]] {
            assert!(matches!(parsed(args), Ok(AgentCommand::CheckConfigOnly(_))), "{args:?}");
        }
        for args in [
            &["--offline"][..],
            &["--offline", "check"],
            &["version", "--offline"],
            &["check", "--offline", "--offline"],
        ] {
            assert!(parsed(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_probe_asks_for_readiness_unless_told_that_an_answer_is_enough() {
        assert!(matches!(parsed(&["probe"]), Ok(AgentCommand::Probe(_, ProbeKind::Ready))));
        for args in [&["probe", "--live"][..], &["probe", "--config=a", "--live"]] {
            assert!(matches!(parsed(args), Ok(AgentCommand::Probe(_, ProbeKind::Live))), "{args:?}");
        }
        assert!(parsed(&["status", "--live"]).is_err());
    }

    #[test]
    fn each_command_has_a_help_of_its_own() {
        let printed = |args: &[&str]| match parsed(args) {
            Ok(AgentCommand::PrintText(text)) => text,
            other => panic!("{args:?}: {:?}", other.err()),
        };
        for args in [&["help"][..], &["--help"], &["-h"], &["--config", "a.yaml", "--help"]] {
            let text = printed(args);
            for (word, _) in COMMANDS {
                assert!(text.contains(word), "{args:?}: {word}");
            }
        }
        for word in ["check", "probe", "status", "config-default", "import"] {
            let own = printed(&["help", word]);
            assert!(own.contains(&format!("seawall-agent {word}")) && !own.contains("Exit codes"), "{own}");
            assert_eq!(printed(&[word, "--help"]), own);
        }
        assert_eq!(printed(&["import", "kiam", "-h"]), help_text("import"));
        assert_eq!(printed(&["check", "--config", "a.yaml", "-h"]), help_text("check"));
        let of_another = ["import", "kiam", "--", "--help"];
        assert!(matches!(parsed(&of_another), Ok(AgentCommand::Import(_))));
        for args in [&["redirect", "--help"][..], &["redirect", "attach", "-h"], &["redirect", "help"]] {
            assert!(
                matches!(parsed(args), Ok(AgentCommand::Redirect(redirect::RedirectCommand::Help))),
                "{args:?}"
            );
        }
    }

    /// The parser once accepted `config=x` and `-----config=x`.
    #[test]
    fn nonsense_is_named() {
        for (args, named) in [
            (&["serve"][..], "serve"),
            (&["--config"], "--config"),
            (&["config=x"], "config=x"),
            (&["-config=x"], "-c"),
            (&["-----config=x"], "---config"),
            (&["check", "twice"], "twice"),
            (&["check", "--offline=yes"], "yes"),
            (&["--verbose"], "--verbose"),
            (&["config-default", "--config=x"], "--config"),
            (&["--config=x", "version"], "--config"),
            (&["nonsense", "--help"], "nonsense"),
        ] {
            let error = parsed(args).err().map(|(_, error)| error.to_string()).unwrap();
            assert!(error.contains(named), "{args:?}: {error}");
        }
    }
}

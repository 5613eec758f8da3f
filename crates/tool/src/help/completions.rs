//! Completions for bash, zsh and fish, from the definition of the commands.
//!
//! The crate `clap_complete` does this as well, and costs 38 KB of the image, which has 10 KB left; this costs a fraction, because it
//! completes names alone: commands, topics, flags and words that stand for a choice. Values of flags are files to the shell.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, Command, ValueEnum};

/// Shells that completions are made for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// The completions that can follow a command.
struct CompletionPlace {
    /// The commands so far, such as `emulate server`; empty at the start.
    path: String,
    /// The names, each with its description.
    names: Vec<(String, String)>,
    flags: Vec<CompletionFlag>,
}

struct CompletionFlag {
    long: Option<String>,
    short: Option<char>,
    about: String,
    takes_value: bool,
}

/// The script for a shell. `topics` may follow `help`, beside commands.
pub(super) fn completion_script(
    shell: CompletionShell,
    command: &Command,
    topics: &[(&str, &str)],
) -> String {
    let mut places = Vec::new();
    add(&mut places, "", command);
    let commands = places.first().map(|place| place.names.clone()).unwrap_or_default();
    if let Some(help) = places.iter_mut().find(|place| place.path == "help") {
        help.names = commands;
        help.names.extend(topics.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())));
    }
    match shell {
        CompletionShell::Bash => bash(&places),
        CompletionShell::Zsh => zsh(&places),
        CompletionShell::Fish => fish(&places),
    }
}

fn add(places: &mut Vec<CompletionPlace>, path: &str, command: &Command) {
    let shown = || command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let mut names: Vec<_> =
        shown().map(|inner| (inner.get_name().to_owned(), first_line(inner.get_about()))).collect();
    for argument in command.get_positionals() {
        let choices = argument.get_possible_values();
        names.extend(choices.iter().map(|choice| (choice.get_name().to_owned(), String::new())));
    }
    let flags =
        command.get_arguments().filter(|argument| !argument.is_positional() && !argument.is_hide_set());
    places.push(CompletionPlace { path: path.to_owned(), names, flags: flags.map(flag).collect() });
    for inner in shown() {
        add(places, format!("{path} {}", inner.get_name()).trim_start(), inner);
    }
}

fn flag(argument: &Arg) -> CompletionFlag {
    let takes_value = argument.get_action().takes_values() && !argument.is_require_equals_set();
    CompletionFlag {
        long: argument.get_long().map(str::to_owned),
        short: argument.get_short(),
        about: first_line(argument.get_help()),
        takes_value,
    }
}

fn first_line(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

impl CompletionFlag {
    /// Returns the flag as it is typed, long and short.
    fn spellings(&self) -> impl Iterator<Item = String> + '_ {
        let long = self.long.iter().map(|long| format!("--{long}"));
        long.chain(self.short.map(|short| format!("-{short}")))
    }
}

/// Writes a loop over the words before the one to complete; it leaves the commands among them in `at`.
fn walk(places: &[CompletionPlace], words: &str) -> String {
    let mut out = format!("    local at= word\n    for word in {words}; do\n        case \"$at $word\" in\n");
    for CompletionPlace { path, .. } in places.iter().skip(1) {
        // At the first command, nothing stands before the space.
        let before = if path.contains(' ') { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "            \"{before}{path}\") at=\"{path}\" ;;");
    }
    out + "        esac\n    done\n"
}

fn bash(places: &[CompletionPlace]) -> String {
    let mut out = "_seawall() {\n".to_owned() + &walk(places, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"");
    out += "    local names= flags= typed=\"${COMP_WORDS[COMP_CWORD]}\"\n    case \"$at\" in\n";
    for CompletionPlace { path, names, flags } in places {
        let names: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
        let flags: Vec<_> = flags.iter().flat_map(CompletionFlag::spellings).collect();
        let (names, flags) = (names.join(" "), flags.join(" "));
        let _ = writeln!(out, "        \"{path}\") names=\"{names}\" flags=\"{flags}\" ;;");
    }
    out + "    esac\n    case \"$typed\" in -*) names=\"$flags\" ;; esac\n    COMPREPLY=($(compgen -W \"$names\" -- \"$typed\"))\n}\n\
           complete -o default -F _seawall seawall\n"
}

fn zsh(places: &[CompletionPlace]) -> String {
    let quoted = |name: &str, about: &str| format!("'{name}:{}'", about.replace('\'', "'\\''"));
    let mut out =
        "#compdef seawall\n_seawall() {\n".to_owned() + &walk(places, "\"${(@)words[2,CURRENT-1]}\"");
    out += "    local -a names flags\n    case \"$at\" in\n";
    for CompletionPlace { path, names, flags } in places {
        let names: Vec<_> = names.iter().map(|(name, about)| quoted(name, about)).collect();
        let flags: Vec<_> =
            flags.iter().flat_map(|flag| flag.spellings().map(|name| quoted(&name, &flag.about))).collect();
        let (names, flags) = (names.join(" "), flags.join(" "));
        let _ = writeln!(out, "        \"{path}\") names=({names}) flags=({flags}) ;;");
    }
    out + "    esac\n    if [[ ${words[CURRENT]} == -* ]]; then _describe -o flag flags\n    elif (( $#names )); then _describe name names\n    \
           else _files\n    fi\n}\nif [[ ${funcstack[1]} == _seawall ]]; then _seawall \"$@\"; else compdef _seawall seawall; fi\n"
}

fn fish(places: &[CompletionPlace]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut out = String::new();
    for CompletionPlace { path, names, flags } in places {
        let mut conditions: Vec<_> =
            path.split_whitespace().map(|word| format!("__fish_seen_subcommand_from {word}")).collect();
        if path.is_empty() {
            conditions.push("__fish_use_subcommand".to_owned());
        } else if !names.is_empty() {
            // `help help` is nobody's wish, and would rule `help` itself out.
            let names = names.iter().map(|(name, _)| name.as_str()).filter(|name| name != path);
            let names: Vec<_> = names.collect();
            conditions.push(format!("not __fish_seen_subcommand_from {}", names.join(" ")));
        }
        let begin = format!("complete -c seawall -n {}", quoted(&conditions.join("; and ")));
        for (name, about) in names {
            let _ = writeln!(out, "{begin} -f -a {name} -d {}", quoted(about));
        }
        for CompletionFlag { long, short, about, takes_value } in flags {
            let long = long.as_ref().map(|long| format!(" -l {long}")).unwrap_or_default();
            let short = short.map(|short| format!(" -s {short}")).unwrap_or_default();
            let value = if *takes_value { " -r" } else { "" };
            let _ = writeln!(out, "{begin}{long}{short}{value} -d {}", quoted(about));
        }
    }
    out
}

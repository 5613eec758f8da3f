//! The pods' command line: the user's own, without what is the business of the program that orders them.
//!
//! Which flags there are and which take a value is asked of clap's definition of the command, so that there is no second list of it. Flags have
//! two dashes here ([`crate::go_flags`]).

use std::ffi::OsString;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, Args as _};

use super::args::DistributedArgs;
use super::pod_options::LoadCommand;

/// Flags that this program handles itself, beside [`DistributedArgs`]: output, start, and the report to resume. `targets` and
/// `output` are replaced if they differ in pods.
const OURS: [&str; 12] = [
    "live-page",
    "control-socket",
    "live",
    "summary",
    "timeseries",
    "hdr",
    "prometheus-addr",
    "start-at",
    "json",
    "html",
    "resume",
    "max-errors",
];

/// Flags that `find` handles itself: this program alone reads the metrics of the target.
const OURS_OF_FIND: [&str; 2] = ["server-metrics", "server-cgroup"];

/// Flags whose values differ in pods.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlagOverrides<'a> {
    /// `--targets`.
    pub(super) targets: Option<&'a str>,
    /// `--output`.
    pub(super) output: Option<&'a str>,
}

/// The words of pods, from the command's own on, of all that the user has typed.
///
/// # Errors
/// A word that is not UTF-8.
pub(super) fn pod_command_line(
    typed: impl IntoIterator<Item = OsString>,
    command: LoadCommand,
    definition: &clap::Command,
    anew: FlagOverrides<'_>,
) -> anyhow::Result<Vec<String>> {
    let word = command.name();
    let definition = definition.find_subcommand(word).with_context(|| format!("unknown command {word}"))?;
    let typed: Vec<_> = typed.into_iter().map(OsString::into_string).collect();
    let Ok(typed) = typed.into_iter().collect::<Result<Vec<_>, _>>() else {
        bail!("--on kubernetes: the command line must be UTF-8, because pods get it as JSON");
    };
    // What stands before the command is of this machine (--cpus).
    let own =
        typed.iter().skip(1).position(|typed| typed == word).map_or(&[][..], |place| &typed[place + 2..]);
    let said = [("targets", anew.targets), ("output", anew.output)];
    let said = said.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    let mut words = vec![word.to_owned()];
    words.extend(said.clone().map(|(flag, value)| format!("--{flag}={value}")));
    let of_on = DistributedArgs::augment_args(clap::Command::new("on"));
    let is_left_out = |flag: &str| {
        named(&of_on, flag).is_some()
            || OURS.contains(&flag)
            || (command == LoadCommand::Find && OURS_OF_FIND.contains(&flag))
            || said.clone().any(|(said, _)| said == flag)
    };
    words.extend(kept(own, definition, is_left_out));
    Ok(words)
}

/// Words without such flags and their values.
fn kept(words: &[String], definition: &clap::Command, is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut kept, mut rest) = (Vec::new(), words);
    while let Some((word, after)) = rest.split_first() {
        if word == "--" {
            kept.extend_from_slice(rest);
            break;
        }
        let (flag, value) = word.split_once('=').map_or((&**word, None), |(flag, value)| (flag, Some(value)));
        let (argument, is_glued) = match short(word) {
            Some(letter) => (abbreviated(definition, letter), word.len() > 2),
            None => (flag.strip_prefix("--").and_then(|long| named(definition, long)), value.is_some()),
        };
        let values = argument.filter(|_| !is_glued).map_or(0, values).min(after.len());
        let (of_flag, after) = rest.split_at(1 + values);
        if !argument.and_then(Arg::get_long).is_some_and(&is_left_out) {
            kept.extend_from_slice(of_flag);
        }
        rest = after;
    }
    kept
}

fn named<'a>(definition: &'a clap::Command, long: &str) -> Option<&'a Arg> {
    definition.get_arguments().find(|argument| argument.get_long() == Some(long))
}

/// The letter of a word such as `-n` or `-n100`.
fn short(word: &str) -> Option<char> {
    word.strip_prefix('-')?.chars().next().filter(char::is_ascii_alphabetic)
}

fn abbreviated(definition: &clap::Command, letter: char) -> Option<&Arg> {
    definition.get_arguments().find(|argument| argument.get_short() == Some(letter))
}

/// Returns the number of words that follow a flag.
fn values(argument: &Arg) -> usize {
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    if !takes || argument.is_require_equals_set() {
        return 0;
    }
    argument.get_num_args().map_or(1, |range| range.min_values())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::{Cli, go_flags};

    fn of(command: LoadCommand, typed: &str, anew: FlagOverrides<'_>) -> Vec<String> {
        let mut definition = Cli::command();
        definition.build();
        let typed = go_flags::normalise_flags(typed.split_whitespace().map(OsString::from));
        pod_command_line(typed, command, &definition, anew).unwrap()
    }

    #[test]
    fn pods_are_told_what_the_user_has_typed_without_what_is_not_theirs() {
        let typed = "seawall -cpus 2 attack -rate 4000 --on kubernetes --pods=4 --node-selector a=b -targets t -lazy=false --image i --dry-run \
                     -duration=5s --live-page 127.0.0.1:0 --live none --summary=json -prometheus-addr=:80 --timeseries i --hdr h --control-socket c --keep-job \
                     --header X:-1 --on-pod-loss abort --redirects -1 --start-at 2027-01-31T12:00:00Z";
        let words = of(
            LoadCommand::Attack,
            typed,
            FlagOverrides { output: Some("none"), ..FlagOverrides::default() },
        );
        let expected = [
            "attack",
            "--output=none",
            "--rate",
            "4000",
            "--targets",
            "t",
            "--lazy=false",
            "--duration=5s",
            "--header",
            "X:-1",
        ];
        assert_eq!(words, [&expected[..], &["--redirects", "-1"]].concat());
    }

    #[test]
    fn pods_are_told_what_is_expected_of_responses() {
        for (command, word) in
            [(LoadCommand::Attack, "attack"), (LoadCommand::Find, "find"), (LoadCommand::Isolate, "isolate")]
        {
            let typed =
                format!("seawall {word} --expect status=2xx --on kubernetes --expect=body!~error --pods 2");
            let words = of(command, &typed, FlagOverrides::default());
            assert_eq!(words, [word, "--expect", "status=2xx", "--expect=body!~error"]);
        }
    }

    #[test]
    fn what_is_said_anew_replaces_what_was_said() {
        let anew = FlagOverrides { targets: Some("/run/seawall/stdin"), output: Some("none") };
        let words =
            of(LoadCommand::Attack, "seawall attack -output a.gob -targets=- -rate=1 -output=b", anew);
        assert_eq!(words, ["attack", "--targets=/run/seawall/stdin", "--output=none", "--rate=1"]);
    }

    /// A pod would have written the file, too.
    #[test]
    fn short_flags_are_left_out_as_long_ones_are() {
        let anew = FlagOverrides { output: Some("none"), ..FlagOverrides::default() };
        let typed = "seawall attack -n100 -o a.gob -c 4 -H X:1 http://a/ -o./b --on kubernetes --pods 2";
        let words = of(LoadCommand::Attack, typed, anew);
        assert_eq!(words, ["attack", "--output=none", "-n100", "-c", "4", "-H", "X:1", "http://a/"]);
    }

    #[test]
    fn a_search_is_the_users_and_its_offers_are_the_pods() {
        let typed = "seawall find http://a/ --slo p99<1s --json j --html - --resume f --server-metrics http://m/ --server-cgroup /g --live-page 127.0.0.1:0 --on=kubernetes \
                     --closed-loop --max-pods 9 --attach-job x";
        assert_eq!(
            of(LoadCommand::Find, typed, FlagOverrides::default()),
            ["find", "http://a/", "--slo", "p99<1s", "--closed-loop"]
        );
        let typed = "seawall isolate --experiment e --on kubernetes --json j --a http://a/ --b http://b/ --volume emptyDir:/a --until-p99";
        let words = of(LoadCommand::Isolate, typed, FlagOverrides::default());
        assert_eq!(
            words,
            ["isolate", "--experiment", "e", "--a", "http://a/", "--b", "http://b/", "--until-p99"]
        );
    }

    #[test]
    fn what_stands_behind_two_dashes_is_no_flag() {
        let words = of(
            LoadCommand::Find,
            "seawall find --pods 2 --on kubernetes -- --pods",
            FlagOverrides::default(),
        );
        assert_eq!(words, ["find", "--", "--pods"]);
    }

    /// A flag that was renamed would be the pods' from then on.
    #[test]
    fn every_flag_that_is_left_out_is_one_of_a_command() {
        let definition = Cli::command();
        let commands = ["attack", "find", "isolate"].map(|word| definition.find_subcommand(word).unwrap());
        for flag in OURS.iter().chain(&OURS_OF_FIND) {
            assert!(commands.iter().any(|command| named(command, flag).is_some()), "{flag}");
        }
    }
}

//! Help in three sizes: `-h` fits on a screen, `--help` lists every flag under a heading, `seawall help TOPIC` holds the prose.
//!
//! The commands that send load have a hundred flags. Which of them `-h` shows, and under which heading `--help` lists each, stands in the
//! tables here and nowhere else. Knows no flag's meaning.

mod completions;

use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Arg, CommandFactory as _};

use self::completions::CompletionShell;
use crate::{Cli, exit};

/// The arguments of `help`.
#[derive(Debug, clap::Args)]
pub(crate) struct HelpArgs {
    /// Command or topic
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

/// The argument of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: seawall completions bash > /etc/bash_completion.d/seawall")]
pub(crate) struct CompletionsArgs {
    /// Shell: bash, zsh or fish
    shell: CompletionShell,
}

/// Topics, what each is about, and its text.
const TOPICS: [(&str, &str, &str); 15] = [
    ("targets", "Targets: URLs, files, weights, variants", include_str!("help/targets.txt")),
    ("conditions", "Conditions for good responses (--expect)", include_str!("help/conditions.txt")),
    ("slo", "Objectives (--slo): conditions and how they are judged", include_str!("help/slo.txt")),
    ("ci", "A gate for a CI job, and its exit codes", include_str!("help/ci.txt")),
    ("stages", "Load that changes over time", include_str!("help/stages.txt")),
    ("templates", "Placeholders in requests", include_str!("help/templates.txt")),
    (
        "steering",
        "Commands that change, pause and end a run; the live page in a browser",
        include_str!("help/steering.txt"),
    ),
    ("generators", "Several machines that send one load", include_str!("help/generators.txt")),
    ("kubernetes", "Load from the pods of a cluster", include_str!("help/kubernetes.txt")),
    (
        "search",
        "How find searches, what it finds, and how it compares two runs",
        include_str!("help/search.txt"),
    ),
    (
        "comparison",
        "How isolate compares: factors, experiment files, verdicts",
        include_str!("help/comparison.txt"),
    ),
    ("json", "The JSON that attack, find and isolate write", include_str!("help/json.txt")),
    ("exit-codes", "Exit codes of attack, find and isolate", include_str!("help/exit-codes.txt")),
    ("vegeta", "Where attack differs from vegeta", include_str!("help/vegeta.txt")),
    (
        "other-tools",
        "Flags of hey, oha, ab, wrk and k6, and their counterparts in seawall",
        include_str!("help/other-tools.txt"),
    ),
];

/// The layout of the help of a command that sends load.
struct HelpLayout {
    command: &'static str,
    /// Flags that `-h` shows.
    short: &'static [&'static str],
    /// Two example commands that can be pasted.
    examples: &'static str,
}

const LAYOUTS: [HelpLayout; 3] = [
    HelpLayout {
        command: "attack",
        short: &[
            "urls",
            "rate",
            "duration",
            "requests",
            "concurrency",
            "stages",
            "method",
            "header",
            "data",
            "body",
            "targets",
            "output",
            "summary",
            "slo",
            "expect",
            "timeout",
        ],
        examples: "\
Examples:
  seawall attack -n 200 -c 50 http://127.0.0.1:8080/
  seawall attack -q 100 -z 30s --slo 'p99<250ms,errors<0.1%' http://127.0.0.1:8080/",
    },
    HelpLayout {
        command: "find",
        short: &[
            "url",
            "slo",
            "quick",
            "thorough",
            "max_rate",
            "budget",
            "method",
            "header",
            "data",
            "body",
            "json",
            "html",
            "compare",
            "live_page",
        ],
        examples: "\
Examples:
  seawall find http://127.0.0.1:8080/ --slo 'p99<250ms,errors<0.1%' --json before.json
  seawall find --compare before.json after.json",
    },
    HelpLayout {
        command: "isolate",
        short: &[
            "url",
            "factors",
            "a",
            "b",
            "experiment",
            "rate",
            "budget",
            "margin",
            "capacity",
            "method",
            "header",
            "data",
            "body",
            "json",
            "html",
            "live_page",
        ],
        examples: "\
Examples:
  seawall isolate http://shop.default:8080/ --factors name,keep-alive,proxy=none
  seawall isolate --a http://127.0.0.1:8080/ --b http://127.0.0.1:8081/ --html builds.html",
    },
];

/// Headings of `--help` in their order, and the flags below each in theirs. Flags under none are advanced.
const HEADINGS: [(&str, &[&str]); 7] = [
    (
        "Load",
        &[
            "rate",
            "duration",
            "requests",
            "concurrency",
            "stages",
            "arrivals",
            "quick",
            "thorough",
            "max_rate",
            "budget",
            "closed_loop",
            "max_clients",
            "factors",
            "experiment",
            "a",
            "b",
            "margin",
            "until_p99",
            "capacity",
            "no_cause",
            "max_workers",
            "on_saturation",
            "warm_up",
        ],
    ),
    (
        "Targets",
        &[
            "method",
            "header",
            "data",
            "body",
            "content_type",
            "targets",
            "format",
            "template",
            "chunked",
            "lazy",
        ],
    ),
    (
        "Output",
        &[
            "output",
            "to",
            "summary",
            "json",
            "html",
            "timeseries",
            "hdr",
            "interval",
            "max_body",
            "connection_timings",
            "sample_responses",
            "on_slow_output",
            "resume",
            "compare",
            "name",
        ],
    ),
    ("Objectives", &["slo", "expect", "max_errors"]),
    ("Live", &["live", "live_page", "control_socket", "prometheus_addr"]),
    (
        "Connection",
        &[
            "timeout",
            "deadline",
            "redirects",
            "keepalive",
            "retries",
            "connections",
            "max_connections",
            "requests_per_connection",
            "connection_age",
            "laddr",
            "unix_socket",
            "connect_to",
            "resolvers",
            "dns_ttl",
            "proxy",
            "proxy_header",
            "cert",
            "key",
            "root_certs",
            "insecure",
            "session_tickets",
            "http2",
            "h2c",
            "streams",
            "http2_connections",
        ],
    ),
    (
        "Kubernetes",
        &[
            "on",
            "pods",
            "max_pods",
            "image",
            "image_pull_policy",
            "namespace",
            "node_selector",
            "toleration",
            "cpu",
            "memory",
            "volume",
            "on_pod_loss",
            "dry_run",
            "attach_job",
            "keep_job",
        ],
    ),
];

const ADVANCED: &str = "Advanced";

/// The definition of all commands with their help arranged.
pub(crate) fn arrange_help(command: clap::Command) -> clap::Command {
    LAYOUTS.iter().fold(command.after_help(topics()), |command, layout| {
        command.mut_subcommand(layout.command, |command| {
            arranged(command, layout.short)
                .after_help(format!("{}\n\nAll flags: --help. Topics: seawall help", layout.examples))
                .after_long_help(format!("{}\n\n{}", layout.examples, topics()))
        })
    })
}

/// A command whose flags stand below their headings. clap lists headings by their first flags, and a flag that is changed becomes the last.
fn arranged(command: clap::Command, short: &[&str]) -> clap::Command {
    let ids: Vec<String> =
        command.get_arguments().map(|argument| argument.get_id().as_str().to_owned()).collect();
    let rest = ids.iter().filter(|id| !all().any(|(_, known)| known == id.as_str()));
    let known = all().filter(|(_, known)| ids.iter().any(|id| id == known));
    let known = known.map(|(heading, id)| (heading, id.to_owned()));
    let order: Vec<_> = known.chain(rest.map(|id| (ADVANCED, id.clone()))).collect();
    order.into_iter().enumerate().fold(command, |command, (order, (heading, id))| {
        let is_short = short.contains(&id.as_str());
        command.mut_arg(id, |argument| place(argument, heading, order, is_short))
    })
}

fn place(argument: Arg, heading: &'static str, order: usize, is_short: bool) -> Arg {
    let argument = argument.hide_short_help(!is_short);
    if argument.is_positional() { argument } else { argument.help_heading(heading).display_order(order) }
}

/// Flags with their headings, in the order of the help.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    HEADINGS.iter().flat_map(|(heading, ids)| ids.iter().map(|id| (*heading, *id)))
}

fn topics() -> String {
    format!("Topics (seawall help TOPIC):\n{}", topic_lines())
}

fn topic_lines() -> String {
    TOPICS.iter().map(|(name, about, _)| format!("  {name:<12} {about}\n")).collect()
}

/// Shows what is asked for.
///
/// # Errors
/// There is no such command and no such topic.
pub(crate) fn run(args: &HelpArgs) -> anyhow::Result<ExitCode> {
    let mut command = arrange_help(Cli::command());
    command.build();
    let text = match &args.words[..] {
        [] => command.render_help().to_string(),
        [topic] if topic_text(topic).is_some() => topic_text(topic).unwrap_or_default().to_owned(),
        words => {
            let found =
                words.iter().try_fold(&mut command, |command, word| command.find_subcommand_mut(word));
            let Some(command) = found else {
                bail!("no command or topic is named {:?}: seawall help lists them", words.join(" "))
            };
            command.render_long_help().to_string()
        }
    };
    show(text.as_bytes())
}

fn topic_text(name: &str) -> Option<&'static str> {
    TOPICS.iter().find(|(known, _, _)| *known == name).map(|(_, _, text)| *text)
}

/// Prints completions.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn print_completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut command = arrange_help(Cli::command());
    command.build();
    let topics = TOPICS.map(|(name, about, _)| (name, about));
    show(completions::completion_script(args.shell, &command, &topics).as_bytes())
}

fn show(text: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // `seawall help json | head` is no mistake.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS).context("cannot write to standard output"),
    }
}

/// Says what is wrong with the command line, and answers with the exit code.
pub(crate) fn print_usage_error(text: &str) -> ExitCode {
    // Standard error may be closed; the exit code says it, too.
    let _ = writeln!(stderr(), "error: {text}\n\nFor more information, try 'seawall help other-tools'.");
    ExitCode::from(exit::USAGE_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short_help(command: &str) -> String {
        let mut all = arrange_help(Cli::command()).term_width(100);
        all.build();
        all.find_subcommand_mut(command).unwrap().render_help().to_string()
    }

    /// `attack -h` had 308 lines.
    #[test]
    fn the_short_help_of_each_large_command_fits_on_a_screen() {
        for layout in &LAYOUTS {
            let text = short_help(layout.command);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(text.lines().count() <= 45 && widest <= 100, "{widest}\n{text}");
            assert!(text.contains(layout.examples), "{text}");
        }
    }

    #[test]
    fn every_flag_of_the_tables_is_a_flag() {
        let command = Cli::command();
        let exists = |name: &str, id: &str| {
            let command = command.find_subcommand(name).unwrap();
            command.get_arguments().any(|argument| argument.get_id() == id)
        };
        for layout in &LAYOUTS {
            for id in layout.short {
                assert!(exists(layout.command, id), "{} {id}", layout.command);
            }
        }
        for id in HEADINGS.iter().flat_map(|(_, ids)| *ids) {
            assert!(LAYOUTS.iter().any(|layout| exists(layout.command, id)), "{id}");
        }
    }

    #[test]
    fn a_topic_fits_100_columns_and_is_no_command() {
        let command = Cli::command();
        for (name, _, text) in TOPICS {
            assert!(command.find_subcommand(name).is_none(), "{name}");
            assert!(text.lines().all(|line| line.chars().count() <= 100) && text.ends_with('\n'), "{name}");
        }
    }
}

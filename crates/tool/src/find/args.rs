//! The flags of `seawall find`, as typed, and which of them do not go together.

use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, ValueEnum};
use seawall_lab::find::plan::MIN_BUDGET;
use seawall_lab::objective::{Objectives, UnsearchableObjective};
use seawall_load::rate::{self, RateSetting};
use seawall_load::target;
use seawall_search::goal::SearchGoal;

use crate::atomic_file::ReportFiles;
use crate::attack::connection_args::ConnectionArgs;
use crate::attack::request_args::RequestArgs;
use crate::distributed::{DistributedArgs, DistributedOptions, DistributionFlags, LoadCommand};
use crate::expectation_args::ExpectationArgs;
use crate::live_page::LoopbackAddress;

/// The flags of `find`: the target, the search and the output.
#[derive(Debug, clap::Args)]
pub(crate) struct FindArgs {
    /// Target URL; http:// is optional; without a URL, see --targets
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Objectives, such as "p99<250ms,errors<0.1%"; see seawall help slo [default: errors<0.1%]
    #[arg(long, value_name = "CONDITIONS", action = clap::ArgAction::Append)]
    pub(crate) slo: Vec<Objectives>,
    /// Search for about a minute (the default)
    #[arg(long)]
    pub(crate) quick: bool,
    /// Search for some minutes, and find the limit three times as precisely
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Highest rate to offer
    #[arg(long, value_name = "N[/UNIT]", allow_negative_numbers = true)]
    pub(crate) max_rate: Option<MaxRate>,
    /// Time limit of the whole run [default: 90s; none with --thorough]
    #[arg(long, value_name = "DURATION", value_parser = rate::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Search for the maximum number of clients instead of the maximum rate; each client waits for its response
    #[arg(long)]
    pub(crate) closed_loop: bool,
    /// With --closed-loop: maximum number of clients [default: 4096]
    #[arg(long, value_name = "N", value_parser = clients, allow_negative_numbers = true)]
    pub(crate) max_clients: Option<NonZero<u32>>,
    /// How requests are spaced: constant, or poisson (random: the limit is lower)
    #[arg(long, value_name = "SPACING", default_value = "constant", hide_possible_values = true)]
    pub(crate) arrivals: FindArrivals,
    /// http:// URL of the target's Prometheus metrics; find reads them before and after each trial that breaks the target
    #[arg(long, value_name = "URL")]
    pub(crate) server_metrics: Option<String>,
    /// Directory of the target's control group on this machine; find reads this directory, too, before and after each such
    /// trial; with cgroup v1, give one directory per controller
    #[arg(long, value_name = "PATH")]
    pub(crate) server_cgroup: Vec<String>,
    /// Do not look for the cause
    #[arg(long)]
    pub(crate) no_cause: bool,
    /// File for the result as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// File for the result as one offline HTML page; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Serve a live page of the run at this loopback address, such as 127.0.0.1:0
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) live_page: Option<LoopbackAddress>,
    /// Continue the run whose --json result is in this file; --json writes the new result
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Compare two result files of --json; send nothing
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], exclusive = true)]
    pub(crate) compare: Vec<PathBuf>,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(crate) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(crate) format: target::TargetFormat,
    #[command(flatten)]
    pub(crate) request_args: RequestArgs,
    /// Send bodies with chunked transfer encoding
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) chunked: bool,
    /// Fill {{placeholders}} in paths, header values and bodies, as attack does
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) template: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time limit to connect, and again to respond
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::parse_duration)]
    pub(crate) timeout: Duration,
    /// Maximum number of redirects to follow; -1: take the redirect as the response
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(crate) redirects: i64,
    #[command(flatten)]
    pub(crate) expectation_args: ExpectationArgs,
    #[command(flatten)]
    pub(crate) connection_args: ConnectionArgs,
    #[command(flatten)]
    pub(crate) distributed_args: DistributedArgs,
}

/// The values of `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindArrivals {
    /// Equal gaps between requests.
    Constant,
    /// Random gaps between requests, as many independent users make them.
    Poisson,
}

/// `--max-rate`, requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MaxRate(pub(crate) f64);

impl FromStr for MaxRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<RateSetting>().map_err(|error| error.to_string())? {
            RateSetting::Exact(rate) => Ok(Self(rate.requests_per_second())),
            RateSetting::Unlimited => {
                Err("expected a finite rate; for no limit, leave out the flag".to_owned())
            }
        }
    }
}

/// `--max-clients`.
fn clients(text: &str) -> Result<NonZero<u32>, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not a number of clients: expected a whole number from 1 to {}", u32::MAX)
    })
}

/// Lowest --max-rate: the first steps of the ramp last a second or two, and a trial of no request at all looks like a target that
/// answers none.
const SLOWEST: f64 = 1.0;

impl MaxRate {
    /// Why no search can keep to it; none: one can.
    pub(crate) fn validation_error(self) -> Option<String> {
        let why =
            format!("--max-rate must be at least {SLOWEST}/s: a trial with fewer requests cannot be judged");
        (self.0 < SLOWEST).then_some(why)
    }
}

/// Returns the goal of `--slo`; without it, a small share of errors.
///
/// # Errors
/// The search does not support these objectives.
pub(crate) fn search_goal(slo: &[Objectives]) -> Result<SearchGoal, UnsearchableObjective> {
    Objectives::merge_all(slo).map_or(Ok(SearchGoal::ERRORS_ONLY), |objectives| objectives.goal())
}

impl FindArgs {
    /// Checks all combinations of flags, and reports all errors at once.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut mistakes = self.request_args.validation_errors(self.url.is_some());
        let mut refuse = |wrong: bool, text: &str| {
            if wrong {
                mistakes.push(text.to_owned());
            }
        };
        refuse(self.quick && self.thorough, "--quick and --thorough exclude each other: give one");
        refuse(
            self.url.is_some() && self.targets != "stdin",
            "a URL and -targets exclude each other: give one",
        );
        refuse(
            self.budget.is_some_and(|budget| budget < MIN_BUDGET),
            &format!(
                "--budget must be at least {MIN_BUDGET:?}: the baseline, the ramp and a few trials take that long"
            ),
        );
        refuse(
            self.timeout.is_zero(),
            "-timeout=0 sets no time limit, but a trial must end: give a duration above 0",
        );
        self.check_closed(&mut refuse);
        refuse(self.redirects < -1, "-redirects must be at least -1");
        refuse(
            ReportFiles::is_same_file(self.json.as_deref(), self.html.as_deref()),
            "--json and --html need two different files",
        );
        mistakes.extend(self.max_rate.and_then(MaxRate::validation_error));
        mistakes.extend(self.connection_args.validation_errors());
        mistakes.extend(search_goal(&self.slo).err().map(|error| format!("--slo: {error}")));
        if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
    }
}

impl FindArgs {
    /// Returns the flags that matter for the distribution to pods.
    pub(crate) fn command_io(&self) -> DistributionFlags<'_> {
        DistributionFlags { command: LoadCommand::Find, targets: &self.targets, output: None }
    }

    /// Returns the options of `--on`; `None` without `--on`.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.distributed_args
            .distributed_options(&self.command_io(), self.connection_args.unsupported_in_pods())
    }

    fn check_closed(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(
            self.closed_loop && self.max_rate.is_some(),
            "--max-rate does not apply to --closed-loop: use --max-clients",
        );
        refuse(
            self.closed_loop && self.arrivals == FindArrivals::Poisson,
            "--arrivals poisson does not apply to --closed-loop, where each client waits for its response",
        );
        refuse(
            self.closed_loop && self.resume.is_some(),
            "--resume cannot continue a run with --closed-loop: leave it out",
        );
        refuse(!self.closed_loop && self.max_clients.is_some(), "--max-clients needs --closed-loop");
    }
}

#[cfg(test)]
mod tests {
    use seawall_cause::class::CauseClass;

    #[test]
    fn the_help_names_every_class_of_causes() {
        let help = include_str!("../help/search.txt");
        for class in CauseClass::ALL {
            let is_named = help.split([' ', ',', '\n']).any(|word| word == class.slug());
            assert!(is_named, "{class}");
        }
    }
}

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
use seawall_load::target::{self, header};
use seawall_search::goal::SearchGoal;

use crate::attack::travel::ConnectionArgs;
use crate::draft::ReportFiles;
use crate::expect::ExpectationArgs;
use crate::on::{CommandContext, DistributedArgs, DistributedOptions, LoadCommand};
use crate::page::Loopback;

/// What is asked, of whom, and where the answer goes.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct FindArgs {
    /// Target: its URL, asked by GET; or targets as for attack
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// What the target is held to: one quantile, errors, or both, such as "p99<250ms,errors<0.1%" [default: errors<0.1%]
    #[arg(long, value_name = "CONDITIONS")]
    pub(crate) slo: Option<Objectives>,
    /// About a minute; so it is if nothing else is said
    #[arg(long)]
    pub(crate) quick: bool,
    /// Some minutes, for a bracket a third as wide
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Never offer more than this
    #[arg(long, value_name = "N[/UNIT]", allow_negative_numbers = true)]
    pub(crate) max_rate: Option<MaxRate>,
    /// Time for everything together, the cause included [default: 90s if quick, else as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = rate::duration)]
    pub(crate) budget: Option<Duration>,
    /// Search for a number of clients, each of which waits for its answer, in place of a rate
    #[arg(long)]
    pub(crate) closed_loop: bool,
    /// With --closed-loop: never keep more clients than this busy [default: 4096]
    #[arg(long, value_name = "N", value_parser = clients, allow_negative_numbers = true)]
    pub(crate) max_clients: Option<NonZero<u32>>,
    /// How requests are spaced: a limit under poisson is lower than under constant
    #[arg(long, value_name = "SPACING", default_value = "constant", hide_possible_values = true)]
    pub(crate) arrivals: FindArrivals,
    /// Ask the target for its metrics around trials that break it: a page in Prometheus' format, over http://
    #[arg(long, value_name = "URL")]
    pub(crate) server_metrics: Option<String>,
    /// Look at its control group around them, where it runs on this machine: the group's directory; of version 1 one for each controller
    #[arg(long, value_name = "PATH")]
    pub(crate) server_cgroup: Vec<String>,
    /// Do not look for the cause
    #[arg(long)]
    pub(crate) no_cause: bool,
    /// Write the run to this file, as JSON; - is standard output, and what is shown goes to standard error then; a pipe must have a reader already
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write it to this file as one offline HTML page; - as for --json
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Serve the run as a page at this loopback address while it goes on (127.0.0.1:0 finds a free port), with a button that ends it;
    /// standard error has its link, see below
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) live_page: Option<Loopback>,
    /// Continue the run that --json has written to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Send nothing: hold the second of two runs that --json has written beside the first
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], exclusive = true)]
    pub(crate) compare: Vec<PathBuf>,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(crate) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(crate) format: target::TargetFormat,
    /// Request header, "Key: value"; may repeat
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// File with the body of requests whose target has none
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(crate) body: String,
    /// Send bodies in chunked transfer coding
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) chunked: bool,
    /// Fill {{placeholders}} in paths, header values and bodies, as attack does
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) template: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time for a whole answer, from the send, and before that for a connection; 0 is for ever
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::duration)]
    pub(crate) timeout: Duration,
    /// Redirects to follow; -1 takes a redirect as the answer
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(crate) redirects: i64,
    #[command(flatten)]
    pub(crate) expect: ExpectationArgs,
    #[command(flatten)]
    pub(crate) travel: ConnectionArgs,
    #[command(flatten)]
    pub(crate) on: DistributedArgs,
}

/// `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindArrivals {
    /// Equally far apart.
    Constant,
    /// As many independent users make them.
    Poisson,
}

/// `--max-rate`, requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MaxRate(pub(crate) f64);

impl FromStr for MaxRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<RateSetting>().map_err(|error| error.to_string())? {
            RateSetting::Exact(rate) => Ok(Self(rate.per_second())),
            RateSetting::Unlimited => {
                Err("expected a finite rate; leave the flag out for no bound".to_owned())
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
    pub(crate) fn mistake(self) -> Option<String> {
        let why =
            format!("--max-rate must be at least {SLOWEST}/s: a trial with fewer requests cannot be judged");
        (self.0 < SLOWEST).then_some(why)
    }
}

/// What `--slo` holds a target to; a few errors where nothing is said.
///
/// # Errors
/// No search can be made of it.
pub(crate) fn goal(slo: Option<&Objectives>) -> Result<SearchGoal, UnsearchableObjective> {
    slo.map_or(Ok(SearchGoal::CLIFF), Objectives::goal)
}

impl FindArgs {
    /// What no single flag can know. All of it is said at once.
    ///
    /// # Errors
    /// Flags that do not go together.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut mistakes: Vec<String> =
            self.header.iter().filter_map(|line| Some(header(line).err()?.to_string())).collect();
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
            "-timeout=0 has no limit, but a trial must end: give a duration above 0",
        );
        self.check_closed(&mut refuse);
        refuse(self.redirects < -1, "-redirects must be at least -1");
        refuse(
            ReportFiles::is_same_file(self.json.as_deref(), self.html.as_deref()),
            "--json and --html need two different files",
        );
        mistakes.extend(self.max_rate.and_then(MaxRate::mistake));
        mistakes.extend(self.travel.mistakes());
        mistakes.extend(goal(self.slo.as_ref()).err().map(|error| format!("--slo: {error}")));
        if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
    }
}

impl FindArgs {
    /// What of it matters to pods.
    pub(crate) fn command_context(&self) -> CommandContext<'_> {
        CommandContext { command: LoadCommand::Find, targets: &self.targets, output: None }
    }

    /// What is asked of a cluster, if anything is.
    ///
    /// # Errors
    /// All that does not go together.
    pub(crate) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.on.distributed_options(&self.command_context(), self.travel.unsupported_in_pods())
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

const HELP: &str = "\
Example: how much does it take, and what is in the way?
  seawall find http://127.0.0.1:8080/ --slo 'p99<250ms,errors<0.1%' --json before.json
It looks at what this generator can do, at the target with nothing to do, doubles the rate until
something breaks, narrows the bracket by trials, overloads the target once more to see whether it
recovers, and then tries out what tells causes apart. It offers more than the target takes, many
times and briefly: --max-rate is the most that it may offer.
  seawall find http://127.0.0.1:8080/ --slo 'p99<250ms,errors<0.1%' --resume before.json
goes on with a run that was interrupted or had no more time: at the same server, by the same way and with
the same requests, or it is refused; and
  seawall find --compare before.json after.json
is a gate for a pipeline.

With --closed-loop it searches for a number of clients, each of which waits for its answer before it asks
again: how many are borne, and the rate that more of them do not raise. A closed loop slows down with
its target, so neither says what users see who do not wait. It looks for no cause.

What is found:
  cliff   above it errors are too many, or what is in flight grows without end
  knee    above it answers are later than --slo allows, too; not searched without a quantile
Both as a bracket with 97 % credibility, beside the rates that were tested. Without a bracket the
rates tested are all that is known. A limit is that of its --arrivals and of its connections.

With --server-metrics or --server-cgroup the target is asked itself, before and after what breaks it and never during
it. What it says multiplies the odds of a cause by 20 at most, and decides what its clients cannot
tell apart where it speaks 5 times as clearly for one cause as for the other.

Classes of causes: rate-limiter, hanging-limiter, delaying-limiter, cpu-saturation,
  pool-saturation, concurrency-cap, connection-cap, cfs-throttling, churn-cost, keep-alive-race,
  timeout-chain, pauses, uneven-balancing, dns, ports, bandwidth, generator, unknown

JSON (--json): kind (find), version (1), outcome, stop_reason, not_run, config, generator_capacity,
breaking_rate (the cliff) and latency_breaking_rate (the knee), each with lower, upper, estimate,
highest_good_rate and lowest_bad_rate in requests/s or null; failure_mode, goodput, burst_requests,
quota_exhaustion, untested_burst, recovery, cause (name, score, evidence, estimates), other_causes,
ambiguous_causes, excluded_causes, undecided_causes, experiments, server_metrics, trials. With
--closed-loop: closed_loop (max_clients, service_time_seconds, client_limit, saturation).
The version changes when a key goes or changes its meaning. The document holds no secret: one URL without
query, user and password, how it is reached, and short digests of requests and certificate.

In the browser (--live-page 127.0.0.1:0): the page of --html while the run goes on, with what is being done
and a button that ends it as the first SIGINT does; the exit code is that of what is known then. Its link
(\"page: http://...\" on standard error) holds a token: whoever has the link sees the run and may end it,
nobody else does. When the run is over the page is that of --html, and \"Save report\" keeps it as one
offline file; an open page has up to 2 s to hear the end. To see it from elsewhere, by one port at both
ends: ssh -L 8080:127.0.0.1:8080 HOST.

The first SIGINT or SIGTERM stops the load at once and tells what is known, in all files, too; the
second ends the program.

Exit codes: 0 the cliff was found; 1 bad files or targets, flags that do not go together, or a first
target to which there is no connection: no load was sent; 2 a flag or a value that does not exist; 4 the generator was the limit; 5 nothing broke up
to --max-rate or --max-clients; 6 the goal is not kept with next to nothing to do, or as little at any rate; 7 found, and after overload the target
does not recover by itself; 8 the budget was over, or the page's button pressed, before a limit was between two rates; 11 the target went away and did not come back; 130, 143
ended early by SIGINT, SIGTERM.
Of --compare: 0 better, the same within a tenth, or not worse; 3 worse; 8 the runs do not tell; 1 they
cannot be compared. A run that broke nothing up to --max-rate, or was limited by the generator, has its
cliff at the highest rate that it held, or above: held against a cliff it is better, or not worse (what it
held is at most a tenth less), else the runs do not tell; a cliff held against it is worse, or they do not
tell. Of two such runs the later is not worse if it held what the earlier did, less a tenth; beyond that
neither tells. Another target is compared all the same, and named.";

#[cfg(test)]
mod tests {
    use seawall_cause::class::CauseClass;

    use super::HELP;

    #[test]
    fn the_help_names_every_class_of_causes() {
        for class in CauseClass::ALL {
            let is_named = HELP.split([' ', ',', '\n']).any(|word| word == class.slug());
            assert!(is_named, "{class}");
        }
    }
}
